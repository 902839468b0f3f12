//! The node cases of the `onnx` package on a device: every case whose nodes the EP all takes must give the case's results.

use crate::Eps;
use ortolan::value::{Element, Tensor, Value};
use ortolan::{Input, Session};
use ortolan_graph::ir::{DType, Data, Type};
use ortolan_graph::proto::{GraphProto, IR_VERSION, ModelProto, OperatorSetIdProto, TensorProto};
use ortolan_graph::{Graph, LoadOptions};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Fewer passed cases on some device mean that claims were lost.
const LEAST: usize = 720;
/// Features that not every adapter has, and how a model shows that it needs them.
const FEATURES: &[(&str, Needs)] = &[("feature.shader-f16", holds_f16)];
type Needs = fn(&Graph) -> bool;

/// What became of a case.
enum Outcome {
    Passed,
    /// The EP does not take all of its nodes.
    NotTaken(String),
    Failed(String),
}

/// Runs all cases on all devices of an EP. What one device takes another takes as well, unless it lacks a feature.
pub fn all(devices: &[Eps], root: &Path) -> Result<(), String> {
    let filter = std::env::var("ORTOLAN_CASE").unwrap_or_default();
    let mut cases: Vec<PathBuf> = Vec::new();
    for kind in ["node", "simple", "pytorch-converted", "pytorch-operator"] {
        let entries = std::fs::read_dir(root.join(kind)).map_err(|e| format!("{kind}: {e}"))?;
        cases.extend(entries.flatten().map(|e| e.path()));
    }
    cases.retain(|c| c.join("model.onnx").is_file() && c.to_string_lossy().contains(&filter));
    cases.sort();
    let passed = devices.iter().map(|eps| on_one(eps, &cases, !filter.is_empty()));
    let passed = passed.collect::<Result<Vec<BTreeSet<&Path>>, String>>()?;
    let most: BTreeSet<&Path> = passed.iter().flatten().copied().collect();
    for (eps, passed) in devices.iter().zip(&passed) {
        let mut lacking: BTreeMap<&str, usize> = BTreeMap::new();
        for case in most.difference(passed) {
            *lacking.entry(lacks(eps, case)?).or_default() += 1;
        }
        for (feature, count) in lacking {
            println!("device {}: {count} more would be taken if the adapter had {feature}", eps.ordinal);
        }
    }
    match most.len() >= LEAST || !filter.is_empty() {
        true => Ok(()),
        false => Err(format!("only {} cases passed, {LEAST} are expected at least", most.len())),
    }
}

/// The cases that pass on a device. None may fail.
fn on_one<'c>(eps: &Eps, cases: &'c [PathBuf], tells: bool) -> Result<BTreeSet<&'c Path>, String> {
    let (mut passed, mut not_taken, mut failed) = (BTreeSet::new(), 0, Vec::new());
    for case in cases {
        let name = case.file_name().unwrap_or_default().to_string_lossy();
        match run(eps, case) {
            Outcome::Passed => {
                passed.insert(&**case);
            }
            Outcome::NotTaken(why) => {
                not_taken += 1;
                if tells {
                    println!("not taken: {name}: {why}");
                }
            }
            Outcome::Failed(why) => failed.push(format!("{name}: {why}")),
        }
    }
    let (device, all, right, wrong) = (eps.ordinal, cases.len(), passed.len(), failed.len());
    println!("device {device}: {all} cases: {right} passed, {wrong} failed, {not_taken} not taken");
    match failed.is_empty() {
        true => Ok(passed),
        false => Err(format!("{wrong} cases failed:\n{}", failed.join("\n"))),
    }
}

/// The feature that a case needs and a device has not.
fn lacks(eps: &Eps, case: &Path) -> Result<&'static str, String> {
    let graph = ortolan_graph::load(case.join("model.onnx"), &LoadOptions::default()).map_err(|e| e.to_string())?;
    for (feature, needs) in FEATURES {
        if needs(&graph) && eps.info(feature)? == "false" {
            return Ok(feature);
        }
    }
    Err(format!(
        "device {} does not take {}, which another one runs, and lacks no feature",
        eps.ordinal,
        case.display()
    ))
}

fn holds_f16(graph: &Graph) -> bool {
    let outputs = graph.live_nodes().into_iter().flat_map(|n| graph.node(n).outputs.iter().flatten().copied());
    let mut values = outputs.chain(graph.main().inputs.iter().copied());
    values.any(|v| matches!(&graph.value(v).ty, Some(Type::Tensor(t)) if t.dtype == DType::F16))
}

