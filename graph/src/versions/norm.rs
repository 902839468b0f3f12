//! Version steps of normalisations.

use super::build::{input, ints, stuck, up_only};
use super::{Omit, Row, Upgrade, Way, adapter, legacy, row, same};
use crate::error::Result;
use crate::ir::{AttrValue, DType, ValueId};
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row(
        "BatchNormalization",
        &[
            legacy(6),
            // In 6 as in 7 the number of outputs tells training from testing; `is_test` says it once more, with a
            // default that exporters did not mean.
            same(7).omit(&[("is_test", Omit::Always)]).only(up_only),
            adapter(9, flatten_features),
            adapter(14, training).only(inference),
            same(15),
        ],
    ),
    row("GroupNormalization", &[adapter(21, scale_per_channel).only(one_channel_per_group)]),
    row("InstanceNormalization", &[legacy(6), same(22)]),
    row("LRN", &[same(13)]),
    row("LpNormalization", &[same(22)]),
    row("MeanVarianceNormalization", &[same(13)]),
];

/// `spatial` = 0: one mean per feature, not per channel. The features of an image are its channels once it is flat.
fn flatten_features(cx: &mut dyn Upgrade) -> Result<()> {
    if cx.view().rank(0).is_some_and(|rank| rank <= 2) {
        return Ok(());
    }
    let (data, scale) = (input(cx, 0), input(cx, 1));
    let shape = cx.before("Shape", &[data], &[])?;
    let flat = cx.before("Flatten", &[data], &[("axis", AttrValue::Int(1))])?;
    let features = cx.before("Shape", &[scale], &[])?;
    let all = ints(cx, &[-1])?;
    cx.set_input(0, Some(flat));
    for i in 1..5 {
        let value = cx.before("Reshape", &[input(cx, i), Some(all)], &[])?;
        cx.set_input(i, Some(value));
    }
    cx.after(0, "Reshape", &[Some(shape)], &[])?;
    (1..5).try_for_each(|o| cx.after(o, "Reshape", &[Some(features)], &[]))
}

fn inference(node: View<'_>, _: Way) -> bool {
    node.output_count() <= 1
}

/// More than one output meant training before 14.
fn training(cx: &mut dyn Upgrade) -> Result<()> {
    if cx.view().output_count() > 3 {
        return stuck("the saved mean and variance of training have no successor");
    }
    cx.set_attr("training_mode", AttrValue::Int(1));
    Ok(())
}

/// Scale and bias per group and per channel are the same when each group is one channel. The older version does not
/// say in which precision it computes; that of `float` loses nothing but for `double`.
fn one_channel_per_group(node: View<'_>, _: Way) -> bool {
    let single = node.dim(0, 1).is_some_and(|channels| node.int("num_groups") == Some(channels));
    single && node.dtype(0).is_some_and(|t| t != DType::F64)
}

/// Scale and bias were per group in 18, and are per channel since.
fn scale_per_channel(cx: &mut dyn Upgrade) -> Result<()> {
    let Some(groups) = cx.view().int("num_groups").filter(|groups| *groups > 0) else {
        return stuck("num_groups is no positive number");
    };
    let repeats = repeats(cx, groups)?;
    let column = ints(cx, &[groups, 1])?;
    let flat = ints(cx, &[-1])?;
    for i in [1, 2] {
        let value = cx.before("Reshape", &[input(cx, i), Some(column)], &[])?;
        let value = cx.before("Expand", &[Some(value), Some(repeats)], &[])?;
        let value = cx.before("Reshape", &[Some(value), Some(flat)], &[])?;
        cx.set_input(i, Some(value));
    }
    if cx.view().dtype(0) == Some(DType::F64) {
        cx.set_attr("stash_type", AttrValue::Int(DType::F64.number().into()));
    }
    Ok(())
}

