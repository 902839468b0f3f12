//! Windows over single planes, for depthwise convolution and pooling.
//!
//! Some rows of a plane are copied into scratch memory with their padding, taken apart by the stride: what lies a whole
//! number of strides apart lies next to each other. Then every tap of the window is the same sweep over one contiguous
//! piece, from a start of its own, and all vectors are full. The results between the rows' ends are dropped.

use core::ops::Range;

use super::Geometry;
use super::pixels::copy;
use crate::simd::cache::caches;
use crate::simd::{Isa, Kernel, Simd};

/// Vectors side by side in a sweep.
const VECTORS: usize = 4;

/// How taps are folded into a result.
pub(super) trait Fold: Copy + Sync {
    /// What padding holds, and the result of no taps.
    const EMPTY: f32;
    /// Takes a tap in, whose weight is `w`. Must be `#[inline(always)]`.
    fn take<S: Simd>(s: S, so_far: S::F32, w: f32, x: S::F32) -> S::F32;
}

/// How a geometry's planes are cut and laid out in scratch memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    geometry: Geometry,
    /// Rows of output that are made at once.
    rows: usize,
    /// From row to row in scratch memory: the output's columns and what taps reach beyond.
    pitch: usize,
    /// Rows that taps reach beyond the output's.
    reach: usize,
}

impl Sweep {
    pub fn new(geometry: &Geometry) -> Self {
        let g = *geometry;
        let beyond = |d: usize| (g.kernel[d] - 1) * g.dilation[d] / g.stride[d];
        let (pitch, reach) = (g.output[2] + beyond(2), beyond(1));
        // Within an eighth of the second cache, but not so few rows that their overlap is most of the work.
        let row = pitch.saturating_mul(g.stride[1] * g.stride[2]).saturating_mul(g.kernel[0]).max(1);
        let fitting = (caches().l2 / 8 / size_of::<f32>() / row).saturating_sub(reach);
        Sweep { geometry: g, rows: fitting.max(2 * reach + 2).min(g.output[1].max(1)), pitch, reach }
    }

    /// Pieces of a plane: some rows at one depth each.
    pub fn pieces(&self) -> usize {
        self.geometry.output[0] * self.geometry.output[1].div_ceil(self.rows)
    }

    /// Depth and rows of a piece.
    pub fn piece(&self, index: usize) -> (usize, Range<usize>) {
        let per_depth = self.geometry.output[1].div_ceil(self.rows);
        let first = index % per_depth * self.rows;
        (index / per_depth, first..self.geometry.output[1].min(first + self.rows))
    }

    /// From row to row in what [`run`](Self::run) answers.
    pub fn pitch(&self) -> usize {
        self.pitch
    }

    /// Values of scratch memory for one worker, a whole number of cache lines.
    pub fn scratch_len(&self, isa: Isa) -> usize {
        let slack = (VECTORS + 1) * isa.lanes();
        let results = self.rows.saturating_mul(self.pitch).saturating_add(slack);
        let whole = self.planes_len().saturating_add(slack).saturating_add(results);
        whole.checked_next_multiple_of(16).unwrap_or(usize::MAX)
    }

    /// Copies a piece of a plane into scratch memory.
    pub fn load<F: Fold>(&self, isa: Isa, x: &[f32], piece: usize, scratch: &mut [f32], _: F) {
        assert!(x.len() >= self.geometry.inputs() && scratch.len() >= self.scratch_len(isa), "a plane");
        isa.dispatch(Load::<F> { sweep: self, x, piece, to: scratch, fold: core::marker::PhantomData });
    }

    /// Folds all taps of the window over the piece that was loaded; answers the piece's rows, [`pitch`](Self::pitch)
    /// apart. `weights`: one for each tap, or none at all.
    pub fn run<'a, F: Fold>(&self, isa: Isa, piece: usize, weights: &[f32], scratch: &'a mut [f32], _: F) -> &'a [f32] {
        assert!(scratch.len() >= self.scratch_len(isa), "a plane");
        assert!(weights.is_empty() || weights.len() >= self.geometry.taps(), "a weight for each tap");
        isa.dispatch(Run::<F> { sweep: self, piece, weights, scratch, fold: core::marker::PhantomData });
        &scratch[self.planes_len() + (VECTORS + 1) * isa.lanes()..]
    }

    fn planes_len(&self) -> usize {
        let [_, high, wide] = self.geometry.stride;
        self.phase_len().saturating_mul(high * wide).saturating_mul(self.geometry.kernel[0])
    }

    /// Values of what lies whole strides apart, for one depth.
    fn phase_len(&self) -> usize {
        self.pitch.saturating_mul(self.rows + self.reach)
    }

    /// Where in scratch memory a depth tap's phase begins.
    fn phase(&self, depth: usize, row: usize, column: usize) -> usize {
        let [_, high, wide] = self.geometry.stride;
        ((depth * high + row) * wide + column) * self.phase_len()
    }
}

