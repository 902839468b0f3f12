//! Classical models, with expected values of the standard's definitions.

use crate::ops::testing::{Case, on_all};
use ortolan_ep_abi::raw;
use ortolan_ep_kit::testing::{OpTest, Tensor, assert_close};
use ortolan_ep_kit::{DType, Item, Plain, RejectCode, Texts};
use std::sync::Arc;

const ML: &str = "ai.onnx.ml";

fn x() -> Tensor {
    Tensor::new(&[3, 2], &[-4.0f32, 2.0, 0.0, 0.0, 3.0, 1.0])
}

/// The same numbers in another type.
fn cast(t: &Tensor, to: DType) -> Tensor {
    let x = t.to_vec::<f32>();
    match to {
        DType::F64 => Tensor::from_fn(&t.dims, |k| f64::from(x[k])),
        DType::I64 => Tensor::from_fn(&t.dims, |k| x[k] as i64),
        DType::I32 => Tensor::from_fn(&t.dims, |k| x[k] as i32),
        _ => t.clone(),
    }
}

const TYPES: [DType; 4] = [DType::F32, DType::F64, DType::I64, DType::I32];

fn node(op: &str, version: u32) -> OpTest {
    Case::new(op, version).domain(ML)
}

/// Checks the one output of a node over all types of X.
fn check(op: &str, with: impl Fn(OpTest) -> OpTest, dims: &[i64], want: &[f32]) {
    for dtype in TYPES {
        on_all(op, 1, |case| {
            let y = with(case.domain(ML)).input(&cast(&x(), dtype)).output(DType::F32, dims).run();
            assert_close(&y[0], &Tensor::new(dims, want), 1e-4);
        });
    }
}

#[test]
fn features_are_scaled() {
    let third = 1.0 / 3.0;
    let norm = |name: &'static str| move |case: OpTest| case.text("norm", name);
    check("Normalizer", norm("MAX"), &[3, 2], &[-2.0, 1.0, 0.0, 0.0, 1.0, third]);
    check("Normalizer", norm("L1"), &[3, 2], &[-2.0 * third, third, 0.0, 0.0, 0.75, 0.25]);
    check("Normalizer", norm("L2"), &[3, 2], &[-0.894_427, 0.447_214, 0.0, 0.0, 0.948_683, 0.316_228]);
    let each = |case: OpTest| case.floats("offset", &[1.0, 2.0]).floats("scale", &[2.0, 3.0]);
    check("Scaler", each, &[3, 2], &[-10.0, 0.0, -2.0, -6.0, 4.0, -3.0]);
    let one = |case: OpTest| case.floats("offset", &[1.0]).floats("scale", &[2.0]);
    check("Scaler", one, &[3, 2], &[-10.0, 2.0, -2.0, -2.0, 4.0, 0.0]);
}

#[test]
fn features_are_replaced_and_picked() {
    for dtype in TYPES {
        let case = |op: &str| node(op, 1).input(&cast(&x(), dtype));
        let y = case("Binarizer").float("threshold", 0.5).output(dtype, &[3, 2]).run();
        assert_eq!(y[0], cast(&Tensor::new(&[3, 2], &[0.0f32, 1.0, 0.0, 0.0, 1.0, 1.0]), dtype));
        let y = case("Imputer")
            .float("replaced_value_float", 0.0)
            .int("replaced_value_int64", 0)
            .floats("imputed_value_floats", &[7.0, 8.0])
            .ints("imputed_value_int64s", &[7, 8])
            .output(dtype, &[3, 2])
            .run();
        assert_eq!(y[0], cast(&Tensor::new(&[3, 2], &[-4.0f32, 2.0, 7.0, 8.0, 3.0, 1.0]), dtype));
        let which = Tensor::new(&[3], &[1i64, 0, 1]);
        let y = case("ArrayFeatureExtractor").input(&which).output(dtype, &[3, 3]).run();
        assert_eq!(y[0], cast(&Tensor::new(&[3, 3], &[2.0f32, -4.0, 2.0, 0.0, 0.0, 0.0, 1.0, 3.0, 1.0]), dtype));
        let column = cast(&Tensor::new(&[3], &[5.0f32, 6.0, 7.0]), dtype);
        let y =
            case("FeatureVectorizer").input(&column).ints("inputdimensions", &[3, 1]).output(DType::F32, &[3, 4]).run();
        assert_eq!(y[0].to_vec::<f32>(), [-4.0, 2.0, 0.0, 5.0, 0.0, 0.0, 0.0, 6.0, 3.0, 1.0, 0.0, 7.0]);
    }
}

