//! Inference of one node that stands in its final form, and the tables that it needs: schemas and defaults.
//! The walk and every edit go through here.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Code, Error, Result};
use crate::ir::{
    Attr, ConstId, Constant, DType, Data, Graph, GraphId, Holds, Name, Node, NodeId, Sizes, SymbolKind, TensorType,
    Type, UNDEFINED, Value, ValueId,
};
use crate::ops::{self, Fold};
use crate::schema::{self, Schema, View, check};
use crate::{versions, walk};

impl Graph {
    /// Infers all types, known integers and assumptions again. Passes call it once they decided or computed something that
    /// more follows from; ids stay, and so do symbols of dims that still only a run can tell.
    pub fn infer(&mut self) -> Result<()> {
        walk::again(self)
    }

    /// Gives symbols numbers where they stand in the types of the model's inputs, and infers again. `symbols` is in the
    /// order of [`ExprTable::symbols`](crate::ir::ExprTable::symbols); [`UNDEFINED`] leaves one free.
    pub fn bind(&mut self, symbols: &[i64]) -> Result<()> {
        let mut numbers = Vec::new();
        self.exprs.eval(symbols, &mut numbers);
        for v in self.main().inputs.clone() {
            let value = &mut self.values[v.index()];
            let dims = match &mut value.ty {
                Some(Type::Tensor(TensorType { dims: Some(dims), .. })) => dims.as_mut_slice(),
                _ => &mut [],
            };
            let known = value.known.as_mut().map(Arc::make_mut).unwrap_or(&mut []);
            for e in dims.iter_mut().chain(known) {
                if numbers[e.index()] != UNDEFINED {
                    *e = self.exprs.constant(numbers[e.index()]);
                }
            }
        }
        self.infer()
    }

    /// Gives each element of a small integer input of the model a symbol where nothing is known of it, and infers
    /// again: what a run decides by such inputs is then known once they are bound. The answer is whether there was one.
    pub fn follow(&mut self, inputs: &[ValueId]) -> Result<bool> {
        let mut found = false;
        for &v in inputs {
            if !self.main().inputs.contains(&v) {
                continue;
            }
            let value = &self.values[v.index()];
            let tensor = value.ty.as_ref().and_then(Type::as_tensor).filter(|_| value.known.is_none());
            let fits = |t: &&TensorType| matches!(t.dtype, DType::I64 | DType::I32);
            let Some(dims) = tensor.filter(fits).and_then(|t| t.dims.as_ref()) else { continue };
            let sizes = dims.iter().map(|&d| self.exprs.as_const(d));
            let count = sizes.into_iter().try_fold(1i64, |n, d| n.checked_mul(d?)).and_then(|n| u32::try_from(n).ok());
            let Some(count) = count.filter(|&n| n as usize <= crate::ir::KNOWN_LIMIT) else { continue };
            let symbols = (0..count).map(|at| self.exprs.symbol_of(v, at, SymbolKind::Element)).collect();
            self.values[v.index()].known = Some(symbols);
            found = true;
        }
        if found {
            self.infer()?;
        }
        Ok(found)
    }

