//! Softmax along one axis, its logarithm, what is left of it when the greatest takes all, and in `loss` what labels make of it.

mod loss;

use super::float::FLOATS;
use super::lane::Real;
use super::narrow::{Bf16, F16};
use super::value::Value;
use super::{Cpu, cost};
use crate::simd::{self, Isa, Operand, ops};
use core::ops::Range;
use loss::{CrossEntropy, cross_entropy, likelihood};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{
    Args, Cost, DType, Fault, Kernel, NodeView, Op, Parallel, Reject, Shapes, size, split, typed, widened,
};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Hardmax", (13, 13), "hardmax", typed!(hardmax: f32 f64 F16 Bf16)),
    Kernel::new("LogSoftmax", (13, 13), "logsoftmax", typed!(log_softmax: f32 f64)).in_place(&[(0, 0)]),
    Kernel::new("LogSoftmax", (13, 13), "logsoftmax", typed!(log_softmax_narrow: F16 Bf16)).fallback(),
    Kernel::new("NegativeLogLikelihoodLoss", (13, 22), "nllloss", typed!(likelihood: f32 f64 F16 Bf16))
        .types(&[("T", FLOATS), ("Tind", LABELS)]),
    Kernel::new("Softmax", (13, 13), "softmax", typed!(softmax: f32 f64)).in_place(&[(0, 0)]),
    Kernel::new("Softmax", (13, 13), "softmax", typed!(softmax_narrow: F16 Bf16)).fallback(),
    Kernel::new("SoftmaxCrossEntropyLoss", (13, 13), "softmaxloss", typed!(cross_entropy: f32 f64))
        .types(&[("T", set(&[DType::F32, DType::F64])), ("Tind", LABELS)]),
    Kernel::new(
        "SoftmaxCrossEntropyLoss",
        (13, 13),
        "softmaxloss",
        widened!(CrossEntropy, cross_entropy::<f32> => F16 Bf16),
    )
    .types(&[("T", set(&[DType::F16, DType::Bf16])), ("Tind", LABELS)])
    .fallback(),
];

const LABELS: u64 = set(&[DType::I32, DType::I64]);

/// Elements that a worker takes at a time.
const GRAIN: usize = 1 << 12;
/// Columns that are worked on together when the axis is not the last one: their sums stay on the stack.
const COLUMNS: usize = 64;

/// `y = e^x / sum(e^x)` along an axis.
struct Softmax {
    isa: Isa,
    axis: usize,
}

/// The tensor as blocks of `len` rows of `inner` values; sums run over the rows of a block.
#[derive(Default)]
struct Along {
    len: usize,
    inner: usize,
}

impl Op for Softmax {
    type Bound = Along;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        // A scalar is its own and only axis.
        let axis = match node.needs(0)?.rank() {
            0 => 0,
            rank => node.axis("axis", rank)?,
        };
        Ok(Softmax { isa: Cpu::of(node).isa, axis })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.3)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Along) -> Result<(), Fault> {
        let dims = shapes.input(0);
        let behind = dims.get(self.axis + 1..).unwrap_or(&[]);
        bound.len = dims.get(self.axis).map_or(1, |&d| size(d));
        bound.inner = behind.iter().map(|&d| size(d)).product();
        Ok(())
    }
}

/// What differs by type: one row whose sum is over its own elements, and a block of columns; `log`: the logarithm is
/// wanted.
trait Rows: Real {
    fn row(isa: Isa, log: bool, y: &mut [Self]);
    fn columns(isa: Isa, log: bool, block: &mut [Self], inner: usize, columns: Range<usize>);
}

fn softmax<T: Rows>(op: &Softmax, along: &Along, args: &mut Args<'_>) -> Result<(), Fault> {
    run::<T>(op, along, args, false)
}

fn log_softmax<T: Rows>(op: &Softmax, along: &Along, args: &mut Args<'_>) -> Result<(), Fault> {
    run::<T>(op, along, args, true)
}

