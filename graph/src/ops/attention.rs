//! Attention and what stands around it.

mod bodies;

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{Dims, ExprId};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Attention", attention).body(bodies::attention),
    OpDef::new("FlexAttention", flex).domain("ai.onnx.preview").body(bodies::flex),
    OpDef::new("LinearAttention", linear).body(bodies::linear),
    OpDef::new("RotaryEmbedding", super::unary::like).body(bodies::rotary),
];

/// Batch, heads, sequence and head size of Q, K or V, which is [b, heads, s, h] or [b, s, heads × h].
struct Heads {
    batch: ExprId,
    heads: ExprId,
    seq: ExprId,
    size: ExprId,
}

fn heads(cx: &mut InferCx<'_>, i: usize, name: &str, attr: &str) -> Result<Option<Heads>> {
    cx.need_rank(i, name, 3..=4)?;
    let Some(x) = cx.dims(i) else { return Ok(None) };
    if let &[batch, heads, seq, size] = x.as_slice() {
        return Ok(Some(Heads { batch, heads, seq, size }));
    }
    let Some(count) = cx.attr_int(attr).filter(|&n| n > 0) else {
        return Err(cx.fail(format!("{name} has rank 3, so {attr} is needed")));
    };
    let heads = cx.int(count);
    let rest = cx.exprs.modulo(x[2], heads);
    if cx.exprs.truth(rest) == Some(true) {
        let width = cx.show(x[2]);
        return Err(cx.fail(format!("the last dim of {name} is {width}, which {count} heads ({attr}) don't divide")));
    }
    let size = cx.exprs.div(x[2], heads);
    Ok(Some(Heads { batch: x[0], heads, seq: x[1], size }))
}

/// Y has the rank of Q; with a past, the present is longer by the new keys; the fourth output has all scores.
fn attention(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let q = heads(cx, 0, "Q", "q_num_heads")?;
    let k = heads(cx, 1, "K", "kv_num_heads")?;
    let v = heads(cx, 2, "V", "kv_num_heads")?;
    let (Some(q), Some(k), Some(v)) = (q, k, v) else { return Ok(()) };
    let batch = cx.same_dim(q.batch, k.batch, "the batches of Q and K")?;
    cx.same_dim(q.size, k.size, "the head sizes of Q and K")?;
    cx.same_dim(k.seq, v.seq, "the sequence lengths of K and V")?;
    let y: Dims = match cx.rank(0) {
        Some(4) => [batch, q.heads, q.seq, v.size].into_iter().collect(),
        _ => [batch, q.seq, cx.exprs.mul(q.heads, v.size)].into_iter().collect(),
    };
    cx.set_tensor(0, dtype, Some(y));
    let total = match cx.dims(4) {
        Some(past) if past.len() == 4 => cx.exprs.add(past[2], k.seq),
        Some(past) => return Err(cx.fail(format!("past_key has rank {}, needed is 4", past.len()))),
        None if cx.has_input(4) => cx.fresh_dim(1, 2),
        None => k.seq,
    };
    cx.set_tensor(1, dtype, Some([batch, k.heads, total, k.size].into_iter().collect()));
    let value = cx.dtype(2).unwrap_or(dtype);
    cx.set_tensor(2, value, Some([batch, k.heads, total, v.size].into_iter().collect()));
    cx.set_tensor(3, dtype, Some([batch, q.heads, q.seq, total].into_iter().collect()));
    Ok(())
}

fn flex(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    for (i, name) in [(0, "Q"), (1, "K"), (2, "V")] {
        cx.need_rank(i, name, 4..=4)?;
    }
    let (Some(q), Some(k), Some(v)) = (cx.dims(0), cx.dims(1), cx.dims(2)) else { return Ok(()) };
    let batch = cx.same_dim(q[0], k[0], "the batches of Q and K")?;
    cx.same_dim(q[3], k[3], "the head sizes of Q and K")?;
    cx.same_dim(k[2], v[2], "the sequence lengths of K and V")?;
    cx.set_tensor(0, dtype, Some([batch, q[1], q[2], v[3]].into_iter().collect()));
    Ok(())
}

/// All packed [b, t, heads × size]; the state is [b, kv heads, key size, value size].
fn linear(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    for (i, name) in [(0, "query"), (1, "key"), (2, "value")] {
        cx.need_rank(i, name, 3..=3)?;
    }
    let (Some(q), Some(k), Some(v)) = (cx.dims(0), cx.dims(1), cx.dims(2)) else { return Ok(()) };
    let (q_heads, kv_heads) = (cx.attr_int("q_num_heads").unwrap_or(0), cx.attr_int("kv_num_heads").unwrap_or(0));
    if q_heads < 1 || kv_heads < 1 || q_heads % kv_heads != 0 {
        return Err(cx.fail(format!("q_num_heads is {q_heads} and kv_num_heads {kv_heads}: a multiple is needed")));
    }
    let (q_heads, kv_heads) = (cx.int(q_heads), cx.int(kv_heads));
    let value_size = cx.exprs.div(v[2], kv_heads);
    let key_size = cx.exprs.div(k[2], kv_heads);
    let width = cx.exprs.mul(q_heads, value_size);
    cx.set_tensor(0, dtype, Some([q[0], q[1], width].into_iter().collect()));
    let state = cx.dtype(3).unwrap_or(dtype);
    cx.set_tensor(1, state, Some([q[0], kv_heads, key_size, value_size].into_iter().collect()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            (
                "Attention",
                "float[b,8,s,64] float[b,4,t,64] float[b,4,t,32]",
                "",
                "float[b,8,s,32] float[b,4,t,64] float[b,4,t,32] float[b,8,s,t]",
            ),
            (
                "Attention",
                "float[b,s,512] float[b,t,256] float[b,t,256] _ float[b,4,p,64] float[b,4,p,64]",
                "q_num_heads=8 kv_num_heads=4",
                "float[b,s,512] float[b,4,(t + p),64] float[b,4,(t + p),64] float[b,8,s,(t + p)]",
            ),
            ("Attention", "float[b,s,512] float[b,t,256] float[b,t,256]", "", "!so q_num_heads is needed"),
            ("Attention", "float[b,8,s,64] float[b,4,t,63] float[b,4,t,32]", "", "!the head sizes of Q and K"),
            (
                "ai.onnx.preview::FlexAttention",
                "float[b,8,s,64] float[b,4,t,64] float[b,4,t,32]",
                "",
                "float[b,8,s,32]",
            ),
            (
                "LinearAttention",
                "float[b,t,32] float[b,t,16] float[b,t,24]",
                "q_num_heads=4 kv_num_heads=2",
                "float[b,t,48] float[b,2,8,12]",
            ),
            ("RotaryEmbedding", "float[b,8,s,64] float[s,32] float[s,32]", "", "float[b,8,s,64]"),
        ]);
    }
}
