//! Element-wise functions of one tensor: type and shape stay.

use super::{BodyCx, InferCx, OpDef, known};
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
    OpDef::new("Celu", like).body(|cx| cx.write("s = Div(X, @alpha); e = Elu(s); Y = Mul(e, @alpha)")),
    OpDef::new("Clip", clip).body(clip_body),
    OpDef::new("Cos", like),
    OpDef::new("Cosh", like),
    OpDef::new("Elu", like).body(|cx| cx.write("e = Exp(X); m = Sub(e, 1); s = Mul(m, @alpha); n = Less(X, 0); Y = Where(n, s, X)")),
    OpDef::new("Erf", like),
    OpDef::new("Exp", like),
    OpDef::new("Floor", whole),
    OpDef::new("Gelu", like).body(gelu),
    OpDef::new("HardSigmoid", like).body(|cx| cx.write("s = Mul(X, @alpha); a = Add(s, @beta); m = Min(a, 1); Y = Max(m, 0)")),
    OpDef::new("HardSwish", like).body(|cx| cx.write("h = HardSigmoid(X) alpha=0.16666667 beta=0.5; Y = Mul(X, h)")),
    OpDef::new("LeakyRelu", like).body(|cx| cx.write("s = Mul(X, @alpha); n = Less(X, 0); Y = Where(n, s, X)")),
    OpDef::new("Log", like),
    OpDef::new("Mish", like).body(|cx| cx.write("s = Softplus(X); t = Tanh(s); Y = Mul(X, t)")),
    OpDef::new("Neg", neg),
    OpDef::new("Reciprocal", like),
    OpDef::new("Relu", like).body(|cx| cx.write("Y = Max(X, 0)")),
    OpDef::new("Round", whole),
    OpDef::new("Selu", like).body(|cx| cx.write("e = Exp(X); m = Sub(e, 1); s = Mul(m, @alpha); n = Less(X, 0); c = Where(n, s, X); Y = Mul(c, @gamma)")),
    OpDef::new("Shrink", like).body(|cx| cx.write("low = Add(input, @bias); high = Sub(input, @bias); m = Neg(@lambd); l = Less(input, m); h = Less(@lambd, input); r = Where(h, high, 0); output = Where(l, low, r)")),
    OpDef::new("Sigmoid", like),
    OpDef::new("Sign", like),
    OpDef::new("Sin", like),
    OpDef::new("Sinh", like),
    OpDef::new("Softplus", like).body(|cx| cx.write("e = Exp(X); s = Add(e, 1); Y = Log(s)")),
    OpDef::new("Softsign", like).body(|cx| cx.write("a = Abs(input); s = Add(a, 1); output = Div(input, s)")),
    OpDef::new("Sqrt", like),
    OpDef::new("Swish", like).body(|cx| cx.write("s = Mul(X, @alpha); g = Sigmoid(s); Y = Mul(X, g)")),
    OpDef::new("Tan", like),
    OpDef::new("Tanh", like),
    OpDef::new("ThresholdedRelu", like).body(|cx| cx.write("h = Less(@alpha, X); Y = Where(h, X, 0)")),
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

fn gelu(cx: &mut BodyCx<'_>) -> Result<()> {
    match cx.view().str("approximate") {
        Some("tanh") => cx.write(
            "q = Mul(X, X); c = Mul(q, X); s = Mul(c, 0.044715); a = Add(X, s); i = Mul(a, 0.7978845608028654); \
             t = Tanh(i); o = Add(t, 1); h = Mul(X, 0.5); Y = Mul(h, o)",
        ),
        _ => cx.write("s = Mul(X, 0.7071067811865476); e = Erf(s); o = Add(e, 1); h = Mul(X, 0.5); Y = Mul(h, o)"),
    }
}

fn clip_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let (least, most) = (cx.named("min").is_some(), cx.named("max").is_some());
    cx.write(if least {
        "low = Less(input, min); raised = Where(low, min, input)"
    } else {
        "raised = Identity(input)"
    })?;
    cx.write(if most {
        "high = Less(max, raised); output = Where(high, max, raised)"
    } else {
        "output = Identity(raised)"
    })
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
