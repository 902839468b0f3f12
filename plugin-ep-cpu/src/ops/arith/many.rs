//! Sums, means and extremes of any number of tensors: the first two meet in the output, the others join them there.

use super::super::broadcast::Broadcast;
use super::super::lane::{Number, Real, Side};
use super::super::{Cpu, GRAIN, cost};
use crate::simd::ops::{Add, Affine, Max, Min};
use crate::simd::{BinaryOp, Isa};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, split};
use smallvec::SmallVec;

type Run = Result<(), Fault>;

/// A function of one or more tensors, element by element.
pub(super) struct Many {
    isa: Isa,
    count: usize,
}

/// How tensors lie under the output: the first two, then the others.
#[derive(Default)]
pub(super) struct Bound {
    pair: Broadcast<2>,
    others: SmallVec<[Broadcast<1>; 1]>,
}

impl Op for Many {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let count = node.input_count().max(1);
        (0..count).try_for_each(|k| node.needs(k).map(drop))?;
        Ok(Many { isa: Cpu::of(node).isa, count })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Run {
        let out = shapes.output(0);
        bound.pair.bind(out, [shapes.input(0), shapes.input(self.second())])?;
        bound.others.resize_with(self.count.saturating_sub(2), Broadcast::default);
        bound.others.iter_mut().zip(2..).try_for_each(|(walk, k)| walk.bind(out, [shapes.input(k)]))
    }
}

impl Many {
    /// The input that meets the first one; a lone one meets itself.
    fn second(&self) -> usize {
        1.min(self.count - 1)
    }

    /// Joins all inputs, then calls `finish` on pieces of the result.
    fn join<T: Number, V: BinaryOp>(
        &self,
        bound: &Bound,
        args: &mut Args<'_>,
        vector: V,
        scalar: impl Fn(T, T) -> T + Sync,
        finish: impl Fn(&mut [T]) + Sync,
    ) -> Run {
        let (isa, par, y) = (self.isa, args.par(), args.output::<T>(0));
        let (a, b, step) = (args.input::<T>(0), args.input::<T>(self.second()), bound.pair.inner.step);
        bound.pair.walk(par, y, GRAIN, |at, y| {
            let (a, b) = (Side::new(a, at[0], step[0], y.len()), Side::new(b, at[1], step[1], y.len()));
            match (self.count, a) {
                (1, Side::Slice(a)) => y.copy_from_slice(a),
                (1, Side::Scalar(a)) => y.fill(a),
                _ => T::zip(isa, &vector, &scalar, a, b, y),
            }
        })?;
        for (walk, k) in bound.others.iter().zip(2..) {
            let b = args.input::<T>(k);
            walk.walk(par, y, GRAIN, |at, y| {
                let b = Side::new(b, at[0], walk.inner.step[0], y.len());
                T::zip_in_place(isa, &vector, &scalar, y, b);
            })?;
        }
        Ok(split::rows(par, y, 1, GRAIN, |_, _, y| finish(y))?)
    }
}

pub(super) fn sum<T: Number>(op: &Many, bound: &Bound, args: &mut Args<'_>) -> Run {
    op.join(bound, args, Add, T::plus, |_| ())
}

pub(super) fn mean<T: Real>(op: &Many, bound: &Bound, args: &mut Args<'_>) -> Run {
    let part = 1.0 / op.count as f32; // rounds
    op.join(bound, args, Add, T::plus, |y: &mut [T]| {
        T::map_in_place(op.isa, &Affine { scale: part, shift: 0.0 }, |x| x.over(T::of(op.count as f32)), y);
    })
}

pub(super) fn max<T: Number>(op: &Many, bound: &Bound, args: &mut Args<'_>) -> Run {
    op.join(bound, args, Max, |a: T, b| if b > a || is_nan(b) { b } else { a }, |_| ())
}

