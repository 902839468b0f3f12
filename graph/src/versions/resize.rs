//! Version steps of resizing. `Upsample` is deprecated since 10 and becomes `Resize`.

use super::build::{floats, input, stuck};
use super::{Row, Upgrade, Way, adapter, becomes, row, same};
use crate::error::Result;
use crate::ir::AttrValue;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("Resize", &[adapter(11, asymmetric), adapter(13, one_size).only(plain), same(18), same(19).only(no_symmetric)]),
    row("Upsample", &[adapter(7, scales), adapter(9, scales_to_input), becomes(10, "Resize")]),
];

const COORDINATES: &str = "coordinate_transformation_mode";
const FOR_NN: &str = "tf_half_pixel_for_nn";

/// Version 1 knows images only.
fn scales(cx: &mut dyn Upgrade) -> Result<()> {
    let float = |name: &str| cx.view().attr(name).and_then(|v| v.as_float());
    let (Some(height), Some(width)) = (float("height_scale"), float("width_scale")) else {
        return stuck("height_scale and width_scale are no numbers");
    };
    cx.set_attr("scales", AttrValue::Floats([1.0, 1.0, height, width].into()));
    if cx.view().str("mode") == Some("bilinear") {
        cx.set_attr("mode", AttrValue::text("linear"));
    }
    Ok(())
}

fn scales_to_input(cx: &mut dyn Upgrade) -> Result<()> {
    let Some(AttrValue::Floats(list)) = cx.view().attr("scales").cloned() else {
        return stuck("attribute 'scales' is no list of numbers");
    };
    let value = floats(cx, &list)?;
    cx.set_input(1, Some(value));
    cx.remove_attr("scales");
    Ok(())
}

/// Version 10 has no attributes for it: coordinates are divided by the scale; the nearest pixel is the one below when
/// enlarging and the one above when reducing, each axis for itself (ONNX's own cases of 10 have it so). Scales that are
/// not known are taken to enlarge, as those that exporters compute do.
fn asymmetric(cx: &mut dyn Upgrade) -> Result<()> {
    let scales = cx.view().floats(1).unwrap_or_default();
    let nearest = cx.view().str("mode").is_none_or(|mode| mode == "nearest");
    let (smaller, larger) = (scales.iter().any(|s| *s < 1.0), scales.iter().any(|s| *s > 1.0));
    let mut factor = input(cx, 1);
    let round = if smaller && !larger { "ceil" } else { "floor" };
    if nearest && smaller && larger {
        let part = |f: fn(f64, f64) -> f64| scales.iter().map(|s| f(*s, 1.0) as f32).collect::<Vec<_>>();
        let reduce = floats(cx, &part(f64::min))?;
        let attrs = [
            (COORDINATES, AttrValue::text("asymmetric")),
            ("mode", AttrValue::text("nearest")),
            ("nearest_mode", AttrValue::text("ceil")),
        ];
        let data = cx.before("Resize", &[input(cx, 0), None, Some(reduce)], &attrs)?;
        cx.set_input(0, Some(data));
        factor = Some(floats(cx, &part(f64::max))?);
    }
    cx.set_input(1, None);
    cx.set_input(2, factor);
    cx.set_attr(COORDINATES, AttrValue::text("asymmetric"));
    if nearest {
        cx.set_attr("nearest_mode", AttrValue::text(round));
    }
    Ok(())
}

/// Version 11 wants a tensor for the scales even where sizes are given, and has a mode that 13 took away.
fn plain(node: View<'_>, _: Way) -> bool {
    node.str(COORDINATES) != Some(FOR_NN) && !(node.has_input(2) && node.has_input(3))
}

/// The mode is `half_pixel` shifted by half a pixel; rounding can make up for that.
fn one_size(cx: &mut dyn Upgrade) -> Result<()> {
    if cx.view().has_input(3) {
        cx.set_input(2, None);
    }
    if cx.view().str(COORDINATES) != Some(FOR_NN) {
        return Ok(());
    }
    let nearest = cx.view().str("mode").is_none_or(|mode| mode == "nearest");
    let round = match cx.view().str("nearest_mode").unwrap_or("round_prefer_floor") {
        "floor" if nearest => "round_prefer_ceil",
        "round_prefer_floor" if nearest => "ceil",
        other => return stuck(format!("{FOR_NN} with rounding '{other}' has no successor")),
    };
    cx.set_attr(COORDINATES, AttrValue::text("half_pixel"));
    cx.set_attr("nearest_mode", AttrValue::text(round));
    Ok(())
}

