//! A convolution's filter, packed for one of three ways to run it.

use core::ops::Range;

use crate::gemm::{KernelError, Mat, PackedA, PackedB};
use crate::simd::Isa;

/// How a filter is laid out, and with it how the convolution runs. It depends on the filter and on what is known of the
/// image's size; it is right for all sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    pub(super) isa: Isa,
    pub(super) groups: usize,
    /// Output channels of a group.
    pub(super) outs: usize,
    /// Input channels of a group.
    pub(super) ins: usize,
    pub(super) kernel: [usize; 3],
    pub(super) way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `filter * pixels` for each group: vectors run along pixels.
    Wide(PackedA),
    /// `pixels * filter` for each group, turned afterwards: vectors run along output channels. For outputs of so few
    /// pixels that vectors of them would be half empty.
    Deep(PackedB),
    /// One input channel for each output channel: no product, plane by plane.
    Depthwise,
}

/// Output and input channels of a group, and sizes filled up to three dimensions by ones in front, of a filter of shape
/// `dims`: output channels, input channels of a group, then one to three sizes.
///
/// # Errors
/// Not three to five dimensions, one of the sizes is 0, or the groups do not divide the output channels.
pub(crate) fn shape(dims: &[usize], groups: usize) -> Result<(usize, usize, [usize; 3]), KernelError> {
    let [out_channels, ins, sizes @ ..] = dims else {
        return Err(KernelError::Shape("a filter has three to five dimensions"));
    };
    if !(1..=3).contains(&sizes.len()) {
        return Err(KernelError::Shape("a filter has three to five dimensions"));
    }
    if sizes.contains(&0) || groups == 0 || out_channels % groups != 0 {
        return Err(KernelError::Shape("a filter's groups do not divide its channels, or it has no taps"));
    }
    let mut kernel = [1; 3];
    kernel[3 - sizes.len()..].copy_from_slice(sizes);
    Ok((out_channels / groups, *ins, kernel))
}

/// Pixels up to which an output is taken to be small.
const FEW_PIXELS: usize = 64;

impl Filter {
    /// The layout for a filter of shape `dims`: output channels, input channels of a group, then one to three sizes.
    /// `pixels`: how many an output plane has, if that is known.
    ///
    /// # Errors
    /// Not three to five dimensions, one of the sizes is 0, or the groups do not divide the output channels.
    pub fn new(isa: Isa, dims: &[usize], groups: usize, pixels: Option<usize>) -> Result<Self, KernelError> {
        let (outs, ins, kernel) = shape(dims, groups)?;
        let k = kernel.iter().fold(ins, |k, &size| k.saturating_mul(size));
        let way = match pixels {
            _ if ins == 1 && groups > 1 => Way::Depthwise,
            Some(pixels) if pixels <= FEW_PIXELS && outs >= isa.lanes() => Way::Deep(PackedB::new(isa, k, outs)),
            _ => Way::Wide(PackedA::new(isa, outs, k)),
        };
        Ok(Filter { isa, groups, outs, ins, kernel, way })
    }

    /// Values that the packed filter takes, `usize::MAX` when there is no such number.
    #[must_use]
    pub fn size(&self) -> usize {
        self.group().saturating_mul(self.groups)
    }

    /// Pieces that can be packed apart from each other.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.groups * self.pieces_of_group()
    }

    /// Where in the packed values some of the pieces lie.
    #[must_use]
    pub fn span(&self, pieces: Range<usize>) -> Range<usize> {
        self.start(pieces.start)..self.start(pieces.end)
    }

    /// Packs some of the pieces of `w`, a dense filter, into `dst`, which is their [`span`](Self::span). Each value is
    /// read once.
    ///
    /// # Errors
    /// `w` or `dst` is too short.
    pub fn pack(&self, w: &[f32], pieces: Range<usize>, dst: &mut [f32]) -> Result<(), KernelError> {
        let span = self.span(pieces.clone());
        if pieces.end > self.pieces() || dst.len() < span.len() || w.len() / self.groups < self.outs * self.k() {
            return Err(KernelError::Shape("a filter or its packed form is too short"));
        }
        for piece in pieces {
            let (group, piece_of) = (piece / self.pieces_of_group(), piece % self.pieces_of_group());
            let w = &w[group * self.outs * self.k()..][..self.outs * self.k()];
            let dst = &mut dst[self.start(piece) - span.start..self.start(piece + 1) - span.start];
            match self.way {
                Way::Wide(a) => a.pack(Mat::new(w, self.outs, self.k())?, piece_of..piece_of + 1, dst)?,
                Way::Deep(b) => b.pack(Mat::new(w, self.outs, self.k())?.transposed(), piece_of..piece_of + 1, dst)?,
                Way::Depthwise => dst.copy_from_slice(w),
            }
        }
        Ok(())
    }

    /// Values of a filter's row.
    pub(super) fn k(&self) -> usize {
        self.ins * self.kernel.iter().product::<usize>()
    }

    /// Values of a packed group.
    pub(super) fn group(&self) -> usize {
        match self.way {
            Way::Wide(a) => a.size(),
            Way::Deep(b) => b.size(),
            Way::Depthwise => self.outs.saturating_mul(self.k()),
        }
    }

    fn pieces_of_group(&self) -> usize {
        match self.way {
            Way::Wide(a) => a.pieces(),
            Way::Deep(b) => b.pieces(),
            Way::Depthwise => 1,
        }
    }

    fn start(&self, piece: usize) -> usize {
        let pieces = self.pieces_of_group().max(1);
        let (group, piece) = (piece / pieces, piece % pieces);
        let inside = match self.way {
            Way::Wide(a) => a.span(piece..piece).start,
            Way::Deep(b) => b.span(piece..piece).start,
            Way::Depthwise => 0,
        };
        group * self.group() + inside
    }
}
