//! What drivers made of shaders, kept on disk: one file per content, so that processes never wait for each other.
//!
//! A file is named after everything that its bytes depend on, and holds the digest of them. It appears whole or not at all,
//! and one that is not as it was written is ignored. This file must not know what the bytes mean.

use crate::gpu::lock;
use ortolan_ep_abi::call::Call;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Code of a note: a file is not as it was written, and is made anew.
const BROKEN: &str = "cache-broken";
/// Code of a note: the folder cannot be written, and nothing is kept.
const UNWRITABLE: &str = "cache-unwritable";
/// Target of log lines, and levels of the host.
pub const TARGET: &str = "webgpu";
pub const WARN: u32 = 2;
pub const DEBUG: u32 = 4;

/// First bytes of a file; the number is the format's.
const MAGIC: &[u8; 24] = b"ortolan webgpu cache 1\n\n";
/// Magic, then the digests of key and content.
const HEAD: usize = MAGIC.len() + 64;
const ENDING: &str = "pipeline";
/// Larger content is made anew each time.
const LARGEST: u64 = 16 << 20;
/// What stays of an unfinished file is garbage after this time; a file that was used within it need not be marked again.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How much a folder may hold.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    pub bytes: u64,
    pub files: usize,
}

/// As sessions have it.
pub const BOUND: Bound = Bound { bytes: 128 << 20, files: 4096 };

/// See the module.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    bound: Bound,
    /// Bytes and files, as far as this process knows.
    held: Mutex<(u64, usize)>,
    owner: u32,
    notes: Mutex<Vec<String>>,
    pub reused: AtomicU64,
    pub stored: AtomicU64,
}

/// The user's folder for what can be made anew, if the system has one.
pub fn usual_folder() -> Option<PathBuf> {
    dirs::cache_dir().map(|folder| folder.join("ortolan").join("webgpu"))
}

impl Cache {
    /// The cache in a folder, which is made if it is not there. Fails where this process cannot write.
    pub fn open(folder: &Path, bound: Bound) -> Result<Cache, String> {
        let cannot = |e: io::Error| format!("[{UNWRITABLE}] pipelines are not kept in {}: {e}", folder.display());
        make_folder(folder).map_err(cannot)?;
        let (probe, path) = fresh(folder, "probe").map_err(cannot)?;
        let owner = probe.metadata().map(|m| owner(&m));
        drop(probe);
        fs::remove_file(path).map_err(cannot)?;
        let cache = Cache {
            folder: folder.to_owned(),
            bound,
            held: Mutex::default(),
            owner: owner.map_err(cannot)?,
            notes: Mutex::default(),
            reused: AtomicU64::new(0),
            stored: AtomicU64::new(0),
        };
        cache.tidy(&mut lock(&cache.held));
        Ok(cache)
    }

    /// What was stored under this key. A broken file is removed, and noted.
    pub fn load(&self, key: &[u8]) -> Option<Vec<u8>> {
        let path = self.path(key);
        match self.read(&path, key) {
            Ok(content) => content,
            Err(why) => {
                self.forget(key, &why);
                None
            }
        }
    }

    /// Removes a file that turned out to be of no use.
    pub fn forget(&self, key: &[u8], why: &str) {
        let path = self.path(key);
        lock(&self.notes).push(format!("[{BROKEN}] {} is made anew: {why}", path.display()));
        // If it stays it is replaced when the content is made.
        let _ = fs::remove_file(path);
    }

    fn read(&self, path: &Path, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let say = |e: io::Error| e.to_string();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(say(e)),
        };
        let about = file.metadata().map_err(say)?;
        if !about.is_file() || !is_ours(&about, self.owner) {
            return Err("others may have written it".to_owned());
        }
        let mut bytes = Vec::new();
        file.take(LARGEST + HEAD as u64 + 1).read_to_end(&mut bytes).map_err(say)?;
        let content = bytes.get(HEAD..).ok_or("it ends too early")?;
        let right = bytes.starts_with(MAGIC)
            && bytes[MAGIC.len()..].starts_with(&digest(key))
            && bytes[MAGIC.len() + 32..].starts_with(&digest(content));
        if !right {
            return Err("its digest is another one".to_owned());
        }
        // The least recently used files go first. That this one was used is no news for a day.
        let is_old = about.modified().is_ok_and(|t| t.elapsed().is_ok_and(|age| age > DAY));
        if is_old && let Ok(file) = OpenOptions::new().append(true).open(path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Ok(Some(bytes.split_off(HEAD)))
    }

