//! Normalizations against their definitions in f64.

use crate::ops::narrow::{Bf16, F16};
use crate::ops::testing::{Case, on_all};
use ortolan_ep_kit::testing::{OpTest, Tensor, assert_close};
use ortolan_ep_kit::{DType, RejectCode};

/// Numbers with an offset, so that means matter.
fn numbers(dims: &[i64], seed: u64) -> Tensor {
    let x = Tensor::random(dims, seed).to_vec::<f32>();
    Tensor::from_fn(dims, |k| 1.5 * x[k] + 0.7)
}

fn wide(t: &Tensor) -> Vec<f64> {
    match t.dtype {
        DType::F32 => t.to_vec::<f32>().into_iter().map(f64::from).collect(),
        DType::F64 => t.to_vec::<f64>(),
        DType::F16 => t.to_vec::<F16>().into_iter().map(|x| x.wide().into()).collect(),
        _ => t.to_vec::<Bf16>().into_iter().map(|x| x.wide().into()).collect(),
    }
}

/// A tensor in another float type.
fn cast(t: &Tensor, to: DType) -> Tensor {
    let x = wide(t);
    match to {
        DType::F32 => Tensor::from_fn(&t.dims, |k| x[k] as f32),
        DType::F64 => Tensor::from_fn(&t.dims, |k| x[k]),
        DType::F16 => Tensor::from_fn(&t.dims, |k| F16::round(x[k] as f32)),
        _ => Tensor::from_fn(&t.dims, |k| Bf16::round(x[k] as f32)),
    }
}

/// Compares in f64; the tolerance is that of the type.
#[track_caller]
fn close(got: &Tensor, want: &[f64]) {
    let tolerance = match got.dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-5, // sums of up to 1000 terms in f32
        DType::F16 => 1e-3,
        _ => 8e-3,
    };
    let (got, want) = (cast(got, DType::F64), Tensor::new(&got.dims, want));
    assert_close(&got, &want, tolerance);
}

fn moments(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    (mean, x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n)
}

const EPSILON: f32 = 1e-3;

fn inverse(variance: f64) -> f64 {
    (variance + f64::from(EPSILON)).sqrt().recip()
}

/// Runs a check on all instruction sets for f32, and for the other types.
fn on_types(op: &str, version: u32, check: impl Fn(DType, OpTest)) {
    on_all(op, version, |case| check(DType::F32, case));
    for dtype in [DType::F64, DType::F16, DType::Bf16] {
        check(dtype, Case::new(op, version));
    }
}

#[test]
fn layers_over_every_axis() {
    for dims in [&[5i64][..], &[1, 1], &[3, 17], &[2, 3, 5], &[7, 100], &[0, 4], &[2, 1000], &[200, 130]] {
        for axis in 0..dims.len() {
            for centred in [true, false] {
                let (op, version) = if centred { ("LayerNormalization", 17) } else { ("RMSNormalization", 23) };
                let (x, last) = (numbers(dims, 1), &dims[axis..]);
                let (scale, bias) = (numbers(last, 2), numbers(last, 3));
                on_types(op, version, |dtype, case| {
                    let (x, scale, bias) = (cast(&x, dtype), cast(&scale, dtype), cast(&bias, dtype));
                    let (a, s, b) = (wide(&x), wide(&scale), wide(&bias));
                    let mut want = Vec::new();
                    for row in a.chunks(s.len().max(1)) {
                        let (mean, variance) = match centred {
                            true => moments(row),
                            false => (0.0, row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64),
                        };
                        let value = |(k, x): (usize, &f64)| (x - mean) * inverse(variance) * s[k];
                        let bias = |k: usize| if centred { b[k] } else { 0.0 };
                        want.extend(row.iter().enumerate().map(|(k, x)| value((k, x)) + bias(k)));
                    }
                    let case = case.int("axis", axis as i64 - dims.len() as i64).float("epsilon", EPSILON);
                    let case = case.int("stash_type", 1).input(&x).input(&scale);
                    let case = if centred { case.constant(&bias) } else { case };
                    close(&case.output(dtype, dims).run()[0], &want);
                });
            }
        }
    }
}

