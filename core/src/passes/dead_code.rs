//! Removes nodes that nothing reads: every ONNX operator is free of side effects.

use ortolan_graph::Graph;

use crate::error::Result;
use crate::once::Evaluator;

pub(super) fn run(graph: &mut Graph, _: &mut Evaluator<'_>) -> Result<usize> {
    let before = graph.live_nodes().len();
    graph.edit().finish()?;
    Ok(before - graph.live_nodes().len())
}
