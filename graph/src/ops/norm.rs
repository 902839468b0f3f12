//! Normalizations.

use super::{BodyCx, InferCx, OpDef};
use crate::error::Result;
use crate::ir::{AttrValue, DType, Dims, ValueId};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("BatchNormalization", batch),
    OpDef::new("GroupNormalization", group).body(group_body),
    OpDef::new("InstanceNormalization", instance),
    OpDef::new("LRN", super::unary::like),
    OpDef::new("LayerNormalization", layer).body(layer_body),
    OpDef::new("LpNormalization", along_axis),
    OpDef::new("MeanVarianceNormalization", super::unary::like).body(|cx| cx.write("m = ReduceMean(X) axes=@axes; s = Mul(X, X); e = ReduceMean(s) axes=@axes; q = Mul(m, m); v = Sub(e, q); d = Sqrt(v); c = Sub(X, m); n = Add(d, 0.000000001); Y = Div(c, n)")),
    OpDef::new("RMSNormalization", rms).body(rms_body),
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

/// The axes from `axis` on, as a list; `None` while the rank is not known.
fn trailing_axes(cx: &BodyCx<'_>) -> Option<AttrValue> {
    let rank = i64::try_from(cx.rank(cx.input(0)?)?).ok()?;
    let axis = cx.view().int("axis").unwrap_or(-1);
    let first = if axis < 0 { axis + rank } else { axis };
    Some(AttrValue::ints(&(first..rank).collect::<Vec<_>>()))
}

/// The type in which a normalization computes.
fn stash_type(cx: &BodyCx<'_>) -> Option<DType> {
    DType::from_number(i32::try_from(cx.view().int("stash_type").unwrap_or(1)).ok()?)
}

fn layer_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let (Some(x), Some(scale), Some(axes), Some(stash)) = (cx.input(0), cx.input(1), trailing_axes(cx), stash_type(cx))
    else {
        return Ok(());
    };
    let Some(dtype) = cx.dtype(x) else { return Ok(()) };
    let wide = cx.cast(x, stash)?;
    let mean = cx.emit("ReduceMean", &[Some(wide)], &[("axes", axes.clone())])?;
    let centred = cx.emit("Sub", &[Some(wide), Some(mean)], &[])?;
    let square = cx.emit("Mul", &[Some(centred), Some(centred)], &[])?;
    let Some(inverse) = inverse_root(cx, square, axes)? else { return Ok(()) };
    let normal = cx.emit("Mul", &[Some(centred), Some(inverse)], &[])?;
    let narrow = cx.cast(normal, dtype)?;
    let mut y = cx.emit("Mul", &[Some(narrow), Some(scale)], &[])?;
    if let Some(bias) = cx.input(2) {
        y = cx.emit("Add", &[Some(y), Some(bias)], &[])?;
    }
    cx.set_output(0, y);
    cx.set_output(1, mean);
    cx.set_output(2, inverse);
    Ok(())
}

fn rms_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let (Some(x), Some(scale), Some(axes), Some(stash)) = (cx.input(0), cx.input(1), trailing_axes(cx), stash_type(cx))
    else {
        return Ok(());
    };
    let Some(dtype) = cx.dtype(scale) else { return Ok(()) };
    let wide = cx.cast(x, stash)?;
    let square = cx.emit("Mul", &[Some(wide), Some(wide)], &[])?;
    let Some(inverse) = inverse_root(cx, square, axes)? else { return Ok(()) };
    let normal = cx.emit("Mul", &[Some(wide), Some(inverse)], &[])?;
    let narrow = cx.cast(normal, dtype)?;
    let y = cx.emit("Mul", &[Some(narrow), Some(scale)], &[])?;
    cx.set_output(0, y);
    Ok(())
}

/// 1 / sqrt(mean + epsilon) over axes.
fn inverse_root(cx: &mut BodyCx<'_>, square: ValueId, axes: AttrValue) -> Result<Option<ValueId>> {
    let epsilon = f64::from(cx.view().attr("epsilon").and_then(AttrValue::as_float).unwrap_or(1e-5));
    let mean = cx.emit("ReduceMean", &[Some(square)], &[("axes", axes)])?;
    let Some(epsilon) = cx.scalar_like(mean, epsilon)? else { return Ok(None) };
    let sum = cx.emit("Add", &[Some(mean), Some(epsilon)], &[])?;
    let root = cx.emit("Sqrt", &[Some(sum)], &[])?;
    cx.emit("Reciprocal", &[Some(root)], &[]).map(Some)
}

/// Each group becomes one row; scale and bias are per channel.
fn group_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let (Some(x), Some(scale), Some(bias), Some(stash)) = (cx.input(0), cx.input(1), cx.input(2), stash_type(cx))
    else {
        return Ok(());
    };
    let (Some(dtype), Some(groups), Some(rank)) = (cx.dtype(x), cx.view().int("num_groups"), cx.rank(x)) else {
        return Ok(());
    };
    let shape = cx.emit("Shape", &[Some(x)], &[])?;
    let rows = cx.ints(&[0, groups, -1])?;
    let wide = cx.cast(x, stash)?;
    let rows = cx.emit("Reshape", &[Some(wide), Some(rows)], &[])?;
    let axes = AttrValue::ints(&[2]);
    let mean = cx.emit("ReduceMean", &[Some(rows)], &[("axes", axes.clone())])?;
    let centred = cx.emit("Sub", &[Some(rows), Some(mean)], &[])?;
    let square = cx.emit("Mul", &[Some(centred), Some(centred)], &[])?;
    let Some(inverse) = inverse_root(cx, square, axes)? else { return Ok(()) };
    let normal = cx.emit("Mul", &[Some(centred), Some(inverse)], &[])?;
    let narrow = cx.cast(normal, dtype)?;
    let whole = cx.emit("Reshape", &[Some(narrow), Some(shape)], &[])?;
    let mut column = vec![1; rank.saturating_sub(1)];
    if let Some(first) = column.first_mut() {
        *first = -1;
    }
    let column = cx.ints(&column)?;
    let scale = cx.emit("Reshape", &[Some(scale), Some(column)], &[])?;
    let bias = cx.emit("Reshape", &[Some(bias), Some(column)], &[])?;
    let scaled = cx.emit("Mul", &[Some(whole), Some(scale)], &[])?;
    let y = cx.emit("Add", &[Some(scaled), Some(bias)], &[])?;
    cx.set_output(0, y);
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
