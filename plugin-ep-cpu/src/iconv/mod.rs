//! Convolution of 8-bit images: exact sums in i32 of `(x - x_zero) w`, and what may follow at once: floats, or codes again.
//!
//! A [`Filter`] is packed once, knowing only the filter's shape; [`Conv`] adds batch and geometry. No matrix of pixels is
//! made: the image is copied once, padded, four channels side by side (`image`), and the kernels of `igemm` reach each
//! tap of each pixel through a table of offsets. Depthwise filters go plane by plane in f32, where their sums are exact.
//!
//! Filters have no zero point but the middle of their type. This module must not know operators or attributes.

mod block;
mod depthwise;
mod filter;
mod finish;
mod image;
#[cfg(test)]
mod tests;

use crate::conv::Geometry;
use crate::gemm::{KernelError, enough};
use crate::igemm::{Bytes, Offsets};
use block::Blocks;
pub(crate) use filter::Filter;
use filter::Way;
pub(crate) use filter::middle;
use finish::To;
pub(crate) use finish::{Finish, Form, Target};
use image::Image;
use ortolan_ep_kit::parallel::Parallel;

/// A convolution of one shape. It keeps its memory when it is made again.
#[derive(Debug, Default)]
pub(crate) struct Conv {
    geometry: Option<Geometry>,
    batch: usize,
    image: Image,
    /// Where the windows of all outputs begin in the image.
    starts: Vec<u32>,
    offsets: Offsets,
}

impl Conv {
    /// Follows new sizes.
    ///
    /// # Errors
    /// The geometry's kernel is not the filter's, or the image is too large.
    pub fn bind(&mut self, filter: &Filter, batch: usize, geometry: &Geometry) -> Result<(), KernelError> {
        if geometry.kernel != filter.kernel {
            return Err(KernelError::Shape("the window is not of the filter's size"));
        }
        (self.geometry, self.batch) = (Some(*geometry), batch);
        if let Way::Product(layout) = filter.way {
            self.image = Image::new(geometry, filter.ins, layout.way.width())
                .ok_or(KernelError::Shape("a padded image of four gigabytes"))?;
            self.offsets.replace(self.image.taps(geometry));
            self.starts.clear();
            self.starts.extend(self.image.windows(geometry));
        }
        Ok(())
    }

    /// Bytes of scratch memory that [`run`](Self::run) needs with up to `width` threads, `usize::MAX` when there is no
    /// such number.
    pub fn scratch_len(&self, filter: &Filter, width: usize) -> usize {
        let Some(geometry) = &self.geometry else { return 0 };
        match filter.way {
            Way::Depthwise => depthwise::scratch_len(filter.isa, geometry).saturating_mul(width),
            Way::Product(_) => self.image.size().saturating_add(block::SCRATCH.saturating_mul(width)),
        }
    }

    /// Convolves the images of `x`, whose zero is `zero`, with the packed filter `w`.
    ///
    /// # Errors
    /// A slice is too short, the target is not of the finish's type, or the run was cancelled.
    #[expect(clippy::too_many_arguments, reason = "two sides, a result and means are what a convolution is")]
    pub fn run(
        &self,
        filter: &Filter,
        (x, zero): (Bytes<'_>, i32),
        w: &[u8],
        finish: &Finish<'_>,
        target: Target<'_>,
        scratch: &mut [u8],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        let geometry = self.geometry.as_ref().ok_or(KernelError::Shape("it was not bound"))?;
        let &Filter { groups, ins, outs, .. } = filter;
        let images = self.batch.saturating_mul(groups);
        let outputs = images.saturating_mul(outs).saturating_mul(geometry.outputs());
        enough("the input", images.saturating_mul(ins).saturating_mul(geometry.inputs()), x.data.len())?;
        enough("the packed filter", filter.size(), w.len())?;
        enough("the scratch memory", self.scratch_len(filter, threads.width()), scratch.len())?;
        finish.check(groups * outs)?;
        let to = To::new(target, finish, outputs)?;
        if outputs == 0 {
            return Ok(());
        }
        let Way::Product(layout) = filter.way else {
            return depthwise::Depthwise { filter, geometry, batch: self.batch, x, zero, w, finish, to: &to }
                .run(scratch, threads);
        };
        let (image, scratch) = scratch.split_at_mut(self.image.size());
        for item in 0..images {
            let group = item % groups;
            let x = Bytes { data: &x.data[item * ins * geometry.inputs()..][..ins * geometry.inputs()], ..x };
            self.image.fill(filter.isa, geometry, x, zero, image, threads)?;
            let blocks = Blocks {
                isa: filter.isa,
                layout,
                geometry,
                image,
                starts: &self.starts,
                offsets: &self.offsets,
                // As the kernels see it: without a sign.
                zero: zero + if x.signed { 128 } else { 0 },
                w: &w[group * layout.size()..][..layout.size()],
                finish: &finish.of_outs(group * outs, outs),
                to: &to,
                first: item * outs * geometry.outputs(),
            };
            blocks.run(scratch, threads)?;
        }
        Ok(())
    }
}
