//! Where a sliding window stands over its input, in one to three dimensions.

use core::ops::Range;

use crate::gemm::KernelError;

/// Spatial dimensions, as ONNX attributes and shapes have them: one to three
/// numbers each, outermost first.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Sizes of the input without batch and channels.
    pub input: &'a [usize],
    /// Sizes of the output without batch and channels. What lies beyond the
    /// input counts as padding, so padding behind it is not given.
    pub output: &'a [usize],
    /// Sizes of the window.
    pub kernel: &'a [usize],
    /// From one position of the window to the next.
    pub stride: &'a [usize],
    /// From one tap of the window to the next.
    pub dilation: &'a [usize],
    /// Padding before the input.
    pub pad: &'a [usize],
}

/// A checked [`Window`], filled up to three dimensions by ones in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub(crate) input: [usize; 3],
    pub(crate) output: [usize; 3],
    pub(crate) kernel: [usize; 3],
    pub(crate) stride: [usize; 3],
    pub(crate) dilation: [usize; 3],
    pub(crate) pad: [usize; 3],
}

/// Positions are computed in `isize`; nothing real comes near.
const LARGEST: usize = 1 << 40;

impl Geometry {
    /// Checks a window.
    ///
    /// # Errors
    /// Not one to three dimensions, lists of different length, a stride,
    /// dilation or kernel of 0, or sizes beyond 2^40 in all.
    pub fn new(window: &Window<'_>) -> Result<Self, KernelError> {
        let Window { input, output, kernel, stride, dilation, pad } = *window;
        let rank = input.len();
        if !(1..=3).contains(&rank) {
            return Err(KernelError::Shape("a window has one to three spatial dimensions"));
        }
        if [output, kernel, stride, dilation, pad].iter().any(|list| list.len() != rank) {
            return Err(KernelError::Shape("lists of a window differ in length"));
        }
        if [kernel, stride, dilation].iter().any(|list| list.contains(&0)) {
            return Err(KernelError::Shape("kernel, stride or dilation of a window is 0"));
        }
        let three = |list: &[usize], fill: usize| {
            let mut out = [fill; 3];
            out[3 - rank..].copy_from_slice(list);
            out
        };
        let made = Geometry {
            input: three(input, 1),
            output: three(output, 1),
            kernel: three(kernel, 1),
            stride: three(stride, 1),
            dilation: three(dilation, 1),
            pad: three(pad, 0),
        };
        let volumes = [made.input, made.output, made.kernel];
        let volumes = volumes.iter().map(|sizes| sizes.iter().fold(1_usize, |v, &s| v.saturating_mul(s)));
        let reaches = (0..3).map(|d| {
            let last = made.output[d].saturating_mul(made.stride[d]);
            last.saturating_add(made.kernel[d].saturating_mul(made.dilation[d])).saturating_add(made.pad[d])
        });
        if volumes.chain(reaches).any(|size| size > LARGEST) {
            return Err(KernelError::Shape("a window reaches too far"));
        }
        Ok(made)
    }

    /// Values of an input plane.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.input.iter().product()
    }

    /// Values of an output plane.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.output.iter().product()
    }

    /// Taps of the window.
    #[must_use]
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Whether the window is a single tap that takes each input once.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.taps() == 1 && self.stride == [1; 3] && self.pad == [0; 3] && self.input == self.output
    }

    /// Where tap `tap` of the window at `out` stands in dimension `d`.
    pub(crate) fn at(&self, d: usize, out: usize, tap: usize) -> Option<usize> {
        let at = (out * self.stride[d] + tap * self.dilation[d]).checked_sub(self.pad[d])?;
        (at < self.input[d]).then_some(at)
    }

    /// The positions of the window in dimension `d` whose tap `tap` is inside
    /// the input.
    pub(crate) fn inside(&self, d: usize, tap: usize) -> Range<usize> {
        let (stride, shift) = (self.stride[d], tap * self.dilation[d]);
        let first = self.pad[d].saturating_sub(shift).div_ceil(stride);
        // The first position whose tap is at `input` or beyond.
        let end = (self.input[d] + self.pad[d]).saturating_sub(shift).div_ceil(stride);
        let end = end.min(self.output[d]);
        first.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window<'a>(input: &'a [usize], output: &'a [usize], rest: [&'a [usize]; 4]) -> Window<'a> {
        let [kernel, stride, dilation, pad] = rest;
        Window { input, output, kernel, stride, dilation, pad }
    }

    #[test]
    fn inside_agrees_with_at() {
        for (input, output, kernel, stride, dilation, pad) in
            [(7, 7, 3, 1, 1, 1), (8, 4, 3, 2, 1, 1), (5, 9, 2, 1, 3, 4), (3, 6, 5, 3, 2, 8), (0, 3, 1, 1, 1, 2)]
        {
            let rest: [&[usize]; 4] = [&[kernel], &[stride], &[dilation], &[pad]];
            let g = Geometry::new(&window(&[input], &[output], rest)).unwrap();
            for tap in 0..kernel {
                let want: Vec<_> = (0..output).filter(|&out| g.at(2, out, tap).is_some()).collect();
                assert_eq!(g.inside(2, tap).collect::<Vec<_>>(), want, "{g:?} tap {tap}");
            }
        }
    }

    #[test]
    fn what_is_no_window_is_refused() {
        let one: [&[usize]; 4] = [&[1], &[1], &[1], &[0]];
        let cases: [(&str, Window<'_>); 5] = [
            ("one to three", window(&[], &[], [&[]; 4])),
            ("one to three", window(&[1; 4], &[1; 4], [&[1; 4]; 4])),
            ("differ in length", window(&[5], &[5, 5], one)),
            ("is 0", window(&[5], &[5], [&[1], &[0], &[1], &[0]])),
            ("too far", window(&[5], &[usize::MAX], one)),
        ];
        for (part, case) in cases {
            let text = Geometry::new(&case).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
