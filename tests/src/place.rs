//! Where things lie: the repository and the build's folders.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the repository")
}

/// Cargo's folder for the running profile: `target/<profile>`.
pub fn profile() -> PathBuf {
    let mut folder = std::env::current_exe().expect("the system knows this program's path");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    folder
}

/// Where the libraries of this repository's own plugins lie after `cargo test` has built them.
pub fn own_plugins() -> PathBuf {
    profile().join("deps")
}

/// A copy of each of this repository's own plugin libraries that work in the host's memory, under a name that says nothing
/// of what is inside: whoever finds EPs by file name alone fails the tests that use these.
pub fn renamed_plugins() -> Vec<PathBuf> {
    renamed("host", true)
}

/// The same of the others: those for devices.
pub fn renamed_device_plugins() -> Vec<PathBuf> {
    renamed("device", false)
}

fn renamed(kind: &str, host_only: bool) -> Vec<PathBuf> {
    let suffix = std::env::consts::DLL_SUFFIX;
    let folder = fixture_target().join("renamed");
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    let entries = std::fs::read_dir(own_plugins()).expect("cargo's folder is there").flatten();
    let mut found: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.contains("ortolan_ep_") && name.ends_with(suffix) {
            let bytes = std::fs::read(&path).expect("a library can be read");
            found.push((path, bytes));
        }
    }
    // As the manifest, which is plain text in the file, has it.
    let for_host = |bytes: &[u8]| bytes.windows(HOST_ONLY.len()).any(|w| w == HOST_ONLY.as_bytes());
    found.retain(|(_, bytes)| for_host(bytes) == host_only);
    found.sort();
    let copy = |(at, (_, bytes)): (usize, (PathBuf, Vec<u8>))| {
        let to = folder.join(format!("libfoo_ortolan_ep_{kind}{at}{suffix}"));
        // Never written in place: another process may have it mapped.
        let fresh = tempfile::NamedTempFile::new_in(&folder).expect("the target folder can be written");
        std::fs::write(fresh.path(), bytes).expect("a library can be copied");
        fresh.persist(&to).expect("a library can be moved");
        to
    };
    found.into_iter().enumerate().map(copy).collect()
}

const HOST_ONLY: &str = r#""device_kinds":["cpu"]"#;

/// Where fixtures are built: shared by all profiles, since fixtures need no speed.
pub fn fixture_target() -> PathBuf {
    profile().parent().expect("a profile's folder lies in the target folder").join("fixtures")
}

/// A fresh folder that nobody else may write to, removed when it is dropped.
pub fn fresh() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("ortolan-tests-").tempdir().expect("a temporary folder can be made")
}
