//! Tensors with something around them.

use super::{ALL, LIST, axes, input, list, on, output, product, told};
use crate::recipe::{Buf, Build, Recipe, signed, word};
use crate::shader::Elem;
use ortolan_ep_kit::{Fault, Kernel, NodeView, Op, Reject, Shapes};

/// Sorted by operator.
pub const KERNELS: &[Kernel] =
    &[Kernel::new("Pad", (11, 25), "pad", on!(Pad)).types(&[("T", ALL), ("tensor(int64)", LIST)]).unread(&[1, 3])];

/// See the module.
#[derive(Debug)]
struct Pad {
    elem: Elem,
    mode: u32,
    has_value: bool,
}

const MODES: [&str; 4] = ["constant", "reflect", "edge", "wrap"];

impl Op for Pad {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        told(node, 1, "pads")?;
        told(node, 3, "axes")?;
        output(node, 0)?;
        let mode = node.text("mode").unwrap_or("constant");
        let mode = MODES
            .iter()
            .position(|m| *m == mode)
            .ok_or_else(|| Reject::attribute(format!("attribute mode = {mode} is not known")))?;
        let has_value = node.has_input(2) && mode == 0;
        if has_value {
            input(node, 2)?;
        }
        Ok(Pad { elem: input(node, 0)?, mode: mode as u32, has_value })
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, y) = (shapes.input(0), shapes.output(0));
        let pads = list(shapes, 1)?.unwrap_or_default();
        let all: Vec<i64> = (0..x.len() as i64).collect();
        let axes = axes(list(shapes, 3)?.unwrap_or(&all), x.len())?;
        if pads.len() != 2 * axes.len() {
            return Err(Fault::data(format!("there are {} pads for {} axes", pads.len(), axes.len())));
        }
        let mut before = vec![0; x.len()];
        for (&axis, &pad) in axes.iter().zip(pads) {
            before[axis] = pad;
        }
        if shapes.output_len(0) > 0 && shapes.input_len(0) == 0 && self.mode != 0 {
            return Err(Fault::data(format!("{x:?} has no elements to repeat")));
        }
        let count = shapes.output_len(0);
        let moved = self.elem.moved();
        let mut buffers = vec![(Buf::In(0), moved), (Buf::Out(0), moved)];
        let value = if self.has_value { "get2(0u)" } else { "ZERO" };
        if self.has_value {
            buffers.push((Buf::In(2), moved));
        }
        let mut params = vec![word(count)?, word(x.len())?, self.mode, 0];
        for k in 0..x.len() {
            params.extend([word(y[k])?, word(x[k])?, signed(before[k])?, word(product(&x[k + 1..]))?]);
        }
        let value = value.replace("ZERO", &format!("{}(0)", moved.computed()));
        let template = include_str!("../shaders/pad.wgsl");
        recipe.each(Build { name: "pad", template, buffers, places: vec![("value", value)], params }, count as u64)
    }
}
