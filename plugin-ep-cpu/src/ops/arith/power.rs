//! Powers. f32 to f32 runs on vectors; all other types go through f64, one by one.

use super::super::broadcast::Broadcast;
use super::super::lane::Side;
use super::super::narrow::{Bf16, F16};
use super::super::{Cpu, GRAIN, cost, loops};
use super::Run;
use crate::simd::{self, Isa, Simd, UnaryOp};
use ortolan_ep_kit::{Args, Cost, DType, Element, Fault, NodeView, Op, Reject, Shapes};

/// One tensor to the power of another.
pub(super) struct Pow {
    isa: Isa,
    exponents: DType,
}

impl Op for Pow {
    type Bound = Broadcast<2>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        Ok(Pow { isa: Cpu::of(node).isa, exponents: node.needs(1)?.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 2.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<2>) -> Run {
        bound.follow(shapes)
    }
}

pub(super) fn pow(op: &Pow, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    let (isa, step) = (op.isa, walk.inner.step);
    let (a, b, y) = (args.input::<f32>(0), args.input::<f32>(1), args.output::<f32>(0));
    Ok(walk.walk(args.par(), y, GRAIN / 4, |at, y| {
        let (a, b) = (Side::new(a, at[0], step[0], y.len()), Side::new(b, at[1], step[1], y.len()));
        match (a, b) {
            (Side::Slice(a), Side::Scalar(2.0)) => simd::map_unary(isa, &Square, a, y),
            (Side::Slice(a), Side::Scalar(3.0)) => simd::map_unary(isa, &Cube, a, y),
            (Side::Slice(a), Side::Scalar(0.5)) => simd::map_unary(isa, &Root, a, y),
            (a, b) => loops::zip(isa, power, a, b, y),
        }
    })?)
}

struct Square;

impl UnaryOp for Square {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
        s.mul(x, x)
    }
}

struct Cube;

impl UnaryOp for Cube {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
        s.mul(s.mul(x, x), x)
    }
}

/// The square root, but -0 has 0 and -infinity has infinity.
struct Root;

impl UnaryOp for Root {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
        let least = s.eq(x, s.splat(f32::NEG_INFINITY));
        s.select(least, s.splat(f32::INFINITY), s.sqrt(s.add(x, s.zero())))
    }
}

/// Adding it rounds to an integer, found in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// Bits of the root of one half, which mantissas are counted from.
const HALF_ROOT: u64 = 0x3fe6_a09e_667f_3bcd;

/// `x^y`, rounded once but for a millionth of an ulp. Without branches or calls, so that loops over it become vectors.
#[inline(always)]
fn power(x: f32, y: f32) -> f32 {
    let (size, wide) = (f64::from(x.abs()), f64::from(y));
    // size = 2^n * m with m around 1; numbers that are denormal in f32 are not so here.
    let bits = size.to_bits();
    let n = (bits.wrapping_sub(HALF_ROOT).wrapping_add(2048 << 52) >> 52).wrapping_sub(2048);
    let m = f64::from_bits(bits.wrapping_sub(n << 52));
    // ln m = 2 atanh((m - 1) / (m + 1))
    let s = (m - 1.0) / (m + 1.0);
    let q = s * s;
    let p = 1.0 / 3.0 + q * (1.0 / 5.0 + q * (1.0 / 7.0 + q * (1.0 / 9.0 + q * (1.0 / 11.0 + q * (1.0 / 13.0)))));
    let fraction = (s + s * q * p) * (2.0 * core::f64::consts::LOG2_E);
    let whole = f64::from_bits(n.wrapping_add(MAGIC.to_bits())) - MAGIC;
    let log = whole + fraction;
    let log = if size == 0.0 { f64::NEG_INFINITY } else { log };
    let log = if size == f64::INFINITY { f64::INFINITY } else { log };
    let log = if x.is_nan() { f64::NAN } else { log };
    let t = wide * log;
    let t = if t > 200.0 { 200.0 } else { t };
    let t = if t < -200.0 { -200.0 } else { t };
    let shifted = t + MAGIC;
    let z = (t - (shifted - MAGIC)) * core::f64::consts::LN_2;
    let e = 1.0 / 5040.0 + z * (1.0 / 40_320.0 + z * (1.0 / 362_880.0 + z * (1.0 / 3_628_800.0)));
    let e = 1.0
        + z * (1.0 + z * (0.5 + z * (1.0 / 6.0 + z * (1.0 / 24.0 + z * (1.0 / 120.0 + z * (1.0 / 720.0 + z * e))))));
    let scale = f64::from_bits(shifted.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(1023) << 52);
    let positive = (e * scale) as f32; // rounds
    // Everything to the 0, and 1 to everything, is 1; so is -1 to an infinity.
    let one = y == 0.0 || x == 1.0 || (size == 1.0 && y.is_infinite());
    let positive = if one { 1.0 } else { positive };
    let integer = wide.trunc() == wide;
    let odd = integer && (wide * 0.5).trunc() != wide * 0.5;
    let negative = x.is_sign_negative();
    let result = if negative && odd { -positive } else { positive };
    if x < 0.0 && x > f32::NEG_INFINITY && !integer { f32::NAN } else { result }
}

