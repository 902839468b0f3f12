//! Operators that pass elements on unchanged under another shape.

use super::{BodyCx, InferCx, OpDef, Same, known};
use crate::error::Result;
use crate::ir::{DType, Dims, ExprId, KNOWN_LIMIT, MAX_DIM};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Constant", constant),
    OpDef::new("DepthToSpace", depth_to_space).body(|cx| blocks_body(cx, true)),
    OpDef::new("Expand", expand).same(Same::Shape),
    OpDef::new("Flatten", flatten).same(Same::Shape),
    OpDef::new("Identity", identity).same(Same::Always),
    OpDef::new("Reshape", reshape).same(Same::Shape),
    OpDef::new("Shape", shape),
    OpDef::new("Size", size),
    OpDef::new("SpaceToDepth", space_to_depth).body(|cx| blocks_body(cx, false)),
    OpDef::new("Squeeze", squeeze).same(Same::Shape),
    OpDef::new("Tile", tile),
    OpDef::new("Transpose", transpose),
    OpDef::new("Unsqueeze", unsqueeze).same(Same::Shape),
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
        let dims = rank.filter(|&r| r <= KNOWN_LIMIT).map(|rank| cx.fresh_dims(0, rank));
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

/// A dim that is computed at run time: the size that it says. That it will be none of the words 0 (copy) and -1 (the
/// rest) is assumed where it follows from sizes; of a number out of the data only the run knows.
fn computed(cx: &mut InferCx<'_>, input: Option<&Dims>, axis: usize, want: ExprId, count: usize) -> ExprId {
    let least = cx.exprs.bounds(want).0;
    if least < -MAX_DIM {
        // A vector of one: all elements, whichever way it is written.
        return match input {
            Some(input) if count == 1 => cx.exprs.mul_all(input),
            _ => cx.fresh_dim(0, axis),
        };
    }
    let zero = cx.int(0);
    if least < 0 {
        let negative = cx.exprs.lt(want, zero);
        let holds = cx.exprs.not(negative);
        cx.assume(holds, || format!("the computed shape[{axis}] may not be negative"));
    }
    let own = input.and_then(|d| d.get(axis).copied());
    if least <= 0 && own != Some(want) && cx.attr_int("allowzero").unwrap_or(0) == 0 {
        let copied = cx.exprs.eq(want, zero);
        let used = cx.exprs.not(copied);
        let empty = own.map_or(zero, |d| cx.exprs.eq(d, zero));
        let holds = cx.exprs.or(used, empty);
        cx.assume(holds, || format!("the computed shape[{axis}] may not be 0, which copies the input's dim"));
    }
    want
}

fn shape(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(x) = cx.dims(0) else {
        let len = cx.fresh_dim(0, 0);
        cx.set_tensor(0, DType::I64, Some([len].into_iter().collect()));
        return Ok(());
    };
    let rank = i64::try_from(x.len()).unwrap_or(i64::MAX);
    let place = |at: i64| {
        let at = if at < 0 { at.saturating_add(rank) } else { at }.clamp(0, rank);
        usize::try_from(at).unwrap_or(0)
    };
    let start = place(cx.attr_int("start").unwrap_or(0));
    let end = place(cx.attr_int("end").unwrap_or(rank)).max(start);
    let part = &x[start..end];
    cx.set_known(0, part);
    let len = cx.int(i64::try_from(part.len()).unwrap_or(i64::MAX));
    cx.set_tensor(0, DType::I64, Some([len].into_iter().collect()));
    Ok(())
}

fn size(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(x) = cx.dims(0) {
        let total = cx.exprs.mul_all(&x);
        cx.set_known(0, &[total]);
    }
    cx.set_tensor(0, DType::I64, Some(Dims::new()));
    Ok(())
}

fn transpose(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(x) = cx.dims(0) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    let perm = match cx.attr_ints("perm").filter(|p| !p.is_empty()) {
        Some(perm) => perm.iter().map(|&a| cx.axis(a, x.len())).collect::<Result<Vec<_>>>()?,
        None => (0..x.len()).rev().collect(),
    };
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted.iter().copied().ne(0..x.len()) {
        return Err(cx.fail(format!("perm {perm:?} does not name each of the {} axes once", x.len())));
    }
    known::rearranged(
        cx,
        &x,
        |at| {
            let mut from = vec![0; perm.len()];
            perm.iter().zip(at).for_each(|(&axis, &i)| from[axis] = i);
            from
        },
        &perm.iter().map(|&axis| x[axis]).collect(),
    );
    cx.set_tensor(0, dtype, Some(perm.iter().map(|&axis| x[axis]).collect()));
    Ok(())
}

