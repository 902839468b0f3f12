//! Whole models on the device beside the same on the processor: results, where nodes run and why, and copies.

use crate::Eps;
use ortolan::value::{Tensor, Value};
use ortolan::{Model as Source, Outputs, Report, RunOptions, Session};
use ortolan_graph::ir::{DType, NodeId, Type};
use ortolan_graph::{Graph, LoadOptions};
use ortolan_tests::model::{self, Model, Random};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// Models that others published, as `tests/scripts/models.py` fetches them.
const PUBLISHED: &str = "ORTOLAN_PUBLISHED_MODELS";
/// Models that a person has: exported with seeded weights.
const ZOO: &str = "ORTOLAN_ZOO_MODELS";

/// Share of the nodes that compute floats which has to run on the device.
const SHARE: f64 = 0.9;

/// A model with what is expected of it.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    file: File,
    inputs: &'static [Feed],
    /// How far an output may be from the processor's, as a part of the largest one: sums are made in another order.
    tolerance: f64,
    /// Copies between memories in a run.
    copies: usize,
    /// Why a node is not on the device: operator, and what its refusal says. Nothing else is refused.
    refusals: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy)]
enum File {
    /// Made here.
    Made(fn() -> Model),
    /// In the folder that a variable names.
    In(&'static str, &'static str),
}

/// An input: name, type, dimensions, and the ends of a range.
type Feed = (&'static str, DType, &'static [i64], [f64; 2]);

const CASES: &[Case] = &[
    Case {
        name: "squeezenet",
        file: File::Made(squeezenet),
        inputs: &[("x", DType::F32, &[1, 3, 224, 224], [-2.0, 2.0])],
        tolerance: 1e-5,
        copies: 1,
        refusals: &[],
    },
    Case {
        name: "silero",
        file: File::In(PUBLISHED, "silero-vad/silero_vad_op18_ifless"),
        inputs: &[
            ("input", DType::F32, &[1, 576], [-0.5, 0.5]),
            ("sr", DType::I64, &[], [16000.0, 16000.0]),
            ("state", DType::F32, &[2, 1, 128], [-0.2, 0.2]),
        ],
        tolerance: 1e-5,
        copies: 1,
        refusals: &[],
    },
    Case {
        name: "rapidocr_det",
        file: File::In(PUBLISHED, "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer"),
        inputs: &[("x", DType::F32, &[1, 3, 320, 320], [-2.0, 2.4])],
        tolerance: 1e-4,
        copies: 1,
        refusals: &[],
    },
    Case {
        name: "mobilenet_v2",
        file: File::In(ZOO, "mobilenet_v2"),
        inputs: &[("x", DType::F32, &[1, 3, 224, 224], [-2.0, 2.0])],
        tolerance: 1e-5,
        copies: 1,
        refusals: &[],
    },
    Case {
        name: "resnet18",
        file: File::In(ZOO, "resnet18"),
        inputs: &[("x", DType::F32, &[1, 3, 224, 224], [-2.0, 2.0])],
        tolerance: 1e-5,
        copies: 1,
        refusals: &[],
    },
    Case {
        name: "minilm_l6",
        file: File::In(ZOO, "minilm_l6"),
        inputs: &[
            ("input_ids", DType::I64, &[1, 16], [1.0, 20000.0]),
            ("attention_mask", DType::I64, &[1, 16], [1.0, 1.0]),
        ],
        tolerance: 1e-5,
        copies: 2,
        refusals: &[("", "= i64 (input 0) has no kernel"), ("Range", "there is no kernel for this operator")],
    },
];

/// All cases, with the variable that is missing for those that cannot run.
pub fn all() -> impl Iterator<Item = (&'static Case, Option<&'static str>)> {
    CASES.iter().map(|case| match case.file {
        File::In(variable, _) => (case, std::env::var_os(variable).is_none().then_some(variable)),
        File::Made(_) => (case, None),
    })
}

