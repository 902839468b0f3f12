//! A node as schemas and version steps see it: names, types and attributes, whoever holds them.
//! The graph's node and the tests' fakes implement [`NodeView`]; nothing here owns a graph.

use std::borrow::Cow;
use std::fmt;

use super::TypeId;

/// What an attribute holds. The numbers are those of ONNX's `AttributeProto.AttributeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AttrKind {
    /// One float.
    Float = 1,
    /// One integer.
    Int,
    /// One string.
    Str,
    /// One tensor.
    Tensor,
    /// One graph.
    Graph,
    /// A list of floats.
    Floats,
    /// A list of integers.
    Ints,
    /// A list of strings.
    Strs,
    /// A list of tensors.
    Tensors,
    /// A list of graphs.
    Graphs,
    /// One sparse tensor.
    SparseTensor,
    /// A list of sparse tensors.
    SparseTensors,
    /// One type.
    Type,
    /// A list of types.
    Types,
}

/// Kinds with their printed names; the index is the number minus one.
const KINDS: [(AttrKind, &str); 14] = [
    (AttrKind::Float, "float"),
    (AttrKind::Int, "int"),
    (AttrKind::Str, "string"),
    (AttrKind::Tensor, "tensor"),
    (AttrKind::Graph, "graph"),
    (AttrKind::Floats, "floats"),
    (AttrKind::Ints, "ints"),
    (AttrKind::Strs, "strings"),
    (AttrKind::Tensors, "tensors"),
    (AttrKind::Graphs, "graphs"),
    (AttrKind::SparseTensor, "sparse_tensor"),
    (AttrKind::SparseTensors, "sparse_tensors"),
    (AttrKind::Type, "type"),
    (AttrKind::Types, "types"),
];

impl AttrKind {
    /// The kind with this ONNX number.
    pub fn from_number(number: u32) -> Option<AttrKind> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        KINDS.get(index).map(|(kind, _)| *kind)
    }

    /// The printed name, for example `floats`.
    pub fn name(self) -> &'static str {
        KINDS[self as usize - 1].1
    }

    /// The kind with this printed name.
    pub fn from_name(name: &str) -> Option<AttrKind> {
        KINDS.iter().find(|(_, n)| *n == name).map(|(kind, _)| *kind)
    }
}

impl fmt::Display for AttrKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The value of an attribute, as far as schemas and version steps look into it.
#[derive(Clone, Debug, PartialEq)]
pub enum AttrValue<'a> {
    /// One float.
    Float(f32),
    /// One integer.
    Int(i64),
    /// One string.
    Str(Cow<'a, str>),
    /// A list of floats.
    Floats(Cow<'a, [f32]>),
    /// A list of integers.
    Ints(Cow<'a, [i64]>),
    /// A list of strings.
    Strs(Cow<'a, [String]>),
    /// Something that is only passed on: tensors, graphs, types, lists kept as constants, and
    /// strings that are not UTF-8.
    Opaque(AttrKind),
}

impl AttrValue<'_> {
    /// What it holds.
    pub fn kind(&self) -> AttrKind {
        match self {
            AttrValue::Float(_) => AttrKind::Float,
            AttrValue::Int(_) => AttrKind::Int,
            AttrValue::Str(_) => AttrKind::Str,
            AttrValue::Floats(_) => AttrKind::Floats,
            AttrValue::Ints(_) => AttrKind::Ints,
            AttrValue::Strs(_) => AttrKind::Strs,
            AttrValue::Opaque(kind) => *kind,
        }
    }

    /// The same value with nothing borrowed.
    pub fn into_owned(self) -> AttrValue<'static> {
        match self {
            AttrValue::Float(v) => AttrValue::Float(v),
            AttrValue::Int(v) => AttrValue::Int(v),
            AttrValue::Str(v) => AttrValue::Str(Cow::Owned(v.into_owned())),
            AttrValue::Floats(v) => AttrValue::Floats(Cow::Owned(v.into_owned())),
            AttrValue::Ints(v) => AttrValue::Ints(Cow::Owned(v.into_owned())),
            AttrValue::Strs(v) => AttrValue::Strs(Cow::Owned(v.into_owned())),
            AttrValue::Opaque(kind) => AttrValue::Opaque(kind),
        }
    }
}

/// What schemas and version steps read of a node. An index beyond the end answers "absent".
pub trait NodeView {
    /// The node's name for messages; may be empty.
    fn name(&self) -> &str;
    /// How many inputs are listed, absent ones in the middle included.
    fn input_count(&self) -> usize;
    /// How many outputs are listed.
    fn output_count(&self) -> usize;
    /// The name of the value at an input; none when the input is absent.
    fn input(&self, index: usize) -> Option<&str>;
    /// The name of the value at an output; none when the output is absent.
    fn output(&self, index: usize) -> Option<&str>;
    /// The type of the value at an input; none when it is absent, not known, or of a form that no
    /// schema names.
    fn input_type(&self, index: usize) -> Option<TypeId>;
    /// How many dimensions the input has; none when that is not known.
    fn input_rank(&self, index: usize) -> Option<usize>;
    /// One dimension of an input, when it is a known number.
    fn input_dim(&self, index: usize, axis: usize) -> Option<i64>;
    /// Whether two inputs are known to have one shape, symbolic dimensions included.
    fn same_shape(&self, a: usize, b: usize) -> bool;
    /// The elements of an integer or bool input of at most 64 elements, when all are known numbers.
    fn input_ints(&self, index: usize) -> Option<Cow<'_, [i64]>>;
    /// The elements of an `f32`, `f64`, `f16` or `bf16` input that is a constant of at most 64
    /// elements, rounded to `f32`.
    fn input_floats(&self, index: usize) -> Option<Cow<'_, [f32]>>;
    /// How many attributes the node holds.
    fn attr_count(&self) -> usize;
    /// The name and kind of one of them, in any fixed order.
    fn attr_at(&self, index: usize) -> Option<(&str, AttrKind)>;
    /// One attribute that the node holds.
    fn attr(&self, name: &str) -> Option<AttrValue<'_>>;
}