#[test]
fn layers_give_their_statistics() {
    let (x, scale) = (numbers(&[3, 20], 1), numbers(&[20], 2));
    let rows: Vec<_> = wide(&x).chunks(20).map(moments).collect();
    let y = Case::new("LayerNormalization", 17)
        .float("epsilon", EPSILON)
        .int("axis", -1)
        .int("stash_type", 1)
        .input(&x)
        .input(&scale)
        .output(DType::F32, &[3, 20])
        .output(DType::F32, &[3, 1])
        .output(DType::Bf16, &[3, 1]);
    let (code, text) = y.rejection();
    assert_eq!((code, &*text), (RejectCode::Dtype, "LayerNormalization: outputs 1 and 2 differ in type: f32 and bf16"));
    let y = Case::new("SimplifiedLayerNormalization", 1)
        .float("epsilon", EPSILON)
        .int("axis", -1)
        .input(&x)
        .input(&scale)
        .output(DType::F32, &[3, 20])
        .output(DType::F32, &[3, 1])
        .run();
    let squares = |row: &[f64]| inverse(row.iter().map(|x| x * x).sum::<f64>() / 20.0);
    close(&y[1], &wide(&x).chunks(20).map(squares).collect::<Vec<_>>());
    let y = Case::new("LayerNormalization", 17)
        .float("epsilon", EPSILON)
        .int("axis", -1)
        .int("stash_type", 1)
        .input(&x)
        .input(&scale)
        .output(DType::F32, &[3, 20])
        .output(DType::F32, &[3, 1])
        .output(DType::F32, &[3, 1])
        .run();
    close(&y[1], &rows.iter().map(|m| m.0).collect::<Vec<_>>());
    close(&y[2], &rows.iter().map(|m| inverse(m.1)).collect::<Vec<_>>());
}

#[test]
fn scales_broadcast() {
    let x = numbers(&[4, 3, 5], 1);
    for dims in [&[1i64][..], &[5], &[3, 1], &[4, 1, 5], &[]] {
        let (scale, bias) = (numbers(dims, 2), numbers(&[5], 3));
        on_types("LayerNormalization", 17, |dtype, case| {
            let (x, scale, bias) = (cast(&x, dtype), cast(&scale, dtype), cast(&bias, dtype));
            let (a, s, b) = (wide(&x), wide(&scale), wide(&bias));
            let want: Vec<f64> = (0..60)
                .map(|k| {
                    let (mean, variance) = moments(&a[k / 15 * 15..][..15]);
                    let at = crate::ops::testing::offset(&[4, 3, 5], dims, k);
                    (a[k] - mean) * inverse(variance) * s[at] + b[k % 5]
                })
                .collect();
            let case = case.int("axis", 1).float("epsilon", EPSILON).int("stash_type", 1);
            close(&case.input(&x).input(&scale).input(&bias).output(dtype, &[4, 3, 5]).run()[0], &want);
        });
    }
}

/// N, C, elements of a plane.
const IMAGES: &[[i64; 3]] = &[[1, 1, 1], [3, 6, 1], [2, 6, 35], [1, 2, 1000], [0, 2, 3], [2, 4, 0], [5, 64, 49]];

#[test]
fn groups_and_instances() {
    for dims in IMAGES {
        let &[_, c, plane] = dims;
        for groups in [1, 2, c].into_iter().filter(|g| c % g == 0) {
            let ops: &[(&str, u32)] = match groups {
                g if g == c => &[("GroupNormalization", 21), ("InstanceNormalization", 22)],
                _ => &[("GroupNormalization", 21)],
            };
            let (x, scale, bias) = (numbers(dims, 1), numbers(&[c], 2), numbers(&[c], 3));
            for &(op, version) in ops {
                on_types(op, version, |dtype, case| {
                    let (x, scale, bias) = (cast(&x, dtype), cast(&scale, dtype), cast(&bias, dtype));
                    let (a, s, b) = (wide(&x), wide(&scale), wide(&bias));
                    let mut want = Vec::new();
                    for row in a.chunks(((c / groups * plane) as usize).max(1)) {
                        let (mean, variance) = moments(row);
                        for x in row {
                            let at = want.len() / plane as usize % c as usize;
                            want.push((x - mean) * inverse(variance) * s[at] + b[at]);
                        }
                    }
                    let case = case.float("epsilon", EPSILON).int("stash_type", 1).int("num_groups", groups);
                    close(&case.input(&x).input(&scale).constant(&bias).output(dtype, dims).run()[0], &want);
                });
            }
        }
    }
}

