//! Softmax along an axis: a workgroup per row.

use super::{FLOATS, input, on, output, product};
use crate::recipe::{Buf, Build, Recipe, word};
use crate::shader::Elem;
use ortolan_ep_kit::{Cost, Fault, Kernel, NodeView, Op, Reject, Shapes};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("LogSoftmax", (13, 13), "logsoftmax", on!(Softmax)).types(&[("T", FLOATS)]),
    Kernel::new("Softmax", (13, 13), "softmax", on!(Softmax)).types(&[("T", FLOATS)]),
];

/// See the module.
#[derive(Debug)]
struct Softmax {
    elem: Elem,
    axis: usize,
    logarithm: bool,
}

impl Op for Softmax {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        output(node, 0)?;
        Ok(Softmax { elem: input(node, 0)?, axis: node.axis("axis", x.rank())?, logarithm: node.op() == "LogSoftmax" })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.1))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let x = shapes.input(0);
        let (outer, len, inner) =
            (product(&x[..self.axis]), product(&x[self.axis..=self.axis]), product(&x[self.axis + 1..]));
        let rows = if len == 0 { 0 } else { outer * inner };
        let result = if self.logarithm { "x - m - log(s)" } else { "exp(x - m) / s" };
        let build = Build {
            name: "softmax",
            template: include_str!("../shaders/softmax.wgsl"),
            buffers: vec![(Buf::In(0), self.elem), (Buf::Out(0), self.elem)],
            places: vec![("result", result.to_owned())],
            params: vec![word(rows)?, word(len)?, word(inner)?],
        };
        recipe.groups(build, rows)
    }
}
