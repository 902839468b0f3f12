//! Convolutions.

use super::window::Windows;
use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::Dims;

pub(super) static OPS: &[OpDef] = &[OpDef::new("Conv", conv)];

fn conv(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let (x, w) = (cx.dims(0), cx.dims(1));
    let (Some(x), Some(w)) = (x, w) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    if x.len() < 3 || x.len() != w.len() {
        return Err(cx.fail(format!(
            "X and W need one rank of at least 3 (batch, channels, space), but have {} and {}",
            x.len(),
            w.len()
        )));
    }
    let group = cx.attr_int("group").unwrap_or(1);
    let per_group = cx.int(group);
    let channels = cx.exprs.mul(w[1], per_group);
    cx.same_dim(x[1], channels, "the channels of X (axis 1) and of W (axis 1) times group")?;
    let kernel = kernel_dims(cx, &w[2..])?;
    let windows = Windows::read(cx, kernel)?;
    let mut dims: Dims = [x[0], w[0]].into_iter().collect();
    for (i, &size) in x[2..].iter().enumerate() {
        dims.push(windows.count(cx, i, size)?);
    }
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

/// The window of a convolution: that of the weights, which `kernel_shape` may only repeat.
fn kernel_dims(cx: &mut InferCx<'_>, weights: &[crate::ir::ExprId]) -> Result<Dims> {
    let Some(stated) = cx.attr_ints("kernel_shape") else { return Ok(weights.into()) };
    if stated.len() != weights.len() {
        return Err(cx.fail(format!(
            "kernel_shape has {} entries, W has {} spatial dims",
            stated.len(),
            weights.len()
        )));
    }
    let mut dims = Dims::new();
    for (&own, &size) in weights.iter().zip(&stated) {
        let size = cx.int(size);
        dims.push(cx.same_dim(own, size, "the spatial dims of W and kernel_shape")?);
    }
    Ok(dims)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn convolutions() {
        check(&[
            ("Conv", "float[1,3,224,224] float[64,3,7,7]", "strides=[2,2] pads=[3,3,3,3]", "float[1,64,112,112]"),
            ("Conv", "float[n,3,h,w] float[8,3,3,3]", "pads=[1,1,1,1]", "float[n,8,h,w]"),
            ("Conv", "float[1,8,5] float[8,1,3]", "group=8 dilations=[2]", "float[1,8,1]"),
            (
                "Conv",
                "float[1,3,h,w] float[8,3,3,3]",
                "auto_pad='SAME_UPPER' strides=[2,2]",
                "float[1,8,ceildiv(h, 2),ceildiv(w, 2)]",
            ),
            (
                "Conv",
                "float[1,4,5,5] float[8,3,3,3]",
                "",
                "!channels of X (axis 1) and of W (axis 1) times group have to be equal, but are 4 and 3",
            ),
            ("Conv", "float[1,3,2,2] float[8,3,3,3]", "", "!spatial axis 0"),
            ("Conv", "float[1,3,5,5] float[8,3,3,3]", "strides=[0,1]", "!strides holds 0"),
            ("Conv", "float[1,3,5,5] float[8,3,3,3]", "pads=[1,1]", "!pads has 2 entries, 4 are needed"),
        ]);
    }
}
