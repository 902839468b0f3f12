//! Operators: one file per family, named alike in every crate. A file holds the family's rows, what it reads of nodes, and
//! the functions that run; numeric kernels that know no operators live in `simd`, `gemm` and `conv`.

mod arg;
mod arith;
mod attention;
mod broadcast;
mod cast;
mod codes;
mod compare;
mod constant;
mod contrib;
mod conv;
mod convert;
mod cost;
mod cumulative;
mod epilogue;
mod float;
mod fold;
mod gather;
mod grid;
mod index;
mod ints;
mod join;
mod lane;
mod layout;
mod loops;
mod make;
mod matmul;
mod ml;
#[cfg(test)]
mod naive;
mod narrow;
mod norm;
mod pad;
mod pool;
mod quant;
mod random;
mod reduce;
mod rename;
mod resize;
mod rnn;
mod sample;
mod scatter;
mod sequence;
mod signal;
mod softmax;
mod spread;
mod strided;
mod taps;
#[cfg(test)]
mod testing;
mod text;
mod topk;
mod training;
mod unary;
mod unique;
mod value;
mod vision;
mod window;
mod workers;

use crate::simd::Isa;
use ortolan_ep_kit::{Kernel, NodeView};

/// The tables of all families, sorted by file name but for the last ones.
pub const FAMILIES: &[&[Kernel]] = &[
    arg::KERNELS,
    arith::KERNELS,
    attention::KERNELS,
    cast::KERNELS,
    compare::KERNELS,
    constant::KERNELS,
    contrib::KERNELS,
    conv::KERNELS,
    cumulative::KERNELS,
    gather::KERNELS,
    grid::KERNELS,
    index::KERNELS,
    join::KERNELS,
    layout::KERNELS,
    make::KERNELS,
    matmul::KERNELS,
    ml::KERNELS,
    norm::KERNELS,
    pad::KERNELS,
    pool::KERNELS,
    quant::KERNELS,
    random::KERNELS,
    reduce::KERNELS,
    resize::KERNELS,
    rnn::KERNELS,
    scatter::KERNELS,
    signal::KERNELS,
    softmax::KERNELS,
    spread::KERNELS,
    topk::KERNELS,
    training::KERNELS,
    unary::KERNELS,
    unique::KERNELS,
    vision::KERNELS,
    // Behind the rows that know dimensions before the run, and those that take plain tensors.
    rename::KERNELS,
    sequence::KERNELS,
    text::KERNELS,
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
