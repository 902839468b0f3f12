//! The classical models of `ai.onnx.ml`.

use std::sync::Arc;

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{AttrValue, DType, Dims, ExprId, Type};

const DOMAIN: &str = "ai.onnx.ml";

const fn ml(name: &'static str, infer: super::InferFn) -> OpDef {
    OpDef::new(name, infer).domain(DOMAIN)
}

pub(super) static OPS: &[OpDef] = &[
    ml("ArrayFeatureExtractor", array_feature_extractor),
    ml("Binarizer", super::unary::like),
    ml("CastMap", cast_map),
    ml("CategoryMapper", category_mapper),
    ml("DictVectorizer", dict_vectorizer),
    ml("FeatureVectorizer", feature_vectorizer),
    ml("Imputer", super::unary::like),
    ml("LabelEncoder", label_encoder),
    ml("LinearClassifier", classifier),
    ml("LinearRegressor", |cx| regressor(cx, "targets")),
    ml("Normalizer", floats),
    ml("OneHotEncoder", one_hot_encoder),
    ml("SVMClassifier", svm_classifier),
    ml("SVMRegressor", |cx| {
        let one = cx.int(1);
        scores(cx, 0, one);
        Ok(())
    }),
    ml("Scaler", floats),
    ml("TreeEnsemble", tree_ensemble),
    ml("TreeEnsembleClassifier", classifier),
    ml("TreeEnsembleRegressor", |cx| regressor(cx, "n_targets")),
    ml("ZipMap", zip_map),
];

fn floats(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.dims(0);
    cx.set_tensor(0, DType::F32, dims);
    Ok(())
}

/// The number of rows: a vector is one row.
fn rows(cx: &mut InferCx<'_>) -> ExprId {
    match cx.dims(0) {
        Some(x) if x.len() > 1 => x[0],
        Some(_) => cx.int(1),
        None => cx.fresh_dim(0, 0),
    }
}

fn scores(cx: &mut InferCx<'_>, output: usize, columns: ExprId) {
    let rows = rows(cx);
    cx.set_tensor(output, DType::F32, Some([rows, columns].into_iter().collect()));
}

fn list_len(cx: &InferCx<'_>, name: &str) -> Option<usize> {
    match cx.attr(name)? {
        AttrValue::Ints(v) => Some(v.len()),
        AttrValue::Floats(v) => Some(v.len()),
        AttrValue::Strings(v) => Some(v.len()),
        _ => None,
    }
}

/// Labels by which list of names is there: the type of the first output and how many there are.
fn labels(cx: &InferCx<'_>) -> Option<(DType, usize)> {
    let found = |name, dtype| list_len(cx, name).filter(|&n| n > 0).map(|n| (dtype, n));
    found("classlabels_strings", DType::String)
        .or_else(|| found("classlabels_ints", DType::I64))
        .or_else(|| found("classlabels_int64s", DType::I64))
}

/// Label of each row and a score of each class.
fn classifier(cx: &mut InferCx<'_>) -> Result<()> {
    let rows = rows(cx);
    let (dtype, classes) = match labels(cx) {
        Some((dtype, n)) => (dtype, cx.int(i64::try_from(n).unwrap_or(i64::MAX))),
        None => (DType::I64, cx.fresh_dim(1, 1)),
    };
    cx.set_tensor(0, dtype, Some([rows].into_iter().collect()));
    scores(cx, 1, classes);
    Ok(())
}

/// With vectors_per_class the scores of pairs of classes stay apart unless probabilities are asked for.
fn svm_classifier(cx: &mut InferCx<'_>) -> Result<()> {
    let Some((dtype, n)) = labels(cx) else { return classifier(cx) };
    let pairs = list_len(cx, "vectors_per_class").is_some_and(|v| v > 0);
    let probabilities = list_len(cx, "prob_a").is_some_and(|p| p > 0);
    let columns = if pairs && !probabilities && n > 2 { n * (n - 1) / 2 } else { n };
    let rows = rows(cx);
    cx.set_tensor(0, dtype, Some([rows].into_iter().collect()));
    let columns = cx.int(i64::try_from(columns).unwrap_or(i64::MAX));
    scores(cx, 1, columns);
    Ok(())
}

fn regressor(cx: &mut InferCx<'_>, targets: &str) -> Result<()> {
    let targets = cx.attr_int(targets).unwrap_or(1);
    let targets = cx.int(targets);
    scores(cx, 0, targets);
    Ok(())
}

fn tree_ensemble(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let rows = rows(cx);
    let targets = cx.attr_int("n_targets").unwrap_or(1);
    let targets = cx.int(targets);
    cx.set_tensor(0, dtype, Some([rows, targets].into_iter().collect()));
    Ok(())
}

