//! Normalizations.

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("BatchNormalization", batch),
    OpDef::new("GroupNormalization", group),
    OpDef::new("InstanceNormalization", instance),
    OpDef::new("LRN", super::unary::like),
    OpDef::new("LayerNormalization", layer),
    OpDef::new("LpNormalization", along_axis),
    OpDef::new("MeanVarianceNormalization", super::unary::like),
    OpDef::new("RMSNormalization", rms),
];

/// Checks that input `i` is a vector of one number for each channel of X.
fn per_channel(cx: &mut InferCx<'_>, i: usize, name: &str) -> Result<()> {
    let (Some(x), Some(vector)) = (cx.dims(0), cx.dims(i)) else { return Ok(()) };
    let &[length] = vector.as_slice() else {
        return Err(cx.fail(format!("{name} has rank {}, a vector is needed", vector.len())));
    };
    let channels = if x.len() > 1 { x[1] } else { cx.int(1) };
    cx.same_dim(channels, length, &format!("the channels of X (axis 1) and the length of {name}")).map(drop)
}

fn batch(cx: &mut InferCx<'_>) -> Result<()> {
    for (i, name) in [(1, "scale"), (2, "B"), (3, "input_mean"), (4, "input_var")] {
        per_channel(cx, i, name)?;
    }
    cx.set_like(0, 0);
    cx.set_like(1, 3);
    cx.set_like(2, 4);
    Ok(())
}

fn instance(cx: &mut InferCx<'_>) -> Result<()> {
    per_channel(cx, 1, "scale")?;
    per_channel(cx, 2, "B")?;
    cx.set_like(0, 0);
    Ok(())
}

fn group(cx: &mut InferCx<'_>) -> Result<()> {
    let groups = cx.attr_int("num_groups").unwrap_or(1);
    if groups < 1 {
        return Err(cx.fail(format!("num_groups is {groups}")));
    }
    if let Some(x) = cx.dims(0).filter(|x| x.len() > 1) {
        let (channels, groups) = (x[1], cx.int(groups));
        let rest = cx.exprs.modulo(channels, groups);
        if cx.exprs.truth(rest) == Some(true) {
            let (c, g) = (cx.show(channels), cx.show(groups));
            return Err(cx.fail(format!("{c} channels can't be split into {g} groups (num_groups)")));
        }
    }
    instance(cx)
}

/// Y like X; mean and inverse deviation with ones for the normalized axes.
fn layer(cx: &mut InferCx<'_>) -> Result<()> {
    let stash = cx.attr_int("stash_type").unwrap_or(1);
    let dtype = i32::try_from(stash).ok().and_then(DType::from_number);
    let Some(dtype) = dtype else { return Err(cx.fail(format!("stash_type {stash} is no type"))) };
    let dims = match cx.dims(0) {
        None => None,
        Some(x) => {
            let axis = cx.axis(cx.attr_int("axis").unwrap_or(-1), x.len())?;
            let one = cx.int(1);
            Some(x.iter().enumerate().map(|(i, &d)| if i < axis { d } else { one }).collect::<Dims>())
        }
    };
    cx.set_like(0, 0);
    cx.set_tensor(1, dtype, dims.clone());
    cx.set_tensor(2, dtype, dims);
    Ok(())
}

fn along_axis(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(rank) = cx.rank(0) {
        cx.axis(cx.attr_int("axis").unwrap_or(-1), rank)?;
    }
    cx.set_like(0, 0);
    Ok(())
}

/// Computed in the type of X, returned in that of the scale.
fn rms(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(rank) = cx.rank(0) {
        cx.axis(cx.attr_int("axis").unwrap_or(-1), rank)?;
    }
    if let Some(dtype) = cx.dtype(1).or_else(|| cx.dtype(0)) {
        let dims = cx.dims(0);
        cx.set_tensor(0, dtype, dims);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            ("LayerNormalization", "float16[n,3,4] float16[4]", "", "float16[n,3,4] float[n,3,1] float[n,3,1]"),
            ("LayerNormalization", "float[2,3] float[3]", "axis=3", "!axis 3"),
            ("RMSNormalization", "float[n,4] float16[4]", "", "float16[n,4]"),
            (
                "BatchNormalization",
                "float[n,3,h,w] float[3] float[3] double[3] double[3]",
                "",
                "float[n,3,h,w] double[3] double[3]",
            ),
            (
                "BatchNormalization",
                "float[n,3,4] float[4]",
                "",
                "!the length of scale have to be equal, but are 3 and 4",
            ),
            ("InstanceNormalization", "float[n,3,4] float[3,1]", "", "!scale has rank 2"),
            ("GroupNormalization", "float[n,6,4] float[6] float[6]", "num_groups=4", "!6 channels can't be split"),
            ("LRN", "float[n,6,4]", "size=3", "float[n,6,4]"),
        ]);
    }
}
