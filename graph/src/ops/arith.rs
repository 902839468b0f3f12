//! Element-wise arithmetic of two tensors that broadcast.

use super::{InferCx, OpDef, known};
use crate::error::Result;
use crate::ir::{ExprId, ExprTable};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Add", |cx| arith(cx, ExprTable::add)),
    OpDef::new("Div", |cx| arith(cx, ExprTable::trunc_div)),
    OpDef::new("Mul", |cx| arith(cx, ExprTable::mul)),
    OpDef::new("Sub", |cx| arith(cx, ExprTable::sub)),
];

fn arith(cx: &mut InferCx<'_>, f: fn(&mut ExprTable, ExprId, ExprId) -> ExprId) -> Result<()> {
    let Some(dtype) = cx.dtype(0).or_else(|| cx.dtype(1)) else { return Ok(()) };
    let (Some(a), Some(b)) = (cx.dims(0), cx.dims(1)) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    let dims = cx.broadcast(&[a, b])?;
    if dtype.is_int() {
        known::binary(cx, &dims, f);
    }
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}
