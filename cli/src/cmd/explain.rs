//! `ortolan explain`: what a code means and what to do about it.

use std::io::Write;

use ortolan::codes::{self, Code, CodeInfo};
use serde::Serialize;

use super::{print, print_json};
use crate::args::ExplainArgs;
use crate::codes::{AREA, CODE_UNKNOWN};
use crate::error::{Error, Result, names};

#[derive(Serialize)]
struct Document {
    code: &'static str,
    title: &'static str,
    means: &'static str,
    remedy: &'static str,
    since: &'static str,
}

/// Every code of the core and of the command line.
fn all() -> impl Iterator<Item = Code> {
    codes::all().chain(AREA.codes.iter().copied())
}

/// Prints the explanation; an unknown code is an error with the nearest ones.
pub fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<bool> {
    let wanted = args.code.trim_matches(|c: char| c == '[' || c == ']' || c.is_whitespace());
    let Some(code) = all().find(|code| code.name() == wanted) else { return Err(unknown(wanted)) };
    let &CodeInfo { name, title, means, remedy, since, .. } = code.info();
    if args.json {
        print_json(out, &Document { code: name, title, means, remedy, since })?;
    } else {
        print(out, &format!("{name}: {title}\n\n{means}\n\nWhat to do: {remedy}\n\nSince {since}.\n"))?;
    }
    Ok(true)
}

fn unknown(wanted: &str) -> Error {
    let mut near: Vec<(f64, &str)> = all().map(|c| (strsim::jaro_winkler(wanted, c.name()), c.name())).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.truncate(3);
    let near = names(near.iter().map(|n| n.1), 3);
    Error::usage(CODE_UNKNOWN, format!("'{wanted}' is no code; the nearest are {near}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn explain(code: &str, json: bool) -> Result<String> {
        let mut out = Vec::new();
        run(&ExplainArgs { code: code.into(), json }, &mut out).map(|_| String::from_utf8(out).unwrap())
    }

    #[test]
    fn codes_are_unique_and_complete() {
        let mut seen = BTreeSet::new();
        for code in all() {
            assert!(seen.insert(code.name()), "{code} is declared twice");
            let text = explain(code.name(), false).unwrap();
            assert!(text.contains(code.info().means) && text.contains("What to do: "), "{text}");
        }
        assert!(seen.len() > 60, "{}", seen.len());
    }

    #[test]
    fn brackets_may_be_copied_along() {
        assert!(explain("[dim-unknown]", false).unwrap().starts_with("dim-unknown: "));
        let json: serde_json::Value = serde_json::from_str(&explain("policy", true).unwrap()).unwrap();
        assert_eq!(json["code"], "policy");
    }

    #[test]
    fn unknown_codes_get_the_nearest() {
        let error = explain("wrld-writable", false).unwrap_err();
        assert_eq!((error.status as u8, error.code), (2, "code-unknown"));
        assert!(error.message.contains("'world-writable'"), "{error}");
        assert!(explain("", false).is_err());
    }
}
