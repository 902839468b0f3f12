//! The blocked product: who computes which tiles in which order, and where the
//! packed operands come from.
//!
//! Blocks of K follow each other. Within one, A is packed a few tiles at a time
//! so that these stay in the second cache, and each panel of B runs over them;
//! C is added to once per block. B is packed before (weights), block by block
//! here, or read where it lies.

use core::ops::Range;

use ortolan_ep_kit::parallel::Parallel;

use super::epilogue::{Finish, activate};
use super::pack::{pack_panel, pack_tile, tile_len};
use super::plan::{Split, block_panels, block_tiles, grid, longest_k};
use super::tile::{self, Tile, max_rows, panel_columns};
use super::{KernelError, Mat, PackedA, PackedB, Source};
use crate::simd::Isa;

/// Where the left side comes from.
#[derive(Clone, Copy)]
pub(crate) enum Left<'a> {
    Packed(PackedA, &'a [f32]),
    /// Rows are next to each other: read as if packed.
    Direct(Mat<'a>),
    /// Tiles by their worker, some at a time.
    Pack(Mat<'a>),
    /// The same from what is no matrix.
    Gather(&'a dyn Source),
}

/// Where the right side comes from.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    Packed(PackedB, &'a [f32]),
    /// Columns are next to each other: read as if packed, but for a last panel
    /// that is not full.
    Direct(Mat<'a>),
    /// Each panel by its worker, just before the only pass over it.
    PackPanels(Mat<'a>),
    /// The same from what is no matrix.
    Gather(&'a dyn Source),
    /// A block at a time, for all workers and several passes.
    PackBlocks(Mat<'a>),
}

/// A product whose operands fit each other.
pub(crate) struct Product<'a> {
    pub isa: Isa,
    pub tiles: Split,
    pub blocks: Split,
    pub n: usize,
    pub a: Left<'a>,
    pub b: Right<'a>,
    /// M rows of N values, `c_step` apart, that nothing else touches.
    pub c: *mut f32,
    pub c_step: usize,
    pub finish: Finish<'a>,
}

// SAFETY: workers write different tiles of C and only read everything else.
unsafe impl Sync for Product<'_> {}

/// Scratch values of a product: a block of B for all workers, then for each
/// worker a block of A and a panel of B.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    b: usize,
    a: usize,
    panel: usize,
}

impl Scratch {
    pub fn new(isa: Isa, tiles: Split, blocks: Split, n: usize, packs_a: bool, packs_b: bool) -> Self {
        let k = blocks.longest();
        let panel = panel_columns(isa).saturating_mul(k);
        let tiles_at_once = block_tiles(isa, k).min(tiles.parts());
        let panels_at_once = block_panels(isa, k).min(n.div_ceil(panel_columns(isa)));
        let tile = tile_stride(isa, tiles, k);
        Scratch {
            b: if packs_a && packs_b && tiles.parts() > tiles_at_once {
                panel.saturating_mul(panels_at_once)
            } else {
                0
            },
            a: if packs_a { tile.saturating_mul(tiles_at_once) } else { 0 },
            // A source may run over by a vector.
            panel: if packs_b { panel.saturating_add(16) } else { 0 },
        }
    }

    /// Enough for one thread and every product of at most these sizes, whose cuts may be longer than those of the largest.
    pub fn most(isa: Isa, m: usize, n: usize, k: usize) -> Self {
        let k = k.min(longest_k(isa)).max(1);
        let tiles = Split::at_most(m, max_rows(isa));
        let tile = tile_stride(isa, Split::at_most(m.min(max_rows(isa)), usize::MAX), k);
        let panel = panel_columns(isa).saturating_mul(k);
        let blocks = tiles.parts() > block_tiles(isa, k);
        let panels = block_panels(isa, 1).saturating_mul(panel_columns(isa)).max(panel);
        Scratch {
            b: if blocks { panels.min(panel.saturating_mul(n.div_ceil(panel_columns(isa)))) } else { 0 },
            a: tile.saturating_mul(tiles.parts()),
            panel: panel.saturating_add(16),
        }
    }

    /// Whether there is room for a block of B.
    pub fn has_block(&self) -> bool {
        self.b > 0
    }

    pub fn len(&self, width: usize) -> usize {
        self.a.saturating_add(self.panel).saturating_mul(width).saturating_add(self.b)
    }
}

/// From one packed tile to the next: whole cache lines, so that workers share none.
fn tile_stride(isa: Isa, tiles: Split, k: usize) -> usize {
    let len = tile_len(isa, tiles.longest(), k);
    len.checked_next_multiple_of(16).unwrap_or(usize::MAX)
}

/// The scratch memory, cut by [`Scratch`].
#[derive(Clone, Copy)]
struct Memory {
    at: *mut f32,
    cut: Scratch,
}

// SAFETY: each worker takes a piece of its own; the shared block of B is packed
// in pieces that one worker alone gets, and only read afterwards.
unsafe impl Sync for Memory {}

impl Memory {
    fn shared_b(&self) -> *mut f32 {
        self.at
    }
    fn a(&self, worker: usize) -> *mut f32 {
        self.at.wrapping_add(self.cut.b + worker * (self.cut.a + self.cut.panel))
    }
    fn panel(&self, worker: usize) -> *mut f32 {
        self.a(worker).wrapping_add(self.cut.a)
    }
}

/// Where a worker stands: its memory, and the first panel that the shared block
/// of B holds.
struct Spot {
    memory: Memory,
    worker: usize,
    shared_from: usize,
}

impl Product<'_> {
    /// Computes all of C. `cut` is this product's and `scratch` as long as it says.
    pub fn run(&self, cut: Scratch, scratch: &mut [f32], threads: &dyn Parallel) -> Result<(), KernelError> {
        assert!(scratch.len() >= cut.len(threads.width()), "scratch of a product");
        let memory = Memory { at: scratch.as_mut_ptr(), cut };
        let panels = self.n.div_ceil(panel_columns(self.isa));
        let Right::PackBlocks(b) = self.b else {
            return self.spread(memory, 0..panels, 0..self.blocks.parts(), threads);
        };
        let at_once = block_panels(self.isa, self.blocks.longest());
        for first in (0..panels).step_by(at_once) {
            let group = first..panels.min(first + at_once);
            for block in 0..self.blocks.parts() {
                self.pack_block(memory, b, group.clone(), block, threads)?;
                self.spread(memory, group.clone(), block..block + 1, threads)?;
            }
        }
        Ok(())
    }

    /// Packs a block of B into the shared scratch.
    fn pack_block(
        &self,
        memory: Memory,
        b: Mat<'_>,
        panels: Range<usize>,
        block: usize,
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        let k = self.blocks.range(block);
        let columns = panel_columns(self.isa);
        let len = k.len() * columns;
        threads.for_each(panels.len(), 1, &|_, range| {
            for i in range {
                let at = memory.shared_b().wrapping_add(i * len);
                // SAFETY: panel i of the block, which this call alone has; the
                // scratch holds as many as a group has.
                let dst = unsafe { core::slice::from_raw_parts_mut(at, len) };
                pack_panel(self.isa, b, k.clone(), (panels.start + i) * columns, dst);
            }
        })?;
        Ok(())
    }

    /// Spreads all tiles of these panels and blocks over the threads.
    fn spread(
        &self,
        memory: Memory,
        panels: Range<usize>,
        blocks: Range<usize>,
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        let (rows, columns) =
            grid(self.tiles.parts(), panels.len(), threads.width(), self.packs_a(), self.packs_panels());
        threads.for_each(rows.parts() * columns.parts(), 1, &|worker, tasks| {
            for task in tasks {
                let spot = Spot { memory, worker, shared_from: panels.start };
                let tiles = rows.range(task / columns.parts());
                let own = columns.range(task % columns.parts());
                let own = panels.start + own.start..panels.start + own.end;
                if self.packs_panels() && !self.packs_a() {
                    self.by_panels(&spot, tiles, own, blocks.clone());
                } else {
                    blocks.clone().for_each(|block| self.by_tiles(&spot, tiles.clone(), own.clone(), block));
                }
            }
        })?;
        Ok(())
    }

    fn packs_a(&self) -> bool {
        matches!(self.a, Left::Pack(_) | Left::Gather(_))
    }

    fn packs_panels(&self) -> bool {
        matches!(self.b, Right::PackPanels(_) | Right::Gather(_))
    }

    /// Each panel through all blocks of K: it is packed once, and its columns of
    /// C stay in the caches. A is not packed here, so it costs nothing to come
    /// back to it.
    fn by_panels(&self, spot: &Spot, tiles: Range<usize>, panels: Range<usize>, blocks: Range<usize>) {
        for panel in panels {
            for block in blocks.clone() {
                self.pack_own_panel(spot, block, panel);
                let b = self.b_of(spot, block, panel);
                for tile in tiles.clone() {
                    self.tile(block, tile, panel, self.a_of(spot, block, tile, 0), b);
                }
            }
        }
    }

    /// A block of K by as many tiles as the second cache holds, which stay there
    /// for all panels.
    fn by_tiles(&self, spot: &Spot, tiles: Range<usize>, panels: Range<usize>, block: usize) {
        let at_once = block_tiles(self.isa, self.blocks.longest());
        for first in tiles.clone().step_by(at_once) {
            let tiles = first..tiles.end.min(first + at_once);
            self.pack_tiles(spot, block, tiles.clone());
            for panel in panels.clone() {
                self.pack_own_panel(spot, block, panel);
                let b = self.b_of(spot, block, panel);
                for tile in tiles.clone() {
                    self.tile(block, tile, panel, self.a_of(spot, block, tile, tile - first), b);
                }
            }
        }
    }

    /// Packs tiles of A for this worker, if they are packed here.
    fn pack_tiles(&self, spot: &Spot, block: usize, tiles: Range<usize>) {
        if !self.packs_a() {
            return;
        }
        let k = self.blocks.range(block);
        let stride = tile_stride(self.isa, self.tiles, self.blocks.longest());
        for (i, tile) in tiles.enumerate() {
            let at = spot.memory.a(spot.worker).wrapping_add(i * stride);
            // SAFETY: tile i of the worker's own block of A, which holds as many
            // as `block_tiles` says.
            let dst = unsafe { core::slice::from_raw_parts_mut(at, stride) };
            let rows = self.tiles.range(tile);
            match self.a {
                Left::Pack(a) => pack_tile(self.isa, a, rows, k.clone(), dst),
                Left::Gather(a) => a.pack(k.clone(), rows.clone(), rows.len(), dst),
                Left::Packed(..) | Left::Direct(_) => {}
            }
        }
    }

    /// Packs a panel of B for this worker, if that is the way: the micro-kernel
    /// reads whole vectors, so a panel that lacks columns is always packed.
    fn pack_own_panel(&self, spot: &Spot, block: usize, panel: usize) {
        let width = panel_columns(self.isa);
        let (column, end) = (panel * width, self.n.min((panel + 1) * width));
        let is_direct = matches!(self.b, Right::Direct(_)) && column + width <= self.n;
        if is_direct || matches!(self.b, Right::Packed(..) | Right::PackBlocks(_)) {
            return;
        }
        let k = self.blocks.range(block);
        // SAFETY: the worker's own panel, which holds the longest block and 16 values more.
        let dst = unsafe { core::slice::from_raw_parts_mut(spot.memory.panel(spot.worker), k.len() * width + 16) };
        match self.b {
            Right::PackPanels(b) | Right::Direct(b) => pack_panel(self.isa, b, k, column, dst),
            Right::Gather(b) => b.pack(k, column..end, width, dst),
            Right::Packed(..) | Right::PackBlocks(_) => {}
        }
    }

    /// Where a panel of B begins, and its step along K.
    fn b_of(&self, spot: &Spot, block: usize, panel: usize) -> (*const f32, usize) {
        let columns = panel_columns(self.isa);
        match self.b {
            Right::Packed(layout, data) => (data.as_ptr().wrapping_add(layout.offset(block, panel)), columns),
            Right::Direct(b) if (panel + 1) * columns <= self.n => {
                let k = self.blocks.start(block);
                (b.at(k, panel * columns), b.row_step)
            }
            Right::Direct(_) | Right::PackPanels(_) | Right::Gather(_) => (spot.memory.panel(spot.worker), columns),
            Right::PackBlocks(_) => {
                let len = self.blocks.len(block) * columns;
                (spot.memory.shared_b().wrapping_add((panel - spot.shared_from) * len), columns)
            }
        }
    }

    /// Where a tile of A begins, and its step along K; `i` counts the tiles that
    /// the worker has packed.
    fn a_of(&self, spot: &Spot, block: usize, tile: usize, i: usize) -> (*const f32, usize) {
        let rows = self.tiles.range(tile);
        match self.a {
            Left::Packed(layout, data) => (data.as_ptr().wrapping_add(layout.offset(block, tile)), rows.len()),
            Left::Direct(a) => (a.at(rows.start, self.blocks.start(block)), a.col_step),
            Left::Pack(_) | Left::Gather(_) => {
                let stride = tile_stride(self.isa, self.tiles, self.blocks.longest());
                (spot.memory.a(spot.worker).wrapping_add(i * stride), rows.len())
            }
        }
    }

    /// One tile of C, for one block of K.
    fn tile(
        &self,
        block: usize,
        tile: usize,
        panel: usize,
        (a, a_step): (*const f32, usize),
        (b, b_step): (*const f32, usize),
    ) {
        let (first, last) = (block == 0, block + 1 == self.blocks.parts());
        let rows = self.tiles.range(tile);
        let column = panel * panel_columns(self.isa);
        let columns = panel_columns(self.isa).min(self.n - column);
        let c = self.c.wrapping_add(rows.start * self.c_step + column);
        let mut job = Tile::new(self.blocks.len(block), (a, a_step), (b, b_step));
        // The next panel of a B that lies in rows: no prefetcher of the CPU
        // follows steps of a row.
        job.ahead = if b_step == panel_columns(self.isa) { 0 } else { panel_columns(self.isa) };
        (job.c, job.c_step, job.columns) = (c, self.c_step, columns);
        self.finish.apply(&mut job, rows.start, column, first, last);
        // SAFETY: the split of rows keeps to `max_rows`; `new` of the operands,
        // of C and of the epilogue has checked that all of it is there.
        unsafe { tile::run(self.isa, rows.len(), &job) };
        if last && let Some(activation) = self.finish.activation() {
            // SAFETY: the tile of C that was just written.
            unsafe { activate(self.isa, activation, c, self.c_step, rows.len(), columns) };
        }
    }
}
