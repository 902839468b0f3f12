//! Products against their definition, at sizes that leave remainders, packed and plain.

use crate::ops::narrow::F16;
use crate::ops::testing::{Case, on_all};
use crate::ops::{Cpu, FAMILIES};
use crate::simd::Isa;
use ortolan_ep_kit::testing::{Dim, Model, OpTest, Session, Tensor, assert_close};
use ortolan_ep_kit::{DType, Kit, RejectCode};

fn doubles(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f32>().into_iter().map(f64::from).collect()
}

/// A product of batches, from the definition.
fn naive(a: &Tensor, b: &Tensor, dims: &[i64]) -> Tensor {
    let (x, y) = (doubles(a), doubles(b));
    let a_dims = if a.dims.len() == 1 { vec![1, a.dims[0]] } else { a.dims.clone() };
    let b_dims = if b.dims.len() == 1 { vec![b.dims[0], 1] } else { b.dims.clone() };
    let (m, k) = (a_dims[a_dims.len() - 2] as usize, a_dims[a_dims.len() - 1] as usize);
    let n = b_dims[b_dims.len() - 1] as usize;
    let drop = usize::from(a.dims.len() > 1) + usize::from(b.dims.len() > 1);
    let batch = &dims[..dims.len() - drop];
    let at = |dims: &[i64], i: usize| crate::ops::testing::offset(batch, &dims[..dims.len() - 2], i);
    Tensor::from_fn(dims, |cell| {
        let (i, row, col) = (cell / (m * n), cell / n % m, cell % n);
        let (p, q) = (at(&a_dims, i) * m * k, at(&b_dims, i) * k * n);
        (0..k).map(|s| x[p + row * k + s] * y[q + s * n + col]).sum::<f64>() as f32
    })
}

/// A, B, Y.
const SHAPES: &[(&[i64], &[i64], &[i64])] = &[
    (&[1, 1], &[1, 1], &[1, 1]),
    (&[3, 5], &[5, 7], &[3, 7]),
    (&[17, 33], &[33, 65], &[17, 65]),
    (&[128, 70], &[70, 130], &[128, 130]),
    (&[5], &[5], &[]),
    (&[5], &[5, 7], &[7]),
    (&[3, 5], &[5], &[3]),
    (&[2, 3, 5], &[5], &[2, 3]),
    (&[2, 3, 5], &[5, 7], &[2, 3, 7]),
    (&[2, 3, 5], &[2, 5, 7], &[2, 3, 7]),
    (&[3, 5], &[4, 5, 7], &[4, 3, 7]),
    (&[2, 1, 3, 5], &[4, 5, 7], &[2, 4, 3, 7]),
    (&[2, 1, 3, 2, 5], &[3, 1, 5, 4], &[2, 3, 3, 2, 4]),
    (&[2, 1, 2, 1, 2, 3], &[3, 1, 2, 3, 4], &[2, 3, 2, 2, 2, 4]),
    (&[0, 5], &[5, 7], &[0, 7]),
    (&[3, 0], &[0, 7], &[3, 7]),
    (&[2, 0, 3, 5], &[5, 7], &[2, 0, 3, 7]),
];

#[test]
fn matmul_like_the_definition() {
    for &(a, b, y) in SHAPES {
        let (a, b) = (Tensor::random(a, 1), Tensor::random(b, 2));
        let want = naive(&a, &b, y);
        on_all("MatMul", 13, |case| {
            assert_close(&case.input(&a).input(&b).output(DType::F32, y).run()[0], &want, 1e-5);
        });
        on_all("MatMul", 13, |case| {
            assert_close(&case.input(&a).constant(&b).output(DType::F32, y).run()[0], &want, 1e-5);
        });
    }
}

#[test]
fn matmul_of_other_types() {
    for &(a, b, y) in SHAPES {
        let integers = |dims: &[i64], s: i64| Tensor::from_fn(dims, |k| (k as i64 * 7 + s) % 11 - 5);
        let floats =
            |t: &Tensor| Tensor::new(&t.dims, &t.to_vec::<i64>().iter().map(|&x| x as f32).collect::<Vec<_>>());
        let (a, b) = (integers(a, 3), integers(b, 4));
        let want: Vec<i64> = naive(&floats(&a), &floats(&b), y).to_vec::<f32>().iter().map(|&x| x as i64).collect();
        let got = Case::new("MatMul", 13).input(&a).input(&b).output(DType::I64, y).run();
        assert_eq!(got[0].to_vec::<i64>(), want);
    }
}

