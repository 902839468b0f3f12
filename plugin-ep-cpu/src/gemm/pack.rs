//! Operands in the order in which the micro-kernel reads them.
//!
//! Both sides are cut along K into blocks. Within a block, B is a row of panels
//! of [`panel_columns`] columns, A a column of panels as high as their tile; a
//! panel holds its values step by step along K, so a tile reads both in one
//! forward sweep. Columns that B lacks are 0. Rows of A are split evenly, no
//! panel being more than a row higher than another.

use core::ops::Range;

use super::error::enough;
use super::plan::{Split, block_k, slack};
use super::tile::{max_rows, panel_columns};
use super::{KernelError, Mat};
use crate::simd::{Isa, Kernel, Simd};

/// How a K by N matrix lies when packed as the right side of products on one
/// instruction set. The memory is the caller's, best 64-byte aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedB {
    pub(crate) isa: Isa,
    pub(crate) k: usize,
    pub(crate) n: usize,
    pub(crate) blocks: Split,
}

impl PackedB {
    /// The layout for a matrix of `k` rows and `n` columns.
    #[must_use]
    pub fn new(isa: Isa, k: usize, n: usize) -> Self {
        PackedB { isa, k, n, blocks: block_k(isa, k) }
    }

    /// Values that it takes, `usize::MAX` when there is no such number.
    #[must_use]
    pub fn size(&self) -> usize {
        self.panels().saturating_mul(panel_columns(self.isa)).saturating_mul(self.k)
    }

    /// Pieces that can be packed apart from each other.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.blocks.parts() * self.panels()
    }

    /// Where in the packed values some of the pieces lie.
    #[must_use]
    pub fn span(&self, pieces: Range<usize>) -> Range<usize> {
        self.start(pieces.start)..self.start(pieces.end)
    }

    /// Packs some of the pieces of `b` into `dst`, which is their
    /// [`span`](Self::span). Each value is read once.
    ///
    /// # Errors
    /// Sizes differ, or `dst` is too short.
    pub fn pack(&self, b: Mat<'_>, pieces: Range<usize>, dst: &mut [f32]) -> Result<(), KernelError> {
        if (b.rows, b.cols) != (self.k, self.n) || pieces.end > self.pieces() {
            return Err(KernelError::Shape("B is not of the size that it is packed for"));
        }
        let span = self.span(pieces.clone());
        enough("packed B", span.len(), dst.len())?;
        for piece in pieces {
            let (block, panel) = (piece / self.panels(), piece % self.panels());
            let at = self.start(piece) - span.start;
            let len = self.blocks.len(block) * panel_columns(self.isa);
            let columns = panel * panel_columns(self.isa);
            pack_panel(self.isa, b, self.blocks.range(block), columns, &mut dst[at..at + len]);
        }
        Ok(())
    }

    pub(crate) fn panels(&self) -> usize {
        self.n.div_ceil(panel_columns(self.isa))
    }

    /// Where a block's panel begins.
    pub(crate) fn offset(&self, block: usize, panel: usize) -> usize {
        let columns = panel_columns(self.isa);
        let before = self.blocks.start(block) * self.panels();
        (before + panel * self.blocks.len(block)) * columns
    }

    fn start(&self, piece: usize) -> usize {
        match self.panels() {
            0 => 0,
            panels if piece >= self.pieces() => panels * panel_columns(self.isa) * self.k,
            panels => self.offset(piece / panels, piece % panels),
        }
    }
}

/// How an M by K matrix lies when packed as the left side of products on one
/// instruction set. The memory is the caller's, best 64-byte aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedA {
    pub(crate) isa: Isa,
    pub(crate) k: usize,
    pub(crate) blocks: Split,
    pub(crate) tiles: Split,
}

impl PackedA {
    /// The layout for a matrix of `m` rows and `k` columns.
    #[must_use]
    pub fn new(isa: Isa, m: usize, k: usize) -> Self {
        PackedA { isa, k, blocks: block_k(isa, k), tiles: Split::at_most(m, max_rows(isa)) }
    }

