//! Speed, load time and peak memory beside ONNX Runtime, which runs in a process of its own; above a bound the bench fails.
//!
//! `cargo bench -p ortolan-tests --bench onnxruntime -- [TEXT]...`, on a machine with two quiet cores: of the models in the
//! folder that `ORTOLAN_BENCH_MODELS` names (else `ORTOLAN_PUBLISHED_MODELS`) those whose name has one of the texts in it.
//! `ORTOLAN_PYTHON` is a Python with `tests/scripts/requirements.txt` installed; `tests/scripts/onnxruntime_turns.py` says
//! where inputs come from. `ORTOLAN_BENCH_SECONDS` is the time for each model, number of threads and side, 1.5 if not set.
//!
//! Both sides take short turns on the same inputs, another one each run. Memory is the peak that loading on one thread and
//! four runs add to a fresh process that holds the runtime and the inputs; that process is what is subtracted.

use ortolan::host::LoadedEp;
use ortolan::{Session, SessionEp, TensorView};
use ortolan_graph::ir::DType;
use ortolan_tests::ep::own;
use ortolan_tests::place;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// In the child that measures our memory: the model, and the folder of its inputs.
const PEAK: [&str; 2] = ["ORTOLAN_BENCH_PEAK", "ORTOLAN_BENCH_INPUTS"];
const THREADS: [u32; 2] = [1, 2];
const TURNS: usize = 5;

