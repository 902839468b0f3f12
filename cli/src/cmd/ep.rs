//! `ortolan ep`: what EPs there are, what one says of itself, and whether a library passes the checks.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use ortolan::codes::Code;
use ortolan::host::{Candidate, CatalogueRow, HostError, Place, Report, Request, device_code};
use serde::Serialize;

use super::{host, print, print_json};
use crate::args::{EpInfoArgs, EpListArgs, EpVerifyArgs, SearchArgs};
use crate::error::Result;
use crate::table;

mod steps;

/// `ortolan ep list`
pub fn list(args: &EpListArgs, out: &mut dyn Write) -> Result<bool> {
    let report = host(&args.search).discover();
    if args.json {
        print_json(out, &*report)?;
    } else {
        print(out, &list_text(&report))?;
    }
    Ok(true)
}

fn list_text(report: &Report) -> String {
    let mut text = match report.found.is_empty() {
        true => "No execution providers were found.\n".to_owned(),
        false => found_table(report),
    };
    text += &refused_text(report);
    for s in &report.shadowed {
        let _ = writeln!(
            text,
            "\nShadowed: {} in {}\n  {} in {} comes first",
            s.id,
            s.path.display(),
            s.by_id,
            s.by.display()
        );
    }
    text + "\nSearched, in this order:\n" + &places_text(&report.places)
}

fn found_table(report: &Report) -> String {
    let mut table = table::new(&["NAME", "VERSION", "DEVICES", "OPERATORS", "FILE"], &[3]);
    let mut found: Vec<&Candidate> = report.found.iter().collect();
    let names = report.names();
    found.sort_by_key(|c| names.iter().position(|n| *n == c.manifest.name));
    for c in found {
        let m = &c.manifest;
        let kinds = if m.device_kinds.is_empty() { "?".to_owned() } else { m.device_kinds.join(",") };
        let file = c.path.display().to_string();
        table.add_row([m.name.clone(), m.version.to_string(), kinds, c.catalogue.len().to_string(), file]);
    }
    table::text(&table)
}

/// Every refused library with its code and what to do.
pub(super) fn refused_text(report: &Report) -> String {
    report.refused.iter().map(|r| format!("\nRefused: {}\n  what to do: {}\n", r.error, r.error.remedy())).collect()
}

/// Every place, with whether it exists.
pub(super) fn places_text(places: &[Place]) -> String {
    let mut table = table::new(&["", ""], &[]);
    for place in places {
        let kind =
            serde_json::to_value(place.kind).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        let missing = if place.path.exists() { "" } else { " (does not exist)" };
        table.add_row([format!("  {kind}"), format!("{}{missing}", place.path.display())]);
    }
    table::text(&table).trim_start_matches('\n').to_owned()
}

#[derive(Serialize)]
struct Info<'a> {
    #[serde(flatten)]
    candidate: &'a Candidate,
    catalogue: &'a [CatalogueRow],
}

/// `ortolan ep info`
pub fn info(args: &EpInfoArgs, out: &mut dyn Write) -> Result<bool> {
    let request: Request = args.name.parse()?;
    let report = host(&args.search).discover();
    let candidate = report.select(&request)?;
    if args.json {
        print_json(out, &Info { candidate, catalogue: &candidate.catalogue })?;
    } else {
        print(out, &info_text(candidate))?;
    }
    Ok(true)
}

fn info_text(c: &Candidate) -> String {
    let m = &c.manifest;
    let opsets: Vec<String> = m.opset.iter().map(|(d, v)| format!("{} {v}", domain(d))).collect();
    let json = |v: serde_json::Result<serde_json::Value>| {
        v.ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let rows = [
        ("vendor", m.vendor.clone()),
        ("file", c.path.display().to_string()),
        ("ABI", format!("{}.{}", m.abi.major, m.abi.minor)),
        ("requires core", m.requires_core.to_string()),
        ("target", m.target.clone()),
        ("processor features", m.cpu.join(", ")),
        ("kinds of device", m.device_kinds.join(", ")),
        ("vendor libraries", m.needs_libs.join(", ")),
        ("threads", json(serde_json::to_value(m.threads))),
        ("panics", json(serde_json::to_value(m.panic))),
        ("opsets", opsets.join(", ")),
        ("provides", m.provides.join(", ")),
        ("needs", m.needs.join(", ")),
        ("operators", c.catalogue.len().to_string()),
    ];
    let mut table = table::new(&["", ""], &[]);
    for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        table.add_row([name.to_owned(), value]);
    }
    let mut text = format!("{}\n{}", m.id(), table::text(&table).trim_start_matches('\n'));
    for warning in &c.warnings {
        let _ = writeln!(text, "\nwarning: {warning}\n  what to do: {}", warning.remedy());
    }
    for s in &c.set_aside {
        let _ = writeln!(text, "\nset aside: {}: {}", operator(&s.domain, &s.op), s.reason.sentence);
    }
    text + "\n" + &catalogue_text(&c.catalogue)
}

