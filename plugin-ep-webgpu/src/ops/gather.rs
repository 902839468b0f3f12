//! Elements picked by indices, which the host reads and checks before the device sees them.

use super::{ALL, LIST, input, on, output, product};
use crate::recipe::{Buf, Build, Recipe, word};
use crate::shader::Elem;
use ortolan_ep_kit::{Cost, Fault, Kernel, NodeView, Op, Reject, Shapes};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Gather", (1, 13), "gather", on!(Gather)).types(&[("T", ALL), ("Tind", LIST)]),
    Kernel::new("GatherElements", (11, 13), "gatherelements", on!(Gather)).types(&[("T", ALL), ("Tind", LIST)]),
];

/// Gather takes whole slices, GatherElements single elements.
#[derive(Debug)]
struct Gather {
    elem: Elem,
    axis: usize,
    singles: bool,
}

impl Op for Gather {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        node.needs(1)?;
        output(node, 0)?;
        Ok(Gather { elem: input(node, 0)?, axis: node.axis("axis", x.rank())?, singles: node.op() == "GatherElements" })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.03))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, index) = (shapes.input(0), shapes.input(1));
        let dim = x[self.axis];
        let count = shapes.output_len(0);
        let list = recipe.host(1, dim);
        let moved = self.elem.moved();
        let buffers = vec![(Buf::In(0), moved), (list, Elem::I32), (Buf::Out(0), moved)];
        let mut params = vec![word(count)?, word(dim)?];
        let (name, template) = match self.singles {
            false => {
                params.extend([word(product(&x[self.axis + 1..]))?, word(product(index))?]);
                ("gather", include_str!("../shaders/gather.wgsl"))
            }
            true => {
                if index.len() != x.len() || (0..x.len()).any(|k| k != self.axis && index[k] > x[k]) {
                    return Err(Fault::data(format!("indices of {index:?} do not lie in {x:?}")));
                }
                params.extend([word(x.len())?, word(self.axis)?]);
                for k in 0..x.len() {
                    params.extend([word(index[k])?, word(product(&x[k + 1..]))?]);
                }
                ("gatherelements", include_str!("../shaders/gather_elements.wgsl"))
            }
        };
        recipe.each(Build { name, template, buffers, places: Vec::new(), params }, count as u64)
    }
}
