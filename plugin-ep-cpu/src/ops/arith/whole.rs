//! What only integers have: bits, shifts and remainders. Floats have a remainder, too, by a plain loop.

use super::super::broadcast::Broadcast;
use super::super::lane::{Lane, Number, Side};
use super::super::value::Value;
use super::super::{Cpu, GRAIN, cost, loops};
use super::{Binary, Run};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes};

/// Integers as bits.
pub(super) trait Bits: Lane + Number {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// Nothing is left when it is shifted by its width or more, or by less than 0.
    fn left(self, by: Self) -> Self;
    /// Only the sign is left when it is shifted by its width or more, or by less than 0.
    fn right(self, by: Self) -> Self;
    /// With the sign of the dividend; the divisor is not 0.
    fn rest(self, by: Self) -> Self;
}

macro_rules! bits {
    ($($t:ident)*) => { $(
        impl Bits for $t {
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            fn left(self, by: Self) -> Self {
                if (0..$t::BITS as $t).contains(&by) { self << by } else { 0 }
            }
            #[inline(always)]
            fn right(self, by: Self) -> Self {
                let inside = (0..$t::BITS as $t).contains(&by);
                match inside {
                    true => self >> by,
                    false if self < Self::default() => !0, // -1
                    false => 0,
                }
            }
            #[inline(always)]
            fn rest(self, by: Self) -> Self { self.checked_rem(by).unwrap_or(0) } // MIN % -1
        }
    )* };
}
bits!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Element by element, by a loop that the compiler turns into vectors where it can.
fn zip<T: Copy + Send + Sync + ortolan_ep_kit::Element>(
    isa: Isa,
    walk: &Broadcast<2>,
    args: &mut Args<'_>,
    f: impl Fn(T, T) -> T + Sync,
) -> Run {
    let (a, b, y, step) = (args.input::<T>(0), args.input::<T>(1), args.output::<T>(0), walk.inner.step);
    Ok(walk.walk(args.par(), y, GRAIN, |at, y| {
        let (a, b) = (Side::new(a, at[0], step[0], y.len()), Side::new(b, at[1], step[1], y.len()));
        loops::zip(isa, &f, a, b, y);
    })?)
}

pub(super) fn bitwise_and<T: Bits>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    zip(op.isa, walk, args, T::and)
}

pub(super) fn bitwise_or<T: Bits>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    zip(op.isa, walk, args, T::or)
}

pub(super) fn bitwise_xor<T: Bits>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    zip(op.isa, walk, args, T::xor)
}

/// Bits moved by as many places as the other tensor says.
pub(super) struct Shift {
    isa: Isa,
    left: bool,
}

impl Op for Shift {
    type Bound = Broadcast<2>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        node.needs(1)?;
        let left = match node.text("direction") {
            Some("LEFT") => true,
            Some("RIGHT") => false,
            other => {
                let other = other.unwrap_or_default();
                return Err(Reject::attribute(format!("attribute direction = {other} is neither LEFT nor RIGHT")));
            }
        };
        Ok(Shift { isa: Cpu::of(node).isa, left })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<2>) -> Run {
        bound.follow(shapes)
    }
}

pub(super) fn bit_shift<T: Bits>(op: &Shift, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    if op.left { zip(op.isa, walk, args, T::left) } else { zip(op.isa, walk, args, T::right) }
}

/// What a division leaves.
pub(super) struct Rest {
    isa: Isa,
    /// It has the sign of the dividend; else that of the divisor.
    like_dividend: bool,
}

impl Op for Rest {
    type Bound = Broadcast<2>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        node.needs(1)?;
        Ok(Rest { isa: Cpu::of(node).isa, like_dividend: node.int_if("fmod").unwrap_or(0) != 0 })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 1.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<2>) -> Run {
        bound.follow(shapes)
    }
}

pub(super) fn modulo<T: Bits>(op: &Rest, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    let zero = T::default();
    if let Some(k) = args.input::<T>(1).iter().position(|&b| b == zero) {
        return Err(Fault::data(format!("input 1 is 0 at element {k}: integers cannot be divided by it")));
    }
    match op.like_dividend {
        true => zip(op.isa, walk, args, T::rest),
        false => zip(op.isa, walk, args, |a: T, b: T| {
            let rest = a.rest(b);
            if rest != zero && (rest < zero) != (b < zero) { rest.plus(b) } else { rest }
        }),
    }
}

/// Remainders of floats: of f32, f64, or of f32 rounded.
pub(super) trait Floats: Copy + Default + PartialOrd {
    fn rest(self, by: Self) -> Self;
    fn plus(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($t:ty)*) => { $(
        impl Floats for $t {
            #[inline(always)]
            fn rest(self, by: Self) -> Self { self % by }
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
        }
    )* };
}
floats!(f32 f64);

