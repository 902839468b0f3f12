//! Version steps of operators that pick, place or order elements.

use super::build::{ints, no_negative_axis, stuck};
use super::{Row, Step, Upgrade, Way, adapter, becomes, row, same};
use crate::error::Result;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("Compress", &[same(11).only(no_negative_axis), same(28)]),
    row("Gather", &[same(11), same(13)]),
    row("GatherElements", &[same(13)]),
    row("GatherND", &[same(12), same(13)]),
    row("NonZero", &[same(13)]),
    // 9 says that indices below 0 are not allowed, and also what they would give; runtimes count them from the back.
    row("OneHot", &[same(11).only(no_negative_axis), same(28)]),
    row("Range", &[same(27)]),
    // ScatterElements is the same operator under the name that ONNX gave it when it deprecated this one.
    row("Scatter", &[becomes(11, "ScatterElements")]),
    row("ScatterElements", SCATTER),
    row("ScatterND", SCATTER),
    row("Slice", &[adapter(10, bounds_to_inputs), same(11).only(no_negative_slice_axes), same(13)]),
    row("TopK", &[adapter(10, k_to_input), same(11).only(no_negative_axis), same(24)]),
    row("Unique", &[same(28)]),
    row("Where", &[same(16)]),
];

const SCATTER: &[Step] = &[same(13), same(16), same(18).only(sums_and_products)];

/// `max` and `min` came with the newer version.
fn sums_and_products(node: View<'_>, way: Way) -> bool {
    way == Way::Up || node.str("reduction").is_none_or(|r| !["max", "min"].contains(&r))
}

/// Negative axes came with the newer version.
fn no_negative_slice_axes(node: View<'_>, way: Way) -> bool {
    let fine = |axes: Vec<i64>| axes.iter().all(|axis| *axis >= 0);
    way == Way::Up || !node.has_input(3) || node.known(3).is_some_and(fine)
}

fn bounds_to_inputs(cx: &mut dyn Upgrade) -> Result<()> {
    for (index, name) in [(1, "starts"), (2, "ends"), (3, "axes")] {
        super::build::ints_to_input(cx, name, index)?;
    }
    Ok(())
}

fn k_to_input(cx: &mut dyn Upgrade) -> Result<()> {
    let Some(k) = cx.view().int("k") else { return stuck("attribute 'k' is absent") };
    let k = ints(cx, &[k])?;
    cx.set_input(1, Some(k));
    cx.remove_attr("k");
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn attributes_become_inputs() {
        check(&[
            ("Slice-1", "float[4,5]", "starts=[0,1] ends=[2,-1]", "Slice-13(v0, [0,1], [2,-1])"),
            ("Slice-1", "float[4,5]", "starts=[1] ends=[9] axes=[1]", "Slice-13(v0, [1], [9], [1])"),
            ("TopK-1 2", "float[4,5]", "k=3 axis=1", "TopK-24(v0, [3] axis=1)"),
            ("TopK-10 2", "float[4,5] int64[1]", "", "TopK-24(v0, v1 axis=-1)"),
            ("Scatter-9", "float[3,3] int64[2,3] float[2,3]", "axis=1", "ScatterElements-18(v0, v1, v2 axis=1)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Slice-13", "float[4] int64[1] int64[1]", "", "10.."),
            ("Slice-13", "float[4] int64[1] int64[1] int64[1]{0}", "", "10.."),
            ("Slice-13", "float[4] int64[1] int64[1] int64[1]{-1}", "", "11.."),
            ("Slice-13", "float[4] int64[1] int64[1] int64[1]", "", "11.."),
            ("Slice-1", "float[4]", "starts=[0] ends=[1]", "1..9"),
            ("ScatterND-18", "float[4] int64[1,1] float[1]", "reduction='max'", "18.."),
            ("ScatterND-18", "float[4] int64[1,1] float[1]", "reduction='add'", "16.."),
            ("ScatterND-18", "float[4] int64[1,1] float[1]", "", "11.."),
            ("Scatter-9", "float[4] int64[1] float[1]", "", "9..10"),
            ("TopK-24 2", "float[4] int64[1]", "axis=0", "10.."),
            ("TopK-24 2", "float[4] int64[1]", "axis=0 largest=0", "11.."),
            ("TopK-24 2", "bfloat16[4] int64[1]", "axis=0", "24.."),
            ("GatherND-13", "float[4] int64[1,1]", "batch_dims=0", "11.."),
            ("Range-27", "float16[] float16[] float16[]", "", "27.."),
        ]);
    }
}
