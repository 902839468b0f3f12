//! Softmax and its kin, and the losses made from them.

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::Dims;

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Hardmax", along_axis),
    OpDef::new("LogSoftmax", along_axis).body(|cx| cx.write("m = ReduceMax(input) axes=[@axis]; c = Sub(input, m); e = Exp(c); s = ReduceSum(e) axes=[@axis]; l = Log(s); output = Sub(c, l)")),
    OpDef::new("NegativeLogLikelihoodLoss", loss),
    OpDef::new("Softmax", along_axis).body(|cx| cx.write("m = ReduceMax(input) axes=[@axis]; c = Sub(input, m); e = Exp(c); s = ReduceSum(e) axes=[@axis]; output = Div(e, s)")),
    OpDef::new("SoftmaxCrossEntropyLoss", cross_entropy),
];

fn along_axis(cx: &mut InferCx<'_>) -> Result<()> {
    if let (Some(rank), Some(axis)) = (cx.rank(0), cx.attr_int("axis")) {
        cx.axis(axis, rank)?;
    }
    cx.set_like(0, 0);
    Ok(())
}

/// One number, or with `reduction` "none" one for each label.
fn loss(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    if let (Some(scores), Some(labels)) = (cx.dims(0), cx.dims(1)) {
        if scores.len() < 2 || labels.len() + 1 != scores.len() {
            return Err(cx.fail(format!(
                "scores have rank {} and labels {}: scores need at least 2, labels have all axes but the classes",
                scores.len(),
                labels.len()
            )));
        }
        let without_classes = scores.iter().enumerate().filter(|&(axis, _)| axis != 1).map(|(_, &d)| d);
        for (a, &b) in without_classes.collect::<Dims>().into_iter().zip(&labels) {
            cx.same_dim(a, b, "the dims of scores (without classes) and labels")?;
        }
    }
    let dims = match cx.attr_str("reduction").unwrap_or("mean") {
        "none" => cx.dims(1),
        "mean" | "sum" => Some(Dims::new()),
        other => return Err(cx.fail(format!("reduction is '{other}', not none, mean or sum"))),
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn cross_entropy(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set_like(1, 0);
    loss(cx)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            ("Softmax", "float[2,n]", "axis=-1", "float[2,n]"),
            ("Hardmax", "float[2,n]", "axis=2", "!axis 2 is outside"),
            ("NegativeLogLikelihoodLoss", "float[n,5,3] int64[n,3]", "reduction='none'", "float[n,3]"),
            ("NegativeLogLikelihoodLoss", "float[n,5] int64[n]", "", "float[]"),
            ("NegativeLogLikelihoodLoss", "float[n,5] int64[n,5]", "", "!scores have rank 2 and labels 2"),
            ("SoftmaxCrossEntropyLoss", "float[3,5] int64[3]", "reduction='sum'", "float[] float[3,5]"),
        ]);
    }
}
