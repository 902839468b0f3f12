//! Sixteen lanes by AVX-512.

#![expect(clippy::needless_range_loop, reason = "iterators may not be inlined into kernels, see `simd`")]

use core::arch::x86_64::*;

use super::{Kernel, Simd};

/// The token of AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// Runs a kernel with the token.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) fn enter<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx512(()))
}

/// Methods of one expression over registers.
macro_rules! registers {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($a: $t),*) -> $r {
            // SAFETY: the token exists only where the CPU has these features.
            unsafe { $e }
        })*
    };
}

type F = __m512;
type I = __m512i;
type M = __mmask16;

impl Avx512 {
    #[inline(always)]
    fn head(self, n: usize) -> M {
        // Up to 16 lanes: the shift stays below the width of u32.
        ((1_u32 << n.min(Self::LANES)) - 1) as M
    }
}

/// Methods that fold the upper half onto the lower, down to one lane.
macro_rules! folds {
    ($($name:ident by $op:ident;)*) => {
        $(#[inline(always)]
        fn $name(self, x: F) -> f32 {
            // SAFETY: the token exists only where the CPU has these features.
            unsafe {
                let x = $op(x, _mm512_shuffle_f32x4::<0b1110>(x, x));
                let x = $op(x, _mm512_shuffle_f32x4::<0b01>(x, x));
                let x = $op(x, _mm512_permute_ps::<0b1110>(x));
                _mm512_cvtss_f32($op(x, _mm512_permute_ps::<0b01>(x)))
            }
        })*
    };
}

