//! A window over an image, as shaders walk it: always in three dimensions.

use crate::recipe::{signed, word};
use ortolan_ep_kit::window::{Sizes, Sliding};
use ortolan_ep_kit::{Fault, Reject, size};

/// Shaders compute with 32 bits.
const LARGEST: usize = (1 << 31) - 1;

/// A window over tensors of known sizes.
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

/// Refuses a window with numbers that shaders don't hold.
pub fn small(window: Sliding) -> Result<Sliding, Reject> {
    match window.largest() {
        0..=LARGEST => Ok(window),
        n => Err(Reject::attribute(format!("the window's attributes hold {n}; at most {LARGEST} is done"))),
    }
}

/// A number of a window among dimensions.
pub fn wide(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Sizes of a filter's window.
fn sizes(kernel: &[i64]) -> Sizes {
    kernel.iter().map(|&d| size(d)).collect()
}

impl Geometry {
    /// The window over these spatial sizes.
    pub fn new(window: &Sliding, input: &[i64], output: &[i64], kernel: &[i64]) -> Result<Geometry, Fault> {
        let (before, behind) = window.pads(input, output, &sizes(kernel))?;
        Ok(Geometry::over(window, input, output, kernel, &before, &behind))
    }

    /// The window of the convolution that leads from the output of a transposed convolution back to its input; see
    /// [`Sliding::pads_transposed`].
    pub fn transposed(
        window: &Sliding,
        input: &[i64],
        output: &[i64],
        kernel: &[i64],
        output_padding: &[usize],
        sized: bool,
    ) -> Result<Geometry, Fault> {
        let before = window.pads_transposed(input, output, &sizes(kernel), output_padding, sized)?;
        Ok(Geometry::over(window, output, input, kernel, &before, &[]))
    }

    fn over(
        window: &Sliding,
        input: &[i64],
        output: &[i64],
        kernel: &[i64],
        before: &[usize],
        behind: &[usize],
    ) -> Geometry {
        let three = |list: &[i64], fill: i64| {
            let mut out = [fill; 3];
            out[3 - list.len()..].copy_from_slice(list);
            out
        };
        let wide = |list: &[usize]| list.iter().map(|&n| wide(n)).collect::<Vec<i64>>();
        Geometry {
            input: three(input, 1),
            output: three(output, 1),
            kernel: three(kernel, 1),
            strides: three(&wide(&window.stride), 1),
            dilations: three(&wide(&window.dilation), 1),
            before: three(&wide(before), 0),
            behind: three(&wide(behind), 0),
        }
    }

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
