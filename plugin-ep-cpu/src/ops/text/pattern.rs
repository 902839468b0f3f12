//! Texts that a pattern matches from beginning to end. The standard means RE2's patterns; the engine's differ in a few
//! places, which are written otherwise for it.

use super::{Run, few};
use ortolan_ep_kit::{Args, Bool, Item, NodeView, Op, Plain, Reject};
use regex::{Regex, RegexBuilder};

/// Bytes that a compiled pattern may take; RE2's limit is 8 MB.
const MOST: usize = 8 << 20;

/// A compiled pattern.
pub(super) struct Pattern(Regex);

impl Op for Pattern {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let pattern = node.text("pattern").ok_or_else(|| Reject::attribute("attribute pattern is missing"))?;
        let whole = format!(r"\A(?:{})\z", translated(pattern));
        let made = RegexBuilder::new(&whole).size_limit(MOST).build();
        made.map(Pattern).map_err(|error| {
            let error = error.to_string();
            let last = error.lines().last().unwrap_or_default();
            Reject::attribute(format!("attribute pattern = {pattern} is not a pattern of RE2: {last}"))
        })
    }
}

/// Classes of RE2 that know ASCII only, and what they are inside of brackets.
const CLASSES: &[(char, &str)] = &[
    ('d', "0-9"),
    ('s', r"\t\n\f\r\x20"),
    ('w', "0-9A-Za-z_"),
    ('D', "^0-9"),
    ('S', r"^\t\n\f\r\x20"),
    ('W', "^0-9A-Za-z_"),
];

/// The same pattern as the engine has it: classes are ASCII, `\Q` to `\E` stand for themselves, and brackets know no sets of
/// sets.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let (mut rest, mut inside) = (pattern, false);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = escape(rest, inside, &mut out),
            '[' if inside && !rest.starts_with(':') => out.push_str(r"\["),
            '[' if inside => {
                // A named class, to its end.
                let end = rest.find(":]").map_or(0, |end| end + 2);
                out.push('[');
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            '[' => {
                inside = true;
                out.push('[');
                if let Some(more) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = more;
                }
                // A bracket in front closes nothing.
                if let Some(more) = rest.strip_prefix(']') {
                    out.push_str(r"\]");
                    rest = more;
                }
            }
            ']' => {
                inside = false;
                out.push(']');
            }
            '&' | '~' if inside => out.extend(['\\', c]),
            '-' if inside && rest.starts_with('-') => out.push_str(r"\-"),
            c => out.push(c),
        }
    }
    out
}

/// What follows a backslash; answers the rest.
fn escape<'p>(rest: &'p str, inside: bool, out: &mut String) -> &'p str {
    let Some(c) = rest.chars().next() else {
        out.push('\\');
        return rest;
    };
    let rest = &rest[c.len_utf8()..];
    if let Some((_, class)) = CLASSES.iter().find(|(name, _)| *name == c) {
        let bare = inside && !class.starts_with('^');
        out.push_str(&if bare { (*class).to_owned() } else { format!("[{class}]") });
        return rest;
    }
    match c {
        'Q' => {
            let (literal, rest) = rest.split_once(r"\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(literal));
            return rest;
        }
        'b' if !inside => out.push_str(r"(?-u:\b)"),
        c => out.extend(['\\', c]),
    }
    rest
}

pub(super) fn full_match(op: &Pattern, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let texts = item.texts()?;
    few(texts.texts.len())?;
    let found: Vec<Bool> = texts.texts.iter().map(|text| Bool::from(op.0.is_match(text))).collect();
    let tensor = Plain::new(&texts.dims, &found);
    args.give(0, Item::Tensor(tensor))
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::{Bool, DType, Item, RejectCode, Texts};

    #[test]
    fn whole_texts_match_as_in_re2() {
        let cases: &[(&str, &str, bool)] = &[
            (r"www\.[\w.-]+\.\bcom\b", "www.google.com", true),
            (r"www\.[\w.-]+\.\bcom\b", "www.google.com.au", false),
            (r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)", "account@gmail.com", true),
            ("a|ab", "ab", true),
            ("", "", true),
            ("", "x", false),
            (r"\d+", "12", true),
            (r"\d+", "١٢", false),
            (r"\w", "é", false),
            (r"\W", "é", true),
            (r"[^\W\d]+", "a_b", true),
            (r"[^\W\d]+", "a1", false),
            (r"[[:alpha:]]+", "abc", true),
            (r"[[a]+", "[a[", true),
            (r"[]a]+", "]a", true),
            (r"[a&&b]+", "a&b", true),
            (r"\Qa.b\E+", "a.bb", true),
            (r"\Qa.b\E", "axb", false),
            (r"(?i)É", "é", true),
            (".", "\n", false),
            (r"(?s).", "\n", true),
            (r"\pL+", "éa", true),
        ];
        for &(pattern, text, want) in cases {
            let case = Case::new("RegexFullMatch", 20).text("pattern", pattern);
            let case = case.item(Texts::new(&[1], &[text])).output(DType::Bool, &[1]);
            let got = case.run_items().remove(0);
            assert_eq!(got, Item::Tensor(ortolan_ep_kit::Plain::new(&[1], &[Bool::from(want)])), "{pattern} {text}");
        }
    }

    #[test]
    fn what_re2_does_not_have_is_refused() {
        for pattern in ["(", r"(a)\1", "a(?=b)", "[b-a]", "(a{1000}){1000}"] {
            let case = Case::new("RegexFullMatch", 20).text("pattern", pattern).item(Texts::new(&[1], &["a"]));
            let (code, text) = case.output(DType::Bool, &[1]).rejection();
            assert_eq!((code, text.contains("attribute pattern = ")), (RejectCode::Attribute, true), "{text}");
        }
    }
}
