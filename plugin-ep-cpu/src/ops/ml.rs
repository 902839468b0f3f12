//! The classical models of `ai.onnx.ml`.
//!
//! Trees are read by `model`, laid out by `tree` and scored by `ensemble`; `linear` and `svm` are models of other kinds;
//! `scale` has what is done to features, `encode` what stands for categories, `maps` what is made of maps and into them.

mod encode;
mod ensemble;
mod input;
mod labels;
mod linear;
mod maps;
mod model;
mod post;
mod scale;
mod svm;
mod tree;

use super::narrow::F16;
use encode::{encode, one_hot};
use maps::{cast_map, vectorize, zip};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{DType, Kernel, Runs, Slot, any, typed};
use scale::{binarizer, extract, imputer, normalizer, scaler, vectorizer};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    ml("ArrayFeatureExtractor", (1, 1), "arrayfeatureextractor", typed!(extract: f32 f64 i64 i32)),
    ml("Binarizer", (1, 1), "binarizer", typed!(binarizer: f32 f64 i64 i32)),
    ml("CastMap", (1, 1), "castmap", any!(cast_map)).types(ANY).items(),
    ml("CategoryMapper", (1, 1), "categorymapper", any!(encode)).types(&[("T1", WORDS)]).items(),
    ml("DictVectorizer", (1, 1), "dictvectorizer", any!(vectorize)).types(ANY).items(),
    ml("FeatureVectorizer", (1, 1), "featurevectorizer", typed!(vectorizer: f32 f64 i64 i32)),
    ml("Imputer", (1, 1), "imputer", typed!(imputer: f32 f64 i64 i32)),
    ml("LabelEncoder", (2, 4), "labelencoder", any!(encode)).types(&[("T1", KEYS), ("T2", KEYS)]).at(ENDS).items(),
    ml("LinearClassifier", (1, 1), "linearclassifier", typed!(linear_classify: f32 f64 i64 i32)),
    ml("LinearClassifier", (1, 1), "linearclassifier", typed!(linear_classify: f32 f64 i64 i32)).items(),
    ml("LinearRegressor", (1, 1), "linearregressor", typed!(linear_regress: f32 f64 i64 i32)),
    ml("Normalizer", (1, 1), "normalizer", typed!(normalizer: f32 f64 i64 i32)),
    ml("OneHotEncoder", (1, 1), "onehotencoder", any!(one_hot)).types(&[("T", KEYS)]).items(),
    ml("SVMClassifier", (1, 1), "svmclassifier", typed!(svm_classify: f32 f64 i64 i32)),
    ml("SVMClassifier", (1, 1), "svmclassifier", typed!(svm_classify: f32 f64 i64 i32)).items(),
    ml("SVMRegressor", (1, 1), "svmregressor", typed!(svm_regress: f32 f64 i64 i32)),
    ml("Scaler", (1, 1), "scaler", typed!(scaler: f32 f64 i64 i32)),
    ml("TreeEnsemble", (5, 5), "treeensemble", typed!(tree_regress: f32 f64 F16)),
    ml("TreeEnsembleClassifier", (1, 3), "treeensembleclassifier", typed!(tree_classify: f32 f64 i64 i32)),
    ml("TreeEnsembleClassifier", (1, 3), "treeensembleclassifier", typed!(tree_classify: f32 f64 i64 i32)).items(),
    ml("TreeEnsembleRegressor", (1, 3), "treeensembleregressor", typed!(tree_regress: f32 f64 i64 i32)),
    ml("ZipMap", (1, 1), "zipmap", any!(zip)).types(ANY).items(),
];

/// What the kind of a value says already.
const ANY: &[(&str, u64)] = &[];
const WORDS: u64 = set(&[DType::Str, DType::I64]);
const KEYS: u64 = set(&[DType::Str, DType::I16, DType::I32, DType::I64, DType::F32, DType::F64]);
const ENDS: &[Slot] = &[Slot::In(0), Slot::Out(0)];

use ensemble::{classify as tree_classify, regress as tree_regress};
use linear::{classify as linear_classify, regress as linear_regress};
use svm::{classify as svm_classify, regress as svm_regress};

/// A row of the domain.
const fn ml(op: &'static str, since: (u16, u16), name: &'static str, runs: Runs) -> Kernel {
    Kernel::new(op, since, name, runs).domain("ai.onnx.ml")
}

#[cfg(test)]
mod tests;
