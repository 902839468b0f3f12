//! The one operator type of all element-wise families: a chain of functions in one kernel.

use super::{arith, cast, compare, unary};
use crate::chain::{Chain, Function};
use crate::pipeline::MOST_BUFFERS;
use crate::recipe::{Buf, Build, Recipe, word};
use ortolan_ep_kit::{Cost, Fault, NodeView, Op, Reject, Seam, Shapes};

/// Reads a node as a function of its inputs.
pub type Read = fn(&NodeView<'_>) -> Result<Function, Reject>;

/// Element-wise nodes, one behind the other.
#[derive(Debug)]
pub struct Elementwise {
    chain: Chain,
}

/// A node as a function, if its operator is element-wise.
pub fn function(node: &NodeView<'_>) -> Result<Function, Reject> {
    let tables = [arith::FUNCTIONS, cast::FUNCTIONS, compare::FUNCTIONS, unary::FUNCTIONS];
    let read = tables.iter().copied().flatten().find(|(op, _)| *op == node.op()).map(|(_, read)| *read);
    let read = read.filter(|_| node.raw().domain().is_empty());
    read.ok_or_else(|| Reject::operator("it is not element-wise"))?(node)
}

/// Puts `next` behind a chain that ends a kernel with `buffers` buffers of its own.
pub fn append(chain: &mut Chain, next: &NodeView<'_>, seam: Seam, buffers: usize) -> bool {
    let absent = (0..next.input_count()).any(|k| !next.has_input(k));
    match function(next) {
        Ok(function) if !absent && function.inputs.len() == next.input_count() => {
            chain.then(&function, seam.input, seam.extra, MOST_BUFFERS - buffers)
        }
        _ => false,
    }
}

impl Op for Elementwise {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let function = function(node)?;
        if function.inputs.len() >= MOST_BUFFERS {
            let text =
                format!("{} inputs are more than the {} that a shader binds", function.inputs.len(), MOST_BUFFERS - 1);
            return Err(Reject::shape(text));
        }
        Ok(Elementwise { chain: Chain::of(function) })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.02))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let count = shapes.output_len(0) as u64;
        let mut params = vec![word(count)?];
        let bound = self.chain.whole(shapes, &mut params)?;
        let mut buffers = bound.buffers;
        let place = buffers.len();
        buffers.push((Buf::Out(0), self.chain.output()));
        let build = Build {
            name: "elementwise",
            template: include_str!("../shaders/elementwise.wgsl"),
            buffers,
            places: vec![("chain", bound.text), ("out", place.to_string())],
            params,
        };
        recipe.each(build, count)
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        append(&mut self.chain, next, seam, 2)
    }
}
