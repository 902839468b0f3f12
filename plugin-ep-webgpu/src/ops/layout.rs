//! Operators that move elements or only rename dimensions.

use super::moves::{onto, push, steps};
use super::{ALL, input, on, output};
use crate::recipe::{Buf, Recipe};
use crate::shader::Elem;
use ortolan_ep_kit::{Cost, Fault, Kernel, NodeView, Op, Reject, Shapes, resolve_axis};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("DepthToSpace", (1, 28), "depthtospace", on!(Blocks)).types(&[("T", ALL)]),
    Kernel::new("Dropout", (12, 22), "dropout", on!(Kept)).types(&[("T", ALL)]).unread(&[1, 2]).view(),
    Kernel::new("Flatten", (1, 25), "flatten", on!(View)).types(&[("T", ALL)]).view(),
    Kernel::new("Identity", (1, 25), "identity", on!(View)).types(&[("T", ALL)]).view(),
    Kernel::new("Reshape", (5, 25), "reshape", on!(View)).types(&[("T", ALL)]).unread(&[1]).view(),
    Kernel::new("SpaceToDepth", (1, 28), "spacetodepth", on!(Blocks)).types(&[("T", ALL)]),
    Kernel::new("Squeeze", (1, 25), "squeeze", on!(View)).types(&[("T", ALL)]).unread(&[1]).view(),
    Kernel::new("Transpose", (1, 25), "transpose", on!(Transpose)).types(&[("T", ALL)]),
    Kernel::new("Unsqueeze", (1, 25), "unsqueeze", on!(View)).types(&[("T", ALL)]).unread(&[1]).view(),
];

/// Another shape for the same bytes.
#[derive(Debug)]
struct View;

impl Op for View {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        input(node, 0)?;
        output(node, 0)?;
        Ok(View)
    }

    fn cost(&self, _: &NodeView<'_>) -> Cost {
        Cost::ns(0.0)
    }
}

/// Dropout that drops nothing.
#[derive(Debug)]
struct Kept;

impl Op for Kept {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        if node.has_input(2) {
            return Err(Reject::shape("input 2 (training_mode) is there; only inference is done"));
        }
        if node.output(1).is_some() {
            return Err(Reject::shape("output 1 (mask) is asked for"));
        }
        View::parse(node).map(|View| Kept)
    }

    fn cost(&self, _: &NodeView<'_>) -> Cost {
        Cost::ns(0.0)
    }
}

/// `y[i] = x[i in another order of axes]`
#[derive(Debug)]
struct Transpose {
    elem: Elem,
    perm: Vec<usize>,
}

impl Op for Transpose {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        let perm: Option<Vec<usize>> = match node.ints("perm") {
            Some(perm) => perm.iter().map(|&k| resolve_axis(k, rank)).collect(),
            None => Some((0..rank).rev().collect()),
        };
        let is_order = |perm: &Vec<usize>| (0..rank).all(|k| perm.contains(&k)) && perm.len() == rank;
        let perm = perm.filter(is_order).ok_or_else(|| {
            Reject::attribute(format!("attribute perm = {:?} is no order of {rank} axes", node.ints("perm")))
        })?;
        Ok(Transpose { elem: input(node, 0)?, perm })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.04))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let from = steps(shapes.input(0));
        let turned: Vec<i64> = self.perm.iter().map(|&k| from[k]).collect();
        push(recipe, self.elem, (Buf::In(0), 0), (Buf::Out(0), 0), &onto(shapes.output(0), &turned))
    }
}

/// DepthToSpace and SpaceToDepth: axes split and turned.
#[derive(Debug)]
struct Blocks {
    elem: Elem,
    block: i64,
    /// Depth becomes space.
    spreads: bool,
    /// Channels come before blocks in the depth.
    channels_first: bool,
}

impl Op for Blocks {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        let block = node.int("blocksize")?;
        if rank != 4 {
            return Err(Reject::rank(format!("input 0 has rank {rank}, 4 is needed")));
        }
        if block < 1 {
            return Err(Reject::attribute(format!("attribute blocksize = {block} is not positive")));
        }
        let spreads = node.op() == "DepthToSpace";
        let channels_first = match node.text("mode").unwrap_or("DCR") {
            "CRD" => true,
            "DCR" => false,
            other => return Err(Reject::attribute(format!("attribute mode = {other} is not known"))),
        };
        Ok(Blocks { elem: input(node, 0)?, block, spreads, channels_first })
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, y, b) = (shapes.input(0), shapes.output(0), self.block);
        // The side in which depth holds blocks: batch, channels, blocks down, blocks across, height, width.
        let (deep, wide) = if self.spreads { (x, y) } else { (y, x) };
        let [n, c, h, w] = *wide else { return Err(Fault::data("it needs four dimensions")) };
        if deep != [n, c * b * b, h / b, w / b] || h % b != 0 || w % b != 0 {
            return Err(Fault::data(format!("{x:?} does not become {y:?} in blocks of {b}")));
        }
        let (d, s) = (steps(deep), steps(wide));
        let plane = d[1];
        let deep_steps = match self.channels_first {
            true => [d[0], plane * b * b, plane * b, plane, d[2], d[3]],
            false => [d[0], plane, plane * c * b, plane * c, d[2], d[3]],
        };
        let wide_steps = [s[0], s[1], s[2], s[3], s[2] * b, s[3] * b];
        let lens = [n, c, b, b, h / b, w / b];
        let (from, to) = if self.spreads { (deep_steps, wide_steps) } else { (wide_steps, deep_steps) };
        let axes: Vec<super::moves::Axis> = (0..6)
            .map(|k| super::moves::Axis { len: ortolan_ep_kit::size(lens[k]), from: from[k], to: to[k] })
            .collect();
        push(recipe, self.elem, (Buf::In(0), 0), (Buf::Out(0), 0), &axes)
    }
}
