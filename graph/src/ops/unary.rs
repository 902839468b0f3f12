//! Element-wise functions of one tensor: type and shape stay.

use super::{InferCx, OpDef, known};
use crate::error::Result;
use crate::ir::ExprTable;

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Abs", abs),
    OpDef::new("Acos", like),
    OpDef::new("Acosh", like),
    OpDef::new("Asin", like),
    OpDef::new("Asinh", like),
    OpDef::new("Atan", like),
    OpDef::new("Atanh", like),
    OpDef::new("BitwiseNot", like),
    OpDef::new("Ceil", whole),
    OpDef::new("Celu", like),
    OpDef::new("Clip", clip),
    OpDef::new("Cos", like),
    OpDef::new("Cosh", like),
    OpDef::new("Elu", like),
    OpDef::new("Erf", like),
    OpDef::new("Exp", like),
    OpDef::new("Floor", whole),
    OpDef::new("Gelu", like),
    OpDef::new("HardSigmoid", like),
    OpDef::new("HardSwish", like),
    OpDef::new("LeakyRelu", like),
    OpDef::new("Log", like),
    OpDef::new("Mish", like),
    OpDef::new("Neg", neg),
    OpDef::new("Reciprocal", like),
    OpDef::new("Relu", like),
    OpDef::new("Round", whole),
    OpDef::new("Selu", like),
    OpDef::new("Shrink", like),
    OpDef::new("Sigmoid", like),
    OpDef::new("Sign", like),
    OpDef::new("Sin", like),
    OpDef::new("Sinh", like),
    OpDef::new("Softplus", like),
    OpDef::new("Softsign", like),
    OpDef::new("Sqrt", like),
    OpDef::new("Swish", like),
    OpDef::new("Tan", like),
    OpDef::new("Tanh", like),
    OpDef::new("ThresholdedRelu", like),
];

pub(super) fn like(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set_like(0, 0);
    Ok(())
}

/// Whole numbers stay what they are.
fn whole(cx: &mut InferCx<'_>) -> Result<()> {
    known::unary(cx, |_, x| x);
    like(cx)
}

fn neg(cx: &mut InferCx<'_>) -> Result<()> {
    let zero = cx.int(0);
    known::unary(cx, |e, x| e.sub(zero, x));
    like(cx)
}

fn abs(cx: &mut InferCx<'_>) -> Result<()> {
    let zero = cx.int(0);
    known::unary(cx, |e, x| {
        let minus = e.sub(zero, x);
        e.max(x, minus)
    });
    like(cx)
}

/// As ONNX has it, `max` wins over `min` when they cross.
fn clip(cx: &mut InferCx<'_>) -> Result<()> {
    let bound = |cx: &InferCx<'_>, i: usize| match cx.has_input(i) {
        false => Some(None),
        true => Some(Some(*cx.known(i)?.first()?)),
    };
    if let (Some(low), Some(high)) = (bound(cx, 1), bound(cx, 2)) {
        known::unary(cx, |e, x| {
            let x = low.map_or(x, |l| ExprTable::max(e, x, l));
            high.map_or(x, |h| e.min(x, h))
        });
    }
    like(cx)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes_stay() {
        check(&[
            ("Relu", "float[n,3]", "", "float[n,3]"),
            ("Erf", "float", "", "float"),
            ("Neg", "int64[2]{n,3}", "", "int64[2]{(0 - n),-3}"),
            ("Abs", "int64[2]{-4,3}", "", "int64[2]{4,3}"),
            ("Clip", "int64[2]{-4,9} int64[]{0} int64[]{5}", "", "int64[2]{0,5}"),
            ("Clip", "int64[1]{9} _ int64[]{5}", "", "int64[1]{5}"),
            ("Clip", "int64[1]{9} int64[]", "", "int64[1]"),
        ]);
    }
}
