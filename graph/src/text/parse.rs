//! Text → graph.

mod call;
mod tables;

use bytes::Bytes;
use hashbrown::HashMap;
use smallvec::SmallVec;

use call::operator;

use super::token::Line;
use crate::error::{Code, Error, Result};
use crate::ir::{
    Assumption, Attr, AttrValue, Body, ConstId, Constant, DType, Data, Dims, ExprId, ExprOp, Graph, GraphId, Holds,
    Map, ModelInfo, Node, NodeId, Opset, Origin, OriginId, Sizes, Symbol, SymbolKind, TensorType, Type, Value, ValueId,
};
use crate::schema::View;
use crate::{ops, verify, versions};

/// Elided constants may stand for this much address space in all; it is never touched.
const MAX_ELIDED: u64 = 16 << 30;

/// Graphs inside graphs, as deep as files may have them.
const MAX_GRAPHS: usize = 32;

/// Reads what [`to_text`](super::to_text) wrote. Elided constants are zeros.
///
/// The error (code `text`) names the line. The graph is verified; types are taken as they are written.
pub fn from_text(text: &str) -> Result<Graph> {
    let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()).map(|(i, l)| (i + 1, l));
    match lines.next() {
        Some((_, "ortolan graph 1")) => {}
        _ => return Err(Error::new(Code::Text, "the first line is not 'ortolan graph 1'")),
    }
    let mut p = Parser { elided_left: MAX_ELIDED, ..Parser::default() };
    let mut open = Vec::new();
    for (number, text) in lines {
        let mut line = Line::new(text, number);
        if open.is_empty() && p.header(&mut line)? {
            continue;
        }
        p.statement(&mut line, &mut open)?;
    }
    if !open.is_empty() {
        return Err(Error::new(Code::Text, "the text ends inside a graph"));
    }
    p.finish()
}

/// A block that is not closed yet.
enum Open {
    Graph(GraphId),
    /// Nodes that the node stands for.
    Instead(NodeId, Vec<NodeId>),
}

#[derive(Default)]
struct Parser {
    graph: Graph,
    values: HashMap<usize, ValueId>,
    graphs: HashMap<usize, GraphId>,
    consts: Vec<ConstId>,
    symbols: Vec<(ExprId, Option<usize>)>,
    exprs: Vec<ExprId>,
    /// Nodes of each origin.
    became: HashMap<usize, SmallVec<[NodeId; 2]>>,
    origins: usize,
    /// Graph-valued attributes that were read before their graphs.
    last_node: Option<NodeId>,
    elided_left: u64,
}

impl Parser {
    fn header(&mut self, line: &mut Line<'_>) -> Result<bool> {
        if line.take_word("model") {
            self.graph.info = info(line, std::mem::take(&mut self.graph.info.metadata))?;
        } else if line.take_word("opset") {
            let domain = line.text()?.into();
            let version = line.need_int()?;
            let Ok(version) = u32::try_from(version) else { return line.wrong("no such version") };
            self.graph.opsets.push(Opset { domain, version });
        } else if line.take_word("meta") {
            let entry = (line.text()?, line.text()?);
            self.graph.info.metadata.push(entry);
        } else if let Some(at) = line.number_after("c")? {
            self.in_turn(line, "c", at, self.consts.len())?;
            self.constant(line)?;
        } else if let Some(at) = line.number_after("s")? {
            self.in_turn(line, "s", at, self.symbols.len())?;
            self.symbol(line)?;
        } else if let Some(at) = line.number_after("e")? {
            self.in_turn(line, "e", at, self.exprs.len())?;
            let e = self.expr(line)?;
            self.exprs.push(e);
        } else if let Some(at) = line.number_after("o")? {
            self.in_turn(line, "o", at, self.origins)?;
            self.origin(line, at)?;
        } else {
            return Ok(false);
        }
        line.end()?;
        Ok(true)
    }

    fn in_turn(&self, line: &mut Line<'_>, what: &str, at: usize, next: usize) -> Result<()> {
        if at != next {
            return line.wrong(format!("{what}{at} stands where {what}{next} has to"));
        }
        line.expect("=")
    }

    fn statement(&mut self, line: &mut Line<'_>, open: &mut Vec<Open>) -> Result<()> {
        if line.take_word("graph") {
            self.open_graph(line, open)?;
        } else if line.take_word("end") {
            match open.pop() {
                Some(Open::Instead(id, nodes)) => self.graph.nodes[id.index()].stands_for = Some(nodes.into()),
                Some(Open::Graph(id)) => self.last_node = self.graph.body(id).parent,
                None => return line.wrong("nothing is open here"),
            }
        } else if line.take("instead of") {
            match self.last_node {
                Some(id) => open.push(Open::Instead(id, Vec::new())),
                None => return line.wrong("there is no node before"),
            }
        } else if line.take_word("assume") {
            let holds = self.expr(line)?;
            let what = line.text()?;
            let Some(node) = self.last_node else { return line.wrong("there is no node before") };
            self.graph.assumptions.push(Assumption { holds, node, what });
        } else {
            let home = match open.last() {
                Some(Open::Graph(id)) => *id,
                Some(Open::Instead(id, _)) => self.graph.node(*id).graph,
                None => return line.fail("a line of the head, or 'graph'"),
            };
            self.inside(line, home, open)?;
        }
        line.end()
    }

