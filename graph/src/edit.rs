//! The one way to change a graph.
//!
//! An [`Edit`] collects changes while the graph stays readable as it was; [`Edit::finish`] applies them
//! in one sweep. Changes keep every value's meaning: a reader that is led to another value gets the same
//! numbers. That is why the forms in which nodes stood in the file ([`crate::ir::Origin`]) stay good.
//! New nodes are in the newest form of their operator, checked against its schema and inferred when they are made.

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use crate::error::{Code, Error, Result};
use crate::ir::{Attr, AttrValue, DType, Data, Graph, GraphId, NodeId, ValueId};
use crate::schema::{View, check};

/// Changes to one graph.
pub struct Edit<'g> {
    graph: &'g mut Graph,
    replaced: HashMap<ValueId, ValueId>,
    removed: HashSet<NodeId>,
    before: HashMap<NodeId, Vec<NodeId>>,
    after: HashMap<NodeId, Vec<NodeId>>,
    last: HashMap<GraphId, Vec<NodeId>>,
    inlined: HashMap<NodeId, GraphId>,
}

/// Where a new node stands. Bodies are sorted at the end where needed, so this only has to name the right body.
#[derive(Clone, Copy, Debug)]
pub enum At {
    /// Right before a node.
    Before(NodeId),
    /// Right after a node.
    After(NodeId),
    /// At the end of a graph.
    End(GraphId),
}

/// A node to be made, in the newest form of its operator. Defaults are filled in.
#[derive(Clone, Debug)]
pub struct NewNode<'a> {
    /// Domain; `""` is the standard one.
    pub domain: &'a str,
    /// Operator.
    pub op: &'a str,
    /// Name, for messages.
    pub name: &'a str,
    /// Inputs.
    pub inputs: &'a [Option<ValueId>],
    /// Attributes in any order; no bodies.
    pub attrs: Vec<Attr>,
}

impl Graph {
    /// Begins to change the graph.
    pub fn edit(&mut self) -> Edit<'_> {
        Edit {
            graph: self,
            replaced: HashMap::new(),
            removed: HashSet::new(),
            before: HashMap::new(),
            after: HashMap::new(),
            last: HashMap::new(),
            inlined: HashMap::new(),
        }
    }
}

