//! Names the types of files by Magika, a small published model: `file_type FOLDER FILE...`, where `FOLDER` holds the
//! model and its settings as `python3 tests/scripts/models.py fetch` puts them there.
//!
//! It shows what an application does: find EPs, build a session, run it, read an output. The features are those that
//! the model's own documentation describes: bytes of both ends, white space trimmed.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ortolan::host::PluginHost;
use ortolan::{Session, SessionEp, TensorView};
use serde::Deserialize;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the model was trained with.
#[derive(Deserialize)]
struct Settings {
    beg_size: usize,
    end_size: usize,
    block_size: u64,
    padding_token: i32,
    min_file_size_for_dl: u64,
    medium_confidence_threshold: f32,
    thresholds: HashMap<String, f32>,
    overwrite_map: HashMap<String, String>,
    target_labels_space: Vec<String>,
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(folder), files) = (args.next(), args.collect::<Vec<_>>()) else { return usage() };
    if files.is_empty() {
        return usage();
    }
    let (session, settings) = match open(&folder) {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("{error}\nThe model comes by: python3 tests/scripts/models.py fetch target/models --only magika");
            return ExitCode::FAILURE;
        }
    };
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match name(&session, &settings, &file) {
            Ok(found) => println!("{}: {found}", file.display()),
            Err(error) => {
                eprintln!("{}: {error}", file.display());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn usage() -> ExitCode {
    eprintln!("file_type FOLDER FILE...: FOLDER holds model.onnx and config.json of Magika");
    ExitCode::from(2)
}

fn open(folder: &Path) -> Result<(Session, Settings)> {
    let settings = folder.join("config.json");
    let bytes = std::fs::read(&settings).map_err(|e| format!("{}: {e}", settings.display()))?;
    // Cargo puts examples one folder below the EPs that it builds.
    let beside = std::env::current_exe()?.parent().and_then(Path::parent).map(Path::to_owned);
    let host = beside.into_iter().fold(PluginHost::builder(), |host, folder| host.folder(folder)).build();
    let mut eps = Vec::new();
    for found in &host.discover().found {
        match host.load(&found.manifest.name) {
            Ok(ep) => eps.push(SessionEp::from(&*ep)),
            Err(why) => eprintln!("{why}"),
        }
    }
    Ok((Session::builder().eps(eps).build(folder.join("model.onnx"))?, serde_json::from_slice(&bytes)?))
}

fn name(session: &Session, settings: &Settings, path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    if size < settings.min_file_size_for_dl {
        let mut all = Vec::new();
        file.read_to_end(&mut all)?;
        let plain = if std::str::from_utf8(&all).is_ok() { "txt" } else { "unknown" };
        return Ok(if all.is_empty() { "empty" } else { plain }.to_owned());
    }
    let mut block = |from: SeekFrom| -> Result<Vec<u8>> {
        file.seek(from)?;
        let mut bytes = Vec::new();
        file.by_ref().take(settings.block_size).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let start = block(SeekFrom::Start(0))?;
    let end = block(SeekFrom::Start(size.saturating_sub(settings.block_size)))?;
    let features = features(settings, start.trim_ascii_start(), end.trim_ascii_end());
    let shape = [1, i64::try_from(features.len())?];
    let outputs = session.run([("bytes", TensorView::new(&shape, &features)?)])?;
    let scores = outputs[0].as_slice::<f32>()?;
    let best = scores.iter().zip(&settings.target_labels_space).max_by(|a, b| a.0.total_cmp(b.0));
    let (&score, label) = best.ok_or("the model gave no scores")?;
    let enough = settings.thresholds.get(label).copied().unwrap_or(settings.medium_confidence_threshold);
    let label = settings.overwrite_map.get(label).unwrap_or(label);
    let doubt = if score < enough { ", but that is a guess" } else { "" };
    Ok(format!("{label} ({:.1} %{doubt})", score * 100.0))
}

/// Bytes of the start, padded behind, then bytes of the end, padded before.
fn features(settings: &Settings, start: &[u8], end: &[u8]) -> Vec<i32> {
    let start = &start[..start.len().min(settings.beg_size)];
    let end = &end[end.len().saturating_sub(settings.end_size)..];
    let bytes = |part: &[u8]| part.iter().map(|&b| i32::from(b)).collect::<Vec<_>>();
    let mut all = bytes(start);
    all.resize(settings.beg_size + settings.end_size - end.len(), settings.padding_token);
    all.extend(bytes(end));
    all
}
