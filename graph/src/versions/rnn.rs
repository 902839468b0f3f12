//! Version steps of recurrent networks.

use super::{Omit, Row, Upgrade, Way, adapter, row, same};
use crate::error::Result;
use crate::ir::AttrValue;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("GRU", &[adapter(3, spell_forward).only(spelt), same(7).omit(SEQUENCE), same(14), same(22)]),
    row("LSTM", &[same(7).omit(SEQUENCE), same(14), same(22)]),
    row("RNN", &[same(7).omit(SEQUENCE), same(14), same(22)]),
];

/// Which outputs a node lists says it as well.
const SEQUENCE: &[(&str, Omit)] = &[("output_sequence", Omit::Always)];

/// The default direction of GRU-1 has a spelling error.
const MISSPELT: &str = "foward";

fn spelt(node: View<'_>, _: Way) -> bool {
    node.str("direction") != Some(MISSPELT)
}

fn spell_forward(cx: &mut dyn Upgrade) -> Result<()> {
    cx.set_attr("direction", AttrValue::text("forward"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    const X: &str = "float[3,1,2] float[1,9,2] float[1,9,3]";

    #[test]
    fn old_forms() {
        check(&[
            ("GRU-1", X, "hidden_size=3", "GRU-22(v0, v1, v2 direction='forward' hidden_size=3)"),
            ("GRU-1", X, "hidden_size=3 direction='reverse'", "GRU-22(v0, v1, v2 direction='reverse' hidden_size=3)"),
            (
                "LSTM-1",
                X,
                "hidden_size=3 output_sequence=1",
                "LSTM-22(v0, v1, v2 direction='forward' hidden_size=3 input_forget=0)",
            ),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("GRU-22 2", X, "hidden_size=3", "1.."),
            ("GRU-22", X, "hidden_size=3 linear_before_reset=1", "3.."),
            ("GRU-1", X, "hidden_size=3", "1..2"),
            ("LSTM-22", X, "hidden_size=3 layout=1", "14.."),
        ]);
    }
}
