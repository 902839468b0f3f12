//! What a product or convolution takes over of the nodes behind it: a bias, another tensor, an activation.

use crate::gemm::{Activation, Add, Bias, Epilogue};
use ortolan_ep_kit::{Args, DType, NodeView, Seam, ValueView};

/// What happens to a result before it is written. Positions are among the node's inputs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Finish {
    /// A value per channel.
    pub bias: Option<usize>,
    /// A tensor of the output's shape.
    pub add: Option<usize>,
    /// Applied last.
    pub activation: Activation,
}

/// What a node can take over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takes {
    /// Axis of the output along which a bias lies; `None` if there is a bias already, or none is done.
    pub channel: Option<usize>,
    /// Whether another tensor can be added.
    pub add: bool,
}

impl Finish {
    /// Takes over the next node if it fits.
    pub fn take(&mut self, next: &NodeView<'_>, seam: Seam, takes: Takes) -> bool {
        if self.activation != Activation::None {
            return false;
        }
        if next.op() != "Add" {
            self.activation = activation(next).unwrap_or_default();
            return self.activation != Activation::None;
        }
        let (Some(other), Some(out)) = (next.input(1 - seam.input.min(1)), next.output(0)) else { return false };
        if other.dtype() as u32 != DType::F32 as u32 {
            return false;
        }
        let channel = takes.channel.filter(|_| self.bias.is_none());
        if channel.is_some_and(|axis| is_bias(&other, &out, axis)) {
            self.bias = Some(seam.extra);
            return true;
        }
        if takes.add && self.add.is_none() && other.same_dims(&out) {
            self.add = Some(seam.extra);
            return true;
        }
        false
    }

    /// The epilogue of a product with N columns, whose bias is per column.
    pub fn of_columns<'a>(&self, args: &Args<'a>, n: usize) -> Epilogue<'a> {
        Epilogue {
            bias: self.bias.map_or(Bias::None, |i| Bias::PerColumn(args.input(i))),
            add: self.add.map_or(Add::None, |i| Add::Matrix { data: args.input(i), row_step: n, scale: 1.0 }),
            activation: self.activation,
        }
    }
}

/// Whether a tensor has one value for each index of an axis of the output and broadcasts along all others.
fn is_bias(value: &ValueView<'_>, out: &ValueView<'_>, axis: usize) -> bool {
    let Some(before) = out.rank().checked_sub(value.rank()) else { return false };
    axis >= before
        && (0..value.rank())
            .all(|k| if before + k == axis { value.same_dim(k, out, axis) } else { value.fixed_dim(k) == Some(1) })
}

/// The activation that a node is.
fn activation(node: &NodeView<'_>) -> Option<Activation> {
    let float = |name| node.float(name).ok();
    match node.op() {
        "Clip" => {
            Some(Activation::Clip { low: bound(node, 1, f32::NEG_INFINITY)?, high: bound(node, 2, f32::INFINITY)? })
        }
        "Gelu" if node.text("approximate") == Some("tanh") => Some(Activation::GeluTanh),
        "Gelu" => Some(Activation::Gelu),
        "Relu" => Some(Activation::Relu),
        "Sigmoid" => Some(Activation::Sigmoid),
        "Tanh" => Some(Activation::Tanh),
        "HardSwish" => Some(Activation::HardSwish),
        "LeakyRelu" => Some(Activation::LeakyRelu(float("alpha")?)),
        "HardSigmoid" => Some(Activation::HardSigmoid { alpha: float("alpha")?, beta: float("beta")? }),
        _ => None,
    }
}

/// A bound that is the same in every run, or is left out.
fn bound(node: &NodeView<'_>, input: usize, none: f32) -> Option<f32> {
    match node.input(input) {
        None => Some(none),
        Some(value) => value.fixed_floats()?.first().copied(),
    }
}
