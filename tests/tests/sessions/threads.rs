//! One session from many threads, with runs that are stopped at any moment.

use crate::{EPS, assert_right, session_ep};
use ortolan::{CancelToken, RunOptions, Session, TensorView};
use ortolan_tests::model::{Model, Random, Tensor};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the threads go on, unless [`SECONDS`] says otherwise.
const TIME: Duration = Duration::from_secs(6);

/// Names another time in seconds: 60 for the long check.
const SECONDS: &str = "ORTOLAN_TESTS_SECONDS";

fn time() -> Duration {
    let told = std::env::var(SECONDS).ok().and_then(|s| s.parse().ok());
    told.map_or(TIME, Duration::from_secs)
}

/// Resident memory of this process in KiB.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is listed");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

fn model() -> Model {
    Model::new(17)
        .input("x", &["N", "32"])
        .weight("w", Tensor::random(&[32, 32], 1))
        .weight("s", Tensor::new(&[1], vec![0.5]))
        .node("MatMul", &["x", "w"], "m")
        .node("Mul", &["m", "s"], "h")
        .node("Relu", &["h"], "r")
        .node("Add", &["r", "x"], "a")
        .node("Softmax", &["a"], "y")
        .output("y")
}

/// Resident memory near the end is at most 2 % above that after a third of the time.
#[cfg(target_os = "linux")]
fn memory_stays(time: Duration) {
    std::thread::sleep(time / 3);
    let early = resident();
    std::thread::sleep(time * 3 / 5);
    let late = resident();
    println!("{early} KiB resident after a third of the time, {late} KiB near the end");
    // Pages of thread stacks and of the allocator's arenas come and go: half a MiB of it in a short run.
    assert!(late <= early + early / 50 + 512, "{early} KiB resident became {late} KiB");
}

#[test]
fn eight_threads_with_cancelled_runs_stay_right() {
    let model = model();
    let fake = session_ep(&EPS.fake).option("delay_us", "200");
    let eps = [fake, session_ep(&EPS.tiny), session_ep(&EPS.plain), session_ep(&EPS.own)];
    let s = Session::builder().eps(eps).threads(2).build(model.bytes()).expect("every node has an EP");
    let time = time();
    let (end, done, stopped) = (Instant::now() + time, AtomicU64::new(0), AtomicU64::new(0));
    let work = |seed: u64| {
        let mut random = Random(seed);
        while Instant::now() < end {
            let n = [1, 2, 5][random.below(3)];
            let inputs = [("x", Tensor::random(&[n, 32], random.0))];
            let token = CancelToken::new();
            let view = TensorView::new(&inputs[0].1.shape, &inputs[0].1.data).expect("it fits");
            let timeout = (random.below(4) == 0).then(|| Duration::from_micros(random.below(800) as u64));
            let options = RunOptions { cancel: Some(token.clone()), timeout, ..RunOptions::default() };
            let cancels = random.below(3) == 0;
            let pause = Duration::from_micros(random.below(1500) as u64);
            let result = std::thread::scope(|scope| {
                if cancels {
                    scope.spawn(|| {
                        std::thread::sleep(pause);
                        token.cancel();
                    });
                }
                s.run_with([("x", view)], &options)
            });
            match result {
                Ok(outputs) => {
                    assert_right(&outputs, &model, &inputs, "beside seven others");
                    done.fetch_add(1, Relaxed);
                }
                Err(error) => {
                    let expected =
                        (cancels && error.code() == "cancelled") || (timeout.is_some() && error.code() == "timeout");
                    assert!(expected, "{error}");
                    stopped.fetch_add(1, Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let work = &work;
            scope.spawn(move || work(seed));
        }
        #[cfg(target_os = "linux")]
        memory_stays(time);
    });
    let (done, stopped) = (done.load(Relaxed), stopped.load(Relaxed));
    println!("{done} runs finished, {stopped} were stopped");
    assert!(done > 100 && stopped > 20, "{done} runs finished, {stopped} were stopped");
    let inputs = [("x", Tensor::random(&[3, 32], 1))];
    assert_right(&crate::run(&s, &inputs).expect("it can be used again"), &model, &inputs, "afterwards");
}
