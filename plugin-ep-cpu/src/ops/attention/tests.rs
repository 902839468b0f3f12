//! Attention against its definition, query by query, at sizes that leave remainders.

use crate::ops::narrow::F16;
use crate::ops::testing::{Case, on_all};
use ortolan_ep_kit::testing::{OpTest, Tensor, assert_close};
use ortolan_ep_kit::{Bool, DType, RejectCode};

/// One case; sizes are batch, query heads, heads of keys, queries, keys, past keys, and widths of keys and values.
#[derive(Clone, Copy, Default)]
struct Shape {
    sizes: [usize; 8],
    flat: bool,
    causal: bool,
    cap: f32,
    left: i64,
    right: i64,
    /// Dimensions of the mask, empty for none; whether it is bool.
    mask: &'static [i64],
    seen: bool,
    lengths: &'static [i64],
}

const NONE: Shape = Shape {
    sizes: [0; 8],
    flat: false,
    causal: false,
    cap: 0.0,
    left: -1,
    right: -1,
    mask: &[],
    seen: false,
    lengths: &[],
};

const SHAPES: &[Shape] = &[
    Shape { sizes: [1, 1, 1, 1, 1, 0, 1, 1], ..NONE },
    Shape { sizes: [2, 3, 3, 4, 6, 0, 8, 10], ..NONE },
    Shape { sizes: [2, 4, 2, 5, 7, 0, 3, 5], flat: true, ..NONE },
    Shape { sizes: [2, 6, 2, 1, 9, 4, 7, 3], ..NONE },
    Shape { sizes: [2, 6, 2, 1, 9, 4, 7, 3], flat: true, causal: true, ..NONE },
    Shape { sizes: [1, 2, 1, 150, 150, 0, 20, 17], causal: true, ..NONE },
    Shape { sizes: [1, 2, 2, 37, 37, 11, 16, 16], causal: true, left: 9, ..NONE },
    Shape { sizes: [1, 2, 2, 37, 40, 0, 16, 16], flat: true, left: 3, right: 5, cap: 1.5, ..NONE },
    Shape { sizes: [2, 4, 2, 3, 6, 2, 8, 8], mask: &[2, 1, 3, 8], ..NONE },
    Shape { sizes: [2, 4, 2, 3, 6, 0, 8, 8], mask: &[4, 1, 5], seen: true, causal: true, ..NONE },
    Shape { sizes: [2, 4, 2, 3, 6, 0, 8, 8], mask: &[6], flat: true, cap: 2.0, ..NONE },
    Shape { sizes: [3, 2, 2, 2, 6, 0, 8, 8], lengths: &[6, 0, 3], causal: true, ..NONE },
    Shape { sizes: [2, 2, 2, 5, 6, 0, 8, 8], lengths: &[2, 6], mask: &[1, 4], ..NONE },
    Shape { sizes: [0, 2, 2, 5, 6, 0, 8, 8], ..NONE },
    Shape { sizes: [2, 2, 2, 5, 0, 0, 8, 8], ..NONE },
];

struct Tensors {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: [Tensor; 2],
    mask: Tensor,
}

/// Element of head `h` and row `s` of a tensor with an axis of heads or not.
fn element(x: &Tensor, flat: bool, heads: usize, [b, h, s, d]: [usize; 4]) -> f64 {
    let dims: Vec<usize> = x.dims.iter().map(|&d| d as usize).collect();
    let at = match flat {
        true => (b * dims[1] + s) * dims[2] + h * (dims[2] / heads) + d,
        false => ((b * dims[1] + h) * dims[2] + s) * dims[3] + d,
    };
    x.to_vec::<f32>()[at].into()
}

impl Shape {
    fn tensors(&self) -> Tensors {
        let [b, hq, hk, nq, nk, np, wk, wv] = self.sizes.map(|n| n as i64);
        let dims = |h: i64, n: i64, w: i64| if self.flat { vec![b, n, h * w] } else { vec![b, h, n, w] };
        let mask = match self.seen {
            true => Tensor::from_fn(self.mask, |k| Bool::from(k % 3 != 0)),
            // A third of the keys is out of sight.
            false => Tensor::from_fn(self.mask, |k| if k % 3 == 1 { f32::NEG_INFINITY } else { (k as f32).sin() }),
        };
        Tensors {
            q: Tensor::random(&dims(hq, nq, wk), 1),
            k: Tensor::random(&dims(hk, nk, wk), 2),
            v: Tensor::random(&dims(hk, nk, wv), 3),
            past: [Tensor::random(&[b, hk, np, wk], 4), Tensor::random(&[b, hk, np, wv], 5)],
            mask,
        }
    }

