//! Convolution: pointwise ones are products of matrices, others gather their window as they go. A bias and what follows
//! element by element are taken along.

use super::elementwise::append;
use super::matmul::Product;
use super::window::{Geometry, small};
use super::{FLOATS, Settings, input, on, output, product};
use crate::chain::Chain;
use crate::recipe::{Buf, Build, Recipe, word};
use crate::shader::Elem;
use ortolan_ep_kit::window::{Sizes, Sliding};
use ortolan_ep_kit::{Cost, Fault, Kernel, NodeView, Op, Reject, Seam, Shapes, size};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Conv", (1, 22), "conv", on!(Conv)).types(&[("T", FLOATS)]),
    Kernel::new("ConvTranspose", (1, 22), "convtranspose", on!(Transposed)).types(&[("T", FLOATS)]),
];

/// What both directions read of a node.
#[derive(Debug)]
struct Filters {
    window: Sliding,
    groups: i64,
    elems: Vec<Elem>,
    chain: Chain,
    tiles: bool,
}

impl Filters {
    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (window, groups) = Sliding::of_filters(node, 1)?;
        let groups = i32::try_from(groups).map_err(|_| Reject::attribute(format!("attribute group is {groups}")))?;
        let count = if node.has_input(2) { 3 } else { 2 };
        Ok(Filters {
            window: small(window)?,
            groups: groups.into(),
            elems: (0..count).map(|k| input(node, k)).collect::<Result<_, _>>()?,
            chain: Chain::identity(output(node, 0)?),
            tiles: Settings::of(node).tiles,
        })
    }

    fn cost(&self, node: &NodeView<'_>, pixels: usize) -> Cost {
        let (Some(w), Some(y)) = (node.input(1), if pixels == 0 { node.output(0) } else { node.input(0) }) else {
            return Cost::UNKNOWN;
        };
        let filters = w.dim(0).map_or(f64::NAN, |n| n.max(1) as f64);
        Cost::ns(y.elements() * w.elements() / filters * 0.004)
    }

    /// Buffers: x, w, y, then the bias if there is one.
    fn buffers(&self) -> Vec<(Buf, Elem)> {
        let mut buffers =
            vec![(Buf::In(0), self.elems[0]), (Buf::In(1), self.elems[1]), (Buf::Out(0), self.chain.output())];
        buffers.extend(self.elems.get(2).map(|&e| (Buf::In(2), e)));
        buffers
    }

    fn bias(&self) -> String {
        if self.elems.len() == 3 { "get3(c)" } else { "0.0" }.to_owned()
    }
}

/// See the module.
#[derive(Debug)]
struct Conv(Filters);