/// The shape that repeats a column of one number per group for every channel.
fn repeats(cx: &mut dyn Upgrade, groups: i64) -> Result<ValueId> {
    match cx.view().dim(0, 1) {
        Some(channels) if channels % groups == 0 => ints(cx, &[groups, channels / groups]),
        Some(channels) => stuck(format!("{channels} channels do not make {groups} groups")),
        None => {
            let range = [("end", AttrValue::Int(2)), ("start", AttrValue::Int(1))];
            let channels = cx.before("Shape", &[input(cx, 0)], &range)?;
            let groups = ints(cx, &[groups])?;
            let each = cx.before("Div", &[Some(channels), Some(groups)], &[])?;
            cx.before("Concat", &[Some(groups), Some(each)], &[("axis", AttrValue::Int(0))])
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    const BN: &str = "float[2,3,4,4] float[3] float[3] float[3] float[3]";

    #[test]
    fn batch_normalization() {
        let tail = "epsilon=0.00001 momentum=0.9";
        check(&[
            ("BatchNormalization-6", BN, "is_test=1", &format!("BatchNormalization-15(v0, v1, v2, v3, v4 {tail})")),
            (
                "BatchNormalization-1",
                BN,
                "consumed_inputs=[0]",
                &format!("BatchNormalization-15(v0, v1, v2, v3, v4 {tail})"),
            ),
            ("BatchNormalization-7", BN, "spatial=1", &format!("BatchNormalization-15(v0, v1, v2, v3, v4 {tail})")),
            (
                "BatchNormalization-7",
                "float[2,3,4] float[3,4] float[3,4] float[3,4] float[3,4]",
                "spatial=0",
                &format!(
                    "Shape(v0) > t0; Flatten(v0 axis=1) > t1; Shape(v1) > t2; Reshape(v1, [-1]) > t3; \
                     Reshape(v2, [-1]) > t4; Reshape(v3, [-1]) > t5; Reshape(v4, [-1]) > t6; \
                     BatchNormalization-15(t1, t3, t4, t5, t6 {tail}) > t7; Reshape(t7, t0)"
                ),
            ),
            (
                "BatchNormalization-7",
                "float[2,3] float[3] float[3] float[3] float[3]",
                "spatial=0",
                &format!("BatchNormalization-15(v0, v1, v2, v3, v4 {tail})"),
            ),
            (
                "BatchNormalization-9 3",
                BN,
                "",
                &format!("BatchNormalization-15(v0, v1, v2, v3, v4 {tail} training_mode=1)"),
            ),
            ("BatchNormalization-9 5", BN, "", "!no successor"),
        ]);
    }

    #[test]
    fn group_scales_become_channel_scales() {
        check(&[
            (
                "GroupNormalization-18",
                "float[1,6,4] float[3] float[3]",
                "num_groups=3",
                "Reshape(v1, [3,1]) > t0; Expand(t0, [3,2]) > t1; Reshape(t1, [-1]) > t2; \
                 Reshape(v2, [3,1]) > t3; Expand(t3, [3,2]) > t4; Reshape(t4, [-1]) > t5; \
                 GroupNormalization-21(v0, t2, t5 epsilon=0.00001 num_groups=3)",
            ),
            (
                "GroupNormalization-18",
                "double[1,c,4] double[2] double[2]",
                "num_groups=2",
                "Shape(v0 end=2 start=1) > t0; Div(t0, [2]) > t1; Concat([2], t1 axis=0) > t2; \
                 Reshape(v1, [2,1]) > t3; Expand(t3, t2) > t4; Reshape(t4, [-1]) > t5; \
                 Reshape(v2, [2,1]) > t6; Expand(t6, t2) > t7; Reshape(t7, [-1]) > t8; \
                 GroupNormalization-21(v0, t5, t8 epsilon=0.00001 num_groups=2 stash_type=11)",
            ),
            (
                "GroupNormalization-18",
                "float[1,3,4] float[3] float[3]",
                "num_groups=3",
                "GroupNormalization-21(v0, v1, v2 epsilon=0.00001 num_groups=3)",
            ),
            ("GroupNormalization-18", "float[1,7,4] float[3] float[3]", "num_groups=3", "!do not make 3 groups"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("BatchNormalization-15", BN, "", "7.."),
            ("BatchNormalization-15", BN, "training_mode=1", "14.."),
            ("BatchNormalization-9 3", BN, "", "7..13"),
            ("BatchNormalization-7", BN, "spatial=0", "7..8"),
            ("BatchNormalization-6", BN, "is_test=1", "6.."),
            ("GroupNormalization-21", "float[1,6,4] float[6] float[6]", "num_groups=3", "21.."),
            ("GroupNormalization-18", "float[1,6,4] float[3] float[3]", "num_groups=3", "18..20"),
            ("GroupNormalization-18", "float[1,3,4] float[3] float[3]", "num_groups=3", "18.."),
        ]);
    }
}
