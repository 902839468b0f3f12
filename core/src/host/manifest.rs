//! The manifest of a plugin: what it says of itself before any of its code runs.
//!
//! It is one JSON object in the library's section `.ortolan` (`__TEXT,__ortolan` on Mach-O), at most 64 KiB. Its fields stand
//! in `docs/plugins.md`, section 1. Unknown ones are ignored, so that later versions may add some.

use super::codes;
use super::error::{HostError, Result};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest manifest, in bytes.
pub const MANIFEST_LIMIT: u64 = 64 << 10;
/// The format that this core reads.
pub const MANIFEST_FORMAT: u64 = 1;

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are described in docs/plugins.md, where plugin authors look")]
pub struct Manifest {
    pub format: u64,
    pub name: String,
    pub version: Version,
    #[serde(default)]
    pub vendor: String,
    pub abi: AbiVersion,
    pub requires_core: VersionReq,
    pub provides: Vec<String>,
    #[serde(default)]
    pub needs: Vec<String>,
    #[serde(default)]
    pub wants: Vec<String>,
    #[serde(default)]
    pub fingerprint: Option<String>,
    pub target: String,
    #[serde(default)]
    pub cpu: Vec<String>,
    #[serde(default)]
    pub panic: PanicStrategy,
    #[serde(default)]
    pub threads: Threads,
    #[serde(default)]
    pub needs_libs: Vec<String>,
    #[serde(default)]
    pub device_kinds: Vec<String>,
    #[serde(default)]
    pub opset: BTreeMap<String, u64>,
    #[serde(default)]
    pub catalogue: Option<String>,
}

/// A version of the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbiVersion {
    /// Must be equal on both sides.
    pub major: u32,
    /// Tables may be added with it.
    pub minor: u32,
}

/// What a panic inside the plugin does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PanicStrategy {
    /// It can be caught at the border.
    Unwind,
    /// It ends the process.
    Abort,
    /// There are none.
    #[default]
    None,
}

/// Whose threads the plugin computes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Threads {
    /// The host's, through `parallel_for`.
    #[default]
    Host,
    /// Its own as well.
    Own,
}

impl Manifest {
    /// Reads a manifest. A format that is not known is told apart from one that is broken.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))?;
        let format = object
            .get("format")
            .and_then(|f| f.as_u64())
            .ok_or_else(|| invalid("it has no number `format`".to_owned()))?;
        if format != MANIFEST_FORMAT {
            let sentence = format!("the manifest has format {format}, this core reads format {MANIFEST_FORMAT}");
            return Err(HostError::new(codes::MANIFEST_FORMAT, sentence));
        }
        let manifest: Manifest = serde_json::from_value(object.into()).map_err(|e| invalid(e.to_string()))?;
        check_name(&manifest.name)?;
        Ok(manifest)
    }

    /// `name@version`, as it is shown to people.
    pub fn id(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

fn invalid(what: String) -> HostError {
    HostError::new(codes::MANIFEST_INVALID, format!("the manifest cannot be read: {what}"))
}

/// The name becomes a folder's name and a word on command lines.
fn check_name(name: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(plain) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(invalid(format!("the name {shown:?} is not made of a-z, 0-9, _ and -, or is longer than 64")))
}

/// Reads a number as manifests and catalogues write it: hexadecimal, with or without `0x`.
pub(super) fn parse_hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let plain = (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"{"format":1,"name":"a","version":"1.2.3","abi":{"major":1,"minor":0},
        "requires_core":">=0.1.0, <2.0.0","provides":["ortolan.ep.v1"],"target":"x86_64-linux-gnu"}"#;

    #[test]
    fn least_manifest_has_defaults() {
        let m = Manifest::parse(LEAST.as_bytes()).expect("it is complete");
        assert_eq!((m.panic, m.threads, m.catalogue.is_none()), (PanicStrategy::None, Threads::Host, true));
        assert_eq!(m.id(), "a@1.2.3");
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let text = LEAST.replace("\"format\"", "\"later\":{\"x\":[1]},\"format\"");
        assert!(Manifest::parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn broken_manifests_name_the_problem() {
        let cases = [
            ("", "EOF", codes::MANIFEST_INVALID),
            ("\u{0}", "expected value", codes::MANIFEST_INVALID),
            ("[1]", "expected a map", codes::MANIFEST_INVALID),
            ("{}", "format", codes::MANIFEST_INVALID),
            (&LEAST.replace("\"format\":1", "\"format\":2"), "format 2", codes::MANIFEST_FORMAT),
            (&LEAST.replace("\"name\":\"a\",", ""), "name", codes::MANIFEST_INVALID),
            (&LEAST.replace("\"a\"", "\"../a\""), "../a", codes::MANIFEST_INVALID),
            (&LEAST.replace("1.2.3", "1.2"), "unexpected end", codes::MANIFEST_INVALID),
            (&LEAST.replace(">=0.1.0, <2.0.0", ">=1 || <3"), "|", codes::MANIFEST_INVALID),
            (&LEAST.replace("\"minor\":0", "\"minor\":-1"), "-1", codes::MANIFEST_INVALID),
            (&LEAST.replace("\"target\"", "\"panic\":\"loudly\",\"target\""), "loudly", codes::MANIFEST_INVALID),
        ];
        for (text, word, code) in cases {
            let error = Manifest::parse(text.as_bytes()).expect_err(text);
            assert_eq!(error.code, code, "{error}");
            assert!(error.sentence.contains(word), "{text}: {error}");
        }
        assert_eq!(Manifest::parse(&[0xff]).expect_err("no text").code, codes::MANIFEST_INVALID);
    }

    #[test]
    fn hex_numbers() {
        let cases = [
            ("0x00000000000000ff", Some(255)),
            ("ff", Some(255)),
            ("", None),
            ("0x", None),
            ("+f", None),
            ("0x11112222333344445", None),
        ];
        for (text, number) in cases {
            assert_eq!(parse_hex(text), number, "{text}");
        }
    }
}