    /// Values that it takes, `usize::MAX` when there is no such number.
    #[must_use]
    pub fn size(&self) -> usize {
        let whole = self.panel(self.blocks.longest()).saturating_mul(self.tiles.parts());
        whole.saturating_mul(self.blocks.parts())
    }

    /// Pieces that can be packed apart from each other.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.blocks.parts() * self.tiles.parts()
    }

    /// Where in the packed values some of the pieces lie.
    #[must_use]
    pub fn span(&self, pieces: Range<usize>) -> Range<usize> {
        let panel = self.panel(self.blocks.longest());
        pieces.start * panel..pieces.end * panel
    }

    /// Packs some of the pieces of `a` into `dst`, which is their
    /// [`span`](Self::span). Each value is read once.
    ///
    /// # Errors
    /// Sizes differ, or `dst` is too short.
    pub fn pack(&self, a: Mat<'_>, pieces: Range<usize>, dst: &mut [f32]) -> Result<(), KernelError> {
        if (a.rows, a.cols) != (self.tiles.total(), self.k) || pieces.end > self.pieces() {
            return Err(KernelError::Shape("A is not of the size that it is packed for"));
        }
        let span = self.span(pieces.clone());
        enough("packed A", span.len(), dst.len())?;
        for piece in pieces {
            let (block, tile) = (piece / self.tiles.parts(), piece % self.tiles.parts());
            let at = self.offset(block, tile) - span.start;
            let dst = &mut dst[at..at + self.panel(self.blocks.longest())];
            pack_tile(self.isa, a, self.tiles.range(tile), self.blocks.range(block), dst);
        }
        Ok(())
    }

    /// Where a block's tile begins.
    pub(crate) fn offset(&self, block: usize, tile: usize) -> usize {
        (block * self.tiles.parts() + tile) * self.panel(self.blocks.longest())
    }

    fn panel(&self, k: usize) -> usize {
        tile_len(self.isa, self.tiles.longest(), k)
    }
}

/// Values that a packed tile takes: the packing writes whole vectors.
pub(crate) fn tile_len(isa: Isa, rows: usize, k: usize) -> usize {
    rows.saturating_mul(k).saturating_add(slack(isa))
}

/// Packs rows `k` of the columns from `column` on, one panel's.
pub(crate) fn pack_panel(isa: Isa, b: Mat<'_>, k: Range<usize>, column: usize, dst: &mut [f32]) {
    let columns = panel_columns(isa).min(b.cols - column);
    assert!(k.end <= b.rows && dst.len() >= k.len() * panel_columns(isa), "one panel of B");
    isa.dispatch(Panel { b, k, column, columns, dst });
}

struct Panel<'a> {
    b: Mat<'a>,
    k: Range<usize>,
    column: usize,
    columns: usize,
    dst: &'a mut [f32],
}

impl Kernel for Panel<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = 2 * S::LANES;
        let at =
            |k: usize, column: usize| self.b.data.as_ptr().wrapping_add(k * self.b.row_step + column * self.b.col_step);
        let mut to = self.dst.as_mut_ptr();
        if self.b.col_step == 1 {
            let first = self.columns.min(S::LANES);
            for k in self.k {
                let from = at(k, self.column);
                // The next panel, which no prefetcher of the CPU foresees.
                s.prefetch(from.wrapping_add(width));
                s.prefetch(from.wrapping_add(width + S::LANES));
                if self.columns == width {
                    // SAFETY: two vectors in a row of the matrix and of the panel.
                    unsafe {
                        s.store(to, s.load(from));
                        s.store(to.add(S::LANES), s.load(from.add(S::LANES)));
                    }
                } else {
                    // SAFETY: as many columns as the matrix has; two vectors in
                    // a row of the panel.
                    unsafe {
                        s.store(to, s.load_head(from, first));
                        s.store(to.add(S::LANES), s.load_head(from.add(first), self.columns - first));
                    }
                }
                to = to.wrapping_add(width);
            }
        } else if self.b.row_step == 1 {
            let whole = self.k.len() - self.k.len() % S::LANES;
            for k in (0..whole).step_by(S::LANES) {
                for half in 0..2 {
                    let rows = self.columns.saturating_sub(half * S::LANES).min(S::LANES);
                    let from = at(self.k.start + k, self.column + half * S::LANES);
                    let to = to.wrapping_add(k * width + half * S::LANES);
                    // SAFETY: LANES steps along K of `rows` columns are in the
                    // matrix; LANES rows of one vector each in the panel.
                    unsafe { s.transpose(from, self.b.col_step, rows, to, width) };
                }
            }
            let to = to.wrapping_add(whole * width);
            // SAFETY: the steps that are left of the panel.
            unsafe {
                copy(at(self.k.start + whole, self.column), &self.b, self.k.len() - whole, self.columns, to, width)
            };
        } else {
            // SAFETY: all steps of the panel.
            unsafe { copy(at(self.k.start, self.column), &self.b, self.k.len(), self.columns, to, width) };
        }
    }
}

