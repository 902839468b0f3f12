//! `ortolan check`: which EP would run each node and why, against the caller's policies. Nothing is run.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use ortolan::error::codes::TAKEN_BY;
use ortolan::{EpAnswer, NOBODY, NodeReport, PartReport, Report};
use serde::Serialize;

use super::{count, print, print_json};
use crate::args::CheckArgs;
use crate::error::{Error, Result, is_file};
use crate::progress::Progress;
use crate::session::{Chosen, EpDocument};
use crate::show::decimal;
use crate::table;

#[derive(Serialize)]
struct Document<'a> {
    model: &'a Path,
    /// Every node has somebody who runs it, and every policy holds.
    ok: bool,
    placeable: bool,
    eps: Vec<EpDocument>,
    nodes: Vec<Node<'a>>,
    /// Ids of the nodes that nobody runs.
    unplaced: Vec<u32>,
    parts: &'a [PartReport],
    copies: usize,
    estimate_ns: Option<f64>,
    notes: &'a [String],
    policies: Vec<Policy>,
}

#[derive(Serialize)]
struct Node<'a> {
    id: u32,
    name: &'a str,
    op: &'a str,
    place: &'a str,
    ep: Option<&'a str>,
    device: Option<&'a str>,
    part: Option<usize>,
    cost_ns: Option<f64>,
    reason: String,
    /// What the EPs say that do not run it.
    answers: &'a [EpAnswer],
}

/// A limit that the caller set, and whether the placement keeps it.
#[derive(Debug, PartialEq, Serialize)]
struct Policy {
    policy: &'static str,
    ok: bool,
    message: String,
}

/// `ortolan check`: yes if every node has a place and every policy holds.
pub fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<bool> {
    let is_folder = args.model.is_dir();
    if !is_folder {
        is_file(&args.model)?;
    }
    let eps = Chosen::of(&args.session)?;
    if let Some(name) = &args.require_ep {
        eps.require(name)?;
    }
    if is_folder {
        return folder(args, &eps, out);
    }
    let report = eps.place(&args.model, &args.session)?;
    let document = document(&args.model, args, &eps, &report);
    if args.json {
        print_json(out, &document)?
    } else {
        print(out, &text(&document))?
    }
    Ok(document.ok)
}

fn document<'a>(model: &'a Path, args: &CheckArgs, eps: &'a Chosen, report: &'a Report) -> Document<'a> {
    let nodes: Vec<Node<'a>> = report.nodes.iter().map(|n| node(n, &report.eps, eps)).collect();
    let unplaced: Vec<u32> = report.nodes.iter().filter(|n| n.place == NOBODY).map(|n| n.id).collect();
    let policies = policies(args, report);
    let placeable = unplaced.is_empty();
    Document {
        model,
        ok: placeable && policies.iter().all(|p| p.ok),
        placeable,
        eps: eps.documents(report),
        nodes,
        unplaced,
        parts: &report.parts,
        copies: report.copies,
        estimate_ns: report.estimate_ns,
        notes: &report.notes,
        policies,
    }
}

fn node<'a>(n: &'a NodeReport, order: &[String], eps: &'a Chosen) -> Node<'a> {
    let ep = n.ep.as_deref();
    Node {
        id: n.id,
        name: &n.name,
        op: &n.op,
        place: n.place,
        ep,
        device: ep.and_then(|ep| eps.device(ep)),
        part: n.part,
        cost_ns: n.cost_ns,
        reason: reason(n, order),
        answers: &n.answers,
    }
}

/// Why the node is where it is, in a sentence without the node's name: what EPs say that come before its own.
fn reason(n: &NodeReport, order: &[String]) -> String {
    let said = |a: &EpAnswer| format!("{}: {} [{}]", a.ep, a.sentence, a.code);
    let place = |ep: &str| order.iter().position(|name| name == ep);
    let before = |a: &&EpAnswer| a.code != TAKEN_BY.name() && place(&a.ep) < n.ep.as_deref().and_then(place);
    match n.place {
        "ep" => {
            let list: Vec<String> = n.answers.iter().filter(before).map(|a| format!("not {}", said(a))).collect();
            if list.is_empty() { "the first EP that takes it".into() } else { list.join("; ") }
        }
        "later" => "placed at the first run, whose sizes tell its types".into(),
        "executor" => "control flow, which the core walks itself".into(),
        "constant" => "constant, evaluated where it is used".into(),
        NOBODY => n.answers.iter().map(said).collect::<Vec<_>>().join("; "),
        _ => "in the body of a node that an EP runs whole".into(),
    }
}

/// The caller's limits, in the order of the help.
fn policies(args: &CheckArgs, report: &Report) -> Vec<Policy> {
    let mut all = Vec::new();
    let main = args.require_ep.as_deref().or_else(|| report.eps.first().map(String::as_str));
    let elsewhere = report.nodes.iter().filter(|n| n.place == "ep" && n.ep.as_deref() != main).count();
    let (nodes, main) = (count(elsewhere, "node"), main.unwrap_or("the first EP"));
    if args.require_ep.is_some() || args.max_fallback_nodes.is_some() {
        let most = args.max_fallback_nodes.unwrap_or(0);
        let policy = if args.max_fallback_nodes.is_some() { "max-fallback-nodes" } else { "require-ep" };
        let message = format!("{nodes} on another EP than {main}, {most} allowed");
        all.push(Policy { policy, ok: elsewhere <= most, message });
    }
    if let Some(most) = args.max_copies {
        let message = format!("{} between memories, {most} allowed", copies(report.copies));
        all.push(Policy { policy: "max-copies", ok: report.copies <= most, message });
    }
    all
}

