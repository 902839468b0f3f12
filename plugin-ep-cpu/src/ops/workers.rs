//! Scratch memory by worker.

use smallvec::SmallVec;
use std::sync::{Mutex, PoisonError};

/// A piece of memory for each worker. Workers that run at the same time have different numbers, so nobody waits.
pub(crate) struct Workers<'a, T>(SmallVec<[Mutex<&'a mut [T]>; 16]>);

impl<'a, T> Workers<'a, T> {
    /// Cuts memory into pieces of `len` elements, as many as there are workers.
    pub fn new(memory: &'a mut [T], len: usize) -> Self {
        Workers(memory.chunks_exact_mut(len.max(1)).map(Mutex::new).collect())
    }

    /// Works with a worker's piece.
    pub fn with<R>(&self, worker: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
        work(&mut self.0[worker].lock().unwrap_or_else(PoisonError::into_inner))
    }
}
