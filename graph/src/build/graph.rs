//! Graphs and nodes of the file → bodies and nodes.

use smallvec::SmallVec;

use super::sort::{order, place};
use super::{Builder, domain_name, types};
use crate::error::{Code, Error, Result};
use crate::infer::full;
use crate::ir::{Body, ConstId, GraphId, Holds, Node, NodeId, Type, Value, ValueId};
use crate::ops;
use crate::proto::{GraphProto, NodeProto, ValueInfoProto};
use crate::schema;

/// Before this IR version every initializer had to be an input as well, and was a constant all the same.
const DEFAULTS_SINCE_IR: i64 = 4;

impl Builder {
    pub(super) fn main_graph(&mut self, graph: GraphProto) -> Result<()> {
        self.body(None, graph).map(|_| ())
    }

    /// A graph, with all that is in it. `parent` is the node whose body it is.
    pub(super) fn body(&mut self, parent: Option<NodeId>, graph: GraphProto) -> Result<GraphId> {
        let id = GraphId::next(self.graph.bodies.len()).ok_or_else(|| full("graphs"))?;
        let name = self.names.get(&graph.name);
        self.graph.bodies.push(Body { parent, name, ..Body::default() });
        self.scopes.enter();
        let place = format!("graph '{}'", graph.name);
        let done = self.fill(id, graph);
        self.scopes.leave();
        done.map_err(|e| e.within(place))?;
        Ok(id)
    }

