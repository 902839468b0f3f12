//! Micro-kernels: a few rows of packed A times one panel of packed B, in i32.
//!
//! B comes in groups of four values along K for each column of the panel. The kernels with `vpdpbusd` take a group as it is;
//! those with `vpmaddwd` widen both sides to 16 bits first, and add the two halves of a group at the end. Where the groups
//! of a row of A lie is a [`Walk`]: one after the other, or wherever a table says.
//!
//! One of the files with `unsafe`: raw loads, and instructions that [`Way`] has asked the CPU for.

use crate::simd::Isa;

/// Columns of the widest panel.
pub(crate) const MOST_COLUMNS: usize = 64;
/// Rows of the highest tile.
pub(super) const MOST_ROWS: usize = 6;
/// Values along K that go together.
pub(crate) const GROUP: usize = 4;

/// How products are computed here. A value exists only where its instructions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way(Level);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Vnni,
}

/// Sums of a row of a tile.
pub(crate) type Sums = [i32; MOST_COLUMNS];
/// Sums of a tile, row after row.
pub(super) type Tile = [Sums; MOST_ROWS];

/// Where groups of a row of A lie, in bytes behind its start.
trait Walk: Copy {
    fn group(self, group: usize) -> usize;
}

/// One after the other, so many bytes each.
#[derive(Clone, Copy)]
struct Line(usize);

impl Walk for Line {
    #[inline(always)]
    fn group(self, group: usize) -> usize {
        group * self.0
    }
}

/// Where a table of [`Offsets`] says.
#[derive(Clone, Copy)]
struct Table(*const u32);

impl Walk for Table {
    #[inline(always)]
    fn group(self, group: usize) -> usize {
        // SAFETY: whoever makes a table has as many entries as there are groups.
        unsafe { *self.0.add(group) as usize }
    }
}

/// Where the groups of each row lie: a table of offsets in bytes.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    all: Vec<u32>,
    most: usize,
}

impl Offsets {
    /// Takes other offsets; the memory is kept.
    pub fn replace(&mut self, offsets: impl Iterator<Item = u32>) {
        self.all.clear();
        self.all.extend(offsets);
        self.most = self.all.iter().max().map_or(0, |&most| most as usize);
    }
}

impl Way {
    /// The best way of an instruction set on this machine.
    pub fn of(isa: Isa) -> Way {
        match isa.name() {
            #[cfg(target_arch = "x86_64")]
            "avx2" => Way(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            "avx512" if is_x86_feature_detected!("avx512vnni") => Way(Level::Vnni),
            #[cfg(target_arch = "x86_64")]
            "avx512" => Way(Level::Avx512),
            _ => Way(Level::Plain),
        }
    }

    /// The same without the instructions that not all machines of the set have; for tests.
    #[cfg(test)]
    pub fn lesser(isa: Isa) -> Way {
        match isa.name() {
            #[cfg(target_arch = "x86_64")]
            "avx512" => Way(Level::Avx512),
            _ => Way::of(isa),
        }
    }

    /// Its number in pack formats.
    pub fn number(self) -> u8 {
        self.0 as u8
    }

    /// Columns of a panel.
    pub fn columns(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Vnni => 64,
            _ => 16,
        }
    }

    /// Rows of the highest tile.
    pub fn rows(self) -> usize {
        match self.0 {
            Level::Plain => 4,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => 3,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => 3,
            #[cfg(target_arch = "x86_64")]
            Level::Vnni => 6,
        }
    }

