//! Prints the C header from the recorded layouts, so that nobody types it.

use crate::codes::{DType, NoDeviceCode, RejectCode};
use crate::layout::StructLayout;
use crate::raw;
use std::fmt::Write;

const PREFIX: &str = "OrtolanEp";
const OPAQUE: [&str; 7] = ["Buffer", "CallCtx", "Factory", "Ep", "Part", "Lane", "Fence"];

/// The text of `include/ortolan_ep.h`.
pub fn c_header() -> String {
    let mut out = String::new();
    print(&mut out).expect("writing to a String does not fail");
    out
}

fn print(out: &mut String) -> std::fmt::Result {
    out.push_str(HEAD);
    constants(out)?;
    writeln!(out, "\n/* Handles: only the side that made one looks into it. */")?;
    for name in OPAQUE {
        writeln!(out, "typedef struct {PREFIX}{name} {PREFIX}{name};")?;
    }
    for s in raw::V1_LAYOUT.iter().filter(|s| !is_callback(s)) {
        writeln!(out, "typedef struct {PREFIX}{0} {PREFIX}{0};", s.name)?;
    }
    for s in raw::V1_LAYOUT {
        writeln!(out)?;
        doc(out, "", s.doc)?;
        if is_callback(s) {
            writeln!(out, "typedef {};", declare(s.fields[0].ty, &format!("{PREFIX}{}", s.name)))?;
        } else {
            structure(out, s)?;
        }
    }
    writeln!(out, "\n#if UINTPTR_MAX == 0xFFFFFFFFFFFFFFFFu")?;
    for s in raw::V1_LAYOUT.iter().filter(|s| !is_callback(s)) {
        writeln!(out, "ORTOLAN_EP_STATIC_ASSERT(sizeof({PREFIX}{0}) == {1}, \"{PREFIX}{0}\");", s.name, s.size)?;
    }
    out.push_str(TAIL);
    Ok(())
}

const HEAD: &str = "/* The C face of Ortolan's EP ABI. Generated from the crate ortolan-ep-abi; do not edit.
 *
 * An EP library exports one constant of type OrtolanEpEntry named ortolan_ep_entry_v1 and carries its manifest and its
 * operator catalogue in the file sections .ortolan and .ortcat, byte for byte what the entry points to.
 * All functions must be safe to call from C and must not throw. Ids are uint32_t; ORTOLAN_EP_NONE is \"no such\".
 * Call-long: valid until the function that received it returns. */
#ifndef ORTOLAN_EP_H
#define ORTOLAN_EP_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern \"C\" {
#define ORTOLAN_EP_STATIC_ASSERT(c, m) static_assert(c, m)
#else
#define ORTOLAN_EP_STATIC_ASSERT(c, m) _Static_assert(c, m)
#endif

/* ORTOLAN_EP_TARGET: what a manifest says under \"target\". */
#if defined(__x86_64__) || defined(_M_X64)
#define ORTOLAN_EP_ARCH \"x86_64\"
#elif defined(__aarch64__) || defined(_M_ARM64)
#define ORTOLAN_EP_ARCH \"aarch64\"
#else
#error \"no ORTOLAN_EP_ARCH for this processor\"
#endif
#if defined(__linux__) && defined(__GLIBC__)
#define ORTOLAN_EP_TARGET ORTOLAN_EP_ARCH \"-linux-gnu\"
#elif defined(__linux__)
#define ORTOLAN_EP_TARGET ORTOLAN_EP_ARCH \"-linux-musl\"
#elif defined(__APPLE__)
#define ORTOLAN_EP_TARGET ORTOLAN_EP_ARCH \"-macos\"
#elif defined(_WIN32)
#define ORTOLAN_EP_TARGET ORTOLAN_EP_ARCH \"-windows\"
#else
#error \"no ORTOLAN_EP_TARGET for this system\"
#endif
";

const TAIL: &str = "#endif
#ifdef __cplusplus
}
#endif
#endif
";

