//! What a driver made of shaders serves other processes, and does no harm if it is not as it was written.
//!
//! This program is also the other process: a variable tells it what to run, and it prints what came out.

use crate::{Eps, Run};
use ortolan::{Session, SessionEp};
use ortolan_tests::ep::load;
use ortolan_tests::model::{Model, Tensor};
use ortolan_tests::{place, stress};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tracing_subscriber::filter::LevelFilter;

pub const ALL: &[(&str, Run)] = &[
    ("pipelines_serve_the_next_process", next_process),
    ("broken_pipelines_are_made_anew", broken),
    ("without_a_folder_nothing_is_kept", no_folder),
];

/// The library, the device's number, and the option `cache`: a line each.
const SECOND: &str = "ORTOLAN_TESTS_PIPELINES";
/// What the second process says in the end.
const RIGHT: &str = "the results are right";

fn model() -> Model {
    Model::new(21)
        .input("x", &["N", "16"])
        .weight("w", Tensor::random(&[16, 16], 1))
        .node("MatMul", &["x", "w"], "m")
        .node("Relu", &["m"], "r")
        .node("Softmax", &["r"], "y")
        .output("y")
}

/// Does what the variable says, if it is set.
pub fn is_second_process() -> bool {
    let Ok(told) = std::env::var(SECOND) else { return false };
    let [library, ordinal, cache] = told.lines().collect::<Vec<_>>()[..] else { panic!("{SECOND} is {told:?}") };
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG).with_ansi(false);
    lines.with_writer(std::io::stdout).init();
    let ep = load(Path::new(library));
    let ep = SessionEp::from(&*ep).device(ordinal.parse().expect("a number")).option("cache", cache);
    let session = Session::builder().eps([ep]).threads(1).build(model().bytes()).expect("the device takes all nodes");
    let x = Tensor::random(&[3, 16], 7);
    let lent = ortolan::TensorView::new(&x.shape, &x.data).expect("it fits");
    let outputs = session.run([("x", lent)]).expect("it runs");
    stress::right(&outputs, &model(), &[("x", x)]).expect("what the interpreter says");
    println!("{RIGHT}");
    true
}

/// What another process prints that works with this folder; its results are right.
fn other(eps: &Eps, cache: &Path) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let told = format!("{}\n{}\n{}", eps.file.display(), eps.ordinal, cache.display());
    let done = Command::new(program).env(SECOND, told).output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    match done.status.success() && text.contains(RIGHT) {
        true => Ok(text),
        false => Err(format!("the other process failed: {text}\n{}", String::from_utf8_lossy(&done.stderr))),
    }
}

/// Files with their content and the time of their last use.
type Files = Vec<(PathBuf, Vec<u8>, SystemTime)>;

fn files(folder: &Path) -> Result<Files, String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, about) = (entry.path(), entry.metadata().map_err(|e| e.to_string())?);
        let used = about.modified().map_err(|e| e.to_string())?;
        all.push((path.clone(), std::fs::read(path).map_err(|e| e.to_string())?, used));
    }
    all.sort();
    Ok(all)
}

/// A folder that a first process has filled; `None` if the driver hands nothing out.
fn filled(eps: &Eps, folder: &Path) -> Result<Option<Files>, String> {
    let said = other(eps, folder)?;
    let made = files(folder)?;
    if eps.info("feature.pipeline-cache")? != "true" {
        let fine = made.is_empty() && said.contains("hands out no pipelines");
        return if fine { Ok(None) } else { Err(format!("a driver without pipelines: {} files, {said}", made.len())) };
    }
    let told = format!("0 reused, {} stored", made.len());
    match made.len() >= 2 && said.contains(&told) {
        true => Ok(Some(made)),
        false => Err(format!("{} files were made: {said}", made.len())),
    }
}

fn next_process(eps: &Eps) -> Result<(), String> {
    let folder = place::fresh();
    let folder = folder.path().join("made").join("here");
    let Some(made) = filled(eps, &folder)? else { return Ok(()) };
    let long_ago = SystemTime::now() - Duration::from_secs(30 * 24 * 60 * 60);
    for (path, ..) in &made {
        let file = std::fs::OpenOptions::new().append(true).open(path).map_err(|e| e.to_string())?;
        file.set_modified(long_ago).map_err(|e| e.to_string())?;
    }
    let said = other(eps, &folder)?;
    let told = format!("{} reused, 0 stored", made.len());
    if !said.contains(&told) || said.contains("[cache-") {
        return Err(format!("the second process says {said}"));
    }
    let now = files(&folder)?;
    let same = now.len() == made.len() && now.iter().zip(&made).all(|(a, b)| (&a.0, &a.1) == (&b.0, &b.1));
    let used = now.iter().all(|f| f.2 > long_ago + Duration::from_secs(24 * 60 * 60));
    if same && used { Ok(()) } else { Err("files were written anew, or not read".to_owned()) }
}

/// What went wrong with a file.
type Damage = fn(&[u8]) -> Vec<u8>;

fn broken(eps: &Eps) -> Result<(), String> {
    let folder = place::fresh();
    let Some(made) = filled(eps, folder.path())? else { return Ok(()) };
    let damages: [Damage; 4] = [
        |whole| whole[..whole.len() - 1].to_vec(),
        |_| Vec::new(),
        |whole| vec![0xa5; whole.len()],
        |whole| whole.iter().rev().copied().collect(),
    ];
    for damage in damages {
        for (path, whole, _) in &made {
            std::fs::write(path, damage(whole)).map_err(|e| e.to_string())?;
        }
        let said = other(eps, folder.path())?;
        if said.matches("[cache-broken]").count() != made.len() {
            return Err(format!("of {} broken files it says {said}", made.len()));
        }
        let names = |files: &Files| files.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
        let told = format!("{} reused, 0 stored", made.len());
        if names(&files(folder.path())?) != names(&made) || !other(eps, folder.path())?.contains(&told) {
            return Err("the files were not made anew".to_owned());
        }
    }
    Ok(())
}

fn no_folder(eps: &Eps) -> Result<(), String> {
    let folder = place::fresh();
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").map_err(|e| e.to_string())?;
    let said = other(eps, &file.join("folder"))?;
    if eps.info("feature.pipeline-cache")? == "true" && !said.contains("[cache-unwritable]") {
        return Err(format!("without a folder it says {said}"));
    }
    other(eps, Path::new("off"))?;
    Ok(())
}
