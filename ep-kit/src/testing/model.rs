//! Builds a program as the host would make it after inference. Types and dimensions are stated, not inferred.

use super::Tensor;
use crate::item::{Item, Plain, Texts};
use ortolan_ep_abi::call::EMPTY;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::{self, Expr, NONE, Span, Str};
use std::collections::HashMap;

/// A dimension, or an element of a value that is known from shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    /// The same in every run.
    Fixed(i64),
    /// An expression of the model, from [`Model::symbol`] or [`Model::expr`].
    Expr(u32),
}

impl From<i64> for Dim {
    fn from(n: i64) -> Self {
        Dim::Fixed(n)
    }
}

/// A value of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueId(pub u32);

/// A node of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub u32);

#[derive(Default)]
struct NodeDraft {
    op: String,
    domain: String,
    version: u32,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    attrs: Vec<AttrDraft>,
}

struct AttrDraft {
    name: String,
    kind: u32,
    data: Data,
}

enum Data {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
    Tensor(Tensor),
}

struct ValueDraft {
    name: String,
    kind: u32,
    dtype: DType,
    dims: Vec<u32>,
    known: Vec<u32>,
    constant: Option<u32>,
    const_expr: bool,
}

/// A program under construction.
#[derive(Default)]
pub struct Model {
    nodes: Vec<NodeDraft>,
    values: Vec<ValueDraft>,
    constants: Vec<Item>,
    exprs: Vec<Expr>,
    interned: HashMap<(u32, u32, u32, i64), u32>,
    symbols: Vec<raw::Symbol>,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
}

impl Model {
    /// An empty model.
    pub fn new() -> Self {
        Self::default()
    }

    fn intern(&mut self, op: u32, a: u32, b: u32, v: i64) -> u32 {
        let next = self.exprs.len() as u32;
        let id = *self.interned.entry((op, a, b, v)).or_insert(next);
        if id == next {
            self.exprs.push(Expr { op, a, b, pad: 0, v });
        }
        id
    }

    fn id(&mut self, dim: Dim) -> u32 {
        match dim {
            Dim::Fixed(n) => self.intern(raw::expr::CONST, 0, 0, n),
            Dim::Expr(id) => id,
        }
    }

    /// A free number. The first value that has it as a dimension defines it.
    pub fn symbol(&mut self) -> Dim {
        let id = self.symbols.len() as u32;
        self.symbols.push(raw::Symbol { value: NONE, at: 0, kind: raw::SYMBOL_DIM });
        Dim::Expr(self.intern(raw::expr::SYMBOL, id, 0, 0))
    }

    /// Element `at` of an integer value, as a free number.
    pub fn element(&mut self, value: ValueId, at: u32) -> Dim {
        let id = self.symbols.len() as u32;
        self.symbols.push(raw::Symbol { value: value.0, at, kind: raw::SYMBOL_ELEMENT });
        Dim::Expr(self.intern(raw::expr::SYMBOL, id, 0, 0))
    }

    /// An operation of `raw::expr`.
    pub fn expr(&mut self, op: u32, a: Dim, b: Dim) -> Dim {
        let (a, b) = (self.id(a), self.id(b));
        Dim::Expr(self.intern(op, a, b, 0))
    }

    /// A value.
    pub fn value(&mut self, name: &str, dtype: DType, dims: &[Dim]) -> ValueId {
        let value = self.values.len() as u32;
        let mut ids = Vec::new();
        for (at, &dim) in (0..).zip(dims) {
            let id = self.id(dim);
            let e = self.exprs[id as usize];
            if e.op == raw::expr::SYMBOL && self.symbols[e.a as usize].value == NONE {
                self.symbols[e.a as usize] = raw::Symbol { value, at, kind: raw::SYMBOL_DIM };
            }
            ids.push(id);
        }
        self.values.push(ValueDraft {
            name: name.into(),
            kind: raw::VALUE_TENSOR,
            dtype,
            dims: ids,
            known: Vec::new(),
            constant: None,
            const_expr: false,
        });
        ValueId(value)
    }

    /// A value of `VALUE_*` that is no tensor.
    pub fn whole(&mut self, name: &str, kind: u32) -> ValueId {
        let value = self.value(name, DType::F32, &[]);
        self.values[value.0 as usize].kind = kind;
        value
    }

    /// How many values there are.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// A value of the tensor's type that runs hand in.
    pub fn input_value(&mut self, tensor: &Tensor) -> ValueId {
        let dims: Vec<Dim> = tensor.dims.iter().map(|&d| Dim::Fixed(d)).collect();
        let value = self.value(&format!("x{}", self.values.len()), tensor.dtype, &dims);
        self.mark_input(value);
        value
    }

