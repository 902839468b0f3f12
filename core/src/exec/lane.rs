//! What changes during a run: one lane per running call, taken from and put back to a small set without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

use ortolan_ep_abi::call::EMPTY;
use ortolan_ep_abi::raw::{self, UNKNOWN};

use super::memory::{Account, Memory};
use super::pending::Pending;
use super::profile::Recorder;
use super::slot::{Held, SlotState};
use crate::abi::PartHandle;
use crate::plan::Plan;
use crate::value::Tensor;

/// Lanes that are kept for further runs; those of more runs at once are freed when they end.
const KEPT: usize = 16;

/// Everything that one run needs and changes.
pub(crate) struct Lane {
    /// The EPs' own lanes, by part.
    pub plugin: Box<[*mut raw::Lane]>,
    /// Inputs of the part that runs.
    pub ins: Box<[raw::Value]>,
    pub state: State,
    parts: Arc<[Arc<PartHandle>]>,
}

// SAFETY: a lane is used by one thread at a time; EPs are asked for nothing else of theirs.
unsafe impl Send for Lane {}

/// What the host's functions work on while a part runs.
pub(crate) struct State {
    pub slots: Box<[SlotState]>,
    pub memory: Memory,
    /// Numbers of the symbols, UNKNOWN where nobody knows yet.
    pub symbols: Box<[i64]>,
    /// The same as they follow from the inputs alone.
    pub base: Box<[i64]>,
    pub base_binding: u64,
    pub binding: u64,
    /// Sizes and elements of the last run's inputs.
    pub last: Vec<i64>,
    pub bound: bool,
    pub seen: Seen,
    /// Loose elements of the part that runs. Boxed, because the EP has pointers to their shapes.
    #[expect(clippy::vec_box, reason = "they must not move")]
    pub loose: Vec<Box<Tensor>>,
    pub pending: Vec<Pending>,
    /// What died while a run that had not finished might need it.
    pub hold: Vec<Held>,
    /// Room for the results of expressions.
    pub numbers: Vec<i64>,
    /// Outputs of the model that stay where the EP leaves them.
    pub keep: Vec<u32>,
    /// How outputs are wanted, when some are kept.
    pub wants: Vec<u32>,
    /// Slots of inputs of which the caller holds one handle in case the run fails.
    pub backups: Vec<u32>,
    pub recorder: Option<Recorder>,
    /// Copies that no step of the plan makes.
    pub extra_copies: u64,
    /// A run on it never finished: its memory may still be written.
    pub lost: bool,
}

impl Lane {
    pub fn new(plan: &Plan, account: &Arc<Account>) -> Box<Lane> {
        let symbols: Box<[i64]> = vec![UNKNOWN; plan.binder.symbols].into();
        let mut lane = Box::new(Lane {
            plugin: vec![std::ptr::null_mut(); plan.parts.len()].into(),
            ins: vec![EMPTY; plan.widest].into(),
            state: State {
                slots: plan.slots.iter().map(|_| SlotState::new()).collect(),
                memory: Memory::new(Arc::clone(account), plan.outputs.len(), plan.slots.len()),
                base: symbols.clone(),
                seen: Seen::new(symbols.len()),
                symbols,
                base_binding: 0,
                binding: 0,
                last: Vec::with_capacity(plan.binder.compared),
                bound: false,
                loose: Vec::new(),
                pending: Vec::new(),
                hold: Vec::new(),
                numbers: Vec::new(),
                keep: Vec::new(),
                wants: Vec::new(),
                backups: Vec::new(),
                recorder: None,
                extra_copies: 0,
                lost: false,
            },
            parts: Arc::clone(&plan.parts),
        });
        for (slot, value) in &plan.presets {
            lane.state.slots[*slot as usize].set(value.clone());
        }
        lane
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for (part, &lane) in self.parts.iter().zip(&self.plugin) {
            if !lane.is_null() {
                // SAFETY: made by this part, and this is its only user.
                unsafe { part.free_lane(lane) }
            }
        }
    }
}

