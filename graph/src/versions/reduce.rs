//! Version steps of reductions and scans along an axis. Axes moved from an attribute to an input in 18 (`ReduceSum`: 13).

use super::build::{ints_to_input, no_negative_axes, no_negative_axis, through};
use super::{Row, Run, Step, adapter, row, same};
use crate::ir::DType;

pub(super) const ROWS: &[Row] = &[
    row("ArgMax", ARG),
    row("ArgMin", ARG),
    row("CumSum", &[same(14)]),
    row("ReduceL1", REDUCE),
    row("ReduceL2", REDUCE),
    row("ReduceLogSum", LOGS),
    row("ReduceLogSumExp", LOGS),
    row("ReduceMax", EXTREMES),
    row("ReduceMean", REDUCE),
    row("ReduceMin", EXTREMES),
    row("ReduceProd", REDUCE),
    row("ReduceSum", &[same(11).only(no_negative_axes), adapter(13, AXES)]),
    row("ReduceSumSquare", REDUCE),
];

const ARG: &[Step] = &[same(11).only(no_negative_axis), same(12), same(13)];
const REDUCE: &[Step] = &[same(11).only(no_negative_axes), same(13), adapter(18, AXES)];
const EXTREMES: &[Step] = &[same(11).only(no_negative_axes), same(12), same(13), adapter(18, AXES), same(20)];
/// Integers were allowed until 28; their results were the fraction cut off.
const LOGS: &[Step] = &[
    same(11).only(no_negative_axes),
    same(13),
    adapter(18, AXES),
    adapter(28, |cx| through(cx, DType::F64)).narrows(),
];

/// No axes mean all of them in both forms.
const AXES: Run = |cx| ints_to_input(cx, "axes", 1);

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn axes_become_an_input() {
        check(&[
            ("ReduceMean-13", "float[2,3]", "axes=[-1] keepdims=0", "ReduceMean-18(v0, [-1] keepdims=0)"),
            ("ReduceMean-1", "float[2,3]", "", "ReduceMean-18(v0 keepdims=1)"),
            ("ReduceSum-11", "float[2,3]", "axes=[0,1]", "ReduceSum-13(v0, [0,1] keepdims=1)"),
            ("ReduceSum-13", "float[2,3] int64[1]", "", "ReduceSum-13(v0, v1 keepdims=1 noop_with_empty_axes=0)"),
            ("ReduceMax-12", "float[2,3]", "axes=[1]", "ReduceMax-20(v0, [1] keepdims=1)"),
            (
                "ReduceLogSum-18",
                "int32[2,3] int64[1]",
                "",
                "Cast(v0 to=11) > t0; ReduceLogSum-28(t0, v1 keepdims=1 noop_with_empty_axes=0) > t1; Cast(t1 to=6)",
            ),
            ("ReduceLogSum-13", "double[2]", "axes=[0]", "ReduceLogSum-28(v0, [0] keepdims=1)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("ReduceMean-18", "float[2,3]", "keepdims=0", "1.."),
            ("ReduceMean-18", "float[2,3] int64[1]", "", "18.."),
            ("ReduceMean-18", "float[2,3]", "noop_with_empty_axes=1", "18.."),
            ("ReduceMean-13", "float[2,3]", "axes=[1]", "1..17"),
            ("ReduceMean-13", "float[2,3]", "axes=[-1]", "11..17"),
            ("ReduceMax-20", "bool[2,3]", "", "20.."),
            ("ReduceLogSum-18", "int32[2]", "", "1..27"),
            ("ArgMax-13", "float[2]", "axis=0", "1.."),
            ("ArgMax-13", "float[2]", "axis=-1", "11.."),
            ("ArgMax-13", "float[2]", "select_last_index=1", "12.."),
        ]);
    }
}
