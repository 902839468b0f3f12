//! Graphs as EPs of older opsets read them: how many nodes such an EP is not asked about, and that what is written passes
//! `onnx.checker` and computes the same in ONNX Runtime.
//!
//! Fixtures are EPs that state opset 17 and 13. They are asked over models at their own opset and over re-exports at 23,
//! made by the version converter of the `onnx` package. The small models are made by `tests/scripts/architectures.py`.
//! Standard bodies are run on the data of the package's cases.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use ortolan_graph::ir::{Graph, Opset};
use ortolan_graph::project::project;
use ortolan_graph::{ops, write};

use crate::models::{Survey, loaded, lose_no_node, models_in, read_back, zoo};
use crate::{Given, said};

pub const ALL: &[Given] = &[
    Given { name: "architectures_are_asked_about_in_older_opsets", needs: PYTHON, run: architectures },
    Given { name: "zoo_models_are_asked_about_in_older_opsets", needs: ZOO, run: zoo_models },
    Given { name: "standard_bodies_compute_what_the_cases_say", needs: CASES, run: bodies },
];

const PYTHON: &[&str] = &["ORTOLAN_PYTHON"];
const ZOO: &[&str] = &["ORTOLAN_PYTHON", "ORTOLAN_ZOO_MODELS"];
const CASES: &[&str] = &["ORTOLAN_PYTHON", "ORTOLAN_ONNX_CASES"];

/// Opsets of the fixtures.
const FIXTURES: [u32; 2] = [17, 13];
/// Models, nodes refused at 17 and at 13, and the same of the re-export at 23. Models without a row lose no node.
type Row = (&'static str, [usize; 2], [usize; 2]);

const SMALL: &[Row] = &[
    ("attributes_10", [0, 0], [1, 1]),
    ("attributes_9", [0, 0], [1, 1]),
    ("decoder_23", [0, 1], [0, 1]),
    ("decoder_24", [0, 1], [0, 1]),
    ("detector_11", [0, 0], [1, 1]),
    ("detector_13", [0, 0], [1, 1]),
    ("detector_18", [1, 1], [1, 1]),
    ("detector_19", [1, 1], [1, 1]),
    ("encoder_13", [0, 0], [2, 2]),
    ("encoder_17", [0, 0], [2, 2]),
    ("later_18", [4, 4], [4, 4]),
    ("later_21", [4, 4], [4, 4]),
];

/// Means over axes that are an input, which older opsets have as an attribute.
const LARGE: &[Row] = &[
    ("convnext_tiny", [1, 1], [1, 1]),
    ("densenet121", [1, 1], [1, 1]),
    ("efficientnet_b0", [17, 17], [17, 17]),
    ("googlenet", [1, 1], [1, 1]),
    ("llama_small_nocache", [17, 17], [17, 17]),
    ("mnasnet1_0", [1, 1], [1, 1]),
    ("mobilenet_v2", [1, 1], [1, 1]),
    ("mobilenet_v2_int8_qdq", [1, 1], [1, 1]),
    ("mobilenet_v3_large", [9, 9], [9, 9]),
    ("regnet_y_400mf", [17, 17], [17, 17]),
    ("resnet18", [1, 1], [1, 1]),
    ("resnet50", [1, 1], [1, 1]),
    ("resnet50_int8_qdq", [1, 1], [1, 1]),
    ("shufflenet_v2_x1_0", [1, 1], [1, 1]),
    ("squeezenet1_1", [1, 1], [1, 1]),
    ("swin_t", [1, 1], [1, 1]),
];

fn architectures() {
    let folder = Scratch::new("architectures");
    script("architectures.py", &[&folder.0.join("own")]);
    let own = models_in(&folder.0.join("own"), 29);
    lose_no_node(own.clone());
    read_back(own.clone());
    sizes_follow_from_inputs(&own);
    let compared = asked(&folder, own, SMALL);
    assert!(compared >= 100, "{compared} forms were compared");
}

/// Kinds of models that have values whose sizes only data tell: boxes that are picked, rows of a loop.
const OPEN: &[&str] = &["control", "detector"];

fn sizes_follow_from_inputs(models: &[(String, PathBuf)]) {
    for (name, path) in models {
        let survey = Survey::of(&loaded(path));
        let open = OPEN.iter().any(|kind| name.starts_with(kind));
        assert_eq!((survey.data > 0, survey.unranked), (open, 0), "{name}");
    }
}

fn zoo_models() {
    let folder = Scratch::new("zoo");
    let compared = asked(&folder, zoo(), LARGE);
    assert!(compared >= 60, "{compared} forms were compared");
}

/// Asks the fixtures over models, each at its own opset and re-exported, and compares the counts with the rows. What loses
/// no node is run; says how many forms were.
fn asked(folder: &Scratch, models: Vec<(String, PathBuf)>, rows: &[Row]) -> usize {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (name, path) in models {
        let (source, forms) = (folder.0.join("source"), folder.0.join(name.replace('/', "_")));
        let later = folder.0.join("later");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::create_dir_all(&forms).unwrap();
        std::fs::copy(&path, source.join("model.onnx")).unwrap();
        script("reexport.py", &[&source, &later]);
        std::fs::rename(source.join("model.onnx"), forms.join("model.onnx")).unwrap();
        let later = later.join("model.onnx");
        let own = forms_of(&forms, "own", &forms.join("model.onnx"));
        let later_refused = if later.is_file() { forms_of(&forms, "later", &later) } else { own };
        let row = rows.iter().find(|r| r.0 == name).map_or(([0; 2], [0; 2]), |r| (r.1, r.2));
        if (own, later_refused) != row {
            wrong.push(format!("(\"{name}\", {own:?}, {later_refused:?}),"));
        }
        compared += same_results(std::slice::from_ref(&forms));
        std::fs::remove_dir_all(&forms).unwrap();
        let _ = std::fs::remove_file(&later);
    }
    assert!(wrong.is_empty(), "nodes that are refused:\n{}", wrong.join("\n"));
    compared
}

/// How many nodes each fixture is not asked about; what it is asked about whole is written beside.
fn forms_of(folder: &Path, form: &str, model: &Path) -> [usize; 2] {
    let g = loaded(model);
    write_form(&g, g.opsets(), &folder.join(format!("{form}_own.onnx")));
    FIXTURES.map(|version| {
        let opsets = [Opset { domain: "".into(), version }];
        write_form(&g, &opsets, &folder.join(format!("{form}_{version}.onnx")))
    })
}

fn write_form(g: &Graph, opsets: &[Opset], path: &Path) -> usize {
    let p = project(g, opsets, &Default::default()).unwrap();
    if p.refused.is_empty() {
        std::fs::write(path, write::to_bytes(&p.graph).unwrap()).unwrap();
    }
    p.refused.len()
}

/// Operators whose results are random: their cases have no data to compare with.
const RANDOM: &[&str] = &["Bernoulli"];
/// Cases of `bfloat16` that neither evaluator runs: ONNX Runtime has no such kernels on CPU, and the one of the package fails in
/// them or stacks the rows of a Loop wrongly, also in the case's own model.
const NOT_RUN: &[&str] = &[
    "test_attention_3d_causal_bf16_expanded",
    "test_attention_4d_attn_mask_causal_bf16_expanded",
    "test_attention_4d_causal_bf16_expanded",
    "test_attention_4d_causal_padded_kv_bf16_expanded",
    "test_attention_4d_padded_kv_bf16_expanded",
    "test_range_bfloat16_type_positive_delta",
];
/// Newest opset in which bodies are written, so that ONNX Runtime can read them.
const NEWEST: u32 = 21;

fn bodies() {
    let folder = Scratch::new("bodies");
    let cases = models_in(&Path::new(&said("ORTOLAN_ONNX_CASES")).join("node"), 1_800);
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    let mut folders = Vec::new();
    for (name, path) in cases {
        if NOT_RUN.iter().any(|n| Path::new(&name).parent() == Some(Path::new(n))) {
            continue;
        }
        let g = loaded(&path);
        let Some(op) = g.live_nodes().iter().find_map(|n| g.node(*n).def.filter(|d| d.body.is_some())) else {
            continue;
        };
        if RANDOM.contains(&op.name) {
            continue;
        }
        let forms = folder.0.join(name.replace('/', "_"));
        if expanded(&g, &forms) {
            std::fs::copy(&path, forms.join("model.onnx")).unwrap();
            for file in std::fs::read_dir(path.with_file_name("test_data_set_0")).unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), forms.join(file.file_name())).unwrap();
            }
            *tried.entry(op.name).or_default() += 1;
            folders.push(forms);
        }
    }
    let all: BTreeSet<&str> = ops::all().filter(|d| d.body.is_some()).map(|d| d.name).collect();
    let untried: Vec<_> = all.into_iter().filter(|op| !tried.contains_key(op) && !RANDOM.contains(op)).collect();
    assert!(untried.is_empty(), "no case runs the body of {untried:?}");
    let compared = same_results(&folders);
    println!("{compared} bodies: {tried:?}");
    assert!(compared >= 1_000, "{compared} bodies were compared: {tried:?}");
}

