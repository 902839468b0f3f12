//! Version steps of matrix products and what is made of them.

use super::build::up_only;
use super::{Omit, Row, Step, row, same};

pub(super) const ROWS: &[Row] = &[
    row("Det", &[same(22)]),
    row("Einsum", &[same(28)]),
    row("Gemm", &[same(6), BROADCAST, same(9), same(11), same(13)]),
    row("MatMul", &[same(9), same(13)]),
];

/// C was lined up at the end, as it still is; but it had to be said.
const BROADCAST: Step = same(7).omit(&[("broadcast", Omit::Always)]).only(up_only);
