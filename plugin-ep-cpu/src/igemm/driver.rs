//! Goes over the tiles of a product.
//!
//! One of the files with `unsafe`: tiles of one output are written by several threads.

use super::finish::{self, Correction, Finish};
use super::pack::{PackedA, PackedB};
use super::tile::{GROUP, MOST_COLUMNS, MOST_ROWS, Tile, Way};
use super::{Bytes, Zero};
use crate::simd::{Isa, Kernel, Simd};
use core::marker::PhantomData;
use core::ops::Range;
use ortolan_ep_kit::parallel::{Parallel, Serial, Stopped};
use ortolan_ep_kit::split;

/// A product of an `m` by `k` and a `k` by `n` matrix of 8-bit values.
#[derive(Debug, Clone, Copy)]
pub struct IGemm {
    isa: Isa,
    way: Way,
    m: usize,
    n: usize,
    k: usize,
}

/// The left side, dense.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    /// Its values.
    pub a: Bytes<'a>,
    /// What counts as zero, of all or of each row.
    pub zero: Zero<'a>,
}

/// The right side, packed.
#[derive(Debug, Clone, Copy)]
pub struct Right<'a> {
    /// As [`PackedB::pack`] left it.
    pub packed: &'a [u8],
    /// Whether its values had a sign.
    pub signed: bool,
    /// What counts as zero, of all or of each column.
    pub zero: Zero<'a>,
}

/// Where a product goes; its type has to be that of the [`Finish`].
#[derive(Debug)]
pub enum Target<'a> {
    /// Of [`Finish::Sums`].
    I32(&'a mut [i32]),
    /// Of [`Finish::Floats`].
    F32(&'a mut [f32]),
    /// Of [`Finish::Bytes`].
    U8(&'a mut [u8]),
}

/// Multiply-adds below which waking another thread costs more than it brings.
const WORTH_SHARING: usize = 1 << 19;
/// Multiply-adds of a task.
const TASK: usize = 1 << 17;
/// Bytes of packed A that stay in the second cache while panels go by.
const BLOCK_BYTES: usize = 1 << 17;

impl IGemm {
    /// A product on an instruction set.
    #[must_use]
    pub fn new(isa: Isa, m: usize, n: usize, k: usize) -> Self {
        IGemm { isa, way: Way::of(isa), m, n, k }
    }

    #[cfg(test)]
    pub(super) fn lesser(isa: Isa, m: usize, n: usize, k: usize) -> Self {
        IGemm { isa, way: Way::lesser(isa), m, n, k }
    }

    /// How its right side is packed.
    #[must_use]
    pub fn packed_b(&self) -> PackedB {
        PackedB { way: self.way, k: self.k, n: self.n }
    }

    /// How its left side is packed.
    #[must_use]
    pub fn packed_a(&self) -> PackedA {
        PackedA { way: self.way, m: self.m, k: self.k }
    }

    /// Bytes of scratch memory that [`run`](Self::run) needs.
    #[must_use]
    pub fn scratch_len(&self) -> usize {
        self.packed_a().size()
    }

    /// Computes the product. Rows of the target begin `step` apart.
    ///
    /// # Errors
    /// [`Stopped`] when the run was cancelled; the output is then incomplete.
    ///
    /// # Panics
    /// When a slice is too short for the sizes, or the target is not of the finish's type.
    #[expect(clippy::too_many_arguments, reason = "two sides, a result and means are what a product is")]
    pub fn run(
        &self,
        left: Left<'_>,
        right: Right<'_>,
        finish: &Finish<'_>,
        target: Target<'_>,
        step: usize,
        scratch: &mut [u8],
        threads: &dyn Parallel,
    ) -> Result<(), Stopped> {
        let layout = self.packed_a();
        let threads = self.worth(threads);
        let rows = &mut scratch[..layout.size()];
        let grain = PACK_BYTES.div_ceil(layout.step());
        split::rows(threads, rows, layout.step(), grain, |_, first, piece| {
            layout.pack(Bytes { data: &left.a.data[first * self.k..], ..left.a }, piece);
        })?;
        let a = PackedLeft { rows, signed: left.a.signed, zero: left.zero };
        self.run_packed(a, right, finish, target, step, threads)
    }

    /// Threads, if there is enough to do.
    fn worth<'p>(&self, threads: &'p dyn Parallel) -> &'p dyn Parallel {
        let work = self.m.saturating_mul(self.n).saturating_mul(self.k);
        if work < WORTH_SHARING { &Serial } else { threads }
    }

    /// The same with a packed left side.
    pub(crate) fn run_packed(
        &self,
        a: PackedLeft<'_>,
        right: Right<'_>,
        finish: &Finish<'_>,
        target: Target<'_>,
        step: usize,
        threads: &dyn Parallel,
    ) -> Result<(), Stopped> {
        let out = Out::new(target, finish, (self.m, self.n), step);
        let layout = self.packed_b();
        assert!(right.packed.len() >= layout.size(), "packed B is too short");
        let high = self.way.rows();
        let block = (BLOCK_BYTES / self.packed_a().step()).next_multiple_of(high).max(high);
        let (blocks, panels) = (self.m.div_ceil(block), layout.panels());
        let per_task = self.k.saturating_mul(layout.columns()).saturating_mul(block.min(self.m)).max(1);
        self.worth(threads).for_each(blocks * panels, TASK.div_ceil(per_task), &|_, tasks| {
            for task in tasks {
                let (row, panel) = (task / panels * block, task % panels);
                let (groups, sums) = layout.panel(right.packed, panel);
                let column = panel * layout.columns();
                self.block(
                    a,
                    Side { groups, sums, column, ..right.side() },
                    row..(row + block).min(self.m),
                    finish,
                    &out,
                );
            }
        })
    }

    /// Some rows of A times one panel of B.
    pub(crate) fn block(&self, a: PackedLeft<'_>, b: Side<'_>, rows: Range<usize>, finish: &Finish<'_>, out: &Out<'_>) {
        self.isa.dispatch(Block { gemm: self, a, b, rows, finish, out });
    }
}

