//! Quantization against its definition, at odd sizes and in all types.

use super::codes::{Values, put};
use crate::ops::narrow::{Bf16, F16};
use crate::ops::testing::{Case, offset, on_all};
use crate::ops::{Cpu, FAMILIES};
use crate::simd::Isa;
use ortolan_ep_kit::testing::{Dim, Model, OpTest, Session, Tensor, assert_close};
use ortolan_ep_kit::{DType, Kit, RejectCode};

fn bytes(dims: &[i64], dtype: DType, seed: u64) -> Tensor {
    let x = Tensor::random(dims, seed).to_vec::<f32>();
    Tensor { dtype, dims: dims.to_vec(), bytes: x.iter().map(|x| (x * 1e6) as i32 as u8).collect() }
}

/// A tensor of any type that `Values` knows, from numbers.
fn coded(dtype: DType, dims: &[i64], number: impl Fn(usize) -> f64) -> Tensor {
    let count = dims.iter().product::<i64>() as usize;
    let mut bytes = vec![0; dtype.bytes(count).unwrap()];
    for k in 0..count {
        let x = number(k);
        match dtype {
            DType::F32 => bytes[4 * k..][..4].copy_from_slice(&(x as f32).to_ne_bytes()),
            DType::I32 => bytes[4 * k..][..4].copy_from_slice(&(x as i32).to_ne_bytes()),
            DType::F16 => bytes[2 * k..][..2].copy_from_slice(&F16::round(x as f32).0.to_ne_bytes()),
            DType::Bf16 => bytes[2 * k..][..2].copy_from_slice(&Bf16::round(x as f32).0.to_ne_bytes()),
            DType::F8E8M0 => bytes[k] = 127,
            _ => put(dtype, &mut bytes, k, x, true),
        }
    }
    Tensor { dtype, dims: dims.to_vec(), bytes }
}

fn numbers(t: &Tensor) -> Vec<f64> {
    let count = t.dims.iter().product::<i64>() as usize;
    let values = Values { dtype: t.dtype, data: &t.bytes };
    (0..count).map(|k| values.get(k)).collect()
}

/// Dimensions of x; of the scale; axis; block.
type Shape = (&'static [i64], &'static [i64], i64, i64);
const SHAPES: &[Shape] = &[
    (&[7], &[], 1, 0),
    (&[3, 5], &[1], 1, 0),
    (&[5], &[5], 1, 0),
    (&[3, 5], &[5], 1, 0),
    (&[2, 3, 35], &[3], 1, 0),
    (&[2, 3, 5], &[2], -3, 0),
    (&[2, 7], &[2, 3], 1, 3),
    (&[5, 34], &[3, 34], 0, 2),
    (&[2, 6, 3], &[2, 2, 3], 1, 3),
    (&[0, 3], &[3], 1, 0),
    (&[200, 333], &[], 1, 0),
];

/// The scale's element for one of x.
fn scale_at(&(x, scale, axis, block): &Shape, k: usize) -> usize {
    let axis = if x.len() == 1 { 0 } else { (axis + x.len() as i64) as usize % x.len() };
    let inner: usize = x[axis + 1..].iter().product::<i64>() as usize;
    let index = k / inner % x[axis] as usize;
    match (scale.iter().product::<i64>(), block) {
        (1, 0) => 0,
        (_, 0) => index,
        _ => {
            // The index along the axis divided by the block, all other indices as they are.
            let outer = k / inner / x[axis] as usize;
            (outer * scale[axis] as usize + index / block as usize) * inner + k % inner
        }
    }
}

fn quantize_case(case: OpTest, shape: &Shape, inputs: [&Tensor; 3], out: DType) -> OpTest {
    let case = case.int("axis", shape.2).int("block_size", shape.3).int("saturate", 1).int("precision", 0);
    inputs.iter().fold(case, |case, t| case.input(t)).output(out, shape.0)
}

