//! `ortolan inspect`: what a model says of itself, and what inference finds out. It needs no EP.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use ortolan_graph::{Graph, LoadOptions};
use serde::Serialize;

use super::{count, print, print_json};
use crate::args::InspectArgs;
use crate::error::{Result, is_file};
use crate::port::Port;
use crate::table;

#[derive(Serialize)]
struct Document<'a> {
    model: &'a Path,
    ir_version: i64,
    opsets: Vec<Opset<'a>>,
    producer: &'a str,
    producer_version: &'a str,
    domain: &'a str,
    model_version: i64,
    graph: &'a str,
    description: &'a str,
    metadata: serde_json::Map<String, serde_json::Value>,
    inputs: Vec<PortDocument>,
    outputs: Vec<PortDocument>,
    nodes: usize,
    graphs: usize,
    operators: Vec<Operator>,
    parameters: Parameters,
    warnings: Vec<Warning<'a>>,
}

#[derive(Serialize)]
struct Opset<'a> {
    domain: &'a str,
    version: u32,
}

/// An input or output in a document.
#[derive(Serialize)]
pub(super) struct PortDocument {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    dtype: Option<&'static str>,
    shape: Option<Vec<serde_json::Value>>,
    optional: bool,
}

impl From<&Port> for PortDocument {
    fn from(port: &Port) -> PortDocument {
        PortDocument {
            name: port.name.clone(),
            ty: port.ty.to_string(),
            dtype: port.ty.dtype().map(|d| d.name()),
            shape: port.ty.dims().map(|dims| dims.iter().map(crate::port::Dim::json).collect()),
            optional: port.optional,
        }
    }
}

#[derive(Serialize)]
struct Operator {
    domain: String,
    op: String,
    count: usize,
}

#[derive(Serialize)]
struct Parameters {
    constants: usize,
    elements: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Warning<'a> {
    place: &'a str,
    message: &'a str,
}

/// `ortolan inspect`
pub fn run(args: &InspectArgs, out: &mut dyn Write) -> Result<bool> {
    is_file(&args.model)?;
    let graph = ortolan_graph::load(&args.model, &LoadOptions::default())?;
    let document = document(&args.model, &graph);
    if args.json {
        print_json(out, &document)?;
    } else {
        print(out, &text(&document))?;
    }
    Ok(true)
}

fn document<'a>(model: &'a Path, graph: &'a Graph) -> Document<'a> {
    let info = graph.info();
    let constants = graph.constants();
    let ports = |ports: &[Port]| ports.iter().map(PortDocument::from).collect();
    Document {
        model,
        ir_version: info.ir_version,
        opsets: graph.opsets().iter().map(|o| Opset { domain: domain(&o.domain), version: o.version }).collect(),
        producer: &info.producer_name,
        producer_version: &info.producer_version,
        domain: &info.domain,
        model_version: info.model_version,
        graph: &info.graph_name,
        description: &info.doc,
        metadata: info.metadata.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect(),
        inputs: ports(&Port::inputs(graph)),
        outputs: ports(&Port::outputs(graph)),
        nodes: graph.live_nodes().len(),
        graphs: graph.live_bodies().len(),
        operators: operators(graph),
        parameters: Parameters {
            constants: constants.len(),
            elements: constants.iter().map(|c| c.elements()).fold(0, u64::saturating_add),
            bytes: constants.iter().map(|c| c.dtype.bytes(c.elements()).unwrap_or(0)).fold(0, u64::saturating_add),
        },
        warnings: graph.warnings().iter().map(|w| Warning { place: &w.place, message: &w.message }).collect(),
    }
}

fn domain(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

/// How often each operator stands in the file, most often first. A node that was brought to a newer version counts as what
/// it was.
fn operators(graph: &Graph) -> Vec<Operator> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for id in graph.live_nodes() {
        let node = graph.node(id);
        let (domain, op) = match node.origin {
            Some(origin) if !seen.insert(origin) => continue,
            Some(origin) => (&graph.origin(origin).domain, &graph.origin(origin).op),
            None => (&node.domain, &node.op),
        };
        *counts.entry((domain.to_string(), op.to_string())).or_default() += 1;
    }
    let mut all: Vec<Operator> =
        counts.into_iter().map(|((d, op), count)| Operator { domain: domain(&d).to_owned(), op, count }).collect();
    all.sort_by_key(|o| std::cmp::Reverse(o.count));
    all
}

fn text(d: &Document<'_>) -> String {
    let mut text = format!("{}\n", d.model.display());
    let opsets: Vec<String> = d.opsets.iter().map(|o| format!("{} {}", o.domain, o.version)).collect();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {name:<12}{}", value.replace('\n', "\n              "));
        }
    };
    line("IR version", &d.ir_version.to_string());
    line("opsets", &opsets.join(", "));
    line("producer", format!("{} {}", d.producer, d.producer_version).trim());
    line("domain", d.domain);
    line("graph", d.graph);
    line("version", &if d.model_version == 0 { String::new() } else { d.model_version.to_string() });
    line("description", d.description);
    line("nodes", &format!("{} in {}", d.nodes, count(d.graphs, "graph")));
    let p = &d.parameters;
    line("parameters", &format!("{} in {}, {}", p.elements, count(p.constants, "constant"), bytes(p.bytes)));
    ports("inputs", &d.inputs, &mut text);
    ports("outputs", &d.outputs, &mut text);
    if !d.metadata.is_empty() {
        text += "\nmetadata\n";
        for (key, value) in &d.metadata {
            let value = value.as_str().unwrap_or_default();
            let start: String = value.chars().take(100).collect();
            let more = if start.len() < value.len() { "…" } else { "" };
            let _ = writeln!(text, "  {key}: {}{more}", start.escape_debug());
        }
    }
    let mut table = table::new(&["operators", ""], &[1]);
    for o in &d.operators {
        let name = if o.domain == "ai.onnx" { o.op.clone() } else { format!("{}::{}", o.domain, o.op) };
        table.add_row([format!("  {name}"), o.count.to_string()]);
    }
    let _ = write!(text, "\n{}", table::text(&table));
    for w in &d.warnings {
        let _ = write!(text, "\nwarning: {}: {}", w.place, w.message);
    }
    text + if d.warnings.is_empty() { "" } else { "\n" }
}

fn ports(title: &str, ports: &[PortDocument], text: &mut String) {
    let mut table = table::new(&[title, ""], &[]);
    for p in ports {
        table.add_row([
            format!("  {}", p.name),
            format!("{}{}", p.ty, if p.optional { ", may be left out" } else { "" }),
        ]);
    }
    let _ = write!(text, "\n{}", table::text(&table));
}

/// A size in the unit that suits it.
pub(super) fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} bytes"),
        1024..0x10_0000 => format!("{:.1} KiB", n as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", n as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", n as f64 / 1_073_741_824.0),
    }
}