fn constants(out: &mut String) -> std::fmt::Result {
    let numbers = [
        ("ABI_MAJOR", raw::ABI_MAJOR),
        ("ABI_MINOR", raw::ABI_MINOR),
        ("VALUE_ABSENT", raw::VALUE_ABSENT),
        ("VALUE_TENSOR", raw::VALUE_TENSOR),
        ("VALUE_SEQUENCE", raw::VALUE_SEQUENCE),
        ("VALUE_OPTIONAL", raw::VALUE_OPTIONAL),
        ("VALUE_MAP", raw::VALUE_MAP),
        ("VALUE_CONST", raw::VALUE_CONST),
        ("VALUE_DONATED", raw::VALUE_DONATED),
        ("INFO_CONST_EXPR", raw::INFO_CONST_EXPR),
        ("SYMBOL_DIM", raw::SYMBOL_DIM),
        ("SYMBOL_ELEMENT", raw::SYMBOL_ELEMENT),
        ("PART_FREE", raw::PART_FREE),
        ("PART_EXACT", raw::PART_EXACT),
        ("PART_ONCE", raw::PART_ONCE),
        ("CLAIM_WHOLE", raw::CLAIM_WHOLE),
        ("DEVICE_STATIC_SHAPES", raw::DEVICE_STATIC_SHAPES),
        ("DEVICE_CPU", raw::DEVICE_CPU),
        ("DEVICE_GPU", raw::DEVICE_GPU),
        ("DEVICE_NPU", raw::DEVICE_NPU),
        ("DEVICE_OTHER", raw::DEVICE_OTHER),
        ("CALL_PROFILE", raw::CALL_PROFILE),
        ("WANT_ANY", raw::WANT_ANY),
        ("WANT_HOST", raw::WANT_HOST),
        ("WANT_SHAPE", raw::WANT_SHAPE),
        ("EXPR_CONST", raw::expr::CONST),
        ("EXPR_SYMBOL", raw::expr::SYMBOL),
        ("EXPR_ADD", raw::expr::ADD),
        ("EXPR_SUB", raw::expr::SUB),
        ("EXPR_MUL", raw::expr::MUL),
        ("EXPR_DIV", raw::expr::DIV),
        ("EXPR_CEILDIV", raw::expr::CEILDIV),
        ("EXPR_MOD", raw::expr::MOD),
        ("EXPR_MIN", raw::expr::MIN),
        ("EXPR_MAX", raw::expr::MAX),
        ("EXPR_BCAST", raw::expr::BCAST),
        ("EXPR_EQ", raw::expr::EQ),
        ("EXPR_LT", raw::expr::LT),
        ("EXPR_AND", raw::expr::AND),
        ("EXPR_OR", raw::expr::OR),
        ("EXPR_NOT", raw::expr::NOT),
        ("EXPR_SELECT", raw::expr::SELECT),
    ];
    writeln!(out, "\n#define ORTOLAN_EP_V1_FINGERPRINT {:#018x}ull", raw::V1_FINGERPRINT)?;
    writeln!(out, "#define ORTOLAN_EP_V1_FINGERPRINT_TEXT \"{:#018x}\"", raw::V1_FINGERPRINT)?;
    writeln!(out, "#define ORTOLAN_EP_MAGIC {{ 'O', 'R', 'T', 'O', 'L', 'E', 'P', 1 }}")?;
    for (name, id) in [("EP_V1", raw::EP_V1_ID), ("HOST_V1", raw::HOST_V1_ID), ("HOST_FENCE_V1", raw::HOST_FENCE_V1_ID)]
    {
        writeln!(out, "#define ORTOLAN_{name}_ID \"{id}\"")?;
    }
    writeln!(out, "#define ORTOLAN_EP_NONE {:#010X}u", raw::NONE)?;
    writeln!(out, "#define ORTOLAN_EP_PORT_SHAPE {:#010X}u", raw::PORT_SHAPE)?;
    writeln!(out, "#define ORTOLAN_EP_UNKNOWN INT64_MIN")?;
    for (name, number) in numbers {
        writeln!(out, "#define ORTOLAN_EP_{name} {number}u")?;
    }
    for (name, code) in [
        ("OK", raw::OK),
        ("FAILED", raw::FAILED),
        ("CANCELLED", raw::CANCELLED),
        ("MEMORY", raw::MEMORY),
        ("LOST", raw::LOST),
        ("PANIC", raw::PANIC),
    ] {
        writeln!(out, "#define ORTOLAN_EP_{name} ({code})")?;
    }
    for c in RejectCode::ALL {
        writeln!(out, "#define ORTOLAN_EP_REJECT_{} {}u", macro_name(c.as_str()), *c as u32)?;
    }
    for c in NoDeviceCode::ALL {
        writeln!(out, "#define ORTOLAN_EP_NO_DEVICE_{} {}u", macro_name(c.as_str()), *c as u32)?;
    }
    for d in DType::ALL {
        writeln!(out, "#define ORTOLAN_EP_DTYPE_{} {}u", macro_name(d.as_str()), *d as u32)?;
    }
    Ok(())
}

