//! The node cases of the `onnx` package on a device: every case whose nodes the EP all takes must give the case's results.

use crate::Eps;
use ortolan::value::{Element, Tensor, Value};
use ortolan::{Input, Session};
use ortolan_graph::LoadOptions;
use ortolan_graph::ir::{DType, Data};
use ortolan_graph::proto::{GraphProto, IR_VERSION, ModelProto, OperatorSetIdProto, TensorProto};
use prost::Message;
use std::path::{Path, PathBuf};

/// Fewer passed cases mean that claims were lost. Some need f16, which not every adapter has.
const LEAST: usize = 670;
const LEAST_WITH_F16: usize = 690;
/// A case that says whether an adapter has f16.
const F16: &str = "test_cast_FLOAT16_to_FLOAT";

/// What became of a case.
enum Outcome {
    Passed,
    /// The EP does not take all of its nodes.
    NotTaken(String),
    Failed(String),
}

/// Runs all cases.
pub fn all(eps: &Eps, root: &Path) -> Result<(), String> {
    let filter = std::env::var("ORTOLAN_CASE").unwrap_or_default();
    let mut cases: Vec<PathBuf> = Vec::new();
    for kind in ["node", "simple", "pytorch-converted", "pytorch-operator"] {
        let entries = std::fs::read_dir(root.join(kind)).map_err(|e| format!("{kind}: {e}"))?;
        cases.extend(entries.flatten().map(|e| e.path()));
    }
    cases.retain(|c| c.join("model.onnx").is_file() && c.to_string_lossy().contains(&filter));
    cases.sort();
    let (mut passed, mut not_taken, mut failed, mut has_f16) = (0, 0, Vec::new(), false);
    for case in &cases {
        let name = case.file_name().unwrap_or_default().to_string_lossy();
        match run(eps, case) {
            Outcome::Passed => {
                passed += 1;
                has_f16 |= name == F16;
            }
            Outcome::NotTaken(why) => {
                not_taken += 1;
                if !filter.is_empty() {
                    println!("not taken: {name}: {why}");
                }
            }
            Outcome::Failed(why) => failed.push(format!("{name}: {why}")),
        }
    }
    println!("{} cases: {passed} passed, {} failed, {not_taken} not taken", cases.len(), failed.len());
    if !failed.is_empty() {
        return Err(format!("{} cases failed:\n{}", failed.len(), failed.join("\n")));
    }
    let least = if has_f16 { LEAST_WITH_F16 } else { LEAST };
    match passed >= least || !filter.is_empty() {
        true => Ok(()),
        false => Err(format!("only {passed} cases passed, {least} are expected at least")),
    }
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
