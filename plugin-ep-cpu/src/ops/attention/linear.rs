//! Linear attention: instead of scores, each head of keys has a matrix that every token decays, writes to, and reads from.
//!
//! Tokens follow each other; heads of keys of all batches run side by side. A worker keeps the matrix of its head, and what
//! is read from it, in one row of the scratch memory.

use super::heads as positive;
use crate::ops::float::agree;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, BinaryOp, Isa, Operand, Simd, ops};
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Reject, Shapes, size, split};

/// `S = exp(g) S + k v'`, `y = scale q S`, where v' is v or, with a delta, `beta (v - k S)`.
pub(crate) struct LinearAttention {
    isa: Isa,
    heads: [usize; 2],
    scale: Option<f32>,
    gated: bool,
    delta: bool,
    past: bool,
}

/// Sizes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Bound {
    batch: usize,
    len: usize,
    heads: usize,
    group: usize,
    /// Width of keys and of values.
    key: usize,
    value: usize,
    /// Decays of a head: one, or one per element of a key; and heads of beta.
    decays: usize,
    betas: usize,
}

impl Bound {
    fn state(&self) -> usize {
        self.key * self.value
    }

    /// What is read of the matrix for each token.
    fn read(&self) -> usize {
        self.len * self.group * self.value
    }

    /// A head's row of the scratch.
    fn row(&self) -> usize {
        self.state() + self.read() + self.value
    }
}

impl Op for LinearAttention {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (gated, delta) = match node.text("update_rule").unwrap_or("gated_delta") {
            "linear" => (false, false),
            "gated" => (true, false),
            "delta" => (false, true),
            "gated_delta" => (true, true),
            other => return Err(Reject::attribute(format!("attribute update_rule = {other} is not known"))),
        };
        for (i, name, wanted) in [(4, "decay", gated), (5, "beta", delta)] {
            if node.input(i).is_some() != wanted {
                let what = if wanted { "is missing" } else { "is there" };
                return Err(Reject::attribute(format!("attribute update_rule and input {i} ({name}), which {what}")));
            }
        }
        let own = node.needs(0)?.dtype();
        if let Some(state) = node.input(3)
            && state.dtype() as u32 != own as u32
            && state.dtype() as u32 != DType::F32 as u32
        {
            return Err(Reject::dtype(format!("input 3 (past_state) is {}, neither f32 nor {own}", state.dtype())));
        }
        let heads = [positive(node, "q_num_heads")?, positive(node, "kv_num_heads")?];
        if !heads[0].is_multiple_of(heads[1]) {
            return Err(Reject::attribute(format!("attributes q_num_heads, kv_num_heads = {heads:?}: no multiple")));
        }
        let scale = Some(node.float("scale")?).filter(|&scale| scale != 0.0);
        Ok(LinearAttention { isa: Cpu::of(node).isa, heads, scale, gated, delta, past: node.input(3).is_some() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(k), Some(y)) = (node.input(1), node.output(0)) else { return Cost::UNKNOWN };
        let key = k.dim(2).map_or(f64::NAN, |n| n as f64) / self.heads[1] as f64;
        // A few passes over the matrix per token, none as fast as a product of matrices.
        cost::products(node, 8.0 * y.elements() * key)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let [q_heads, heads] = self.heads;
        let (q, k, v) = (shapes.input(0), shapes.input(1), shapes.input(2));
        let (&[batch, len, q_all], &[_, _, k_all], &[_, _, v_all]) = (q, k, v) else {
            return Err(Fault::data(format!("query, key and value of {q:?}, {k:?}, {v:?} have not rank 3")));
        };
        let (batch, len) = (size(batch), size(len));
        let (key, value) = (size(k_all) / heads, size(v_all) / heads);
        let tokens = batch * len;
        agree("query", shapes.input_len(0), tokens * q_heads * key)?;
        agree("the last axis of query", size(q_all), q_heads * key)?;
        agree("key", shapes.input_len(1), tokens * heads * key)?;
        agree("value", shapes.input_len(2), tokens * heads * value)?;
        agree("output", shapes.output_len(0), tokens * q_heads * value)?;
        *bound = Bound { batch, len, heads, group: q_heads / heads, key, value, decays: 0, betas: 0 };
        let per_token = |input: usize| shapes.input(input).last().map_or(0, |&d| size(d));
        if self.gated {
            bound.decays = if per_token(4) == heads { 1 } else { key };
            agree("decay", shapes.input_len(4), tokens * heads * bound.decays)?;
        }
        if self.delta {
            bound.betas = if per_token(5) == 1 { 1 } else { heads };
            agree("beta", shapes.input_len(5), tokens * bound.betas)?;
        }
        if self.past {
            agree("past_state", shapes.input_len(3), batch * heads * bound.state())?;
        }
        if !shapes.output(1).is_empty() {
            agree("present_state", shapes.output_len(1), batch * heads * bound.state())?;
        }
        Ok(())
    }

