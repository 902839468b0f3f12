//! `ortolan explain`: what a code means and what to do about it.

use std::io::Write;

use ortolan::codes::{self, CodeInfo};
use serde::Serialize;

use super::{print, print_json};
use crate::args::ExplainArgs;
use crate::codes::{AREA, CODE_UNKNOWN};
use crate::error::{Error, Result, names};

#[derive(Clone, Copy, Serialize)]
struct Document {
    code: &'static str,
    title: &'static str,
    means: &'static str,
    remedy: &'static str,
}

/// Every code of the core, of the graph and of the command line, each once.
fn all() -> Vec<Document> {
    let known = codes::all().chain(AREA.codes.iter().copied()).map(|code| {
        let &CodeInfo { name, title, means, remedy, .. } = code.info();
        Document { code: name, title, means, remedy }
    });
    let mut all: Vec<Document> = known.collect();
    for (_, code, text) in ortolan_graph::Code::ALL {
        // The graph's table has one sentence: what is wrong, a colon, what it means or what would help.
        let (means, remedy) = text.split_once(": ").unwrap_or((text, "See the message."));
        if !all.iter().any(|known| known.code == *code) {
            all.push(Document { code, title: "About a model", means, remedy });
        }
    }
    all
}

/// Prints the explanation; an unknown code is an error with the nearest ones.
pub fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<bool> {
    let wanted = args.code.trim_matches(|c: char| c == '[' || c == ']' || c.is_whitespace());
    let Some(document) = all().into_iter().find(|d| d.code == wanted) else { return Err(unknown(wanted)) };
    if args.json {
        print_json(out, &document)?;
    } else {
        let Document { code, title, means, remedy } = document;
        print(out, &format!("{code}: {title}\n\n{means}\n\nWhat to do: {remedy}\n"))?;
    }
    Ok(true)
}

fn unknown(wanted: &str) -> Error {
    let mut near: Vec<(f64, &str)> = all().iter().map(|d| (strsim::jaro_winkler(wanted, d.code), d.code)).collect();
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
        for Document { code, means, remedy, .. } in all() {
            assert!(seen.insert(code), "{code} is declared twice");
            let text = explain(code, false).unwrap();
            assert!(text.contains(means) && text.contains(&format!("What to do: {remedy}")), "{text}");
        }
        assert!(seen.len() > 80 && seen.contains("malformed"), "{}", seen.len());
    }

    #[test]
    fn the_page_has_the_codes_of_the_command_line() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
        let page = std::fs::read_to_string(page).unwrap();
        for code in AREA.codes {
            let CodeInfo { name, title, remedy, .. } = code.info();
            let row = format!("| `{name}` | {title} | {remedy} |\n");
            assert!(page.contains(&row), "docs/cli.md lacks {row}");
        }
    }

    #[test]
    fn brackets_may_be_copied_along() {
        assert!(explain("[input-form]", false).unwrap().starts_with("input-form: "));
        let json: serde_json::Value = serde_json::from_str(&explain("argument", true).unwrap()).unwrap();
        assert_eq!(json["code"], "argument");
    }

    #[test]
    fn unknown_codes_get_the_nearest() {
        let error = explain("wrld-writable", false).unwrap_err();
        assert_eq!((error.status as u8, error.code), (2, "code-unknown"));
        assert!(error.message.contains("'world-writable'"), "{error}");
        assert!(explain("", false).is_err());
    }
}
