//! Arithmetic of several tensors, broadcast.

use super::elementwise::{Elementwise, Read};
use super::{FLOATS, NUMBERS, input, on, output};
use crate::chain::Function;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{DType, Kernel, NodeView, Reject};

const INTS: u64 = set(&[DType::I32, DType::U32]);
const SIGNED: u64 = FLOATS | set(&[DType::I32]);

macro_rules! row {
    ($op:literal, $since:expr, $name:literal, $types:expr) => {
        Kernel::new($op, $since, $name, on!(Elementwise)).types(&[("T", $types)])
    };
}

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    row!("Add", (7, 14), "add", NUMBERS),
    row!("BitShift", (11, 28), "bitshift", set(&[DType::U32])),
    row!("BitwiseAnd", (18, 18), "bitwiseand", INTS),
    row!("BitwiseNot", (18, 18), "bitwisenot", INTS),
    row!("BitwiseOr", (18, 18), "bitwiseor", INTS),
    row!("BitwiseXor", (18, 18), "bitwisexor", INTS),
    row!("Div", (7, 14), "div", FLOATS),
    row!("Max", (8, 13), "max", NUMBERS),
    row!("Mean", (8, 13), "mean", FLOATS),
    row!("Min", (8, 13), "min", NUMBERS),
    row!("Mod", (10, 28), "mod", FLOATS),
    row!("Mul", (7, 14), "mul", NUMBERS),
    row!("PRelu", (7, 16), "prelu", FLOATS),
    Kernel::new("Pow", (7, 15), "pow", on!(Elementwise)).types(&[("T", SIGNED), ("T1", SIGNED)]),
    row!("Sub", (7, 14), "sub", NUMBERS),
    row!("Sum", (8, 13), "sum", FLOATS),
];

/// Sorted by operator.
pub const FUNCTIONS: &[(&str, Read)] = &[
    ("Add", |n| all(n, "({0} + {1})")),
    ("BitShift", shift),
    ("BitwiseAnd", |n| all(n, "({0} & {1})")),
    ("BitwiseNot", |n| all(n, "~{0}")),
    ("BitwiseOr", |n| all(n, "({0} | {1})")),
    ("BitwiseXor", |n| all(n, "({0} ^ {1})")),
    ("Div", |n| all(n, "({0} / {1})")),
    ("Max", |n| folded(n, "max({0}, {1})")),
    ("Mean", mean),
    ("Min", |n| folded(n, "min({0}, {1})")),
    ("Mod", modulo),
    ("Mul", |n| all(n, "({0} * {1})")),
    ("PRelu", |n| all(n, "select({0} * {1}, {0}, {0} >= 0.0)")),
    ("Pow", pow),
    ("Sub", |n| all(n, "({0} - {1})")),
    ("Sum", |n| folded(n, "({0} + {1})")),
];

/// A function of all inputs.
fn all(node: &NodeView<'_>, text: &str) -> Result<Function, Reject> {
    let inputs = (0..node.input_count()).map(|k| input(node, k)).collect::<Result<_, _>>()?;
    Ok(Function { text: text.to_owned(), inputs, output: output(node, 0)? })
}

/// A function of two, over all inputs one after the other.
fn folded(node: &NodeView<'_>, text: &str) -> Result<Function, Reject> {
    let mut result = "{0}".to_owned();
    for k in 1..node.input_count() {
        // The first place takes the result so far, which has places of its own.
        result = text.replace("{1}", &format!("{{{k}}}")).replacen("{0}", &result, 1);
    }
    all(node, &result)
}

fn mean(node: &NodeView<'_>) -> Result<Function, Reject> {
    let sum = folded(node, "({0} + {1})")?;
    Ok(Function { text: format!("({} / f32({}))", sum.text, node.input_count()), ..sum })
}

fn shift(node: &NodeView<'_>) -> Result<Function, Reject> {
    match node.text("direction") {
        Some("LEFT") => all(node, "select(0u, {0} << ({1} & 31u), {1} < 32u)"),
        Some("RIGHT") => all(node, "select(0u, {0} >> ({1} & 31u), {1} < 32u)"),
        other => Err(Reject::attribute(format!("attribute direction = {other:?} is neither LEFT nor RIGHT"))),
    }
}

fn modulo(node: &NodeView<'_>) -> Result<Function, Reject> {
    match node.int("fmod")? {
        0 => all(node, "mod_({0}, {1})"),
        _ => all(node, "fmod_({0}, {1})"),
    }
}

fn pow(node: &NodeView<'_>) -> Result<Function, Reject> {
    let function = all(node, "")?;
    let (base, power) = (function.inputs[0].computed(), function.inputs[1].computed());
    let text = match (base, power) {
        ("f32", "f32") => "pow_({0}, {1})",
        ("f32", _) => "pow_({0}, f32({1}))",
        (_, "f32") => "i32(round(pow_(f32({0}), {1})))",
        _ => "ipow_({0}, {1})",
    };
    Ok(Function { text: text.to_owned(), ..function })
}
