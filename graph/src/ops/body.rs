//! Standard bodies: a composite operator written out in simpler ones, at a given opset.

use smallvec::SmallVec;

use crate::error::{Code, Error, Result};
use crate::ir::{Attr, AttrValue, DType, Data, Graph, NodeId, ValueId};
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

    /// Rank of any value.
    pub fn rank(&self, v: ValueId) -> Option<usize> {
        self.walk.graph.value(v).ty.as_ref()?.as_tensor()?.rank()
    }

    /// Writes the body from text: statements `name = Op(a, b) attr=1` with `;` between them.
    ///
    /// An operand is an input of the node or an earlier result, by name; `_` for none; a number, as a scalar of input 0's
    /// element type; or `@alpha`, the node's float attribute as such a scalar. Attribute values are integers, floats with
    /// a point, `[1,2]`, `"text"`, or `@alpha` for the node's own. A result with the name of an output of the node is
    /// that output. Inputs and outputs go by the names in the schema.
    pub fn write(&mut self, text: &str) -> Result<()> {
        let mut names: Vec<(String, Option<ValueId>)> = Vec::new();
        let (inputs, outputs) = self.formal_names();
        names.extend(inputs.into_iter().enumerate().map(|(i, name)| (name, self.input(i))));
        for statement in text.split(';') {
            let (name, call) = statement.split_once('=').ok_or_else(|| bad(statement))?;
            let (op, rest) = call.split_once('(').ok_or_else(|| bad(statement))?;
            let (operands, attrs) = rest.split_once(')').ok_or_else(|| bad(statement))?;
            let operands: Vec<Option<ValueId>> =
                operands.split(',').map(|o| self.operand(o.trim(), &names)).collect::<Result<_>>()?;
            let attrs = attrs.split_whitespace().map(|a| self.attr_of(a)).collect::<Result<Vec<_>>>()?;
            let value = self.emit_named(op.trim(), &operands, attrs)?;
            let name = name.trim();
            if let Some(o) = outputs.iter().position(|n| n == name) {
                self.set_output(o, value);
            }
            names.push((name.to_owned(), Some(value)));
        }
        Ok(())
    }

    fn formal_names(&self) -> (Vec<String>, Vec<String>) {
        let node = self.walk.graph.node(self.id);
        let Some(schema) = self.walk.graph.schema_at(&node.domain, &node.op, node.since) else {
            return Default::default();
        };
        let inputs = schema.inputs().map(|p| p.name.to_owned()).collect();
        (inputs, schema.outputs().map(|p| p.name.to_owned()).collect())
    }

    fn operand(&mut self, text: &str, names: &[(String, Option<ValueId>)]) -> Result<Option<ValueId>> {
        if text == "_" {
            return Ok(None);
        }
        if let Some((_, value)) = names.iter().rev().find(|n| n.0 == text) {
            return Ok(*value);
        }
        let number = match text.strip_prefix('@') {
            Some(attr) => self.view().attr(attr).and_then(AttrValue::as_float).map(f64::from),
            None => text.parse().ok(),
        };
        let (number, like) = (number.ok_or_else(|| bad(text))?, self.input(0).ok_or_else(|| bad(text))?);
        match self.scalar_like(like, number)? {
            Some(value) => Ok(Some(value)),
            None => Err(Error::new(Code::Version, "its element type has no standard body")),
        }
    }

    fn attr_of(&self, text: &str) -> Result<(String, AttrValue)> {
        let (name, value) = text.split_once('=').ok_or_else(|| bad(text))?;
        let value = if let Some(own) = value.strip_prefix('@') {
            self.view().attr(own).cloned().ok_or_else(|| bad(text))?
        } else if let Some(list) = value.strip_prefix('[') {
            let number = |n: &str| match n.strip_prefix('@') {
                Some(own) => self.view().int(own),
                None => n.parse().ok(),
            };
            let list: Option<Vec<i64>> = list.trim_end_matches(']').split(',').map(number).collect();
            AttrValue::ints(&list.ok_or_else(|| bad(text))?)
        } else if let Some(word) = value.strip_prefix('"') {
            AttrValue::text(word.trim_end_matches('"'))
        } else if value.contains('.') {
            AttrValue::Float(value.parse().map_err(|_| bad(text))?)
        } else {
            AttrValue::Int(value.parse().map_err(|_| bad(text))?)
        };
        Ok((name.to_owned(), value))
    }

    /// A node of the standard domain with one output, in the form of the body's opset. A list that this form takes
    /// as an input, not as an attribute (axes moved over the versions), is given as one.
    pub fn emit(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<ValueId> {
        self.emit_named(op, inputs, attrs.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect())
    }

    fn emit_named(&mut self, op: &str, inputs: &[Option<ValueId>], attrs: Vec<(String, AttrValue)>) -> Result<ValueId> {
        let home = self.walk.graph.node(self.id);
        let (name, graph) = (home.name.clone(), home.graph);
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
        kept.sort_by(|a, b| a.name.cmp(&b.name));
        let node = &mut self.walk.graph.nodes[id.index()];
        (node.inputs, node.attrs, node.since) = (inputs, kept, since);
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
        graph.make_own(id);
        return Ok(None);
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
            Err(_) => {
                self.make_own(id);
                Ok(false)
            }
        }
    }

    /// Lets a node make its outputs again, after another was to.
    pub(crate) fn make_own(&mut self, id: NodeId) {
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

fn bad(text: &str) -> Error {
    Error::new(Code::Edit, format!("'{}' in a standard body can't be read", text.trim()))
}

#[cfg(test)]
mod tests;
