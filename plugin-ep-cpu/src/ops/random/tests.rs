//! Random operators: their distributions, their seeds, and dropout against masks of the standard's own code.

use crate::ops::narrow::F16;
use crate::ops::testing::Case;
use ortolan_ep_kit::testing::{OpTest, Tensor, assert_close};
use ortolan_ep_kit::{Bool, DType, RejectCode};

fn mean_and_variance(x: &[f32]) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = x.iter().sum::<f32>() / n;
    (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / n)
}

fn normal(like: bool, seed: Option<f32>, width: usize) -> Tensor {
    let case = if like {
        Case::new("RandomNormalLike", 22).input(&Tensor::new(&[40_000], &vec![0i64; 40_000]))
    } else {
        Case::new("RandomNormal", 22)
    };
    let case = case.float("mean", 2.0).float("scale", 0.5).width(width);
    let case = seed.into_iter().fold(case, |case, seed| case.float("seed", seed));
    case.output(DType::F32, &[40_000]).run().remove(0)
}

#[test]
fn distributions() {
    for like in [false, true] {
        let (mean, variance) = mean_and_variance(&normal(like, Some(1.5), 2).to_vec::<f32>());
        assert!((mean - 2.0).abs() < 0.02 && (variance - 0.25).abs() < 0.02, "{mean} {variance}");
    }
    let case = Case::new("RandomUniform", 22).float("low", -1.0).float("high", 3.0).float("seed", 1.0);
    let y = case.output(DType::F32, &[40_000]).run()[0].to_vec::<f32>();
    let (mean, variance) = mean_and_variance(&y);
    assert!(y.iter().all(|x| (-1.0..=3.0).contains(x)));
    assert!((mean - 1.0).abs() < 0.05 && (variance - 16.0 / 12.0).abs() < 0.05, "{mean} {variance}");
}

#[test]
fn seeds_repeat_for_any_number_of_threads() {
    assert_eq!(normal(false, Some(3.0), 1), normal(true, Some(3.0), 5));
    assert_ne!(normal(false, Some(3.0), 1), normal(false, Some(4.0), 1));
    assert_ne!(normal(false, None, 1), normal(false, None, 1));
}

/// A scale of 0 takes all chance away, which is how a voice model is made to repeat itself.
#[test]
fn no_deviation_is_the_mean() {
    let case = Case::new("RandomNormalLike", 22).float("mean", 0.25).float("scale", 0.0);
    let y = case.input(&Tensor::random(&[3, 5], 1)).output(DType::F16, &[3, 5]).run();
    assert!(y[0].to_vec::<F16>().iter().all(|x| x.wide() == 0.25));
}

#[test]
fn draws_follow_their_probabilities() {
    let p = Tensor::from_fn(&[3, 10_000], |k| [0.0f32, 0.25, 1.0][k / 10_000]);
    for dtype in [DType::Bool, DType::U8, DType::I64, DType::F32, DType::F16] {
        let y = Case::new("Bernoulli", 22).float("seed", 1.0).input(&p).output(dtype, &[3, 10_000]).run();
        let width = dtype.bits() / 8;
        let ones = |row: usize| {
            let row = &y[0].bytes[row * 10_000 * width..][..10_000 * width];
            row.chunks(width).filter(|x| x.iter().any(|&b| b != 0)).count()
        };
        assert!(ones(0) == 0 && ones(2) == 10_000 && (2300..2700).contains(&ones(1)), "{dtype}: {}", ones(1));
    }
    let logits = Tensor::new(&[2, 3], &[0.0f32, f32::NEG_INFINITY, 1.0, 5.0, 5.0, f32::NEG_INFINITY]);
    for dtype in [DType::I32, DType::I64] {
        let y = Case::new("Multinomial", 22).float("seed", 2.0).input(&logits).output(dtype, &[2, 10_000]).run();
        let draws: Vec<i64> = match dtype {
            DType::I32 => y[0].to_vec::<i32>().into_iter().map(i64::from).collect(),
            _ => y[0].to_vec::<i64>(),
        };
        let count = |row: usize, class: i64| draws[row * 10_000..][..10_000].iter().filter(|&&d| d == class).count();
        assert_eq!((count(0, 1), count(1, 2)), (0, 0));
        assert!((2500..2900).contains(&count(0, 0)) && (4800..5200).contains(&count(1, 0)), "{dtype}");
        assert_eq!(count(0, 0) + count(0, 2), 10_000);
    }
}

/// `numpy.random.seed(3); numpy.random.uniform(0, 1, 12) >= 0.6`
const MASK: [u8; 12] = [0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0];

fn drop_case(x: &Tensor, ratio: f32, training: bool) -> OpTest {
    let (ratio, mode) = (Tensor::new(&[], &[ratio]), Tensor::new(&[], &[Bool::from(training)]));
    Case::new("Dropout", 22).int("seed", 3).input(x).input(&ratio).input(&mode)
}

#[test]
fn dropout_drops_what_the_standard_drops() {
    let x = Tensor::from_fn(&[3, 4], |k| k as f32 + 1.0);
    let keep = MASK.map(|k| k == 1);
    let want = Tensor::from_fn(&[3, 4], |k| if keep[k] { (k as f32 + 1.0) * 2.5 } else { 0.0 });
    let mask = Tensor::from_fn(&[3, 4], |k| Bool::from(keep[k]));
    let y = drop_case(&x, 0.6, true).output(DType::F32, &[3, 4]).output(DType::Bool, &[3, 4]).run();
    assert_close(&y[0], &want, 1e-6);
    assert_eq!(y[1], mask);
    let all = Tensor::from_fn(&[3, 4], |_| Bool::from(true));
    for (ratio, training) in [(0.6, false), (0.0, true)] {
        let y = drop_case(&x, ratio, training).output(DType::F32, &[3, 4]).output(DType::Bool, &[3, 4]).run();
        assert_eq!(y, [x.clone(), all.clone()]);
    }
    let y = Case::new("Dropout", 22).input(&x).output(DType::F32, &[3, 4]).run();
    assert_eq!(y, std::slice::from_ref(&x));
    let error = drop_case(&x, 1.0, true).output(DType::F32, &[3, 4]).try_run().unwrap_err();
    assert!(error.contains("ratio is 1, needed is a number from 0 to below 1"), "{error}");
}

#[test]
fn refused_with_a_sentence() {
    let case = Case::new("RandomUniform", 22).float("low", f32::NAN).float("high", 1.0).output(DType::F32, &[3]);
    let text = "RandomUniform: attributes low = NaN and high = 1 are not finite";
    assert_eq!(case.rejection(), (RejectCode::Attribute, text.to_owned()));
    let case = Case::new("Dropout", 22).int("seed", -1).input(&Tensor::random(&[3], 1)).output(DType::F32, &[3]);
    let text = "Dropout: attribute seed = -1 is not between 0 and 4294967295";
    assert_eq!(case.rejection(), (RejectCode::Attribute, text.to_owned()));
}
