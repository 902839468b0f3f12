//! A run of a real model that is cancelled at any moment ends within ARCHITECTURE's bound, and the session goes on.

use crate::{EPS, feed, list, text};
use ortolan::value::Value;
use ortolan::{CancelToken, Outputs, RunOptions, Session, SessionEp};
use ortolan_tests::model::Random;
use serde_json::Value as Json;
use std::path::Path;
use std::time::{Duration, Instant};

/// From the cancelling to the return of the run.
const BOUND: Duration = Duration::from_millis(50);
/// Runs that are cancelled, for each number of threads.
const POINTS: usize = 20;
const SEED: u64 = 7;

/// With one thread and with two: cancelled at twenty random points, then whole again.
pub fn ends_in_time(file: &Path, inputs: &Json) -> Result<(), String> {
    (1..=2).try_for_each(|threads| ends_in_time_on(threads, file, inputs))
}

fn ends_in_time_on(threads: u32, file: &Path, inputs: &Json) -> Result<(), String> {
    let say = |e: ortolan::Error| e.to_string();
    let eps = EPS.iter().map(|ep| SessionEp::from(&**ep));
    let session = Session::builder().eps(eps).threads(threads).build(file).map_err(say)?;
    let inputs = list(inputs);
    let fed: Vec<(&str, Value)> =
        inputs.iter().enumerate().map(|(k, x)| (text(&x["name"]), Value::Tensor(feed(x, k as u64 + 1)))).collect();
    let run = |options: &RunOptions| session.run_with(fed.iter().map(|(name, value)| (*name, value)), options);
    let whole = run(&RunOptions::default()).map_err(say)?;
    let start = Instant::now();
    run(&RunOptions::default()).map_err(say)?;
    let length = start.elapsed();
    let mut random = Random(SEED);
    let mut taken = Vec::new();
    for _ in 0..5 * POINTS {
        let pause = length * random.below(1000) as u32 / 1000;
        let token = CancelToken::new();
        let options = RunOptions { cancel: Some(token.clone()), ..RunOptions::default() };
        let (result, cancelled, returned) = std::thread::scope(|scope| {
            let cancel = scope.spawn(|| {
                std::thread::sleep(pause);
                let now = Instant::now();
                token.cancel();
                now
            });
            let result = run(&options);
            let returned = Instant::now();
            (result, cancel.join().expect("it only sleeps"), returned)
        });
        match result {
            Err(error) if error.code() == "cancelled" => taken.push(returned.saturating_duration_since(cancelled)),
            Err(error) => return Err(error.to_string()),
            // It was faster than before.
            Ok(_) => {}
        }
        if taken.len() == POINTS {
            break;
        }
    }
    taken.sort_unstable();
    println!("{}, {threads} threads, {length:?} alone, seed {SEED}: ended after {taken:?}", file.display());
    match taken.last() {
        Some(last) if taken.len() == POINTS && *last <= BOUND => {}
        _ => return Err(format!("cancelled runs on {threads} threads took {taken:?} to end, bound {BOUND:?} each")),
    }
    let again = run(&RunOptions::default()).map_err(say)?;
    if bytes(&again)? == bytes(&whole)? { Ok(()) } else { Err("its results are others afterwards".into()) }
}

fn bytes(outputs: &Outputs) -> Result<Vec<&[u8]>, String> {
    outputs
        .iter()
        .map(|(_, value)| value.as_tensor()?.bytes())
        .collect::<ortolan::Result<_>>()
        .map_err(|e| e.to_string())
}