/// Runs a case.
pub fn agrees(eps: &Eps, case: &Case) -> Result<(), String> {
    let say = |e: ortolan::Error| e.to_string();
    let (source, graph) = read(case)?;
    let host = Session::builder().eps(eps.host()).threads(2).build(source.clone()).map_err(say)?;
    let wanted = host.run(feeds(case)).map_err(say)?;
    drop(host);
    let all = std::iter::once(eps.device()).chain(eps.host());
    let session = Session::builder().eps(all).threads(2).build(source).map_err(say)?;
    let [floats, placed] = share(session.report(), &graph, case)?;
    let options = RunOptions { profile: true, ..RunOptions::default() };
    let mut farthest: f64 = 0.0;
    let mut copies = 0;
    let since = Instant::now();
    // Memory of the first run is used anew by the second.
    for _ in 0..2 {
        let found = session.run_with(feeds(case), &options).map_err(say)?;
        copies = found.profile().map_or(0, |p| p.events.iter().filter(|e| e.ep == "host" && e.name == "copy").count());
        farthest = farthest.max(distance(&found, &wanted)?);
    }
    println!(
        "{}: {placed} of {floats} float nodes on the device, {copies} copies, {farthest:.1e} of the largest output away, {:.0?} a run",
        case.name,
        since.elapsed() / 2
    );
    if farthest > case.tolerance {
        return Err(format!("an output is {farthest:e} of the largest away, allowed are {:e}", case.tolerance));
    }
    if (placed as f64) < SHARE * floats as f64 {
        return Err(format!("{placed} of {floats} float nodes are on the device"));
    }
    match copies <= case.copies {
        true => Ok(()),
        false => Err(format!("{copies} copies, expected are {} at most", case.copies)),
    }
}

fn read(case: &Case) -> Result<(Source, Graph), String> {
    let options = LoadOptions::default();
    match case.file {
        File::Made(make) => {
            let bytes = make().bytes();
            let graph = ortolan_graph::load_bytes(bytes.clone(), None, &options).map_err(|e| e.to_string())?;
            Ok((bytes.into(), graph))
        }
        File::In(variable, name) => {
            let folder = PathBuf::from(std::env::var_os(variable).unwrap_or_default());
            let path = folder.join(format!("{name}.onnx"));
            let graph = ortolan_graph::load(&path, &options).map_err(|e| e.to_string())?;
            Ok((path.into(), graph))
        }
    }
}

/// How many nodes compute floats, and how many of them the device runs. Each refusal is one that is expected.
fn share(report: &Report, graph: &Graph, case: &Case) -> Result<[usize; 2], String> {
    let device = report.eps.first().ok_or("there is no EP")?;
    // What passes made has no number in the file's graph; it counts as floats.
    let nodes: BTreeMap<u32, NodeId> = graph.live_nodes().into_iter().map(|n| (n.raw(), n)).collect();
    let is_float = |id: u32| {
        let Some(&id) = nodes.get(&id) else { return true };
        let output = graph.node(id).outputs.iter().flatten().next();
        match output.and_then(|&v| graph.value(v).ty.as_ref()) {
            Some(Type::Tensor(t)) => t.dtype.is_float(),
            _ => true,
        }
    };
    let mut found = [0; 2];
    for node in report.nodes.iter().filter(|n| matches!(n.place, "ep" | "later")) {
        let here = node.ep.as_ref() == Some(device);
        if is_float(node.id) {
            found[0] += 1;
            found[1] += usize::from(here);
        }
        let why = node.answers.iter().find(|a| &a.ep == device).map_or("", |a| a.sentence.as_str());
        let expected = |(op, part): &(&str, &str)| (op.is_empty() || *op == node.op) && why.contains(part);
        if !here && !case.refusals.iter().any(expected) {
            return Err(format!("{} '{}' is not on the device ({}): {why}", node.op, node.name, node.place));
        }
    }
    Ok(found)
}

/// The same numbers each time.
fn feeds(case: &Case) -> Vec<(&'static str, Value)> {
    let feed = |(seed, &(name, dtype, dims, [low, high])): (u64, &Feed)| {
        let mut random = Random(seed);
        let count = dims.iter().product::<i64>();
        let draws = (0..count).map(|_| random.below(1 << 20) as f64 / f64::from(1 << 20));
        let numbers: Vec<f64> = draws.map(|u| low + u * (high - low)).collect();
        let tensor = match dtype {
            DType::I64 => Tensor::new(dims, numbers.iter().map(|&x| x as i64).collect::<Vec<_>>()),
            _ => Tensor::new(dims, numbers.iter().map(|&x| x as f32).collect::<Vec<_>>()),
        };
        (name, Value::Tensor(tensor.expect("as many numbers as the shape says")))
    };
    (1..).zip(case.inputs).map(feed).collect()
}

