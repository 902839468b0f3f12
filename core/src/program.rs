//! The flat view of a graph in the dialect of one EP, as it crosses the ABI.
//!
//! Value, constant and symbol numbers are the graph's own in every dialect, and so are the numbers of nodes that stand as
//! they did. Nodes that the dialect writes otherwise have new numbers, and a [`Unit`] tells what they stand for.
//! Nothing here knows what an EP does with a program.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ortolan_ep_abi::raw::{self, NONE, Span, Str};
use ortolan_graph::Graph;
use ortolan_graph::ir::{
    Attr, AttrValue, ConstId, Constant, DType, ExprId, ExprOp, GraphId, NodeId, Opset, SymbolKind, Type, Value, ValueId,
};
use ortolan_graph::project::project;

use crate::error::Result;
use crate::same;

/// How a graph's node is written in a dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Under its own number.
    Same,
    /// As a part of the unit with this number.
    Unit(usize),
    /// In no form that this opset has.
    Missing(String),
    /// It does not run.
    Dead,
}

/// Nodes of a dialect that stand together for nodes of the graph.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// The dialect's nodes, in topological order.
    pub nodes: Vec<NodeId>,
    /// The graph's nodes.
    pub sources: Vec<NodeId>,
}

/// A program with everything that it points to.
pub(crate) struct Program {
    raw: raw::Program,
    forms: Vec<Form>,
    units: Vec<Unit>,
    /// The unit of each node of the dialect that has a new number.
    unit_of: HashMap<NodeId, usize>,
    ranks: Vec<usize>,
    tables: Tables,
    graph: Arc<Graph>,
}

/// The arrays. Boxed, so that they stay where they are.
#[derive(Default)]
struct Tables {
    nodes: Box<[raw::Node]>,
    values: Box<[raw::ValueInfo]>,
    graphs: Box<[raw::Graph]>,
    constants: Box<[raw::Constant]>,
    exprs: Box<[raw::Expr]>,
    symbols: Box<[raw::Symbol]>,
    types: Box<[raw::Type]>,
    attrs: Box<[raw::Attr]>,
    ids: Box<[u32]>,
    opsets: Box<[raw::Opset]>,
    domains: Box<[Box<str>]>,
    texts: Vec<Box<[Str]>>,
    tensors: Vec<Box<[raw::Value]>>,
    lists: Vec<Box<[u32]>>,
}

// SAFETY: read-only after it was built; all pointers lead into `tables` and `graph`, which it owns.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

/// Of programs and of loaded models: ids of constants begin with one or the other, so none is used twice in a process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The constants of a loaded model: the first so many of each graph made of it, under ids that begin with `base`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    count: usize,
    base: u64,
}

impl Shared {
    /// Those of a graph that was just loaded. `compare`: models that have the same constants have the same ids, which
    /// takes reading small ones.
    pub fn of(graph: &Graph, compare: bool) -> Shared {
        let fresh = NEXT_ID.fetch_add(1, Relaxed);
        let base = if compare { same::number(graph, fresh) } else { fresh };
        Shared { count: graph.constants().len(), base }
    }
}

