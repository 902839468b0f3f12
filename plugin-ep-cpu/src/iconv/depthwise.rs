//! Filters of single channels: planes of codes become floats, whose sums are exact.
//!
//! One of the files with `unsafe`: scratch memory is cut for workers.

use super::filter::{EXACT_TAPS, Filter};
use super::finish::{Finish, To};
use crate::conv::{Geometry, Sweep, Weighted};
use crate::gemm::KernelError;
use crate::igemm::Bytes;
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::bytes;
use ortolan_ep_kit::parallel::Parallel;

/// A depthwise convolution whose operands fit each other.
pub(super) struct Depthwise<'a> {
    pub filter: &'a Filter,
    pub geometry: &'a Geometry,
    pub batch: usize,
    pub x: Bytes<'a>,
    pub zero: i32,
    pub w: &'a [u8],
    pub finish: &'a Finish<'a>,
    pub to: &'a To<'a>,
}

/// Bytes of scratch memory for each worker: a plane of floats, and what a sweep needs.
pub(super) fn scratch_len(isa: Isa, geometry: &Geometry) -> usize {
    plane_len(geometry).saturating_add(Sweep::new(geometry).scratch_len(isa)).saturating_mul(size_of::<f32>())
}

fn plane_len(geometry: &Geometry) -> usize {
    geometry.inputs().next_multiple_of(16)
}

struct Memory(*mut u8);

// SAFETY: each worker takes a piece of its own.
unsafe impl Sync for Memory {}

impl Depthwise<'_> {
    pub fn run(&self, scratch: &mut [u8], threads: &dyn Parallel) -> Result<(), KernelError> {
        let sweep = Sweep::new(self.geometry);
        let own = scratch_len(self.filter.isa, self.geometry);
        assert!(scratch.len() >= own * threads.width(), "scratch of a depthwise convolution");
        let memory = Memory(scratch.as_mut_ptr());
        let memory = &memory;
        threads.for_each(self.batch * self.filter.groups, 1, &|worker, channels| {
            // SAFETY: the worker's own piece of the scratch.
            let scratch = unsafe { core::slice::from_raw_parts_mut(memory.0.add(worker * own), own) };
            let (plane, scratch) = bytes::elements_mut::<f32>(scratch).split_at_mut(plane_len(self.geometry));
            let mut cleared = None;
            channels.for_each(|channel| self.channel(&sweep, channel, plane, scratch, &mut cleared));
        })?;
        Ok(())
    }

    /// All output channels of an input channel of an image. `cleared`: the piece that `scratch` was cleared for.
    fn channel(
        &self,
        sweep: &Sweep,
        channel: usize,
        plane: &mut [f32],
        scratch: &mut [f32],
        cleared: &mut Option<usize>,
    ) {
        let &Filter { isa, outs, groups, .. } = self.filter;
        let (g, taps) = (self.geometry, self.filter.taps());
        let x = Bytes { data: &self.x.data[channel * g.inputs()..][..g.inputs()], ..self.x };
        isa.dispatch(Widen { x, zero: self.zero, to: plane });
        for piece in 0..sweep.pieces() {
            if cleared.replace(piece) != Some(piece) {
                sweep.clear(scratch, Weighted);
            }
            sweep.load(isa, plane, piece, scratch);
            let (depth, rows) = sweep.piece(piece);
            let first = (depth * g.output[1] + rows.start) * g.output[2];
            for out in 0..outs {
                let filter = channel % groups * outs + out;
                let mut w = [0.0; EXACT_TAPS];
                let packed = self.w[filter * taps * size_of::<f32>()..].as_chunks().0;
                w.iter_mut().zip(packed).take(taps).for_each(|(w, &packed)| *w = f32::from_ne_bytes(packed));
                let sums = sweep.run(isa, piece, &w[..taps], scratch, Weighted);
                let at = (channel * outs + out) * g.outputs() + first;
                isa.dispatch(Write { all: self, sums, pitch: sweep.pitch(), rows: rows.len(), filter, at });
            }
        }
    }
}

/// Codes to floats without their zero.
struct Widen<'a> {
    x: Bytes<'a>,
    zero: i32,
    to: &'a mut [f32],
}

impl Kernel for Widen<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Widen { x, zero, to } = self;
        let (sign, zero) = if x.signed { (0x80, zero + 128) } else { (0, zero) };
        let to = &mut to[..x.data.len()];
        for (to, &code) in to.iter_mut().zip(x.data) {
            *to = (i32::from(code ^ sign) - zero) as f32; // nine bits
        }
    }
}

/// Writes rows of sums, which are integers, `pitch` apart, as rows of the output, next to each other.
struct Write<'a> {
    all: &'a Depthwise<'a>,
    sums: &'a mut [f32],
    pitch: usize,
    rows: usize,
    filter: usize,
    at: usize,
}

impl Kernel for Write<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Write { all, sums, pitch, rows, filter, at } = self;
        let columns = all.geometry.output[2];
        assert!(sums.len() >= (rows - 1) * pitch + columns + S::LANES && pitch >= columns, "rows of sums");
        let start = sums.as_mut_ptr();
        for row in 0..rows {
            for column in (0..columns).step_by(S::LANES) {
                let n = (columns - column).min(S::LANES);
                // SAFETY: a vector from a column of the row, inside the sums as was checked; what is written lies before
                // what is still to be read.
                unsafe {
                    let sums = s.to_i32(s.load(start.add(row * pitch + column)));
                    s.store_head(start.add(row * columns + column), s.cast_f32(sums), n);
                }
            }
        }
        // SAFETY: i32 is as large as f32 and any bits are one.
        let sums = unsafe { core::slice::from_raw_parts(start.cast::<i32>(), rows * columns) };
        // SAFETY: rows of a plane that is this worker's.
        unsafe { all.to.write(all.filter.isa, all.finish, (filter, 0), at, sums) };
    }
}
