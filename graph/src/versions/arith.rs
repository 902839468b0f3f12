//! Version steps of arithmetic between tensors. Before version 7 an operator broadcast only when told to
//! (`broadcast`), and only its second input, lined up at `axis`.

use super::build::{input, ints, stuck};
use super::{Omit, Row, Run, Step, Upgrade, Way, adapter, legacy, row, same};
use crate::error::Result;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("Add", BINARY),
    // Shifts by less than 0 or at least the width are defined from 28 on; what they gave before was nobody's promise.
    row("BitShift", &[same(28)]),
    row("Div", BINARY),
    row("Max", &[legacy(6), same(8).only(same_shapes), same(12), same(13)]),
    row("Mean", &[legacy(6), same(8).only(same_shapes), same(13)]),
    row("Min", &[legacy(6), same(8).only(same_shapes), same(12), same(13)]),
    row("Mod", &[same(13), same(28).only(integer_or_fmod)]),
    row("Mul", BINARY),
    row("PRelu", &[legacy(6), adapter(7, slope_to_channel).only(slope_lines_up), same(9), same(16)]),
    row("Pow", &[broadcast(7), same(12), same(13), same(15)]),
    row("Sub", BINARY),
    row("Sum", &[legacy(6), same(8).only(same_shapes), same(13)]),
];

const BINARY: &[Step] = &[legacy(6), broadcast(7), same(13), same(14)];

/// The step to broadcasting as NumPy does it.
pub(super) const fn broadcast(to: u16) -> Step {
    const RUN: Run = line_up;
    adapter(to, RUN).omit(&[("axis", Omit::Always), ("broadcast", Omit::Always)]).only(lines_up)
}

/// Where B begins in A when it is not lined up at the end: `axis`, for nodes that broadcast. -1 is the end.
fn axis(node: View<'_>) -> Option<i64> {
    let told = node.int("broadcast").is_some_and(|b| b != 0);
    node.int("axis").filter(|axis| told && *axis != -1)
}

/// How many dims of A stand behind B.
fn behind(node: View<'_>, axis: i64) -> Option<i64> {
    let (a, b) = (i64::try_from(node.rank(0)?).ok()?, i64::try_from(node.rank(1)?).ok()?);
    let axis = if axis < 0 { axis.checked_add(a)? } else { axis };
    a.checked_sub(axis)?.checked_sub(b)
}

fn lines_up(node: View<'_>, way: Way) -> bool {
    match (way, axis(node)) {
        (Way::Down, _) => node.same_dims(0, 1),
        (Way::Up, None) => true,
        (Way::Up, Some(axis)) => behind(node, axis) == Some(0),
    }
}

fn line_up(cx: &mut dyn Upgrade) -> Result<()> {
    let node = cx.view();
    let (Some(axis), b) = (axis(node), input(cx, 1)) else { return Ok(()) };
    let Some(behind) = behind(node, axis) else {
        return stuck(format!("axis {axis} lines up B, which needs the ranks of both inputs"));
    };
    let rank = i64::try_from(node.rank(1).unwrap_or(0)).unwrap_or(0);
    if behind < 0 {
        return stuck(format!("B of rank {rank} does not fit into A from axis {axis} on"));
    }
    let axes = ints(cx, &(rank..rank + behind).collect::<Vec<_>>())?;
    let b = cx.before("Unsqueeze", &[b, Some(axes)], &[])?;
    cx.set_input(1, Some(b));
    Ok(())
}

/// Broadcasting came with the newer version.
fn same_shapes(node: View<'_>, way: Way) -> bool {
    way == Way::Up || (1..node.input_count()).all(|i| node.same_dims(0, i))
}

/// From version 28 on, floats may be rounded down as well (`fmod` = 0).
fn integer_or_fmod(node: View<'_>, way: Way) -> bool {
    way == Way::Up || node.dtype(0).is_some_and(|t| t.is_int()) || node.int("fmod") == Some(1)
}

/// A slope of one element, or one per channel of a matrix, is lined up alike in both versions.
fn slope_lines_up(node: View<'_>, _: Way) -> bool {
    let Some(slope) = node.dims(1) else { return false };
    (0..slope.len()).all(|axis| node.dim(1, axis) == Some(1)) || (slope.len() == 1 && node.rank(0) == Some(2))
}

