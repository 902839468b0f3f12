//! Forward convolution and pooling of f32 images in one to three dimensions, channels first.
//!
//! A [`Filter`] is packed once, knowing only the filter's shape; a [`Conv`] adds batch and [`Geometry`] and is plain data,
//! made once per binding. Groups, dilations, strides and padding are free; bias, a residual and an activation are fused.
//! Most filters run as a matrix product whose right side is copied together from the image panel by panel (`pixels`),
//! depthwise ones plane by plane (`plane`). It must not know operators or attributes.

mod depthwise;
mod filter;
mod geometry;
mod pixels;
mod plane;
mod pool;
#[cfg(test)]
mod tests;
mod turn;

use depthwise::Depthwise;
pub(crate) use depthwise::Weighted;
pub use filter::Filter;
use filter::Way;
pub(crate) use filter::shape as filter_shape;
pub use geometry::{Geometry, Window};
use ortolan_ep_kit::parallel::{Parallel, Serial};
use pixels::Pixels;
pub(crate) use plane::Sweep;
pub use pool::{Pool, Pooling, max_pool_with_indices};

use crate::gemm::{Activation, Add, Bias, Epilogue, Gemm, KernelError, Lhs, Mat, Rhs, Target, enough};

/// A convolution of one shape.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    filter: Filter,
    geometry: Geometry,
    batch: usize,
}

/// What happens to a convolution before it is written: `y = activation(conv + bias + residual)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Post<'a> {
    /// A value for each output channel.
    pub bias: Option<&'a [f32]>,
    /// A tensor of the output's shape.
    pub residual: Option<&'a [f32]>,
    /// Applied last.
    pub activation: Activation,
}

impl Conv {
    /// A convolution of `batch` images.
    ///
    /// # Errors
    /// The geometry's kernel is not the filter's.
    pub fn new(filter: &Filter, batch: usize, geometry: &Geometry) -> Result<Self, KernelError> {
        if geometry.kernel != filter.kernel {
            return Err(KernelError::Shape("the window is not of the filter's size"));
        }
        Ok(Conv { filter: *filter, geometry: *geometry, batch })
    }

    /// Values of scratch that [`run`](Self::run) needs with up to `width` threads; `usize::MAX` when there is no such
    /// number.
    #[must_use]
    pub fn scratch_len(&self, width: usize) -> usize {
        match self.filter.way {
            Way::Depthwise => depthwise::scratch_len(self.filter.isa, &self.geometry).saturating_mul(width),
            _ => self.item_scratch(1).saturating_mul(width).max(self.item_scratch(width)),
        }
    }

    /// Convolves the images of `x` with `w`, which [`Filter::pack`] made, into `y`.
    ///
    /// `scratch` holds [`scratch_len`](Self::scratch_len) values, best 64-byte aligned.
    ///
    /// # Errors
    /// A slice is too short, or the run was cancelled.
    pub fn run(
        &self,
        x: &[f32],
        w: &[f32],
        post: &Post<'_>,
        y: &mut [f32],
        scratch: &mut [f32],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        let Filter { groups, ins, outs, .. } = self.filter;
        let images = self.batch.saturating_mul(groups);
        let need = |channels: usize, plane: usize| images.saturating_mul(channels).saturating_mul(plane);
        let outputs = need(outs, self.geometry.outputs());
        enough("the input", need(ins, self.geometry.inputs()), x.len())?;
        enough("the output", outputs, y.len())?;
        enough("the packed filter", self.filter.size(), w.len())?;
        enough("the bias", groups * outs, post.bias.map_or(usize::MAX, <[f32]>::len))?;
        enough("the residual", outputs, post.residual.map_or(usize::MAX, <[f32]>::len))?;
        enough("the scratch memory", self.scratch_len(threads.width()), scratch.len())?;
        if outputs == 0 {
            return Ok(());
        }
        let y = y.as_mut_ptr();
        if self.filter.way == Way::Depthwise {
            let (filter, geometry) = (&self.filter, &self.geometry);
            return Depthwise { filter, geometry, batch: self.batch, x, w, post: *post, y }.run(scratch, threads);
        }
        Items { conv: self, x, w, post, y }.run(images, scratch, threads)
    }

    /// The product of one group of one image.
    fn gemm(&self) -> Gemm {
        let (pixels, outs) = (self.geometry.outputs(), self.filter.outs);
        let (m, n) = if self.is_deep() { (pixels, outs) } else { (outs, pixels) };
        Gemm::new(self.filter.isa, m, n, self.filter.k())
    }

    fn is_deep(&self) -> bool {
        matches!(self.filter.way, Way::Deep(_))
    }

