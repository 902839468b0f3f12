//! Convolution; its transpose in `transposed`, that along time in `causal`, that with moved taps in `deform`, f64 in
//! `wide`. Constant filters are packed ahead; a bias, a tensor that is added and an activation are taken over.

mod causal;
mod deform;
mod transposed;
mod wide;

use super::epilogue::{Finish, Takes};
use super::narrow::{Bf16, F16};
use super::quant::{ConvOfCodes, FiltersBound};
use super::window::{self, Sizes, Sliding, image};
use super::{Cpu, cost};
use crate::conv::{self, Filter, Post};
use crate::simd::Isa;
use causal::{Causal, causal};
use deform::{Deform, deform};
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::{
    Args, Around, Cost, Fault, Kernel, NodeView, Op, Pack, Parallel, Reject, Seam, Shapes, Weight, WeightSource, any,
    bytes, size, split, widened,
};
use std::sync::{Mutex, PoisonError};
use transposed::{Transposed, transposed};
use wide::{conv as conv_wide, turned};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("CausalConvWithState", (27, 27), "causalconv", any!(causal: f32)),
    Kernel::new("CausalConvWithState", (27, 27), "causalconv", widened!(Causal, causal => F16 Bf16)).fallback(),
    Kernel::new("Conv", (1, 22), "conv", any!(conv: f32)),
    Kernel::new("Conv", (1, 22), "conv", widened!(Conv, conv => F16 Bf16)).fallback(),
    Kernel::new("Conv", (1, 22), "conv", any!(conv_wide: f64)).fallback(),
    Kernel::new("ConvTranspose", (1, 22), "convtranspose", any!(transposed: f32)),
    Kernel::new("ConvTranspose", (1, 22), "convtranspose", widened!(Transposed, transposed => F16 Bf16)).fallback(),
    Kernel::new("ConvTranspose", (1, 22), "convtranspose", any!(turned: f64)).fallback(),
    Kernel::new("DeformConv", (19, 22), "deformconv", any!(deform: f32)),
    Kernel::new("DeformConv", (19, 22), "deformconv", widened!(Deform, deform => F16 Bf16)).fallback(),
];

/// Attributes, and the filter if it is packed.
pub(super) struct Conv {
    isa: Isa,
    groups: usize,
    window: Sliding,
    filter: Option<Filter>,
    pub finish: Finish,
    /// Image and filters are codes.
    codes: Option<ConvOfCodes>,
    /// Positions of the output, if they are the same in every run.
    pixels: Option<usize>,
}

/// The convolution of one shape.
#[derive(Default)]
pub(super) struct Bound {
    conv: Option<conv::Conv>,
    /// A filter that `run` has to pack.
    plain: Option<Filter>,
    codes: FiltersBound,
    flops: u64,
}

