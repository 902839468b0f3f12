//! Plain loops over slices, compiled for each instruction set, whose operands and results may have different types.

use super::lane::Side;
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::Bool;

/// `y[i] = f(x[i])`, as far as both reach.
pub(crate) fn map<T: Copy, R>(isa: Isa, f: impl Fn(T) -> R, x: &[T], y: &mut [R]) {
    isa.dispatch(Map { f, x, y });
}

/// `y[i] = f(a[i], b[i])`, as far as all reach.
pub(crate) fn zip<A: Copy, B: Copy, R: Clone>(
    isa: Isa,
    f: impl Fn(A, B) -> R,
    a: Side<'_, A>,
    b: Side<'_, B>,
    y: &mut [R],
) {
    isa.dispatch(Zip { f, a, b, y });
}

/// `y[i] = c[i] ? a[i] : b[i]`, as far as all reach.
pub(crate) fn choose<T: Copy>(isa: Isa, c: &[Bool], a: Side<'_, T>, b: Side<'_, T>, y: &mut [T]) {
    isa.dispatch(Choose { c, a, b, y });
}

struct Map<'a, F, T, R> {
    f: F,
    x: &'a [T],
    y: &'a mut [R],
}

impl<T: Copy, R, F: Fn(T) -> R> Kernel for Map<'_, F, T, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = (self.f)(x);
        }
    }
}

struct Zip<'a, F, A, B, R> {
    f: F,
    a: Side<'a, A>,
    b: Side<'a, B>,
    y: &'a mut [R],
}

impl<A: Copy, B: Copy, R: Clone, F: Fn(A, B) -> R> Kernel for Zip<'_, F, A, B, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Zip { f, a, b, y } = self;
        match (a, b) {
            (Side::Slice(a), Side::Slice(b)) => {
                for (y, (&a, &b)) in y.iter_mut().zip(a.iter().zip(b)) {
                    *y = f(a, b);
                }
            }
            (Side::Slice(a), Side::Scalar(b)) => {
                for (y, &a) in y.iter_mut().zip(a) {
                    *y = f(a, b);
                }
            }
            (Side::Scalar(a), Side::Slice(b)) => {
                for (y, &b) in y.iter_mut().zip(b) {
                    *y = f(a, b);
                }
            }
            (Side::Scalar(a), Side::Scalar(b)) => y.fill(f(a, b)),
        }
    }
}

struct Choose<'a, T> {
    c: &'a [Bool],
    a: Side<'a, T>,
    b: Side<'a, T>,
    y: &'a mut [T],
}

impl<T: Copy> Kernel for Choose<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Choose { c, a, b, y } = self;
        match (a, b) {
            (Side::Slice(a), Side::Slice(b)) => {
                for (y, ((c, &a), &b)) in y.iter_mut().zip(c.iter().zip(a).zip(b)) {
                    *y = if c.get() { a } else { b };
                }
            }
            (Side::Slice(a), Side::Scalar(b)) => {
                for (y, (c, &a)) in y.iter_mut().zip(c.iter().zip(a)) {
                    *y = if c.get() { a } else { b };
                }
            }
            (Side::Scalar(a), Side::Slice(b)) => {
                for (y, (c, &b)) in y.iter_mut().zip(c.iter().zip(b)) {
                    *y = if c.get() { a } else { b };
                }
            }
            (Side::Scalar(a), Side::Scalar(b)) => {
                for (y, c) in y.iter_mut().zip(c) {
                    *y = if c.get() { a } else { b };
                }
            }
        }
    }
}
