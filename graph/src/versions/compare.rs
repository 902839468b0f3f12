//! Version steps of comparisons and logic.

use super::arith::broadcast;
use super::{Row, Step, row, same};

pub(super) const ROWS: &[Row] = &[
    row("And", LOGIC),
    row("Equal", &[broadcast(7), same(11), same(13), same(19)]),
    row("Greater", ORDER),
    row("GreaterOrEqual", &[same(16)]),
    row("Less", ORDER),
    row("LessOrEqual", &[same(16)]),
    row("Or", LOGIC),
    row("Xor", LOGIC),
];

const LOGIC: &[Step] = &[broadcast(7)];
const ORDER: &[Step] = &[broadcast(7), same(9), same(13)];
