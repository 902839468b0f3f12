//! What the tests of operators share: cases on every instruction set, and definitions to compare with.

use super::{Cpu, FAMILIES};
use crate::simd::Isa;
use ortolan_ep_kit::testing::{OpTest, Tensor};
use ortolan_ep_kit::{Element, Kit};

/// A node on this plugin's tables.
pub(crate) struct Case;

impl Case {
    /// On the best instruction set.
    #[expect(clippy::new_ret_no_self, reason = "a shorter name for a test of the kit")]
    pub fn new(op: &str, version: u32) -> OpTest {
        Self::on(Isa::best(), op, version)
    }

    /// On an instruction set.
    pub fn on(isa: Isa, op: &str, version: u32) -> OpTest {
        OpTest::with(Kit::new(FAMILIES, isa.name(), Cpu { isa }), op, version)
    }
}

/// Runs a check on every instruction set of the machine, with one thread and with three.
pub(crate) fn on_all(op: &str, version: u32, check: impl Fn(OpTest)) {
    for isa in Isa::available() {
        for width in [1, 3] {
            check(Case::on(isa, op, version).width(width));
        }
    }
}

/// `f` over two tensors broadcast to a shape, from the definition.
pub(crate) fn broadcast<T: Element, R: Element>(dims: &[i64], a: &Tensor, b: &Tensor, f: impl Fn(T, T) -> R) -> Tensor {
    let (x, y) = (a.to_vec::<T>(), b.to_vec::<T>());
    Tensor::from_fn(dims, |k| f(x[offset(dims, &a.dims, k)], y[offset(dims, &b.dims, k)]))
}

/// Position of an operand's element under element `at` of a shape that it is broadcast to.
pub(crate) fn offset(output: &[i64], dims: &[i64], mut at: usize) -> usize {
    let (mut offset, mut reach) = (0, 1);
    for k in 0..output.len() {
        let len = output[output.len() - 1 - k] as usize;
        let index = at % len;
        at /= len;
        if k < dims.len() {
            let dim = dims[dims.len() - 1 - k] as usize;
            if dim != 1 {
                offset += index * reach;
            }
            reach *= dim;
        }
    }
    offset
}
