//! Comparisons, logic, and choosing by a condition.

use super::{InferCx, OpDef, known};
use crate::error::Result;
use crate::ir::{DType, ExprId, ExprTable};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("And", |cx| binary(cx, ExprTable::and)),
    OpDef::new("Equal", |cx| binary(cx, ExprTable::eq)),
    OpDef::new("Greater", |cx| binary(cx, |e, a, b| e.lt(b, a))),
    OpDef::new("GreaterOrEqual", |cx| binary(cx, not_less))
        .body(|cx| cx.write("g = Greater(A, B); e = Equal(A, B); C = Or(g, e)")),
    OpDef::new("IsInf", test),
    OpDef::new("IsNaN", test),
    OpDef::new("Less", |cx| binary(cx, ExprTable::lt)),
    OpDef::new("LessOrEqual", |cx| binary(cx, |e, a, b| not_less(e, b, a)))
        .body(|cx| cx.write("l = Less(A, B); e = Equal(A, B); C = Or(l, e)")),
    OpDef::new("Not", not),
    OpDef::new("Or", |cx| binary(cx, ExprTable::or)),
    OpDef::new("Where", choose),
    OpDef::new("Xor", |cx| binary(cx, differs)),
];

fn not_less(e: &mut ExprTable, a: ExprId, b: ExprId) -> ExprId {
    let less = e.lt(a, b);
    e.not(less)
}

fn differs(e: &mut ExprTable, a: ExprId, b: ExprId) -> ExprId {
    let equal = e.eq(a, b);
    e.not(equal)
}

fn binary(cx: &mut InferCx<'_>, f: fn(&mut ExprTable, ExprId, ExprId) -> ExprId) -> Result<()> {
    let dims = cx.broadcast_inputs(2)?;
    if let Some(dims) = &dims {
        known::binary(cx, dims, f);
    }
    cx.set_tensor(0, DType::Bool, dims);
    Ok(())
}

fn test(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.dims(0);
    cx.set_tensor(0, DType::Bool, dims);
    Ok(())
}

fn not(cx: &mut InferCx<'_>) -> Result<()> {
    known::unary(cx, ExprTable::not);
    test(cx)
}

fn choose(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(1).or_else(|| cx.dtype(2)) else { return Ok(()) };
    let dims = cx.broadcast_inputs(3)?;
    if let Some(dims) = &dims {
        known::ternary(cx, dims, ExprTable::select);
    }
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn truth() {
        check(&[
            ("Equal", "float[2,1] float[3]", "", "bool[2,3]"),
            ("Equal", "int64[2]{1,n} int64[]{1}", "", "bool[2]{1,eq(1, n)}"),
            ("GreaterOrEqual", "int64[1]{2} int64[1]{2}", "", "bool[1]{1}"),
            ("Less", "int64[1]{2} int64[1]{2}", "", "bool[1]{0}"),
            ("Not", "bool[1]{1}", "", "bool[1]{0}"),
            ("Xor", "bool[2]{1,0} bool[2]{1,1}", "", "bool[2]{0,1}"),
            ("IsNaN", "float[n]", "", "bool[n]"),
            ("Where", "bool[2]{1,0} int64[2]{n,3} int64[1]{7}", "", "int64[2]{n,7}"),
            ("Where", "bool[3,1] float[4] float[]", "", "float[3,4]"),
        ]);
    }
}