#[test]
fn missing_values_are_replaced() {
    let x = Tensor::new(&[1, 2], &[f32::NAN, 1.0]);
    let case = node("Imputer", 1).float("replaced_value_float", f32::NAN).int("replaced_value_int64", 0);
    let y = case.floats("imputed_value_floats", &[9.0]).input(&x).output(DType::F32, &[1, 2]).run();
    assert_eq!(y[0].to_vec::<f32>(), [9.0, 1.0]);
}

/// Labels and scores of a classifier.
fn classes(op: &str, with: impl Fn(OpTest) -> OpTest, labels: &[i64], columns: i64, scores: &[f32]) {
    for dtype in TYPES {
        let case = with(node(op, 1)).input(&cast(&x(), dtype));
        let y = case.output(DType::I64, &[3]).output(DType::F32, &[3, columns]).run();
        assert_eq!(y[0].to_vec::<i64>(), labels, "{op} {dtype}");
        assert_close(&y[1], &Tensor::new(&[3, columns], scores), 2e-4);
    }
}

#[test]
fn linear_models() {
    let two = |post: &'static str| {
        move |case: OpTest| {
            let case = case.floats("coefficients", &[0.1, 0.2, -0.3, 0.1]).floats("intercepts", &[0.05, 0.2]);
            case.ints("classlabels_ints", &[5, 7]).int("targets", 2).text("post_transform", post)
        }
    };
    classes("LinearClassifier", two("NONE"), &[7, 7, 5], 2, &[0.05, 1.6, 0.05, 0.2, 0.55, -0.6]);
    classes("LinearClassifier", two("SOFTMAX"), &[7, 7, 5], 2, &[0.1751, 0.8249, 0.4626, 0.5374, 0.7595, 0.2405]);
    classes("LinearClassifier", two("LOGISTIC"), &[7, 7, 5], 2, &[0.5125, 0.832, 0.5125, 0.5498, 0.6341, 0.3543]);
    check("LinearRegressor", two("NONE"), &[3, 2], &[0.05, 1.6, 0.05, 0.2, 0.55, -0.6]);
    let one = |post: &'static str| {
        move |case: OpTest| {
            let case = case.floats("coefficients", &[0.1, 0.2]).floats("intercepts", &[0.05]);
            case.ints("classlabels_ints", &[5, 7]).text("post_transform", post)
        }
    };
    classes("LinearClassifier", one("NONE"), &[7, 7, 7], 2, &[0.95, 0.05, 0.95, 0.05, 0.45, 0.55]);
    classes("LinearClassifier", one("LOGISTIC"), &[7, 7, 7], 2, &[0.4875, 0.5125, 0.4875, 0.5125, 0.3659, 0.6341]);
}

const SUPPORTS: [f32; 8] = [1.0, 2.0, 0.0, 1.0, -1.0, 0.5, 2.0, -1.0];