/// Picks columns of the last axis; a vector counts as one row.
fn array_feature_extractor(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let picked = cx.dims(1).map(|y| cx.exprs.mul_all(&y));
    let dims = match (cx.dims(0), picked) {
        (Some(x), Some(picked)) if x.len() == 1 => Some([cx.int(1), picked].into_iter().collect()),
        (Some(mut x), Some(picked)) if !x.is_empty() => {
            let last = x.len() - 1;
            x[last] = picked;
            Some(x)
        }
        (Some(_), Some(_)) => return Err(cx.fail("X is a scalar, at least one dim is needed")),
        _ => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn cast_map(cx: &mut InferCx<'_>) -> Result<()> {
    let dtype = match cx.attr_str("cast_to").unwrap_or("TO_FLOAT") {
        "TO_FLOAT" => DType::F32,
        "TO_STRING" => DType::String,
        "TO_INT64" => DType::I64,
        other => return Err(cx.fail(format!("cast_to is '{other}', not TO_FLOAT, TO_STRING or TO_INT64"))),
    };
    let sparse = cx.attr_str("map_form").unwrap_or("DENSE") == "SPARSE";
    let width = match cx.attr_int("max_map") {
        Some(n) if sparse => cx.int(n),
        _ => cx.fresh_dim(0, 1),
    };
    let one = cx.int(1);
    cx.set_tensor(0, dtype, Some([one, width].into_iter().collect()));
    Ok(())
}

fn category_mapper(cx: &mut InferCx<'_>) -> Result<()> {
    let dtype = match cx.dtype(0) {
        Some(DType::String) => DType::I64,
        Some(_) => DType::String,
        None => return Ok(()),
    };
    let dims = cx.dims(0);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn dict_vectorizer(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(Type::Map(_, value)) = cx.ty(0) else { return Ok(()) };
    let Some(dtype) = value.as_tensor().map(|t| t.dtype) else { return Ok(()) };
    let words = list_len(cx, "string_vocabulary").or_else(|| list_len(cx, "int64_vocabulary"));
    let width = match words {
        Some(n) => cx.int(i64::try_from(n).unwrap_or(i64::MAX)),
        None => cx.fresh_dim(0, 1),
    };
    let one = cx.int(1);
    cx.set_tensor(0, dtype, Some([one, width].into_iter().collect()));
    Ok(())
}

fn feature_vectorizer(cx: &mut InferCx<'_>) -> Result<()> {
    let rows = rows(cx);
    let width = match cx.attr_ints("inputdimensions") {
        Some(list) => cx.int(list.iter().fold(0i64, |sum, &d| sum.saturating_add(d))),
        None => cx.fresh_dim(0, 1),
    };
    cx.set_tensor(0, DType::F32, Some([rows, width].into_iter().collect()));
    Ok(())
}

/// The type of the values says that of the output.
fn label_encoder(cx: &mut InferCx<'_>) -> Result<()> {
    let lists = [("values_strings", DType::String), ("values_int64s", DType::I64), ("values_floats", DType::F32)];
    let by_list = lists.into_iter().find(|(name, _)| list_len(cx, name).is_some_and(|n| n > 0)).map(|(_, d)| d);
    let Some(dtype) = cx.attr_tensor("values_tensor").map(|t| t.dtype).or(by_list) else { return Ok(()) };
    let dims = cx.dims(0);
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

fn one_hot_encoder(cx: &mut InferCx<'_>) -> Result<()> {
    let count = |name| list_len(cx, name).filter(|&n| n > 0);
    let width = match count("cats_int64s").or_else(|| count("cats_strings")) {
        Some(n) => cx.int(i64::try_from(n).unwrap_or(i64::MAX)),
        None => return Err(cx.fail("neither cats_int64s nor cats_strings is there")),
    };
    let dims = cx.dims(0).map(|x| x.into_iter().chain([width]).collect::<Dims>());
    cx.set_tensor(0, DType::F32, dims);
    Ok(())
}

/// One map from label to score for each row.
fn zip_map(cx: &mut InferCx<'_>) -> Result<()> {
    let key = match (list_len(cx, "classlabels_strings"), list_len(cx, "classlabels_int64s")) {
        (Some(n), _) if n > 0 => DType::String,
        _ => DType::I64,
    };
    let score = Type::tensor(DType::F32, []);
    cx.set(0, Type::Sequence(Arc::new(Type::Map(key, Arc::new(score)))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            ("ai.onnx.ml::LinearClassifier", "float[n,4]", "classlabels_ints=[0,1,2]", "int64[n] float[n,3]"),
            ("ai.onnx.ml::TreeEnsembleClassifier", "double[n,4]", "classlabels_int64s=[0,1]", "int64[n] float[n,2]"),
            ("ai.onnx.ml::TreeEnsembleRegressor", "double[n,4]", "n_targets=2", "float[n,2]"),
            ("ai.onnx.ml::TreeEnsemble", "double[n,4]", "n_targets=7", "double[n,7]"),
            ("ai.onnx.ml::LinearRegressor", "float[4]", "", "float[1,1]"),
            ("ai.onnx.ml::Scaler", "int64[n,4]", "", "float[n,4]"),
            ("ai.onnx.ml::ArrayFeatureExtractor", "float[n,9] int64[1,3]", "", "float[n,3]"),
            ("ai.onnx.ml::LabelEncoder", "int64[n]", "values_floats=[0.5,1.5]", "float[n]"),
            ("ai.onnx.ml::OneHotEncoder", "int64[n]", "cats_int64s=[1,2,3]", "float[n,3]"),
            ("ai.onnx.ml::FeatureVectorizer", "float[n,2] float[n,3]", "inputdimensions=[2,3]", "float[n,5]"),
            ("ai.onnx.ml::ZipMap", "float[n,3]", "classlabels_int64s=[0,1,2]", "seq(map(int64,tensor(float)))"),
        ]);
    }
}
