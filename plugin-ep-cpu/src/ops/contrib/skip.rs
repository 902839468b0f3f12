//! Sums that are normalized row by row: `SkipLayerNormalization`, and without the mean `SkipSimplifiedLayerNormalization`.

use crate::ops::float::agree;
use crate::ops::lane::Side;
use crate::ops::norm::row::{self, Affine, NONE, affine};
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa, Operand, ops};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// `s = input + skip + bias`, `y = (s - mean) / sqrt(variance + epsilon) * gamma + beta`
pub(super) struct Skip {
    isa: Isa,
    epsilon: f32,
    centred: bool,
    /// The input of biases.
    bias: usize,
}

/// Elements of a row, and rows of the skip, which repeat.
#[derive(Debug, Default)]
pub(super) struct Rows {
    len: usize,
    skips: usize,
}

impl Op for Skip {
    type Bound = Rows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (i, ranks) in [(0, 2..=3), (1, 2..=3), (2, 1..=1)] {
            let rank = node.needs(i)?.rank();
            if !ranks.contains(&rank) {
                return Err(Reject::rank(format!("input {i} has rank {rank}, possible is {ranks:?}")));
            }
        }
        let centred = node.op() == "SkipLayerNormalization";
        Ok(Skip { isa: Cpu::of(node).isa, epsilon: node.float("epsilon")?, centred, bias: if centred { 4 } else { 3 } })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.2)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Rows) -> Result<(), Fault> {
        let (x, skip) = (shapes.input(0), shapes.input(1));
        let len = x.last().map_or(1, |&d| size(d));
        let same =
            skip == x || x.len() == 3 && (skip == &x[1..] || skip.len() == 3 && skip[0] == 1 && skip[1..] == x[1..]);
        if !same {
            return Err(Fault::data(format!("a skip of {skip:?} is not spread over {x:?}")));
        }
        *bound = Rows { len, skips: shapes.input_len(1) / len.max(1) };
        agree("gamma", shapes.input_len(2), len)?;
        for (input, name) in [(self.bias, "the bias"), (3, "beta")] {
            if shapes.has(input) {
                agree(name, shapes.input_len(input), len)?;
            }
        }
        let rows = shapes.input_len(0) / len.max(1);
        for (output, need) in [(0, shapes.input_len(0)), (1, rows), (2, rows), (3, shapes.input_len(0))] {
            if !shapes.output(output).is_empty() {
                agree("an output", shapes.output_len(output), need)?;
            }
        }
        Ok(())
    }
}

pub(super) fn skip(op: &Skip, rows: &Rows, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Rows { len, skips } = rows;
    let (isa, par, grain) = (op.isa, args.par(), GRAIN.div_ceil(len.max(1)));
    let (x, skip, gamma) = (args.input::<f32>(0), args.input::<f32>(1), args.input::<f32>(2));
    let beta = if op.centred { args.input_if::<f32>(3) } else { None };
    let bias = args.input_if::<f32>(op.bias);
    let sum = |row: usize, to: &mut [f32]| {
        let skip = &skip[row % skips.max(1) * len..][..len];
        simd::map_binary(isa, &ops::Add, Operand::Slice(&x[row * len..][..len]), Operand::Slice(skip), to);
        if let Some(bias) = bias {
            simd::map_binary_in_place(isa, &ops::Add, to, Operand::Slice(bias));
        }
    };
    let moments = |row: &[f32]| {
        let mean = if op.centred { row::mean(isa, row) } else { 0.0 };
        (mean, (row::variance(isa, row, mean) + op.epsilon).sqrt().recip())
    };
    let finish = |x: Option<&[f32]>, y: &mut [f32]| {
        let (mean, inverse) = moments(x.unwrap_or(y));
        let bias = beta.map_or(Side::Scalar(0.0), Side::Slice);
        affine(isa, x, y, Affine { mean, inverse, scale: Side::Slice(gamma), bias, floor: NONE });
    };
    let y = args.output::<f32>(0);
    let statistics = [1, 2].map(|output| args.wants(output).then(|| args.output::<f32>(output)));
    let sums = args.wants(3).then(|| args.output::<f32>(3));
    if sums.is_none() && statistics.iter().all(Option::is_none) {
        split::rows(par, y, len, grain, |_, first, piece| {
            for (k, y) in piece.chunks_exact_mut(len.max(1)).enumerate() {
                sum(first + k, y);
                finish(None, y);
            }
        })?;
        return Ok(());
    }
    let fill = |to: &mut [f32]| {
        split::rows(par, to, len, grain, |_, first, piece| {
            piece.chunks_exact_mut(len.max(1)).enumerate().for_each(|(k, y)| sum(first + k, y));
        })
    };
    let sums: Option<&[f32]> = match sums {
        Some(sums) => {
            fill(sums)?;
            Some(sums)
        }
        None => {
            fill(y)?;
            None
        }
    };
    for (which, to) in statistics.into_iter().enumerate() {
        let from = sums.unwrap_or(y);
        split::rows(par, to.unwrap_or(&mut []), 1, grain, |_, first, to| {
            for (k, to) in to.iter_mut().enumerate() {
                let (mean, inverse) = moments(&from[(first + k) * len..][..len]);
                *to = if which == 0 { mean } else { inverse };
            }
        })?;
    }
    Ok(split::rows(par, y, len, grain, |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(len.max(1)).enumerate() {
            finish(sums.map(|sums| &sums[(first + k) * len..][..len]), y);
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{Tensor, assert_close};

    #[test]
    fn like_a_sum_and_then_the_norm() {
        for (batch, rows, width) in [(1i64, 1i64, 1i64), (2, 3, 17), (3, 40, 130), (0, 2, 4)] {
            let dims = [batch, rows, width];
            let (x, skip) = (Tensor::random(&dims, 1), Tensor::random(&[rows, width], 2));
            let [gamma, beta, bias] = [3, 4, 5].map(|seed| Tensor::random(&[width], seed));
            let (a, b, c) = (x.to_vec::<f32>(), skip.to_vec::<f32>(), bias.to_vec::<f32>());
            let sum = Tensor::from_fn(&dims, |k| a[k] + b[k % (rows * width) as usize] + c[k % width as usize]);
            let norm = Case::new("LayerNormalization", 17).int("axis", -1).float("epsilon", 0.01).int("stash_type", 1);
            let norm = norm.input(&sum).input(&gamma).input(&beta).output(DType::F32, &dims);
            let ones = [batch, rows, 1];
            let want = norm.output(DType::F32, &ones).output(DType::F32, &ones).run();
            on_all("SkipLayerNormalization", 1, |case| {
                let case = case.domain("com.microsoft").float("epsilon", 0.01).input(&x).input(&skip);
                let case = case.input(&gamma).input(&beta).input(&bias).output(DType::F32, &dims);
                let case = case.output(DType::F32, &ones).output(DType::F32, &ones);
                let got = case.output(DType::F32, &dims).run();
                (0..3).for_each(|k| assert_close(&got[k], &want[k], 2e-5));
                assert_eq!(got[3], sum);
            });
        }
    }
}