    /// Scores at each stage, and outputs, from the definition.
    fn naive(&self, t: &Tensors) -> ([Vec<f32>; 4], Vec<f32>) {
        let [b, hq, hk, nq, nk, np, wk, wv] = self.sizes;
        let (total, scale) = (np + nk, 1.0 / (wk as f64).sqrt());
        let row = |i: usize, h: usize, s: usize, w: usize, past: &Tensor, own: &Tensor| -> Vec<f64> {
            let at = |d| {
                if s < np {
                    element(past, false, hk, [i, h, s, d])
                } else {
                    element(own, self.flat, hk, [i, h, s - np, d])
                }
            };
            (0..w).map(at).collect()
        };
        let (mut stages, mut y) = ([const { Vec::new() }; 4], vec![0.0; b * hq * nq * wv]);
        for (i, h, s) in (0..b * hq * nq).map(|at| (at / (hq * nq), at / nq % hq, at % nq)) {
            let kv = h / (hq / hk);
            let place = match self.lengths.get(i) {
                Some(&n) => n - nq as i64 + s as i64,
                None => (np + s) as i64,
            };
            let (mut soft, mut open) = (vec![0.0f64; total], false);
            for (j, soft) in soft.iter_mut().enumerate() {
                let k = row(i, kv, j, wk, &t.past[0], &t.k);
                let raw: f64 = (0..wk).map(|d| element(&t.q, self.flat, hq, [i, h, s, d]) * k[d]).sum::<f64>() * scale;
                let capped = if self.cap > 0.0 { (raw / self.cap as f64).tanh() * self.cap as f64 } else { raw };
                let key = j as i64;
                let hidden = (self.causal && key > place)
                    || (self.left >= 0 && key < place - self.left)
                    || (self.right >= 0 && key > place + self.right)
                    || self.lengths.get(i).is_some_and(|&n| key >= n);
                let bias = if hidden { f64::NEG_INFINITY } else { self.added(&t.mask, [i, h, s, j]) };
                open |= bias > f64::NEG_INFINITY;
                *soft = capped + bias;
                [raw, capped, *soft].iter().zip(&mut stages).for_each(|(x, stage)| stage.push(*x as f32));
            }
            let most = soft.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = soft.iter().map(|x| (x - most).exp()).sum();
            soft.iter_mut().for_each(|x| *x = if open { (*x - most).exp() / sum } else { 0.0 });
            stages[3].extend(soft.iter().map(|&x| x as f32));
            for d in 0..wv {
                let sum: f64 = (0..total).map(|j| soft[j] * row(i, kv, j, wv, &t.past[1], &t.v)[d]).sum();
                let at = if self.flat { (i * nq + s) * hq + h } else { (i * hq + h) * nq + s };
                y[at * wv + d] = sum as f32;
            }
        }
        (stages, y)
    }

    fn added(&self, mask: &Tensor, [i, h, s, j]: [usize; 4]) -> f64 {
        let Some((&last, outer)) = mask.dims.split_last() else { return 0.0 };
        if self.mask.is_empty() {
            return 0.0;
        }
        if j >= last as usize {
            return f64::NEG_INFINITY;
        }
        let index = [i, h, s];
        let row = outer
            .iter()
            .enumerate()
            .fold(0, |row, (axis, &d)| row * d as usize + if d == 1 { 0 } else { index[3 - outer.len() + axis] });
        let at = row * last as usize + j;
        match self.seen {
            true if mask.to_vec::<Bool>()[at].get() => 0.0,
            true => f64::NEG_INFINITY,
            false => mask.to_vec::<f32>()[at].into(),
        }
    }