#[test]
fn numbers_become_codes() {
    for shape in SHAPES {
        let scales: usize = shape.1.iter().product::<i64>() as usize;
        for (out, types) in [
            (DType::U8, [DType::F32, DType::F32]),
            (DType::I8, [DType::F32, DType::F32]),
            (DType::U16, [DType::F32, DType::F32]),
            (DType::I16, [DType::F32, DType::F32]),
            (DType::I4, [DType::F32, DType::F32]),
            (DType::U4, [DType::F32, DType::F32]),
            (DType::U2, [DType::F32, DType::F32]),
            (DType::I2, [DType::F32, DType::F32]),
            (DType::U8, [DType::I32, DType::F32]),
            (DType::I8, [DType::F32, DType::F8E8M0]),
        ] {
            let x = coded(types[0], shape.0, |k| ((k * 37 % 101) as f64 - 50.0) * 0.75);
            let scale = coded(types[1], shape.1, |k| 0.25 * (k + 1) as f64);
            let zero = coded(out, shape.1, |k| (k % 3) as f64);
            assert_eq!(numbers(&zero).len(), scales);
            let (xs, ss, zs) = (numbers(&x), numbers(&scale), numbers(&zero));
            let want = coded(out, shape.0, |k| {
                let at = scale_at(shape, k);
                (xs[k] / ss[at]).round_ties_even() + zs[at]
            });
            on_all("QuantizeLinear", 28, |case| {
                assert_eq!(
                    quantize_case(case, shape, [&x, &scale, &zero], out).run(),
                    std::slice::from_ref(&want),
                    "{shape:?} {out}"
                );
            });
        }
    }
}

#[test]
fn codes_become_numbers() {
    for shape in SHAPES {
        for (from, types) in [
            (DType::U8, [DType::F32, DType::F32]),
            (DType::I8, [DType::F32, DType::F32]),
            (DType::U16, [DType::F32, DType::F32]),
            (DType::I16, [DType::F32, DType::F32]),
            (DType::I32, [DType::F32, DType::F32]),
            (DType::I4, [DType::F32, DType::F32]),
            (DType::U2, [DType::F32, DType::F32]),
            (DType::F4E2M1, [DType::F32, DType::F32]),
            (DType::F8E4M3Fn, [DType::F16, DType::F16]),
            (DType::F8E5M2, [DType::F32, DType::Bf16]),
        ] {
            let x = coded(from, shape.0, |k| (k * 37 % 101) as f64 - 50.0);
            let scale = coded(types[0], shape.1, |k| 0.25 * (k + 1) as f64);
            let zero = coded(from, shape.1, |k| (k % 2) as f64);
            let (xs, ss, zs) = (numbers(&x), numbers(&scale), numbers(&zero));
            let want = coded(types[1], shape.0, |k| {
                let at = scale_at(shape, k);
                (xs[k] - zs[at]) * ss[at]
            });
            on_all("DequantizeLinear", 28, |case| {
                let got = quantize_case(case, shape, [&x, &scale, &zero], types[1]).run();
                assert_eq!(got, std::slice::from_ref(&want), "{shape:?} {from}");
            });
        }
    }
}

#[test]
fn codes_are_held_at_their_limits() {
    let x = Tensor::new(&[9], &[-1e9f32, -300.0, -0.5, 0.5, 1.5, 2.5, 300.0, f32::INFINITY, f32::NAN]);
    let (scale, zero) = (Tensor::new(&[], &[1.0f32]), Tensor::new(&[], &[10u8]));
    let want = Tensor::new(&[9], &[0u8, 0, 10, 10, 12, 12, 255, 255, 0]);
    on_all("QuantizeLinear", 28, |case| {
        let got = quantize_case(case, &(&[9], &[], 1, 0), [&x, &scale, &zero], DType::U8).run();
        assert_eq!(got, std::slice::from_ref(&want));
    });
    // Without saturation what is too large is NaN, or infinite where the format has that.
    for (dtype, saturate, want) in
        [(DType::F8E4M3Fn, 1, 0x7eu8), (DType::F8E4M3Fn, 0, 0x7f), (DType::F8E5M2, 1, 0x7b), (DType::F8E5M2, 0, 0x7c)]
    {
        let case =
            Case::new("QuantizeLinear", 28).int("axis", 1).int("saturate", saturate).int("output_dtype", dtype as i64);
        let y = case.input(&Tensor::new(&[1], &[1e9f32])).input(&scale).output(dtype, &[1]).run();
        assert_eq!(y[0].bytes, [want], "{dtype}");
    }
}

