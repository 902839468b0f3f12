//! Pooling over sliding windows.

use super::window::Windows;
use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims};

pub(super) static OPS: &[OpDef] = &[OpDef::new("MaxPool", max_pool)];

fn max_pool(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = pooled(cx)?;
    cx.set_tensor(1, DType::I64, dims.clone());
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn pooled(cx: &mut InferCx<'_>) -> Result<Option<Dims>> {
    let kernel = cx.attr_ints("kernel_shape").unwrap_or_default();
    let Some(x) = cx.dims(0) else { return Ok(None) };
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
    Ok(Some(dims))
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
        ]);
    }
}