    /// A value of the item's kind that runs hand in.
    pub fn input_item(&mut self, item: &Item) -> ValueId {
        let name = format!("x{}", self.values.len());
        let dims: Vec<Dim> = item.dims().iter().map(|&d| Dim::Fixed(d)).collect();
        let value = match item {
            Item::Tensor(tensor) => self.value(&name, tensor.dtype, &dims),
            Item::Texts(_) => self.value(&name, DType::Str, &dims),
            Item::Sequence(_) => self.whole(&name, raw::VALUE_SEQUENCE),
            Item::Optional(_) => self.whole(&name, raw::VALUE_OPTIONAL),
            Item::Map { .. } => self.whole(&name, raw::VALUE_MAP),
        };
        self.mark_input(value);
        value
    }

    /// A constant tensor of texts.
    pub fn constant_texts(&mut self, texts: &Texts) -> ValueId {
        let dims: Vec<Dim> = texts.dims.iter().map(|&d| Dim::Fixed(d)).collect();
        let value = self.value(&format!("c{}", self.values.len()), DType::Str, &dims);
        self.values[value.0 as usize].constant = Some(self.constants.len() as u32);
        self.constants.push(Item::Texts(texts.clone()));
        value
    }

    /// A constant. Its bytes are misaligned by one.
    pub fn constant(&mut self, tensor: &Tensor) -> ValueId {
        let dims: Vec<Dim> = tensor.dims.iter().map(|&d| Dim::Fixed(d)).collect();
        let value = self.value(&format!("c{}", self.values.len()), tensor.dtype, &dims);
        self.values[value.0 as usize].constant = Some(self.constants.len() as u32);
        let Tensor { dtype, dims, bytes } = tensor.clone();
        self.constants.push(Item::Tensor(Plain { dtype, dims: dims.into(), bytes }));
        value
    }

    /// The value's elements are these numbers, which the host knows from shapes.
    pub fn known(&mut self, value: ValueId, elements: &[Dim]) {
        self.values[value.0 as usize].known = elements.iter().map(|&d| self.id(d)).collect();
    }

    /// The value depends on constants only.
    pub fn const_expr(&mut self, value: ValueId) {
        self.values[value.0 as usize].const_expr = true;
    }

    /// Runs hand the value in, after those marked before.
    pub fn mark_input(&mut self, value: ValueId) {
        self.inputs.push(value.0);
    }

    /// Runs ask for the value, after those marked before.
    pub fn mark_output(&mut self, value: ValueId) {
        self.outputs.push(value.0);
    }

