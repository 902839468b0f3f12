//! What version steps work with ([`versions::Upgrade`]): the node, and nodes put before and after it.

use smallvec::{SmallVec, smallvec};

use super::Walk;
use crate::error::Result;
use crate::infer;
use crate::ir::{Attr, AttrValue, DType, GraphId, Node, NodeId, Value, ValueId};
use crate::schema::View;
use crate::versions;

pub(super) struct Upgrader<'w, 'o> {
    pub(super) walk: &'w mut Walk,
    pub(super) id: NodeId,
    /// The nodes so far; those before this node are added here.
    pub(super) out: &'o mut Vec<NodeId>,
    pub(super) after: Vec<Pending>,
    /// The node as it stood, once something changed it.
    pub(super) file: Option<Node>,
}

/// A node that follows; it is inferred once the upgraded node is.
pub(super) struct Pending {
    pub(super) node: NodeId,
    output: usize,
}

impl Upgrader<'_, '_> {
    fn node(&mut self) -> &mut Node {
        if self.file.is_none() {
            self.file = Some(self.walk.graph.node(self.id).clone());
        }
        &mut self.walk.graph.nodes[self.id.index()]
    }

    fn graph(&self) -> GraphId {
        self.walk.graph.node(self.id).graph
    }

    fn new_node(
        &mut self,
        op: &'static str,
        inputs: SmallVec<[Option<ValueId>; 4]>,
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<NodeId> {
        let (name, graph) = (self.walk.graph.node(self.id).name.clone(), self.graph());
        let id = self.walk.graph.add_node(graph, name, "", op)?;
        let node = &mut self.walk.graph.nodes[id.index()];
        (node.inputs, node.attrs) = (inputs, infer::attrs(attrs));
        self.walk.graph.fill_defaults(id);
        Ok(id)
    }
}

impl versions::Upgrade for Upgrader<'_, '_> {
    fn view(&self) -> View<'_> {
        View::of(&self.walk.graph, self.walk.graph.node(self.id))
    }

    fn set_input(&mut self, index: usize, value: Option<ValueId>) {
        let inputs = &mut self.node().inputs;
        if inputs.len() <= index {
            inputs.resize(index + 1, None);
        }
        inputs[index] = value;
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
    }

    fn set_attr(&mut self, name: &str, value: AttrValue) {
        let attrs = &mut self.node().attrs;
        match attrs.binary_search_by(|a| (*a.name).cmp(name)) {
            Ok(at) => attrs[at].value = value,
            Err(at) => attrs.insert(at, Attr { name: name.into(), value }),
        }
    }

    fn rename_attr(&mut self, from: &str, to: &str) {
        let attrs = &mut self.node().attrs;
        if let Some(at) = attrs.iter().position(|a| &*a.name == from) {
            let value = attrs.remove(at).value;
            self.set_attr(to, value);
        }
    }

    fn remove_attr(&mut self, name: &str) {
        self.node().attrs.retain(|a| &*a.name != name);
    }

    fn constant(&mut self, dtype: DType, dims: &[i64], bytes: &[u8]) -> Result<ValueId> {
        let graph = self.graph();
        self.walk.constant(graph, dtype, dims, bytes)
    }

    fn before(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<ValueId> {
        let id = self.new_node(op, inputs.into(), attrs)?;
        let value = self.walk.graph.add_output(id)?;
        self.walk.settle(id)?;
        self.out.push(id);
        Ok(value)
    }

    fn after(
        &mut self,
        output: usize,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<()> {
        let last = self.after.iter().rev().find(|p| p.output == output).map(|p| (p.node, 0));
        let (maker, at) = last.unwrap_or((self.id, output));
        let Some(wanted) = self.walk.graph.node(maker).outputs.get(at).copied().flatten() else { return Ok(()) };
        let inner = self.walk.graph.add_value(Value::new(self.graph()))?;
        self.node();
        self.walk.graph.nodes[maker.index()].outputs[at] = Some(inner);
        self.walk.graph.set_producer(Some(inner), maker, u32::try_from(at).unwrap_or(u32::MAX));
        let all = std::iter::once(Some(inner)).chain(inputs.iter().copied()).collect();
        let node = self.new_node(op, all, attrs)?;
        self.walk.graph.nodes[node.index()].outputs = smallvec![Some(wanted)];
        self.walk.graph.set_producer(Some(wanted), node, 0);
        self.after.push(Pending { node, output });
        Ok(())
    }
}