/// Bytes of packed A that a thread makes at least.
const PACK_BYTES: usize = 1 << 14;

impl<'a> Right<'a> {
    fn side(&self) -> Side<'a> {
        Side { groups: &[], sums: &[], signed: self.signed, zero: self.zero, column: 0 }
    }
}

/// A packed left side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedLeft<'a> {
    pub rows: &'a [u8],
    pub signed: bool,
    pub zero: Zero<'a>,
}

/// A panel of B.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    pub groups: &'a [u8],
    pub sums: &'a [[u8; 4]],
    pub signed: bool,
    pub zero: Zero<'a>,
    /// Its first column in the product.
    pub column: usize,
}

/// A target that threads share.
pub(crate) struct Out<'a> {
    at: Pointer,
    rows: usize,
    columns: usize,
    step: usize,
    _borrow: PhantomData<&'a mut [u8]>,
}

#[derive(Debug, Clone, Copy)]
enum Pointer {
    I32(*mut i32),
    F32(*mut f32),
    U8(*mut u8),
}

// SAFETY: whoever writes has rows and columns that nobody else has.
unsafe impl Sync for Out<'_> {}

impl<'a> Out<'a> {
    /// # Panics
    /// When the target is too short for rows that begin `step` apart, they overlap, or it is not of the finish's type.
    pub fn new(target: Target<'a>, finish: &Finish<'_>, (rows, columns): (usize, usize), step: usize) -> Self {
        let (at, have) = match (target, finish) {
            (Target::I32(c), Finish::Sums) => (Pointer::I32(c.as_mut_ptr()), c.len()),
            (Target::F32(c), Finish::Floats { .. }) => (Pointer::F32(c.as_mut_ptr()), c.len()),
            (Target::U8(c), Finish::Bytes { .. }) => (Pointer::U8(c.as_mut_ptr()), c.len()),
            (target, finish) => panic!("{finish:?} does not write {target:?}"),
        };
        let empty = rows == 0 || columns == 0;
        let need = rows.saturating_sub(1).checked_mul(step).and_then(|n| n.checked_add(columns));
        assert!(empty || need.is_some_and(|need| need <= have), "the output is too short");
        assert!(empty || rows == 1 || step >= columns, "rows of the output overlap");
        Out { at, rows, columns, step, _borrow: PhantomData }
    }

