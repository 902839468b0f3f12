//! What sharing and loading cost, beside the bounds of ARCHITECTURE section 7; above one of them the bench fails.
//!
//! `cargo bench -p ortolan-tests --bench costs`, on a machine with two quiet cores. What a single run costs is measured
//! beside the code: `core/tests/steady.rs` (a run, a part), `core/tests/host/speed.rs` (checks of a C plugin) and
//! `plugin-ep-cpu/benches` (a node, a new shape, products).

use ortolan::host::{LoadedEp, PluginHost, ProbePolicy};
use ortolan::pool::{Pool, Work};
use ortolan::{Session, SessionEp, TensorView};
use ortolan_tests::ep::own;
use ortolan_tests::model::{Model, Tensor};
use ortolan_tests::{decoder, place};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// In the child that measures memory: the model file.
const LOAD: &str = "ORTOLAN_BENCH_LOAD";
/// In the child that measures the checks of a plugin: the folder of the verdicts and of a library.
const CHECK: &str = "ORTOLAN_BENCH_CHECK";
/// The library's name there.
const COPY: &str = "checked";

fn main() {
    if let Some(folder) = std::env::var_os(CHECK) {
        return check_and_tell(Path::new(&folder));
    }
    if let Some(model) = std::env::var_os(LOAD) {
        return load_and_tell(Path::new(&model));
    }
    let ep = own();
    let rows = [
        ("empty parallel_for over two threads, hot", parallel_for(), 0.5, "µs"),
        ("short session's p99 beside a long one", beside(&ep), 3.0, "× alone"),
        ("two equal sessions at once, loss in sum", both(&ep), 15.0, "%"),
        ("one thread's rate over that of 8 threads, × 1.8", eight(&ep), 1.0, ""),
        ("a growing sequence's steps over fixed shapes", growing(&ep), 1.05, "×"),
        ("peak memory of loading over the file", peak(), 1.08, "×"),
        ("checks 1 to 11 of a known plugin with a proof", checks(), 1.0, "ms"),
    ];
    let mut failed = false;
    for (what, found, bound, unit) in rows {
        let over = found > bound;
        failed |= over;
        println!("{what:<50} {found:>8.3} {unit:<8} bound {bound}{}", if over { "  TOO MUCH" } else { "" });
    }
    std::process::exit(i32::from(failed));
}

/// A library of the repository that carries a layout proof, as all of them do.
fn own_library() -> std::path::PathBuf {
    place::renamed_plugins().into_iter().next().expect("cargo has built the repository's plugins")
}

/// `products` products of a matrix of `rows` rows by square ones of this width.
fn chain(rows: i64, width: i64, products: usize) -> Model {
    let dims = [rows.to_string(), width.to_string()];
    let mut model = Model::new(17).input("x", &[&dims[0], &dims[1]]);
    let mut last = "x".to_owned();
    for k in 0..products {
        let (w, y) = (format!("w{k}"), format!("y{k}"));
        model = model.weight(&w, Tensor::random(&[width, width], k as u64 + 1)).node("MatMul", &[&last, &w], &y);
        last = y;
    }
    model.output(&last)
}

fn session(ep: &Arc<LoadedEp>, model: &Model, threads: u32) -> Session {
    Session::builder()
        .eps([SessionEp::from(&**ep)])
        .threads(threads)
        .build(model.bytes())
        .expect("every node has an EP")
}

fn run(session: &Session, x: &Tensor) {
    let view = TensorView::new(&x.shape, &x.data).expect("it fits");
    session.run([("x", view)]).expect("it runs");
}

/// Sorted times of `count` runs.
fn times(session: &Session, x: &Tensor, count: usize) -> Vec<Duration> {
    let mut all: Vec<Duration> = (0..count)
        .map(|_| {
            let start = Instant::now();
            run(session, x);
            start.elapsed()
        })
        .collect();
    all.sort_unstable();
    all
}

/// Microseconds, the least of many.
fn parallel_for() -> f64 {
    let pool = Pool::global();
    let _caller = pool.enter();
    let work = Work { n: 64, grain: 1, width: 2, cancel: None, owner: 1 };
    let mut least = f64::INFINITY;
    for _ in 0..200 {
        let start = Instant::now();
        for _ in 0..1000 {
            pool.for_each(work, |_, range| {
                std::hint::black_box(range);
            });
        }
        least = least.min(start.elapsed().as_secs_f64() * 1e3);
    }
    least
}

/// p99 of a short session while a long one computes without end, over its median alone.
fn beside(ep: &Arc<LoadedEp>) -> f64 {
    let (small, large) = (Tensor::random(&[64, 128], 1), Tensor::random(&[512, 1024], 1));
    let short = session(ep, &chain(64, 128, 8), 2);
    let long = session(ep, &chain(512, 1024, 8), 2);
    times(&short, &small, 500);
    let alone = times(&short, &small, 2000)[1000];
    let stop = AtomicBool::new(false);
    let mut busy = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                run(&long, &large);
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        busy = times(&short, &small, 2000);
        stop.store(true, Relaxed);
    });
    busy[1980].as_secs_f64() / alone.as_secs_f64()
}

