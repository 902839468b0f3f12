//! Bodies inside standard bodies: loops that a composite operator becomes, and graphs that it held itself.

use super::BodyCx;
use crate::error::Result;
use crate::infer::full;
use crate::ir::{Body, GraphId, NodeId, Type, Value, ValueId};
use crate::ops;

impl BodyCx<'_> {
    /// A graph for a node to come, written in a text, which calls it `$name`. Its inputs get their types from the node;
    /// it may read what stands outside. Inputs and outputs are names with spaces between them.
    pub fn graph(&mut self, name: &'static str, inputs: &str, text: &str, outputs: &str) -> Result<()> {
        let id = GraphId::next(self.walk.graph.bodies.len()).ok_or_else(|| full("graphs"))?;
        self.walk.graph.bodies.push(Body { name: name.into(), ..Body::default() });
        let before = self.names.len();
        for input in inputs.split_whitespace() {
            let value = self.walk.graph.add_value(Value { name: input.into(), ..Value::new(id) })?;
            self.walk.graph.bodies[id.index()].inputs.push(value);
            self.names.push((input.to_owned(), Some(value)));
        }
        let outer = self.inner.replace(id);
        let written = self.write(text);
        self.inner = outer;
        written?;
        let outputs: Vec<ValueId> = outputs.split_whitespace().filter_map(|o| self.named(o)).collect();
        let body = &mut self.walk.graph.bodies[id.index()];
        body.output_names = outputs.iter().map(|_| "".into()).collect();
        body.outputs = outputs;
        self.names.truncate(before);
        self.graphs.push((name, id));
        Ok(())
    }

    /// Puts the nodes of a graph that the node holds here, with values for its inputs; what it makes.
    pub fn inline(&mut self, graph: GraphId, inputs: &[ValueId]) -> Result<Vec<ValueId>> {
        let home = self.walk.graph.node(self.id).graph;
        let body = std::mem::take(&mut self.walk.graph.bodies[graph.index()]);
        let lead = |v: ValueId| match body.inputs.iter().position(|i| *i == v) {
            Some(at) => inputs.get(at).copied().unwrap_or(v),
            None => v,
        };
        self.lead_in(&body.nodes, &lead);
        let g = &mut self.walk.graph;
        g.values.iter_mut().filter(|v| v.graph == graph).for_each(|v| v.graph = home);
        g.origins.iter_mut().filter(|o| o.graph == graph).for_each(|o| o.graph = home);
        for &n in &body.nodes {
            self.walk.graph.nodes[n.index()].graph = home;
            self.walk.file_node(n, &mut self.nodes)?;
        }
        Ok(body.outputs.into_iter().map(lead).collect())
    }

    /// Makes the graph of a node that maps items the body of a Loop that collects in `carried` sequences what the graph makes
    /// of each item. Inputs of the node that are no sequences are read whole.
    pub fn over_items(&mut self, graph: GraphId, carried: usize) -> Result<()> {
        let old = std::mem::take(&mut self.walk.graph.bodies[graph.index()]);
        let inputs: Vec<ValueId> =
            (0..carried + 2).map(|_| self.walk.graph.add_value(Value::new(graph))).collect::<Result<_>>()?;
        let outer = self.inner.replace(graph);
        let mut items = Vec::new();
        for i in 0..old.inputs.len() {
            let whole = self.input(i);
            let sequence = whole.and_then(|v| self.ty(v)).is_some_and(|t| matches!(t, Type::Sequence(_)));
            items.push(match sequence {
                true => self.emit("SequenceAt", &[whole, Some(inputs[0])], &[])?,
                false => self.emit(ops::IDENTITY, &[whole], &[])?,
            });
        }
        let lead = |v: ValueId| old.inputs.iter().position(|i| *i == v).map_or(v, |at| items[at]);
        self.lead_in(&old.nodes, &lead);
        self.walk.graph.bodies[graph.index()].nodes.extend(&old.nodes);
        let mut outputs = vec![self.emit(ops::IDENTITY, &[Some(inputs[1])], &[])?];
        for (made, list) in old.outputs.into_iter().take(carried).zip(&inputs[2..]) {
            outputs.push(self.emit("SequenceInsert", &[Some(*list), Some(lead(made))], &[])?);
        }
        self.inner = outer;
        let body = &mut self.walk.graph.bodies[graph.index()];
        body.output_names = outputs.iter().map(|_| "".into()).collect();
        (body.name, body.inputs, body.outputs) = (old.name, inputs, outputs);
        Ok(())
    }

    /// Leads readers in nodes and the bodies in them to other values.
    pub(super) fn lead_in(&mut self, nodes: &[NodeId], lead: &impl Fn(ValueId) -> ValueId) {
        for &n in nodes {
            let bodies: Vec<GraphId> = self.walk.graph.node(n).bodies().collect();
            let node = &mut self.walk.graph.nodes[n.index()];
            node.inputs.iter_mut().flatten().for_each(|v| *v = lead(*v));
            if let Some(o) = node.origin {
                let origin = &mut self.walk.graph.origins[o.index()];
                origin.inputs.iter_mut().flatten().for_each(|v| *v = lead(*v));
            }
            for body in bodies {
                let nodes = self.walk.graph.body(body).nodes.clone();
                self.lead_in(&nodes, lead);
                self.walk.graph.bodies[body.index()].outputs.iter_mut().for_each(|v| *v = lead(*v));
            }
        }
    }
}
