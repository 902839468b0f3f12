//! The window that convolutions and poolings slide over images, as its attributes describe it, and what it pads.
//!
//! It computes numbers only: how a kernel walks a window is the EP's.

use crate::{Fault, NodeView, Reject, size};
use smallvec::SmallVec;

/// Sizes per spatial dimension.
pub type Sizes = SmallVec<[usize; 4]>;

/// The attributes of a window.
#[derive(Debug, Clone)]
pub struct Sliding {
    /// `None`: the filter's own size.
    pub kernel: Option<Sizes>,
    /// Steps between two places.
    pub stride: Sizes,
    /// Steps between two taps.
    pub dilation: Sizes,
    /// Number of spatial dimensions, 1 to 3.
    pub spatial: usize,
    padding: Padding,
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
        let none = || SmallVec::from_elem(0, 2 * spatial);
        let padding = match node.text("auto_pad") {
            None | Some("NOTSET" | "") => Padding::Given(list("pads", 2 * spatial, 0)?.unwrap_or_else(none)),
            Some("VALID") => Padding::Given(none()),
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
            spatial,
            padding,
        })
    }

    /// The window of the filters that are input `filters` over the images that are input 0, and the number of groups.
    pub fn of_filters(node: &NodeView<'_>, filters: usize) -> Result<(Self, usize), Reject> {
        let (x, w) = (node.needs(0)?, node.needs(filters)?);
        if x.rank() != w.rank() || x.rank() < 3 {
            return Err(Reject::rank(format!(
                "inputs of ranks {} and {}: both have batch or channels, channels, and spatial dimensions",
                x.rank(),
                w.rank()
            )));
        }
        let group = node.int_if("group").unwrap_or(1);
        let groups = usize::try_from(group).ok().filter(|&g| g > 0);
        let groups = groups.ok_or_else(|| Reject::attribute(format!("attribute group = {group} is not positive")))?;
        Ok((Sliding::parse(node, x.rank() - 2)?, groups))
    }

    /// The largest number that it has.
    pub fn largest(&self) -> usize {
        let pads = match &self.padding {
            Padding::Given(pads) => pads.as_slice(),
            Padding::Same { .. } => &[],
        };
        let lists = [self.kernel.as_deref().unwrap_or_default(), &self.stride, &self.dilation, pads];
        lists.into_iter().flatten().copied().max().unwrap_or(0)
    }

    /// What is padded before and behind each dimension when images of these spatial sizes lead to an output of those.
    pub fn pads(&self, input: &[i64], output: &[i64], kernel: &[usize]) -> Result<(Sizes, Sizes), Fault> {
        self.check(input, output, kernel)?;
        let pads = (0..self.spatial).map(|d| match &self.padding {
            Padding::Given(pads) => (pads[d], pads[self.spatial + d]),
            Padding::Same { upper } => {
                let total = self.overhang(d, size(output[d]), kernel[d], 0, size(input[d]));
                let less = total / 2;
                if *upper { (less, total - less) } else { (total - less, less) }
            }
        });
        Ok(pads.unzip())
    }

    /// What is padded before each dimension of the output by the convolution that leads from the output of a transposed
    /// convolution back to its input. `sized`: the output's size was given, and decides the padding.
    pub fn pads_transposed(
        &self,
        input: &[i64],
        output: &[i64],
        kernel: &[usize],
        output_padding: &[usize],
        sized: bool,
    ) -> Result<Sizes, Fault> {
        self.check(input, output, kernel)?;
        let pads = (0..self.spatial).map(|d| {
            let upper = match &self.padding {
                Padding::Given(pads) if !sized => return pads[d],
                Padding::Given(_) => false,
                Padding::Same { upper } => *upper,
            };
            let total = self.overhang(d, size(input[d]), kernel[d], output_padding[d], size(output[d]));
            if upper { total / 2 } else { total - total / 2 }
        });
        Ok(pads.collect())
    }

    /// How far `places` of the window, and `more`, reach beyond `have`.
    fn overhang(&self, d: usize, places: usize, kernel: usize, more: usize, have: usize) -> usize {
        let reach = places.saturating_sub(1).saturating_mul(self.stride[d]).saturating_add(more);
        let window = kernel.saturating_sub(1).saturating_mul(self.dilation[d]).saturating_add(1);
        reach.saturating_add(window).saturating_sub(have)
    }

    fn check(&self, input: &[i64], output: &[i64], kernel: &[usize]) -> Result<(), Fault> {
        if [input.len(), output.len(), kernel.len()] == [self.spatial; 3] {
            return Ok(());
        }
        Err(Fault::data(format!("input, output and window do not have {} spatial sizes", self.spatial)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(stride: usize, dilation: usize, padding: Padding) -> Sliding {
        let one = |n| SmallVec::from_elem(n, 1);
        Sliding { kernel: None, stride: one(stride), dilation: one(dilation), spatial: 1, padding }
    }

    #[test]
    fn what_is_padded() {
        let given = || Padding::Given(SmallVec::from_slice(&[1, 2]));
        let (upper, lower) = (|| Padding::Same { upper: true }, || Padding::Same { upper: false });
        // Window, sizes of input, output and kernel, and the padding.
        let cases = [
            (window(1, 1, given()), 9, 9, 4, (1, 2)),
            (window(2, 1, upper()), 9, 5, 3, (1, 1)),
            (window(1, 1, upper()), 9, 9, 4, (1, 2)),
            (window(1, 1, lower()), 9, 9, 4, (2, 1)),
            (window(1, 2, upper()), 9, 9, 3, (2, 2)),
            (window(4, 1, upper()), 9, 3, 1, (0, 0)),
            (window(1, 1, upper()), 0, 0, 0, (0, 1)),
        ];
        for (w, input, output, kernel, (before, behind)) in cases {
            let found = w.pads(&[input], &[output], &[kernel]).unwrap();
            assert_eq!((&found.0[..], &found.1[..]), (&[before][..], &[behind][..]), "{w:?} {input} {output} {kernel}");
        }
        let back = |w: Sliding, sized| w.pads_transposed(&[3], &[6], &[4], &[1], sized).unwrap()[0];
        assert_eq!([back(window(2, 1, given()), false), back(window(2, 1, given()), true)], [1, 2]);
        assert_eq!([back(window(2, 1, upper()), false), back(window(2, 1, lower()), false)], [1, 2]);
        assert!(window(1, 1, upper()).pads(&[1, 1], &[1], &[1]).is_err());
        assert_eq!(window(1, 3, given()).largest(), 3);
    }
}
