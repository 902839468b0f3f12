//! All-to-all attention over blocks of queries: scores of a block with the keys that it may see, step by step to weights,
//! and the values under them. Keys outside of a block's reach are never multiplied, unless their scores are an output.

use super::heads::{Bound, Heads};
use super::{Attention, Mask, Stage};
use crate::gemm::{Add, Epilogue, Gemm, Lhs, Mat, MatMut, Rhs};
use crate::ops::workers::Workers;
use crate::simd::{self, Isa, Operand, ops};
use core::ops::Range;
use ortolan_ep_kit::parallel::{Parallel, Serial};
use ortolan_ep_kit::{Args, Bool, Fault, size, split};
use std::sync::{Mutex, PoisonError};

/// All that the workers read.
pub(crate) struct Work<'a> {
    pub op: &'a Attention,
    pub bound: &'a Bound,
    pub q: &'a [f32],
    pub k: [&'a [f32]; 2],
    pub v: [&'a [f32]; 2],
    pub added: &'a [f32],
    pub seen: &'a [Bool],
    /// Keys of each sequence; all of them if there are no lengths.
    pub lengths: &'a [i64],
    /// Where the first query of each sequence stands among the keys. Without any, it is behind the past, or the last query
    /// of each length is the last key.
    pub starts: &'a [i64],
    /// A score of each head that weighs on the others without a value; none if empty.
    pub sinks: &'a [f32],
    /// All scores are computed, seen or not.
    pub whole: bool,
}

/// Queries that are computed together: rows from `row` on of a head, or heads from `head` on that share their keys.
struct Block {
    batch: usize,
    head: usize,
    row: usize,
    count: usize,
    by_heads: bool,
    /// Keys whose scores are computed.
    keys: Range<usize>,
}

impl Block {
    /// Head and row of its query `at`.
    fn place(&self, at: usize) -> (usize, usize) {
        if self.by_heads { (self.head + at, self.row) } else { (self.head, self.row + at) }
    }
}

pub(crate) fn attention(op: &Attention, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let par = args.par();
    for (output, inputs, heads) in [(1, [4, 1], &bound.k), (2, [5, 2], &bound.v)] {
        if args.wants(output) {
            let from = inputs.map(|i| args.input_if::<f32>(i).unwrap_or(&[]));
            join(par, from, heads, args.output(output))?;
        }
    }
    let lengths = args.input_if::<i64>(6).unwrap_or(&[]);
    if let Some((at, n)) = lengths.iter().enumerate().find(|(_, n)| !(0..=bound.total as i64).contains(*n)) {
        let all = bound.total;
        return Err(Fault::data(format!("input 6 (nonpad_kv_seqlen) holds {n} at {at}, there are {all} keys")));
    }
    let whole = args.wants(3);
    let work = Work {
        op,
        bound,
        q: args.input(0),
        k: [args.input_if(4).unwrap_or(&[]), args.input(1)],
        v: [args.input_if(5).unwrap_or(&[]), args.input(2)],
        added: if op.mask == Mask::Added { args.input(3) } else { &[] },
        seen: if op.mask == Mask::Seen { args.input(3) } else { &[] },
        lengths,
        starts: &[],
        sinks: &[],
        whole,
    };
    let scratch = args.scratch::<f32>();
    let shown = if whole { args.output::<f32>(3) } else { &mut [] };
    work.run(par, args.output::<f32>(0), shown, scratch)
}

/// The past and what follows it, head by head.
pub(crate) fn join(par: &dyn Parallel, from: [&[f32]; 2], heads: &[Heads; 2], to: &mut [f32]) -> Result<(), Fault> {
    let (width, rows) = (heads[1].size, heads[0].len + heads[1].len);
    Ok(split::rows(par, to, width, crate::ops::GRAIN.div_ceil(width.max(1)), |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(width.max(1)).enumerate() {
            let (unit, row) = ((first + k) / rows, (first + k) % rows);
            let (part, row) = if row < heads[0].len { (0, row) } else { (1, row - heads[0].len) };
            let at = heads[part].at(unit / heads[1].heads, unit % heads[1].heads, row);
            y.copy_from_slice(&from[part][at..at + width]);
        }
    })?)
}

