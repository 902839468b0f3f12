//! Joining and cutting tensors along an axis.

use super::{InferCx, OpDef, Same, known};
use crate::error::Result;
use crate::ir::{Dims, ExprId, ExprTable, KNOWN_LIMIT};

pub(super) static OPS: &[OpDef] =
    &[OpDef::new("Concat", concat).same(Same::Alone), OpDef::new("Slice", slice), OpDef::new("Split", split)];

fn concat(cx: &mut InferCx<'_>) -> Result<()> {
    let count = cx.input_count();
    let Some(dtype) = (0..count).find_map(|i| cx.dtype(i)) else { return Ok(()) };
    let inputs: Vec<usize> = (0..count).collect();
    let dims = joined(cx, &inputs)?;
    if dims.as_ref().is_some_and(|d| d.len() == 1)
        && let Some(parts) = (0..count).map(|i| cx.known(i)).collect::<Option<Vec<_>>>()
    {
        let all: Vec<ExprId> = parts.into_iter().flatten().collect();
        cx.set_known(0, &all);
    }
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Dims of some inputs joined along the attribute `axis`.
pub(super) fn joined(cx: &mut InferCx<'_>, inputs: &[usize]) -> Result<Option<Dims>> {
    let Some(first) = inputs.iter().find_map(|&i| cx.dims(i)) else { return Ok(None) };
    let axis = cx.axis(cx.attr_int("axis").unwrap_or(0), first.len())?;
    let mut dims = first.clone();
    let mut sum = Some(cx.int(0));
    for &i in inputs {
        let Some(x) = cx.dims(i) else {
            sum = None;
            continue;
        };
        if x.len() != first.len() {
            return Err(cx.fail(format!("inputs of ranks {} and {} can't be joined", first.len(), x.len())));
        }
        for (at, (&own, dim)) in x.iter().zip(dims.iter_mut()).enumerate() {
            if at == axis {
                sum = sum.map(|s| cx.exprs.add(s, own));
            } else {
                *dim = cx.same_dim(*dim, own, &format!("dims {at} of all inputs"))?;
            }
        }
    }
    dims[axis] = sum.unwrap_or_else(|| cx.fresh_dim(0, axis));
    Ok(Some(dims))
}

fn split(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let outputs = cx.output_count();
    let Some(x) = cx.dims(0) else {
        (0..outputs).for_each(|o| cx.set_tensor(o, dtype, None));
        return Ok(());
    };
    let axis = cx.axis(cx.attr_int("axis").unwrap_or(0), x.len())?;
    let sizes = split_sizes(cx, x[axis], outputs)?;
    for (o, &size) in sizes.iter().enumerate() {
        let mut dims = x.clone();
        dims[axis] = size;
        cx.set_tensor(o, dtype, Some(dims));
    }
    split_known(cx, &sizes);
    Ok(())
}

fn split_sizes(cx: &mut InferCx<'_>, whole: ExprId, outputs: usize) -> Result<Vec<ExprId>> {
    if cx.has_input(1) {
        let Some(sizes) = cx.known_or_symbols(1) else { return Ok((0..outputs).map(|o| cx.fresh_dim(o, 0)).collect()) };
        if sizes.len() != outputs {
            return Err(cx.fail(format!("split has {} entries for {outputs} outputs", sizes.len())));
        }
        let mut sum = cx.int(0);
        for &size in &sizes {
            sum = cx.exprs.add(sum, size);
        }
        cx.same_dim(whole, sum, "the split axis and the sum of split")?;
        return Ok(sizes.to_vec());
    }
    // Equal chunks, the last one smaller when it does not come out even.
    let parts = cx.attr_int("num_outputs").unwrap_or(i64::try_from(outputs).unwrap_or(i64::MAX));
    if parts < 1 || usize::try_from(parts) != Ok(outputs) {
        return Err(cx.fail(format!("num_outputs is {parts}, but the node has {outputs} outputs")));
    }
    let count = cx.int(parts);
    let chunk = cx.exprs.ceil_div(whole, count);
    let before = cx.int(parts - 1);
    let before = cx.exprs.mul(chunk, before);
    let last = cx.exprs.sub(whole, before);
    if cx.exprs.bounds(last).1 < 0 {
        let whole = cx.show(whole);
        return Err(cx.fail(format!("{whole} elements can't be split into {parts} chunks")));
    }
    Ok((1..outputs).map(|_| chunk).chain([last]).collect())
}

fn split_known(cx: &mut InferCx<'_>, sizes: &[ExprId]) {
    let (Some(known), Some(1)) = (cx.known(0), cx.rank(0)) else { return };
    let mut at = 0usize;
    for (o, &size) in sizes.iter().enumerate() {
        let Some(size) = cx.exprs.as_const(size).and_then(|s| usize::try_from(s).ok()) else { return };
        let Some(part) = known.get(at..at.saturating_add(size)) else { return };
        cx.set_known(o, part);
        at += size;
    }
}

fn slice(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(x) = cx.dims(0) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    let count = cx.vector_len(1).or_else(|| cx.vector_len(2)).filter(|&n| n <= KNOWN_LIMIT);
    let axes = match (cx.has_input(3), count) {
        (false, Some(n)) => Some((0..n).map(|a| i64::try_from(a).unwrap_or(i64::MAX)).collect()),
        (true, _) => cx.ints(3).map(|a| a.to_vec()),
        (false, None) => None,
    };
    let Some(axes) = axes else {
        let dims = cx.fresh_dims(0, x.len());
        cx.set_tensor(0, dtype, Some(dims));
        return Ok(());
    };
    let axes = axes.iter().map(|&a| cx.axis(a, x.len())).collect::<Result<Vec<_>>>()?;
    let dims = sliced(cx, &x, &axes)?;
    slice_known(cx, &x, &axes, &dims);
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

fn sliced(cx: &mut InferCx<'_>, x: &Dims, axes: &[usize]) -> Result<Dims> {
    let steps = if cx.has_input(4) { cx.ints(4).map(|s| s.to_vec()) } else { Some(vec![1; axes.len()]) };
    let (starts, ends) = (cx.known_or_symbols(1), cx.known_or_symbols(2));
    let mut dims = x.clone();
    for (i, &axis) in axes.iter().enumerate() {
        let step = steps.as_ref().and_then(|s| s.get(i).copied());
        if step == Some(0) {
            return Err(cx.fail(format!("steps[{i}] is 0")));
        }
        let ends = (starts.as_ref().and_then(|s| s.get(i).copied()), ends.as_ref().and_then(|e| e.get(i).copied()));
        dims[axis] = match (ends, step) {
            ((Some(start), Some(end)), Some(step)) => slice_length(cx.exprs, x[axis], start, end, step),
            _ => cx.fresh_dim(0, axis),
        };
    }
    Ok(dims)
}

/// How many elements `start..end` by `step` takes of `size`, with negative ends counted from the back and both clamped.
fn slice_length(e: &mut ExprTable, size: ExprId, start: ExprId, end: ExprId, step: i64) -> ExprId {
    let zero = e.constant(0);
    let one = e.constant(1);
    let minus = e.constant(-1);
    // Backwards, the places run from size - 1 down to -1 (before the first).
    let (low, high) = if step > 0 { (zero, size) } else { (minus, e.sub(size, one)) };
    let start = place(e, size, start, if step > 0 { zero } else { minus }, high);
    let end = place(e, size, end, low, high);
    let span = e.sub(end, start);
    let step = e.constant(step);
    let count = e.ceil_div(span, step);
    e.max(count, zero)
}

fn place(e: &mut ExprTable, size: ExprId, at: ExprId, low: ExprId, high: ExprId) -> ExprId {
    let zero = e.constant(0);
    let back = e.lt(at, zero);
    let moved = e.add(at, size);
    let at = e.select(back, moved, at);
    let at = e.max(at, low);
    e.min(at, high)
}

/// Elements of a tensor that is cut at plain numbers.
fn slice_known(cx: &mut InferCx<'_>, x: &Dims, axes: &[usize], dims: &Dims) {
    let (Some(starts), Some(steps)) =
        (cx.ints(1), if cx.has_input(4) { cx.ints(4) } else { Some(axes.iter().map(|_| 1).collect()) })
    else {
        return;
    };
    let mut cuts = Vec::with_capacity(axes.len());
    for ((&axis, &start), &step) in axes.iter().zip(&starts).zip(&steps) {
        let Some(size) = cx.exprs.as_const(x[axis]) else { return };
        let start = if start < 0 { start.saturating_add(size) } else { start };
        cuts.push((axis, start.clamp(0, if step > 0 { size } else { (size - 1).max(0) }), step));
    }
    let place = |at: &[usize]| {
        let mut from = at.to_vec();
        for &(axis, start, step) in &cuts {
            let i = i64::try_from(at[axis]).unwrap_or(i64::MAX);
            from[axis] = usize::try_from(i.saturating_mul(step).saturating_add(start)).unwrap_or(usize::MAX);
        }
        from
    };
    known::rearranged(cx, x, place, dims);
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn joining() {
        check(&[
            ("Concat", "float[n,3] float[n,4]", "axis=1", "float[n,7]"),
            ("Concat", "float[n,3] float[m,3]", "axis=0", "float[(n + m),3]"),
            ("Concat", "int64[1]{n} int64[2]{-1,5}", "axis=0", "int64[3]{n,-1,5}"),
            ("Concat", "float[2,3] float[2]", "axis=0", "!ranks 2 and 1"),
            ("Concat", "float[2,3] float[4,3]", "axis=1", "!dims 0 of all inputs"),
            ("Concat", "float[n,3] float", "axis=0", "float[?,3]"),
        ]);
    }

    #[test]
    fn slicing() {
        check(&[
            (
                "Slice",
                "int64[3,2]{1,2,3,4,5,n} int64[1]{-1} int64[1]{-9223372036854775807} int64[1]{0} int64[1]{-1}",
                "",
                "int64[3,2]{5,n,3,4,1,2}",
            ),
            (
                "Slice",
                "int64[2,3]{1,2,3,4,5,6} int64[2]{1,0} int64[2]{2,3} int64[2]{0,1} int64[2]{1,2}",
                "",
                "int64[1,2]{4,6}",
            ),
            ("Slice", "float[10] int64[1]{2} int64[1]{5}", "", "float[3]"),
            ("Slice", "float[10,n] int64[1]{-3} int64[1]{9223372036854775807} int64[1]{0}", "", "float[3,n]"),
            ("Slice", "float[10] int64[1]{9} int64[1]{-11} int64[1]{0} int64[1]{-1}", "", "float[10]"),
            ("Slice", "float[10] int64[1]{-1} int64[1]{-9223372036854775807} int64[1]{0} int64[1]{-3}", "", "float[4]"),
            ("Slice", "float[10] int64[1]{7} int64[1]{3}", "", "float[0]"),
            ("Slice", "float[10] int64[1]{7} int64[1]{3} int64[1]{0} int64[1]{0}", "", "!steps[0] is 0"),
            ("Slice", "int64[4]{n,3,h,w} int64[1]{2} int64[1]{4}", "", "int64[2]{h,w}"),
            ("Slice", "int64[3]{1,2,3} int64[1]{2} int64[1]{-5} int64[1]{0} int64[1]{-1}", "", "int64[3]{3,2,1}"),
            ("Slice", "float[2,3] int64[1]{0} int64[1]{1} int64[1]{2}", "", "!axis 2"),
            ("Slice", "float[2,3] int64[1]{0} int64[1]{1} int64[1]", "", "float[?,?]"),
        ]);
    }
}
