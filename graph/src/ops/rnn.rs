//! Recurrent cells.

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{Dims, ExprId};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("GRU", |cx| recurrent(cx, 3, false)),
    OpDef::new("LSTM", |cx| recurrent(cx, 4, true)),
    OpDef::new("RNN", |cx| recurrent(cx, 1, false)),
];

/// X is [seq, batch, in] (layout 0) or [batch, seq, in]; W is [directions, gates × hidden, in].
fn recurrent(cx: &mut InferCx<'_>, gates: i64, cell: bool) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    for (i, name) in [(0, "X"), (1, "W"), (2, "R")] {
        cx.need_rank(i, name, 3..=3)?;
    }
    let directions = match cx.attr_str("direction").unwrap_or("forward") {
        "forward" | "reverse" => 1,
        "bidirectional" => 2,
        other => return Err(cx.fail(format!("direction is '{other}', not forward, reverse or bidirectional"))),
    };
    let directions = cx.int(directions);
    let hidden = hidden_size(cx, directions, gates)?;
    let batch_first = cx.attr_int("layout").unwrap_or(0) != 0;
    let (seq, batch) = match cx.dims(0) {
        Some(x) if batch_first => (x[1], x[0]),
        Some(x) => (x[0], x[1]),
        None if batch_first => (cx.fresh_dim(0, 1), cx.fresh_dim(0, 0)),
        None => (cx.fresh_dim(0, 0), cx.fresh_dim(0, 2)),
    };
    let (all, last): (Dims, Dims) = if batch_first {
        ([batch, seq, directions, hidden].into_iter().collect(), [batch, directions, hidden].into_iter().collect())
    } else {
        ([seq, directions, batch, hidden].into_iter().collect(), [directions, batch, hidden].into_iter().collect())
    };
    cx.set_tensor(0, dtype, Some(all));
    cx.set_tensor(1, dtype, Some(last.clone()));
    if cell {
        cx.set_tensor(2, dtype, Some(last));
    }
    Ok(())
}

/// From the attribute, else from the weights, all of which have to agree.
fn hidden_size(cx: &mut InferCx<'_>, directions: ExprId, gates: i64) -> Result<ExprId> {
    let mut hidden = cx.attr_int("hidden_size").map(|h| cx.int(h));
    if let Some(r) = cx.dims(2) {
        hidden = Some(match hidden {
            Some(h) => cx.same_dim(h, r[2], "hidden_size and the last dim of R")?,
            None => r[2],
        });
        cx.same_dim(directions, r[0], "the number of directions and the first dim of R")?;
    }
    let hidden = hidden.unwrap_or_else(|| cx.fresh_dim(1, 2));
    if let Some(w) = cx.dims(1) {
        let gates = cx.int(gates);
        let rows = cx.exprs.mul(gates, hidden);
        cx.same_dim(rows, w[1], "gates × hidden_size and dim 1 of W")?;
        cx.same_dim(directions, w[0], "the number of directions and the first dim of W")?;
        if let Some(x) = cx.dims(0) {
            cx.same_dim(x[2], w[2], "the last dims of X and W")?;
        }
    }
    Ok(hidden)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn cells() {
        check(&[
            (
                "LSTM",
                "float[s,n,80] float[2,1024,80] float[2,1024,256]",
                "direction='bidirectional' hidden_size=256",
                "float[s,2,n,256] float[2,n,256] float[2,n,256]",
            ),
            ("GRU", "float[n,s,4] float[1,15,4] float[1,15,5]", "layout=1", "float[n,s,1,5] float[n,1,5]"),
            ("RNN", "float[s,n,4] float[1,5,4] float[1,5,5]", "direction='reverse'", "float[s,1,n,5] float[1,n,5]"),
            ("RNN", "float[s,n,4] float[1,6,4] float[1,5,5]", "", "!gates × hidden_size and dim 1 of W"),
            ("RNN", "float[s,n,4] float[1,5,4] float[1,5,5]", "direction='bidirectional'", "!the number of directions"),
            ("GRU", "float[s,4] float[1,15,4] float[1,15,5]", "", "!X has rank 2, needed is 3"),
        ]);
    }
}
