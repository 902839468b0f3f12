//! Shapes of all-to-all attention: where heads lie, and how queries are cut into blocks.
//!
//! Rows of queries are counted over batch, heads and sequence. Where a sequence has one query, the heads that share keys
//! make one block.

use super::{Attention, Mask};
use crate::gemm::Gemm;
use crate::ops::float::agree;
use crate::simd::Isa;
use ortolan_ep_kit::{Fault, Shapes, size};

/// Scores of a block that a worker holds at a time, and the most queries of one.
const BLOCK: usize = 1 << 18;
const MOST_ROWS: usize = 64;
/// Multiply-adds that are worth a worker's while.
const WORTH: usize = 1 << 16;

/// Where heads of a tensor lie, whether their axis is the second one or part of the last.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Heads {
    pub batch: usize,
    pub heads: usize,
    pub len: usize,
    pub size: usize,
    /// From batch to batch, head to head, row to row.
    pub step: [usize; 3],
}

impl Heads {
    pub fn new(name: &str, dims: &[i64], heads: usize) -> Result<Self, Fault> {
        match *dims {
            [batch, heads, len, width] => {
                let [batch, heads, len, width] = [batch, heads, len, width].map(size);
                Ok(Heads { batch, heads, len, size: width, step: [heads * len * width, len * width, width] })
            }
            [batch, len, width] if size(width).is_multiple_of(heads.max(1)) => {
                let [batch, len, all] = [batch, len, width].map(size);
                let width = all / heads.max(1);
                Ok(Heads { batch, heads, len, size: width, step: [len * all, width, all] })
            }
            _ => Err(Fault::data(format!("{name} of dimensions {dims:?} does not hold {heads} heads"))),
        }
    }

    pub fn at(&self, batch: usize, head: usize, row: usize) -> usize {
        batch * self.step[0] + head * self.step[1] + row * self.step[2]
    }
}

/// Attention of one set of shapes.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    pub q: Heads,
    /// Keys and values of the past, and of this call.
    pub k: [Heads; 2],
    pub v: [Heads; 2],
    pub y: Heads,
    /// Keys in all.
    pub total: usize,
    /// Query heads per head of keys.
    pub group: usize,
    /// From batch, head and query to the next in the mask; keys that it reaches.
    pub mask: [usize; 3],
    pub masked: usize,
    /// Queries of a block, and rows in which a block ends at the latest.
    pub rows: usize,
    pub span: usize,
    pub scale: f32,
}

impl Bound {
    pub fn bind(&mut self, op: &Attention, shapes: &Shapes<'_>) -> Result<(), Fault> {
        let [q_heads, kv_heads] = op.heads;
        let q = Heads::new("Q", shapes.input(0), q_heads)?;
        let (k, v) = (Heads::new("K", shapes.input(1), kv_heads)?, Heads::new("V", shapes.input(2), kv_heads)?);
        let y = Heads::new("Y", shapes.output(0), q_heads)?;
        let past = |input, own: Heads| match op.past {
            true => Heads::new("the past", shapes.input(input), own.heads),
            false => Ok(Heads { len: 0, ..own }),
        };
        let (past_k, past_v) = (past(4, k)?, past(5, v)?);
        let same = [k, v, past_k, past_v].iter().all(|h| (h.batch, h.heads) == (q.batch, k.heads));
        let sizes = k.size == q.size && past_k.size == q.size && past_v.size == v.size;
        let lens = k.len == v.len && past_k.len == past_v.len;
        let out = (y.batch, y.heads, y.len, y.size) == (q.batch, q.heads, q.len, v.size);
        let divides = k.heads > 0 && q.heads.is_multiple_of(k.heads) || q.heads == 0;
        if !(same && sizes && lens && out && divides) {
            let dims: Vec<_> = [0, 1, 2, 4, 5].iter().map(|&i| shapes.input(i)).collect();
            return Err(Fault::data(format!("Q, K, V and their past of {dims:?} do not fit each other")));
        }
        self.lay(q, [past_k, k], [past_v, v], y, op.scale);
        self.bind_mask(op, shapes)?;
        for (output, heads, width) in [(1, k, k.size), (2, v, v.size)] {
            if !shapes.output(output).is_empty() {
                let count = k.batch * heads.heads * self.total * width;
                agree("a present", shapes.output_len(output), count)?;
            }
        }
        if !shapes.output(3).is_empty() {
            agree("qk_matmul_output", shapes.output_len(3), self.queries() * self.total)?;
        }
        if op.lengths {
            agree("nonpad_kv_seqlen", shapes.input_len(6), q.batch)?;
        }
        Ok(())
    }

