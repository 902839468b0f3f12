//! Products against a triple loop. Operands hold small integers, so that every
//! order of additions gives the same exact result and comparisons are of bits.

use ortolan_ep_kit::parallel::Stopped;

use super::testing::{Cancelled, Threads, integers};
use super::*;

/// How an operand stands in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Dense,
    Turned,
    /// Rows and columns both apart, from an odd offset on.
    Sparse,
    Packed,
}
use Form::{Dense, Packed, Sparse, Turned};

/// A matrix of integers in memory of that form.
struct Operand {
    form: Form,
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

impl Operand {
    fn new(form: Form, rows: usize, cols: usize, seed: u32) -> Self {
        let len = match form {
            Sparse => 1 + rows * (3 * cols + 2),
            _ => rows * cols,
        };
        Operand { form, rows, cols, data: integers(len, seed) }
    }
    fn mat(&self) -> Mat<'_> {
        let Operand { rows, cols, ref data, .. } = *self;
        match self.form {
            Dense | Packed => Mat::new(data, rows, cols).unwrap(),
            Turned => Mat::new(data, cols, rows).unwrap().transposed(),
            Sparse => Mat::strided(&data[1..], rows, cols, 3 * cols + 2, 3).unwrap(),
        }
    }
    fn get(&self, row: usize, col: usize) -> f32 {
        let mat = self.mat();
        mat.data[row * mat.row_step + col * mat.col_step]
    }
}

/// Packs in two steps, so that parts are tested, into memory full of NaN.
fn packed_a(isa: Isa, a: &Operand) -> (PackedA, Vec<f32>) {
    let layout = PackedA::new(isa, a.rows, a.cols);
    let mut data = vec![f32::NAN; layout.size()];
    let half = layout.pieces() / 2;
    for pieces in [half..layout.pieces(), 0..half] {
        let span = layout.span(pieces.clone());
        layout.pack(a.mat(), pieces, &mut data[span]).unwrap();
    }
    (layout, data)
}

fn packed_b(isa: Isa, b: &Operand) -> (PackedB, Vec<f32>) {
    let layout = PackedB::new(isa, b.rows, b.cols);
    let mut data = vec![f32::NAN; layout.size()];
    let half = layout.pieces() / 2;
    for pieces in [half..layout.pieces(), 0..half] {
        let span = layout.span(pieces.clone());
        layout.pack(b.mat(), pieces, &mut data[span]).unwrap();
    }
    (layout, data)
}

/// `A * B` by the triple loop.
fn products(a: &Operand, b: &Operand) -> Vec<f32> {
    let rows: Vec<Vec<f32>> = (0..a.rows).map(|i| (0..a.cols).map(|p| a.get(i, p)).collect()).collect();
    let columns: Vec<Vec<f32>> = (0..b.cols).map(|j| (0..a.cols).map(|p| b.get(p, j)).collect()).collect();
    let mut c = Vec::with_capacity(a.rows * b.cols);
    for row in &rows {
        for column in &columns {
            let mut sum = 0.0;
            for p in 0..a.cols {
                sum += row[p] * column[p];
            }
            c.push(sum);
        }
    }
    c
}

/// One product with everything that it depends on.
struct Case<'a> {
    isa: Isa,
    a: &'a Operand,
    b: &'a Operand,
    alpha: f32,
    epilogue: Epilogue<'a>,
    threads: &'a dyn Parallel,
}

impl<'a> Case<'a> {
    fn new(isa: Isa, a: &'a Operand, b: &'a Operand) -> Self {
        Case { isa, a, b, alpha: 1.0, epilogue: Epilogue::default(), threads: &Serial }
    }

    /// The output in rows that lie 3 values too far apart, with what lies
    /// between them; it held `before`.
    fn run(&self, before: &[f32]) -> Vec<f32> {
        let (m, n, k) = (self.a.rows, self.b.cols, self.a.cols);
        let gemm = Gemm { alpha: self.alpha, ..Gemm::new(self.isa, m, n, k) };
        let mut c = before.to_vec();
        let out = MatMut::strided(&mut c, m, n, n + 3).unwrap();
        let (pa, pb) = (packed_a(self.isa, self.a), packed_b(self.isa, self.b));
        let (is_pa, is_pb) = (self.a.form == Packed, self.b.form == Packed);
        let a = if is_pa { Lhs::Packed(pa.0, &pa.1) } else { Lhs::Plain(self.a.mat()) };
        let b = if is_pb { Rhs::Packed(pb.0, &pb.1) } else { Rhs::Plain(self.b.mat()) };
        let mut scratch = vec![f32::NAN; gemm.scratch_len(is_pa, is_pb, self.threads.width())];
        gemm.run(a, b, &self.epilogue, out, &mut scratch, self.threads).unwrap();
        c
    }