    /// A node without inputs, outputs and attributes.
    pub fn node(&mut self, op: &str, version: u32) -> NodeId {
        self.nodes.push(NodeDraft { op: op.into(), version, ..NodeDraft::default() });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// A node with inputs and outputs.
    pub fn call(&mut self, op: &str, version: u32, inputs: &[ValueId], outputs: &[ValueId]) -> NodeId {
        let node = self.node(op, version);
        inputs.iter().for_each(|&v| self.add_input(node, Some(v)));
        outputs.iter().for_each(|&v| self.add_output(node, Some(v)));
        node
    }

    /// The node's domain.
    pub fn domain(&mut self, node: NodeId, domain: &str) {
        self.nodes[node.0 as usize].domain = domain.into();
    }

    /// The node's next input; `None` is absent.
    pub fn add_input(&mut self, node: NodeId, value: Option<ValueId>) {
        self.nodes[node.0 as usize].inputs.push(value.map_or(NONE, |v| v.0));
    }

    /// The node's next output; `None` is absent.
    pub fn add_output(&mut self, node: NodeId, value: Option<ValueId>) {
        self.nodes[node.0 as usize].outputs.push(value.map_or(NONE, |v| v.0));
    }

    fn attr(&mut self, node: NodeId, name: &str, kind: u32, data: Data) {
        self.nodes[node.0 as usize].attrs.push(AttrDraft { name: name.into(), kind, data });
    }

    /// INT or, for a list, INTS.
    pub fn ints(&mut self, node: NodeId, name: &str, values: &[i64], list: bool) {
        self.attr(node, name, if list { 7 } else { 2 }, Data::Ints(values.to_vec()));
    }

    /// FLOAT or, for a list, FLOATS.
    pub fn floats(&mut self, node: NodeId, name: &str, values: &[f32], list: bool) {
        self.attr(node, name, if list { 6 } else { 1 }, Data::Floats(values.to_vec()));
    }

    /// STRING.
    pub fn text(&mut self, node: NodeId, name: &str, value: &str) {
        self.attr(node, name, 3, Data::Texts(vec![value.into()]));
    }

    /// STRINGS.
    pub fn texts(&mut self, node: NodeId, name: &str, values: &[&str]) {
        self.attr(node, name, 8, Data::Texts(values.iter().map(|&v| v.into()).collect()));
    }

    /// TENSOR.
    pub fn tensor(&mut self, node: NodeId, name: &str, value: &Tensor) {
        self.attr(node, name, 4, Data::Tensor(value.clone()));
    }

    pub(super) fn build(self) -> Built {
        Built::new(self)
    }
}

/// A program with all that it points at.
pub(super) struct Built {
    pub program: raw::Program,
    pub nodes: Vec<u32>,
    pub inputs: Vec<u32>,
    pub outputs: Vec<u32>,
    pub symbols: Vec<raw::Symbol>,
    pub values: Vec<(DType, Vec<u32>)>,
    _held: Held,
}

/// Lists that the program's pointers lead into. Their heap addresses stay while the owner moves.
struct Held {
    _nodes: Vec<raw::Node>,
    _values: Vec<raw::ValueInfo>,
    _constants: Vec<raw::Constant>,
    _types: Vec<raw::Type>,
    _attrs: Vec<raw::Attr>,
    _ids: Vec<u32>,
    _graphs: Vec<raw::Graph>,
    _texts: Vec<Box<str>>,
    _tensors: Vec<(Vec<i64>, Vec<u8>)>,
    _lists: Vec<Data>,
    _more: Vec<Box<[raw::Value]>>,
    _strs: Vec<Box<[Str]>>,
    _exprs: Vec<Expr>,
}

#[derive(Default)]
struct Pools {
    ids: Vec<u32>,
    texts: Vec<Box<str>>,
    tensors: Vec<(Vec<i64>, Vec<u8>)>,
    more: Vec<Box<[raw::Value]>>,
    strs: Vec<Box<[Str]>>,
    lists: Vec<Data>,
}

impl Pools {
    fn span(&mut self, ids: &[u32]) -> Span {
        let at = self.ids.len() as u32;
        self.ids.extend(ids);
        Span { at, len: ids.len() as u32 }
    }

    fn text(&mut self, text: &str) -> Str {
        let text: Box<str> = text.into();
        let view = Str { ptr: text.as_ptr(), len: text.len() };
        self.texts.push(text);
        view
    }

    /// A tensor whose first byte stands at an odd address.
    fn tensor(&mut self, tensor: &Tensor) -> raw::Value {
        let mut bytes: Vec<u8> = Vec::with_capacity(tensor.bytes.len() + 2);
        let odd = bytes.as_ptr().addr().is_multiple_of(2);
        bytes.extend(core::iter::repeat_n(0, usize::from(odd)));
        bytes.extend(&tensor.bytes);
        let dims = tensor.dims.clone();
        let value = raw::Value {
            kind: raw::VALUE_TENSOR,
            dtype: tensor.dtype as u32,
            rank: dims.len() as u32,
            flags: raw::VALUE_CONST,
            shape: dims.as_ptr(),
            data: bytes[usize::from(odd)..].as_ptr().cast_mut(),
            bytes: tensor.bytes.len() as u64,
            ..EMPTY
        };
        self.tensors.push((dims, bytes));
        value
    }

    /// A tensor of texts.
    fn texts(&mut self, texts: &Texts) -> raw::Value {
        let list: Box<[Str]> = texts.texts.iter().map(|text| self.text(text)).collect();
        let dims = texts.dims.to_vec();
        let value = raw::Value {
            kind: raw::VALUE_TENSOR,
            dtype: DType::Str as u32,
            rank: dims.len() as u32,
            flags: raw::VALUE_CONST,
            shape: dims.as_ptr(),
            data: list.as_ptr().cast_mut().cast(),
            bytes: size_of_val(&*list) as u64,
            ..EMPTY
        };
        self.tensors.push((dims, Vec::new()));
        self.strs.push(list);
        value
    }

