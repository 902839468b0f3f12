//! The functions that recurrent cells apply to their gates.

use crate::simd::{Math, Simd};
use ortolan_ep_kit::{NodeView, Reject};

/// One of the functions that the standard allows, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Activation {
    Affine(f32, f32),
    Elu(f32),
    HardSigmoid(f32, f32),
    LeakyRelu(f32),
    Relu,
    ScaledTanh(f32, f32),
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu(f32),
}

use Activation::{
    Affine, Elu, HardSigmoid, LeakyRelu, Relu, ScaledTanh, Sigmoid, Softplus, Softsign, Tanh, ThresholdedRelu,
};

/// Names in lower case, with the defaults of their parameters.
const NAMES: &[(&str, Activation)] = &[
    ("affine", Affine(1.0, 0.0)),
    ("elu", Elu(1.0)),
    ("hardsigmoid", HardSigmoid(0.2, 0.5)),
    ("leakyrelu", LeakyRelu(0.01)),
    ("relu", Relu),
    ("scaledtanh", ScaledTanh(1.0, 1.0)),
    ("sigmoid", Sigmoid),
    ("softplus", Softplus),
    ("softsign", Softsign),
    ("tanh", Tanh),
    ("thresholdedrelu", ThresholdedRelu(1.0)),
];

/// The functions of both directions: `usual` is what one direction has when the node says nothing. Parameters are taken
/// from the lists in order, by those functions that have them.
pub(super) fn activations<const N: usize>(
    node: &NodeView<'_>,
    directions: usize,
    usual: [Activation; N],
) -> Result<[[Activation; N]; 2], Reject> {
    let mut all = [usual; 2];
    let Some(names) = node.texts("activations") else { return Ok(all) };
    let mut alphas = node.floats("activation_alpha").unwrap_or(&[]).iter();
    let mut betas = node.floats("activation_beta").unwrap_or(&[]).iter();
    let mut count = 0;
    for (k, name) in names.enumerate() {
        let lower = name.to_ascii_lowercase();
        let found = NAMES.iter().find(|(known, _)| *known == lower);
        let &(_, function) = found
            .ok_or_else(|| Reject::attribute(format!("attribute activations has '{name}', which is no function")))?;
        let alpha = |own: f32, alphas: &mut core::slice::Iter<'_, f32>| alphas.next().copied().unwrap_or(own);
        let function = match function {
            Affine(a, b) => Affine(alpha(a, &mut alphas), alpha(b, &mut betas)),
            Elu(a) => Elu(alpha(a, &mut alphas)),
            HardSigmoid(a, b) => HardSigmoid(alpha(a, &mut alphas), alpha(b, &mut betas)),
            LeakyRelu(a) => LeakyRelu(alpha(a, &mut alphas)),
            ScaledTanh(a, b) => ScaledTanh(alpha(a, &mut alphas), alpha(b, &mut betas)),
            ThresholdedRelu(a) => ThresholdedRelu(alpha(a, &mut alphas)),
            plain => plain,
        };
        if let Some(slot) = all.as_flattened_mut().get_mut(k) {
            *slot = function;
        }
        count = k + 1;
    }
    // RNN's default names two functions whatever the direction.
    let fits = count == N * directions || (N == 1 && count == 2);
    if !fits {
        let need = N * directions;
        return Err(Reject::attribute(format!("attribute activations has {count} functions, needed are {need}")));
    }
    Ok(all)
}

/// A function of a vector.
pub(super) trait Gate: Copy + Send + Sync {
    fn apply<S: Simd>(self, s: S, x: S::F32) -> S::F32;
}

/// [`Activation::Sigmoid`], known when kernels are compiled.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsualSigmoid;
/// [`Activation::Tanh`], known when kernels are compiled.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsualTanh;

impl Gate for UsualSigmoid {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F32) -> S::F32 {
        s.sigmoid(x)
    }
}

impl Gate for UsualTanh {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F32) -> S::F32 {
        s.tanh(x)
    }
}

impl Gate for Activation {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F32) -> S::F32 {
        let (zero, one) = (s.zero(), s.splat(1.0));
        let line = |a: f32, b: f32| s.fma(x, s.splat(a), s.splat(b));
        match self {
            Affine(a, b) => line(a, b),
            Elu(a) => s.select(s.lt(x, zero), s.mul(s.splat(a), s.sub(s.exp(x), one)), x),
            HardSigmoid(a, b) => s.clip(line(a, b), zero, one),
            LeakyRelu(a) => s.select(s.lt(x, zero), s.mul(s.splat(a), x), x),
            Relu => s.max(zero, x),
            ScaledTanh(a, b) => s.mul(s.splat(a), s.tanh(s.mul(s.splat(b), x))),
            Sigmoid => s.sigmoid(x),
            // ln(1 + e^x) without e^x where it would overflow
            Softplus => s.add(s.max(zero, x), s.ln(s.add(one, s.exp(s.neg(s.abs(x)))))),
            Softsign => s.div(x, s.add(one, s.abs(x))),
            Tanh => s.tanh(x),
            ThresholdedRelu(a) => s.select(s.gt(x, s.splat(a)), x, zero),
        }
    }
}

impl Activation {
    /// The function of one number.
    pub fn of(self, x: f64) -> f64 {
        let wide = f64::from;
        match self {
            Affine(a, b) => wide(a) * x + wide(b),
            Elu(a) => {
                if x < 0.0 {
                    wide(a) * x.exp_m1()
                } else {
                    x
                }
            }
            HardSigmoid(a, b) => (wide(a) * x + wide(b)).clamp(0.0, 1.0),
            LeakyRelu(a) => {
                if x < 0.0 {
                    wide(a) * x
                } else {
                    x
                }
            }
            Relu => x.max(0.0),
            ScaledTanh(a, b) => wide(a) * (wide(b) * x).tanh(),
            Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Softsign => x / (1.0 + x.abs()),
            Tanh => x.tanh(),
            ThresholdedRelu(a) => {
                if x > wide(a) {
                    x
                } else {
                    0.0
                }
            }
        }
    }
}