impl Op for Conv {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (window, groups) = Sliding::of_filters(node, 1)?;
        let w = node.needs(1)?;
        let sizes = (0..window.spatial).map(|d| w.fixed_dim(2 + d).map(size)).collect::<Option<Sizes>>();
        if let (Some(kernel), Some(sizes)) = (&window.kernel, &sizes)
            && kernel != sizes
        {
            return Err(Reject::attribute(format!(
                "attribute kernel_shape = {kernel:?} is not the filter's {sizes:?}"
            )));
        }
        let y = node.out()?;
        let pixels = (2..y.rank()).map(|d| y.fixed_dim(d).map(size)).product();
        let finish = Finish { bias: node.input(2).map(|_| 2), ..Finish::default() };
        Ok(Conv { isa: Cpu::of(node).isa, groups, window, filter: None, finish, codes: None, pixels })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(w), Some(y)) = (node.input(1), node.output(0)) else { return Cost::UNKNOWN };
        let filters = w.dim(0).map_or(f64::NAN, |n| n.max(1) as f64);
        cost::products(node, y.elements() * w.elements() / filters)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let ((batch, channels, input), w) = (image(shapes.input(0))?, shapes.input(1));
        let (y_batch, y_channels, output) = image(shapes.output(0))?;
        let (outs, ins, kernel) = image(w)?;
        if (y_batch, y_channels) != (batch, outs) || ins.checked_mul(self.groups) != Some(channels) {
            return Err(Fault::data(format!(
                "a filter of {w:?} in {} groups does not lead from {:?} to {:?}",
                self.groups,
                shapes.input(0),
                shapes.output(0)
            )));
        }
        let kernel: Sizes = kernel.iter().map(|&d| size(d)).collect();
        let (geometry, _) = window::geometry(&self.window, input, output, &kernel)?;
        bound.flops = 2 * (shapes.output_len(0) * ins * geometry.taps()) as u64;
        if let Some(codes) = &self.codes {
            return codes.bind(shapes, &mut bound.codes);
        }
        bound.plain = match self.filter {
            Some(_) => None,
            None => {
                let dims: Sizes = w.iter().map(|&d| size(d)).collect();
                Some(Filter::new(self.isa, &dims, self.groups, Some(geometry.outputs()))?)
            }
        };
        let filter = bound.plain.or(self.filter).ok_or_else(|| Fault::data("there is no filter"))?;
        bound.conv = Some(conv::Conv::new(&filter, batch, &geometry)?);
        Ok(())
    }

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        if let Some(codes) = &self.codes {
            return codes.scratch(&bound.codes, width);
        }
        let run = bound.conv.map_or(0, |conv| conv.scratch_len(width));
        let filter = bound.plain.map_or(0, |filter| room(&filter));
        run.saturating_add(filter).saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Bound) -> u64 {
        bound.flops
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if let Some(codes) = &mut self.codes {
            return codes.pack(input, source);
        }
        if input != 1 {
            return None;
        }
        let dims: Sizes = source.dims.iter().map(|&d| size(d)).collect();
        let filter = Filter::new(self.isa, &dims, self.groups, self.pixels).ok()?;
        let bytes = filter.size().checked_mul(size_of::<f32>())?;
        self.filter = Some(filter);
        // The layout with everything in it, as text.
        let format = fnv(fnv(FNV, b"conv filter"), format!("{filter:?}").as_bytes());
        Some(Pack { format, bytes, from_base: false })
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        if let Some(codes) = &self.codes {
            return codes.fill(weight, to, par);
        }
        let Some(filter) = &self.filter else { return Err(Fault::data("the filter was not planned")) };
        let w = weight.elements::<f32>();
        let starts: Vec<usize> = (0..=filter.pieces()).map(|k| filter.span(k..k).start).collect();
        let failed = Mutex::new(None);
        split::parts(par, bytes::elements_mut::<f32>(to), &starts, |_, pieces, dst| {
            if let Err(error) = filter.pack(&w, pieces, dst) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        })?;
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |error| Err(error.into()))
    }

    fn read_through(&mut self, node: &NodeView<'_>, around: &Around<'_>) -> u32 {
        let Some((codes, inputs)) = ConvOfCodes::of(node, around) else { return 0 };
        self.codes = Some(codes);
        inputs
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        if let Some(codes) = &mut self.codes {
            if codes.is_closed() {
                return false;
            }
            if codes.fuse(next, seam, self.finish.activation) {
                return true;
            }
        }
        let channel = if self.finish.bias.is_none() { Some(1) } else { None };
        self.finish.take(next, seam, Takes { channel, add: self.codes.is_none() })
    }
}

/// Values for a filter packed in scratch memory; the rest begins on a vector's boundary.
fn room(filter: &Filter) -> usize {
    filter.size().checked_next_multiple_of(16).unwrap_or(usize::MAX)
}

pub(super) fn conv(op: &Conv, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    if let Some(codes) = &op.codes {
        return codes.run(&bound.codes, op.finish, args);
    }
    let Some(conv) = &bound.conv else { return Err(Fault::data("it was not bound")) };
    let post = Post {
        bias: op.finish.bias.map(|i| args.input(i)),
        residual: op.finish.add.map(|i| args.input(i)),
        activation: op.finish.activation,
    };
    let (x, w, y) = (args.input::<f32>(0), args.input::<f32>(1), args.output::<f32>(0));
    let scratch = args.scratch::<f32>();
    let Some(filter) = &bound.plain else { return Ok(conv.run(x, w, &post, y, scratch, args.par())?) };
    let (packed, scratch) = scratch.split_at_mut(room(filter));
    filter.pack(w, 0..filter.pieces(), packed)?;
    Ok(conv.run(x, packed, &post, y, scratch, args.par())?)
}

#[cfg(test)]
mod tests;