    fn node(&self, mut case: OpTest, t: &Tensors, mode: i64) -> OpTest {
        let [_, hq, hk, _, _, np, ..] = self.sizes;
        case = case.int("is_causal", self.causal.into()).float("softcap", self.cap).int("qk_matmul_output_mode", mode);
        case = case.int("left_window_size", self.left).int("right_window_size", self.right);
        if self.flat {
            case = case.int("q_num_heads", hq as i64).int("kv_num_heads", hk as i64);
        }
        case = case.input(&t.q).input(&t.k).input(&t.v);
        case = if self.mask.is_empty() { case.skip() } else { case.input(&t.mask) };
        case = if np == 0 { case.skip().skip() } else { case.input(&t.past[0]).input(&t.past[1]) };
        if self.lengths.is_empty() {
            case
        } else {
            case.input(&Tensor::new(&[self.lengths.len() as i64], self.lengths))
        }
    }

    fn out(&self) -> Vec<i64> {
        let [b, hq, _, nq, _, _, _, wv] = self.sizes.map(|n| n as i64);
        if self.flat { vec![b, nq, hq * wv] } else { vec![b, hq, nq, wv] }
    }
}

#[test]
fn like_the_definition() {
    for shape in SHAPES {
        let (t, dims) = (shape.tensors(), shape.out());
        let want = Tensor::new(&dims, &shape.naive(&t).1);
        on_all("Attention", 25, |case| {
            let y = shape.node(case, &t, 0).output(DType::F32, &dims).run();
            assert_close(&y[0], &want, 1e-5);
        });
    }
}

#[test]
fn scores_and_caches_are_shown_as_asked() {
    for shape in SHAPES {
        let (t, dims) = (shape.tensors(), shape.out());
        let [b, hq, hk, nq, nk, np, wk, wv] = shape.sizes.map(|n| n as i64);
        let (stages, y) = shape.naive(&t);
        for (mode, stage) in (0..).zip(&stages) {
            let case = shape.node(Case::new("Attention", 25).width(3), &t, mode).output(DType::F32, &dims);
            let case = case.output(DType::F32, &[b, hk, np + nk, wk]).output(DType::F32, &[b, hk, np + nk, wv]);
            let got = case.output(DType::F32, &[b, hq, nq, np + nk]).run();
            assert_close(&got[0], &Tensor::new(&dims, &y), 1e-5);
            assert_close(&got[3], &Tensor::new(&[b, hq, nq, np + nk], stage), 1e-5);
            for (got, own, past, width) in [(&got[1], &t.k, &t.past[0], wk), (&got[2], &t.v, &t.past[1], wv)] {
                let [hk, np, width, total] = [hk, np, width, np + nk].map(|n| n as usize);
                let want = Tensor::from_fn(&got.dims, |at| {
                    let (i, h) = (at / width / total / hk, at / width / total % hk);
                    let (row, d) = (at / width % total, at % width);
                    match row < np {
                        true => element(past, false, hk, [i, h, row, d]) as f32,
                        false => element(own, shape.flat, hk, [i, h, row - np, d]) as f32,
                    }
                });
                assert_eq!(got, &want);
            }
        }
    }
}

#[test]
fn halves_by_way_of_f32() {
    let shape = Shape { sizes: [2, 4, 2, 5, 7, 0, 3, 5], mask: &[5, 7], seen: true, ..NONE };
    let mut t = shape.tensors();
    let narrow = |x: &Tensor| Tensor::new(&x.dims, &x.to_vec::<f32>().into_iter().map(F16::round).collect::<Vec<_>>());
    let wide = |x: &Tensor| Tensor::new(&x.dims, &x.to_vec::<F16>().into_iter().map(F16::wide).collect::<Vec<_>>());
    let halves = [&t.q, &t.k, &t.v].map(narrow);
    [&mut t.q, &mut t.k, &mut t.v].into_iter().zip(&halves).for_each(|(x, h)| *x = wide(h));
    let want = Tensor::new(&shape.out(), &shape.naive(&t).1);
    [&mut t.q, &mut t.k, &mut t.v].into_iter().zip(halves).for_each(|(x, h)| *x = h);
    let got = shape.node(Case::new("Attention", 25), &t, 0).output(DType::F16, &shape.out()).run();
    assert_close(&wide(&got[0]), &want, 1e-3);
}