#[test]
fn sizes_that_do_not_fit_are_faults() {
    let (a, b) = (Tensor::random(&[2, 3], 1), Tensor::random(&[4, 5], 2));
    let error = Case::new("MatMul", 13).input(&a).input(&b).output(DType::F32, &[2, 5]).try_run().unwrap_err();
    assert!(error.contains("columns of A are not rows of B"), "{error}");
    let scalar = Tensor::new(&[], &[1.0f32]);
    let (code, text) = Case::new("MatMul", 13).input(&scalar).input(&b).output(DType::F32, &[5]).rejection();
    assert_eq!((code, &*text), (RejectCode::Rank, "MatMul: input 0 is a scalar"));
}

fn turned(t: &Tensor) -> Tensor {
    let (x, rows, cols) = (t.to_vec::<f32>(), t.dims[0], t.dims[1]);
    Tensor::from_fn(&[cols, rows], |k| x[k % rows as usize * cols as usize + k / rows as usize])
}

#[test]
fn gemm_like_the_definition() {
    let (m, n, k) = (9, 35, 18);
    let c_dims: &[Option<&[i64]>] =
        &[None, Some(&[]), Some(&[1]), Some(&[35]), Some(&[1, 35]), Some(&[9, 1]), Some(&[9, 35])];
    for &(alpha, beta) in &[(1.0, 1.0), (0.5, 1.0), (1.5, -0.5), (1.0, 0.0)] {
        for bits in 0..8 {
            let (turn_a, turn_b, constant) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            for c in c_dims {
                let (a, b) = (Tensor::random(&[m, k], 1), Tensor::random(&[k, n], 2));
                let c = c.map(|dims| Tensor::random(dims, 3));
                let product = naive(&a, &b, &[m, n]).to_vec::<f32>();
                let want = Tensor::from_fn(&[m, n], |cell| {
                    let add = c
                        .as_ref()
                        .map_or(0.0, |c| c.to_vec::<f32>()[crate::ops::testing::offset(&[m, n], &c.dims, cell)]);
                    alpha * product[cell] + beta * add
                });
                let (a, b) = (if turn_a { turned(&a) } else { a }, if turn_b { turned(&b) } else { b });
                on_all("Gemm", 13, |case| {
                    let case = case.float("alpha", alpha).float("beta", beta);
                    let case = case.int("transA", turn_a.into()).int("transB", turn_b.into()).input(&a);
                    let case = if constant { case.constant(&b) } else { case.input(&b) };
                    let case = if let Some(c) = &c { case.constant(c) } else { case };
                    assert_close(&case.output(DType::F32, &[m, n]).run()[0], &want, 1e-5);
                });
            }
        }
    }
}

#[test]
fn gemm_of_other_types() {
    let a = Tensor::new(&[2, 2], &[1i64, 2, 3, 4]);
    let c = Tensor::new(&[2, 1], &[10i64, 20]);
    let node = |alpha: f32| {
        let case = Case::new("Gemm", 13).float("alpha", alpha).float("beta", 2.0).int("transA", 0).int("transB", 1);
        case.input(&a).input(&a).input(&c).output(DType::I64, &[2, 2])
    };
    assert_eq!(node(3.0).run()[0].to_vec::<i64>(), [35, 53, 73, 115]);
    let (code, text) = node(0.5).rejection();
    assert!(code == RejectCode::Attribute && text.contains("alpha = 0.5"), "{text}");
}

fn kit() -> Kit {
    let isa = Isa::best();
    Kit::new(FAMILIES, isa.name(), Cpu { isa })
}

