//! Convolutions.

use super::window::Windows;
use super::{BodyCx, InferCx, OpDef};
use crate::error::Result;
use crate::ir::Dims;

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("CausalConvWithState", causal).body(causal_body),
    OpDef::new("Conv", conv),
    OpDef::new("ConvTranspose", conv_transpose),
    OpDef::new("DeformConv", deform_conv),
];

fn conv(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = conv_dims(cx, 0, 1)?;
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Dims of the convolution of input `x` with weights `w`.
pub(super) fn conv_dims(cx: &mut InferCx<'_>, x: usize, w: usize) -> Result<Option<Dims>> {
    let (Some(x), Some(w)) = (cx.dims(x), cx.dims(w)) else { return Ok(None) };
    same_ranks(cx, &x, &w)?;
    let group = cx.attr_int("group").unwrap_or(1);
    let per_group = cx.int(group);
    let channels = cx.exprs.mul(w[1], per_group);
    cx.same_dim(x[1], channels, "the channels of X (axis 1) and of W (axis 1) times group")?;
    let kernel = kernel_dims(cx, &w[2..])?;
    let windows = Windows::read(cx, kernel)?;
    let mut dims: Dims = [x[0], w[0]].into_iter().collect();
    for (i, &size) in x[2..].iter().enumerate() {
        dims.push(windows.count(cx, i, size)?);
    }
    Ok(Some(dims))
}

fn same_ranks(cx: &InferCx<'_>, x: &Dims, w: &Dims) -> Result<()> {
    if x.len() >= 3 && x.len() == w.len() {
        return Ok(());
    }
    Err(cx.fail(format!(
        "X and W need one rank of at least 3 (batch, channels, space), but have {} and {}",
        x.len(),
        w.len()
    )))
}

/// stride × (in - 1) + output_padding + reach of the kernel + 1 - pads, or `output_shape`, or in × stride for SAME.
fn conv_transpose(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let (Some(x), Some(w)) = (cx.dims(0), cx.dims(1)) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    same_ranks(cx, &x, &w)?;
    cx.same_dim(x[1], w[0], "the channels of X (axis 1) and the first dim of W")?;
    let n = x.len() - 2;
    let group = cx.attr_int("group").unwrap_or(1);
    let group = cx.int(group);
    let mut dims: Dims = [x[0], cx.exprs.mul(w[1], group)].into_iter().collect();
    let kernel = kernel_dims(cx, &w[2..])?;
    let stated = cx.attr_ints("output_shape").filter(|s| !s.is_empty());
    if let Some(shape) = &stated
        && shape.len() != n
    {
        return Err(cx.fail(format!("output_shape has {} entries, {n} are needed", shape.len())));
    }
    let windows = Windows::read(cx, kernel)?;
    let more = cx.attr_ints("output_padding").filter(|p| !p.is_empty()).unwrap_or_else(|| (0..n).map(|_| 0).collect());
    if more.len() != n {
        return Err(cx.fail(format!("output_padding has {} entries, {n} are needed", more.len())));
    }
    for (i, &size) in x[2..].iter().enumerate() {
        dims.push(match &stated {
            Some(shape) => cx.int(shape[i]),
            None => windows.spread(cx, i, size, more[i]),
        });
    }
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

/// As a convolution; the offsets move its taps.
fn deform_conv(cx: &mut InferCx<'_>) -> Result<()> {
    conv(cx)
}

/// Y like the input; the state is the last kernel - 1 positions.
fn causal(cx: &mut InferCx<'_>) -> Result<()> {
    cx.need_rank(0, "input", 3..=3)?;
    cx.need_rank(1, "weight", 3..=3)?;
    cx.set_like(0, 0);
    let (Some(x), Some(w), Some(dtype)) = (cx.dims(0), cx.dims(1), cx.dtype(0)) else { return Ok(()) };
    let one = cx.int(1);
    let kept = cx.exprs.sub(w[2], one);
    cx.set_tensor(1, dtype, Some([x[0], x[1], kept].into_iter().collect()));
    Ok(())
}

/// The window of a convolution: that of the weights, which `kernel_shape` may only repeat.
fn kernel_dims(cx: &mut InferCx<'_>, weights: &[crate::ir::ExprId]) -> Result<Dims> {
    let Some(stated) = cx.attr_ints("kernel_shape") else { return Ok(weights.into()) };
    if stated.len() != weights.len() {
        return Err(cx.fail(format!(
            "kernel_shape has {} entries, W has {} spatial dims",
            stated.len(),
            weights.len()
        )));
    }
    let mut dims = Dims::new();
    for (&own, &size) in weights.iter().zip(&stated) {
        let size = cx.int(size);
        dims.push(cx.same_dim(own, size, "the spatial dims of W and kernel_shape")?);
    }
    Ok(dims)
}

/// A convolution of every channel over what came before and the input.
fn causal_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let sizes = cx.named("weight").map(|w| (cx.size(w, 0), cx.size(w, 2)));
    let Some((Some(channels), Some(kernel))) = sizes else { return Ok(()) };
    let Some(dtype) = cx.input(0).and_then(|x| cx.dtype(x)) else { return Ok(()) };
    let before = kernel - 1;
    match cx.named("past_state") {
        Some(_) => cx.write("whole = Concat(past_state, input) axis=2")?,
        None => cx.write(&format!("whole = Pad(input, [0 0 {before} 0 0 0])"))?,
    }
    let bias = if cx.named("bias").is_some() { "bias" } else { "_" };
    cx.write(&format!("sums = Conv(whole, weight, {bias}) group={channels} kernel_shape=[{kernel}]"))?;
    match cx.view().str("activation").unwrap_or("none") {
        "none" => cx.write("output = Identity(sums)")?,
        _ => cx.write(&format!(
            "wide = Cast(sums) to=1; gate = Sigmoid(wide); gated = Mul(wide, gate); output = Cast(gated) to={}",
            dtype.number()
        ))?,
    }
    cx.write(&format!(
        "dims = Shape(whole); end = Gather(dims, [2]); first = Sub(end, [{before}]); present_state = Slice(whole, first, end, [2])"
    ))
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn convolutions() {
        check(&[
            ("Conv", "float[1,3,224,224] float[64,3,7,7]", "strides=[2,2] pads=[3,3,3,3]", "float[1,64,112,112]"),
            ("Conv", "float[n,3,h,w] float[8,3,3,3]", "pads=[1,1,1,1]", "float[n,8,h,w]"),
            (
                "ConvTranspose",
                "float[1,8,5,n] float[8,4,3,3]",
                "strides=[2,2] pads=[1,1,1,1]",
                "float[1,4,9,((n * 2) + -1)]",
            ),
            ("ConvTranspose", "float[1,8,5] float[8,4,3]", "output_shape=[17]", "float[1,4,17]"),
            ("ConvTranspose", "float[1,8,5] float[8,4,3]", "auto_pad='SAME_UPPER' strides=[3]", "float[1,4,15]"),
            ("ConvTranspose", "float[1,8,5] float[7,4,3]", "", "!the first dim of W"),
            ("CausalConvWithState", "float[b,6,t] float[6,1,4]", "", "float[b,6,t] float[b,6,3]"),
            ("Conv", "float[1,8,5] float[8,1,3]", "group=8 dilations=[2]", "float[1,8,1]"),
            (
                "Conv",
                "float[1,3,h,w] float[8,3,3,3]",
                "auto_pad='SAME_UPPER' strides=[2,2]",
                "float[1,8,ceildiv(h, 2),ceildiv(w, 2)]",
            ),
            (
                "Conv",
                "float[1,4,5,5] float[8,3,3,3]",
                "",
                "!channels of X (axis 1) and of W (axis 1) times group have to be equal, but are 4 and 3",
            ),
            ("Conv", "float[1,3,2,2] float[8,3,3,3]", "", "!spatial axis 0"),
            ("Conv", "float[1,3,5,5] float[8,3,3,3]", "strides=[0,1]", "!strides holds 0"),
            ("Conv", "float[1,3,5,5] float[8,3,3,3]", "pads=[1,1]", "!pads has 2 entries, 4 are needed"),
        ]);
    }
}