/// Runs per second of several threads, each on one of the sessions in turn.
fn rate(sessions: &[&Session], x: &Tensor, threads: usize) -> f64 {
    let (stop, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut spent = Duration::ZERO;
    std::thread::scope(|scope| {
        for k in 0..threads {
            let (stop, runs, session) = (&stop, &runs, sessions[k % sessions.len()]);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    run(session, x);
                    runs.fetch_add(1, Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(200));
        let (start, before) = (Instant::now(), runs.load(Relaxed));
        std::thread::sleep(Duration::from_secs(2));
        runs.fetch_sub(before, Relaxed);
        spent = start.elapsed();
        stop.store(true, Relaxed);
    });
    runs.load(Relaxed) as f64 / spent.as_secs_f64()
}

/// Percent that two sessions of two threads lose when they run at once, against one after the other.
fn both(ep: &Arc<LoadedEp>) -> f64 {
    let (model, x) = (chain(256, 512, 8), Tensor::random(&[256, 512], 1));
    let (a, b) = (session(ep, &model, 2), session(ep, &model, 2));
    let best = |sessions: &[&Session], threads| (0..3).map(|_| rate(sessions, &x, threads)).fold(0.0, f64::max);
    (1.0 - best(&[&a, &b], 2) / best(&[&a], 1)) * 100.0
}

/// 1.8 × the rate of one thread over that of eight on one session: 1 or less when threads add up.
fn eight(ep: &Arc<LoadedEp>) -> f64 {
    let (model, x) = (chain(128, 256, 8), Tensor::random(&[128, 256], 1));
    let s = session(ep, &model, 1);
    let best = |threads| (0..3).map(|_| rate(&[&s], &x, threads)).fold(0.0, f64::max);
    1.8 * best(1) / best(8)
}

/// Milliseconds, the least of twenty fresh processes: each start of a program pays it once per plugin.
fn checks() -> f64 {
    let folder = place::fresh();
    std::fs::copy(own_library(), folder.path().join(COPY)).expect("the temporary folder has room for a library");
    let mut least = f64::INFINITY;
    for known in [false].into_iter().chain([true; 20]) {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
        let output = child.env(CHECK, folder.path()).output().expect("this program");
        let text = String::from_utf8_lossy(&output.stdout);
        let ms: f64 =
            text.trim().parse().unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
        if known {
            least = least.min(ms);
        }
    }
    least
}

fn check_and_tell(folder: &Path) {
    let host = PluginHost::builder().only_given_paths().probe(ProbePolicy::Require);
    let host = host.probe_helper(env!("CARGO_BIN_EXE_ortolan-tests-probe"), &[]).probe_cache(folder).build();
    let start = Instant::now();
    let loaded = host.load_file(&folder.join(COPY));
    let taken = start.elapsed();
    loaded.unwrap_or_else(|e| panic!("{e}"));
    println!("{}", taken.as_secs_f64() * 1e3);
}

/// Time of steps of a growing sequence over that of sessions whose shapes are those of one step.
fn growing(ep: &Arc<LoadedEp>) -> f64 {
    const LENGTHS: std::ops::Range<i64> = 40..200;
    const EVERY: usize = 20;
    let x = ortolan::Tensor::new(&[1, decoder::WIDTH], vec![0.5f32; decoder::WIDTH as usize]).expect("it fits");
    let bind = |session: &'static Session, length: i64, keep: bool| {
        let mut binding = session.bind().expect("it can be bound");
        binding.input("x", x.clone()).expect("an input");
        for (present, past) in decoder::kept().1 {
            let zeros = ortolan::Tensor::zeros(ortolan_graph::ir::DType::F32, &decoder::past_shape(&past, length));
            binding.input(&past, zeros.expect("it fits")).expect("an input");
            if keep {
                binding.keep(&present, &past).expect("names of the model");
            }
        }
        binding
    };
    // Sessions live until the end of the program, so that bindings may.
    let open = |length: &str| -> &'static Session { Box::leak(Box::new(session(ep, &decoder::model(length), 1))) };
    let timed = |binding: &mut ortolan::Binding<'_>| {
        let start = Instant::now();
        binding.run().expect("it runs");
        start.elapsed()
    };
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let lengths: Vec<i64> = LENGTHS.step_by(EVERY).collect();
    let mut best = vec![[Duration::MAX; 2]; lengths.len()];
    let fixed: Vec<&'static Session> = lengths.iter().map(|n| open(&n.to_string())).collect();
    let grows = open("P");
    // Turn by turn, so that both meet the same machine.
    for _ in 0..15 {
        let mut binding = bind(grows, 1, true);
        let steps: Vec<Duration> = (1..LENGTHS.end).map(|_| timed(&mut binding)).collect();
        for (at, &length) in lengths.iter().enumerate() {
            // Steps around this length; the first was of length 1.
            let around = steps[length as usize - 6..length as usize + 5].to_vec();
            best[at][0] = best[at][0].min(median(around));
        }
        for (at, (&length, session)) in lengths.iter().zip(&fixed).enumerate() {
            let mut binding = bind(session, length, false);
            best[at][1] = best[at][1].min(median((0..11).map(|_| timed(&mut binding)).collect()));
        }
    }
    let sum = |which: usize| best.iter().map(|b| b[which]).sum::<Duration>().as_secs_f64();
    sum(0) / sum(1)
}

/// Peak of a fresh process that loads 400 MB of weights, over the file.
fn peak() -> f64 {
    let folder = place::fresh();
    let file = folder.path().join("weights.onnx");
    std::fs::write(&file, chain(1, 1024, 100).bytes()).expect("the temporary folder has room for 400 MB");
    let size = std::fs::metadata(&file).expect("written above").len();
    let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
    let output = child.env(LOAD, &file).output().expect("this program");
    let text = String::from_utf8_lossy(&output.stdout);
    let kilobytes: f64 =
        text.trim().parse().unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    kilobytes * 1024.0 / size as f64
}

fn load_and_tell(model: &Path) {
    let ep = own();
    let built = Session::builder().eps([SessionEp::from(&*ep)]).threads(1).build(model);
    let session = built.expect("every node has an EP");
    run(&session, &Tensor::random(&[1, 1024], 1));
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is listed");
    println!("{}", line.trim().trim_end_matches("kB").trim());
}
