//! Inference of one node that stands in its final form, and the tables that it needs: schemas and defaults.
//! The walk and every edit go through here.

use smallvec::SmallVec;

use crate::error::{Code, Error, Result};
use crate::ir::{
    Attr, ConstId, Constant, DType, Data, Graph, GraphId, Holds, Name, Node, NodeId, Sizes, Type, Value, ValueId,
};
use crate::ops::{self, Fold};
use crate::schema::{self, Schema, View, check};
use crate::versions;

impl Graph {
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
            None => attrs.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        self.nodes[id.index()].attrs = attrs;
    }

    /// Sets types and known integers of a node's outputs by its rule, if it has one.
    pub(crate) fn infer_outputs(&mut self, id: NodeId) -> Result<()> {
        let made = ops::infer_node(self, id)?;
        for (o, inferred) in made.into_iter().enumerate() {
            let Some(v) = self.node(id).outputs[o] else { continue };
            let value = &mut self.values[v.index()];
            (value.ty, value.known) = (inferred.ty, inferred.known);
        }
        Ok(())
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
        let ty = Type::Tensor(constant.ty(&mut self.exprs));
        let known = constant.ints(crate::ir::KNOWN_LIMIT).map(|ints| self.exprs.constants(&ints));
        self.constants.push(constant);
        self.add_value(Value { ty: Some(ty), constant: Some(id), known, const_expr: true, ..Value::new(graph) })
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
