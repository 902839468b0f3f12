//! Weights stay in their files: a model of gigabytes takes little memory until something reads them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;

use ortolan_graph::ir::Data;
use ortolan_graph::proto::{
    DATA_EXTERNAL, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use ortolan_graph::{LoadOptions, load};
use prost::Message;

const TENSORS: usize = 30;
const BYTES: u64 = 100 << 20;

fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn three_gigabytes_of_external_data_take_no_memory() {
    let folder = std::env::temp_dir().join(format!("ortolan-graph-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // A file of holes: its length is real, its blocks are not.
    File::create(folder.join("weights")).unwrap().set_len(TENSORS as u64 * BYTES).unwrap();
    std::fs::write(folder.join("model.onnx"), model().encode_to_vec()).unwrap();
    let before = status("VmRSS");
    let graph = load(folder.join("model.onnx"), &LoadOptions::default());
    let took = status("VmRSS").saturating_sub(before);
    let graph = graph.unwrap();
    assert!(took < 100 << 20, "{took} bytes are resident");
    let large = graph.constants().iter().filter(|c| matches!(&c.data, Data::Mapped { len, .. } if *len == BYTES));
    assert_eq!(large.count(), TENSORS);
    // What was read can be handed back.
    let Data::Mapped { map, at, len } = &graph.constants()[0].data else { panic!() };
    assert!(graph.constants()[0].bytes().iter().all(|b| *b == 0));
    let read = status("RssFile");
    map.release(*at, *len);
    assert!(status("RssFile") + BYTES / 2 < read);
    assert_eq!(graph.constants()[0].bytes()[0], 0);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A chain of products with matrices of the file.
fn model() -> ModelProto {
    let entry = |k: &str, v: String| StringStringEntryProto { key: k.to_owned(), value: v };
    let weights = |i: usize| TensorProto {
        name: format!("w{i}"),
        dims: vec![5120, 5120],
        data_type: 1,
        data_location: DATA_EXTERNAL,
        external_data: vec![
            entry("location", "weights".to_owned()),
            entry("offset", (i as u64 * BYTES).to_string()),
            entry("length", BYTES.to_string()),
        ],
        ..Default::default()
    };
    let node = |i: usize| NodeProto {
        op_type: "MatMul".to_owned(),
        input: vec![format!("x{i}"), format!("w{i}")],
        output: vec![format!("x{}", i + 1)],
        ..Default::default()
    };
    let dims = [1, 5120].map(|d| ortolan_graph::proto::Dimension {
        value: Some(ortolan_graph::proto::DimValue::Size(d)),
        denotation: String::new(),
    });
    let tensor = type_proto::Tensor { elem_type: 1, shape: Some(TensorShapeProto { dim: dims.to_vec() }) };
    let ty = TypeProto { value: Some(type_proto::Value::Tensor(tensor)), denotation: String::new() };
    let value = |name: String, ty| ValueInfoProto { name, r#type: ty, ..Default::default() };
    ModelProto {
        ir_version: 8,
        graph: Some(GraphProto {
            name: "chain".to_owned(),
            input: vec![value("x0".to_owned(), Some(ty))],
            output: vec![value(format!("x{TENSORS}"), None)],
            node: (0..TENSORS).map(node).collect(),
            initializer: (0..TENSORS).map(weights).collect(),
            ..Default::default()
        }),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        ..Default::default()
    }
}
