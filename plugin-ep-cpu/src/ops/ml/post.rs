//! What classical models do to scores at the end.

use ortolan_ep_kit::{NodeView, Reject};

/// The attribute `post_transform`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Post {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
}

/// In the order of the numbers that `TreeEnsemble` has for them.
const NAMES: [(&str, Post); 5] = [
    ("NONE", Post::None),
    ("SOFTMAX", Post::Softmax),
    ("LOGISTIC", Post::Logistic),
    ("SOFTMAX_ZERO", Post::SoftmaxZero),
    ("PROBIT", Post::Probit),
];

impl Post {
    /// The attribute as text.
    pub fn parse(node: &NodeView<'_>) -> Result<Post, Reject> {
        let name = node.text("post_transform").unwrap_or("NONE");
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, post)| *post).ok_or_else(|| {
            Reject::attribute(format!("attribute post_transform = '{name}' is no transform that the standard has"))
        })
    }

    /// The attribute as a number.
    pub fn parse_number(node: &NodeView<'_>) -> Result<Post, Reject> {
        let number = node.int("post_transform")?;
        let found = usize::try_from(number).ok().and_then(|k| NAMES.get(k));
        found.map(|(_, post)| *post).ok_or_else(|| {
            Reject::attribute(format!("attribute post_transform = {number} is no transform that the standard has"))
        })
    }

    /// Changes the scores of one row.
    pub fn apply(self, scores: &mut [f64]) {
        match self {
            Post::None => {}
            Post::Logistic => scores.iter_mut().for_each(|x| *x = logistic(*x)),
            Post::Probit => scores.iter_mut().for_each(|x| *x = probit(*x)),
            Post::Softmax => softmax(scores, |x, most| (x - most).exp()),
            // Zeros stay where they are.
            Post::SoftmaxZero => {
                softmax(scores, |x, most| if x.abs() > 1e-7 { (x - most).exp() } else { x * (-most).exp() })
            }
        }
    }
}

fn softmax(scores: &mut [f64], exp: impl Fn(f64, f64) -> f64) {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|x| *x = exp(*x, most));
    let sum: f64 = scores.iter().sum();
    match sum == 0.0 {
        true => scores.fill(0.5),
        false => scores.iter_mut().for_each(|x| *x /= sum),
    }
}

/// `1 / (1 + e^-x)`
pub(super) fn logistic(x: f64) -> f64 {
    let v = 1.0 / (1.0 + (-x.abs()).exp());
    if x < 0.0 { 1.0 - v } else { v }
}

/// The inverse of the normal distribution, by the approximation that the standard's own code has.
fn probit(x: f64) -> f64 {
    core::f64::consts::SQRT_2 * inverse_erf(2.0 * x - 1.0)
}

/// S. Winitzki: "A handy approximation for the error function and its inverse", 2008.
fn inverse_erf(x: f64) -> f64 {
    let product = (1.0 - x) * (1.0 + x);
    if product == 0.0 {
        return 0.0;
    }
    let log = product.ln();
    let v = 2.0 / (core::f64::consts::PI * 0.147) + 0.5 * log;
    let root = (v * v - log / 0.147).sqrt() - v;
    root.sqrt().copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_a_row() {
        let cases: &[(Post, &[f64], &[f64])] = &[
            (Post::None, &[1.0, -2.0], &[1.0, -2.0]),
            (Post::Logistic, &[0.0, 2.0, -2.0], &[0.5, 0.880_797, 0.119_203]),
            (Post::Softmax, &[1.0, 2.0, 0.0], &[0.244_728, 0.665_241, 0.090_031]),
            (Post::SoftmaxZero, &[1.0, 2.0, 0.0], &[0.268_941, 0.731_059, 0.0]),
            (Post::SoftmaxZero, &[0.0, 0.0], &[0.5, 0.5]),
            (Post::Probit, &[0.5, 0.975], &[0.0, 1.960_4]),
        ];
        for (post, scores, want) in cases {
            let mut got = scores.to_vec();
            post.apply(&mut got);
            for (got, want) in got.iter().zip(*want) {
                assert!((got - want).abs() < 2e-3, "{post:?} {scores:?}: {got}, expected {want}");
            }
        }
    }
}
