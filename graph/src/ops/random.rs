//! Random numbers. None of these folds, and what they feed is not constant.

use super::{BodyCx, Fold, InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, Dims};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("Bernoulli", like).fold(Fold::Random).body(bernoulli_body),
    OpDef::new("Dropout", dropout).fold(Fold::Random),
    OpDef::new("Multinomial", multinomial).fold(Fold::Random),
    OpDef::new("RandomNormal", shaped).fold(Fold::Random),
    OpDef::new("RandomNormalLike", like).fold(Fold::Random),
    OpDef::new("RandomUniform", shaped).fold(Fold::Random),
    OpDef::new("RandomUniformLike", like).fold(Fold::Random),
];

fn shaped(cx: &mut InferCx<'_>) -> Result<()> {
    let dtype = cx.attr_dtype("dtype")?.unwrap_or(DType::F32);
    let shape = cx.attr_ints("shape").unwrap_or_default();
    if let Some(negative) = shape.iter().find(|&&d| d < 0) {
        return Err(cx.fail(format!("shape holds {negative}")));
    }
    let dims: Dims = cx.exprs.constants(&shape);
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

fn like(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.attr_dtype("dtype")?.or_else(|| cx.dtype(0)) else { return Ok(()) };
    let dims = cx.dims(0);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn multinomial(cx: &mut InferCx<'_>) -> Result<()> {
    cx.need_rank(0, "input", 2..=2)?;
    let dtype = cx.attr_dtype("dtype")?.unwrap_or(DType::I32);
    let samples = cx.attr_int("sample_size").unwrap_or(1);
    if samples < 1 {
        return Err(cx.fail(format!("sample_size is {samples}")));
    }
    let batch = cx.dims(0).map_or_else(|| cx.fresh_dim(0, 0), |x| x[0]);
    let samples = cx.int(samples);
    cx.set_tensor(0, dtype, Some([batch, samples].into_iter().collect()));
    Ok(())
}

fn dropout(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set_like(0, 0);
    let dims = cx.dims(0);
    cx.set_tensor(1, DType::Bool, dims);
    Ok(())
}

/// 1 where a number between 0 and 1 is below the chance. (The function in the `onnx` package compares the other way round,
/// which gives 1 with the chance of 0.)
fn bernoulli_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let Some(own) = cx.input(0).and_then(|x| cx.dtype(x)).map(DType::number) else { return Ok(()) };
    let to = cx.view().int("dtype").unwrap_or(own.into());
    let seed = if cx.view().attr("seed").is_some() { "seed=@seed" } else { "" };
    cx.write(&format!(
        "drawn = RandomUniformLike(input) low=0.0 high=1.0 dtype={own} {seed}; hit = Less(drawn, input); output = Cast(hit) to={to}"
    ))
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            ("RandomNormal", "", "shape=[2,3] dtype=11", "double[2,3]"),
            ("RandomUniform", "", "shape=[-2]", "!shape holds -2"),
            ("RandomNormalLike", "int32[n,3]", "dtype=1", "float[n,3]"),
            ("Bernoulli", "double[n]", "", "double[n]"),
            ("Multinomial", "float[n,5]", "sample_size=4 dtype=7", "int64[n,4]"),
            ("Multinomial", "float[5]", "", "!input has rank 1, needed is 2"),
            ("Dropout", "float[n,3]", "", "float[n,3] bool[n,3]"),
        ]);
    }
}
