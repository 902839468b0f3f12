//! Attributes of nodes, as typed values.

use std::sync::Arc;

use bytes::Bytes;

use super::{ConstId, GraphId, Name, Type};

/// Lists from this many bytes on are constants, with the constants' rules for memory.
pub const BIG_LIST: usize = 64 << 10;

/// A named attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attr {
    /// ONNX's name.
    pub name: Name,
    /// Its value.
    pub value: AttrValue,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttrValue {
    /// `INT`
    Int(i64),
    /// `FLOAT`
    Float(f32),
    /// `STRING`: text nearly always, but some operators keep binary data in it.
    String(Bytes),
    /// `INTS` below [`BIG_LIST`]
    Ints(Arc<[i64]>),
    /// `FLOATS` below [`BIG_LIST`]
    Floats(Arc<[f32]>),
    /// `STRINGS`
    Strings(Arc<[Bytes]>),
    /// `INTS` of [`BIG_LIST`] or more: an `int64` vector.
    BigInts(ConstId),
    /// `FLOATS` of [`BIG_LIST`] or more: a `float` vector.
    BigFloats(ConstId),
    /// `TENSOR`, and `SPARSE_TENSOR` made dense.
    Tensor(ConstId),
    /// `TENSORS`
    Tensors(Arc<[ConstId]>),
    /// `GRAPH`: a body.
    Graph(GraphId),
    /// `GRAPHS`
    Graphs(Arc<[GraphId]>),
    /// `TYPE_PROTO`
    Type(Type),
    /// `TYPE_PROTOS`
    Types(Arc<[Type]>),
}

impl AttrValue {
    /// An `INTS` value.
    pub fn ints(values: &[i64]) -> AttrValue {
        AttrValue::Ints(values.into())
    }

    /// A `STRING` value.
    pub fn text(value: &str) -> AttrValue {
        AttrValue::String(Bytes::copy_from_slice(value.as_bytes()))
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            AttrValue::Int(v) => Some(*v),
            _ => None,
        }
    }

    /// The float, if it is one.
    pub fn as_float(&self) -> Option<f32> {
        match self {
            AttrValue::Float(v) => Some(*v),
            _ => None,
        }
    }

    /// The string, if it is one and UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            AttrValue::String(v) => std::str::from_utf8(v).ok(),
            _ => None,
        }
    }

    /// The integers, if it is a list of them that is not a constant.
    pub fn as_ints(&self) -> Option<&[i64]> {
        match self {
            AttrValue::Ints(v) => Some(v),
            _ => None,
        }
    }

    /// The floats, if it is a list of them that is not a constant.
    pub fn as_floats(&self) -> Option<&[f32]> {
        match self {
            AttrValue::Floats(v) => Some(v),
            _ => None,
        }
    }

    /// The bodies in it, if any.
    pub fn graphs(&self) -> &[GraphId] {
        match self {
            AttrValue::Graph(g) => std::slice::from_ref(g),
            AttrValue::Graphs(g) => g,
            _ => &[],
        }
    }

    /// ONNX's name of the kind.
    pub fn kind_name(&self) -> &'static str {
        match self {
            AttrValue::Int(_) => "INT",
            AttrValue::Float(_) => "FLOAT",
            AttrValue::String(_) => "STRING",
            AttrValue::Ints(_) | AttrValue::BigInts(_) => "INTS",
            AttrValue::Floats(_) | AttrValue::BigFloats(_) => "FLOATS",
            AttrValue::Strings(_) => "STRINGS",
            AttrValue::Tensor(_) => "TENSOR",
            AttrValue::Tensors(_) => "TENSORS",
            AttrValue::Graph(_) => "GRAPH",
            AttrValue::Graphs(_) => "GRAPHS",
            AttrValue::Type(_) => "TYPE_PROTO",
            AttrValue::Types(_) => "TYPE_PROTOS",
        }
    }
}
