//! Softmax and its kin, and the losses made from them.

use super::{BodyCx, InferCx, OpDef};
use crate::error::Result;
use crate::ir::Dims;

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Hardmax", along_axis),
    OpDef::new("LogSoftmax", along_axis).body(|cx| cx.write("m = ReduceMax(input) axes=[@axis]; c = Sub(input, m); e = Exp(c); s = ReduceSum(e) axes=[@axis]; l = Log(s); output = Sub(c, l)")),
    OpDef::new("NegativeLogLikelihoodLoss", loss).body(|cx| loss_body(cx, ["input", "target", "weight", "loss"])),
    OpDef::new("Softmax", along_axis).body(|cx| cx.write("m = ReduceMax(input) axes=[@axis]; c = Sub(input, m); e = Exp(c); s = ReduceSum(e) axes=[@axis]; output = Div(e, s)")),
    OpDef::new("SoftmaxCrossEntropyLoss", cross_entropy).body(cross_entropy_body),
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

/// The negative score of each label, weighted; labels that are ignored weigh nothing.
fn loss_body(cx: &mut BodyCx<'_>, [scores, labels, weights, out]: [&str; 4]) -> Result<()> {
    let ignored = cx.view().int("ignore_index");
    let weighted = cx.named(weights).is_some();
    let reduction = cx.view().str("reduction").unwrap_or("mean").to_owned();
    cx.write(&format!("own = Unsqueeze({labels}) axes=[1]"))?;
    match ignored {
        None => cx.write("index = Identity(own)")?,
        Some(n) => cx.write(&format!(
            "own_64 = Cast(own) to=7; skip = Equal(own_64, #{n}); first = Sub(own, own); index = Where(skip, first, own)"
        ))?,
    }
    cx.write(&format!("score = GatherElements({scores}, index) axis=1"))?;
    cx.write(if ignored.is_some() { "kept = Where(skip, 0, score)" } else { "kept = Identity(score)" })?;
    cx.write("minus = Neg(kept); each = Squeeze(minus) axes=[1]")?;
    let weighs = weighted || (ignored.is_some() && reduction == "mean");
    if weighs {
        match (weighted, ignored) {
            (true, Some(_)) => {
                cx.write(&format!("found = Gather({weights}, index) axis=0; weight_1 = Where(skip, 0, found)"))?;
            }
            (true, None) => cx.write(&format!("weight_1 = Gather({weights}, index) axis=0"))?,
            _ => cx.write("weight_1 = Where(skip, 0, 1)")?,
        }
        cx.write("heavy = Squeeze(weight_1) axes=[1]; part = Mul(each, heavy)")?;
    } else {
        cx.write("part = Identity(each)")?;
    }
    match (reduction.as_str(), weighs) {
        ("none", _) => cx.write(&format!("{out} = Identity(part)")),
        ("sum", _) => cx.write(&format!("{out} = ReduceSum(part) keepdims=0")),
        (_, false) => cx.write(&format!("{out} = ReduceMean(part) keepdims=0")),
        (_, true) => cx.write(&format!(
            "sum = ReduceSum(part) keepdims=0; all = ReduceSum(heavy) keepdims=0; {out} = Div(sum, all)"
        )),
    }
}

/// Rows of classes, so that old forms, which take all further axes into the sum, do the same.
fn cross_entropy_body(cx: &mut BodyCx<'_>) -> Result<()> {
    cx.write(
        "dims = Shape(scores); three = Reshape(scores, [0 0 -1]); rows = Transpose(three) perm=[0,2,1];
         soft = LogSoftmax(rows) axis=2; back = Transpose(soft) perm=[0,2,1]; log_prob = Reshape(back, dims)",
    )?;
    loss_body(cx, ["log_prob", "labels", "weights", "output"])
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
