//! Many products of one shape, as MatMul of tensors and attention have them.

use ortolan_ep_kit::parallel::{Parallel, Serial};

use super::epilogue::Finish;
use super::error::enough;
use super::mat::reach;
use super::{Epilogue, Gemm, KernelError, Lhs, Mat, Rhs, Target};

/// Where the matrices of a batch lie. A batch counts over two dimensions, say
/// sequences and heads; a step of 0 uses a matrix again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Products in each dimension.
    pub count: [usize; 2],
    /// The left sides.
    pub a: Nest,
    /// The right sides.
    pub b: Nest,
    /// The outputs, with a `col_step` of 1. They may be interleaved, as heads
    /// are in a row, but never share a value.
    pub c: Nest,
}

/// Steps of a batch of matrices, in values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nest {
    /// From matrix to matrix, in each dimension of the batch.
    pub batch_step: [usize; 2],
    /// From row to row.
    pub row_step: usize,
    /// From column to column.
    pub col_step: usize,
}

impl Nest {
    /// Dense matrices of that size behind each other, `inner` of them in the
    /// batch's second dimension.
    #[must_use]
    pub fn dense(inner: usize, rows: usize, cols: usize) -> Self {
        let one = rows.saturating_mul(cols);
        Nest { batch_step: [one.saturating_mul(inner), one], row_step: cols, col_step: 1 }
    }

    /// The same values with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Nest { row_step: self.col_step, col_step: self.row_step, ..self }
    }

    fn at(&self, index: usize, inner: usize) -> usize {
        index / inner * self.batch_step[0] + index % inner * self.batch_step[1]
    }

    fn steps(&self, count: [usize; 2], rows: usize, cols: usize) -> [(usize, usize); 4] {
        let [outer, inner] = self.batch_step;
        [(count[0], outer), (count[1], inner), (rows, self.row_step), (cols, self.col_step)]
    }
}

impl Gemm {
    /// Values of scratch that [`run_batch`](Self::run_batch) needs.
    #[must_use]
    pub fn batch_scratch_len(&self, width: usize) -> usize {
        let alone = self.scratch_len(false, false, 1).saturating_mul(width);
        alone.max(self.scratch_len(false, false, width))
    }

    /// Computes a batch of products; `c[i] = activation(alpha * a[i] * b[i] +
    /// add + bias)`, with the same bias for all. What is added can only be the
    /// output itself.
    ///
    /// # Errors
    /// As [`run`](Self::run); outputs that share values are refused.
    pub fn run_batch(
        &self,
        batch: &Batch,
        (a, b): (&[f32], &[f32]),
        epilogue: &Epilogue<'_>,
        c: &mut [f32],
        scratch: &mut [f32],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        self.check_batch(batch, a, b, c)?;
        if matches!(epilogue.add, super::Add::Matrix { .. }) {
            return Err(KernelError::Shape("a batch cannot add another matrix"));
        }
        let finish = Finish::new(self.alpha, *epilogue, self.m, self.n)?;
        let items = Items { gemm: self, batch, a, b, c: c.as_mut_ptr(), finish };
        let count = batch.count[0] * batch.count[1];
        let width = threads.width();
        if count < 2 * width {
            return (0..count).try_for_each(|i| items.run(i, scratch, threads));
        }
        let own = self.scratch_len(false, false, 1);
        enough("the scratch memory", own.saturating_mul(width), scratch.len())?;
        let memory = Memory(scratch.as_mut_ptr());
        threads.for_each(count, 1, &|worker, range| {
            // SAFETY: the worker's own piece of the scratch.
            let scratch = unsafe { memory.piece(worker, own) };
            for i in range {
                // Sizes are checked, and one thread is never stopped.
                items.run(i, scratch, &Serial).expect("a checked product on one thread");
            }
        })?;
        Ok(())
    }

    fn check_batch(&self, batch: &Batch, a: &[f32], b: &[f32], c: &[f32]) -> Result<(), KernelError> {
        let sides = [
            ("A of the batch", batch.a.steps(batch.count, self.m, self.k), a.len()),
            ("B of the batch", batch.b.steps(batch.count, self.k, self.n), b.len()),
            ("C of the batch", batch.c.steps(batch.count, self.m, self.n), c.len()),
        ];
        for (what, nest, have) in sides {
            enough(what, reach(&nest), have)?;
        }
        if batch.c.col_step != 1 || !apart(batch.c.steps(batch.count, self.m, self.n)) {
            return Err(KernelError::Shape("outputs of the batch overlap or have gaps in their rows"));
        }
        Ok(())
    }
}

/// Whether no two indices of a nest meet, which holds when each step is beyond
/// the reach of all smaller ones.
fn apart(mut nest: [(usize, usize); 4]) -> bool {
    nest.sort_by_key(|&(_, step)| step);
    (0..nest.len()).all(|i| nest[i].0 <= 1 || nest[i].1 >= reach(&nest[..i]).max(1))
}

/// The checked batch.
struct Items<'a> {
    gemm: &'a Gemm,
    batch: &'a Batch,
    a: &'a [f32],
    b: &'a [f32],
    c: *mut f32,
    finish: Finish<'a>,
}

// SAFETY: each item writes an output of its own and only reads everything else.
unsafe impl Sync for Items<'_> {}

impl Items<'_> {
    fn run(&self, i: usize, scratch: &mut [f32], threads: &dyn Parallel) -> Result<(), KernelError> {
        let (gemm, inner) = (self.gemm, self.batch.count[1]);
        let side = |nest: &Nest, data, rows, cols| {
            let data = <[f32]>::get(data, nest.at(i, inner)..).unwrap_or(&[]);
            Mat::strided(data, rows, cols, nest.row_step, nest.col_step)
        };
        let a = side(&self.batch.a, self.a, gemm.m, gemm.k)?;
        let b = side(&self.batch.b, self.b, gemm.k, gemm.n)?;
        let c = self.c.wrapping_add(self.batch.c.at(i, inner));
        let out = Target { c, step: self.batch.c.row_step };
        gemm.run_checked(Lhs::Plain(a), Rhs::Plain(b), self.finish, out, scratch, threads)
    }
}

/// Scratch memory that workers share by pieces.
struct Memory(*mut f32);

// SAFETY: each worker takes a piece of its own.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Safety
    /// The memory holds `worker + 1` pieces of `len` values, and nobody else has
    /// this one.
    #[expect(clippy::mut_from_ref, reason = "the pieces of different workers do not overlap")]
    unsafe fn piece(&self, worker: usize, len: usize) -> &mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.0.add(worker * len), len) }
    }
}
