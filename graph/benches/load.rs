//! How long loading takes: parse, upgrade, infer, verify. `cargo bench -p ortolan-graph -- MODEL...`
//!
//! Prints the shortest of several loads of each model, and the processor time of one on average, which other programs of the
//! machine disturb less.
//! Bounds that the design sets on one core: bert_base (436 MB) 60 ms, the Piper voice (2,755 nodes) 40 ms.

use std::time::{Duration, Instant};

use ortolan_graph::{LoadOptions, load};

const LOADS: usize = 20;

fn main() {
    let models = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    for path in models {
        let mut best = Duration::MAX;
        let mut nodes = 0;
        let before = on_processor();
        for _ in 0..LOADS {
            let start = Instant::now();
            match load(&path, &LoadOptions::default()) {
                Ok(graph) => {
                    best = best.min(start.elapsed());
                    nodes = graph.live_nodes().len();
                }
                Err(e) => {
                    eprintln!("{e}");
                    std::process::exit(1);
                }
            }
        }
        let mean = on_processor().zip(before).map(|(after, before)| (after - before) / LOADS as u32);
        let mean = mean.map_or("not known".to_owned(), |t| format!("{:.2} ms", t.as_secs_f64() * 1e3));
        println!("{path}: {:.2} ms, on the processor {mean}, {nodes} nodes", best.as_secs_f64() * 1e3);
    }
}

/// For how long this thread ran so far; known on Linux.
fn on_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