    fn open_graph(&mut self, line: &mut Line<'_>, open: &mut Vec<Open>) -> Result<()> {
        let Some(at) = line.number_after("g")? else { return line.fail("the graph's number") };
        let name = line.text()?.into();
        let parent = self.last_node.filter(|_| !open.is_empty());
        let id = self.graph_id(line, at)?;
        let known = &mut self.graph.bodies[id.index()];
        if id == GraphId::MAIN && !open.is_empty() || id != GraphId::MAIN && parent.is_none() || !known.name.is_empty()
        {
            return line.wrong(format!("g{at} can't stand here"));
        }
        (known.name, known.parent) = (name, parent);
        if open.len() >= MAX_GRAPHS {
            return line.wrong(format!("graphs are nested more than {MAX_GRAPHS} deep"));
        }
        self.last_node = None;
        open.push(Open::Graph(id));
        Ok(())
    }

    /// The id of a graph by its number; bodies are named by attributes before they come.
    fn graph_id(&mut self, line: &Line<'_>, at: usize) -> Result<GraphId> {
        if let Some(&id) = self.graphs.get(&at) {
            return Ok(id);
        }
        let Some(id) = GraphId::next(self.graph.bodies.len()) else { return line.wrong("too many graphs") };
        self.graph.bodies.push(Body { name: "".into(), ..Body::default() });
        self.graphs.insert(at, id);
        Ok(id)
    }

    fn inside(&mut self, line: &mut Line<'_>, home: GraphId, open: &mut [Open]) -> Result<()> {
        if line.take_word("in") {
            let v = self.definition(line, home)?;
            if line.take_word("default") {
                let c = self.const_id(line)?;
                self.graph.values[v.index()].default = Some(c);
            }
            self.graph.bodies[home.index()].inputs.push(v);
        } else if line.take_word("const") {
            let Some(at) = line.number_after("%")? else { return line.fail("a value") };
            let name = line.text()?;
            let c = self.const_id(line)?;
            let v = self.define(line, at, home, &name)?;
            let constant = self.graph.constant(c).clone();
            self.graph.set_constant(v, &constant);
        } else if line.take_word("out") {
            let Some(v) = self.value(line)? else { return line.fail("a value") };
            let name = line.text()?.into();
            if home == GraphId::MAIN {
                let stated = if line.take_word("stated") { Some(self.ty(line)?) } else { None };
                self.graph.stated_outputs.push(stated);
            }
            let body = &mut self.graph.bodies[home.index()];
            body.outputs.push(v);
            body.output_names.push(name);
        } else {
            self.node(line, home, open)?;
        }
        Ok(())
    }

    fn node(&mut self, line: &mut Line<'_>, home: GraphId, open: &mut [Open]) -> Result<()> {
        let Some(id) = NodeId::next(self.graph.nodes.len()) else { return line.wrong("too many nodes") };
        let mut outputs: SmallVec<[Option<ValueId>; 2]> = SmallVec::new();
        let instead = matches!(open.last(), Some(Open::Instead(..)));
        while !line.take("=") {
            if !outputs.is_empty() {
                line.expect(",")?;
            }
            if line.take("_") {
                outputs.push(None);
                continue;
            }
            let v = self.definition_or_use(line, home, instead)?;
            if !instead || self.graph.value(v).producer.is_none() {
                self.graph.values[v.index()].producer = Some((id, u32::try_from(outputs.len()).unwrap_or(u32::MAX)));
            }
            outputs.push(Some(v));
        }
        let (domain, op, since) = operator(line)?;
        let def = ops::find(&domain, &op);
        let (inputs, name, attrs) = self.call(line)?;
        let node = Node {
            op: op.into(),
            domain: domain.into(),
            name: name.into(),
            since,
            holds: Holds::ALWAYS,
            def,
            graph: home,
            inputs,
            outputs,
            attrs,
            origin: None,
            stands_for: None,
        };
        self.graph.nodes.push(node);
        if line.take_word("from") {
            let Some(at) = line.number_after("o")? else { return line.fail("the form of the file") };
            self.became.entry(at).or_default().push(id);
        }
        match open.last_mut() {
            Some(Open::Instead(_, nodes)) => nodes.push(id),
            _ => self.graph.bodies[home.index()].nodes.push(id),
        }
        self.last_node = Some(id);
        Ok(())
    }