    /// Writes a row of sums from a column on.
    ///
    /// # Safety
    /// Nobody else writes these values at the same time.
    #[inline(always)]
    unsafe fn write(&self, finish: &Finish<'_>, row: usize, column: usize, sums: &[i32; MOST_COLUMNS], width: usize) {
        let n = width.min(self.columns - column);
        assert!(row < self.rows && n <= MOST_COLUMNS, "a tile is outside of its output");
        let at = row * self.step + column;
        let sums = &sums[..n];
        match (self.at, finish) {
            (Pointer::I32(c), Finish::Sums) => {
                // SAFETY: n values of a row of the target, as was checked, which the caller alone writes.
                unsafe { core::slice::from_raw_parts_mut(c.add(at), n) }.copy_from_slice(sums);
            }
            (Pointer::F32(c), Finish::Floats { row: rows, column: columns, bias, add }) => {
                // SAFETY: as above.
                let to = unsafe { core::slice::from_raw_parts_mut(c.add(at), n) };
                finish::floats(sums, (rows.get(row), *columns, column), *bias, *add, to);
            }
            (Pointer::U8(c), Finish::Bytes { row: rows, column: columns, bias, zero, signed }) => {
                // SAFETY: as above.
                let to = unsafe { core::slice::from_raw_parts_mut(c.add(at), n) };
                let bias = bias.map_or(0, |bias| bias[row]);
                finish::bytes(sums, (rows.get(row), *columns, column), bias, (*zero, *signed), to);
            }
            _ => {}
        }
    }
}

/// See [`IGemm::block`].
struct Block<'a> {
    gemm: &'a IGemm,
    a: PackedLeft<'a>,
    b: Side<'a>,
    rows: Range<usize>,
    finish: &'a Finish<'a>,
    out: &'a Out<'a>,
}

impl Kernel for Block<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Block { gemm: &IGemm { way, n, k, .. }, a, b, rows, finish, out } = self;
        let layout = gemm_left(way, k);
        let (step, groups, width) = (layout.step(), k.div_ceil(GROUP), way.columns());
        // Values of B were moved by this much, and zero points with them.
        let moved = if b.signed { 0 } else { 128 };
        let mut zeros = [0; MOST_COLUMNS];
        for (j, zero) in zeros.iter_mut().enumerate().take(width.min(n - b.column)) {
            *zero = b.zero.get(b.column + j) - moved;
        }
        let b_zeros = zeros.iter().any(|&zero| zero != 0).then_some(&zeros);
        let mut tile: Tile = [[0; MOST_COLUMNS]; MOST_ROWS];
        for first in rows.clone().step_by(way.rows()) {
            let high = way.rows().min(rows.end - first);
            way.multiply(high, &a.rows[first * step..], step, groups, b.groups, &mut tile);
            for (i, sums) in tile.iter_mut().enumerate().take(high) {
                let row = first + i;
                let a_zero = a.zero.get(row) + if a.signed { 128 } else { 0 };
                let sum = a.rows[row * step..][..step].last_chunk().map_or(0, |sum| i32::from_ne_bytes(*sum));
                let whole = (k as i32).wrapping_mul(a_zero); // wraps as the sums do
                let by = Correction { a_zero, b_sums: b.sums, b_zeros, a_rest: sum.wrapping_sub(whole) };
                finish::correct(sums, &by);
                // SAFETY: tasks have rows and columns of their own.
                unsafe { out.write(finish, row, b.column, sums, width) };
            }
        }
    }
}

fn gemm_left(way: Way, k: usize) -> PackedA {
    PackedA { way, m: 0, k }
}