#[test]
fn scales_are_found_in_the_data() {
    let cases: &[(Vec<f32>, f32, u8)] = &[
        (vec![0.0, 2.0, -3.0, -2.5, 1.34, 0.5], 5.0 / 255.0, 153),
        (vec![-1.0, -2.1, -1.3, -2.5, -3.34, -4.0], 4.0 / 255.0, 255),
        (vec![1.0, 2.1, 1.3, 2.5, 3.34, 4.0], 4.0 / 255.0, 0),
        (vec![0.0; 5], 1.0, 0),
        (vec![], 1.0, 0),
        ((0..50_001).map(|k| (k as f32).sin()).collect(), 0.0, 0),
    ];
    for (x, scale, zero) in cases {
        let n = x.len() as i64;
        let (low, high) = x.iter().fold((0.0f32, 0.0f32), |(l, h), &x| (l.min(x), h.max(x)));
        let want_scale = if high > low { (high - low) / 255.0 } else { 1.0 };
        let want_zero = (-low / want_scale).round_ties_even();
        assert!(*scale == 0.0 || (*scale, f32::from(*zero)) == (want_scale, want_zero));
        let codes = x.iter().map(|x| ((x / want_scale).round_ties_even() + want_zero).clamp(0.0, 255.0) as u8);
        let want = [
            Tensor::new(&[n], &codes.collect::<Vec<_>>()),
            Tensor::new(&[], &[want_scale]),
            Tensor::new(&[], &[want_zero as u8]),
        ];
        on_all("DynamicQuantizeLinear", 11, |case| {
            let case = case.input(&Tensor::new(&[n], x)).output(DType::U8, &[n]);
            assert_eq!(case.output(DType::F32, &[]).output(DType::U8, &[]).run(), want);
        });
    }
}

/// A, B and the output.
const PRODUCTS: &[(&[i64], &[i64], &[i64])] = &[
    (&[3, 5], &[5, 7], &[3, 7]),
    (&[5], &[5, 7], &[7]),
    (&[3, 5], &[5], &[3]),
    (&[2, 3, 5], &[5, 70], &[2, 3, 70]),
    (&[2, 1, 3, 5], &[4, 5, 6], &[2, 4, 3, 6]),
    (&[0, 5], &[5, 7], &[0, 7]),
    (&[3, 0], &[0, 7], &[3, 7]),
    (&[130, 90], &[90, 140], &[130, 140]),
];

/// Sums of products, with zero points per row and column.
fn sums(a: &Tensor, b: &Tensor, out: &[i64], a_zero: impl Fn(usize) -> i64, b_zero: impl Fn(usize) -> i64) -> Vec<i64> {
    let (x, y) = (numbers(a), numbers(b));
    let k = *a.dims.last().unwrap() as usize;
    let n = if b.dims.len() > 1 { *b.dims.last().unwrap() as usize } else { 1 };
    let m = if a.dims.len() > 1 { a.dims[a.dims.len() - 2] as usize } else { 1 };
    let batch = &out[..out.len() - usize::from(a.dims.len() > 1) - usize::from(b.dims.len() > 1)];
    let of = |dims: &[i64]| dims[..dims.len().saturating_sub(2)].to_vec();
    let (a_batch, b_batch) = (of(&a.dims), of(&b.dims));
    (0..out.iter().product::<i64>() as usize)
        .map(|at| {
            let (index, i, j) = (at / (m * n), at / n % m, at % n);
            let (a_at, b_at) = (offset(batch, &a_batch, index) * m * k, offset(batch, &b_batch, index) * k * n);
            (0..k)
                .map(|p| {
                    let a = x[a_at + i * k + p] as i64 - a_zero(i);
                    a * (y[b_at + p * n + j] as i64 - b_zero(j))
                })
                .sum()
        })
        .collect()
}

fn with(case: OpTest, constant: bool, t: &Tensor) -> OpTest {
    if constant { case.constant(t) } else { case.input(t) }
}

