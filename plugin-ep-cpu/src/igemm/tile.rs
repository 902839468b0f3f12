//! Micro-kernels: a few rows of packed A times one panel of packed B, in i32.
//!
//! B comes in groups of four values along K for each column of the panel. The kernels with `vpdpbusd` take a group as it is;
//! those with `vpmaddwd` widen both sides to 16 bits first, and add the two halves of a group at the end.
//!
//! One of the files with `unsafe`: raw loads, and instructions that [`Way`] has asked the CPU for.

use crate::simd::Isa;

/// Columns of the widest panel.
pub(super) const MOST_COLUMNS: usize = 64;
/// Rows of the highest tile.
pub(super) const MOST_ROWS: usize = 6;
/// Values along K that go together.
pub(super) const GROUP: usize = 4;

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

/// Sums of a tile, row after row.
pub(super) type Tile = [[i32; MOST_COLUMNS]; MOST_ROWS];

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
        assert!(a.len() >= (rows - 1) * step + groups * GROUP * self.width(), "packed A is too short");
        assert!(b.len() >= groups * GROUP * self.columns(), "packed B is too short");
        let (a, b) = (a.as_ptr(), b.as_ptr());
        macro_rules! by_rows {
            ($f:ident: $($n:literal)+) => {
                match rows {
                    $($n => $f::<$n>(a, step, groups, b, tile),)+
                    _ => {}
                }
            };
        }
        // SAFETY: the slices hold what the kernels read, as was checked, and the level's instructions are there.
        unsafe {
            match self.0 {
                Level::Plain => by_rows!(plain: 1 2 3 4),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => by_rows!(avx2: 1 2 3),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => by_rows!(avx512: 1 2 3),
                #[cfg(target_arch = "x86_64")]
                Level::Vnni => by_rows!(vnni: 1 2 3 4 5 6),
            }
        }
    }
}

/// # Safety
/// R rows of A, `step` apart, and the panel hold `groups` groups.
unsafe fn plain<const R: usize>(a: *const u8, step: usize, groups: usize, b: *const u8, tile: &mut Tile) {
    let mut sums = [[0i32; 16]; R];
    for g in 0..groups {
        // SAFETY: group g of the panel.
        let b = unsafe { &*b.add(g * 16 * GROUP).cast::<[[i8; GROUP]; 16]>() };
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: group g of row r.
            let a = unsafe { a.add(r * step + g * GROUP).cast::<[u8; GROUP]>().read_unaligned() }.map(i32::from);
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
    use super::{GROUP, Tile};
    use core::arch::x86_64::*;

    /// # Safety
    /// R rows of A, `step` apart, and the panel hold `groups` groups.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub unsafe fn vnni<const R: usize>(a: *const u8, step: usize, groups: usize, b: *const u8, tile: &mut Tile) {
        let mut sums = [[_mm512_setzero_si512(); 4]; R];
        for g in 0..groups {
            // SAFETY: group g of the panel has 256 bytes.
            let b: [__m512i; 4] =
                core::array::from_fn(|c| unsafe { _mm512_loadu_si512(b.add(g * 256 + 64 * c).cast()) });
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: group g of row r.
                let a = unsafe { a.add(r * step + g * GROUP).cast::<i32>().read_unaligned() };
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
    pub unsafe fn avx512<const R: usize>(a: *const u8, step: usize, groups: usize, b: *const u8, tile: &mut Tile) {
        let mut sums = [[_mm512_setzero_si512(); 8]; R];
        for g in 0..groups {
            // SAFETY: group g of row r.
            let at = |r: usize| unsafe { a.add(r * step + g * 2 * GROUP).cast::<i64>().read_unaligned() };
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
    pub unsafe fn avx2<const R: usize>(a: *const u8, step: usize, groups: usize, b: *const u8, tile: &mut Tile) {
        let mut sums = [[_mm256_setzero_si256(); 4]; R];
        for g in 0..groups {
            // SAFETY: group g of row r.
            let at = |r: usize| unsafe { a.add(r * step + g * 2 * GROUP).cast::<i64>().read_unaligned() };
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
