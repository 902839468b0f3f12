//! The definition of recurrent networks, in f64 and for all float types: slow, and plain enough to be read beside the
//! standard. It shares with the fast path what nodes say, and nothing of what it computes.

use super::{Cell, Network, Recurrent, Sizes};
use crate::ops::float::{Floats, FloatsMut};
use crate::ops::rnn::walk::check_lens;
use ortolan_ep_kit::{Args, Fault};

/// Bytes of scratch memory: two states, before and after, and two rows of gates.
pub(super) fn scratch(sizes: &Sizes) -> usize {
    let values = sizes.hidden.saturating_mul(4).saturating_add(sizes.gates.saturating_mul(2));
    values.saturating_mul(size_of::<f64>())
}

/// One item of the batch in one direction.
struct Item<'a, 'r> {
    network: &'r Network,
    sizes: &'r Sizes,
    d: usize,
    w: Floats<'a>,
    r: Floats<'a>,
    bias: Option<Floats<'a>>,
    peephole: Option<Floats<'a>>,
}

impl Item<'_, '_> {
    fn clipped(&self, x: f64) -> f64 {
        self.network.clip.map_or(x, |most| x.clamp(-f64::from(most), f64::from(most)))
    }

    /// Bias of W (0) or R (1) of a row.
    fn bias(&self, which: usize, row: usize) -> f64 {
        let wide = self.sizes.gates;
        self.bias.map_or(0.0, |bias| bias.get((2 * self.d + which) * wide + row))
    }

    fn of_state(&self, row: usize, state: impl Fn(usize) -> f64) -> f64 {
        let Sizes { hidden, gates, .. } = *self.sizes;
        let start = (self.d * gates + row) * hidden;
        (0..hidden).map(|k| self.r.get(start + k) * state(k)).sum::<f64>() + self.bias(1, row)
    }

    fn of_input(&self, row: usize, x: &Floats<'_>, at: usize) -> f64 {
        let Sizes { input, gates, .. } = *self.sizes;
        let start = (self.d * gates + row) * input;
        (0..input).map(|k| self.w.get(start + k) * x.get(at + k)).sum::<f64>() + self.bias(0, row)
    }

    fn peep(&self, gate: usize, j: usize, cell: f64) -> f64 {
        let hidden = self.sizes.hidden;
        self.peephole.map_or(0.0, |p| p.get((3 * self.d + gate) * hidden + j) * cell)
    }

    /// The next state from the products of the input, in `gates`, and the state in `before`.
    fn step(&self, gates: &[f64], before: &[f64], cell: &mut [f64], after: &mut [f64]) {
        let hidden = self.sizes.hidden;
        for j in 0..hidden {
            let gate = |k: usize| gates[k * hidden + j] + self.of_state(k * hidden + j, |i| before[i]);
            after[j] = match self.network.cell {
                Cell::Rnn { acts } => acts[self.d][0].of(self.clipped(gate(0))),
                Cell::Gru { acts, after } => {
                    let [f, g] = acts[self.d];
                    let z = f.of(self.clipped(gate(0)));
                    let reset = |i: usize| {
                        let row = hidden + i;
                        f.of(self.clipped(gates[row] + self.of_state(row, |i| before[i])))
                    };
                    let row = 2 * hidden + j;
                    let product = match after {
                        true => reset(j) * self.of_state(row, |i| before[i]),
                        false => self.of_state(row, |i| reset(i) * before[i]),
                    };
                    let new = g.of(self.clipped(gates[row] + product));
                    (1.0 - z) * new + z * before[j]
                }
                Cell::Lstm { acts, coupled } => {
                    let [f, g, h] = acts[self.d];
                    let i = f.of(self.clipped(gate(0) + self.peep(0, j, cell[j])));
                    let forget = if coupled { 1.0 - i } else { f.of(self.clipped(gate(2) + self.peep(2, j, cell[j]))) };
                    let now = forget * cell[j] + i * g.of(self.clipped(gate(3)));
                    let o = f.of(self.clipped(gate(1) + self.peep(1, j, now)));
                    cell[j] = now;
                    o * h.of(now)
                }
            };
        }
    }
}

pub(super) fn plain(op: &Recurrent, sizes: &Sizes, args: &mut Args<'_>) -> Result<(), Fault> {
    let (float, network) = (op.float, &op.network);
    let lens = args.input_if::<i32>(4);
    check_lens(lens, sizes.steps)?;
    let (x, w, r) = (Floats::input(args, 0, float), Floats::input(args, 1, float), Floats::input(args, 2, float));
    let [bias, state, cell, peephole] = [3, 5, 6, 7].map(|i| Floats::input_if(args, i, float));
    let mut outputs = [0, 1, 2].map(|j| FloatsMut::output_if(args, j, float));
    let Sizes { steps, batch, input, hidden, gates: wide, directions, .. } = *sizes;
    let scratch = args.scratch::<f64>();
    let (before, scratch) = scratch.split_at_mut(hidden);
    let (after, scratch) = scratch.split_at_mut(hidden);
    let (cells, scratch) = scratch.split_at_mut(hidden);
    let gates = &mut scratch[..wide];
    for (d, b) in (0..directions).flat_map(|d| (0..batch).map(move |b| (d, b))) {
        let item = Item { network, sizes, d, w, r, bias, peephole };
        let at = hidden * if network.batch_first { b * directions + d } else { d * batch + b };
        for j in 0..hidden {
            before[j] = state.map_or(0.0, |s| s.get(at + j));
            cells[j] = cell.map_or(0.0, |s| s.get(at + j));
        }
        let len = lens.map_or(steps, |lens| usize::try_from(lens[b]).unwrap_or(0));
        for i in 0..steps {
            // Of the reversed direction, the steps behind the end come first, and only write zeros.
            let t = if network.reverses(d) { steps - 1 - i } else { i };
            if t < len {
                let row = if network.batch_first { b * steps + t } else { t * batch + b };
                (0..wide).for_each(|k| gates[k] = item.of_input(k, &x, row * input));
                item.step(gates, before, cells, after);
                before.copy_from_slice(after);
            }
            if let Some(y) = &mut outputs[0] {
                let row = match network.batch_first {
                    true => (b * steps + t) * directions + d,
                    false => (t * directions + d) * batch + b,
                };
                (0..hidden).for_each(|j| y.put(row * hidden + j, if t < len { before[j] } else { 0.0 }));
            }
        }
        for (output, last) in outputs[1..].iter_mut().zip([&*before, &*cells]) {
            if let Some(y) = output {
                (0..hidden).for_each(|j| y.put(at + j, last[j]));
            }
        }
    }
    Ok(())
}
