//! Windows over single planes, for depthwise convolution and pooling.
//!
//! Some rows of a plane are copied into scratch memory with their padding, taken apart by the stride: what lies a whole
//! number of strides apart lies next to each other. Then every tap of the window is the same sweep over one contiguous
//! piece, from a start of its own, and all vectors are full. The results between the rows' ends are dropped.

#![expect(clippy::needless_range_loop, reason = "iterators may not be inlined into kernels, see `simd`")]

use core::ops::Range;

use super::Geometry;
use super::pixels::copy;
use crate::simd::cache::caches;
use crate::simd::{Isa, Kernel, Simd};

/// Vectors side by side in a sweep.
const VECTORS: usize = 4;

/// How taps are folded into a result.
pub(crate) trait Fold: Copy + Sync {
    /// What padding holds, and the result of no taps.
    const EMPTY: f32;
    /// Takes a tap in, whose weight is `w`. Must be `#[inline(always)]`.
    fn take<S: Simd>(s: S, so_far: S::F32, w: S::F32, x: S::F32) -> S::F32;
}

/// How a geometry's planes are cut and laid out in scratch memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    geometry: Geometry,
    /// Rows of output that are made at once.
    rows: usize,
    /// From row to row in scratch memory: the output's columns and what taps reach beyond.
    pitch: usize,
    /// Rows that taps reach beyond the output's.
    reach: usize,
    /// Where the sweeps of the first taps begin: dividing is slow beside a small plane.
    starts: [usize; 32],
}

impl Sweep {
    pub fn new(geometry: &Geometry) -> Self {
        let g = *geometry;
        let beyond = |d: usize| (g.kernel[d] - 1) * g.dilation[d] / g.stride[d];
        let (pitch, reach) = (g.output[2] + beyond(2), beyond(1));
        // Within half of the first cache, but not so few rows that their overlap is most of the work.
        let row = pitch.saturating_mul(g.stride[1] * g.stride[2]).saturating_mul(g.kernel[0]).max(1);
        let fitting = (caches().l1 / 2 / size_of::<f32>() / row).saturating_sub(reach);
        let rows = fitting.max(2 * reach + 2).min(g.output[1].max(1));
        let mut sweep = Sweep { geometry: g, rows, pitch, reach, starts: [0; 32] };
        sweep.starts = core::array::from_fn(|tap| if tap < g.taps() { sweep.start(tap) } else { 0 });
        sweep
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

    /// Fills the scratch memory with padding. What [`load`](Self::load) copies for a piece always has the same place, so
    /// this is done once for all planes' pieces of one index.
    pub fn clear<F: Fold>(&self, scratch: &mut [f32], _: F) {
        scratch[..self.planes_len()].fill(F::EMPTY);
    }

    /// Copies a piece of a plane into scratch memory that was cleared for that piece.
    pub fn load(&self, isa: Isa, x: &[f32], piece: usize, scratch: &mut [f32]) {
        assert!(x.len() >= self.geometry.inputs() && scratch.len() >= self.scratch_len(isa), "a plane");
        isa.dispatch(Load { sweep: self, x, piece, to: scratch });
    }

    /// Folds all taps of the window over the piece that was loaded; answers the piece's rows, [`pitch`](Self::pitch)
    /// apart. `weights`: one for each tap, or none at all.
    pub fn run<'a, F: Fold>(
        &self,
        isa: Isa,
        piece: usize,
        weights: &[f32],
        scratch: &'a mut [f32],
        _: F,
    ) -> &'a mut [f32] {
        assert!(scratch.len() >= self.scratch_len(isa), "a plane");
        assert!(weights.is_empty() || weights.len() >= self.geometry.taps(), "a weight for each tap");
        isa.dispatch(Run::<F> { sweep: self, piece, weights, scratch, fold: core::marker::PhantomData });
        &mut scratch[self.planes_len() + (VECTORS + 1) * isa.lanes()..]
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

    /// Where the sweep of a tap begins, unless it is in the padding for this depth.
    fn tap(&self, depth: usize, tap: usize) -> Option<usize> {
        let g = &self.geometry;
        let tap_depth = if g.kernel[0] == 1 { 0 } else { tap / g.kernel[2] / g.kernel[1] };
        g.at(0, depth, tap_depth)?;
        Some(self.starts.get(tap).copied().unwrap_or_else(|| self.start(tap)))
    }

    fn start(&self, tap: usize) -> usize {
        let g = &self.geometry;
        let [_, high, wide] = g.stride;
        let (row, column) = (tap / g.kernel[2] % g.kernel[1] * g.dilation[1], tap % g.kernel[2] * g.dilation[2]);
        let phase = self.phase(tap / g.kernel[2] / g.kernel[1], row % high, column % wide);
        phase + row / high * self.pitch + column / wide
    }
}

struct Load<'a> {
    sweep: &'a Sweep,
    x: &'a [f32],
    piece: usize,
    to: &'a mut [f32],
}