    /// What a node stands for may make values that the node makes itself.
    fn definition_or_use(&mut self, line: &mut Line<'_>, home: GraphId, instead: bool) -> Result<ValueId> {
        let Some(at) = line.number_after("%")? else { return line.fail("a value") };
        match self.values.get(&at).copied().filter(|_| instead) {
            Some(v) => {
                self.described(line)?;
                Ok(v)
            }
            None => self.define_described(line, at, home),
        }
    }

    fn definition(&mut self, line: &mut Line<'_>, home: GraphId) -> Result<ValueId> {
        let Some(at) = line.number_after("%")? else { return line.fail("a value") };
        self.define_described(line, at, home)
    }

    fn define_described(&mut self, line: &mut Line<'_>, at: usize, home: GraphId) -> Result<ValueId> {
        let (name, ty, known) = self.described(line)?;
        let v = self.define(line, at, home, &name)?;
        let value = &mut self.graph.values[v.index()];
        (value.ty, value.known) = (ty, known);
        Ok(v)
    }

    fn described(&mut self, line: &mut Line<'_>) -> Result<(String, Option<Type>, crate::ir::Known)> {
        let name = line.text()?;
        let mut ty = None;
        let mut known = None;
        if !line.at_end() && !["=", ",", "default", "known["].iter().any(|t| line.peek(t)) {
            ty = Some(self.ty(line)?);
        }
        if line.take("known[") {
            known = Some(line.list(|line| self.expr(line))?.into());
        }
        Ok((name, ty, known))
    }

    fn define(&mut self, line: &Line<'_>, at: usize, home: GraphId, name: &str) -> Result<ValueId> {
        let id = self.graph.add_value(Value { name: name.into(), ..Value::new(home) })?;
        match self.values.insert(at, id) {
            Some(_) => line.wrong(format!("%{at} is made twice")),
            None => Ok(id),
        }
    }

    /// `%3`, or `None` for `_`.
    fn value(&mut self, line: &mut Line<'_>) -> Result<Option<ValueId>> {
        if line.take("_") {
            return Ok(None);
        }
        match line.number_after("%")? {
            Some(at) => match self.values.get(&at) {
                Some(&v) => Ok(Some(v)),
                None => line.wrong(format!("%{at} is not made before")),
            },
            None => line.fail("a value"),
        }
    }

    fn const_id(&mut self, line: &mut Line<'_>) -> Result<ConstId> {
        match line.number_after("c")?.map(|at| self.consts.get(at).copied()) {
            Some(Some(c)) => Ok(c),
            _ => line.fail("a constant"),
        }
    }

    fn finish(mut self) -> Result<Graph> {
        if let Some(at) = self.became.keys().next() {
            return Err(Error::new(Code::Text, format!("there is no o{at}")));
        }
        for (e, of) in &self.symbols {
            let value = match of {
                Some(at) => match self.values.get(at) {
                    Some(v) => *v,
                    None => return Err(Error::new(Code::Text, format!("a symbol is of %{at}, which does not exist"))),
                },
                None => self.graph.add_value(Value::new(GraphId::MAIN))?,
            };
            self.graph.exprs.set_owner(*e, value);
        }
        verify::verify(&self.graph).map_err(|e| Error::new(Code::Text, e.to_string()))?;
        for id in self.graph.live_nodes() {
            let kept = self.graph.node(id).stands_for.clone();
            kept.iter().flat_map(|k| k.iter()).for_each(|n| self.graph.conclude(*n));
            self.graph.conclude(id);
        }
        for at in 0..self.graph.origins.len() {
            let o = &self.graph.origins[at];
            let holds = versions::holds(View::of_origin(&self.graph, o), &o.domain, &o.op, o.since);
            self.graph.origins[at].holds = holds;
        }
        Ok(self.graph)
    }
}

fn placeholder() -> ValueId {
    ValueId::from_index(0).expect("0 is an index")
}

fn info(line: &mut Line<'_>, metadata: Vec<(String, String)>) -> Result<ModelInfo> {
    line.expect("ir=")?;
    let ir_version = line.need_int()?;
    line.expect("version=")?;
    let model_version = line.need_int()?;
    line.expect("producer=")?;
    let (producer_name, producer_version) = (line.text()?, line.text()?);
    line.expect("domain=")?;
    let domain = line.text()?;
    line.expect("name=")?;
    let graph_name = line.text()?;
    line.expect("doc=")?;
    let doc = line.text()?;
    Ok(ModelInfo { ir_version, producer_name, producer_version, domain, model_version, doc, graph_name, metadata })
}
