//! A group of an input image as the matrix that a convolution multiplies by its filter: rows count channels and taps,
//! columns the output's pixels. It never exists as a whole; panels of it are copied together when needed.

use core::ops::Range;

use super::Geometry;
use crate::gemm::Source;
use crate::simd::{Isa, Kernel, Simd};

/// One image's channels of one group.
#[derive(Clone, Copy)]
pub(super) struct Pixels<'a> {
    pub isa: Isa,
    pub geometry: &'a Geometry,
    /// The channels, one plane after the other.
    pub x: &'a [f32],
    pub channels: usize,
}

impl Source for Pixels<'_> {
    fn columns(&self) -> usize {
        self.geometry.outputs()
    }

    fn k(&self) -> usize {
        self.channels * self.geometry.taps()
    }

    fn pack(&self, k: Range<usize>, columns: Range<usize>, width: usize, dst: &mut [f32]) {
        assert!(self.x.len() >= self.channels * self.geometry.inputs(), "channels of an image");
        assert!(k.end <= self.k() && columns.end <= self.columns(), "pixels of an image");
        assert!(columns.len() <= width && k.len() * width <= dst.len(), "a panel of pixels");
        self.isa.dispatch(Panel { pixels: self, k, columns, width, dst });
    }
}

struct Panel<'a> {
    pixels: &'a Pixels<'a>,
    k: Range<usize>,
    columns: Range<usize>,
    width: usize,
    dst: &'a mut [f32],
}

impl Kernel for Panel<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [_, rows, columns] = self.pixels.geometry.output;
        let mut at = self.columns.start;
        while at < self.columns.end {
            let row = at / columns;
            let run = Run {
                depth: row / rows,
                row: row % rows,
                first: at % columns,
                len: (columns - at % columns).min(self.columns.end - at),
            };
            let to = self.dst.as_mut_ptr().wrapping_add(at - self.columns.start);
            // SAFETY: `pack` has checked that these rows and columns are in the image and in the panel.
            unsafe { self.run_of(s, &run, to) };
            at += run.len;
        }
    }
}

/// `len` pixels of one row of the output, from column `first` on.
struct Run {
    depth: usize,
    row: usize,
    first: usize,
    len: usize,
}

impl Panel<'_> {
    /// All steps along K of one run.
    ///
    /// # Safety
    /// The run is in the output, K in the matrix; `to` is writable for `run.len` values in `k.len()` rows that lie
    /// `width` apart.
    #[inline(always)]
    unsafe fn run_of<S: Simd>(&self, s: S, run: &Run, mut to: *mut f32) {
        let g = self.pixels.geometry;
        let [_, in_rows, in_columns] = g.input;
        let taps = g.kernel[2];
        // Rows of taps: all taps of one have the same row of the input.
        let (mut k, mut line) = (self.k.start, self.k.start / taps);
        let (mut channel, rest) = (line / (g.kernel[0] * g.kernel[1]), line % (g.kernel[0] * g.kernel[1]));
        let (mut tap_depth, mut tap_row) = (rest / g.kernel[1], rest % g.kernel[1]);
        while k < self.k.end {
            let plane = self.pixels.x.as_ptr().wrapping_add(channel * g.inputs());
            let row = match (g.at(0, run.depth, tap_depth), g.at(1, run.row, tap_row)) {
                (Some(depth), Some(row)) => Some(plane.wrapping_add((depth * in_rows + row) * in_columns)),
                _ => None,
            };
            let end = self.k.end.min((line + 1) * taps);
            for tap in k - line * taps..end - line * taps {
                match row {
                    // SAFETY: a row of the input, and the caller's promise.
                    Some(row) => unsafe { self.tap(s, run, row, tap, to) },
                    // SAFETY: the caller's promise.
                    None => unsafe { zeros(s, to, run.len) },
                }
                to = to.wrapping_add(self.width);
            }
            (k, line) = (end, line + 1);
            tap_row += 1;
            if tap_row == g.kernel[1] {
                (tap_row, tap_depth) = (0, tap_depth + 1);
            }
            if tap_depth == g.kernel[0] {
                (tap_depth, channel) = (0, channel + 1);
            }
        }
    }

    /// One step along K of one run.
    ///
    /// # Safety
    /// `row` is readable for the input's columns, `to` writable for `run.len` values.
    #[inline(always)]
    unsafe fn tap<S: Simd>(&self, s: S, run: &Run, row: *const f32, tap: usize, to: *mut f32) {
        let g = self.pixels.geometry;
        let (stride, pad) = (g.stride[2], g.pad[2]);
        let shift = tap * g.dilation[2];
        let first = run.first * stride + shift;
        let last = (run.first + run.len - 1) * stride + shift;
        if first >= pad && last < g.input[2] + pad {
            // SAFETY: the first and the last column are in the row.
            return unsafe { copy(s, row.add(first - pad), stride, to, run.len) };
        }
        let inside = g.inside(2, tap);
        let (start, end) = (inside.start.max(run.first), inside.end.min(run.first + run.len));
        // SAFETY: the caller's promise.
        unsafe { zeros(s, to, run.len) };
        if start < end {
            let from = row.wrapping_add(start * stride + shift - pad);
            // SAFETY: the columns of `inside` are in the row.
            unsafe { copy(s, from, stride, to.add(start - run.first), end - start) };
        }
    }
}

/// Copies `len` values that lie `stride` apart.
///
/// # Safety
/// `from` is readable for `(len - 1) * stride + 1` values, `to` writable for `len`.
#[inline(always)]
pub(super) unsafe fn copy<S: Simd>(s: S, from: *const f32, stride: usize, to: *mut f32, len: usize) {
    let mut at = 0;
    if stride == 1 {
        while at + S::LANES <= len {
            // SAFETY: LANES values are left on both sides.
            unsafe { s.store(to.add(at), s.load(from.add(at))) };
            at += S::LANES;
        }
        if at < len {
            // SAFETY: len - at values are left on both sides.
            unsafe { s.store_head(to.add(at), s.load_head(from.add(at), len - at), len - at) };
        }
        return;
    }
    while stride == 2 && at + S::LANES <= len {
        // SAFETY: LANES values are left on both sides.
        unsafe { s.store(to.add(at), s.load_even(from.add(2 * at))) };
        at += S::LANES;
    }
    while at < len {
        // SAFETY: value `at` of both sides.
        unsafe { to.add(at).write(from.add(at * stride).read()) };
        at += 1;
    }
}

/// Writes `len` zeros.
///
/// # Safety
/// `to` is writable for `len` values.
#[inline(always)]
unsafe fn zeros<S: Simd>(s: S, to: *mut f32, len: usize) {
    for at in (0..len).step_by(S::LANES) {
        // SAFETY: at most len - at values.
        unsafe { s.store_head(to.add(at), s.zero(), (len - at).min(S::LANES)) };
    }
}
