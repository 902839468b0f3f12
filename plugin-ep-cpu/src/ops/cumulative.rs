//! Running sums and products along an axis.

use super::fold::{Fold, Prod, Sum};
use super::narrow::{Bf16, F16};
use super::value::Value;
use super::{Cpu, GRAIN, cost, ints};
use crate::simd::{self, Isa, Simd};
use core::marker::PhantomData;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{
    Args, Cost, DType, Element, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, count, size, split, typed,
};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("CumProd", (26, 26), "cumprod", typed!(product: f32 f64 F16 Bf16 i32 i64 u32 u64)),
    Kernel::new("CumSum", (11, 14), "cumsum", typed!(sum: f32 f64 F16 Bf16 i32 i64 u32 u64)),
];

type Run = Result<(), Fault>;

struct Cumulate {
    isa: Isa,
    exclusive: bool,
    reverse: bool,
    /// Type of the axis.
    axis: DType,
}

#[derive(Default)]
struct Bound {
    dims: Ints,
    /// `None` if only the run knows.
    axis: Option<i64>,
}

impl Op for Cumulate {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, axis) = (node.needs(0)?, node.needs(1)?);
        ints::check_axes(node, 1, x.rank())?;
        if set(&[DType::I32, DType::I64]) & axis.dtype().mask() == 0 {
            return Err(Reject::dtype(format!("input 1 is {}, i32 or i64 is needed", axis.dtype())));
        }
        let flag = |name| node.int_if(name).unwrap_or(0) != 0;
        Ok(Cumulate {
            isa: Cpu::of(node).isa,
            exclusive: flag("exclusive"),
            reverse: flag("reverse"),
            axis: axis.dtype(),
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.5)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Run {
        bound.dims = Ints::from_slice(shapes.input(0));
        bound.axis = shapes.elements(1).and_then(|axis| axis.first().copied());
        Ok(())
    }
}