/// Elements that are worked on together, on the stack.
const PIECE: usize = 256;

/// A type that is raised by way of f64.
pub(super) trait Base: Element + Send + Sync {
    fn raised(self, exponent: f64) -> Self;
}

macro_rules! bases {
    (float: $($t:ty => |$x:ident| $wide:expr, |$y:ident| $round:expr;)*) => { $(
        impl Base for $t {
            #[inline(always)]
            fn raised(self, exponent: f64) -> $t {
                let $x = self;
                let $y = f64::powf($wide, exponent);
                $round
            }
        }
    )* };
    (integer: $($t:ty)*) => { $(
        impl Base for $t {
            /// Wraps for whole exponents, as products do; others round towards zero.
            #[inline(always)]
            fn raised(self, exponent: f64) -> $t {
                match exponent.trunc() == exponent && (0.0..4_294_967_296.0).contains(&exponent) {
                    true => self.wrapping_pow(exponent as u32), // in range
                    false => (self as f64).powf(exponent) as $t, // saturates
                }
            }
        }
    )* };
}
bases! {
    float:
    f32 => |x| x.into(), |y| y as f32; // rounds
    f64 => |x| x, |y| y;
    F16 => |x| x.wide().into(), |y| F16::round(y as f32); // rounds
    Bf16 => |x| x.wide().into(), |y| Bf16::round(y as f32); // rounds
}
bases!(integer: i32 i64);

pub(super) fn pow_plain<T: Base>(op: &Pow, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    macro_rules! by {
        ($t:ty, |$x:ident| $wide:expr) => {
            raise::<T, $t>(walk, args, |$x| $wide)
        };
    }
    match op.exponents {
        DType::F32 => by!(f32, |x| x.into()),
        DType::F64 => by!(f64, |x| x),
        DType::F16 => by!(F16, |x| x.wide().into()),
        DType::Bf16 => by!(Bf16, |x| x.wide().into()),
        DType::I8 => by!(i8, |x| x.into()),
        DType::I16 => by!(i16, |x| x.into()),
        DType::I32 => by!(i32, |x| x.into()),
        DType::I64 => by!(i64, |x| x as f64), // rounds what is far beyond any use
        DType::U8 => by!(u8, |x| x.into()),
        DType::U16 => by!(u16, |x| x.into()),
        DType::U32 => by!(u32, |x| x.into()),
        DType::U64 => by!(u64, |x| x as f64), // rounds what is far beyond any use
        other => Err(Fault::data(format!("elements of {other} are no exponents"))),
    }
}

