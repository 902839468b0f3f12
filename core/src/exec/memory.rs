//! Memory of a lane: one bump block for scratch, spare buffers for values, two buffers per output, and the limits.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
    fence,
};

use crate::abi::Refusal;
use crate::error::codes;
use crate::value::{ALIGN, Buffer};

/// Host memory that the lanes of a session hold, and how much they may.
#[derive(Debug)]
pub(crate) struct Account {
    used: AtomicU64,
    limit: u64,
}

impl Account {
    pub fn new(limit: Option<u64>) -> Account {
        Account { used: AtomicU64::new(0), limit: limit.unwrap_or(u64::MAX) }
    }

    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > self.limit {
            self.used.fetch_sub(bytes, Relaxed);
            return false;
        }
        true
    }
}

/// A lane's memory.
pub(crate) struct Memory {
    account: Arc<Account>,
    /// Buffers that this lane made and that are not given away for good.
    used: u64,
    /// What this run may take.
    pub limit: u64,
    spare: Vec<Arc<Buffer>>,
    outs: Box<[[Option<Arc<Buffer>>; 2]]>,
    bump: Bump,
}

/// Scratch of one part after the other.
#[derive(Default)]
struct Bump {
    block: Option<Buffer>,
    /// Blocks that this part needed beyond the first; they are joined into one before the next run.
    more: Vec<Buffer>,
    at: usize,
    /// Asked for by the part that runs.
    asked: usize,
    /// Most that a part asked for.
    peak: usize,
}

/// Spare buffers that a lane keeps; beyond it something leaks buffers.
const SPARE: usize = 4096;

impl Memory {
    pub fn new(account: Arc<Account>, outputs: usize, slots: usize) -> Memory {
        Memory {
            account,
            used: 0,
            limit: u64::MAX,
            spare: Vec::with_capacity(slots.min(SPARE)),
            outs: (0..outputs).map(|_| [None, None]).collect(),
            bump: Bump::default(),
        }
    }

    /// A fresh zeroed buffer, within the limits.
    #[cold]
    fn make(&mut self, bytes: usize) -> Result<Buffer, Refusal> {
        let wanted = bytes as u64;
        if self.used.saturating_add(wanted) > self.limit || !self.account.take(wanted) {
            self.spare.clear();
            let text = format!("{bytes} bytes more would exceed the memory limit");
            return Err(Refusal::memory(codes::MEMORY_LIMIT, text));
        }
        match Buffer::host(bytes) {
            Some(buffer) => {
                // What was reserved and what was made differ by rounding.
                let extra = buffer.capacity() as u64 - wanted;
                self.account.used.fetch_add(extra, Relaxed);
                self.used += buffer.capacity() as u64;
                Ok(buffer)
            }
            None => {
                self.account.used.fetch_sub(wanted, Relaxed);
                Err(Refusal::memory(codes::OUT_OF_MEMORY, format!("the system has no {bytes} bytes left")))
            }
        }
    }

    /// Forgets a buffer that goes.
    fn gone(&mut self, capacity: usize) {
        self.used = self.used.saturating_sub(capacity as u64);
        self.account.used.fetch_sub(capacity as u64, Relaxed);
    }

    /// A buffer for a value inside the plan: the smallest spare one that fits.
    #[inline]
    pub fn buffer(&mut self, bytes: usize) -> Result<Arc<Buffer>, Refusal> {
        let mut best: Option<(usize, usize)> = None;
        let mut largest: Option<(usize, usize)> = None;
        for (at, b) in self.spare.iter().enumerate() {
            let cap = b.capacity();
            if cap >= bytes && best.is_none_or(|(_, c)| cap < c) {
                best = Some((at, cap));
            }
            if largest.is_none_or(|(_, c)| cap > c) {
                largest = Some((at, cap));
            }
        }
        if let Some((at, _)) = best {
            return Ok(self.spare.swap_remove(at));
        }
        // One that has become too small is replaced by one with room to grow.
        let room = match largest {
            Some((at, cap)) => {
                drop(self.spare.swap_remove(at));
                self.gone(cap);
                bytes.saturating_add(bytes / 4)
            }
            None => bytes,
        };
        self.make(room).map(Arc::new)
    }

    /// Takes back a buffer that nobody else holds.
    #[inline]
    pub fn recycle(&mut self, buffer: Arc<Buffer>) {
        if !buffer.is_host_made() || Arc::strong_count(&buffer) != 1 {
            return;
        }
        // Whoever shared it has used it for the last time before this lane does so again.
        fence(Acquire);
        if self.spare.len() < self.spare.capacity() {
            self.spare.push(buffer);
        } else {
            self.gone(buffer.capacity());
        }
    }

    /// A buffer for output `k` of the model: one of its last two, if the user has dropped it.
    pub fn output(&mut self, k: usize, bytes: usize) -> Result<Arc<Buffer>, Refusal> {
        let free = |b: &Option<Arc<Buffer>>| b.as_ref().is_none_or(|b| Arc::strong_count(b) == 1);
        let fits = |b: &Option<Arc<Buffer>>| b.as_ref().is_some_and(|b| b.capacity() >= bytes);
        let pair = &self.outs[k];
        if let Some(at) = (0..2).find(|&i| free(&pair[i]) && fits(&pair[i])) {
            // The user's last use of it comes before ours.
            fence(Acquire);
            if let Some(buffer) = &self.outs[k][at] {
                return Ok(Arc::clone(buffer));
            }
        }
        let at = (0..2).find(|&i| free(&self.outs[k][i])).unwrap_or(0);
        // An output that has grown may go on growing: it gets room for some further runs.
        let mut room = bytes;
        if let Some(old) = self.outs[k][at].take() {
            if old.capacity() < bytes {
                room = bytes.saturating_add(bytes / 4);
            }
            self.gone(old.capacity());
        }
        let buffer = Arc::new(self.make(room).or_else(|_| self.make(bytes))?);
        self.outs[k][at] = Some(Arc::clone(&buffer));
        Ok(buffer)
    }