#[test]
fn what_is_not_done_is_refused() {
    let base = Shape { sizes: [2, 2, 2, 3, 4, 0, 8, 8], ..NONE };
    let t = base.tensors();
    let node = || base.node(Case::new("Attention", 25), &t, 0).output(DType::F32, &base.out());
    let (code, text) = node().int("softmax_precision", 11).rejection();
    assert_eq!((code, text.contains("asks for f64")), (RejectCode::Attribute, true), "{text}");
    let before = Shape { left: -2, ..base };
    let case = before.node(Case::new("Attention", 25), &t, 0).output(DType::F32, &base.out());
    let (code, text) = case.rejection();
    assert_eq!((code, text.contains("left_window_size = -2")), (RejectCode::Attribute, true), "{text}");
    let masked = |mask: &Tensor| {
        let case = Case::new("Attention", 25).int("is_causal", 0).float("softcap", 0.0).int("qk_matmul_output_mode", 0);
        let case = case.input(&t.q).input(&t.k).input(&t.v).input(mask);
        case.output(DType::F32, &base.out())
    };
    let (code, text) = masked(&Tensor::new(&[4], &[1i32; 4])).rejection();
    assert_eq!((code, text.contains("attn_mask) is i32")), (RejectCode::Dtype, true), "{text}");
    let error = masked(&Tensor::new(&[2, 4], &[1f32; 8])).try_run().unwrap_err();
    assert!(error.contains("is not spread over [2, 2, 3]"), "{error}");
    let long = Shape { lengths: &[5, 0], ..base };
    let error = long.node(Case::new("Attention", 25), &t, 0).output(DType::F32, &base.out()).try_run().unwrap_err();
    assert!(error.contains("(nonpad_kv_seqlen) holds 5 at 0, there are 4 keys"), "{error}");
}

/// Batch, heads, sequence, width, pairs.
fn turned(
    x: &[f32],
    [b, h, n, w, pairs]: [usize; 5],
    flat: bool,
    near: bool,
    angle: impl Fn(usize) -> usize,
) -> Vec<f32> {
    let mut y = x.to_vec();
    for (i, j, s) in (0..b * h * n).map(|at| (at / (h * n), at / n % h, at % n)) {
        let at = if flat { (i * n + s) * h + j } else { (i * h + j) * n + s } * w;
        for p in 0..pairs {
            let (sin, cos) = ((angle(i * n + s) * pairs + p) as f64).sin_cos();
            let (l, r) = if near { (at + 2 * p, at + 2 * p + 1) } else { (at + p, at + pairs + p) };
            let (a, c) = (f64::from(x[l]), f64::from(x[r]));
            (y[l], y[r]) = ((cos * a - sin * c) as f32, (sin * a + cos * c) as f32);
        }
    }
    y
}

#[test]
fn positions_are_turned_in() {
    for (sizes, flat) in
        [([2, 3, 5, 8, 4], false), ([2, 3, 5, 8, 4], true), ([1, 2, 3, 9, 2], true), ([2, 1, 0, 4, 2], false)]
    {
        let [b, h, n, w, pairs] = sizes.map(|n: usize| n as i64);
        let dims = if flat { vec![b, n, h * w] } else { vec![b, h, n, w] };
        let x = Tensor::random(&dims, 7);
        for (near, looked_up) in [(false, false), (true, false), (false, true), (true, true)] {
            let rows: &[i64] = if looked_up { &[11] } else { &[b, n] };
            let cache: Vec<i64> = rows.iter().copied().chain([pairs]).collect();
            let ids: Vec<i64> = (0..b * n).map(|k| k * 7 % 11).collect();
            let want =
                turned(&x.to_vec(), sizes, flat, near, |place| if looked_up { ids[place] as usize } else { place });
            on_all("RotaryEmbedding", 23, |case| {
                let case =
                    case.int("interleaved", near.into()).int("rotary_embedding_dim", 2 * pairs).int("num_heads", h);
                let case = case.input(&x).input(&Tensor::from_fn(&cache, |k| (k as f32).cos()));
                let case = case.input(&Tensor::from_fn(&cache, |k| (k as f32).sin()));
                let case = if looked_up { case.input(&Tensor::new(&[b, n], &ids)) } else { case };
                assert_close(&case.output(DType::F32, &dims).run()[0], &Tensor::new(&dims, &want), 1e-5);
            });
        }
    }
    let (x, cache) = (Tensor::random(&[1, 1, 2, 4], 1), Tensor::random(&[3, 2], 2));
    let case = Case::new("RotaryEmbedding", 23).int("interleaved", 0).int("rotary_embedding_dim", 0);
    let case = case.input(&x).input(&cache).input(&cache).input(&Tensor::new(&[1, 2], &[0i64, 3]));
    let error = case.output(DType::F32, &[1, 1, 2, 4]).try_run().unwrap_err();
    assert!(error.contains("(position_ids) holds 3 at 1, the caches have 3 rows"), "{error}");
}

