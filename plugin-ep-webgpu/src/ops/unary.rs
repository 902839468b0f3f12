//! Functions of one tensor, element by element.

use super::elementwise::{Elementwise, Read};
use super::{FLOATS, NUMBERS, input, on, output};
use crate::chain::Function;
use crate::shader::literal;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{DType, Kernel, NodeView, Reject};

const SIGNED: u64 = FLOATS | set(&[DType::I32]);

macro_rules! row {
    ($op:literal, $since:expr, $name:literal, $types:expr) => {
        Kernel::new($op, $since, $name, on!(Elementwise)).types(&[("T", $types)])
    };
}

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    row!("Abs", (6, 13), "abs", SIGNED),
    row!("Acos", (7, 22), "acos", FLOATS),
    row!("Acosh", (9, 22), "acosh", FLOATS),
    row!("Asin", (7, 22), "asin", FLOATS),
    row!("Asinh", (9, 22), "asinh", FLOATS),
    row!("Atan", (7, 22), "atan", FLOATS),
    row!("Atanh", (9, 22), "atanh", FLOATS),
    row!("Ceil", (6, 13), "ceil", FLOATS),
    row!("Celu", (12, 28), "celu", FLOATS),
    row!("Clip", (11, 13), "clip", NUMBERS),
    row!("Cos", (7, 22), "cos", FLOATS),
    row!("Cosh", (9, 22), "cosh", FLOATS),
    row!("Elu", (6, 22), "elu", FLOATS),
    row!("Erf", (9, 13), "erf", FLOATS),
    row!("Exp", (6, 13), "exp", FLOATS),
    row!("Floor", (6, 13), "floor", FLOATS),
    row!("Gelu", (20, 20), "gelu", FLOATS),
    row!("HardSigmoid", (6, 22), "hardsigmoid", FLOATS),
    row!("HardSwish", (14, 22), "hardswish", FLOATS),
    row!("LeakyRelu", (6, 16), "leakyrelu", FLOATS),
    row!("Log", (6, 13), "log", FLOATS),
    row!("Mish", (18, 22), "mish", FLOATS),
    row!("Neg", (6, 13), "neg", SIGNED),
    row!("Reciprocal", (6, 13), "reciprocal", FLOATS),
    row!("Relu", (6, 14), "relu", SIGNED),
    row!("Round", (11, 22), "round", FLOATS),
    row!("Selu", (6, 22), "selu", FLOATS),
    row!("Shrink", (9, 9), "shrink", FLOATS),
    row!("Sigmoid", (6, 13), "sigmoid", FLOATS),
    row!("Sign", (9, 13), "sign", SIGNED),
    row!("Sin", (7, 22), "sin", FLOATS),
    row!("Sinh", (9, 22), "sinh", FLOATS),
    row!("Softplus", (1, 22), "softplus", FLOATS),
    row!("Softsign", (1, 22), "softsign", FLOATS),
    row!("Sqrt", (6, 13), "sqrt", FLOATS),
    row!("Swish", (24, 24), "swish", FLOATS),
    row!("Tan", (7, 22), "tan", FLOATS),
    row!("Tanh", (6, 13), "tanh", FLOATS),
    row!("ThresholdedRelu", (10, 22), "thresholdedrelu", FLOATS),
];

