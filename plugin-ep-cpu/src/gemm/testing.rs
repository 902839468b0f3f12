//! What tests of kernels share: exact numbers, threads that cut loops oddly, and a run that is cancelled.

use std::sync::Mutex;

use ortolan_ep_kit::parallel::{Parallel, Stopped};

/// Numbers between -3 and 3 by a fixed sequence.
pub(crate) fn integers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(7);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % 7) as f32 - 3.0
    };
    (0..n).map(|_| next()).collect()
}

/// Real threads that take chunks of changing length, the last ones first.
pub(crate) struct Threads(pub usize);

impl Parallel for Threads {
    fn width(&self) -> usize {
        self.0
    }
    fn for_each(
        &self,
        n: usize,
        grain: usize,
        body: &(dyn Fn(usize, core::ops::Range<usize>) + Sync),
    ) -> Result<(), Stopped> {
        let grain = grain.max(1);
        let (mut chunks, mut at, mut turn) = (Vec::new(), 0, 1);
        while at < n {
            let end = n.min(at + grain * turn);
            chunks.push(at..end);
            (at, turn) = (end, turn % 3 + 1);
        }
        let chunks = Mutex::new(chunks);
        std::thread::scope(|scope| {
            for worker in 0..self.0 {
                let chunks = &chunks;
                scope.spawn(move || {
                    loop {
                        let next = chunks.lock().unwrap().pop();
                        let Some(range) = next else { break };
                        body(worker, range);
                    }
                });
            }
        });
        Ok(())
    }
}

/// Stops every loop at once.
pub(crate) struct Cancelled;

impl Parallel for Cancelled {
    fn width(&self) -> usize {
        2
    }
    fn for_each(&self, _: usize, _: usize, _: &(dyn Fn(usize, core::ops::Range<usize>) + Sync)) -> Result<(), Stopped> {
        Err(Stopped)
    }
}