fn sum<T: Value>(op: &Cumulate, bound: &Bound, args: &mut Args<'_>) -> Run
where
    Sum: Fold<T>,
{
    cumulate::<T, Sum>(op, bound, args)
}

fn product<T: Value>(op: &Cumulate, bound: &Bound, args: &mut Args<'_>) -> Run
where
    Prod: Fold<T>,
{
    cumulate::<T, Prod>(op, bound, args)
}

fn cumulate<T: Value, F: Fold<T>>(op: &Cumulate, bound: &Bound, args: &mut Args<'_>) -> Run {
    let axis = match bound.axis {
        Some(axis) => axis,
        None => *ints::read(args, 1, op.axis).first().ok_or_else(|| Fault::data("input 1 is empty"))?,
    };
    let axis = ints::axis(axis, bound.dims.len(), 1)?;
    let (len, inner) = (size(bound.dims[axis]), count(&bound.dims[axis + 1..]));
    let (x, y) = (args.input::<T>(0), args.output::<T>(0));
    let block = len * inner;
    Ok(split::rows(args.par(), y, block, GRAIN.div_ceil(block.max(1)), |_, first, blocks| {
        let x = &x[first * block..][..blocks.len()];
        op.isa.dispatch(Blocks::<T, F> { op, len, inner, x, y: blocks, fold: PhantomData });
    })?)
}

/// Blocks of `len` rows of `inner` elements, which are summed column by column.
struct Blocks<'a, T, F> {
    op: &'a Cumulate,
    len: usize,
    inner: usize,
    x: &'a [T],
    y: &'a mut [T],
    fold: PhantomData<F>,
}

/// Columns that are summed side by side.
const COLUMNS: usize = 64;

impl<T: Element, F: Fold<T>> simd::Kernel for Blocks<'_, T, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Blocks { op, len, inner, x, y, .. } = self;
        let block = len * inner;
        for (x, y) in x.chunks_exact(block).zip(y.chunks_exact_mut(block)) {
            for from in (0..inner).step_by(COLUMNS) {
                let width = COLUMNS.min(inner - from);
                let mut sums = [F::start(); COLUMNS];
                for row in 0..len {
                    let row = if op.reverse { len - 1 - row } else { row };
                    let at = row * inner + from;
                    let lines = x[at..at + width].iter().zip(&mut y[at..at + width]);
                    for (sum, (&x, y)) in sums.iter_mut().zip(lines) {
                        let next = F::take(*sum, x);
                        *y = F::end(if op.exclusive { *sum } else { next }, 1);
                        *sum = next;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{count, index, position};
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    const SHAPES: [&[i64]; 6] = [&[7], &[1, 5], &[3, 4], &[2, 3, 70], &[0, 3], &[60, 301]];

    /// Every prefix anew.
    fn naive(x: &[i64], dims: &[i64], axis: usize, exclusive: bool, reverse: bool, product: bool) -> Vec<i64> {
        let last = dims[axis] as usize;
        let prefix = |k: usize| {
            let mut i = index(dims, k);
            let end = i[axis];
            let (from, to) = match (reverse, exclusive) {
                (false, false) => (0, end + 1),
                (false, true) => (0, end),
                (true, false) => (end, last),
                (true, true) => (end + 1, last),
            };
            let elements = (from..to).map(|at| {
                i[axis] = at;
                x[position(dims, &i)]
            });
            match product {
                true => elements.fold(1i64, i64::wrapping_mul),
                false => elements.fold(0i64, i64::wrapping_add),
            }
        };
        (0..count(dims)).map(prefix).collect()
    }

    #[test]
    fn like_summing_every_prefix() {
        for (op, version, product) in [("CumSum", 14, false), ("CumProd", 26, true)] {
            for dims in SHAPES {
                for axis in 0..dims.len() {
                    for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
                        let list: Vec<i64> = (0..count(dims) as i64).map(|k| k * 7 % 5 - 1).collect();
                        let x = Tensor::new(dims, &list);
                        let want = Tensor::new(dims, &naive(&list, dims, axis, exclusive, reverse, product));
                        let back = axis as i64 - dims.len() as i64;
                        let axes = [
                            Tensor::new(&[], &[axis as i64]),
                            Tensor::new(&[], &[back as i32]),
                            Tensor::new(&[1], &[back]),
                        ];
                        for axis in axes {
                            on_all(op, version, |case| {
                                let case = case.int("exclusive", exclusive.into()).int("reverse", reverse.into());
                                let y = case.input(&x).input(&axis).output(DType::I64, dims).run();
                                assert_eq!(y, from_ref(&want), "{op} {dims:?} {axis:?} {exclusive} {reverse}");
                            });
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn floats_round_once_per_element() {
        let x = Tensor::from_fn(&[2, 500], |k| (k as f32 * 0.37).sin());
        let list: Vec<f64> = x.to_vec::<f32>().into_iter().map(f64::from).collect();
        let want = Tensor::from_fn(&[2, 500], |k| list[k / 500 * 500..=k].iter().sum::<f64>() as f32);
        let axis = Tensor::new(&[], &[1i64]);
        let y = Case::new("CumSum", 14).input(&x).constant(&axis).output(DType::F32, &[2, 500]).run();
        assert_close(&y[0], &want, 1e-5);
        // In half precision, a sum of 3000 ones would stop at 2048.
        let ones = Tensor::from_fn(&[3000], |_| F16::round(1.0));
        let axis = Tensor::new(&[], &[0i64]);
        let y = Case::new("CumSum", 14).input(&ones).constant(&axis).output(DType::F16, &[3000]).run();
        assert_eq!(y[0].to_vec::<F16>()[2999].wide(), 3000.0);
    }

    #[test]
    fn axes_that_are_none() {
        let x = Tensor::new(&[2], &[1.0f32, 2.0]);
        let axis = Tensor::new(&[], &[1i64]);
        let (code, text) = Case::new("CumSum", 14).input(&x).constant(&axis).output(DType::F32, &[2]).rejection();
        let want = "CumSum: input 1 has 1, which is no axis of a tensor of rank 1";
        assert_eq!((code, &*text), (RejectCode::Shape, want));
        let error = Case::new("CumSum", 14).input(&x).input(&axis).output(DType::F32, &[2]).try_run().unwrap_err();
        assert!(error.contains("input 1 has 1, which is no axis of a tensor of rank 1"), "{error}");
    }
}
