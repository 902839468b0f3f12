//! Recurrent networks against a walk over single items in f64.

use super::activation::Activation;
use crate::ops::narrow::{Bf16, F16};
use crate::ops::testing::{Case, on_all};
use ortolan_ep_kit::testing::{OpTest, Tensor, assert_close};
use ortolan_ep_kit::{DType, RejectCode};

/// What a case has beside its sizes.
#[derive(Debug, Clone, Copy, Default)]
struct With {
    bias: bool,
    lens: bool,
    state: bool,
    peephole: bool,
    clip: Option<f32>,
    coupled: bool,
    after: bool,
    batch_first: bool,
    /// Weights are handed in at run, not constants.
    loose: bool,
    acts: Option<[Activation; 3]>,
    /// The input, and the state at each step, are held in 8 bits.
    quantized: bool,
}

#[derive(Debug, Clone, Copy)]
struct Net {
    op: &'static str,
    direction: &'static str,
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    with: With,
}

impl Net {
    fn gates(&self) -> usize {
        match self.op {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        }
    }
    fn directions(&self) -> usize {
        if self.direction == "bidirectional" { 2 } else { 1 }
    }
    fn acts(&self) -> [Activation; 3] {
        let usual = match self.op {
            "RNN" => [Activation::Tanh; 3],
            _ => [Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        };
        self.with.acts.unwrap_or(usual)
    }
    fn state_dims(&self) -> Vec<i64> {
        let (d, b, h) = (self.directions() as i64, self.batch as i64, self.hidden as i64);
        if self.with.batch_first { vec![b, d, h] } else { vec![d, b, h] }
    }
}

/// All inputs, as tensors.
struct Inputs {
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor,
    lens: Vec<i32>,
    state: Tensor,
    cell: Tensor,
    peephole: Tensor,
}

fn inputs(net: &Net) -> Inputs {
    let (d, g) = (net.directions() as i64, net.gates() as i64);
    let [t, b, i, h] = [net.steps, net.batch, net.input, net.hidden].map(|n| n as i64);
    let x = if net.with.batch_first { [b, t, i] } else { [t, b, i] };
    Inputs {
        x: Tensor::random(&x, 1),
        w: weights(&[d, g * h, i], 2),
        r: weights(&[d, g * h, h], 3),
        bias: Tensor::random(&[d, 2 * g * h], 4),
        lens: (0..net.batch).map(|b| ((net.steps + 2 * b + 1) % (net.steps + 1)) as i32).collect(),
        state: Tensor::random(&net.state_dims(), 5),
        cell: Tensor::random(&net.state_dims(), 6),
        peephole: Tensor::random(&[d, 3 * h], 7),
    }
}

/// Small enough for errors to die out from step to step.
fn weights(dims: &[i64], seed: u64) -> Tensor {
    let x = Tensor::random(dims, seed).to_vec::<f32>();
    Tensor::from_fn(dims, |k| x[k] / (dims[2] as f32).sqrt())
}

fn wide(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f32>().into_iter().map(f64::from).collect()
}

/// Numbers after `DynamicQuantizeLinear` and back.
fn in_bytes(x: &[f64]) -> Vec<f64> {
    let (low, high) = x.iter().fold((0.0f64, 0.0f64), |(l, h), &x| (l.min(x), h.max(x)));
    if high == low {
        return x.to_vec();
    }
    let scale = f64::from((high as f32 - low as f32) / 255.0);
    let zero = (-low / scale).round_ties_even();
    x.iter().map(|x| (((x / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero) * scale).collect()
}

/// Y, Y_h and Y_c by matrices and whole vectors, one item and direction after the other.
fn naive(net: &Net, inputs: &Inputs) -> [Vec<f64>; 3] {
    let Net { steps, batch, input, hidden, with, .. } = *net;
    let (gates, directions) = (net.gates(), net.directions());
    let [x, w, r, bias] = [&inputs.x, &inputs.w, &inputs.r, &inputs.bias].map(wide);
    let [h0, c0, peephole] = [&inputs.state, &inputs.cell, &inputs.peephole].map(wide);
    let x = if with.quantized { in_bytes(&x) } else { x };
    let mut y = vec![0.0; steps * directions * batch * hidden];
    let mut last = [vec![0.0; directions * batch * hidden], vec![0.0; directions * batch * hidden]];
    let [f, g, act] = net.acts();
    let clip = |x: f64| with.clip.map_or(x, |c| x.clamp(-f64::from(c), f64::from(c)));
    for d in 0..directions {
        let rows = |m: &[f64], k: usize, len: usize, v: &[f64]| -> Vec<f64> {
            let at = (d * gates + k) * hidden;
            (at..at + hidden).map(|j| (0..len).map(|i| m[j * len + i] * v[i]).sum()).collect()
        };
        let b_of = |which: usize, k: usize, j: usize| {
            if with.bias { bias[((2 * d + which) * gates + k) * hidden + j] } else { 0.0 }
        };
        for b in 0..batch {
            let at = hidden * if with.batch_first { b * directions + d } else { d * batch + b };
            let start = |v: &[f64]| if with.state { v[at..at + hidden].to_vec() } else { vec![0.0; hidden] };
            let (mut h, mut c) = (start(&h0), start(&c0));
            let len = if with.lens { inputs.lens[b] as usize } else { steps };
            let reverse = d == 1 || net.direction == "reverse";
            for i in 0..len {
                let t = if reverse { len - 1 - i } else { i };
                let row = if with.batch_first { b * steps + t } else { t * batch + b };
                let xt = &x[row * input..][..input];
                let of_x: Vec<Vec<f64>> = (0..gates).map(|k| rows(&w, k, input, xt)).collect();
                let held = if with.quantized { in_bytes(&h) } else { h.clone() };
                let of_h: Vec<Vec<f64>> = (0..gates).map(|k| rows(&r, k, hidden, &held)).collect();
                let sum = |k: usize, j: usize| of_x[k][j] + of_h[k][j] + b_of(0, k, j) + b_of(1, k, j);
                let p = |k: usize, j: usize| if with.peephole { peephole[(3 * d + k) * hidden + j] } else { 0.0 };
                let next: Vec<f64> = match net.op {
                    "RNN" => (0..hidden).map(|j| f.of(clip(sum(0, j)))).collect(),
                    "GRU" => {
                        let reset: Vec<f64> = (0..hidden).map(|j| f.of(clip(sum(1, j)))).collect();
                        let held: Vec<f64> = (0..hidden).map(|j| reset[j] * h[j]).collect();
                        let of_held = rows(&r, 2, hidden, &held);
                        (0..hidden)
                            .map(|j| {
                                let product = match with.after {
                                    true => reset[j] * (of_h[2][j] + b_of(1, 2, j)),
                                    false => of_held[j] + b_of(1, 2, j),
                                };
                                let new = g.of(clip(of_x[2][j] + b_of(0, 2, j) + product));
                                let z = f.of(clip(sum(0, j)));
                                (1.0 - z) * new + z * h[j]
                            })
                            .collect()
                    }
                    _ => (0..hidden)
                        .map(|j| {
                            let i = f.of(clip(sum(0, j) + p(0, j) * c[j]));
                            let forget = f.of(clip(sum(2, j) + p(2, j) * c[j]));
                            let forget = if with.coupled { 1.0 - i } else { forget };
                            c[j] = forget * c[j] + i * g.of(clip(sum(3, j)));
                            f.of(clip(sum(1, j) + p(1, j) * c[j])) * act.of(c[j])
                        })
                        .collect(),
                };
                h = next;
                let row = match with.batch_first {
                    true => (b * steps + t) * directions + d,
                    false => (t * directions + d) * batch + b,
                };
                y[row * hidden..][..hidden].copy_from_slice(&h);
            }
            last[0][at..at + hidden].copy_from_slice(&h);
            last[1][at..at + hidden].copy_from_slice(&c);
        }
    }
    let [h, c] = last;
    [y, h, c]
}

/// A node with its inputs in some float type.
fn case(case: OpTest, net: &Net, inputs: &Inputs, dtype: DType) -> OpTest {
    let cast = |t: &Tensor| {
        let x = t.to_vec::<f32>();
        match dtype {
            DType::F64 => Tensor::from_fn(&t.dims, |k| f64::from(x[k])),
            DType::F16 => Tensor::from_fn(&t.dims, |k| F16::round(x[k])),
            DType::Bf16 => Tensor::from_fn(&t.dims, |k| Bf16::round(x[k])),
            _ => t.clone(),
        }
    };
    let with = net.with;
    let weight = |case: OpTest, t: &Tensor| if with.loose { case.input(&cast(t)) } else { case.constant(&cast(t)) };
    let some = |case: OpTest, there: bool, t: &Tensor| if there { case.input(&cast(t)) } else { case.skip() };
    let mut case = case.text("direction", net.direction).int("hidden_size", net.hidden as i64);
    case = case.int("layout", with.batch_first.into());
    if let Some(clip) = with.clip {
        case = case.float("clip", clip);
    }
    if let Some(acts) = with.acts {
        case = with_acts(case, net, &acts);
    }
    case = case.int("input_forget", with.coupled.into()).int("linear_before_reset", with.after.into());
    case = weight(weight(case.input(&cast(&inputs.x)), &inputs.w), &inputs.r);
    case = if with.bias { weight(case, &inputs.bias) } else { case.skip() };
    let lens = Tensor::new(&[net.batch as i64], &inputs.lens);
    case = if with.lens { case.input(&lens) } else { case.skip() };
    case = some(case, with.state, &inputs.state);
    if net.op == "LSTM" {
        case = some(some(case, with.state, &inputs.cell), with.peephole, &inputs.peephole);
    }
    let [t, b, d, h] = [net.steps, net.batch, net.directions(), net.hidden].map(|n| n as i64);
    let y = if with.batch_first { [b, t, d, h] } else { [t, d, b, h] };
    let case = case.output(dtype, &y).output(dtype, &net.state_dims());
    if net.op == "LSTM" { case.output(dtype, &net.state_dims()) } else { case }
}

fn with_acts(case: OpTest, net: &Net, acts: &[Activation; 3]) -> OpTest {
    let (mut names, mut alphas, mut betas) = (Vec::new(), Vec::new(), Vec::new());
    let count = match net.op {
        "LSTM" => 3,
        "GRU" => 2,
        _ => 1,
    };
    for _ in 0..net.directions() {
        for act in &acts[..count] {
            let text = format!("{act:?}");
            names.push(text.split('(').next().unwrap_or_default().to_owned());
            let numbers = text.split(['(', ',', ')']).skip(1).filter_map(|n| n.trim().parse::<f32>().ok());
            for (k, n) in numbers.enumerate() {
                if k == 0 { alphas.push(n) } else { betas.push(n) }
            }
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    case.texts("activations", &names).floats("activation_alpha", &alphas).floats("activation_beta", &betas)
}

fn check(net: &Net, dtype: DType, test: OpTest) {
    let inputs = inputs(net);
    let want = naive(net, &inputs);
    let got = case(test, net, &inputs, dtype).run();
    let tolerance = match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 5e-3,
        _ => 4e-2,
    };
    for (k, (got, want)) in got.iter().zip(&want).enumerate() {
        let got = match dtype {
            DType::F32 => wide(got),
            DType::F64 => got.to_vec::<f64>(),
            DType::F16 => got.to_vec::<F16>().into_iter().map(|x| x.wide().into()).collect(),
            _ => got.to_vec::<Bf16>().into_iter().map(|x| x.wide().into()).collect(),
        };
        let dims = [got.len() as i64];
        let (got, want) = (Tensor::new(&dims, &got), Tensor::new(&dims, want));
        assert_eq!(got.dims, want.dims, "output {k} of {net:?}");
        assert_close(&got, &want, tolerance);
    }
}

const OPS: [&str; 3] = ["LSTM", "GRU", "RNN"];
const SIZES: [[usize; 4]; 6] =
    [[1, 1, 1, 1], [5, 1, 3, 16], [7, 3, 20, 5], [1, 4, 8, 33], [40, 2, 5, 64], [0, 2, 3, 4]];

#[test]
fn all_cells_at_odd_sizes() {
    for (op, [steps, batch, input, hidden]) in OPS.into_iter().flat_map(|op| SIZES.map(|s| (op, s))) {
        for direction in ["forward", "reverse", "bidirectional"] {
            for after in [false, true] {
                let with = With { bias: true, state: true, after, ..With::default() };
                let net = Net { op, direction, steps, batch, input, hidden, with };
                on_all(op, 22, |case| check(&net, DType::F32, case));
            }
        }
    }
}

#[test]
fn everything_that_a_node_can_have() {
    let some = With { bias: true, state: true, ..With::default() };
    let cases = [
        With::default(),
        With { lens: true, ..some },
        With { batch_first: true, ..some },
        With { batch_first: true, lens: true, after: true, ..some },
        With { loose: true, ..some },
        With { loose: true, after: true, ..With::default() },
        With { peephole: true, ..some },
        With { clip: Some(0.4), ..some },
        With { coupled: true, peephole: true, clip: Some(0.7), ..some },
    ];
    for (op, with) in OPS.into_iter().flat_map(|op| cases.map(|w| (op, w))) {
        for direction in ["forward", "bidirectional"] {
            let net = Net { op, direction, steps: 6, batch: 3, input: 7, hidden: 19, with };
            on_all(op, 22, |case| check(&net, DType::F32, case));
            for dtype in [DType::F64, DType::F16, DType::Bf16] {
                check(&net, dtype, Case::new(op, 22));
            }
        }
    }
}

#[test]
fn every_function() {
    use Activation::*;
    let all = [
        [Affine(0.5, 0.25), HardSigmoid(0.25, 0.5), Elu(0.5)],
        [Sigmoid, ScaledTanh(0.5, 1.5), Softsign],
        [HardSigmoid(0.125, 0.5), LeakyRelu(0.25), Relu],
        [Softsign, Softplus, ThresholdedRelu(0.25)],
        [Elu(1.0), ThresholdedRelu(0.5), Affine(2.0, 0.5)],
    ];
    for (op, acts) in OPS.into_iter().flat_map(|op| all.map(|a| (op, a))) {
        let with = With { acts: Some(acts), bias: true, ..With::default() };
        let net = Net { op, direction: "bidirectional", steps: 3, batch: 2, input: 5, hidden: 18, with };
        on_all(op, 22, |case| check(&net, DType::F32, case));
    }
}

#[test]
fn lengths_are_checked() {
    let net = |op| Net {
        op,
        direction: "forward",
        steps: 4,
        batch: 2,
        input: 3,
        hidden: 5,
        with: With { lens: true, ..With::default() },
    };
    for (op, bad) in [("LSTM", 5), ("GRU", -1), ("RNN", 5)] {
        for dtype in [DType::F32, DType::F64] {
            let (net, mut inputs) = (net(op), inputs(&net(op)));
            inputs.lens = vec![4, bad];
            let error = case(Case::new(op, 22), &net, &inputs, dtype).try_run().unwrap_err();
            assert!(error.contains(&format!("sequence_lens is {bad} at element 1, X has 4 steps")), "{error}");
        }
    }
}

#[test]
fn refused_with_a_sentence() {
    let x = |n: i64, m: i64| Tensor::random(&[1, n, m], 1);
    let node = || Case::new("LSTM", 22).input(&x(2, 3)).input(&x(20, 3)).input(&x(20, 5));
    let out = |case: OpTest| case.output(DType::F32, &[1, 1, 2, 5]);
    let cases = [
        (node().text("direction", "sideways"), "LSTM: attribute direction = 'sideways' is not known"),
        (node().texts("activations", &["Tanh"]), "LSTM: attribute activations has 1 functions, needed are 3"),
        (node().texts("activations", &["Sine"]), "LSTM: attribute activations has 'Sine', which is no function"),
        (node().float("clip", -1.0), "LSTM: attribute clip = -1 is no bound"),
    ];
    for (case, text) in cases {
        assert_eq!(out(case).rejection(), (RejectCode::Attribute, text.to_owned()));
    }
    let bias = Tensor::random(&[1, 39], 1);
    let error = out(node().input(&bias)).try_run().unwrap_err();
    assert!(error.contains("B has 39 elements, needed are 40"), "{error}");
}

/// Weights in 8 bits: codes, scales and zero points as the operator wants them, and what they mean as LSTM has them.
fn in_codes(dims: [i64; 3], dtype: DType, each: bool, seed: u64) -> ([Tensor; 3], Tensor) {
    let [d, k, n] = dims;
    let codes = Tensor::random(&dims, seed).to_vec::<f32>();
    let bits: Vec<u8> = codes.iter().map(|x| (x * 127.0) as i32 as u8).collect();
    let table = if each { vec![d, n] } else { vec![d] };
    let scale = Tensor::from_fn(&table, |i| (0.003 + 0.0001 * (i % 7) as f32) / (k as f32).sqrt());
    let zero =
        Tensor { dtype, dims: table.clone(), bytes: (0..scale.to_vec::<f32>().len()).map(|i| i as u8 % 5).collect() };
    let number = |byte: u8| if dtype == DType::I8 { f64::from(byte as i8) } else { f64::from(byte) };
    let meant = Tensor::from_fn(&[d, n, k], |at| {
        let (i, row, column) = (at as i64 / (n * k), at as i64 / k % n, at as i64 % k);
        let of = if each { i * n + row } else { i } as usize;
        let code = number(bits[((i * k + column) * n + row) as usize]) - number(zero.bytes[of]);
        (code * f64::from(scale.to_vec::<f32>()[of])) as f32
    });
    ([Tensor { dtype, dims: dims.to_vec(), bytes: bits }, scale, zero], meant)
}

#[test]
fn quantized_weights() {
    for (dtype, each) in [(DType::I8, false), (DType::I8, true), (DType::U8, false), (DType::U8, true)] {
        for (direction, loose) in [("forward", false), ("reverse", true), ("bidirectional", false)] {
            for copies in [1, 3] {
                let with = With { bias: true, state: true, peephole: true, quantized: true, ..With::default() };
                let (steps, input, hidden) = (5, 7, 18);
                let net = Net { op: "LSTM", direction, steps, batch: 1, input, hidden, with };
                let (d, gates) = (net.directions() as i64, 4 * hidden as i64);
                let mut inputs = inputs(&net);
                let (w, meant_w) = in_codes([d, input as i64, gates], dtype, each, 11);
                let (r, meant_r) = in_codes([d, hidden as i64, gates], dtype, each, 12);
                (inputs.w, inputs.r) = (meant_w, meant_r);
                let want = naive(&net, &inputs);
                // Equal items have equal results, as the state is quantized over the whole batch.
                let copied = |t: &Tensor, outer: usize| {
                    let (x, row) = (t.to_vec::<f32>(), t.to_vec::<f32>().len() / outer);
                    let mut dims = t.dims.clone();
                    dims[1] *= copies as i64;
                    Tensor::from_fn(&dims, |k| x[k / (row * copies) * row + k % row])
                };
                on_all("DynamicQuantizeLSTM", 1, |case| {
                    let weight = |case: OpTest, t: &Tensor| if loose { case.input(t) } else { case.constant(t) };
                    let case =
                        case.domain("com.microsoft").text("direction", direction).int("hidden_size", hidden as i64);
                    let case = case.int("input_forget", 0).input(&copied(&inputs.x, steps));
                    let case = weight(weight(case, &w[0]), &r[0]).input(&inputs.bias).skip();
                    let case = case.input(&copied(&inputs.state, d as usize)).input(&copied(&inputs.cell, d as usize));
                    let case =
                        [&inputs.peephole, &w[1], &w[2], &r[1], &r[2]].into_iter().fold(case, |case, t| case.input(t));
                    let state = [d, copies as i64, hidden as i64];
                    let y = [steps as i64, d, copies as i64, hidden as i64];
                    let got = case.output(DType::F32, &y).output(DType::F32, &state).output(DType::F32, &state).run();
                    for (got, want) in got.iter().zip(&want) {
                        let row = hidden;
                        let got = got.to_vec::<f32>();
                        let want: Vec<f32> =
                            (0..got.len()).map(|k| want[k / (row * copies) * row + k % row] as f32).collect();
                        let dims = [got.len() as i64];
                        assert_close(&Tensor::new(&dims, &got), &Tensor::new(&dims, &want), 1e-5);
                    }
                });
            }
        }
    }
}
