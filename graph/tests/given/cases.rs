//! The conformance cases of the `onnx` package: every model loads, every node has a rule, and inferred types and shapes are
//! those of the data that comes with the case, wherever data fixes them.

use std::path::{Path, PathBuf};

use ortolan_graph::ir::{SymbolKind, TensorType, Type, UNDEFINED, ValueId};
use ortolan_graph::proto::{ModelProto, TensorProto, TypeProto, type_proto};
use ortolan_graph::{Graph, LoadOptions, load, load_bytes, ops, text, write};
use prost::Message;

use crate::{Given, said};

pub const ALL: &[Given] = &[
    Given { name: "every_case_loads_and_its_data_agree", needs: NEEDS, run: every_case_loads_and_its_data_agree },
    Given {
        name: "sizes_that_are_bound_later_give_the_same_shapes",
        needs: NEEDS,
        run: sizes_that_are_bound_later_give_the_same_shapes,
    },
];

const NEEDS: &[&str] = &["ORTOLAN_ONNX_CASES"];

/// The package has more; fewer mean that the folder is not whole.
const LEAST: usize = 1_960;

/// Outputs that have data to compare with, and how many of them may stay open.
const LEAST_OUTPUTS: usize = 2_000;
const MOST_UNKNOWN: usize = 256;
/// The same when no dim of an input is fixed before the run.
const MOST_UNKNOWN_FREE: usize = 398;

/// Cases that the graph crate cannot take, each with the reason. A case that loads although it is listed is a failure.
const REFUSED: &[(&str, &str)] = &[];

fn cases() -> Vec<PathBuf> {
    let root = said("ORTOLAN_ONNX_CASES");
    let folders = |path: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(path)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            .map(|e| e.unwrap().path())
            .collect()
    };
    let mut all: Vec<PathBuf> = folders(Path::new(&root)).iter().flat_map(|kind| folders(kind)).collect();
    all.retain(|p| p.join("model.onnx").is_file());
    all.sort();
    assert!(all.len() >= LEAST, "{} cases in {root}, {LEAST} are known", all.len());
    all
}

fn every_case_loads_and_its_data_agree() {
    let total = over_all(|case, name| {
        let listed = REFUSED.iter().any(|r| r.0 == name);
        match load(case.join("model.onnx"), &LoadOptions::default()) {
            Err(_) if listed => Ok(Count::default()),
            Err(e) => Err(e.to_string()),
            Ok(_) if listed => Err("it loads, but is listed as refused".to_owned()),
            Ok(g) => round_trips(&g).and_then(|()| compare(case, &g)),
        }
    });
    assert!(total.outputs >= LEAST_OUTPUTS && total.unknown <= MOST_UNKNOWN, "{total:?}");
}

/// The same models with no size of an input known until it is bound: rules over symbols say what rules over numbers do.
fn sizes_that_are_bound_later_give_the_same_shapes() {
    let total = over_all(|case, _| {
        let mut model = ModelProto::decode(std::fs::read(case.join("model.onnx")).unwrap().as_slice()).unwrap();
        for input in model.graph.iter_mut().flat_map(|g| &mut g.input) {
            if let Some(TypeProto { value: Some(type_proto::Value::Tensor(t)), .. }) = &mut input.r#type {
                t.shape.iter_mut().flat_map(|s| &mut s.dim).for_each(|d| d.value = None);
            }
        }
        let g = load_bytes(model.encode_to_vec(), Some(case), &LoadOptions::default()).map_err(|e| e.to_string())?;
        compare(case, &g)
    });
    assert!(total.outputs >= LEAST_OUTPUTS && total.unknown <= MOST_UNKNOWN_FREE, "{total:?}");
}

