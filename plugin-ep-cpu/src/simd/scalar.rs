//! Four lanes of plain Rust: the backend that every machine has, and the one
//! that says what the others must do.
//!
//! There is no fused multiply-add here: without the instruction it is a library
//! call per lane.

use super::Simd;

/// The token of plain Rust.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

const N: usize = 4;
type F = [f32; N];
type I = [i32; N];
type M = [bool; N];

#[inline(always)]
fn each<A: Copy, B: Copy, R: Copy + Default>(a: [A; N], b: [B; N], f: impl Fn(A, B) -> R) -> [R; N] {
    let mut out = [R::default(); N];
    for i in 0..N {
        out[i] = f(a[i], b[i]);
    }
    out
}

/// Methods of one expression per lane.
macro_rules! lanes {
    ($($name:ident($a:ident: $ta:ty, $b:ident: $tb:ty) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $a: $ta, $b: $tb) -> $r {
            each($a, $b, |$a, $b| $e)
        })*
    };
    ($($name:ident($a:ident: $ta:ty) -> $r:ty = $e:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, $a: $ta) -> $r {
            $a.map(|$a| $e)
        })*
    };
}

impl Simd for Scalar {
    type F32 = F;
    type I32 = I;
    type Mask = M;
    const LANES: usize = N;
    const REGISTERS: usize = 16;

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F {
        // SAFETY: the caller gives N readable values; the read asks no alignment.
        unsafe { from.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: F) {
        // SAFETY: the caller gives N writable values; the write asks no alignment.
        unsafe { to.cast::<F>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_head(self, from: *const f32, n: usize) -> F {
        let mut out = [0.0; N];
        for (i, lane) in out.iter_mut().enumerate().take(n) {
            // SAFETY: i < n, and the caller gives n readable values.
            *lane = unsafe { from.add(i).read() };
        }
        out
    }
    #[inline(always)]
    unsafe fn store_head(self, to: *mut f32, v: F, n: usize) {
        for (i, lane) in v.into_iter().enumerate().take(n) {
            // SAFETY: i < n, and the caller gives n writable values.
            unsafe { to.add(i).write(lane) }
        }
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const i32) -> I {
        // SAFETY: the caller gives N readable values; the read asks no alignment.
        unsafe { from.cast::<I>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut i32, v: I) {
        // SAFETY: the caller gives N writable values; the write asks no alignment.
        unsafe { to.cast::<I>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_step: usize, rows: usize, to: *mut f32, to_step: usize) {
        let mut r = [[0.0; N]; N];
        for (i, row) in r.iter_mut().enumerate().take(rows) {
            // SAFETY: i < rows, and the caller gives that many readable rows.
            *row = unsafe { self.load(from.add(i * from_step)) };
        }
        let [a, b, c, d] = r;
        for i in 0..N {
            // SAFETY: i < N, and the caller gives N writable rows.
            unsafe { self.store(to.add(i * to_step), [a[i], b[i], c[i], d[i]]) };
        }
    }
    #[inline(always)]
    fn evens(self, low: F, high: F) -> F {
        [low[0], low[2], high[1], high[3]]
    }
    #[inline(always)]
    fn prefetch(self, _: *const f32) {}

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; N]
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> I {
        [x; N]
    }
    lanes! {
        add(a: F, b: F) -> F = a + b;
        sub(a: F, b: F) -> F = a - b;
        mul(a: F, b: F) -> F = a * b;
        div(a: F, b: F) -> F = a / b;
        max(a: F, b: F) -> F = if a > b { a } else { b };
        min(a: F, b: F) -> F = if a < b { a } else { b };
        lt(a: F, b: F) -> M = a < b;
        le(a: F, b: F) -> M = a <= b;
        eq(a: F, b: F) -> M = a == b;
        ne(a: F, b: F) -> M = a != b;
        and(a: M, b: M) -> M = a & b;
        or(a: M, b: M) -> M = a | b;
        add_i32(a: I, b: I) -> I = a.wrapping_add(b);
        sub_i32(a: I, b: I) -> I = a.wrapping_sub(b);
        and_i32(a: I, b: I) -> I = a & b;
        or_i32(a: I, b: I) -> I = a | b;
        xor_i32(a: I, b: I) -> I = a ^ b;
        gt_i32(a: I, b: I) -> M = a > b;
    }
    lanes! {
        sqrt(x: F) -> F = x.sqrt();
        round(x: F) -> F = x.round_ties_even();
        floor(x: F) -> F = x.floor();
        cast_i32(x: F) -> I = x.to_bits().cast_signed();
        cast_f32(x: I) -> F = f32::from_bits(x.cast_unsigned());
        to_i32(x: F) -> I = x.round_ties_even() as i32;
        to_f32(x: I) -> F = x as f32;
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn fnma(self, a: F, b: F, c: F) -> F {
        self.sub(c, self.mul(a, b))
    }
    #[inline(always)]
    fn select(self, mask: M, a: F, b: F) -> F {
        let mut out = b;
        for i in 0..N {
            if mask[i] {
                out[i] = a[i];
            }
        }
        out
    }
    #[inline(always)]
    fn bits_of(self, mask: M) -> u32 {
        mask.iter().rev().fold(0, |bits, &lane| bits << 1 | u32::from(lane))
    }
    #[inline(always)]
    fn reduce_sum(self, x: F) -> f32 {
        (x[0] + x[2]) + (x[1] + x[3])
    }
    #[inline(always)]
    fn reduce_max(self, x: F) -> f32 {
        let half = self.max([x[0], x[1], 0.0, 0.0], [x[2], x[3], 0.0, 0.0]);
        if half[0] > half[1] { half[0] } else { half[1] }
    }
    #[inline(always)]
    fn reduce_min(self, x: F) -> f32 {
        let half = self.min([x[0], x[1], 0.0, 0.0], [x[2], x[3], 0.0, 0.0]);
        if half[0] < half[1] { half[0] } else { half[1] }
    }
    #[inline(always)]
    fn shl_i32(self, a: I, n: u32) -> I {
        a.map(|a| a << n)
    }
    #[inline(always)]
    fn shr_i32(self, a: I, n: u32) -> I {
        a.map(|a| a >> n)
    }
}
