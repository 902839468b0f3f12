//! What a body was before it was walked, to walk it again.

use crate::ir::{Body, GraphId, Node, NodeId, Value, ValueId};
use crate::walk::Walk;

impl Walk {
    /// What walking a body changes, to walk it again from its first form. Nodes and values that the
    /// first walk added stay in the tables unused: ids are never given twice.
    pub(super) fn save(&self, body: GraphId) -> Saved {
        let mut saved = Saved {
            nodes: Vec::new(),
            bodies: Vec::new(),
            values: Vec::new(),
            assumptions: self.graph.assumptions.len(),
            warnings: self.graph.warnings.len(),
        };
        let mut open = vec![body];
        while let Some(b) = open.pop() {
            let body = self.graph.body(b);
            saved.bodies.push((b, body.clone()));
            saved.values.extend(body.inputs.iter().map(|v| (*v, self.graph.value(*v).clone())));
            for &n in &body.nodes {
                let node = self.graph.node(n);
                open.extend(node.bodies());
                saved.nodes.push((n, node.clone()));
                let outputs = node.outputs.iter().flatten();
                saved.values.extend(outputs.map(|v| (*v, self.graph.value(*v).clone())));
            }
        }
        saved
    }

    pub(super) fn restore(&mut self, saved: &Saved) {
        for (id, node) in &saved.nodes {
            self.graph.nodes[id.index()] = node.clone();
        }
        for (id, body) in &saved.bodies {
            self.graph.bodies[id.index()] = body.clone();
        }
        for (id, value) in &saved.values {
            self.graph.values[id.index()] = value.clone();
        }
        self.graph.assumptions.truncate(saved.assumptions);
        self.graph.warnings.truncate(saved.warnings);
    }
}

pub(super) struct Saved {
    nodes: Vec<(NodeId, Node)>,
    bodies: Vec<(GraphId, Body)>,
    values: Vec<(ValueId, Value)>,
    assumptions: usize,
    warnings: usize,
}
