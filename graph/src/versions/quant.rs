//! Version steps of quantisation.

use super::{Row, Step, Way, adapter, row, same};
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("DequantizeLinear", &[PER_AXIS, same(19), same(21), same(23), same(24), same(25), same(28)]),
    row("QLinearMatMul", &[same(21)]),
    row("QuantizeLinear", &[PER_AXIS, MIXED, same(21), same(23), same(24), same(25), same(28)]),
];

const PER_AXIS: Step = same(13).only(one_scale);

/// Integers over a scale of `float` are possible until 18 and from 23 on; in between, both are of one type.
const MIXED: Step = adapter(19, |_| Ok(())).narrows();

/// Scales per axis came with the newer version.
fn one_scale(node: View<'_>, way: Way) -> bool {
    let one = |i: usize| match node.rank(i) {
        Some(0) => true,
        Some(1) => node.dim(i, 0) == Some(1),
        _ => false,
    };
    way == Way::Up || one(1)
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn nothing_is_rewritten() {
        check(&[
            ("QuantizeLinear-10", "float[2] float[] uint8[]", "", "QuantizeLinear-28(v0, v1, v2)"),
            ("QuantizeLinear-10", "int32[2] float[] uint8[]", "", "QuantizeLinear-28(v0, v1, v2)"),
            ("DequantizeLinear-13", "uint8[2] float[2] uint8[2]", "axis=0", "DequantizeLinear-28(v0, v1, v2 axis=0)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("QuantizeLinear-28", "float[2] float[] uint8[]", "", "10.."),
            ("QuantizeLinear-28", "int32[2] float[] uint8[]", "", "23.."),
            ("QuantizeLinear-10", "int32[2] float[] uint8[]", "", "10..18"),
            ("QuantizeLinear-28", "float[2,2] float[2] uint8[2]", "", "13.."),
            ("QuantizeLinear-28", "float[2,2] float[2] uint16[2]", "", "21.."),
            ("QuantizeLinear-28", "float16[2,2] float16[] uint8[]", "", "19.."),
            ("QuantizeLinear-28", "float16[2,2] float[] uint8[]", "", "23.."),
            ("QuantizeLinear-28", "float[2,2] float[] uint8[]", "output_dtype=2", "21.."),
            ("QuantizeLinear-28", "float[2,2] float[2,1] uint8[2,1]", "block_size=2", "21.."),
            ("DequantizeLinear-28", "uint8[2] float[] uint8[] > float[2]", "", "10.."),
            ("DequantizeLinear-28", "int32[2] float16[] > float16[2]", "", "19.."),
            ("DequantizeLinear-28", "int32[2] float[] > float16[2]", "output_dtype=10", "23.."),
            ("QLinearMatMul-21", "uint8[2,2] float[] uint8[] uint8[2,2] float[] uint8[] float[] uint8[]", "", "10.."),
        ]);
    }
}