    /// Scratch for the part that runs.
    pub fn scratch(&mut self, bytes: u64) -> Result<*mut u8, Refusal> {
        let wanted = usize::try_from(bytes.max(1)).ok().and_then(|b| b.checked_next_multiple_of(ALIGN));
        let Some(wanted) = wanted.filter(|&w| isize::try_from(w).is_ok()) else {
            return Err(Refusal::memory(codes::OUT_OF_MEMORY, format!("{bytes} bytes of scratch are no size")));
        };
        self.bump.asked = self.bump.asked.saturating_add(wanted);
        if let Some(block) = &self.bump.block
            && self.bump.more.is_empty()
            && wanted <= block.capacity() - self.bump.at
        {
            let at = self.bump.at;
            self.bump.at += wanted;
            return Ok(block.ptr().wrapping_add(at));
        }
        let block = self.make(wanted)?;
        let ptr = block.ptr();
        self.bump.more.push(block);
        Ok(ptr)
    }

    /// A part has returned: its scratch is free again.
    #[inline]
    pub fn end_part(&mut self) {
        self.bump.peak = self.bump.peak.max(self.bump.asked);
        (self.bump.at, self.bump.asked) = (0, 0);
        if !self.bump.more.is_empty() {
            self.join();
        }
    }

    /// One block instead of several, so that the next run takes all from it.
    #[cold]
    fn join(&mut self) {
        for block in std::mem::take(&mut self.bump.more).into_iter().chain(self.bump.block.take()) {
            let capacity = block.capacity();
            drop(block);
            self.gone(capacity);
        }
        // Without it the next part says what it needs, and what is missing.
        self.bump.block = self.make(self.bump.peak).ok();
    }

    /// Gives up everything that is not in use.
    pub fn trim(&mut self) {
        for buffer in std::mem::take(&mut self.spare) {
            self.gone(buffer.capacity());
        }
        self.spare = Vec::with_capacity(SPARE.min(64));
        for k in 0..self.outs.len() {
            for i in 0..2 {
                if let Some(old) = self.outs[k][i].take() {
                    self.gone(old.capacity());
                }
            }
        }
        if let Some(block) = self.bump.block.take() {
            self.gone(block.capacity());
        }
        self.bump = Bump::default();
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.used, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: Option<u64>) -> Memory {
        Memory::new(Arc::new(Account::new(limit)), 1, 8)
    }

    #[test]
    fn the_smallest_buffer_that_fits_is_used_again() {
        let mut m = memory(None);
        let (a, b) = (m.buffer(1000).unwrap(), m.buffer(100).unwrap());
        let at = (a.ptr(), b.ptr());
        m.recycle(a);
        m.recycle(b);
        let b = m.buffer(90).unwrap();
        assert_eq!((b.ptr(), m.buffer(90).unwrap().ptr()), (at.1, at.0));
        let shared = Arc::clone(&b);
        m.recycle(b);
        assert_eq!(m.spare.len(), 0);
        drop(shared);
    }

    #[test]
    fn a_growing_value_leaves_one_buffer_behind() {
        let mut m = memory(None);
        for n in 1..200 {
            let b = m.buffer(n * 64).unwrap();
            m.recycle(b);
        }
        assert_eq!(m.spare.len(), 1);
        assert!(m.account.used() <= 200 * 64 * 2, "{}", m.account.used());
    }

    #[test]
    fn outputs_alternate_while_the_user_holds_one() {
        let mut m = memory(None);
        let a = m.output(0, 64).unwrap();
        let b = m.output(0, 64).unwrap();
        assert_ne!(a.ptr(), b.ptr());
        let (pa, pb) = (a.ptr(), b.ptr());
        drop(a);
        let a = m.output(0, 64).unwrap();
        assert_eq!(a.ptr(), pa);
        let c = m.output(0, 64).unwrap();
        assert!(c.ptr() != pa && c.ptr() != pb);
        drop((a, b, c));
        m.trim();
        assert_eq!(m.account.used(), 0);
    }

    #[test]
    fn scratch_grows_into_one_block() {
        let mut m = memory(None);
        let sizes = [10u64, 1000, 0, 300];
        let run = |m: &mut Memory| -> Vec<usize> {
            let at = sizes.iter().map(|&s| m.scratch(s).unwrap().addr()).collect();
            m.end_part();
            at
        };
        let first = run(&mut m);
        assert!(first.iter().all(|a| a % 64 == 0));
        let second = run(&mut m);
        assert_eq!(run(&mut m), second);
        assert_eq!(second.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>(), [64, 1024, 64]);
        assert!(m.scratch(u64::MAX).is_err());
    }

    #[test]
    fn limits_hold_and_are_given_back() {
        let mut m = memory(Some(10_000));
        let held = m.buffer(6_000).unwrap();
        assert_eq!(m.buffer(6_000).unwrap_err().code.name(), "memory-limit");
        m.limit = 6_500;
        assert_eq!(m.scratch(1_000).unwrap_err().code.name(), "memory-limit");
        m.limit = u64::MAX;
        assert!(m.scratch(1_000).is_ok());
        let account = Arc::clone(&m.account);
        drop((held, m));
        assert_eq!(account.used(), 0);
    }
}
