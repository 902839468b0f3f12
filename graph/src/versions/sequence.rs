//! Version steps of sequences and optionals.

use super::{Row, row, same};

pub(super) const ROWS: &[Row] = &[
    row("Optional", &[same(28)]),
    row("OptionalGetElement", &[same(18), same(28)]),
    row("OptionalHasElement", &[same(18), same(28)]),
    row("SplitToSequence", &[same(24)]),
];
