//! Version steps of signal processing.

use super::build::int;
use super::{Omit, Row, Upgrade, Way, adapter, row};
use crate::error::Result;
use crate::schema::View;

pub(super) const ROWS: &[Row] =
    &[row("DFT", &[adapter(20, axis_to_input).omit(&[("axis", Omit::Always)]).only(default_axis)])];

/// The axis is 1 unless said otherwise in 17, and the last but one in 20.
fn default_axis(node: View<'_>, way: Way) -> bool {
    let Some(rank) = node.rank(0).and_then(|rank| i64::try_from(rank).ok()) else { return false };
    let axis = if way == Way::Up { node.int("axis").unwrap_or(1) } else { 1 };
    axis == rank - 2 || axis == -2
}

fn axis_to_input(cx: &mut dyn Upgrade) -> Result<()> {
    let axis = cx.view().int("axis").unwrap_or(1);
    let axis = int(cx, axis)?;
    cx.set_input(2, Some(axis));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn axis_becomes_an_input() {
        check(&[
            ("DFT-17", "float[1,8,1]", "", "DFT-20(v0 inverse=0 onesided=0)"),
            ("DFT-17", "float[1,8,8,1]", "", "DFT-20(v0, _, int64 1 inverse=0 onesided=0)"),
            ("DFT-17", "float[1,8,8,1] int64[]", "axis=2", "DFT-20(v0, v1 inverse=0 onesided=0)"),
            ("DFT-17", "float", "axis=2", "DFT-20(v0, _, int64 2 inverse=0 onesided=0)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("DFT-20", "float[1,8,1]", "", "17.."),
            ("DFT-20", "float[1,8,8,1]", "", "20.."),
            ("DFT-20", "float[1,8,1] _ int64[]", "", "20.."),
            ("DFT-17", "float[1,8,8,1]", "axis=2", "17.."),
            ("DFT-17", "float[1,8,8,1]", "", "17..19"),
        ]);
    }
}
