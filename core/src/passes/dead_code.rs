//! Removes nodes that nothing reads: every ONNX operator is free of side effects.

use ortolan_graph::Graph;

use crate::error::Result;

pub(super) fn run(graph: &mut Graph) -> Result<bool> {
    let before = graph.live_nodes().len();
    graph.edit().finish()?;
    Ok(graph.live_nodes().len() != before)
}