#[test]
fn integer_products_are_exact() {
    for &(a, b, out) in PRODUCTS {
        let (m, n) = (if a.len() > 1 { a[a.len() - 2] } else { 1 }, if b.len() > 1 { b[b.len() - 1] } else { 1 });
        for (a_type, b_type) in [(DType::U8, DType::I8), (DType::U8, DType::U8), (DType::I8, DType::I8)] {
            let (x, y) = (bytes(a, a_type, 1), bytes(b, b_type, 2));
            for (zeros, each) in [(false, false), (true, false), (true, true)] {
                let dims = |count: i64| if each { vec![count] } else { vec![] };
                let (a_zero, b_zero) = (bytes(&dims(m), a_type, 3), bytes(&dims(n), b_type, 4));
                let (za, zb) = (numbers(&a_zero), numbers(&b_zero));
                let of = |z: &[f64], k: usize| if zeros { z[if each { k } else { 0 }] as i64 } else { 0 };
                let exact = sums(&x, &y, out, |i| of(&za, i), |j| of(&zb, j));
                let want = Tensor::from_fn(out, |k| exact[k] as i32);
                for constant in [false, true] {
                    on_all("MatMulInteger", 10, |case| {
                        let mut case = with(case.input(&x), constant, &y);
                        if zeros {
                            case = case.input(&a_zero).input(&b_zero);
                        }
                        assert_eq!(
                            case.output(DType::I32, out).run(),
                            std::slice::from_ref(&want),
                            "{a:?} {b:?} {constant}"
                        );
                    });
                }
            }
        }
    }
}

/// MatMulInteger, Cast, Mul and Add as exporters write them.
#[test]
fn integer_products_take_over_what_makes_them_floats() {
    for (isa, zeros) in Isa::available().flat_map(|isa| [(isa, 0), (isa, 1), (isa, 2)]) {
        for factor_dims in [&[][..], &[1], &[7]] {
            let mut model = Model::new();
            let (x, w) = (bytes(&[3, 5], DType::U8, 1), bytes(&[5, 7], DType::I8, 2));
            let factor = Tensor::from_fn(factor_dims, |k| 0.5 + k as f32);
            let bias = Tensor::from_fn(&[7], |k| k as f32);
            let inputs = [&x, &factor].map(|t| model.input_value(t));
            let constants = [&w, &bias].map(|t| model.constant(t));
            let dims = [Dim::Fixed(3), Dim::Fixed(7)];
            let sum = model.value("sum", DType::I32, &dims);
            let [float, scaled, out] = ["float", "scaled", "out"].map(|name| model.value(name, DType::F32, &dims));
            let points = [Tensor::new(&[], &[9u8]), Tensor::new(&[], &[-3i8])].map(|t| model.constant(&t));
            let operands = [inputs[0], constants[0], points[0], points[1]];
            model.call("MatMulInteger", 10, &operands[..2 + zeros], &[sum]);
            let cast = model.call("Cast", 13, &[sum], &[float]);
            model.ints(cast, "to", &[1], false);
            model.call("Mul", 14, &[float, inputs[1]], &[scaled]);
            model.call("Add", 14, &[constants[1], scaled], &[out]);
            model.mark_output(out);
            let session = Session::new(Kit::new(FAMILIES, isa.name(), Cpu { isa }), model, 2);
            let mut part = session.compile().unwrap();
            let got = part.run(&[x.clone(), factor.clone()]).unwrap();
            let point = |k: usize| if k < zeros { [9, -3][k] } else { 0 };
            let exact = sums(&x, &w, &[3, 7], |_| point(0), |_| point(1));
            let (f, b) = (numbers(&factor), numbers(&bias));
            let want = |k: usize| exact[k] as f32 * f[if f.len() == 1 { 0 } else { k % 7 }] as f32 + b[k % 7] as f32;
            assert_close(&got[0], &Tensor::from_fn(&[3, 7], want), 1e-6);
        }
    }
}