/// What may be reached at most: of all models' geometric mean, and of the worst.
struct Bound(&'static str, f64, f64);

const BOUNDS: [Bound; 4] = [
    Bound("run, 1 thread", 1.5, 2.5),
    Bound("run, 2 threads", 1.6, 2.5),
    Bound("load", 0.5, f64::INFINITY),
    Bound("peak memory", 1.0, f64::INFINITY),
];

/// An answer, or why there is none.
type Answer<T> = Result<T, String>;

fn main() {
    if let [Some(model), Some(inputs)] = PEAK.map(std::env::var_os) {
        println!("{}", own_peak(Path::new(&model), Path::new(&inputs)));
        return;
    }
    let folder = std::env::var_os("ORTOLAN_BENCH_MODELS").or_else(|| std::env::var_os("ORTOLAN_PUBLISHED_MODELS"));
    let (Some(folder), Some(python)) = (folder, std::env::var_os("ORTOLAN_PYTHON")) else {
        println!(
            "nothing is measured: ORTOLAN_PYTHON has to name a Python with tests/scripts/requirements.txt installed, and\n\
             ORTOLAN_BENCH_MODELS a folder of models; `tests/scripts/models.py fetch FOLDER` fetches some"
        );
        return;
    };
    let (folder, python) = (PathBuf::from(folder), PathBuf::from(python));
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let mut names = Vec::new();
    models(&folder, &folder, &mut names);
    names.retain(|name| wanted.is_empty() || wanted.iter().any(|w| name.contains(w)));
    names.sort();
    if names.is_empty() {
        println!("{} has no such model", folder.display());
        std::process::exit(1);
    }
    let mut ratios: [Vec<f64>; 4] = Default::default();
    let mut failed = false;
    println!("{:<40} {:<15} {:>21} {:>21} {:>7} {:>7}", "", "", "ours min / median", "theirs", "of min", "median");
    for name in names {
        match compare(&python, &folder, &name) {
            Ok(pairs) => {
                for ((pair, Bound(what, ..)), all) in pairs.iter().zip(&BOUNDS).zip(&mut ratios) {
                    println!("{name:<40} {what:<15} {}", pair.text());
                    all.push(pair.ratio(median));
                }
            }
            Err(why) => {
                failed = true;
                println!("{name:<40} FAILED {why}");
            }
        }
    }
    for (all, Bound(what, mean, worst)) in ratios.iter().zip(&BOUNDS) {
        let geometric = (all.iter().map(|r| r.ln()).sum::<f64>() / all.len() as f64).exp();
        let most = all.iter().copied().fold(0.0, f64::max);
        let over = geometric > *mean || most > *worst;
        failed |= over;
        let note = if over { "  TOO MUCH" } else { "" };
        println!("{what:<15} geometric mean {geometric:.3}, bound {mean}; worst {most:.3}, bound {worst}{note}");
    }
    std::process::exit(i32::from(failed));
}

/// What both sides measured, in ms or MB.
#[derive(Default)]
struct Pair {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Pair {
    fn ratio(&self, of: fn(&[f64]) -> f64) -> f64 {
        of(&self.ours) / of(&self.theirs)
    }

    fn text(&self) -> String {
        let both = |of: &[f64]| format!("{:>10.3} {:>10.3}", least(of), median(of));
        let (ours, theirs) = (both(&self.ours), both(&self.theirs));
        format!("{ours} {theirs} {:>7.3} {:>7.3}", self.ratio(least), self.ratio(median))
    }
}

fn least(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(of: &[f64]) -> f64 {
    let mut of = of.to_vec();
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Names of the models below a folder: paths without the ending.
fn models(root: &Path, folder: &Path, names: &mut Vec<String>) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            models(root, &path, names);
        } else if path.extension().is_some_and(|e| e == "onnx") {
            let name = path.with_extension("");
            names.extend(name.strip_prefix(root).ok().map(|n| n.display().to_string()));
        }
    }
}

/// In the order of [`BOUNDS`].
fn compare(python: &Path, folder: &Path, name: &str) -> Answer<[Pair; 4]> {
    let mut pairs: [Pair; 4] = Default::default();
    let (model, inputs) = (folder.join(format!("{name}.onnx")), place::fresh());
    let mut theirs = Peer::start(python);
    theirs.ask(json!(["inputs", folder, name, inputs.path()]))?;
    theirs.ask(json!(["read", inputs.path()]))?;
    let (ep, feeds) = (own(), feeds(inputs.path()));
    for (at, threads) in THREADS.into_iter().enumerate() {
        let mut session = open(&ep, &model, threads)?;
        theirs.ask(json!(["open", model, threads]))?;
        let mut turn = 0;
        let mut ours = |session: &Session, count: usize| {
            let one = |_| {
                turn += 1;
                run(session, &feeds[turn % feeds.len()])
            };
            (0..count).map(one).collect::<Answer<Vec<f64>>>()
        };
        let mut run_theirs = |count: usize| theirs.ask(json!(["run", count])).map(|times| numbers(&times));
        let slower = ours(&session, 2)?[1].max(run_theirs(2)?[1]);
        let count = ((seconds() / TURNS as f64 / slower) as usize).clamp(1, 2000);
        for _ in 0..TURNS {
            // The first of each turn warms up.
            pause(threads);
            pairs[at].ours.extend(ours(&session, 1 + count)?.iter().skip(1).map(|s| s * 1e3));
            pause(threads);
            pairs[at].theirs.extend(run_theirs(1 + count)?.iter().skip(1).map(|s| s * 1e3));
        }
        for _ in 0..TURNS {
            drop(session);
            let start = Instant::now();
            session = open(&ep, &model, threads)?;
            pairs[2].ours.push(start.elapsed().as_secs_f64() * 1e3);
            pairs[2].theirs.push(theirs.ask(json!(["open", model, threads]))?.as_f64().unwrap_or_default() * 1e3);
        }
    }
    let mut fresh = Peer::start(python);
    fresh.ask(json!(["read", inputs.path()]))?;
    pairs[3].theirs.push(fresh.ask(json!(["peak", model]))?.as_f64().unwrap_or_default() * 1024e-6);
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    let output = child.env(PEAK[0], &model).env(PEAK[1], inputs.path()).output().expect("this program");
    let text = String::from_utf8_lossy(&output.stdout);
    let kib: f64 = text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
    pairs[3].ours.push(kib * 1024e-6);
    Ok(pairs)
}

/// ONNX Runtime's helper threads spin on, for some 60 ms after a run, on the core that our turn needs.
fn pause(threads: u32) {
    if threads > 1 {
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn seconds() -> f64 {
    std::env::var("ORTOLAN_BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1.5)
}

/// A process of ONNX Runtime.
struct Peer {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn start(python: &Path) -> Peer {
        let script = place::root().join("tests/scripts/onnxruntime_turns.py");
        let mut command = Command::new(python);
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", python.display()));
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Peer { child, answers }
    }

    fn ask(&mut self, request: Json) -> Answer<Json> {
        let mut answer = String::new();
        let to = self.child.stdin.as_mut().expect("it is piped");
        writeln!(to, "{request}").and_then(|()| self.answers.read_line(&mut answer)).map_err(|e| e.to_string())?;
        let answer: Json =
            serde_json::from_str(&answer).map_err(|e| format!("ONNX Runtime's process said no more: {e}"))?;
        answer["error"].as_str().map_or(Ok(answer.clone()), |why| Err(format!("ONNX Runtime: {why}")))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn numbers(list: &Json) -> Vec<f64> {
    list.as_array().into_iter().flatten().filter_map(Json::as_f64).collect()
}

fn open(ep: &LoadedEp, model: &Path, threads: u32) -> Answer<Session> {
    Session::builder().eps([SessionEp::from(ep)]).threads(threads).build(model).map_err(|e| e.to_string())
}

/// One input of one run.
struct Input {
    name: String,
    dtype: DType,
    shape: Vec<i64>,
    bytes: Vec<u8>,
}

fn feeds(folder: &Path) -> Vec<Vec<Input>> {
    let text = std::fs::read(folder.join("inputs.json")).expect("inputs were made");
    let told: Json = serde_json::from_slice(&text).expect("they are described in JSON");
    let all = told["inputs"].as_array().expect("a list");
    let one = |at: usize, variant: u64| Input {
        name: all[at]["name"].as_str().expect("a name").to_owned(),
        dtype: all[at]["type"].as_str().and_then(DType::from_name).expect("a type of ONNX"),
        shape: numbers(&all[at]["shape"]).iter().map(|&d| d as i64).collect(),
        bytes: std::fs::read(folder.join(format!("{at}-{variant}.raw"))).expect("it was made"),
    };
    let variants = 0..told["variants"].as_u64().expect("a number");
    variants.map(|variant| (0..all.len()).map(|at| one(at, variant)).collect()).collect()
}

/// Seconds of one run, its outputs made and dropped.
fn run(session: &Session, feed: &[Input]) -> Answer<f64> {
    let start = Instant::now();
    let mut views = Vec::with_capacity(feed.len());
    for x in feed {
        views.push((x.name.as_str(), TensorView::from_bytes(x.dtype, &x.shape, &x.bytes).map_err(|e| e.to_string())?));
    }
    drop(session.run(views).map_err(|e| e.to_string())?);
    Ok(start.elapsed().as_secs_f64())
}

/// KiB that loading and a run on each input take at most.
fn own_peak(model: &Path, inputs: &Path) -> u64 {
    let (ep, feeds) = (own(), feeds(inputs));
    let before = memory("VmRSS:");
    // The high-water mark begins anew.
    std::fs::write("/proc/self/clear_refs", "5").expect("the kernel lets a process clear its own mark");
    let session = open(&ep, model, 1).unwrap_or_else(|e| panic!("{e}"));
    for feed in &feeds {
        run(&session, feed).unwrap_or_else(|e| panic!("{e}"));
    }
    memory("VmHWM:").saturating_sub(before)
}

fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("it is listed");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}