/// From the order of heads to that of rows.
fn turn(par: &dyn Parallel, from: &[f32], y: &Heads, to: &mut [f32]) -> Result<(), Fault> {
    let row = y.step[2];
    Ok(split::rows(par, to, row, crate::ops::GRAIN.div_ceil(row.max(1)), |_, first, piece| {
        for (k, to) in piece.chunks_exact_mut(row.max(1)).enumerate() {
            let (batch, at) = ((first + k) / y.len, (first + k) % y.len);
            for (head, to) in to.chunks_exact_mut(y.size.max(1)).enumerate() {
                let from = &from[((batch * y.heads + head) * y.len + at) * y.size..];
                to.copy_from_slice(&from[..y.size]);
            }
        }
    })?)
}

impl Work<'_> {
    /// Computes the output, and what is shown of the scores if they are whole; `scratch` has as much as
    /// [`Bound::scratch`] says.
    pub fn run(&self, par: &dyn Parallel, y: &mut [f32], shown: &mut [f32], scratch: &mut [f32]) -> Result<(), Fault> {
        let bound = self.bound;
        let (turned, rest) = scratch.split_at_mut(bound.turned());
        let workers = Workers::new(rest, bound.worker(self.op.isa));
        let failed = Mutex::new(None);
        let note = |done: Result<(), Fault>| {
            if let Err(fault) = done {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
            }
        };
        split::rows(par, shown, bound.total, bound.rows, |worker, first, rows| {
            workers.with(worker, |scratch| note(self.show(first, rows, scratch)));
        })?;
        let shown: &[f32] = shown;
        let to = if turned.is_empty() { &mut *y } else { &mut turned[..bound.queries() * bound.y.size] };
        split::rows(par, to, bound.y.size, bound.rows, |worker, first, rows| {
            workers.with(worker, |scratch| note(self.weigh(first, rows, shown, scratch)));
        })?;
        if let Some(fault) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(fault);
        }
        if turned.is_empty() { Ok(()) } else { turn(par, turned, &bound.y, y) }
    }

    /// Puts one number in place of the scores that are shown of keys out of reach.
    pub fn cover(&self, par: &dyn Parallel, shown: &mut [f32], with: f32) -> Result<(), Fault> {
        let b = self.bound;
        let grain = crate::ops::GRAIN.div_ceil(b.total.max(1));
        Ok(split::rows(par, shown, b.total, grain, |_, first, rows| {
            for (k, row) in rows.chunks_exact_mut(b.total.max(1)).enumerate() {
                let at = first + k;
                let reach = self.reach(at / (b.q.heads * b.q.len), at % b.q.len);
                row[..reach.start].fill(with);
                row[reach.end..].fill(with);
            }
        })?)
    }

    /// The scores of rows of queries, as far as output 3 shows them.
    fn show(&self, first: usize, mut rows: &mut [f32], scratch: &mut [f32]) -> Result<(), Fault> {
        let (_, products) = scratch.split_at_mut(self.bound.scores());
        let end = first + rows.len() / self.bound.total.max(1);
        let mut at = first;
        while at < end {
            let block = self.block(at, end);
            let (own, rest) = core::mem::take(&mut rows).split_at_mut(block.count * self.bound.total);
            (at, rows) = (at + block.count, rest);
            self.scores(&block, own, products)?;
            self.steps(&block, own, Stage::Raw, self.op.shown);
        }
        Ok(())
    }

    /// The output of rows of queries, from the scores that are shown if there are some.
    fn weigh(&self, first: usize, mut rows: &mut [f32], shown: &[f32], scratch: &mut [f32]) -> Result<(), Fault> {
        let (scores, products) = scratch.split_at_mut(self.bound.scores());
        let (width, total) = (self.bound.y.size, self.bound.total);
        let end = first + rows.len() / width.max(1);
        let mut at = first;
        while at < end {
            let block = self.block(at, end);
            let (own, rest) = core::mem::take(&mut rows).split_at_mut(block.count * width);
            let scores = &mut scores[..block.count * block.keys.len()];
            let mut from = Stage::Raw;
            if self.whole {
                scores.copy_from_slice(&shown[at * total..][..block.count * total]);
                from = self.op.shown;
            } else {
                self.scores(&block, scores, products)?;
            }
            (at, rows) = (at + block.count, rest);
            self.steps(&block, scores, from, Stage::Soft);
            self.values(&block, scores, own, products)?;
        }
        Ok(())
    }

    /// The block that begins at a row. Where it ends does not depend on who computes it.
    fn block(&self, at: usize, end: usize) -> Block {
        let b = self.bound;
        let (unit, within) = (at / b.span, at % b.span);
        let count = (b.rows - at % b.rows).min(b.span - within).min(end - at);
        let by_heads = b.q.len == 1;
        let (head, row) = if by_heads { (unit * b.group + within, 0) } else { (unit, within) };
        let (batch, head) = (head / b.q.heads, head % b.q.heads);
        let mut block = Block { batch, head, row, count, by_heads, keys: 0..b.total };
        if !self.whole {
            let reach = (0..count).map(|r| self.reach(batch, block.place(r).1)).filter(|reach| !reach.is_empty());
            let reach = reach.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
            block.keys = reach.unwrap_or(0..0);
        }
        block
    }

    /// Keys that a query sees for its place.
    fn reach(&self, batch: usize, row: usize) -> Range<usize> {
        let b = self.bound;
        let valid = self.lengths.get(batch).map_or(b.total, |&n| size(n));
        // Below 2^62, as all of these count elements.
        let before = match self.starts.get(batch) {
            Some(&start) => start,
            None if self.lengths.is_empty() => b.k[0].len as i64,
            None => valid as i64 - b.q.len as i64,
        };
        let at = before + row as i64;
        let [left, right] = self.op.window.map(|n| n.map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
        let start = left.map_or(0, |n| size(at.saturating_sub(n).max(0)));
        let mut end = valid.min(b.masked);
        for most in [right.map(|n| at.saturating_add(n)), self.op.causal.then_some(at)].into_iter().flatten() {
            end = end.min(size(most.saturating_add(1).max(0)));
        }
        start.min(end)..end
    }

    /// Pieces of a block's keys: which part they are in, from which row on, and their columns among the block's.
    fn parts(&self, heads: &[Heads; 2], keys: &Range<usize>) -> [(usize, usize, Range<usize>); 2] {
        let past = heads[0].len;
        let cut = keys.end.min(past).max(keys.start);
        let first = if keys.start < past { cut - keys.start } else { 0 };
        [(0, keys.start, 0..first), (1, keys.start.max(past) - past, first..keys.len())]
    }

    /// Scaled products of a block's queries and keys.
    fn scores(&self, block: &Block, to: &mut [f32], scratch: &mut [f32]) -> Result<(), Fault> {
        let (b, columns) = (self.bound, block.keys.len());
        let step = if block.by_heads { b.q.step[1] } else { b.q.step[2] };
        let q = self.q.get(b.q.at(block.batch, block.head, block.row)..).unwrap_or(&[]);
        let q = Mat::strided(q, block.count, b.q.size, step, 1)?;
        for (part, row, range) in self.parts(&b.k, &block.keys) {
            if range.is_empty() {
                continue;
            }
            let (heads, n) = (&b.k[part], range.len());
            let k = self.k[part].get(heads.at(block.batch, block.head / b.group, row)..).unwrap_or(&[]);
            let k = Mat::strided(k, n, heads.size, heads.step[2], 1)?.transposed();
            let gemm = Gemm { alpha: b.scale, ..Gemm::new(self.op.isa, block.count, n, heads.size) };
            let out = MatMut::strided(&mut to[range.start..], block.count, n, columns)?;
            gemm.run(Lhs::Plain(q), Rhs::Plain(k), &Epilogue::default(), out, scratch, &Serial)?;
        }
        Ok(())
    }

    /// Values weighted by the scores of a block.
    fn values(&self, block: &Block, scores: &[f32], to: &mut [f32], scratch: &mut [f32]) -> Result<(), Fault> {
        let (b, columns) = (self.bound, block.keys.len());
        let mut epilogue = Epilogue::default();
        for (part, row, range) in self.parts(&b.v, &block.keys) {
            if range.is_empty() {
                continue;
            }
            let (heads, n) = (&b.v[part], range.len());
            let v = self.v[part].get(heads.at(block.batch, block.head / b.group, row)..).unwrap_or(&[]);
            let v = Mat::strided(v, n, heads.size, heads.step[2], 1)?;
            let weights = Mat::strided(&scores[range.start..], block.count, n, columns, 1)?;
            let gemm = Gemm::new(self.op.isa, block.count, heads.size, n);
            let out = MatMut::new(&mut *to, block.count, heads.size)?;
            gemm.run(Lhs::Plain(weights), Rhs::Plain(v), &epilogue, out, scratch, &Serial)?;
            epilogue.add = Add::Output(1.0);
        }
        if matches!(epilogue.add, Add::None) {
            to.fill(0.0); // nothing is seen
        }
        Ok(())
    }

    /// Takes scores of a block from one stage to another.
    fn steps(&self, block: &Block, scores: &mut [f32], from: Stage, to: Stage) {
        let passes = |stage| from < stage && stage <= to;
        if passes(Stage::Capped) && self.op.cap > 0.0 {
            cap(self.op.isa, self.op.cap, scores);
        }
        let columns = block.keys.len();
        for (at, row) in scores.chunks_exact_mut(columns.max(1)).enumerate() {
            let (head, query) = block.place(at);
            let reach = self.reach(block.batch, query);
            let own = reach.start.saturating_sub(block.keys.start)..reach.end.saturating_sub(block.keys.start);
            let own = if reach.is_empty() { 0..0 } else { own };
            let mask = self.mask_at(block.batch, head, query);
            if passes(Stage::Biased) {
                self.bias(mask + reach.start, own.clone(), row);
            }
            if passes(Stage::Soft) {
                self.soften(mask + reach.start, own, row, self.sinks.get(head).copied());
            }
        }
    }

    fn mask_at(&self, batch: usize, head: usize, query: usize) -> usize {
        let step = self.bound.mask;
        batch * step[0] + head * step[1] + query * step[2]
    }

    /// Adds the mask, which begins at `mask` for the keys in reach; others are out of sight.
    fn bias(&self, mask: usize, own: Range<usize>, row: &mut [f32]) {
        row[..own.start].fill(f32::NEG_INFINITY);
        row[own.end..].fill(f32::NEG_INFINITY);
        let (row, len) = (&mut row[own.clone()], own.len());
        match self.op.mask {
            Mask::None => {}
            Mask::Added => {
                let added = Operand::Slice(&self.added[mask..mask + len]);
                simd::map_binary_in_place(self.op.isa, &ops::Add, row, added);
            }
            Mask::Seen => {
                for (x, seen) in row.iter_mut().zip(&self.seen[mask..mask + len]) {
                    *x = if seen.get() { *x } else { f32::NEG_INFINITY };
                }
            }
        }
    }

    /// Weights of the keys in reach; all 0 if none of them is seen.
    fn soften(&self, mask: usize, own: Range<usize>, row: &mut [f32], sink: Option<f32>) {
        row[..own.start].fill(0.0);
        row[own.end..].fill(0.0);
        let (row, len, isa) = (&mut row[own.clone()], own.len(), self.op.isa);
        let blind = match self.op.mask {
            Mask::None => len == 0,
            Mask::Added => simd::max(isa, &self.added[mask..mask + len]) == f32::NEG_INFINITY,
            Mask::Seen => !self.seen[mask..mask + len].iter().any(|seen| seen.get()),
        };
        let most = if blind { f32::NEG_INFINITY } else { simd::max(isa, row) };
        if most == f32::NEG_INFINITY {
            return row.fill(0.0);
        }
        let most = sink.map_or(most, |sink| most.max(sink));
        let sum = simd::exp_sub_sum_in_place(isa, row, most) + sink.map_or(0.0, |sink| (sink - most).exp());
        simd::map_binary_in_place(isa, &ops::Div, row, Operand::Scalar(sum));
    }
}

/// `cap tanh(x / cap)`
fn cap(isa: Isa, cap: f32, scores: &mut [f32]) {
    simd::map_binary_in_place(isa, &ops::Div, scores, Operand::Scalar(cap));
    simd::map_unary_in_place(isa, &ops::Tanh, scores);
    simd::map_binary_in_place(isa, &ops::Mul, scores, Operand::Scalar(cap));
}