fn batch_case(case: OpTest, training: bool, inputs: &[&Tensor]) -> OpTest {
    let case = case.float("epsilon", EPSILON).float("momentum", 0.75).int("training_mode", training.into());
    inputs.iter().fold(case, |case, t| case.input(t))
}

#[test]
fn batches_with_given_moments() {
    for dims in IMAGES {
        let &[_, c, plane] = dims;
        let (x, scale, bias, mean) = (numbers(dims, 1), numbers(&[c], 2), numbers(&[c], 3), numbers(&[c], 4));
        let variance = Tensor::from_fn(&[c], |k| 0.3 + 0.1 * k as f32);
        on_types("BatchNormalization", 15, |dtype, case| {
            let [x, scale, bias, mean, variance] = [&x, &scale, &bias, &mean, &variance].map(|t| cast(t, dtype));
            let [a, s, b, m, v] = [&x, &scale, &bias, &mean, &variance].map(wide);
            let want: Vec<f64> = (0..a.len())
                .map(|k| {
                    let c = k / plane as usize % c as usize;
                    (a[k] - m[c]) * inverse(v[c]) * s[c] + b[c]
                })
                .collect();
            let case = batch_case(case, false, &[&x, &scale, &bias, &mean, &variance]);
            close(&case.output(dtype, dims).run()[0], &want);
        });
    }
}

#[test]
fn batches_with_their_own_moments() {
    let dims = [3, 5, 33];
    let (x, scale, bias, mean) = (numbers(&dims, 1), numbers(&[5], 2), numbers(&[5], 3), numbers(&[5], 4));
    let variance = Tensor::from_fn(&[5], |k| 0.3 + 0.1 * k as f32);
    on_types("BatchNormalization", 15, |dtype, case| {
        let [x, scale, bias, mean, variance] = [&x, &scale, &bias, &mean, &variance].map(|t| cast(t, dtype));
        let [a, s, b, m, v] = [&x, &scale, &bias, &mean, &variance].map(wide);
        let of = |c: usize| moments(&(0..a.len()).filter(|k| k / 33 % 5 == c).map(|k| a[k]).collect::<Vec<_>>());
        let now: Vec<_> = (0..5).map(of).collect();
        let value = |(k, x): (usize, &f64)| {
            let c = k / 33 % 5;
            (x - now[c].0) * inverse(now[c].1) * s[c] + b[c]
        };
        let case = batch_case(case, true, &[&x, &scale, &bias, &mean, &variance]);
        let y = case.output(dtype, &dims).output(dtype, &[5]).output(dtype, &[5]).run();
        close(&y[0], &a.iter().enumerate().map(value).collect::<Vec<_>>());
        close(&y[1], &(0..5).map(|c| 0.75 * m[c] + 0.25 * now[c].0).collect::<Vec<_>>());
        close(&y[2], &(0..5).map(|c| 0.75 * v[c] + 0.25 * now[c].1).collect::<Vec<_>>());
    });
}

#[test]
fn local_responses() {
    for dims in [[1i64, 5, 13], [2, 1, 40], [2, 8, 1], [0, 3, 4]] {
        for size in [1i64, 2, 3, 5, 99] {
            let x = numbers(&dims, 1);
            on_types("LRN", 13, |dtype, case| {
                let x = cast(&x, dtype);
                let a = wide(&x);
                let (c, plane) = (dims[1], dims[2]);
                let value = |k: usize| {
                    let (at, j) = (k as i64 / plane, k as i64 % plane);
                    let near = |o: i64| (at % c - (size - 1) / 2..=at % c + size / 2).contains(&o);
                    let of = |o: i64| a[((at / c * c + o) * plane + j) as usize];
                    let sum: f64 = (0..c).filter(|&o| near(o)).map(|o| of(o) * of(o)).sum();
                    a[k] / (1.5 + 0.25 / size as f64 * sum).powf(0.75)
                };
                let case = case.int("size", size).float("alpha", 0.25).float("beta", 0.75).float("bias", 1.5);
                close(&case.input(&x).output(dtype, &dims).run()[0], &(0..a.len()).map(value).collect::<Vec<_>>());
            });
        }
    }
}

