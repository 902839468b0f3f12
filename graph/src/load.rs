//! Loading: file or bytes → [`Graph`].

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::build;
use crate::error::{Code, Error, Result};
use crate::ir::{Graph, Map};
use crate::schema::SchemaSet;
use crate::verify;
use crate::walk;

/// How to load a model. `Default` is what a session wants.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Maps files of 4 MiB and more instead of reading them.
    pub mmap: bool,
    /// Sizes for all input dims of a name.
    pub dims: Vec<(String, i64)>,
    /// Takes equal dim names on inputs as equal sizes. A session whose run contradicts that loads again without.
    pub believe_dim_names: bool,
    /// Schemas of domains that execution providers brought along.
    pub schemas: Option<Arc<SchemaSet>>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { mmap: true, dims: Vec::new(), believe_dim_names: true, schemas: None }
    }
}

/// Loads the model in a file: reads, checks, upgrades every node to the newest version of its operator, infers types.
///
/// External data is looked for in the file's folder. Weights stay in the file's map, which the
/// graph's constants keep alive; nobody may shorten the file meanwhile.
///
/// Errors carry a code ([`Code`]) and name file, node and value. What the model says wrongly but harmlessly is
/// in [`Graph::warnings`].
pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Graph> {
    let path = path.as_ref();
    let place = |e: Error| e.within(format!("{}", path.display()));
    let map = Map::open(path, options.mmap).map_err(|e| place(Error::new(Code::Io, e.to_string())))?;
    let folder = path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    load_map(Arc::new(map), folder, options).map_err(place)
}

/// Loads a model from its bytes. `folder` is where its external data lies; without one such data is an error.
pub fn load_bytes(bytes: impl Into<Bytes>, folder: Option<&Path>, options: &LoadOptions) -> Result<Graph> {
    load_map(Arc::new(Map::in_memory("model", bytes.into())), folder, options)
}

fn load_map(map: Arc<Map>, folder: Option<&Path>, options: &LoadOptions) -> Result<Graph> {
    let built = build::build(map.clone(), folder, options)?;
    // Parsing touched pages around every header; nothing needs them until weights are packed.
    map.release(0, map.as_slice().len() as u64);
    let graph = walk::walk(built)?;
    verify::verify(&graph)?;
    Ok(graph)
}