#[test]
fn support_vectors() {
    let machine = |kind: &'static str| {
        move |case: OpTest| {
            let case = case.text("kernel_type", kind).floats("kernel_params", &[0.3, 0.1, 2.0]);
            let case = case.floats("support_vectors", &SUPPORTS).text("post_transform", "NONE");
            case.floats("coefficients", &[0.5, -0.2, 0.3, 0.1]).floats("rho", &[0.25])
        }
    };
    let regressor = |kind| move |case| machine(kind)(case).int("n_supports", 4).int("one_class", 0);
    check("SVMRegressor", regressor("LINEAR"), &[3, 1], &[0.35, 0.25, 2.3]);
    check("SVMRegressor", regressor("RBF"), &[3, 1], &[0.2593, 0.4419, 0.3727]);
    check("SVMRegressor", regressor("POLY"), &[3, 1], &[1.766, 0.257, 1.8808]);
    check("SVMRegressor", regressor("SIGMOID"), &[3, 1], &[0.3561, 0.3198, 0.5555]);
    let pair = |case| machine("RBF")(case).ints("vectors_per_class", &[2, 2]).ints("classlabels_ints", &[5, 7]);
    classes("SVMClassifier", pair, &[5, 5, 5], 2, &[-0.2593, 0.2593, -0.4419, 0.4419, -0.3727, 0.3727]);
    let likely = |case| pair(case).floats("prob_a", &[-1.1]).floats("prob_b", &[0.2]);
    classes("SVMClassifier", likely, &[5, 5, 5], 2, &[0.5213, 0.4787, 0.5709, 0.4291, 0.5523, 0.4477]);
    let three = |case: OpTest| {
        let case =
            case.text("kernel_type", "RBF").floats("kernel_params", &[0.3, 0.1, 2.0]).text("post_transform", "NONE");
        let case = case.floats("support_vectors", &SUPPORTS).ints("vectors_per_class", &[2, 1, 1]);
        let case = case.floats("coefficients", &[0.5, -0.2, 0.3, 0.1, 0.2, 0.4, -0.5, 0.7]);
        case.floats("rho", &[0.25, -0.1, 0.05]).ints("classlabels_ints", &[5, 7, 9])
    };
    let scores = [0.2593, -0.0975, 0.0329, 0.4196, 0.2633, -0.1375, 0.3504, -0.0062, 0.2024];
    classes("SVMClassifier", three, &[5, 5, 5], 3, &scores);
    let likely = |case| three(case).floats("prob_a", &[-1.1, -0.9, -1.3]).floats("prob_b", &[0.2, 0.1, -0.1]);
    let scores = [0.3219, 0.3407, 0.3374, 0.378, 0.2964, 0.3256, 0.3457, 0.3492, 0.3051];
    classes("SVMClassifier", likely, &[5, 5, 5], 3, &scores);
}

