//! Matrix products.

use super::{InferCx, OpDef};
use crate::error::Result;

pub(super) static OPS: &[OpDef] = &[OpDef::new("Gemm", gemm), OpDef::new("MatMul", matmul)];

/// NumPy's `matmul`: vectors gain a dim for the product and lose it again, leading dims broadcast.
fn matmul(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let (Some(mut a), Some(mut b)) = (cx.dims(0), cx.dims(1)) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    if a.is_empty() || b.is_empty() {
        return Err(cx.fail("a scalar can't be multiplied as a matrix: both inputs need at least one dim"));
    }
    let one = cx.int(1);
    let (row, column) = (a.len() == 1, b.len() == 1);
    if row {
        a.insert(0, one);
    }
    if column {
        b.push(one);
    }
    let (ar, br) = (a.len(), b.len());
    cx.same_dim(a[ar - 1], b[br - 2], "the last dim of A and the last but one of B")?;
    let mut dims = cx.broadcast(&[a[..ar - 2].into(), b[..br - 2].into()])?;
    if !row {
        dims.push(a[ar - 2]);
    }
    if !column {
        dims.push(b[br - 1]);
    }
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

fn gemm(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let matrix = |cx: &InferCx<'_>, i: usize, flag: &str, name: &str| {
        let Some(mut d) = cx.dims(i) else { return Ok(None) };
        if d.len() != 2 {
            return Err(cx.fail(format!("{name} has to be a matrix, but has rank {}", d.len())));
        }
        if cx.attr_int(flag).unwrap_or(0) != 0 {
            d.swap(0, 1);
        }
        Ok(Some((d[0], d[1])))
    };
    let a = matrix(cx, 0, "transA", "A")?;
    let b = matrix(cx, 1, "transB", "B")?;
    if let (Some(a), Some(b)) = (a, b) {
        cx.same_dim(a.1, b.0, "the inner dims of A and B")?;
    }
    let m = a.map_or_else(|| cx.fresh_dim(0, 0), |a| a.0);
    let n = b.map_or_else(|| cx.fresh_dim(0, 1), |b| b.1);
    cx.set_tensor(0, dtype, Some([m, n].into_iter().collect()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn products() {
        check(&[
            ("MatMul", "float[2,3] float[3,4]", "", "float[2,4]"),
            ("MatMul", "float[3] float[3]", "", "float[]"),
            ("MatMul", "float[b,1,2,3] float[5,3,4]", "", "float[b,5,2,4]"),
            ("MatMul", "float[3] float[5,3,4]", "", "float[5,4]"),
            ("MatMul", "float[2,3] float[2,4]", "", "!last but one of B have to be equal, but are 3 and 2"),
            ("MatMul", "float[] float[2,4]", "", "!at least one dim"),
            ("MatMul", "float float[2,4]", "", "float"),
            ("Gemm", "float[3,2] float[4,3]", "transA=1 transB=1", "float[2,4]"),
            ("Gemm", "float[n,3] float[3,4]", "", "float[n,4]"),
            ("Gemm", "float[3] float[3,4]", "", "!A has to be a matrix"),
        ]);
    }
}
