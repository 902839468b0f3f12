//! Version steps of convolutions.

use super::{Row, row, same};

pub(super) const ROWS: &[Row] = &[
    row("Conv", &[same(11), same(22)]),
    // The page of version 1 has the formula of SAME_UPPER and SAME_LOWER the wrong way round against its own text
    // of the attribute; every runtime follows the text.
    row("ConvTranspose", &[same(11), same(22)]),
    row("DeformConv", &[same(22)]),
];
