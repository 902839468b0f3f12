//! `ortolan conformance`: runs folders of test cases and compares what comes out with what their makers wrote down.
//!
//! A case passes, fails (another result, or an error while it runs) or is refused (no EP has its operators, or the model is
//! not one). Cases that are set aside in a file say why; one of them that passes makes the answer a no, so that the file
//! stays true.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use ortolan::RunOptions;
use serde::Serialize;

use super::{print, print_json};
use crate::args::ConformanceArgs;
use crate::codes;
use crate::error::{Error, Result, Status, read_file};
use crate::feed::Feed;
use crate::files;
use crate::port::Port;
use crate::same::{Tolerance, differs};
use crate::session::{Chosen, owned};

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Passed,
    Failed,
    Refused,
}

/// A case, and why it did not pass.
#[derive(Debug, Serialize)]
struct Case {
    name: String,
    end: End,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Why it is set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<String>,
}

impl Case {
    /// Whether it ended as it should.
    fn is_expected(&self) -> bool {
        (self.end == End::Passed) == self.evidence.is_none()
    }
}

#[derive(Serialize)]
struct Document {
    folder: String,
    eps: Vec<String>,
    passed: usize,
    failed: usize,
    /// Refused by all EPs.
    skipped: usize,
    set_aside: usize,
    /// How many have to pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<usize>,
    /// All that did not pass, and those that are set aside.
    cases: Vec<Case>,
}

/// What a file says of cases.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    least: Option<usize>,
    aside: BTreeMap<String, String>,
}

/// `ortolan conformance`
pub fn run(args: &ConformanceArgs, out: &mut dyn Write) -> Result<bool> {
    let expected = match &args.expect {
        Some(path) => expectations(&String::from_utf8_lossy(&read_file(path)?))
            .map_err(|why| Error::usage(codes::ARGUMENT, format!("--expect {}: {why}", path.display())))?,
        None => Expected::default(),
    };
    let folders = folders(args)?;
    let eps = Chosen::of(&args.session)?;
    let mut all = Vec::with_capacity(folders.len());
    for (name, folder) in folders {
        let (end, code, why) = match case(&eps, args, &folder) {
            Ok(None) => (End::Passed, None, None),
            Ok(Some(why)) => (End::Failed, None, Some(why)),
            Err(e) => (if e.status == Status::No { End::Refused } else { End::Failed }, Some(e.code), Some(e.message)),
        };
        let evidence = expected.aside.get(&name).cloned();
        all.push(Case { name, end, code, why, evidence });
    }
    let count = |end| all.iter().filter(|c| c.end == end).count();
    let passed = count(End::Passed);
    let yes = all.iter().all(Case::is_expected) && expected.least.is_none_or(|least| passed >= least);
    let document = Document {
        folder: args.folder.display().to_string(),
        eps: eps.names().map(str::to_owned).collect(),
        passed,
        failed: count(End::Failed),
        skipped: count(End::Refused),
        set_aside: all.iter().filter(|c| c.evidence.is_some()).count(),
        least: expected.least,
        cases: all.into_iter().filter(|c| c.end != End::Passed || c.evidence.is_some()).collect(),
    };
    if args.json {
        print_json(out, &document)?
    } else {
        print(out, &text(&document))?
    }
    Ok(yes)
}

/// Lines of `NAME: EVIDENCE`, and one of `at least N pass`; `#` begins a remark.
fn expectations(text: &str) -> Result<Expected, String> {
    let mut expected = Expected::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(least) = line.strip_prefix("at least ").and_then(|rest| rest.strip_suffix(" pass")) {
            expected.least = Some(least.parse().map_err(|_| format!("'{line}' has no number"))?);
            continue;
        }
        match line.split_once(": ") {
            Some((name, evidence)) if !evidence.trim().is_empty() => {
                expected.aside.insert(name.to_owned(), evidence.trim().to_owned());
            }
            _ => return Err(format!("'{line}' is no line of NAME: EVIDENCE")),
        }
    }
    Ok(expected)
}

