//! A window over an image, as the kernels of convolutions and poolings walk it.

use crate::conv::{Geometry, Window};
pub(crate) use ortolan_ep_kit::window::{Sizes, Sliding};
use ortolan_ep_kit::{Fault, size};

/// The window over an input and output of these spatial sizes, and the padding behind.
pub(crate) fn geometry(
    window: &Sliding,
    input: &[i64],
    output: &[i64],
    kernel: &[usize],
) -> Result<(Geometry, [usize; 3]), Fault> {
    let (before, after) = window.pads(input, output, kernel)?;
    let mut behind = [0; 3];
    behind[3 - window.spatial..].copy_from_slice(&after);
    Ok((over(window, input, output, kernel, &before)?, behind))
}

/// The window of the convolution that leads from the output of a transposed convolution back to its input; see
/// [`Sliding::pads_transposed`].
pub(crate) fn transposed(
    window: &Sliding,
    input: &[i64],
    output: &[i64],
    kernel: &[usize],
    output_padding: &[usize],
    sized: bool,
) -> Result<Geometry, Fault> {
    let pad = window.pads_transposed(input, output, kernel, output_padding, sized)?;
    over(window, output, input, kernel, &pad)
}

fn over(window: &Sliding, input: &[i64], output: &[i64], kernel: &[usize], pad: &[usize]) -> Result<Geometry, Fault> {
    let sizes = |dims: &[i64]| dims.iter().map(|&d| size(d)).collect::<Sizes>();
    let (input, output) = (sizes(input), sizes(output));
    let (stride, dilation) = (&window.stride, &window.dilation);
    Ok(Geometry::new(&Window { input: &input, output: &output, kernel, stride, dilation, pad })?)
}

/// Batch, channels and spatial sizes of an image.
pub(crate) fn image(dims: &[i64]) -> Result<(usize, usize, &[i64]), Fault> {
    match dims {
        [batch, channels, spatial @ ..] => Ok((size(*batch), size(*channels), spatial)),
        _ => Err(Fault::data(format!("{dims:?} is no batch of images"))),
    }
}
