//! Pooling: the greatest or the mean value of each window, or of each whole image.

use super::window::{Geometry, small, wide};
use super::{FLOATS, input, on, output, product};
use crate::recipe::{Buf, Build, Recipe, word};
use crate::shader::Elem;
use ortolan_ep_kit::window::Sliding;
use ortolan_ep_kit::{Cost, Fault, Kernel, NodeView, Op, Reject, Shapes};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("AveragePool", (7, 22), "averagepool", on!(Pool)).types(&[("T", FLOATS)]),
    Kernel::new("GlobalAveragePool", (1, 22), "globalaveragepool", on!(Pool)).types(&[("T", FLOATS)]),
    Kernel::new("GlobalMaxPool", (1, 22), "globalmaxpool", on!(Pool)).types(&[("T", FLOATS)]),
    Kernel::new("MaxPool", (8, 22), "maxpool", on!(Pool)).types(&[("T", FLOATS)]),
];

/// See the module.
#[derive(Debug)]
struct Pool {
    elem: Elem,
    /// `None`: the whole image.
    window: Option<Sliding>,
    average: bool,
    include_pad: bool,
}

impl Op for Pool {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        if rank < 3 {
            return Err(Reject::rank(format!("input 0 has rank {rank}: there are no spatial dimensions")));
        }
        if node.output(1).is_some() {
            return Err(Reject::shape("output 1 (indices) is asked for"));
        }
        let global = matches!(node.op(), "GlobalAveragePool" | "GlobalMaxPool");
        let window = if global { None } else { Some(small(Sliding::parse(node, rank - 2)?)?) };
        if window.as_ref().is_some_and(|w| w.kernel.is_none()) {
            return Err(Reject::attribute("attribute kernel_shape is missing"));
        }
        output(node, 0)?;
        let average = matches!(node.op(), "AveragePool" | "GlobalAveragePool");
        let include_pad = node.int_if("count_include_pad").is_some_and(|n| n != 0);
        Ok(Pool { elem: input(node, 0)?, window, average, include_pad })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.input(0).map_or(f64::NAN, |x| x.elements() * 0.05))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, y) = (shapes.input(0), shapes.output(0));
        if x.len() != y.len() || x[..2] != y[..2] {
            return Err(Fault::data(format!("{x:?} does not become {y:?}")));
        }
        if product(&x[2..]) == 0 && product(y) > 0 {
            return Err(Fault::data(format!("images of {x:?} have no pixels")));
        }
        let count = shapes.output_len(0) as u64;
        let mut params = vec![word(count)?, 0, 0, 0];
        match &self.window {
            Some(window) => {
                let kernel: Vec<i64> = window.kernel.iter().flatten().map(|&n| wide(n)).collect();
                params.extend(Geometry::new(window, &x[2..], &y[2..], &kernel)?.params()?);
            }
            None => {
                let plane = word(product(&x[2..]))?;
                params.extend([1, 1, plane, 1, 1, 1, 1, 1, plane, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
            }
        }
        let build = Build {
            name: "pool",
            template: concat!(include_str!("../shaders/taps.wgsl"), include_str!("../shaders/pool.wgsl")),
            buffers: vec![(Buf::In(0), self.elem), (Buf::Out(0), self.elem)],
            places: vec![("average", self.average.to_string()), ("include_pad", self.include_pad.to_string())],
            params,
        };
        recipe.each(build, count)
    }
}