impl Edit<'_> {
    /// The graph, with new nodes and values in its tables but bodies and inputs as they were.
    pub fn graph(&self) -> &Graph {
        self.graph
    }

    /// What `value` was replaced by so far, or itself.
    pub fn current(&self, mut value: ValueId) -> ValueId {
        while let Some(&next) = self.replaced.get(&value) {
            value = next;
        }
        value
    }

    /// Adds a node with `outputs` new values.
    pub fn insert(&mut self, at: At, new: NewNode<'_>, outputs: usize) -> Result<NodeId> {
        let id = self.add(at, new)?;
        for _ in 0..outputs {
            self.graph.add_output(id)?;
        }
        self.check(id)?;
        self.graph.infer_outputs(id)?;
        for o in 0..outputs {
            let Some(v) = self.graph.node(id).outputs[o].filter(|v| self.graph.value(*v).ty.is_none()) else {
                continue;
            };
            self.graph.values[v.index()].ty = self.graph.schema_type(id, o);
        }
        self.graph.conclude(id);
        self.place(at, id);
        Ok(id)
    }

    /// Puts one node in the place of several: it makes the values `outputs`, and remembers the nodes that it stands for.
    ///
    /// `nodes` have to be of one body, and nothing outside may read what they make but `outputs`. Their
    /// values keep the types that they have.
    pub fn raise(&mut self, new: NewNode<'_>, nodes: &[NodeId], outputs: &[Option<ValueId>]) -> Result<NodeId> {
        let Some(&last) = nodes.last() else {
            return Err(Error::new(Code::Edit, "a raised node has to stand for something"));
        };
        let at = At::After(last);
        let id = self.add(at, new)?;
        self.graph.nodes[id.index()].outputs = outputs.into();
        self.graph.nodes[id.index()].stands_for = Some(nodes.into());
        self.check(id)?;
        self.place(at, id);
        self.take_over(id);
        self.removed.extend(nodes);
        self.graph.conclude(id);
        Ok(id)
    }

    /// Puts the nodes back that a raised node stands for.
    pub fn lower(&mut self, id: NodeId) -> Result<()> {
        let Some(nodes) = self.graph.nodes[id.index()].stands_for.take() else {
            return Err(Error::new(Code::Edit, format!("{id} stands for no other nodes")));
        };
        self.removed.insert(id);
        for &n in nodes.iter() {
            self.removed.remove(&n);
            self.take_over(n);
        }
        self.before.entry(id).or_default().extend(nodes.iter());
        Ok(())
    }

    fn take_over(&mut self, id: NodeId) {
        for (v, at) in self.graph.node(id).outputs.clone().into_iter().zip(0u32..) {
            self.graph.set_producer(v, id, at);
        }
    }

    fn add(&mut self, at: At, new: NewNode<'_>) -> Result<NodeId> {
        let graph = match at {
            At::Before(n) | At::After(n) => self.graph.node(n).graph,
            At::End(g) => g,
        };
        let id = self.graph.add_node(graph, new.name.into(), new.domain, new.op)?;
        let inputs: SmallVec<_> = new.inputs.iter().map(|v| v.map(|v| self.current(v))).collect();
        let node = &mut self.graph.nodes[id.index()];
        (node.inputs, node.attrs) = (inputs, new.attrs);
        self.graph.fill_defaults(id);
        Ok(id)
    }

    fn check(&self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        match self.graph.schema(&node.domain, &node.op, node.since) {
            Some(schema) => {
                check::check(schema, View::of(self.graph, node)).map_err(|e| e.within(node.place(self.graph)))
            }
            None => Ok(()),
        }
    }

    fn place(&mut self, at: At, id: NodeId) {
        match at {
            At::Before(n) => self.before.entry(n).or_default().push(id),
            At::After(n) => self.after.entry(n).or_default().push(id),
            At::End(g) => self.last.entry(g).or_default().push(id),
        }
    }

    /// Adds a constant to a graph.
    pub fn constant(&mut self, graph: GraphId, dtype: DType, dims: &[i64], data: Data) -> Result<ValueId> {
        self.graph.add_constant(graph, dtype, dims, data)
    }

    /// Leads every reader of `old` to `new`, which has to hold the same numbers and be readable wherever `old` was read.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        let new = self.current(new);
        if self.current(old) != new {
            let old = self.current(old);
            self.replaced.insert(old, new);
        }
    }

    /// Gives a node another value to read; what it makes has to stay the same.
    pub fn set_input(&mut self, id: NodeId, i: usize, value: Option<ValueId>) {
        let inputs = &mut self.graph.nodes[id.index()].inputs;
        if inputs.len() <= i {
            inputs.resize(i + 1, None);
        }
        inputs[i] = value;
    }

    /// Sets an attribute of a node; what it makes has to stay the same.
    pub fn set_attr(&mut self, id: NodeId, name: &str, value: AttrValue) {
        let attrs = &mut self.graph.nodes[id.index()].attrs;
        match attrs.binary_search_by(|a| (*a.name).cmp(name)) {
            Ok(at) => attrs[at].value = value,
            Err(at) => attrs.insert(at, Attr { name: name.into(), value }),
        }
    }

    /// Takes a node out of its body. Nothing may read what it makes any more.
    pub fn remove(&mut self, id: NodeId) {
        self.removed.insert(id);
    }

    /// Puts the nodes of a body in the place of the node that holds it: the branch of an If that is always taken.
    /// The body may have no inputs.
    pub fn inline(&mut self, id: NodeId, body: GraphId) -> Result<()> {
        let (node, inner) = (self.graph.node(id), self.graph.body(body));
        if inner.parent != Some(id) || !inner.inputs.is_empty() || inner.outputs.len() < node.outputs.len() {
            return Err(Error::new(Code::Edit, format!("{body} can't stand in the place of {id}")));
        }
        let pairs: Vec<_> = node.outputs.iter().zip(&inner.outputs).map(|(o, v)| (*o, *v)).collect();
        self.inlined.insert(id, body);
        self.removed.insert(id);
        for (old, new) in pairs {
            if let Some(old) = old {
                self.replace(old, new);
            }
        }
        Ok(())
    }

    /// Applies all changes: bodies are rebuilt, readers led on, nodes that nothing reads are removed, bodies sorted.
    pub fn finish(mut self) -> Result<()> {
        for body in self.graph.live_bodies() {
            if !self.inlined.values().any(|b| *b == body) {
                let nodes = self.rebuilt(body);
                self.graph.bodies[body.index()].nodes = nodes;
            }
        }
        self.move_inlined();
        self.lead_readers();
        self.graph.sort()?;
        self.graph.remove_unread();
        #[cfg(debug_assertions)]
        crate::verify::verify(self.graph)?;
        Ok(())
    }

    fn rebuilt(&self, body: GraphId) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for &n in &self.graph.body(body).nodes {
            self.push(n, &mut nodes);
        }
        for &n in self.last.get(&body).into_iter().flatten() {
            self.push(n, &mut nodes);
        }
        nodes
    }

    fn push(&self, n: NodeId, nodes: &mut Vec<NodeId>) {
        for &b in self.before.get(&n).into_iter().flatten() {
            self.push(b, nodes);
        }
        if !self.removed.contains(&n) {
            nodes.push(n);
        }
        if let Some(&body) = self.inlined.get(&n) {
            nodes.extend(self.rebuilt(body));
        }
        for &a in self.after.get(&n).into_iter().flatten() {
            self.push(a, nodes);
        }
    }

    /// What stood in an inlined body belongs to the graph around it.
    fn move_inlined(&mut self) {
        if self.inlined.is_empty() {
            return;
        }
        let from: HashMap<GraphId, GraphId> =
            self.inlined.iter().map(|(n, body)| (*body, self.graph.node(*n).graph)).collect();
        let around = |mut graph: GraphId| {
            while let Some(&outer) = from.get(&graph) {
                graph = outer;
            }
            graph
        };
        self.graph.nodes.iter_mut().for_each(|n| n.graph = around(n.graph));
        self.graph.values.iter_mut().for_each(|v| v.graph = around(v.graph));
        self.graph.origins.iter_mut().for_each(|o| o.graph = around(o.graph));
        for body in from.keys() {
            self.graph.bodies[body.index()] = Default::default();
        }
    }

    fn lead_readers(&mut self) {
        if self.replaced.is_empty() {
            return;
        }
        let new: HashMap<ValueId, ValueId> = self.replaced.keys().map(|v| (*v, self.current(*v))).collect();
        let lead = |v: &mut ValueId| *v = new.get(v).copied().unwrap_or(*v);
        let nodes = self.graph.nodes.iter_mut().flat_map(|n| n.inputs.iter_mut());
        let origins = self.graph.origins.iter_mut().flat_map(|o| o.inputs.iter_mut());
        nodes.chain(origins).flatten().for_each(lead);
        self.graph.bodies.iter_mut().flat_map(|b| b.outputs.iter_mut()).for_each(lead);
    }
}

