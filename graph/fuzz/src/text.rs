//! Any text as a graph: an answer, no panic; what reads is written the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ortolan_graph::{text, verify, write};

fuzz_target!(|data: &str| {
    let Ok(graph) = text::from_text(data) else { return };
    verify::verify(&graph).unwrap();
    let once = text::to_text(&graph);
    let again = text::from_text(&once).unwrap_or_else(|e| panic!("{e}\n{once}"));
    assert_eq!(text::to_text(&again), once);
    let _ = write::to_model(&graph);
});