/// Sorted by operator.
pub const FUNCTIONS: &[(&str, Read)] = &[
    ("Abs", |n| same(n, "abs({0})")),
    ("Acos", |n| same(n, "acos({0})")),
    ("Acosh", |n| same(n, "log({0} + sqrt({0} * {0} - 1.0))")),
    ("Asin", |n| same(n, "asin({0})")),
    ("Asinh", |n| same(n, "sign({0}) * log(abs({0}) + sqrt({0} * {0} + 1.0))")),
    ("Atan", |n| same(n, "atan({0})")),
    ("Atanh", |n| same(n, "0.5 * log((1.0 + {0}) / (1.0 - {0}))")),
    ("Ceil", |n| same(n, "ceil({0})")),
    ("Celu", |n| with(n, &["alpha"], "max({0}, 0.0) + min({alpha} * (exp({0} / {alpha}) - 1.0), 0.0)")),
    ("Clip", clip),
    ("Cos", |n| same(n, "cos({0})")),
    ("Cosh", |n| same(n, "0.5 * (exp({0}) + exp(-{0}))")),
    ("Elu", |n| with(n, &["alpha"], "select({alpha} * (exp(min({0}, 0.0)) - 1.0), {0}, {0} > 0.0)")),
    ("Erf", |n| same(n, "erf_({0})")),
    ("Exp", |n| same(n, "exp({0})")),
    ("Floor", |n| same(n, "floor({0})")),
    ("Gelu", gelu),
    ("HardSigmoid", |n| with(n, &["alpha", "beta"], "clamp({alpha} * {0} + {beta}, 0.0, 1.0)")),
    ("HardSwish", |n| same(n, "{0} * clamp({0} / 6.0 + 0.5, 0.0, 1.0)")),
    ("LeakyRelu", |n| with(n, &["alpha"], "select({alpha} * {0}, {0}, {0} >= 0.0)")),
    ("Log", |n| same(n, "log({0})")),
    ("Mish", |n| same(n, "{0} * tanh_(softplus_({0}))")),
    ("Neg", |n| same(n, "-{0}")),
    ("Reciprocal", |n| same(n, "1.0 / {0}")),
    ("Relu", |n| same(n, "max({0}, {zero})")),
    ("Round", |n| same(n, "round({0})")),
    ("Selu", |n| {
        with(n, &["alpha", "gamma"], "{gamma} * select({alpha} * (exp(min({0}, 0.0)) - 1.0), {0}, {0} > 0.0)")
    }),
    ("Shrink", |n| {
        with(n, &["bias", "lambd"], "select(select(0.0, {0} - {bias}, {0} > {lambd}), {0} + {bias}, {0} < -{lambd})")
    }),
    ("Sigmoid", |n| same(n, "sigmoid_({0})")),
    ("Sign", |n| same(n, "sign({0})")),
    ("Sin", |n| same(n, "sin({0})")),
    ("Sinh", |n| same(n, "0.5 * (exp({0}) - exp(-{0}))")),
    ("Softplus", |n| same(n, "softplus_({0})")),
    ("Softsign", |n| same(n, "{0} / (1.0 + abs({0}))")),
    ("Sqrt", |n| same(n, "sqrt({0})")),
    ("Swish", |n| with(n, &["alpha"], "{0} * sigmoid_({alpha} * {0})")),
    ("Tan", |n| same(n, "tan({0})")),
    ("Tanh", |n| same(n, "tanh_({0})")),
    ("ThresholdedRelu", |n| with(n, &["alpha"], "select(0.0, {0}, {0} > {alpha})")),
];

/// A function of input 0 that has its type.
fn same(node: &NodeView<'_>, text: &str) -> Result<Function, Reject> {
    let elem = input(node, 0)?;
    let zero = format!("{}(0)", elem.computed());
    Ok(Function { text: text.replace("{zero}", &zero), inputs: vec![elem], output: output(node, 0)? })
}

/// The same with attributes in it.
fn with(node: &NodeView<'_>, attributes: &[&str], text: &str) -> Result<Function, Reject> {
    let mut text = text.to_owned();
    for name in attributes {
        let x = node.float(name)?;
        if x.is_nan() {
            return Err(Reject::attribute(format!("attribute {name} is no number")));
        }
        text = text.replace(&format!("{{{name}}}"), &literal(x));
    }
    same(node, &text)
}

fn gelu(node: &NodeView<'_>) -> Result<Function, Reject> {
    match node.text("approximate").unwrap_or("none") {
        "none" => same(node, "0.5 * {0} * (1.0 + erf_({0} * 0.70710678))"),
        "tanh" => same(node, "0.5 * {0} * (1.0 + tanh_(0.79788456 * ({0} + 0.044715 * {0} * {0} * {0})))"),
        other => Err(Reject::attribute(format!("attribute approximate = {other} is not known"))),
    }
}

fn clip(node: &NodeView<'_>) -> Result<Function, Reject> {
    let mut function = same(node, "{0}")?;
    let elem = function.inputs[0];
    for (k, f) in [(1, "max"), (2, "min")] {
        if node.has_input(k) {
            function.text = format!("{f}({}, {{{}}})", function.text, function.inputs.len());
            function.inputs.push(elem);
        }
    }
    match node.has_input(2) && !node.has_input(1) {
        true => Err(Reject::shape("input 1 (min) is missing while input 2 (max) is there")),
        false => Ok(function),
    }
}
