//! Tensors repeated along axes, and triangles of matrices.

use super::moves::{Axis, onto, push, steps};
use super::{ALL, LIST, input, list, on, output, told};
use crate::chain::broadcast;
use crate::recipe::{Buf, Build, Recipe, signed, word};
use crate::shader::Elem;
use ortolan_ep_kit::{Fault, Kernel, NodeView, Op, Reject, Shapes, size};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Expand", (8, 13), "expand", on!(Expand)).types(&[("T", ALL)]).unread(&[1]),
    Kernel::new("Tile", (6, 13), "tile", on!(Tile)).types(&[("T", ALL), ("T1", LIST)]).unread(&[1]),
    Kernel::new("Trilu", (14, 14), "trilu", on!(Trilu)).types(&[("T", ALL)]).unread(&[1]),
];

/// Broadcasting.
#[derive(Debug)]
struct Expand(Elem);

impl Op for Expand {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        output(node, 0)?;
        Ok(Expand(input(node, 0)?))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let y = shapes.output(0);
        let from = broadcast(y, shapes.input(0))?;
        push(recipe, self.0, (Buf::In(0), 0), (Buf::Out(0), 0), &onto(y, &from))
    }
}

/// Whole repetitions.
#[derive(Debug)]
struct Tile(Elem);

impl Op for Tile {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        output(node, 0)?;
        Ok(Tile(input(node, 0)?))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, y) = (shapes.input(0), shapes.output(0));
        let (from, to) = (steps(x), steps(y));
        let mut axes = Vec::new();
        for k in 0..x.len() {
            if x[k] == 0 {
                return Ok(());
            }
            axes.push(Axis { len: size(y[k] / x[k]), from: 0, to: to[k] * x[k] });
            axes.push(Axis { len: size(x[k]), from: from[k], to: to[k] });
        }
        push(recipe, self.0, (Buf::In(0), 0), (Buf::Out(0), 0), &axes)
    }
}

/// One side of a diagonal is kept, the rest is zero.
#[derive(Debug)]
struct Trilu {
    elem: Elem,
    upper: bool,
}

impl Op for Trilu {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        told(node, 1, "k")?;
        Ok(Trilu { elem: input(node, 0)?, upper: node.int("upper")? != 0 })
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let [.., rows, columns] = *shapes.output(0) else { return Err(Fault::data("input 0 is no matrix")) };
        let k = list(shapes, 1)?.and_then(|l| l.first().copied()).unwrap_or(0);
        let k = k.clamp(-rows, columns);
        let count = shapes.output_len(0);
        let moved = self.elem.moved();
        let build = Build {
            name: "trilu",
            template: include_str!("../shaders/trilu.wgsl"),
            buffers: vec![(Buf::In(0), moved), (Buf::Out(0), moved)],
            places: vec![("type", moved.computed().to_owned())],
            params: vec![word(count)?, word(rows)?, word(columns)?, signed(k)?, u32::from(self.upper)],
        };
        recipe.each(build, count as u64)
    }
}