#[test]
fn products_of_codes() {
    for &(a, b, out) in PRODUCTS {
        let (m, n) = (if a.len() > 1 { a[a.len() - 2] } else { 1 }, if b.len() > 1 { b[b.len() - 1] } else { 1 });
        for (types, scale_type) in [
            ([DType::U8, DType::I8, DType::U8], DType::F32),
            ([DType::I8, DType::I8, DType::I8], DType::F16),
            ([DType::U8, DType::U8, DType::I8], DType::Bf16),
        ] {
            for each in [false, true] {
                let dims = |count: i64| if each { vec![count] } else { vec![] };
                let (x, y) = (bytes(a, types[0], 1), bytes(b, types[1], 2));
                let a_scale = coded(scale_type, &dims(m), |k| 0.0078125 * (k % 3 + 1) as f64);
                let b_scale = coded(scale_type, &dims(n), |k| 0.015625 * (k % 5 + 1) as f64);
                let y_scale = coded(scale_type, &[], |_| 0.25);
                let (a_zero, b_zero) = (bytes(&dims(m), types[0], 3), bytes(&dims(n), types[1], 4));
                let y_zero = coded(types[2], &[], |_| 11.0);
                let [za, zb, sa, sb] = [&a_zero, &b_zero, &a_scale, &b_scale].map(numbers);
                let at = |k: usize| if each { k } else { 0 };
                let exact = sums(&x, &y, out, |i| za[at(i)] as i64, |j| zb[at(j)] as i64);
                // Scales are powers of two times small numbers: products are exact, and so is rounding.
                let want = coded(types[2], out, |k| {
                    let (i, j) = (k / n as usize % m as usize, k % n as usize);
                    (exact[k] as f64 * sa[at(i)] * sb[at(j)] / 0.25).round_ties_even() + 11.0
                });
                for constant in [false, true] {
                    on_all("QLinearMatMul", 21, |case| {
                        let case = with(case.input(&x).input(&a_scale).input(&a_zero), constant, &y);
                        let case = case.input(&b_scale).input(&b_zero).input(&y_scale).input(&y_zero);
                        assert_eq!(case.output(types[2], out).run(), std::slice::from_ref(&want), "{a:?} {b:?}");
                    });
                }
            }
        }
    }
}

#[test]
fn refused_with_a_sentence() {
    let (x, scale) = (Tensor::random(&[2, 6], 1), Tensor::random(&[6], 2));
    let quantize = || Case::new("QuantizeLinear", 28).int("axis", 1);
    let cases = [
        (
            quantize().int("block_size", -1).input(&x).input(&scale).output(DType::U8, &[2, 6]),
            RejectCode::Attribute,
            "QuantizeLinear: attribute block_size = -1 is negative",
        ),
        (
            quantize().int("precision", 7).input(&x).input(&scale).output(DType::U8, &[2, 6]),
            RejectCode::Attribute,
            "QuantizeLinear: attribute precision = 7 is neither f32, f16 nor bf16",
        ),
        (
            quantize().input(&x).input(&scale).input(&bytes(&[6], DType::I8, 1)).output(DType::U8, &[2, 6]),
            RejectCode::Dtype,
            "QuantizeLinear: the zero point is i8, not u8 as the codes are",
        ),
        (
            quantize().input(&x).input(&x).output(DType::U8, &[2, 6]),
            RejectCode::Rank,
            "QuantizeLinear: the scale has rank 2 without a block_size",
        ),
    ];
    for (case, code, text) in cases {
        assert_eq!(case.rejection(), (code, text.to_owned()));
    }
    let faults = [
        (quantize().input(&x).input(&Tensor::random(&[5], 1)), "the scale has 5 elements, needed are 6"),
        (
            quantize().int("block_size", 4).input(&x).input(&Tensor::random(&[2, 3], 1)),
            "the scale has dimensions [2, 3], blocks of 4 along axis 1 of [2, 6] need 2 there",
        ),
        (
            Case::new("QuantizeLinear", 28).int("axis", 2).input(&x).input(&scale),
            "axis 2 is no axis of x, which has dimensions [2, 6]",
        ),
    ];
    for (case, text) in faults {
        let error = case.output(DType::U8, &[2, 6]).try_run().unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}
