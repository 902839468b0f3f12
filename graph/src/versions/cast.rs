//! Version steps of casts.

use super::build::stuck;
use super::{Row, Step, Upgrade, adapter, row, same};
use crate::error::Result;
use crate::ir::{AttrValue, DType};

pub(super) const ROWS: &[Row] = &[
    // 24 corrects the page on infinities in the FNUZ types; the reference and runtimes always saturated them.
    row("Cast", &[adapter(6, number), same(9), same(13), same(19), same(21), same(23), same(24), same(25), same(28)]),
    row("CastLike", LIKE),
];

const LIKE: &[Step] = &[same(19), same(21), same(23), same(24), same(25)];

/// The names that `to` had in version 1, beside those of type strings.
const NAMES: &[(&str, DType)] = &[("FLOAT", DType::F32), ("DOUBLE", DType::F64)];

/// `to` was a word in version 1: the enumerator's name, here in any case.
fn number(cx: &mut dyn Upgrade) -> Result<()> {
    let Some(word) = cx.view().str("to") else { return stuck("attribute 'to' is no text") };
    let lower = word.to_ascii_lowercase();
    let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, dtype)| *dtype);
    let Some(dtype) = named.or_else(|| DType::from_name(&lower)) else {
        return stuck(format!("to = '{word}' is no element type"));
    };
    cx.set_attr("to", AttrValue::Int(dtype.number().into()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn words_become_numbers() {
        check(&[
            ("Cast-1", "int32[2]", "to='FLOAT'", "Cast-28(v0 to=1)"),
            ("Cast-1", "int32[2]", "to='DOUBLE'", "Cast-28(v0 to=11)"),
            ("Cast-1", "int32[2]", "to='INT64'", "Cast-28(v0 to=7)"),
            ("Cast-1", "int32[2]", "to='float16'", "Cast-28(v0 to=10)"),
            ("Cast-1", "int32[2]", "to='REAL'", "!is no element type"),
            ("Cast-6", "int32[2]", "to=1", "Cast-28(v0 to=1)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Cast-28", "int32[2] > float[2]", "to=1", "6.."),
            ("Cast-28", "string[2] > float[2]", "to=1", "9.."),
            ("Cast-28", "float[2] > bfloat16[2]", "to=16", "13.."),
            ("Cast-28", "float[2] > float8e4m3fn[2]", "to=17", "19.."),
            ("Cast-28", "float[2] > float8e4m3fn[2]", "to=17 saturate=0", "19.."),
            ("Cast-28", "int32[2] > float[2]", "to=1 round_mode='down'", "24.."),
            ("Cast-1", "int32[2] > float[2]", "to='FLOAT'", "1..5"),
        ]);
    }
}
