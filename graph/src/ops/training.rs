//! Optimisers, and the gradient of a graph.

use super::{Fold, InferCx, OpDef};
use crate::error::Result;

const DOMAIN: &str = "ai.onnx.preview.training";

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Adagrad", |cx| optimiser(cx, 3, 2)).domain(DOMAIN),
    OpDef::new("Adam", |cx| optimiser(cx, 4, 3)).domain(DOMAIN),
    OpDef::new("Gradient", gradient).domain(DOMAIN).fold(Fold::Never),
    OpDef::new("Momentum", |cx| optimiser(cx, 3, 2)).domain(DOMAIN),
];

/// After R and T come `groups` lists of one tensor for each parameter: parameters, gradients, states. Parameters and
/// states come out again.
fn optimiser(cx: &mut InferCx<'_>, groups: usize, outputs: usize) -> Result<()> {
    let tensors = cx.input_count().saturating_sub(2);
    if !tensors.is_multiple_of(groups) {
        return Err(cx.fail(format!("{tensors} tensors after R and T are no {groups} equal lists")));
    }
    let each = tensors / groups;
    for o in 0..outputs {
        // Gradients, the second list, have no output.
        let list = if o == 0 { 0 } else { o + 1 };
        for k in 0..each {
            cx.set_like(o * each + k, 2 + list * each + k);
        }
    }
    Ok(())
}

/// One output for each name in `xs`, which stand before `zs` among the inputs.
fn gradient(cx: &mut InferCx<'_>) -> Result<()> {
    for o in 0..cx.output_count() {
        cx.set_like(o, o);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn states_come_out() {
        check(&[
            (
                "ai.onnx.preview.training::Adam",
                "float[] int64[] float[2] float[3] float[2] float[3] float[2] float[3] float[2] float[3]",
                "",
                "float[2] float[3] float[2] float[3] float[2] float[3]",
            ),
            (
                "ai.onnx.preview.training::Momentum",
                "float[] int64[] float[2] float[2] float[2]",
                "",
                "float[2] float[2]",
            ),
            ("ai.onnx.preview.training::Adagrad", "float[] int64[] float[2] float[2]", "", "!no 3 equal lists"),
        ]);
    }
}
