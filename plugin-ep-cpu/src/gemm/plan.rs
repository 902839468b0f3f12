//! How a product is cut: into blocks along K, tiles of rows, panels of columns.
//!
//! The cuts depend on the shape, the instruction set and the caches, never on
//! who computes what, so that the same values are added in the same order by
//! any number of threads.

use core::ops::Range;

use super::tile::{max_rows, panel_columns};
use crate::simd::Isa;
use crate::simd::cache::caches;

/// A length cut into parts that differ by one at most, the longer ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    total: usize,
    parts: usize,
}

impl Split {
    /// As few parts as keep all of them at `longest`; none for nothing.
    pub fn at_most(total: usize, longest: usize) -> Self {
        Split { total, parts: total.div_ceil(longest.max(1)) }
    }

    /// That many parts.
    pub fn into_parts(total: usize, parts: usize) -> Self {
        Split { total, parts: parts.clamp(1, total.max(1)) }
    }

    pub fn total(&self) -> usize {
        self.total
    }

    pub fn parts(&self) -> usize {
        self.parts
    }

    pub fn longest(&self) -> usize {
        self.total.div_ceil(self.parts.max(1))
    }

    pub fn start(&self, part: usize) -> usize {
        let parts = self.parts.max(1);
        part * (self.total / parts) + part.min(self.total % parts)
    }

    pub fn len(&self, part: usize) -> usize {
        self.start(part + 1) - self.start(part)
    }

    pub fn range(&self, part: usize) -> Range<usize> {
        self.start(part)..self.start(part + 1)
    }
}

/// Values that packing may write behind a tile.
pub(crate) fn slack(isa: Isa) -> usize {
    isa.lanes()
}

/// Blocks along K, one when K is 0. Long ones, because C is read and written once
/// for each; a tile of A still mostly stays in the first cache.
pub(crate) fn block_k(isa: Isa, k: usize) -> Split {
    Split::into_parts(k, k.div_ceil(longest_k(isa)))
}

/// No block along K is longer.
pub(crate) fn longest_k(isa: Isa) -> usize {
    let longest = caches().l1 * 4 / 3 / size_of::<f32>() / max_rows(isa);
    longest.clamp(64, 768)
}

/// Tiles of A in a block that fills at most a quarter of the second cache.
pub(crate) fn block_tiles(isa: Isa, k: usize) -> usize {
    let tile = max_rows(isa) * k.max(1) * size_of::<f32>();
    (caches().l2 / 4 / tile).max(1)
}

/// Panels of B, packed on the fly, that fill at most a quarter of the third cache.
pub(crate) fn block_panels(isa: Isa, k: usize) -> usize {
    let panel = panel_columns(isa) * k.max(1) * size_of::<f32>();
    ((caches().l3 / 4).min(4 << 20) / panel).max(1)
}

/// Parts of the rows' tiles and of B's panels that `width` threads take in
/// turn. One thread takes all at once. Columns are cut first, because cut rows
/// read B again, and pack it again where each worker packs its own; in wide
/// parts if each packs A again.
pub(crate) fn grid(tiles: usize, panels: usize, width: usize, packs_a: bool, packs_panels: bool) -> (Split, Split) {
    let tasks = if width == 1 { 1 } else { 4 * width };
    let wide = match (packs_a, packs_panels) {
        (true, _) => 8,
        (false, false) => 2,
        (false, true) => 1,
    };
    let columns = (panels / wide).clamp(1, tasks);
    let rows = tasks.div_ceil(columns).clamp(1, tiles.max(1));
    let columns = if rows * columns < 2 * width && width > 1 {
        (2 * width).div_ceil(rows).clamp(1, panels.max(1))
    } else {
        columns
    };
    (Split::into_parts(tiles, rows), Split::into_parts(panels, columns))
}