    fn scratch(&self, bound: &Bound, _: usize) -> usize {
        let rows = (bound.batch * bound.heads).saturating_mul(bound.row());
        rows.saturating_mul(size_of::<f32>())
    }
}

/// Tensors of a run.
struct Work<'a> {
    op: &'a LinearAttention,
    bound: Bound,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    past: Option<&'a [f32]>,
    decay: &'a [f32],
    beta: &'a [f32],
    scale: f32,
}

pub(super) fn linear(op: &LinearAttention, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let b = *bound;
    let work = Work {
        op,
        bound: b,
        q: args.input(0),
        k: args.input(1),
        v: args.input(2),
        past: args.input_if(3),
        decay: args.input_if(4).unwrap_or(&[]),
        beta: args.input_if(5).unwrap_or(&[]),
        scale: op.scale.unwrap_or(1.0 / (b.key.max(1) as f32).sqrt()),
    };
    let (par, row, state) = (args.par(), b.row(), b.state());
    let all = &mut args.scratch::<f32>()[..b.batch * b.heads * row];
    split::rows(par, all, row, 1, |_, first, rows| {
        for (k, row) in rows.chunks_exact_mut(row.max(1)).enumerate() {
            work.head(first + k, row);
        }
    })?;
    let all: &[f32] = all;
    let part = b.group * b.value;
    split::rows(par, args.output::<f32>(0), part, GRAIN.div_ceil(part.max(1)), |_, first, rows| {
        for (k, y) in rows.chunks_exact_mut(part.max(1)).enumerate() {
            let (token, head) = ((first + k) / b.heads, (first + k) % b.heads);
            let unit = token / b.len * b.heads + head;
            y.copy_from_slice(&all[unit * row + state + token % b.len * part..][..part]);
        }
    })?;
    if args.wants(1) {
        let to = args.output::<f32>(1);
        for (to, from) in to.chunks_exact_mut(state.max(1)).zip(all.chunks_exact(row.max(1))) {
            to.copy_from_slice(&from[..state]);
        }
    }
    Ok(())
}

/// `a + x b`
struct Plus(f32);

impl BinaryOp for Plus {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, a: S::F32, b: S::F32) -> S::F32 {
        s.fma(s.splat(self.0), b, a)
    }
}

impl Work<'_> {
    /// All tokens of one head of keys, and of the queries that share it.
    fn head(&self, unit: usize, row: &mut [f32]) {
        let b = &self.bound;
        let (state, rest) = row.split_at_mut(b.state());
        let (read, news) = rest.split_at_mut(b.read());
        match self.past {
            Some(past) => state.copy_from_slice(&past[unit * b.state()..][..b.state()]),
            None => state.fill(0.0),
        }
        let (batch, head) = (unit / b.heads, unit % b.heads);
        for at in 0..b.len {
            let token = batch * b.len + at;
            let place = token * b.heads + head;
            let k = &self.k[place * b.key..][..b.key];
            self.decay(place, state);
            news.copy_from_slice(&self.v[place * b.value..][..b.value]);
            if self.op.delta {
                let beta = self.beta[token * b.betas + if b.betas == 1 { 0 } else { head }];
                k.iter().zip(rows(state, b.value)).for_each(|(&k, row)| self.add(news, -k, row));
                self.times(news, beta);
            }
            k.iter().zip(rows_mut(state, b.value)).for_each(|(&k, row)| self.add(row, k, news));
            for group in 0..b.group {
                let q = &self.q[(place * b.group + group) * b.key..][..b.key];
                let y = &mut read[(at * b.group + group) * b.value..][..b.value];
                y.fill(0.0);
                q.iter().zip(rows(state, b.value)).for_each(|(&q, row)| self.add(y, q * self.scale, row));
            }
        }
    }

    fn decay(&self, place: usize, state: &mut [f32]) {
        let b = &self.bound;
        match b.decays {
            0 => {}
            1 => self.times(state, self.decay[place].exp()),
            n => {
                let decays = &self.decay[place * n..][..n];
                decays.iter().zip(rows_mut(state, b.value)).for_each(|(g, row)| self.times(row, g.exp()));
            }
        }
    }

    fn add(&self, y: &mut [f32], factor: f32, x: &[f32]) {
        simd::map_binary_in_place(self.op.isa, &Plus(factor), y, Operand::Slice(x));
    }

    fn times(&self, y: &mut [f32], factor: f32) {
        simd::map_binary_in_place(self.op.isa, &ops::Mul, y, Operand::Scalar(factor));
    }
}

fn rows(state: &[f32], width: usize) -> impl Iterator<Item = &[f32]> {
    state.chunks_exact(width.max(1))
}

fn rows_mut(state: &mut [f32], width: usize) -> impl Iterator<Item = &mut [f32]> {
    state.chunks_exact_mut(width.max(1))
}
