//! Small models for tests, made from a few words.

use bytes::Bytes;
use prost::Message;

use crate::ir::{DType, Graph};
use crate::proto::{
    AttributeProto, DimValue, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, attribute_type as kind, type_proto,
};
use crate::{LoadOptions, Result, load_bytes};

/// A value: `x float[n,3]`, or `x float` without rank, or `x` without type.
pub(crate) fn value(text: &str) -> ValueInfoProto {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default().to_owned();
    let ty = words.next().map(|ty| {
        let (dtype, dims) = ty.split_once('[').map_or((ty, None), |(t, d)| (t, Some(d.trim_end_matches(']'))));
        let dim = |d: &str| Dimension {
            value: match d.parse() {
                Ok(size) => Some(DimValue::Size(size)),
                Err(_) if d == "?" => None,
                Err(_) => Some(DimValue::Name(d.to_owned())),
            },
            denotation: String::new(),
        };
        let shape = dims.map(|d| TensorShapeProto { dim: d.split(',').filter(|d| !d.is_empty()).map(dim).collect() });
        let elem_type = DType::from_name(dtype).unwrap_or_else(|| panic!("{dtype}")).number();
        let value = Some(type_proto::Value::Tensor(type_proto::Tensor { elem_type, shape }));
        TypeProto { value, denotation: String::new() }
    });
    ValueInfoProto { name, r#type: ty, ..ValueInfoProto::default() }
}

/// A node: `y z = domain::Op(x, , w) axis=1 pads=[1,2] mode='text'`.
pub(crate) fn node(text: &str) -> NodeProto {
    let (outputs, rest) = text.split_once('=').unwrap_or_else(|| panic!("{text}"));
    let (call, attrs) = rest.split_once(')').unwrap_or_else(|| panic!("{text}"));
    let (op, inputs) = call.split_once('(').unwrap_or_else(|| panic!("{text}"));
    let (domain, op_type) = op.trim().split_once("::").unwrap_or(("", op.trim()));
    let names = |list: &str, by: char| match list.trim() {
        "" => Vec::new(),
        list => list.split(by).map(|n| n.trim().to_owned()).collect(),
    };
    NodeProto {
        input: names(inputs, ','),
        output: names(outputs, ' '),
        op_type: op_type.to_owned(),
        domain: domain.to_owned(),
        attribute: attrs.split_whitespace().map(attr).collect(),
        ..NodeProto::default()
    }
}

fn attr(text: &str) -> AttributeProto {
    let (name, v) = text.split_once('=').unwrap_or_else(|| panic!("{text}"));
    let mut a = AttributeProto { name: name.to_owned(), ..AttributeProto::default() };
    if let Some(list) = v.strip_prefix('[') {
        let list = list.trim_end_matches(']').split(',').filter(|p| !p.is_empty());
        (a.r#type, a.ints) = (kind::INTS, list.map(|p| p.parse().unwrap()).collect());
    } else if let Some(text) = v.strip_prefix('\'') {
        (a.r#type, a.s) = (kind::STRING, Bytes::copy_from_slice(text.trim_end_matches('\'').as_bytes()));
    } else if let Ok(i) = v.parse() {
        (a.r#type, a.i) = (kind::INT, i);
    } else {
        (a.r#type, a.f) = (kind::FLOAT, v.parse().unwrap());
    }
    a
}

/// An `int64` tensor.
pub(crate) fn ints(name: &str, dims: &[i64], list: &[i64]) -> TensorProto {
    let raw: Vec<u8> = list.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensor(name, DType::I64, dims, raw)
}

/// A `float` tensor.
pub(crate) fn floats(name: &str, dims: &[i64], list: &[f32]) -> TensorProto {
    let raw: Vec<u8> = list.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensor(name, DType::F32, dims, raw)
}

/// A tensor of raw data.
pub(crate) fn tensor(name: &str, dtype: DType, dims: &[i64], raw: Vec<u8>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: dtype.number(),
        raw_data: Some(raw.into()),
        ..TensorProto::default()
    }
}

/// A graph of inputs, nodes and outputs, one a line.
pub(crate) fn graph(inputs: &str, nodes: &str, outputs: &str) -> GraphProto {
    let lines = |text: &str| text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect::<Vec<_>>();
    GraphProto {
        name: "g".to_owned(),
        input: lines(inputs).iter().map(|l| value(l)).collect(),
        node: lines(nodes).iter().map(|l| node(l)).collect(),
        output: lines(outputs).iter().map(|l| value(l)).collect(),
        ..GraphProto::default()
    }
}

/// A model around a graph.
pub(crate) fn model(opset: i64, graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: 8,
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
        ..ModelProto::default()
    }
}

/// Loads a model.
pub(crate) fn load(model: &ModelProto) -> Result<Graph> {
    load_bytes(model.encode_to_vec(), None, &LoadOptions::default())
}

/// Loads a graph that is good.
pub(crate) fn good(opset: i64, graph: GraphProto) -> Graph {
    load(&model(opset, graph)).unwrap_or_else(|e| panic!("{e}"))
}

/// The live nodes as `Op-since(inputs) > outputs`, by names, in order.
pub(crate) fn shown(graph: &Graph) -> Vec<String> {
    let name = |v: &Option<crate::ir::ValueId>| match v {
        Some(v) if graph.value(*v).name.is_empty() => "·".to_owned(),
        Some(v) => graph.value(*v).name.to_string(),
        None => "_".to_owned(),
    };
    let list = |vs: &[Option<crate::ir::ValueId>]| vs.iter().map(name).collect::<Vec<_>>().join(",");
    let node = |id: crate::ir::NodeId| {
        let n = graph.node(id);
        format!("{}-{}({}) > {}", n.op, n.since, list(&n.inputs), list(&n.outputs))
    };
    graph.live_nodes().into_iter().map(node).collect()
}
