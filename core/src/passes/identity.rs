//! Leads readers of an Identity to what it was given. One that makes an output of the model stays, for the output's name.

use ortolan_graph::Graph;
use ortolan_graph::ir::{GraphId, NodeId};

use crate::error::Result;

const IDENTITY: &str = "Identity";

pub(super) fn run(graph: &mut Graph) -> Result<bool> {
    let outputs = graph.body(GraphId::MAIN).outputs.clone();
    let goes = |id: &NodeId| {
        let node = graph.node(*id);
        let plain = node.domain.is_empty() && &*node.op == IDENTITY;
        plain && node.outputs.first().copied().flatten().is_some_and(|v| !outputs.contains(&v))
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