/// Before version 7 a slope with one dim holds one number per channel (axis 1).
fn slope_to_channel(cx: &mut dyn Upgrade) -> Result<()> {
    let node = cx.view();
    let (Some(data), Some(slope)) = (node.rank(0), node.rank(1)) else {
        return stuck("a slope per channel needs the ranks of both inputs");
    };
    if slope != 1 || data <= 2 {
        return Ok(());
    }
    let behind: Vec<i64> = (1..i64::try_from(data - 1).unwrap_or(1)).collect();
    let axes = ints(cx, &behind)?;
    let slope = cx.before("Unsqueeze", &[input(cx, 1), Some(axes)], &[])?;
    cx.set_input(1, Some(slope));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn old_broadcasting_lines_up_b() {
        check(&[
            ("Add-6", "float[2,3,4,5] float[3,4]", "broadcast=1 axis=1", "Unsqueeze(v1, [2]) > t0; Add-14(v0, t0)"),
            ("Add-6", "float[2,3,4,5] float[2]", "broadcast=1 axis=0", "Unsqueeze(v1, [1,2,3]) > t0; Add-14(v0, t0)"),
            ("Add-6", "float[2,3] float[3]", "broadcast=1 axis=1", "Add-14(v0, v1)"),
            ("Add-6", "float[2,3] float[3]", "broadcast=1", "Add-14(v0, v1)"),
            ("Add-6", "float[2,3] float[2,3]", "broadcast=0 axis=0", "Add-14(v0, v1)"),
            ("Add-6", "float float[3]", "broadcast=1 axis=-1", "Add-14(v0, v1)"),
            (
                "Mul-1",
                "float[a,b,c] float[b]",
                "broadcast=1 axis=-2 consumed_inputs=[0,0]",
                "Unsqueeze(v1, [1]) > t0; Mul-14(v0, t0)",
            ),
            ("Pow-1", "float[2,3,4] float[3]", "broadcast=1 axis=1", "Unsqueeze(v1, [1]) > t0; Pow-15(v0, t0)"),
            ("And-1", "bool[2,3,4] bool[2]", "broadcast=1 axis=0", "Unsqueeze(v1, [1,2]) > t0; And-7(v0, t0)"),
            ("Sub-6", "float float[3]", "broadcast=1 axis=0", "!needs the ranks of both inputs"),
            ("Sub-6", "float[4,3] float[3,1]", "broadcast=1 axis=1", "!does not fit into A from axis 1"),
            (
                "Gemm-6",
                "float[2,3] float[3,4] float[4]",
                "broadcast=1",
                "Gemm-13(v0, v1, v2 alpha=1 beta=1 transA=0 transB=0)",
            ),
        ]);
    }

    #[test]
    fn slopes_are_per_channel() {
        check(&[
            ("PRelu-6", "float[2,3,4,5] float[3]", "", "Unsqueeze(v1, [1,2]) > t0; PRelu-16(v0, t0)"),
            ("PRelu-1", "float[2,3,4] float[3]", "", "Unsqueeze(v1, [1]) > t0; PRelu-16(v0, t0)"),
            ("PRelu-6", "float[2,3,4,5] float[1]", "", "PRelu-16(v0, v1)"),
            ("PRelu-6", "float[2,3] float[3]", "", "PRelu-16(v0, v1)"),
            ("PRelu-6", "float float[3]", "", "!needs the ranks"),
            ("PRelu-7", "float[2,3,4] float[4]", "", "PRelu-16(v0, v1)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Add-14", "float[2,3] float[2,3]", "", "1.."),
            ("Add-14", "float[n,3] float[n,3]", "", "1.."),
            ("Add-14", "float[2,3] float[3]", "", "7.."),
            ("Add-14", "int8[2] int8[2]", "", "14.."),
            ("Add-14", "bfloat16[2] bfloat16[2]", "", "13.."),
            ("Add-6", "float[2,3] float[3]", "broadcast=1", "1.."),
            ("Add-6", "float[2,3] float[2]", "broadcast=1 axis=0", "1..6"),
            ("Add-6", "float[2,3] float[2,3]", "", "1.."),
            ("Max-13", "float[2] float[2]", "", "1.."),
            ("Max-13", "float[2] float[1]", "", "8.."),
            ("Max-13", "int32[2] int32[2]", "", "12.."),
            ("Mod-28", "float[2] float[2]", "fmod=0", "28.."),
            ("Mod-28", "float[2] float[2]", "fmod=1", "10.."),
            ("Mod-28", "int32[2] int32[2]", "fmod=0", "10.."),
            ("PRelu-16", "float[2,3] float[1]", "", "1.."),
            ("PRelu-16", "float[2,3,4] float[4]", "", "7.."),
            ("Pow-15", "float[2] int64[2]", "", "12.."),
            ("Pow-15", "float[2] float[2]", "", "1.."),
        ]);
    }
}