/// Writes the graph with its composite nodes written out, in the newest opset that is read and in the one before the operator.
fn expanded(g: &Graph, folder: &Path) -> bool {
    std::fs::create_dir_all(folder).unwrap();
    let composite = |g: &Graph| -> Vec<_> {
        g.live_nodes().into_iter().filter(|n| g.node(*n).def.is_some_and(|d| d.body.is_some())).collect()
    };
    let since = composite(g).into_iter().map(|n| g.node(n).holds.from).max().unwrap_or(1);
    let mut any = false;
    for version in BTreeSet::from([NEWEST, since.saturating_sub(1).clamp(13, NEWEST)]) {
        let mut g = g.clone();
        if !composite(&g).into_iter().all(|n| g.expand(n, version).unwrap_or(false)) {
            continue;
        }
        let opsets = [Opset { domain: "".into(), version }];
        any |= write_form(&g, &opsets, &folder.join(format!("at_{version}.onnx"))) == 0;
    }
    any
}

/// Runs all forms of the models in folders; how many were compared.
fn same_results(folders: &[PathBuf]) -> usize {
    let all: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    let said = script("same_results.py", &all);
    let last = said.lines().last().and_then(|l| l.strip_suffix(" compared")).and_then(|n| n.parse().ok());
    last.unwrap_or_else(|| panic!("{said}"))
}

/// What a script of `tests/scripts` prints.
fn script(name: &str, arguments: &[&Path]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scripts").join(name);
    let output = Command::new(said("ORTOLAN_PYTHON")).arg(path).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let out = text(&output.stdout);
    let bad: Vec<&str> = out.lines().filter(|l| !l.ends_with(": same")).collect();
    assert!(output.status.success(), "{name}: {}\n{}", bad.join("\n"), text(&output.stderr));
    out
}

/// A folder that is gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("graph-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
