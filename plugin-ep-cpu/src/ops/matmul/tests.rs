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
    (&[0, 3, 5], &[0, 5, 7], &[0, 3, 7]),
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

/// The sum over all values of all letters, from the definition.
fn sum_of_products(equation: &str, inputs: &[Tensor], out: &str) -> Tensor {
    let terms: Vec<&str> = equation.split("->").next().unwrap().split(',').collect();
    let mut sizes: Vec<(char, i64)> = Vec::new();
    for (letter, &dim) in terms.iter().zip(inputs).flat_map(|(term, x)| term.chars().zip(&x.dims)) {
        match sizes.iter_mut().find(|(l, _)| *l == letter) {
            Some((_, have)) => *have = (*have).max(dim),
            None => sizes.push((letter, dim)),
        }
    }
    let dims: Vec<i64> = out.chars().map(|l| sizes.iter().find(|s| s.0 == l).unwrap().1).collect();
    let mut y = vec![0.0f64; dims.iter().product::<i64>() as usize];
    for at in 0..sizes.iter().map(|s| s.1).product::<i64>() {
        let mut rest = at;
        let values: Vec<(char, i64)> = sizes
            .iter()
            .map(|&(letter, size)| {
                let value = rest % size;
                rest /= size;
                (letter, value)
            })
            .collect();
        let value = |letter: char| values.iter().find(|v| v.0 == letter).unwrap().1;
        let place = |term: &str, dims: &[i64]| {
            term.chars().zip(dims).fold(0, |place, (l, &dim)| place * dim + if dim == 1 { 0 } else { value(l) })
                as usize
        };
        let factors = terms.iter().zip(inputs).map(|(term, x)| f64::from(x.to_vec::<f32>()[place(term, &x.dims)]));
        y[place(out, &dims)] += factors.product::<f64>();
    }
    Tensor::new(&dims, &y.into_iter().map(|y| y as f32).collect::<Vec<_>>())
}

/// As it is written, as letters alone, the output's letters, and the inputs' dimensions.
const EQUATIONS: &[(&str, &str, &str, &[&[i64]])] = &[
    ("ij,jk", "ij,jk", "ik", &[&[3, 5], &[5, 4]]),
    ("ij->ji", "ij", "ji", &[&[3, 5]]),
    ("ij->i", "ij", "i", &[&[3, 5]]),
    ("ij->j", "ij", "j", &[&[3, 5]]),
    ("ij->", "ij", "", &[&[3, 5]]),
    ("ii->i", "ii", "i", &[&[4, 4]]),
    ("...ii->...i", "abii", "abi", &[&[2, 3, 4, 4]]),
    ("i,i", "i,i", "", &[&[7], &[7]]),
    ("i,j->ji", "i,j", "ji", &[&[3], &[4]]),
    ("bij, bjk -> bik", "bij,bjk", "bik", &[&[2, 3, 5], &[2, 5, 4]]),
    ("...ij,...jk->...ik", "bij,bjk", "bik", &[&[1, 3, 5], &[2, 5, 4]]),
    ("bhid,bhjd->bhij", "bhid,bhjd", "bhij", &[&[2, 3, 5, 4], &[2, 3, 6, 4]]),
    ("bhij,bjhd->bihd", "bhij,bjhd", "bihd", &[&[2, 3, 5, 6], &[2, 6, 3, 4]]),
    ("ijk,jl->kil", "ijk,jl", "kil", &[&[2, 3, 4], &[3, 5]]),
    ("ij,jk,kl->li", "ij,jk,kl", "li", &[&[2, 3], &[3, 4], &[4, 5]]),
    ("ijk,ilm->j", "ijk,ilm", "j", &[&[2, 3, 4], &[2, 5, 2]]),
    ("ij,j->i", "ij,j", "i", &[&[70, 90], &[1]]),
    ("ab,b,a->ab", "ab,b,a", "ab", &[&[3, 4], &[4], &[3]]),
    ("ij,jk->ik", "ij,jk", "ik", &[&[3, 0], &[0, 4]]),
    (",ij->ij", ",ij", "ij", &[&[], &[2, 3]]),
];

