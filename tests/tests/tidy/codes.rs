//! Every stable code of the core has a test that produces it.

use crate::{File, none, sources};

/// The parts of the sources that are tests.
fn tests() -> Vec<String> {
    let part = |f: &File| {
        let whole = f.path.contains("/tests/") || f.path.ends_with("tests.rs");
        if whole { Some(f.text.clone()) } else { f.text.split_once("#[cfg(test)]").map(|(_, tests)| tests.to_owned()) }
    };
    sources().iter().filter(|f| !f.path.starts_with("tests/tests/tidy/")).filter_map(part).collect()
}

/// Every code of core and graph, and how a test may write it: as text, in an error's print, as the constant.
fn all() -> Vec<(&'static str, Vec<String>)> {
    let core = ortolan::codes::all().map(|code| {
        let constant = code.name().to_uppercase().replace('-', "_");
        (code.name(), vec![format!("codes::{constant}"), format!("c::{constant}")])
    });
    let graph = ortolan_graph::Code::ALL.iter().map(|(code, name, _)| (*name, vec![format!("Code::{code:?}")]));
    let forms = |(name, mut forms): (&'static str, Vec<String>)| {
        forms.extend([format!("\"{name}\""), format!("[{name}]")]);
        (name, forms)
    };
    core.chain(graph).map(forms).collect()
}

#[test]
fn every_code_is_produced_by_a_test() {
    let (tests, all) = (tests(), all());
    assert!(all.len() > 80, "the codes were not found");
    let tested = |forms: &[String]| forms.iter().any(|form| tests.iter().any(|text| text.contains(form)));
    let untested = all.iter().filter(|(_, forms)| !tested(forms));
    none(untested.map(|(code, _)| (*code).to_owned()).collect(), "no test produces the code");
}