    fn fill(&mut self, id: GraphId, mut graph: GraphProto) -> Result<()> {
        let mut types: hashbrown::HashMap<String, _> = hashbrown::HashMap::new();
        for info in graph.value_info.drain(..) {
            types.extend(info.r#type.map(|t| (info.name, t)));
        }
        self.graph_inputs(id, std::mem::take(&mut graph.input))?;
        for t in std::mem::take(&mut graph.initializer) {
            let name = t.name.clone();
            let c = self.constants.tensor(t)?;
            self.initializer(id, &name, c)?;
        }
        for t in std::mem::take(&mut graph.sparse_initializer) {
            let name = t.values.as_ref().map(|v| v.name.clone()).unwrap_or_default();
            let c = self.constants.sparse(t)?;
            self.initializer(id, &name, c)?;
        }
        for node in &graph.node {
            if let Some(name) = node.output.iter().find(|o| self.scopes.own(o).is_some()) {
                return Err(Error::new(
                    Code::DuplicateName,
                    format!("it makes '{name}', which is an input or constant"),
                )
                .within(place(node)));
            }
        }
        let first = self.graph.values.len();
        for i in order(&graph.node)? {
            let node = std::mem::take(&mut graph.node[i]);
            self.node(id, node)?;
        }
        self.graph_outputs(id, graph.output)?;
        for at in first..self.graph.values.len() {
            let known = &self.graph.values[at];
            if let Some(v) = ValueId::next(at).filter(|_| known.graph == id)
                && let Some(t) = types.remove(&*known.name)
            {
                self.declared.push((v, t));
            }
        }
        Ok(())
    }

    fn graph_inputs(&mut self, id: GraphId, inputs: Vec<ValueInfoProto>) -> Result<()> {
        for info in inputs {
            if info.name.is_empty() {
                return Err(Error::new(Code::Malformed, "an input has no name"));
            }
            let value = self.value(id, &info.name)?;
            self.define(&info.name, value)?;
            self.graph.bodies[id.index()].inputs.push(value);
            match info.r#type {
                Some(t) if id == GraphId::MAIN => {
                    let ty = types::input(&mut self.graph.exprs, &mut self.dims, value, &t);
                    let ty = ty.map_err(|e| e.within(format!("input '{}'", info.name)))?;
                    self.graph.values[value.index()].ty = Some(ty);
                }
                Some(t) => self.declared.push((value, t)),
                None if id == GraphId::MAIN => {
                    let message = "it has no type: the standard asks for one on every input of the model";
                    return Err(Error::new(Code::BadType, message).within(format!("input '{}'", info.name)));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn initializer(&mut self, id: GraphId, name: &str, c: ConstId) -> Result<()> {
        if name.is_empty() {
            return Err(Error::new(Code::Malformed, "an initializer has no name"));
        }
        let Some(value) = self.scopes.own(name) else {
            let value = self.value(id, name)?;
            self.define(name, value)?;
            self.make_constant(value, c);
            return Ok(());
        };
        let known = &self.graph.values[value.index()];
        if known.constant.is_some() || known.default.is_some() || id != GraphId::MAIN {
            return Err(Error::new(Code::DuplicateName, format!("'{name}' is given a value twice")));
        }
        self.check_default(value, c)?;
        if self.graph.info.ir_version < DEFAULTS_SINCE_IR {
            self.graph.bodies[id.index()].inputs.retain(|v| *v != value);
            self.make_constant(value, c);
        } else {
            self.graph.values[value.index()].default = Some(c);
        }
        Ok(())
    }

    /// A default has to be of its input's element type and rank.
    fn check_default(&self, value: ValueId, c: ConstId) -> Result<()> {
        let (known, c) = (&self.graph.values[value.index()], &self.constants.all[c.index()]);
        let fits = match &known.ty {
            Some(Type::Tensor(t)) => t.dtype == c.dtype && t.rank().is_none_or(|r| r == c.dims.len()),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let declared = known.ty.as_ref().map(Type::kind_name).unwrap_or_default();
        let message = format!("input '{}' is {declared}, but its initializer is {} {:?}", known.name, c.dtype, c.dims);
        Err(Error::new(Code::BadType, message))
    }

    pub(super) fn make_constant(&mut self, value: ValueId, c: ConstId) {
        self.graph.set_constant(value, &self.constants.all[c.index()]);
    }

    fn graph_outputs(&mut self, id: GraphId, outputs: Vec<ValueInfoProto>) -> Result<()> {
        for info in outputs {
            let value = self
                .scopes
                .find(&info.name)
                .ok_or_else(|| Error::new(Code::UnknownValue, format!("nothing makes the output '{}'", info.name)))?;
            let name = self.names.get(&info.name);
            let body = &mut self.graph.bodies[id.index()];
            body.outputs.push(value);
            body.output_names.push(name);
            self.declared.extend(info.r#type.map(|t| (value, t)));
        }
        Ok(())
    }

    /// A new value of a graph, not yet in any scope.
    fn value(&mut self, graph: GraphId, name: &str) -> Result<ValueId> {
        let prefix = self.calls.last().map_or("", |c| c.prefix.as_str());
        let name = if prefix.is_empty() { name.into() } else { format!("{prefix}{name}").into() };
        self.graph.add_value(Value { name, ..Value::new(graph) })
    }

    /// Gives a value its name in the innermost scope.
    pub(super) fn define(&mut self, name: &str, value: ValueId) -> Result<()> {
        if self.scopes.own(name).is_some() {
            return Err(Error::new(Code::DuplicateName, format!("two values are named '{name}'")));
        }
        self.scopes.add(name, value);
        if self.calls.is_empty() {
            // What a function made is known by the name that its caller gives it.
            self.graph.values[value.index()].name = name.into();
        }
        Ok(())
    }

    /// The values of a node's inputs. Those left out at the end are as if not listed.
    pub(super) fn inputs(&self, names: &[String]) -> Result<SmallVec<[Option<ValueId>; 4]>> {
        let find = |(i, name): (usize, &String)| match self.scopes.find(name) {
            None if name.is_empty() || self.is_left_out(name) => Ok(None),
            None => {
                let text = format!("input {i} is '{name}', which nothing before it makes");
                Err(Error::new(Code::UnknownValue, text))
            }
            found => Ok(found),
        };
        let mut found: SmallVec<_> = names.iter().enumerate().map(find).collect::<Result<_>>()?;
        while found.last() == Some(&None) {
            found.pop();
        }
        Ok(found)
    }

    /// A node of the file, which may be a function's call or a constant.
    pub(super) fn node(&mut self, graph: GraphId, node: NodeProto) -> Result<()> {
        let Some(node) = self.call(graph, node)? else { return Ok(()) };
        let place = place(&node);
        self.operator(graph, node).map_err(|e| e.within(place))
    }

    fn operator(&mut self, graph: GraphId, node: NodeProto) -> Result<()> {
        if node.op_type.is_empty() {
            return Err(Error::new(Code::Malformed, "a node names no operator"));
        }
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or_else(|| {
            Error::new(Code::Limit, "functions of the model expand to far more nodes than its size justifies")
        })?;
        let domain = schema::canonical_domain(&node.domain);
        let since = self.since(domain, &node.op_type)?;
        let inputs = self.inputs(&node.input)?;
        let id = self.placeholder(graph, &node, domain, since)?;
        let attrs = self.attrs(id, node.attribute)?;
        if domain.is_empty()
            && node.op_type == ops::CONSTANT
            && node.output.len() == 1
            && let Some(c) = self.constant_of(&attrs)?
        {
            // The entry stays behind, in no graph.
            let value = self.value(graph, &node.output[0])?;
            self.define(&node.output[0], value)?;
            self.make_constant(value, c);
            return Ok(());
        }
        let outputs = self.outputs(graph, id, &node.output)?;
        let entry = &mut self.graph.nodes[id.index()];
        (entry.inputs, entry.outputs, entry.attrs) = (inputs, outputs, attrs);
        self.graph.bodies[graph.index()].nodes.push(id);
        Ok(())
    }

    /// Since-version of the form that the file uses; 0 when no schema describes the operator.
    fn since(&self, domain: &str, op: &str) -> Result<u32> {
        let Some(opset) = self.opset_here(domain) else {
            let message = format!("its domain {} is not among the opsets that the model imports", domain_name(domain));
            return Err(Error::new(Code::Opset, message));
        };
        let (versions, found) = match &self.graph.schemas {
            Some(set) => (set.versions(domain, op), set.lookup(domain, op, opset)),
            None => (schema::versions(domain, op), schema::lookup(domain, op, opset)),
        };
        let Some(first) = versions.first() else { return Ok(0) };
        found.map(|s| s.since()).ok_or_else(|| {
            let message =
                format!("the operator came with version {first} of {}, but {opset} is imported", domain_name(domain));
            Error::new(Code::Opset, message)
        })
    }

    fn placeholder(&mut self, graph: GraphId, node: &NodeProto, domain: &str, since: u32) -> Result<NodeId> {
        let id = NodeId::next(self.graph.nodes.len()).ok_or_else(|| full("nodes"))?;
        let prefix = self.calls.last().map_or("", |c| c.prefix.as_str());
        self.graph.nodes.push(Node {
            op: self.names.get(&node.op_type),
            domain: self.names.get(domain),
            name: if prefix.is_empty() { node.name.as_str().into() } else { format!("{prefix}{}", node.name).into() },
            since,
            holds: Holds::ALWAYS,
            def: ops::find(domain, &node.op_type),
            graph,
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            attrs: Vec::new(),
            origin: None,
            stands_for: None,
        });
        Ok(id)
    }

    fn outputs(&mut self, graph: GraphId, node: NodeId, names: &[String]) -> Result<SmallVec<[Option<ValueId>; 2]>> {
        let mut outputs = SmallVec::new();
        for (name, at) in names.iter().zip(0u32..) {
            if name.is_empty() {
                outputs.push(None);
                continue;
            }
            let value = self.value(graph, name)?;
            self.define(name, value)?;
            self.graph.values[value.index()].producer = Some((node, at));
            outputs.push(Some(value));
        }
        Ok(outputs)
    }

    /// A copy of a value, as a value of its own.
    pub(super) fn copy(&mut self, graph: GraphId, from: ValueId) -> Result<ValueId> {
        let id = self.graph.add_node(graph, self.names.get(""), "", ops::IDENTITY)?;
        self.graph.nodes[id.index()].inputs.push(Some(from));
        self.graph.bodies[graph.index()].nodes.push(id);
        self.graph.add_output(id)
    }
}
