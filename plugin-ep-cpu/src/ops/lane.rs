//! Element types of kernels, and loops over slices of them: f32 by hand-written vectors, 16-bit floats by the same vectors
//! piece by piece, other types by plain loops that are compiled for each instruction set.

use super::loops;
use super::narrow::{Bf16, F16};
use crate::simd::{self, BinaryOp, Isa, Kernel, Operand, Simd, UnaryOp};
use ortolan_ep_kit::Element;

/// A type that element-wise kernels serve. `vector` is what f32 runs, `scalar` what all others run.
pub(crate) trait Lane: Element + Send + Sync + PartialEq {
    /// `y[i] = f(x[i])`
    fn map<V: UnaryOp>(isa: Isa, vector: &V, scalar: impl Fn(Self) -> Self, x: &[Self], y: &mut [Self]);
    /// `y[i] = f(y[i])`
    fn map_in_place<V: UnaryOp>(isa: Isa, vector: &V, scalar: impl Fn(Self) -> Self, y: &mut [Self]);
    /// `y[i] = f(a[i], b[i])`
    fn zip<V: BinaryOp>(
        isa: Isa,
        vector: &V,
        scalar: impl Fn(Self, Self) -> Self,
        a: Side<'_, Self>,
        b: Side<'_, Self>,
        y: &mut [Self],
    );
    /// `y[i] = f(y[i], b[i])`
    fn zip_in_place<V: BinaryOp>(
        isa: Isa,
        vector: &V,
        scalar: impl Fn(Self, Self) -> Self,
        y: &mut [Self],
        b: Side<'_, Self>,
    );
}

/// An operand of [`Lane::zip`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side<'a, T> {
    /// An element for each of the output's.
    Slice(&'a [T]),
    /// One for all.
    Scalar(T),
}

impl<'a, T: Copy> Side<'a, T> {
    /// The elements that a piece of `len` elements meets, from `at` on with a step of 0 or 1.
    pub fn new(all: &'a [T], at: usize, step: usize, len: usize) -> Self {
        if step == 0 { Side::Scalar(all[at]) } else { Side::Slice(&all[at..at + len]) }
    }
}

