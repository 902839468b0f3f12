//! A group of an input image as the matrix that a convolution multiplies by its filter: rows count channels and taps,
//! columns the output's pixels. It never exists as a whole; panels of it are copied together when needed.

use core::ops::Range;
use core::ptr;

use super::Geometry;
use crate::gemm::Source;
use crate::simd::{Isa, Kernel, Simd};

/// Columns of the widest panel, and rows of the highest tile.
const MOST_COLUMNS: usize = 32;

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
        let fits = columns.len() <= width && k.len() * width + self.isa.lanes() <= dst.len();
        assert!(fits && columns.len() <= MOST_COLUMNS, "a panel of pixels");
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
        let mut runs = [Run::default(); MOST_COLUMNS];
        let count = self.runs(&mut runs);
        let g = self.pixels.geometry;
        let taps = g.kernel[2];
        // Lines of taps: all taps of one have the same row of the input.
        let (mut k, mut line) = (self.k.start, self.k.start / taps);
        let (mut channel, rest) = (line / (g.kernel[0] * g.kernel[1]), line % (g.kernel[0] * g.kernel[1]));
        let (mut tap_depth, mut tap_row) = (rest / g.kernel[1], rest % g.kernel[1]);
        let mut to = self.dst.as_mut_ptr();
        while k < self.k.end {
            for run in &mut runs[..count] {
                run.from = self.row(channel, g.at(0, run.depth, tap_depth), g.at(1, run.row, tap_row));
            }
            let end = self.k.end.min((line + 1) * taps);
            for tap in k - line * taps..end - line * taps {
                for run in &runs[..count] {
                    // SAFETY: `pack` has checked the panel's size; what a run's last vector writes beyond it is written
                    // again by the next run or step, or lies in the slack.
                    unsafe { self.tap(s, run, tap, to.add(run.to)) };
                }
                to = to.wrapping_add(self.width);
            }
            (k, line, tap_row) = (end, line + 1, tap_row + 1);
            if tap_row == g.kernel[1] {
                (tap_row, tap_depth) = (0, tap_depth + 1);
            }
            if tap_depth == g.kernel[0] {
                (tap_depth, channel) = (0, channel + 1);
            }
        }
    }
}

/// `len` pixels of one row of the output, from column `first` on, that stand in a panel from column `to` on.
#[derive(Clone, Copy)]
struct Run {
    depth: usize,
    row: usize,
    first: usize,
    len: usize,
    to: usize,
    /// The input's row for the current line of taps, null for padding.
    from: *const f32,
}

impl Default for Run {
    fn default() -> Self {
        Run { depth: 0, row: 0, first: 0, len: 0, to: 0, from: ptr::null() }
    }
}

