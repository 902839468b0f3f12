//! Padding and cropping.

use super::{BodyCx, InferCx, OpDef};
use crate::error::Result;
use crate::ir::Dims;

pub(super) static OPS: &[OpDef] =
    &[OpDef::new("CenterCropPad", center_crop_pad).body(center_crop_pad_body), OpDef::new("Pad", pad)];

fn pad(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(x) = cx.dims(0) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    let axes = match cx.has_input(3) {
        false => Some((0..x.len()).collect::<Vec<_>>()),
        true => match cx.ints(3) {
            Some(list) => Some(list.iter().map(|&a| cx.axis(a, x.len())).collect::<Result<_>>()?),
            None => None,
        },
    };
    let (Some(axes), Some(pads)) = (axes, cx.known_or_symbols(1)) else {
        let dims = cx.fresh_dims(0, x.len());
        cx.set_tensor(0, dtype, Some(dims));
        return Ok(());
    };
    if pads.len() != 2 * axes.len() {
        return Err(cx.fail(format!("pads has {} entries, {} are needed", pads.len(), 2 * axes.len())));
    }
    let mut dims = x;
    for (i, &axis) in axes.iter().enumerate() {
        let more = cx.exprs.add(pads[i], pads[i + axes.len()]);
        dims[axis] = cx.exprs.add(dims[axis], more);
        if cx.exprs.bounds(dims[axis]).1 < 0 {
            return Err(cx.fail(format!("pads take more from axis {axis} than it has")));
        }
    }
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

fn center_crop_pad(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(x) = cx.dims(0) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    let axes = match cx.attr_ints("axes") {
        Some(list) => list.iter().map(|&a| cx.axis(a, x.len())).collect::<Result<Vec<_>>>()?,
        None => (0..x.len()).collect(),
    };
    let mut dims: Dims = x;
    match cx.known_or_symbols(1) {
        Some(shape) if shape.len() != axes.len() => {
            return Err(cx.fail(format!("shape has {} entries for {} axes", shape.len(), axes.len())));
        }
        Some(shape) => axes.iter().zip(&shape).for_each(|(&axis, &size)| dims[axis] = size),
        None => axes.iter().for_each(|&axis| dims[axis] = cx.fresh_dim(0, axis)),
    }
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

/// Padded to the larger of both sizes on every axis, then cut.
fn center_crop_pad_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let Some(rank) = cx.input(0).and_then(|x| cx.rank(x)).and_then(|r| i64::try_from(r).ok()) else { return Ok(()) };
    cx.write("dims = Shape(input_data); given = Cast(shape) to=7")?;
    match cx.view().ints("axes").filter(|axes| !axes.is_empty()) {
        None => cx.write("wanted = Identity(given)")?,
        Some(axes) => {
            let axes: Vec<String> = axes.iter().map(|a| if *a < 0 { a + rank } else { *a }.to_string()).collect();
            cx.write(&format!("wanted = ScatterElements(dims, [{}], given) axis=0", axes.join(" ")))?;
        }
    }
    cx.write(
        "larger = Max(dims, wanted); more = Sub(larger, dims); before = Div(more, [2]); after = Sub(more, before);
         pads = Concat(before, after) axis=0; padded = Pad(input_data, pads);
         less = Sub(larger, wanted); first = Div(less, [2]); end = Add(first, wanted);
         output_data = Slice(padded, first, end)",
    )
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn sizes() {
        check(&[
            ("Pad", "float[2,n] int64[4]{0,1,0,2}", "", "float[2,(n + 3)]"),
            ("Pad", "float[5,6] int64[2]{-1,-2} _ int64[1]{0}", "", "float[2,6]"),
            ("Pad", "float[5,6] int64[3]{1,2,3}", "", "!pads has 3 entries, 4 are needed"),
            ("Pad", "float[5] int64[2]{-4,-4}", "", "!take more from axis 0"),
            ("CenterCropPad", "float[5,6,3] int64[2]{4,n}", "axes=[0,1]", "float[4,n,3]"),
            ("CenterCropPad", "float[5,6] int64[1]{4}", "", "!shape has 1 entries for 2 axes"),
        ]);
    }
}