/// The greatest difference, as a part of the largest number of the output.
fn distance(found: &Outputs, wanted: &Outputs) -> Result<f64, String> {
    let mut farthest: f64 = 0.0;
    for (name, want) in wanted.iter() {
        let found = found.get(name).ok_or_else(|| format!("there is no output {name}"))?;
        if found.shape() != want.shape() {
            return Err(format!("{name} is {:?}, expected {:?}", found.shape(), want.shape()));
        }
        let numbers = |v: &Value| v.as_slice::<f32>().map(<[f32]>::to_vec).map_err(|e| e.to_string());
        let (found, want) = (numbers(found)?, numbers(want)?);
        let largest = want.iter().fold(0f32, |m, x| m.max(x.abs()));
        let off = found.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        if !off.is_finite() || found.iter().any(|x| !x.is_finite()) || largest == 0.0 {
            return Err(format!("{name} compares with nothing: numbers are not finite, or all are 0"));
        }
        farthest = farthest.max(f64::from(off / largest));
    }
    Ok(farthest)
}

/// SqueezeNet 1.1 (Iandola et al., 2016) with weights that are the same each time: convolutions of three kinds, pooling,
/// concatenation.
fn squeezenet() -> Model {
    let relu_conv = |model: Model, from: &str, to: &str, [ins, outs, edge]: [i64; 3], lists: &[(&str, &[i64])]| {
        let mut weight = model::Tensor::random(&[outs, ins, edge, edge], outs as u64 + 3);
        // As large as leaves the size of values alone through a Relu.
        let scale = (6.0 / (ins * edge * edge) as f32).sqrt();
        weight.data.iter_mut().for_each(|w| *w *= scale);
        let (w, b, c) = (format!("{to}.w"), format!("{to}.b"), format!("{to}.c"));
        let mut bias = model::Tensor::random(&[outs], outs as u64 + 5);
        bias.data.iter_mut().for_each(|b| *b *= 0.1);
        let model = model.weight(&w, weight).weight(&b, bias);
        model.node_with_lists("Conv", &[from, &w, &b], &c, lists).node("Relu", &[&c], to)
    };
    let pool = |model: Model, from: &str, to: &str| {
        model.node_with_lists("MaxPool", &[from], to, &[("kernel_shape", &[3, 3]), ("strides", &[2, 2])])
    };
    let padded: &[(&str, &[i64])] = &[("pads", &[1, 1, 1, 1])];
    let fire = |model: Model, from: &str, to: &str, [ins, small, large]: [i64; 3]| {
        let (s, a, b) = (format!("{to}.s"), format!("{to}.1"), format!("{to}.3"));
        let model = relu_conv(model, from, &s, [ins, small, 1], &[]);
        let model = relu_conv(model, &s, &a, [small, large, 1], &[]);
        let model = relu_conv(model, &s, &b, [small, large, 3], padded);
        model.node_with("Concat", &[&a, &b], to, &[("axis", 1)])
    };
    let model = Model::new(17).input("x", &["1", "3", "224", "224"]);
    let model = pool(relu_conv(model, "x", "c1", [3, 64, 3], &[("strides", &[2, 2])]), "c1", "p1");
    let model = fire(fire(model, "p1", "f2", [64, 16, 64]), "f2", "f3", [128, 16, 64]);
    let model = pool(model, "f3", "p3");
    let model = fire(fire(model, "p3", "f4", [128, 32, 128]), "f4", "f5", [256, 32, 128]);
    let model = pool(model, "f5", "p5");
    let model = fire(fire(model, "p5", "f6", [256, 48, 192]), "f6", "f7", [384, 48, 192]);
    let model = fire(fire(model, "f7", "f8", [384, 64, 256]), "f8", "f9", [512, 64, 256]);
    let model = relu_conv(model, "f9", "c10", [512, 1000, 1], &[]);
    model.node("GlobalAveragePool", &["c10"], "a").node_with("Flatten", &["a"], "y", &[("axis", 1)]).output("y")
}
