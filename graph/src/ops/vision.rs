//! Regions, boxes and pictures.

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims, ExprId};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Col2Im", col2im),
    OpDef::new("ImageDecoder", image_decoder),
    OpDef::new("MaxRoiPool", max_roi_pool),
    OpDef::new("NonMaxSuppression", non_max_suppression),
    OpDef::new("RoiAlign", roi_align),
];

/// [n, channels × block, places] to [n, channels, picture…].
fn col2im(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    cx.need_rank(0, "input", 3..=3)?;
    let (Some(x), Some(image)) = (cx.dims(0), cx.known_or_symbols(1)) else { return Ok(()) };
    let channels = match cx.known_or_symbols(2) {
        Some(block) if block.len() != image.len() => {
            return Err(cx.fail(format!("image_shape has {} entries and block_shape {}", image.len(), block.len())));
        }
        Some(block) => {
            let size = cx.exprs.mul_all(&block);
            cx.exprs.div(x[1], size)
        }
        None => cx.fresh_dim(0, 1),
    };
    cx.set_tensor(0, dtype, Some([x[0], channels].into_iter().chain(image).collect()));
    Ok(())
}

fn image_decoder(cx: &mut InferCx<'_>) -> Result<()> {
    let channels = match cx.attr_str("pixel_format").unwrap_or("RGB") {
        "RGB" | "BGR" => cx.int(3),
        "Grayscale" => cx.int(1),
        other => return Err(cx.fail(format!("pixel_format is '{other}', not RGB, BGR or Grayscale"))),
    };
    let dims = [cx.fresh_dim(0, 0), cx.fresh_dim(0, 1), channels].into_iter().collect();
    cx.set_tensor(0, DType::U8, Some(dims));
    Ok(())
}

fn pooled_size(cx: &mut InferCx<'_>) -> Result<[ExprId; 2]> {
    match cx.attr_ints("pooled_shape").as_deref() {
        Some(&[h, w]) => Ok([cx.int(h), cx.int(w)]),
        other => Err(cx.fail(format!("pooled_shape has {} entries, 2 are needed", other.map_or(0, <[i64]>::len)))),
    }
}

fn regions(cx: &mut InferCx<'_>, size: [ExprId; 2], columns: i64) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    cx.need_rank(0, "X", 4..=4)?;
    cx.need_rank(1, "rois", 2..=2)?;
    let count = match cx.dims(1) {
        Some(rois) => {
            let columns = cx.int(columns);
            cx.same_dim(rois[1], columns, "the columns of rois and what a region needs")?;
            rois[0]
        }
        None => cx.fresh_dim(0, 0),
    };
    let channels = cx.dims(0).map_or_else(|| cx.fresh_dim(0, 1), |x| x[1]);
    cx.set_tensor(0, dtype, Some([count, channels, size[0], size[1]].into_iter().collect()));
    Ok(())
}

fn max_roi_pool(cx: &mut InferCx<'_>) -> Result<()> {
    let size = pooled_size(cx)?;
    regions(cx, size, 5)
}

fn roi_align(cx: &mut InferCx<'_>) -> Result<()> {
    let side = |cx: &InferCx<'_>, name: &str| match cx.attr_int(name).unwrap_or(1) {
        n if n > 0 => Ok(n),
        n => Err(cx.fail(format!("{name} is {n}"))),
    };
    let (h, w) = (side(cx, "output_height")?, side(cx, "output_width")?);
    let size = [cx.int(h), cx.int(w)];
    regions(cx, size, 4)
}

fn non_max_suppression(cx: &mut InferCx<'_>) -> Result<()> {
    cx.need_rank(0, "boxes", 3..=3)?;
    cx.need_rank(1, "scores", 3..=3)?;
    let dims: Dims = [cx.fresh_dim(0, 0), cx.int(3)].into_iter().collect();
    cx.set_tensor(0, DType::I64, Some(dims));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            ("Col2Im", "float[n,10,12] int64[2]{5,5} int64[2]{1,5}", "", "float[n,2,5,5]"),
            ("Col2Im", "float[n,10,12] int64[2]{5,5} int64[1]{5}", "", "!block_shape 1"),
            ("ImageDecoder", "uint8[n]", "pixel_format='Grayscale'", "uint8[?,?,1]"),
            ("MaxRoiPool", "float[1,3,h,w] float[r,5]", "pooled_shape=[2,4]", "float[r,3,2,4]"),
            ("RoiAlign", "float[1,3,h,w] float[r,4] int64[r]", "output_height=2 output_width=4", "float[r,3,2,4]"),
            ("RoiAlign", "float[1,3,h,w] float[r,5] int64[r]", "", "!the columns of rois"),
            ("NonMaxSuppression", "float[1,n,4] float[1,c,n]", "", "int64[?,3]"),
        ]);
    }
}
