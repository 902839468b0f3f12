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

/// Where fixtures are built: shared by all profiles, since fixtures need no speed.
pub fn fixture_target() -> PathBuf {
    profile().parent().expect("a profile's folder lies in the target folder").join("fixtures")
}

/// A fresh folder that nobody else may write to, removed when it is dropped.
pub fn fresh() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("ortolan-tests-").tempdir().expect("a temporary folder can be made")
}