fn operand(side: Side<'_, f32>) -> Operand<'_> {
    match side {
        Side::Slice(x) => Operand::Slice(x),
        Side::Scalar(x) => Operand::Scalar(x),
    }
}

impl Lane for f32 {
    fn map<V: UnaryOp>(isa: Isa, vector: &V, _: impl Fn(f32) -> f32, x: &[f32], y: &mut [f32]) {
        simd::map_unary(isa, vector, x, y);
    }

    fn map_in_place<V: UnaryOp>(isa: Isa, vector: &V, _: impl Fn(f32) -> f32, y: &mut [f32]) {
        simd::map_unary_in_place(isa, vector, y);
    }

    fn zip<V: BinaryOp>(
        isa: Isa,
        vector: &V,
        _: impl Fn(f32, f32) -> f32,
        a: Side<'_, f32>,
        b: Side<'_, f32>,
        y: &mut [f32],
    ) {
        simd::map_binary(isa, vector, operand(a), operand(b), y);
    }

    fn zip_in_place<V: BinaryOp>(isa: Isa, vector: &V, _: impl Fn(f32, f32) -> f32, y: &mut [f32], b: Side<'_, f32>) {
        simd::map_binary_in_place(isa, vector, y, operand(b));
    }
}

macro_rules! plain {
    ($($t:ty)*) => { $(
        impl Lane for $t {
            fn map<V: UnaryOp>(isa: Isa, _: &V, scalar: impl Fn($t) -> $t, x: &[$t], y: &mut [$t]) {
                isa.dispatch(Map { f: scalar, x, y });
            }

            fn map_in_place<V: UnaryOp>(isa: Isa, _: &V, scalar: impl Fn($t) -> $t, y: &mut [$t]) {
                isa.dispatch(MapInPlace { f: scalar, y });
            }

            fn zip<V: BinaryOp>(
                isa: Isa,
                _: &V,
                scalar: impl Fn($t, $t) -> $t,
                a: Side<'_, $t>,
                b: Side<'_, $t>,
                y: &mut [$t],
            ) {
                loops::zip(isa, scalar, a, b, y);
            }

            fn zip_in_place<V: BinaryOp>(
                isa: Isa,
                _: &V,
                scalar: impl Fn($t, $t) -> $t,
                y: &mut [$t],
                b: Side<'_, $t>,
            ) {
                isa.dispatch(ZipInPlace { f: scalar, y, b });
            }
        }
    )* };
}
plain!(f64 i8 i16 i32 i64 u8 u16 u32 u64);

/// Elements of a narrow type that are widened at a time, on the stack.
const PIECE: usize = 256;

macro_rules! halves {
    ($($t:ident)*) => { $(
        impl Lane for $t {
            fn map<V: UnaryOp>(isa: Isa, vector: &V, _: impl Fn($t) -> $t, x: &[$t], y: &mut [$t]) {
                let mut wide = [0.0; PIECE];
                for (x, y) in x.chunks(PIECE).zip(y.chunks_mut(PIECE)) {
                    let wide = &mut wide[..x.len()];
                    loops::map(isa, $t::wide, x, wide);
                    simd::map_unary_in_place(isa, vector, wide);
                    loops::map(isa, $t::round, wide, y);
                }
            }

            fn map_in_place<V: UnaryOp>(isa: Isa, vector: &V, _: impl Fn($t) -> $t, y: &mut [$t]) {
                let mut wide = [0.0; PIECE];
                for y in y.chunks_mut(PIECE) {
                    let wide = &mut wide[..y.len()];
                    loops::map(isa, $t::wide, y, wide);
                    simd::map_unary_in_place(isa, vector, wide);
                    loops::map(isa, $t::round, wide, y);
                }
            }

            fn zip<V: BinaryOp>(
                isa: Isa,
                vector: &V,
                _: impl Fn($t, $t) -> $t,
                a: Side<'_, $t>,
                b: Side<'_, $t>,
                y: &mut [$t],
            ) {
                let (mut left, mut right) = ([0.0; PIECE], [0.0; PIECE]);
                for (k, y) in y.chunks_mut(PIECE).enumerate() {
                    let left = &mut left[..y.len()];
                    match a {
                        Side::Slice(a) => loops::map(isa, $t::wide, &a[k * PIECE..][..y.len()], left),
                        Side::Scalar(a) => left.fill(a.wide()),
                    }
                    let b = piece(isa, b, k, &mut right[..y.len()], $t::wide);
                    simd::map_binary_in_place(isa, vector, left, b);
                    loops::map(isa, $t::round, left, y);
                }
            }

            fn zip_in_place<V: BinaryOp>(
                isa: Isa,
                vector: &V,
                _: impl Fn($t, $t) -> $t,
                y: &mut [$t],
                b: Side<'_, $t>,
            ) {
                let (mut left, mut right) = ([0.0; PIECE], [0.0; PIECE]);
                for (k, y) in y.chunks_mut(PIECE).enumerate() {
                    let left = &mut left[..y.len()];
                    loops::map(isa, $t::wide, y, left);
                    let b = piece(isa, b, k, &mut right[..y.len()], $t::wide);
                    simd::map_binary_in_place(isa, vector, left, b);
                    loops::map(isa, $t::round, left, y);
                }
            }
        }
    )* };
}
halves!(F16 Bf16);

/// Piece `k` of a narrow operand, widened.
fn piece<'w, T: Copy>(isa: Isa, side: Side<'_, T>, k: usize, to: &'w mut [f32], wide: fn(T) -> f32) -> Operand<'w> {
    match side {
        Side::Scalar(x) => Operand::Scalar(wide(x)),
        Side::Slice(x) => {
            loops::map(isa, wide, &x[k * PIECE..][..to.len()], to);
            Operand::Slice(to)
        }
    }
}

struct Map<'a, T, F> {
    f: F,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Copy, F: Fn(T) -> T> Kernel for Map<'_, T, F> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = (self.f)(x);
        }
    }
}

struct MapInPlace<'a, T, F> {
    f: F,
    y: &'a mut [T],
}

impl<T: Copy, F: Fn(T) -> T> Kernel for MapInPlace<'_, T, F> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for y in self.y {
            *y = (self.f)(*y);
        }
    }
}

struct ZipInPlace<'a, T, F> {
    f: F,
    y: &'a mut [T],
    b: Side<'a, T>,
}

impl<T: Copy, F: Fn(T, T) -> T> Kernel for ZipInPlace<'_, T, F> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let ZipInPlace { f, y, b } = self;
        match b {
            Side::Slice(b) => {
                for (y, &b) in y.iter_mut().zip(b) {
                    *y = f(*y, b);
                }
            }
            Side::Scalar(b) => {
                for y in y {
                    *y = f(*y, b);
                }
            }
        }
    }
}

