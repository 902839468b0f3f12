//! Quantized numbers: to them, from them, and products of them.

use super::conv::conv_dims;
use super::matmul::matmul_dims;
use super::{Fold, InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("ConvInteger", |cx| {
        let dims = conv_dims(cx, 0, 1)?;
        cx.set_tensor(0, DType::I32, dims);
        Ok(())
    }),
    OpDef::new("DequantizeLinear", dequantize).fold(Fold::Never),
    OpDef::new("DynamicQuantizeLinear", dynamic).body(|cx| {
        cx.write(
            "low = ReduceMin(x) keepdims=0; least = Min(low, 0); high = ReduceMax(x) keepdims=0; most = Max(high, 0);
             range = Sub(most, least); y_scale = Div(range, 255); shift = Div(least, y_scale); free = Sub(0, shift);
             bounded = Clip(free, 0, 255); whole = Round(bounded); y_zero_point = Cast(whole) to=2;
             y = QuantizeLinear(x, y_scale, y_zero_point)",
        )
    }),
    OpDef::new("MatMulInteger", |cx| {
        let dims = matmul_dims(cx, 0, 1)?;
        cx.set_tensor(0, DType::I32, dims);
        Ok(())
    }),
    OpDef::new("QLinearConv", |cx| {
        let dims = conv_dims(cx, 0, 3)?;
        set_like_zero_point(cx, 7, dims);
        Ok(())
    }),
    OpDef::new("QLinearMatMul", |cx| {
        let dims = matmul_dims(cx, 0, 3)?;
        set_like_zero_point(cx, 7, dims);
        Ok(())
    }),
    OpDef::new("QuantizeLinear", quantize),
];

fn set_like_zero_point(cx: &mut InferCx<'_>, zero_point: usize, dims: Option<Dims>) {
    if let Some(dtype) = cx.dtype(zero_point) {
        cx.set_tensor(0, dtype, dims);
    }
}

/// The zero point's type, else `output_dtype`, else uint8.
fn quantize(cx: &mut InferCx<'_>) -> Result<()> {
    let stated = cx.attr_dtype_or_none("output_dtype")?;
    let zero_point = cx.dtype(2);
    if let (Some(a), Some(b)) = (stated, zero_point)
        && a != b
    {
        return Err(cx.fail(format!("output_dtype is {a}, but y_zero_point is {b}")));
    }
    check_axis(cx)?;
    let dtype = zero_point.or(stated).unwrap_or(DType::U8);
    let dims = cx.dims(0);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// `output_dtype`, else the scale's type.
fn dequantize(cx: &mut InferCx<'_>) -> Result<()> {
    check_axis(cx)?;
    let Some(dtype) = cx.attr_dtype_or_none("output_dtype")?.or_else(|| cx.dtype(1)) else { return Ok(()) };
    let dims = cx.dims(0);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Only scales that are not scalars need the axis.
fn check_axis(cx: &InferCx<'_>) -> Result<()> {
    match (cx.rank(0), cx.rank(1)) {
        (Some(rank), Some(scale)) if scale > 0 && rank > 1 => cx.axis(cx.attr_int("axis").unwrap_or(1), rank).map(drop),
        _ => Ok(()),
    }
}

fn dynamic(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.dims(0);
    cx.set_tensor(0, DType::U8, dims);
    cx.set_tensor(1, DType::F32, Some(Dims::new()));
    cx.set_tensor(2, DType::U8, Some(Dims::new()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn types_and_shapes() {
        check(&[
            ("QuantizeLinear", "float[n,3] float[] int8[]", "", "int8[n,3]"),
            ("QuantizeLinear", "float[n,3] float[]", "output_dtype=3", "int8[n,3]"),
            ("QuantizeLinear", "float[n,3] float[]", "", "uint8[n,3]"),
            ("QuantizeLinear", "float[n,3] float[] int8[]", "output_dtype=2", "!output_dtype is uint8"),
            ("QuantizeLinear", "float[n,3] float[3]", "axis=2", "!axis 2"),
            ("DequantizeLinear", "uint8[n,3] float16[]", "", "float16[n,3]"),
            ("DynamicQuantizeLinear", "float[n]", "", "uint8[n] float[] uint8[]"),
            ("MatMulInteger", "uint8[n,3] int8[3,4]", "", "int32[n,4]"),
            ("ConvInteger", "uint8[1,1,3,3] uint8[1,1,2,2]", "", "int32[1,1,2,2]"),
            ("QLinearMatMul", "uint8[n,3] float[] uint8[] int8[3,4] float[] int8[] float[] int8[]", "", "int8[n,4]"),
            (
                "QLinearConv",
                "uint8[1,1,7,7] float[] uint8[] uint8[1,1,1,1] float[] uint8[] float[] uint8[]",
                "",
                "uint8[1,1,7,7]",
            ),
        ]);
    }
}