impl Program {
    /// The graph in the dialect of an EP with these opsets. `shared` constants are those of the loaded model, which have the
    /// same ids in every program made of it; others have ids of their own in each.
    pub fn new(source: &Graph, opset: &BTreeMap<String, u32>, shared: Shared) -> Result<Arc<Program>> {
        let opsets: Vec<Opset> =
            opset.iter().map(|(domain, &version)| Opset { domain: domain.as_str().into(), version }).collect();
        let dialect = project(source, &opsets, &Default::default())?;
        let graph = Arc::new(dialect.graph);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let mut b = Builder { graph: &graph, tables: Tables::default(), ids: Vec::new(), types: Types::default() };
        let whose = |c: ConstId| if c.index() < shared.count { shared.base } else { id };
        b.build(opset, |c| whose(c) << 32 | u64::from(c.raw()));
        let Builder { mut tables, ids, types, .. } = b;
        tables.ids = ids.into();
        tables.types = types.all.into();
        let mut ranks = vec![usize::MAX; graph.node_count()];
        let live = graph.live_nodes();
        live.iter().enumerate().for_each(|(at, n)| ranks[n.index()] = at);
        let mut forms = vec![Form::Dead; source.node_count()];
        for node in live.iter().filter(|n| n.index() < source.node_count()) {
            forms[node.index()] = Form::Same;
        }
        let (units, unit_of) = units(&live, |n| dialect.sources.get(&n).cloned());
        for (at, unit) in units.iter().enumerate() {
            unit.sources.iter().for_each(|s| forms[s.index()] = Form::Unit(at));
        }
        for (node, why) in dialect.refused {
            let sources = unit_of.get(&node).map_or(vec![node], |&u| units[u].sources.clone());
            sources.iter().for_each(|s| forms[s.index()] = Form::Missing(why.clone()));
        }
        let raw = table(id, &tables);
        Ok(Arc::new(Program { raw, forms, units, unit_of, ranks, tables, graph }))
    }

    /// What crosses.
    pub fn raw(&self) -> &raw::Program {
        &self.raw
    }

    /// The graph in this dialect.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How a node of the source graph is written.
    pub fn form(&self, source: NodeId) -> &Form {
        self.forms.get(source.index()).unwrap_or(&Form::Dead)
    }

    /// Nodes of the dialect that stand for a node of the source graph and what is written with it.
    pub fn written(&self, source: NodeId) -> Vec<NodeId> {
        match self.form(source) {
            Form::Same => vec![source],
            Form::Unit(u) => self.units[*u].nodes.clone(),
            Form::Missing(_) | Form::Dead => Vec::new(),
        }
    }

    /// Nodes of the source graph that a node of the dialect stands for.
    pub fn sources(&self, node: NodeId) -> Vec<NodeId> {
        self.unit_of.get(&node).map_or_else(|| vec![node], |&u| self.units[u].sources.clone())
    }

    /// Units, for those who need all.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Position in a topological order of the dialect.
    pub fn rank(&self, node: NodeId) -> usize {
        self.ranks[node.index()]
    }

    /// Everything that a node of the dialect and its bodies read from around it.
    pub fn reads(&self, node: NodeId) -> Vec<ValueId> {
        reads(&self.graph, node)
    }

    /// Outputs of a node of the dialect.
    pub fn outputs(&self, node: NodeId) -> impl Iterator<Item = ValueId> + '_ {
        self.graph.node(node).outputs.iter().flatten().copied()
    }

    /// Number of constants, those of the dialect's own nodes among them.
    pub fn constants(&self) -> usize {
        self.tables.constants.len()
    }
}

fn units(live: &[NodeId], sources: impl Fn(NodeId) -> Option<Vec<NodeId>>) -> (Vec<Unit>, HashMap<NodeId, usize>) {
    let mut units: Vec<Unit> = Vec::new();
    let (mut at, mut of) = (HashMap::new(), HashMap::new());
    for &node in live {
        let Some(sources) = sources(node) else { continue };
        let unit = *at.entry(sources.clone()).or_insert(units.len());
        if unit == units.len() {
            units.push(Unit { nodes: Vec::new(), sources });
        }
        units[unit].nodes.push(node);
        of.insert(node, unit);
    }
    (units, of)
}

/// Everything that a node and its bodies read from around it; constants too.
pub(crate) fn reads(graph: &Graph, node: NodeId) -> Vec<ValueId> {
    let n = graph.node(node);
    let mut all: Vec<ValueId> = n.inputs.iter().flatten().copied().collect();
    n.bodies().for_each(|b| all.extend(captures(graph, b)));
    all
}

/// Values of outer graphs that a body and its bodies read.
pub(crate) fn captures(graph: &Graph, body: GraphId) -> Vec<ValueId> {
    let (mut read, mut within) = (Vec::new(), HashSet::new());
    collect(graph, body, &mut read, &mut within);
    let mut seen = HashSet::new();
    read.retain(|v| !within.contains(&graph.value(*v).graph) && seen.insert(*v));
    read
}