impl Graph {
    /// Removes nodes none of whose outputs is read; every ONNX operator is free of side effects.
    pub(crate) fn remove_unread(&mut self) {
        let mut read = vec![false; self.values.len()];
        let mut kept: HashSet<NodeId> = HashSet::new();
        self.mark(GraphId::MAIN, &mut read, &mut kept);
        for body in &mut self.bodies {
            body.nodes.retain(|n| kept.contains(n));
        }
    }

    // As deep as graphs are nested.
    fn mark(&self, graph: GraphId, read: &mut [bool], kept: &mut HashSet<NodeId>) {
        let body = self.body(graph);
        body.outputs.iter().for_each(|v| read[v.index()] = true);
        for &n in body.nodes.iter().rev() {
            let node = self.node(n);
            if node.outputs.iter().flatten().any(|v| read[v.index()]) {
                kept.insert(n);
                node.inputs.iter().flatten().for_each(|v| read[v.index()] = true);
                for body in node.bodies() {
                    self.mark(body, read, kept);
                }
            }
        }
    }

    /// Brings every body into topological order, changing as little as possible.
    pub(crate) fn sort(&mut self) -> Result<()> {
        for id in self.live_bodies() {
            let nodes = &self.body(id).nodes;
            let at: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, n)| (*n, i)).collect();
            let needs: Vec<Vec<usize>> = nodes
                .iter()
                .map(|n| {
                    let mut reads = Vec::new();
                    self.reads(*n, id, &mut reads);
                    reads.iter().filter_map(|v| at.get(&self.value(*v).producer?.0).copied()).collect()
                })
                .collect();
            let order = crate::order::order(&needs).map_err(|open| {
                let place = open.first().map(|i| self.node(nodes[*i]).place(self)).unwrap_or_default();
                Error::new(Code::Edit, "the change lets nodes feed each other in a ring").within(place)
            })?;
            if let Some(order) = order {
                let sorted = order.iter().map(|i| nodes[*i]).collect();
                self.bodies[id.index()].nodes = sorted;
            }
        }
        Ok(())
    }

    /// Values of `graph` that a node of it reads, itself or in its bodies.
    fn reads(&self, n: NodeId, graph: GraphId, reads: &mut Vec<ValueId>) {
        let node = self.node(n);
        reads.extend(node.inputs.iter().flatten().filter(|v| self.value(**v).graph == graph));
        for body in node.bodies() {
            let body = self.body(body);
            reads.extend(body.outputs.iter().filter(|v| self.value(**v).graph == graph));
            body.nodes.iter().for_each(|n| self.reads(*n, graph, reads));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, attribute_type};
    use crate::testing::{good, graph, load, model, node, shown};

    fn node_of(g: &Graph, output: &str) -> NodeId {
        let made = |id: &NodeId| g.node(*id).outputs.iter().flatten().any(|v| &*g.value(*v).name == output);
        g.live_nodes().into_iter().find(made).unwrap()
    }

    fn value_of(g: &Graph, name: &str) -> ValueId {
        let at = g.values.iter().position(|v| &*v.name == name).unwrap();
        ValueId::from_index(at as u32).unwrap()
    }

    #[test]
    fn replaced_values_lead_readers_on_and_free_their_makers() {
        let mut g = good(21, graph("x float[2]", "a = Identity(x)\nb = Identity(a)\ny = Relu(b)", "y"));
        let (x, a, b) = (value_of(&g, "x"), value_of(&g, "a"), value_of(&g, "b"));
        let mut e = g.edit();
        e.replace(b, a);
        e.replace(a, x);
        e.finish().unwrap();
        assert_eq!(shown(&g), ["Relu-14(x) > y"]);
    }

    #[test]
    fn an_output_of_the_model_keeps_its_name_when_it_is_replaced() {
        let mut g = good(21, graph("x float[2]", "a = Relu(x)\ny = Identity(a)", "y"));
        let (a, y) = (value_of(&g, "a"), value_of(&g, "y"));
        let mut e = g.edit();
        e.replace(y, a);
        e.finish().unwrap();
        assert_eq!(shown(&g), ["Relu-14(x) > a"]);
        assert_eq!(&*g.main().output_names[0], "y");
    }

    #[test]
    fn new_nodes_are_checked_inferred_and_sorted_in() {
        let mut g = good(21, graph("x float[2,3]", "a = Relu(x)\nb = Neg(a)\ny = Add(a,b)", "y"));
        let (b, y) = (value_of(&g, "b"), value_of(&g, "y"));
        let last = node_of(&g, "y");
        let mut e = g.edit();
        let abs = NewNode { domain: "", op: "Abs", name: "", inputs: &[Some(b)], attrs: Vec::new() };
        // After the reader of what it will replace: sorting moves it.
        let id = e.insert(At::After(last), abs.clone(), 1).unwrap();
        let made = e.graph().node(id).outputs[0].unwrap();
        assert_eq!(e.graph().value(made).ty, e.graph().value(b).ty);
        e.set_input(last, 1, Some(made));
        e.finish().unwrap();
        assert_eq!(shown(&g), ["Relu-14(x) > a", "Neg-13(a) > b", "Abs-13(b) > ·", "Add-14(a,·) > y"]);
        let mut e = g.edit();
        let bad = NewNode { inputs: &[Some(y), Some(y)], ..abs };
        let err = e.insert(At::End(GraphId::MAIN), bad, 1).unwrap_err();
        assert_eq!(err.code(), Code::NodeInputs);
    }

    #[test]
    fn raised_nodes_can_be_put_back() {
        let mut g = good(21, graph("x float[2]", "s = Sigmoid(x)\ny = Mul(x,s)\nz = Relu(y)", "z"));
        let (x, y) = (value_of(&g, "x"), value_of(&g, "y"));
        let before = shown(&g);
        let nodes = [node_of(&g, "s"), node_of(&g, "y")];
        let mut e = g.edit();
        let swish = NewNode { domain: "", op: "Swish", name: "", inputs: &[Some(x)], attrs: Vec::new() };
        let id = e.raise(swish, &nodes, &[Some(y)]).unwrap();
        e.finish().unwrap();
        assert_eq!(shown(&g), ["Swish-24(x) > y", "Relu-14(y) > z"]);
        assert_eq!(g.node(id).attr("alpha").and_then(AttrValue::as_float), Some(1.0));
        let mut e = g.edit();
        e.lower(id).unwrap();
        e.finish().unwrap();
        assert_eq!(shown(&g), before);
    }

    #[test]
    fn rings_are_refused() {
        let mut g = good(21, graph("x float[2]", "a = Relu(x)\ny = Neg(a)", "y"));
        let (y, first) = (value_of(&g, "y"), node_of(&g, "a"));
        let mut e = g.edit();
        e.set_input(first, 0, Some(y));
        assert_eq!(e.finish().unwrap_err().code(), Code::Edit);
    }

    #[test]
    fn a_branch_can_stand_in_the_place_of_its_if() {
        let branch = |op: &str| AttributeProto {
            r#type: attribute_type::GRAPH,
            g: Some(graph("", &format!("t = {op}(x)\no = Neg(t)"), "o")),
            ..AttributeProto::default()
        };
        let mut top = graph("c bool[]\nx float[2]", "a = Relu(x)", "y");
        let mut fork = node("y = If(c)");
        fork.attribute = vec![
            AttributeProto { name: "then_branch".into(), ..branch("Abs") },
            AttributeProto { name: "else_branch".into(), ..branch("Exp") },
        ];
        top.node.push(fork);
        let mut g = load(&model(21, top)).unwrap();
        assert_eq!(shown(&g).len(), 6 - 1 + 1);
        let id = node_of(&g, "y");
        let Some(AttrValue::Graph(then)) = g.node(id).attr("then_branch").cloned() else { panic!() };
        let mut e = g.edit();
        e.inline(id, then).unwrap();
        e.finish().unwrap();
        assert_eq!(shown(&g), ["Abs-13(x) > t", "Neg-13(t) > o"]);
        assert_eq!(&*g.main().output_names[0], "y");
        crate::verify::verify(&g).unwrap();
    }
}
