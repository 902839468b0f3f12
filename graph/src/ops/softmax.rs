//! Softmax and its kin: they keep type and shape, and only check their axis.

use super::{InferCx, OpDef};
use crate::error::Result;

pub(super) static OPS: &[OpDef] = &[OpDef::new("Softmax", along_axis)];

fn along_axis(cx: &mut InferCx<'_>) -> Result<()> {
    if let (Some(rank), Some(axis)) = (cx.rank(0), cx.attr_int("axis")) {
        cx.axis(axis, rank)?;
    }
    cx.set_like(0, 0);
    Ok(())
}