/// Runs a check over all cases and reports every failure at once.
fn over_all(check: impl Fn(&Path, &str) -> Result<Count, String>) -> Count {
    let (mut wrong, mut total) = (Vec::new(), Count::default());
    let all = cases();
    for case in &all {
        let name = case.file_name().unwrap().to_string_lossy();
        match check(case, &name) {
            Ok(count) => total.add(count),
            Err(e) => wrong.push(format!("{name}: {e}")),
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    println!("{} cases: {total:?}", all.len());
    total
}

/// What was compared.
#[derive(Debug, Default)]
struct Count {
    /// Outputs with data.
    outputs: usize,
    /// Outputs of which a dim or the rank stays open: their sizes depend on data.
    unknown: usize,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.outputs += other.outputs;
        self.unknown += other.unknown;
    }
}

/// A tensor file; `None` for sequences, optionals and maps.
fn data(path: &Path) -> Option<TensorProto> {
    let t = TensorProto::decode(std::fs::read(path).ok()?.as_slice()).ok()?;
    (t.data_type != 0 && t.dims.len() < 20).then_some(t)
}

fn compare(case: &Path, g: &Graph) -> Result<Count, String> {
    let mut count = Count::default();
    for id in g.live_nodes() {
        let node = g.node(id);
        if node.domain.is_empty() && ops::find("", &node.op).is_none() {
            return Err(format!("{} has no rule", node.place(g)));
        }
    }
    let data_set = case.join("test_data_set_0");
    let exprs = g.exprs();
    let mut symbols = vec![UNDEFINED; exprs.symbols().len()];
    for (i, &v) in g.main().inputs.iter().enumerate() {
        let found = data(&data_set.join(format!("input_{i}.pb")));
        if let (Some(found), Some(Type::Tensor(_))) = (found, &g.value(v).ty) {
            bind(g, v, &found, &mut symbols);
        }
    }
    let mut numbers = Vec::new();
    exprs.eval(&symbols, &mut numbers);
    for (i, &v) in g.main().outputs.iter().enumerate() {
        let value = g.value(v);
        let Some(TensorProto { data_type: dtype, dims, .. }) = data(&data_set.join(format!("output_{i}.pb"))) else {
            continue;
        };
        let Some(Type::Tensor(TensorType { dtype: own, dims: own_dims })) = &value.ty else {
            match &value.ty {
                None => return Err(format!("output {i} has no type")),
                Some(_) => continue,
            }
        };
        if own.number() != dtype {
            return Err(format!("output {i} is {own}, its data of type {dtype}"));
        }
        count.outputs += 1;
        let Some(own_dims) = own_dims else {
            count.unknown += 1;
            continue;
        };
        let inferred: Vec<i64> = own_dims.iter().map(|e| numbers[e.index()]).collect();
        count.unknown += usize::from(inferred.contains(&UNDEFINED));
        let agree = |(a, b): (&i64, &i64)| *a == UNDEFINED || a == b;
        if inferred.len() != dims.len() || !inferred.iter().zip(&dims).all(agree) {
            return Err(format!("output {i} is inferred as {inferred:?}, its data has {dims:?}"));
        }
    }
    for a in g.assumptions() {
        if numbers[a.holds.index()] == 0 {
            return Err(format!("{} assumes what does not hold: {}", g.node(a.node).place(g), a.what));
        }
    }
    Ok(count)
}

fn bind(g: &Graph, v: ValueId, data: &TensorProto, symbols: &mut [i64]) {
    let raw = data.raw_data.as_deref().unwrap_or_default();
    let elements: Vec<i64> = match data.data_type {
        7 => raw.as_chunks::<8>().0.iter().map(|c| i64::from_le_bytes(*c)).collect(),
        6 => raw.as_chunks::<4>().0.iter().map(|c| i32::from_le_bytes(*c).into()).collect(),
        _ => Vec::new(),
    };
    for (s, number) in g.exprs().symbols().iter().zip(symbols).filter(|(s, _)| s.value == v) {
        let list = if s.kind == SymbolKind::Dim { &data.dims } else { &elements };
        *number = list.get(s.at as usize).copied().unwrap_or(UNDEFINED);
    }
}

/// Written and read again the model is the same; so is its text.
fn round_trips(g: &Graph) -> Result<(), String> {
    let once = text::to_text(g);
    let again = text::from_text(&once).map_err(|e| format!("text: {e}"))?;
    if text::to_text(&again) != once {
        return Err("the text does not read back as it was".to_owned());
    }
    match write::to_bytes(g) {
        Ok(bytes) => {
            let read = load_bytes(bytes.clone(), None, &LoadOptions::default()).map_err(|e| format!("written: {e}"))?;
            let twice = write::to_bytes(&read).map_err(|e| e.to_string())?;
            if twice != bytes { Err("writing and reading does not settle".to_owned()) } else { Ok(()) }
        }
        // Nodes that are kept in versions of different opsets cannot stand in one file.
        Err(e) if e.code() == ortolan_graph::Code::Version => Ok(()),
        Err(e) => Err(format!("write: {e}")),
    }
}