/// Symbol vectors that were bound, and their numbers. The oldest goes; a number is never used again.
pub(crate) struct Seen {
    width: usize,
    keys: Box<[i64]>,
    numbers: [u64; Seen::KEPT],
    next: usize,
    count: u64,
}

impl Seen {
    const KEPT: usize = 16;

    fn new(width: usize) -> Seen {
        Seen { width, keys: vec![0; width * Seen::KEPT].into(), numbers: [0; Seen::KEPT], next: 0, count: 0 }
    }

    /// The number of a vector: the same for the same vector while it is remembered.
    pub fn number(&mut self, symbols: &[i64]) -> u64 {
        let width = self.width;
        let key = |at: usize| at * width..(at + 1) * width;
        if let Some(at) = (0..Seen::KEPT).find(|&at| self.numbers[at] != 0 && self.keys[key(at)] == *symbols) {
            return self.numbers[at];
        }
        let at = self.next;
        self.next = (at + 1) % Seen::KEPT;
        self.count += 1;
        self.keys[key(at)].copy_from_slice(symbols);
        self.numbers[at] = self.count;
        self.count
    }
}

/// The lanes of a plan.
pub(crate) struct Lanes {
    slots: [Padded; KEPT],
    account: Arc<Account>,
}

#[repr(align(128))]
struct Padded(AtomicPtr<Lane>);

impl Lanes {
    pub fn new(account: Arc<Account>) -> Lanes {
        Lanes { slots: std::array::from_fn(|_| Padded(AtomicPtr::new(std::ptr::null_mut()))), account }
    }

    /// A lane of nobody else's.
    pub fn take(&self, plan: &Plan) -> Box<Lane> {
        let start = start();
        for i in 0..KEPT {
            let slot = &self.slots[(start + i) % KEPT].0;
            if slot.load(Relaxed).is_null() {
                continue;
            }
            let lane = slot.swap(std::ptr::null_mut(), Acquire);
            if !lane.is_null() {
                // SAFETY: put there by `put`, and taken out by the swap.
                return unsafe { Box::from_raw(lane) };
            }
        }
        Lane::new(plan, &self.account)
    }

    /// Puts a lane back; a surplus one is freed.
    pub fn put(&self, lane: Box<Lane>) {
        let (start, lane) = (start(), Box::into_raw(lane));
        for i in 0..KEPT {
            let slot = &self.slots[(start + i) % KEPT].0;
            let free = slot.load(Relaxed).is_null();
            if free && slot.compare_exchange(std::ptr::null_mut(), lane, Release, Relaxed).is_ok() {
                return;
            }
        }
        // SAFETY: made by `into_raw` above, and in no slot.
        drop(unsafe { Box::from_raw(lane) });
    }

    /// Lets every lane that is not in use give up memory.
    pub fn trim(&self) {
        for Padded(slot) in &self.slots {
            let lane = slot.swap(std::ptr::null_mut(), Acquire);
            if !lane.is_null() {
                // SAFETY: put there by `put`, and taken out by the swap.
                let mut lane = unsafe { Box::from_raw(lane) };
                lane.state.memory.trim();
                self.put(lane);
            }
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for Padded(slot) in &self.slots {
            let lane = slot.swap(std::ptr::null_mut(), Acquire);
            if !lane.is_null() {
                // SAFETY: put there by `put`, and taken out by the swap.
                drop(unsafe { Box::from_raw(lane) });
            }
        }
    }
}

/// Where this thread looks first, so that threads rarely meet.
fn start() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static START: usize = NEXT.fetch_add(1, Relaxed));
    START.with(|s| *s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_keeps_its_number_while_it_is_remembered() {
        let mut seen = Seen::new(2);
        let a = seen.number(&[1, 2]);
        assert_eq!((seen.number(&[1, 3]) != a, seen.number(&[1, 2])), (true, a));
        for n in 0..Seen::KEPT as i64 {
            seen.number(&[9, n]);
        }
        assert!(seen.number(&[1, 2]) > a);
        let mut none = Seen::new(0);
        assert_eq!(none.number(&[]), none.number(&[]));
    }
}
