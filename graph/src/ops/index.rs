//! Operators that pick, place, order or count elements by index.

use super::{BodyCx, InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims, ExprId, KNOWN_LIMIT};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Compress", compress),
    OpDef::new("ConstantOfShape", constant_of_shape),
    OpDef::new("CumProd", super::unary::like),
    OpDef::new("CumSum", cum_sum),
    OpDef::new("EyeLike", eye_like),
    OpDef::new("Gather", gather),
    OpDef::new("GatherElements", gather_elements),
    OpDef::new("GatherND", gather_nd),
    OpDef::new("NonZero", non_zero),
    OpDef::new("OneHot", one_hot),
    OpDef::new("Range", range).body(range_body),
    OpDef::new("ReverseSequence", super::unary::like),
    OpDef::new("ScatterElements", scatter_elements),
    OpDef::new("ScatterND", scatter_nd),
    OpDef::new("TensorScatter", super::unary::like),
    OpDef::new("TopK", top_k),
    OpDef::new("Trilu", super::unary::like),
    OpDef::new("Unique", unique),
];

fn gather(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = match (cx.dims(0), cx.dims(1)) {
        (Some(x), Some(indices)) => {
            let axis = cx.axis(cx.attr_int("axis").unwrap_or(0), x.len())?;
            Some(x[..axis].iter().chain(&indices).chain(&x[axis + 1..]).copied().collect())
        }
        _ => None,
    };
    gather_known(cx)?;
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Elements of a vector at plain indices.
fn gather_known(cx: &mut InferCx<'_>) -> Result<()> {
    let (Some(known), Some(indices), Some(1)) = (cx.known(0), cx.ints(1), cx.rank(0)) else { return Ok(()) };
    let picked = indices.iter().map(|&i| {
        Ok(known[cx
            .axis(i, known.len())
            .map_err(|_| cx.fail(format!("index {i} is outside a vector of {}", known.len())))?])
    });
    let picked = picked.collect::<Result<Vec<ExprId>>>()?;
    cx.set_known(0, &picked);
    Ok(())
}

fn gather_elements(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    if let (Some(x), Some(indices)) = (cx.rank(0), cx.rank(1)) {
        cx.axis(cx.attr_int("axis").unwrap_or(0), x)?;
        if x != indices {
            return Err(cx.fail(format!("data has rank {x} and indices {indices}, they need one rank")));
        }
    }
    let dims = cx.dims(1);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// The last dim of `indices` says how many axes of data an index names.
fn index_depth(cx: &InferCx<'_>, indices: &Dims, data_rank: usize, batch: usize) -> Result<Option<usize>> {
    let Some(&last) = indices.last() else { return Err(cx.fail("indices is a scalar, at least one dim is needed")) };
    let Some(depth) = cx.exprs.as_const(last) else { return Ok(None) };
    match usize::try_from(depth) {
        Ok(depth) if depth + batch <= data_rank => Ok(Some(depth)),
        _ => Err(cx.fail(format!(
            "an index names {depth} axes (last dim of indices), but data has rank {data_rank} with {batch} batch dims"
        ))),
    }
}

fn gather_nd(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let batch = usize::try_from(cx.attr_int("batch_dims").unwrap_or(0)).unwrap_or(usize::MAX);
    let dims = match (cx.dims(0), cx.dims(1)) {
        (Some(x), Some(indices)) => {
            if batch >= indices.len() || batch > x.len() {
                return Err(cx.fail(format!(
                    "batch_dims is {batch}, data has rank {} and indices {}",
                    x.len(),
                    indices.len()
                )));
            }
            index_depth(cx, &indices, x.len(), batch)?
                .map(|depth| indices[..indices.len() - 1].iter().chain(&x[batch + depth..]).copied().collect())
        }
        _ => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn scatter_elements(cx: &mut InferCx<'_>) -> Result<()> {
    if let (Some(x), Some(indices)) = (cx.rank(0), cx.rank(1)) {
        cx.axis(cx.attr_int("axis").unwrap_or(0), x)?;
        if x != indices {
            return Err(cx.fail(format!("data has rank {x} and indices {indices}, they need one rank")));
        }
    }
    cx.same_dims(1, 2, "indices and updates")?;
    cx.set_like(0, 0);
    Ok(())
}

fn scatter_nd(cx: &mut InferCx<'_>) -> Result<()> {
    if let (Some(x), Some(indices), Some(updates)) = (cx.dims(0), cx.dims(1), cx.dims(2))
        && let Some(depth) = index_depth(cx, &indices, x.len(), 0)?
    {
        let expected: Dims = indices[..indices.len() - 1].iter().chain(&x[depth..]).copied().collect();
        if expected.len() != updates.len() {
            return Err(cx.fail(format!("updates has rank {}, needed is {}", updates.len(), expected.len())));
        }
        for (&a, &b) in expected.iter().zip(&updates) {
            cx.same_dim(a, b, "the dims of updates and of what indices names")?;
        }
    }
    cx.set_like(0, 0);
    Ok(())
}

fn compress(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let kept = |cx: &mut InferCx<'_>, axis| match cx.ints(1) {
        Some(flags) => cx.int(flags.iter().map(|&f| i64::from(f != 0)).sum()),
        None => cx.fresh_dim(0, axis),
    };
    let dims = match (cx.attr_int("axis"), cx.dims(0)) {
        (None, _) => Some([kept(cx, 0)].into_iter().collect()),
        (Some(axis), Some(mut x)) => {
            let axis = cx.axis(axis, x.len())?;
            x[axis] = kept(cx, axis);
            Some(x)
        }
        (Some(_), None) => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn constant_of_shape(cx: &mut InferCx<'_>) -> Result<()> {
    let value = cx.attr_tensor("value").cloned();
    let dtype = value.as_ref().map_or(DType::F32, |v| v.dtype);
    let dims: Option<Dims> = match cx.known_or_symbols(0) {
        Some(target) => Some(target.into_iter().collect()),
        None => cx.vector_len(0).filter(|&n| n <= KNOWN_LIMIT).map(|n| cx.fresh_dims(0, n)),
    };
    if let Some(dims) = &dims {
        if let Some(negative) = dims.iter().find(|&&d| cx.exprs.bounds(d).1 < 0) {
            return Err(cx.fail(format!("the shape holds {}", cx.show(*negative))));
        }
        let count = cx.exprs.mul_all(dims);
        let count = cx.exprs.as_const(count).and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= KNOWN_LIMIT);
        if let (Some(count), Some(&[v])) = (count, value.and_then(|v| v.ints(1)).as_deref()) {
            let v = cx.int(v);
            cx.set_known(0, &vec![v; count]);
        }
    }
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Follows small integers along a vector, as position ids are made.
fn cum_sum(cx: &mut InferCx<'_>) -> Result<()> {
    let plain = |name| cx.attr_int(name).unwrap_or(0) == 0;
    if let (Some(known), Some(1), true, true) = (cx.known(0), cx.rank(0), plain("exclusive"), plain("reverse")) {
        let mut sum = cx.int(0);
        let sums: Vec<ExprId> = known
            .into_iter()
            .map(|x| {
                sum = cx.exprs.add(sum, x);
                sum
            })
            .collect();
        cx.set_known(0, &sums);
    }
    cx.set_like(0, 0);
    Ok(())
}

fn eye_like(cx: &mut InferCx<'_>) -> Result<()> {
    cx.need_rank(0, "input", 2..=2)?;
    let Some(dtype) = cx.attr_dtype("dtype")?.or_else(|| cx.dtype(0)) else { return Ok(()) };
    let dims = cx.dims(0);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn non_zero(cx: &mut InferCx<'_>) -> Result<()> {
    let rank = match cx.rank(0) {
        Some(rank) => cx.int(i64::try_from(rank).unwrap_or(i64::MAX)),
        None => cx.fresh_dim(0, 0),
    };
    let count = cx.fresh_dim(0, 1);
    cx.set_tensor(0, DType::I64, Some([rank, count].into_iter().collect()));
    Ok(())
}

fn one_hot(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(2) else { return Ok(()) };
    let depth = cx.known_or_symbols(1).and_then(|d| d.first().copied());
    let dims = match cx.dims(0) {
        Some(mut dims) => {
            let axis = cx.axis(cx.attr_int("axis").unwrap_or(-1), dims.len() + 1)?;
            let depth = depth.unwrap_or_else(|| cx.fresh_dim(0, axis));
            dims.insert(axis, depth);
            Some(dims)
        }
        None => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

pub(super) fn range(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let ends = (|| Some([*cx.known(0)?.first()?, *cx.known(1)?.first()?, *cx.known(2)?.first()?]))();
    let length = match ends {
        Some([start, limit, delta]) => {
            if cx.exprs.as_const(delta) == Some(0) {
                return Err(cx.fail("delta is 0"));
            }
            let span = cx.exprs.sub(limit, start);
            let count = cx.exprs.ceil_div(span, delta);
            let zero = cx.int(0);
            let count = cx.exprs.max(count, zero);
            range_known(cx, start, delta, count);
            count
        }
        None => float_range(cx).unwrap_or_else(|| cx.fresh_dim(0, 0)),
    };
    cx.set_tensor(0, dtype, Some([length].into_iter().collect()));
    Ok(())
}

fn range_known(cx: &mut InferCx<'_>, start: ExprId, delta: ExprId, count: ExprId) {
    let Some(count) = cx.exprs.as_const(count).and_then(|n| usize::try_from(n).ok()) else { return };
    if count > KNOWN_LIMIT {
        return;
    }
    let mut next = start;
    let all: Vec<ExprId> = (0..count)
        .map(|_| {
            let this = next;
            next = cx.exprs.add(next, delta);
            this
        })
        .collect();
    cx.set_known(0, &all);
}

/// The length of a range of constant floats.
fn float_range(cx: &mut InferCx<'_>) -> Option<ExprId> {
    let end = |i| cx.constant(i)?.floats(1)?.first().copied();
    let (start, limit, delta) = (end(0)?, end(1)?, end(2)?);
    let count = ((limit - start) / delta).ceil();
    #[allow(clippy::cast_possible_truncation)] // saturates, and is checked to be small
    let whole = count.max(0.0) as i64;
    (count.is_finite() && whole < i64::from(u32::MAX)).then(|| cx.int(whole))
}

fn top_k(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let k = cx.known_or_symbols(1).and_then(|k| k.first().copied());
    let dims = match cx.dims(0) {
        Some(mut dims) => {
            let axis = cx.axis(cx.attr_int("axis").unwrap_or(-1), dims.len())?;
            let k = k.unwrap_or_else(|| cx.fresh_dim(0, axis));
            let too_many = cx.exprs.lt(dims[axis], k);
            if cx.exprs.truth(too_many) == Some(true) {
                let (k, size) = (cx.show(k), cx.show(dims[axis]));
                return Err(cx.fail(format!("K is {k}, but axis {axis} has only {size} elements")));
            }
            dims[axis] = k;
            Some(dims)
        }
        None => None,
    };
    cx.set_tensor(0, dtype, dims.clone());
    cx.set_tensor(1, DType::I64, dims);
    Ok(())
}

fn unique(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let x = cx.dims(0);
    let (axis, whole) = match (cx.attr_int("axis"), &x) {
        (None, Some(x)) => (0, Some(cx.exprs.mul_all(x))),
        (None, None) => (0, None),
        (Some(axis), Some(x)) => {
            let axis = cx.axis(axis, x.len())?;
            (axis, Some(x[axis]))
        }
        (Some(_), None) => (0, None),
    };
    let count = cx.fresh_dim(0, axis);
    let dims = match (cx.attr_int("axis"), x) {
        (None, _) => Some([count].into_iter().collect()),
        (Some(_), Some(mut x)) => {
            x[axis] = count;
            Some(x)
        }
        (Some(_), None) => None,
    };
    cx.set_tensor(0, dtype, dims);
    let vector = |d: ExprId| Some([d].into_iter().collect::<Dims>());
    // Without an axis, one count of unique elements serves all; with unknown ranks each output has its own.
    cx.set_tensor(1, DType::I64, vector(count));
    let whole = whole.unwrap_or_else(|| cx.fresh_dim(2, 0));
    cx.set_tensor(2, DType::I64, vector(whole));
    cx.set_tensor(3, DType::I64, vector(count));
    Ok(())
}

/// One sum after the other. Floats of 16 bits are summed in the wider type that `stash_type` names.
fn range_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let Some(dtype) = cx.input(0).and_then(|x| cx.dtype(x)) else { return Ok(()) };
    let sum = match dtype {
        DType::F16 | DType::Bf16 => cx.view().int("stash_type").unwrap_or(1),
        _ => dtype.number().into(),
    };
    let wide = if matches!(dtype, DType::I64 | DType::F64) { DType::F64 } else { DType::F32 }.number();
    for (name, from) in [("s", "start"), ("l", "limit"), ("d", "delta")] {
        let scalar = cx.named(from).and_then(|v| cx.rank(v)) == Some(0);
        // Some exporters give vectors of one number.
        cx.write(&match scalar {
            true => format!("{name} = Cast({from}) to={sum}"),
            false => format!("{name}_0 = Reshape({from}, []); {name} = Cast({name}_0) to={sum}"),
        })?;
    }
    cx.graph(
        "step",
        "i go value",
        "again = Identity(go); next = Add(value, d); row = Identity(value)",
        "again next row",
    )?;
    cx.write(&format!(
        "span = Sub(l, s); span_f = Cast(span) to={wide}; d_f = Cast(d) to={wide}; parts = Div(span_f, d_f);
         whole = Ceil(parts); some = Relu(whole); count = Cast(some) to=7; any = Cast(some) to=9;
         last all = Loop(count, any, s) body=$step; output = Cast(all) to={}",
        dtype.number()
    ))
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn picking() {
        check(&[
            ("Gather", "float[30522,768] int64[n,s]", "", "float[n,s,768]"),
            ("Gather", "float[2,3,4] int64[]", "axis=1", "float[2,4]"),
            ("Gather", "int64[3]{n,5,7} int64[]{-2}", "", "int64[]{5}"),
            ("Gather", "int64[3]{n,5,7} int64[2]{0,2}", "", "int64[2]{n,7}"),
            ("Gather", "int64[3]{n,5,7} int64[]{3}", "", "!index 3 is outside a vector of 3"),
            ("GatherElements", "float[2,3] int64[2,1]", "axis=1", "float[2,1]"),
            ("GatherElements", "float[2,3] int64[2]", "axis=1", "!they need one rank"),
            ("GatherND", "float[2,3,4] int64[5,2]", "", "float[5,4]"),
            ("GatherND", "float[2,3,4] int64[2,1]", "batch_dims=1", "float[2,4]"),
            ("GatherND", "float[2,3] int64[5,3]", "", "!an index names 3 axes"),
            ("Compress", "float[2,3] bool[3]{1,0,1}", "axis=1", "float[2,2]"),
            ("Compress", "float[2,3] bool[6]", "", "float[?]"),
            ("NonZero", "float[2,3]", "", "int64[2,?]"),
            ("TopK", "float[2,n] int64[1]{5}", "", "float[2,5] int64[2,5]"),
            ("TopK", "float[2,3] int64[1]{5}", "", "!K is 5, but axis 1 has only 3"),
            ("Unique", "float[2,3]", "", "float[?] int64[?] int64[6] int64[?]"),
            ("Unique", "float[2,n]", "axis=1", "float[2,?] int64[?] int64[n] int64[?]"),
        ]);
    }

    #[test]
    fn placing_and_making() {
        check(&[
            ("ScatterElements", "float[2,3] int64[1,3] float[1,3]", "", "float[2,3]"),
            ("ScatterElements", "float[2,3] int64[1,3] float[1,2]", "", "!dims 1 of indices and updates"),
            ("ScatterND", "float[4,5] int64[2,1] float[2,5]", "", "float[4,5]"),
            ("ScatterND", "float[4,5] int64[2,1] float[2]", "", "!updates has rank 1, needed is 2"),
            ("ConstantOfShape", "int64[2]{n,3}", "", "float[n,3]"),
            ("ConstantOfShape", "int64[1]{-3}", "", "!the shape holds -3"),
            ("OneHot", "int64[n] int64[]{5} float[2]", "", "float[n,5]"),
            ("OneHot", "int64[n] float[]{5} float[2]", "axis=0", "float[5,n]"),
            ("Range", "int64[]{0} int64[]{n} int64[]{1}", "", "int64[max(0, n)]"),
            ("Range", "int64[]{2} int64[]{9} int64[]{3}", "", "int64[3]{2,5,8}"),
            ("Range", "int64[]{2} int64[]{9} int64[]{0}", "", "!delta is 0"),
            ("Range", "float[] float[] float[]", "", "float[?]"),
            ("CumSum", "int64[3]{1,n,2} int32[]{0}", "", "int64[3]{1,(n + 1),(n + 3)}"),
            ("EyeLike", "float[2,3]", "dtype=7", "int64[2,3]"),
            ("Trilu", "float[2,3]", "", "float[2,3]"),
        ]);
    }
}
