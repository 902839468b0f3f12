//! The parent's side: starts the helper, waits a limited time, and reads a verdict out of how it ended.

use super::super::codes;
use super::super::error::{HostError, Result};
use super::super::places;
use super::super::sys;
use super::child::Answer;
use super::{MARK, PROTOCOL, Probe, Verdict};
use std::io::{PipeReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// File name of the helper, without the suffix of programs.
const HELPER: &str = "ortolan-probe";
/// So much of the child's output is kept, its end.
const OUTPUT_LIMIT: usize = 64 << 10;
/// The child's last words in a sentence.
const WORDS_LIMIT: usize = 160;

/// Probes a library. An error means that it could not be probed.
pub(super) fn run(probe: &Probe, library: &Path) -> Result<Verdict> {
    let (program, arguments) = match &probe.helper {
        Some(helper) => helper.clone(),
        None => (find_helper()?, Vec::new()),
    };
    let cannot_start = |e: std::io::Error| {
        HostError::new(codes::PROBE_UNAVAILABLE, format!("the helper cannot be started: {e}")).at(&program)
    };
    let (reader, writer) = std::io::pipe().map_err(cannot_start)?;
    let mut command = Command::new(&program);
    command.args(arguments).arg(library).stdin(Stdio::null());
    command.stdout(writer.try_clone().map_err(cannot_start)?).stderr(writer);
    sys::own_group(&mut command);
    let child = command.spawn().map_err(cannot_start)?;
    drop(command); // it holds the writing ends; the reader would never see their end
    let output = Output::read(reader);
    let status = wait(child, probe.timeout);
    let text = output.finish();
    match status {
        None => Ok(Verdict::Hung(probe.timeout.as_secs_f64())),
        Some(status) => verdict(status, &text).map_err(|e| e.at(&program)),
    }
}

/// Beside the program or the core library, or in `../lib/ortolan` seen from them.
fn find_helper() -> Result<PathBuf> {
    let name = format!("{HELPER}{}", std::env::consts::EXE_SUFFIX);
    let folders = places::code_folders();
    let prefix = folders.iter().filter_map(|f| Some(f.parent()?.join("lib").join("ortolan")));
    let candidates: Vec<PathBuf> = folders.iter().cloned().chain(prefix).map(|folder| folder.join(&name)).collect();
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let beside = folders.first().map(|f| f.display().to_string()).unwrap_or_default();
        HostError::new(
            codes::PROBE_UNAVAILABLE,
            format!("there is no helper {name} in {beside} or where the core library is"),
        )
    })
}

/// The status, or `None` when the time was up and the child was ended.
fn wait(mut child: Child, timeout: Duration) -> Option<ExitStatus> {
    let (start, mut pause) = (Instant::now(), Duration::from_micros(200));
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            sys::kill(&mut child);
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 3 / 2).min(Duration::from_millis(5));
    }
}

fn verdict(status: ExitStatus, output: &str) -> Result<Verdict> {
    let answer = output.rfind(MARK).map(|at| &output[at + MARK.len()..]);
    let answer = answer.and_then(|text| serde_json::from_str::<Answer>(text.lines().next()?).ok());
    let words = |how: String| {
        let before = output.rfind(MARK).map_or(output, |at| &output[..at]);
        let last = before.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let last: String = last.trim().chars().take(WORDS_LIMIT).collect();
        if last.is_empty() { how } else { format!("{how}, after {last:?}") }
    };
    if let Some(signal) = sys::signal_of(status) {
        return Ok(Verdict::Crashed(words(format!("died by {signal}"))));
    }
    match answer {
        Some(answer) if answer.probe != PROTOCOL || answer.core != env!("CARGO_PKG_VERSION") => {
            let sentence =
                format!("the helper belongs to core {}, this one is {}", answer.core, env!("CARGO_PKG_VERSION"));
            Err(HostError::new(codes::PROBE_UNAVAILABLE, sentence))
        }
        Some(answer) => Ok(answer.verdict),
        None => Ok(Verdict::Crashed(words(format!("ended with {status} and no answer")))),
    }
}

/// Collects what the child prints. A grandchild may hold the pipe open, so the end is waited for a short time only.
struct Output {
    text: Arc<Mutex<Vec<u8>>>,
    ended: mpsc::Receiver<()>,
}

impl Output {
    fn read(mut pipe: PipeReader) -> Self {
        let (end, ended) = mpsc::channel();
        let text = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut block) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&block[..n]);
                let surplus = kept.len().saturating_sub(OUTPUT_LIMIT);
                kept.drain(..surplus);
            }
            let _ = end.send(());
        });
        Output { text, ended }
    }

    fn finish(self) -> String {
        let _ = self.ended.recv_timeout(Duration::from_millis(200));
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }
}