    /// Places queries, keys and values of the past and of this call, and the output, which fit each other; without a mask.
    pub fn lay(&mut self, q: Heads, k: [Heads; 2], v: [Heads; 2], y: Heads, scale: Option<f32>) {
        (self.q, self.k, self.v, self.y) = (q, k, v, y);
        self.total = k[0].len + k[1].len;
        self.group = q.heads / k[1].heads.max(1);
        (self.mask, self.masked) = ([0; 3], self.total);
        self.scale = scale.unwrap_or(1.0 / (q.size.max(1) as f32).sqrt());
        self.span = if q.len == 1 { self.group } else { q.len }.max(1);
        let most = (BLOCK / self.total.max(1)).clamp(8, MOST_ROWS);
        let even = self.span.div_ceil(self.span.div_ceil(most));
        let worth = WORTH.div_ceil((self.span * self.total * q.size).max(1)).saturating_mul(self.span);
        self.rows = if self.span > most { even } else { worth.min(most) };
    }

    fn bind_mask(&mut self, op: &Attention, shapes: &Shapes<'_>) -> Result<(), Fault> {
        (self.mask, self.masked) = ([0; 3], self.total);
        if op.mask == Mask::None {
            return Ok(());
        }
        let dims = shapes.input(3);
        let Some((&last, outer)) = dims.split_last() else { return Err(Fault::data("attn_mask is a scalar")) };
        let over = [self.q.batch, self.q.heads, self.q.len];
        let mut step = size(last);
        for (dim, (have, to)) in outer.iter().rev().map(|&d| size(d)).zip(over.iter().zip(&mut self.mask).rev()) {
            if dim != 1 && dim != *have {
                return Err(Fault::data(format!("attn_mask of {dims:?} is not spread over {over:?} and the keys")));
            }
            *to = if dim == 1 { 0 } else { step };
            step *= dim;
        }
        if size(last) > self.total {
            return Err(Fault::data(format!("attn_mask has {last} columns for {} keys", self.total)));
        }
        self.masked = size(last);
        Ok(())
    }

    /// Rows of queries in all.
    pub fn queries(&self) -> usize {
        self.q.batch * self.q.heads * self.q.len
    }

    /// Values of scratch for the output in the order of heads, if it is another, then for each worker.
    pub fn scratch(&self, isa: Isa, width: usize) -> usize {
        self.worker(isa).saturating_mul(width).saturating_add(self.turned())
    }

    pub fn turned(&self) -> usize {
        let as_is = self.y.len <= 1 || self.y.heads <= 1 || self.y.step[1] > self.y.step[2];
        if as_is { 0 } else { (self.queries() * self.y.size).next_multiple_of(16) }
    }

    /// Scores of a block, and what the products want.
    pub fn worker(&self, isa: Isa) -> usize {
        self.scores().saturating_add(self.products(isa))
    }

    pub fn scores(&self) -> usize {
        self.rows.saturating_mul(self.total).next_multiple_of(16)
    }

    fn products(&self, isa: Isa) -> usize {
        let scores = Gemm::most_scratch_len(isa, self.rows, self.total, self.q.size);
        scores.max(Gemm::most_scratch_len(isa, self.rows, self.y.size, self.total)).next_multiple_of(16)
    }

    pub fn flops(&self) -> u64 {
        2 * (self.queries() * self.total * (self.q.size + self.y.size)) as u64
    }
}