impl Kernel for Load<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Sweep { geometry: g, pitch, reach, .. } = *self.sweep;
        let (depth, rows) = self.sweep.piece(self.piece);
        let [_, in_rows, columns] = g.input;
        for tap in 0..g.kernel[0] {
            let Some(plane) = g.at(0, depth, tap) else { continue };
            for wide in 0..g.stride[2] {
                // `to[i] = row[i * stride + wide - pad]` where that is in the row.
                let first = g.pad[2].saturating_sub(wide).div_ceil(g.stride[2]).min(pitch);
                let end = (columns + g.pad[2]).saturating_sub(wide).div_ceil(g.stride[2]).min(pitch);
                if first >= end {
                    continue;
                }
                let from = plane * in_rows * columns + first * g.stride[2] + wide - g.pad[2];
                for high in 0..g.stride[1] {
                    let to = self.sweep.phase(tap, high, wide) + first;
                    for i in 0..rows.len() + reach {
                        let row = ((rows.start + i) * g.stride[1] + high).wrapping_sub(g.pad[1]);
                        if row >= in_rows {
                            continue;
                        }
                        let from = &self.x[from + row * columns..];
                        let to = &mut self.to[to + i * pitch..];
                        // SAFETY: columns from `first` to before `end` are in the row and in the phase's row.
                        unsafe { copy(s, from.as_ptr(), g.stride[2], to.as_mut_ptr(), end - first) };
                    }
                }
            }
        }
    }
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
        let mut taps = [Tap::default(); MOST_TAPS];
        let mut count = 0;
        let mut is_first = true;
        for tap in 0..g.taps() {
            if let Some(from) = sweep.tap(depth, tap) {
                taps[count] = Tap { from, weight: self.weights.get(tap).copied().unwrap_or(1.0) };
                count += 1;
            }
            if count == MOST_TAPS || tap + 1 == g.taps() {
                // SAFETY: taps and lengths are of this sweep.
                unsafe { fold_all::<S, F>(s, &taps[..count], planes, results, len, is_first) };
                (count, is_first) = (0, false);
            }
        }
    }
}

/// Where in scratch memory a tap's sweep begins, and its weight.
#[derive(Clone, Copy, Default)]
struct Tap {
    from: usize,
    weight: f32,
}

/// Taps of one round; larger windows take several.
const MOST_TAPS: usize = 64;

/// Folds `taps` over `len` results.
///
/// # Safety
/// All taps stand in `planes` for `len` values, and both have the slack that the last vectors run over.
#[inline(always)]
unsafe fn fold_all<S: Simd, F: Fold>(
    s: S,
    taps: &[Tap],
    planes: *const f32,
    results: *mut f32,
    len: usize,
    is_first: bool,
) {
    // The usual windows have loops of known length, so that their weights stay in registers.
    if let Ok(taps) = <&[Tap; 9]>::try_from(taps) {
        let mut weights = [s.zero(); 9];
        for i in 0..9 {
            weights[i] = s.splat(taps[i].weight);
        }
        for at in (0..len).step_by(VECTORS * S::LANES) {
            // SAFETY: the caller's promise.
            let mut sums = unsafe { before::<S, F>(s, results.add(at), is_first) };
            for i in 0..9 {
                // SAFETY: the caller's promise.
                unsafe { fold::<S, F>(s, weights[i], planes.add(taps[i].from + at), &mut sums) };
            }
            // SAFETY: the caller's promise.
            unsafe { write(s, results.add(at), &sums) };
        }
        return;
    }
    for at in (0..len).step_by(VECTORS * S::LANES) {
        // SAFETY: the caller's promise.
        let mut sums = unsafe { before::<S, F>(s, results.add(at), is_first) };
        for tap in taps {
            // SAFETY: the caller's promise.
            unsafe { fold::<S, F>(s, s.splat(tap.weight), planes.add(tap.from + at), &mut sums) };
        }
        // SAFETY: the caller's promise.
        unsafe { write(s, results.add(at), &sums) };
    }
}

/// What is folded into: nothing yet, or what an earlier round left.
///
/// # Safety
/// `results` is readable for all vectors.
#[inline(always)]
unsafe fn before<S: Simd, F: Fold>(s: S, results: *const f32, is_first: bool) -> [S::F32; VECTORS] {
    let mut sums = [s.splat(F::EMPTY); VECTORS];
    if !is_first {
        for v in 0..VECTORS {
            // SAFETY: the caller's promise.
            sums[v] = unsafe { s.load(results.add(v * S::LANES)) };
        }
    }
    sums
}

/// # Safety
/// `from` is readable for all vectors.
#[inline(always)]
unsafe fn fold<S: Simd, F: Fold>(s: S, weight: S::F32, from: *const f32, sums: &mut [S::F32; VECTORS]) {
    for v in 0..VECTORS {
        // SAFETY: the caller's promise.
        let x = unsafe { s.load(from.add(v * S::LANES)) };
        sums[v] = F::take(s, sums[v], weight, x);
    }
}

/// # Safety
/// `to` is writable for all vectors.
#[inline(always)]
unsafe fn write<S: Simd>(s: S, to: *mut f32, sums: &[S::F32; VECTORS]) {
    for v in 0..VECTORS {
        // SAFETY: the caller's promise.
        unsafe { s.store(to.add(v * S::LANES), sums[v]) };
    }
}
