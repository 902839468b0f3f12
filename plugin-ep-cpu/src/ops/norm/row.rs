//! Moments of a row of f32, and the step that follows them. It must not know operators.

use crate::ops::lane::Side;
use crate::simd::{self, Isa, Kernel, Simd};

/// No lower bound.
pub(in crate::ops) const NONE: f32 = f32::NEG_INFINITY;

/// Mean of the values; NaN for none.
pub(in crate::ops) fn mean(isa: Isa, x: &[f32]) -> f32 {
    simd::sum(isa, x) / x.len() as f32 // a length beyond 2^24 is rounded as the sum is
}

/// Mean of `(x - mean)^2`; NaN for none.
pub(in crate::ops) fn variance(isa: Isa, x: &[f32], mean: f32) -> f32 {
    simd::sum_squares(isa, x, mean) / x.len() as f32 // as above
}

/// `y = max((x - mean) * inverse * scale + bias, floor)`; NaN stays NaN.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops) struct Affine<'a> {
    pub mean: f32,
    pub inverse: f32,
    pub scale: Side<'a, f32>,
    pub bias: Side<'a, f32>,
    pub floor: f32,
}

/// Over a row of `x`, or of `y` itself.
///
/// # Panics
/// When a slice is shorter than `y`.
pub(in crate::ops) fn affine(isa: Isa, x: Option<&[f32]>, y: &mut [f32], affine: Affine<'_>) {
    isa.dispatch(Run { x, y, affine });
}

struct Run<'a> {
    x: Option<&'a [f32]>,
    y: &'a mut [f32],
    affine: Affine<'a>,
}

impl Kernel for Run<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Run { x, y, affine: Affine { mean, inverse, scale, bias, floor } } = self;
        let (mean, inverse, floor) = (s.splat(mean), s.splat(inverse), s.splat(floor));
        let mut at = 0;
        while at < y.len() {
            let x = s.load_slice(&x.unwrap_or(y)[at..]);
            let factor = s.mul(inverse, load(s, scale, at));
            let value = s.fma(s.sub(x, mean), factor, load(s, bias, at));
            s.store_slice(&mut y[at..], s.max(floor, value));
            at += S::LANES;
        }
    }
}

#[inline(always)]
fn load<S: Simd>(s: S, side: Side<'_, f32>, at: usize) -> S::F32 {
    match side {
        Side::Slice(x) => s.load_slice(&x[at..]),
        Side::Scalar(x) => s.splat(x),
    }
}
