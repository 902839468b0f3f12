//! Conversions between the types that the device holds.

use super::elementwise::{Elementwise, Read};
use super::{ALL, input, on, output};
use crate::chain::Function;
use crate::shader::Elem;
use ortolan_ep_kit::{Kernel, NodeView, Reject, Slot};

const ENDS: &[Slot] = &[Slot::In(0), Slot::Out(0)];

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Cast", (6, 28), "cast", on!(Elementwise)).types(&[("T1", ALL), ("T2", ALL)]).at(ENDS),
    Kernel::new("CastLike", (15, 25), "castlike", on!(Elementwise))
        .types(&[("T1", ALL), ("T2", ALL)])
        .at(ENDS)
        .unread(&[1]),
];

/// Sorted by operator.
pub const FUNCTIONS: &[(&str, Read)] = &[("Cast", cast), ("CastLike", cast)];

fn cast(node: &NodeView<'_>) -> Result<Function, Reject> {
    let (from, to) = (input(node, 0)?, output(node, 0)?);
    let text = match (from, to) {
        (a, b) if a == b => "{0}",
        (Elem::F32 | Elem::F16, Elem::F32 | Elem::F16) => "{0}",
        (Elem::Bool, Elem::F32 | Elem::F16) => "select(0.0, 1.0, {0})",
        (Elem::Bool, Elem::I32) => "select(0, 1, {0})",
        (Elem::Bool, _) => "select(0u, 1u, {0})",
        (Elem::F32 | Elem::F16, Elem::Bool) => "({0} != 0.0)",
        (Elem::I32, Elem::Bool) => "({0} != 0)",
        (_, Elem::Bool) => "({0} != 0u)",
        (_, Elem::F32 | Elem::F16) => "f32({0})",
        (Elem::F32 | Elem::F16, Elem::I32) => "i32({0})",
        (Elem::F32 | Elem::F16, _) => "u32({0})",
        (_, Elem::I32) => "bitcast<i32>({0})",
        _ => "bitcast<u32>({0})",
    };
    Ok(Function { text: text.to_owned(), inputs: vec![from], output: to })
}
