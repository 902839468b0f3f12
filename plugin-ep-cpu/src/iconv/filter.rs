//! A filter of codes, packed for one of two ways to run it.

use crate::conv::filter_shape;
use crate::gemm::KernelError;
use crate::igemm::{Bytes, GROUP, PackedB, sum_columns};
use crate::simd::Isa;
use core::ops::Range;

/// How a filter is laid out, and with it how the convolution runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Filter {
    pub(super) isa: Isa,
    pub(super) groups: usize,
    /// Output channels of a group.
    pub(super) outs: usize,
    /// Input channels of a group.
    pub(super) ins: usize,
    pub(super) kernel: [usize; 3],
    pub(super) way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// Pixels times filter for each group. Rows of the right side are four channels of one tap, taps of the same channels
    /// next to each other.
    Product(PackedB),
    /// One input channel for each output channel, its taps in f32.
    Depthwise,
}

/// Taps up to which sums of products of 9-bit numbers are exact in f32.
pub(super) const EXACT_TAPS: usize = 1 << (24 - 16);

impl Filter {
    /// The layout for a filter of shape `dims`: output channels, input channels of a group, then one to three sizes.
    ///
    /// # Errors
    /// Not three to five dimensions, one of the sizes is 0, or the groups do not divide the output channels.
    pub fn new(isa: Isa, dims: &[usize], groups: usize) -> Result<Self, KernelError> {
        let (outs, ins, kernel) = filter_shape(dims, groups)?;
        let taps = kernel.iter().fold(1_usize, |taps, &size| taps.saturating_mul(size));
        let k = ins.div_ceil(GROUP).saturating_mul(GROUP).saturating_mul(taps);
        let way = match ins == 1 && groups > 1 && taps <= EXACT_TAPS {
            true => Way::Depthwise,
            false => Way::Product(PackedB::new(isa, k, outs)),
        };
        Ok(Filter { isa, groups, outs, ins, kernel, way })
    }

    /// Bytes that the packed filter takes, `usize::MAX` when there is no such number.
    pub fn size(&self) -> usize {
        self.piece_len().saturating_mul(self.pieces())
    }

    /// Pieces of equal size, which can be packed apart from each other.
    pub fn pieces(&self) -> usize {
        match self.way {
            Way::Product(layout) => layout.panels().saturating_mul(self.groups),
            Way::Depthwise => self.outs * self.groups,
        }
    }

    /// Bytes of a piece.
    pub fn piece_len(&self) -> usize {
        match self.way {
            Way::Product(layout) => layout.stride(),
            Way::Depthwise => self.taps() * size_of::<f32>(),
        }
    }

    pub(super) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Packs pieces of `w`, a dense filter, into `to`, which holds them and nothing else.
    ///
    /// # Panics
    /// When `w` or `to` is too short, or there are fewer pieces.
    pub fn pack(&self, w: Bytes<'_>, pieces: Range<usize>, to: &mut [u8]) {
        for (piece, to) in pieces.zip(to.chunks_exact_mut(self.piece_len().max(1))) {
            match self.way {
                Way::Product(layout) => self.pack_panel(layout, w, piece, to),
                Way::Depthwise => {
                    for (tap, to) in to.as_chunks_mut().0.iter_mut().enumerate() {
                        let w = w.get(piece * self.taps() + tap) - middle(w.signed);
                        *to = (w as f32).to_ne_bytes(); // nine bits
                    }
                }
            }
        }
    }

    fn pack_panel(&self, layout: PackedB, w: Bytes<'_>, piece: usize, to: &mut [u8]) {
        let (columns, taps) = (layout.columns(), self.taps());
        let (group, first) = (piece / layout.panels(), piece % layout.panels() * columns);
        let sign = if w.signed { 0 } else { 0x80 };
        let panel = layout.cut(to);
        panel.groups.fill(0);
        let step = self.ins * taps;
        for j in 0..columns.min(self.outs - first) {
            let row = &w.data[(group * self.outs + first + j) * step..][..step];
            for (channel, row) in row.chunks_exact(taps).enumerate() {
                let at = channel / GROUP * taps * GROUP * columns + j * GROUP + channel % GROUP;
                for (tap, &w) in row.iter().enumerate() {
                    panel.groups[at + tap * GROUP * columns] = w ^ sign;
                }
            }
        }
        sum_columns(panel.groups, columns, panel.sums);
    }
}

/// What counts as zero in a filter.
pub(crate) fn middle(signed: bool) -> i32 {
    if signed { 0 } else { 128 }
}
