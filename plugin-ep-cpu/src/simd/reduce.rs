//! Sums, extremes and inner products over slices.
//!
//! Four vectors run side by side, are folded in a fixed order, then over the
//! lanes: the same slice gives the same bits on the same instruction set.

#![expect(clippy::needless_range_loop, reason = "iterators may not be inlined into kernels, see `simd`")]

use super::{BinaryOp, Isa, Kernel, Math, Simd, ops};

/// Sum of the values; 0 for none.
#[must_use]
pub fn sum(isa: Isa, x: &[f32]) -> f32 {
    isa.dispatch(Reduce { x, by: Sum })
}

/// Greatest value, NaN if one is; -infinity for none.
#[must_use]
pub fn max(isa: Isa, x: &[f32]) -> f32 {
    isa.dispatch(Reduce { x, by: Greatest })
}

/// Least value, NaN if one is; infinity for none.
#[must_use]
pub fn min(isa: Isa, x: &[f32]) -> f32 {
    isa.dispatch(Reduce { x, by: Least })
}

/// Sum of the products of two slices, cut to the shorter.
#[must_use]
pub fn dot(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    isa.dispatch(Dot { a, b })
}

/// Sum of `(x - center)^2`.
#[must_use]
pub fn sum_squares(isa: Isa, x: &[f32], center: f32) -> f32 {
    isa.dispatch(Reduce { x, by: Squares { center } })
}

/// `dst[i] = e^(src[i] - shift)`, and the sum of these: the heart of a softmax.
/// Cut to the shorter slice.
pub fn exp_sub_sum(isa: Isa, src: &[f32], shift: f32, dst: &mut [f32]) -> f32 {
    let n = src.len().min(dst.len());
    isa.dispatch(ExpSubSum { src: src.as_ptr(), dst: dst.as_mut_ptr(), n, shift })
}

/// The same in place.
pub fn exp_sub_sum_in_place(isa: Isa, x: &mut [f32], shift: f32) -> f32 {
    let dst = x.as_mut_ptr();
    isa.dispatch(ExpSubSum { src: dst, dst, n: x.len(), shift })
}

/// How values are folded into one.
trait Folding {
    /// The result for nothing, which changes nothing when folded in.
    const EMPTY: f32;
    fn take<S: Simd>(&self, s: S, so_far: S::F32, x: S::F32) -> S::F32;
    fn join<S: Simd>(s: S, a: S::F32, b: S::F32) -> S::F32;
    fn lanes<S: Simd>(s: S, x: S::F32) -> f32;
}

struct Sum;
struct Squares {
    center: f32,
}
struct Greatest;
struct Least;

impl Folding for Sum {
    const EMPTY: f32 = 0.0;
    #[inline(always)]
    fn take<S: Simd>(&self, s: S, so_far: S::F32, x: S::F32) -> S::F32 {
        s.add(so_far, x)
    }
    #[inline(always)]
    fn join<S: Simd>(s: S, a: S::F32, b: S::F32) -> S::F32 {
        s.add(a, b)
    }
    #[inline(always)]
    fn lanes<S: Simd>(s: S, x: S::F32) -> f32 {
        s.reduce_sum(x)
    }
}

impl Folding for Squares {
    const EMPTY: f32 = 0.0;
    #[inline(always)]
    fn take<S: Simd>(&self, s: S, so_far: S::F32, x: S::F32) -> S::F32 {
        let x = s.sub(x, s.splat(self.center));
        s.fma(x, x, so_far)
    }
    #[inline(always)]
    fn join<S: Simd>(s: S, a: S::F32, b: S::F32) -> S::F32 {
        s.add(a, b)
    }
    #[inline(always)]
    fn lanes<S: Simd>(s: S, x: S::F32) -> f32 {
        s.reduce_sum(x)
    }
}

