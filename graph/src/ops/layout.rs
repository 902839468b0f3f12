//! Operators that pass elements on unchanged under another shape.

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{Dims, ExprId};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Constant", constant),
    OpDef::new("Flatten", flatten),
    OpDef::new("Identity", identity),
    OpDef::new("Reshape", reshape),
];

fn constant(cx: &mut InferCx<'_>) -> Result<()> {
    // Loading makes every Constant a constant value; one that is left has a value that no tensor attribute holds.
    let Some(c) = cx.attr_tensor("value").cloned() else { return Ok(()) };
    let ty = c.ty(cx.exprs);
    cx.set_tensor(0, ty.dtype, ty.dims);
    Ok(())
}

fn identity(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(known) = cx.known(0) {
        cx.set_known(0, &known);
    }
    cx.set_like(0, 0);
    Ok(())
}

fn flatten(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = match cx.dims(0) {
        None => cx.fresh_dims(0, 2),
        Some(x) => {
            let axis = cx.attr_int("axis").unwrap_or(1);
            // One more than the last axis is allowed: all dims become rows.
            let at = if usize::try_from(axis) == Ok(x.len()) { x.len() } else { cx.axis(axis, x.len())? };
            let (rows, columns) = (cx.exprs.mul_all(&x[..at]), cx.exprs.mul_all(&x[at..]));
            [rows, columns].into_iter().collect()
        }
    };
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

fn reshape(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(target) = cx.known_or_symbols(1) else {
        let rank = cx.dims(1).and_then(|d| cx.exprs.as_const(*d.first()?)).and_then(|n| usize::try_from(n).ok());
        let dims = rank.filter(|&r| r <= crate::ir::KNOWN_LIMIT).map(|rank| cx.fresh_dims(0, rank));
        cx.set_tensor(0, dtype, dims);
        return Ok(());
    };
    let dims = reshaped(cx, &target)?;
    if let (Some(known), Some(_)) = (cx.known(0), &dims) {
        cx.set_known(0, &known);
    }
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// 0 copies the input's dim (unless `allowzero`), one -1 takes what is left.
fn reshaped(cx: &mut InferCx<'_>, target: &[ExprId]) -> Result<Option<Dims>> {
    let input = cx.dims(0);
    let allow_zero = cx.attr_int("allowzero").unwrap_or(0) != 0;
    let mut dims = Dims::new();
    let mut open = None;
    for (axis, &want) in target.iter().enumerate() {
        match cx.exprs.as_const(want) {
            Some(0) if !allow_zero => match input.as_ref().map(|d| d.get(axis).copied()) {
                Some(Some(d)) => dims.push(d),
                Some(None) => {
                    return Err(cx.fail(format!("shape[{axis}] is 0 (copy), but the input has no axis {axis}")));
                }
                None => dims.push(cx.fresh_dim(0, axis)),
            },
            Some(-1) if open.is_some() => return Err(cx.fail("shape holds more than one -1")),
            Some(-1) => {
                open = Some(axis);
                dims.push(cx.int(1));
            }
            Some(v) if v < 0 => return Err(cx.fail(format!("shape[{axis}] is {v}"))),
            Some(_) => dims.push(want),
            None => dims.push(computed(cx, input.as_ref(), axis, want, target.len())),
        }
    }
    let total = input.as_ref().map(|d| cx.exprs.mul_all(d));
    let given = cx.exprs.mul_all(&dims);
    match (open, total) {
        (Some(axis), Some(total)) => {
            let rest = cx.exprs.modulo(total, given);
            let (t, g) = (cx.show(total), cx.show(given));
            if cx.exprs.truth(rest) == Some(true) {
                return Err(cx.fail(format!("{t} elements can't be split into rows of {g} for the -1 of shape")));
            }
            let whole = cx.exprs.not(rest);
            cx.assume(whole, || format!("{t} elements have to split evenly by {g} for the -1 of shape"));
            dims[axis] = cx.exprs.div(total, given);
        }
        (Some(axis), None) => dims[axis] = cx.fresh_dim(0, axis),
        (None, Some(total)) => {
            cx.same_dim(total, given, "the element counts of input and shape")?;
        }
        (None, None) => {}
    }
    Ok(Some(dims))
}

/// A dim that is computed at run time. It could turn out 0 or -1; where it can't be told, it is the size that it says
/// unless it may be negative, in which case only the run knows.
fn computed(cx: &mut InferCx<'_>, input: Option<&Dims>, axis: usize, want: ExprId, count: usize) -> ExprId {
    let (lo, _) = cx.exprs.bounds(want);
    if lo >= 0 {
        return want;
    }
    // The only unknown entry among known ones that could be -1: what is left over, whichever way it is written.
    if let (Some(input), 1) = (input, count) {
        return cx.exprs.mul_all(input);
    }
    cx.fresh_dim(0, axis)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            ("Flatten", "float[2,3,4]", "", "float[2,12]"),
            ("Flatten", "float[2,3,4]", "axis=3", "float[24,1]"),
            ("Flatten", "float[2,3,4]", "axis=-1", "float[6,4]"),
            ("Flatten", "float[2,3,4]", "axis=4", "!axis 4 is outside"),
            ("Identity", "int64[2]{3,n}", "", "int64[2]{3,n}"),
            ("Reshape", "float[2,3,4] int64[2]{0,-1}", "", "float[2,12]"),
            ("Reshape", "float[n,s,768] int64[4]{0,-1,12,64}", "", "float[n,s,12,64]"),
            ("Reshape", "float[n,s,768] int64[2]{n,-1}", "", "float[n,(s * 768)]"),
            ("Reshape", "float[2,3] int64[2]{4,-1}", "", "!6 elements can't be split"),
            (
                "Reshape",
                "float[2,3] int64[2]{4,2}",
                "",
                "!element counts of input and shape have to be equal, but are 6 and 8",
            ),
            ("Reshape", "float[2,3] int64[2]{-1,-1}", "", "!more than one -1"),
            ("Reshape", "float[2,3] int64[1]{-2}", "", "!shape[0] is -2"),
            ("Reshape", "float[0,3] int64[2]{0,7}", "allowzero=1", "float[0,7]"),
        ]);
    }
}
