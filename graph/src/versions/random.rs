//! Version steps of random operators and dropout.

use super::build::{stuck, up_only};
use super::{Omit, Row, Step, Upgrade, Way, adapter, legacy, row, same};
use crate::error::Result;
use crate::ir::AttrValue;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("Bernoulli", TYPES),
    row(
        "Dropout",
        &[
            legacy(6),
            // 7 to 11 are inference only. That `is_test` is 0 by default is not what exporters meant.
            same(7).omit(&[("is_test", Omit::Always)]).only(up_only),
            adapter(10, mask_to_number).only(no_mask),
            // What is left out matters to training alone, which needs an input that 10 does not have.
            same(12).omit(&[("ratio", Omit::Always), ("seed", Omit::Always)]),
            same(13),
            same(22),
        ],
    ),
    row("Multinomial", TYPES),
    row("RandomNormal", TYPES),
    row("RandomNormalLike", TYPES),
    row("RandomUniform", TYPES),
    row("RandomUniformLike", TYPES),
];

const TYPES: &[Step] = &[same(22)];

fn no_mask(node: View<'_>, _: Way) -> bool {
    !node.has_output(1)
}

/// The mask was of the data's type before 10.
fn mask_to_number(cx: &mut dyn Upgrade) -> Result<()> {
    let Some(dtype) = cx.view().dtype(0) else { return stuck("the element type of the data is not known") };
    cx.after(1, "Cast", &[], &[("to", AttrValue::Int(dtype.number().into()))])
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn old_dropout_is_inference() {
        check(&[
            ("Dropout-1", "float[2]", "consumed_inputs=[0] ratio=0.3 is_test=1", "Dropout-22(v0)"),
            ("Dropout-7", "float[2]", "ratio=0.3", "Dropout-22(v0)"),
            ("Dropout-7 2", "float16[2]", "", "Dropout-22(v0) > y0,t0; Cast(t0 to=10)"),
            ("Dropout-10 2", "float[2]", "", "Dropout-22(v0)"),
            ("Dropout-12", "float[2] float[] bool[]", "seed=3", "Dropout-22(v0, v1, v2 seed=3)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Dropout-22", "float[2]", "", "7.."),
            ("Dropout-22 2", "float[2]", "", "10.."),
            ("Dropout-22", "float[2] float[]", "", "12.."),
            ("Dropout-10", "float[2]", "ratio=0.1", "7.."),
            ("RandomNormal-22", "> bfloat16[2]", "shape=[2] dtype=16", "22.."),
            ("RandomNormal-22", "> float[2]", "shape=[2] dtype=1", "1.."),
        ]);
    }
}
