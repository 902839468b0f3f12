//! Writes out composite nodes that no EP takes: some EP may have the operators of their standard bodies.
//!
//! A body takes its node's place only if somebody runs each of its nodes, or it is composite in its turn. Otherwise the node
//! stays as it stood in the file, and the error names it with every EP's reason.

use std::collections::HashSet;
use std::ops::Range;

use ortolan_graph::Graph;
use ortolan_graph::ir::NodeId;

use super::maker::Maker;
use crate::error::Result;

/// The graph with such nodes written out; `None` if there are none.
pub(super) fn write_out(maker: &Maker) -> Result<Option<Graph>> {
    let composite = |graph: &Graph, n: NodeId| graph.node(n).def.is_some_and(|d| d.body.is_some());
    let graph = maker.graph();
    let mut open: Vec<NodeId> = maker.refused().into_iter().filter(|n| composite(graph, *n)).collect();
    while !open.is_empty() {
        let (written, made) = expand(graph, &open, maker.opset())?;
        let tried = maker.again(written)?;
        let lost: Vec<NodeId> = tried.refused().into_iter().filter(|n| !composite(tried.graph(), *n)).collect();
        let hopeless: HashSet<NodeId> = made
            .iter()
            .filter(|(_, nodes)| nodes.is_empty() || lost.iter().any(|n| nodes.contains(&n.index())))
            .map(|(node, _)| *node)
            .collect();
        if hopeless.is_empty() {
            for node in &open {
                tracing::info!("{}: no execution provider has it, its body is run", graph.node(*node).place(graph));
            }
            return Ok(Some((**tried.graph()).clone()));
        }
        open.retain(|n| !hopeless.contains(n));
    }
    Ok(None)
}

/// A node, and the numbers of those that it became: none if it can't be written out.
type Made = (NodeId, Range<usize>);

/// A copy in which nodes are written out.
fn expand(graph: &Graph, nodes: &[NodeId], opset: u32) -> Result<(Graph, Vec<Made>)> {
    let mut graph = graph.clone();
    let mut made = Vec::new();
    for &node in nodes {
        let from = graph.node_count();
        let to = if graph.expand(node, opset)? { graph.node_count() } else { from };
        made.push((node, from..to));
    }
    graph.infer()?;
    Ok((graph, made))
}
