//! Graph → text.

mod words;

use std::fmt::Write;

use hashbrown::HashMap;

use crate::ir::{
    Attr, AttrValue, ConstId, ExprId, ExprOp, Graph, GraphId, NodeId, OriginId, SymbolId, SymbolKind, Type, ValueId,
};
use words::{bytes, data, float, op, quoted, word};

/// Constants of more bytes are elided.
pub const SHOWN: usize = 256;

/// Expressions of more operations get a line of their own, which also keeps shared ones from being printed over and over.
const INLINE: u64 = 8;

/// The text form of a graph.
pub fn to_text(graph: &Graph) -> String {
    let mut p = Printer {
        graph,
        values: Numbers::default(),
        graphs: Numbers::default(),
        symbols: Numbers::default(),
        consts: Numbers::default(),
        origins: Numbers::default(),
        exprs: Numbers::default(),
        expr_lines: String::new(),
        sizes: expr_sizes(graph),
    };
    p.number(GraphId::MAIN);
    let mut body = String::new();
    p.body(GraphId::MAIN, 0, &mut body);
    let mut tail = String::new();
    p.tail(&mut tail);
    let mut text = p.head();
    p.consts(&mut text);
    // Symbols are known only now that everything that mentions them is written.
    let symbols = p.symbols();
    format!("{text}{symbols}{}{body}{tail}", p.expr_lines)
}

struct Numbers<T>(HashMap<T, usize>, Vec<T>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Numbers(HashMap::new(), Vec::new())
    }
}

impl<T: Copy + Eq + std::hash::Hash> Numbers<T> {
    fn of(&mut self, id: T) -> usize {
        let next = self.1.len();
        *self.0.entry(id).or_insert_with(|| {
            self.1.push(id);
            next
        })
    }

    fn all(&mut self, ids: impl IntoIterator<Item = T>) {
        for id in ids {
            self.of(id);
        }
    }
}

struct Printer<'g> {
    graph: &'g Graph,
    values: Numbers<ValueId>,
    graphs: Numbers<GraphId>,
    symbols: Numbers<SymbolId>,
    consts: Numbers<ConstId>,
    origins: Numbers<OriginId>,
    exprs: Numbers<ExprId>,
    expr_lines: String,
    sizes: Vec<u64>,
}

