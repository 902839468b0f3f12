//! Changes of the element type.

use super::{BodyCx, InferCx, OpDef, Same};
use crate::error::Result;
use crate::ir::{AttrValue, DType, ExprId};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("BitCast", bit_cast),
    OpDef::new("Cast", cast).same(Same::Type),
    OpDef::new("CastLike", cast_like).same(Same::Type).body(cast_like_body),
];

fn cast(cx: &mut InferCx<'_>) -> Result<()> {
    match cx.attr_dtype("to")? {
        Some(to) => convert(cx, to),
        None => Ok(()),
    }
}

fn cast_like(cx: &mut InferCx<'_>) -> Result<()> {
    match cx.dtype(1) {
        Some(to) => convert(cx, to),
        None => Ok(()),
    }
}

fn cast_like_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let (Some(x), Some(to)) = (cx.input(0), cx.input(1).and_then(|like| cx.dtype(like))) else { return Ok(()) };
    // How narrow floats are rounded; versions that do not know the words know none of those types.
    let mut attrs = vec![("to", AttrValue::Int(to.number().into()))];
    for name in ["round_mode", "saturate"] {
        let own = cx.view().attr(name).cloned();
        attrs.extend(own.filter(|_| cx.knows("Cast", name)).map(|value| (name, value)));
    }
    let y = if cx.dtype(x) == Some(to) { x } else { cx.emit("Cast", &[Some(x)], &attrs)? };
    cx.set_output(0, y);
    Ok(())
}

/// Small integers stay followed where the new type is an integer that holds every number that they may be, or bool.
fn convert(cx: &mut InferCx<'_>, to: DType) -> Result<()> {
    if let Some(known) = cx.known(0) {
        match to {
            DType::I64 | DType::F32 | DType::F64 => cx.set_known(0, &known),
            DType::I32 if fits(cx, &known) => cx.set_known(0, &known),
            DType::Bool => {
                let truths: Vec<_> = known.iter().map(|&x| cx.exprs.not(x)).collect();
                let truths: Vec<_> = truths.into_iter().map(|x| cx.exprs.not(x)).collect();
                cx.set_known(0, &truths);
            }
            _ => {}
        }
    }
    let dims = cx.dims(0);
    cx.set_tensor(0, to, dims);
    Ok(())
}

/// Whether numbers keep their value as `int32`. Sizes do unless a run says otherwise, which is then an error of it.
fn fits(cx: &mut InferCx<'_>, known: &[ExprId]) -> bool {
    let limit = cx.int(1 << 31);
    for &x in known {
        let (least, most) = cx.exprs.bounds(x);
        if i32::try_from(least).is_err() && least < 0 {
            return false;
        }
        if i32::try_from(most).is_err() {
            let holds = cx.exprs.lt(x, limit);
            if cx.exprs.truth(holds) == Some(false) {
                return false;
            }
            cx.assume(holds, || "a size that is cast to int32 has to fit".to_owned());
        }
    }
    true
}

fn bit_cast(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(to) = cx.attr_dtype("to")? else { return Ok(()) };
    if let Some(from) = cx.dtype(0)
        && from.bits() != to.bits()
    {
        return Err(cx.fail(format!("{from} has {} bits and {to} has {}", from.bits(), to.bits())));
    }
    let dims = cx.dims(0);
    cx.set_tensor(0, to, dims);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn types() {
        check(&[
            ("Cast", "float[n,3]", "to=10", "float16[n,3]"),
            ("Cast", "float[n,3]", "to=99", "!to is 99"),
            ("Cast", "int64[2]{3,4}", "to=6", "int32[2]{3,4}"),
            ("Cast", "int64[2]{n,4}", "to=6", "int32[2]"),
            ("Cast", "int64[1,n,2] int64[2]{3,4}", "to=6", "int32[1,n,2]"),
            ("Cast", "int64[2]{3,4}", "to=1", "float[2]{3,4}"),
            ("Cast", "float[2]{3,4}", "to=7", "int64[2]{3,4}"),
            ("Cast", "int64[2]{3,4}", "to=2", "uint8[2]"),
            ("Cast", "int64[2]{0,4}", "to=9", "bool[2]{0,1}"),
            ("CastLike", "float[n] double[3]", "", "double[n]"),
            ("BitCast", "float[n]", "to=6", "int32[n]"),
            ("BitCast", "float[n]", "to=7", "!float has 32 bits and int64 has 64"),
        ]);
    }
}
