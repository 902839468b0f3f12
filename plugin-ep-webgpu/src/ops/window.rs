//! What convolutions and poolings share: a window that slides over up to three spatial dimensions.

use crate::recipe::{signed, word};
use ortolan_ep_kit::{Fault, NodeView, Reject};

/// The attributes of a window.
#[derive(Debug, Clone)]
pub struct Window {
    /// `None`: the filter's own size.
    pub kernel: Option<Vec<i64>>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    padding: Padding,
    spatial: usize,
}

#[derive(Debug, Clone)]
enum Padding {
    /// Before each dimension, then behind each.
    Given(Vec<i64>),
    /// As much as the output's size asks for, one more behind (upper) or before (lower) if it is odd.
    Same { upper: bool },
}

/// A window over tensors of known sizes, always in three dimensions.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    pub input: [i64; 3],
    pub output: [i64; 3],
    pub kernel: [i64; 3],
    pub strides: [i64; 3],
    pub dilations: [i64; 3],
    pub before: [i64; 3],
    pub behind: [i64; 3],
}

impl Window {
    /// Reads the attributes of a window over `spatial` dimensions.
    pub fn parse(node: &NodeView<'_>, spatial: usize) -> Result<Self, Reject> {
        if !(1..=3).contains(&spatial) {
            return Err(Reject::rank(format!("there are {spatial} spatial dimensions; 1 to 3 are done")));
        }
        let list = |name: &str, count: usize, least: i64| match node.ints(name) {
            None => Ok(None),
            Some(x) if x.len() == count && x.iter().all(|n| (least..1 << 31).contains(n)) => Ok(Some(x.to_vec())),
            Some(x) => Err(Reject::attribute(format!(
                "attribute {name} = {x:?} is not a list of {count} numbers from {least} on"
            ))),
        };
        let padding = match node.text("auto_pad") {
            None | Some("NOTSET" | "") => {
                Padding::Given(list("pads", 2 * spatial, 0)?.unwrap_or_else(|| vec![0; 2 * spatial]))
            }
            Some("VALID") => Padding::Given(vec![0; 2 * spatial]),
            Some("SAME_UPPER") => Padding::Same { upper: true },
            Some("SAME_LOWER") => Padding::Same { upper: false },
            Some(other) => {
                return Err(Reject::attribute(format!("attribute auto_pad = {other} is not a known padding")));
            }
        };
        Ok(Window {
            kernel: list("kernel_shape", spatial, 1)?,
            strides: list("strides", spatial, 1)?.unwrap_or_else(|| vec![1; spatial]),
            dilations: list("dilations", spatial, 1)?.unwrap_or_else(|| vec![1; spatial]),
            padding,
            spatial,
        })
    }

    /// The window over spatial sizes.
    pub fn geometry(&self, input: &[i64], output: &[i64], kernel: &[i64]) -> Result<Geometry, Fault> {
        if [input.len(), output.len(), kernel.len()] != [self.spatial; 3] {
            return Err(Fault::data(format!("input, output and window do not have {} spatial sizes", self.spatial)));
        }
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for d in 0..self.spatial {
            let (first, last) = match &self.padding {
                Padding::Given(pads) => (pads[d], pads[self.spatial + d]),
                Padding::Same { upper } => {
                    let reach = (output[d] - 1).max(0).saturating_mul(self.strides[d]);
                    let window = (kernel[d] - 1).saturating_mul(self.dilations[d]).saturating_add(1);
                    let total = reach.saturating_add(window).saturating_sub(input[d]).max(0);
                    if *upper { (total / 2, total - total / 2) } else { (total - total / 2, total / 2) }
                }
            };
            before.push(first);
            behind.push(last);
        }
        let three = |list: &[i64], fill: i64| {
            let mut out = [fill; 3];
            out[3 - list.len()..].copy_from_slice(list);
            out
        };
        Ok(Geometry {
            input: three(input, 1),
            output: three(output, 1),
            kernel: three(kernel, 1),
            strides: three(&self.strides, 1),
            dilations: three(&self.dilations, 1),
            before: three(&before, 0),
            behind: three(&behind, 0),
        })
    }
}

impl Window {
    /// The window of the convolution that leads from the output of a transposed convolution back to its input. `sized`:
    /// the output's size was given, and decides the padding.
    pub fn transposed(
        &self,
        input: &[i64],
        output: &[i64],
        kernel: &[i64],
        output_padding: &[i64],
        sized: bool,
    ) -> Result<Geometry, Fault> {
        let mut geometry = self.geometry(output, input, kernel)?;
        for d in 0..self.spatial {
            let upper = match &self.padding {
                Padding::Given(_) if !sized => continue,
                Padding::Given(_) => false,
                Padding::Same { upper } => *upper,
            };
            let reach = (input[d] - 1).max(0).saturating_mul(self.strides[d]).saturating_add(output_padding[d]);
            let window = (kernel[d] - 1).saturating_mul(self.dilations[d]).saturating_add(1);
            let total = reach.saturating_add(window).saturating_sub(output[d]).max(0);
            geometry.before[3 - self.spatial + d] = if upper { total / 2 } else { total - total / 2 };
        }
        Ok(geometry)
    }
}

impl Geometry {
    /// As shaders read it: input, output, kernel, strides, dilations, padding before and behind.
    pub fn params(&self) -> Result<Vec<u32>, Fault> {
        let sizes = [self.input, self.output, self.kernel, self.strides, self.dilations];
        let mut params: Vec<u32> = sizes.iter().flatten().map(|&n| word(n)).collect::<Result<_, _>>()?;
        for &n in self.before.iter().chain(&self.behind) {
            params.push(signed(n)?);
        }
        Ok(params)
    }

    /// Whether each output is made of the input at the same place alone.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1; 3] && self.strides == [1; 3] && self.before == [0; 3] && self.input == self.output
    }
}
