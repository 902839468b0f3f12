//! Tensors joined and cut along axes.

use super::moves::{Axis, onto, push, steps};
use super::{ALL, LIST, axes, input, list, on, output, told};
use crate::recipe::{Buf, Recipe};
use crate::shader::Elem;
use ortolan_ep_kit::{Cost, Fault, Kernel, NodeView, Op, Reject, Shapes, size};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Concat", (4, 13), "concat", on!(Concat)).types(&[("T", ALL)]),
    Kernel::new("Slice", (10, 13), "slice", on!(Slice)).types(&[("T", ALL), ("Tind", LIST)]).unread(&[1, 2, 3, 4]),
    Kernel::new("Split", (18, 18), "split", on!(Split)).types(&[("T", ALL)]).unread(&[1]),
];

/// Axes of a piece of a tensor: the piece is dense on one side.
fn piece(dims: &[i64], whole: &[i64]) -> Vec<Axis> {
    onto(dims, &steps(whole))
}

/// Tensors one behind the other.
#[derive(Debug)]
struct Concat {
    elem: Elem,
    axis: usize,
    count: usize,
}

impl Op for Concat {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let elem = output(node, 0)?;
        for k in 0..node.input_count() {
            input(node, k)?;
        }
        Ok(Concat { elem, axis: node.axis("axis", node.out()?.rank())?, count: node.input_count() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.03))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let y = shapes.output(0);
        let (whole, mut at) = (steps(y), 0);
        for k in 0..self.count {
            let x = shapes.input(k);
            let turned = |a: Axis| Axis { from: a.to, to: a.from, ..a };
            let axes: Vec<Axis> = piece(x, y).into_iter().map(turned).collect();
            push(recipe, self.elem, (Buf::In(k), 0), (Buf::Out(0), at * whole[self.axis]), &axes)?;
            at += x[self.axis];
        }
        match at == y[self.axis] {
            true => Ok(()),
            false => Err(Fault::data(format!("inputs have {at} rows of axis {} for {:?}", self.axis, y))),
        }
    }
}

/// A tensor cut into pieces.
#[derive(Debug)]
struct Split {
    elem: Elem,
    axis: usize,
    present: Vec<bool>,
}

impl Op for Split {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let elem = input(node, 0)?;
        let present = (0..node.output_count()).map(|k| node.output(k).is_some()).collect::<Vec<_>>();
        if let Some(k) = present.iter().position(|p| !p) {
            return Err(Reject::shape(format!("output {k} is absent, and sizes of pieces are read from all")));
        }
        Ok(Split { elem, axis: node.axis("axis", node.needs(0)?.rank())?, present })
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let x = shapes.input(0);
        let (whole, mut at) = (steps(x), 0);
        for k in 0..self.present.len() {
            let y = shapes.output(k);
            push(recipe, self.elem, (Buf::In(0), at * whole[self.axis]), (Buf::Out(k), 0), &piece(y, x))?;
            at += y[self.axis];
        }
        match at == x[self.axis] {
            true => Ok(()),
            false => Err(Fault::data(format!("outputs have {at} rows of axis {} of {x:?}", self.axis))),
        }
    }
}

/// Every so many elements between two places, per axis.
#[derive(Debug)]
struct Slice {
    elem: Elem,
}

impl Op for Slice {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (k, name) in [(1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")] {
            told(node, k, name)?;
        }
        Ok(Slice { elem: input(node, 0)? })
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, y) = (shapes.input(0), shapes.output(0));
        let starts = list(shapes, 1)?.unwrap_or_default();
        let strides = list(shapes, 4)?;
        let all: Vec<i64> = (0..starts.len() as i64).collect();
        let axes = axes(list(shapes, 3)?.unwrap_or(&all), x.len())?;
        let whole = steps(x);
        let (mut at, mut from) = (0, whole.clone());
        for (k, &axis) in axes.iter().enumerate() {
            let (Some(&start), step, dim) =
                (starts.get(k), strides.map_or(1, |s| s.get(k).copied().unwrap_or(1)), x[axis])
            else {
                return Err(Fault::data("starts and axes differ in length"));
            };
            let start = if start < 0 { start.saturating_add(dim) } else { start };
            let first = if step < 0 { start.clamp(0, (dim - 1).max(0)) } else { start.clamp(0, dim) };
            let last = first.checked_add((y[axis] - 1).max(0).saturating_mul(step));
            if step == 0 || (y[axis] > 0 && !last.is_some_and(|n| (0..dim).contains(&n))) {
                return Err(Fault::data(format!("steps of {step} from {start} leave axis {axis} of {dim} elements")));
            }
            at += first * whole[axis];
            from[axis] = whole[axis] * step;
        }
        let within = |k: usize| axes.contains(&k) || size(x[k]) == size(y[k]);
        if x.len() != y.len() || !(0..x.len()).all(within) {
            return Err(Fault::data(format!("{x:?} does not become {y:?}")));
        }
        if y.contains(&0) {
            return Ok(());
        }
        push(recipe, self.elem, (Buf::In(0), at), (Buf::Out(0), 0), &onto(y, &from))
    }
}
