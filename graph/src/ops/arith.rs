//! Element-wise arithmetic of tensors that broadcast.

use super::{InferCx, OpDef, Same, known};
use crate::error::Result;
use crate::ir::{Dims, ExprId, ExprTable};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Add", |cx| arith(cx, ExprTable::add)),
    OpDef::new("BitShift", |cx| broadcast(cx).map(drop)),
    OpDef::new("BitwiseAnd", |cx| broadcast(cx).map(drop)),
    OpDef::new("BitwiseOr", |cx| broadcast(cx).map(drop)),
    OpDef::new("BitwiseXor", |cx| broadcast(cx).map(drop)),
    OpDef::new("Div", divide),
    OpDef::new("Max", |cx| many(cx, Some(ExprTable::max))).same(Same::Alone),
    OpDef::new("Mean", |cx| many(cx, None)).same(Same::Alone),
    OpDef::new("Min", |cx| many(cx, Some(ExprTable::min))).same(Same::Alone),
    OpDef::new("Mod", modulo),
    OpDef::new("Mul", |cx| arith(cx, ExprTable::mul)),
    OpDef::new("PRelu", prelu).body(|cx| cx.write("s = Mul(slope, X); n = Less(X, 0); Y = Where(n, s, X)")),
    OpDef::new("Pow", |cx| broadcast(cx).map(drop)),
    OpDef::new("Sub", |cx| arith(cx, ExprTable::sub)),
    OpDef::new("Sum", |cx| many(cx, None)).same(Same::Alone),
    OpDef::new("SwiGLU", swiglu)
        .body(|cx| cx.write("s = Mul(A, @alpha); g = Sigmoid(s); w = Mul(A, g); Y = Mul(w, B)")),
];

type Binary = fn(&mut ExprTable, ExprId, ExprId) -> ExprId;

/// Gives output 0 the element type of input 0 and the broadcast dims of inputs 0 and 1, which it returns.
fn broadcast(cx: &mut InferCx<'_>) -> Result<Option<Dims>> {
    let Some(dtype) = cx.dtype(0).or_else(|| cx.dtype(1)) else { return Ok(None) };
    let dims = cx.broadcast_inputs(2)?;
    cx.set_tensor(0, dtype, dims.clone());
    Ok(dims)
}

fn arith(cx: &mut InferCx<'_>, f: Binary) -> Result<()> {
    if let Some(dims) = broadcast(cx)? {
        known::binary(cx, &dims, f);
    }
    Ok(())
}

/// Floats stay whole numbers only where the division leaves no rest.
fn divide(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dims) = broadcast(cx)? else { return Ok(()) };
    if cx.dtype(0).is_some_and(|d| d.is_int()) {
        known::binary(cx, &dims, ExprTable::trunc_div);
    } else if let (Some(a), Some(b)) = (cx.known(0), cx.known(1))
        && a.iter().all(|&x| b.iter().all(|&y| cx.exprs.divides(y, x)))
    {
        known::binary(cx, &dims, ExprTable::div);
    }
    Ok(())
}

/// With `fmod` the remainder has the sign of the dividend, which no expression says.
fn modulo(cx: &mut InferCx<'_>) -> Result<()> {
    if cx.attr_int("fmod").unwrap_or(0) != 0 {
        return broadcast(cx).map(drop);
    }
    arith(cx, ExprTable::modulo)
}

fn many(cx: &mut InferCx<'_>, f: Option<Binary>) -> Result<()> {
    let count = cx.input_count();
    let Some(dtype) = (0..count).find_map(|i| cx.dtype(i)) else { return Ok(()) };
    let dims = cx.broadcast_inputs(count)?;
    if let (Some(dims), Some(f)) = (&dims, f) {
        match count {
            1 => known::unary(cx, |_, x| x),
            2 => known::binary(cx, dims, f),
            _ => {}
        }
    }
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// The slope broadcasts to X, never the other way.
fn prelu(cx: &mut InferCx<'_>) -> Result<()> {
    if let (Some(x), Some(slope)) = (cx.dims(0), cx.dims(1)) {
        let both = cx.broadcast(&[x.clone(), slope])?;
        if both.len() != x.len() {
            return Err(cx.fail(format!("slope has rank {}, X only {}", both.len(), x.len())));
        }
        for (&a, &b) in x.iter().zip(&both) {
            cx.same_dim(a, b, "the dims of X and of X broadcast with slope")?;
        }
    }
    cx.set_like(0, 0);
    Ok(())
}

fn swiglu(cx: &mut InferCx<'_>) -> Result<()> {
    cx.same_dims(0, 1, "A and B")?;
    cx.set_like(0, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn broadcasting() {
        check(&[
            ("Add", "float[2,1] float[3]", "", "float[2,3]"),
            ("Pow", "float[n,1] int64[4]", "", "float[n,4]"),
            ("BitShift", "uint8[3] uint8[]", "direction='LEFT'", "uint8[3]"),
            ("Sum", "float[2,1] float[3] float[4,1,1]", "", "float[4,2,3]"),
            ("Mean", "float[2]", "", "float[2]"),
            ("Add", "float[2] float[3]", "", "!dims 2 and 3 on axis 0"),
            ("PRelu", "float[2,3] float[3]", "", "float[2,3]"),
            ("PRelu", "float[3] float[2,3]", "", "!slope has rank 2"),
            ("PRelu", "float[2,1] float[3]", "", "!have to be equal, but are 1 and 3"),
            ("SwiGLU", "float[2,3] float[2,4]", "", "!A and B"),
        ]);
    }

    #[test]
    fn small_integers() {
        check(&[
            ("Add", "int64[2]{n,3} int64[]{1}", "", "int64[2]{(n + 1),4}"),
            ("Div", "int64[1]{-7} int64[1]{2}", "", "int64[1]{-3}"),
            ("Mod", "int64[1]{-7} int64[1]{3}", "", "int64[1]{2}"),
            ("Mod", "int64[1]{-7} int64[1]{3}", "fmod=1", "int64[1]"),
            ("Max", "int64[2]{1,5} int64[1]{3}", "", "int64[2]{3,5}"),
            ("Min", "int64[2]{1,5}", "", "int64[2]{1,5}"),
        ]);
    }
}