/// That mode came with the newer version.
fn no_symmetric(node: View<'_>, way: Way) -> bool {
    way == Way::Up || node.str(COORDINATES) != Some("half_pixel_symmetric")
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn upsample_becomes_resize() {
        let up = "Resize-19(v0, _, [1,1,2,3] coordinate_transformation_mode='asymmetric'";
        check(&[
            (
                "Upsample-1",
                "float[1,1,2,2]",
                "height_scale=2. width_scale=3. mode='bilinear'",
                &format!("{up} mode='linear')"),
            ),
            (
                "Upsample-7",
                "float[1,1,2,2]",
                "scales=[1.,1.,2.,3.]",
                &format!("{up} mode='nearest' nearest_mode='floor')"),
            ),
            (
                "Upsample-9",
                "float[1,1,2,2] float[4]",
                "mode='linear'",
                "Resize-19(v0, _, v1 coordinate_transformation_mode='asymmetric' mode='linear')",
            ),
        ]);
    }

    #[test]
    fn resize_10_rounds_by_direction() {
        let like = "coordinate_transformation_mode='asymmetric' mode='nearest' nearest_mode";
        check(&[
            ("Resize-10", "float[1,4] float[2]{1,0.5}", "", &format!("Resize-19(v0, _, v1 {like}='ceil')")),
            ("Resize-10", "float[1,4] float[2]{1,2}", "", &format!("Resize-19(v0, _, v1 {like}='floor')")),
            ("Resize-10", "float[1,4] float[2]", "", &format!("Resize-19(v0, _, v1 {like}='floor')")),
            (
                "Resize-10",
                "float[4,4] float[2]{2,0.5}",
                "",
                &format!("Resize(v0, _, [1,0.5] {like}='ceil') > t0; Resize-19(t0, _, [2,1] {like}='floor')"),
            ),
        ]);
    }

    #[test]
    fn resize_11() {
        let rest = "cubic_coeff_a=-0.75 exclude_outside=0 extrapolation_value=0 mode='nearest'";
        check(&[
            (
                "Resize-11",
                "float[4] float[0] float[0] int64[1]",
                "",
                &format!(
                    "Resize-19(v0, v1, _, v3 coordinate_transformation_mode='half_pixel' {rest} nearest_mode='round_prefer_floor')"
                ),
            ),
            (
                "Resize-11",
                "float[4] float[0] float[1]",
                "coordinate_transformation_mode='tf_half_pixel_for_nn' nearest_mode='floor'",
                &format!(
                    "Resize-19(v0, v1, v2 coordinate_transformation_mode='half_pixel' {rest} nearest_mode='round_prefer_ceil')"
                ),
            ),
            (
                "Resize-11",
                "float[4] float[0] float[1]",
                "coordinate_transformation_mode='tf_half_pixel_for_nn'",
                &format!(
                    "Resize-19(v0, v1, v2 coordinate_transformation_mode='half_pixel' {rest} nearest_mode='ceil')"
                ),
            ),
            (
                "Resize-11",
                "float[4] float[0] float[1]",
                "coordinate_transformation_mode='tf_half_pixel_for_nn' nearest_mode='ceil'",
                "!has no successor",
            ),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Resize-19", "float[4] _ float[1]", "", "13.."),
            ("Resize-19", "float[4] float[0] float[1]", "", "11.."),
            ("Resize-19", "float[4] _ float[1]", "antialias=1", "18.."),
            ("Resize-19", "float[4] _ float[1]", "axes=[0]", "18.."),
            ("Resize-19", "float[4] _ float[1]", "coordinate_transformation_mode='half_pixel_symmetric'", "19.."),
            ("Resize-11", "float[4] float[0] float[0] int64[1]", "", "11..12"),
            ("Resize-10", "float[4] float[1]", "", "10..10"),
            ("Upsample-9", "float[4] float[1]", "", "9..9"),
        ]);
    }
}
