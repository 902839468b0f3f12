//! Checks 4 and 5: does what the manifest states and asks for fit this core and this machine?

use super::catalogue::CatalogueRow;
use super::codes;
use super::error::{HostError, Result, join_names};
use super::manifest::{Manifest, PanicStrategy};
use ortolan_ep_abi::raw::{ABI_MAJOR, ABI_MINOR, EP_V1_ID, HOST_FENCE_V1_ID, HOST_V1_ID};
use ortolan_graph::schema;
use semver::Version;
use std::ops::RangeInclusive;

/// Oldest minor version of the ABI that this core serves.
pub const ABI_MINOR_MIN: u32 = 0;

/// Digest of the schema of a domain's operator at a since-version, if there is one.
type SchemaDigest = fn(&str, &str, u32) -> Option<u64>;

/// What the core offers a plugin.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    /// Version of the core.
    pub core: Version,
    /// Minor versions of the ABI. Newer ones than the core's own are fine: their tables are just not asked for.
    pub abi_minors: RangeInclusive<u32>,
    /// Ids of the host tables that are served.
    pub interfaces: &'static [&'static str],
    /// The core's own schemas.
    pub schema_digest: SchemaDigest,
}

impl Default for Offer {
    fn default() -> Self {
        let number = |text: &str| text.parse().unwrap_or(0);
        let [major, minor, patch] =
            [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
        Offer {
            core: Version::new(number(major), number(minor), number(patch)),
            abi_minors: ABI_MINOR_MIN..=u32::MAX,
            interfaces: &[HOST_V1_ID, HOST_FENCE_V1_ID],
            schema_digest,
        }
    }
}

fn schema_digest(domain: &str, op: &str, since: u32) -> Option<u64> {
    schema::exact(domain, op, since).map(schema::text::digest)
}

/// Checks 4 and 5, in their order.
pub(super) fn check(m: &Manifest, offer: &Offer) -> Result<()> {
    check_abi(m, offer)?;
    check_core(m, &offer.core)?;
    check_interfaces(m, offer.interfaces)?;
    check_target(&m.target)?;
    check_cpu(&m.cpu)?;
    match m.panic {
        PanicStrategy::Abort => {
            Err(HostError::new(codes::PANIC_ABORT, "built with panic=abort: a panic in it would end this process"))
        }
        PanicStrategy::Unwind | PanicStrategy::None => Ok(()),
    }
}

/// Rows whose operator the core defines differently than the plugin knew it.
pub(super) fn differing_schemas(rows: &[CatalogueRow], offer: &Offer) -> Vec<(usize, HostError)> {
    let differs = |(at, row): (usize, &CatalogueRow)| {
        let (theirs, ours) = (row.digest?, (offer.schema_digest)(&row.domain, &row.op, row.until)?);
        let (op, domain) = (&row.op, if row.domain.is_empty() { "ai.onnx" } else { &row.domain });
        let sentence = format!(
            "{domain} {op} {} has digest {theirs:016x} in the plugin and {ours:016x} in the core; it is set aside",
            row.until
        );
        (theirs != ours).then(|| (at, HostError::new(codes::SCHEMA_DIFFERS, sentence)))
    };
    rows.iter().enumerate().filter_map(differs).collect()
}

fn check_abi(m: &Manifest, offer: &Offer) -> Result<()> {
    let (major, minor) = (m.abi.major, m.abi.minor);
    if major != ABI_MAJOR {
        let sentence = format!("built for ABI {major}.{minor}, this core speaks {ABI_MAJOR}.{ABI_MINOR}");
        return Err(HostError::new(codes::ABI_MAJOR, sentence));
    }
    if !offer.abi_minors.contains(&minor) {
        let (low, high) = (offer.abi_minors.start(), offer.abi_minors.end());
        let range = if *high == u32::MAX { format!("{low} and newer") } else { format!("{low} to {high}") };
        let sentence =
            format!("built for ABI {major}.{minor}, this host serves the minor versions {range} of {ABI_MAJOR}");
        return Err(HostError::new(codes::ABI_MINOR, sentence));
    }
    Ok(())
}

/// A pre-release of the core counts as the release that it leads to.
fn check_core(m: &Manifest, core: &Version) -> Result<()> {
    let release = Version { pre: semver::Prerelease::EMPTY, ..core.clone() };
    if m.requires_core.matches(&release) {
        return Ok(());
    }
    Err(HostError::new(codes::CORE_VERSION, format!("asks for a core {}, this one is {core}", m.requires_core)))
}

fn check_interfaces(m: &Manifest, served: &[&str]) -> Result<()> {
    let lacking: Vec<&String> = m.needs.iter().filter(|id| !served.contains(&id.as_str())).collect();
    if !lacking.is_empty() {
        let sentence = format!("cannot run without {}, which this core does not serve", join_names(&lacking, 6));
        return Err(HostError::new(codes::NEEDS_INTERFACE, sentence));
    }
    if !m.provides.iter().any(|id| id == EP_V1_ID) {
        let sentence = format!("its manifest does not provide {EP_V1_ID}, which every execution provider must");
        return Err(HostError::new(codes::NO_INTERFACE, sentence));
    }
    Ok(())
}

/// The C library of this build, as targets name it; empty where there is only one.
const HOST_ENV: &str = if cfg!(target_env = "gnu") && cfg!(target_os = "linux") {
    "gnu"
} else if cfg!(target_env = "musl") {
    "musl"
} else {
    ""
};

/// `arch-os-env`, or a target triple of Rust: what both state must be the same.
fn check_target(target: &str) -> Result<()> {
    let mut parts = target.split('-');
    let arch = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let os = |name: &str| name == std::env::consts::OS || (name == "darwin" && cfg!(target_os = "macos"));
    let arch_fits =
        arch == std::env::consts::ARCH || (arch.starts_with('i') && arch.ends_with("86") && cfg!(target_arch = "x86"));
    let env = rest.last().copied().filter(|last| !os(last)).unwrap_or_default();
    let env_fits = HOST_ENV.is_empty() || env.is_empty() || env.starts_with(HOST_ENV);
    if arch_fits && rest.iter().any(|part| os(part)) && env_fits {
        return Ok(());
    }
    let host = [std::env::consts::ARCH, std::env::consts::OS, HOST_ENV].join("-");
    Err(HostError::new(
        codes::WRONG_TARGET,
        format!("compiled for {target}, this core for {}", host.trim_end_matches('-')),
    ))
}

fn check_cpu(features: &[String]) -> Result<()> {
    let lacking: Vec<&String> = features.iter().filter(|f| cpu_has(f) != Some(true)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let sentence = format!("compiled for a processor with {}, which this one does not have", join_names(&lacking, 8));
    Err(HostError::new(codes::CPU_FEATURE, sentence))
}

/// Whether the processor has the feature; `None` if the name is not known, which counts as no.
fn cpu_has(feature: &str) -> Option<bool> {
    macro_rules! detect {
        ($detect:ident: $($name:tt)*) => {
            match feature { $($name => Some(std::arch::$detect!($name)),)* _ => None }
        };
    }
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        detect!(is_x86_feature_detected: "adx" "aes" "avx" "avx2" "avx512bf16" "avx512bw" "avx512cd" "avx512dq" "avx512f"
            "avx512fp16" "avx512ifma" "avx512vbmi" "avx512vbmi2" "avx512vl" "avx512vnni" "avxvnni" "bmi1" "bmi2" "f16c" "fma" "fxsr"
            "gfni" "lzcnt" "movbe" "pclmulqdq" "popcnt" "rdrand" "rdseed" "sha" "sse" "sse2" "sse3" "sse4.1" "sse4.2"
            "ssse3" "vaes" "vpclmulqdq" "xsave")
    }
    #[cfg(target_arch = "aarch64")]
    {
        detect!(is_aarch64_feature_detected: "aes" "bf16" "crc" "dotprod" "fhm" "fp" "fp16" "i8mm" "lse" "neon" "rdm" "sha2"
            "sha3" "sve" "sve2")
    }
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = feature;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        let core = Version::new(0, 3, 0);
        Offer { core, abi_minors: 1..=u32::MAX, interfaces: &["ortolan.host.v1"], schema_digest: |_, _, _| None }
    }

