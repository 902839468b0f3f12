//! Packed weights and the cache of them: the same weight in both branches of an If, in a loop's body or in two parts is
//! packed once per session.

use crate::slab::Slab;
use core::ops::Range;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a packed weight depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PackKey {
    /// Id of the constant at the start of the chain.
    pub base: u64,
    /// Hash of everything between it and the reader; 0 if there is nothing.
    pub chain: u64,
    /// Format of the plan, 0 for a plain copy.
    pub format: u64,
}

/// A packed weight in its slab.
#[derive(Debug)]
pub(crate) struct Packed {
    slab: Arc<Slab>,
    range: Range<usize>,
}

impl Packed {
    pub fn new(slab: Arc<Slab>, range: Range<usize>) -> Self {
        Packed { slab, range }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.slab.bytes()[self.range.clone()]
    }
}

/// Packed weights that some part of the session still holds.
#[derive(Debug, Default)]
pub(crate) struct PackCache(Mutex<HashMap<PackKey, Weak<Packed>>>);

impl PackCache {
    pub fn get(&self, key: &PackKey) -> Option<Arc<Packed>> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(key).and_then(Weak::upgrade)
    }

    pub fn put(&self, key: PackKey, packed: &Arc<Packed>) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, held| held.strong_count() > 0);
        map.insert(key, Arc::downgrade(packed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_weights_are_forgotten() {
        let cache = PackCache::default();
        let key = PackKey { base: 1, chain: 0, format: 0 };
        let packed = Arc::new(Packed::new(Arc::new(Slab::new(64).unwrap()), 0..10));
        cache.put(key, &packed);
        assert_eq!(cache.get(&key).unwrap().bytes().len(), 10);
        assert!(cache.get(&PackKey { format: 1, ..key }).is_none());
        drop(packed);
        assert!(cache.get(&key).is_none());
    }
}
