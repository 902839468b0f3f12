//! `QLinearSoftmax`: powers of e come from a table of the distances of codes from the greatest one.

use super::Quantity;
use crate::ops::cost;
use crate::ops::float::agree;
use crate::ops::quant::{Code, code};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, count, size, split};

pub(in crate::ops::contrib) struct Softmax {
    axis: usize,
    /// All axes from `axis` on are one, as in the standard before version 13.
    flat: bool,
}

/// The tensor as blocks of `len` rows of `inner` values; sums run over the rows of a block.
#[derive(Debug, Default)]
pub(in crate::ops::contrib) struct Along {
    len: usize,
    inner: usize,
}

const X: Quantity = Quantity::at(1);
const Y: Quantity = Quantity::at(3);

impl Op for Softmax {
    type Bound = Along;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        X.check(node, 0)?;
        Y.check(node, 0)?;
        let axis = node.axis("axis", node.needs(0)?.rank())?;
        Ok(Softmax { axis, flat: node.int("opset")? < 13 })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.5)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Along) -> Result<(), Fault> {
        X.bind(shapes)?;
        Y.bind(shapes)?;
        let dims = shapes.input(0).get(self.axis..).unwrap_or(&[]);
        *bound = match dims {
            _ if self.flat => Along { len: count(dims), inner: 1 },
            [len, inner @ ..] => Along { len: size(*len), inner: count(inner) },
            [] => Along { len: 1, inner: 1 },
        };
        agree("output 0", shapes.output_len(0), shapes.input_len(0))
    }
}

pub(in crate::ops::contrib) fn softmax<T: Code>(_: &Softmax, along: &Along, args: &mut Args<'_>) -> Result<(), Fault> {
    let ((x_scale, _), (y_scale, y_zero)) = (X.read::<T>(args), Y.read::<T>(args));
    let &Along { len, inner } = along;
    let mut powers = [0f32; 256];
    powers.iter_mut().enumerate().for_each(|(below, power)| *power = (-(below as f32) * x_scale).exp()); // 8 bits
    let power = |most: i32, x: T| powers[usize::try_from(most - x.wide()).unwrap_or(0)];
    let (x, par) = (args.input::<T>(0), args.par());
    let block = len * inner;
    let grain = (1usize << 12).div_ceil(block.max(1));
    Ok(split::rows(par, args.output::<T>(0), block, grain, |_, first, blocks| {
        for (k, y) in blocks.chunks_exact_mut(block.max(1)).enumerate() {
            let x = &x[(first + k) * block..][..block];
            for column in 0..inner {
                let own = || x.iter().skip(column).step_by(inner);
                let most = own().map(|x| x.wide()).fold(T::LOW, i32::max);
                let sum: f32 = own().map(|&x| power(most, x)).sum();
                let factor = 1.0 / (sum * y_scale);
                for (y, &x) in y.iter_mut().skip(column).step_by(inner).zip(own()) {
                    *y = code(power(most, x) * factor, y_zero);
                }
            }
        }
    })?)
}
