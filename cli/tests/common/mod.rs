//! A place of its own for each test: the programs alone in a folder, an empty home, models made of messages.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};

use ortolan_graph::proto::{
    AttributeProto, DimValue, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use prost::Message;
use snapbox::cmd::Command;

/// A folder with the programs, in which nothing else is found.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        for (name, built) in
            [("ortolan", env!("CARGO_BIN_EXE_ortolan")), ("ortolan-probe", env!("CARGO_BIN_EXE_ortolan-probe"))]
        {
            let here = dir.path().join("bin").join(name);
            if std::fs::hard_link(built, &here).is_err() {
                std::fs::copy(built, &here).unwrap();
            }
        }
        Place { dir }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file and answers with its path as text.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    /// Writes a model.
    pub fn model(&self, name: &str, model: &ModelProto) -> String {
        self.file(name, model.encode_to_vec())
    }

    /// `ortolan` with these arguments, in this folder.
    pub fn ortolan<S: AsRef<str>>(&self, args: &[S]) -> Command {
        let redactions = {
            let mut r = snapbox::Redactions::new();
            r.insert("[DIR]", self.dir.path().to_owned()).unwrap();
            r
        };
        let assert = snapbox::Assert::new().action_env("ORTOLAN_BLESS").redact_with(redactions);
        let home = self.path("home");
        Command::new(self.path("bin/ortolan"))
            .with_assert(assert)
            .args(args.iter().map(AsRef::as_ref))
            .current_dir(self.dir.path())
            .env("HOME", &home)
            .env("XDG_DATA_HOME", home.join("data"))
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env_remove("ORTOLAN_EP_PATH")
            .env_remove("ORTOLAN_LOG")
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("LD_PRELOAD")
    }

    /// Exit status, standard output and standard error.
    pub fn answer<S: AsRef<str>>(&self, args: &[S]) -> (i32, String, String) {
        let output = self.ortolan(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().expect("not ended by a signal"), text(output.stdout), text(output.stderr))
    }

    /// The one JSON document that the command prints, with its exit status.
    pub fn json<S: AsRef<str>>(&self, args: &[S]) -> (i32, serde_json::Value) {
        let (status, out, err) = self.answer(args);
        (status, serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}")))
    }

    /// Compiles a plugin in C of the fixtures into the folder `eps` and answers with the folder.
    pub fn c_ep(&self, name: &str, source: &str, args: &[&str]) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = self.path("eps");
        std::fs::create_dir_all(&folder).unwrap();
        let output = std::process::Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args(["-std=c11", "-fPIC", "-shared", "-fvisibility=hidden", "-I"])
            .arg(root.join("ep-abi/include"))
            .args(args)
            .arg(root.join("tests/fixtures").join(source))
            .arg("-o")
            .arg(folder.join(format!("libortolan_ep_{name}.so")))
            .arg("-lm")
            .output()
            .expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder.display().to_string()
    }

    /// f32 Softmax and MatMul, by name `plain`.
    pub fn plain_ep(&self) -> String {
        self.c_ep("plain", "c-ep/plain.c", &[])
    }

    /// f32 Relu, by name `hostile`, with one fault of the list in its source.
    pub fn hostile_ep(&self, fault: &str) -> String {
        self.c_ep("hostile", "hostile/hostile.c", &[&format!("-DFAULT={fault}")])
    }
}

/// A dim by number or name.
fn dim(text: &str) -> Dimension {
    let value = text.parse().map_or_else(|_| DimValue::Name(text.to_owned()), DimValue::Size);
    Dimension { value: Some(value), ..Default::default() }
}

/// A value of an ONNX element type and dims between commas.
pub fn value(name: &str, elem_type: i32, dims: &str) -> ValueInfoProto {
    let dims = dims.split(',').filter(|d| !d.is_empty()).map(dim).collect();
    let shape = TensorShapeProto { dim: dims };
    let tensor = type_proto::Tensor { elem_type, shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::Tensor(tensor)), ..Default::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(ty), ..Default::default() }
}

/// A node of the standard domain.
pub fn node(op: &str, input: &[&str], output: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect();
    let name = format!("{}_{}", op.to_lowercase(), output[0]);
    NodeProto {
        op_type: op.to_owned(),
        name,
        input: names(input),
        output: names(output),
        attribute,
        ..Default::default()
    }
}

/// A f32 constant.
pub fn weights(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    let raw: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    TensorProto {
        name: name.to_owned(),
        data_type: 1,
        dims: dims.to_vec(),
        raw_data: Some(raw.into()),
        ..Default::default()
    }
}

/// A model of opset 17.
pub fn model(
    node: Vec<NodeProto>,
    input: Vec<ValueInfoProto>,
    output: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
) -> ModelProto {
    let graph = GraphProto { name: "g".into(), node, input, output, initializer, ..Default::default() };
    ModelProto {
        ir_version: 8,
        producer_name: "test".into(),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        graph: Some(graph),
        ..Default::default()
    }
}

/// softmax(x · w) of a `batch` × 2 input, with labels of its three classes.
pub fn classifier() -> ModelProto {
    let nodes = vec![node("MatMul", &["x", "w"], &["scores"], vec![]), node("Softmax", &["scores"], &["y"], vec![])];
    let w = weights("w", &[2, 3], &[1.0, 0.0, -1.0, 0.0, 4.0, 0.0]);
    let mut made = model(nodes, vec![value("x", 1, "batch,2")], vec![value("y", 1, "batch,3")], vec![w]);
    made.metadata_props = vec![StringStringEntryProto { key: "labels".into(), value: "cat, dog, owl".into() }];
    made
}
