//! How long loading takes: parse, upgrade, infer, verify. `cargo bench -p ortolan-graph -- MODEL...`
//!
//! Prints the shortest of several loads of each model, since everything else is what the machine did meanwhile.
//! Bounds that the design sets on one core: bert_base (436 MB) 60 ms, the Piper voice (2,755 nodes) 40 ms.

use std::time::{Duration, Instant};

use ortolan_graph::{LoadOptions, load};

const LOADS: usize = 20;

fn main() {
    let models = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    for path in models {
        let mut best = Duration::MAX;
        let mut nodes = 0;
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
        println!("{path}: {:.2} ms, {nodes} nodes", best.as_secs_f64() * 1e3);
    }
}
