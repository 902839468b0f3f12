//! Operators of `com.microsoft` that real models carry.

use super::conv::conv_dims;
use super::matmul::{gemm, matmul_dims};
use super::pool::{self, pooled_last};
use super::unary::like;
use super::{InferCx, InferFn, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims, ExprId};

const fn ms(name: &'static str, infer: InferFn) -> OpDef {
    OpDef::new(name, infer).domain("com.microsoft")
}

pub(super) static OPS: &[OpDef] = &[
    ms("Attention", |cx| attention(cx, 4)),
    ms("BiasGelu", like),
    ms("CDist", cdist),
    ms("DynamicQuantizeLSTM", dynamic_quantize_lstm),
    ms("DynamicQuantizeMatMul", |cx| product(cx, 0)),
    ms("EmbedLayerNormalization", embed),
    ms("FastGelu", like),
    ms("FusedConv", fused_conv),
    ms("FusedGemm", gemm),
    ms("FusedMatMul", fused_matmul),
    ms("GatherBlockQuantized", gather_block),
    ms("Gelu", like),
    ms("GroupQueryAttention", group_query),
    ms("Inverse", like),
    ms("MatMulIntegerToFloat", |cx| product(cx, 2)),
    ms("MatMulNBits", matmul_nbits),
    ms("MultiHeadAttention", multi_head),
    ms("NhwcMaxPool", |cx| channels_last_pool(cx, true)),
    ms("QAttention", |cx| attention(cx, 8)),
    ms("QGemm", qgemm),
    ms("QLinearAdd", qlinear_binary),
    ms("QLinearAveragePool", |cx| {
        let last = cx.attr_int("channels_last").unwrap_or(0) != 0;
        channels_last_pool(cx, last)
    }),
    ms("QLinearConcat", qlinear_concat),
    ms("QLinearGlobalAveragePool", qlinear_global),
    ms("QLinearLeakyRelu", like),
    ms("QLinearMul", qlinear_binary),
    ms("QLinearSigmoid", like),
    ms("QLinearSoftmax", like),
    ms("QuickGelu", like),
    ms("Range", super::index::range),
    ms("RotaryEmbedding", like),
    // ONNX Runtime registers this one in the standard domain.
    OpDef::new("SimplifiedLayerNormalization", |cx| normalized(cx, 1)),
    ms("SkipLayerNormalization", skip_normalized),
    ms("SkipSimplifiedLayerNormalization", skip_normalized),
    ms("Trilu", like),
];

/// Y like X; the statistics, as many as wanted, with a one for the last axis.
fn normalized(cx: &mut InferCx<'_>, statistics: usize) -> Result<()> {
    cx.set_like(0, 0);
    let one = cx.int(1);
    let dims = cx.dims(0).map(|mut x| {
        if let Some(last) = x.last_mut() {
            *last = one;
        }
        x
    });
    for o in 1..=statistics {
        cx.set_tensor(o, DType::F32, dims.clone());
    }
    Ok(())
}

fn skip_normalized(cx: &mut InferCx<'_>) -> Result<()> {
    normalized(cx, 2)?;
    cx.set_like(3, 0);
    Ok(())
}

/// Sum of three embeddings, normalized; a mask index for each row.
fn embed(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(2) else { return Ok(()) };
    cx.need_rank(0, "input_ids", 2..=2)?;
    cx.need_rank(2, "word_embedding", 2..=2)?;
    let (Some(ids), Some(words)) = (cx.dims(0), cx.dims(2)) else { return Ok(()) };
    let dims: Dims = [ids[0], ids[1], words[1]].into_iter().collect();
    cx.set_tensor(0, dtype, Some(dims.clone()));
    cx.set_tensor(1, DType::I32, Some([ids[0]].into_iter().collect()));
    cx.set_tensor(2, dtype, Some(dims));
    Ok(())
}

fn positive(cx: &InferCx<'_>, name: &str) -> Result<i64> {
    match cx.attr_int(name) {
        Some(n) if n > 0 => Ok(n),
        other => Err(cx.fail(format!("{name} is {}, at least 1 is needed", other.unwrap_or(0)))),
    }
}

