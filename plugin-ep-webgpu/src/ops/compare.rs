//! Comparisons, logic, and what chooses between two tensors.

use super::elementwise::{Elementwise, Read};
use super::{ALL, BOOL, FLOATS, NUMBERS, input, on, output};
use crate::chain::Function;
use crate::shader::Elem;
use ortolan_ep_kit::{Kernel, NodeView, Reject, Slot};

macro_rules! row {
    ($op:literal, $since:expr, $name:literal, $types:expr) => {
        Kernel::new($op, $since, $name, on!(Elementwise)).types(&[("T", $types)])
    };
}

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    row!("And", (7, 7), "and", BOOL),
    row!("Equal", (7, 19), "equal", ALL),
    row!("Greater", (7, 13), "greater", NUMBERS),
    row!("GreaterOrEqual", (12, 16), "greaterorequal", NUMBERS),
    row!("IsInf", (10, 20), "isinf", FLOATS),
    row!("IsNaN", (9, 20), "isnan", FLOATS),
    row!("Less", (7, 13), "less", NUMBERS),
    row!("LessOrEqual", (12, 16), "lessorequal", NUMBERS),
    row!("Not", (1, 1), "not", BOOL),
    row!("Or", (7, 7), "or", BOOL),
    Kernel::new("Where", (9, 16), "where", on!(Elementwise)).types(&[("T", ALL)]).at(&[Slot::In(1)]),
    row!("Xor", (7, 7), "xor", BOOL),
];

/// Sorted by operator.
pub const FUNCTIONS: &[(&str, Read)] = &[
    ("And", |n| all(n, "({0} && {1})")),
    ("Equal", |n| all(n, "({0} == {1})")),
    ("Greater", |n| all(n, "({0} > {1})")),
    ("GreaterOrEqual", |n| all(n, "({0} >= {1})")),
    ("IsInf", is_inf),
    ("IsNaN", |n| all(n, "is_nan_({0})")),
    ("Less", |n| all(n, "({0} < {1})")),
    ("LessOrEqual", |n| all(n, "({0} <= {1})")),
    ("Not", |n| all(n, "!{0}")),
    ("Or", |n| all(n, "({0} || {1})")),
    ("Where", |n| all(n, "select({2}, {1}, {0})")),
    ("Xor", |n| all(n, "({0} != {1})")),
];

fn all(node: &NodeView<'_>, text: &str) -> Result<Function, Reject> {
    let inputs: Vec<Elem> = (0..node.input_count()).map(|k| input(node, k)).collect::<Result<_, _>>()?;
    Ok(Function { text: text.to_owned(), inputs, output: output(node, 0)? })
}

fn is_inf(node: &NodeView<'_>) -> Result<Function, Reject> {
    let wants = |name: &str| node.int_if(name).unwrap_or(1) != 0;
    match (wants("detect_negative"), wants("detect_positive")) {
        (true, true) => all(node, "is_inf_({0})"),
        (true, false) => all(node, "(is_inf_({0}) && {0} < 0.0)"),
        (false, true) => all(node, "(is_inf_({0}) && {0} > 0.0)"),
        (false, false) => all(node, "({0} != {0} && false)"),
    }
}
