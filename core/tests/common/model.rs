//! Small ONNX models for tests, made from messages.

use ortolan_graph::proto::{
    AttributeProto, DimValue, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, attribute_type, type_proto,
};
use prost::Message;

pub const F32: i32 = 1;
pub const I64: i32 = 7;
pub const BOOL: i32 = 9;

/// A value with dims: a number, or a name, or `?`.
pub fn value(name: &str, dtype: i32, dims: &[&str]) -> ValueInfoProto {
    let dim = |d: &&str| Dimension {
        value: match d.parse::<i64>() {
            Ok(n) => Some(DimValue::Size(n)),
            Err(_) if *d == "?" => None,
            Err(_) => Some(DimValue::Name((*d).to_owned())),
        },
        ..Dimension::default()
    };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: dtype, shape };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { value: Some(type_proto::Value::Tensor(tensor)), ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}

pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect();
    NodeProto {
        op_type: op.to_owned(),
        name: format!("{}_{}", op, outputs.first().copied().unwrap_or("")),
        input: names(inputs),
        output: names(outputs),
        ..NodeProto::default()
    }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: attribute_type::INT, i, ..AttributeProto::default() }
}

pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        r#type: attribute_type::INTS,
        ints: ints.to_vec(),
        ..AttributeProto::default()
    }
}

pub fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: attribute_type::GRAPH, g: Some(graph), ..AttributeProto::default() }
}

pub fn with(mut node: NodeProto, attrs: impl IntoIterator<Item = AttributeProto>) -> NodeProto {
    node.attribute.extend(attrs);
    node
}

fn raw(name: &str, dtype: i32, dims: &[i64], data: Vec<u8>) -> TensorProto {
    let (name, dims) = (name.to_owned(), dims.to_vec());
    TensorProto { name, data_type: dtype, dims, raw_data: Some(data.into()), ..TensorProto::default() }
}

pub fn weights(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    raw(name, F32, dims, data.iter().flat_map(|v| v.to_le_bytes()).collect())
}

pub fn longs(name: &str, dims: &[i64], data: &[i64]) -> TensorProto {
    raw(name, I64, dims, data.iter().flat_map(|v| v.to_le_bytes()).collect())
}

pub fn bools(name: &str, dims: &[i64], data: &[bool]) -> TensorProto {
    raw(name, BOOL, dims, data.iter().map(|&v| u8::from(v)).collect())
}

pub fn graph(
    inputs: impl IntoIterator<Item = ValueInfoProto>,
    consts: impl IntoIterator<Item = TensorProto>,
    nodes: impl IntoIterator<Item = NodeProto>,
    outputs: impl IntoIterator<Item = ValueInfoProto>,
) -> GraphProto {
    GraphProto {
        name: "test".to_owned(),
        input: inputs.into_iter().collect(),
        initializer: consts.into_iter().collect(),
        node: nodes.into_iter().collect(),
        output: outputs.into_iter().collect(),
        ..GraphProto::default()
    }
}

/// The bytes of a model.
pub fn model(graph: GraphProto) -> Vec<u8> {
    let opset = OperatorSetIdProto { version: 21, ..OperatorSetIdProto::default() };
    let model = ModelProto { ir_version: 10, graph: Some(graph), opset_import: vec![opset], ..ModelProto::default() };
    model.encode_to_vec()
}