impl Simd for Avx512 {
    type F32 = F;
    type I32 = I;
    type Mask = M;
    const LANES: usize = 16;
    const REGISTERS: usize = 32;

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F {
        // SAFETY: the caller gives 16 readable values.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: F) {
        // SAFETY: the caller gives 16 writable values.
        unsafe { _mm512_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn load_head(self, from: *const f32, n: usize) -> F {
        // SAFETY: only the first n values are touched, which the caller gives.
        unsafe { _mm512_maskz_loadu_ps(self.head(n), from) }
    }
    #[inline(always)]
    unsafe fn store_head(self, to: *mut f32, v: F, n: usize) {
        // SAFETY: only the first n values are touched, which the caller gives.
        unsafe { _mm512_mask_storeu_ps(to, self.head(n), v) }
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const i32) -> I {
        // SAFETY: the caller gives 16 readable values.
        unsafe { _mm512_loadu_epi32(from) }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut i32, v: I) {
        // SAFETY: the caller gives 16 writable values.
        unsafe { _mm512_storeu_epi32(to, v) }
    }
    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_step: usize, rows: usize, to: *mut f32, to_step: usize) {
        let mut r = [self.zero(); 16];
        for i in 0..16 {
            if i < rows {
                // SAFETY: the caller gives that many readable rows.
                r[i] = unsafe { self.load(from.add(i * from_step)) };
            }
        }
        // Within each quarter: four rows become four columns. `fours[q][c]` has,
        // in its quarter k, column 4k + c of rows 4q to 4q + 3.
        let mut fours = [[self.zero(); 4]; 4];
        for q in 0..4 {
            let (a, b, c, d) = (r[4 * q], r[4 * q + 1], r[4 * q + 2], r[4 * q + 3]);
            // SAFETY: the token proves AVX-512.
            fours[q] = unsafe {
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                let (ab_high, cd_high) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                [
                    _mm512_shuffle_ps::<0x44>(ab, cd),
                    _mm512_shuffle_ps::<0xEE>(ab, cd),
                    _mm512_shuffle_ps::<0x44>(ab_high, cd_high),
                    _mm512_shuffle_ps::<0xEE>(ab_high, cd_high),
                ]
            };
        }
        // Across the quarters: a 4 x 4 transpose of 128-bit pieces per column.
        let mut out = [self.zero(); 16];
        for c in 0..4 {
            // SAFETY: the token proves AVX-512.
            unsafe {
                let even = _mm512_shuffle_f32x4::<0x88>(fours[0][c], fours[1][c]);
                let odd = _mm512_shuffle_f32x4::<0xDD>(fours[0][c], fours[1][c]);
                let even_low = _mm512_shuffle_f32x4::<0x88>(fours[2][c], fours[3][c]);
                let odd_low = _mm512_shuffle_f32x4::<0xDD>(fours[2][c], fours[3][c]);
                out[c] = _mm512_shuffle_f32x4::<0x88>(even, even_low);
                out[c + 4] = _mm512_shuffle_f32x4::<0x88>(odd, odd_low);
                out[c + 8] = _mm512_shuffle_f32x4::<0xDD>(even, even_low);
                out[c + 12] = _mm512_shuffle_f32x4::<0xDD>(odd, odd_low);
            }
        }
        for i in 0..16 {
            // SAFETY: the caller gives 16 writable rows.
            unsafe { self.store(to.add(i * to_step), out[i]) };
        }
    }
    #[inline(always)]
    fn evens(self, low: F, high: F) -> F {
        // SAFETY: the token proves AVX-512.
        unsafe {
            let lanes = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
            _mm512_permutex2var_ps(low, lanes, high)
        }
    }
    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        // SAFETY: a prefetch of any address does nothing but move cache lines.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    registers! {
        splat(x: f32) -> F = _mm512_set1_ps(x);
        add(a: F, b: F) -> F = _mm512_add_ps(a, b);
        sub(a: F, b: F) -> F = _mm512_sub_ps(a, b);
        mul(a: F, b: F) -> F = _mm512_mul_ps(a, b);
        div(a: F, b: F) -> F = _mm512_div_ps(a, b);
        fma(a: F, b: F, c: F) -> F = _mm512_fmadd_ps(a, b, c);
        fnma(a: F, b: F, c: F) -> F = _mm512_fnmadd_ps(a, b, c);
        max(a: F, b: F) -> F = _mm512_max_ps(a, b);
        min(a: F, b: F) -> F = _mm512_min_ps(a, b);
        sqrt(x: F) -> F = _mm512_sqrt_ps(x);
        round(x: F) -> F = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        floor(x: F) -> F = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(x);
        lt(a: F, b: F) -> M = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        le(a: F, b: F) -> M = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b);
        eq(a: F, b: F) -> M = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
        ne(a: F, b: F) -> M = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(a, b);
        select(mask: M, a: F, b: F) -> F = _mm512_mask_blend_ps(mask, b, a);
        splat_i32(x: i32) -> I = _mm512_set1_epi32(x);
        add_i32(a: I, b: I) -> I = _mm512_add_epi32(a, b);
        sub_i32(a: I, b: I) -> I = _mm512_sub_epi32(a, b);
        and_i32(a: I, b: I) -> I = _mm512_and_si512(a, b);
        or_i32(a: I, b: I) -> I = _mm512_or_si512(a, b);
        xor_i32(a: I, b: I) -> I = _mm512_xor_si512(a, b);
        shl_i32(a: I, n: u32) -> I = _mm512_sll_epi32(a, _mm_cvtsi32_si128(n.cast_signed()));
        shr_i32(a: I, n: u32) -> I = _mm512_sra_epi32(a, _mm_cvtsi32_si128(n.cast_signed()));
        gt_i32(a: I, b: I) -> M = _mm512_cmpgt_epi32_mask(a, b);
        cast_i32(x: F) -> I = _mm512_castps_si512(x);
        cast_f32(x: I) -> F = _mm512_castsi512_ps(x);
        to_i32(x: F) -> I = _mm512_cvtps_epi32(x);
        to_f32(x: I) -> F = _mm512_cvtepi32_ps(x);
    }
    #[inline(always)]
    fn and(self, a: M, b: M) -> M {
        a & b
    }
    #[inline(always)]
    fn or(self, a: M, b: M) -> M {
        a | b
    }
    #[inline(always)]
    fn bits_of(self, mask: M) -> u32 {
        u32::from(mask)
    }
    folds! {
        reduce_sum by _mm512_add_ps;
        reduce_max by _mm512_max_ps;
        reduce_min by _mm512_min_ps;
    }
}
