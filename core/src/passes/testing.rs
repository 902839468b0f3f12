//! Graphs for tests of passes, from a few words: `y = Op(a,b) attr=1`, one node a line.
//!
//! There are the inputs `x` float[N] and `c` bool, and the constants `w` float[2], `k1` and `k2` (equal), `half` float, `one`,
//! `two`, `axes` and `large` (integers). The output is `y`.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::sync::Arc;

use ortolan_graph::proto::{
    AttributeProto, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, attribute_type, type_proto,
};
use ortolan_graph::{Graph, LoadOptions, load_bytes, verify::verify};
use prost::Message;

use crate::error::Result;
use crate::exec::Account;
use crate::once::Evaluator;

/// A pass.
type Pass = fn(&mut Graph, &mut Evaluator<'_>) -> Result<usize>;

fn node(line: &str) -> NodeProto {
    let (outputs, rest) = line.split_once(" = ").unwrap();
    let (call, attrs) = rest.split_once(')').unwrap();
    let (op, inputs) = call.split_once('(').unwrap();
    let attr = |text: &str| {
        let (name, v) = text.split_once('=').unwrap();
        let name = name.to_owned();
        match v.parse() {
            Ok(i) => AttributeProto { name, r#type: attribute_type::INT, i, ..AttributeProto::default() },
            Err(_) => {
                let f = v.parse().unwrap();
                AttributeProto { name, r#type: attribute_type::FLOAT, f, ..AttributeProto::default() }
            }
        }
    };
    NodeProto {
        op_type: op.trim().to_owned(),
        input: inputs.split(',').filter(|i| !i.is_empty()).map(|i| i.trim().to_owned()).collect(),
        output: vec![outputs.trim().to_owned()],
        attribute: attrs.split_whitespace().map(attr).collect(),
        ..NodeProto::default()
    }
}

fn value(name: &str, elem_type: i32, dims: usize) -> ValueInfoProto {
    let shape = TensorShapeProto { dim: vec![Dimension::default(); dims] };
    let tensor = type_proto::Tensor { elem_type, shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::Tensor(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(ty), ..ValueInfoProto::default() }
}

fn output(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.to_owned(), ..ValueInfoProto::default() }
}

fn constant(name: &str, data_type: i32, dims: &[i64], data: Vec<u8>) -> TensorProto {
    let raw_data = Some(data.into());
    TensorProto { name: name.to_owned(), data_type, dims: dims.to_vec(), raw_data, ..TensorProto::default() }
}

fn load(nodes: Vec<NodeProto>) -> Graph {
    let float = |name: &str, v: f32| constant(name, 1, &[2], [v.to_le_bytes(), v.to_le_bytes()].concat());
    let int = |name: &str, dims: &[i64], v: i64| constant(name, 7, dims, v.to_le_bytes().to_vec());
    let graph = GraphProto {
        name: "test".to_owned(),
        input: vec![value("x", 1, 1), value("c", 9, 0)],
        initializer: vec![
            float("w", 3.0),
            float("k1", 0.5),
            float("k2", 0.5),
            int("one", &[], 1),
            int("two", &[], 2),
            int("axes", &[1], 0),
            int("large", &[1], 20_000),
            constant("half", 1, &[], 0.5f32.to_le_bytes().to_vec()),
        ],
        node: nodes,
        output: vec![output("y")],
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { version: 21, ..OperatorSetIdProto::default() };
    let model = ModelProto { ir_version: 10, graph: Some(graph), opset_import: vec![opset], ..ModelProto::default() };
    load_bytes(model.encode_to_vec(), None, &LoadOptions::default()).unwrap()
}

fn run(mut graph: Graph, pass: Pass) -> (Graph, usize) {
    let account = Arc::new(Account::new(None));
    let shared = crate::program::Shared::of(&graph, false);
    let count = pass(&mut graph, &mut Evaluator::new(&[], shared, &account, 1)).unwrap();
    verify(&graph).unwrap();
    (graph, count)
}

/// The graph after a pass, and what the pass says.
pub(super) fn changed(nodes: &str, pass: Pass) -> (Graph, usize) {
    run(load(nodes.lines().map(node).collect()), pass)
}

/// The same, with two branches for every If; a branch gives out what its last node makes.
pub(super) fn changed_body(nodes: &str, then: &str, els: &str, pass: Pass) -> (Graph, usize) {
    let branch = |name: &str, text: &str| {
        let node: Vec<NodeProto> = text.lines().map(node).collect();
        let output = vec![output(&node.last().unwrap().output[0])];
        let g = Some(GraphProto { name: name.to_owned(), node, output, ..GraphProto::default() });
        AttributeProto { name: name.to_owned(), r#type: attribute_type::GRAPH, g, ..AttributeProto::default() }
    };
    let mut nodes: Vec<NodeProto> = nodes.lines().map(node).collect();
    for n in nodes.iter_mut().filter(|n| n.op_type == "If") {
        n.attribute = vec![branch("then_branch", then), branch("else_branch", els)];
    }
    run(load(nodes), pass)
}

/// Operators of the nodes that run, in order.
pub(super) fn operators(graph: &Graph) -> String {
    let all: Vec<String> = graph.live_nodes().into_iter().map(|n| graph.node(n).op.to_string()).collect();
    all.join(" ")
}
