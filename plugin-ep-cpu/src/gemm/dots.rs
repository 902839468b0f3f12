//! Products of few rows by columns that are contiguous along K: inner products
//! of vectors, with no packing, since each value of B is used once or so.

#![expect(clippy::needless_range_loop, reason = "iterators may not be inlined into kernels, see `simd`")]

use core::ops::Range;

use ortolan_ep_kit::parallel::Parallel;

use super::epilogue::{Finish, activate};
use super::{KernelError, Mat};
use crate::simd::{Isa, Kernel, Simd};

/// Most rows of A that this way takes.
pub(crate) const MOST_ROWS: usize = 4;
/// Columns of B side by side.
const COLUMNS: usize = 4;

/// `C = finish(A * B)` for an A of at most [`MOST_ROWS`] rows and a B whose
/// values are contiguous along K, as are A's.
pub(crate) struct Dots<'a> {
    pub isa: Isa,
    pub a: Mat<'a>,
    pub b: Mat<'a>,
    pub c: *mut f32,
    pub c_step: usize,
    pub finish: Finish<'a>,
}

// SAFETY: workers write different columns of C and only read everything else.
unsafe impl Sync for Dots<'_> {}

impl Dots<'_> {
    /// Computes all of C.
    pub fn run(&self, threads: &dyn Parallel) -> Result<(), KernelError> {
        // 64 KiB of B a piece.
        let grain = (16_384 / self.a.cols.max(1)).max(1).next_multiple_of(COLUMNS);
        threads.for_each(self.b.cols, grain, &|_, columns| {
            self.isa.dispatch(Columns { job: self, columns: columns.clone() });
            if let Some(activation) = self.finish.activation() {
                let c = self.c.wrapping_add(columns.start);
                // SAFETY: the columns of C that were just written.
                unsafe {
                    activate(self.isa, activation, c, self.c_step, self.a.rows, columns.len());
                }
            }
        })?;
        Ok(())
    }
}

struct Columns<'a> {
    job: &'a Dots<'a>,
    columns: Range<usize>,
}

impl Kernel for Columns<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.job.a.rows {
            1 => self.rows::<S, 1>(s),
            2 => self.rows::<S, 2>(s),
            3 => self.rows::<S, 3>(s),
            _ => self.rows::<S, 4>(s),
        }
    }
}

impl Columns<'_> {
    #[inline(always)]
    fn rows<S: Simd, const R: usize>(&self, s: S) {
        let mut column = self.columns.start;
        while column + COLUMNS <= self.columns.end {
            self.products::<S, R, COLUMNS>(s, column);
            column += COLUMNS;
        }
        for column in column..self.columns.end {
            self.products::<S, R, 1>(s, column);
        }
    }

    /// The inner products of all rows with `C` columns.
    #[inline(always)]
    fn products<S: Simd, const R: usize, const C: usize>(&self, s: S, column: usize) {
        let Dots { a, b, .. } = self.job;
        let mut sums = [[s.zero(); R]; C];
        let k = a.cols;
        let mut at = 0;
        while at < k {
            let n = (k - at).min(S::LANES);
            let mut rows = [s.zero(); R];
            for i in 0..R {
                // SAFETY: n values of row i from `at` on.
                rows[i] = unsafe { load(s, a.at(i, at), n) };
            }
            for j in 0..C {
                // SAFETY: n values of column j from `at` on.
                let b = unsafe { load(s, b.at(at, column + j), n) };
                for i in 0..R {
                    sums[j][i] = s.fma(rows[i], b, sums[j][i]);
                }
            }
            at += S::LANES;
        }
        for j in 0..C {
            for i in 0..R {
                self.write(i, column + j, s.reduce_sum(sums[j][i]));
            }
        }
    }

    #[inline(always)]
    fn write(&self, row: usize, column: usize, product: f32) {
        let c = self.job.c.wrapping_add(row * self.job.c_step + column);
        // SAFETY: (row, column) is in C, and this worker's alone.
        unsafe { c.write(self.job.finish.value(row, column, product, c)) };
    }
}

/// # Safety
/// `from` is readable for `n <= LANES` values.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, from: *const f32, n: usize) -> S::F32 {
    if n == S::LANES {
        // SAFETY: the caller's promise.
        unsafe { s.load(from) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { s.load_head(from, n) }
    }
}
