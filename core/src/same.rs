//! Which loaded models have the same constants, so that these have the same ids in all sessions of a process.
//!
//! Small ones are compared by their bytes, those in files by the file and the place in it. Nothing is kept but hashes with
//! keys that are drawn anew in each process, so that nobody can make two models look the same.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{LazyLock, Mutex, PoisonError};

use ortolan_graph::Graph;
use ortolan_graph::ir::{Constant, Data};

/// Bytes that are hashed at most; a model with more of them outside of files has constants of its own.
const LIMIT: u64 = 64 << 20;

/// Two hashes of all constants of a model.
type Key = (u64, u64);

static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
static KNOWN: LazyLock<Mutex<HashMap<Key, u64>>> = LazyLock::new(Mutex::default);

/// The number of the first model that was seen with the constants of this graph; `fresh` if there was none.
pub(crate) fn number(graph: &Graph, fresh: u64) -> u64 {
    let Some(key) = key(graph) else { return fresh };
    *KNOWN.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(fresh)
}

fn key(graph: &Graph) -> Option<Key> {
    let mut hashers = [KEYS[0].build_hasher(), KEYS[1].build_hasher()];
    let mut left = LIMIT;
    for constant in graph.constants() {
        for hasher in &mut hashers {
            (constant.dtype.number(), &constant.dims[..]).hash(hasher);
        }
        add(constant, &mut hashers, &mut left)?;
    }
    let [a, b] = hashers.map(|mut h| {
        graph.constants().len().hash(&mut h);
        h.finish()
    });
    Some((a, b))
}

fn add(constant: &Constant, hashers: &mut [impl Hasher; 2], left: &mut u64) -> Option<()> {
    let file = match &constant.data {
        Data::Mapped { map, at, len } => map.id().map(|id| (id, *at, *len)),
        Data::Strings(texts) => {
            hashers.iter_mut().for_each(|h| texts.hash(h));
            return Some(());
        }
        _ => None,
    };
    if let Some(place) = file {
        hashers.iter_mut().for_each(|h| place.hash(h));
        return Some(());
    }
    let bytes = constant.bytes();
    *left = left.checked_sub(bytes.len() as u64)?;
    hashers.iter_mut().for_each(|h| bytes.hash(h));
    Some(())
}
