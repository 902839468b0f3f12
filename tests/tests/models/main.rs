//! Models that others published, run on the repository's own EP and compared with what ONNX Runtime answers for them.
//!
//! `tests/models/manifest.json` pins the models, `golden.json` beside it holds the answers; `tests/scripts/models.py`
//! fetches the first and made the second. `ORTOLAN_PUBLISHED_MODELS` names the folder it fetched to; without it each
//! model counts as ignored. So does the cancelling of bert_base without `ORTOLAN_ZOO_MODELS`, a folder that has it.

mod cancel;

use libtest_mimic::{Arguments, Failed, Trial};
use ortolan::host::LoadedEp;
use ortolan::value::{Tensor, Value};
use ortolan::{Session, SessionEp};
use ortolan_graph::ir::DType;
use ortolan_tests::ep::load;
use ortolan_tests::place;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

const FOLDER: &str = "ORTOLAN_PUBLISHED_MODELS";
const ZOO: &str = "ORTOLAN_ZOO_MODELS";
/// Of the published models one whose run is long enough to be cancelled within.
const LONG: &str = "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer";

static EPS: LazyLock<Vec<Arc<LoadedEp>>> =
    LazyLock::new(|| place::renamed_plugins().iter().map(|path| load(path)).collect());

fn main() {
    let golden = read("golden.json");
    let mut trials = vec![trial("cancel bert_base".into(), ZOO, "bert_base", |file| {
        let ids = |name, range| json!({ "name": name, "dtype": "int64", "shape": [1, 128], "range": range });
        cancel::ends_in_time(file, &json!([ids("input_ids", [0, 30000]), ids("attention_mask", [1, 1])]))
    })];
    for model in read("manifest.json")["packages"].as_array().into_iter().flatten().flat_map(|p| list(&p["models"])) {
        let name = text(&model["name"]).to_owned();
        if name == LONG {
            let inputs = model["inputs"].clone();
            let cancelled = move |file: &Path| cancel::ends_in_time(file, &inputs);
            trials.push(trial(format!("cancel {name}"), FOLDER, &name, cancelled));
        }
        let answers = golden["models"][&name].clone();
        trials.push(trial(name.clone(), FOLDER, &name, move |file| answers_are_right(file, &model, &answers)));
    }
    assert!(trials.len() >= 22, "the manifest lost models");
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A test of a model in the folder that a variable names.
fn trial(
    name: String,
    variable: &str,
    model: &str,
    run: impl FnOnce(&Path) -> Result<(), String> + Send + 'static,
) -> Trial {
    let file = std::env::var_os(variable).map(|folder| PathBuf::from(folder).join(format!("{model}.onnx")));
    let kind = if file.is_none() { format!("needs {variable}") } else { String::new() };
    let ignored = file.is_none();
    let run = move || run(&file.unwrap_or_default()).map_err(Failed::from);
    Trial::test(name, run).with_kind(kind).with_ignored_flag(ignored)
}

fn read(name: &str) -> Json {
    let path = place::root().join("tests/models").join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn list(json: &Json) -> Vec<Json> {
    json.as_array().cloned().expect("a list")
}

fn text(json: &Json) -> &str {
    json.as_str().expect("a text")
}

fn number(json: &Json) -> f64 {
    json.as_f64().expect("a number")
}

fn shape(json: &Json) -> Vec<i64> {
    list(json).iter().map(|d| d.as_i64().expect("a size")).collect()
}

/// Every output: shape, mean, and values at the stated places.
fn answers_are_right(file: &Path, model: &Json, answers: &Json) -> Result<(), String> {
    let say = |e: ortolan::Error| e.to_string();
    let eps = EPS.iter().map(|ep| SessionEp::from(&**ep));
    let session = Session::builder().eps(eps).threads(2).build(file).map_err(say)?;
    let inputs = list(&model["inputs"]);
    let fed = inputs.iter().enumerate().map(|(k, x)| (text(&x["name"]), Value::Tensor(feed(x, k as u64 + 1))));
    let outputs = session.run(fed).map_err(say)?;
    let (rtol, atol) = (number(&model["rtol"]), number(&model["atol"]));
    let answers = answers.as_array().ok_or("golden.json has no answers: `models.py golden` makes them")?;
    for answer in answers {
        let name = text(&answer["name"]);
        let value = outputs.get(name).ok_or_else(|| format!("there is no output '{name}'"))?;
        if value.shape() != shape(&answer["shape"]) {
            return Err(format!("'{name}' is {:?}, expected {}", value.shape(), answer["shape"]));
        }
        let found = numbers(value).map_err(say)?;
        let close = |a: f64, b: f64| (a - b).abs() <= atol + rtol * b.abs();
        for (at, want) in list(&answer["at"]).iter().zip(list(&answer["samples"])) {
            let (at, want) = (number(at) as usize, number(&want));
            if !close(found[at], want) {
                return Err(format!("'{name}' is {} at {at}, expected {want}", found[at]));
            }
        }
        let (mean, want) = (found.iter().sum::<f64>() / found.len() as f64, number(&answer["mean"]));
        if !close(mean, want) {
            return Err(format!("the mean of '{name}' is {mean}, expected {want}"));
        }
    }
    Ok(())
}

fn numbers(value: &Value) -> ortolan::Result<Vec<f64>> {
    Ok(match value.as_tensor()?.dtype() {
        DType::F64 => value.as_slice::<f64>()?.to_vec(),
        DType::I64 => value.as_slice::<i64>()?.iter().map(|&x| x as f64).collect(),
        _ => value.as_slice::<f32>()?.iter().map(|&x| f64::from(x)).collect(),
    })
}

/// Numbers from one end of the range to the other; of integers both ends are drawn.
fn feed(input: &Json, seed: u64) -> Tensor {
    let dims = shape(&input["shape"]);
    let ends = list(&input["range"]);
    let (low, high) = (number(&ends[0]), number(&ends[1]));
    let draws = || (1..=dims.iter().product::<i64>() as u64).map(|k| draw(k, seed));
    let real = || draws().map(|u| low + u * (high - low));
    let whole = || draws().map(|u| low + (u * (high - low + 1.0)).floor());
    let tensor = match text(&input["dtype"]) {
        "float32" => Tensor::new(&dims, real().map(|x| x as f32).collect::<Vec<_>>()),
        "float64" => Tensor::new(&dims, real().collect::<Vec<_>>()),
        "int32" => Tensor::new(&dims, whole().map(|x| x as i32).collect::<Vec<_>>()),
        "int64" => Tensor::new(&dims, whole().map(|x| x as i64).collect::<Vec<_>>()),
        other => panic!("no numbers of type {other} are drawn here"),
    };
    tensor.expect("as many numbers as the shape says")
}

/// The k-th number of SplitMix64 (Steele, Lea and Flood, 2014) from this seed, from 0 to 1; as `models.py` draws it.
fn draw(k: u64, seed: u64) -> f64 {
    let z = k.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
