//! Disjoint pieces of an output for workers.
//!
//! One of the files with `unsafe`: it relies on the contract of [`Parallel`], that no index is in two ranges.

use crate::parallel::{Parallel, Stopped};
use core::ops::Range;

/// Calls `body(worker, first row, rows)` over pieces of `data` that together are all of it. A row is `row` elements, a
/// piece at least `grain` rows; elements behind the last whole row are left out.
///
/// # Errors
/// [`Stopped`] when the run was cancelled; some rows are then stale.
pub fn rows<T: Send>(
    par: &dyn Parallel,
    data: &mut [T],
    row: usize,
    grain: usize,
    body: impl Fn(usize, usize, &mut [T]) + Sync,
) -> Result<(), Stopped> {
    let row = row.max(1);
    let count = data.len() / row;
    let start = Start(data.as_mut_ptr());
    // The only call of `body`, and nothing else, is compiled for each of the thousand bodies there are.
    cut(par, count, grain, &|worker, range| {
        let start = &start;
        assert!(range.end <= count, "a range is outside of what was asked for");
        // SAFETY: the range lies inside the data, whose borrow lives on; no other worker has any of its indices.
        let piece = unsafe { core::slice::from_raw_parts_mut(start.0.add(range.start * row), range.len() * row) };
        body(worker, range.start, piece);
    })
}

/// `for_each`, without asking the host for what one worker does anyway.
fn cut(
    par: &dyn Parallel,
    count: usize,
    grain: usize,
    body: &(dyn Fn(usize, Range<usize>) + Sync),
) -> Result<(), Stopped> {
    if count > grain && par.width() > 1 {
        return par.for_each(count, grain, body);
    }
    if count > 0 {
        body(0, 0..count);
    }
    Ok(())
}

/// Calls `body(worker, parts, their elements)` until each part of `data` was in one call. Part k lies from `starts[k]` to
/// `starts[k + 1]`.
///
/// # Errors
/// [`Stopped`] when the run was cancelled; some parts are then stale.
///
/// # Panics
/// When `starts` falls, or leaves the data.
pub fn parts<T: Send>(
    par: &dyn Parallel,
    data: &mut [T],
    starts: &[usize],
    body: impl Fn(usize, Range<usize>, &mut [T]) + Sync,
) -> Result<(), Stopped> {
    assert!(starts.is_sorted() && starts.last().is_none_or(|&end| end <= data.len()), "parts are not in order");
    let start = Start(data.as_mut_ptr());
    let count = starts.len().saturating_sub(1);
    par.for_each(count, 1, &|worker, range| {
        let start = &start;
        let (from, to) = (starts[range.start], starts[range.end]);
        // SAFETY: inside the data, whose borrow lives on; as starts never fall, parts do not overlap, and no other
        // worker has any of this range's.
        let piece = unsafe { core::slice::from_raw_parts_mut(start.0.add(from), to - from) };
        body(worker, range, piece);
    })
}

/// A start address that workers share.
struct Start<T>(*mut T);

// SAFETY: workers reach disjoint elements only, and T may be sent to them.
unsafe impl<T: Send> Sync for Start<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads' worth of ranges, one after the other.
    struct Halves;
    impl Parallel for Halves {
        fn width(&self) -> usize {
            2
        }
        fn for_each(&self, n: usize, _: usize, body: &(dyn Fn(usize, Range<usize>) + Sync)) -> Result<(), Stopped> {
            body(0, 0..n / 2);
            body(1, n / 2..n);
            Ok(())
        }
    }

    #[test]
    fn parts_are_covered_once() {
        let mut data = [0; 7];
        parts(&Halves, &mut data, &[1, 3, 3, 6], |worker, parts, piece| {
            piece.iter_mut().for_each(|x| *x += 10 * parts.start + worker + 1);
        })
        .unwrap();
        assert_eq!(data, [0, 1, 1, 12, 12, 12, 0]);
    }

    #[test]
    fn rows_are_covered_once() {
        for par in [&Halves as &dyn Parallel, &crate::parallel::Serial] {
            for (len, row) in [(0, 3), (2, 3), (21, 3), (22, 3), (5, 0)] {
                let mut data = vec![0; len];
                rows(par, &mut data, row, 1, |_, first, piece| {
                    piece.iter_mut().enumerate().for_each(|(k, x)| *x += first * row.max(1) + k + 1);
                })
                .unwrap();
                let whole = len / row.max(1) * row.max(1);
                let want: Vec<_> = (0..len).map(|k| if k < whole { k + 1 } else { 0 }).collect();
                assert_eq!(data, want);
            }
        }
    }
}
