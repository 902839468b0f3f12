//! Loads a model and writes it again: `convert IN OUT` in the newest forms, `convert IN OUT 17` as an EP of opset 17
//! reads it, `convert IN OUT own` as one that states the model's own opsets does. Prints the nodes that could not be written.

use std::collections::HashSet;
use std::process::ExitCode;

use ortolan_graph::ir::Opset;
use ortolan_graph::project::project;
use ortolan_graph::{Graph, LoadOptions, load, write};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(from), Some(to)) = (args.first(), args.get(1)) else {
        eprintln!("usage: convert IN OUT [OPSET|own]");
        return ExitCode::from(2);
    };
    match convert(from, to, args.get(2).map(String::as_str)) {
        Ok(refused) => {
            println!("{refused} refused");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

fn convert(from: &str, to: &str, opset: Option<&str>) -> Result<usize, Box<dyn std::error::Error>> {
    let mut graph: Graph = load(from, &LoadOptions::default())?;
    let mut refused = 0;
    if let Some(wanted) = opset {
        let mut opsets: Vec<Opset> = graph.opsets().to_vec();
        if let Ok(version) = wanted.parse() {
            opsets.retain(|o| !o.domain.is_empty());
            opsets.push(Opset { domain: "".into(), version });
        }
        let projected = project(&graph, &opsets, &HashSet::new().into_iter().collect())?;
        for (id, why) in &projected.refused {
            println!("{}: {why}", projected.graph.node(*id).place(&projected.graph));
        }
        refused = projected.refused.len();
        graph = projected.graph;
    }
    std::fs::write(to, write::to_bytes(&graph)?)?;
    Ok(refused)
}