    /// The schema of an operator in the form of `since`.
    pub(crate) fn schema(&self, domain: &str, op: &str, since: u32) -> Option<Schema<'_>> {
        self.schema_at(domain, op, since).filter(|s| s.since() == since)
    }

    /// The schema in force at an opset.
    pub(crate) fn schema_at(&self, domain: &str, op: &str, opset: u32) -> Option<Schema<'_>> {
        match &self.schemas {
            Some(set) => set.lookup(domain, op, opset),
            None => schema::lookup(domain, op, opset),
        }
    }

    /// Fills in the defaults of the version in which a node stands, and sorts its attributes.
    pub(crate) fn fill_defaults(&mut self, id: NodeId) {
        let mut attrs = std::mem::take(&mut self.nodes[id.index()].attrs);
        let node = self.node(id);
        match self.schema(&node.domain, &node.op, node.since) {
            Some(schema) => check::fill_defaults(schema, &mut attrs),
            None => attrs.sort_unstable_by(|a, b| a.name.cmp(&b.name)),
        }
        self.nodes[id.index()].attrs = attrs;
    }

    /// Sets types and known integers of a node's outputs by its rule, if it has one.
    pub(crate) fn infer_outputs(&mut self, id: NodeId) -> Result<()> {
        let made = ops::infer_node(self, id)?;
        for (o, inferred) in made.into_iter().enumerate() {
            let Some(v) = self.node(id).outputs[o] else { continue };
            let dtype = inferred.ty.as_ref().and_then(Type::as_tensor).map(|t| t.dtype);
            let (known, whole) = match dtype {
                Some(DType::F32 | DType::F64) => (None, inferred.known),
                Some(d) if d.is_int() || d == DType::Bool => (inferred.known, None),
                _ => (None, None),
            };
            let value = &mut self.values[v.index()];
            (value.ty, value.known, value.whole) = (inferred.ty, known, whole);
        }
        Ok(())
    }

    /// Gives a value the constant, with all that follows from that.
    pub(crate) fn set_constant(&mut self, v: ValueId, constant: &Constant) {
        let ty = Type::Tensor(constant.ty(&mut self.exprs));
        let mut followed = |list: Option<Vec<i64>>| list.map(|l| self.exprs.constants(&l));
        let known = followed(constant.ints(crate::ir::KNOWN_LIMIT));
        let whole = followed(constant.whole(crate::ir::KNOWN_LIMIT));
        let value = &mut self.values[v.index()];
        (value.constant, value.ty) = (Some(constant.id), Some(ty));
        (value.known, value.whole, value.const_expr) = (known, whole, true);
    }

    /// The element type that the schema leaves an output of which no rule spoke.
    pub(crate) fn schema_type(&self, id: NodeId, o: usize) -> Option<Type> {
        let node = self.node(id);
        let schema = self.schema(&node.domain, &node.op, node.since)?;
        let set = check::output_types(schema, View::of(self, node), o).filter(|s| s.len() == 1)?;
        set.iter().next()?.dtype().and_then(DType::from_number).map(Type::unranked)
    }

    /// What follows from a node's types: constant expressions, and the interval in which its form means the same.
    pub(crate) fn conclude(&mut self, id: NodeId) {
        let node = self.node(id);
        let pure = node.def.is_some_and(|d| d.fold != Fold::Random && d.control.is_none());
        let constant = |v: &Option<ValueId>| v.is_none_or(|v| self.value(v).const_expr);
        let flag = pure && node.inputs.iter().all(constant);
        let holds = versions::holds(View::of(self, node), &node.domain, &node.op, node.since);
        let node = &mut self.nodes[id.index()];
        node.holds = holds;
        for v in node.outputs.iter().flatten() {
            self.values[v.index()].const_expr = flag;
        }
    }

    /// A node in the newest form of its operator, in no body yet and without outputs.
    pub(crate) fn add_node(&mut self, graph: GraphId, name: Name, domain: &str, op: &str) -> Result<NodeId> {
        let id = NodeId::next(self.nodes.len()).ok_or_else(|| full("nodes"))?;
        let since = self.schema_at(domain, op, u32::MAX).map_or(0, |s| s.since());
        self.nodes.push(Node {
            op: op.into(),
            domain: domain.into(),
            name,
            since,
            holds: Holds::ALWAYS,
            def: ops::find(domain, op),
            graph,
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            attrs: Vec::new(),
            origin: None,
            stands_for: None,
        });
        Ok(id)
    }

    /// Adds a value to the table.
    pub(crate) fn add_value(&mut self, value: Value) -> Result<ValueId> {
        let id = ValueId::next(self.values.len()).ok_or_else(|| full("values"))?;
        self.values.push(value);
        Ok(id)
    }

    /// Adds an output to a node.
    pub(crate) fn add_output(&mut self, id: NodeId) -> Result<ValueId> {
        let at = u32::try_from(self.node(id).outputs.len()).map_err(|_| full("outputs"))?;
        let value = Value { producer: Some((id, at)), ..Value::new(self.node(id).graph) };
        let value = self.add_value(value)?;
        self.nodes[id.index()].outputs.push(Some(value));
        Ok(value)
    }

    /// Adds a constant and its value.
    pub(crate) fn add_constant(&mut self, graph: GraphId, dtype: DType, dims: &[i64], data: Data) -> Result<ValueId> {
        let id = ConstId::next(self.constants.len()).ok_or_else(|| full("constants"))?;
        let constant = Constant { id, dtype, dims: Sizes::from_slice(dims), data };
        let value = self.add_value(Value::new(graph))?;
        self.set_constant(value, &constant);
        self.constants.push(constant);
        Ok(value)
    }

    pub(crate) fn set_producer(&mut self, value: Option<ValueId>, node: NodeId, at: u32) {
        if let Some(v) = value {
            self.values[v.index()].producer = Some((node, at));
        }
    }
}

/// Attributes from pairs.
pub(crate) fn attrs<'a>(list: impl IntoIterator<Item = &'a (&'static str, crate::ir::AttrValue)>) -> Vec<Attr> {
    list.into_iter().map(|(name, value)| Attr { name: (*name).into(), value: value.clone() }).collect()
}

/// The error of a table that has no ids left.
pub(crate) fn full(what: &str) -> Error {
    Error::new(Code::Limit, format!("the model has more than 2^32 {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{good, graph};

    fn dims(g: &Graph, v: ValueId) -> String {
        match &g.value(v).ty {
            Some(Type::Tensor(TensorType { dims: Some(d), .. })) => {
                d.iter().map(|d| g.exprs().show(*d).to_string()).collect::<Vec<_>>().join(",")
            }
            _ => "?".to_owned(),
        }
    }

    #[test]
    fn bound_symbols_reach_every_type_and_the_rest_keep_their_symbols() {
        let text = "a = Concat(x,x) axis=0\nn = NonZero(a)\ns = Shape(a)\ny = Expand(one,s)";
        let mut top = graph("x float[b,c]", text, "y\nn");
        top.initializer = vec![crate::testing::floats("one", &[], &[1.0])];
        let mut g = good(21, top);
        let (y, n) = (g.main().outputs[0], g.main().outputs[1]);
        assert_eq!((dims(&g, y), dims(&g, n)), ("(s0 * 2),s1".to_owned(), "2,s2".to_owned()));
        let symbols = g.exprs().symbols().len();
        g.bind(&[5, UNDEFINED, UNDEFINED]).unwrap();
        assert_eq!((dims(&g, y), dims(&g, n)), ("10,s1".to_owned(), "2,s2".to_owned()));
        assert_eq!(g.exprs().symbols().len(), symbols);
        g.bind(&[UNDEFINED, 3, UNDEFINED]).unwrap();
        assert_eq!(dims(&g, y), "10,3");
    }
}
