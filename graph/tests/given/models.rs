//! Models that others made: they load, lose no node through upgrading, write and read back the same, and what stays open
//! of their shapes is what `docs/shapes.md` says.
//! `ORTOLAN_BLESS=1` writes the table anew.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use ortolan_graph::ir::{ExprId, ExprOp, ExprTable, Graph, Type};
use ortolan_graph::project::project;
use ortolan_graph::proto::{GraphProto, ModelProto};
use ortolan_graph::{LoadOptions, load, ops, text, write};
use prost::Message;

use crate::{Given, said};

pub const ALL: &[Given] = &[
    Given {
        name: "open_models_lose_no_node_to_an_ep_of_their_opsets",
        needs: OPEN,
        run: || lose_no_node(open_models()),
    },
    Given { name: "open_models_read_back_as_they_were_written", needs: OPEN, run: || read_back(open_models()) },
    Given {
        name: "the_table_of_open_shapes_is_that_of_the_docs",
        needs: OPEN,
        run: the_table_of_open_shapes_is_that_of_the_docs,
    },
    Given { name: "zoo_models_lose_no_node_to_an_ep_of_their_opsets", needs: ZOO, run: || lose_no_node(zoo()) },
    Given { name: "zoo_models_read_back_as_they_were_written", needs: ZOO, run: || read_back(zoo()) },
    Given { name: "fixed_zoo_models_have_no_open_dim", needs: ZOO, run: fixed_zoo_models_have_no_open_dim },
];

const OPEN: &[&str] = &["ORTOLAN_OPEN_MODELS"];
const ZOO: &[&str] = &["ORTOLAN_ZOO_MODELS"];

/// Models of a folder by name, in order; at least so many or the folder is not whole.
pub fn models_in(root: &Path, least: usize) -> Vec<(String, PathBuf)> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => open.push(path),
                Some(e) if e == "onnx" => {
                    let name = path.strip_prefix(root).unwrap().with_extension("");
                    found.push((name.to_string_lossy().into_owned(), path));
                }
                _ => {}
            }
        }
    }
    found.sort();
    assert!(found.len() >= least, "{} models in {}, {least} are known", found.len(), root.display());
    found
}

fn open_models() -> Vec<(String, PathBuf)> {
    models_in(Path::new(&said("ORTOLAN_OPEN_MODELS")), 43)
}

pub fn zoo() -> Vec<(String, PathBuf)> {
    models_in(Path::new(&said("ORTOLAN_ZOO_MODELS")), 21)
}

