//! `ortolan doctor`: what was found on this machine, what was refused and why, and what else matters.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use ortolan::host::{PluginHost, Report, probe_folder, user_folder};
use serde::Serialize;

use super::ep::{Device, Reason, Warning, devices, places_text, refused_text};
use super::{host, print, print_json};
use crate::args::DoctorArgs;
use crate::error::Result;
use crate::table;

#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    system: System,
    eps: Vec<Ep>,
    #[serde(flatten)]
    report: &'a Report,
    folders: Vec<Folder>,
    variables: Vec<Variable>,
}

#[derive(Serialize)]
struct System {
    os: &'static str,
    arch: &'static str,
    processors: usize,
    cpu_features: Vec<&'static str>,
}

/// One EP after it was loaded and asked for its devices.
#[derive(Serialize)]
struct Ep {
    name: String,
    version: String,
    file: PathBuf,
    usable: bool,
    devices: Vec<Device>,
    no_devices: Vec<Reason>,
    error: Option<Warning>,
    warnings: Vec<Warning>,
}

#[derive(Serialize)]
struct Folder {
    what: &'static str,
    path: PathBuf,
    exists: bool,
}

#[derive(Serialize)]
struct Variable {
    name: String,
    value: Option<String>,
    means: &'static str,
}

/// Variables that change what is found; any other that begins with `ORTOLAN_` is shown as well.
const VARIABLES: [(&str, &str); 4] = [
    (ortolan::host::EP_PATH_VARIABLE, "further files and folders with EPs"),
    (crate::logs::VARIABLE, "levels of log lines"),
    ("LD_LIBRARY_PATH", "where the system looks for libraries"),
    ("LD_PRELOAD", "libraries that are put before all others"),
];

/// `ortolan doctor`: always a yes; what is wrong is in its report.
pub fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<bool> {
    let host = host(&args.search);
    let report = host.discover();
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        system: System {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_features: cpu_features(),
        },
        eps: report.names().into_iter().filter_map(|name| ep(&host, &report, name)).collect(),
        report: &report,
        folders: folders(),
        variables: variables(),
    };
    if args.json {
        print_json(out, &document)?;
    } else {
        print(out, &text(&document))?;
    }
    Ok(true)
}

/// Loads the EP that its bare name means and asks it for devices.
fn ep(host: &PluginHost, report: &Report, name: &str) -> Option<Ep> {
    let candidate = report.found.iter().find(|c| c.manifest.name == name)?;
    let loaded = host.load(name);
    let list = loaded.as_ref().map_err(Clone::clone).and_then(|ep| ep.devices());
    let error = list.as_ref().err().map(Warning::from);
    let (devices, no_devices) = list.as_deref().map(devices).unwrap_or_default();
    let warnings = loaded.iter().flat_map(|ep| ep.warnings()).map(Warning::from).collect();
    Some(Ep {
        name: name.to_owned(),
        version: candidate.manifest.version.to_string(),
        file: candidate.path.clone(),
        usable: !devices.is_empty(),
        devices,
        no_devices,
        error,
        warnings,
    })
}

fn folders() -> Vec<Folder> {
    let folder = |what, path: Option<PathBuf>| path.map(|path| Folder { what, exists: path.exists(), path });
    let all = [folder("installed EPs", user_folder()), folder("verdicts of probes", probe_folder())];
    all.into_iter().flatten().collect()
}

fn variables() -> Vec<Variable> {
    let known = VARIABLES.map(|(name, means)| Variable {
        name: name.to_owned(),
        value: std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()),
        means,
    });
    let mut others: Vec<Variable> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with("ORTOLAN_") && !VARIABLES.iter().any(|(known, _)| known == name))
        .map(|(name, value)| Variable { name, value: Some(value), means: "read by an EP, or by nobody" })
        .collect();
    others.sort_by(|a, b| a.name.cmp(&b.name));
    known.into_iter().chain(others).collect()
}

macro_rules! detected {
    ($detect:ident: $($name:tt)*) => {
        [$(($name, std::arch::$detect!($name))),*].into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
    };
}

/// Features of the processor that kernels choose by.
#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Vec<&'static str> {
    detected!(is_x86_feature_detected: "sse4.2" "f16c" "avx" "avx2" "fma" "avx512f" "avx512bw" "avx512dq" "avx512vl"
        "avx512vnni" "avx512bf16" "avx512fp16" "avxvnni")
}

/// Features of the processor that kernels choose by.
#[cfg(target_arch = "aarch64")]
fn cpu_features() -> Vec<&'static str> {
    detected!(is_aarch64_feature_detected: "neon" "fp16" "dotprod" "i8mm" "bf16" "sve" "sve2")
}

/// Features of the processor that kernels choose by.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_features() -> Vec<&'static str> {
    Vec::new()
}

fn text(d: &Document<'_>) -> String {
    let s = &d.system;
    let mut text = format!(
        "ortolan {} on {} {}, {} processors\nprocessor features: {}\n\nExecution providers\n",
        d.version,
        s.os,
        s.arch,
        s.processors,
        if s.cpu_features.is_empty() { "none that matter".to_owned() } else { s.cpu_features.join(" ") }
    );
    if d.eps.is_empty() {
        text += "  none that can be used: no model can be run\n";
    }
    for ep in &d.eps {
        text += &ep_text(ep);
    }
    text += &refused_text(d.report);
    for s in &d.report.shadowed {
        let _ = writeln!(
            text,
            "\nShadowed: {} in {}\n  {} in {} comes first",
            s.id,
            s.path.display(),
            s.by_id,
            s.by.display()
        );
    }
    text += "\nSearched, in this order\n";
    text += &places_text(&d.report.places);
    text += "\nFolders\n";
    for f in &d.folders {
        let missing = if f.exists { "" } else { " (does not exist)" };
        let _ = writeln!(text, "  {}: {}{missing}", f.what, f.path.display());
    }
    let mut table = table::new(&["", "", ""], &[]);
    for v in &d.variables {
        let value = v.value.clone().unwrap_or_else(|| "(not set)".to_owned());
        table.add_row([format!("  {}", v.name), value, v.means.to_owned()]);
    }
    text + "\nVariables\n" + table::text(&table).trim_start_matches('\n')
}

fn ep_text(ep: &Ep) -> String {
    let mut text = format!("  {}@{}  {}\n", ep.name, ep.version, ep.file.display());
    for d in &ep.devices {
        let memory = d.memory_bytes.map_or(String::new(), |b| format!(", {} MiB", b >> 20));
        let _ = writeln!(text, "    device {}: {} ({}{memory})", d.ordinal, d.name, d.vendor);
    }
    for r in &ep.no_devices {
        let _ = writeln!(text, "    no device: {} [{}]\n      what to do: {}", r.message, r.code, r.remedy);
    }
    for (kind, w) in ep.error.iter().map(|e| ("cannot be used", e)).chain(ep.warnings.iter().map(|w| ("warning", w))) {
        let _ = writeln!(text, "    {kind}: {} [{}]\n      what to do: {}", w.message, w.code, w.remedy);
    }
    text
}
