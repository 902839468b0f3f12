//! External data: tensors whose bytes lie in other files of the model's folder.
//!
//! A path that leaves the folder, by name or through a symbolic link, is refused.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;

use crate::error::{Code, Error, Result};
use crate::ir::Map;
use crate::proto::StringStringEntryProto;

/// The external files that were opened so far.
pub(crate) struct Files {
    folder: Option<PathBuf>,
    mmap: bool,
    open: HashMap<String, Opened>,
}

struct Opened {
    map: Arc<Map>,
    /// Ranges in use, by their first byte.
    used: BTreeMap<u64, u64>,
}

impl Opened {
    /// Tensors may share a range; ranges that overlap in part stand for more memory than the file has.
    fn claim(&mut self, at: u64, end: u64) -> bool {
        let before = self.used.range(..=at).next_back().map(|(a, e)| (*a, *e));
        let after = self.used.range(at..).next().map(|(a, e)| (*a, *e));
        let apart = |r: Option<(u64, u64)>| r.is_none_or(|(a, e)| (a, e) == (at, end) || e <= at || a >= end);
        let good = apart(before) && apart(after);
        if good && at < end {
            self.used.insert(at, end);
        }
        good
    }
}

impl Files {
    pub(crate) fn new(folder: Option<&Path>, mmap: bool) -> Files {
        Files { folder: folder.map(Path::to_owned), mmap, open: HashMap::new() }
    }

    /// The file and offset of `expected` bytes that a tensor's entries name.
    pub(crate) fn find(&mut self, entries: &[StringStringEntryProto], expected: u64) -> Result<(Arc<Map>, u64)> {
        let entry = |key: &str| entries.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => text
                .trim()
                .parse::<u64>()
                .map(Some)
                .map_err(|_| fail(format!("{key} '{text}' of external data is not a size in bytes"))),
        };
        let location = entry("location").unwrap_or_default();
        let at = number("offset")?.unwrap_or(0);
        let file = self.open(location)?;
        let size = file.map.as_slice().len() as u64;
        let len = match number("length")? {
            Some(len) if len != expected => {
                return Err(fail(format!(
                    "the tensor takes {expected} bytes, but its length in '{location}' is {len}"
                )));
            }
            _ => expected,
        };
        match at.checked_add(len) {
            Some(end) if end <= size => match file.claim(at, end) {
                true => Ok((file.map.clone(), at)),
                false => Err(fail(format!("bytes {at} to {end} of '{location}' overlap those of another tensor"))),
            },
            _ => Err(fail(format!(
                "bytes {at} to {} of '{location}' are needed, but it has {size}",
                at.saturating_add(len)
            ))),
        }
    }

    fn open(&mut self, location: &str) -> Result<&mut Opened> {
        let Some(folder) = &self.folder else {
            return Err(fail(format!(
                "the data is in the file '{location}', but the model came as bytes: load it from its path"
            )));
        };
        match self.open.entry_ref(location) {
            EntryRef::Occupied(known) => Ok(known.into_mut()),
            EntryRef::Vacant(place) => {
                let map = Arc::new(open_inside(folder, location, self.mmap)?);
                Ok(place.insert(Opened { map, used: BTreeMap::new() }))
            }
        }
    }
}

fn open_inside(folder: &Path, location: &str, mmap: bool) -> Result<Map> {
    let relative = Path::new(location);
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    // Backslashes part folders on some systems only; a name that means two things is refused on all.
    if location.is_empty() || location.contains(['\\', '\0']) || !relative.components().all(plain) {
        return Err(fail(format!("'{location}' does not name a file inside the model's folder")));
    }
    let io = |e: std::io::Error| fail(format!("'{location}' in {}: {e}", folder.display()));
    let root = folder.canonicalize().map_err(io)?;
    let real = root.join(relative).canonicalize().map_err(io)?;
    if !real.starts_with(&root) {
        return Err(fail(format!("'{location}' is a link that leads out of the model's folder")));
    }
    // Before opening: opening a pipe waits for its other end.
    if !real.metadata().map_err(io)?.is_file() {
        return Err(fail(format!("'{location}' is not a regular file")));
    }
    Map::open(&real, mmap).map_err(io)
}

fn fail(message: String) -> Error {
    Error::new(Code::ExternalData, message)
}
