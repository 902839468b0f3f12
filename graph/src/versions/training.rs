//! Version steps of losses.

use super::{Row, row, same};

pub(super) const ROWS: &[Row] =
    &[row("NegativeLogLikelihoodLoss", &[same(13), same(22)]), row("SoftmaxCrossEntropyLoss", &[same(13)])];
