//! Functions of one value on vectors that only operators need. Accuracy is that of the functions in `simd` that they are
//! made of: a few ulp.

use crate::simd::{Math, Simd, UnaryOp};

/// Functions without parameters.
macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = |$s:ident, $x:ident| $e:expr;)*) => { $(
        $(#[$doc])*
        pub(in crate::ops) struct $name;
        impl UnaryOp for $name {
            #[inline(always)]
            fn apply<S: Simd>(&self, $s: S, $x: S::F32) -> S::F32 {
                $e
            }
        }
    )* };
}

ops! {
    /// Up to an integer.
    Ceil = |s, x| s.neg(s.floor(s.neg(x)));
    /// -1, 0 or 1.
    Sign = |s, x| {
        let one = s.copysign(s.splat(1.0), x);
        s.select(s.or(s.lt(x, s.zero()), s.gt(x, s.zero())), one, x)
    };
    /// `ln(1 + e^x)`
    Softplus = |s, x| softplus(s, x);
    /// `x / (1 + |x|)`
    Softsign = |s, x| s.div(x, s.add(s.splat(1.0), s.abs(x)));
    /// `x * tanh(softplus(x))`
    Mish = |s, x| s.mul(x, s.tanh(softplus(s, x)));
}

/// Functions with parameters.
macro_rules! with {
    ($($(#[$doc:meta])* $name:ident { $($field:ident),+ } = |$s:ident, $x:ident| $e:expr;)*) => { $(
        $(#[$doc])*
        pub(in crate::ops) struct $name {
            $(pub $field: f32),+
        }
        impl UnaryOp for $name {
            #[inline(always)]
            fn apply<S: Simd>(&self, $s: S, $x: S::F32) -> S::F32 {
                let $name { $($field),+ } = *self;
                $e
            }
        }
    )* };
}

with! {
    /// `max(x, 0) + min(alpha * (e^(x / alpha) - 1), 0)`
    Celu { alpha } = |s, x| {
        let low = s.mul(exp_m1(s, s.div(x, s.splat(alpha))), s.splat(alpha));
        s.add(s.max(s.zero(), x), s.min(s.zero(), low))
    };
    /// `x`, or `alpha * (e^x - 1)` where negative.
    Elu { alpha } = |s, x| s.select(s.lt(x, s.zero()), s.mul(exp_m1(s, x), s.splat(alpha)), x);
    /// `gamma` times Elu.
    Selu { alpha, gamma } = |s, x| {
        let elu = s.select(s.lt(x, s.zero()), s.mul(exp_m1(s, x), s.splat(alpha)), x);
        s.mul(elu, s.splat(gamma))
    };
    /// Nearer to 0 by `bias`; 0 for values up to `limit` from it.
    Shrink { bias, limit } = |s, x| {
        let high = s.select(s.gt(x, s.splat(limit)), s.sub(x, s.splat(bias)), s.zero());
        s.select(s.lt(x, s.splat(-limit)), s.add(x, s.splat(bias)), high)
    };
    /// `x * sigmoid(alpha * x)`
    Swish { alpha } = |s, x| s.mul(x, s.sigmoid(s.mul(x, s.splat(alpha))));
    /// `x` above alpha, else 0.
    Thresholded { alpha } = |s, x| s.select(s.gt(x, s.splat(alpha)), x, s.zero());
}

/// `e^x - 1`, as exact near 0 as elsewhere.
#[inline(always)]
fn exp_m1<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // (e^x - 1 - x) / x^2 on |x| <= ln 2 / 2, as in exp.
    let p = s.poly(x, [0.001_381_449_6, 0.008_368_78, 0.041_668_394, 0.166_665_2, 0.499_999_93]);
    let near = s.fma(s.mul(x, x), p, x);
    let far = s.sub(s.exp(x), s.splat(1.0));
    s.select(s.le(s.abs(x), s.splat(0.346)), near, far)
}

#[inline(always)]
fn softplus<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // ln(1 + e) for a small e: what was rounded away in 1 + e is put back by a factor.
    let (e, one) = (s.exp(s.neg(s.abs(x))), s.splat(1.0));
    let sum = s.add(one, e);
    let rest = s.sub(sum, one);
    let ln = s.select(s.eq(rest, s.zero()), e, s.mul(s.ln(sum), s.div(e, rest)));
    s.add(s.max(s.zero(), x), ln)
}
