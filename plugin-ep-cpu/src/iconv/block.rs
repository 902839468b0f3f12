//! Goes over pixels and panels of output channels: products of both, turned into planes, finished.
//!
//! One of the files with `unsafe`: scratch memory is cut for workers.

use super::finish::{Finish, To};
use crate::conv::Geometry;
use crate::gemm::KernelError;
use crate::igemm::{MOST_COLUMNS, Offsets, PackedB, Sums};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::bytes;
use ortolan_ep_kit::parallel::{Parallel, Serial};

/// Pixels of a block at most: a multiple of all heights of tiles and numbers of lanes.
const PIXELS: usize = 96;
/// Bytes of scratch memory of a worker: sums of a block, pixel by pixel, and the same turned.
pub(super) const SCRATCH: usize = 2 * PIXELS * MOST_COLUMNS * size_of::<i32>();
/// Multiply-adds below which waking another thread costs more than it brings.
const WORTH_SHARING: usize = 1 << 19;

/// The product of one group of one image.
pub(super) struct Blocks<'a> {
    pub isa: Isa,
    pub layout: PackedB,
    pub geometry: &'a Geometry,
    pub image: &'a [u8],
    pub starts: &'a [u32],
    pub offsets: &'a Offsets,
    pub zero: i32,
    pub w: &'a [u8],
    pub finish: &'a Finish<'a>,
    pub to: &'a To<'a>,
    /// The output's first element.
    pub first: usize,
}

struct Memory(*mut u8);

// SAFETY: each worker takes a piece of its own.
unsafe impl Sync for Memory {}

impl Blocks<'_> {
    pub fn run(&self, scratch: &mut [u8], threads: &dyn Parallel) -> Result<(), KernelError> {
        let pixels = self.geometry.outputs();
        let work = pixels.saturating_mul(self.layout.k).saturating_mul(self.layout.n);
        let threads = if work < WORTH_SHARING { &Serial } else { threads };
        assert!(scratch.len() >= SCRATCH * threads.width(), "scratch of a convolution");
        // Blocks of equal size, of whole tiles.
        let high = self.layout.way.rows();
        let block = pixels.div_ceil(pixels.div_ceil(PIXELS)).next_multiple_of(high).min(PIXELS);
        let blocks = pixels.div_ceil(block);
        let memory = Memory(scratch.as_mut_ptr());
        let memory = &memory;
        threads.for_each(self.layout.panels() * blocks, 1, &|worker, tasks| {
            // SAFETY: the worker's own piece of the scratch, as was checked.
            let scratch = unsafe { core::slice::from_raw_parts_mut(memory.0.add(worker * SCRATCH), SCRATCH) };
            for task in tasks {
                // Blocks of one panel follow each other, so that it stays in the cache.
                let (panel, first) = (task / blocks, task % blocks * block);
                let pixels = first..(first + block).min(pixels);
                self.isa.dispatch(Block { blocks: self, panel, pixels, scratch: bytes::elements_mut(scratch) });
            }
        })?;
        Ok(())
    }
}

/// Some pixels of some output channels.
struct Block<'a> {
    blocks: &'a Blocks<'a>,
    panel: usize,
    pixels: core::ops::Range<usize>,
    scratch: &'a mut [i32],
}

impl Kernel for Block<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block { blocks, panel, pixels, scratch } = self;
        let &Blocks { isa, layout, geometry, offsets, zero, finish, to, .. } = blocks;
        let (groups, sums) = layout.panel(blocks.w, panel);
        let columns = layout.columns();
        let first = panel * columns;
        let outs = columns.min(layout.n - first);
        let (rows, turned) = scratch.split_at_mut(PIXELS * MOST_COLUMNS);
        let rows: &mut [Sums] = rows.as_chunks_mut().0;
        let high = layout.way.rows();
        let starts = &blocks.starts[pixels.clone()];
        for (starts, rows) in starts.chunks(high).zip(rows.chunks_mut(high)) {
            layout.way.multiply_at((blocks.image, starts), offsets, (groups, outs), rows);
        }
        // Planes of sums, one behind the other.
        for column in (0..outs).step_by(S::LANES) {
            for pixel in (0..pixels.len()).step_by(S::LANES) {
                let n = (pixels.len() - pixel).min(S::LANES);
                let from = rows[pixel..].as_ptr().cast::<f32>().wrapping_add(column);
                let to = turned[column * PIXELS + pixel..].as_mut_ptr().cast::<f32>();
                // SAFETY: n rows of the block are read, LANES values each, as the lanes divide the columns; as many
                // rows of the turned block are written, whose length is a multiple of the lanes.
                unsafe { s.transpose(from, MOST_COLUMNS, n, to, PIXELS) };
            }
        }
        let plane = geometry.outputs();
        for out in 0..outs {
            let add = zero.wrapping_mul(i32::from_ne_bytes(sums[out])).wrapping_neg();
            let line = &turned[out * PIXELS..][..pixels.len()];
            let at = blocks.first + (first + out) * plane + pixels.start;
            // SAFETY: tasks have pixels and channels of their own.
            unsafe { to.write(isa, finish, (first + out, add), at, line) };
        }
    }
}