pub fn loaded(path: &Path) -> Graph {
    load(path, &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// An EP that states the opsets of a model is asked about all of its nodes.
pub fn lose_no_node(models: Vec<(String, PathBuf)>) {
    let mut wrong = Vec::new();
    for (name, path) in models {
        let g = loaded(&path);
        let p = project(&g, g.opsets(), &Default::default()).unwrap();
        let file = ModelProto::decode(std::fs::read(&path).unwrap().as_slice()).unwrap();
        let nodes = nodes_of(file.graph.as_ref().unwrap());
        let written = p.graph.live_nodes().len();
        if !p.refused.is_empty() || written != nodes {
            wrong.push(format!("{name}: {} refused, {written} nodes of {nodes}", p.refused.len()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Nodes of a file, those of bodies too, but for constants.
fn nodes_of(g: &GraphProto) -> usize {
    let own = g.node.iter().filter(|n| n.op_type != ops::CONSTANT);
    own.map(|n| 1 + n.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs)).map(nodes_of).sum::<usize>()).sum()
}

pub fn read_back(models: Vec<(String, PathBuf)>) {
    for (name, path) in models {
        let g = loaded(&path);
        let once = text::to_text(&g);
        let again = text::from_text(&once).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(text::to_text(&again) == once, "{name}: the text does not read back as it was");
        let model = write::to_model(&g).unwrap_or_else(|e| panic!("{name}: {e}"));
        let bytes = model.encode_to_vec();
        let read =
            ortolan_graph::load_bytes(bytes, None, &LoadOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(write::to_model(&read).unwrap() == model, "{name}: writing and reading does not settle");
    }
}

fn fixed_zoo_models_have_no_open_dim() {
    for (name, path) in zoo() {
        let g = loaded(&path);
        let survey = Survey::of(&g);
        assert_eq!((survey.data, survey.unranked), (0, 0), "{name}");
        let free = g.exprs().symbols().iter().any(|s| g.main().inputs.contains(&s.value));
        assert!(free || survey.sizes == 0, "{name}: {} values are not fixed", survey.sizes);
    }
}

/// How far the shapes of a model's values are known before it runs.
#[derive(Default)]
pub struct Survey {
    fixed: usize,
    /// They follow from the sizes of inputs.
    sizes: usize,
    /// They follow from what nodes find in data.
    pub data: usize,
    pub unranked: usize,
    /// Not tensors.
    other: usize,
    /// Operators that make the sizes that only a run can tell.
    causes: BTreeSet<String>,
}

impl Survey {
    pub fn of(g: &Graph) -> Survey {
        let mut s = Survey::default();
        for id in g.live_nodes() {
            for v in g.node(id).outputs.iter().flatten() {
                let dims = match &g.value(*v).ty {
                    Some(Type::Tensor(t)) => t.dims.as_ref(),
                    _ => {
                        s.other += 1;
                        continue;
                    }
                };
                let Some(dims) = dims else {
                    s.unranked += 1;
                    s.causes.extend(
                        Some(g.node(id).op.to_string()).filter(|_| g.node(id).def.is_some_and(|d| d.control.is_some())),
                    );
                    continue;
                };
                let owners: BTreeSet<_> =
                    dims.iter().flat_map(|d| owners(g.exprs(), *d)).map(|s| g.exprs().symbols()[s].value).collect();
                let inner: Vec<_> = owners.iter().filter(|v| !g.main().inputs.contains(v)).collect();
                match (owners.is_empty(), inner.is_empty()) {
                    (true, _) => s.fixed += 1,
                    (false, true) => s.sizes += 1,
                    (false, false) => s.data += 1,
                }
                let makers = inner.iter().filter_map(|v| g.value(**v).producer).map(|(n, _)| g.node(n).op.to_string());
                s.causes.extend(makers);
            }
        }
        s
    }
}

/// Indices of the symbols that an expression is made of.
fn owners(exprs: &ExprTable, e: ExprId) -> HashSet<usize> {
    let (mut found, mut seen, mut open) = (HashSet::new(), HashSet::new(), vec![e]);
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let e = exprs.get(id);
        open.extend(e.a.into_iter().chain(e.b));
        if e.op == ExprOp::Select {
            open.extend(u32::try_from(e.v).ok().and_then(ExprId::from_index));
        }
        found.extend(exprs.as_symbol(id).map(|s| s.index()));
    }
    found
}

fn the_table_of_open_shapes_is_that_of_the_docs() {
    let mut rows: BTreeMap<String, String> = BTreeMap::new();
    for (name, path) in open_models() {
        let s = Survey::of(&loaded(&path));
        let causes: Vec<String> = s.causes.into_iter().collect();
        let row = format!(
            "| {name} | {} | {} | {} | {} | {} | {} |\n",
            s.fixed,
            s.sizes,
            s.data,
            s.unranked,
            s.other,
            causes.join(", ")
        );
        rows.insert(name, row);
    }
    let table = format!("{HEAD}{}", rows.into_values().collect::<String>());
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/shapes.md");
    if std::env::var_os("ORTOLAN_BLESS").is_some() {
        std::fs::write(&docs, &table).unwrap();
    }
    let stated = std::fs::read_to_string(&docs).unwrap_or_default();
    assert!(stated == table, "docs/shapes.md is not up to date; ORTOLAN_BLESS=1 writes it:\n{table}");
}

const HEAD: &str = "\
# What is known of shapes before a run

How many values of each open model have fixed shapes after loading, shapes that follow from the sizes of the model's
inputs, shapes that follow from what a node finds in data, and not even a known rank. The last column names the operators that make
the sizes that only a run can tell: their outputs are as long as the data say, or they read an input of the model
as a size; an `If` or `Loop` whose branches or iterations differ in rank hides it until the branch is decided. Made by
the test `the_table_of_open_shapes_is_that_of_the_docs` of the graph crate.

| model | fixed | from input sizes | from data | no rank | not tensors | because of |
|---|---|---|---|---|---|---|
";
