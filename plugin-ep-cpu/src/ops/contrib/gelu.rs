//! Gelu of a tensor to which a row is added: `BiasGelu` by the error function, `FastGelu` by tanh.

use crate::ops::float::agree;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa, Operand, ops};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// `y = gelu(x + bias)`
pub(super) struct Biased {
    isa: Isa,
    tanh: bool,
}

impl Op for Biased {
    /// Elements of a row.
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        if let Some(bias) = node.input(1)
            && (bias.rank() != 1 || x.rank() == 0)
        {
            let ranks = (x.rank(), bias.rank());
            return Err(Reject::rank(format!(
                "inputs of ranks {ranks:?}: a tensor and a list for its last axis are needed"
            )));
        }
        let tanh = node.op() == "FastGelu";
        if !tanh {
            node.needs(1)?;
        }
        Ok(Biased { isa: Cpu::of(node).isa, tanh })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.25)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut usize) -> Result<(), Fault> {
        *bound = shapes.input(0).last().map_or(1, |&d| size(d));
        agree("output 0", shapes.output_len(0), shapes.input_len(0))?;
        if shapes.has(1) { agree("the bias", shapes.input_len(1), *bound) } else { Ok(()) }
    }
}

pub(super) fn biased(op: &Biased, len: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    let alias = args.alias(0);
    let y = args.output::<f32>(0);
    let x = alias.is_none().then(|| args.input::<f32>(0));
    let (bias, len, isa) = (args.input_if::<f32>(1), (*len).max(1), op.isa);
    Ok(split::rows(args.par(), y, len, GRAIN.div_ceil(len), |_, first, rows| {
        for (k, y) in rows.chunks_exact_mut(len).enumerate() {
            let x = x.map(|x| &x[(first + k) * len..][..len]);
            match (x, bias) {
                (Some(x), Some(bias)) => simd::map_binary(isa, &ops::Add, Operand::Slice(x), Operand::Slice(bias), y),
                (None, Some(bias)) => simd::map_binary_in_place(isa, &ops::Add, y, Operand::Slice(bias)),
                (Some(x), None) => y.copy_from_slice(x),
                (None, None) => {}
            }
            match op.tanh {
                true => simd::map_unary_in_place(isa, &ops::GeluTanh, y),
                false => simd::map_unary_in_place(isa, &ops::Gelu, y),
            }
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    #[test]
    fn like_a_sum_and_then_gelu() {
        for (rows, width) in [(1i64, 1i64), (3, 17), (700, 33), (0, 5)] {
            let x = Tensor::random(&[rows, width], 1);
            let bias = Tensor::random(&[width], 2);
            let (a, b) = (x.to_vec::<f32>(), bias.to_vec::<f32>());
            let sum = Tensor::from_fn(&[rows, width], |k| a[k] + b[k % width as usize]);
            for (op, approximate) in [("BiasGelu", "none"), ("FastGelu", "tanh")] {
                let want = Case::new("Gelu", 20).text("approximate", approximate).input(&sum);
                let want = want.output(DType::F32, &[rows, width]).run();
                on_all(op, 1, |case| {
                    let case = case.domain("com.microsoft").input(&x).input(&bias);
                    assert_close(&case.output(DType::F32, &[rows, width]).run()[0], &want[0], 1e-6);
                });
            }
        }
    }

    #[test]
    fn a_bias_of_another_rank_is_refused() {
        let x = Tensor::random(&[2, 3], 1);
        let case = Case::new("BiasGelu", 1).domain("com.microsoft").input(&x).input(&x).output(DType::F32, &[2, 3]);
        let (code, text) = case.rejection();
        assert_eq!(code, RejectCode::Rank);
        assert!(text.contains("a list for its last axis"), "{text}");
    }
}
