//! Numbers, names and data as words of the text.

use super::SHOWN;
use crate::ir::{Constant, DType, Data};

pub(super) fn data(c: &Constant) -> String {
    if let Data::Strings(all) = &c.data {
        let shown: usize = all.iter().map(|s| s.len() + 3).sum();
        if shown > SHOWN {
            return "elided".to_owned();
        }
        return format!("strings {}", all.iter().map(|s| quoted(s)).collect::<Vec<_>>().join(" "));
    }
    let raw = c.bytes();
    if raw.len() > SHOWN {
        return "elided".to_owned();
    }
    let list = |all: Vec<String>| format!("= {}", all.join(" ")).trim_end().to_owned();
    match (c.dtype, c.ints(SHOWN)) {
        (DType::Bool | DType::U64, _) | (_, None) => {}
        (_, Some(ints)) => return list(ints.iter().map(i64::to_string).collect()),
    }
    match (c.dtype, c.floats(SHOWN)) {
        (DType::F32, Some(all)) if all.iter().all(|f| f.is_finite()) => {
            list(all.iter().map(|f| format!("{:?}", *f as f32)).collect())
        }
        (DType::F64, Some(all)) if all.iter().all(|f| f.is_finite()) => {
            list(all.iter().map(|f| format!("{f:?}")).collect())
        }
        _ => format!("x{}", raw.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
}

pub(super) fn float(v: f32) -> String {
    if v.is_finite() { format!("{v:?}f") } else { format!("0x{:08x}f", v.to_bits()) }
}

pub(super) fn op(domain: &str, op: &str, since: u32) -> String {
    let domain = if domain.is_empty() { String::new() } else { format!("{}::", word(domain)) };
    format!("{domain}{}-{since}", word(op))
}

/// A name as it stands if it is one word, else quoted.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    if starts && text.chars().all(plain) { text.to_owned() } else { quoted(text) }
}

pub(super) fn quoted(text: &str) -> String {
    bytes(text.as_bytes())
}

/// Bytes as quoted text; what is not printable ASCII or UTF-8 is written as `\xNN`.
pub(super) fn bytes(raw: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("\\x{b:02x}")).collect::<String>();
    let mut out = String::from("\"");
    for chunk in raw.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                c if c.is_control() => out.push_str(&hex(c.to_string().as_bytes())),
                c => out.push(c),
            }
        }
        out.push_str(&hex(chunk.invalid()));
    }
    out.push('"');
    out
}
