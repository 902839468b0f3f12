//! Files that are damaged, malicious or merely odd: each gets a coded answer with its place, quickly, without a panic,
//! and in at most 16 times its size and 64 MB of memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ortolan_graph::ir::Type;
use ortolan_graph::proto::{
    AttributeProto, DATA_EXTERNAL, DimValue, Dimension, FunctionProto, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, SparseTensorProto, StringStringEntryProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, attribute_type, type_proto,
};
use ortolan_graph::{Code, Error, Graph, LoadOptions, load, load_bytes};
use prost::Message;

/// Counts what is allocated, so that peaks can be told.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting beside it touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: the caller keeps to the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `ptr` came from `System.alloc` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peaks are of the whole process, so one file is loaded at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Loads bytes and checks what that took.
fn load_within(bytes: Vec<u8>) -> Result<Graph, Error> {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let size = bytes.len();
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let done = load_bytes(bytes, None, &LoadOptions::default());
    let took = PEAK.load(Relaxed).saturating_sub(before);
    assert!(took <= 16 * size + (64 << 20), "{took} bytes for a file of {size}");
    done
}

fn text(s: &str) -> String {
    s.to_owned()
}

fn tensor_type(dims: &[DimValue]) -> Option<TypeProto> {
    let dim = dims.iter().map(|d| Dimension { value: Some(d.clone()), denotation: text("") }).collect();
    let shape = Some(TensorShapeProto { dim });
    let value = Some(type_proto::Value::Tensor(type_proto::Tensor { elem_type: 1, shape }));
    Some(TypeProto { value, denotation: text("") })
}

fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dims: Vec<DimValue> = dims.iter().map(|d| DimValue::Size(*d)).collect();
    ValueInfoProto { name: text(name), r#type: tensor_type(&dims), ..Default::default() }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |list: &[&str]| list.iter().map(|n| text(n)).collect();
    NodeProto { op_type: text(op), input: names(inputs), output: names(outputs), ..Default::default() }
}

fn graph(nodes: Vec<NodeProto>) -> GraphProto {
    GraphProto {
        name: text("g"),
        node: nodes,
        input: vec![value("x", &[2, 3])],
        output: vec![ValueInfoProto { name: text("y"), ..Default::default() }],
        ..Default::default()
    }
}

fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: 8,
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: text(""), version: 17 }],
        ..Default::default()
    }
}

fn good() -> ModelProto {
    let weights = TensorProto {
        name: text("w"),
        dims: vec![3, 2],
        data_type: 1,
        raw_data: Some(vec![0; 24].into()),
        ..Default::default()
    };
    let mut g = graph(vec![node("MatMul", &["x", "w"], &["h"]), node("Relu", &["h"], &["y"])]);
    g.initializer = vec![weights];
    model(g)
}

fn changed(change: impl FnOnce(&mut ModelProto, &mut GraphProto)) -> ModelProto {
    let mut m = good();
    let mut g = m.graph.take().unwrap();
    change(&mut m, &mut g);
    ModelProto { graph: Some(g), ..m }
}

/// What a case may come to.
enum Want {
    /// An error with this code whose text holds all of these.
    Error(Code, &'static [&'static str]),
    /// It loads, with a warning that holds this.
    Warning(&'static str),
    /// It loads without a word.
    Good,
}

/// Far above what any case takes, and far below what an exponential walk would.
const PATIENCE: Duration = Duration::from_secs(20);

use Want::{Error as Refused, Good, Warning};

