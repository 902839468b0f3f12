//! Convolution of each input channel with filters of its own.

use ortolan_ep_kit::parallel::Parallel;

use super::plane::{Fold, Sweep};
use super::{Filter, Geometry, Post};
use crate::gemm::{Activation, KernelError, activate, clip_of};
use crate::simd::{Isa, Kernel, Simd};

/// Sums of taps times weights.
#[derive(Clone, Copy)]
pub(crate) struct Weighted;

impl Fold for Weighted {
    const EMPTY: f32 = 0.0;
    #[inline(always)]
    fn take<S: Simd>(s: S, so_far: S::F32, w: S::F32, x: S::F32) -> S::F32 {
        s.fma(w, x, so_far)
    }
}

/// A depthwise convolution whose operands fit each other.
pub(super) struct Depthwise<'a> {
    pub filter: &'a Filter,
    pub geometry: &'a Geometry,
    pub batch: usize,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub post: Post<'a>,
    pub y: *mut f32,
}

// SAFETY: each piece of each output channel is written by one worker; everything else is only read.
unsafe impl Sync for Depthwise<'_> {}

/// Values of scratch memory for each worker.
pub(super) fn scratch_len(isa: Isa, geometry: &Geometry) -> usize {
    Sweep::new(geometry).scratch_len(isa)
}

struct Memory(*mut f32);

// SAFETY: each worker takes a piece of its own.
unsafe impl Sync for Memory {}

impl Depthwise<'_> {
    /// Computes all output channels. `scratch` holds `width` times `scratch_len`.
    pub fn run(&self, scratch: &mut [f32], threads: &dyn Parallel) -> Result<(), KernelError> {
        let isa = self.filter.isa;
        let sweep = Sweep::new(self.geometry);
        let own = sweep.scratch_len(isa);
        assert!(scratch.len() >= own * threads.width(), "scratch of a depthwise convolution");
        let memory = Memory(scratch.as_mut_ptr());
        let memory = &memory;
        let channels = self.batch * self.filter.groups;
        threads.for_each(channels * sweep.pieces(), 1, &|worker, range| {
            // SAFETY: the worker's own piece of the scratch.
            let scratch = unsafe { core::slice::from_raw_parts_mut(memory.0.add(worker * own), own) };
            let mut cleared = None;
            for index in range {
                let (piece, channel) = (index / channels, index % channels);
                if cleared.replace(piece) != Some(piece) {
                    sweep.clear(scratch, Weighted);
                }
                self.piece(&sweep, channel, piece, scratch);
            }
        })?;
        Ok(())
    }

    /// A piece of all output channels of one input channel.
    fn piece(&self, sweep: &Sweep, channel: usize, piece: usize, scratch: &mut [f32]) {
        let Filter { isa, outs, groups, .. } = *self.filter;
        let (inputs, taps) = (self.geometry.inputs(), self.geometry.taps());
        sweep.load(isa, &self.x[channel * inputs..][..inputs], piece, scratch);
        let (depth, rows) = sweep.piece(piece);
        let columns = self.geometry.output[2];
        let first = (depth * self.geometry.output[1] + rows.start) * columns;
        for out in 0..outs {
            let (plane, filter) = (channel * outs + out, channel % groups * outs + out);
            let w = &self.w[filter * taps..][..taps];
            let sums = sweep.run(isa, piece, w, scratch, Weighted);
            let at = plane * self.geometry.outputs() + first;
            let y = self.y.wrapping_add(at);
            let bias = self.post.bias.map_or(0.0, |bias| bias[filter]);
            let residual = self.post.residual.map(|residual| &residual[at..][..rows.len() * columns]);
            let activation = self.post.activation;
            isa.dispatch(Finish {
                sums,
                pitch: sweep.pitch(),
                rows: rows.len(),
                columns,
                bias,
                residual,
                activation,
                y,
            });
            if clip_of(activation).is_none() {
                // SAFETY: the rows that were just written.
                unsafe { activate(isa, activation, y, columns, rows.len(), columns) };
            }
        }
    }
}

/// Writes rows of sums, `pitch` apart, as rows of the output, next to each other.
struct Finish<'a> {
    sums: &'a [f32],
    pitch: usize,
    rows: usize,
    columns: usize,
    bias: f32,
    residual: Option<&'a [f32]>,
    activation: Activation,
    y: *mut f32,
}

impl Kernel for Finish<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let bias = s.splat(self.bias);
        let (low, high) = clip_of(self.activation).unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        let (low, high) = (s.splat(low), s.splat(high));
        for row in 0..self.rows {
            let sums = &self.sums[row * self.pitch..][..self.columns];
            let mut column = 0;
            while column < self.columns {
                let (n, at) = ((self.columns - column).min(S::LANES), row * self.columns + column);
                let mut x = s.add(s.load_slice(&sums[column..]), bias);
                if let Some(residual) = self.residual {
                    x = s.add(x, s.load_slice(&residual[at..at + n]));
                }
                // SAFETY: n columns are left of the row, which is this worker's to write.
                unsafe { s.store_head(self.y.add(at), s.clip(x, low, high), n) };
                column += S::LANES;
            }
        }
    }
}
