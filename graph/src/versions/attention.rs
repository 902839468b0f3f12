//! Version steps of attention.

use super::build::input;
use super::{Row, Upgrade, Way, adapter, row, same};
use crate::error::Result;
use crate::ir::{AttrValue, ValueId};
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[row("Attention", &[adapter(24, widen_mask).only(mask_is_full), same(25)])];

const KEY: usize = 1;
const MASK: usize = 3;
const PAST_KEY: usize = 4;

/// The axis along which keys follow each other: heads may be folded into the last one.
fn key_axis(node: View<'_>) -> Option<usize> {
    match node.rank(KEY)? {
        4 => Some(2),
        3 => Some(1),
        _ => None,
    }
}

/// How many keys there are, the past ones among them.
fn keys(node: View<'_>) -> Option<i64> {
    let past = if node.has_input(PAST_KEY) { node.dim(PAST_KEY, 2)? } else { 0 };
    node.dim(KEY, key_axis(node)?)?.checked_add(past)
}

/// A mask that is shorter than the keys is broadcast in 23 when its last dim is 1; from 24 on it leaves out the rest.
fn mask_is_full(node: View<'_>, way: Way) -> bool {
    let last = node.rank(MASK).and_then(|rank| node.dim(MASK, rank.checked_sub(1)?));
    match way {
        _ if !node.has_input(MASK) => true,
        Way::Up => last != Some(1) || keys(node) == Some(1),
        Way::Down => last.is_some() && last == keys(node),
    }
}

fn widen_mask(cx: &mut dyn Upgrade) -> Result<()> {
    let Some(axis) = key_axis(cx.view()) else { return super::build::stuck("the rank of K has to be known") };
    let mut total = length(cx, KEY, axis)?;
    if cx.view().has_input(PAST_KEY) {
        let past = length(cx, PAST_KEY, 2)?;
        total = cx.before("Add", &[Some(past), Some(total)], &[])?;
    }
    let mask = cx.before("Expand", &[input(cx, MASK), Some(total)], &[])?;
    cx.set_input(MASK, Some(mask));
    Ok(())
}

fn length(cx: &mut dyn Upgrade, index: usize, axis: usize) -> Result<ValueId> {
    let axis = i64::try_from(axis).unwrap_or(0);
    let range = [("end", AttrValue::Int(axis + 1)), ("start", AttrValue::Int(axis))];
    cx.before("Shape", &[input(cx, index)], &range)
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    const QKV: &str = "float[1,2,4,8] float[1,2,6,8] float[1,2,6,8]";

    #[test]
    fn a_broadcast_mask_is_written_out() {
        let tail = "is_causal=0 qk_matmul_output_mode=0 softcap=0";
        check(&[
            ("Attention-23", &format!("{QKV} float[4,6]"), "", &format!("Attention-25(v0, v1, v2, v3 {tail})")),
            (
                "Attention-23",
                &format!("{QKV} float[4,1]"),
                "",
                &format!("Shape(v1 end=3 start=2) > t0; Expand(v3, t0) > t1; Attention-25(v0, v1, v2, t1 {tail})"),
            ),
            (
                "Attention-23",
                &format!("{QKV} bool[4,1] float[1,2,p,8] float[1,2,p,8]"),
                "",
                &format!(
                    "Shape(v1 end=3 start=2) > t0; Shape(v4 end=3 start=2) > t1; Add(t1, t0) > t2; Expand(v3, t2) > t3; \
                     Attention-25(v0, v1, v2, t3, v4, v5 {tail})"
                ),
            ),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Attention-25", QKV, "", "23.."),
            ("Attention-25", QKV, "left_window_size=2", "25.."),
            ("Attention-25", &format!("{QKV} float[4,6]"), "", "23.."),
            ("Attention-25", &format!("{QKV} float[4,5]"), "", "24.."),
            ("Attention-25", &format!("{QKV} _ _ _ int64[1]"), "", "24.."),
            ("Attention-23", &format!("{QKV} float[4,1]"), "", "23..23"),
        ]);
    }
}
