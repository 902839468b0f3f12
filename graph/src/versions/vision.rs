//! Version steps of sampling in images and boxes.

use super::{Omit, Row, Upgrade, Way, adapter, row, same};
use crate::error::Result;
use crate::ir::AttrValue;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("GridSample", &[adapter(20, rename_modes).only(nearest), same(22)]),
    row("NonMaxSuppression", &[same(11)]),
    row("RoiAlign", &[adapter(16, shift_output).omit(SHIFT).only(never_up), same(22)]),
];

/// The mode has one name in both versions; more than two axes came with the newer.
fn nearest(node: View<'_>, way: Way) -> bool {
    node.str("mode") == Some("nearest") && (way == Way::Up || node.rank(0) == Some(4))
}

fn rename_modes(cx: &mut dyn Upgrade) -> Result<()> {
    let mode = match cx.view().str("mode") {
        Some("bilinear") | None => "linear",
        Some("bicubic") => "cubic",
        Some(_) => return Ok(()),
    };
    cx.set_attr("mode", AttrValue::text(mode));
    Ok(())
}

const COORDINATES: &str = "coordinate_transformation_mode";
const OLD: &str = "output_half_pixel";
const SHIFT: &[(&str, Omit)] = &[(COORDINATES, Omit::Is(OLD))];

/// A node that does not say it means the other mode in the newer version.
fn never_up(_: View<'_>, way: Way) -> bool {
    way == Way::Down
}

fn shift_output(cx: &mut dyn Upgrade) -> Result<()> {
    cx.set_attr(COORDINATES, AttrValue::text(OLD));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    const ROI: &str = "float[1,1,4,4] float[2,4] int64[2]";
    const GRID: &str = "float[1,1,4,4] float[1,2,2,2]";

    #[test]
    fn modes() {
        let roi = "mode='avg' output_height=1 output_width=1 sampling_ratio=0 spatial_scale=1";
        let grid = "padding_mode='zeros'";
        check(&[
            (
                "RoiAlign-10",
                ROI,
                "",
                &format!("RoiAlign-22(v0, v1, v2 coordinate_transformation_mode='output_half_pixel' {roi})"),
            ),
            (
                "RoiAlign-16",
                ROI,
                "",
                &format!("RoiAlign-22(v0, v1, v2 coordinate_transformation_mode='half_pixel' {roi})"),
            ),
            ("GridSample-16", GRID, "", &format!("GridSample-22(v0, v1 align_corners=0 mode='linear' {grid})")),
            (
                "GridSample-16",
                GRID,
                "mode='bicubic'",
                &format!("GridSample-22(v0, v1 align_corners=0 mode='cubic' {grid})"),
            ),
            (
                "GridSample-16",
                GRID,
                "mode='nearest'",
                &format!("GridSample-22(v0, v1 align_corners=0 mode='nearest' {grid})"),
            ),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("RoiAlign-22", ROI, "", "16.."),
            ("RoiAlign-22", ROI, "coordinate_transformation_mode='output_half_pixel'", "10.."),
            ("RoiAlign-10", ROI, "", "10..15"),
            ("GridSample-22", GRID, "", "20.."),
            ("GridSample-22", GRID, "mode='nearest'", "16.."),
            ("GridSample-22", "float[1,1,4,4,4] float[1,2,2,2,3]", "mode='nearest'", "20.."),
            ("GridSample-16", GRID, "mode='bilinear'", "16..19"),
        ]);
    }
}
