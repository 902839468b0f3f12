//! Libraries loaded as EPs, without a probe.

use crate::place;
use ortolan::host::{LoadedEp, PluginHost, ProbePolicy};
use std::path::Path;
use std::sync::Arc;

/// Loads one library.
pub fn load(path: &Path) -> Arc<LoadedEp> {
    let host = PluginHost::builder().only_given_paths().probe(ProbePolicy::Never).build();
    host.load_file(path).unwrap_or_else(|e| panic!("{e}"))
}

/// The repository's own EP for processors, found by what it says: it runs Gemm in the host's memory.
pub fn own() -> Arc<LoadedEp> {
    let mut loaded = place::renamed_plugins().into_iter().map(|path| load(&path));
    let own = loaded.find(|ep| ep.catalogue().iter().any(|row| row.op == "Gemm"));
    own.expect("cargo has built the repository's plugin for processors")
}
