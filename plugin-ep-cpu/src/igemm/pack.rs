//! Operands in the order in which the micro-kernels read them.
//!
//! B is cut into panels of columns. A panel holds, for each group of four values along K, the group of each of its columns;
//! columns and values that B lacks are 0. Behind them stand the sums of the panel's columns. Rows of A lie one after the
//! other, filled up with 0 to whole groups, each with its sum behind it.

use super::Bytes;
use super::tile::{GROUP, Way};
use crate::simd::Isa;

/// How a K by N matrix lies when packed as the right side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedB {
    pub(crate) way: Way,
    pub(crate) k: usize,
    pub(crate) n: usize,
}

/// A panel under construction: its groups, and the sums of its columns.
pub(crate) struct Panel<'a> {
    pub groups: &'a mut [u8],
    pub sums: &'a mut [[u8; SUM]],
}

impl PackedB {
    /// The layout for a matrix of `k` rows and `n` columns.
    #[must_use]
    pub fn new(isa: Isa, k: usize, n: usize) -> Self {
        PackedB { way: Way::of(isa), k, n }
    }

    /// A number for all that the layout depends on beside the sizes.
    #[must_use]
    pub fn format(&self) -> u8 {
        self.way.number()
    }

    /// Bytes that it takes, `usize::MAX` when there is no such number.
    #[must_use]
    pub fn size(&self) -> usize {
        self.stride().saturating_mul(self.panels())
    }

    /// Panels, which can be packed apart from each other.
    #[must_use]
    pub fn panels(&self) -> usize {
        self.n.div_ceil(self.way.columns())
    }

    /// Bytes of a panel.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.groups().saturating_mul(GROUP).saturating_add(SUM).saturating_mul(self.way.columns())
    }

    pub(crate) fn columns(&self) -> usize {
        self.way.columns()
    }

    fn groups(&self) -> usize {
        self.k.div_ceil(GROUP)
    }

    /// A panel's groups and sums.
    pub(crate) fn panel<'a>(&self, packed: &'a [u8], panel: usize) -> (&'a [u8], &'a [[u8; SUM]]) {
        let panel = &packed[panel * self.stride()..][..self.stride()];
        let (groups, sums) = panel.split_at(self.stride() - SUM * self.way.columns());
        (groups, sums.as_chunks().0)
    }

    /// Packs the panels of `b` from `first` on, as many as `packed` holds; `turned`: its rows are the columns of B.
    ///
    /// # Panics
    /// When `b` is too short, or has fewer panels.
    pub fn pack(&self, b: Bytes<'_>, turned: bool, first: usize, packed: &mut [u8]) {
        for (k, panel) in packed.chunks_exact_mut(self.stride()).enumerate() {
            self.pack_panel(b, turned, first + k, self.cut(panel));
        }
    }

    /// The parts of a panel's memory.
    pub(crate) fn cut<'a>(&self, panel: &'a mut [u8]) -> Panel<'a> {
        let (groups, sums) = panel.split_at_mut(self.stride() - SUM * self.way.columns());
        Panel { groups, sums: sums.as_chunks_mut().0 }
    }

    /// Packs one panel.
    fn pack_panel(&self, b: Bytes<'_>, turned: bool, panel: usize, to: Panel<'_>) {
        let (k, n, columns) = (self.k, self.n, self.way.columns());
        let first = panel * columns;
        let width = columns.min(n - first);
        let sign = if b.signed { 0 } else { 0x80 };
        to.groups.fill(0);
        for row in 0..k {
            let group = &mut to.groups[row / GROUP * GROUP * columns..][..GROUP * columns];
            let lane = row % GROUP;
            if turned {
                for (j, to) in group.as_chunks_mut::<GROUP>().0.iter_mut().take(width).enumerate() {
                    to[lane] = b.data[(first + j) * k + row] ^ sign;
                }
            } else {
                let from = &b.data[row * n + first..][..width];
                for (to, &from) in group.as_chunks_mut::<GROUP>().0.iter_mut().zip(from) {
                    to[lane] = from ^ sign;
                }
            }
        }
        sum_columns(to.groups, columns, to.sums);
    }
}

/// Sums of the columns of a panel.
pub(crate) fn sum_columns(groups: &[u8], columns: usize, to: &mut [[u8; SUM]]) {
    let mut sums = [0i32; super::tile::MOST_COLUMNS];
    for group in groups.chunks_exact(GROUP * columns) {
        for (sum, values) in sums.iter_mut().zip(group.as_chunks::<GROUP>().0) {
            let values = values.map(|v| i32::from(v.cast_signed()));
            *sum = sum.wrapping_add(values[0] + values[1] + values[2] + values[3]);
        }
    }
    for (to, sum) in to.iter_mut().zip(sums) {
        *to = sum.to_ne_bytes();
    }
}

/// How an M by K matrix lies when packed as the left side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedA {
    pub(super) way: Way,
    pub(super) m: usize,
    pub(super) k: usize,
}

impl PackedA {
    /// The layout for a matrix of `m` rows and `k` columns.
    #[must_use]
    pub fn new(isa: Isa, m: usize, k: usize) -> Self {
        PackedA { way: Way::of(isa), m, k }
    }

    /// A number for all that the layout depends on beside the sizes.
    #[must_use]
    pub fn format(&self) -> u8 {
        self.way.number()
    }

    /// Bytes of a row: its values, filled up to whole groups, and their sum.
    pub(crate) fn step(&self) -> usize {
        self.k.div_ceil(GROUP).saturating_mul(GROUP * self.way.width()).saturating_add(SUM)
    }

    /// Bytes that it takes, `usize::MAX` when there is no such number.
    #[must_use]
    pub fn size(&self) -> usize {
        self.step().saturating_mul(self.m)
    }

    /// Packs some dense rows.
    ///
    /// # Panics
    /// When `packed` is no whole rows, or there are more of them than of `a`.
    pub fn pack(&self, a: Bytes<'_>, packed: &mut [u8]) {
        if self.k == 0 {
            packed.fill(0);
        }
        for (from, row) in a.data.chunks_exact(self.k.max(1)).zip(packed.chunks_exact_mut(self.step())) {
            self.pack_row(from, a.signed, row);
        }
    }

    fn pack_row(&self, from: &[u8], signed: bool, row: &mut [u8]) {
        let sign = if signed { 0x80 } else { 0 };
        let (to, end) = row.split_at_mut(row.len() - SUM);
        let sum = from.iter().fold(0u32, |sum, &x| sum.wrapping_add(u32::from(x ^ sign)));
        end.copy_from_slice(&sum.to_ne_bytes());
        let (front, rest) = to.split_at_mut(from.len() * self.way.width());
        if self.way.width() == 1 {
            front.iter_mut().zip(from).for_each(|(to, &x)| *to = x ^ sign);
        } else {
            for (to, &x) in front.as_chunks_mut::<2>().0.iter_mut().zip(from) {
                *to = u16::from(x ^ sign).to_ne_bytes();
            }
        }
        rest.fill(0);
    }
}

/// Bytes of a sum.
pub(super) const SUM: usize = 4;
