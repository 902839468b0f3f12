//! Version steps of pooling.

use super::build::stuck;
use super::{Omit, Row, Step, Upgrade, adapter, row, same};
use crate::error::Result;
use crate::ir::AttrValue;

pub(super) const ROWS: &[Row] = &[
    // 22 puts into words that windows which begin in the padding behind the data are ignored; runtimes always did.
    row("AveragePool", &[same(7), same(10), same(11), same(19).omit(ONES), same(22)]),
    row("GlobalAveragePool", &[same(22)]),
    row("GlobalLpPool", &[POWER, same(22)]),
    row("GlobalMaxPool", &[same(22)]),
    row("LpPool", &[POWER, same(11), same(18).omit(ONES), same(22)]),
    row("MaxPool", &[same(8), same(10).omit(ONES), same(11), same(12), same(22)]),
    row("MaxRoiPool", &[same(22)]),
    row("MaxUnpool", &[same(11), same(22)]),
];

const ONES: &[(&str, Omit)] = &[("dilations", Omit::Ones)];
const POWER: Step = adapter(2, whole_power);

/// `p` was a float in version 1.
fn whole_power(cx: &mut dyn Upgrade) -> Result<()> {
    let p = cx.view().attr("p").and_then(|v| v.as_float()).unwrap_or(2.0);
    // Exact for every float that passes.
    let whole = p as i64;
    if whole as f32 != p || !(1.0..1e9).contains(&p) {
        return stuck(format!("p = {p} is no whole number"));
    }
    cx.set_attr("p", AttrValue::Int(whole));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn powers_become_whole() {
        check(&[
            ("GlobalLpPool-1", "float[1,2,3]", "p=3.", "GlobalLpPool-22(v0 p=3)"),
            ("GlobalLpPool-1", "float[1,2,3]", "", "GlobalLpPool-22(v0 p=2)"),
            (
                "LpPool-1",
                "float[1,2,3]",
                "p=1. kernel_shape=[2]",
                "LpPool-22(v0 auto_pad='NOTSET' kernel_shape=[2] p=1)",
            ),
            ("LpPool-1", "float[1,2,3]", "p=2.5 kernel_shape=[2]", "!no whole number"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("MaxPool-22", "float[1,1,4]", "kernel_shape=[2]", "1.."),
            ("MaxPool-22", "float[1,1,4]", "kernel_shape=[2] dilations=[1]", "1.."),
            ("MaxPool-22", "float[1,1,4]", "kernel_shape=[2] dilations=[2]", "10.."),
            ("MaxPool-22", "float[1,1,4]", "kernel_shape=[2] ceil_mode=1", "10.."),
            ("MaxPool-22", "int8[1,1,4]", "kernel_shape=[2]", "12.."),
            ("AveragePool-22", "float[1,1,4]", "kernel_shape=[2] count_include_pad=1", "7.."),
            ("AveragePool-22", "float[1,1,4]", "kernel_shape=[2] dilations=[3]", "19.."),
        ]);
    }
}
