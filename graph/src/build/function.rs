//! Functions of the model: a call is replaced by the function's nodes, in the function's own opsets.

use std::sync::Arc;

use hashbrown::HashMap;

use super::sort::{order, place};
use super::{Builder, FunctionKey};
use crate::error::{Code, Error, Result};
use crate::ir::{GraphId, Opset, ValueId};
use crate::proto::{AttributeProto, FunctionProto, NodeProto};
use crate::schema::canonical_domain;

/// A function under expansion.
pub(super) struct Call {
    key: FunctionKey,
    pub(super) opsets: Vec<Opset>,
    /// Before names of nodes and values inside, for messages.
    pub(super) prefix: String,
    /// What the call says of attributes, with the function's defaults.
    attrs: HashMap<String, AttributeProto>,
    /// Inputs of the function that the call leaves out.
    left_out: Vec<String>,
}

impl Builder {
    /// Expands a node that calls a function; hands it back when it does not.
    pub(super) fn call(&mut self, graph: GraphId, node: NodeProto) -> Result<Option<NodeProto>> {
        if self.functions.is_empty() {
            return Ok(Some(node));
        }
        let key = FunctionKey {
            domain: canonical_domain(&node.domain).to_owned(),
            name: node.op_type.clone(),
            overload: node.overload.clone(),
        };
        let Some(function) = self.functions.get(&key).cloned() else { return Ok(Some(node)) };
        let place = place(&node);
        self.expand(graph, key, &function, node).map_err(|e| e.within(place))?;
        Ok(None)
    }

    fn expand(&mut self, graph: GraphId, key: FunctionKey, f: &Arc<FunctionProto>, node: NodeProto) -> Result<()> {
        if self.calls.iter().any(|c| c.key == key) {
            return Err(Error::new(Code::Cycle, format!("function '{}' calls itself", f.name)));
        }
        if node.input.len() > f.input.len() || node.output.len() > f.output.len() {
            let message = format!(
                "function '{}' has {} inputs and {} outputs, but the node lists {} and {}",
                f.name,
                f.input.len(),
                f.output.len(),
                node.input.len(),
                node.output.len()
            );
            return Err(Error::new(Code::NodeInputs, message));
        }
        let inputs = self.inputs(&node.input)?;
        let outer = self.calls.last().map_or("", |c| c.prefix.as_str());
        let label = if node.name.is_empty() { &f.name } else { &node.name };
        let prefix = format!("{outer}{label}/");
        let opsets = self.opsets(&f.opset_import, &format!("function '{}'", f.name))?;
        let attrs = self.call_attrs(f, node.attribute)?;
        self.scopes.enter_function();
        let mut left_out = Vec::new();
        for (name, value) in f.input.iter().zip(inputs.into_iter().chain(std::iter::repeat(None))) {
            match value {
                Some(value) => self.scopes.add(name, value),
                None => left_out.push(name.clone()),
            }
        }
        self.calls.push(Call { key, opsets, prefix, attrs, left_out });
        let made = self.function_body(graph, f, &node.output);
        self.scopes.leave();
        self.calls.pop();
        for (name, value) in node.output.iter().zip(made?) {
            if !name.is_empty() {
                self.define(name, value)?;
            }
        }
        Ok(())
    }

    fn function_body(&mut self, graph: GraphId, f: &FunctionProto, wanted: &[String]) -> Result<Vec<ValueId>> {
        // An output that is an input, or the same value as another, becomes a value of its own by a copy.
        let mut nodes = f.node.clone();
        for i in order(&nodes)? {
            self.node(graph, std::mem::take(&mut nodes[i]))?;
        }
        let mut made: Vec<ValueId> = Vec::new();
        for name in f.output.iter().take(wanted.len()) {
            let found = self.scopes.find(name);
            let value = found.ok_or_else(|| {
                Error::new(Code::UnknownValue, format!("function '{}' makes no value for its output '{name}'", f.name))
            })?;
            let own = self.graph.value(value).producer.is_some() && !f.input.contains(name) && !made.contains(&value);
            made.push(if own { value } else { self.copy(graph, value)? });
        }
        Ok(made)
    }

    fn call_attrs(&mut self, f: &FunctionProto, given: Vec<AttributeProto>) -> Result<HashMap<String, AttributeProto>> {
        let mut attrs: HashMap<String, AttributeProto> =
            f.attribute_proto.iter().map(|a| (a.name.clone(), a.clone())).collect();
        for a in given {
            let name = a.name.clone();
            if !attrs.contains_key(&name) && !f.attribute.contains(&name) {
                return Err(Error::new(Code::BadAttribute, format!("function '{}' has no attribute '{name}'", f.name)));
            }
            if let Some(a) = self.referenced(a)? {
                attrs.insert(name, a);
            }
        }
        Ok(attrs)
    }

    /// Whether a name is an input of the function at hand that its caller leaves out.
    pub(super) fn is_left_out(&self, name: &str) -> bool {
        self.calls.last().is_some_and(|c| c.left_out.iter().any(|n| n == name))
    }

    /// An attribute with the value that the call around gives it; `None` when it gives none.
    pub(super) fn referenced(&self, a: AttributeProto) -> Result<Option<AttributeProto>> {
        if a.ref_attr_name.is_empty() {
            return Ok(Some(a));
        }
        let Some(call) = self.calls.last() else {
            let message = format!("it refers to '{}' of a call, but stands outside functions", a.ref_attr_name);
            return Err(Error::new(Code::BadAttribute, message));
        };
        let given = call.attrs.get(&a.ref_attr_name);
        Ok(given.map(|g| AttributeProto { name: a.name, ..g.clone() }))
    }
}