    /// Whether the product of a deep filter has to be turned into planes: one pixel lies as it should.
    fn turns(&self) -> bool {
        self.is_deep() && self.geometry.outputs() > 1
    }

    fn turn_len(&self) -> usize {
        if self.turns() { turn::len(self.filter.isa, self.geometry.outputs(), self.filter.outs) } else { 0 }
    }

    fn item_scratch(&self, width: usize) -> usize {
        let product = self.gemm().scratch_len(!self.is_deep(), self.is_deep(), width);
        product.checked_next_multiple_of(16).unwrap_or(usize::MAX).saturating_add(self.turn_len())
    }
}

/// A checked convolution by products: groups of images are its items.
struct Items<'a> {
    conv: &'a Conv,
    x: &'a [f32],
    w: &'a [f32],
    post: &'a Post<'a>,
    y: *mut f32,
}

// SAFETY: each item writes planes of its own and only reads everything else.
unsafe impl Sync for Items<'_> {}

struct Memory(*mut f32);

// SAFETY: each worker takes a piece of its own.
unsafe impl Sync for Memory {}

impl Items<'_> {
    fn run(&self, count: usize, scratch: &mut [f32], threads: &dyn Parallel) -> Result<(), KernelError> {
        let width = threads.width();
        if width == 1 || count < 2 * width {
            return (0..count).try_for_each(|item| self.item(item, scratch, threads));
        }
        let own = self.conv.item_scratch(1);
        let memory = Memory(scratch.as_mut_ptr());
        let memory = &memory;
        threads.for_each(count, 1, &|worker, range| {
            // SAFETY: the worker's own piece of the scratch, which `Conv::run` has checked.
            let scratch = unsafe { core::slice::from_raw_parts_mut(memory.0.add(worker * own), own) };
            for item in range {
                self.item(item, scratch, &Serial).expect("a checked product on one thread");
            }
        })?;
        Ok(())
    }

    /// One group of one image.
    fn item(&self, item: usize, scratch: &mut [f32], threads: &dyn Parallel) -> Result<(), KernelError> {
        let Filter { isa, groups, ins, outs, .. } = self.conv.filter;
        let geometry = &self.conv.geometry;
        let (inputs, outputs) = (geometry.inputs(), geometry.outputs());
        let group = item % groups;
        let x = &self.x[item * ins * inputs..][..ins * inputs];
        let w = &self.w[group * self.conv.filter.group()..][..self.conv.filter.group()];
        let bias = self.post.bias.map(|bias| &bias[group * outs..][..outs]);
        let residual = self.post.residual.map(|residual| &residual[item * outs * outputs..][..outs * outputs]);
        let y = self.y.wrapping_add(item * outs * outputs);
        let pixels = Pixels { isa, geometry, x, channels: ins };
        let plain = geometry.is_pointwise().then(|| Mat::new(x, ins, inputs)).transpose()?;
        let gemm = self.conv.gemm();
        let added = residual.map_or(Add::None, |data| Add::Matrix { data, row_step: gemm.n, scale: 1.0 });
        let mut epilogue = Epilogue { bias: Bias::None, add: added, activation: self.post.activation };
        match self.conv.filter.way {
            Way::Wide(layout) => {
                epilogue.bias = bias.map_or(Bias::None, Bias::PerRow);
                let b = plain.map_or(Rhs::Gather(&pixels), Rhs::Plain);
                let out = Target { c: y, step: outputs };
                gemm.run_to(Lhs::Packed(layout, w), b, &epilogue, out, scratch, threads)
            }
            Way::Deep(layout) => {
                epilogue.bias = bias.map_or(Bias::None, Bias::PerColumn);
                let a = plain.map_or(Lhs::Gather(&pixels), |x| Lhs::Plain(x.transposed()));
                if !self.conv.turns() {
                    let out = Target { c: y, step: outs };
                    return gemm.run_to(a, Rhs::Packed(layout, w), &epilogue, out, scratch, threads);
                }
                let (turned, scratch) = scratch.split_at_mut(self.conv.turn_len());
                (epilogue.add, epilogue.activation) = (Add::None, Activation::None);
                let out = Target { c: turned.as_mut_ptr(), step: outs };
                gemm.run_to(a, Rhs::Packed(layout, w), &epilogue, out, scratch, threads)?;
                let turn = turn::Turn { isa, pixels: outputs, outs, residual, activation: self.post.activation, y };
                turn.run(turned, threads)
            }
            Way::Depthwise => Err(KernelError::Shape("a depthwise filter is no product")),
        }
    }
}