fn raise<T: Base, E: Element + Sync>(walk: &Broadcast<2>, args: &mut Args<'_>, wide: impl Fn(E) -> f64 + Sync) -> Run {
    let (a, b, y, step) = (args.input::<T>(0), args.input::<E>(1), args.output::<T>(0), walk.inner.step);
    Ok(walk.walk(args.par(), y, GRAIN / 16, |at, y| {
        // The loop over types of exponents stays short; the powers are compiled once per base.
        let mut exponents = [0.0; PIECE];
        for (piece, y) in y.chunks_mut(PIECE).enumerate() {
            let first = piece * PIECE;
            for (k, to) in exponents[..y.len()].iter_mut().enumerate() {
                *to = wide(b[at[1] + (first + k) * step[1]]);
            }
            for (k, (y, &exponent)) in y.iter_mut().zip(&exponents).enumerate() {
                *y = a[at[0] + (first + k) * step[0]].raised(exponent);
            }
        }
    })?)
}

#[cfg(test)]
mod tests {
    use super::power;
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, broadcast, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{Tensor, assert_close};

    #[test]
    fn powers_are_rounded_once() {
        let bases: Vec<f32> = (0..0x7f80_0000u32).step_by(8_460_003).map(f32::from_bits).collect();
        let exponents = (-60..60).map(|k| k as f32 * 0.731).chain([2.0, -1.0, 0.25, 1e-8, 1e30, 3.0]);
        for y in exponents {
            for &x in &bases {
                let (got, want) = (power(x, y), f64::from(x).powf(y.into()) as f32);
                let near = got == want || (got.to_bits().abs_diff(want.to_bits()) <= 1 && got.is_finite());
                assert!(near, "{x}^{y}: {got}, expected {want}");
            }
        }
    }

    #[test]
    fn special_values_are_those_of_ieee() {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            2.0,
            -2.0,
            0.5,
            -0.5,
            3.0,
            -3.0,
            2.5,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1e-42,
            1e9,
        ];
        for x in special {
            for y in special {
                let (got, want) = (power(x, y), x.powf(y));
                assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x}^{y}: {got}, not {want}");
            }
        }
    }

    #[test]
    fn on_tensors() {
        let x = Tensor::from_fn(&[3, 41], |k| k as f32 * 0.1 + 0.05);
        for y in [vec![2.0f32], vec![3.0], vec![0.5], vec![-1.7], (0..41).map(|k| k as f32 * 0.1 - 2.0).collect()] {
            let y = Tensor::new(&[y.len() as i64], &y);
            let want = broadcast(&[3, 41], &x, &y, f32::powf);
            on_all("Pow", 15, |case| {
                assert_close(&case.input(&x).input(&y).output(DType::F32, &[3, 41]).run()[0], &want, 1e-6);
            });
        }
        let root = Tensor::new(&[1], &[0.5f32]);
        let x = Tensor::new(&[3], &[-0.0, f32::NEG_INFINITY, 4.0]);
        let y = Case::new("Pow", 15).input(&x).input(&root).output(DType::F32, &[3]).run();
        assert_eq!(y[0].bytes, Tensor::new(&[3], &[0.0, f32::INFINITY, 2.0]).bytes);
    }

    #[test]
    fn other_types() {
        let whole = Tensor::new(&[4], &[2i32, -3, 0, 10]);
        let exponent = Tensor::new(&[4], &[10i64, 3, 0, 2]);
        let y = Case::new("Pow", 15).input(&whole).input(&exponent).output(DType::I32, &[4]).run();
        assert_eq!(y[0].to_vec::<i32>(), [1024, -27, 1, 100]);
        let float = Tensor::new(&[1], &[0.5f32]);
        let y =
            Case::new("Pow", 15).input(&Tensor::new(&[2], &[9i64, 17])).input(&float).output(DType::I64, &[2]).run();
        assert_eq!(y[0].to_vec::<i64>(), [3, 4]);
        let half = Tensor::new(&[2], &[1.5f32, 3.0].map(F16::round));
        let y = Case::new("Pow", 15).input(&half).input(&Tensor::new(&[1], &[2u8])).output(DType::F16, &[2]).run();
        assert_eq!(y[0].to_vec::<F16>().iter().map(|y| y.wide()).collect::<Vec<_>>(), [2.25, 9.0]);
    }
}
