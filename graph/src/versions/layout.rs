//! Version steps of operators that move or rename elements, and of those that tell of shapes.

use super::build::{input, ints, ints_to_input, no_negative_axes, no_negative_axis, stuck};
use super::{Omit, Row, Run, Step, Upgrade, Way, adapter, row, same};
use crate::error::Result;
use crate::ir::{AttrValue, DType};
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("ConstantOfShape", &[same(20), same(21), same(23), same(24), same(25)]),
    row("DepthToSpace", &[same(11), same(13), same(28)]),
    row("Expand", &[same(13)]),
    row("EyeLike", &[same(22)]),
    row("Flatten", &[same(9), same(11).only(no_negative_axis), same(13), same(21), same(23), same(24), same(25)]),
    row("Identity", &[same(13), same(14), same(16), same(19), same(21), same(23), same(24), same(25)]),
    row(
        "Reshape",
        &[
            adapter(5, |cx| ints_to_input(cx, "shape", 1)).omit(&[("consumed_inputs", Omit::Always)]),
            same(13),
            same(14).omit(&[("allowzero", Omit::Always)]).only(copies_no_dim),
            same(19),
            same(21),
            same(23),
            same(24),
            same(25),
        ],
    ),
    row("ReverseSequence", &[same(28)]),
    row("Shape", &[same(13), same(15), same(19), same(21), same(23), same(24), same(25)]),
    row("Size", &[same(13), same(19), same(21), same(23), same(24), same(25)]),
    // Without a mode it had the order that 28 calls DCR.
    row("SpaceToDepth", &[same(13), same(28)]),
    row("Squeeze", AXES),
    row("Tile", &[adapter(6, repeats), same(13)]),
    row("Transpose", &[same(13), same(21), same(23), same(24), same(25)]),
    row("Unsqueeze", AXES),
];

/// What a 0 in the shape means matters only when there is one.
fn copies_no_dim(node: View<'_>, way: Way) -> bool {
    let zeros = || node.known(1).is_none_or(|shape| shape.contains(&0));
    way == Way::Up || node.int("allowzero").unwrap_or(0) == 0 || !zeros()
}

const AXES: &[Step] =
    &[same(11).only(no_negative_axes), adapter(13, AXES_TO_INPUT), same(21), same(23), same(24), same(25)];

const AXES_TO_INPUT: Run = |cx| ints_to_input(cx, "axes", 1);

/// Version 1 repeats along one axis, given as two tensors of the data's own type.
fn repeats(cx: &mut dyn Upgrade) -> Result<()> {
    let node = cx.view();
    let axis = node.known(2).or_else(|| Some(node.floats(2)?.into_iter().map(|f| f as i64).collect()));
    let (Some(rank), Some(&[axis])) = (node.rank(0), axis.as_deref()) else {
        return stuck("the rank of the data and the axis have to be known");
    };
    let Some(axis) = usize::try_from(axis).ok().filter(|axis| *axis < rank) else {
        return stuck(format!("axis {axis} is none of the {rank} that the data has"));
    };
    let tiles = cx.before("Cast", &[input(cx, 1)], &[("to", AttrValue::Int(DType::I64.number().into()))])?;
    let one = ints(cx, &[1])?;
    let tiles = cx.before("Reshape", &[Some(tiles), Some(one)], &[])?;
    let (head, tail) = (ints(cx, &vec![1; axis])?, ints(cx, &vec![1; rank - axis - 1])?);
    let all = [Some(head), Some(tiles), Some(tail)];
    let repeats = cx.before("Concat", &all, &[("axis", AttrValue::Int(0))])?;
    cx.set_input(1, Some(repeats));
    cx.set_input(2, None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn attributes_become_inputs() {
        check(&[
            ("Reshape-1", "float[2,3]", "shape=[3,2] consumed_inputs=[0]", "Reshape-25(v0, [3,2])"),
            ("Reshape-5", "float[2,3] int64[1]", "", "Reshape-25(v0, v1)"),
            ("Squeeze-1", "float[1,3]", "axes=[0]", "Squeeze-25(v0, [0])"),
            ("Squeeze-11", "float[1,3]", "", "Squeeze-25(v0)"),
            ("Unsqueeze-11", "float[3]", "axes=[-1]", "Unsqueeze-25(v0, [-1])"),
            ("Unsqueeze-13", "float[3] int64[1]", "", "Unsqueeze-25(v0, v1)"),
            (
                "Tile-1",
                "float[2,3,4] float[1] float[1]{1}",
                "",
                "Cast(v1 to=7) > t0; Reshape(t0, [1]) > t1; Concat([1], t1, [1] axis=0) > t2; Tile-13(v0, t2)",
            ),
            ("Tile-1", "float[2,3] float[1] float[1]", "", "!have to be known"),
            ("Tile-1", "float[2,3] float[1] float[1]{2}", "", "!axis 2 is none of the 2"),
            ("SpaceToDepth-1", "float[1,1,4,4]", "blocksize=2", "SpaceToDepth-28(v0 blocksize=2)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Reshape-25", "float[2] int64[1]", "", "5.."),
            ("Reshape-25", "float[2] int64[1]", "allowzero=1", "14.."),
            ("Reshape-25", "float[2] int64[2]{2,-1}", "allowzero=1", "5.."),
            ("Reshape-25", "float[0] int64[2]{0,5}", "allowzero=1", "14.."),
            ("Reshape-25", "bool[2] int64[1]", "", "5.."),
            ("Squeeze-25", "float[1,2]", "", "1.."),
            ("Squeeze-25", "float[1,2] int64[1]", "", "13.."),
            ("Squeeze-11", "float[1,2]", "axes=[0]", "1..12"),
            ("Squeeze-11", "float[1,2]", "axes=[-2]", "11..12"),
            ("Shape-25", "float[2]", "", "1.."),
            ("Shape-25", "float[2]", "start=1", "15.."),
            ("Shape-25", "float[2]", "end=1", "15.."),
            ("Flatten-25", "float[2]", "axis=-1", "11.."),
            ("Identity-25", "seq(float)", "", "14.."),
            ("Identity-25", "optional(seq(float))", "", "16.."),
            ("Identity-25", "uint2[2]", "", "25.."),
            ("SpaceToDepth-28", "float[1,1,4,4]", "blocksize=2 mode='CRD'", "28.."),
            ("SpaceToDepth-28", "float[1,1,4,4]", "blocksize=2 mode='DCR'", "1.."),
            ("DepthToSpace-28", "float[1,4,4,4]", "blocksize=2 mode='CRD'", "11.."),
        ]);
    }
}
