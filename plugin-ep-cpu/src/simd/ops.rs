//! Element-wise operations as types, for [`map_unary`](super::map_unary),
//! [`map_binary`](super::map_binary) and whatever else applies one to vectors.
//!
//! An operation has no scalar form: the ends of slices go through the same
//! instructions, so a value's result does not depend on where it stands.

use super::{Math, Simd};

/// A function of one value.
pub trait UnaryOp: Sync {
    /// The function on a vector. Must be `#[inline(always)]`.
    fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32;
}

/// A function of two values.
pub trait BinaryOp: Sync {
    /// The function on vectors. Must be `#[inline(always)]`.
    fn apply<S: Simd>(&self, s: S, a: S::F32, b: S::F32) -> S::F32;
}

/// A binary operation with its operands exchanged.
#[derive(Clone, Copy, Debug)]
pub struct Swap<O>(pub O);

impl<O: BinaryOp> BinaryOp for Swap<O> {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, a: S::F32, b: S::F32) -> S::F32 {
        self.0.apply(s, b, a)
    }
}

/// Operations without parameters: documentation, name, function.
macro_rules! ops {
    ($trait:ident: $($(#[$doc:meta])* $name:ident = |$s:ident, $($x:ident),+| $e:expr;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;
        impl $trait for $name {
            #[inline(always)]
            fn apply<S: Simd>(&self, $s: S, $($x: S::F32),+) -> S::F32 {
                $e
            }
        })*
    };
}

ops! { UnaryOp:
    /// `|x|`
    Abs = |s, x| s.abs(x);
    /// Error function.
    Erf = |s, x| s.erf(x);
    /// `e^x`
    Exp = |s, x| s.exp(x);
    /// Down to an integer.
    Floor = |s, x| s.floor(x);
    /// `x / 2 * (1 + erf(x / sqrt 2))`
    Gelu = |s, x| {
        let half = s.mul(x, s.splat(0.5));
        s.fma(half, s.erf(s.mul(x, s.splat(core::f32::consts::FRAC_1_SQRT_2))), half)
    };
    /// Gelu by its tanh approximation.
    GeluTanh = |s, x| {
        // sqrt(2 / pi) * (x + 0.044715 x^3)
        let inner = s.fma(s.mul(s.mul(x, x), s.splat(0.044_715)), x, x);
        let half = s.mul(x, s.splat(0.5));
        s.fma(half, s.tanh(s.mul(inner, s.splat(0.797_884_6))), half)
    };
    /// `x * clip(x / 6 + 1 / 2, 0, 1)`
    HardSwish = |s, x| {
        let gate = s.fma(x, s.splat(1.0 / 6.0), s.splat(0.5));
        s.mul(x, s.clip(gate, s.zero(), s.splat(1.0)))
    };
    /// Natural logarithm.
    Ln = |s, x| s.ln(x);
    /// `-x`
    Neg = |s, x| s.neg(x);
    /// `1 / x`
    Reciprocal = |s, x| s.div(s.splat(1.0), x);
    /// `max(x, 0)`; NaN stays NaN.
    Relu = |s, x| s.max(s.zero(), x);
    /// To the nearest integer, halves to even.
    Round = |s, x| s.round(x);
    /// `1 / (1 + e^-x)`
    Sigmoid = |s, x| s.sigmoid(x);
    /// `x * sigmoid(x)`
    Silu = |s, x| s.mul(x, s.sigmoid(x));
    /// Square root.
    Sqrt = |s, x| s.sqrt(x);
    /// Hyperbolic tangent.
    Tanh = |s, x| s.tanh(x);
}

ops! { BinaryOp:
    /// `a + b`
    Add = |s, a, b| s.add(a, b);
    /// `a / b`
    Div = |s, a, b| s.div(a, b);
    /// The greater; NaN if either is NaN.
    Max = |s, a, b| s.select(s.ne(a, a), a, s.max(a, b));
    /// The less; NaN if either is NaN.
    Min = |s, a, b| s.select(s.ne(a, a), a, s.min(a, b));
    /// `a * b`
    Mul = |s, a, b| s.mul(a, b);
    /// `a - b`
    Sub = |s, a, b| s.sub(a, b);
}

/// `x` held between two bounds; NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub struct Clip {
    /// Nothing below it.
    pub low: f32,
    /// Nothing above it.
    pub high: f32,
}

impl UnaryOp for Clip {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
        s.clip(x, s.splat(self.low), s.splat(self.high))
    }
}

/// `clip(alpha * x + beta, 0, 1)`
#[derive(Clone, Copy, Debug)]
pub struct HardSigmoid {
    /// Slope.
    pub alpha: f32,
    /// Offset.
    pub beta: f32,
}

impl UnaryOp for HardSigmoid {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
        let line = s.fma(x, s.splat(self.alpha), s.splat(self.beta));
        s.clip(line, s.zero(), s.splat(1.0))
    }
}

/// `x`, times `alpha` where negative.
#[derive(Clone, Copy, Debug)]
pub struct LeakyRelu {
    /// Slope for negative values.
    pub alpha: f32,
}

impl UnaryOp for LeakyRelu {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
        s.select(s.lt(x, s.zero()), s.mul(x, s.splat(self.alpha)), x)
    }
}

/// `scale * x + shift`
#[derive(Clone, Copy, Debug)]
pub struct Affine {
    /// Factor.
    pub scale: f32,
    /// Summand.
    pub shift: f32,
}

impl UnaryOp for Affine {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
        s.fma(x, s.splat(self.scale), s.splat(self.shift))
    }
}
