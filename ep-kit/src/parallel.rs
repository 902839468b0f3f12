//! How a kernel spreads a loop over the threads that the host lends it.
//!
//! Kernels see only this trait: the host's `parallel_for` stands behind it in a
//! plugin, [`Serial`] in tests, benches and anything that must stay on its
//! thread. It must not know where threads come from.

use core::ops::Range;

/// The host stopped the loop before all of it ran, because the run was
/// cancelled. Whatever the loop was writing is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl core::fmt::Display for Stopped {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the run was cancelled")
    }
}

impl core::error::Error for Stopped {}

/// Threads that a kernel may use for the length of one call.
pub trait Parallel: Sync {
    /// How many workers may run at once, at least 1. Worker numbers are below it.
    fn width(&self) -> usize;

    /// Calls `body(worker, range)` until each index in `0..n` was in exactly one
    /// range, and returns when all calls have returned.
    ///
    /// - Ranges are not empty; they begin at multiples of `grain` (0 means 1)
    ///   and hold one grain or several, so `body` must not depend on how far a
    ///   range reaches: results are the same for every cut.
    /// - Two calls that run at the same time have different `worker` numbers,
    ///   so a worker's slice of the scratch memory is its own.
    /// - A call made inside a body runs on that body's thread alone.
    ///
    /// # Errors
    ///
    /// [`Stopped`] when the run was cancelled; some indices then never ran.
    fn for_each(&self, n: usize, grain: usize, body: &(dyn Fn(usize, Range<usize>) + Sync)) -> Result<(), Stopped>;
}

/// The calling thread alone, as worker 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn width(&self) -> usize {
        1
    }

    fn for_each(&self, n: usize, _grain: usize, body: &(dyn Fn(usize, Range<usize>) + Sync)) -> Result<(), Stopped> {
        if n > 0 {
            body(0, 0..n);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn serial_covers_everything_once() {
        for n in [0, 1, 7, 64] {
            let seen = Mutex::new(vec![0; n]);
            let done = Serial.for_each(n, 3, &|worker, range| {
                assert_eq!(worker, 0);
                assert!(!range.is_empty());
                range.for_each(|i| seen.lock().unwrap()[i] += 1);
            });
            assert_eq!(done, Ok(()));
            assert!(seen.lock().unwrap().iter().all(|&count| count == 1));
        }
    }
}