    fn manifest(change: impl FnOnce(&mut serde_json::Value)) -> Manifest {
        let mut value = serde_json::json!({
            "format": 1, "name": "a", "version": "1.0.0", "abi": {"major": ABI_MAJOR, "minor": 2},
            "requires_core": ">=0.1.0, <2.0.0", "provides": [EP_V1_ID], "needs": ["ortolan.host.v1"],
            "target": ortolan_ep_abi::text::TARGET, "panic": "unwind",
        });
        change(&mut value);
        Manifest::parse(value.to_string().as_bytes()).expect("well-formed")
    }

    #[test]
    fn each_mismatch_has_its_code_and_names_both_sides() {
        type Case = (&'static str, serde_json::Value, Code, &'static str);
        use crate::codes::Code;
        let cases: [Case; 9] = [
            ("abi", serde_json::json!({"major": 2, "minor": 0}), codes::ABI_MAJOR, "2.0"),
            ("abi", serde_json::json!({"major": ABI_MAJOR, "minor": 0}), codes::ABI_MINOR, "1 and newer"),
            ("requires_core", "^0.4".into(), codes::CORE_VERSION, "0.3.0"),
            ("needs", serde_json::json!(["x.y", "ortolan.host.v1", "z"]), codes::NEEDS_INTERFACE, "x.y and z"),
            ("provides", serde_json::json!(["other"]), codes::NO_INTERFACE, EP_V1_ID),
            ("target", "sparc64-unknown-linux-gnu".into(), codes::WRONG_TARGET, "sparc64"),
            ("target", "unknown".into(), codes::WRONG_TARGET, "unknown"),
            ("cpu", serde_json::json!(["quantum"]), codes::CPU_FEATURE, "quantum"),
            ("panic", "abort".into(), codes::PANIC_ABORT, "panic=abort"),
        ];
        check(&manifest(|_| ()), &offer()).expect("fits");
        for (field, value, code, word) in cases {
            let error = check(&manifest(|m| m[field] = value.clone()), &offer()).expect_err(field);
            assert!(error.code == code && error.sentence.contains(word), "{field} = {value}: {error}");
        }
    }

