//! Standard bodies: a composite operator written out in simpler ones, at a given opset.

use smallvec::SmallVec;

use crate::error::Result;
use crate::infer;
use crate::ir::{AttrValue, DType, Data, Graph, NodeId, ValueId};
use crate::ops;
use crate::schema::View;
use crate::walk::Walk;

/// Writes a node out.
///
/// It adds nodes with [`BodyCx::emit`] and hands over what they make for each output with [`BodyCx::set_output`].
/// Where it can't (a rank or type that it needs is not known) it leaves an output unset, and there is no body.
pub type BodyFn = fn(&mut BodyCx<'_>) -> Result<()>;

/// A node whose body is written, and the nodes so far.
pub struct BodyCx<'g> {
    walk: &'g mut Walk,
    id: NodeId,
    opset: u32,
    nodes: Vec<NodeId>,
    outputs: SmallVec<[Option<ValueId>; 2]>,
}

impl BodyCx<'_> {
    /// The node.
    pub fn view(&self) -> View<'_> {
        View::of(&self.walk.graph, self.walk.graph.node(self.id))
    }

    /// The version of the standard domain in which the body is written: [`emit`](Self::emit) takes the forms of it.
    pub fn opset(&self) -> u32 {
        self.opset
    }

    /// An input.
    pub fn input(&self, i: usize) -> Option<ValueId> {
        self.view().inputs.get(i).copied().flatten()
    }

    /// Element type of any value.
    pub fn dtype(&self, v: ValueId) -> Option<DType> {
        Some(self.walk.graph.value(v).ty.as_ref()?.as_tensor()?.dtype)
    }

    /// Rank of any value.
    pub fn rank(&self, v: ValueId) -> Option<usize> {
        self.walk.graph.value(v).ty.as_ref()?.as_tensor()?.rank()
    }

    /// A node of the standard domain with one output, in the form of the body's opset.
    pub fn emit(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<ValueId> {
        let home = self.walk.graph.node(self.id);
        let (name, graph) = (home.name.clone(), home.graph);
        let id = self.walk.graph.add_node(graph, name, "", op)?;
        let since = self.walk.graph.schema_at("", op, self.opset).map_or(0, |s| s.since());
        let node = &mut self.walk.graph.nodes[id.index()];
        (node.inputs, node.attrs, node.since) = (inputs.into(), infer::attrs(attrs), since);
        let value = self.walk.graph.add_output(id)?;
        self.walk.file_node(id, &mut self.nodes)?;
        Ok(value)
    }

    /// A constant of one number in the element type of `like`, without dims; `None` for types other than the real floats
    /// of 16 bits and more.
    pub fn scalar_like(&mut self, like: ValueId, n: f64) -> Result<Option<ValueId>> {
        let Some(dtype) = self.dtype(like) else { return Ok(None) };
        let one = self.constant(DType::F64, &[], &n.to_le_bytes())?;
        match dtype {
            DType::F64 => Ok(Some(one)),
            DType::F32 => self.constant(DType::F32, &[], &(n as f32).to_le_bytes()).map(Some),
            DType::F16 | DType::Bf16 => self.cast(one, dtype).map(Some),
            _ => Ok(None),
        }
    }

    /// A vector of integers.
    pub fn ints(&mut self, list: &[i64]) -> Result<ValueId> {
        let bytes: Vec<u8> = list.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(DType::I64, &[i64::try_from(list.len()).unwrap_or(i64::MAX)], &bytes)
    }

    /// A constant.
    pub fn constant(&mut self, dtype: DType, dims: &[i64], bytes: &[u8]) -> Result<ValueId> {
        let graph = self.walk.graph.node(self.id).graph;
        self.walk.graph.add_constant(graph, dtype, dims, Data::copied(bytes))
    }

    /// The value in another element type.
    pub fn cast(&mut self, v: ValueId, to: DType) -> Result<ValueId> {
        if self.dtype(v) == Some(to) {
            return Ok(v);
        }
        self.emit("Cast", &[Some(v)], &[("to", AttrValue::Int(to.number().into()))])
    }

    /// Says what makes output `o`.
    pub fn set_output(&mut self, o: usize, v: ValueId) {
        if let Some(out) = self.outputs.get_mut(o) {
            *out = Some(v);
        }
    }
}

/// Replaces a node by its standard body at an opset; `None`, with nothing changed, when it has none.
/// The values that the node made keep their ids. Returns the nodes of the body in newest form; each
/// that stood otherwise at the opset remembers that form as its origin.
pub(crate) fn expand(graph: &mut Graph, id: NodeId, opset: u32) -> Result<Option<Vec<NodeId>>> {
    let Some(body) = graph.node(id).def.and_then(|d| d.body) else { return Ok(None) };
    let mut walk = Walk::over(std::mem::take(graph));
    let wanted = walk.graph.node(id).outputs.clone();
    let mut cx =
        BodyCx { walk: &mut walk, id, opset, nodes: Vec::new(), outputs: SmallVec::from_elem(None, wanted.len()) };
    let done = body(&mut cx).and_then(|()| cx.own_outputs(&wanted));
    let nodes = cx.nodes;
    *graph = walk.graph;
    if !done? {
        return Ok(None);
    }
    let home = graph.node(id).graph;
    let list = &mut graph.bodies[home.index()].nodes;
    if let Some(at) = list.iter().position(|n| *n == id) {
        list.splice(at..=at, nodes.iter().copied());
    }
    Ok(Some(nodes))
}

impl BodyCx<'_> {
    /// Lets the nodes make the values of the node that they replace. False when an output has no maker.
    fn own_outputs(&mut self, wanted: &[Option<ValueId>]) -> Result<bool> {
        let mut made: Vec<(ValueId, ValueId)> = Vec::new();
        for (o, v) in wanted.iter().enumerate() {
            let Some(v) = *v else { continue };
            let Some(mut from) = self.outputs[o] else { return Ok(false) };
            let own = self.walk.graph.value(from).producer.is_some_and(|(n, _)| self.nodes.contains(&n));
            if !own || made.iter().any(|m| m.0 == from) {
                from = self.emit(ops::IDENTITY, &[Some(from)], &[])?;
            }
            made.push((from, v));
        }
        let lead = |v: &mut ValueId| *v = made.iter().find(|m| m.0 == *v).map_or(*v, |m| m.1);
        let graph = &mut self.walk.graph;
        for n in &self.nodes {
            let node = &mut graph.nodes[n.index()];
            node.inputs.iter_mut().chain(node.outputs.iter_mut()).flatten().for_each(lead);
            if let Some(o) = node.origin {
                let origin = &mut graph.origins[o.index()];
                origin.inputs.iter_mut().chain(origin.outputs.iter_mut()).flatten().for_each(lead);
            }
            for (v, at) in graph.node(*n).outputs.clone().into_iter().zip(0u32..) {
                graph.set_producer(v, *n, at);
            }
        }
        Ok(true)
    }
}