/// `Relu(x W' + b) + r`, with W behind a Transpose: how linear layers stand in files.
#[test]
fn a_linear_layer_is_one_step_and_a_packed_weight() {
    let mut m = Model::new();
    let n = m.symbol();
    let row = |m: &mut Model, name: &str, width: i64| m.value(name, DType::F32, &[n, width.into()]);
    let x = row(&mut m, "x", 20);
    let r = row(&mut m, "r", 33);
    m.mark_input(x);
    m.mark_input(r);
    let (w, b) = (Tensor::random(&[33, 20], 5), Tensor::random(&[33], 6));
    let (w_id, b_id) = (m.constant(&w), m.constant(&b));
    let t = m.value("t", DType::F32, &[20.into(), 33.into()]);
    m.const_expr(t);
    let turn = m.call("Transpose", 25, &[w_id], &[t]);
    m.ints(turn, "perm", &[1, 0], true);
    let values = ["p", "s", "q", "y"].map(|name| row(&mut m, name, 33));
    let [p, s, q, y] = values;
    m.call("MatMul", 13, &[x, t], &[p]);
    m.call("Add", 14, &[b_id, p], &[s]);
    m.call("Add", 14, &[s, r], &[q]);
    m.call("Relu", 14, &[q], &[y]);
    m.mark_output(y);
    let session = Session::new(kit(), m, 2);
    let mut part = session.compile().unwrap();
    let names: Vec<_> = part.part().steps().map(|s| s.1.to_owned()).collect();
    assert_eq!(names, [format!("matmul_f32_{}+add+add+relu", Isa::best().name())]);
    let mut done = part.done.clone();
    done.sort_unstable();
    assert_eq!(done, [0, 1]);
    for rows in [1, 7, 0, 64, 7] {
        let (x, r) = (Tensor::random(&[rows, 20], 7), Tensor::random(&[rows, 33], 8));
        let product = naive(&x, &turned(&w), &[rows, 33]).to_vec::<f32>();
        let (bias, residual) = (b.to_vec::<f32>(), r.to_vec::<f32>());
        let want = Tensor::from_fn(&[rows, 33], |k| (product[k] + bias[k % 33] + residual[k]).max(0.0));
        assert_close(&part.run(&[x, r]).unwrap()[0], &want, 1e-5);
    }
}

/// What cannot be taken over stays a step of its own.
#[test]
fn other_additions_are_not_fused() {
    let steps = |other: &[Dim], b_rank: usize| {
        let mut m = Model::new();
        let x = m.value("x", DType::F32, &[2.into(), 3.into(), 4.into()]);
        let b = [Dim::Fixed(2), Dim::Fixed(4), Dim::Fixed(5)];
        let b = m.value("b", DType::F32, &b[3 - b_rank..]);
        let other = m.value("o", DType::F32, other);
        let dims = [Dim::Fixed(2), Dim::Fixed(3), Dim::Fixed(5)];
        let (p, y) = (m.value("p", DType::F32, &dims), m.value("y", DType::F32, &dims));
        [x, b, other].into_iter().for_each(|v| m.mark_input(v));
        m.call("MatMul", 13, &[x, b], &[p]);
        m.call("Add", 14, &[p, other], &[y]);
        m.mark_output(y);
        let session = Session::new(kit(), m, 1);
        session.compile().unwrap().part().steps().count()
    };
    let dims = |dims: &[i64]| dims.iter().map(|&d| Dim::Fixed(d)).collect::<Vec<_>>();
    let cases = [
        (dims(&[5]), 2, 1),
        (dims(&[1, 1, 5]), 3, 1),
        (dims(&[2, 3, 5]), 2, 1),
        (dims(&[2, 3, 5]), 3, 2),
        (dims(&[3, 1]), 2, 2),
        (dims(&[1]), 2, 2),
    ];
    for (other, b_rank, want) in cases {
        assert_eq!(steps(&other, b_rank), want, "{other:?} behind a B of rank {b_rank}");
    }
}

#[test]
fn halves_go_through_single_precision() {
    // Small integers, whose sums are exact in both.
    let half = |dims: &[i64], seed: usize| Tensor::from_fn(dims, |k| F16::round(((k * 7 + seed) % 5) as f32 - 2.0));
    let wide = |t: &Tensor| Tensor::from_fn(&t.dims, |k| t.to_vec::<F16>()[k].wide());
    let (a, b) = (half(&[2, 3, 9], 1), half(&[9, 5], 2));
    let want = Case::new("MatMul", 13).input(&wide(&a)).input(&wide(&b)).output(DType::F32, &[2, 3, 5]).run();
    on_all("MatMul", 13, |case| {
        let y = case.input(&a).constant(&b).output(DType::F16, &[2, 3, 5]).run();
        assert_eq!(wide(&y[0]), want[0]);
    });
    let (a, c) = (half(&[9, 3], 3), half(&[5], 4));
    let gemm = |case: OpTest| case.float("alpha", 2.0).float("beta", 1.0).int("transA", 1).int("transB", 0);
    let case = gemm(Case::new("Gemm", 13)).input(&wide(&a)).input(&wide(&b)).input(&wide(&c));
    let want = case.output(DType::F32, &[3, 5]).run();
    on_all("Gemm", 13, |case| {
        let y = gemm(case).input(&a).input(&b).input(&c).output(DType::F16, &[3, 5]).run();
        assert_eq!(wide(&y[0]), want[0]);
    });
}
