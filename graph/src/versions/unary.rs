//! Version steps of operators on one tensor, element by element.

use super::build::{float_like_data, through};
use super::{Row, Step, Upgrade, adapter, legacy, row, same};
use crate::error::Result;
use crate::ir::DType;

pub(super) const ROWS: &[Row] = &[
    row("Abs", LEGACY),
    row("Acos", FLOATS),
    row("Acosh", FLOATS),
    row("Asin", FLOATS),
    row("Asinh", FLOATS),
    row("Atan", FLOATS),
    row("Atanh", FLOATS),
    row("Ceil", LEGACY),
    row("Celu", &[same(28)]),
    row("Clip", &[legacy(6), adapter(11, bounds_to_inputs), same(12), same(13)]),
    row("Cos", FLOATS),
    row("Cosh", FLOATS),
    row("Elu", LEGACY_FLOATS),
    // Integers were allowed until 13; their results were the fraction cut off.
    row("Erf", &[adapter(13, |cx| through(cx, DType::F32)).narrows()]),
    row("Exp", LEGACY),
    row("Floor", LEGACY),
    row("HardSigmoid", LEGACY_FLOATS),
    row("HardSwish", FLOATS),
    row("IsInf", &[same(20)]),
    row("IsNaN", &[same(13), same(20)]),
    row("LeakyRelu", &[legacy(6), same(16)]),
    row("Log", LEGACY),
    row("Mish", FLOATS),
    row("Neg", LEGACY),
    row("Reciprocal", LEGACY),
    row("Relu", &[legacy(6), same(13), same(14)]),
    row("Round", FLOATS),
    // The defaults got more digits in 6.
    row("Selu", LEGACY_FLOATS),
    row("Sigmoid", LEGACY),
    row("Sign", &[same(13)]),
    row("Sin", FLOATS),
    row("Sinh", FLOATS),
    row("Softplus", FLOATS),
    row("Softsign", FLOATS),
    row("Sqrt", LEGACY),
    row("Tan", FLOATS),
    row("Tanh", LEGACY),
    row("ThresholdedRelu", FLOATS),
];

const LEGACY: &[Step] = &[legacy(6), same(13)];
const LEGACY_FLOATS: &[Step] = &[legacy(6), same(22)];
/// Only `bfloat16` came.
const FLOATS: &[Step] = &[same(22)];

/// Bounds that are the ends of `float`, the old defaults, are no bounds.
fn bounds_to_inputs(cx: &mut dyn Upgrade) -> Result<()> {
    for (index, name, none) in [(1, "min", f32::MIN), (2, "max", f32::MAX)] {
        let bound = cx.view().attr(name).and_then(|v| v.as_float()).filter(|v| *v != none);
        if let Some(bound) = bound {
            let value = float_like_data(cx, bound)?;
            cx.set_input(index, Some(value));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn clip_bounds_become_inputs() {
        check(&[
            ("Clip-6", "float[2]", "min=0. max=6.", "Clip-13(v0, 0, 6)"),
            ("Clip-6", "float[2]", "max=6.5", "Clip-13(v0, _, 6.5)"),
            ("Clip-6", "float[2]", "min=-1.", "Clip-13(v0, -1)"),
            ("Clip-6", "float[2]", "", "Clip-13(v0)"),
            ("Clip-1", "double[2]", "max=1. consumed_inputs=[0]", "Clip-13(v0, _, double 1)"),
            ("Clip-6", "float16[2]", "max=0.5", "Clip-13(v0, _, float16 3800)"),
            ("Clip-11", "float[2] float[]", "", "Clip-13(v0, v1)"),
        ]);
    }

    #[test]
    fn integer_erf_goes_through_float() {
        check(&[
            ("Erf-9", "int32[2]", "", "Cast(v0 to=1) > t0; Erf-13(t0) > t1; Cast(t1 to=6)"),
            ("Erf-9", "float[2]", "", "Erf-13(v0)"),
            ("Erf-9", "double[2]", "", "Erf-13(v0)"),
        ]);
    }

    #[test]
    fn defaults_that_changed_stay() {
        check(&[
            ("Selu-1", "float[2]", "", "Selu-22(v0 alpha=1.6732 gamma=1.0507)"),
            ("Selu-6", "float[2]", "", "Selu-22(v0 alpha=1.6732632 gamma=1.050701)"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Relu-14", "float[2]", "", "1.."),
            ("Relu-14", "int8[2]", "", "14.."),
            ("Relu-14", "bfloat16[2]", "", "13.."),
            ("Relu-1", "float[2]", "consumed_inputs=[0]", "1.."),
            ("Selu-22", "float[2]", "", "1.."),
            ("Clip-13", "float[2]", "", "1.."),
            ("Clip-13", "float[2] float[]", "", "11.."),
            ("Clip-13", "int32[2] int32[]", "", "12.."),
            ("Clip-6", "float[2]", "min=0.", "1..10"),
            ("Clip-6", "float[2]", "", "1.."),
            ("Erf-9", "int32[2]", "", "9..12"),
            ("Erf-9", "float[2]", "", "9.."),
            ("Round-22", "bfloat16[2]", "", "22.."),
        ]);
    }
}
