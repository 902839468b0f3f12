//! Values held between two bounds, each of which may be left out.

use super::super::lane::Number;
use super::super::narrow::{Bf16, F16};
use super::super::{Cpu, GRAIN, cost};
use crate::simd::{Isa, ops};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, split};

/// `min(max(x, low), high)`
pub(super) struct Clip {
    isa: Isa,
}

impl Op for Clip {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        Ok(Clip { isa: Cpu::of(node).isa })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, (): &mut ()) -> Result<(), Fault> {
        for input in [1, 2] {
            if shapes.has(input) && shapes.input_len(input) != 1 {
                let count = shapes.input_len(input);
                return Err(Fault::data(format!("input {input} has {count} elements, a bound is one")));
            }
        }
        Ok(())
    }
}

/// A number with bounds of its own.
pub(super) trait Bounded: Number {
    const LEAST: Self;
    const MOST: Self;
    /// As f32, for types that are clipped as f32.
    fn narrow(self) -> f32;
}

macro_rules! bounded {
    ($($t:ty: $least:expr, $most:expr, |$x:ident| $narrow:expr;)*) => { $(
        impl Bounded for $t {
            const LEAST: Self = $least;
            const MOST: Self = $most;
            fn narrow(self) -> f32 { let $x = self; $narrow }
        }
    )* };
}
// Types that are not clipped as f32 never ask for one.
bounded! {
    f32: f32::NEG_INFINITY, f32::INFINITY, |x| x;
    f64: f64::NEG_INFINITY, f64::INFINITY, |_x| 0.0;
    F16: F16(0xfc00), F16(0x7c00), |x| x.wide();
    Bf16: Bf16(0xff80), Bf16(0x7f80), |x| x.wide();
    i8: i8::MIN, i8::MAX, |_x| 0.0;
    i16: i16::MIN, i16::MAX, |_x| 0.0;
    i32: i32::MIN, i32::MAX, |_x| 0.0;
    i64: i64::MIN, i64::MAX, |_x| 0.0;
    u8: u8::MIN, u8::MAX, |_x| 0.0;
    u16: u16::MIN, u16::MAX, |_x| 0.0;
    u32: u32::MIN, u32::MAX, |_x| 0.0;
    u64: u64::MIN, u64::MAX, |_x| 0.0;
}

pub(super) fn clip<T: Bounded>(op: &Clip, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let bound = |input: usize| args.input_if::<T>(input).and_then(|x| x.first().copied());
    let (low, high) = (bound(1).unwrap_or(T::LEAST), bound(2).unwrap_or(T::MOST));
    let vector = ops::Clip { low: low.narrow(), high: high.narrow() };
    let scalar = |x: T| {
        let x = if x < low { low } else { x };
        if x > high { high } else { x }
    };
    let alias = args.alias(0);
    let (par, y) = (args.par(), args.output::<T>(0));
    if alias.is_some() {
        return Ok(split::rows(par, y, 1, GRAIN, |_, _, y| T::map_in_place(op.isa, &vector, scalar, y))?);
    }
    let x = args.input::<T>(0);
    Ok(split::rows(par, y, 1, GRAIN, |_, at, y| T::map(op.isa, &vector, scalar, &x[at..at + y.len()], y))?)
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::Tensor;

    #[test]
    fn bounds_may_be_left_out() {
        let x = Tensor::from_fn(&[3, 37], |k| (k as f32 * 0.7).sin() * 4.0);
        let bounds = [Tensor::new(&[], &[-1.5f32]), Tensor::new(&[], &[2.0f32])];
        for (low, high) in [(true, true), (true, false), (false, true), (false, false)] {
            let least = if low { -1.5 } else { f32::NEG_INFINITY };
            let most = if high { 2.0 } else { f32::INFINITY };
            let want = x.to_vec::<f32>().into_iter().map(|x| x.clamp(least, most)).collect::<Vec<_>>();
            on_all("Clip", 13, |case| {
                let case = case.input(&x);
                let case = if low { case.input(&bounds[0]) } else { case.skip() };
                let case = if high { case.constant(&bounds[1]) } else { case.skip() };
                assert_eq!(case.output(DType::F32, &[3, 37]).run()[0].to_vec::<f32>(), want);
            });
        }
    }

    #[test]
    fn other_types() {
        let x = Tensor::new(&[3], &[-5i8, 0, 5]);
        let case = Case::new("Clip", 13).input(&x).input(&Tensor::new(&[], &[-2i8])).input(&Tensor::new(&[], &[3i8]));
        assert_eq!(case.output(DType::I8, &[3]).run()[0].to_vec::<i8>(), [-2, 0, 3]);
        let x = Tensor::new(&[2], &[-5.0f32, 9.0].map(F16::round));
        let case = Case::new("Clip", 13).input(&x).skip().input(&Tensor::new(&[], &[F16::round(3.0)]));
        assert_eq!(case.output(DType::F16, &[2]).run()[0].to_vec::<F16>(), [-5.0f32, 3.0].map(F16::round));
        let x = Tensor::new(&[2], &[1u64, 1 << 60]);
        let case = Case::new("Clip", 13).input(&x).input(&Tensor::new(&[], &[7u64]));
        assert_eq!(case.output(DType::U64, &[2]).run()[0].to_vec::<u64>(), [7, 1 << 60]);
    }

    #[test]
    fn crossed_bounds_give_the_upper_one_and_nan_stays() {
        let x = Tensor::new(&[3], &[0.0f32, 5.0, f32::NAN]);
        let case = Case::new("Clip", 13).input(&x).input(&Tensor::new(&[], &[3.0f32]));
        let y = case.input(&Tensor::new(&[], &[1.0f32])).output(DType::F32, &[3]).run()[0].to_vec::<f32>();
        assert!(y[..2] == [1.0, 1.0] && y[2].is_nan());
        let error = Case::new("Clip", 13).input(&x).input(&x).output(DType::F32, &[3]).try_run().unwrap_err();
        assert!(error.contains("input 1 has 3 elements, a bound is one"), "{error}");
    }
}
