//! ONNX Runtime's attentions on the standard's core: `projected` makes queries, keys and values of one input, `multi` takes
//! them apart or packed, `group` keeps keys and values in a `cache`, `rotary` turns positions in; `mask` reads their masks.

mod cache;
pub(super) mod group;
mod mask;
pub(super) mod multi;
pub(super) mod projected;
pub(super) mod rotary;

use crate::ops::Cpu;
use crate::ops::attention::heads::Heads;
use crate::ops::attention::{Attention, Mask, Stage};
use ortolan_ep_kit::{NodeView, Reject};

/// All-to-all attention with what these operators can say of it; masks and windows are set by each.
fn attention(node: &NodeView<'_>, heads: [usize; 2]) -> Attention {
    Attention {
        isa: Cpu::of(node).isa,
        heads,
        // 0 stands for the usual one, too.
        scale: node.float_if("scale").filter(|&scale| scale != 0.0),
        cap: 0.0,
        causal: false,
        window: [None; 2],
        mask: Mask::None,
        shown: Stage::Biased,
        past: false,
        lengths: false,
    }
}

/// Refuses what an attribute asks for, unless it is 0.
fn refuse(node: &NodeView<'_>, attribute: &str, why: &str) -> Result<(), Reject> {
    match node.int_if(attribute).unwrap_or(0) {
        0 => Ok(()),
        n => Err(Reject::attribute(format!("attribute {attribute} = {n}: {why}"))),
    }
}

/// Heads that lie beside each other in rows of `row` values.
fn in_rows(batch: usize, heads: usize, len: usize, size: usize, row: usize) -> Heads {
    Heads { batch, heads, len, size, step: [len * row, size, row] }
}

/// Heads whose rows lie together, in caches of `room` rows each.
fn in_caches(batch: usize, heads: usize, len: usize, size: usize, room: usize) -> Heads {
    Heads { batch, heads, len, size, step: [heads * room * size, room * size, size] }
}

/// So many values, up to the next boundary.
fn even(values: usize) -> usize {
    values.div_ceil(16).saturating_mul(16)
}