    fn naive(&self, products: &[f32], before: &[f32]) -> Vec<f32> {
        let (m, n) = (self.a.rows, self.b.cols);
        let mut c = before.to_vec();
        for i in 0..m {
            for j in 0..n {
                let at = i * (n + 3) + j;
                c[at] = self.finish(i, j, products[i * n + j], c[at]);
            }
        }
        c
    }

    fn finish(&self, i: usize, j: usize, product: f32, before: f32) -> f32 {
        let added = match self.epilogue.add {
            Add::None => 0.0,
            Add::Output(beta) => beta * before,
            Add::Matrix { data, row_step, scale } => scale * data[i * row_step + j],
        };
        let bias = match self.epilogue.bias {
            Bias::None => 0.0,
            Bias::PerRow(bias) => bias[i],
            Bias::PerColumn(bias) => bias[j],
        };
        let x = self.alpha * product + added + bias;
        match self.epilogue.activation {
            Activation::None => x,
            Activation::Relu => x.max(0.0),
            Activation::Clip { low, high } => x.max(low).min(high),
            Activation::LeakyRelu(alpha) => {
                if x < 0.0 {
                    alpha * x
                } else {
                    x
                }
            }
            other => panic!("{other:?} is not exact"),
        }
    }

    fn check(&self, name: &str) {
        self.check_against(&products(self.a, self.b), name);
    }

    fn check_against(&self, products: &[f32], name: &str) {
        let before = integers(self.a.rows * (self.b.cols + 3), 99);
        let (got, want) = (self.run(&before), self.naive(products, &before));
        let (m, n, k) = (self.a.rows, self.b.cols, self.a.cols);
        let wrong = got.iter().zip(&want).position(|(got, want)| got != want);
        assert_eq!(
            wrong,
            None,
            "{name} gemm_f32_{} {m}x{k}x{n} {:?} x {:?}: {:?}, not {:?}",
            self.isa.name(),
            self.a.form,
            self.b.form,
            wrong.map(|at| got[at]),
            wrong.map(|at| want[at]),
        );
    }
}