/// Arithmetic of numbers; integers wrap.
pub(crate) trait Number: Lane + PartialOrd + Default {
    /// Whether dividing by zero has no result.
    const INTEGER: bool;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Rounds towards zero; the divisor is not 0 if the type is an integer.
    fn over(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => { $(
        impl Number for $t {
            const INTEGER: bool = true;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn over(self, other: Self) -> Self { self.checked_div(other).unwrap_or(self) } // MIN / -1 wraps to MIN
        }
    )* };
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Numbers with a sign.
pub(crate) trait Signed: Number {
    fn negate(self) -> Self;
    fn magnitude(self) -> Self;
}

macro_rules! signed_integers {
    ($($t:ty)*) => { $(
        impl Signed for $t {
            #[inline(always)]
            fn negate(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn magnitude(self) -> Self { self.wrapping_abs() }
        }
    )* };
}
signed_integers!(i8 i16 i32 i64);

/// Floating-point numbers. f32 and narrower ones never call these functions in bulk: they have vectors.
pub(crate) trait Real: Signed {
    fn of(x: f32) -> Self;
    fn exp(self) -> Self;
    fn exp_m1(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn sqrt(self) -> Self;
    fn tanh(self) -> Self;
    fn floor(self) -> Self;
    fn round_even(self) -> Self;
}

macro_rules! floats {
    ($($t:ty)*) => { $(
        impl Number for $t {
            const INTEGER: bool = false;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn over(self, other: Self) -> Self { self / other }
        }
        impl Signed for $t {
            #[inline(always)]
            fn negate(self) -> Self { -self }
            #[inline(always)]
            fn magnitude(self) -> Self { self.abs() }
        }
        impl Real for $t {
            #[inline(always)]
            fn of(x: f32) -> Self { x.into() }
            #[inline(always)]
            fn exp(self) -> Self { self.exp() }
            #[inline(always)]
            fn exp_m1(self) -> Self { self.exp_m1() }
            #[inline(always)]
            fn ln(self) -> Self { self.ln() }
            #[inline(always)]
            fn ln_1p(self) -> Self { self.ln_1p() }
            #[inline(always)]
            fn sqrt(self) -> Self { self.sqrt() }
            #[inline(always)]
            fn tanh(self) -> Self { self.tanh() }
            #[inline(always)]
            fn floor(self) -> Self { self.floor() }
            #[inline(always)]
            fn round_even(self) -> Self { self.round_ties_even() }
        }
    )* };
}
floats!(f32 f64);

/// Each operation in f32, rounded.
macro_rules! narrow_floats {
    ($($t:ident)*) => { $(
        impl Number for $t {
            const INTEGER: bool = false;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { $t::round(self.wide() + other.wide()) }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { $t::round(self.wide() - other.wide()) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { $t::round(self.wide() * other.wide()) }
            #[inline(always)]
            fn over(self, other: Self) -> Self { $t::round(self.wide() / other.wide()) }
        }
        impl Signed for $t {
            #[inline(always)]
            fn negate(self) -> Self { $t(self.0 ^ 0x8000) }
            #[inline(always)]
            fn magnitude(self) -> Self { $t(self.0 & 0x7fff) }
        }
        impl Real for $t {
            #[inline(always)]
            fn of(x: f32) -> Self { $t::round(x) }
            #[inline(always)]
            fn exp(self) -> Self { $t::round(self.wide().exp()) }
            #[inline(always)]
            fn exp_m1(self) -> Self { $t::round(self.wide().exp_m1()) }
            #[inline(always)]
            fn ln(self) -> Self { $t::round(self.wide().ln()) }
            #[inline(always)]
            fn ln_1p(self) -> Self { $t::round(self.wide().ln_1p()) }
            #[inline(always)]
            fn sqrt(self) -> Self { $t::round(self.wide().sqrt()) }
            #[inline(always)]
            fn tanh(self) -> Self { $t::round(self.wide().tanh()) }
            #[inline(always)]
            fn floor(self) -> Self { $t::round(self.wide().floor()) }
            #[inline(always)]
            fn round_even(self) -> Self { $t::round(self.wide().round_ties_even()) }
        }
    )* };
}
narrow_floats!(F16 Bf16);
