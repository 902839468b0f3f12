//! Reductions over axes.

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims, ExprId, ExprTable};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("ArgMax", arg),
    OpDef::new("ArgMin", arg),
    OpDef::new("ReduceL1", |cx| reduce(cx, None)).body(|cx| cx.write("a = Abs(data); reduced = ReduceSum(a, axes) keepdims=@keepdims noop_with_empty_axes=@noop_with_empty_axes")),
    OpDef::new("ReduceL2", |cx| reduce(cx, None)).body(|cx| cx.write("a = Mul(data, data); s = ReduceSum(a, axes) keepdims=@keepdims noop_with_empty_axes=@noop_with_empty_axes; reduced = Sqrt(s)")),
    OpDef::new("ReduceLogSum", |cx| reduce(cx, None)).body(|cx| cx.write("s = ReduceSum(data, axes) keepdims=@keepdims noop_with_empty_axes=@noop_with_empty_axes; reduced = Log(s)")),
    OpDef::new("ReduceLogSumExp", |cx| reduce(cx, None)).body(|cx| cx.write("e = Exp(data); s = ReduceSum(e, axes) keepdims=@keepdims noop_with_empty_axes=@noop_with_empty_axes; reduced = Log(s)")),
    OpDef::new("ReduceMax", |cx| reduce(cx, Some(ExprTable::max))),
    OpDef::new("ReduceMean", |cx| reduce(cx, None)),
    OpDef::new("ReduceMin", |cx| reduce(cx, Some(ExprTable::min))),
    OpDef::new("ReduceProd", |cx| reduce(cx, Some(ExprTable::mul))),
    OpDef::new("ReduceSum", |cx| reduce(cx, Some(ExprTable::add))),
    OpDef::new("ReduceSumSquare", |cx| reduce(cx, None)).body(|cx| cx.write("a = Mul(data, data); reduced = ReduceSum(a, axes) keepdims=@keepdims noop_with_empty_axes=@noop_with_empty_axes")),
];

type Binary = fn(&mut ExprTable, ExprId, ExprId) -> ExprId;

/// Which axes go.
enum Axes {
    All,
    None,
    Some(Vec<usize>),
    /// So many, if even that is known.
    Unknown(Option<usize>),
}

fn reduce(cx: &mut InferCx<'_>, f: Option<Binary>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let keep = cx.attr_int("keepdims").unwrap_or(1) != 0;
    let axes = axes(cx)?;
    if let (Some(f), Axes::All) = (f, &axes) {
        fold_known(cx, f);
    }
    if let (Some(f), Axes::Some(list)) = (f, &axes)
        && cx.rank(0) == Some(list.len())
    {
        fold_known(cx, f);
    }
    if matches!(axes, Axes::None)
        && let Some(known) = cx.known(0)
    {
        cx.set_known(0, &known);
    }
    let dims = reduced(cx, &axes, keep);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn axes(cx: &InferCx<'_>) -> Result<Axes> {
    let noop = cx.attr_int("noop_with_empty_axes").unwrap_or(0) != 0;
    let empty = if noop { Axes::None } else { Axes::All };
    if !cx.has_input(1) {
        return Ok(empty);
    }
    let Some(list) = cx.ints(1) else {
        let count = cx.dims(1).and_then(|d| cx.exprs.as_const(*d.first()?)).and_then(|n| usize::try_from(n).ok());
        return Ok(if count == Some(0) { empty } else { Axes::Unknown(count) });
    };
    if list.is_empty() {
        return Ok(empty);
    }
    let Some(rank) = cx.rank(0) else { return Ok(Axes::Unknown(Some(list.len()))) };
    let mut found = list.iter().map(|&a| cx.axis(a, rank)).collect::<Result<Vec<_>>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(Axes::Some(found))
}

/// The whole of a vector of small integers reduces to one.
fn fold_known(cx: &mut InferCx<'_>, f: Binary) {
    let Some(known) = cx.known(0) else { return };
    let Some((&first, rest)) = known.split_first() else { return };
    let mut result = first;
    for &next in rest {
        result = f(cx.exprs, result, next);
    }
    cx.set_known(0, &[result]);
}

fn reduced(cx: &mut InferCx<'_>, axes: &Axes, keep: bool) -> Option<Dims> {
    let x = cx.dims(0);
    let one = cx.int(1);
    match (axes, x) {
        (Axes::None, x) => x,
        (Axes::All, Some(x)) => Some(if keep { x.iter().map(|_| one).collect() } else { Dims::new() }),
        (Axes::All, None) => (!keep).then(Dims::new),
        (Axes::Some(list), Some(x)) => {
            let gone = |axis: usize| list.contains(&axis);
            Some(match keep {
                true => x.iter().enumerate().map(|(axis, &d)| if gone(axis) { one } else { d }).collect(),
                false => x.iter().enumerate().filter(|&(axis, _)| !gone(axis)).map(|(_, &d)| d).collect(),
            })
        }
        (Axes::Unknown(_), Some(x)) if keep => Some(cx.fresh_dims(0, x.len())),
        (Axes::Unknown(Some(count)), Some(x)) => Some(cx.fresh_dims(0, x.len().saturating_sub(*count))),
        _ => None,
    }
}

fn arg(cx: &mut InferCx<'_>) -> Result<()> {
    let keep = cx.attr_int("keepdims").unwrap_or(1) != 0;
    let axis = cx.attr_int("axis").unwrap_or(0);
    let dims = match cx.rank(0) {
        Some(rank) => {
            let axis = cx.axis(axis, rank)?;
            reduced(cx, &Axes::Some(vec![axis]), keep)
        }
        None => None,
    };
    cx.set_tensor(0, DType::I64, dims);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn axes_go_or_become_one() {
        check(&[
            ("ReduceMean", "float[2,3,n] int64[1]{-1}", "", "float[2,3,1]"),
            ("ReduceMean", "float[2,3,n] int64[2]{0,2}", "keepdims=0", "float[3]"),
            ("ReduceSum", "float[2,3]", "", "float[1,1]"),
            ("ReduceSum", "float[2,3]", "keepdims=0", "float[]"),
            ("ReduceSum", "float[2,3] int64[0]", "noop_with_empty_axes=1", "float[2,3]"),
            ("ReduceSum", "float[2,3] int64[1]", "keepdims=0", "float[?]"),
            ("ReduceSum", "float[2,3] int64[n]", "keepdims=0", "float"),
            ("ReduceSum", "float[2,3] int64[1]{2}", "", "!axis 2 is outside a tensor of rank 2"),
            ("ReduceProd", "int64[3]{n,2,3}", "keepdims=0", "int64[]{(n * 6)}"),
            ("ReduceMax", "int64[2]{4,9} int64[1]{0}", "", "int64[1]{9}"),
            ("ArgMax", "float[2,n]", "axis=-1 keepdims=0", "int64[2]"),
            ("ArgMin", "float[2,n]", "axis=2", "!axis 2"),
        ]);
    }
}
