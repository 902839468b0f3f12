//! The classical models of `ai.onnx.ml`.
//!
//! Trees are read by `model`, laid out by `tree` and scored by `ensemble`; `linear` and `svm` are models of other kinds;
//! `scale` has what is done to features.

mod ensemble;
mod input;
mod labels;
mod linear;
mod model;
mod post;
mod scale;
mod svm;
mod tree;

use super::narrow::F16;
use ortolan_ep_kit::{Kernel, Runs, typed};
use scale::{binarizer, extract, imputer, normalizer, scaler, vectorizer};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    ml("ArrayFeatureExtractor", (1, 1), "arrayfeatureextractor", typed!(extract: f32 f64 i64 i32)),
    ml("Binarizer", (1, 1), "binarizer", typed!(binarizer: f32 f64 i64 i32)),
    ml("FeatureVectorizer", (1, 1), "featurevectorizer", typed!(vectorizer: f32 f64 i64 i32)),
    ml("Imputer", (1, 1), "imputer", typed!(imputer: f32 f64 i64 i32)),
    ml("LinearClassifier", (1, 1), "linearclassifier", typed!(linear_classify: f32 f64 i64 i32)),
    ml("LinearRegressor", (1, 1), "linearregressor", typed!(linear_regress: f32 f64 i64 i32)),
    ml("Normalizer", (1, 1), "normalizer", typed!(normalizer: f32 f64 i64 i32)),
    ml("SVMClassifier", (1, 1), "svmclassifier", typed!(svm_classify: f32 f64 i64 i32)),
    ml("SVMRegressor", (1, 1), "svmregressor", typed!(svm_regress: f32 f64 i64 i32)),
    ml("Scaler", (1, 1), "scaler", typed!(scaler: f32 f64 i64 i32)),
    ml("TreeEnsemble", (5, 5), "treeensemble", typed!(tree_regress: f32 f64 F16)),
    ml("TreeEnsembleClassifier", (1, 3), "treeensembleclassifier", typed!(tree_classify: f32 f64 i64 i32)),
    ml("TreeEnsembleRegressor", (1, 3), "treeensembleregressor", typed!(tree_regress: f32 f64 i64 i32)),
];

use ensemble::{classify as tree_classify, regress as tree_regress};
use linear::{classify as linear_classify, regress as linear_regress};
use svm::{classify as svm_classify, regress as svm_regress};

/// A row of the domain.
const fn ml(op: &'static str, since: (u16, u16), name: &'static str, runs: Runs) -> Kernel {
    Kernel::new(op, since, name, runs).domain("ai.onnx.ml")
}

#[cfg(test)]
mod tests;
