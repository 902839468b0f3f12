//! Maximum and average pooling in one to three dimensions.

use ortolan_ep_kit::parallel::Parallel;

use super::Geometry;
use super::plane::{Fold, Sweep};
use crate::gemm::{KernelError, enough};
use crate::simd::ops::Max;
use crate::simd::{BinaryOp, Isa, Operand, Simd, map_binary, ops};

/// What a pooling answers for each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The greatest value inside the input, NaN if one is; -infinity for a window wholly in the padding.
    Max,
    /// The mean of the values inside the input.
    Average,
    /// The sum of the values inside the input over the number of taps in it or its padding.
    AverageWithPadding {
        /// Padding behind the input; taps beyond it do not count.
        pad_end: [usize; 3],
    },
    /// The sum of the values inside the input.
    Sum,
}

/// A pooling of planes: plain data, made once per binding.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    isa: Isa,
    pooling: Pooling,
    geometry: Geometry,
    sweep: Sweep,
}

impl Pool {
    /// A pooling by this window.
    #[must_use]
    pub fn new(isa: Isa, pooling: Pooling, geometry: &Geometry) -> Self {
        Pool { isa, pooling, geometry: *geometry, sweep: Sweep::new(geometry) }
    }

    /// Values of scratch that [`run`](Self::run) needs; `usize::MAX` when there is no such number.
    #[must_use]
    pub fn scratch_len(&self, width: usize) -> usize {
        self.own_len().saturating_mul(width)
    }

    /// Pools `planes` planes of `x` into as many of `y`.
    ///
    /// # Errors
    /// A slice is too short, or the run was cancelled.
    pub fn run(
        &self,
        planes: usize,
        x: &[f32],
        y: &mut [f32],
        scratch: &mut [f32],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        enough("the input", planes.saturating_mul(self.geometry.inputs()), x.len())?;
        enough("the output", planes.saturating_mul(self.geometry.outputs()), y.len())?;
        enough("the scratch memory", self.scratch_len(threads.width()), scratch.len())?;
        if self.geometry.outputs() == 0 {
            return Ok(());
        }
        let memory = Memory { y: y.as_mut_ptr(), scratch: scratch.as_mut_ptr() };
        let memory = &memory;
        let own = self.own_len();
        threads.for_each(planes.saturating_mul(self.sweep.pieces()), 1, &|worker, range| {
            // SAFETY: the worker's own piece of the scratch.
            let scratch = unsafe { core::slice::from_raw_parts_mut(memory.scratch.add(worker * own), own) };
            let mut cleared = None;
            for index in range {
                let (piece, plane) = (index / planes, index % planes);
                if cleared.replace(piece) != Some(piece) {
                    match self.pooling {
                        Pooling::Max => self.sweep.clear(scratch, Greatest),
                        _ => self.sweep.clear(scratch, Sum),
                    }
                }
                let (depth, rows) = self.sweep.piece(piece);
                let columns = self.geometry.output[2];
                let first = (depth * self.geometry.output[1] + rows.start) * columns;
                let at = plane * self.geometry.outputs() + first;
                // SAFETY: the rows of a piece, which this call alone has.
                let y = unsafe { core::slice::from_raw_parts_mut(memory.y.add(at), rows.len() * columns) };
                self.piece(&x[plane * self.geometry.inputs()..], piece, y, scratch);
            }
        })?;
        Ok(())
    }

    /// The sweep's scratch and a row of counts.
    fn own_len(&self) -> usize {
        let counts = self.geometry.output[2].checked_next_multiple_of(16).unwrap_or(usize::MAX);
        self.sweep.scratch_len(self.isa).saturating_add(counts)
    }