    /// Keeps content. If that fails there is one more thing to make next time, and a note.
    pub fn store(&self, key: &[u8], content: &[u8]) {
        if content.len() as u64 > LARGEST {
            return;
        }
        match self.write(&self.path(key), key, content) {
            Ok(()) => {
                self.stored.fetch_add(1, Ordering::Relaxed);
                let mut held = lock(&self.held);
                held.0 += (HEAD + content.len()) as u64;
                held.1 += 1;
                if held.0 > self.bound.bytes || held.1 > self.bound.files {
                    self.tidy(&mut held);
                }
            }
            Err(e) => {
                let text = format!("[{UNWRITABLE}] a pipeline is not kept in {}: {e}", self.folder.display());
                lock(&self.notes).push(text);
            }
        }
    }

    fn write(&self, path: &Path, key: &[u8], content: &[u8]) -> io::Result<()> {
        let (mut file, part) = fresh(&self.folder, "part")?;
        let head = [&MAGIC[..], &digest(key), &digest(content)].concat();
        let written = file.write_all(&head).and_then(|()| file.write_all(content));
        drop(file);
        let moved = written.and_then(|()| fs::rename(&part, path));
        if moved.is_err() {
            // What stays of it goes when the folder is tidied.
            let _ = fs::remove_file(part);
        }
        moved
    }

    /// Logs what happened since the last call.
    pub fn tell(&self, call: &Call<'_>) {
        self.take_notes().iter().for_each(|note| call.log(WARN, TARGET, note));
        let counts = [&self.reused, &self.stored].map(|n| n.swap(0, Ordering::Relaxed));
        if counts != [0, 0] && call.log_enabled(DEBUG, TARGET) {
            let [reused, stored] = counts;
            call.log(
                DEBUG,
                TARGET,
                &format!("pipelines in {}: {reused} reused, {stored} stored", self.folder.display()),
            );
        }
    }