/// Which axes of the shorter or longer shape input 1 names; `None` while they are not known.
fn listed_axes(cx: &InferCx<'_>, rank: usize) -> Result<Option<Vec<usize>>> {
    let Some(list) = cx.ints(1) else { return Ok(None) };
    let mut axes = list.iter().map(|&a| cx.axis(a, rank)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|w| w[0] == w[1]) {
        return Err(cx.fail(format!("axes {:?} name an axis twice", list.as_slice())));
    }
    Ok(Some(axes))
}

fn squeeze(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let one = cx.int(1);
    let dims = match cx.dims(0) {
        None => None,
        Some(x) if !cx.has_input(1) => {
            // Without axes all ones go: only a shape of plain numbers says which these are.
            let fixed = x.iter().all(|&d| cx.exprs.as_const(d).is_some());
            fixed.then(|| x.iter().copied().filter(|&d| d != one).collect())
        }
        Some(x) => match listed_axes(cx, x.len())? {
            None => cx.vector_len(1).map(|n| cx.fresh_dims(0, x.len().saturating_sub(n))),
            Some(axes) => {
                for &axis in &axes {
                    cx.same_dim(x[axis], one, &format!("1 and the squeezed dim {axis}"))?;
                }
                Some(x.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, &d)| d).collect())
            }
        },
    };
    keep_known(cx);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn unsqueeze(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let one = cx.int(1);
    let dims = match (cx.dims(0), cx.vector_len(1)) {
        (Some(x), Some(more)) if more <= KNOWN_LIMIT => match listed_axes(cx, x.len() + more)? {
            None => Some(cx.fresh_dims(0, x.len() + more)),
            Some(axes) => {
                let mut own = x.iter();
                let pick = |i| if axes.contains(&i) { Some(one) } else { own.next().copied() };
                (0..x.len() + axes.len()).map(pick).collect()
            }
        },
        _ => None,
    };
    keep_known(cx);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// The elements stay what they are under a new shape.
fn keep_known(cx: &mut InferCx<'_>) {
    if let Some(known) = cx.known(0) {
        cx.set_known(0, &known);
    }
}

fn expand(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let (x, target) = (cx.dims(0), cx.known_or_symbols(1));
    let dims = match (x, target) {
        (Some(x), Some(target)) => Some(cx.broadcast(&[x, target.iter().copied().collect()])?),
        (Some(x), None) => cx.vector_len(1).filter(|&n| n <= KNOWN_LIMIT).map(|n| cx.fresh_dims(0, n.max(x.len()))),
        (None, _) => None,
    };
    if let (Some(dims), Some(known)) = (&dims, cx.known(0)) {
        let count = cx.exprs.mul_all(dims);
        let count = cx.exprs.as_const(count).and_then(|n| usize::try_from(n).ok());
        match (count, known.as_slice()) {
            (Some(n), &[only]) if n <= KNOWN_LIMIT => cx.set_known(0, &vec![only; n]),
            (Some(n), all) if n == all.len() => cx.set_known(0, all),
            _ => {}
        }
    }
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn tile(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let repeats = cx.known_or_symbols(1);
    let dims = match (cx.dims(0), repeats) {
        (Some(x), Some(repeats)) if x.len() != repeats.len() => {
            return Err(cx.fail(format!("repeats has {} entries, input has rank {}", repeats.len(), x.len())));
        }
        (Some(x), Some(repeats)) => {
            if let (Some(known), [only]) = (cx.known(0), repeats.as_slice())
                && let Some(times) = cx.exprs.as_const(*only).and_then(|t| usize::try_from(t).ok())
                && known.len().saturating_mul(times) <= KNOWN_LIMIT
            {
                cx.set_known(0, &known.repeat(times));
            }
            Some(x.iter().zip(&repeats).map(|(&d, &r)| cx.exprs.mul(d, r)).collect())
        }
        (Some(x), None) => Some(cx.fresh_dims(0, x.len())),
        (None, _) => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn blocks(cx: &InferCx<'_>) -> Result<i64> {
    cx.need_rank(0, "input", 4..=4)?;
    match cx.attr_int("blocksize") {
        Some(size) if size > 0 => Ok(size),
        other => Err(cx.fail(format!("blocksize is {}, at least 1 is needed", other.unwrap_or(0)))),
    }
}

fn depth_to_space(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let block = blocks(cx)?;
    let (block, area) = (cx.int(block), cx.int(block.saturating_mul(block)));
    let dims = cx.dims(0).map(|x| -> Dims {
        let channels = cx.exprs.div(x[1], area);
        [x[0], channels, cx.exprs.mul(x[2], block), cx.exprs.mul(x[3], block)].into_iter().collect()
    });
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn space_to_depth(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let block = blocks(cx)?;
    let (block, area) = (cx.int(block), cx.int(block.saturating_mul(block)));
    let dims = cx.dims(0).map(|x| -> Dims {
        let channels = cx.exprs.mul(x[1], area);
        [x[0], channels, cx.exprs.div(x[2], block), cx.exprs.div(x[3], block)].into_iter().collect()
    });
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Blocks of the plane become channels or the other way round: six axes, in another order.
fn blocks_body(cx: &mut BodyCx<'_>, to_space: bool) -> Result<()> {
    let Some(size) = cx.view().int("blocksize").filter(|n| (1..=1 << 20).contains(n)) else { return Ok(()) };
    let columns = cx.view().str("mode").is_some_and(|mode| mode == "CRD");
    let (area, whole) = (size * size, if cx.knows("Reshape", "allowzero") { "allowzero=1" } else { "" });
    let (c, h, w) = if to_space { ("Div", "Mul", "Mul") } else { ("Mul", "Div", "Div") };
    cx.write(&format!(
        "dims = Shape(input); n = Gather(dims, [0]); c = Gather(dims, [1]); h = Gather(dims, [2]); w = Gather(dims, [3]);
         c2 = {c}(c, [{area}]); h2 = {h}(h, [{size}]); w2 = {w}(w, [{size}])"
    ))?;
    let (split, perm) = match (to_space, columns) {
        (true, false) => (format!("n, [{size}], [{size}], c2, h, w"), "0,3,4,1,5,2"),
        (true, true) => (format!("n, c2, [{size}], [{size}], h, w"), "0,1,4,2,5,3"),
        (false, false) => (format!("n, c, h2, [{size}], w2, [{size}]"), "0,3,5,1,2,4"),
        (false, true) => (format!("n, c, h2, [{size}], w2, [{size}]"), "0,1,3,5,2,4"),
    };
    cx.write(&format!(
        "six = Concat({split}) axis=0; parts = Reshape(input, six) {whole}; moved = Transpose(parts) perm=[{perm}];
         four = Concat(n, c2, h2, w2) axis=0; output = Reshape(moved, four) {whole}"
    ))
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
            ("Transpose", "int64[2,2]{1,2,3,n}", "", "int64[2,2]{1,3,2,n}"),
            ("Reshape", "float[0,3] int64[2]{0,7}", "allowzero=1", "float[0,7]"),
        ]);
    }

    #[test]
    fn axes_and_copies() {
        check(&[
            ("Shape", "float[n,3,h,w]", "", "int64[4]{n,3,h,w}"),
            ("Shape", "float[n,3,h,w]", "start=-2", "int64[2]{h,w}"),
            ("Shape", "float[n,3,h,w]", "start=3 end=1", "int64[0]{}"),
            ("Shape", "float", "", "int64[?]"),
            ("Size", "float[n,3]", "", "int64[]{(n * 3)}"),
            ("Transpose", "float[a,b,c]", "perm=[0,2,1]", "float[a,c,b]"),
            ("Transpose", "float[a,b,c]", "", "float[c,b,a]"),
            ("Transpose", "float[a,b,c]", "perm=[0,1,1]", "!does not name each of the 3 axes once"),
            ("Squeeze", "float[1,3,1]", "", "float[3]"),
            ("Squeeze", "float[1,n,1] int64[1]{0}", "", "float[n,1]"),
            ("Squeeze", "float[2,n] int64[1]{0}", "", "!1 and the squeezed dim 0"),
            ("Squeeze", "float[1,n,1]", "", "float"),
            ("Squeeze", "int64[1]{n} int64[1]{0}", "", "int64[]{n}"),
            ("Unsqueeze", "float[n] int64[2]{0,-1}", "", "float[1,n,1]"),
            ("Unsqueeze", "float[n] int64[2]{0,0}", "", "!name an axis twice"),
            ("Unsqueeze", "float[n] int64[2]", "", "float[?,?,?]"),
            ("Expand", "float[3,1] int64[3]{2,1,n}", "", "float[2,3,n]"),
            ("Expand", "int64[1]{7} int64[1]{3}", "", "int64[3]{7,7,7}"),
            ("Tile", "float[2,n] int64[2]{3,2}", "", "float[6,(2 * n)]"),
            ("Tile", "float[2,n] int64[1]{3}", "", "!repeats has 1 entries"),
            ("DepthToSpace", "float[n,8,h,w]", "blocksize=2", "float[n,2,(h * 2),(w * 2)]"),
            ("SpaceToDepth", "float[n,2,4,6]", "blocksize=2", "float[n,8,2,3]"),
            ("SpaceToDepth", "float[n,2,4]", "blocksize=2", "!input has rank 3, needed is 4"),
        ]);
    }
}