    fn piece(&self, x: &[f32], piece: usize, y: &mut [f32], scratch: &mut [f32]) {
        let (isa, columns) = (self.isa, self.geometry.output[2]);
        let (scratch, counts) = scratch.split_at_mut(self.sweep.scratch_len(isa));
        if matches!(self.pooling, Pooling::Max | Pooling::Sum) {
            self.sweep.load(isa, x, piece, scratch);
            let rows = match self.pooling {
                Pooling::Max => self.sweep.run(isa, piece, &[], scratch, Greatest),
                _ => self.sweep.run(isa, piece, &[], scratch, Sum),
            };
            for (y, row) in y.chunks_mut(columns).zip(rows.chunks(self.sweep.pitch())) {
                y.copy_from_slice(&row[..columns]);
            }
            return;
        }
        self.sweep.load(isa, x, piece, scratch);
        let rows = self.sweep.run(isa, piece, &[], scratch, Sum);
        let counts = &mut counts[..columns];
        for (column, count) in counts.iter_mut().enumerate() {
            *count = self.count(2, column);
        }
        let (depth, range) = self.sweep.piece(piece);
        for ((y, row), index) in y.chunks_mut(columns).zip(rows.chunks(self.sweep.pitch())).zip(range) {
            let outer = self.count(0, depth) * self.count(1, index);
            map_binary(isa, &Mean { outer }, Operand::Slice(row), Operand::Slice(counts), y);
        }
    }

    /// Taps that count in dimension `d` for the window at `out`, at least 1.
    fn count(&self, d: usize, out: usize) -> f32 {
        let g = &self.geometry;
        let counts = |tap: &usize| match self.pooling {
            Pooling::AverageWithPadding { pad_end } => {
                out * g.stride[d] + tap * g.dilation[d] < g.pad[d] + g.input[d] + pad_end[d]
            }
            _ => g.at(d, out, *tap).is_some(),
        };
        // Exact up to 2^24 taps.
        (0..g.kernel[d]).filter(counts).count().max(1) as f32
    }
}

/// Output and scratch, of which each worker takes pieces of its own.
struct Memory {
    y: *mut f32,
    scratch: *mut f32,
}

// SAFETY: no two workers take the same piece.
unsafe impl Sync for Memory {}

/// A sum divided by the number of taps.
struct Mean {
    outer: f32,
}

impl BinaryOp for Mean {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, sum: S::F32, count: S::F32) -> S::F32 {
        s.div(sum, s.mul(count, s.splat(self.outer)))
    }
}

#[derive(Clone, Copy)]
struct Greatest;

impl Fold for Greatest {
    const EMPTY: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn take<S: Simd>(s: S, so_far: S::F32, _: S::F32, x: S::F32) -> S::F32 {
        Max.apply(s, so_far, x)
    }
}

#[derive(Clone, Copy)]
struct Sum;

impl Fold for Sum {
    const EMPTY: f32 = 0.0;
    #[inline(always)]
    fn take<S: Simd>(s: S, so_far: S::F32, _: S::F32, x: S::F32) -> S::F32 {
        ops::Add.apply(s, so_far, x)
    }
}

/// Maximum pooling of one plane with the place of each maximum: its index in the plane, the first of equal ones, or -1
/// for a window wholly in the padding. A plain loop.
///
/// # Errors
/// A slice is too short.
pub fn max_pool_with_indices(
    geometry: &Geometry,
    x: &[f32],
    y: &mut [f32],
    indices: &mut [i64],
) -> Result<(), KernelError> {
    enough("the input", geometry.inputs(), x.len())?;
    enough("the output", geometry.outputs(), y.len().min(indices.len()))?;
    let [_, rows, columns] = geometry.output;
    for (at, (y, index)) in y.iter_mut().zip(indices).enumerate().take(geometry.outputs()) {
        (*y, *index) = (f32::NEG_INFINITY, -1);
        let out = [at / columns / rows, at / columns % rows, at % columns];
        for place in places(geometry, out) {
            let value = x[place];
            if *index < 0 || value > *y || (value.is_nan() && !y.is_nan()) {
                // A plane that fits memory has fewer than 2^63 values.
                (*y, *index) = (value, place as i64);
            }
        }
    }
    Ok(())
}

/// Where in a plane the taps of a window stand that are inside the input.
fn places(g: &Geometry, out: [usize; 3]) -> impl Iterator<Item = usize> {
    let inside = move |d: usize| (0..g.kernel[d]).filter_map(move |tap| g.at(d, out[d], tap));
    let [_, rows, columns] = g.input;
    inside(0).flat_map(move |depth| {
        inside(1).flat_map(move |row| inside(2).map(move |column| (depth * rows + row) * columns + column))
    })
}
