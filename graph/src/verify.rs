//! Invariants of a graph, checked after loading and, in debug builds and tests, after each pass.
//!
//! * Ids point into their tables.
//! * A node stands in one body, once, and knows which; a body belongs to one node, once, and both name the other.
//! * What a node reads is made before it, or a constant, in its own graph or one around it.
//! * A value that a node makes names that node as its producer; nobody else makes it.
//! * Known integers are as many as the elements of their value.
//! * Attributes are sorted by name.
//!
//! Types and shapes themselves are inference's business.

use hashbrown::HashSet;

use crate::error::{Code, Error, Result};
use crate::ir::{AttrValue, ExprId, Graph, GraphId, NodeId, Type, Value, ValueId};

/// Checks every invariant; the error names the first that does not hold.
pub fn verify(graph: &Graph) -> Result<()> {
    if graph.bodies.is_empty() {
        return Err(broken("there is no graph"));
    }
    let mut check = Check {
        graph,
        seen: HashSet::new(),
        defined: vec![false; graph.values.len()],
        entered: HashSet::new(),
        constants: Vec::new(),
    };
    for (value, id) in graph.values.iter().zip((0..).filter_map(ValueId::from_index)) {
        check.value(value)?;
        if value.constant.is_some() {
            check.constants.push((value.graph, id));
        }
    }
    check.constants.sort_unstable();
    check.body(GraphId::MAIN, None)
}

struct Check<'a> {
    graph: &'a Graph,
    seen: HashSet<NodeId>,
    /// Values that may be read at the place at hand.
    defined: Vec<bool>,
    /// Bodies that were met.
    entered: HashSet<GraphId>,
    /// All constants by their graphs.
    constants: Vec<(GraphId, ValueId)>,
}

impl Check<'_> {
    fn body(&mut self, id: GraphId, parent: Option<NodeId>) -> Result<()> {
        let body = self.graph.bodies.get(id.index()).ok_or_else(|| broken(format!("there is no graph {id}")))?;
        let place = |e: Error| e.within(format!("graph {id}"));
        if !self.entered.insert(id) {
            return Err(place(broken("it stands in two places")));
        }
        if body.parent != parent {
            return Err(place(broken(format!("its parent is {:?}, but {parent:?} holds it", body.parent))));
        }
        if body.outputs.len() != body.output_names.len() {
            return Err(place(broken("outputs and their names differ in number")));
        }
        let mut made: Vec<ValueId> = Vec::new();
        let first = self.constants.partition_point(|c| c.0 < id);
        made.extend(self.constants[first..].iter().take_while(|c| c.0 == id).map(|c| c.1));
        for v in &made {
            self.defined[v.index()] = true;
        }
        for &v in &body.inputs {
            self.define(v, None, id).map_err(place)?;
            made.push(v);
        }
        for &n in &body.nodes {
            self.node(n, id, &mut made).map_err(|e| place(e.within(format!("node {n}"))))?;
        }
        for &v in &body.outputs {
            self.read(v).map_err(place)?;
        }
        // Sibling bodies and the nodes after this one cannot read what is inside.
        if parent.is_some() {
            for v in made {
                self.defined[v.index()] = false;
            }
        }
        Ok(())
    }

    fn node(&mut self, id: NodeId, graph: GraphId, made: &mut Vec<ValueId>) -> Result<()> {
        let node = self.graph.nodes.get(id.index()).ok_or_else(|| broken("it is not in the table"))?;
        if !self.seen.insert(id) {
            return Err(broken("it stands in two places"));
        }
        if node.graph != graph {
            return Err(broken(format!("it says that it is in {}, but stands in {graph}", node.graph)));
        }
        if !node.attrs.is_sorted_by(|a, b| a.name < b.name) {
            return Err(broken("its attributes are not sorted"));
        }
        for &v in node.inputs.iter().flatten() {
            self.read(v)?;
        }
        for attr in &node.attrs {
            self.constants(&attr.value)?;
        }
        for body in node.bodies() {
            self.body(body, Some(id))?;
        }
        for (at, v) in node.outputs.iter().enumerate() {
            if let Some(v) = *v {
                self.define(v, Some((id, at)), graph)?;
                made.push(v);
            }
        }
        Ok(())
    }

    fn constants(&self, value: &AttrValue) -> Result<()> {
        let ids: &[_] = match value {
            AttrValue::Tensor(c) | AttrValue::BigInts(c) | AttrValue::BigFloats(c) => std::slice::from_ref(c),
            AttrValue::Tensors(all) => all,
            _ => &[],
        };
        match ids.iter().find(|c| c.index() >= self.graph.constants.len()) {
            Some(c) => Err(broken(format!("its attribute names the constant {c}, which does not exist"))),
            None => Ok(()),
        }
    }

    fn read(&self, v: ValueId) -> Result<()> {
        match self.defined.get(v.index()) {
            Some(true) => Ok(()),
            Some(false) => Err(broken(format!("{v} '{}' is read where it is not made yet", self.graph.value(v).name))),
            None => Err(broken(format!("there is no value {v}"))),
        }
    }

    fn define(&mut self, v: ValueId, by: Option<(NodeId, usize)>, graph: GraphId) -> Result<()> {
        let value = self.graph.values.get(v.index()).ok_or_else(|| broken(format!("there is no value {v}")))?;
        let producer = value.producer.map(|(n, at)| (n, at as usize));
        if producer != by {
            return Err(broken(format!("{v} '{}' is made by {by:?}, but says {producer:?}", value.name)));
        }
        if value.graph != graph {
            return Err(broken(format!("{v} '{}' is made in {graph}, but says {}", value.name, value.graph)));
        }
        if std::mem::replace(&mut self.defined[v.index()], true) {
            return Err(broken(format!("{v} '{}' is made twice", value.name)));
        }
        Ok(())
    }

    fn value(&self, value: &Value) -> Result<()> {
        let place = |e: Error| e.within(format!("value '{}'", value.name));
        if value.constant.is_some_and(|c| c.index() >= self.graph.constants.len()) {
            return Err(place(broken("its constant does not exist")));
        }
        let Some(Type::Tensor(t)) = &value.ty else { return Ok(()) };
        let dims: &[ExprId] = t.dims.as_deref().unwrap_or(&[]);
        let exprs = self.graph.exprs.exprs().len();
        if dims.iter().chain(value.known.iter().flat_map(|k| k.iter())).any(|e| e.index() >= exprs) {
            return Err(place(broken("a dim or element is no expression of the table")));
        }
        let sizes: Option<Vec<i64>> = dims.iter().map(|d| self.graph.exprs.as_const(*d)).collect();
        match (&value.known, sizes, &t.dims) {
            (Some(known), Some(sizes), Some(_)) if sizes.iter().product::<i64>() != known.len() as i64 => {
                Err(place(broken(format!("{} elements are known of dims {sizes:?}", known.len()))))
            }
            _ => Ok(()),
        }
    }
}

fn broken(message: impl Into<String>) -> Error {
    Error::new(Code::Verify, message)
}
