//! Leads readers of an Identity, and outputs that it makes, to what it was given.

use ortolan_graph::Graph;
use ortolan_graph::ir::NodeId;

use crate::error::Result;

const IDENTITY: &str = "Identity";

pub(super) fn run(graph: &mut Graph) -> Result<bool> {
    let goes = |id: &NodeId| {
        let node = graph.node(*id);
        node.domain.is_empty() && &*node.op == IDENTITY
    };
    let all: Vec<NodeId> = graph.live_nodes().into_iter().filter(goes).collect();
    let mut edit = graph.edit();
    for &id in &all {
        let node = edit.graph().node(id);
        if let (Some(Some(from)), Some(Some(to))) = (node.inputs.first().copied(), node.outputs.first().copied()) {
            edit.replace(to, from);
        }
    }
    edit.finish()?;
    Ok(!all.is_empty())
}
