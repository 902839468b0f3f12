//! Pooling over sliding windows.

use super::window::Windows;
use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("AveragePool", pool),
    OpDef::new("GlobalAveragePool", global),
    OpDef::new("GlobalLpPool", global),
    OpDef::new("GlobalMaxPool", global),
    OpDef::new("LpPool", pool),
    OpDef::new("MaxPool", max_pool),
    OpDef::new("MaxUnpool", max_unpool),
];

fn pool(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = pooled(cx)?;
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn global(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    cx.need_rank(0, "X", 2..=usize::MAX)?;
    let one = cx.int(1);
    let dims = cx.dims(0).map(|x| x.iter().enumerate().map(|(i, &d)| if i < 2 { d } else { one }).collect());
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Undoes a MaxPool; `output_shape` is the whole shape where given.
fn max_unpool(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let kernel = cx.attr_ints("kernel_shape").unwrap_or_default();
    let dims = match (cx.dims(0), cx.has_input(2)) {
        (None, _) => None,
        (Some(x), true) => Some(match cx.known_or_symbols(2) {
            Some(shape) => shape.into_iter().collect(),
            None => cx.fresh_dims(0, x.len()),
        }),
        (Some(x), false) => {
            if x.len() != kernel.len() + 2 {
                return Err(cx.fail(format!("X has rank {}, but kernel_shape has {} entries", x.len(), kernel.len())));
            }
            let kernel: Dims = cx.exprs.constants(&kernel);
            let windows = Windows::read(cx, kernel)?;
            let mut dims: Dims = [x[0], x[1]].into_iter().collect();
            for (i, &size) in x[2..].iter().enumerate() {
                dims.push(windows.spread(cx, i, size, 0));
            }
            Some(dims)
        }
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn max_pool(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = pooled(cx)?;
    cx.set_tensor(1, DType::I64, dims.clone());
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Dims of X, [batch, channels, space…], under windows.
pub(super) fn pooled(cx: &mut InferCx<'_>) -> Result<Option<Dims>> {
    let Some(x) = cx.dims(0) else { return Ok(None) };
    windowed(cx, x).map(Some)
}

/// As [`pooled`], with the channels last.
pub(super) fn pooled_last(cx: &mut InferCx<'_>) -> Result<Option<Dims>> {
    let Some(mut x) = cx.dims(0).filter(|x| x.len() > 1) else { return Ok(None) };
    x[1..].rotate_right(1);
    let mut dims = windowed(cx, x)?;
    dims[1..].rotate_left(1);
    Ok(Some(dims))
}

fn windowed(cx: &mut InferCx<'_>, x: Dims) -> Result<Dims> {
    let kernel = cx.attr_ints("kernel_shape").unwrap_or_default();
    if x.len() != kernel.len() + 2 || kernel.is_empty() {
        return Err(cx.fail(format!(
            "X has rank {}, but kernel_shape has {} entries: batch, channels and one axis for each are needed",
            x.len(),
            kernel.len()
        )));
    }
    let kernel: Dims = cx.exprs.constants(&kernel);
    let windows = Windows::read(cx, kernel)?;
    let mut dims: Dims = [x[0], x[1]].into_iter().collect();
    for (i, &size) in x[2..].iter().enumerate() {
        dims.push(windows.count(cx, i, size)?);
    }
    Ok(dims)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn pools() {
        check(&[
            (
                "MaxPool",
                "float[1,64,112,112]",
                "kernel_shape=[3,3] strides=[2,2] pads=[1,1,1,1]",
                "float[1,64,56,56] int64[1,64,56,56]",
            ),
            (
                "MaxPool",
                "float[1,1,4,4]",
                "kernel_shape=[3,3] strides=[2,2] ceil_mode=1",
                "float[1,1,2,2] int64[1,1,2,2]",
            ),
            (
                "MaxPool",
                "float[1,1,2]",
                "kernel_shape=[1] strides=[2] pads=[0,1] ceil_mode=1",
                "float[1,1,1] int64[1,1,1]",
            ),
            ("MaxPool", "float[1,1]", "kernel_shape=[1]", "!X has rank 2"),
            ("AveragePool", "float[n,3,5]", "kernel_shape=[2]", "float[n,3,4]"),
            ("GlobalAveragePool", "float[n,3,h,w]", "", "float[n,3,1,1]"),
            ("GlobalMaxPool", "float[n]", "", "!X has rank 1, needed is at least 2"),
            ("MaxUnpool", "float[1,1,2,2] int64[1,1,2,2]", "kernel_shape=[2,2] strides=[2,2]", "float[1,1,4,4]"),
            ("MaxUnpool", "float[1,1,2] int64[1,1,2] int64[3]{1,1,5}", "kernel_shape=[2]", "float[1,1,5]"),
        ]);
    }
}
