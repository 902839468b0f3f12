//! Schemas as text: one line each, without prose. Hand-written and exported schemas are read from
//! it, and its canonical form is what digests are taken of, so that two programs can find out
//! whether they mean the same operator. Frozen: a change of the form changes every digest.
//!
//! ```text
//! com.microsoft Sample 1 - (X:T;shape:i64?;more:U*) (Y:T) {axis:int=-1;eps:float=0x3727c5ac;to:int!} [T=f16,f32;U=i64]
//! ```
//!
//! Eight fields, one space apart: domain (`ai.onnx` for the empty one), operator, since-version,
//! flags (`deprecated`, `experimental`, `function`, by comma; `-` for none), inputs, outputs,
//! attributes, type constraints. Lists are separated by semicolons.
//!
//! * A parameter is `name:type` and an arity: nothing (once), `?` (optional), `*` (any number),
//!   `+` (one or more), `+N` (N or more, N > 1); `~` follows when the types of a variadic one may
//!   differ. The type is a constraint's name or a set of types ([`super::TypeSet`]).
//! * An attribute is `name:kind`, then `!` (required), `=value` or nothing. Floats are the eight
//!   hexadecimal digits of their bits after `0x` (decimals are read, too); strings write each byte
//!   outside `A-Z a-z 0-9 _ . + - /` as `%XX`; lists are separated by commas.
//! * Attributes and constraints are sorted by name, types by their number.
//!
//! The **digest** is the 64-bit FNV-1a hash of the line's bytes without its newline, in a form that
//! leaves out what does not change the meaning: formal parameter names with their colons, and all
//! flags but `deprecated`.

use std::fmt::Write as _;

use super::decode::{FLAG_DEPRECATED, FLAG_EXPERIMENTAL, FLAG_FUNCTION};
use super::{Arity, Attr, Param, Schema};
use crate::ir::AttrValue;

pub(super) const FLAGS: [(&str, u16); 3] =
    [("deprecated", FLAG_DEPRECATED), ("experimental", FLAG_EXPERIMENTAL), ("function", FLAG_FUNCTION)];

/// One schema in canonical form, without a newline.
pub fn line(schema: Schema<'_>) -> String {
    write_line(schema, true)
}

/// The digest of a schema: 64-bit FNV-1a of its canonical form without formal names.
pub fn digest(schema: Schema<'_>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    write_line(schema, false).bytes().fold(0xCBF2_9CE4_8422_2325, step)
}

fn write_line(schema: Schema<'_>, full: bool) -> String {
    let domain = if schema.domain().is_empty() { "ai.onnx" } else { schema.domain() };
    let counted = if full { &FLAGS[..] } else { &FLAGS[..1] };
    let flags: Vec<&str> = counted.iter().filter(|(_, bit)| schema.flag(*bit)).map(|(name, _)| *name).collect();
    let flags = if flags.is_empty() { "-".to_owned() } else { flags.join(",") };
    let join = |items: Vec<String>| items.join(";");
    format!(
        "{domain} {} {} {flags} ({}) ({}) {{{}}} [{}]",
        schema.name(),
        schema.since(),
        join(schema.inputs().map(|p| param(p, full)).collect()),
        join(schema.outputs().map(|p| param(p, full)).collect()),
        join(schema.attributes().map(|a| attribute(&a)).collect()),
        join(schema.constraints().map(|(name, types)| format!("{name}={types}")).collect()),
    )
}

fn param(p: Param<'_>, full: bool) -> String {
    let mut out = if full { format!("{}:", p.name) } else { String::new() };
    match p.variable {
        Some(variable) => out.push_str(variable),
        None => out.push_str(&p.types.to_string()),
    }
    match p.arity {
        Arity::Single => {}
        Arity::Optional => out.push('?'),
        Arity::Variadic { min, homogeneous } => {
            match min {
                0 => out.push('*'),
                1 => out.push('+'),
                _ => out.push_str(&format!("+{min}")),
            }
            out.push_str(if homogeneous { "" } else { "~" });
        }
    }
    out
}

fn attribute(a: &Attr<'_>) -> String {
    let tail = match &a.default {
        _ if a.required => "!".to_owned(),
        None => String::new(),
        Some(value) => format!("={}", default(value)),
    };
    format!("{}:{}{tail}", a.name, a.kind)
}

fn default(value: &AttrValue) -> String {
    let float = |f: &f32| format!("{:#010x}", f.to_bits());
    match value {
        AttrValue::Float(f) => float(f),
        AttrValue::Int(i) => i.to_string(),
        AttrValue::String(s) => escape(s),
        AttrValue::Floats(list) => list.iter().map(float).collect::<Vec<_>>().join(","),
        AttrValue::Ints(list) => list.iter().map(i64::to_string).collect::<Vec<_>>().join(","),
        AttrValue::Strings(list) => list.iter().map(|s| escape(s)).collect::<Vec<_>>().join(","),
        _ => String::new(),
    }
}

fn escape(text: &[u8]) -> String {
    let mut out = String::new();
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"_.+-/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