fn macro_name(text: &str) -> String {
    text.to_uppercase().replace('-', "_")
}

fn is_callback(s: &StructLayout) -> bool {
    matches!(s.fields, [f] if f.name == "f")
}

fn doc(out: &mut String, indent: &str, lines: &[&str]) -> std::fmt::Result {
    let text: Vec<&str> = lines.iter().map(|l| l.trim()).collect();
    writeln!(out, "{indent}/* {} */", text.join("\n   "))
}

fn structure(out: &mut String, s: &StructLayout) -> std::fmt::Result {
    writeln!(out, "struct {PREFIX}{} {{", s.name)?;
    for f in s.fields {
        doc(out, "  ", f.doc)?;
        writeln!(out, "  {};", declare(f.ty, f.name))?;
    }
    writeln!(out, "}};")
}

/// A C declaration of `name` with a Rust type as `stringify!` printed it.
fn declare(ty: &str, name: &str) -> String {
    let ty = ty.split_whitespace().collect::<Vec<_>>().join(" ");
    let ty = ty.strip_prefix("Option<").or_else(|| ty.strip_prefix("Option < ")).unwrap_or(&ty);
    if let Some((_, signature)) = ty.split_once("fn(") {
        return function(signature.trim_end_matches(['>', ' ']), name);
    }
    if let Some(array) = ty.strip_prefix('[') {
        let (element, length) = array.trim_end_matches(']').split_once(';').unwrap_or((array, "0"));
        return format!("{} {name}[{}]", c_type(element), length.trim());
    }
    let c = c_type(ty);
    if c.ends_with('*') { format!("{c}{name}") } else { format!("{c} {name}") }
}

fn function(signature: &str, name: &str) -> String {
    let (parameters, result) = signature.rsplit_once(')').unwrap_or((signature, ""));
    let result = result.trim().trim_start_matches("->").trim();
    let parameters: Vec<String> = parameters.split(',').filter(|p| !p.trim().is_empty()).map(c_type).collect();
    let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
    let result = if result.is_empty() { "void".to_owned() } else { c_type(result) };
    let space = if result.ends_with('*') { "" } else { " " };
    format!("{result}{space}(*{name})({parameters})")
}

fn c_type(ty: &str) -> String {
    let ty = ty.trim();
    if let Some(inner) = ty.strip_prefix("*const ") {
        let inner = c_type(inner);
        return if inner.ends_with('*') { format!("{inner}const *") } else { format!("const {inner} *") };
    }
    if let Some(inner) = ty.strip_prefix("*mut ") {
        let inner = c_type(inner);
        return if inner.ends_with('*') { format!("{inner}*") } else { format!("{inner} *") };
    }
    match ty {
        "u8" => "uint8_t".to_owned(),
        "u32" => "uint32_t".to_owned(),
        "u64" => "uint64_t".to_owned(),
        "i32" => "int32_t".to_owned(),
        "i64" => "int64_t".to_owned(),
        "f64" => "double".to_owned(),
        "usize" => "size_t".to_owned(),
        "c_void" => "void".to_owned(),
        other => format!("{PREFIX}{other}"),
    }
}