impl Panel<'_> {
    /// Cuts the columns into runs, from left to right; answers how many.
    #[inline(always)]
    fn runs(&self, runs: &mut [Run]) -> usize {
        let [_, rows, columns] = self.pixels.geometry.output;
        let (mut at, mut count) = (self.columns.start, 0);
        while at < self.columns.end {
            let (row, first) = (at / columns, at % columns);
            let len = (columns - first).min(self.columns.end - at);
            let to = at - self.columns.start;
            runs[count] = Run { depth: row / rows, row: row % rows, first, len, to, from: ptr::null() };
            (at, count) = (at + len, count + 1);
        }
        count
    }

    /// A row of a channel.
    #[inline(always)]
    fn row(&self, channel: usize, depth: Option<usize>, row: Option<usize>) -> *const f32 {
        let [_, rows, columns] = self.pixels.geometry.input;
        let (Some(depth), Some(row)) = (depth, row) else { return ptr::null() };
        let plane = channel * self.pixels.geometry.inputs();
        self.pixels.x.as_ptr().wrapping_add(plane + (depth * rows + row) * columns)
    }

    /// One step along K of one run, by whole vectors.
    ///
    /// # Safety
    /// `to` is writable for `run.len` values rounded up to vectors, and `run.from` a row of the input or null.
    #[inline(always)]
    unsafe fn tap<S: Simd>(&self, s: S, run: &Run, tap: usize, to: *mut f32) {
        let g = self.pixels.geometry;
        let (stride, pad, shift) = (g.stride[2], g.pad[2], tap * g.dilation[2]);
        if run.from.is_null() {
            for at in (0..run.len).step_by(S::LANES) {
                // SAFETY: the caller's promise.
                unsafe { s.store(to.add(at), s.zero()) };
            }
            return;
        }
        // Whole vectors read beyond the row's ends, which only matters at the ends of the image.
        let first = run.first * stride + shift;
        let vectors = run.len.div_ceil(S::LANES);
        let start = (run.from.addr() - self.pixels.x.as_ptr().addr()) / size_of::<f32>() + first;
        let is_inside = start >= pad && start - pad + vectors * S::LANES * stride <= self.pixels.x.len();
        if !is_inside || stride > 2 {
            // SAFETY: the caller's promise.
            return unsafe { self.tap_exact(s, run, tap, to) };
        }
        let from = run.from.wrapping_add(first).wrapping_sub(pad);
        for v in 0..vectors {
            // SAFETY: the vectors were found to be inside the image; the caller's promise.
            unsafe {
                let from = from.add(v * S::LANES * stride);
                let x = if stride == 1 { s.load(from) } else { s.load_even(from) };
                s.store(to.add(v * S::LANES), x);
            }
        }
        if first < pad || first + (run.len - 1) * stride >= g.input[2] + pad {
            // SAFETY: the caller's promise.
            unsafe { self.clear_outside(first, run.len, to) };
        }
    }

    /// Writes zeros for the pixels of a run whose tap is beyond the row's ends.
    ///
    /// # Safety
    /// `to` is writable for `len` values.
    #[inline(always)]
    unsafe fn clear_outside(&self, first: usize, len: usize, to: *mut f32) {
        let (stride, pad, columns) =
            (self.pixels.geometry.stride[2], self.pixels.geometry.pad[2], self.pixels.geometry.input[2]);
        for i in (0..len).take_while(|i| first + i * stride < pad) {
            // SAFETY: i < len.
            unsafe { to.add(i).write(0.0) };
        }
        for i in (0..len).rev().take_while(|i| first + i * stride >= columns + pad) {
            // SAFETY: i < len.
            unsafe { to.add(i).write(0.0) };
        }
    }

    /// One step along K of one run, reading and writing nothing beyond it.
    ///
    /// # Safety
    /// `run.from` is a row of the input, `to` writable for `run.len` values.
    #[inline(always)]
    unsafe fn tap_exact<S: Simd>(&self, s: S, run: &Run, tap: usize, to: *mut f32) {
        let g = self.pixels.geometry;
        let inside = g.inside(2, tap);
        let (start, end) = (inside.start.max(run.first), inside.end.min(run.first + run.len));
        // SAFETY: the caller's promise.
        unsafe { to.write_bytes(0, run.len) };
        if start < end {
            let from = run.from.wrapping_add(start * g.stride[2] + tap * g.dilation[2] - g.pad[2]);
            // SAFETY: the columns of `inside` are in the row.
            unsafe { copy(s, from, g.stride[2], to.add(start - run.first), end - start) };
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
    if stride > 2 {
        while at < len {
            // SAFETY: value `at` of both sides.
            unsafe { to.add(at).write(from.add(at * stride).read()) };
            at += 1;
        }
        return;
    }
    while at < len {
        let n = (len - at).min(S::LANES);
        let from = from.wrapping_add(at * stride);
        // SAFETY: n values are left on both sides.
        unsafe {
            let x = match (stride, n == S::LANES) {
                (1, true) => s.load(from),
                (1, false) => s.load_head(from, n),
                (_, true) => s.load_even(from),
                (_, false) => s.load_even_head(from, n),
            };
            if n == S::LANES { s.store(to.add(at), x) } else { s.store_head(to.add(at), x, n) }
        }
        at += n;
    }
}