fn run<T: Rows>(op: &Softmax, along: &Along, args: &mut Args<'_>, log: bool) -> Result<(), Fault> {
    let alias = args.alias(0);
    let y = args.output::<T>(0);
    let x = if alias.is_none() { Some(args.input::<T>(0)) } else { None };
    spread(op.isa, log, along, x, y, args.par())
}

/// Softmax of all of x, or of what y holds.
fn spread<T: Rows>(
    isa: Isa,
    log: bool,
    along: &Along,
    x: Option<&[T]>,
    y: &mut [T],
    par: &dyn Parallel,
) -> Result<(), Fault> {
    if along.inner == 1 {
        let grain = GRAIN.div_ceil(along.len.max(1));
        return Ok(split::rows(par, y, along.len, grain, |_, first, rows| {
            for (k, row) in rows.chunks_exact_mut(along.len.max(1)).enumerate() {
                copy_from(x, (first + k) * along.len, row);
                T::row(isa, log, row);
            }
        })?);
    }
    let block = along.len * along.inner;
    blocks(par, y, block, |_, first, block_of| {
        for (k, one) in block_of.chunks_exact_mut(block.max(1)).enumerate() {
            copy_from(x, (first + k) * block, one);
            for at in (0..along.inner).step_by(COLUMNS) {
                T::columns(isa, log, one, along.inner, at..(at + COLUMNS).min(along.inner));
            }
        }
    })
}

fn softmax_narrow<T: Value<Wide = f32>>(_: &Softmax, along: &Along, args: &mut Args<'_>) -> Result<(), Fault> {
    narrow::<T>(along, args, |x, most, sum| (x - most).exp() / sum)
}

fn log_softmax_narrow<T: Value<Wide = f32>>(_: &Softmax, along: &Along, args: &mut Args<'_>) -> Result<(), Fault> {
    narrow::<T>(along, args, |x, most, sum| x - most - sum.ln())
}

/// Widens each element where it is read, lane by lane.
fn narrow<T: Value<Wide = f32>>(
    along: &Along,
    args: &mut Args<'_>,
    f: impl Fn(f32, f32, f32) -> f32 + Sync,
) -> Result<(), Fault> {
    let (x, y, block) = (args.input::<T>(0), args.output::<T>(0), along.len * along.inner);
    blocks(args.par(), y, block, |_, first, y| {
        for (k, y) in y.chunks_exact_mut(block.max(1)).enumerate() {
            let x = &x[(first + k) * block..][..block];
            for column in 0..along.inner {
                let lane = || x.iter().skip(column).step_by(along.inner).map(|x| x.wide());
                let most = lane().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = lane().map(|x| (x - most).exp()).sum();
                let to = y.iter_mut().skip(column).step_by(along.inner);
                to.zip(lane()).for_each(|(y, x)| *y = T::of(f(x, most, sum)));
            }
        }
    })
}

/// 1 for the first greatest element, 0 for all others.
fn hardmax<T: Real>(_: &Softmax, along: &Along, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y, block) = (args.input::<T>(0), args.output::<T>(0), along.len * along.inner);
    blocks(args.par(), y, block, |_, first, y| {
        y.fill(T::default());
        for (k, y) in y.chunks_exact_mut(block.max(1)).enumerate() {
            let x = &x[(first + k) * block..][..block];
            for column in 0..along.inner {
                let mut best = column;
                for at in (column..block).step_by(along.inner) {
                    best = if x[at] > x[best] { at } else { best };
                }
                y[best] = T::of(1.0);
            }
        }
    })
}

fn blocks<T: Send>(
    par: &dyn Parallel,
    y: &mut [T],
    block: usize,
    body: impl Fn(usize, usize, &mut [T]) + Sync,
) -> Result<(), Fault> {
    Ok(split::rows(par, y, block, GRAIN.div_ceil(block.max(1)), body)?)
}

