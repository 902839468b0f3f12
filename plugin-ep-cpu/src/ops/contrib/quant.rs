//! Operators on codes of 8 bits: products in `matmul` and `gemm`, functions of one or two codes in `element`, of rows in
//! `softmax`, of windows in `pool`.

pub(super) mod element;
pub(super) mod gemm;
pub(super) mod join;
pub(super) mod matmul;
pub(super) mod pool;
pub(super) mod softmax;

use crate::ops::float::agree;
use crate::ops::quant::Code;
use ortolan_ep_kit::{Args, Fault, NodeView, Reject, Shapes};

/// Inputs of a scale and of its zero point, which may be absent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantity {
    pub scale: usize,
    pub zero: usize,
}

impl Quantity {
    pub const fn at(scale: usize) -> Quantity {
        Quantity { scale, zero: scale + 1 }
    }

    /// The scale is there, and the zero point has the type of the codes.
    pub fn check(self, node: &NodeView<'_>, codes: usize) -> Result<(), Reject> {
        node.needs(self.scale)?;
        let code = node.needs(codes)?.dtype();
        match node.input(self.zero) {
            Some(zero) if zero.dtype() as u32 != code as u32 => {
                Err(Reject::dtype(format!("input {} is {}, not {code} as its codes are", self.zero, zero.dtype())))
            }
            _ => Ok(()),
        }
    }

    /// Both have one element.
    pub fn bind(self, shapes: &Shapes<'_>) -> Result<(), Fault> {
        agree("a scale", shapes.input_len(self.scale), 1)?;
        if shapes.has(self.zero) { agree("a zero point", shapes.input_len(self.zero), 1) } else { Ok(()) }
    }

    pub fn read<T: Code>(self, args: &Args<'_>) -> (f32, i32) {
        let zero = args.input_if::<T>(self.zero).map_or(0, |zero| zero[0].wide());
        (args.input::<f32>(self.scale)[0], zero)
    }
}