/// Names and folders of the cases, sorted.
fn folders(args: &ConformanceArgs) -> Result<Vec<(String, PathBuf)>> {
    let named = |path: &Path| path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut all: Vec<(String, PathBuf)> = if model(&args.folder).is_file() {
        vec![(named(&args.folder), args.folder.clone())]
    } else {
        let unreadable = |e: std::io::Error| {
            let message = format!("{}: cannot be read: {e}", args.folder.display());
            Error::usage(ortolan::host::codes::FILE_UNREADABLE, message)
        };
        let entries = std::fs::read_dir(&args.folder).map_err(unreadable)?;
        let paths = entries.map(|entry| Ok(entry.map_err(unreadable)?.path())).collect::<Result<Vec<_>>>()?;
        paths.into_iter().filter(|path| model(path).is_file()).map(|path| (named(&path), path)).collect()
    };
    all.retain(|(name, _)| args.filter.as_ref().is_none_or(|text| name.contains(text.as_str())));
    all.sort();
    match all.is_empty() {
        true => Err(Error::usage(codes::ARGUMENT, format!("{}: there is no case in it", args.folder.display()))
            .try_this("Name a folder of folders with model.onnx and test_data_set_0.")),
        false => Ok(all),
    }
}

fn model(case: &Path) -> PathBuf {
    case.join("model.onnx")
}

/// Runs all data sets of a case; what is wrong with the first that differs.
fn case(eps: &Chosen, args: &ConformanceArgs, folder: &Path) -> Result<Option<String>> {
    let session = eps.open(&model(folder), &args.session)?;
    let (inputs, outputs): (Vec<Port>, Vec<Port>) =
        (session.inputs().iter().map(Port::from).collect(), session.outputs().iter().map(Port::from).collect());
    let tolerance = Tolerance { relative: args.rtol, absolute: args.atol };
    for set in 0.. {
        let data = folder.join(format!("test_data_set_{set}"));
        if !data.is_dir() {
            return Ok((set == 0).then(|| "it has no test_data_set_0".to_owned()));
        }
        let mut feed = Feed::new();
        for (k, port) in inputs.iter().filter(|p| !p.optional).enumerate() {
            let path = data.join(format!("input_{k}.pb"));
            if path.is_file() {
                feed.push((port.name.clone(), files::read(&path, port)?));
            }
        }
        let made = session.run_with(feed.iter().map(|(name, v)| (name.as_str(), v)), &RunOptions::default())?;
        for (k, ((name, value), port)) in owned(made).iter().zip(&outputs).enumerate() {
            let path = data.join(format!("output_{k}.pb"));
            let bytes = read_file(&path)?;
            let wanted = files::pb::read_value(&bytes, &port.ty)
                .map_err(|why| Error::usage(codes::INPUT_FILE, format!("{}: {why}", path.display())))?;
            let value = value.to_host()?;
            if let Some(why) = differs(&value, &wanted, tolerance) {
                return Ok(Some(format!("data set {set}, output '{name}': {why}")));
            }
        }
    }
    Ok(None)
}

fn text(d: &Document) -> String {
    let mut text = String::new();
    for c in &d.cases {
        let end = match (c.end, &c.evidence) {
            (End::Passed, _) => "PASSES, though it is set aside",
            (_, Some(_)) => "set aside",
            (End::Failed, None) => "FAILED",
            (End::Refused, None) => "refused",
        };
        let why = c.evidence.as_ref().or(c.why.as_ref()).map_or("", String::as_str);
        let _ = writeln!(text, "{}: {end}: {}", c.name, why.lines().next().unwrap_or_default());
    }
    if let Some(least) = d.least.filter(|&least| d.passed < least) {
        let _ = writeln!(text, "{least} have to pass");
    }
    let _ = writeln!(text, "{} on {}; {} are set aside", d.folder, d.eps.join(", "), d.set_aside);
    // Scripts read the last line.
    let _ = writeln!(text, "{} passed, {} failed, {} skipped", d.passed, d.failed, d.skipped);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_read_or_refused() {
        let found = expectations("# why\n\nat least 12 pass\na: it draws numbers\n b : c: d\n").unwrap();
        let aside = [("a", "it draws numbers"), ("b ", "c: d")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(found, Expected { least: Some(12), aside: aside.into_iter().collect() });
        for text in ["a", "a: ", "at least many pass"] {
            assert!(expectations(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_case_that_passes_though_set_aside_is_not_expected() {
        let case = |end, evidence: Option<&str>| Case {
            name: "a".into(),
            end,
            code: None,
            why: None,
            evidence: evidence.map(str::to_owned),
        };
        assert!(case(End::Passed, None).is_expected() && case(End::Failed, Some("x")).is_expected());
        assert!(!case(End::Passed, Some("x")).is_expected() && !case(End::Refused, None).is_expected());
    }
}