#[test]
fn damaged_and_malicious_models() {
    let sized = |name: &str, dims: &[i64]| value(name, dims);
    let cases: Vec<(&str, ModelProto, Want)> = vec![
        ("good", good(), Good),
        ("no graph", ModelProto::default(), Refused(Code::MissingGraph, &["no graph"])),
        ("ring", changed(|_, g| g.node[0].input[0] = text("y")), Refused(Code::Cycle, &["MatMul", "Relu", "ring"])),
        ("not sorted", changed(|_, g| g.node.swap(0, 1)), Good),
        (
            "unknown value",
            changed(|_, g| g.node[0].input[1] = text("v")),
            Refused(Code::UnknownValue, &["MatMul", "input 1", "'v'"]),
        ),
        ("missing output", changed(|_, g| g.output[0].name = text("z")), Refused(Code::UnknownValue, &["'z'"])),
        ("two makers", changed(|_, g| g.node[1].output[0] = text("h")), Refused(Code::DuplicateName, &["'h'"])),
        ("input made again", changed(|_, g| g.node[1].output[0] = text("x")), Refused(Code::DuplicateName, &["'x'"])),
        (
            "two initializers",
            changed(|_, g| g.initializer.push(g.initializer[0].clone())),
            Refused(Code::DuplicateName, &["'w'"]),
        ),
        ("two inputs", changed(|_, g| g.input.push(g.input[0].clone())), Refused(Code::DuplicateName, &["'x'"])),
        (
            "short data",
            changed(|_, g| g.initializer[0].raw_data = Some(vec![0; 23].into())),
            Refused(Code::BadTensor, &["'w'", "24", "23"]),
        ),
        (
            "no data",
            changed(|_, g| g.initializer[0].raw_data = None),
            Refused(Code::BadTensor, &["'w'", "6", "float_data", "0"]),
        ),
        ("negative dim", changed(|_, g| g.initializer[0].dims = vec![-3, 2]), Refused(Code::BadTensor, &["'w'", "-3"])),
        (
            "overflowing dims",
            changed(|_, g| g.initializer[0].dims = vec![1 << 40, 1 << 40]),
            Refused(Code::BadTensor, &["'w'", "64-bit"]),
        ),
        (
            "element type from the future",
            changed(|_, g| g.initializer[0].data_type = 99),
            Refused(Code::BadTensor, &["'w'", "99"]),
        ),
        (
            "string as raw bytes",
            changed(|_, g| g.initializer[0].data_type = 8),
            Refused(Code::BadTensor, &["'w'", "string_data"]),
        ),
        (
            "input of overflowing dims",
            changed(|_, g| g.input[0] = sized("x", &[1 << 40, 1 << 40])),
            Refused(Code::BadType, &["'x'", "64-bit"]),
        ),
        ("input of a huge dim", changed(|_, g| g.input[0] = sized("x", &[i64::MAX])), Refused(Code::BadType, &["'x'"])),
        (
            "input of a negative dim",
            changed(|_, g| g.input[0] = sized("x", &[-2, 3])),
            Refused(Code::BadType, &["'x'", "-2"]),
        ),
        ("input of dim -1", changed(|_, g| g.input[0] = sized("x", &[-1, 3])), Good),
        ("input without type", changed(|_, g| g.input[0].r#type = None), Refused(Code::BadType, &["'x'", "no type"])),
        (
            "opset from the future",
            changed(|m, _| m.opset_import[0].version = 1_000),
            Refused(Code::Opset, &["1000", "ai.onnx", "newest", "28"]),
        ),
        ("opset 0", changed(|m, _| m.opset_import[0].version = 0), Refused(Code::Opset, &["version 0"])),
        (
            "two opsets of one domain",
            changed(|m, _| m.opset_import.push(OperatorSetIdProto { domain: text("ai.onnx"), version: 12 })),
            Refused(Code::Opset, &["17", "12"]),
        ),
        (
            "domain that is not imported",
            changed(|_, g| g.node[0].domain = text("own.ops")),
            Refused(Code::Opset, &["own.ops"]),
        ),
        ("IR from the future", changed(|m, _| m.ir_version = 99), Warning("99")),
        (
            "operator newer than the opset",
            changed(|_, g| g.node[1].op_type = text("Gelu")),
            Refused(Code::Opset, &["20", "17"]),
        ),
        ("unknown operator", changed(|_, g| g.node[1].op_type = text("Frobnicate")), Good),
        ("node without operator", changed(|_, g| g.node[1].op_type = text("")), Refused(Code::Malformed, &["'y'"])),
        (
            "too few inputs",
            changed(|_, g| g.node[0].input.truncate(1)),
            Refused(Code::NodeInputs, &["MatMul", "2", "1"]),
        ),
        (
            "wrong element type",
            changed(|_, g| g.node[1].op_type = text("Not")),
            Refused(Code::BadType, &["Not", "'h'", "bool"]),
        ),
        (
            "sizes that contradict",
            changed(|_, g| g.input[0] = sized("x", &[2, 4])),
            Refused(Code::Infer, &["MatMul", "4", "3"]),
        ),
        (
            "wrong declared shape",
            changed(|_, g| g.output[0] = sized("y", &[7, 7])),
            Warning("declared with dims [7, 7], but it has [2, 2]"),
        ),
        (
            "unknown attribute",
            changed(|_, g| g.node[0].attribute = vec![int_attr("alpha")]),
            Refused(Code::BadAttribute, &["MatMul", "'alpha'"]),
        ),
        (
            "attribute twice",
            changed(|_, g| g.node[0].attribute = vec![int_attr("a"), int_attr("a")]),
            Refused(Code::BadAttribute, &["'a'", "twice"]),
        ),
        (
            "attribute of no kind",
            changed(|_, g| g.node[0].attribute = vec![AttributeProto { name: text("a"), ..Default::default() }]),
            Refused(Code::BadAttribute, &["'a'", "kind"]),
        ),
        (
            "external data in a model from bytes",
            changed(|_, g| g.initializer[0] = outside("weights.bin", "0")),
            Refused(Code::ExternalData, &["'w'", "weights.bin", "path"]),
        ),
        ("sparse bomb", sparse_bomb(), Refused(Code::Limit, &["sparse"])),
        ("function bomb", function_bomb(), Refused(Code::Limit, &["functions"])),
        ("function that calls itself", ring_of_functions(), Refused(Code::Cycle, &["calls itself"])),
        ("nested graphs", nested(1000), Refused(Code::TooDeep, &["deep"])),
        ("nested loops", nested_loops(20), Good),
        ("a million nodes of nothing", empty_nodes(1_000_000), Refused(Code::Limit, &["16 times"])),
        ("many nodes without operator", empty_nodes(1_000), Refused(Code::Malformed, &["no operator"])),
        ("a long chain", chain(40_000), Good),
    ];
    let mut wrong = Vec::new();
    for (name, m, want) in cases {
        let bytes = m.encode_to_vec();
        let start = Instant::now();
        let found = load_within(bytes);
        let took = start.elapsed();
        if took > PATIENCE {
            wrong.push(format!("{name}: took {took:?}"));
        }
        let good = match (&want, &found) {
            (Refused(code, parts), Err(e)) => e.code() == *code && parts.iter().all(|p| e.to_string().contains(p)),
            (Warning(part), Ok(g)) => g.warnings().iter().any(|w| w.to_string().contains(part)),
            (Good, Ok(g)) => g.warnings().is_empty(),
            _ => false,
        };
        if !good {
            let found = match found {
                Err(e) => e.to_string(),
                Ok(g) => format!("loaded, warnings {:?}", g.warnings()),
            };
            wrong.push(format!("{name}: {found}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn int_attr(name: &str) -> AttributeProto {
    AttributeProto { name: text(name), r#type: attribute_type::INT, i: 1, ..Default::default() }
}

fn outside(location: &str, offset: &str) -> TensorProto {
    let entry = |k: &str, v: &str| StringStringEntryProto { key: text(k), value: text(v) };
    TensorProto {
        name: text("w"),
        dims: vec![3, 2],
        data_type: 1,
        data_location: DATA_EXTERNAL,
        external_data: vec![entry("location", location), entry("offset", offset)],
        ..Default::default()
    }
}

/// One value stands for a terabyte.
fn sparse_bomb() -> ModelProto {
    let int = |list: &[i64]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let values = TensorProto {
        name: text("s"),
        dims: vec![1],
        data_type: 1,
        raw_data: Some(vec![0; 4].into()),
        ..Default::default()
    };
    let indices = TensorProto { dims: vec![1], data_type: 7, raw_data: Some(int(&[5]).into()), ..Default::default() };
    let sparse = SparseTensorProto { values: Some(values), indices: Some(indices), dims: vec![1 << 38] };
    changed(|_, g| g.sparse_initializer = vec![sparse])
}

/// Each function calls the one before it ten times.
fn function_bomb() -> ModelProto {
    let functions = (0..12).map(|i| {
        let call = |k: i32| NodeProto {
            domain: text(if i == 0 { "" } else { "f" }),
            ..node(
                &if i == 0 { text("Neg") } else { format!("f{}", i - 1) },
                &[&format!("v{k}")],
                &[&format!("v{}", k + 1)],
            )
        };
        FunctionProto {
            name: format!("f{i}"),
            domain: text("f"),
            input: vec![text("v0")],
            output: vec![text("v10")],
            node: (0..10).map(call).collect(),
            opset_import: vec![OperatorSetIdProto { domain: text(""), version: 17 }, own_domain()],
            ..Default::default()
        }
    });
    let functions = functions.collect();
    changed(|m, g| {
        m.functions = functions;
        m.opset_import.push(own_domain());
        g.node[1] = NodeProto { domain: text("f"), ..node("f11", &["h"], &["y"]) };
    })
}

fn own_domain() -> OperatorSetIdProto {
    OperatorSetIdProto { domain: text("f"), version: 1 }
}

fn ring_of_functions() -> ModelProto {
    let f = |name: &str, other: &str| FunctionProto {
        name: text(name),
        domain: text("f"),
        input: vec![text("a")],
        output: vec![text("b")],
        node: vec![NodeProto { domain: text("f"), ..node(other, &["a"], &["b"]) }],
        opset_import: vec![own_domain()],
        ..Default::default()
    };
    changed(|m, g| {
        m.functions = vec![f("one", "two"), f("two", "one")];
        m.opset_import.push(own_domain());
        g.node[1] = NodeProto { domain: text("f"), ..node("one", &["h"], &["y"]) };
    })
}

fn body(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto { name: text(name), r#type: attribute_type::GRAPH, g: Some(g), ..Default::default() }
}

fn nested(depth: usize) -> ModelProto {
    let mut g = GraphProto { node: vec![node("Relu", &["x"], &["y"])], ..graph(Vec::new()) };
    for _ in 0..depth {
        let branch = body("then_branch", GraphProto { input: Vec::new(), ..g });
        g = graph(vec![NodeProto { attribute: vec![branch], ..node("If", &["x"], &["y"]) }]);
    }
    model(g)
}

/// Every level grows its carried value, so that every level has to be walked more than once.
fn nested_loops(depth: usize) -> ModelProto {
    let int64 = |name: &str| {
        let value =
            Some(type_proto::Value::Tensor(type_proto::Tensor { elem_type: 7, shape: Some(Default::default()) }));
        let ty = Some(TypeProto { value, denotation: text("") });
        ValueInfoProto { name: text(name), r#type: ty, ..Default::default() }
    };
    let name = |s: &str| ValueInfoProto { name: text(s), ..Default::default() };
    let mut inner = vec![NodeProto {
        attribute: vec![AttributeProto { i: 0, ..int_attr("axis") }],
        ..node("Concat", &["v0", "v0"], &["o0"])
    }];
    for level in 0..depth {
        let (v, o, c) = (format!("v{level}"), format!("o{level}"), format!("c{level}"));
        let g = GraphProto {
            name: format!("loop{level}"),
            node: inner,
            input: vec![name(&format!("i{level}")), name(&c), name(&v)],
            output: vec![name(&c), name(&o)],
            ..Default::default()
        };
        let (above, made) = (format!("v{}", level + 1), format!("o{}", level + 1));
        inner = vec![NodeProto { attribute: vec![body("body", g)], ..node("Loop", &["n", "", &above], &[&made]) }];
    }
    let made = format!("o{depth}");
    inner[0].input[2] = text("x");
    let mut g = graph(inner);
    g.input.push(int64("n"));
    g.output[0].name = made;
    model(g)
}

fn empty_nodes(count: usize) -> ModelProto {
    changed(|_, g| g.node = vec![NodeProto::default(); count])
}

fn chain(count: usize) -> ModelProto {
    let name = |i: usize| if i == 0 { text("x") } else { format!("{i}") };
    let mut nodes: Vec<NodeProto> = (0..count).map(|i| node("Neg", &[&name(i)], &[&name(i + 1)])).collect();
    nodes[count - 1].output[0] = text("y");
    model(graph(nodes))
}

#[test]
fn files_cut_at_every_byte() {
    let whole = good().encode_to_vec();
    for len in 0..whole.len() {
        let done = load_within(whole[..len].to_vec());
        assert!(done.is_err(), "cut at {len} of {}", whole.len());
    }
}

#[test]
fn files_with_a_flipped_byte() {
    let whole = good().encode_to_vec();
    for at in 0..whole.len() {
        for flip in [0x01, 0x10, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            let _ = load_within(bytes);
        }
    }
}

#[test]
fn random_bytes() {
    // A small generator with a fixed seed: xorshift64.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..5_000 {
        let len = next() as usize % 300;
        let bytes: Vec<u8> = (0..len).map(|_| next() as u8).collect();
        let _ = load_within(bytes);
    }
}

#[test]
fn an_empty_file_is_no_model() {
    let e = load_within(Vec::new()).unwrap_err();
    assert_eq!(e.code(), Code::MissingGraph, "{e}");
}

#[test]
fn names_that_are_not_utf_8() {
    let mut bytes = good().encode_to_vec();
    let at = bytes.windows(6).position(|w| w == b"MatMul").unwrap();
    bytes[at] = 0xff;
    let e = load_bytes(bytes, None, &LoadOptions::default()).unwrap_err();
    assert_eq!(e.code(), Code::Malformed);
    let said = e.to_string();
    assert!(said.contains("node[0]") && said.contains("op_type") && said.contains(&format!("byte {at}")), "{said}");
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ortolan-graph-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("model/sub")).unwrap();
        Folder(path)
    }

    fn load(&self, m: &ModelProto) -> Result<Graph, Error> {
        let path = self.0.join("model/m.onnx");
        std::fs::write(&path, m.encode_to_vec()).unwrap();
        load(path, &LoadOptions::default())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn external_data() {
    let folder = Folder::new("external");
    let data: Vec<u8> = (0..200).collect();
    for name in ["secret.bin", "model/w.bin", "model/sub/w.bin"] {
        std::fs::write(folder.0.join(name), &data).unwrap();
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../secret.bin", folder.0.join("model/link.bin")).unwrap();
        std::os::unix::fs::symlink("sub/w.bin", folder.0.join("model/inner.bin")).unwrap();
    }
    let absolute = folder.0.join("secret.bin").display().to_string();
    let cases: Vec<(&str, &str, Result<(), &str>)> = vec![
        ("w.bin", "0", Ok(())),
        ("./sub/w.bin", "3", Ok(())),
        ("w.bin", "176", Ok(())),
        ("w.bin", "177", Err("bytes 177 to 201")),
        ("w.bin", "18446744073709551615", Err("bytes 18446744073709551615")),
        ("w.bin", "-1", Err("offset '-1'")),
        ("w.bin", "x", Err("offset 'x'")),
        ("gone.bin", "0", Err("gone.bin")),
        ("", "0", Err("does not name a file")),
        ("sub", "0", Err("not a regular file")),
        ("../secret.bin", "0", Err("inside the model's folder")),
        ("sub/../../secret.bin", "0", Err("inside the model's folder")),
        ("..\\secret.bin", "0", Err("inside the model's folder")),
        (&absolute, "0", Err("inside the model's folder")),
        #[cfg(unix)]
        ("link.bin", "0", Err("leads out")),
        #[cfg(unix)]
        ("inner.bin", "0", Ok(())),
    ];
    for (location, offset, want) in cases {
        let found = folder.load(&changed(|_, g| g.initializer[0] = outside(location, offset)));
        match (want, found) {
            (Ok(()), Ok(_)) => {}
            (Err(part), Err(e)) => {
                let said = e.to_string();
                assert!(
                    e.code() == Code::ExternalData && said.contains(part) && said.contains("'w'"),
                    "{location}: {said}"
                );
            }
            (want, found) => panic!("{location} at {offset}: {want:?}, found {:?}", found.map(|_| ())),
        }
    }
}

#[test]
fn external_ranges_that_overlap() {
    let folder = Folder::new("overlap");
    std::fs::write(folder.0.join("model/w.bin"), [0; 100]).unwrap();
    for (second, good) in [("0", true), ("24", true), ("4", false), ("23", false)] {
        let m = changed(|_, g| {
            g.initializer = vec![outside("w.bin", "0"), TensorProto { name: text("v"), ..outside("w.bin", second) }];
            g.node[1] = node("Sum", &["w", "v"], &["y"]);
        });
        match folder.load(&m) {
            Ok(_) => assert!(good, "{second}"),
            Err(e) => assert!(!good && e.to_string().contains("overlap"), "{second}: {e}"),
        }
    }
}

#[test]
fn odd_but_good_models_keep_their_meaning() {
    let g = load_within(changed(|_, g| g.node[1].op_type = text("Frobnicate")).encode_to_vec()).unwrap();
    let y = g.value(g.main().outputs[0]);
    assert_eq!(y.ty, None);
    let g = load_within(changed(|_, g| g.input[0] = value("x", &[-1, 3])).encode_to_vec()).unwrap();
    let x = g.value(g.main().inputs[0]);
    let Some(Type::Tensor(t)) = &x.ty else { panic!() };
    let dims = t.dims.as_ref().unwrap();
    assert!(g.exprs().as_symbol(dims[0]).is_some() && g.exprs().as_const(dims[1]) == Some(3));
    for (listed, kept) in [(&["h"][..], 1), (&["h", ""], 1), (&["h", "", "h"], 3)] {
        let g = load_within(call_with(listed).encode_to_vec()).unwrap();
        let last = g.node(*g.live_nodes().last().unwrap());
        assert_eq!((&*last.op, last.inputs.len()), ("Clip", kept), "{listed:?}");
    }
}

/// A call of a function with two inputs that it may do without.
fn call_with(inputs: &[&str]) -> ModelProto {
    let names = ["a", "least", "most"];
    let function = FunctionProto {
        name: text("within"),
        domain: text("f"),
        input: names.map(text).to_vec(),
        output: vec![text("b")],
        node: vec![node("Clip", &names, &["b"])],
        opset_import: vec![OperatorSetIdProto { domain: text(""), version: 17 }],
        ..Default::default()
    };
    changed(|m, g| {
        m.functions = vec![function];
        m.opset_import.push(own_domain());
        g.node[1] = NodeProto { domain: text("f"), ..node("within", inputs, &["y"]) };
    })
}

/// What fuzzing found once stays found: an error, or a model that is the same after being written.
#[test]
fn models_that_fuzzing_found() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/found/model");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        count += 1;
        let Ok(graph) = load_within(std::fs::read(&path).unwrap()) else { continue };
        let written = ortolan_graph::write::to_bytes(&graph).unwrap();
        let again = load_within(written).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(graph.live_nodes().len(), again.live_nodes().len(), "{}", path.display());
    }
    assert!(count > 0);
}