#[test]
fn states_are_decayed_written_and_read() {
    let (b, n, hq, hk, dk, dv) = (2usize, 5usize, 4usize, 2usize, 3usize, 7usize);
    let dims = |w: usize| [b as i64, n as i64, w as i64];
    let (q, k, v) =
        (Tensor::random(&dims(hq * dk), 1), Tensor::random(&dims(hk * dk), 2), Tensor::random(&dims(hk * dv), 3));
    let state = [b, hk, dk, dv].map(|n| n as i64);
    let past = Tensor::random(&state, 4);
    for (rule, decays, betas) in
        [("linear", 0, 0), ("gated", 1, 0), ("gated", dk, 0), ("delta", 0, 1), ("gated_delta", dk, hk)]
    {
        let (decay, beta) = (Tensor::random(&dims(hk * decays), 5), Tensor::random(&dims(betas), 6));
        let (qs, ks, vs) = (q.to_vec::<f32>(), k.to_vec::<f32>(), v.to_vec::<f32>());
        let (gs, bs) = (decay.to_vec::<f32>(), beta.to_vec::<f32>());
        let (mut s, mut y) = (past.to_vec::<f32>(), vec![0.0f32; b * n * hq * dv]);
        for (i, t, h) in (0..b * n * hk).map(|at| (at / (n * hk), at / hk % n, at % hk)) {
            let at = |d: usize, m: usize| ((i * hk + h) * dk + d) * dv + m;
            let token = i * n + t;
            let key = |d: usize| ks[(token * hk + h) * dk + d];
            for (d, m) in (0..dk * dv).map(|k| (k / dv, k % dv)).filter(|_| decays > 0) {
                s[at(d, m)] *= gs[(token * hk + h) * decays + if decays == 1 { 0 } else { d }].exp();
            }
            let known: Vec<f32> = (0..dv).map(|m| (0..dk).map(|d| s[at(d, m)] * key(d)).sum()).collect();
            for (d, m) in (0..dk * dv).map(|k| (k / dv, k % dv)) {
                let mut new = vs[(token * hk + h) * dv + m];
                if betas > 0 {
                    new = bs[token * betas + if betas == 1 { 0 } else { h }] * (new - known[m]);
                }
                s[at(d, m)] += key(d) * new;
            }
            for (g, m) in (0..hq / hk * dv).map(|k| (k / dv, k % dv)) {
                let head = token * hq + h * (hq / hk) + g;
                y[head * dv + m] = (0..dk).map(|d| qs[head * dk + d] * s[at(d, m)]).sum::<f32>() * 0.5;
            }
        }
        on_all("LinearAttention", 27, |case| {
            let case = case.text("update_rule", rule).int("q_num_heads", hq as i64).int("kv_num_heads", hk as i64);
            let case = case.float("scale", 0.5).input(&q).input(&k).input(&v).input(&past);
            let case = if decays > 0 { case.input(&decay) } else { case.skip() };
            let case = if betas > 0 { case.input(&beta) } else { case };
            let got = case.output(DType::F32, &dims(hq * dv)).output(DType::F32, &state).run();
            assert_close(&got[0], &Tensor::new(&dims(hq * dv), &y), 1e-5);
            assert_close(&got[1], &Tensor::new(&state, &s), 1e-5);
        });
    }
    let case =
        Case::new("LinearAttention", 27).text("update_rule", "gated").int("q_num_heads", 4).int("kv_num_heads", 2);
    let (code, text) = case.float("scale", 0.0).input(&q).input(&k).input(&v).output(DType::F32, &dims(28)).rejection();
    assert_eq!((code, text.contains("input 4 (decay), which is missing")), (RejectCode::Attribute, true), "{text}");
}