fn domain(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

fn operator(domain: &str, op: &str) -> String {
    if domain.is_empty() { op.to_owned() } else { format!("{domain}::{op}") }
}

fn catalogue_text(rows: &[CatalogueRow]) -> String {
    let mut table = table::new(&["OPERATOR", "SINCE", "LIMITS", "TYPES"], &[]);
    for r in rows {
        let versions = if r.since == r.until { r.since.to_string() } else { format!("{}-{}", r.since, r.until) };
        let types: Vec<String> = r.types.iter().map(|(t, names)| format!("{t}={}", names.join(","))).collect();
        let limits: Vec<String> = r.limits.iter().map(|(k, v)| format!("{k}={v}")).collect();
        table.add_row([operator(&r.domain, &r.op), versions, limits.join(" "), types.join(" ")]);
    }
    table::text(&table)
}

#[derive(Serialize)]
struct Verified<'a> {
    file: &'a Path,
    ok: bool,
    ep: Option<String>,
    /// Its tables were compared field by field, not by fingerprint alone; `null` if that was not reached.
    proven: Option<bool>,
    steps: Vec<steps::Step>,
    warnings: Vec<Warning>,
    devices: Vec<Device>,
    no_devices: Vec<Reason>,
}

/// A device of an EP.
#[derive(Serialize)]
pub(super) struct Device {
    pub name: String,
    pub vendor: String,
    pub ordinal: u32,
    /// `null` if the EP does not say.
    pub memory_bytes: Option<u64>,
    pub info: serde_json::Map<String, serde_json::Value>,
}

/// Why an EP has no device, or not more.
#[derive(Serialize)]
pub(super) struct Reason {
    pub code: Code,
    pub message: String,
    pub remedy: &'static str,
}

/// A warning or refusal in a document.
#[derive(Serialize)]
pub(super) struct Warning {
    pub code: Code,
    pub message: String,
    pub remedy: &'static str,
}

impl From<&HostError> for Warning {
    fn from(error: &HostError) -> Warning {
        Warning { code: error.code, message: error.sentence.clone(), remedy: error.remedy() }
    }
}

/// Devices and reasons of an EP that was loaded.
pub(super) fn devices(list: &ortolan::abi::DeviceList) -> (Vec<Device>, Vec<Reason>) {
    let device = |d: &ortolan::abi::DeviceInfo| Device {
        name: d.name.clone(),
        vendor: d.vendor.clone(),
        ordinal: d.ordinal,
        memory_bytes: (d.memory_bytes > 0).then_some(d.memory_bytes),
        info: d.info.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect(),
    };
    let reason = |r: &ortolan::abi::NoDevice| {
        let code = device_code(r.known);
        Reason { code, message: r.sentence.clone(), remedy: code.info().remedy }
    };
    (list.devices.iter().map(device).collect(), list.reasons.iter().map(reason).collect())
}

/// `ortolan ep verify`
pub fn verify(args: &EpVerifyArgs, out: &mut dyn Write) -> Result<bool> {
    let search = SearchArgs { ep_path: Vec::new(), strict: args.strict };
    let answer = host(&search).verify(&args.file);
    let error = answer.as_ref().err();
    let list = answer.as_ref().ok().and_then(|ep| ep.devices().ok());
    let (devices, no_devices) = list.as_deref().map(devices).unwrap_or_default();
    let document = Verified {
        file: &args.file,
        ok: error.is_none(),
        ep: answer.as_ref().map_or_else(|e| e.ep.clone(), |ep| Some(ep.manifest().id())),
        proven: answer.as_ref().ok().map(|ep| ep.is_proven()),
        steps: steps::steps(error),
        warnings: answer.iter().flat_map(|ep| ep.warnings()).map(Warning::from).collect(),
        devices,
        no_devices,
    };
    if args.json {
        print_json(out, &document)?;
    } else {
        print(out, &verify_text(&document))?;
    }
    Ok(document.ok)
}

fn verify_text(v: &Verified<'_>) -> String {
    let mut text = format!("{}\n", v.file.display());
    for step in &v.steps {
        let _ = writeln!(text, "{:>4}  {:<12} {}", step.step, step.status.as_str(), step.check);
        if let (Some(code), Some(message), Some(remedy)) = (step.code, &step.message, step.remedy) {
            let _ = writeln!(text, "      {message} [{code}]\n      what to do: {remedy}");
        }
    }
    if v.proven == Some(false) {
        text += "layouts were compared by fingerprint alone, as for every plugin that is not in Rust\n";
    }
    for w in &v.warnings {
        let _ = writeln!(text, "warning: {} [{}]\n  what to do: {}", w.message, w.code, w.remedy);
    }
    for d in &v.devices {
        let _ = writeln!(text, "device {}: {}", d.ordinal, d.name);
    }
    for r in &v.no_devices {
        let _ = writeln!(text, "no device: {} [{}]\n  what to do: {}", r.message, r.code, r.remedy);
    }
    let name = v.ep.as_deref().unwrap_or("this library");
    text + &format!("{name} {}\n", if v.ok { "can be used" } else { "cannot be used" })
}