    /// Bytes of a value of packed A.
    pub fn width(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => 2,
            _ => 1,
        }
    }

    /// Multiplies `rows` rows of A, which begin `step` bytes apart, with a panel of `groups` groups.
    ///
    /// # Panics
    /// When a slice is too short or there are more rows than [`rows`](Self::rows).
    #[inline]
    pub(super) fn multiply(self, rows: usize, a: &[u8], step: usize, groups: usize, b: &[u8], tile: &mut Tile) {
        assert!((1..=self.rows()).contains(&rows), "a tile has at least one row");
        let bytes = GROUP * self.width();
        assert!(a.len() >= (rows - 1) * step + groups * bytes, "packed A is too short");
        assert!(b.len() >= groups * GROUP * self.columns(), "packed B is too short");
        let starts = core::array::from_fn(|r| a.as_ptr().wrapping_add(r * step));
        // SAFETY: the slices hold what the kernels read, as was checked.
        unsafe { self.run(rows, self.columns(), &starts, Line(bytes), groups, b.as_ptr(), tile) }
    }

    /// Multiplies rows of A, which begin at `starts` and whose groups lie at `offsets`, with the first `columns` columns
    /// of a panel.
    ///
    /// # Panics
    /// When a slice is too short or there are more rows than [`rows`](Self::rows).
    #[inline]
    pub(crate) fn multiply_at(
        self,
        (a, starts): (&[u8], &[u32]),
        offsets: &Offsets,
        (b, columns): (&[u8], usize),
        tile: &mut [Sums],
    ) {
        let (rows, groups) = (starts.len(), offsets.all.len());
        assert!((1..=self.rows()).contains(&rows) && tile.len() >= rows, "a tile has at least one row");
        let last = starts.iter().max().map_or(0, |&last| last as usize + offsets.most + GROUP * self.width());
        assert!(groups == 0 || a.len() >= last, "the image is too short");
        assert!(b.len() >= groups * GROUP * self.columns(), "packed B is too short");
        let starts = core::array::from_fn(|r| a.as_ptr().wrapping_add(starts.get(r).map_or(0, |&at| at as usize)));
        let table = Table(offsets.all.as_ptr());
        // SAFETY: as in `multiply`; the table has an entry for each group.
        unsafe { self.run(rows, columns, &starts, table, groups, b.as_ptr(), tile) }
    }

    /// # Safety
    /// `rows` rows of A hold `groups` groups where `walk` says, the panel holds as many, the tile `rows` rows; there are
    /// no more than [`rows`](Self::rows).
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "two sides of a product, their sizes and its result")]
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "other kernels have one width"))]
    unsafe fn run<W: Walk>(
        self,
        rows: usize,
        columns: usize,
        a: &[*const u8; MOST_ROWS],
        walk: W,
        groups: usize,
        b: *const u8,
        tile: &mut [Sums],
    ) {
        macro_rules! by_rows {
            ($f:ident: $($n:literal)+) => {
                match rows {
                    $($n => $f::<$n, W>(a, walk, groups, b, tile),)+
                    _ => {}
                }
            };
            ($f:ident, $c:literal: $($n:literal)+) => {
                match rows {
                    $($n => $f::<$n, $c, W>(a, walk, groups, b, tile),)+
                    _ => {}
                }
            };
        }
        // SAFETY: the caller's promises, and the level's instructions are there.
        unsafe {
            match self.0 {
                Level::Plain => by_rows!(plain: 1 2 3 4),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => by_rows!(avx2: 1 2 3),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => by_rows!(avx512: 1 2 3),
                #[cfg(target_arch = "x86_64")]
                Level::Vnni => match columns.div_ceil(16) {
                    1 => by_rows!(vnni, 1: 1 2 3 4 5 6),
                    2 => by_rows!(vnni, 2: 1 2 3 4 5 6),
                    3 => by_rows!(vnni, 3: 1 2 3 4 5 6),
                    _ => by_rows!(vnni, 4: 1 2 3 4 5 6),
                },
            }
        }
    }
}

/// # Safety
/// The first R rows of A and the panel hold `groups` groups.
unsafe fn plain<const R: usize, W: Walk>(
    a: &[*const u8; MOST_ROWS],
    walk: W,
    groups: usize,
    b: *const u8,
    tile: &mut [Sums],
) {
    let mut sums = [[0i32; 16]; R];
    for g in 0..groups {
        // SAFETY: group g of the panel.
        let b = unsafe { &*b.add(g * 16 * GROUP).cast::<[[i8; GROUP]; 16]>() };
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: group g of row r.
            let a = unsafe { a[r].add(walk.group(g)).cast::<[u8; GROUP]>().read_unaligned() }.map(i32::from);
            for (sum, b) in sums.iter_mut().zip(b) {
                let b = b.map(i32::from);
                *sum = sum.wrapping_add(a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]);
            }
        }
    }
    for (to, sums) in tile.iter_mut().zip(sums) {
        to[..16].copy_from_slice(&sums);
    }
}