#[test]
fn equations_like_their_definition() {
    for &(equation, letters, out, dims) in EQUATIONS {
        let inputs: Vec<Tensor> = dims.iter().zip(1..).map(|(dims, seed)| Tensor::random(dims, seed)).collect();
        let want = sum_of_products(letters, &inputs, out);
        let node = |case: OpTest, inputs: &[Tensor], dtype| {
            let case = inputs.iter().fold(case.text("equation", equation), OpTest::input);
            case.output(dtype, &want.dims).run().remove(0)
        };
        on_all("Einsum", 28, |case| assert_close(&node(case, &inputs, DType::F32), &want, 1e-5));
        let cast = |f: &dyn Fn(&Tensor) -> Tensor| inputs.iter().map(f).collect::<Vec<_>>();
        let wide = cast(&|x| Tensor::new(&x.dims, &doubles(x)));
        let got = node(Case::new("Einsum", 28), &wide, DType::F64).to_vec::<f64>();
        assert_close(&Tensor::new(&want.dims, &got.iter().map(|&y| y as f32).collect::<Vec<_>>()), &want, 1e-6);
        let halves =
            |x: &Tensor| Tensor::new(&x.dims, &x.to_vec::<f32>().into_iter().map(F16::round).collect::<Vec<_>>());
        let got = node(Case::new("Einsum", 28), &cast(&halves), DType::F16).to_vec::<F16>();
        assert_close(&Tensor::new(&want.dims, &got.iter().map(|y| y.wide()).collect::<Vec<_>>()), &want, 1e-2);
    }
}

#[test]
fn equations_that_say_nothing_are_refused() {
    let x = Tensor::random(&[3, 4], 1);
    let cases = [
        ("ij,jk", "inputs: [2, 1]"),
        ("ijk->k", "is not for input 0 of rank 2"),
        ("i1->i", "holds '1'"),
        ("ij->ik", "'ik' can't be made"),
        ("ij->ii", "'ii' can't be made"),
        ("...->", "loses what the dots stand for"),
    ];
    for (equation, part) in cases {
        let case = Case::new("Einsum", 28).text("equation", equation).input(&x).output(DType::F32, &[3, 4]);
        let (_, text) = case.rejection();
        assert!(text.contains(part), "{equation}: {text}");
    }
    let case = Case::new("Einsum", 28).text("equation", "ij,jk->ik").input(&x).input(&x);
    let error = case.output(DType::F32, &[3, 4]).try_run().unwrap_err();
    assert!(error.contains("an index of the equation is 4 and, in input 1, 3"), "{error}");
}

#[test]
fn determinants() {
    let by_rows = |x: &[f64], n: usize| {
        // Laplace, along the first row.
        fn det(x: &[f64], n: usize) -> f64 {
            if n == 0 {
                return 1.0;
            }
            let minor = |skip: usize| -> Vec<f64> { (n..n * n).filter(|k| k % n != skip).map(|k| x[k]).collect() };
            (0..n).map(|k| if k % 2 == 0 { x[k] } else { -x[k] } * det(&minor(k), n - 1)).sum()
        }
        det(x, n)
    };
    for (dims, y) in [
        (&[2i64, 2][..], &[][..]),
        (&[3, 5, 5], &[3]),
        (&[2, 2, 1, 1], &[2, 2]),
        (&[2, 0, 0], &[2]),
        (&[4, 7, 7], &[4]),
    ] {
        let n = dims[dims.len() - 1] as usize;
        let x = Tensor::random(dims, 3);
        let count = y.iter().product::<i64>() as usize;
        let want: Vec<f32> = (0..count).map(|k| by_rows(&doubles(&x)[k * n * n..][..n * n], n) as f32).collect();
        let want = Tensor::new(y, &want);
        on_all("Det", 22, |case| assert_close(&case.input(&x).output(DType::F32, y).run()[0], &want, 1e-5));
        let wide = Tensor::new(dims, &doubles(&x));
        let got = Case::new("Det", 22).input(&wide).output(DType::F64, y).run()[0].to_vec::<f64>();
        assert_close(&Tensor::new(y, &got.iter().map(|&y| y as f32).collect::<Vec<_>>()), &want, 1e-6);
    }
    let singular = Tensor::new(&[2, 2], &[1.0f32, 2.0, 2.0, 4.0]);
    assert_eq!(Case::new("Det", 22).input(&singular).output(DType::F32, &[]).run()[0].to_vec::<f32>(), [0.0]);
    let x = Tensor::random(&[2, 3], 1);
    let error = Case::new("Det", 22).input(&x).output(DType::F32, &[]).try_run().unwrap_err();
    assert!(error.contains("are not square"), "{error}");
}
