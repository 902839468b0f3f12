//! Functions of one tensor, element by element.
//!
//! `vectors` has those that only operators need; `clip` has bounds, `trig` the functions of angles.

mod clip;
mod trig;
pub(super) mod vectors;

use super::lane::{Number, Real, Signed};
use super::narrow::{Bf16, F16};
use super::{Cpu, GRAIN, cost};
use crate::simd::{Isa, UnaryOp, ops};
use clip::clip;
use ortolan_ep_kit::element::{PLAIN, set};
use ortolan_ep_kit::{Args, Cost, DType, Fault, Kernel, NodeView, Op, Reject, any, split, typed};
use trig::{acos, acosh, asin, asinh, atan, atanh, bitwise_not, cos, cosh, sin, sinh, tan};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Abs", (6, 13), "abs", typed!(abs: f32 f64 F16 Bf16 i8 i16 i32 i64)).in_place(OVER),
    Kernel::new("Abs", (6, 13), "abs", any!(view)).types(&[("T", UNSIGNED)]).view(),
    Kernel::new("Acos", (7, 22), "acos", typed!(acos: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Acosh", (9, 22), "acosh", typed!(acosh: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Asin", (7, 22), "asin", typed!(asin: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Asinh", (9, 22), "asinh", typed!(asinh: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Atan", (7, 22), "atan", typed!(atan: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Atanh", (9, 22), "atanh", typed!(atanh: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("BitwiseNot", (18, 18), "bitwisenot", typed!(bitwise_not: i8 i16 i32 i64 u8 u16 u32 u64))
        .in_place(OVER),
    Kernel::new("Ceil", (6, 13), "ceil", typed!(ceil: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("Celu", (12, 28), "celu", typed!(celu: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Celu", (12, 28), "celu", typed!(celu: f64)).in_place(OVER).fallback(),
    Kernel::new("Clip", (11, 13), "clip", typed!(clip: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(OVER),
    Kernel::new("Cos", (7, 22), "cos", typed!(cos: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Cosh", (9, 22), "cosh", typed!(cosh: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Elu", (6, 22), "elu", typed!(elu: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Elu", (6, 22), "elu", typed!(elu: f64)).in_place(OVER).fallback(),
    Kernel::new("Erf", (9, 13), "erf", typed!(erf: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Exp", (6, 13), "exp", typed!(exp: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Exp", (6, 13), "exp", typed!(exp: f64)).in_place(OVER).fallback(),
    Kernel::new("Floor", (6, 13), "floor", typed!(floor: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("Gelu", (20, 20), "gelu", typed!(gelu: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Gelu", (1, 1), "gelu", typed!(gelu: f32 F16 Bf16)).domain("com.microsoft").in_place(OVER),
    Kernel::new("HardSigmoid", (6, 22), "hardsigmoid", typed!(hard_sigmoid: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("HardSwish", (14, 22), "hardswish", typed!(hard_swish: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("Identity", (1, 25), "identity", any!(view)).types(&[("T", PLAIN)]).view(),
    Kernel::new("LeakyRelu", (6, 16), "leakyrelu", typed!(leaky_relu: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("Log", (6, 13), "log", typed!(log: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Log", (6, 13), "log", typed!(log: f64)).in_place(OVER).fallback(),
    Kernel::new("Mish", (18, 22), "mish", typed!(mish: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Mish", (18, 22), "mish", typed!(mish: f64)).in_place(OVER).fallback(),
    Kernel::new("Neg", (6, 13), "neg", typed!(neg: f32 f64 F16 Bf16 i8 i16 i32 i64)).in_place(OVER),
    Kernel::new("QuickGelu", (1, 1), "quickgelu", typed!(swish: f32 F16 Bf16)).domain("com.microsoft").in_place(OVER),
    Kernel::new("QuickGelu", (1, 1), "quickgelu", typed!(swish: f64)).domain("com.microsoft").in_place(OVER).fallback(),
    Kernel::new("Reciprocal", (6, 13), "reciprocal", typed!(reciprocal: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("Relu", (6, 14), "relu", typed!(relu: f32 f64 F16 Bf16 i8 i16 i32 i64)).in_place(OVER),
    Kernel::new("Round", (11, 22), "round", typed!(round: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("Selu", (6, 22), "selu", typed!(selu: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Selu", (6, 22), "selu", typed!(selu: f64)).in_place(OVER).fallback(),
    Kernel::new("Shrink", (9, 9), "shrink", typed!(shrink: f32 f64 F16 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(OVER),
    Kernel::new("Sigmoid", (6, 13), "sigmoid", typed!(sigmoid: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Sigmoid", (6, 13), "sigmoid", typed!(sigmoid: f64)).in_place(OVER).fallback(),
    Kernel::new("Sign", (9, 13), "sign", typed!(sign: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(OVER),
    Kernel::new("Sin", (7, 22), "sin", typed!(sin: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Sinh", (9, 22), "sinh", typed!(sinh: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Softplus", (1, 22), "softplus", typed!(softplus: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Softplus", (1, 22), "softplus", typed!(softplus: f64)).in_place(OVER).fallback(),
    Kernel::new("Softsign", (1, 22), "softsign", typed!(softsign: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("Sqrt", (6, 13), "sqrt", typed!(sqrt: f32 f64 F16 Bf16)).in_place(OVER),
    Kernel::new("Swish", (24, 24), "swish", typed!(swish: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Swish", (24, 24), "swish", typed!(swish: f64)).in_place(OVER).fallback(),
    Kernel::new("Tan", (7, 22), "tan", typed!(tan: f32 f64 F16 Bf16)).in_place(OVER).fallback(),
    Kernel::new("Tanh", (6, 13), "tanh", typed!(tanh: f32 F16 Bf16)).in_place(OVER),
    Kernel::new("Tanh", (6, 13), "tanh", typed!(tanh: f64)).in_place(OVER).fallback(),
    Kernel::new("ThresholdedRelu", (10, 22), "thresholdedrelu", typed!(thresholded_relu: f32 f64 F16 Bf16))
        .in_place(OVER),
];

const UNSIGNED: u64 = set(&[DType::U8, DType::U16, DType::U32, DType::U64]);

const OVER: &[(u8, u8)] = &[(0, 0)];

/// A function of one value, with up to two parameters: whatever its operator has.
struct Unary {
    isa: Isa,
    alpha: f32,
    beta: f32,
    /// The approximation by tanh, for the one operator that has one.
    tanh: bool,
}

impl Op for Unary {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        // Operators without an attribute never look at it.
        let of = |names: [&str; 2]| names.iter().find_map(|name| node.float_if(name)).unwrap_or(0.0);
        let tanh = match node.text("approximate") {
            None | Some("none") => false,
            Some("tanh") => true,
            Some(other) => return Err(Reject::attribute(format!("attribute approximate = {other} is not known"))),
        };
        let (alpha, beta) = match node.op() {
            "Shrink" => (of(["bias", ""]), of(["lambd", ""])),
            _ => (of(["alpha", ""]), of(["beta", "gamma"])),
        };
        Ok(Unary { isa: Cpu::of(node).isa, alpha, beta, tanh })
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
    ceil<T: Real>(op) = vectors::Ceil, |x| x.negate().floor().negate();
    celu<T: Real>(op) = vectors::Celu { alpha: op.alpha },
        |x| if x < T::default() { T::of(op.alpha).times(x.over(T::of(op.alpha)).exp_m1()) } else { x };
    elu<T: Real>(op) = vectors::Elu { alpha: op.alpha }, |x| elu_of(x, T::of(op.alpha));
    exp<T: Real>(op) = ops::Exp, |x| x.exp();
    floor<T: Real>(op) = ops::Floor, |x| x.floor();
    hard_sigmoid<T: Real>(op) = ops::HardSigmoid { alpha: op.alpha, beta: op.beta },
        |x| gate(x, T::of(op.alpha), T::of(op.beta));
    hard_swish<T: Real>(op) = ops::HardSwish, |x| x.times(gate(x, T::of(1.0).over(T::of(6.0)), T::of(0.5)));
    leaky_relu<T: Real>(op) = ops::LeakyRelu { alpha: op.alpha },
        |x| if x < T::default() { x.times(T::of(op.alpha)) } else { x };
    log<T: Real>(op) = ops::Ln, |x| x.ln();
    mish<T: Real>(op) = vectors::Mish, |x| x.times(softplus_of(x).tanh());
    neg<T: Signed>(op) = ops::Neg, |x| x.negate();
    reciprocal<T: Real>(op) = ops::Reciprocal, |x| T::of(1.0).over(x);
    relu<T: Number>(op) = ops::Relu, |x| if x < T::default() { T::default() } else { x };
    round<T: Real>(op) = ops::Round, |x| x.round_even();
    selu<T: Real>(op) = vectors::Selu { alpha: op.alpha, gamma: op.beta },
        |x| T::of(op.beta).times(elu_of(x, T::of(op.alpha)));
    sigmoid<T: Real>(op) = ops::Sigmoid, |x| T::of(1.0).over(T::of(1.0).plus(x.negate().exp()));
    sign<T: Step>(op) = vectors::Sign, |x| x.sign();
    shrink<T: Step>(op) = vectors::Shrink { bias: op.alpha, limit: op.beta }, |x| x.shrink(op.alpha, op.beta);
    softplus<T: Real>(op) = vectors::Softplus, |x| softplus_of(x);
    softsign<T: Real>(op) = vectors::Softsign, |x| x.over(T::of(1.0).plus(x.magnitude()));
    sqrt<T: Real>(op) = ops::Sqrt, |x| x.sqrt();
    swish<T: Real>(op) = vectors::Swish { alpha: op.alpha },
        |x| x.over(T::of(1.0).plus(x.times(T::of(op.alpha)).negate().exp()));
    tanh<T: Real>(op) = ops::Tanh, |x| x.tanh();
    thresholded_relu<T: Real>(op) = vectors::Thresholded { alpha: op.alpha },
        |x| if x > T::of(op.alpha) { x } else { T::default() };
}

fn elu_of<T: Real>(x: T, alpha: T) -> T {
    if x < T::default() { alpha.times(x.exp_m1()) } else { x }
}

/// `ln(1 + e^x)`, which is `max(x, 0) + ln(1 + e^-|x|)`.
fn softplus_of<T: Real>(x: T) -> T {
    let high = if x > T::default() { x } else { T::default() };
    high.plus(x.magnitude().negate().exp().ln_1p())
}

fn gelu<T: Number>(op: &Unary, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    // Types that run the vectors only.
    if op.tanh { run(op.isa, args, &ops::GeluTanh, |x: T| x) } else { run(op.isa, args, &ops::Gelu, |x: T| x) }
}

/// Functions with steps, which integers have too.
trait Step: Number {
    fn sign(self) -> Self;
    fn shrink(self, bias: f32, limit: f32) -> Self;
}

macro_rules! steps {
    ($($t:ty => |$x:ident| $wide:expr, |$y:ident| $back:expr;)*) => { $(
        impl Step for $t {
            #[inline(always)]
            fn sign(self) -> Self {
                let (zero, $y) = (Self::default(), 1.0);
                let one: $t = $back;
                if self > zero {
                    one
                } else if self < zero {
                    zero.minus(one)
                } else {
                    self
                }
            }
            #[inline(always)]
            fn shrink(self, bias: f32, limit: f32) -> Self {
                let ($x, bias, limit) = (self, f64::from(bias), f64::from(limit));
                let wide: f64 = $wide;
                let $y = if wide < -limit {
                    wide + bias
                } else if wide > limit {
                    wide - bias
                } else {
                    0.0
                };
                $back
            }
        }
    )* };
}
// Integers saturate and are cut towards zero; the largest ones lose their last bits.
steps! {
    f32 => |x| x.into(), |y| y as f32;
    f64 => |x| x, |y| y;
    F16 => |x| x.wide().into(), |y| F16::round(y as f32);
    Bf16 => |x| x.wide().into(), |y| Bf16::round(y as f32);
    i8 => |x| x.into(), |y| y as i8;
    i16 => |x| x.into(), |y| y as i16;
    i32 => |x| x.into(), |y| y as i32;
    i64 => |x| x as f64, |y| y as i64;
    u8 => |x| x.into(), |y| y as u8;
    u16 => |x| x.into(), |y| y as u16;
    u32 => |x| x.into(), |y| y as u32;
    u64 => |x| x as f64, |y| y as u64;
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
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

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
            ("Ceil", 13, f64::ceil, 0.0),
            ("Celu", 12, |x| x.max(0.0) + (0.25 * (x / 0.25).exp_m1()).min(0.0), 5e-7),
            ("Elu", 22, |x| if x < 0.0 { 0.25 * x.exp_m1() } else { x }, 5e-7),
            ("Erf", 13, erf, 5e-7),
            ("Exp", 13, f64::exp, 5e-7),
            ("Floor", 13, f64::floor, 0.0),
            ("HardSigmoid", 22, |x| (0.25 * x + 0.5).clamp(0.0, 1.0), 5e-7),
            ("HardSwish", 22, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), 5e-7),
            ("LeakyRelu", 16, |x| if x < 0.0 { LEAKY * x } else { x }, 1e-7),
            ("Mish", 22, |x| x * x.exp().ln_1p().tanh(), 1e-6),
            ("Neg", 13, |x| -x, 0.0),
            ("Reciprocal", 13, f64::recip, 1e-7),
            ("Relu", 14, |x| x.max(0.0), 0.0),
            ("Round", 22, f64::round_ties_even, 0.0),
            ("Selu", 22, |x| 0.5 * if x < 0.0 { 0.25 * x.exp_m1() } else { x }, 5e-7),
            ("Sigmoid", 13, |x| 1.0 / (1.0 + (-x).exp()), 5e-7),
            ("Sign", 13, f64::signum, 0.0),
            ("Softplus", 22, |x| x.exp().ln_1p(), 5e-7),
            ("Softsign", 22, |x| x / (1.0 + x.abs()), 5e-7),
            ("Swish", 24, |x| x / (1.0 + (-0.25 * x).exp()), 5e-7),
            ("Tanh", 13, f64::tanh, 5e-7),
            ("ThresholdedRelu", 22, |x| if x > 0.25 { x } else { 0.0 }, 0.0),
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
    fn angles() {
        type Row = (&'static str, fn(f64) -> f64, f64);
        // Operator, definition, scale of the input.
        let cases: &[Row] = &[
            ("Acos", f64::acos, 1.0),
            ("Acosh", f64::acosh, 9.0),
            ("Asin", f64::asin, 1.0),
            ("Asinh", f64::asinh, 9.0),
            ("Atan", f64::atan, 9.0),
            ("Atanh", f64::atanh, 0.9),
            ("Cos", f64::cos, 9.0),
            ("Cosh", f64::cosh, 9.0),
            ("Sin", f64::sin, 9.0),
            ("Sinh", f64::sinh, 9.0),
            ("Tan", f64::tan, 1.5),
        ];
        for &(op, f, scale) in cases {
            let number = |k: usize| {
                let x = (k as f64 * 0.713).sin() * scale;
                if op == "Acosh" { x.abs() + 1.0 } else { x }
            };
            let x = Tensor::from_fn(&[2, 2100], |k| number(k) as f32);
            let want = Tensor::from_fn(&[2, 2100], |k| f(f64::from(number(k) as f32)) as f32);
            on_all(op, 22, |case| assert_close(&case.input(&x).output(DType::F32, &[2, 2100]).run()[0], &want, 5e-7));
        }
    }

    #[test]
    fn steps_and_bits() {
        let x = Tensor::new(&[5], &[-3.0f32, -0.5, 0.0, 0.5, 3.0]);
        on_all("Shrink", 9, |case| {
            let y = case.float("bias", 1.5).float("lambd", 1.0).input(&x).output(DType::F32, &[5]).run();
            assert_eq!(y[0].to_vec::<f32>(), [-1.5, 0.0, 0.0, 0.0, 1.5]);
        });
        let x = Tensor::new(&[3], &[-3i32, 0, 9]);
        let y = Case::new("Shrink", 9).float("bias", 1.5).float("lambd", 1.0).input(&x).output(DType::I32, &[3]).run();
        assert_eq!(y[0].to_vec::<i32>(), [-1, 0, 7]);
        let y = Case::new("Sign", 13).input(&x).output(DType::I32, &[3]).run();
        assert_eq!(y[0].to_vec::<i32>(), [-1, 0, 1]);
        let y = Case::new("Sign", 13).input(&Tensor::new(&[2], &[0u8, 200])).output(DType::U8, &[2]).run();
        assert_eq!(y[0].to_vec::<u8>(), [0, 1]);
        let y = Case::new("BitwiseNot", 18).input(&x).output(DType::I32, &[3]).run();
        assert_eq!(y[0].to_vec::<i32>(), [2, -1, -10]);
        let y = Case::new("Abs", 13).input(&Tensor::new(&[2], &[7u16, 9])).output(DType::U16, &[2]).run();
        assert_eq!(y[0].to_vec::<u16>(), [7, 9]);
    }

    #[test]
    fn halves_are_computed_in_single_precision() {
        let x = Tensor::from_fn(&[1000], |k| F16::round((k as f32 * 0.37).sin() * 5.0));
        for (op, version, f) in [("Exp", 13, f32::exp as fn(f32) -> f32), ("Softplus", 22, |x| x.exp().ln_1p())] {
            let want = Tensor::from_fn(&[1000], |k| f(x.to_vec::<F16>()[k].wide()));
            on_all(op, version, |case| {
                let y = case.input(&x).output(DType::F16, &[1000]).run()[0].to_vec::<F16>();
                let y = Tensor::from_fn(&[1000], |k| y[k].wide());
                assert_close(&y, &want, 1e-3);
            });
        }
    }

    #[test]
    fn gelu_by_either_formula() {
        let x = Tensor::from_fn(&[77], |k| (k as f32 - 38.0) * 0.1);
        let normal = |x: f64| x / 2.0 * (1.0 + erf(x / 2f64.sqrt()));
        let tanh = |x: f64| x / 2.0 * (1.0 + (0.797_884_560_8 * (x + 0.044715 * x * x * x)).tanh());
        for (name, f) in [("none", &normal as &dyn Fn(f64) -> f64), ("tanh", &tanh)] {
            let want = Tensor::from_fn(&[77], |k| f(f64::from((k as f32 - 38.0) * 0.1)) as f32);
            on_all("Gelu", 20, |case| {
                let y = case.text("approximate", name).input(&x).output(DType::F32, &[77]).run();
                assert_close(&y[0], &want, 1e-6);
            });
        }
        let (code, text) =
            Case::new("Gelu", 20).text("approximate", "x").input(&x).output(DType::F32, &[77]).rejection();
        assert_eq!((code, &*text), (RejectCode::Attribute, "Gelu: attribute approximate = x is not known"));
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
