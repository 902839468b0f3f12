//! Functions of one tensor, element by element.

use super::lane::{Number, Real, Signed};
use super::{Cpu, GRAIN, cost};
use crate::simd::{Isa, UnaryOp, ops};
use ortolan_ep_kit::element::PLAIN;
use ortolan_ep_kit::{Args, Cost, Fault, Kernel, NodeView, Op, Reject, any, split, typed};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Abs", (6, 13), "abs", typed!(abs: f32 f64 i8 i16 i32 i64)).in_place(OVER),
    Kernel::new("Erf", (9, 13), "erf", typed!(erf: f32)).in_place(OVER),
    Kernel::new("Exp", (6, 13), "exp", typed!(exp: f32 f64)).in_place(OVER),
    Kernel::new("Floor", (6, 13), "floor", typed!(floor: f32 f64)).in_place(OVER),
    Kernel::new("HardSigmoid", (6, 22), "hardsigmoid", typed!(hard_sigmoid: f32 f64)).in_place(OVER),
    Kernel::new("HardSwish", (14, 22), "hardswish", typed!(hard_swish: f32 f64)).in_place(OVER),
    Kernel::new("Identity", (1, 25), "identity", any!(view)).types(&[("T", PLAIN)]).view(),
    Kernel::new("LeakyRelu", (6, 16), "leakyrelu", typed!(leaky_relu: f32 f64)).in_place(OVER),
    Kernel::new("Log", (6, 13), "log", typed!(log: f32 f64)).in_place(OVER),
    Kernel::new("Neg", (6, 13), "neg", typed!(neg: f32 f64 i8 i16 i32 i64)).in_place(OVER),
    Kernel::new("Reciprocal", (6, 13), "reciprocal", typed!(reciprocal: f32 f64)).in_place(OVER),
    Kernel::new("Relu", (6, 14), "relu", typed!(relu: f32 f64 i8 i16 i32 i64)).in_place(OVER),
    Kernel::new("Round", (11, 22), "round", typed!(round: f32 f64)).in_place(OVER),
    Kernel::new("Sigmoid", (6, 13), "sigmoid", typed!(sigmoid: f32 f64)).in_place(OVER),
    Kernel::new("Sqrt", (6, 13), "sqrt", typed!(sqrt: f32 f64)).in_place(OVER),
    Kernel::new("Tanh", (6, 13), "tanh", typed!(tanh: f32 f64)).in_place(OVER),
];

const OVER: &[(u8, u8)] = &[(0, 0)];

/// A function of one value, with up to two parameters.
struct Unary {
    isa: Isa,
    alpha: f32,
    beta: f32,
}

impl Op for Unary {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        let of = |name| node.float_if(name).unwrap_or(0.0); // operators without the attribute never look at it
        Ok(Unary { isa: Cpu::of(node).isa, alpha: of("alpha"), beta: of("beta") })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.2)
    }
}

/// A function per row: its vectors for f32, and one element of any other type.
macro_rules! functions {
    ($($name:ident<$t:ident: $bound:ident>($op:ident) = $vector:expr, |$x:ident| $scalar:expr;)*) => { $(
        fn $name<$t: $bound>($op: &Unary, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
            run($op.isa, args, &$vector, |$x: $t| $scalar)
        }
    )* };
}

functions! {
    abs<T: Signed>(op) = ops::Abs, |x| x.magnitude();
    exp<T: Real>(op) = ops::Exp, |x| x.exp();
    floor<T: Real>(op) = ops::Floor, |x| x.floor();
    hard_sigmoid<T: Real>(op) = ops::HardSigmoid { alpha: op.alpha, beta: op.beta },
        |x| gate(x, T::of(op.alpha), T::of(op.beta));
    hard_swish<T: Real>(op) = ops::HardSwish, |x| x.times(gate(x, T::of(1.0).over(T::of(6.0)), T::of(0.5)));
    leaky_relu<T: Real>(op) = ops::LeakyRelu { alpha: op.alpha },
        |x| if x < T::default() { x.times(T::of(op.alpha)) } else { x };
    log<T: Real>(op) = ops::Ln, |x| x.ln();
    neg<T: Signed>(op) = ops::Neg, |x| x.negate();
    reciprocal<T: Real>(op) = ops::Reciprocal, |x| T::of(1.0).over(x);
    relu<T: Number>(op) = ops::Relu, |x| if x < T::default() { T::default() } else { x };
    round<T: Real>(op) = ops::Round, |x| x.round_even();
    sigmoid<T: Real>(op) = ops::Sigmoid, |x| T::of(1.0).over(T::of(1.0).plus(x.negate().exp()));
    sqrt<T: Real>(op) = ops::Sqrt, |x| x.sqrt();
    tanh<T: Real>(op) = ops::Tanh, |x| x.tanh();
}

/// `clip(alpha * x + beta, 0, 1)`; NaN stays NaN.
fn gate<T: Real>(x: T, alpha: T, beta: T) -> T {
    let line = x.times(alpha).plus(beta);
    let low = if line < T::default() { T::default() } else { line };
    if low > T::of(1.0) { T::of(1.0) } else { low }
}

fn erf<T: Number>(op: &Unary, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    run(op.isa, args, &ops::Erf, |x: T| x) // the row has f32 only, which runs the vectors
}

