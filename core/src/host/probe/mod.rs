//! Check 6: an unknown library is loaded in a child process first, so that a crash or a hang costs nothing.
//!
//! This protects against accidents (an initialiser that segfaults, a driver that hangs), not against malice: code that
//! passes the probe runs in this process afterwards. What the probe found is remembered by the bytes of the file.

mod child;
mod helper;
mod memory;

use super::codes;
use super::discover::Candidate;
use super::error::{HostError, Result};
use super::places::PlaceKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use child::probe_main;
use memory::Memory;

/// Version of what parent and child say to each other.
const PROTOCOL: u32 = 1;
/// What stands before the child's answer on its standard output.
const MARK: &str = "ortolan-probe: ";

/// What to do with a library that has not been probed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProbePolicy {
    /// Probe it; refuse it when there is no helper to probe with.
    Require,
    /// Probe it; when there is no helper, load it all the same, with a warning.
    #[default]
    IfAvailable,
    /// Load it without a probe.
    Never,
}

/// How libraries are probed.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub policy: ProbePolicy,
    pub timeout: Duration,
    /// The helper and arguments before the library's path; looked for if not set.
    pub helper: Option<(PathBuf, Vec<String>)>,
    /// Where verdicts are remembered; the user's cache folder if not set.
    pub cache: Option<PathBuf>,
}

impl Default for Probe {
    fn default() -> Self {
        Probe { policy: ProbePolicy::default(), timeout: Duration::from_secs(5), helper: None, cache: None }
    }
}

/// What became of the library in the child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Ok,
    /// The signal, and the child's last words.
    Crashed(String),
    /// Seconds that it was given.
    Hung(f64),
    /// Code and sentence of a check that it did not pass.
    Rejected(String, String),
}

impl Verdict {
    /// A rejection may be cured from outside (an installed driver), so it is asked for again each time.
    fn is_lasting(&self) -> bool {
        !matches!(self, Verdict::Rejected(..))
    }

    fn into_result(self, timeout: Duration) -> Result<()> {
        match self {
            Verdict::Ok => Ok(()),
            // With more time than it was given then, it may finish.
            Verdict::Hung(seconds) if seconds < timeout.as_secs_f64() => Ok(()),
            Verdict::Crashed(how) => {
                Err(HostError::new(codes::PROBE_CRASHED, format!("a child process that loaded it {how}")))
            }
            Verdict::Hung(seconds) => {
                let sentence = format!("a child process that loaded it did not finish in {seconds} s");
                Err(HostError::new(codes::PROBE_HUNG, sentence))
            }
            Verdict::Rejected(code, sentence) => {
                Err(HostError::new(crate::codes::find(&code).unwrap_or(codes::OPEN_FAILED), sentence))
            }
        }
    }
}

impl Probe {
    /// Check 6. The answer is a warning where the policy lets a library through that could not be probed.
    /// `fresh` does not believe what is remembered.
    pub fn check(&self, candidate: &Candidate, fresh: bool) -> Result<Option<HostError>> {
        if self.policy == ProbePolicy::Never || is_from_system(candidate) {
            return Ok(None);
        }
        let memory = Memory::open(self.cache.as_deref());
        let digest = memory.digest(&candidate.checked.file)?;
        if candidate.place == PlaceKind::User && is_recorded(&candidate.path, &digest) {
            return Ok(None);
        }
        if !fresh && let Some(verdict) = memory.verdict(&digest) {
            let again = matches!(verdict, Verdict::Hung(seconds) if seconds < self.timeout.as_secs_f64());
            if !again {
                return verdict.into_result(self.timeout).map(|()| None);
            }
        }
        let verdict = match helper::run(self, &candidate.path) {
            Ok(verdict) => verdict,
            Err(error) if self.policy == ProbePolicy::Require => return Err(error),
            Err(error) => return Ok(Some(error)),
        };
        tracing::info!(path = %candidate.path.display(), ?verdict, "probed");
        candidate.checked.file.check_unchanged()?;
        if verdict.is_lasting() {
            memory.remember(&digest, &verdict);
        }
        verdict.into_result(self.timeout).map(|()| None)
    }
}

/// What lies in the system's folder and belongs to root was put there by whoever runs the machine.
fn is_from_system(candidate: &Candidate) -> bool {
    candidate.place == PlaceKind::System && candidate.warnings.is_empty()
}

/// `installed.json`, which the installation writes beside a library after probing it.
#[derive(Debug, Deserialize)]
struct Record {
    format: u32,
    /// File name and SHA-256 in hexadecimal.
    files: BTreeMap<String, String>,
}

/// Whether the library was installed with these very bytes.
fn is_recorded(library: &Path, digest: &str) -> bool {
    let read = || {
        let record = std::fs::read(library.with_file_name("installed.json")).ok()?;
        let record: Record = serde_json::from_slice(&record).ok()?;
        let recorded = record.files.get(library.file_name()?.to_str()?)?;
        Some(record.format == 1 && recorded == digest)
    };
    read() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_for_the_bytes_that_were_installed() {
        let folder = tempfile::tempdir().expect("a folder");
        let cases = [
            (r#"{"format":1,"files":{"a.so":"12"}}"#, true),
            (r#"{"format":1,"files":{"a.so":"13"}}"#, false),
            (r#"{"format":1,"files":{"b.so":"12"}}"#, false),
            (r#"{"format":2,"files":{"a.so":"12"}}"#, false),
            ("{", false),
        ];
        assert!(!is_recorded(&folder.path().join("a.so"), "12"));
        for (record, known) in cases {
            std::fs::write(folder.path().join("installed.json"), record).expect("my folder");
            assert_eq!(is_recorded(&folder.path().join("a.so"), "12"), known, "{record}");
        }
    }

    #[test]
    fn unknown_codes_of_a_child_become_a_known_one() {
        let rejected = |code: &str| Verdict::Rejected(code.to_owned(), "so".to_owned()).into_result(Duration::ZERO);
        assert!(rejected("table-size").is_err_and(|e| e.code == codes::TABLE_SIZE));
        assert!(rejected("from-the-future").is_err_and(|e| e.code == codes::OPEN_FAILED));
    }
}