fn run(eps: &Eps, case: &Path) -> Outcome {
    let session = match Session::builder().eps([eps.device()]).threads(1).build(case.join("model.onnx")) {
        Ok(session) => session,
        Err(e) if e.is(ortolan::error::codes::UNPLACED) => return Outcome::NotTaken(e.to_string()),
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let nodes = &session.report().nodes;
    if nodes.iter().any(|n| n.place == "later") {
        return Outcome::NotTaken("ranks are not known ahead".to_owned());
    }
    if nodes.iter().all(|n| n.place != "ep") {
        return Outcome::NotTaken("no node is run by an EP".to_owned());
    }
    match compare(&session, &case.join("test_data_set_0")) {
        Ok(()) => Outcome::Passed,
        Err(why) => Outcome::Failed(why),
    }
}

fn compare(session: &Session, data: &Path) -> Result<(), String> {
    let mut inputs: Vec<(String, Input<'_>)> = Vec::new();
    for (k, info) in session.inputs().iter().enumerate() {
        if let Some(tensor) = read(&data.join(format!("input_{k}.pb")))? {
            inputs.push((info.name.clone(), Input::Moved(Value::Tensor(tensor))));
        }
    }
    let outputs = session.run(inputs).map_err(|e| e.to_string())?;
    for (k, info) in session.outputs().iter().enumerate() {
        let Some(want) = read(&data.join(format!("output_{k}.pb")))? else { continue };
        let found = outputs.get(&info.name).ok_or_else(|| format!("there is no output {}", info.name))?;
        same(found.as_tensor().map_err(|e| e.to_string())?, &want).map_err(|e| format!("{}: {e}", info.name))?;
    }
    Ok(())
}

/// A tensor file, read as the only constant of a model; `None` if there is none, or no tensor in it.
fn read(path: &Path) -> Result<Option<Tensor>, String> {
    let Ok(bytes) = std::fs::read(path) else { return Ok(None) };
    let Ok(tensor) = TensorProto::decode(&bytes[..]) else { return Ok(None) };
    let graph = GraphProto { initializer: vec![TensorProto { name: "tensor".into(), ..tensor }], ..Default::default() };
    let opset = OperatorSetIdProto { domain: String::new(), version: 21 };
    let model =
        ModelProto { ir_version: IR_VERSION, opset_import: vec![opset], graph: Some(graph), ..Default::default() };
    let graph = ortolan_graph::load_bytes(model.encode_to_vec(), None, &LoadOptions::default());
    let graph = graph.map_err(|e| e.to_string())?;
    let constant = graph.constants().first().ok_or("the file holds no tensor")?;
    let tensor = match &constant.data {
        Data::Strings(texts) => Tensor::strings(&constant.dims, texts),
        data => Tensor::from_bytes(constant.dtype, &constant.dims, data.bytes()),
    };
    tensor.map(Some).map_err(|e| e.to_string())
}

/// Type, dimensions and elements; floats as closely as the cases themselves ask for.
fn same(found: &Tensor, want: &Tensor) -> Result<(), String> {
    if (found.dtype(), found.shape()) != (want.dtype(), want.shape()) {
        return Err(format!(
            "it is {} {:?}, expected {} {:?}",
            found.dtype(),
            found.shape(),
            want.dtype(),
            want.shape()
        ));
    }
    let (a, b) = match (numbers(found)?, numbers(want)?) {
        (Some(a), Some(b)) => (a, b),
        _ if found.bytes().ok() == want.bytes().ok() => return Ok(()),
        _ => return Err("bytes differ".to_owned()),
    };
    let (rtol, atol) = if want.dtype() == DType::F16 { (2e-3, 1e-3) } else { (1e-3, 1e-6) };
    let close = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= atol + rtol * y.abs();
    match a.iter().zip(&b).position(|(&x, &y)| !close(x, y)) {
        Some(at) => Err(format!("element {at} is {}, expected {}", a[at], b[at])),
        None => Ok(()),
    }
}

fn numbers(tensor: &Tensor) -> Result<Option<Vec<f64>>, String> {
    fn of<T: Element + Copy>(tensor: &Tensor, f: impl Fn(T) -> f64) -> Result<Option<Vec<f64>>, String> {
        Ok(Some(tensor.as_slice::<T>().map_err(|e| e.to_string())?.iter().map(|&x| f(x)).collect()))
    }
    match tensor.dtype() {
        DType::F32 => of::<f32>(tensor, f64::from),
        DType::I32 => of::<i32>(tensor, f64::from),
        DType::F16 => {
            let bytes = tensor.bytes().map_err(|e| e.to_string())?;
            Ok(Some(bytes.chunks_exact(2).map(|b| half(u16::from_le_bytes([b[0], b[1]]))).collect()))
        }
        _ => Ok(None),
    }
}

/// The number that half-precision bits mean.
fn half(bits: u16) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1.0 + fraction / 1024.0) * 2f64.powi(e - 15),
    };
    if sign == 1 { -size } else { size }
}
