//! The plans of a session: one, or one per set of shapes; and one that does not believe dim names, if a run needs it.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::maker::{Maker, Ready};
use crate::error::Result;

/// Plans for EPs that want fixed shapes, most recently used last.
pub(super) struct Keyed {
    all: RwLock<Vec<Entry>>,
    most: usize,
}

#[derive(Clone)]
struct Entry {
    symbols: Box<[i64]>,
    plan: Arc<OnceLock<Result<Arc<Ready>>>>,
}

impl Keyed {
    pub fn new(most: usize) -> Keyed {
        Keyed { all: RwLock::default(), most }
    }

    /// The plan for these numbers of symbols. Whoever comes first makes it; others with the same wait for it, and nobody
    /// else does.
    pub fn get(&self, symbols: &[i64], maker: &Maker) -> Result<Arc<Ready>> {
        let entry = self.find(symbols).unwrap_or_else(|| self.insert(symbols));
        entry.plan.get_or_init(|| maker.make(symbols).map(Arc::new)).clone()
    }

    fn find(&self, symbols: &[i64]) -> Option<Entry> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|e| *e.symbols == *symbols)?;
        let entry = all[at].clone();
        let newest = at + 1 == all.len();
        drop(all);
        if !newest {
            let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = all.iter().position(|e| Arc::ptr_eq(&e.plan, &entry.plan)) {
                let entry = all.remove(at);
                all.push(entry);
            }
        }
        Some(entry)
    }

    fn insert(&self, symbols: &[i64]) -> Entry {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = all.iter().find(|e| *e.symbols == *symbols) {
            return entry.clone();
        }
        if all.len() >= self.most {
            all.remove(0);
        }
        let entry = Entry { symbols: symbols.into(), plan: Arc::default() };
        all.push(entry.clone());
        entry
    }

    /// All that are ready.
    pub fn ready(&self) -> Vec<Arc<Ready>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|e| e.plan.get()?.as_ref().ok().cloned()).collect()
    }
}