/// One test of feature 0 against 0.5, in the older encoding.
fn stump(case: OpTest, what: &str, weights: &[(i64, i64, f32)]) -> OpTest {
    let (leaves, targets): (Vec<i64>, Vec<i64>) = weights.iter().map(|w| (w.0, w.1)).unzip();
    let values: Vec<f32> = weights.iter().map(|w| w.2).collect();
    let case =
        case.ints("nodes_treeids", &[0, 0, 0]).ints("nodes_nodeids", &[0, 1, 2]).ints("nodes_featureids", &[0, 0, 0]);
    let case = case.texts("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]).floats("nodes_values", &[0.5, 0.0, 0.0]);
    let case = case.ints("nodes_truenodeids", &[1, 0, 0]).ints("nodes_falsenodeids", &[2, 0, 0]);
    let case = case.ints(&format!("{what}_treeids"), &vec![0; weights.len()]).ints(&format!("{what}_nodeids"), &leaves);
    case.ints(&format!("{what}_ids"), &targets).floats(&format!("{what}_weights"), &values)
}

#[test]
fn trees_of_the_older_encoding() {
    let labels =
        |case: OpTest, post: &'static str| case.ints("classlabels_int64s", &[5, 7]).text("post_transform", post);
    let sure = |case| labels(stump(case, "class", &[(1, 0, 0.2), (2, 0, 0.8)]), "NONE");
    classes("TreeEnsembleClassifier", sure, &[5, 5, 7], 2, &[0.8, 0.2, 0.8, 0.2, 0.2, 0.8]);
    let signed = |post| move |case| labels(stump(case, "class", &[(1, 0, -0.3), (2, 0, 0.8)]), post);
    classes("TreeEnsembleClassifier", signed("NONE"), &[5, 5, 7], 2, &[0.3, -0.3, 0.3, -0.3, -0.8, 0.8]);
    classes("TreeEnsembleClassifier", signed("LOGISTIC"), &[5, 5, 7], 2, &[0.5744, 0.4256, 0.5744, 0.4256, 0.31, 0.69]);
    let both = |case| labels(stump(case, "class", &[(1, 0, 0.7), (1, 1, 0.3), (2, 0, 0.2), (2, 1, 0.8)]), "NONE");
    classes("TreeEnsembleClassifier", both, &[5, 5, 7], 2, &[0.7, 0.3, 0.7, 0.3, 0.2, 0.8]);
    let regress = |case: OpTest| {
        let case = stump(case, "target", &[(1, 0, 1.5), (2, 0, -2.0), (2, 1, 4.0)]).int("n_targets", 2);
        case.floats("base_values", &[10.0, 20.0]).text("aggregate_function", "SUM").text("post_transform", "NONE")
    };
    check("TreeEnsembleRegressor", regress, &[3, 2], &[11.5, 20.0, 11.5, 20.0, 8.0, 24.0]);
}

/// Many trees of one test each: enough for several blocks, and rows for several groups.
fn ensemble(case: OpTest, trees: i64, aggregate: i64) -> OpTest {
    let count = trees as usize;
    let all = |f: &dyn Fn(i64) -> i64| (0..trees).map(f).collect::<Vec<_>>();
    let floats = |n: usize, f: &dyn Fn(usize) -> f64| Tensor::from_fn(&[n as i64], f);
    case.tensor("nodes_splits", &floats(count, &|t| t as f64 * 0.1 - 3.0))
        .tensor("nodes_modes", &Tensor::new(&[trees], &vec![0u8; count]))
        .ints("nodes_featureids", &all(&|t| t % 2))
        .ints("nodes_truenodeids", &all(&|t| 2 * t))
        .ints("nodes_falsenodeids", &all(&|t| 2 * t + 1))
        .ints("nodes_trueleafs", &vec![1; count])
        .ints("nodes_falseleafs", &vec![1; count])
        .ints("leaf_targetids", &(0..2 * trees).map(|k| k % 2).collect::<Vec<_>>())
        .tensor("leaf_weights", &floats(2 * count, &|k| k as f64 * 0.25 - 9.0))
        .ints("tree_roots", &all(&|t| t))
        .int("n_targets", 2)
        .int("aggregate_function", aggregate)
        .int("post_transform", 0)
}

#[test]
fn ensembles_of_any_size() {
    for (trees, rows) in [(1, 1), (7, 3), (64, 8), (150, 1), (150, 29), (3, 0)] {
        let values: Vec<f64> = (0..2 * rows).map(|k| ((k * 37) % 101) as f64 * 0.13 - 6.0).collect();
        for aggregate in 0..4 {
            let mut want = Vec::new();
            for row in values.chunks(2) {
                let mut scores: [Vec<f64>; 2] = Default::default();
                for t in 0..trees {
                    let leaf = 2 * t + usize::from(row[t % 2] > t as f64 * 0.1 - 3.0);
                    scores[leaf % 2].push(leaf as f64 * 0.25 - 9.0);
                }
                want.extend(scores.iter().map(|s| match aggregate {
                    _ if s.is_empty() => 0.0,
                    0 => s.iter().sum::<f64>() / trees as f64,
                    1 => s.iter().sum(),
                    2 => s.iter().copied().fold(f64::INFINITY, f64::min),
                    _ => s.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                }));
            }
            let dims = [rows as i64, 2];
            on_all("TreeEnsemble", 5, |case| {
                let case = ensemble(case.domain(ML), trees as i64, aggregate);
                let y = case.input(&Tensor::new(&dims, &values)).output(DType::F64, &dims).run();
                assert_close(&y[0], &Tensor::new(&dims, &want), 1e-12);
            });
        }
    }
}

#[test]
fn refused_with_a_sentence() {
    let stumps = |weights: &[(i64, i64, f32)]| {
        let case = stump(node("TreeEnsembleRegressor", 3), "target", weights).int("n_targets", 1);
        case.text("aggregate_function", "SUM").text("post_transform", "NONE").input(&x()).output(DType::F32, &[3, 1])
    };
    let normal = node("Normalizer", 1).text("norm", "L3").input(&x()).output(DType::F32, &[3, 2]);
    let cases = [
        (stumps(&[(1, 3, 1.0)]), "TreeEnsembleRegressor: attribute target_ids has 3 at element 0, there are 1 targets"),
        (stumps(&[(0, 0, 1.0)]), "TreeEnsembleRegressor: attribute target_nodeids: node 0 of tree 0 is no leaf"),
        (normal, "Normalizer: attribute norm = 'L3' is not MAX, L1 or L2"),
    ];
    for (case, text) in cases {
        assert_eq!(case.rejection(), (RejectCode::Attribute, text.to_owned()));
    }
    let narrow = ensemble(node("TreeEnsemble", 5), 2, 1).input(&Tensor::new(&[1, 1], &[0.0f32]));
    let error = narrow.output(DType::F32, &[1, 2]).try_run().unwrap_err();
    assert!(error.contains("the trees ask for feature 1, X has 1 columns"), "{error}");
    let far =
        node("ArrayFeatureExtractor", 1).input(&x()).input(&Tensor::new(&[1], &[2i64])).output(DType::F32, &[3, 1]);
    let error = far.try_run().unwrap_err();
    assert!(error.contains("Y is 2 at element 0, X has 2 columns"), "{error}");
}

fn texts(dims: &[i64], texts: &[&str]) -> Item {
    Texts::new(dims, texts).into()
}

fn ints(dims: &[i64], numbers: &[i64]) -> Item {
    Plain::new(dims, numbers).into()
}

fn floats(dims: &[i64], numbers: &[f32]) -> Item {
    Plain::new(dims, numbers).into()
}

fn map(keys: Item, values: Item) -> Item {
    Item::Map { keys: Arc::new(keys), values: Arc::new(values) }
}

#[test]
fn rows_become_maps() {
    let x = floats(&[2, 2], &[0.25, 0.75, 1.0, 0.0]);
    let numbers = node("ZipMap", 1).ints("classlabels_int64s", &[10, 20]).item(x.clone());
    let row = |keys: Item, values: [f32; 2]| Arc::new(map(keys, floats(&[2], &values)));
    let want = |keys: &Item| Item::Sequence(vec![row(keys.clone(), [0.25, 0.75]), row(keys.clone(), [1.0, 0.0])]);
    assert_eq!(numbers.whole_output(raw::VALUE_SEQUENCE).run_items(), [want(&ints(&[2], &[10, 20]))]);
    let words = node("ZipMap", 1).texts("classlabels_strings", &["a", "b"]).item(x.clone());
    assert_eq!(words.whole_output(raw::VALUE_SEQUENCE).run_items(), [want(&texts(&[2], &["a", "b"]))]);
    let case = node("ZipMap", 1).ints("classlabels_int64s", &[1, 2, 3]).item(x.clone());
    let error = case.whole_output(raw::VALUE_SEQUENCE).try_items().unwrap_err();
    assert!(error.contains("3 classes have names, but rows have 2 values"), "{error}");
    let (code, _) = node("ZipMap", 1).item(x).whole_output(raw::VALUE_SEQUENCE).rejection();
    assert_eq!(code, RejectCode::Attribute);
}

#[test]
fn maps_become_rows() {
    let words = map(texts(&[2], &["b", "x"]), floats(&[2], &[2.0, 9.0]));
    let case = node("DictVectorizer", 1).texts("string_vocabulary", &["a", "b", "c"]).item(words);
    assert_eq!(case.output(DType::F32, &[1, 3]).run_items(), [floats(&[1, 3], &[0.0, 2.0, 0.0])]);
    let numbers = map(ints(&[2], &[5, 3]), ints(&[2], &[50, 30]));
    let case = node("DictVectorizer", 1).ints("int64_vocabulary", &[3, 4, 5]).item(numbers);
    assert_eq!(case.output(DType::I64, &[1, 3]).run_items(), [ints(&[1, 3], &[30, 0, 50])]);

    let numbers = map(ints(&[2], &[3, 1]), floats(&[2], &[2.5, 1.5]));
    let case = |form: &str| node("CastMap", 1).text("map_form", form).int("max_map", 4).item(numbers.clone());
    assert_eq!(case("DENSE").late_output(DType::F32, 2).run_items(), [floats(&[1, 2], &[1.5, 2.5])]);
    assert_eq!(case("SPARSE").late_output(DType::F32, 2).run_items(), [floats(&[1, 4], &[0.0, 1.5, 0.0, 2.5])]);
    let case = case("DENSE").text("cast_to", "TO_STRING").late_output(DType::Str, 2);
    assert_eq!(case.run_items(), [texts(&[1, 2], &["1.5", "2.5"])]);
    let words = map(ints(&[2], &[0, 1]), texts(&[2], &["3", "4.0"]));
    let case = node("CastMap", 1).text("cast_to", "TO_INT64").item(words.clone()).late_output(DType::I64, 2);
    assert_eq!(case.run_items(), [ints(&[1, 2], &[3, 4])]);
    let case = node("CastMap", 1).text("map_form", "SPARSE").int("max_map", 1).item(words).late_output(DType::F32, 2);
    let error = case.try_items().unwrap_err();
    assert!(error.contains("key 1 is no position among 1"), "{error}");
    let huge = node("CastMap", 1).text("map_form", "SPARSE").int("max_map", i64::MAX).item(numbers);
    let error = huge.late_output(DType::F32, 2).try_items().unwrap_err();
    assert!(error.contains("positions are more than"), "{error}");
    let uneven = map(ints(&[2], &[0, 1]), floats(&[1], &[3.0]));
    let error = node("CastMap", 1).item(uneven).late_output(DType::F32, 2).try_items().unwrap_err();
    assert!(error.contains("the map has 2 keys and 1 values"), "{error}");
}

#[test]
fn categories_are_encoded() {
    let words = texts(&[2, 2], &["a", "b", "x", "a"]);
    let case = node("LabelEncoder", 4).texts("keys_strings", &["a", "b"]).ints("values_int64s", &[7, 8]);
    let y = case.int("default_int64", 42).item(words.clone()).output(DType::I64, &[2, 2]).run_items();
    assert_eq!(y, [ints(&[2, 2], &[7, 8, 42, 7])]);
    let case =
        node("LabelEncoder", 2).floats("keys_floats", &[0.0, f32::NAN]).texts("values_strings", &["zero", "nan"]);
    let case = case.text("default_string", "?").item(floats(&[4], &[-0.0, f32::NAN, 1.0, 0.0]));
    let want = texts(&[4], &["zero", "nan", "?", "zero"]);
    assert_eq!(case.output(DType::Str, &[4]).run_items(), [want]);
    let tensors = node("LabelEncoder", 4)
        .tensor("keys_tensor", &Tensor::new(&[2], &[1i64, 2]))
        .tensor("values_tensor", &Tensor::new(&[2], &[1.5f64, 2.5]))
        .tensor("default_tensor", &Tensor::new(&[1], &[-1.0f64]));
    let y = tensors.item(ints(&[3], &[2, 1, 0])).output(DType::F64, &[3]).run_items();
    assert_eq!(y, [Plain::new(&[3], &[2.5f64, 1.5, -1.0]).into()]);
    let case =
        node("LabelEncoder", 4).texts("keys_strings", &["a", "b"]).ints("values_int64s", &[7]).item(words.clone());
    let (code, text) = case.output(DType::I64, &[2, 2]).rejection();
    assert_eq!((code, &*text), (RejectCode::Attribute, "LabelEncoder: there are 2 keys and 1 values"));

    let none = Tensor::new::<i64>(&[0], &[]);
    let case = node("LabelEncoder", 4).tensor("keys_tensor", &none).tensor("values_tensor", &none);
    let y = case.item(ints(&[1], &[5])).output(DType::I64, &[1]).run_items();
    assert_eq!(y, [ints(&[1], &[-1])]);

    let mapper = || node("CategoryMapper", 1).texts("cats_strings", &["a", "b"]).ints("cats_int64s", &[5, 6]);
    let y = mapper().int("default_int64", -3).item(words.clone()).output(DType::I64, &[2, 2]).run_items();
    assert_eq!(y, [ints(&[2, 2], &[5, 6, -3, 5])]);
    let y = mapper().text("default_string", "?").item(ints(&[3], &[6, 9, 5])).output(DType::Str, &[3]).run_items();
    assert_eq!(y, [texts(&[3], &["b", "?", "a"])]);

    let case = node("OneHotEncoder", 1).texts("cats_strings", &["a", "b"]).item(words.clone());
    let want = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0];
    assert_eq!(case.output(DType::F32, &[2, 2, 2]).run_items(), [floats(&[2, 2, 2], &want)]);
    let case = node("OneHotEncoder", 1).ints("cats_int64s", &[3, 1]).item(floats(&[2], &[1.0, 3.0]));
    assert_eq!(case.output(DType::F32, &[2, 2]).run_items(), [floats(&[2, 2], &[0.0, 1.0, 1.0, 0.0])]);
    let case = node("OneHotEncoder", 1).texts("cats_strings", &["a", "b"]).int("zeros", 0).item(words);
    let error = case.output(DType::F32, &[2, 2, 2]).try_items().unwrap_err();
    assert!(error.contains("element 2 is none of the 2 categories"), "{error}");
}

#[test]
fn classes_may_be_texts() {
    let case = node("LinearClassifier", 1).texts("classlabels_strings", &["low", "high"]);
    let case =
        case.floats("coefficients", &[-1.0, 0.0, 1.0, 0.0]).floats("intercepts", &[0.0, 0.0]).int("multi_class", 0);
    let y = case.item(floats(&[2, 2], &[-4.0, 2.0, 3.0, 1.0])).output(DType::Str, &[2]).output(DType::F32, &[2, 2]);
    assert_eq!(y.run_items(), [texts(&[2], &["low", "high"]), floats(&[2, 2], &[4.0, -4.0, -3.0, 3.0])]);
}
