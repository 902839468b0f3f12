//! Version steps of padding.

use super::build::{float_like_data, ints_to_input};
use super::{Row, Upgrade, Way, adapter, row, same};
use crate::error::Result;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[row(
    "Pad",
    &[
        adapter(2, |cx| {
            cx.rename_attr("paddings", "pads");
            Ok(())
        }),
        adapter(11, pads_to_inputs),
        same(13),
        same(18),
        same(19).only(no_wrap),
        same(21),
        same(23),
        same(24),
        same(25),
    ],
)];

/// `wrap` came with the newer version.
fn no_wrap(node: View<'_>, way: Way) -> bool {
    way == Way::Up || node.str("mode") != Some("wrap")
}

fn pads_to_inputs(cx: &mut dyn Upgrade) -> Result<()> {
    ints_to_input(cx, "pads", 1)?;
    let value = cx.view().attr("value").and_then(|v| v.as_float()).filter(|v| *v != 0.0);
    if let Some(value) = value {
        let value = float_like_data(cx, value)?;
        cx.set_input(2, Some(value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn pads_become_inputs() {
        check(&[
            ("Pad-1", "float[2]", "paddings=[1,0]", "Pad-25(v0, [1,0] mode='constant')"),
            ("Pad-2", "float[2]", "pads=[1,0] value=2.5 mode='edge'", "Pad-25(v0, [1,0], 2.5 mode='edge')"),
            ("Pad-2", "double[2]", "pads=[0,1] value=-1.", "Pad-25(v0, [0,1], double -1 mode='constant')"),
            ("Pad-11", "float[2] int64[2] float[]", "", "Pad-25(v0, v1, v2 mode='constant')"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Pad-25", "float[2] int64[2]", "", "11.."),
            ("Pad-25", "float[2] int64[2]", "mode='wrap'", "19.."),
            ("Pad-25", "float[2] int64[2] _ int64[1]", "", "18.."),
            ("Pad-25", "bool[2] int64[2]", "", "13.."),
            ("Pad-2", "float[2]", "pads=[0,1]", "2..10"),
        ]);
    }
}