fn copy_from<T: Copy>(x: Option<&[T]>, at: usize, to: &mut [T]) {
    if let Some(x) = x {
        to.copy_from_slice(&x[at..at + to.len()]);
    }
}

impl Rows for f32 {
    fn row(isa: Isa, log: bool, y: &mut [f32]) {
        let most = simd::max(isa, y);
        if !log {
            let sum = simd::exp_sub_sum_in_place(isa, y, most);
            return simd::map_binary_in_place(isa, &ops::Div, y, Operand::Scalar(sum));
        }
        // The exponentials are only summed, piece by piece.
        let (mut piece, mut sum) = ([0.0; COLUMNS], 0.0);
        for x in y.chunks(COLUMNS) {
            let piece = &mut piece[..x.len()];
            piece.copy_from_slice(x);
            sum += simd::exp_sub_sum_in_place(isa, piece, most);
        }
        simd::map_binary_in_place(isa, &ops::Sub, y, Operand::Scalar(most));
        simd::map_binary_in_place(isa, &ops::Sub, y, Operand::Scalar(sum.ln()));
    }

    fn columns(isa: Isa, log: bool, block: &mut [f32], inner: usize, columns: Range<usize>) {
        let (mut most, mut sum, mut exp) = ([f32::NEG_INFINITY; COLUMNS], [0.0; COLUMNS], [0.0; COLUMNS]);
        let (most, sum) = (&mut most[..columns.len()], &mut sum[..columns.len()]);
        for row in block.chunks_exact(inner) {
            simd::map_binary_in_place(isa, &ops::Max, most, Operand::Slice(&row[columns.clone()]));
        }
        for row in block.chunks_exact_mut(inner) {
            let row = &mut row[columns.clone()];
            simd::map_binary_in_place(isa, &ops::Sub, row, Operand::Slice(most));
            let exp = &mut exp[..row.len()];
            simd::map_unary(isa, &ops::Exp, row, exp);
            simd::map_binary_in_place(isa, &ops::Add, sum, Operand::Slice(exp));
            if !log {
                row.copy_from_slice(exp);
            }
        }
        if log {
            simd::map_unary_in_place(isa, &ops::Ln, sum);
        }
        for row in block.chunks_exact_mut(inner) {
            let row = &mut row[columns.clone()];
            match log {
                true => simd::map_binary_in_place(isa, &ops::Sub, row, Operand::Slice(sum)),
                false => simd::map_binary_in_place(isa, &ops::Div, row, Operand::Slice(sum)),
            }
        }
    }
}

impl Rows for f64 {
    fn row(isa: Isa, log: bool, y: &mut [f64]) {
        Self::columns(isa, log, y, 1, 0..1);
    }

