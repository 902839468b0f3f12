//! What convolutions and poolings share: a window that slides over the spatial dimensions.

use crate::conv::{Geometry, Window};
use ortolan_ep_kit::{Fault, NodeView, Reject, size};
use smallvec::SmallVec;

/// Sizes per spatial dimension.
pub(crate) type Sizes = SmallVec<[usize; 4]>;

/// The attributes of a window.
#[derive(Debug, Clone)]
pub(crate) struct Sliding {
    /// `None`: the filter's own size.
    pub kernel: Option<Sizes>,
    stride: Sizes,
    dilation: Sizes,
    padding: Padding,
    pub spatial: usize,
}

#[derive(Debug, Clone)]
enum Padding {
    /// Before each dimension, then behind each.
    Given(Sizes),
    /// As much as the output's size asks for, one more behind (upper) or before (lower) if it is odd.
    Same { upper: bool },
}

impl Sliding {
    /// Reads the attributes of a window over `spatial` dimensions.
    pub fn parse(node: &NodeView<'_>, spatial: usize) -> Result<Self, Reject> {
        if !(1..=3).contains(&spatial) {
            return Err(Reject::rank(format!("there are {spatial} spatial dimensions; 1 to 3 are done")));
        }
        let list = |name: &str, count: usize, least: i64| match node.ints(name) {
            None => Ok(None),
            Some(x) if x.len() == count && x.iter().all(|&n| n >= least) => {
                Ok(Some(x.iter().map(|&n| size(n)).collect::<Sizes>()))
            }
            Some(x) => Err(Reject::attribute(format!(
                "attribute {name} = {x:?} is not a list of {count} numbers from {least} on"
            ))),
        };
        let ones = || SmallVec::from_elem(1, spatial);
        let padding = match node.text("auto_pad") {
            None | Some("NOTSET" | "") => {
                Padding::Given(list("pads", 2 * spatial, 0)?.unwrap_or_else(|| SmallVec::from_elem(0, 2 * spatial)))
            }
            Some("VALID") => Padding::Given(SmallVec::from_elem(0, 2 * spatial)),
            Some("SAME_UPPER") => Padding::Same { upper: true },
            Some("SAME_LOWER") => Padding::Same { upper: false },
            Some(other) => {
                return Err(Reject::attribute(format!("attribute auto_pad = {other} is not a known padding")));
            }
        };
        Ok(Sliding {
            kernel: list("kernel_shape", spatial, 1)?,
            stride: list("strides", spatial, 1)?.unwrap_or_else(ones),
            dilation: list("dilations", spatial, 1)?.unwrap_or_else(ones),
            padding,
            spatial,
        })
    }

    /// The window over an input and output of these spatial sizes, and the padding behind.
    pub fn geometry(&self, input: &[i64], output: &[i64], kernel: &[usize]) -> Result<(Geometry, [usize; 3]), Fault> {
        let sizes = |dims: &[i64]| dims.iter().map(|&d| size(d)).collect::<Sizes>();
        let (input, output) = (sizes(input), sizes(output));
        if [input.len(), output.len(), kernel.len()] != [self.spatial; 3] {
            return Err(Fault::data(format!("input, output and window do not have {} spatial sizes", self.spatial)));
        }
        let mut pad: Sizes = SmallVec::new();
        let mut behind = [0; 3];
        for d in 0..self.spatial {
            let (before, after) = match &self.padding {
                Padding::Given(pads) => (pads[d], pads[self.spatial + d]),
                Padding::Same { upper } => {
                    let reach = output[d].saturating_sub(1).saturating_mul(self.stride[d]);
                    let window = (kernel[d] - 1).saturating_mul(self.dilation[d]).saturating_add(1);
                    let total = reach.saturating_add(window).saturating_sub(input[d]);
                    let less = total / 2;
                    if *upper { (less, total - less) } else { (total - less, less) }
                }
            };
            pad.push(before);
            behind[3 - self.spatial + d] = after;
        }
        let geometry = Geometry::new(&Window {
            input: &input,
            output: &output,
            kernel,
            stride: &self.stride,
            dilation: &self.dilation,
            pad: &pad,
        })?;
        Ok((geometry, behind))
    }
}

impl Sliding {
    /// The window of the convolution that leads from the output of a transposed convolution back to its input. `sized`:
    /// the output's size was given, and decides the padding.
    pub fn transposed(
        &self,
        input: &[i64],
        output: &[i64],
        kernel: &[usize],
        output_padding: &[usize],
        sized: bool,
    ) -> Result<Geometry, Fault> {
        let sizes = |dims: &[i64]| dims.iter().map(|&d| size(d)).collect::<Sizes>();
        let (input, output) = (sizes(input), sizes(output));
        if [input.len(), output.len(), kernel.len()] != [self.spatial; 3] {
            return Err(Fault::data(format!("input, output and window do not have {} spatial sizes", self.spatial)));
        }
        let pad = (0..self.spatial).map(|d| {
            let upper = match &self.padding {
                Padding::Given(pads) if !sized => return pads[d],
                Padding::Given(_) => false,
                Padding::Same { upper } => *upper,
            };
            let reach = input[d].saturating_sub(1).saturating_mul(self.stride[d]).saturating_add(output_padding[d]);
            let window = kernel[d].saturating_sub(1).saturating_mul(self.dilation[d]).saturating_add(1);
            let total = reach.saturating_add(window).saturating_sub(output[d]);
            if upper { total / 2 } else { total - total / 2 }
        });
        let pad: Sizes = pad.collect();
        Ok(Geometry::new(&Window {
            input: &output,
            output: &input,
            kernel,
            stride: &self.stride,
            dilation: &self.dilation,
            pad: &pad,
        })?)
    }
}

/// Batch, channels and spatial sizes of an image.
pub(crate) fn image(dims: &[i64]) -> Result<(usize, usize, &[i64]), Fault> {
    match dims {
        [batch, channels, spatial @ ..] => Ok((size(*batch), size(*channels), spatial)),
        _ => Err(Fault::data(format!("{dims:?} is no batch of images"))),
    }
}