pub(super) fn modulo_floats<T: Value<Wide: Floats>>(op: &Rest, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    let zero = T::Wide::default();
    match op.like_dividend {
        true => zip(op.isa, walk, args, |a: T, b: T| T::of(Floats::rest(a.wide(), b.wide()))),
        false => zip(op.isa, walk, args, |a: T, b: T| {
            let rest = Floats::rest(a.wide(), b.wide());
            T::of(if rest != zero && (rest < zero) != (b.wide() < zero) { Floats::plus(rest, b.wide()) } else { rest })
        }),
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, broadcast, on_all};
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, RejectCode};

    #[test]
    fn bits_and_shifts() {
        let (a, b) = (Tensor::from_fn(&[3, 70], |k| (k * 37) as u32), Tensor::from_fn(&[70], |k| (k % 40) as u32));
        type Row = (&'static str, u32, &'static str, fn(u32, u32) -> u32);
        let cases: &[Row] = &[
            ("BitwiseAnd", 18, "", |a, b| a & b),
            ("BitwiseOr", 18, "", |a, b| a | b),
            ("BitwiseXor", 18, "", |a, b| a ^ b),
            ("BitShift", 28, "LEFT", |a, b| a.checked_shl(b).unwrap_or(0)),
            ("BitShift", 28, "RIGHT", |a, b| a.checked_shr(b).unwrap_or(0)),
        ];
        for &(op, version, direction, f) in cases {
            let want = broadcast(&[3, 70], &a, &b, f);
            on_all(op, version, |case| {
                let case = if direction.is_empty() { case } else { case.text("direction", direction) };
                assert_eq!(case.input(&a).input(&b).output(DType::U32, &[3, 70]).run()[0], want, "{op} {direction}");
            });
        }
        let (a, b) = (Tensor::new(&[4], &[-8i8, 8, -8, 8]), Tensor::new(&[4], &[1i8, 1, 8, -1]));
        for (direction, want) in [("RIGHT", [-4i8, 4, -1, 0]), ("LEFT", [-16, 16, 0, 0])] {
            let case = Case::new("BitShift", 28).text("direction", direction).input(&a).input(&b);
            assert_eq!(case.output(DType::I8, &[4]).run()[0].to_vec::<i8>(), want, "{direction}");
        }
        let (code, text) = Case::new("BitShift", 28)
            .text("direction", "UP")
            .input(&a)
            .input(&b)
            .output(DType::U32, &[3, 70])
            .rejection();
        assert_eq!(
            (code, &*text),
            (RejectCode::Attribute, "BitShift: attribute direction = UP is neither LEFT nor RIGHT")
        );
    }

    #[test]
    fn remainders_take_a_sign() {
        let (a, b) = (Tensor::new(&[6], &[-4i32, 7, 5, 4, -7, 8]), Tensor::new(&[6], &[2i32, -3, 8, -2, 3, 5]));
        for (fmod, want) in [(0, [0i32, -2, 5, 0, 2, 3]), (1, [0, 1, 5, 0, -1, 3])] {
            let case = Case::new("Mod", 28).int("fmod", fmod).input(&a).input(&b);
            assert_eq!(case.output(DType::I32, &[6]).run()[0].to_vec::<i32>(), want);
        }
        let (a, b) = (Tensor::new(&[2], &[-4.3f32, 7.2]), Tensor::new(&[2], &[2.1f32, -3.4]));
        let case = Case::new("Mod", 28).int("fmod", 1).input(&a).input(&b);
        assert_eq!(case.output(DType::F32, &[2]).run()[0].to_vec::<f32>(), [-4.3f32 % 2.1, 7.2f32 % -3.4]);
        let halves = |x: &Tensor| Tensor::new(&[2], &x.to_vec::<f32>().into_iter().map(F16::round).collect::<Vec<_>>());
        let case = Case::new("Mod", 28).int("fmod", 0).input(&halves(&a)).input(&halves(&b));
        let y = case.output(DType::F16, &[2]).run()[0].to_vec::<F16>();
        assert!((y[0].wide() - 2.0).abs() < 0.01 && (y[1].wide() + 3.0).abs() < 0.01);
        let zero = Tensor::new(&[1], &[0i64]);
        let error = Case::new("Mod", 28).input(&zero).input(&zero).output(DType::I64, &[1]).try_run().unwrap_err();
        assert!(error.contains("input 1 is 0 at element 0"), "{error}");
    }
}