fn copies(n: usize) -> String {
    format!("{n} {}", if n == 1 { "copy" } else { "copies" })
}

fn text(d: &Document<'_>) -> String {
    let mut text = format!("{}: {}\n", d.model.display(), verdict(d));
    for ep in &d.eps {
        let _ = writeln!(text, "  {ep}");
    }
    let estimate =
        d.estimate_ns.map_or(String::new(), |ns| format!(", about {} ms by the EPs' own estimates", decimal(ns / 1e6)));
    let _ = writeln!(text, "  {}{estimate}", copies(d.copies));
    for p in &d.policies {
        let _ = writeln!(text, "  --{}: {}: {}", p.policy, if p.ok { "ok" } else { "NO" }, p.message);
    }
    for note in d.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    let mut table = table::new(&["NODE", "OPERATOR", "NAME", "PLACE", "REASON"], &[0]);
    let nobody_first = |n: &&Node<'_>| n.place != NOBODY;
    let mut nodes: Vec<&Node<'_>> = d.nodes.iter().collect();
    nodes.sort_by_key(nobody_first);
    for n in nodes {
        let part = n.part.map_or(String::new(), |p| format!(" (part {p})"));
        let place = format!("{}{part}", n.ep.unwrap_or(n.place));
        table.add_row([n.id.to_string(), n.op.to_owned(), n.name.to_owned(), place, n.reason.clone()]);
    }
    format!("{text}\n{}", table::text(&table))
}

fn verdict(d: &Document<'_>) -> String {
    match d.unplaced.len() {
        0 if d.ok => "every node has a place".to_owned(),
        0 => "every node has a place, but not within the limits that were given".to_owned(),
        n => format!("{} that no EP runs", count(n, "node")),
    }
}

#[derive(Serialize)]
struct FolderDocument<'a> {
    folder: &'a Path,
    ok: bool,
    models: Vec<Summary>,
}

/// One model of a folder.
#[derive(Serialize)]
struct Summary {
    model: PathBuf,
    ok: bool,
    nodes: usize,
    unplaced: usize,
    eps: Vec<EpDocument>,
    copies: usize,
    policies: Vec<Policy>,
    error: Option<String>,
}

/// All models below a folder: yes if each is one.
fn folder(args: &CheckArgs, eps: &Chosen, out: &mut dyn Write) -> Result<bool> {
    let files = models(&args.model)?;
    let progress = Progress::new("models", files.len() as u64);
    let mut models = Vec::with_capacity(files.len());
    for file in files {
        models.push(summary(file, args, eps));
        progress.step();
    }
    progress.done();
    let document = FolderDocument { folder: &args.model, ok: models.iter().all(|m| m.ok), models };
    if args.json {
        print_json(out, &document)?
    } else {
        print(out, &folder_text(&document))?
    }
    Ok(document.ok)
}

fn summary(file: PathBuf, args: &CheckArgs, eps: &Chosen) -> Summary {
    match eps.place(&file, &args.session) {
        Ok(report) => {
            let d = document(&file, args, eps, &report);
            let (ok, unplaced, copies) = (d.ok, d.unplaced.len(), d.copies);
            Summary {
                ok,
                nodes: d.nodes.len(),
                unplaced,
                copies,
                eps: d.eps,
                policies: d.policies,
                error: None,
                model: file,
            }
        }
        Err(e) => {
            let error = Some(format!("{} [{}]", e.message, e.code));
            Summary { model: file, ok: false, nodes: 0, unplaced: 0, eps: vec![], copies: 0, policies: vec![], error }
        }
    }
}

fn folder_text(d: &FolderDocument<'_>) -> String {
    let mut table = table::new(&["MODEL", "", "NODES", "WITHOUT EP", "COPIES", "NODES BY EP"], &[2, 3, 4]);
    for m in &d.models {
        let name = m.model.strip_prefix(d.folder).unwrap_or(&m.model).display().to_string();
        let by_ep: Vec<String> = m.eps.iter().map(|ep| format!("{} {}", ep.name, ep.nodes)).collect();
        let broken: Vec<&str> = m.policies.iter().filter(|p| !p.ok).map(|p| p.message.as_str()).collect();
        let last =
            m.error.clone().unwrap_or_else(|| [by_ep.join(", "), broken.join("; ")].join("  ").trim().to_owned());
        let verdict = if m.ok { "ok" } else { "NO" };
        table.add_row([name, verdict.into(), m.nodes.to_string(), m.unplaced.to_string(), m.copies.to_string(), last]);
    }
    let ok = d.models.iter().filter(|m| m.ok).count();
    format!("{}\n{ok} of {} models ok\n", table::text(&table), d.models.len())
}

/// All files below a folder that end in `.onnx`, sorted; links are not followed into folders.
fn models(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = |e: std::io::Error| {
            let message = format!("{}: cannot be read: {e}", folder.display());
            Error::usage(ortolan::host::codes::FILE_UNREADABLE, message)
        };
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "onnx") {
                found.push(path);
            }
        }
    }
    found.sort();
    if found.is_empty() {
        let message = format!("{}: there is no file that ends in .onnx below this folder", folder.display());
        return Err(Error::usage(ortolan::host::codes::FILE_NOT_FOUND, message));
    }
    Ok(found)
}