    /// What happened since the last call, in sentences with codes.
    fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notes))
    }

    fn path(&self, key: &[u8]) -> PathBuf {
        let name: String = digest(key).iter().map(|b| format!("{b:02x}")).collect();
        self.folder.join(name).with_extension(ENDING)
    }

    /// Counts what lies there; beyond the bound the least recently used goes, until a quarter of the bound is free.
    fn tidy(&self, held: &mut (u64, usize)) {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match path.extension().and_then(|e| e.to_str()) {
                Some(ENDING) => files.push((used, about.len(), path)),
                Some("part" | "probe") if used.elapsed().is_ok_and(|age| age > DAY) => {
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        files.sort();
        let mut left = (files.iter().map(|f| f.1).sum::<u64>(), files.len());
        if left.0 > self.bound.bytes || left.1 > self.bound.files {
            for (_, bytes, path) in &files {
                if left.0 <= self.bound.bytes / 4 * 3 && left.1 <= self.bound.files / 4 * 3 {
                    break;
                }
                // Another process may have been faster.
                let _ = fs::remove_file(path);
                left = (left.0 - bytes, left.1 - 1);
            }
        }
        *held = left;
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A new file that only this process knows.
fn fresh(folder: &Path, ending: &str) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}-{}.{ending}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = folder.join(name);
    // A process of the same number may have died here.
    let _ = fs::remove_file(&path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    Ok((options.open(&path)?, path))
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(unix)]
fn owner(about: &fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::uid(about)
}

#[cfg(not(unix))]
fn owner(_: &fs::Metadata) -> u32 {
    0
}

/// Whether only this user can have written a file: drivers trust what they get.
#[cfg(unix)]
fn is_ours(about: &fs::Metadata, user: u32) -> bool {
    owner(about) == user && std::os::unix::fs::MetadataExt::mode(about) & 0o022 == 0
}

#[cfg(not(unix))]
fn is_ours(_: &fs::Metadata, _: u32) -> bool {
    true // the folder of a user's profile is the user's alone
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Bound = Bound { bytes: 1000, files: 4 };

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        all.sort();
        all
    }

    #[test]
    fn what_was_stored_is_there_for_the_next_process() {
        let folder = folder();
        let inner = folder.path().join("a").join("b");
        let cache = Cache::open(&inner, SMALL).unwrap();
        assert_eq!(cache.load(b"key"), None);
        cache.store(b"key", b"content");
        cache.store(b"other", b"");
        let second = Cache::open(&inner, SMALL).unwrap();
        assert_eq!(second.load(b"key").as_deref(), Some(&b"content"[..]));
        assert_eq!(second.load(b"other").as_deref(), Some(&b""[..]));
        assert_eq!((second.load(b"third"), cache.take_notes(), files(&inner).len()), (None, Vec::new(), 2));
    }

    #[test]
    fn a_broken_file_is_noted_once_and_made_anew() {
        let whole = {
            let folder = folder();
            Cache::open(folder.path(), SMALL).unwrap().store(b"key", b"content");
            fs::read(&files(folder.path())[0]).unwrap()
        };
        let cut =
            |len| (whole[..len].to_vec(), if len < HEAD { "it ends too early" } else { "its digest is another one" });
        let mut cases: Vec<(Vec<u8>, &str)> = (0..whole.len()).map(cut).collect();
        cases.extend((0..whole.len()).map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            (bytes, "its digest is another one")
        }));
        cases.push(([&whole[..], b"more"].concat(), "its digest is another one"));
        for (bytes, part) in cases {
            let folder = folder();
            let cache = Cache::open(folder.path(), SMALL).unwrap();
            cache.store(b"key", b"content");
            fs::write(&files(folder.path())[0], &bytes).unwrap();
            assert_eq!(cache.load(b"key"), None);
            let notes = cache.take_notes();
            let is_told = notes.len() == 1 && notes[0].starts_with("[cache-broken] ") && notes[0].contains(part);
            assert!(is_told, "{notes:?}, expected {part}");
            cache.store(b"key", b"content");
            assert!(cache.load(b"key").is_some() && cache.take_notes().is_empty());
        }
    }

    #[test]
    fn a_full_folder_loses_what_was_used_least_recently() {
        let folder = folder();
        let cache = Cache::open(folder.path(), SMALL).unwrap();
        let last_used = |k: u8, days: u32| {
            let file = OpenOptions::new().append(true).open(cache.path(&[k])).unwrap();
            file.set_modified(SystemTime::now() - days * DAY).unwrap();
        };
        for k in 0..4u8 {
            cache.store(&[k], &[k]);
            last_used(k, 100 - u32::from(k));
        }
        assert!(cache.load(&[0]).is_some(), "this one is used now");
        cache.store(&[4], &[4]);
        let there = |k: u8| cache.path(&[k]).exists();
        assert_eq!([there(0), there(1), there(2), there(3), there(4)], [true, false, false, true, true]);
        last_used(0, 2);
        last_used(4, 3);
        fs::write(folder.path().join("1-2.part"), "left behind").unwrap();
        cache.store(&[5], &[5; 650]);
        assert_eq!([there(0), there(3), there(4), there(5)], [false, false, false, true]);
        cache.store(&[6], &vec![0; LARGEST as usize + 1]);
        assert!(!there(6));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused_with_a_code() {
        let folder = folder();
        fs::write(folder.path().join("file"), "").unwrap();
        let error = Cache::open(&folder.path().join("file").join("inner"), SMALL).unwrap_err();
        assert!(error.starts_with("[cache-unwritable] "), "{error}");
        let inner = folder.path().join("inner");
        let cache = Cache::open(&inner, SMALL).unwrap();
        fs::remove_dir_all(&inner).unwrap();
        cache.store(b"key", b"content");
        assert!(
            cache.take_notes().iter().all(|n| n.starts_with("[cache-unwritable] ")) && cache.load(b"key").is_none()
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_could_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        let cache = Cache::open(folder.path(), SMALL).unwrap();
        cache.store(b"key", b"content");
        fs::set_permissions(cache.path(b"key"), fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(cache.load(b"key"), None);
        assert!(cache.take_notes()[0].contains("others may have written it"));
    }
}
