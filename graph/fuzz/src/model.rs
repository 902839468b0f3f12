//! Any bytes as a model: an answer, no panic; what loads keeps its invariants and comes back from every form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ortolan_graph::ir::Opset;
use ortolan_graph::{LoadOptions, load_bytes, project, text, verify, write};

fuzz_target!(|data: &[u8]| {
    let Ok(graph) = load_bytes(data.to_vec(), None, &LoadOptions::default()) else { return };
    verify::verify(&graph).unwrap();
    let once = text::to_text(&graph);
    assert_eq!(text::to_text(&text::from_text(&once).unwrap()), once);
    let own = project::project(&graph, graph.opsets(), &Default::default()).unwrap();
    verify::verify(&own.graph).unwrap();
    // Older opsets need bodies of composite operators.
    for version in [13, 21] {
        let opsets = [Opset { domain: "".into(), version }];
        let old = project::project(&graph, &opsets, &Default::default()).unwrap();
        verify::verify(&old.graph).unwrap();
    }
    if let Ok(bytes) = write::to_bytes(&graph) {
        load_bytes(bytes, None, &LoadOptions::default()).unwrap();
    }
});