fn run<T: Number, V: UnaryOp>(
    isa: Isa,
    args: &mut Args<'_>,
    vector: &V,
    scalar: impl Fn(T) -> T + Sync,
) -> Result<(), Fault> {
    let alias = args.alias(0);
    let y = args.output::<T>(0);
    if alias.is_some() {
        return Ok(split::rows(args.par(), y, 1, GRAIN, |_, _, y| T::map_in_place(isa, vector, &scalar, y))?);
    }
    let x = args.input::<T>(0);
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, at, y| T::map(isa, vector, &scalar, &x[at..at + y.len()], y))?)
}

/// Never called: the row is a view.
fn view(_: &Unary, (): &(), _: &mut Args<'_>) -> Result<(), Fault> {
    Err(Fault::data("a view has nothing to run"))
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{Tensor, assert_close};

    fn erf(x: f64) -> f64 {
        // erf by its series and its continued fraction, each where it converges.
        if x.abs() < 2.5 {
            let (mut term, mut sum) = (x, x);
            for n in 1..80 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return sum * 2.0 / core::f64::consts::PI.sqrt();
        }
        let mut fraction = 0.0;
        for n in (1..60).rev() {
            fraction = f64::from(n) / 2.0 / (x.abs() + fraction);
        }
        x.signum() * (1.0 - (-x * x).exp() / ((x.abs() + fraction) * core::f64::consts::PI.sqrt()))
    }

    const LEAKY: f64 = 0.1f32 as f64;

    #[test]
    fn like_the_definition() {
        type Row = (&'static str, u32, fn(f64) -> f64, f64);
        // Operator, version, definition, tolerance: 4 ulp where the function is computed, 0 where it is exact.
        let cases: &[Row] = &[
            ("Abs", 13, f64::abs, 0.0),
            ("Erf", 13, erf, 5e-7),
            ("Exp", 13, f64::exp, 5e-7),
            ("Floor", 13, f64::floor, 0.0),
            ("HardSigmoid", 22, |x| (0.25 * x + 0.5).clamp(0.0, 1.0), 5e-7),
            ("HardSwish", 22, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), 5e-7),
            ("LeakyRelu", 16, |x| if x < 0.0 { LEAKY * x } else { x }, 1e-7),
            ("Neg", 13, |x| -x, 0.0),
            ("Reciprocal", 13, f64::recip, 1e-7),
            ("Relu", 14, |x| x.max(0.0), 0.0),
            ("Round", 22, f64::round_ties_even, 0.0),
            ("Sigmoid", 13, |x| 1.0 / (1.0 + (-x).exp()), 5e-7),
            ("Tanh", 13, f64::tanh, 5e-7),
        ];
        for &(op, version, f, tolerance) in cases {
            for dims in [&[][..], &[0], &[5], &[3, 7], &[2, 33_001]] {
                let number = |k: usize| ((k as f32 * 0.713).sin() * 6.0 * 64.0).round() / 64.0 + 1.0 / 128.0;
                let x = Tensor::from_fn(dims, number);
                let want = Tensor::from_fn(dims, |k| f(f64::from(number(k))) as f32);
                let double = Tensor::from_fn(dims, |k| f64::from(number(k)));
                let want_double = Tensor::from_fn(dims, |k| f(f64::from(number(k))));
                on_all(op, version, |case| {
                    let case = case.float("alpha", if op == "LeakyRelu" { 0.1 } else { 0.25 }).float("beta", 0.5);
                    assert_close(&case.input(&x).output(DType::F32, dims).run()[0], &want, tolerance);
                });
                if op != "Erf" {
                    let case = Case::new(op, version).float("beta", 0.5);
                    let case = case.float("alpha", if op == "LeakyRelu" { 0.1 } else { 0.25 });
                    assert_close(&case.input(&double).output(DType::F64, dims).run()[0], &want_double, 1e-14);
                }
            }
        }
    }

    #[test]
    fn roots_and_logarithms() {
        let x = Tensor::from_fn(&[37], |k| k as f32 * 0.3 + 0.01);
        for (op, f) in [("Sqrt", f64::sqrt as fn(f64) -> f64), ("Log", f64::ln)] {
            let want = Tensor::from_fn(&[37], |k| f(f64::from(k as f32 * 0.3 + 0.01)) as f32);
            on_all(op, 13, |case| assert_close(&case.input(&x).output(DType::F32, &[37]).run()[0], &want, 5e-7));
        }
    }

    #[test]
    fn integers_and_nan() {
        let x = Tensor::new(&[3], &[-5i32, 0, i32::MIN]);
        let y = Case::new("Relu", 14).input(&x).output(DType::I32, &[3]).run();
        assert_eq!(y[0].to_vec::<i32>(), [0, 0, 0]);
        let y = Case::new("Abs", 13).input(&x).output(DType::I32, &[3]).run();
        assert_eq!(y[0].to_vec::<i32>(), [5, 0, i32::MIN]);
        for op in ["Relu", "Sigmoid", "Tanh", "Exp"] {
            let nan = Tensor::new(&[1], &[f32::NAN]);
            let version = if op == "Relu" { 14 } else { 13 };
            on_all(op, version, |case| {
                assert!(case.input(&nan).output(DType::F32, &[1]).run()[0].to_vec::<f32>()[0].is_nan(), "{op}");
            });
        }
    }

    #[test]
    fn identity_keeps_every_type() {
        let x = Tensor { dtype: DType::U4, dims: vec![3], bytes: vec![0x21, 0x03] };
        assert_eq!(Case::new("Identity", 25).input(&x).output(DType::U4, &[3]).run(), [x]);
    }
}
