//! A group of an input image as the kernels read it: padded, four channels side by side.

use crate::conv::Geometry;
use crate::igemm::{Bytes, GROUP};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::parallel::{Parallel, Stopped};
use ortolan_ep_kit::split;

/// The layout: planes of four channels each, as large as windows reach.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Image {
    /// Sizes of a padded plane.
    sizes: [usize; 3],
    channels: usize,
    /// Bytes of a value.
    width: usize,
}

/// Bytes of an image that are worth another thread.
const GRAIN: usize = 1 << 14;

impl Image {
    /// `None` when it has more bytes than offsets can tell.
    pub fn new(g: &Geometry, channels: usize, width: usize) -> Option<Image> {
        let mut sizes = [0; 3];
        for (d, size) in sizes.iter_mut().enumerate() {
            *size = g.output[d].saturating_sub(1) * g.stride[d] + (g.kernel[d] - 1) * g.dilation[d] + 1;
        }
        let image = Image { sizes, channels, width };
        let len = sizes.iter().try_fold(image.quads() * image.pixel(), |len, &size| len.checked_mul(size))?;
        u32::try_from(len).is_ok().then_some(image)
    }

    /// Bytes that it takes, whole cache lines.
    pub fn size(&self) -> usize {
        (self.quads() * self.plane()).next_multiple_of(64)
    }

    fn quads(&self) -> usize {
        self.channels.div_ceil(GROUP)
    }

    /// Bytes of four channels of a pixel.
    fn pixel(&self) -> usize {
        GROUP * self.width
    }

    fn plane(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.pixel()
    }

    /// Offset of a place of a plane.
    fn at(&self, [depth, row, column]: [usize; 3]) -> usize {
        ((depth * self.sizes[1] + row) * self.sizes[2] + column) * self.pixel()
    }

    /// Offsets of all groups along K behind a pixel's.
    pub fn taps<'a>(&'a self, g: &'a Geometry) -> impl Iterator<Item = u32> + 'a {
        let [_, rows, columns] = g.kernel;
        (0..self.quads() * g.taps()).map(move |k| {
            let (quad, tap) = (k / g.taps(), k % g.taps());
            let place = [tap / columns / rows, tap / columns % rows, tap % columns];
            let place = core::array::from_fn(|d| place[d] * g.dilation[d]);
            (quad * self.plane() + self.at(place)) as u32 // the whole image is shorter than 2^32
        })
    }

    /// Offsets of all outputs' windows.
    pub fn windows<'a>(&'a self, g: &'a Geometry) -> impl Iterator<Item = u32> + 'a {
        let [_, rows, columns] = g.output;
        (0..g.outputs()).map(move |pixel| {
            let place = [pixel / columns / rows, pixel / columns % rows, pixel % columns];
            self.at(core::array::from_fn(|d| place[d] * g.stride[d])) as u32 // as above
        })
    }

    /// Copies the channels of `x`. Padding is `zero`, which counts as nothing.
    pub fn fill(
        &self,
        isa: Isa,
        g: &Geometry,
        x: Bytes<'_>,
        zero: i32,
        to: &mut [u8],
        threads: &dyn Parallel,
    ) -> Result<(), Stopped> {
        let plane = self.plane();
        let to = &mut to[..self.quads() * plane];
        split::rows(threads, to, plane, GRAIN.div_ceil(plane.max(1)), |_, first, planes| {
            for (k, to) in planes.chunks_exact_mut(plane.max(1)).enumerate() {
                isa.dispatch(Fill { image: self, g, x, zero, quad: first + k, to });
            }
        })
    }
}

/// Four channels.
struct Fill<'a> {
    image: &'a Image,
    g: &'a Geometry,
    x: Bytes<'a>,
    zero: i32,
    quad: usize,
    to: &'a mut [u8],
}

impl Kernel for Fill<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Fill { image, g, x, zero, quad, to } = self;
        let sign = if x.signed { 0x80 } else { 0 };
        let padding = zero as u8 ^ sign; // a code is 8 bits
        let plane = g.inputs();
        let first = quad * GROUP;
        let count = (image.channels - first).min(GROUP);
        // Channels that are not there are multiplied by 0, so any will do.
        let of: [&[u8]; GROUP] = core::array::from_fn(|c| &x.data[(first + c.min(count - 1)) * plane..][..plane]);
        if g.is_pointwise() {
            return interleave(of, sign, image.width, to);
        }
        let [depths, rows, columns] = image.sizes;
        // Columns of the padded plane that are in the input.
        let (left, right) = (g.pad[2].min(columns), (g.pad[2] + g.input[2]).min(columns));
        let pixel = image.pixel();
        for line in 0..depths * rows {
            let to = &mut to[line * columns * pixel..][..columns * pixel];
            let depth = (line / rows).checked_sub(g.pad[0]).filter(|&at| at < g.input[0]);
            let row = (line % rows).checked_sub(g.pad[1]).filter(|&at| at < g.input[1]);
            let (Some(depth), Some(row)) = (depth, row) else {
                pad(to, padding, image.width);
                continue;
            };
            pad(&mut to[..left * pixel], padding, image.width);
            pad(&mut to[right.max(left) * pixel..], padding, image.width);
            if left < right {
                let from = (depth * g.input[1] + row) * g.input[2];
                let of = of.map(|channel| &channel[from..][..right - left]);
                interleave(of, sign, image.width, &mut to[left * pixel..right * pixel]);
            }
        }
    }
}

#[inline(always)]
fn pad(to: &mut [u8], padding: u8, width: usize) {
    match width {
        1 => to.fill(padding),
        _ => to.as_chunks_mut().0.iter_mut().for_each(|to| *to = u16::from(padding).to_le_bytes()),
    }
}

#[inline(always)]
fn interleave(of: [&[u8]; GROUP], sign: u8, width: usize, to: &mut [u8]) {
    let [a, b, c, d] = of;
    let n = a.len();
    let (b, c, d) = (&b[..n], &c[..n], &d[..n]);
    if width == 1 {
        let to = &mut to.as_chunks_mut::<GROUP>().0[..n];
        for k in 0..n {
            to[k] = [a[k] ^ sign, b[k] ^ sign, c[k] ^ sign, d[k] ^ sign];
        }
    } else {
        let to = &mut to.as_chunks_mut::<{ 2 * GROUP }>().0[..n];
        for k in 0..n {
            to[k] = [a[k] ^ sign, 0, b[k] ^ sign, 0, c[k] ^ sign, 0, d[k] ^ sign, 0];
        }
    }
}
