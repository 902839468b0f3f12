//! Optimisers: a step of training for any number of tensors, as `ai.onnx.preview.training` 1 defines them.
//!
//! After a rate R and a count of updates T come lists of one tensor for each parameter: parameters X, gradients G, and one
//! or two states. Parameters and states come out again. Each output is one pass over its inputs.

use super::float::{Float, Floats};
use super::{Cpu, GRAIN, cost};
use crate::simd::{Isa, Kernel as Body, Simd};
use core::ops::{Add, Div, Mul, Sub};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Element, Fault, Kernel, NodeView, Op, Reject, Shapes, Slot, split, typed};

const TENSORS: u64 = set(&[DType::F32, DType::F64]);
const TYPES: &[(&str, u64)] = &[("T3", TENSORS), ("T1", TENSORS)];
const AT: &[Slot] = &[Slot::In(2), Slot::In(0)];
const DOMAIN: &str = "ai.onnx.preview.training";

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Adagrad", (1, 1), "adagrad", typed!(update: f32 f64)).domain(DOMAIN).types(TYPES).at(AT),
    Kernel::new("Adam", (1, 1), "adam", typed!(update: f32 f64)).domain(DOMAIN).types(TYPES).at(AT),
    Kernel::new("Momentum", (1, 1), "momentum", typed!(update: f32 f64)).domain(DOMAIN).types(TYPES).at(AT),
];

/// A node has so many outputs at most.
const MOST_OUTPUTS: usize = 30;

struct Optimiser {
    isa: Isa,
    rule: Rule,
    /// Weight of a penalty on large parameters.
    norm: f32,
    rate: Float,
    /// Parameters.
    count: usize,
}

#[derive(Clone, Copy)]
enum Rule {
    Adagrad { decay: f32, epsilon: f32 },
    Adam { alpha: f32, beta: f32, epsilon: f32, post: f32 },
    Momentum { alpha: f32, beta: f32, nesterov: bool },
}

impl Rule {
    /// Parameters, gradients, states.
    fn lists(self) -> usize {
        if matches!(self, Rule::Adam { .. }) { 4 } else { 3 }
    }
}

impl Op for Optimiser {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rule = match node.op() {
            "Adagrad" => Rule::Adagrad { decay: node.float("decay_factor")?, epsilon: node.float("epsilon")? },
            "Adam" => Rule::Adam {
                alpha: node.float("alpha")?,
                beta: node.float("beta")?,
                epsilon: node.float("epsilon")?,
                post: node.float("norm_coefficient_post")?,
            },
            _ => Rule::Momentum {
                alpha: node.float("alpha")?,
                beta: node.float("beta")?,
                nesterov: match node.text("mode") {
                    Some("standard") => false,
                    Some("nesterov") => true,
                    mode => {
                        let mode = mode.unwrap_or("missing");
                        return Err(Reject::attribute(format!(
                            "attribute mode is {mode}, neither standard nor nesterov"
                        )));
                    }
                },
            },
        };
        let count = node.input_count().saturating_sub(2) / rule.lists();
        if node.input_count() != 2 + count * rule.lists() || node.output_count() != count * (rule.lists() - 1) {
            return Err(Reject::shape(format!("{} inputs are no R, T and equal lists", node.input_count())));
        }
        if node.output_count() > MOST_OUTPUTS {
            return Err(Reject::shape(format!("{} outputs, {MOST_OUTPUTS} are done", node.output_count())));
        }
        let dtype = node.needs(2)?.dtype();
        for (k, value) in (2..node.input_count()).map(|k| (k, node.input(k))) {
            if value.is_none_or(|v| v.dtype() as u32 != dtype as u32) {
                return Err(Reject::dtype(format!("input {k} is not {dtype} as input 2 is")));
            }
        }
        let norm = node.float("norm_coefficient")?;
        Ok(Optimiser { isa: Cpu::of(node).isa, rule, norm, rate: Float::input(node, 0)?, count })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, (): &mut ()) -> Result<(), Fault> {
        if (shapes.input_len(0), shapes.input_len(1)) != (1, 1) {
            return Err(Fault::data("R and T are not one number each"));
        }
        for k in 0..self.count {
            let x = shapes.input(2 + k);
            for list in 1..self.rule.lists() {
                let other = shapes.input(2 + list * self.count + k);
                if other != x {
                    return Err(Fault::data(format!("parameter {k} has dimensions {x:?}, a tensor with it {other:?}")));
                }
            }
        }
        Ok(())
    }
}

