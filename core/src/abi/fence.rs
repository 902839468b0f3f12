//! Runs that finish later than `run` returns.
//!
//! A plugin holds a number, not a pointer, so that completing a fence twice, or one that was given up, is only logged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ortolan_ep_abi::raw;

/// A run that was deferred.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    id: u64,
    state: Mutex<Option<(i32, String)>>,
    done: Condvar,
}

static NEXT: AtomicU64 = AtomicU64::new(1);
static OPEN: LazyLock<Mutex<HashMap<u64, Arc<Fence>>>> = LazyLock::new(Default::default);

impl Fence {
    pub fn new() -> Arc<Fence> {
        let fence = Arc::new(Fence { id: NEXT.fetch_add(1, Relaxed), ..Fence::default() });
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert(fence.id, Arc::clone(&fence));
        fence
    }

    /// What the plugin gets.
    pub fn as_raw(&self) -> *mut raw::Fence {
        std::ptr::without_provenance_mut(usize::try_from(self.id).unwrap_or(usize::MAX))
    }

    /// Takes a completion; false if there is no such fence (any more).
    pub fn complete(raw: *mut raw::Fence, status: i32, text: String) -> bool {
        let id = raw.addr() as u64;
        let Some(fence) = OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) else { return false };
        *fence.state.lock().unwrap_or_else(PoisonError::into_inner) = Some((status, text));
        fence.done.notify_all();
        true
    }

    /// Status and sentence, once there are; `None` after `patience`.
    pub fn wait(&self, patience: Duration) -> Option<(i32, String)> {
        let until = Instant::now() + patience;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.is_none() {
            let left = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero())?;
            state = self.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_completed_once_from_any_thread() {
        let fence = Fence::new();
        let raw = fence.as_raw().addr();
        assert_eq!(fence.wait(Duration::from_millis(5)), None);
        let other = std::thread::spawn(move || {
            let raw = std::ptr::without_provenance_mut(raw);
            (Fence::complete(raw, 3, "late".into()), Fence::complete(raw, 0, String::new()))
        });
        assert_eq!(fence.wait(Duration::from_secs(30)), Some((3, "late".into())));
        assert_eq!(other.join().unwrap(), (true, false));
        assert!(!Fence::complete(std::ptr::null_mut(), 0, String::new()));
    }
}
