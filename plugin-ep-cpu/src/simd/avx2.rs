//! Eight lanes by AVX2 and FMA.

#![expect(clippy::needless_range_loop, reason = "iterators may not be inlined into kernels, see `simd`")]

use core::arch::x86_64::*;

use super::{Kernel, Simd};

/// The token of AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// Runs a kernel with the token.
#[target_feature(enable = "avx2,fma")]
pub(super) fn enter<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx2(()))
}

/// Methods of one expression over registers.
macro_rules! registers {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($a: $t),*) -> $r {
            // SAFETY: the token exists only where the CPU has AVX2 and FMA.
            unsafe { $e }
        })*
    };
}

type F = __m256;
type I = __m256i;

/// Sliding over it gives a mask of the first n lanes.
static HEAD: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

impl Avx2 {
    #[inline(always)]
    fn head(self, n: usize) -> I {
        let n = n.min(Self::LANES);
        // SAFETY: 8 - n + 8 <= 16 values, and the token proves AVX2.
        unsafe { _mm256_loadu_si256(HEAD.as_ptr().add(Self::LANES - n).cast()) }
    }
}

/// Methods that fold the upper half onto the lower, down to one lane.
macro_rules! folds {
    ($($name:ident by $op:ident;)*) => {
        $(#[inline(always)]
        fn $name(self, x: F) -> f32 {
            // SAFETY: the token exists only where the CPU has AVX2 and FMA.
            unsafe {
                let x = $op(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
                let x = $op(x, _mm_movehl_ps(x, x));
                _mm_cvtss_f32($op(x, _mm_shuffle_ps::<1>(x, x)))
            }
        })*
    };
}

impl Simd for Avx2 {
    type F32 = F;
    type I32 = I;
    type Mask = F;
    const LANES: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F {
        // SAFETY: the caller gives 8 readable values.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: F) {
        // SAFETY: the caller gives 8 writable values.
        unsafe { _mm256_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn load_head(self, from: *const f32, n: usize) -> F {
        // SAFETY: only the first n values are touched, which the caller gives.
        unsafe { _mm256_maskload_ps(from, self.head(n)) }
    }
    #[inline(always)]
    unsafe fn store_head(self, to: *mut f32, v: F, n: usize) {
        // SAFETY: only the first n values are touched, which the caller gives.
        unsafe { _mm256_maskstore_ps(to, self.head(n), v) }
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const i32) -> I {
        // SAFETY: the caller gives 8 readable values.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut i32, v: I) {
        // SAFETY: the caller gives 8 writable values.
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }
    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_step: usize, rows: usize, to: *mut f32, to_step: usize) {
        let mut r = [self.zero(); 8];
        for i in 0..8 {
            if i < rows {
                // SAFETY: the caller gives that many readable rows.
                r[i] = unsafe { self.load(from.add(i * from_step)) };
            }
        }
        // In each half: four rows become four columns, of rows 0-3 and 4-7.
        let mut fours = [[self.zero(); 4]; 2];
        for q in 0..2 {
            let (a, b, c, d) = (r[4 * q], r[4 * q + 1], r[4 * q + 2], r[4 * q + 3]);
            // SAFETY: the token proves AVX2.
            fours[q] = unsafe {
                let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                [
                    _mm256_shuffle_ps::<0x44>(ab, cd),
                    _mm256_shuffle_ps::<0xEE>(ab, cd),
                    _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
                    _mm256_shuffle_ps::<0xEE>(ab_high, cd_high),
                ]
            };
        }
        let [top, bottom] = fours;
        for i in 0..4 {
            // SAFETY: the token proves AVX2; the caller gives 8 writable rows.
            unsafe { self.store(to.add(i * to_step), _mm256_permute2f128_ps::<0x20>(top[i], bottom[i])) };
        }
        for i in 0..4 {
            // SAFETY: the token proves AVX2; the caller gives 8 writable rows.
            unsafe { self.store(to.add((i + 4) * to_step), _mm256_permute2f128_ps::<0x31>(top[i], bottom[i])) };
        }
    }
    #[inline(always)]
    fn evens(self, low: F, high: F) -> F {
        // SAFETY: the token proves AVX2.
        unsafe {
            let mixed = _mm256_castps_pd(_mm256_shuffle_ps::<0b11_01_10_00>(low, high));
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(mixed))
        }
    }
    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        // SAFETY: a prefetch of any address does nothing but move cache lines.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    registers! {
        splat(x: f32) -> F = _mm256_set1_ps(x);
        add(a: F, b: F) -> F = _mm256_add_ps(a, b);
        sub(a: F, b: F) -> F = _mm256_sub_ps(a, b);
        mul(a: F, b: F) -> F = _mm256_mul_ps(a, b);
        div(a: F, b: F) -> F = _mm256_div_ps(a, b);
        fma(a: F, b: F, c: F) -> F = _mm256_fmadd_ps(a, b, c);
        fnma(a: F, b: F, c: F) -> F = _mm256_fnmadd_ps(a, b, c);
        max(a: F, b: F) -> F = _mm256_max_ps(a, b);
        min(a: F, b: F) -> F = _mm256_min_ps(a, b);
        sqrt(x: F) -> F = _mm256_sqrt_ps(x);
        round(x: F) -> F = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        floor(x: F) -> F = _mm256_floor_ps(x);
        lt(a: F, b: F) -> F = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
        le(a: F, b: F) -> F = _mm256_cmp_ps::<_CMP_LE_OQ>(a, b);
        eq(a: F, b: F) -> F = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
        ne(a: F, b: F) -> F = _mm256_cmp_ps::<_CMP_NEQ_UQ>(a, b);
        and(a: F, b: F) -> F = _mm256_and_ps(a, b);
        or(a: F, b: F) -> F = _mm256_or_ps(a, b);
        select(mask: F, a: F, b: F) -> F = _mm256_blendv_ps(b, a, mask);
        bits_of(mask: F) -> u32 = _mm256_movemask_ps(mask).cast_unsigned();
        splat_i32(x: i32) -> I = _mm256_set1_epi32(x);
        add_i32(a: I, b: I) -> I = _mm256_add_epi32(a, b);
        sub_i32(a: I, b: I) -> I = _mm256_sub_epi32(a, b);
        and_i32(a: I, b: I) -> I = _mm256_and_si256(a, b);
        or_i32(a: I, b: I) -> I = _mm256_or_si256(a, b);
        xor_i32(a: I, b: I) -> I = _mm256_xor_si256(a, b);
        shl_i32(a: I, n: u32) -> I = _mm256_sll_epi32(a, _mm_cvtsi32_si128(n.cast_signed()));
        shr_i32(a: I, n: u32) -> I = _mm256_sra_epi32(a, _mm_cvtsi32_si128(n.cast_signed()));
        gt_i32(a: I, b: I) -> F = _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b));
        cast_i32(x: F) -> I = _mm256_castps_si256(x);
        cast_f32(x: I) -> F = _mm256_castsi256_ps(x);
        to_i32(x: F) -> I = _mm256_cvtps_epi32(x);
        to_f32(x: I) -> F = _mm256_cvtepi32_ps(x);
    }
    folds! {
        reduce_sum by _mm_add_ps;
        reduce_max by _mm_max_ps;
        reduce_min by _mm_min_ps;
    }
}
