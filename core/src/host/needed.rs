//! Which shared libraries are missing, all at once; looked up only after the system's loader has failed.
//!
//! The loader names the first one only. The search follows the rules of ld.so: the folders in the library itself
//! (`DT_RPATH`, `DT_RUNPATH`, with `$ORIGIN`), `LD_LIBRARY_PATH`, the cache, the standard folders. Where it knows less
//! than the loader, it says "there": what is already loaded, and files that it cannot read.

use super::image::{self, Dynamic};
use super::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

/// More libraries than this are not followed.
const MOST_LIBRARIES: usize = 2000;
const STANDARD_FOLDERS: &[&str] = &["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const CACHE: &str = "/etc/ld.so.cache";

/// A library that was not found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Missing {
    pub name: String,
    /// File name of the library that needs it.
    pub needed_by: String,
}

/// What is missing for `path` to be opened, sorted by name.
pub(super) fn missing(path: &Path) -> Vec<Missing> {
    let search = Search { environment: environment_folders(), cache: read_cache(Path::new(CACHE)) };
    let (mut seen, mut missing) = (BTreeSet::new(), BTreeSet::new());
    let mut open = vec![(path.to_owned(), Vec::new())];
    while let Some((library, inherited)) = open.pop() {
        if seen.len() >= MOST_LIBRARIES {
            break;
        }
        let Some(dynamic) = File::open(&library).ok().and_then(|f| image::dynamic(&f).ok()) else { continue };
        let origin = library.parent().unwrap_or(Path::new("/"));
        let own = folders_of(&dynamic, origin);
        for name in &dynamic.needed {
            if !seen.insert(name.clone()) {
                continue;
            }
            match search.find(name, &own, &inherited) {
                Some(found) => open.push((found, [own.passed_on.clone(), inherited.clone()].concat())),
                None if sys::is_loaded(name) => {}
                None => {
                    let needed_by = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    missing.insert(Missing { name: name.clone(), needed_by });
                }
            }
        }
    }
    missing.into_iter().collect()
}

/// Folders that a library names itself.
struct Own {
    first: Vec<PathBuf>,
    after_environment: Vec<PathBuf>,
    passed_on: Vec<PathBuf>,
}

/// `DT_RPATH` counts only without `DT_RUNPATH`.
fn folders_of(dynamic: &Dynamic, origin: &Path) -> Own {
    let split = |text: &Option<String>| -> Vec<PathBuf> {
        let origin = origin.to_string_lossy();
        let expand = |folder: &str| PathBuf::from(folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
        text.as_deref().unwrap_or_default().split(':').filter(|f| !f.is_empty()).map(expand).collect()
    };
    let first = if dynamic.runpath.is_some() { Vec::new() } else { split(&dynamic.rpath) };
    Own { passed_on: first.clone(), first, after_environment: split(&dynamic.runpath) }
}

struct Search {
    environment: Vec<PathBuf>,
    cache: BTreeMap<String, PathBuf>,
}

impl Search {
    fn find(&self, name: &str, own: &Own, inherited: &[PathBuf]) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(|p| p.exists());
        }
        let standard = STANDARD_FOLDERS.iter().map(PathBuf::from);
        let multiarch =
            ["/lib", "/usr/lib"].iter().map(|lib| Path::new(lib).join(format!("{}-linux-gnu", env::consts::ARCH)));
        let folders = own.first.iter().chain(inherited).chain(&self.environment).chain(&own.after_environment).cloned();
        let usable = |path: &PathBuf| File::open(path).is_ok_and(|f| image::dynamic(&f).is_ok());
        let in_folders = folders.map(|folder| folder.join(name)).find(usable);
        in_folders
            .or_else(|| self.cache.get(name).filter(|p| usable(p)).cloned())
            .or_else(|| standard.chain(multiarch).map(|folder| folder.join(name)).find(usable))
    }
}

fn environment_folders() -> Vec<PathBuf> {
    if sys::elevated() {
        return Vec::new();
    }
    env::var_os("LD_LIBRARY_PATH").map(|v| env::split_paths(&v).collect()).unwrap_or_default()
}

/// Names and paths in the cache of ld.so; empty if there is none or its format is another one.
fn read_cache(path: &Path) -> BTreeMap<String, PathBuf> {
    let bytes = std::fs::read(path).unwrap_or_default();
    parse_cache(&bytes).unwrap_or_default()
}

/// The format `glibc-ld.so.cache1.1`, possibly behind one of the older format.
fn parse_cache(bytes: &[u8]) -> Option<BTreeMap<String, PathBuf>> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    let start = bytes.windows(MAGIC.len()).position(|w| w == MAGIC)?;
    let cache = bytes.get(start..)?;
    let number = |at: usize| Some(u32::from_le_bytes(cache.get(at..at.checked_add(4)?)?.try_into().ok()?) as usize);
    let text = |at: usize| {
        let rest = cache.get(at..)?;
        Some(String::from_utf8_lossy(rest.split(|&b| b == 0).next()?).into_owned())
    };
    let count = number(MAGIC.len())?.min(cache.len() / 24);
    let mut found = BTreeMap::new();
    for at in (0..count).map(|i| HEADER + 24 * i) {
        let (name, path) = (text(number(at + 4)?)?, text(number(at + 8)?)?);
        found.entry(name).or_insert_with(|| PathBuf::from(path));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_entries_are_read() {
        let mut bytes = b"old format\0\0glibc-ld.so.cache1.1".to_vec();
        bytes.extend([1u32, 20, 0, 0, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
        let names = 48 + 24u32;
        bytes.extend([3, names, names + 8].iter().flat_map(|n| n.to_le_bytes()));
        bytes.extend([0; 12]);
        bytes.extend(b"liba.so\0/lib/liba.so\0");
        let found = parse_cache(&bytes).expect("a cache");
        assert_eq!(found.get("liba.so"), Some(&PathBuf::from("/lib/liba.so")));
        for len in 0..bytes.len() {
            let _ = parse_cache(&bytes[..len]);
        }
        assert_eq!(parse_cache(b"something else"), None);
    }

    #[test]
    fn rpath_counts_without_runpath_only() {
        let dynamic = |rpath: &str, runpath: Option<&str>| Dynamic {
            needed: Vec::new(),
            rpath: Some(rpath.to_owned()),
            runpath: runpath.map(str::to_owned),
        };
        let own = folders_of(&dynamic("$ORIGIN/a::${ORIGIN}/../b", None), Path::new("/x"));
        assert_eq!(own.first, [PathBuf::from("/x/a"), PathBuf::from("/x/../b")]);
        let own = folders_of(&dynamic("/a", Some("/b")), Path::new("/x"));
        assert!(own.first.is_empty() && own.passed_on.is_empty() && own.after_environment == [PathBuf::from("/b")]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn nothing_is_missing_for_this_program() {
        assert_eq!(missing(&env::current_exe().expect("this program")), []);
    }
}
