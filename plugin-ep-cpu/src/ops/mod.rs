//! Operators: one file per family, named alike in every crate. A file holds the family's rows, what it reads of nodes, and
//! the functions that run; numeric kernels that know no operators live in `simd`, `gemm` and `conv`.

mod arith;
mod broadcast;
mod constant;
mod conv;
mod cost;
mod epilogue;
mod lane;
mod layout;
mod matmul;
mod pool;
mod softmax;
#[cfg(test)]
mod testing;
mod unary;
mod window;

use crate::simd::Isa;
use ortolan_ep_kit::{Kernel, NodeView};

/// The tables of all families, sorted by file name.
pub const FAMILIES: &[&[Kernel]] = &[
    arith::KERNELS,
    constant::KERNELS,
    conv::KERNELS,
    layout::KERNELS,
    matmul::KERNELS,
    pool::KERNELS,
    softmax::KERNELS,
    unary::KERNELS,
];

/// What a session's options say to kernels; the kit's context.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    /// Instruction set of the kernels.
    pub isa: Isa,
}

impl Cpu {
    /// The session's settings; plain Rust outside of this plugin.
    fn of(node: &NodeView<'_>) -> Cpu {
        node.context().copied().unwrap_or(Cpu { isa: Isa::scalar() })
    }
}

/// Elements that a worker takes at a time when an operation costs about as much as reading its operands.
const GRAIN: usize = 1 << 14;
