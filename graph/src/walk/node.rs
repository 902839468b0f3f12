//! One node: check, upgrade, infer, and what follows from it for its outputs.

use crate::error::{Code, Result};
use crate::infer::full;
use crate::ir::{Holds, NodeId, Origin, OriginId};
use crate::ops;
use crate::schema::{View, check};
use crate::versions;

use super::Walk;
use super::upgrade::Upgrader;

impl Walk {
    /// A node in the form of the file; it and what it becomes are added to `out`.
    pub(crate) fn file_node(&mut self, id: NodeId, out: &mut Vec<NodeId>) -> Result<()> {
        let node = self.graph.node(id);
        let Some(schema) = self.graph.schema(&node.domain, &node.op, node.since) else {
            out.push(id);
            return self.unknown(id);
        };
        check::check(schema, View::of(&self.graph, node))?;
        self.graph.fill_defaults(id);
        self.upgrade(id, out)
    }

    fn upgrade(&mut self, id: NodeId, out: &mut Vec<NodeId>) -> Result<()> {
        let node = self.graph.node(id);
        let (domain, op, since) = (node.domain.clone(), node.op.clone(), node.since);
        let first = out.len();
        let mut up = Upgrader { walk: self, id, out, after: Vec::new(), file: None };
        let form = versions::upgrade(&mut up, &domain, &op, since);
        let (after, file) = (std::mem::take(&mut up.after), up.file.take());
        let form = match form {
            Ok(form) => form,
            Err(e) if e.code() == Code::Version => {
                // It stays as the file has it, for an EP that runs this version; rules are for the newest only.
                out.truncate(first);
                let file = file.unwrap_or_else(|| self.graph.node(id).clone());
                for (&v, at) in file.outputs.iter().zip(0u32..) {
                    self.graph.set_producer(v, id, at);
                }
                let place = file.place(&self.graph);
                self.graph.nodes[id.index()] = crate::ir::Node { def: None, ..file };
                self.warn(place, format!("kept in the version of the file: {e}"));
                out.push(id);
                return self.settle(id);
            }
            Err(e) => return Err(e),
        };
        let file = file.or_else(|| form.changed.then(|| self.graph.node(id).clone()));
        let node = &mut self.graph.nodes[id.index()];
        node.since = form.since;
        if let Some(op) = form.op {
            node.op = op.into();
            node.def = ops::find(&node.domain, op);
        }
        self.graph.fill_defaults(id);
        let main = out.len();
        out.push(id);
        out.extend(after.iter().map(|p| p.node));
        for &n in &out[main..] {
            self.settle(n)?;
        }
        if let Some(file) = file.filter(|_| form.changed) {
            self.remember(file, &out[first..])?;
        }
        Ok(())
    }

    /// Keeps the form of the file with the nodes that it became.
    fn remember(&mut self, file: crate::ir::Node, became: &[NodeId]) -> Result<()> {
        let id = OriginId::next(self.graph.origins.len()).ok_or_else(|| full("upgraded nodes"))?;
        let mut origin = Origin {
            op: file.op,
            domain: file.domain,
            name: file.name,
            since: file.since,
            holds: Holds::ALWAYS,
            graph: file.graph,
            inputs: file.inputs,
            outputs: file.outputs,
            attrs: file.attrs,
            became: became.into(),
        };
        origin.holds = versions::holds(View::of_origin(&self.graph, &origin), &origin.domain, &origin.op, origin.since);
        for n in became {
            self.graph.nodes[n.index()].origin = Some(id);
        }
        self.graph.origins.push(origin);
        Ok(())
    }

    /// Infers the outputs of a node that stands in its final form.
    pub(super) fn settle(&mut self, id: NodeId) -> Result<()> {
        match self.graph.node(id).def.and_then(|d| d.control) {
            Some(control) => self.control(id, control)?,
            None => {
                self.bodies_apart(id)?;
                self.graph.infer_outputs(id)?;
            }
        }
        self.fall_back(id)?;
        self.graph.conclude(id);
        Ok(())
    }

    /// The same for a node that was inferred before. What no rule speaks of keeps its type.
    pub(super) fn settle_again(&mut self, id: NodeId) -> Result<()> {
        if self.graph.node(id).def.is_none() {
            return self.bodies_apart(id);
        }
        self.settle(id)
    }

    /// A node of an operator that no schema describes: an EP may know it.
    fn unknown(&mut self, id: NodeId) -> Result<()> {
        self.bodies_apart(id)?;
        for v in self.graph.node(id).outputs.clone().into_iter().flatten() {
            let ty = self.declared_type(v)?;
            self.graph.values[v.index()].ty = ty;
        }
        Ok(())
    }

    /// Bodies of operators that nothing is known of are walked with what they declare of their inputs.
    fn bodies_apart(&mut self, id: NodeId) -> Result<()> {
        let bodies: Vec<_> = self.graph.node(id).bodies().collect();
        for body in bodies {
            for v in self.graph.body(body).inputs.clone() {
                if let Some(ty) = self.declared_type(v)? {
                    self.graph.values[v.index()].ty = Some(ty);
                }
            }
            self.body(body)?;
        }
        Ok(())
    }

    /// Outputs that no rule spoke of get the element type that the schema leaves them, or what the file declares.
    fn fall_back(&mut self, id: NodeId) -> Result<()> {
        for (o, v) in self.graph.node(id).outputs.clone().into_iter().enumerate() {
            let Some(v) = v.filter(|v| self.graph.value(*v).ty.is_none()) else { continue };
            let ty = match self.graph.schema_type(id, o) {
                Some(ty) => Some(ty),
                None => self.declared_type(v)?,
            };
            self.graph.values[v.index()].ty = ty;
        }
        Ok(())
    }
}
