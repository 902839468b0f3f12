//! Runs that finish later than `run` returns.
//!
//! A plugin holds a number, not a pointer, so that completing a fence twice, or one that was given up, is only logged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ortolan_ep_abi::raw;

use super::sentence;

/// A run that was deferred.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    id: u64,
    /// Its run is profiled.
    profiled: bool,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ended: Option<(i32, String)>,
    events: Vec<Kernel>,
}

/// A kernel of a profiled run, as an EP reports it.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub name: String,
    pub node: u32,
    pub worker: u32,
    pub start_ns: u64,
    pub dur_ns: u64,
    pub flops: u64,
    pub bytes: u64,
}

impl Kernel {
    pub fn of(e: &raw::Event) -> Kernel {
        Kernel {
            name: sentence(e.kernel),
            node: e.node,
            worker: e.worker,
            start_ns: e.start_ns,
            dur_ns: e.dur_ns,
            flops: e.flops,
            bytes: e.bytes,
        }
    }
}

/// More events than a run has; beyond it an EP is making them up.
pub(crate) const EVENTS: usize = 1 << 22;

static NEXT: AtomicU64 = AtomicU64::new(1);
static OPEN: LazyLock<Mutex<HashMap<u64, Arc<Fence>>>> = LazyLock::new(Default::default);

impl Fence {
    pub fn new(profiled: bool) -> Arc<Fence> {
        let fence = Arc::new(Fence { id: NEXT.fetch_add(1, Relaxed), profiled, ..Fence::default() });
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
        fence.state.lock().unwrap_or_else(PoisonError::into_inner).ended = Some((status, text));
        fence.done.notify_all();
        true
    }

    /// Takes events of a run that has not finished; false if there is no such fence (any more).
    pub fn profile(raw: *mut raw::Fence, events: &[raw::Event]) -> bool {
        let id = raw.addr() as u64;
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        let Some(fence) = open else { return false };
        if fence.profiled {
            let mut state = fence.state.lock().unwrap_or_else(PoisonError::into_inner);
            let room = EVENTS.saturating_sub(state.events.len());
            state.events.extend(events.iter().take(room).map(Kernel::of));
        }
        true
    }

    /// The events that came so far.
    pub fn take_events(&self) -> Vec<Kernel> {
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).events)
    }

    /// Status and sentence, once there are; `None` after `patience`.
    pub fn wait(&self, patience: Duration) -> Option<(i32, String)> {
        let until = Instant::now() + patience;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.ended.is_none() {
            let left = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero())?;
            state = self.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.ended.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_completed_once_from_any_thread() {
        let fence = Fence::new(false);
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

    #[test]
    fn events_come_before_the_end_and_only_where_they_are_wanted() {
        let event =
            raw::Event { kernel: raw::Str::new("k"), node: 1, worker: 0, start_ns: 2, dur_ns: 3, flops: 4, bytes: 5 };
        for profiled in [true, false] {
            let fence = Fence::new(profiled);
            assert!(Fence::profile(fence.as_raw(), &[event, event]));
            assert!(Fence::complete(fence.as_raw(), 0, String::new()));
            assert!(!Fence::profile(fence.as_raw(), &[event]), "it is complete");
            assert_eq!(fence.take_events().len(), if profiled { 2 } else { 0 });
        }
    }
}
