//! Version steps of joining and splitting along an axis.

use super::build::{ints_to_input, no_negative_axis, stuck};
use super::{Omit, Row, Upgrade, Way, adapter, row, same};
use crate::error::Result;
use crate::ir::AttrValue;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("Concat", &[adapter(4, default_axis), same(11).only(no_negative_axis), same(13)]),
    row(
        "Split",
        &[
            adapter(2, sizes_to_attribute),
            same(11).only(no_negative_axis),
            adapter(13, |cx| ints_to_input(cx, "split", 1)),
            adapter(18, count_outputs).omit(&[("num_outputs", Omit::Always)]).only(equal_parts),
        ],
    ),
];

/// The page of version 1 names a default, the schema has none.
fn default_axis(cx: &mut dyn Upgrade) -> Result<()> {
    cx.set_attr("axis", AttrValue::Int(1));
    Ok(())
}

/// Version 1 also took the sizes as a tensor of the data's own type.
fn sizes_to_attribute(cx: &mut dyn Upgrade) -> Result<()> {
    let node = cx.view();
    if !node.has_input(1) {
        return Ok(());
    }
    let whole = |f: f64| (0.0..1e15).contains(&f).then_some(f as i64);
    let sizes = node.known(1).or_else(|| node.floats(1)?.into_iter().map(whole).collect());
    let Some(sizes) = sizes else { return stuck("the sizes have to be known") };
    cx.set_attr("split", AttrValue::ints(&sizes));
    cx.set_input(1, None);
    Ok(())
}

/// From 18 on the number of parts is said, and the last part may be smaller; before, parts were equal.
fn equal_parts(node: View<'_>, way: Way) -> bool {
    let axis = node.int("axis").unwrap_or(0);
    let rank = node.rank(0).and_then(|rank| i64::try_from(rank).ok());
    let even = || {
        let axis = usize::try_from(if axis < 0 { axis.checked_add(rank?)? } else { axis }).ok()?;
        let parts = i64::try_from(node.outputs.len()).ok().filter(|parts| *parts > 0)?;
        Some(node.dim(0, axis)? % parts == 0)
    };
    node.has_input(1) || (way == Way::Down && even() == Some(true))
}

fn count_outputs(cx: &mut dyn Upgrade) -> Result<()> {
    let parts = i64::try_from(cx.view().outputs.len()).unwrap_or(i64::MAX);
    cx.set_attr("num_outputs", AttrValue::Int(parts));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn concat_gets_its_axis() {
        check(&[
            ("Concat-1", "float[2,3] float[2,3]", "", "Concat-13(v0, v1 axis=1)"),
            ("Concat-1", "float[2,3] float[2,3]", "axis=0", "Concat-13(v0, v1 axis=0)"),
        ]);
    }

    #[test]
    fn split_sizes() {
        check(&[
            ("Split-11 2", "float[4]", "split=[1,3]", "Split-18(v0, [1,3] axis=0)"),
            ("Split-2 2", "float[4]", "", "Split-18(v0 axis=0 num_outputs=2)"),
            ("Split-13 2", "float[4] int64[2]", "axis=0", "Split-18(v0, v1 axis=0)"),
            ("Split-13 3", "float[n]", "axis=0", "Split-18(v0 axis=0 num_outputs=3)"),
            ("Split-1 2", "float[4] float[2]{1,3}", "axis=0", "Split-18(v0, [1,3] axis=0)"),
            ("Split-1 2", "float[4] float[2]", "axis=0", "!sizes have to be known"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Split-18 2", "float[4]", "num_outputs=2", "1.."),
            ("Split-18 3", "float[4]", "num_outputs=3", "18.."),
            ("Split-18 2", "float[n]", "num_outputs=2", "18.."),
            ("Split-18 2", "float[4] int64[2]", "", "13.."),
            ("Split-13 2", "float[4]", "", "1..17"),
            ("Split-11 2", "float[4]", "split=[1,3]", "1..12"),
            ("Concat-13", "float[2] float[2]", "axis=0", "1.."),
            ("Concat-13", "int64[2] int64[2]", "axis=0", "4.."),
            ("Concat-13", "float[2] float[2]", "axis=-1", "11.."),
        ]);
    }
}