    fn attr(&mut self, attr: AttrDraft) -> raw::Attr {
        let name = self.text(&attr.name);
        let (data, len) = match &attr.data {
            Data::Floats(x) => (x.as_ptr().cast(), x.len()),
            Data::Ints(x) => (x.as_ptr().cast(), x.len()),
            Data::Texts(x) => {
                let texts: Box<[Str]> = x.iter().map(|x| Str { ptr: x.as_ptr(), len: x.len() }).collect();
                let (at, len) = (texts.as_ptr().cast(), texts.len());
                self.strs.push(texts);
                (at, len)
            }
            Data::Tensor(x) => {
                let value: Box<[raw::Value]> = [self.tensor(x)].into();
                let at = value.as_ptr().cast();
                self.more.push(value);
                (at, 1)
            }
        };
        self.lists.push(attr.data);
        raw::Attr { name, kind: attr.kind, constant: NONE, len: len as u64, data }
    }
}

impl Built {
    fn new(model: Model) -> Built {
        let mut pools = Pools::default();
        let (mut nodes, mut attrs) = (Vec::new(), Vec::new());
        let (mut producers, mut uses) = (HashMap::new(), HashMap::new());
        for (id, draft) in (0u32..).zip(model.nodes) {
            producers.extend(draft.outputs.iter().map(|&v| (v, id)));
            draft.inputs.iter().for_each(|&v| *uses.entry(v).or_insert(0u32) += 1);
            let at = attrs.len() as u32;
            attrs.extend(draft.attrs.into_iter().map(|a| pools.attr(a)));
            nodes.push(raw::Node {
                op: pools.text(&draft.op),
                domain: pools.text(&draft.domain),
                name: pools.text(&format!("n{id}")),
                version: draft.version,
                graph: 0,
                inputs: pools.span(&draft.inputs),
                outputs: pools.span(&draft.outputs),
                attrs: Span { at, len: attrs.len() as u32 - at },
            });
        }
        let (mut values, mut types, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
        for (id, draft) in (0u32..).zip(&model.values) {
            let dims = pools.span(&draft.dims);
            types.push(raw::Type {
                kind: draft.kind,
                dtype: draft.dtype as u32,
                rank: dims.len,
                dims: dims.at,
                elem: NONE,
            });
            values.push(raw::ValueInfo {
                name: pools.text(&draft.name),
                ty: id,
                graph: 0,
                producer: producers.get(&id).copied().unwrap_or(NONE),
                constant: draft.constant.unwrap_or(NONE),
                known: pools.span(&draft.known),
                flags: if draft.const_expr { raw::INFO_CONST_EXPR } else { 0 },
                uses: uses.get(&id).copied().unwrap_or(0),
            });
            shapes.push((draft.dtype, draft.dims.clone()));
        }
        let constant = |(id, item): (u64, &Item)| {
            let value = match item {
                Item::Texts(texts) => pools.texts(texts),
                Item::Tensor(Plain { dtype, dims, bytes }) => {
                    pools.tensor(&Tensor { dtype: *dtype, dims: dims.to_vec(), bytes: bytes.clone() })
                }
                other => panic!("{} is no constant", other.kind()),
            };
            raw::Constant { value, id }
        };
        let constants: Vec<raw::Constant> = (1000..).zip(&model.constants).map(constant).collect();
        let order: Vec<u32> = (0..nodes.len() as u32).collect();
        let graphs = vec![raw::Graph {
            parent: NONE,
            nodes: pools.span(&order),
            inputs: pools.span(&model.inputs),
            outputs: pools.span(&model.outputs),
        }];
        let program = raw::Program {
            struct_size: size_of::<raw::Program>() as u32,
            version: 1,
            id: 1,
            nodes: nodes.as_ptr(),
            values: values.as_ptr(),
            graphs: graphs.as_ptr(),
            constants: constants.as_ptr(),
            exprs: model.exprs.as_ptr(),
            symbols: model.symbols.as_ptr(),
            types: types.as_ptr(),
            attrs: attrs.as_ptr(),
            ids: pools.ids.as_ptr(),
            opsets: core::ptr::null(),
            node_count: nodes.len() as u32,
            value_count: values.len() as u32,
            graph_count: 1,
            constant_count: constants.len() as u32,
            expr_count: model.exprs.len() as u32,
            symbol_count: model.symbols.len() as u32,
            type_count: types.len() as u32,
            attr_count: attrs.len() as u32,
            id_count: pools.ids.len() as u32,
            opset_count: 0,
        };
        Built {
            program,
            nodes: order,
            inputs: model.inputs,
            outputs: model.outputs,
            symbols: model.symbols,
            values: shapes,
            _held: Held {
                _exprs: model.exprs,
                _nodes: nodes,
                _values: values,
                _constants: constants,
                _types: types,
                _attrs: attrs,
                _ids: pools.ids,
                _graphs: graphs,
                _texts: pools.texts,
                _tensors: pools.tensors,
                _lists: pools.lists,
                _more: pools.more,
                _strs: pools.strs,
            },
        }
    }
}
