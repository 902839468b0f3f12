//! Four lanes by NEON.

#![expect(clippy::needless_range_loop, reason = "iterators may not be inlined into kernels, see `simd`")]

use core::arch::aarch64::*;

use super::{Kernel, Simd};

/// The token of NEON.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

/// Runs a kernel with the token.
#[target_feature(enable = "neon")]
pub(super) fn enter<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Neon(()))
}

/// Methods of one expression over registers.
macro_rules! registers {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $($a: $t),*) -> $r {
            // SAFETY: the token exists only where the CPU has NEON.
            unsafe { $e }
        })*
    };
}

type F = float32x4_t;
type I = int32x4_t;
type M = uint32x4_t;

impl Neon {
    /// The upper half folded onto the lower by `op`, down to one lane.
    #[inline(always)]
    fn fold(self, x: F, op: impl Fn(f32, f32) -> f32) -> f32 {
        let mut lanes = [0.0; 4];
        // SAFETY: the array holds four values.
        unsafe { self.store(lanes.as_mut_ptr(), x) };
        op(op(lanes[0], lanes[2]), op(lanes[1], lanes[3]))
    }
}

impl Simd for Neon {
    type F32 = F;
    type I32 = I;
    type Mask = M;
    const LANES: usize = 4;
    const REGISTERS: usize = 32;

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F {
        // SAFETY: the caller gives 4 readable values.
        unsafe { vld1q_f32(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: F) {
        // SAFETY: the caller gives 4 writable values.
        unsafe { vst1q_f32(to, v) }
    }
    #[inline(always)]
    unsafe fn load_head(self, from: *const f32, n: usize) -> F {
        let mut lanes = [0.0; 4];
        for (i, lane) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: i < n, and the caller gives n readable values.
            *lane = unsafe { from.add(i).read() };
        }
        // SAFETY: the array holds four values.
        unsafe { self.load(lanes.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn store_head(self, to: *mut f32, v: F, n: usize) {
        let mut lanes = [0.0; 4];
        // SAFETY: the array holds four values.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        for (i, lane) in lanes.into_iter().enumerate().take(n) {
            // SAFETY: i < n, and the caller gives n writable values.
            unsafe { to.add(i).write(lane) }
        }
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const i32) -> I {
        // SAFETY: the caller gives 4 readable values.
        unsafe { vld1q_s32(from) }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut i32, v: I) {
        // SAFETY: the caller gives 4 writable values.
        unsafe { vst1q_s32(to, v) }
    }
    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_step: usize, rows: usize, to: *mut f32, to_step: usize) {
        let mut r = [self.zero(); 4];
        for i in 0..4 {
            if i < rows {
                // SAFETY: the caller gives that many readable rows.
                r[i] = unsafe { self.load(from.add(i * from_step)) };
            }
        }
        // SAFETY: the token proves NEON.
        let columns = unsafe {
            let (even, odd) = (vzipq_f32(r[0], r[2]), vzipq_f32(r[1], r[3]));
            let (left, right) = (vzipq_f32(even.0, odd.0), vzipq_f32(even.1, odd.1));
            [left.0, left.1, right.0, right.1]
        };
        for i in 0..4 {
            // SAFETY: the caller gives 4 writable rows.
            unsafe { self.store(to.add(i * to_step), columns[i]) };
        }
    }
    #[inline(always)]
    fn evens(self, low: F, high: F) -> F {
        // SAFETY: the token proves NEON.
        unsafe { vcombine_f32(vget_low_f32(vuzp1q_f32(low, low)), vget_low_f32(vuzp2q_f32(high, high))) }
    }
    #[inline(always)]
    fn prefetch(self, _: *const f32) {}

    registers! {
        splat(x: f32) -> F = vdupq_n_f32(x);
        add(a: F, b: F) -> F = vaddq_f32(a, b);
        sub(a: F, b: F) -> F = vsubq_f32(a, b);
        mul(a: F, b: F) -> F = vmulq_f32(a, b);
        div(a: F, b: F) -> F = vdivq_f32(a, b);
        fma(a: F, b: F, c: F) -> F = vfmaq_f32(c, a, b);
        fnma(a: F, b: F, c: F) -> F = vfmsq_f32(c, a, b);
        max(a: F, b: F) -> F = vbslq_f32(vcgtq_f32(a, b), a, b);
        min(a: F, b: F) -> F = vbslq_f32(vcltq_f32(a, b), a, b);
        sqrt(x: F) -> F = vsqrtq_f32(x);
        round(x: F) -> F = vrndnq_f32(x);
        floor(x: F) -> F = vrndmq_f32(x);
        lt(a: F, b: F) -> M = vcltq_f32(a, b);
        le(a: F, b: F) -> M = vcleq_f32(a, b);
        eq(a: F, b: F) -> M = vceqq_f32(a, b);
        ne(a: F, b: F) -> M = vmvnq_u32(vceqq_f32(a, b));
        and(a: M, b: M) -> M = vandq_u32(a, b);
        or(a: M, b: M) -> M = vorrq_u32(a, b);
        select(mask: M, a: F, b: F) -> F = vbslq_f32(mask, a, b);
        splat_i32(x: i32) -> I = vdupq_n_s32(x);
        add_i32(a: I, b: I) -> I = vaddq_s32(a, b);
        sub_i32(a: I, b: I) -> I = vsubq_s32(a, b);
        and_i32(a: I, b: I) -> I = vandq_s32(a, b);
        or_i32(a: I, b: I) -> I = vorrq_s32(a, b);
        xor_i32(a: I, b: I) -> I = veorq_s32(a, b);
        shl_i32(a: I, n: u32) -> I = vshlq_s32(a, vdupq_n_s32(n.cast_signed()));
        shr_i32(a: I, n: u32) -> I = vshlq_s32(a, vdupq_n_s32(-n.cast_signed()));
        gt_i32(a: I, b: I) -> M = vcgtq_s32(a, b);
        cast_i32(x: F) -> I = vreinterpretq_s32_f32(x);
        cast_f32(x: I) -> F = vreinterpretq_f32_s32(x);
        to_i32(x: F) -> I = vcvtnq_s32_f32(x);
        to_f32(x: I) -> F = vcvtq_f32_s32(x);
    }
    #[inline(always)]
    fn bits_of(self, mask: M) -> u32 {
        let mut lanes = [0_u32; 4];
        // SAFETY: the array holds four values.
        unsafe { vst1q_u32(lanes.as_mut_ptr(), mask) };
        lanes.iter().rev().fold(0, |bits, lane| bits << 1 | (lane & 1))
    }
    #[inline(always)]
    fn reduce_sum(self, x: F) -> f32 {
        self.fold(x, |a, b| a + b)
    }
    #[inline(always)]
    fn reduce_max(self, x: F) -> f32 {
        self.fold(x, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn reduce_min(self, x: F) -> f32 {
        self.fold(x, |a, b| if a < b { a } else { b })
    }
}