impl Op for Conv {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Filters::parse(node).map(Conv)
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.0.cost(node, 0)
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (op, x, w, y) = (&self.0, shapes.input(0), shapes.input(1), shapes.output(0));
        let geometry = Geometry::new(&op.window, &x[2..], &y[2..], &w[2..])?;
        let (ins, outs) = (w[1], w[0] / op.groups);
        if x[1] != ins * op.groups || y[1] != w[0] || w[0] % op.groups != 0 || x[0] != y[0] {
            return Err(Fault::data(format!(
                "a filter of {w:?} in {} groups does not lead from {x:?} to {y:?}",
                op.groups
            )));
        }
        let pixels = product(&y[2..]);
        if geometry.is_pointwise() && op.groups == 1 {
            let plane = pixels as i64;
            let product = Product {
                sizes: [outs as u64, pixels, ins as u64],
                steps: [ins, 1, plane, 1],
                batch: vec![(x[0], 0, ins * plane)],
                left: (Buf::In(1), op.elems[1]),
                right: (Buf::In(0), op.elems[0]),
                row_bias: op.elems.get(2).map(|&e| (Buf::In(2), e)),
                chain: &op.chain,
                tiles: op.tiles,
            };
            return product.push(shapes, recipe);
        }
        let taps = product(&w[2..]).saturating_mul(ins as u64);
        recipe.flops = (2 * shapes.output_len(0) as u64).saturating_mul(taps);
        let depthwise = outs == 1;
        let mut params = vec![word(x[0])?, word(op.groups)?, word(ins)?, word(outs)?];
        params.extend(geometry.params()?);
        // Threads side by side over pixels, 4 each; the rest of a workgroup's 64 is stacked over channels, 4 each.
        let beside = pixels.div_ceil(4).next_power_of_two().clamp(4, 64);
        params.push(word(beside)?);
        let mut buffers = op.buffers();
        let end = op.chain.end(shapes, buffers.len(), &mut params)?;
        buffers.extend(end.buffers);
        let (name, body) = match depthwise {
            true => {
                let body =
                    concat!(include_str!("../shaders/taps.wgsl"), include_str!("../shaders/conv_depthwise.wgsl"));
                ("conv_depthwise", body)
            }
            false => ("conv", include_str!("../shaders/conv.wgsl")),
        };
        let template = format!("{}{body}", include_str!("../shaders/window.wgsl"));
        let places = vec![("chain", end.text), ("bias", op.bias())];
        let build = Build { name, template: &template, buffers, places, params };
        let planes = (x[0] * op.groups) as u64;
        match depthwise {
            true => recipe.each(build, planes * pixels),
            false => recipe.grid(build, [pixels.div_ceil(4 * beside), (outs as u64).div_ceil(4 * 64 / beside), planes]),
        }
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        append(&mut self.0.chain, next, seam, 4)
    }
}

/// The transpose of a convolution: each output gathers the inputs that reach it.
#[derive(Debug)]
struct Transposed {
    filters: Filters,
    sized: bool,
    output_padding: Sizes,
}

impl Op for Transposed {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let filters = Filters::parse(node)?;
        let spatial = node.needs(0)?.rank() - 2;
        let output_padding = node.ints("output_padding").map_or_else(|| vec![0; spatial], <[i64]>::to_vec);
        if output_padding.len() != spatial || output_padding.iter().any(|n| *n < 0) {
            return Err(Reject::attribute(format!(
                "attribute output_padding = {output_padding:?} has no size per dimension"
            )));
        }
        let sized = node.ints("output_shape").is_some_and(|s| !s.is_empty());
        Ok(Transposed { filters, sized, output_padding: output_padding.iter().map(|&n| size(n)).collect() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.filters.cost(node, 1)
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (op, x, w, y) = (&self.filters, shapes.input(0), shapes.input(1), shapes.output(0));
        let geometry = Geometry::transposed(&op.window, &x[2..], &y[2..], &w[2..], &self.output_padding, self.sized)?;
        let (ins, outs) = (w[0] / op.groups, w[1]);
        if x[1] != w[0] || y[1] != outs * op.groups || w[0] % op.groups != 0 || x[0] != y[0] {
            return Err(Fault::data(format!(
                "a filter of {w:?} in {} groups does not lead from {x:?} to {y:?}",
                op.groups
            )));
        }
        let taps = product(&w[2..]).saturating_mul(outs as u64);
        recipe.flops = (2 * shapes.input_len(0) as u64).saturating_mul(taps);
        let mut params = vec![word(x[0])?, word(op.groups)?, word(ins)?, word(outs)?];
        params.extend(geometry.params()?);
        let mut buffers = op.buffers();
        let end = op.chain.end(shapes, buffers.len(), &mut params)?;
        buffers.extend(end.buffers);
        let template = concat!(include_str!("../shaders/window.wgsl"), include_str!("../shaders/conv_transposed.wgsl"));
        let places = vec![("chain", end.text), ("bias", op.bias())];
        let build = Build { name: "conv_transposed", template, buffers, places, params };
        recipe.each(build, shapes.output_len(0) as u64)
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        append(&mut self.filters.chain, next, seam, 4)
    }
}