/// An extreme and the comparison of lanes that keeps NaN.
macro_rules! extreme {
    ($name:ident, $op:expr, $empty:expr, $lanes:ident) => {
        impl Folding for $name {
            const EMPTY: f32 = $empty;
            #[inline(always)]
            fn take<S: Simd>(&self, s: S, so_far: S::F32, x: S::F32) -> S::F32 {
                $op.apply(s, so_far, x)
            }
            #[inline(always)]
            fn join<S: Simd>(s: S, a: S::F32, b: S::F32) -> S::F32 {
                $op.apply(s, a, b)
            }
            #[inline(always)]
            fn lanes<S: Simd>(s: S, x: S::F32) -> f32 {
                if s.bits_of(s.ne(x, x)) != 0 { f32::NAN } else { s.$lanes(x) }
            }
        }
    };
}
extreme!(Greatest, ops::Max, f32::NEG_INFINITY, reduce_max);
extreme!(Least, ops::Min, f32::INFINITY, reduce_min);

struct Reduce<'a, F> {
    x: &'a [f32],
    by: F,
}

impl<F: Folding> Kernel for Reduce<'_, F> {
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let (x, n) = (self.x.as_ptr(), self.x.len());
        let mut sums = [s.splat(F::EMPTY); 4];
        let mut at = 0;
        while at + 4 * S::LANES <= n {
            for i in 0..4 {
                // SAFETY: i < 4, and 4 * LANES values are left.
                let x = unsafe { s.load(x.add(at + i * S::LANES)) };
                sums[i] = self.by.take(s, sums[i], x);
            }
            at += 4 * S::LANES;
        }
        while at + S::LANES <= n {
            // SAFETY: LANES values are left.
            sums[0] = self.by.take(s, sums[0], unsafe { s.load(x.add(at)) });
            at += S::LANES;
        }
        let folded = F::join(s, F::join(s, sums[0], sums[1]), F::join(s, sums[2], sums[3]));
        let mut result = F::lanes(s, folded);
        // What is left is less than a vector, and zeros may not take part.
        while at < n {
            let one = self.by.take(s, s.splat(result), s.splat(self.x[at]));
            s.store_slice(core::slice::from_mut(&mut result), one);
            at += 1;
        }
        result
    }
}

struct Dot<'a> {
    a: &'a [f32],
    b: &'a [f32],
}

impl Kernel for Dot<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let n = self.a.len().min(self.b.len());
        let (a, b) = (&self.a[..n], &self.b[..n]);
        let mut sums = [s.zero(); 4];
        let mut at = 0;
        while at + 4 * S::LANES <= n {
            for i in 0..4 {
                // SAFETY: i < 4, and 4 * LANES values are left of both slices.
                let (a, b) = unsafe { (load_at(s, a, at + i * S::LANES), load_at(s, b, at + i * S::LANES)) };
                sums[i] = s.fma(a, b, sums[i]);
            }
            at += 4 * S::LANES;
        }
        while at < n {
            sums[0] = s.fma(s.load_slice(&a[at..]), s.load_slice(&b[at..]), sums[0]);
            at += S::LANES;
        }
        s.reduce_sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
    }
}

/// # Safety
/// The slice has LANES values from `at` on.
#[inline(always)]
unsafe fn load_at<S: Simd>(s: S, x: &[f32], at: usize) -> S::F32 {
    // SAFETY: the caller's promise.
    unsafe { s.load(x.as_ptr().add(at)) }
}

/// `n` values; `src` is `dst` or overlaps nothing.
struct ExpSubSum {
    src: *const f32,
    dst: *mut f32,
    n: usize,
    shift: f32,
}

impl Kernel for ExpSubSum {
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let ExpSubSum { src, dst, n, shift } = self;
        let shift = s.splat(shift);
        let mut sum = s.zero();
        let mut i = 0;
        while i + S::LANES <= n {
            // SAFETY: i + LANES <= n values of the source.
            let x = unsafe { s.load(src.add(i)) };
            let y = s.exp(s.sub(x, shift));
            // SAFETY: i + LANES <= n values of the destination.
            unsafe { s.store(dst.add(i), y) };
            sum = s.add(sum, y);
            i += S::LANES;
        }
        let mut result = s.reduce_sum(sum);
        if i < n {
            // SAFETY: n - i values are left of the source.
            let x = unsafe { s.load_head(src.add(i), n - i) };
            let y = s.exp(s.sub(x, shift));
            // SAFETY: n - i values are left of the destination.
            unsafe { s.store_head(dst.add(i), y, n - i) };
            let mut tail = 0.0;
            for k in i..n {
                // SAFETY: k < n, and the value was just written.
                tail += unsafe { dst.add(k).read() };
            }
            result += tail;
        }
        result
    }
}
