//! One session from eight threads, with runs that are stopped at any moment: results stay right and memory stays flat.

use crate::model::{Model, Random, Tensor};
use ortolan::{CancelToken, Outputs, RunOptions, Session, TensorView};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Names the time in seconds that a stress goes on: 60 for the long check.
const SECONDS: &str = "ORTOLAN_TESTS_SECONDS";

/// Threads of a stress.
const THREADS: u64 = 8;
/// How long a run may take before it counts as a deadlock.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time of a stress: what the variable says, or this.
pub fn time(otherwise: Duration) -> Duration {
    let told = std::env::var(SECONDS).ok().and_then(|s| s.parse().ok());
    told.map_or(otherwise, Duration::from_secs)
}

/// What came of a stress.
#[derive(Debug, Default)]
pub struct Counts {
    /// Runs that finished, all of them right.
    pub done: u64,
    /// Runs that were cancelled or ran out of time.
    pub stopped: u64,
    /// Resident memory after a third of the time and near the end, in KiB; 0 where the system does not tell.
    pub resident: [u64; 2],
}

/// Every output is what the plain interpreter says, up to rounding.
pub fn right(outputs: &Outputs, model: &Model, inputs: &[(&str, Tensor)]) -> Result<(), String> {
    let expected = model.interpret(inputs);
    if outputs.len() != expected.len() {
        return Err(format!("there are {} outputs, expected {}", outputs.len(), expected.len()));
    }
    for (name, value) in outputs.iter() {
        let (found, wanted) = (value.to_host().map_err(|e| e.to_string())?, &expected[name]);
        if found.shape() != wanted.shape {
            return Err(format!("{name} is {:?}, expected {:?}", found.shape(), wanted.shape));
        }
        let found = found.as_slice::<f32>().map_err(|e| e.to_string())?;
        for (i, (x, y)) in found.iter().zip(&wanted.data).enumerate() {
            // Sums of at most a few dozen products in single precision.
            if (x - y).abs() > 1e-5 * y.abs().max(1.0) {
                return Err(format!("{name}[{i}] is {x}, expected {y}"));
            }
        }
    }
    Ok(())
}

/// Runs a model with the one input `x` of `[N, columns]` over and over. Fails on a wrong result, a wrong error, a run that
/// does not end, and memory that grows.
pub fn eight_threads(session: &Session, model: &Model, columns: i64, time: Duration) -> Result<Counts, String> {
    let (done, stopped) = (AtomicU64::new(0), AtomicU64::new(0));
    let since: Vec<Mutex<Option<Instant>>> = (0..THREADS).map(|_| Mutex::new(None)).collect();
    let end = Instant::now() + time;
    let work = |seed: u64| {
        let mut random = Random(seed);
        let busy = |at| *lock(&since[seed as usize]) = at;
        while Instant::now() < end {
            busy(Some(Instant::now()));
            match one(session, model, columns, &mut random)? {
                true => done.fetch_add(1, Relaxed),
                false => stopped.fetch_add(1, Relaxed),
            };
        }
        busy(None);
        Ok(())
    };
    let (results, resident) = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || work(seed))).collect();
        std::thread::sleep(time / 3);
        let early = resident();
        std::thread::sleep(time * 3 / 5);
        let late = resident();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            if since.iter().any(|at| lock(at).is_some_and(|at| at.elapsed() > PATIENCE)) {
                // Threads that hang cannot be joined.
                eprintln!("a run takes more than {PATIENCE:?}");
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| t.join().map_err(|_| "a thread panicked".to_owned())?;
        (threads.into_iter().map(join).collect::<Vec<Result<(), String>>>(), [early, late])
    });
    results.into_iter().collect::<Result<(), String>>()?;
    let counts = Counts { done: done.into_inner(), stopped: stopped.into_inner(), resident };
    let [early, late] = resident;
    println!("{} runs finished, {} were stopped", counts.done, counts.stopped);
    println!("{early} KiB resident after a third of the time, {late} KiB near the end");
    // Pages of thread stacks and of the allocator's arenas come and go: half a MiB of it in a short run.
    match late <= early + early / 50 + 512 {
        true => Ok(counts),
        false => Err(format!("{early} KiB resident became {late} KiB")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One run, maybe with a limit of time, maybe cancelled. The answer is whether it finished; its results are right then.
fn one(session: &Session, model: &Model, columns: i64, random: &mut Random) -> Result<bool, String> {
    let n = [1, 2, 5][random.below(3)];
    let inputs = [("x", Tensor::random(&[n, columns], random.0))];
    let token = CancelToken::new();
    let view = TensorView::new(&inputs[0].1.shape, &inputs[0].1.data).map_err(|e| e.to_string())?;
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
        session.run_with([("x", view)], &options)
    });
    match result {
        Ok(outputs) => right(&outputs, model, &inputs).map(|()| true),
        Err(e) if (cancels && e.code() == "cancelled") || (timeout.is_some() && e.code() == "timeout") => Ok(false),
        Err(e) => Err(e.to_string()),
    }
}

/// Resident memory of this process in KiB; 0 where the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}