fn collect(graph: &Graph, body: GraphId, read: &mut Vec<ValueId>, within: &mut HashSet<GraphId>) {
    within.insert(body);
    for &node in &graph.body(body).nodes {
        read.extend(graph.node(node).inputs.iter().flatten());
        graph.node(node).bodies().for_each(|b| collect(graph, b, read, within));
    }
    read.extend(&graph.body(body).outputs);
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn table(id: u64, t: &Tables) -> raw::Program {
    raw::Program {
        struct_size: size_of::<raw::Program>() as u32,
        version: 1,
        id,
        nodes: t.nodes.as_ptr(),
        values: t.values.as_ptr(),
        graphs: t.graphs.as_ptr(),
        constants: t.constants.as_ptr(),
        exprs: t.exprs.as_ptr(),
        symbols: t.symbols.as_ptr(),
        types: t.types.as_ptr(),
        attrs: t.attrs.as_ptr(),
        ids: t.ids.as_ptr(),
        opsets: t.opsets.as_ptr(),
        node_count: count(t.nodes.len()),
        value_count: count(t.values.len()),
        graph_count: count(t.graphs.len()),
        constant_count: count(t.constants.len()),
        expr_count: count(t.exprs.len()),
        symbol_count: count(t.symbols.len()),
        type_count: count(t.types.len()),
        attr_count: count(t.attrs.len()),
        id_count: count(t.ids.len()),
        opset_count: count(t.opsets.len()),
    }
}

struct Builder<'a> {
    graph: &'a Graph,
    tables: Tables,
    ids: Vec<u32>,
    types: Types,
}

/// Types, each once.
#[derive(Default)]
struct Types {
    all: Vec<raw::Type>,
    seen: HashMap<Type, u32>,
}

