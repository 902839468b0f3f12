//! Standard bodies: a composite operator written out in simpler ones, at a given opset.

mod graphs;
mod text;

use smallvec::SmallVec;

use crate::error::{Code, Error, Result};
use crate::ir::{Attr, AttrValue, DType, Data, Graph, GraphId, NodeId, Type, ValueId};
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
    /// Values by the names that texts call them.
    names: Vec<(String, Option<ValueId>)>,
    /// Graphs that nodes to come will hold, by name.
    graphs: Vec<(&'static str, GraphId)>,
    /// The graph whose nodes are being written, when it is not the one of the node.
    inner: Option<GraphId>,
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

    /// The outputs of the node that are wanted.
    pub fn outputs(&self) -> Vec<Option<ValueId>> {
        self.walk.graph.node(self.id).outputs.to_vec()
    }

    /// Whether the form of an operator that the body's opset has knows an attribute.
    pub fn knows(&self, op: &str, attr: &str) -> bool {
        self.walk.graph.schema_at("", op, self.opset).is_some_and(|s| s.attribute(attr).is_some())
    }

    /// An input.
    pub fn input(&self, i: usize) -> Option<ValueId> {
        self.view().inputs.get(i).copied().flatten()
    }

    /// Element type of any value.
    pub fn dtype(&self, v: ValueId) -> Option<DType> {
        Some(self.walk.graph.value(v).ty.as_ref()?.as_tensor()?.dtype)
    }

    /// Type of any value.
    pub fn ty(&self, v: ValueId) -> Option<&Type> {
        self.walk.graph.value(v).ty.as_ref()
    }

    /// Size of an axis of any value, where it is fixed.
    pub fn size(&self, v: ValueId, axis: usize) -> Option<i64> {
        let dims = self.ty(v)?.as_tensor()?.dims.as_ref()?;
        self.walk.graph.exprs.as_const(*dims.get(axis)?)
    }

    /// Whether two values certainly have the same size at their last axes.
    pub fn same_length(&self, a: ValueId, b: ValueId) -> bool {
        let last = |v| self.ty(v)?.as_tensor()?.dims.as_ref()?.last().copied();
        last(a).is_some_and(|d| last(b) == Some(d))
    }

    /// Rank of any value.
    pub fn rank(&self, v: ValueId) -> Option<usize> {
        self.walk.graph.value(v).ty.as_ref()?.as_tensor()?.rank()
    }

    /// A node of the standard domain with one output, in the form of the body's opset. A list that this form takes
    /// as an input, not as an attribute (axes moved over the versions), is given as one.
    pub fn emit(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<ValueId> {
        let attrs = attrs.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        self.emit_node(op, inputs, attrs, 1).map(|made| made[0])
    }

    /// The same with any number of outputs, and with bodies among the attributes.
    pub fn emit_node(
        &mut self,
        op: &str,
        inputs: &[Option<ValueId>],
        attrs: Vec<(String, AttrValue)>,
        outputs: usize,
    ) -> Result<SmallVec<[ValueId; 2]>> {
        let home = self.walk.graph.node(self.id);
        let (name, graph) = (home.name.clone(), self.inner.unwrap_or(home.graph));
        let id = self.walk.graph.add_node(graph, name, "", op)?;
        let Some(schema) = self.walk.graph.schema_at("", op, self.opset) else {
            return Err(Error::new(Code::Version, format!("{op} is not in version {}", self.opset)));
        };
        let since = schema.since();
        let moved = |name: &str| match schema.attribute(name) {
            Some(_) => None,
            None => schema.inputs().position(|p| p.name == name),
        };
        let places: Vec<Option<usize>> = attrs.iter().map(|(name, _)| moved(name)).collect();
        let mut inputs: SmallVec<[Option<ValueId>; 4]> = inputs.into();
        let mut kept = Vec::new();
        for ((name, value), place) in attrs.into_iter().zip(places) {
            match (place, value.as_ints()) {
                (Some(at), Some(list)) => {
                    inputs.resize(inputs.len().max(at + 1), None);
                    inputs[at] = Some(self.ints(list)?);
                }
                _ => kept.push(Attr { name: name.as_str().into(), value }),
            }
        }
        kept.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let node = &mut self.walk.graph.nodes[id.index()];
        (node.inputs, node.attrs, node.since) = (inputs, kept, since);
        for body in self.walk.graph.node(id).bodies().collect::<Vec<_>>() {
            self.walk.graph.bodies[body.index()].parent = Some(id);
        }
        let made = (0..outputs).map(|_| self.walk.graph.add_output(id)).collect::<Result<_>>()?;
        match self.inner {
            // Its nodes are walked with the node that holds it.
            Some(inner) => self.walk.graph.bodies[inner.index()].nodes.push(id),
            None => self.walk.file_node(id, &mut self.nodes)?,
        }
        Ok(made)
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
    // The graphs that a node holds may become part of its body, even of one that then can't be written.
    let saved = graph.node(id).bodies().next().is_some().then(|| graph.clone());
    let bodies = graph.bodies.len();
    let mut walk = Walk::over(std::mem::take(graph));
    let wanted = walk.graph.node(id).outputs.clone();
    let mut cx = BodyCx {
        walk: &mut walk,
        id,
        opset,
        nodes: Vec::new(),
        outputs: SmallVec::from_elem(None, wanted.len()),
        names: Vec::new(),
        graphs: Vec::new(),
        inner: None,
    };
    cx.formals();
    let done = body(&mut cx).and_then(|()| cx.own_outputs(&wanted));
    let nodes = cx.nodes;
    *graph = walk.graph;
    if !matches!(done, Ok(true)) {
        match saved {
            Some(saved) => *graph = saved,
            None => graph.take_back(id, bodies),
        }
        return done.map(|_| None);
    }
    let home = graph.node(id).graph;
    let list = &mut graph.bodies[home.index()].nodes;
    if let Some(at) = list.iter().position(|n| *n == id) {
        list.splice(at..=at, nodes.iter().copied());
    }
    Ok(Some(nodes))
}

impl Graph {
    /// Writes a composite node out: its standard body, in the forms that its operators have at `opset`, takes its place and
    /// makes its values. False, with nothing changed, when it has none, or none that can be written there.
    pub fn expand(&mut self, id: NodeId, opset: u32) -> Result<bool> {
        match expand(self, id, opset) {
            Ok(made) => Ok(made.is_some()),
            Err(e) if e.code() == Code::Limit => Err(e),
            Err(_) => Ok(false),
        }
    }

    /// Lets a node make its outputs again, after others were to. Graphs from the `bodies`th on were theirs.
    pub(crate) fn take_back(&mut self, id: NodeId, bodies: usize) {
        self.bodies[bodies..].fill_with(Default::default);
        for (v, at) in self.node(id).outputs.clone().into_iter().zip(0u32..) {
            self.set_producer(v, id, at);
        }
    }
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
        let lead = |v: ValueId| made.iter().find(|m| m.0 == v).map_or(v, |m| m.1);
        self.lead_in(&self.nodes.clone(), &lead);
        let graph = &mut self.walk.graph;
        for n in &self.nodes {
            let node = &mut graph.nodes[n.index()];
            node.outputs.iter_mut().flatten().for_each(|v| *v = lead(*v));
            if let Some(o) = node.origin {
                graph.origins[o.index()].outputs.iter_mut().flatten().for_each(|v| *v = lead(*v));
            }
            for (v, at) in graph.node(*n).outputs.clone().into_iter().zip(0u32..) {
                graph.set_producer(v, *n, at);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
