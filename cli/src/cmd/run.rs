//! `ortolan run`: runs a model once, shows where its nodes ran and what came out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::time::Instant;

use ortolan::error::codes::TAKEN_BY;
use ortolan::{EpAnswer, Report, RunOptions, Value};
use serde::Serialize;

use super::{count, print, print_json};
use crate::args::RunArgs;
use crate::error::{Error, Result};
use crate::session::{EpDocument, Opened, labels, owned};
use crate::show::{self, Shown, decimal};
use crate::{codes, feed, files, profile};

#[derive(Serialize)]
struct Document {
    model: String,
    eps: Vec<EpDocument>,
    threads: u32,
    nodes: usize,
    copies: usize,
    /// Nodes that do not run on the first EP, by operator and reason.
    fallback: Vec<Fallback>,
    load_ms: f64,
    run_ms: f64,
    /// Of `--random-inputs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    outputs: Vec<Shown>,
}

/// Nodes of one operator that an EP runs because those before it do not.
#[derive(Debug, PartialEq, Serialize)]
struct Fallback {
    op: String,
    count: usize,
    ep: String,
    not: Vec<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Answer {
    ep: String,
    code: String,
    sentence: String,
}

/// `ortolan run`
pub fn run(args: &RunArgs, out: &mut dyn Write) -> Result<bool> {
    let opened = Opened::open(&args.feed)?;
    let feed = feed::gather(&args.feed, &opened.inputs)?;
    let options = RunOptions { timeout: args.feed.timeout, profile: args.profile.is_some(), ..RunOptions::default() };
    let start = Instant::now();
    let outputs = opened.run(&feed, &options)?;
    let run_ms = start.elapsed().as_secs_f64() * 1e3;
    if let (Some(path), Some(events)) = (&args.profile, outputs.profile()) {
        profile::write(path, events)?;
    }
    let outputs = owned(outputs);
    let report = opened.session.report();
    let document = Document {
        model: args.feed.model.display().to_string(),
        eps: opened.eps.documents(report),
        threads: opened.session.threads(),
        nodes: report.nodes.len(),
        copies: report.copies,
        fallback: fallback(report),
        load_ms: opened.load.as_secs_f64() * 1e3,
        run_ms,
        seed: (feed.len() > args.feed.input.len()).then_some(args.feed.seed),
        outputs: shown(args, &outputs)?,
    };
    if args.feed.json {
        print_json(out, &document)?
    } else {
        print(out, &text(&document))?
    }
    Ok(true)
}

/// Writes the outputs to files if that was asked for, and looks at each.
fn shown(args: &RunArgs, outputs: &[(String, Value)]) -> Result<Vec<Shown>> {
    let labels = labels(&args.feed.model);
    let mut shown = Vec::with_capacity(outputs.len());
    for (name, value) in outputs {
        let failed = |why| Error::usage(codes::OUTPUT_FILE, format!("output '{name}' cannot be shown: {why}"));
        shown.push(show::look(name, value, &labels).map_err(failed)?);
    }
    if let Some(dir) = &args.feed.output_dir {
        for (shown, path) in shown.iter_mut().zip(files::write_all(dir, outputs)?) {
            shown.file = Some(path.display().to_string());
        }
    }
    Ok(shown)
}

/// Nodes on another EP than the first, by operator and by what the others say.
fn fallback(report: &Report) -> Vec<Fallback> {
    let first = report.eps.first().map(String::as_str);
    let mut found: BTreeMap<(&str, &str, Vec<Answer>), usize> = BTreeMap::new();
    for n in &report.nodes {
        if let Some(ep) = n.ep.as_deref().filter(|ep| Some(*ep) != first) {
            let answer = |a: &EpAnswer| Answer { ep: a.ep.clone(), code: a.code.clone(), sentence: a.sentence.clone() };
            let not = n.answers.iter().filter(|a| a.code != TAKEN_BY.name()).map(answer).collect();
            *found.entry((&n.op, ep, not)).or_default() += 1;
        }
    }
    let one = |((op, ep, not), count): ((&str, &str, Vec<Answer>), usize)| Fallback {
        op: op.to_owned(),
        count,
        ep: ep.to_owned(),
        not,
    };
    found.into_iter().map(one).collect()
}

fn text(d: &Document) -> String {
    let mut text = String::new();
    for o in &d.outputs {
        text += &o.text();
    }
    let _ = writeln!(text, "\n{} ran {} in {} ms", d.model, count(d.nodes, "node"), decimal(d.run_ms));
    for ep in &d.eps {
        let _ = writeln!(text, "  {ep}");
    }
    for f in &d.fallback {
        let why: Vec<String> =
            f.not.iter().map(|a| format!("{} does not: {} [{}]", a.ep, a.sentence, a.code)).collect();
        let _ = writeln!(text, "  {} {} on {}: {}", f.count, f.op, f.ep, why.join("; "));
    }
    if let Some(seed) = d.seed {
        let _ = writeln!(text, "  random inputs, seed {seed}");
    }
    text
}