impl Printer<'_> {
    /// Numbers graphs and values in the order in which they will be printed.
    fn number(&mut self, id: GraphId) {
        self.graphs.of(id);
        let graph = self.graph;
        let body = graph.body(id);
        self.values.all(body.inputs.iter().copied().chain(self.constants_of(id)));
        for &n in &body.nodes {
            let kept = graph.node(n).stands_for.iter().flat_map(|k| k.iter()).copied();
            for n in std::iter::once(n).chain(kept) {
                self.values.all(graph.node(n).outputs.iter().flatten().copied());
            }
            for body in graph.node(n).bodies() {
                self.number(body);
            }
        }
    }

    /// Constants of a graph that something reads, in the order of reading.
    fn constants_of(&self, id: GraphId) -> Vec<ValueId> {
        let mut found = Numbers::default();
        self.read_constants(id, id, &mut found);
        found.1
    }

    fn read_constants(&self, of: GraphId, inside: GraphId, found: &mut Numbers<ValueId>) {
        let own = |v: &&ValueId| {
            let value = self.graph.value(**v);
            value.graph == of && value.constant.is_some()
        };
        let body = self.graph.body(inside);
        for &n in &body.nodes {
            let node = self.graph.node(n);
            let kept = node.stands_for.iter().flat_map(|k| k.iter()).map(|k| self.graph.node(*k));
            let origin = node.origin.map(|o| self.graph.origin(o));
            let reads = std::iter::once(node).chain(kept).flat_map(|n| n.inputs.iter());
            found.all(reads.chain(origin.iter().flat_map(|o| o.inputs.iter())).flatten().filter(own).copied());
            for inner in node.bodies() {
                self.read_constants(of, inner, found);
            }
        }
        found.all(body.outputs.iter().filter(own).copied());
    }

    fn body(&mut self, id: GraphId, depth: usize, out: &mut String) {
        let graph = self.graph;
        let pad = "  ".repeat(depth);
        let body = graph.body(id);
        line(out, format_args!("{pad}graph g{} {}", self.graphs.of(id), quoted(&body.name)));
        for &v in &body.inputs {
            let mut text = format!("{pad}  in {}", self.definition(v));
            if let Some(c) = graph.value(v).default {
                let _ = write!(text, " default c{}", self.consts.of(c));
            }
            line(out, format_args!("{text}"));
        }
        for v in self.constants_of(id) {
            let Some(c) = graph.value(v).constant else { continue };
            let (at, c) = (self.values.of(v), self.consts.of(c));
            line(out, format_args!("{pad}  const %{at} {} c{c}", quoted(&graph.value(v).name)));
        }
        for &n in &body.nodes {
            self.node(n, depth + 1, out);
        }
        for (&v, name) in body.outputs.iter().zip(&body.output_names) {
            let stated = match graph.stated_outputs.get(out_index(graph, id, name)) {
                Some(Some(ty)) if id == GraphId::MAIN => format!(" stated {}", self.ty(ty)),
                _ => String::new(),
            };
            line(out, format_args!("{pad}  out %{} {}{stated}", self.values.of(v), quoted(name)));
        }
        line(out, format_args!("{pad}end"));
    }

    fn node(&mut self, id: NodeId, depth: usize, out: &mut String) {
        let graph = self.graph;
        let node = graph.node(id);
        let pad = "  ".repeat(depth);
        let outputs: Vec<String> =
            node.outputs.iter().map(|v| v.map_or_else(|| "_".to_owned(), |v| self.definition(v))).collect();
        let mut text = format!("{pad}{} = {}", outputs.join(", "), op(&node.domain, &node.op, node.since));
        self.call(&node.inputs, &node.name, &node.attrs, &mut text);
        if let Some(o) = node.origin.filter(|o| self.is_whole(*o, id)) {
            let _ = write!(text, " from o{}", self.origins.of(o));
        }
        line(out, format_args!("{text}"));
        for body in node.bodies() {
            self.body(body, depth + 1, out);
        }
        if let Some(kept) = &node.stands_for {
            line(out, format_args!("{pad}instead of"));
            kept.iter().for_each(|n| self.node(*n, depth + 1, out));
            line(out, format_args!("{pad}end"));
        }
        for a in graph.assumptions.iter().filter(|a| a.node == id) {
            line(out, format_args!("{pad}assume {} {}", self.expr(a.holds), quoted(&a.what)));
        }
    }

    /// Whether the file's form of a node can still be written: passes may have removed what it reads.
    fn is_whole(&self, o: OriginId, node: NodeId) -> bool {
        let origin = self.graph.origin(o);
        origin.became.contains(&node) && origin.inputs.iter().flatten().all(|v| self.values.0.contains_key(v))
    }

    fn call(&mut self, inputs: &[Option<ValueId>], name: &str, attrs: &[Attr], text: &mut String) {
        let inputs: Vec<String> =
            inputs.iter().map(|v| v.map_or_else(|| "_".to_owned(), |v| format!("%{}", self.values.of(v)))).collect();
        let _ = write!(text, "({}) {}", inputs.join(", "), quoted(name));
        for a in attrs {
            let value = self.attr(&a.value);
            let _ = write!(text, " {}={value}", word(&a.name));
        }
    }

    fn attr(&mut self, value: &AttrValue) -> String {
        let join = |prefix: &str, list: Vec<String>| format!("{prefix}[{}]", list.join(","));
        match value {
            AttrValue::Int(v) => v.to_string(),
            AttrValue::Float(v) => float(*v),
            AttrValue::String(v) => bytes(v),
            AttrValue::Ints(v) => join("ints", v.iter().map(i64::to_string).collect()),
            AttrValue::Floats(v) => join("floats", v.iter().map(|f| float(*f)).collect()),
            AttrValue::Strings(v) => join("strings", v.iter().map(|s| bytes(s)).collect()),
            AttrValue::BigInts(c) => format!("bigints c{}", self.consts.of(*c)),
            AttrValue::BigFloats(c) => format!("bigfloats c{}", self.consts.of(*c)),
            AttrValue::Tensor(c) => format!("c{}", self.consts.of(*c)),
            AttrValue::Tensors(all) => {
                join("tensors", all.iter().map(|c| format!("c{}", self.consts.of(*c))).collect())
            }
            AttrValue::Graph(g) => format!("g{}", self.graphs.of(*g)),
            AttrValue::Graphs(all) => join("graphs", all.iter().map(|g| format!("g{}", self.graphs.of(*g))).collect()),
            AttrValue::Type(t) => format!("type {}", self.ty(t)),
            AttrValue::Types(all) => join("types", all.iter().map(|t| self.ty(t)).collect()),
        }
    }

    /// `%3 "y" float[2] known[1,2]`
    fn definition(&mut self, v: ValueId) -> String {
        let value = self.graph.value(v);
        let mut text = format!("%{} {}", self.values.of(v), quoted(&value.name));
        if let Some(ty) = &value.ty {
            let _ = write!(text, " {}", self.ty(ty));
        }
        if let Some(known) = &value.known {
            let known: Vec<String> = known.iter().map(|e| self.expr(*e)).collect();
            let _ = write!(text, " known[{}]", known.join(","));
        }
        text
    }

    fn ty(&mut self, ty: &Type) -> String {
        match ty {
            Type::Tensor(t) => match &t.dims {
                Some(dims) => {
                    let dims: Vec<String> = dims.iter().map(|d| self.expr(*d)).collect();
                    format!("{}[{}]", t.dtype, dims.join(","))
                }
                None => format!("{}[*]", t.dtype),
            },
            Type::Sequence(t) => format!("seq({})", self.ty(t)),
            Type::Optional(t) => format!("optional({})", self.ty(t)),
            Type::Map(key, t) => format!("map({key},{})", self.ty(t)),
            Type::Unknown => "unknown".to_owned(),
        }
    }

    fn expr(&mut self, id: ExprId) -> String {
        if self.sizes[id.index()] <= INLINE {
            return self.inline(id);
        }
        if !self.exprs.0.contains_key(&id) {
            // Operands first: their lines have to stand above.
            let text = self.inline(id);
            let at = self.exprs.of(id);
            line(&mut self.expr_lines, format_args!("e{at} = {text}"));
        }
        format!("e{}", self.exprs.of(id))
    }

    fn inline(&mut self, id: ExprId) -> String {
        let e = self.graph.exprs.get(id);
        if e.op == ExprOp::Const {
            return e.v.to_string();
        }
        if let Some(s) = self.graph.exprs.as_symbol(id) {
            return format!("s{}", self.symbols.of(s));
        }
        let third =
            Some(e.v).filter(|_| e.op == ExprOp::Select).and_then(|v| ExprId::from_index(u32::try_from(v).ok()?));
        let operands: Vec<String> = [e.a, e.b, third].into_iter().flatten().map(|o| self.expr(o)).collect();
        match (e.op, operands.as_slice()) {
            (ExprOp::Add | ExprOp::Sub | ExprOp::Mul, [a, b]) => format!("({a} {} {b})", e.op.name()),
            (op, operands) => format!("{}({})", op.name(), operands.join(", ")),
        }
    }

    fn head(&self) -> String {
        let mut text = String::from("ortolan graph 1\n");
        let info = &self.graph.info;
        line(
            &mut text,
            format_args!(
                "model ir={} version={} producer={} {} domain={} name={} doc={}",
                info.ir_version,
                info.model_version,
                quoted(&info.producer_name),
                quoted(&info.producer_version),
                quoted(&info.domain),
                quoted(&info.graph_name),
                quoted(&info.doc)
            ),
        );
        for o in &self.graph.opsets {
            line(&mut text, format_args!("opset {} {}", quoted(&o.domain), o.version));
        }
        for (k, v) in &info.metadata {
            line(&mut text, format_args!("meta {} {}", quoted(k), quoted(v)));
        }
        text
    }

    fn symbols(&mut self) -> String {
        let mut text = String::new();
        for (at, s) in self.symbols.1.clone().into_iter().enumerate() {
            let symbol = &self.graph.exprs.symbols()[s.index()];
            let kind = if symbol.kind == SymbolKind::Dim { "dim" } else { "element" };
            let of = self.values.0.get(&symbol.value).map_or_else(|| "_".to_owned(), |v| format!("%{v}"));
            let name = symbol.name.as_ref().map(|n| format!(" {}", quoted(n))).unwrap_or_default();
            line(&mut text, format_args!("s{at} = {kind} {} of {of}{name}", symbol.at));
        }
        text
    }

    fn consts(&self, text: &mut String) {
        for (at, c) in self.consts.1.iter().enumerate() {
            let c = self.graph.constant(*c);
            let dims: Vec<String> = c.dims.iter().map(i64::to_string).collect();
            line(text, format_args!("c{at} = {}[{}] {}", c.dtype, dims.join(","), data(c)));
        }
    }

    /// Forms of the file, whose values are all printed by now.
    fn tail(&mut self, out: &mut String) {
        for (at, o) in self.origins.1.clone().into_iter().enumerate() {
            let origin = self.graph.origin(o);
            // An output that nothing makes any more is one that nothing wants.
            let shown = |v: &ValueId| self.values.0.get(v).map(|at| format!("%{at}"));
            let outputs = origin.outputs.iter().map(|v| v.as_ref().and_then(shown).unwrap_or_else(|| "_".to_owned()));
            let outputs: Vec<String> = outputs.collect();
            let home = self.graphs.of(origin.graph);
            let mut text = format!("o{at} = g{home} {} = ", outputs.join(", "));
            text.push_str(&op(&origin.domain, &origin.op, origin.since));
            self.call(&origin.inputs, &origin.name, &origin.attrs, &mut text);
            line(out, format_args!("{text}"));
        }
    }
}

/// Number of operations of each expression when it is written out in full.
fn expr_sizes(graph: &Graph) -> Vec<u64> {
    let mut sizes: Vec<u64> = Vec::with_capacity(graph.exprs.exprs().len());
    for e in graph.exprs.exprs() {
        let third =
            Some(e.v).filter(|_| e.op == ExprOp::Select).and_then(|v| ExprId::from_index(u32::try_from(v).ok()?));
        let operands = [e.a, e.b, third].into_iter().flatten();
        let sum = operands.map(|o| sizes[o.index()]).fold(0u64, u64::saturating_add);
        sizes.push(if e.a.is_some() { sum.saturating_add(1) } else { 0 });
    }
    sizes
}

fn out_index(graph: &Graph, id: GraphId, name: &str) -> usize {
    graph.body(id).output_names.iter().position(|n| &**n == name).unwrap_or(usize::MAX)
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}