/// Projection and attention in one: input [b, s, in], weights [in, q + k + v]; the past is input `past`.
fn attention(cx: &mut InferCx<'_>, past: usize) -> Result<()> {
    let dtype = cx.dtype(2).or_else(|| cx.dtype(0));
    let Some(dtype) = dtype else { return Ok(()) };
    cx.need_rank(0, "input", 3..=3)?;
    cx.need_rank(1, "weights", 2..=2)?;
    let heads = positive(cx, "num_heads")?;
    let (Some(x), Some(w)) = (cx.dims(0), cx.dims(1)) else { return Ok(()) };
    let hidden = match cx.attr_ints("qkv_hidden_sizes").as_deref() {
        Some(&[_, _, v]) => cx.int(v),
        Some(other) => return Err(cx.fail(format!("qkv_hidden_sizes has {} entries, 3 are needed", other.len()))),
        None => {
            let three = cx.int(3);
            cx.exprs.div(w[1], three)
        }
    };
    cx.set_tensor(0, dtype, Some([x[0], x[1], hidden].into_iter().collect()));
    let heads = cx.int(heads);
    let size = cx.exprs.div(hidden, heads);
    let total = match cx.dims(past) {
        Some(p) if p.len() == 5 => cx.exprs.add(p[3], x[1]),
        Some(p) => return Err(cx.fail(format!("past has rank {}, needed is 5", p.len()))),
        None => x[1],
    };
    let two = cx.int(2);
    cx.set_tensor(1, dtype, Some([two, x[0], heads, total, size].into_iter().collect()));
    Ok(())
}

/// Query [b, s, heads × size] or packed [b, s, heads, 3, size]; key and value packed, or per head when crossing.
fn multi_head(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    cx.need_rank(0, "query", 3..=5)?;
    let heads = positive(cx, "num_heads")?;
    let heads = cx.int(heads);
    let Some(q) = cx.dims(0) else { return Ok(()) };
    let size = if q.len() == 5 { q[4] } else { cx.exprs.div(q[2], heads) };
    let width = cx.exprs.mul(heads, size);
    let (length, value) = match (cx.dims(1), cx.dims(2)) {
        (_, Some(v)) if v.len() == 3 => (v[1], v[2]),
        (_, Some(v)) if v.len() == 4 => (v[2], cx.exprs.mul(v[1], v[3])),
        (Some(k), None) if k.len() == 5 => (k[1], width),
        _ => (q[1], width),
    };
    cx.set_tensor(0, dtype, Some([q[0], q[1], value].into_iter().collect()));
    let total = match cx.dims(6) {
        Some(past) if past.len() == 4 => cx.exprs.add(past[2], length),
        _ => length,
    };
    let value_size = cx.exprs.div(value, heads);
    cx.set_tensor(1, dtype, Some([q[0], heads, total, size].into_iter().collect()));
    cx.set_tensor(2, dtype, Some([q[0], heads, total, value_size].into_iter().collect()));
    cx.set_tensor(3, dtype, Some([q[0], heads, q[1], total].into_iter().collect()));
    Ok(())
}

/// The present is as long as the past buffer or as the total sequence length, whichever is longer.
fn group_query(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    cx.need_rank(0, "query", 3..=3)?;
    let (heads, kv_heads) = (positive(cx, "num_heads")?, positive(cx, "kv_num_heads")?);
    let Some(q) = cx.dims(0) else { return Ok(()) };
    // Packed, the query carries keys and values behind it.
    let (heads_in_query, packed) = if cx.has_input(1) { (heads, false) } else { (heads + 2 * kv_heads, true) };
    let divisor = cx.int(heads_in_query);
    let size = cx.exprs.div(q[2], divisor);
    let heads = cx.int(heads);
    let width = if packed { cx.exprs.mul(heads, size) } else { q[2] };
    cx.set_tensor(0, dtype, Some([q[0], q[1], width].into_iter().collect()));
    let total = cx.known_or_symbols(6).and_then(|t| t.first().copied());
    let keys = match total {
        Some(total) => total,
        None => cx.fresh_dim(3, 3),
    };
    cx.set_tensor(3, dtype, Some([q[0], heads, q[1], keys].into_iter().collect()));
    let past = cx.dims(3).filter(|p| p.len() == 4).map(|p| p[2]);
    let length = match (past, total) {
        (Some(past), Some(total)) => cx.exprs.max(past, total),
        (None, Some(total)) => total,
        _ => cx.fresh_dim(1, 2),
    };
    let kv_heads = cx.int(kv_heads);
    // Two numbers share a byte of a cache of 4 bits.
    let kept = match cx.dims(3) {
        Some(past) if past.len() == 4 && cx.attr_int("kv_cache_bit_width") == Some(4) => past[3],
        _ => size,
    };
    let present: Dims = [q[0], kv_heads, length, kept].into_iter().collect();
    let stored = cx.dtype(3).unwrap_or(dtype);
    cx.set_tensor(1, stored, Some(present.clone()));
    cx.set_tensor(2, stored, Some(present));
    Ok(())
}