#[cfg(target_arch = "x86_64")]
use x86::{avx2, avx512, vnni};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{MOST_ROWS, Sums, Walk};
    use core::arch::x86_64::*;

    /// Only the first C vectors of columns.
    ///
    /// # Safety
    /// The first R rows of A and the panel hold `groups` groups.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub unsafe fn vnni<const R: usize, const C: usize, W: Walk>(
        a: &[*const u8; MOST_ROWS],
        walk: W,
        groups: usize,
        b: *const u8,
        tile: &mut [Sums],
    ) {
        let a: [*const u8; R] = core::array::from_fn(|r| a[r]);
        let mut sums = [[_mm512_setzero_si512(); C]; R];
        for g in 0..groups {
            // SAFETY: group g of the panel has 256 bytes.
            let b: [__m512i; C] =
                core::array::from_fn(|c| unsafe { _mm512_loadu_si512(b.add(g * 256 + 64 * c).cast()) });
            let at = walk.group(g);
            for (a, sums) in a.iter().zip(&mut sums) {
                // SAFETY: group g of the row.
                let a = unsafe { a.add(at).cast::<i32>().read_unaligned() };
                let a = _mm512_set1_epi32(a);
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = _mm512_dpbusd_epi32(*sum, a, b);
                }
            }
        }
        for (to, sums) in tile.iter_mut().zip(sums) {
            for (to, sum) in to.chunks_exact_mut(16).zip(sums) {
                // SAFETY: the chunk holds 16 values.
                unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), sum) };
            }
        }
    }

    /// # Safety
    /// As [`vnni`]; A has values of 16 bits.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub unsafe fn avx512<const R: usize, W: Walk>(
        a: &[*const u8; MOST_ROWS],
        walk: W,
        groups: usize,
        b: *const u8,
        tile: &mut [Sums],
    ) {
        let mut sums = [[_mm512_setzero_si512(); 8]; R];
        for g in 0..groups {
            // SAFETY: group g of row r.
            let at = |r: usize| unsafe { a[r].add(walk.group(g)).cast::<i64>().read_unaligned() };
            let a: [__m512i; R] = core::array::from_fn(|r| _mm512_set1_epi64(at(r)));
            for c in 0..8 {
                // SAFETY: eight columns of group g.
                let b = unsafe { _mm256_loadu_si256(b.add(g * 256 + 32 * c).cast()) };
                let b = _mm512_cvtepi8_epi16(b);
                for (sums, a) in sums.iter_mut().zip(a) {
                    sums[c] = _mm512_add_epi32(sums[c], _mm512_madd_epi16(a, b));
                }
            }
        }
        for (to, sums) in tile.iter_mut().zip(sums) {
            for (to, sum) in to.chunks_exact_mut(8).zip(sums) {
                let mut halves = [0i32; 16];
                // SAFETY: the array holds 16 values.
                unsafe { _mm512_storeu_si512(halves.as_mut_ptr().cast(), sum) };
                join(to, &halves);
            }
        }
    }

    /// # Safety
    /// As [`avx512`].
    #[target_feature(enable = "avx2")]
    pub unsafe fn avx2<const R: usize, W: Walk>(
        a: &[*const u8; MOST_ROWS],
        walk: W,
        groups: usize,
        b: *const u8,
        tile: &mut [Sums],
    ) {
        let mut sums = [[_mm256_setzero_si256(); 4]; R];
        for g in 0..groups {
            // SAFETY: group g of row r.
            let at = |r: usize| unsafe { a[r].add(walk.group(g)).cast::<i64>().read_unaligned() };
            let a: [__m256i; R] = core::array::from_fn(|r| _mm256_set1_epi64x(at(r)));
            for c in 0..4 {
                // SAFETY: four columns of group g.
                let b = unsafe { _mm_loadu_si128(b.add(g * 64 + 16 * c).cast()) };
                let b = _mm256_cvtepi8_epi16(b);
                for (sums, a) in sums.iter_mut().zip(a) {
                    sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(a, b));
                }
            }
        }
        for (to, sums) in tile.iter_mut().zip(sums) {
            for (to, sum) in to.chunks_exact_mut(4).zip(sums) {
                let mut halves = [0i32; 8];
                // SAFETY: the array holds 8 values.
                unsafe { _mm256_storeu_si256(halves.as_mut_ptr().cast(), sum) };
                join(to, &halves);
            }
        }
    }

    /// Adds the two halves of each column's groups.
    #[inline(always)]
    fn join(to: &mut [i32], halves: &[i32]) {
        for (to, pair) in to.iter_mut().zip(halves.chunks_exact(2)) {
            *to = pair[0].wrapping_add(pair[1]);
        }
    }
}