#[test]
fn norms_along_every_axis() {
    let dims = [3i64, 4, 5];
    let x = Tensor::from_fn(&dims, |k| if k % 20 == 0 || k / 20 == 1 { 0.0 } else { (k as f32).sin() });
    for (axis, p) in (0..3).flat_map(|axis| [(axis, 1), (axis, 2)]) {
        on_types("LpNormalization", 22, |dtype, case| {
            let x = cast(&x, dtype);
            let a = wide(&x);
            let inner = dims[axis + 1..].iter().product::<i64>() as usize;
            let len = dims[axis] as usize;
            let norm = |k: usize| {
                let first = k / (len * inner) * len * inner + k % inner;
                (0..len).map(|i| a[first + i * inner].abs().powi(p)).sum::<f64>().powf(1.0 / f64::from(p))
            };
            let value = |k: usize| if norm(k) == 0.0 { 0.0 } else { a[k] / norm(k) };
            let case = case.int("axis", axis as i64).int("p", p.into()).input(&x).output(dtype, &dims);
            close(&case.run()[0], &(0..a.len()).map(value).collect::<Vec<_>>());
        });
    }
}

#[test]
fn means_over_any_axes() {
    let dims = [2i64, 3, 4, 5];
    let x = numbers(&dims, 1);
    for axes in [&[0i64, 2, 3][..], &[1], &[-1, 0], &[0, 1, 2, 3]] {
        on_types("MeanVarianceNormalization", 13, |dtype, case| {
            let x = cast(&x, dtype);
            let a = wide(&x);
            let index = |k: usize| [k / 60, k / 20 % 3, k / 5 % 4, k % 5];
            let over = |axis: usize| axes.iter().any(|&a| (a + 4) % 4 == axis as i64);
            let same = |j: usize, k: usize| (0..4).all(|axis| over(axis) || index(j)[axis] == index(k)[axis]);
            let value = |k: usize| {
                let (mean, variance) = moments(&(0..120).filter(|&j| same(j, k)).map(|j| a[j]).collect::<Vec<_>>());
                (a[k] - mean) / (variance.sqrt() + 1e-9)
            };
            let case = case.ints("axes", axes).input(&x).output(dtype, &dims);
            close(&case.run()[0], &(0..120).map(value).collect::<Vec<_>>());
        });
    }
}

#[test]
fn refused_with_a_sentence() {
    let (x, c) = (numbers(&[2, 6, 3], 1), numbers(&[6], 2));
    let row = |op: &str, version| Case::new(op, version).float("epsilon", 1e-5).input(&x).input(&c).input(&c);
    let out = |case: OpTest| case.output(DType::F32, &[2, 6, 3]);
    let cases = [
        (
            out(row("LayerNormalization", 17).int("axis", 3)),
            RejectCode::Attribute,
            "LayerNormalization: attribute axis = 3 is no axis of a tensor of rank 3",
        ),
        (
            out(row("LayerNormalization", 17).int("axis", 1).int("stash_type", 11)),
            RejectCode::Attribute,
            "LayerNormalization: attribute stash_type = 11 asks for f64, kernels compute in f32",
        ),
        (
            out(row("GroupNormalization", 21).int("num_groups", 0)),
            RejectCode::Attribute,
            "GroupNormalization: attribute num_groups = 0 is not positive",
        ),
        (
            out(Case::new("LpNormalization", 22).int("axis", 0).int("p", 3).input(&x)),
            RejectCode::Attribute,
            "LpNormalization: attribute p = 3, the standard has 1 and 2",
        ),
        (
            out(Case::new("LRN", 13).int("size", 0).input(&x)),
            RejectCode::Attribute,
            "LRN: attribute size = 0 is not positive",
        ),
        (
            out(Case::new("MeanVarianceNormalization", 13).ints("axes", &[3]).input(&x)),
            RejectCode::Attribute,
            "MeanVarianceNormalization: attribute axes has 3, no axis of a tensor of rank 3",
        ),
    ];
    for (case, code, text) in cases {
        assert_eq!(case.rejection(), (code, text.to_owned()));
    }
    let error = out(row("GroupNormalization", 21).int("num_groups", 4)).try_run().unwrap_err();
    assert!(error.contains("6 channels cannot be split into num_groups = 4"), "{error}");
}
