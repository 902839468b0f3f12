//! Convolution along time that sees nothing later, channel by channel, with what came before as a state.

use crate::ops::float::agree;
use crate::ops::workers::Workers;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, BinaryOp, Isa, Operand, Simd, ops};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// `y[t] = b + sum of w[j] x[t - k + 1 + j]`, where what lies before the input is the state or 0.
pub(super) struct Causal {
    isa: Isa,
    silu: bool,
}

/// Rows are channels of images, of `len` values; `taps` of the filter.
#[derive(Default)]
pub(super) struct Bound {
    channels: usize,
    len: usize,
    taps: usize,
}

impl Bound {
    /// A row with its past.
    fn long(&self) -> usize {
        self.len + self.taps - 1
    }
}

impl Op for Causal {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (i, name) in [(0, "input"), (1, "weight")] {
            let rank = node.needs(i)?.rank();
            if rank != 3 {
                return Err(Reject::rank(format!("input {i} ({name}) has rank {rank}, 3 is needed")));
            }
        }
        let silu = match node.text("activation").unwrap_or("none") {
            "none" => false,
            "silu" | "swish" => true,
            other => {
                return Err(Reject::attribute(format!("attribute activation = {other} is not none, silu or swish")));
            }
        };
        Ok(Causal { isa: Cpu::of(node).isa, silu })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let taps = node.input(1).and_then(|w| w.dim(2)).map_or(f64::NAN, |n| n as f64);
        cost::per_element(node, taps * 0.1)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let (x, w) = (shapes.input(0), shapes.input(1));
        let (&[batch, channels, len], &[filters, 1, taps @ 1..=i64::MAX]) = (x, w) else {
            return Err(Fault::data(format!("an input of {x:?} and filters of {w:?}, not of [channels, 1, taps]")));
        };
        let [batch, channels, len, taps] = [batch, channels, len, taps].map(size);
        *bound = Bound { channels, len, taps };
        agree("the filters", size(filters), channels)?;
        agree("output 0", shapes.output_len(0), shapes.input_len(0))?;
        if shapes.has(2) {
            agree("input 2 (bias)", shapes.input_len(2), channels)?;
        }
        let state = batch * channels * (taps - 1);
        if shapes.has(3) {
            agree("input 3 (past_state)", shapes.input_len(3), state)?;
        }
        if !shapes.output(1).is_empty() {
            agree("output 1 (present_state)", shapes.output_len(1), state)?;
        }
        Ok(())
    }

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        bound.long().saturating_mul(width).saturating_mul(size_of::<f32>())
    }
}

/// `a + x b`
struct Plus(f32);

impl BinaryOp for Plus {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, a: S::F32, b: S::F32) -> S::F32 {
        s.fma(s.splat(self.0), b, a)
    }
}

pub(super) fn causal(op: &Causal, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Bound { channels, len, taps } = bound;
    let (x, w, isa, par) = (args.input::<f32>(0), args.input::<f32>(1), op.isa, args.par());
    let (bias, past) = (args.input_if::<f32>(2), args.input_if::<f32>(3));
    let before = taps - 1;
    let workers = Workers::new(args.scratch::<f32>(), bound.long());
    let grain = GRAIN.div_ceil((len * taps).max(1));
    split::rows(par, args.output::<f32>(0), len, grain, |worker, first, rows| {
        workers.with(worker, |long| {
            for (k, y) in rows.chunks_exact_mut(len.max(1)).enumerate() {
                let row = first + k;
                match past {
                    Some(past) => long[..before].copy_from_slice(&past[row * before..][..before]),
                    None => long[..before].fill(0.0),
                }
                long[before..].copy_from_slice(&x[row * len..][..len]);
                let channel = row % channels;
                y.fill(bias.map_or(0.0, |bias| bias[channel]));
                for (tap, &w) in w[channel * taps..][..taps].iter().enumerate() {
                    simd::map_binary_in_place(isa, &Plus(w), y, Operand::Slice(&long[tap..tap + len]));
                }
                if op.silu {
                    simd::map_unary_in_place(isa, &ops::Silu, y);
                }
            }
        });
    })?;
    if !args.wants(1) || before == 0 {
        return Ok(());
    }
    for (row, to) in args.output::<f32>(1).chunks_exact_mut(before).enumerate() {
        // The last values of the past and the input together.
        let kept = before.saturating_sub(len);
        match past {
            Some(past) => to[..kept].copy_from_slice(&past[(row + 1) * before - kept..][..kept]),
            None => to[..kept].fill(0.0),
        }
        to[kept..].copy_from_slice(&x[(row + 1) * len - (before - kept)..][..before - kept]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    #[test]
    fn like_the_definition() {
        for (b, c, len, taps) in
            [(1usize, 1usize, 1usize, 1usize), (2, 3, 8, 4), (2, 5, 37, 3), (1, 2, 2, 5), (1, 2, 0, 3), (0, 2, 4, 3)]
        {
            let dims = |n: usize| [b as i64, c as i64, n as i64];
            let x = Tensor::random(&dims(len), 1);
            let w = Tensor::random(&[c as i64, 1, taps as i64], 2);
            let (bias, past) = (Tensor::random(&[c as i64], 3), Tensor::random(&dims(taps - 1), 4));
            for (biased, stated, silu) in [(false, false, "none"), (true, true, "silu"), (false, true, "swish")] {
                let (xs, ws, ps, bs) =
                    (x.to_vec::<f32>(), w.to_vec::<f32>(), past.to_vec::<f32>(), bias.to_vec::<f32>());
                let value = |row: usize, t: usize| match t.checked_sub(taps - 1) {
                    Some(t) => xs[row * len + t],
                    None if stated => ps[row * (taps - 1) + t],
                    None => 0.0,
                };
                let y = Tensor::from_fn(&dims(len), |at| {
                    let (row, t) = (at / len, at % len);
                    let sum: f32 = (0..taps).map(|j| ws[row % c * taps + j] * value(row, t + j)).sum();
                    let sum = sum + if biased { bs[row % c] } else { 0.0 };
                    if silu == "none" { sum } else { sum / (1.0 + (-sum).exp()) }
                });
                let state = Tensor::from_fn(&dims(taps - 1), |at| value(at / (taps - 1), len + at % (taps - 1)));
                on_all("CausalConvWithState", 27, |case| {
                    let case = case.text("activation", silu).input(&x).input(&w);
                    let case = if biased { case.input(&bias) } else { case.skip() };
                    let case = if stated { case.input(&past) } else { case.skip() };
                    let got = case.output(DType::F32, &dims(len)).output(DType::F32, &dims(taps - 1)).run();
                    assert_close(&got[0], &y, 1e-5);
                    assert_eq!(got[1], state);
                });
            }
        }
    }

    #[test]
    fn what_is_not_done_is_refused() {
        let (x, w) = (Tensor::random(&[1, 2, 4], 1), Tensor::random(&[2, 1, 3], 2));
        let case = Case::new("CausalConvWithState", 27).text("activation", "relu").input(&x).input(&w);
        let (code, text) = case.output(DType::F32, &[1, 2, 4]).rejection();
        assert_eq!((code, text.contains("activation = relu")), (RejectCode::Attribute, true), "{text}");
    }
}