#[test]
fn every_small_shape() {
    const SIZES: [usize; 15] = [0, 1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 33, 63, 65];
    for isa in Isa::available() {
        for m in SIZES {
            for n in SIZES {
                for k in [0, 1, 2, 3, 5, 8, 17, 33] {
                    let forms = [(Dense, Dense), (Dense, Packed), (Packed, Dense)];
                    for (i, (fa, fb)) in forms.into_iter().enumerate() {
                        // All forms at each shape would take a minute.
                        if (m + n + k) % 3 == i || m * n < 64 {
                            let a = Operand::new(fa, m, k, 1);
                            let b = Operand::new(fb, k, n, 2);
                            Case::new(isa, &a, &b).check("small");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_pair_of_forms() {
    for isa in Isa::available() {
        for (m, n, k) in [(1, 1, 1), (1, 70, 19), (3, 41, 66), (4, 5, 100), (29, 1, 40), (16, 33, 18), (47, 100, 65)] {
            for fa in [Dense, Turned, Sparse, Packed] {
                for fb in [Dense, Turned, Sparse, Packed] {
                    let a = Operand::new(fa, m, k, 3);
                    let b = Operand::new(fb, k, n, 4);
                    Case::new(isa, &a, &b).check("forms");
                }
            }
        }
    }
}

#[test]
fn more_than_one_block_of_everything() {
    let shapes = [
        ("blocks of K", (1, 300, 1100), Dense, Packed),
        ("blocks of K", (2, 40, 1600), Turned, Turned),
        ("blocks of K", (33, 65, 1030), Packed, Packed),
        ("blocks of rows", (180, 70, 450), Dense, Packed),
        ("blocks of rows, B packed for all", (180, 70, 450), Turned, Dense),
        ("groups of columns", (90, 1500, 770), Dense, Dense),
    ];
    for (name, (m, n, k), fa, fb) in shapes {
        let (a, b) = (Operand::new(fa, m, k, 5), Operand::new(fb, k, n, 6));
        let products = products(&a, &b);
        for isa in Isa::available() {
            Case::new(isa, &a, &b).check_against(&products, name);
        }
    }
}

#[test]
fn every_epilogue() {
    let (bias, matrix) = (integers(80, 7), integers(80 * 90, 8));
    let biases = [Bias::None, Bias::PerRow(&bias), Bias::PerColumn(&bias)];
    let adds =
        [Add::None, Add::Output(1.0), Add::Output(-0.5), Add::Matrix { data: &matrix, row_step: 83, scale: 2.0 }];
    let activations =
        [Activation::None, Activation::Relu, Activation::Clip { low: -2.0, high: 5.0 }, Activation::LeakyRelu(0.25)];
    for isa in Isa::available() {
        for (m, n, k) in [(1, 17, 9), (2, 1, 30), (7, 33, 12), (21, 66, 1), (16, 40, 790), (3, 12, 0)] {
            for fb in [Dense, Turned, Packed] {
                let a = Operand::new(Dense, m, k, 9);
                let b = Operand::new(fb, k, n, 10);
                let products = products(&a, &b);
                for (i, bias) in biases.into_iter().enumerate() {
                    for (j, add) in adds.into_iter().enumerate() {
                        for (l, activation) in activations.into_iter().enumerate() {
                            let alpha = [1.0, 0.5, -2.0][(i + j + l) % 3];
                            let epilogue = Epilogue { bias, add, activation };
                            let case = Case { alpha, epilogue, ..Case::new(isa, &a, &b) };
                            case.check_against(&products, &format!("{epilogue:?} alpha {alpha}"));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_the_output_held_is_not_read_without_need() {
    for isa in Isa::available() {
        let a = Operand::new(Dense, 9, 20, 1);
        for fb in [Dense, Turned] {
            let b = Operand::new(fb, 20, 37, 2);
            let got = Case::new(isa, &a, &b).run(&[f32::NAN; 9 * 40]);
            assert!((0..9 * 40).all(|i| got[i].is_nan() == (i % 40 >= 37)), "{}", isa.name());
        }
    }
}

/// Functions that are not exact: the epilogue has to give what the function
/// gives on the finished product.
#[test]
fn every_curved_activation() {
    use crate::simd::{UnaryOp, map_unary_in_place, ops};
    fn same<O: UnaryOp>(isa: Isa, activation: Activation, op: &O) {
        for (m, n, k) in [(3, 40, 5), (1, 9, 20), (16, 70, 500)] {
            let (a, b) = (Operand::new(Dense, m, k, 1), Operand::new(Turned, k, n, 2));
            let plain = Case { alpha: 0.25, ..Case::new(isa, &a, &b) };
            let mut want = plain.run(&vec![0.5; m * (n + 3)]);
            want.chunks_mut(n + 3).for_each(|row| map_unary_in_place(isa, op, &mut row[..n]));
            let epilogue = Epilogue { activation, ..Epilogue::default() };
            let got = Case { epilogue, ..plain }.run(&vec![0.5; m * (n + 3)]);
            assert_eq!(got, want, "{activation:?}_{}", isa.name());
        }
    }
    for isa in Isa::available() {
        same(isa, Activation::HardSigmoid { alpha: 0.2, beta: 0.5 }, &ops::HardSigmoid { alpha: 0.2, beta: 0.5 });
        same(isa, Activation::HardSwish, &ops::HardSwish);
        same(isa, Activation::Sigmoid, &ops::Sigmoid);
        same(isa, Activation::Silu, &ops::Silu);
        same(isa, Activation::Tanh, &ops::Tanh);
        same(isa, Activation::Gelu, &ops::Gelu);
        same(isa, Activation::GeluTanh, &ops::GeluTanh);
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for isa in Isa::available() {
        for (m, n, k) in [(1, 900, 300), (64, 64, 64), (120, 200, 480), (300, 33, 40), (4, 700, 100)] {
            for fb in [Dense, Turned, Packed] {
                let mut a = Operand::new(Dense, m, k, 11);
                let mut b = Operand::new(fb, k, n, 12);
                a.data.iter_mut().chain(&mut b.data).for_each(|x| *x = (*x * 1.37).sin());
                let before = vec![0.1; m * (n + 3)];
                let case = Case::new(isa, &a, &b);
                let want = case.run(&before);
                for width in [2, 3] {
                    let got = Case { threads: &Threads(width), ..Case::new(isa, &a, &b) }.run(&before);
                    assert_eq!(got, want, "{} {m}x{k}x{n} on {width}", isa.name());
                }
                let exact = case.naive(&products(&a, &b), &before);
                let close = |(got, want): (&f32, &f32)| (got - want).abs() < 1e-5 * k as f32;
                assert!(got_all(&want, &exact, close), "{} {m}x{k}x{n} {fb:?}", isa.name());
            }
        }
    }
}

#[test]
fn equal_columns_have_equal_sums() {
    for isa in Isa::available() {
        for m in [1, 2, 3, 6, 9] {
            let (n, k) = (2 * panel_columns(isa) + 3, 301);
            for fb in [Dense, Packed] {
                let mut a = Operand::new(Dense, m, k, 11);
                a.data.iter_mut().for_each(|x| *x = (*x * 1.37).sin());
                let mut b = Operand::new(fb, k, n, 12);
                b.data.iter_mut().enumerate().for_each(|(i, x)| *x = ((i / n) as f32 * 0.7).cos());
                let got = Case::new(isa, &a, &b).run(&vec![0.0; m * (n + 3)]);
                for row in got.chunks(n + 3) {
                    assert!(row[..n].iter().all(|&y| y == row[0]), "{} {m} {fb:?}: {row:?}", isa.name());
                }
            }
        }
    }
}

fn got_all(got: &[f32], want: &[f32], close: impl Fn((&f32, &f32)) -> bool) -> bool {
    got.iter().zip(want).all(close)
}

#[test]
fn mistakes_are_told() {
    let isa = Isa::best();
    let gemm = Gemm::new(isa, 2, 3, 4);
    let data = [0.0; 400_000];
    let mat = |rows, cols| Mat::new(&data, rows, cols).unwrap();
    let (a, b) = (Lhs::Plain(mat(2, 4)), Rhs::Plain(mat(4, 3)));
    let other = PackedB::new(isa, 4, 4);
    let cases: [(&str, Lhs<'_>, Rhs<'_>, Bias<'_>, usize, usize); 7] = [
        ("A does not fit", Lhs::Plain(mat(3, 4)), b, Bias::None, 3, 4_000),
        ("B does not fit", a, Rhs::Plain(mat(4, 4)), Bias::None, 3, 4_000),
        ("B does not fit", a, Rhs::Packed(other, &data), Bias::None, 3, 4_000),
        ("packed B has 1 values", a, Rhs::Packed(PackedB::new(isa, 4, 3), &data[..1]), Bias::None, 3, 4_000),
        ("C does not fit", a, b, Bias::None, 4, 4_000),
        ("bias of rows has 1 values where 2", a, b, Bias::PerRow(&[0.0]), 3, 4_000),
        ("scratch memory has 0 values", a, b, Bias::None, 3, 0),
    ];
    for (part, a, b, bias, cols, scratch) in cases {
        let mut c = [0.0; 8];
        let epilogue = Epilogue { bias, ..Epilogue::default() };
        let out = MatMut::new(&mut c, 2, cols).unwrap();
        let got = gemm.run(a, b, &epilogue, out, &mut vec![0.0; scratch], &Serial);
        let text = got.unwrap_err().to_string();
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    assert!(Mat::new(&data[..5], 2, 3).is_err());
    assert!(Mat::strided(&data, usize::MAX, usize::MAX, usize::MAX, 1).is_err());
    assert!(MatMut::strided(&mut [0.0; 9], 2, 3, 2).is_err());
    assert_eq!(PackedB::new(isa, usize::MAX, 64).size(), usize::MAX);
    assert!(PackedB::new(isa, 4, 3).pack(mat(4, 4), 0..1, &mut [0.0; 400]).is_err());
    assert!(PackedA::new(isa, 4, 3).pack(mat(4, 4), 0..1, &mut [0.0; 400]).is_err());

    let gemm = Gemm::new(isa, 100, 100, 100);
    let mut c = vec![0.0; 10_000];
    let out = MatMut::new(&mut c, 100, 100).unwrap();
    let (a, b) = (Lhs::Plain(mat(100, 100)), Rhs::Plain(mat(100, 100)));
    let mut scratch = vec![0.0; gemm.scratch_len(false, false, 2)];
    let got = gemm.run(a, b, &Epilogue::default(), out, &mut scratch, &Cancelled);
    assert_eq!(got, Err(KernelError::Stopped(Stopped)));
}

/// One batch item, by the triple loop.
fn naive_item(gemm: &Gemm, batch: &Batch, a: &[f32], b: &[f32], c: &mut [f32], index: [usize; 2]) {
    let at = |nest: &Nest, row: usize, col: usize| {
        index[0] * nest.batch_step[0] + index[1] * nest.batch_step[1] + row * nest.row_step + col * nest.col_step
    };
    for i in 0..gemm.m {
        for j in 0..gemm.n {
            let terms = (0..gemm.k).map(|p| a[at(&batch.a, i, p)] * b[at(&batch.b, p, j)]);
            c[at(&batch.c, i, j)] = terms.sum::<f32>().max(0.0);
        }
    }
}

#[test]
fn batches() {
    let (t, d, heads) = (13, 9, 3);
    let dense = |inner, rows, cols| Nest::dense(inner, rows, cols);
    // A [sequence, token, head, value] tensor, taken head by head.
    let interleaved = Nest { batch_step: [t * heads * d, d], row_step: heads * d, col_step: 1 };
    let shared = Nest { batch_step: [0, 0], ..dense(1, t, d) };
    let cases = [
        ("dense", [2, heads], (t, 20, d), dense(heads, t, d), dense(heads, d, 20), dense(heads, t, 20)),
        ("scores", [2, heads], (t, t, d), interleaved, interleaved.transposed(), dense(heads, t, t)),
        ("values", [2, heads], (t, d, t), dense(heads, t, t), interleaved, interleaved),
        ("shared A", [4, 1], (t, 7, d), shared, dense(1, d, 7), dense(1, t, 7)),
        ("one", [1, 1], (t, 7, d), dense(1, t, d), dense(1, d, 7), dense(1, t, 7)),
        ("none", [0, 3], (t, 7, d), dense(3, t, d), dense(3, d, 7), dense(3, t, 7)),
    ];
    let (a, b) = (integers(4_000, 1), integers(4_000, 2));
    let epilogue = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
    for isa in Isa::available() {
        for (name, count, (m, n, k), na, nb, nc) in cases {
            let gemm = Gemm::new(isa, m, n, k);
            let batch = Batch { count, a: na, b: nb, c: nc };
            let mut want = vec![-7.0; 4_000];
            for i in 0..count[0] * count[1] {
                naive_item(&gemm, &batch, &a, &b, &mut want, [i / count[1], i % count[1]]);
            }
            for width in [1, 2] {
                let mut got = vec![-7.0; 4_000];
                let mut scratch = vec![f32::NAN; gemm.batch_scratch_len(width)];
                gemm.run_batch(&batch, (&a, &b), &epilogue, &mut got, &mut scratch, &Threads(width)).unwrap();
                assert_eq!(got, want, "{name}_{} on {width}", isa.name());
            }
        }
    }
}

#[test]
fn batches_that_would_collide_are_refused() {
    let gemm = Gemm::new(Isa::best(), 4, 5, 3);
    let side = |rows, cols| Nest::dense(2, rows, cols);
    let good = Batch { count: [2, 2], a: side(4, 3), b: side(3, 5), c: side(4, 5) };
    let with = |c: Nest| Batch { c, ..good };
    let cases = [
        ("good", good, None),
        ("repeated", with(Nest { batch_step: [0, 20], ..side(4, 5) }), Some("overlap")),
        ("rows meet", with(Nest { row_step: 4, ..side(4, 5) }), Some("overlap")),
        ("columns apart", with(Nest { row_step: 2, col_step: 2, batch_step: [40, 10] }), Some("gaps")),
        ("too long", with(Nest { batch_step: [1_000, 20], ..side(4, 5) }), Some("C of the batch has 80")),
    ];
    for (name, batch, want) in cases {
        let (a, b, mut c) = (integers(48, 1), integers(60, 2), [0.0; 80]);
        let mut scratch = vec![0.0; gemm.batch_scratch_len(1)];
        let got = gemm.run_batch(&batch, (&a, &b), &Epilogue::default(), &mut c, &mut scratch, &Serial);
        let text = got.err().map(|error| error.to_string());
        assert_eq!(text.is_none(), want.is_none(), "{name}: {text:?}");
        assert!(text.zip(want).is_none_or(|(text, part)| text.contains(part)), "{name}");
    }
}