pub(super) fn min<T: Number>(op: &Many, bound: &Bound, args: &mut Args<'_>) -> Run {
    op.join(bound, args, Min, |a: T, b| if b < a || is_nan(b) { b } else { a }, |_| ())
}

#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn is_nan<T: Number>(x: T) -> bool {
    x != x
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::{broadcast, on_all};
    use core::fmt::Debug;
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, Element};

    fn check<T: Element + PartialEq + Debug>(op: &str, number: impl Fn(usize) -> T, f: impl Fn(T, T) -> T + Copy) {
        // Output, then the inputs.
        let cases: &[(&[i64], &[&[i64]])] = &[
            (&[7], &[&[7]]),
            (&[2, 3], &[&[2, 3], &[3]]),
            (&[2, 3, 5], &[&[3, 1], &[2, 1, 5], &[]]),
            (&[3, 17], &[&[17], &[1], &[3, 1], &[3, 17]]),
            (&[2, 20_001], &[&[2, 20_001], &[20_001], &[2, 1]]),
            (&[0, 2], &[&[0, 1], &[2], &[1]]),
        ];
        for &(out, inputs) in cases {
            let tensors: Vec<Tensor> = inputs.iter().map(|dims| Tensor::from_fn(dims, &number)).collect();
            let first = broadcast(out, &tensors[0], &tensors[0], |a: T, _: T| a);
            let want = tensors[1..].iter().fold(first, |sum, x| broadcast(out, &sum, x, f));
            on_all(op, 13, |case| {
                let case = tensors.iter().fold(case, |case, x| case.input(x));
                assert_eq!(case.output(T::DTYPE, out).run()[0], want, "{op} {out:?} {inputs:?}");
            });
        }
    }

    #[test]
    fn like_the_definition_one_by_one() {
        let float = |k: usize| (k as f32 * 0.37).sin() * 3.0;
        check::<f32>("Sum", float, |a, b| a + b);
        check::<f32>("Max", float, f32::max);
        check::<f32>("Min", float, f32::min);
        check::<f64>("Max", |k| f64::from(float(k)), f64::max);
        check::<i64>("Min", |k| k as i64 % 5 - 2, i64::min);
        check::<u8>("Max", |k| k as u8, u8::max);
        check::<F16>("Sum", |k| F16::round(float(k)), |a, b| F16::round(a.wide() + b.wide()));
    }

    #[test]
    fn means() {
        let (a, b) = (Tensor::new(&[2], &[1.0f32, 5.0]), Tensor::new(&[1], &[2.0f32]));
        on_all("Mean", 13, |case| {
            let y = case.input(&a).input(&b).input(&b).output(DType::F32, &[2]).run();
            assert_close(&y[0], &Tensor::new(&[2], &[5.0f32 / 3.0, 3.0]), 1e-6);
        });
        let a = Tensor::new(&[2], &[1.0f64, 5.0]);
        on_all("Mean", 13, |case| {
            assert_eq!(case.input(&a).input(&a).output(DType::F64, &[2]).run()[0], a);
        });
    }

    #[test]
    fn nan_is_the_greatest_and_the_least() {
        let (a, b) = (Tensor::new(&[2], &[f32::NAN, 1.0]), Tensor::new(&[2], &[1.0, f32::NAN]));
        let wide = |x: &Tensor| Tensor::new(&[2], &x.to_vec::<f32>().into_iter().map(f64::from).collect::<Vec<_>>());
        for op in ["Max", "Min"] {
            on_all(op, 13, |case| {
                let y = case.input(&a).input(&b).output(DType::F32, &[2]).run();
                assert!(y[0].to_vec::<f32>().iter().all(|y| y.is_nan()), "{op}");
            });
            on_all(op, 13, |case| {
                let y = case.input(&wide(&a)).input(&wide(&b)).output(DType::F64, &[2]).run();
                assert!(y[0].to_vec::<f64>().iter().all(|y| y.is_nan()), "{op}");
            });
        }
    }
}