    #[test]
    fn offered_interfaces_are_served() {
        for id in Offer::default().interfaces {
            // SAFETY: the text lives over the call.
            let table = unsafe { (crate::abi::host_table().query)(ortolan_ep_abi::raw::Str::new(id)) };
            assert!(!table.is_null(), "{id}");
        }
    }

    #[test]
    fn pre_release_of_the_core_counts_as_its_release() {
        let core = Version::parse("0.3.0-dev.1").expect("a version");
        check(&manifest(|_| ()), &Offer { core, ..offer() }).expect("0.3.0-dev.1 is in >=0.1.0, <2.0.0");
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    fn targets_may_be_triples() {
        for fits in ["x86_64-linux-gnu", "x86_64-unknown-linux-gnu", "x86_64-pc-linux-gnu"] {
            check_target(fits).expect(fits);
        }
        for other in ["x86_64-linux-musl", "aarch64-linux-gnu", "x86_64-apple-darwin", "x86_64-windows", "x86_64", ""] {
            check_target(other).expect_err(other);
        }
    }

    #[test]
    fn baseline_features_are_known() {
        for feature in ortolan_ep_abi::text::CPU {
            assert_eq!(cpu_has(feature), Some(true), "{feature}");
        }
    }

    #[test]
    fn digests_are_those_of_the_core_s_own_schemas() {
        let add = schema_digest("", "Add", 14).expect("Add-14 exists");
        assert_eq!(schema_digest("ai.onnx", "Add", 14), Some(add));
        assert_ne!(schema_digest("", "Add", 13), Some(add));
        assert_eq!(schema_digest("", "Add", 12), None, "no version of Add begins there");
        assert_eq!(schema_digest("x.y", "Add", 1), None);
    }

    #[test]
    fn operators_with_other_digests_are_set_aside() {
        let digest = |_: &str, op: &str, since: u32| (op != "Unknown").then(|| u64::from(since));
        let rows = super::super::catalogue::parse(
            b"-\tAdd\t7\t14\t-\te\n-\tMul\t7\t14\t-\tf\n-\tUnknown\t1\t1\t-\t1\n-\tRelu\t6\t14\t-\t-\n",
        );
        let found = differing_schemas(&rows.expect("four rows"), &Offer { schema_digest: digest, ..offer() });
        assert_eq!(found.len(), 1);
        assert!(found[0].0 == 1 && found[0].1.sentence.contains("Mul 14"), "{found:?}");
    }
}