    fn columns(_: Isa, log: bool, block: &mut [f64], inner: usize, columns: Range<usize>) {
        for column in columns {
            let most = block.iter().skip(column).step_by(inner).fold(f64::NEG_INFINITY, |m, &x| x.max(m));
            let lane = block.iter().skip(column).step_by(inner);
            let sum: f64 = lane.map(|x| (x - most).exp()).sum();
            let lane = block.iter_mut().skip(column).step_by(inner);
            lane.for_each(|x| *x = if log { *x - most - sum.ln() } else { (*x - most).exp() / sum });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    fn naive(x: &[f64], dims: &[i64], axis: usize) -> Vec<f64> {
        let inner: usize = dims[axis + 1..].iter().product::<i64>() as usize;
        let len = dims[axis] as usize;
        let mut y = x.to_vec();
        for start in (0..x.len()).filter(|k| (k / inner).is_multiple_of(len)) {
            let at = |k: usize| start + k * inner;
            let most = (0..len).map(|k| x[at(k)]).fold(f64::MIN, f64::max);
            let sum: f64 = (0..len).map(|k| (x[at(k)] - most).exp()).sum();
            (0..len).for_each(|k| y[at(k)] = (x[at(k)] - most).exp() / sum);
        }
        y
    }

    #[test]
    fn like_the_definition_along_every_axis() {
        for dims in [&[1i64][..], &[13], &[3, 5], &[0, 4], &[4, 0], &[2, 3, 77], &[2, 70, 3, 5], &[5, 1000], &[130, 65]]
        {
            for axis in 0..dims.len() {
                let x = Tensor::from_fn(dims, |k| (k as f32 * 0.37).sin() * 20.0);
                let exact: Vec<f64> = x.to_vec::<f32>().into_iter().map(f64::from).collect();
                let want = naive(&exact, dims, axis);
                let narrow: Vec<f32> = want.iter().map(|&y| y as f32).collect();
                let negative = axis as i64 - dims.len() as i64;
                on_all("Softmax", 13, |case| {
                    let y = case.int("axis", negative).input(&x).output(DType::F32, dims).run();
                    assert_close(&y[0], &Tensor::new(dims, &narrow), 1e-6);
                });
                let case = Case::new("Softmax", 13).int("axis", axis as i64).input(&Tensor::new(dims, &exact));
                assert_close(&case.output(DType::F64, dims).run()[0], &Tensor::new(dims, &want), 1e-14);
                let logs: Vec<f64> = want.iter().map(|y| y.ln()).collect();
                let narrow: Vec<f32> = logs.iter().map(|&y| y as f32).collect();
                on_all("LogSoftmax", 13, |case| {
                    let y = case.int("axis", negative).input(&x).output(DType::F32, dims).run();
                    assert_close(&y[0], &Tensor::new(dims, &narrow), 1e-6);
                });
                let case = Case::new("LogSoftmax", 13).int("axis", axis as i64).input(&Tensor::new(dims, &exact));
                assert_close(&case.output(DType::F64, dims).run()[0], &Tensor::new(dims, &logs), 1e-12);
                let halves = Tensor::from_fn(dims, |k| F16::round(exact[k] as f32));
                for (op, want) in [("Softmax", &want), ("LogSoftmax", &logs)] {
                    let case = Case::new(op, 13).int("axis", axis as i64).input(&halves);
                    let y = case.output(DType::F16, dims).run()[0].to_vec::<F16>();
                    let wide: Vec<f64> = y.iter().map(|y| y.wide().into()).collect();
                    assert_close(&Tensor::new(dims, &wide), &Tensor::new(dims, want), 0.03);
                }
            }
        }
    }

    #[test]
    fn the_greatest_takes_all() {
        let x = Tensor::new(&[2, 3], &[1.0f32, 5.0, 5.0, 0.0, -1.0, 7.0]);
        for (axis, want) in [(1, [0.0f32, 1.0, 0.0, 0.0, 0.0, 1.0]), (0, [1.0, 1.0, 0.0, 0.0, 0.0, 1.0])] {
            on_all("Hardmax", 13, |case| {
                let y = case.int("axis", axis).input(&x).output(DType::F32, &[2, 3]).run();
                assert_eq!(y[0].to_vec::<f32>(), want);
            });
        }
    }

    #[test]
    fn large_values_do_not_overflow() {
        let x = Tensor::new(&[1, 3], &[1000.0f32, 1000.0, -1000.0]);
        let y = Case::new("Softmax", 13).int("axis", -1).input(&x).output(DType::F32, &[1, 3]).run();
        assert_eq!(y[0].to_vec::<f32>(), [0.5, 0.5, 0.0]);
    }

    #[test]
    fn a_wrong_axis_is_named() {
        let x = Tensor::new(&[2], &[0.0f32; 2]);
        let (code, text) = Case::new("Softmax", 13).int("axis", 1).input(&x).output(DType::F32, &[2]).rejection();
        assert_eq!(
            (code, &*text),
            (RejectCode::Attribute, "Softmax: attribute axis = 1 is no axis of a tensor of rank 1")
        );
    }
}