/// Value by value: `k` steps of `columns` values, filled up to `width` with 0.
///
/// # Safety
/// `from` is the first of that many rows and columns of `b`; `to` is writable
/// for `k * width` values.
#[inline(always)]
unsafe fn copy(from: *const f32, b: &Mat<'_>, k: usize, columns: usize, to: *mut f32, width: usize) {
    for k in 0..k {
        for column in 0..width {
            let value = if column < columns {
                // SAFETY: inside the rows and columns of the matrix.
                unsafe { from.add(k * b.row_step + column * b.col_step).read() }
            } else {
                0.0
            };
            // SAFETY: inside the panel.
            unsafe { to.add(k * width + column).write(value) };
        }
    }
}

/// Packs the tile of `rows` over the columns `k`.
pub(crate) fn pack_tile(isa: Isa, a: Mat<'_>, rows: Range<usize>, k: Range<usize>, dst: &mut [f32]) {
    assert!(rows.end <= a.rows && k.end <= a.cols, "a tile of A");
    assert!(dst.len() >= tile_len(isa, rows.len(), k.len()), "a packed tile of A");
    isa.dispatch(Rows { a, rows, k, dst });
}

struct Rows<'a> {
    a: Mat<'a>,
    rows: Range<usize>,
    k: Range<usize>,
    dst: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let height = self.rows.len();
        let at = |row: usize, k: usize| self.a.data.as_ptr().wrapping_add(row * self.a.row_step + k * self.a.col_step);
        let to = self.dst.as_mut_ptr();
        let mut done = 0;
        if self.a.col_step == 1 {
            done = self.k.len() - self.k.len() % S::LANES;
            for k in (0..done).step_by(S::LANES) {
                // Whole vectors are written, and run over into what comes next
                // in the tile: the last rows go first, and later steps later.
                for group in (0..height.div_ceil(S::LANES)).rev() {
                    let row = group * S::LANES;
                    let rows = (height - row).min(S::LANES);
                    let from = at(self.rows.start + row, self.k.start + k);
                    let to = to.wrapping_add(k * height + row);
                    // SAFETY: LANES values of `rows` rows are in the matrix; the
                    // last vector ends inside the slack behind the tile.
                    unsafe { s.transpose(from, self.a.row_step, rows, to, height) };
                }
            }
        }
        if self.a.row_step == 1 {
            for k in done..self.k.len() {
                let (from, to) = (at(self.rows.start, self.k.start + k), to.wrapping_add(k * height));
                for row in (0..height).step_by(S::LANES) {
                    let n = (height - row).min(S::LANES);
                    // SAFETY: n values of the matrix, and of the tile.
                    unsafe { s.store_head(to.add(row), s.load_head(from.add(row), n), n) };
                }
            }
            return;
        }
        for k in done..self.k.len() {
            for row in 0..height {
                let from = at(self.rows.start + row, self.k.start + k);
                // SAFETY: a value of the matrix, and one of the tile.
                unsafe { to.add(k * height + row).write(from.read()) };
            }
        }
    }
}