/// A product of inputs 0 and 1 in the float type of input `scale`, float32 for 0.
fn product(cx: &mut InferCx<'_>, scale: usize) -> Result<()> {
    let dtype = if scale == 0 { cx.dtype(0) } else { cx.dtype(scale) };
    let dims = matmul_dims(cx, 0, 1)?;
    if let Some(dtype) = dtype {
        cx.set_tensor(0, dtype, dims);
    }
    Ok(())
}

/// As MatMul, after the last two dims of A or B (`transA`, `transB`) changed places; with `transBatch` the first dim
/// moved behind the others of the batch before.
fn fused_matmul(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let turned = |cx: &InferCx<'_>, i: usize, trans: &str, batch: &str| {
        let mut d = cx.dims(i)?;
        let n = d.len();
        if n > 2 && cx.attr_int(batch).unwrap_or(0) != 0 {
            d[..n - 1].rotate_left(1);
        }
        if n > 1 && cx.attr_int(trans).unwrap_or(0) != 0 {
            d.swap(n - 2, n - 1);
        }
        Some(d)
    };
    let (a, b) = (turned(cx, 0, "transA", "transBatchA"), turned(cx, 1, "transB", "transBatchB"));
    let dims = match (a, b) {
        (Some(a), Some(b)) => Some(super::matmul::product_dims(cx, a, b)?),
        _ => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn matmul_nbits(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let (k, n) = (positive(cx, "K")?, positive(cx, "N")?);
    let dims = match cx.dims(0) {
        Some(mut a) if !a.is_empty() => {
            let (k, last) = (cx.int(k), a.len() - 1);
            cx.same_dim(a[last], k, "the last dim of A and K")?;
            a[last] = cx.int(n);
            Some(a)
        }
        Some(_) => return Err(cx.fail("A is a scalar, at least one dim is needed")),
        None => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// As Gather, in the type of the scales; bytes hold several numbers of fewer bits along the last axis.
fn gather_block(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(2) else { return Ok(()) };
    let dims = match (cx.dims(0), cx.dims(1)) {
        (Some(mut x), Some(indices)) => {
            let axis = cx.axis(cx.attr_int("gather_axis").unwrap_or(0), x.len())?;
            if cx.dtype(0) == Some(DType::U8)
                && let bits @ 1..=8 = cx.attr_int("bits").unwrap_or(4)
            {
                let (codes, last) = (cx.int(8 / bits), x.len() - 1);
                x[last] = cx.exprs.mul(x[last], codes);
            }
            Some(x[..axis].iter().chain(&indices).chain(&x[axis + 1..]).copied().collect())
        }
        _ => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn fused_conv(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = conv_dims(cx, 0, 1)?;
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// W is [directions, in, 4 × hidden] and R [directions, hidden, 4 × hidden]: the transposes of LSTM's.
fn dynamic_quantize_lstm(cx: &mut InferCx<'_>) -> Result<()> {
    cx.need_rank(0, "X", 3..=3)?;
    cx.need_rank(2, "R", 3..=3)?;
    let (Some(dtype), Some(x), Some(r)) = (cx.dtype(0), cx.dims(0), cx.dims(2)) else { return Ok(()) };
    let last: Dims = [r[0], x[1], r[1]].into_iter().collect();
    cx.set_tensor(0, dtype, Some([x[0], r[0], x[1], r[1]].into_iter().collect()));
    cx.set_tensor(1, dtype, Some(last.clone()));
    cx.set_tensor(2, dtype, Some(last));
    Ok(())
}

/// A, scale, zero point, B, scale, zero point, C scale, C zero point.
fn qlinear_binary(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = match (cx.dims(0), cx.dims(3)) {
        (Some(a), Some(b)) => Some(cx.broadcast(&[a, b])?),
        _ => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Y scale, Y zero point, then tensor, scale and zero point of each part.
fn qlinear_concat(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(2) else { return Ok(()) };
    let parts: Vec<usize> = (2..cx.input_count()).step_by(3).collect();
    let dims = super::join::joined(cx, &parts)?;
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn qlinear_global(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let last = cx.attr_int("channels_last").unwrap_or(0) != 0;
    let one = cx.int(1);
    let dims = cx.dims(0).map(|x| -> Dims {
        let channels = if last { x.len().saturating_sub(1) } else { 1 };
        x.iter().enumerate().map(|(i, &d)| if i == 0 || i == channels { d } else { one }).collect()
    });
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn channels_last_pool(cx: &mut InferCx<'_>, last: bool) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = if last { pooled_last(cx)? } else { pool::pooled(cx)? };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// A, scale, zero point, B, scale, zero point, C, Y scale, Y zero point: quantized when the last is there.
fn qgemm(cx: &mut InferCx<'_>) -> Result<()> {
    let dtype = if cx.has_input(8) { cx.dtype(8) } else { Some(DType::F32) };
    let side = |cx: &InferCx<'_>, i: usize, trans: &str| -> Option<(ExprId, ExprId)> {
        let d = cx.dims(i).filter(|d| d.len() == 2)?;
        Some(if cx.attr_int(trans).unwrap_or(0) != 0 { (d[1], d[0]) } else { (d[0], d[1]) })
    };
    let dims = match (side(cx, 0, "transA"), side(cx, 3, "transB")) {
        (Some(a), Some(b)) => {
            cx.same_dim(a.1, b.0, "the inner dims of A and B")?;
            Some([a.0, b.1].into_iter().collect())
        }
        _ => None,
    };
    if let Some(dtype) = dtype {
        cx.set_tensor(0, dtype, dims);
    }
    Ok(())
}

fn cdist(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    cx.need_rank(0, "A", 2..=2)?;
    cx.need_rank(1, "B", 2..=2)?;
    let dims = match (cx.dims(0), cx.dims(1)) {
        (Some(a), Some(b)) => {
            cx.same_dim(a[1], b[1], "the last dims of A and B")?;
            Some([a[0], b[0]].into_iter().collect())
        }
        _ => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn attention_kin() {
        check(&[
            (
                "com.microsoft::Attention",
                "float[b,s,64] float[64,192] float[192]",
                "num_heads=4",
                "float[b,s,64] float[2,b,4,s,16]",
            ),
            (
                "com.microsoft::MultiHeadAttention",
                "float[b,s,64] float[b,t,64] float[b,t,32] _ _ _ float[b,4,p,16] float[b,4,p,8]",
                "num_heads=4",
                "float[b,s,32] float[b,4,(t + p),16] float[b,4,(t + p),8] float[b,4,s,(t + p)]",
            ),
            (
                "com.microsoft::GroupQueryAttention",
                "float[b,s,64] float[b,s,32] float[b,s,32] float[b,2,p,16] float[b,2,p,16] int32[b] int32[]{t}",
                "num_heads=4 kv_num_heads=2",
                "float[b,s,64] float[b,2,max(p, t),16] float[b,2,max(p, t),16] float[b,4,s,t]",
            ),
            (
                "com.microsoft::SkipLayerNormalization",
                "float[b,s,8] float[b,s,8] float[8]",
                "",
                "float[b,s,8] float[b,s,1] float[b,s,1] float[b,s,8]",
            ),
            (
                "com.microsoft::EmbedLayerNormalization",
                "int32[b,s] _ float[99,8] float[50,8]",
                "",
                "float[b,s,8] int32[b] float[b,s,8]",
            ),
        ]);
    }

    #[test]
    fn products_and_quantized() {
        check(&[
            ("com.microsoft::FusedMatMul", "float[b,k,m] float[b,n,k]", "transA=1 transB=1", "float[b,m,n]"),
            ("com.microsoft::MatMulNBits", "float[b,s,64] uint8[32,2,16] float[64]", "K=64 N=32", "float[b,s,32]"),
            (
                "com.microsoft::MatMulNBits",
                "float[b,s,60] uint8[32,2,16] float[64]",
                "K=64 N=32",
                "!the last dim of A and K",
            ),
            ("com.microsoft::MatMulIntegerToFloat", "uint8[m,k] int8[k,n] float16[]", "", "float16[m,n]"),
            (
                "com.microsoft::DynamicQuantizeLSTM",
                "float[s,b,4] int8[1,4,20] int8[1,5,20]",
                "",
                "float[s,1,b,5] float[1,b,5] float[1,b,5]",
            ),
            ("com.microsoft::GatherBlockQuantized", "uint8[9,8] int64[n] float[9,1]", "", "float[n,16]"),
            ("com.microsoft::QLinearAdd", "uint8[n,1] float[] uint8[] uint8[3] float[] uint8[]", "", "uint8[n,3]"),
            (
                "com.microsoft::QLinearConcat",
                "float[] uint8[] uint8[2,n] float[] uint8[] uint8[3,n] float[] uint8[]",
                "axis=0",
                "uint8[5,n]",
            ),
            ("com.microsoft::NhwcMaxPool", "uint8[n,6,8,3]", "kernel_shape=[2,2] strides=[2,2]", "uint8[n,3,4,3]"),
            ("com.microsoft::QLinearGlobalAveragePool", "uint8[n,6,8,3]", "channels_last=1", "uint8[n,1,1,3]"),
            ("com.microsoft::QGemm", "uint8[m,k] float[] uint8[] int8[n,k] float[] int8[]", "transB=1", "float[m,n]"),
            ("com.microsoft::CDist", "float[m,4] float[n,4]", "", "float[m,n]"),
        ]);
    }
}