/// Numbers that are trained.
trait Weight:
    Element + Send + Sync + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    fn of(x: f64) -> Self;
    fn root(self) -> Self;
}

impl Weight for f32 {
    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32 // rounds to the nearest
    }
    #[inline(always)]
    fn root(self) -> f32 {
        self.sqrt()
    }
}

impl Weight for f64 {
    #[inline(always)]
    fn of(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn root(self) -> f64 {
        self.sqrt()
    }
}

fn update<T: Weight>(op: &Optimiser, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let (rate, done) = (Floats::input(args, 0, op.rate).get(0), args.input::<i64>(1)[0]);
    let of = |x: f32| T::of(x.into());
    let norm = of(op.norm);
    let regular = move |x: T, g: T| norm * x + g;
    let (n, isa, par) = (op.count, op.isa, args.par());
    for k in 0..n {
        let [x, g, state] = [0, 1, 2].map(|list| args.input::<T>(2 + list * n + k));
        let (to, new) = (args.output::<T>(k), args.output::<T>(n + k));
        match op.rule {
            Rule::Adagrad { decay, epsilon } => {
                let rate = T::of(rate / (1.0 + done as f64 * f64::from(decay))); // counts are small
                let epsilon = of(epsilon);
                pass(isa, par, [x, g, state], new, |x, g, h| h + regular(x, g) * regular(x, g))?;
                pass(isa, par, [x, g, new], to, |x, g, h| x - rate * regular(x, g) / (h.root() + epsilon))?;
            }
            Rule::Momentum { alpha, beta, nesterov } => {
                let (alpha, beta, rate) = (of(alpha), of(if done > 0 { beta } else { 1.0 }), T::of(rate));
                pass(isa, par, [x, g, state], new, |x, g, v| alpha * v + beta * regular(x, g))?;
                match nesterov {
                    true => pass(isa, par, [x, g, new], to, |x, g, v| x - rate * (regular(x, g) + alpha * v))?,
                    false => pass(isa, par, [x, g, new], to, |x, _, v| x - rate * v)?,
                }
            }
            Rule::Adam { alpha, beta, epsilon, post } => {
                let powers = [alpha, beta].map(|b| f64::from(b).powf(done as f64));
                let rate = if done > 0 { rate * (1.0 - powers[1]).sqrt() / (1.0 - powers[0]) } else { rate };
                let (rate, left, one) = (T::of(rate), T::of(1.0 - f64::from(post)), T::of(1.0));
                let (alpha, beta, epsilon) = (of(alpha), of(beta), of(epsilon));
                let (square, new_square) = (args.input::<T>(2 + 3 * n + k), args.output::<T>(2 * n + k));
                pass(isa, par, [x, g, state], new, |x, g, v| alpha * v + (one - alpha) * regular(x, g))?;
                pass(isa, par, [x, g, square], new_square, |x, g, h| {
                    beta * h + (one - beta) * regular(x, g) * regular(x, g)
                })?;
                pass(isa, par, [x, new, new_square], to, |x, v, h| left * (x - rate * v / (h.root() + epsilon)))?;
            }
        }
    }
    Ok(())
}

/// `y[i] = f(a[i], b[i], c[i])`
fn pass<T: Weight>(
    isa: Isa,
    par: &dyn Parallel,
    of: [&[T]; 3],
    y: &mut [T],
    f: impl Fn(T, T, T) -> T + Copy + Sync,
) -> Result<(), Fault> {
    split::rows(par, y, 1, GRAIN, |_, at, y| {
        isa.dispatch(Pass { of: of.map(|x| &x[at..at + y.len()]), y, f });
    })?;
    Ok(())
}

struct Pass<'a, T, F> {
    of: [&'a [T]; 3],
    y: &'a mut [T],
    f: F,
}

impl<T: Weight, F: Fn(T, T, T) -> T> Body for Pass<'_, T, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Pass { of: [a, b, c], y, f } = self;
        for (y, ((&a, &b), &c)) in y.iter_mut().zip(a.iter().zip(b).zip(c)) {
            *y = f(a, b, c);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{OpTest, Tensor};
    use ortolan_ep_kit::{DType, RejectCode};

    /// Two parameters; the first values of all are computed by hand.
    fn case(case: OpTest, done: i64, lists: usize) -> OpTest {
        let case = case.domain(super::DOMAIN).input(&Tensor::new(&[], &[0.1f32])).input(&Tensor::new(&[], &[done]));
        let case = (0..2 * lists).fold(case, |case, k| {
            let dims: &[i64] = if k % 2 == 0 { &[2, 3] } else { &[1] };
            // X 1, G -2, then states 0.5 and 4.
            case.input(&Tensor::from_fn(dims, |_| [1.0f32, -2.0, 0.5, 4.0][k / 2]))
        });
        (0..2 * (lists - 1)).fold(case, |case, k| {
            let dims: &[i64] = if k % 2 == 0 { &[2, 3] } else { &[1] };
            case.output(DType::F32, dims)
        })
    }

    fn check(got: &[Tensor], want: &[f64]) {
        for (k, y) in got.iter().enumerate() {
            for y in y.to_vec::<f32>() {
                assert!((f64::from(y) - want[k / 2]).abs() < 1e-5, "output {k}: {y}, expected {}", want[k / 2]);
            }
        }
    }

    #[test]
    fn steps_by_hand() {
        // A regular gradient of 0.5 * 1 - 2 = -1.5 in all of them.
        on_all("Adagrad", 1, |op| {
            let op = op.float("decay_factor", 0.5).float("epsilon", 0.25).float("norm_coefficient", 0.5);
            let h = 0.5 + 2.25f64;
            check(&case(op, 2, 3).run(), &[1.0 + 0.05 * 1.5 / (h.sqrt() + 0.25), h]);
        });
        for (done, mode) in [(0, "standard"), (3, "standard"), (3, "nesterov")] {
            on_all("Momentum", 1, |op| {
                let op = op.float("alpha", 0.5).float("beta", 0.25).float("norm_coefficient", 0.5).text("mode", mode);
                let v = 0.25 - 1.5 * if done == 0 { 1.0 } else { 0.25 };
                let x = if mode == "standard" { 1.0 - 0.1 * v } else { 1.0 - 0.1 * (-1.5 + 0.5 * v) };
                check(&case(op, done, 3).run(), &[x, v]);
            });
        }
        for done in [0, 3] {
            on_all("Adam", 1, |op| {
                let op = op.float("alpha", 0.5).float("beta", 0.75).float("epsilon", 0.25);
                let op = op.float("norm_coefficient", 0.5).float("norm_coefficient_post", 0.125);
                let (v, h) = (0.25 - 0.75, 3.0 + 0.25 * 2.25f64);
                let rate = if done == 0 { 0.1 } else { 0.1 * (1.0 - 0.75f64.powi(3)).sqrt() / (1.0 - 0.125) };
                check(&case(op, done, 4).run(), &[0.875 * (1.0 - rate * v / (h.sqrt() + 0.25)), v, h]);
            });
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let one = Tensor::new(&[1], &[1.0f32]);
        let op = Case::new("Momentum", 1).domain(super::DOMAIN).float("alpha", 0.5).float("beta", 0.5);
        let op = op.float("norm_coefficient", 0.0).input(&one).input(&Tensor::new(&[1], &[0i64]));
        let (code, text) = op.text("mode", "other").input(&one).output(DType::F32, &[1]).rejection();
        assert_eq!(code, RejectCode::Attribute, "{text}");
        assert!(text.contains("mode is other"), "{text}");
    }
}
