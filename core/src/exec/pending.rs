//! Runs that returned before they finished: who waits for them, and what must stay as it is until then.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ortolan_ep_abi::raw;

use super::cancel::GO;
use super::run::Run;
use super::slot::{Held, recycle};
use crate::abi::Fence;
use crate::error::{Error, Result, codes};
use crate::plan::Slot;

/// How often a waiting run looks at its cancel word.
const LOOK: Duration = Duration::from_millis(5);
/// How long after a run was stopped an EP may take to finish.
const GRACE: Duration = Duration::from_secs(5);

/// A run that has not finished.
pub(crate) struct Pending {
    pub fence: Arc<Fence>,
    pub part: u32,
    pub slots: Vec<Slot>,
    /// What died with its step.
    pub hold: Vec<Held>,
    /// It reads memory that the caller has only lent.
    pub borrows: bool,
}

impl Run<'_> {
    /// Waits until nothing is pending any more.
    #[cold]
    pub fn settle(&mut self) -> Result<()> {
        let mut result = Ok(());
        while !self.lane.state.pending.is_empty() {
            let next = self.lane.state.pending.remove(0);
            let ended = self.wait(&next);
            for slot in &next.slots {
                self.lane.state.slots[*slot as usize].pending = false;
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
            for held in next.hold {
                if let Held::Value(value) = held {
                    recycle(value, &mut self.lane.state.memory);
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
                let code = match status {
                    raw::CANCELLED => codes::CANCELLED,
                    raw::MEMORY => codes::OUT_OF_MEMORY,
                    raw::PANIC => codes::EP_PANIC,
                    _ => codes::EP_FAILED,
                };
                let text = if text.is_empty() { format!("a late run ended with {status} and no reason") } else { text };
                return Err(Error::new(code, text).from_ep(ep.name(), Some(status)));
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
