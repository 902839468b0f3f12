//! What is remembered of probed libraries: the digest of a file's bytes, and the verdict on a digest.
//!
//! Files in the user's cache folder, `ortolan/probe/`, each written by rename. Anything that cannot be read or does not
//! fit is as if it were not there; forgetting costs a probe and nothing else.

use super::super::codes;
use super::super::error::{HostError, Result};
use super::super::file::PluginFile;
use super::super::places::probe_folder;
use super::super::sys::{self, FileId};
use super::{PROTOCOL, Verdict};
use ortolan_ep_abi::layout::{FNV, fnv};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The folder, if there is one that only this user writes.
pub(super) struct Memory(Option<PathBuf>);

/// Digest of a file in the state that the id tells.
#[derive(Serialize, Deserialize)]
struct Known {
    id: FileId,
    sha256: String,
}

/// A verdict holds for one version of the core and of the probe.
#[derive(Serialize, Deserialize)]
struct Remembered {
    core: String,
    probe: u32,
    verdict: Verdict,
}

impl Memory {
    pub fn open(given: Option<&Path>) -> Self {
        let folder = match given {
            Some(folder) => Some(folder.to_owned()),
            None if sys::elevated() => None,
            None => probe_folder(),
        };
        Memory(folder.filter(|folder| is_private(folder)))
    }

    /// SHA-256 of the file, computed once for each state of it.
    pub fn digest(&self, file: &PluginFile) -> Result<String> {
        let id = serde_json::to_vec(&file.id).unwrap_or_default();
        let name = format!("file-{:016x}.json", fnv(FNV, &id));
        if let Some(known) = self.read::<Known>(&name).filter(|known| known.id == file.id) {
            return Ok(known.sha256);
        }
        let sha256 = digest(file)?;
        self.write(&name, &Known { id: file.id, sha256: sha256.clone() });
        Ok(sha256)
    }

    pub fn verdict(&self, digest: &str) -> Option<Verdict> {
        let found: Remembered = self.read(&verdict_name(digest))?;
        (found.core == env!("CARGO_PKG_VERSION") && found.probe == PROTOCOL).then_some(found.verdict)
    }

    pub fn remember(&self, digest: &str, verdict: &Verdict) {
        let remembered =
            Remembered { core: env!("CARGO_PKG_VERSION").to_owned(), probe: PROTOCOL, verdict: verdict.clone() };
        self.write(&verdict_name(digest), &remembered);
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&std::fs::read(self.0.as_ref()?.join(name)).ok()?).ok()
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) {
        let Some(folder) = &self.0 else { return };
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(&serde_json::to_vec(value)?)?;
            file.persist(folder.join(name)).map_err(|e| e.error)
        };
        if let Err(error) = write() {
            tracing::debug!(folder = %folder.display(), "a verdict is not remembered: {error}");
        }
    }
}

fn verdict_name(digest: &str) -> String {
    format!("{digest}-{}-{PROTOCOL}.json", env!("CARGO_PKG_VERSION"))
}

/// Makes the folder if need be; others must not be able to plant verdicts in it.
fn is_private(folder: &Path) -> bool {
    let _ = std::fs::create_dir_all(folder);
    std::fs::metadata(folder).is_ok_and(|m| m.is_dir() && !sys::world_writable(&m) && sys::foreign_owner(&m).is_none())
}

fn digest(file: &PluginFile) -> Result<String> {
    let (mut sha, mut at, mut block) = (Sha256::new(), 0, vec![0; 256 << 10]);
    while at < file.id.size {
        let len = block.len().min(usize::try_from(file.id.size - at).unwrap_or(usize::MAX));
        let block = &mut block[..len];
        sys::read_exact_at(&file.file, at, block).map_err(|e| {
            HostError::new(codes::FILE_UNREADABLE, format!("the file cannot be read: {e}")).at(&file.path)
        })?;
        sha.update(&block);
        at += len as u64;
    }
    let mut hex = String::with_capacity(64);
    for byte in sha.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

#[cfg(test)]
mod tests {
    use super::super::super::file;
    use super::*;

    #[test]
    fn digests_and_verdicts_are_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, b"abc").expect("a file");
        let (open, _) = file::open(&path, false).expect("a file");
        let memory = Memory::open(Some(&folder.path().join("cache")));
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(memory.digest(&open).expect("readable"), abc);
        assert_eq!(memory.digest(&open).expect("remembered"), abc);
        assert_eq!(memory.verdict(abc), None);
        for verdict in [Verdict::Ok, Verdict::Crashed("died".into()), Verdict::Hung(1.5)] {
            memory.remember(abc, &verdict);
            assert_eq!(memory.verdict(abc), Some(verdict));
        }
        std::fs::write(folder.path().join("cache").join(verdict_name(abc)), b"{").expect("a file");
        assert_eq!(memory.verdict(abc), None);
    }

    #[test]
    #[cfg(unix)]
    fn folders_of_everyone_are_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("mine");
        assert!(Memory::open(Some(folder.path())).0.is_none());
    }
}
