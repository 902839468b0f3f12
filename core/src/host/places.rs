//! Where plugins are looked for, in order, and which files are taken for one.
//!
//! 1. paths that were given (`--ep-path`), files or folders
//! 2. `ORTOLAN_EP_PATH`, not read by programs with elevated rights
//! 3. beside the program, then beside the library that holds the core
//! 4. `../lib/ortolan/ep` seen from both
//! 5. folders that the embedding program added (a Python package's entry points)
//! 6. the user's data folder, `ortolan/ep/<name>/<version>/`
//! 7. the system's `lib/ortolan/ep`, laid out in either way

use super::sys;
use std::env;
use std::path::{Path, PathBuf};

/// Environment variable with further files and folders, separated as in `PATH`.
pub const EP_PATH_VARIABLE: &str = "ORTOLAN_EP_PATH";
/// What every plugin's file name contains.
pub const FILE_NAME_PART: &str = "ortolan_ep_";

/// Why a place is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceKind {
    /// A path that was given.
    Given,
    /// A path in [`EP_PATH_VARIABLE`].
    Environment,
    /// Beside the program or the core library.
    Beside,
    /// `../lib/ortolan/ep` seen from the program or the core library.
    Prefix,
    /// A folder that the embedding program added.
    Embedder,
    /// The user's data folder.
    User,
    /// The system's folder; what lies there is trusted.
    System,
}

impl PlaceKind {
    /// Whether a person named this place for this start of the program.
    pub(super) fn is_asked_for(self) -> bool {
        matches!(self, PlaceKind::Given | PlaceKind::Environment)
    }

    /// Whether plugins lie in `<name>/<version>/` below it.
    fn has_versions(self) -> bool {
        matches!(self, PlaceKind::User | PlaceKind::System)
    }
}

/// A file or folder that is searched.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// Why.
    pub kind: PlaceKind,
    /// Where; it need not exist.
    pub path: PathBuf,
}

/// What the builder of a host was told about places.
#[derive(Debug, Clone, Default)]
pub(super) struct PlaceOptions {
    pub given: Vec<PathBuf>,
    pub embedder: Vec<PathBuf>,
    pub only_given: bool,
}

/// All places in order, each path once.
pub(super) fn all(options: &PlaceOptions) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut add = |kind, paths: Vec<PathBuf>| {
        for path in paths {
            if !places.iter().any(|p| p.path == path) {
                places.push(Place { kind, path });
            }
        }
    };
    add(PlaceKind::Given, options.given.clone());
    if options.only_given {
        return places;
    }
    // A program that runs with more rights than its user takes nothing that the user's environment can move.
    let trusted_environment = !sys::elevated();
    if trusted_environment && let Some(paths) = env::var_os(EP_PATH_VARIABLE) {
        add(PlaceKind::Environment, env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty()).collect());
    }
    let beside = code_folders();
    add(PlaceKind::Beside, beside.clone());
    let prefix = |folder: &PathBuf| Some(folder.parent()?.join("lib").join("ortolan").join("ep"));
    add(PlaceKind::Prefix, beside.iter().filter_map(prefix).collect());
    add(PlaceKind::Embedder, options.embedder.clone());
    if trusted_environment {
        add(PlaceKind::User, user_folder().into_iter().collect());
    }
    add(PlaceKind::System, system_folders());
    places
}

/// Folders of the program and of the library that holds the core.
pub(super) fn code_folders() -> Vec<PathBuf> {
    let files = [env::current_exe().ok(), sys::core_library()];
    let mut folders: Vec<PathBuf> = Vec::new();
    for file in files.into_iter().flatten() {
        let file = std::fs::canonicalize(&file).unwrap_or(file);
        match file.parent() {
            Some(folder) if !folders.iter().any(|f| f == folder) => folders.push(folder.to_owned()),
            _ => {}
        }
    }
    folders
}

/// Where `ortolan ep install` puts plugins: `<name>/<version>/` below it.
pub fn user_folder() -> Option<PathBuf> {
    Some(dirs::data_dir()?.join("ortolan").join("ep"))
}

/// Where verdicts of probes are remembered, unless a host is built with another folder.
pub fn probe_folder() -> Option<PathBuf> {
    Some(dirs::cache_dir()?.join("ortolan").join("probe"))
}

fn system_folders() -> Vec<PathBuf> {
    sys::SYSTEM_LIB_FOLDERS.iter().map(|lib| Path::new(lib).join("ortolan").join("ep")).collect()
}

/// Files of a place that may be plugins, sorted by path. A file that was named itself may have any name.
pub(super) fn files(place: &Place) -> std::io::Result<Vec<PathBuf>> {
    let meta = match std::fs::metadata(&place.path) {
        Err(_) if !place.kind.is_asked_for() => return Ok(Vec::new()),
        meta => meta?,
    };
    if !meta.is_dir() {
        return Ok(vec![place.path.clone()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![(place.path.clone(), if place.kind.has_versions() { 2 } else { 0 })];
    while let Some((folder, depth)) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Err(_) if folder != place.path => continue,
            entries => entries?,
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if is_plugin_name(&path) {
                found.push(path);
            } else if depth > 0 && path.is_dir() {
                folders.push((path, depth - 1));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// `*ortolan_ep_*` with the suffix that shared libraries have here.
fn is_plugin_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.contains(FILE_NAME_PART) && name.ends_with(env::consts::DLL_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_in_their_order_and_once() {
        let beside = code_folders().remove(0);
        let options = PlaceOptions {
            given: vec!["x".into(), "x".into()],
            embedder: vec!["y".into(), beside.clone()],
            only_given: false,
        };
        let places = all(&options);
        let kinds: Vec<PlaceKind> = places.iter().map(|p| p.kind).collect();
        assert!(kinds.is_sorted(), "{places:?}");
        assert_eq!(places.iter().filter(|p| p.path == beside || p.path == Path::new("x")).count(), 2);
        assert!(kinds.contains(&PlaceKind::Beside) && kinds.contains(&PlaceKind::System));
        assert_eq!(all(&PlaceOptions { only_given: true, ..options }).len(), 1);
    }

    #[test]
    fn names_of_plugins() {
        let suffix = env::consts::DLL_SUFFIX;
        let cases =
            [("libortolan_ep_any", true), ("ortolan_ep_x", true), ("libother", false), ("libortolan_epany", false)];
        for (name, is) in cases {
            assert_eq!(is_plugin_name(Path::new(&format!("/a/{name}{suffix}"))), is, "{name}");
        }
        assert!(!is_plugin_name(Path::new("/a/libortolan_ep_any.rlib")));
        assert!(!is_plugin_name(Path::new("/a/libortolan_ep_any.d")));
    }

    #[test]
    fn versions_lie_two_folders_deep() {
        let root = tempfile::tempdir().expect("a folder");
        let name = format!("libortolan_ep_a{}", env::consts::DLL_SUFFIX);
        for folder in ["", "a/1.0.0", "a/1.0.0/deeper"] {
            std::fs::create_dir_all(root.path().join(folder)).expect("a folder");
            std::fs::write(root.path().join(folder).join(&name), b"").expect("a file");
        }
        let count = |kind| files(&Place { kind, path: root.path().to_owned() }).expect("readable").len();
        assert_eq!([count(PlaceKind::Given), count(PlaceKind::User), count(PlaceKind::System)], [1, 2, 2]);
        let missing = |kind| files(&Place { kind, path: root.path().join("missing") });
        assert!(missing(PlaceKind::Given).is_err() && missing(PlaceKind::Beside).is_ok_and(|f| f.is_empty()));
    }
}
