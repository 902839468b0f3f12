//! A model whose one initializer lies in another file: any location, offset, length, type and dims.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ortolan_graph::proto::{
    DATA_EXTERNAL, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use ortolan_graph::{LoadOptions, load_bytes, write};

#[derive(Arbitrary, Debug)]
struct Input {
    entries: Vec<(Key, Value)>,
    data_type: i32,
    dims: Vec<i64>,
    twice: bool,
}

#[derive(Arbitrary, Debug)]
enum Key {
    Location,
    Offset,
    Length,
    Other(String),
}

#[derive(Arbitrary, Debug)]
enum Value {
    Path(Vec<Part>),
    Number(i64),
    /// Near the ends of the file.
    Small(u16),
    Text(String),
}

/// Pieces of paths, so that those that matter are found soon.
#[derive(Arbitrary, Debug)]
enum Part {
    File,
    Folder,
    Link,
    Secret,
    Up,
    Here,
    Slash,
    Root,
    Text(String),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Value::Path(parts) => parts.iter().map(Part::text).collect(),
            Value::Number(n) => n.to_string(),
            Value::Small(n) => n.to_string(),
            Value::Text(t) => t.clone(),
        }
    }
}

impl Part {
    fn text(&self) -> String {
        match self {
            Part::File => "w".to_owned(),
            Part::Folder => "a/".to_owned(),
            Part::Link => "link".to_owned(),
            Part::Secret => "secret".to_owned(),
            Part::Up => "../".to_owned(),
            Part::Here => "./".to_owned(),
            Part::Slash => "/".to_owned(),
            Part::Root => FOLDER.to_string_lossy().into_owned(),
            Part::Text(t) => t.clone(),
        }
    }
}

/// A folder with one file in it, and a secret beside the folder.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("ortolan-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(root.join("model/a")).unwrap();
    std::fs::write(root.join("model/a/w"), [7; 4096]).unwrap();
    std::fs::write(root.join("secret"), [42; 4096]).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("../secret", root.join("model/link")).unwrap();
    root.join("model")
});

fuzz_target!(|input: Input| {
    let key = |k: &Key| match k {
        Key::Location => "location".to_owned(),
        Key::Offset => "offset".to_owned(),
        Key::Length => "length".to_owned(),
        Key::Other(o) => o.clone(),
    };
    let external_data =
        input.entries.iter().map(|(k, v)| StringStringEntryProto { key: key(k), value: v.text() }).collect();
    let tensor = |name: &str| TensorProto {
        name: name.to_owned(),
        dims: input.dims.clone(),
        data_type: input.data_type,
        data_location: DATA_EXTERNAL,
        external_data,
        ..Default::default()
    };
    let mut initializer = vec![tensor("w")];
    if input.twice {
        initializer.push(TensorProto { name: "v".to_owned(), ..initializer[0].clone() });
    }
    let output = vec![ValueInfoProto { name: "w".to_owned(), ..Default::default() }];
    let graph = GraphProto { name: "g".to_owned(), initializer, output, ..Default::default() };
    let model = ModelProto {
        ir_version: 8,
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        ..Default::default()
    };
    let bytes = write::encode(&model);
    if let Ok(graph) = load_bytes(bytes, Some(&FOLDER), &LoadOptions::default()) {
        for c in graph.constants() {
            assert!(!c.bytes().contains(&42), "bytes from outside the folder");
        }
    }
});
