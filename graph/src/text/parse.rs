//! Text → graph.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use smallvec::SmallVec;

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

    fn constant(&mut self, line: &mut Line<'_>) -> Result<()> {
        let Some(dtype) = DType::from_name(&line.word()?) else { return line.wrong("no such element type") };
        line.expect("[")?;
        let dims: Sizes = line.list(Line::need_int)?.into();
        let mut elements = Some(1u64);
        for d in &dims {
            elements =
                elements.and_then(|e| e.checked_mul(u64::try_from(*d).ok()?)).filter(|e| i64::try_from(*e).is_ok());
        }
        let Some(elements) = elements else { return line.wrong("the dims are negative or too large") };
        let data = self.data(line, dtype, elements)?;
        let Some(id) = ConstId::next(self.graph.constants.len()) else { return line.wrong("too many constants") };
        self.graph.constants.push(Constant { id, dtype, dims, data });
        self.consts.push(id);
        Ok(())
    }

    fn data(&mut self, line: &mut Line<'_>, dtype: DType, elements: u64) -> Result<Data> {
        let bytes = dtype.bytes(elements);
        if line.take_word("elided") {
            let len = bytes.unwrap_or(elements.saturating_mul(24));
            let Some(left) = self.elided_left.checked_sub(len) else {
                return Err(Error::new(
                    Code::Limit,
                    format!("elided constants stand for more than {MAX_ELIDED} bytes"),
                ));
            };
            self.elided_left = left;
            return zeros(dtype, elements, len);
        }
        let mut raw = Vec::new();
        let mut count = elements;
        if line.take_word("strings") {
            let mut all = Vec::new();
            while !line.at_end() {
                all.push(line.text()?);
            }
            if dtype != DType::String || all.len() as u64 != elements {
                return line.wrong(format!("{} strings for {elements} elements of {dtype}", all.len()));
            }
            return Ok(Data::Strings(all.into()));
        } else if line.take("=") {
            count = 0;
            while !line.at_end() {
                number(line, dtype, &mut raw)?;
                count += 1;
            }
        } else if line.take("x") {
            let hex = line.atom();
            let byte = |i: usize| hex.get(i..i + 2).and_then(|h| u8::from_str_radix(h, 16).ok());
            let Some(all) = (0..hex.len()).step_by(2).map(byte).collect() else { return line.wrong("not hex digits") };
            raw = all;
        } else {
            return line.fail("data");
        }
        if bytes != Some(raw.len() as u64) || count != elements {
            return line.wrong(format!("{count} numbers or {} bytes for {elements} elements of {dtype}", raw.len()));
        }
        Ok(Data::copied(&raw))
    }

    fn symbol(&mut self, line: &mut Line<'_>) -> Result<()> {
        let kind = match line.word()?.as_str() {
            "dim" => SymbolKind::Dim,
            "element" => SymbolKind::Element,
            _ => return line.wrong("a symbol is a dim or an element"),
        };
        let Ok(at) = u32::try_from(line.need_int()?) else { return line.wrong("no such axis") };
        line.expect("of")?;
        let of = line.number_after("%")?;
        if of.is_none() {
            line.expect("_")?;
        }
        let name = if line.at_end() { None } else { Some(line.text()?.into()) };
        // Values come later in the text; they are put in at the end.
        let value = placeholder();
        let e = self.graph.exprs.symbol(Symbol { value, at, kind, name });
        self.symbols.push((e, of));
        Ok(())
    }

    fn expr(&mut self, line: &mut Line<'_>) -> Result<ExprId> {
        line.nested(|line| self.expr_here(line))
    }

    fn expr_here(&mut self, line: &mut Line<'_>) -> Result<ExprId> {
        if let Some(v) = line.int() {
            return Ok(self.graph.exprs.constant(v));
        }
        if let Some(at) = line.number_after("s")? {
            return self.symbols.get(at).map_or_else(|| line.wrong(format!("there is no s{at}")), |s| Ok(s.0));
        }
        if let Some(at) = line.number_after("e")? {
            return self.exprs.get(at).map_or_else(|| line.wrong(format!("there is no e{at}")), |e| Ok(*e));
        }
        if line.take("(") {
            let a = self.expr(line)?;
            let op = [ExprOp::Add, ExprOp::Sub, ExprOp::Mul].into_iter().find(|op| line.take(op.name()));
            let Some(op) = op else { return line.fail("+, - or *") };
            let b = self.expr(line)?;
            line.expect(")")?;
            return Ok(self.graph.exprs.binary(op, a, b));
        }
        let name = line.word()?;
        let Some(op) = ExprOp::ALL.iter().copied().find(|op| op.name() == name) else {
            return line.wrong(format!("there is no operation '{name}'"));
        };
        line.expect("(")?;
        let mut operands: SmallVec<[ExprId; 3]> = SmallVec::new();
        loop {
            operands.push(self.expr(line)?);
            if line.take(")") {
                break;
            }
            line.expect(",")?;
        }
        match (op, operands.as_slice()) {
            (ExprOp::Const | ExprOp::Symbol, _) => line.wrong(format!("'{name}' takes no operands")),
            (ExprOp::Not, [a]) => Ok(self.graph.exprs.not(*a)),
            (ExprOp::Select, [c, a, b]) => Ok(self.graph.exprs.select(*c, *a, *b)),
            (ExprOp::Not | ExprOp::Select, _) => line.wrong(format!("'{name}' takes another number of operands")),
            (op, [a, b]) => Ok(self.graph.exprs.binary(op, *a, *b)),
            _ => line.wrong(format!("'{name}' takes two operands")),
        }
    }

    fn ty(&mut self, line: &mut Line<'_>) -> Result<Type> {
        line.nested(|line| {
            let name = line.word()?;
            let item = |p: &mut Self, line: &mut Line<'_>| {
                let item = p.ty(line)?;
                line.expect(")")?;
                Ok(Arc::new(item))
            };
            match name.as_str() {
                "unknown" => return Ok(Type::Unknown),
                "seq" if line.take("(") => return Ok(Type::Sequence(item(self, line)?)),
                "optional" if line.take("(") => return Ok(Type::Optional(item(self, line)?)),
                "map" if line.take("(") => {
                    let Some(key) = DType::from_name(&line.word()?) else { return line.wrong("no such key type") };
                    line.expect(",")?;
                    return Ok(Type::Map(key, item(self, line)?));
                }
                _ => {}
            }
            let Some(dtype) = DType::from_name(&name) else { return line.wrong(format!("'{name}' is no type")) };
            line.expect("[")?;
            if line.take("*") {
                line.expect("]")?;
                return Ok(Type::unranked(dtype));
            }
            let dims: Dims = line.list(|line| self.expr(line))?.into();
            Ok(Type::Tensor(TensorType { dtype, dims: Some(dims) }))
        })
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

    #[allow(clippy::type_complexity, reason = "the three parts of a call, taken apart at once")]
    fn call(&mut self, line: &mut Line<'_>) -> Result<(SmallVec<[Option<ValueId>; 4]>, String, Vec<Attr>)> {
        line.expect("(")?;
        let mut inputs = SmallVec::new();
        while !line.take(")") {
            if !inputs.is_empty() {
                line.expect(",")?;
            }
            inputs.push(self.value(line)?);
        }
        let name = line.text()?;
        let mut attrs: Vec<Attr> = Vec::new();
        while !line.at_end() && !line.peek("from o") {
            let name = line.word()?;
            line.expect("=")?;
            let value = self.attr(line)?;
            attrs.push(Attr { name: name.into(), value });
        }
        Ok((inputs, name, attrs))
    }

    fn attr(&mut self, line: &mut Line<'_>) -> Result<AttrValue> {
        if line.peek("\"") {
            return Ok(AttrValue::String(Bytes::from(line.bytes()?)));
        }
        if line.is_float() {
            return Ok(AttrValue::Float(line.float()?));
        }
        if let Some(v) = line.int() {
            return Ok(AttrValue::Int(v));
        }
        if let Some(at) = line.number_after("g")? {
            return Ok(AttrValue::Graph(self.graph_id(line, at)?));
        }
        if line.peek("c") {
            return Ok(AttrValue::Tensor(self.const_id(line)?));
        }
        let kind = line.word()?;
        match kind.as_str() {
            "bigints" => return Ok(AttrValue::BigInts(self.const_id(line)?)),
            "bigfloats" => return Ok(AttrValue::BigFloats(self.const_id(line)?)),
            "type" => return Ok(AttrValue::Type(self.ty(line)?)),
            _ => line.expect("[")?,
        }
        Ok(match kind.as_str() {
            "ints" => AttrValue::Ints(line.list(Line::need_int)?.into()),
            "floats" => AttrValue::Floats(line.list(Line::float)?.into()),
            "strings" => AttrValue::Strings(line.list(|line| Ok(Bytes::from(line.bytes()?)))?.into()),
            "tensors" => AttrValue::Tensors(line.list(|line| self.const_id(line))?.into()),
            "types" => AttrValue::Types(line.list(|line| self.ty(line))?.into()),
            "graphs" => AttrValue::Graphs(
                line.list(|line| match line.number_after("g")? {
                    Some(at) => self.graph_id(line, at),
                    None => line.fail("a graph"),
                })?
                .into(),
            ),
            _ => return line.wrong(format!("'{kind}' is no kind of attribute")),
        })
    }

    fn origin(&mut self, line: &mut Line<'_>, at: usize) -> Result<()> {
        let Some(home) = line.number_after("g")?.and_then(|g| self.graphs.get(&g).copied()) else {
            return line.fail("a graph");
        };
        let mut outputs = SmallVec::new();
        while !line.take("=") {
            if !outputs.is_empty() {
                line.expect(",")?;
            }
            outputs.push(self.value(line)?);
        }
        let (domain, op, since) = operator(line)?;
        let (inputs, name, attrs) = self.call(line)?;
        let became = self.became.remove(&at).unwrap_or_default();
        let Some(id) = OriginId::next(self.graph.origins.len()) else { return line.wrong("too many origins") };
        for n in &became {
            self.graph.nodes[n.index()].origin = Some(id);
        }
        self.origins += 1;
        self.graph.origins.push(Origin {
            op: op.into(),
            domain: domain.into(),
            name: name.into(),
            since,
            holds: Holds::ALWAYS,
            graph: home,
            inputs,
            outputs,
            attrs,
            became,
        });
        Ok(())
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

/// `domain::Op-13`
fn operator(line: &mut Line<'_>) -> Result<(String, String, u32)> {
    let mut domain = String::new();
    let mut op = line.word()?;
    if line.take("::") {
        domain = op;
        op = line.word()?;
    }
    line.expect("-")?;
    match line.int().and_then(|v| u32::try_from(v).ok()) {
        Some(since) => Ok((domain, op, since)),
        None => line.fail("a version"),
    }
}

/// One element of a constant, in its own width.
fn number(line: &mut Line<'_>, dtype: DType, raw: &mut Vec<u8>) -> Result<()> {
    let atom = line.atom();
    let width = dtype.bits() as usize / 8;
    let bytes = match dtype {
        DType::F32 => atom.parse::<f32>().ok().map(|v| v.to_le_bytes().to_vec()),
        DType::F64 => atom.parse::<f64>().ok().map(|v| v.to_le_bytes().to_vec()),
        _ if dtype.is_int() && width > 0 => atom.parse::<i64>().ok().map(|v| v.to_le_bytes()[..width].to_vec()),
        _ => None,
    };
    match bytes {
        Some(bytes) => {
            raw.extend(bytes);
            Ok(())
        }
        None => line.wrong(format!("'{atom}' is no {dtype}")),
    }
}

fn zeros(dtype: DType, elements: u64, len: u64) -> Result<Data> {
    if dtype == DType::String {
        let count = usize::try_from(elements).unwrap_or(usize::MAX);
        if elements > 1 << 20 {
            return Err(Error::new(Code::Limit, format!("{elements} elided strings are more than can be made up")));
        }
        return Ok(Data::Strings(vec![String::new(); count].into()));
    }
    if len <= crate::ir::SMALL {
        return Ok(Data::copied(&vec![0; usize::try_from(len).unwrap_or(usize::MAX)]));
    }
    let map = Map::zeros(len).map_err(|e| Error::new(Code::Limit, format!("no room for {len} elided bytes: {e}")))?;
    Ok(Data::Mapped { map: Arc::new(map), at: 0, len })
}