impl Builder<'_> {
    fn build(&mut self, opset: &BTreeMap<String, u32>, id: impl Fn(ConstId) -> u64) {
        self.constants(id);
        self.exprs();
        self.values();
        self.nodes();
        self.graphs();
        self.tables.domains = opset.keys().map(|k| k.as_str().into()).collect();
        let versions = self.tables.domains.iter().zip(opset.values());
        self.tables.opsets =
            versions.map(|(d, &v)| raw::Opset { domain: Str::new(d), version: u64::from(v) }).collect();
    }

    fn push_ids(&mut self, ids: impl IntoIterator<Item = u32>) -> Span {
        let at = self.ids.len();
        self.ids.extend(ids);
        Span { at: count(at), len: count(self.ids.len() - at) }
    }

    fn constants(&mut self, id: impl Fn(ConstId) -> u64) {
        let graph = self.graph;
        let all = graph.constants().iter().map(|c| raw::Constant { value: self.constant(c), id: id(c.id) });
        self.tables.constants = all.collect();
    }

    fn constant(&mut self, c: &Constant) -> raw::Value {
        let (data, bytes) = match &c.data {
            ortolan_graph::ir::Data::Strings(texts) => {
                let table: Box<[Str]> = texts.iter().map(|t| Str::new(t)).collect();
                let found = (table.as_ptr().cast_mut().cast::<u8>(), size_of_val(&table[..]));
                self.tables.texts.push(table);
                found
            }
            data => (data.bytes().as_ptr().cast_mut(), data.bytes().len()),
        };
        raw::Value {
            kind: raw::VALUE_TENSOR,
            dtype: number(c.dtype),
            rank: count(c.dims.len()),
            flags: raw::VALUE_CONST,
            shape: c.dims.as_ptr(),
            data,
            bytes: bytes as u64,
            space: 0,
            item_count: 0,
            items: std::ptr::null(),
            buffer: std::ptr::null_mut(),
        }
    }

    fn exprs(&mut self) {
        let table = self.graph.exprs();
        self.tables.exprs = table.exprs().iter().map(expr).collect();
        let symbol = |s: &ortolan_graph::ir::Symbol| raw::Symbol {
            value: s.value.raw(),
            at: s.at,
            kind: match s.kind {
                SymbolKind::Dim => raw::SYMBOL_DIM,
                SymbolKind::Element => raw::SYMBOL_ELEMENT,
            },
        };
        self.tables.symbols = table.symbols().iter().map(symbol).collect();
    }

    fn values(&mut self) {
        let (graph, uses) = (self.graph, self.graph.uses());
        let all = (0..graph.value_count()).filter_map(|i| ValueId::from_index(count(i)));
        self.tables.values = all.map(|id| self.value(graph.value(id), uses.of(id).len())).collect();
    }

    fn value(&mut self, v: &Value, uses: usize) -> raw::ValueInfo {
        let known = match &v.known {
            Some(known) => self.push_ids(known.iter().map(|e| e.raw())),
            None => Span { at: 0, len: 0 },
        };
        raw::ValueInfo {
            name: Str::new(&v.name),
            ty: v.ty.as_ref().map_or(NONE, |t| self.ty(t)),
            graph: v.graph.raw(),
            producer: v.producer.map_or(NONE, |(node, _)| node.raw()),
            constant: v.constant.map_or(NONE, |c| c.raw()),
            known,
            flags: if v.const_expr { raw::INFO_CONST_EXPR } else { 0 },
            uses: count(uses),
        }
    }

    /// Index of a type; NONE for one that is not known down to ranks.
    fn ty(&mut self, ty: &Type) -> u32 {
        if let Some(&at) = self.types.seen.get(ty) {
            return at;
        }
        let mut new = raw::Type { kind: 0, dtype: 0, rank: 0, dims: 0, elem: NONE };
        match ty {
            Type::Tensor(t) => {
                let Some(dims) = &t.dims else { return NONE };
                let span = self.push_ids(dims.iter().map(|d: &ExprId| d.raw()));
                (new.kind, new.dtype, new.rank, new.dims) = (raw::VALUE_TENSOR, number(t.dtype), span.len, span.at);
            }
            Type::Sequence(e) => (new.kind, new.elem) = (raw::VALUE_SEQUENCE, self.ty(e)),
            Type::Optional(e) => (new.kind, new.elem) = (raw::VALUE_OPTIONAL, self.ty(e)),
            Type::Map(key, e) => (new.kind, new.dtype, new.elem) = (raw::VALUE_MAP, number(*key), self.ty(e)),
            Type::Unknown => return NONE,
        }
        let at = count(self.types.all.len());
        self.types.all.push(new);
        self.types.seen.insert(ty.clone(), at);
        at
    }

    fn nodes(&mut self) {
        let graph = self.graph;
        let mut attrs = Vec::new();
        let ids = (0..graph.node_count()).filter_map(|i| NodeId::from_index(count(i)));
        let nodes: Vec<raw::Node> = ids.map(|id| self.node(id, &mut attrs)).collect();
        self.tables.nodes = nodes.into();
        self.tables.attrs = attrs.into();
    }

    fn node(&mut self, id: NodeId, attrs: &mut Vec<raw::Attr>) -> raw::Node {
        let node = self.graph.node(id);
        let at = attrs.len();
        for attr in &node.attrs {
            let made = self.attr(attr);
            attrs.push(made);
        }
        let raw_id = |v: &Option<ValueId>| v.map_or(NONE, ValueId::raw);
        raw::Node {
            op: Str::new(&node.op),
            domain: Str::new(&node.domain),
            name: Str::new(&node.name),
            version: node.since,
            graph: node.graph.raw(),
            inputs: self.push_ids(node.inputs.iter().map(raw_id)),
            outputs: self.push_ids(node.outputs.iter().map(raw_id)),
            attrs: Span { at: count(at), len: count(attrs.len() - at) },
        }
    }

    fn attr(&mut self, attr: &Attr) -> raw::Attr {
        let (mut constant, mut kept) = (NONE, None);
        let (kind, len, data) = match &attr.value {
            AttrValue::Float(v) => (1, 1, std::ptr::from_ref(v).cast()),
            AttrValue::Int(v) => (2, 1, std::ptr::from_ref(v).cast()),
            AttrValue::String(v) => self.texts(3, std::iter::once(&v[..])),
            AttrValue::Tensor(c) => {
                constant = c.raw();
                self.tensors(4, &[*c])
            }
            AttrValue::Graph(g) => self.list(5, std::slice::from_ref(g)),
            AttrValue::Floats(v) => (6, v.len(), v.as_ptr().cast()),
            AttrValue::Ints(v) => (7, v.len(), v.as_ptr().cast()),
            AttrValue::Strings(v) => self.texts(8, v.iter().map(|b| &b[..])),
            AttrValue::Tensors(c) => self.tensors(9, c),
            AttrValue::Graphs(g) => self.list(10, g),
            AttrValue::BigFloats(c) | AttrValue::BigInts(c) => {
                constant = c.raw();
                kept = Some(self.graph.constant(*c).elements());
                let kind = if matches!(attr.value, AttrValue::BigFloats(_)) { 6 } else { 7 };
                (kind, 0, std::ptr::null())
            }
            AttrValue::Type(t) => {
                let id = self.ty(t);
                self.numbers(13, [id].into())
            }
            AttrValue::Types(t) => {
                let ids = t.iter().map(|t| self.ty(t)).collect();
                self.numbers(14, ids)
            }
        };
        raw::Attr { name: Str::new(&attr.name), kind, constant, len: kept.unwrap_or(len as u64), data }
    }

    fn texts<'t>(&mut self, kind: u32, texts: impl Iterator<Item = &'t [u8]>) -> (u32, usize, *const std::ffi::c_void) {
        let table: Box<[Str]> = texts.map(|t| Str { ptr: t.as_ptr(), len: t.len() }).collect();
        let found = (kind, table.len(), table.as_ptr().cast());
        self.tables.texts.push(table);
        found
    }

    fn tensors(&mut self, kind: u32, constants: &[ConstId]) -> (u32, usize, *const std::ffi::c_void) {
        let values: Box<[raw::Value]> = constants.iter().map(|c| self.tables.constants[c.index()].value).collect();
        let found = (kind, values.len(), values.as_ptr().cast());
        self.tables.tensors.push(values);
        found
    }

    fn list(&mut self, kind: u32, graphs: &[GraphId]) -> (u32, usize, *const std::ffi::c_void) {
        self.numbers(kind, graphs.iter().map(|g| g.raw()).collect())
    }

    fn numbers(&mut self, kind: u32, list: Box<[u32]>) -> (u32, usize, *const std::ffi::c_void) {
        let found = (kind, list.len(), list.as_ptr().cast());
        self.tables.lists.push(list);
        found
    }

    fn graphs(&mut self) {
        let graph = self.graph;
        let all = graph.body_ids().map(|g| {
            let body = graph.body(g);
            raw::Graph {
                parent: body.parent.map_or(NONE, |n| n.raw()),
                nodes: self.push_ids(body.nodes.iter().map(|n| n.raw())),
                inputs: self.push_ids(body.inputs.iter().map(|v| v.raw())),
                outputs: self.push_ids(body.outputs.iter().map(|v| v.raw())),
            }
        });
        self.tables.graphs = all.collect();
    }
}

/// ONNX's number of an element type, as it crosses.
pub(crate) fn number(dtype: DType) -> u32 {
    dtype.number().unsigned_abs()
}

fn expr(e: &ortolan_graph::ir::Expr) -> raw::Expr {
    let id = |e: Option<ExprId>| e.map_or(0, ExprId::raw);
    let (a, b) = (id(e.a), id(e.b));
    let plain = raw::Expr { op: e.op as u32, a, b, pad: 0, v: 0 };
    match e.op {
        ExprOp::Const => raw::Expr { v: e.v, ..plain },
        ExprOp::Symbol => raw::Expr { a: u32::try_from(e.v).unwrap_or(NONE), ..plain },
        // The ABI has the condition in `v`, the graph in `a`.
        ExprOp::Select => raw::Expr { a: b, b: u32::try_from(e.v).unwrap_or(NONE), v: i64::from(a), ..plain },
        _ => plain,
    }
}
