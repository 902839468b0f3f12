//! Version steps of softmax and its kin. Before 13 they worked on a matrix: all dims from `axis` on were one.

use super::build::{input, no_negative_axis};
use super::{Row, Step, Upgrade, Way, adapter, row, same};
use crate::error::Result;
use crate::ir::AttrValue;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[row("Hardmax", STEPS), row("LogSoftmax", STEPS), row("Softmax", STEPS)];

const STEPS: &[Step] = &[same(11).only(no_negative_axis), adapter(13, flatten).only(axis_is_the_rest)];

/// One axis and all axes from there on are the same when the others are 1.
fn axis_is_the_rest(node: View<'_>, _: Way) -> bool {
    let (Some(rank), Some(axis)) = (node.rank(0), node.int("axis")) else { return false };
    let axis = if axis < 0 { usize::try_from(axis + i64::try_from(rank).unwrap_or(0)) } else { usize::try_from(axis) };
    axis.is_ok_and(|axis| axis < rank && (axis + 1..rank).all(|rest| node.dim(0, rest) == Some(1)))
}

/// No rank is needed: the shape comes back from a `Shape`.
fn flatten(cx: &mut dyn Upgrade) -> Result<()> {
    let axis = cx.view().int("axis").unwrap_or(1);
    let data = input(cx, 0);
    let shape = cx.before("Shape", &[data], &[])?;
    let flat = cx.before("Flatten", &[data], &[("axis", AttrValue::Int(axis))])?;
    cx.set_input(0, Some(flat));
    cx.set_attr("axis", AttrValue::Int(-1));
    cx.after(0, "Reshape", &[Some(shape)], &[])
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn only_a_true_matrix_changes_nothing() {
        let flat = "Shape(v0) > t0; Flatten(v0 axis=1) > t1; Softmax-13(t1 axis=-1) > t2; Reshape(t2, t0)";
        check(&[
            ("Softmax-11", "float[2,3]", "", "Softmax-13(v0 axis=1)"),
            ("Softmax-1", "float[2,3,1,1]", "", "Softmax-13(v0 axis=1)"),
            ("Softmax-11", "float[2,3,4]", "axis=-1", "Softmax-13(v0 axis=-1)"),
            ("Softmax-11", "float[2,3,4]", "", flat),
            ("Softmax-11", "float[2,3,n]", "", flat),
            ("Softmax-11", "float", "", flat),
            (
                "LogSoftmax-11",
                "float[2,3,4]",
                "axis=-2",
                "Shape(v0) > t0; Flatten(v0 axis=-2) > t1; LogSoftmax-13(t1 axis=-1) > t2; Reshape(t2, t0)",
            ),
            (
                "Hardmax-1",
                "float[2,3,4]",
                "axis=0",
                "Shape(v0) > t0; Flatten(v0 axis=0) > t1; Hardmax-13(t1 axis=-1) > t2; Reshape(t2, t0)",
            ),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Softmax-13", "float[2,3]", "axis=1", "1.."),
            ("Softmax-13", "float[2,3]", "axis=-1", "11.."),
            ("Softmax-13", "float[2,3]", "", "11.."),
            ("Softmax-13", "float[2,3,4]", "axis=1", "13.."),
            ("Softmax-13", "float", "axis=-1", "13.."),
            ("Softmax-11", "float[2,3,4]", "", "1..12"),
            ("Softmax-11", "float[2,3]", "", "1.."),
        ]);
    }
}
