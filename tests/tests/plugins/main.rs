//! The plugin host against plugins: good ones of several versions, and faulty ones. A coded answer each, host alive.

mod bad;
/// The EP of `tests/fixtures/rust-ep`, linked in. Not as a dependency: cargo takes no workspace inside a member's folder.
#[path = "../../fixtures/rust-ep/src/lib.rs"]
mod tiny;
mod versions;

use ortolan::host::{HostError, LoadedEp, PluginHost, PluginHostBuilder, ProbePolicy, SENTENCE_LIMIT};
use std::path::Path;
use std::time::Duration;

/// A host that knows no places and remembers nothing from one test to the next.
fn builder(cache: &Path) -> PluginHostBuilder {
    PluginHost::builder()
        .only_given_paths()
        .probe_helper(env!("CARGO_BIN_EXE_ortolan-tests-probe"), &[])
        .probe_cache(cache)
        .probe_timeout(Duration::from_secs(20))
        .probe(ProbePolicy::Require)
}

/// All checks on one file, in a probe first.
fn verify(path: &Path) -> Result<LoadedEp, HostError> {
    let cache = ortolan_tests::place::fresh();
    builder(cache.path()).build().verify(path)
}

/// All checks on one file in this process, without a probe.
fn verify_here(path: &Path) -> Result<LoadedEp, HostError> {
    PluginHost::builder().only_given_paths().probe(ProbePolicy::Never).build().verify(path)
}

/// The answer has this code, says these words, and is short.
fn expect(what: &str, answer: Result<LoadedEp, HostError>, code: &str, words: &[&str]) {
    let error = match answer {
        Err(error) => error,
        Ok(ep) => panic!("{what}: {} was let in instead of {code}", ep.name()),
    };
    assert_eq!(error.code.name(), code, "{what}: {error}");
    assert!(!error.sentence.is_empty() && error.sentence.len() <= SENTENCE_LIMIT, "{what}: {error}");
    assert!(!error.remedy().is_empty(), "{what}: no remedy");
    for word in words {
        assert!(error.sentence.contains(word), "{what}: {word:?} is not in: {error}");
    }
}
