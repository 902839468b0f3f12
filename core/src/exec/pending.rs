//! Runs that returned before they finished: who waits for them, and what must stay as it is until then.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ortolan_ep_abi::raw;

use super::cancel::GO;
use super::run::Run;
use super::slot::{Held, Late, SlotState, recycle};
use crate::abi::{Fence, code_of};
use crate::error::{Error, Result, codes};
use crate::plan::{RunStep, Slot};

/// How often a waiting run looks at its cancel word.
const LOOK: Duration = Duration::from_millis(5);
/// How long after a run was stopped an EP may take to finish.
const GRACE: Duration = Duration::from_secs(5);

/// A run that has not finished.
pub(crate) struct Pending {
    pub fence: Arc<Fence>,
    pub part: u32,
    pub reads: Vec<Slot>,
    pub makes: Vec<Slot>,
    /// It reads memory that the caller has only lent.
    pub borrows: bool,
}

impl Pending {
    /// Says of slots what it does with them.
    pub fn mark(&self, slots: &mut [SlotState]) {
        for (list, late) in [(&self.reads, Late::Read), (&self.makes, Late::Made)] {
            for &slot in list {
                let slot = &mut slots[slot as usize];
                slot.late = slot.late.max(late);
            }
        }
    }

    /// Whether it must end before a step begins.
    pub fn is_before(&self, step: &RunStep) -> bool {
        let made = |slot: &Slot| self.makes.contains(slot);
        self.part == step.part
            || step.ins.iter().any(|i| made(&i.slot))
            || step.outs.iter().any(|s| made(s) || self.reads.contains(s))
    }

    /// The value of one slot is in another, too.
    pub fn share(&mut self, from: Slot, to: Slot) {
        for list in [&mut self.reads, &mut self.makes] {
            if list.contains(&from) {
                list.push(to);
            }
        }
    }
}

impl Run<'_> {
    /// Waits until nothing is pending any more.
    #[cold]
    pub fn settle(&mut self) -> Result<()> {
        self.settle_if(|_| true)
    }

    /// Waits until these slots have their values; other parts go on.
    pub fn settle_slots(&mut self, slots: &[Slot]) -> Result<()> {
        if slots.iter().any(|&s| self.lane.state.slots[s as usize].late == Late::Made) {
            self.settle_if(|p| p.makes.iter().any(|s| slots.contains(s)))?;
        }
        Ok(())
    }

    /// Waits for some of what is pending.
    #[cold]
    pub fn settle_if(&mut self, which: impl Fn(&Pending) -> bool) -> Result<()> {
        let mut result = Ok(());
        while let Some(at) = self.lane.state.pending.iter().position(&which) {
            let next = self.lane.state.pending.remove(at);
            let ended = self.wait(&next);
            let state = &mut self.lane.state;
            next.reads.iter().chain(&next.makes).for_each(|slot| state.slots[*slot as usize].late = Late::No);
            state.pending.iter().for_each(|p| p.mark(&mut state.slots));
            if let Some(recorder) = &mut state.recorder {
                recorder.kernels(next.part, next.fence.take_events());
            }
            match ended {
                Ok(()) => {}
                Err(e) if e.is(codes::FENCE_LOST) => {
                    self.lane.state.lost = true;
                    std::mem::forget(next);
                    return Err(e);
                }
                Err(e) => result = result.and(Err(e)),
            }
        }
        let state = &mut self.lane.state;
        if state.pending.is_empty() {
            for held in std::mem::take(&mut state.hold) {
                if let Held::Value(value) = held {
                    recycle(value, &mut state.memory);
                }
            }
        }
        result
    }

    fn wait(&self, pending: &Pending) -> Result<()> {
        let ep = self.plan.parts[pending.part as usize].ep();
        let mut stopped: Option<Instant> = None;
        loop {
            if let Some((status, text)) = pending.fence.wait(LOOK) {
                if status == raw::OK {
                    return Ok(());
                }
                let text = if text.is_empty() { format!("a late run ended with {status} and no reason") } else { text };
                let error = Error::new(code_of(status, codes::EP_FAILED), text).from_ep(ep.name(), Some(status));
                return Err(self.failed(pending.part, error));
            }
            if self.cancel.load(Relaxed) == GO {
                continue;
            }
            let since = *stopped.get_or_insert_with(Instant::now);
            // Lent memory goes back to the caller when the run returns, so it must not return before the EP is done.
            if since.elapsed() > GRACE && !pending.borrows {
                let text = "it did not finish a run within 5 s after it was stopped";
                return Err(Error::new(codes::FENCE_LOST, text).from_ep(ep.name(), None));
            }
        }
    }
}