struct Load<'a, F> {
    sweep: &'a Sweep,
    x: &'a [f32],
    piece: usize,
    to: &'a mut [f32],
    fold: core::marker::PhantomData<F>,
}

impl<F: Fold> Kernel for Load<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Sweep { geometry: g, pitch, reach, .. } = self.sweep;
        let (depth, rows) = self.sweep.piece(self.piece);
        for tap in 0..g.kernel[0] {
            let Some(plane) = g.at(0, depth, tap) else { continue };
            for high in 0..g.stride[1] {
                for wide in 0..g.stride[2] {
                    let mut at = self.sweep.phase(tap, high, wide);
                    for row in rows.start..rows.end + reach {
                        let to = &mut self.to[at..at + pitch];
                        let row = (row * g.stride[1] + high).checked_sub(g.pad[1]).filter(|&row| row < g.input[1]);
                        match row {
                            Some(row) => {
                                let from = (plane * g.input[1] + row) * g.input[2];
                                let from = &self.x[from..from + g.input[2]];
                                spread(s, from, [g.stride[2], wide, g.pad[2]], F::EMPTY, to);
                            }
                            None => to.fill(F::EMPTY),
                        }
                        at += pitch;
                    }
                }
            }
        }
    }
}

/// `to[i] = from[i * stride + phase - pad]`, and `empty` beyond the ends.
#[inline(always)]
fn spread<S: Simd>(s: S, from: &[f32], [stride, phase, pad]: [usize; 3], empty: f32, to: &mut [f32]) {
    let first = pad.saturating_sub(phase).div_ceil(stride).min(to.len());
    let end = (from.len() + pad).saturating_sub(phase).div_ceil(stride).clamp(first, to.len());
    to[..first].fill(empty);
    if first < end {
        let from = &from[first * stride + phase - pad..];
        // SAFETY: `end` is the first whose value lies beyond the slice, and at most the length of the other.
        unsafe { copy(s, from.as_ptr(), stride, to.as_mut_ptr().add(first), end - first) };
    }
    to[end..].fill(empty);
}

struct Run<'a, F> {
    sweep: &'a Sweep,
    piece: usize,
    weights: &'a [f32],
    scratch: &'a mut [f32],
    fold: core::marker::PhantomData<F>,
}

impl<F: Fold> Kernel for Run<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let sweep = self.sweep;
        let Sweep { geometry: g, pitch, .. } = sweep;
        let (depth, rows) = sweep.piece(self.piece);
        // Without what would follow the last row's columns.
        let len = (rows.len() - 1) * pitch + g.output[2];
        let planes = self.scratch.as_mut_ptr();
        let results = planes.wrapping_add(sweep.planes_len() + (VECTORS + 1) * S::LANES);
        for at in (0..len).step_by(VECTORS * S::LANES) {
            let mut sums = [s.splat(F::EMPTY); VECTORS];
            for tap_depth in (0..g.kernel[0]).filter(|&tap| g.at(0, depth, tap).is_some()) {
                for tap_row in 0..g.kernel[1] {
                    let row = tap_row * g.dilation[1];
                    let line = (tap_depth * g.kernel[1] + tap_row) * g.kernel[2];
                    for tap in 0..g.kernel[2] {
                        let column = tap * g.dilation[2];
                        let phase = sweep.phase(tap_depth, row % g.stride[1], column % g.stride[2]);
                        let from = phase + row / g.stride[1] * pitch + column / g.stride[2] + at;
                        let w = self.weights.get(line + tap).copied().unwrap_or(1.0);
                        for (v, sum) in sums.iter_mut().enumerate() {
                            // SAFETY: the last result's last tap is the last value of a phase, and the slack behind the
                            // planes holds what the last vectors run over.
                            let x = unsafe { s.load(planes.add(from + v * S::LANES)) };
                            *sum = F::take(s, *sum, w, x);
                        }
                    }
                }
            }
            for (v, &sum) in sums.iter().enumerate() {
                // SAFETY: the results have as much slack.
                unsafe { s.store(results.add(at + v * S::LANES), sum) };
            }
        }
    }
}
