//! Resampling of grids.

use smallvec::SmallVec;

use super::{BodyCx, InferCx, OpDef};
use crate::error::Result;
use crate::ir::{Dims, ExprId};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("AffineGrid", affine_grid).body(affine_grid_body),
    OpDef::new("GridSample", grid_sample),
    OpDef::new("Resize", resize),
    OpDef::new("Upsample", upsample),
];

fn resize(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(x) = cx.dims(0) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    let axes = match cx.attr_ints("axes") {
        Some(list) => list.iter().map(|&a| cx.axis(a, x.len())).collect::<Result<Vec<_>>>()?,
        None => (0..x.len()).collect(),
    };
    if cx.has_input(2) == cx.has_input(3) && cx.vector_len(2) != Some(0) {
        return Err(cx.fail("exactly one of scales and sizes is needed"));
    }
    let mut dims = x;
    if cx.has_input(3) {
        sizes(cx, &mut dims, &axes)?;
    } else {
        scales(cx, 2, &mut dims, &axes)?;
    }
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

fn sizes(cx: &mut InferCx<'_>, dims: &mut Dims, axes: &[usize]) -> Result<()> {
    let policy = cx.attr_str("keep_aspect_ratio_policy").unwrap_or("stretch");
    let stretch = match policy {
        "stretch" => true,
        "not_larger" | "not_smaller" => false,
        other => return Err(cx.fail(format!("keep_aspect_ratio_policy is '{other}'"))),
    };
    let larger = policy == "not_smaller";
    let Some(sizes) = cx.known_or_symbols(3) else {
        axes.iter().for_each(|&axis| dims[axis] = cx.fresh_dim(0, axis));
        return Ok(());
    };
    if sizes.len() != axes.len() {
        return Err(cx.fail(format!("sizes has {} entries for {} axes", sizes.len(), axes.len())));
    }
    if stretch {
        axes.iter().zip(&sizes).for_each(|(&axis, &size)| dims[axis] = size);
        return Ok(());
    }
    keep_ratio(cx, dims, axes, &sizes, larger);
    Ok(())
}

/// One scale for all axes: the smallest (or largest) of size / dim; the others round half up.
fn keep_ratio(cx: &mut InferCx<'_>, dims: &mut Dims, axes: &[usize], sizes: &[ExprId], larger: bool) {
    let number = |e: ExprId| cx.exprs.as_const(e).filter(|&v| v > 0);
    let pairs: Option<SmallVec<[(i64, i64); 4]>> =
        axes.iter().zip(sizes).map(|(&axis, &size)| Some((number(size)?, number(dims[axis])?))).collect();
    let Some(pairs) = pairs else {
        axes.iter().for_each(|&axis| dims[axis] = cx.fresh_dim(0, axis));
        return;
    };
    let Some(&first) = pairs.first() else { return };
    let cross = |a: (i64, i64), b: (i64, i64)| i128::from(a.0) * i128::from(b.1) > i128::from(b.0) * i128::from(a.1);
    let best =
        pairs.iter().copied().fold(first, |best, p| if cross(p, best) == larger && p != best { p } else { best });
    for (&axis, &(_, dim)) in axes.iter().zip(&pairs) {
        let doubled = 2 * i128::from(dim) * i128::from(best.0) + i128::from(best.1);
        let size = doubled / (2 * i128::from(best.1));
        dims[axis] = cx.int(i64::try_from(size).unwrap_or(i64::MAX));
    }
}

/// floor(dim × scale), in single precision as the standard's implementations do it.
fn scales(cx: &mut InferCx<'_>, input: usize, dims: &mut Dims, axes: &[usize]) -> Result<()> {
    let Some(scales) = cx.constant(input).and_then(|c| c.floats(dims.len())) else {
        axes.iter().for_each(|&axis| dims[axis] = cx.fresh_dim(0, axis));
        return Ok(());
    };
    if scales.len() != axes.len() {
        return Err(cx.fail(format!("scales has {} entries for {} axes", scales.len(), axes.len())));
    }
    for (&axis, &scale) in axes.iter().zip(&scales) {
        if scale.is_nan() || scale <= 0.0 {
            return Err(cx.fail(format!("scales hold {scale}, they have to be above 0")));
        }
        dims[axis] = scaled(cx, dims[axis], scale, axis);
    }
    Ok(())
}

fn scaled(cx: &mut InferCx<'_>, dim: ExprId, scale: f64, axis: usize) -> ExprId {
    // Single precision is the definition; it saturates.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    let times = |dim: i64| (dim as f32 * scale as f32).floor() as i64;
    if let Some(dim) = cx.exprs.as_const(dim) {
        return cx.int(times(dim));
    }
    // A whole factor, or a fraction 1/n of powers of two, is exact for every dim that memory holds.
    if scale.fract() == 0.0 && scale < 1e6 {
        #[allow(clippy::cast_possible_truncation)] // whole and small
        let factor = cx.int(scale as i64);
        return cx.exprs.mul(dim, factor);
    }
    let inverse = 1.0 / scale;
    if inverse.fract() == 0.0 && inverse < 1e6 && (inverse.log2()).fract() == 0.0 {
        #[allow(clippy::cast_possible_truncation)] // whole and small
        let divisor = cx.int(inverse as i64);
        return cx.exprs.div(dim, divisor);
    }
    cx.fresh_dim(0, axis)
}

/// Kept for files of opsets 7 to 9 whose scales are not constant.
fn upsample(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(mut dims) = cx.dims(0) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    let axes: Vec<usize> = (0..dims.len()).collect();
    scales(cx, 1, &mut dims, &axes)?;
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

/// X is [n, c, space…]; the grid [n, out…, axes].
fn grid_sample(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = match (cx.dims(0), cx.dims(1)) {
        (Some(x), Some(grid)) => {
            if x.len() < 3 || grid.len() != x.len() {
                return Err(cx.fail(format!(
                    "X has rank {} and grid {}, they need one of at least 3",
                    x.len(),
                    grid.len()
                )));
            }
            let axes = cx.int(i64::try_from(x.len() - 2).unwrap_or(i64::MAX));
            cx.same_dim(axes, grid[grid.len() - 1], "the spatial axes of X and the last dim of grid")?;
            let batch = cx.same_dim(x[0], grid[0], "the batches of X and grid")?;
            Some([batch, x[1]].into_iter().chain(grid[1..grid.len() - 1].iter().copied()).collect())
        }
        _ => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// The size is [n, c, space…], the grid [n, space…, axes].
fn affine_grid(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = match cx.known_or_symbols(1) {
        Some(size) if matches!(size.len(), 4 | 5) => {
            let axes = cx.int(i64::try_from(size.len() - 2).unwrap_or(i64::MAX));
            Some([size[0]].into_iter().chain(size[2..].iter().copied()).chain([axes]).collect::<Dims>())
        }
        Some(size) => return Err(cx.fail(format!("size has {} entries, 4 or 5 are needed", size.len()))),
        None => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// The places of all points, innermost axis first, times the rows of theta.
fn affine_grid_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let Some(theta) = cx.input(0) else { return Ok(()) };
    let (Some(dtype), Some(axes)) = (cx.dtype(theta), cx.size(theta, 1).filter(|n| (2..=3).contains(n))) else {
        return Ok(());
    };
    let (to, corners) = (dtype.number(), cx.view().int("align_corners").unwrap_or(0) != 0);
    let plane = if axes == 2 { "[2 3]" } else { "[2 3 4]" };
    cx.write(&format!("plane = Gather(size, {plane})"))?;
    let mut coordinates = Vec::new();
    for axis in (0..axes).rev() {
        let a = format!("a{axis}");
        cx.write(&format!("{a}_n = Gather(size, #{}); {a}_f = Cast({a}_n) to={to}", axis + 2))?;
        match corners {
            false => cx.write(&format!(
                "{a}_step = Div(2, {a}_f); {a}_half = Div({a}_step, 2); {a}_start = Add(-1, {a}_half)"
            ))?,
            // One point alone stands at the start.
            true => cx.write(&format!(
                "{a}_one = Equal({a}_n, #1); {a}_less = Sub({a}_f, 1); {a}_gap = Div(2, {a}_less);
                 {a}_step = Where({a}_one, 0, {a}_gap); {a}_start = Identity(-1)"
            ))?,
        }
        let across: Vec<String> = (0..axes).filter(|other| *other != axis).map(|other| other.to_string()).collect();
        cx.write(&format!(
            "{a}_i = Range(#0, {a}_n, #1); {a}_if = Cast({a}_i) to={to}; {a}_along = Mul({a}_if, {a}_step);
             {a}_at = Add({a}_start, {a}_along); {a}_u = Unsqueeze({a}_at) axes=[{}]; {a}_all = Expand({a}_u, plane);
             {a} = Unsqueeze({a}_all) axes=[{axes}]",
            across.join(",")
        ))?;
        coordinates.push(a);
    }
    cx.write(&format!(
        "ones = Expand(1, plane); one = Unsqueeze(ones) axes=[{axes}]; grid_points = Concat({}, one) axis={axes};
         points = Reshape(grid_points, [-1 {}]); turned = Transpose(theta) perm=[0,2,1]; moved = MatMul(points, turned);
         batch = Gather(size, [0]); whole = Concat(batch, plane, [{axes}]) axis=0; grid = Reshape(moved, whole)",
        coordinates.join(", "),
        axes + 1
    ))
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn sizes() {
        check(&[
            ("Resize", "float[n,3,h,w] _ _ int64[4]{n,3,7,9}", "", "float[n,3,7,9]"),
            ("Resize", "float[1,3,10,20] _ _ int64[2]{5,5}", "axes=[2,3]", "float[1,3,5,5]"),
            ("Resize", "float[10,20] _ _ int64[2]{7,8}", "keep_aspect_ratio_policy='not_larger'", "float[4,8]"),
            ("Resize", "float[10,20] _ _ int64[2]{7,8}", "keep_aspect_ratio_policy='not_smaller'", "float[7,14]"),
            ("Resize", "float[n,3,h,w] _ float[4]", "", "float[?,?,?,?]"),
            ("Resize", "float[2,2]", "", "!exactly one of scales and sizes"),
            ("GridSample", "float[n,3,h,w] float[n,5,6,2]", "", "float[n,3,5,6]"),
            ("GridSample", "float[n,3,h,w] float[n,5,6,3]", "", "!the last dim of grid"),
            ("AffineGrid", "float[n,2,3] int64[4]{n,3,5,6}", "", "float[n,5,6,2]"),
            ("AffineGrid", "float[n,2,3] int64[3]{1,3,5}", "", "!size has 3 entries"),
        ]);
    }
}
