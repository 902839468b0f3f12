//! Loads models and says what became of them: nodes, missing rules, values whose shape is not known.

use std::collections::BTreeMap;
use std::time::Instant;

use ortolan_graph::ir::{DType, Type};
use ortolan_graph::{Graph, LoadOptions, load};

fn main() {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        match load(&path, &LoadOptions::default()) {
            Ok(graph) => report(&path, &graph, start.elapsed().as_secs_f64() * 1e3),
            Err(e) => println!("{path}: error: {e}"),
        }
    }
}

fn report(path: &str, graph: &Graph, ms: f64) {
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    let (mut values, mut unranked, mut fixed) = (0, 0, 0);
    let nodes = graph.live_nodes();
    for &id in &nodes {
        let node = graph.node(id);
        if node.def.is_none() {
            *missing.entry(format!("{}-{}", node.op, node.since)).or_default() += 1;
        }
        for v in node.outputs.iter().flatten() {
            values += 1;
            match &graph.value(*v).ty {
                Some(Type::Tensor(t)) => match &t.dims {
                    Some(d) => fixed += usize::from(d.iter().all(|e| graph.exprs().as_const(*e).is_some())),
                    None => unranked += 1,
                },
                Some(_) => {}
                None => unranked += 1,
            }
        }
    }
    let ops: Vec<String> = missing.iter().map(|(op, n)| format!("{op}×{n}")).collect();
    println!(
        "{path}: {ms:.1} ms, {} nodes, {values} values ({fixed} of fixed shape, {unranked} of unknown rank), {} exprs, {} symbols, {} assumptions, {} warnings; no rule: {}",
        nodes.len(),
        graph.exprs().exprs().len(),
        graph.exprs().symbols().len(),
        graph.assumptions().len(),
        graph.warnings().len(),
        ops.join(" ")
    );
    let _ = DType::ALL;
}
