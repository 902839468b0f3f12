//! Walks directions and steps of a recurrent network; what multiplies is given by [`Source`]. It must not know how weights
//! lie.
//!
//! One of the files with `unsafe`: directions write their rows of one output at the same time.

use super::cells::{self, Extra};
use super::{Cell, Network, Sizes};
use core::marker::PhantomData;
use core::ops::Range;
use ortolan_ep_kit::parallel::{Parallel, Serial};
use ortolan_ep_kit::{Args, Fault, split};
use std::sync::{Mutex, PoisonError};

/// Some of the gates, in the products of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of them.
    All,
    /// All but the last.
    Front,
    /// The last one.
    Last,
}

/// Rows of gates to be written, which begin `step` apart.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub data: &'a mut [f32],
    pub rows: usize,
    pub step: usize,
}

/// The weights of all directions.
pub(super) trait Source: Sync {
    /// The weights of one.
    type Weights<'s>: Weights
    where
        Self: 's;

    /// Values of scratch memory per direction.
    fn scratch_len(&self, threads: usize) -> usize;

    /// Makes the weights of a direction ready for a run.
    fn weights<'s>(
        &'s self,
        direction: usize,
        scratch: &'s mut [f32],
        par: &'s dyn Parallel,
    ) -> Result<Self::Weights<'s>, Fault>;
}

/// Products of one direction.
pub(super) trait Weights {
    /// `to = x W + bias` for some dense rows of X.
    fn input(&mut self, x: &[f32], bias: &[f32], to: Target<'_>) -> Result<(), Fault>;

    /// `to += state R`, or with a bias `to = state R + bias`. Rows of the state are dense.
    fn state(&mut self, part: Part, state: &[f32], bias: Option<&[f32]>, to: Target<'_>) -> Result<(), Fault>;
}

/// How memory of a direction is cut.
#[derive(Debug, Clone, Copy)]
struct Cuts {
    state: usize,
    cell: usize,
    /// The products of the state where they are not added to the gates, or the state after reset.
    extra: usize,
    /// Bias of the input's products and of the state's.
    bias: usize,
    gates: usize,
}

impl Cuts {
    fn new(network: &Network, sizes: &Sizes) -> Cuts {
        let state = sizes.batch.saturating_mul(sizes.hidden);
        let row = sizes.batch.saturating_mul(sizes.gates);
        let (cell, extra) = match network.cell {
            Cell::Lstm { .. } => (state, 0),
            Cell::Gru { after: true, .. } => (0, row),
            Cell::Gru { after: false, .. } => (0, state),
            Cell::Rnn { .. } => (0, 0),
        };
        let whole = |n: usize| n.next_multiple_of(LINE);
        Cuts {
            state: whole(state),
            cell: whole(cell),
            extra: whole(extra),
            bias: whole(sizes.gates),
            gates: whole(row.saturating_mul(sizes.chunk)),
        }
    }

    fn total(&self) -> usize {
        let Cuts { state, cell, extra, bias, gates } = *self;
        [state, cell, extra, bias, bias, gates].iter().fold(0, |sum: usize, &n| sum.saturating_add(n))
    }
}

/// Values of a cache line.
const LINE: usize = 16;

/// Whether directions run beside each other: with few threads they divide the work better than products do.
fn apart(sizes: &Sizes, width: usize) -> bool {
    sizes.directions > 1 && width > 1 && (width < 4 || sizes.batch < 8)
}

/// Values of scratch memory for one direction, `weights` of them for its weights.
fn direction_len(network: &Network, sizes: &Sizes, weights: usize) -> usize {
    Cuts::new(network, sizes).total().saturating_add(weights.next_multiple_of(LINE))
}

/// Values of scratch memory that [`walk`] needs; `weights` says how much of it a direction's weights want.
pub(super) fn scratch_len(network: &Network, sizes: &Sizes, width: usize, weights: impl Fn(usize) -> usize) -> usize {
    match apart(sizes, width) {
        true => direction_len(network, sizes, weights(1)).saturating_mul(sizes.directions),
        false => direction_len(network, sizes, weights(width)),
    }
}

/// Where the inputs and outputs of all cells stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub bias: usize,
    pub lens: usize,
    pub state: usize,
    pub cell: usize,
    pub peephole: usize,
}

/// Inputs that all directions read, and outputs.
struct Io<'a> {
    network: &'a Network,
    sizes: &'a Sizes,
    x: &'a [f32],
    bias: Option<&'a [f32]>,
    lens: Option<&'a [i32]>,
    state: Option<&'a [f32]>,
    cell: Option<&'a [f32]>,
    peephole: Option<&'a [f32]>,
    y: Option<Shared<'a>>,
    last_state: Option<Shared<'a>>,
    last_cell: Option<Shared<'a>>,
}

/// Runs all directions over all steps. `weights_len` is what [`scratch_len`] got.
pub(super) fn walk<S: Source>(
    network: &Network,
    sizes: &Sizes,
    ends: Ends,
    args: &mut Args<'_>,
    source: &S,
) -> Result<(), Fault> {
    let lens = args.input_if::<i32>(ends.lens);
    check_lens(lens, sizes.steps)?;
    let lstm = matches!(network.cell, Cell::Lstm { .. });
    let only_lstm = |input: usize| if lstm { args.input_if::<f32>(input) } else { None };
    let (cell, peephole) = (only_lstm(ends.cell), only_lstm(ends.peephole));
    let mut shared = |output: usize| args.wants(output).then(|| Shared::new(args.output::<f32>(output)));
    let (y, last_state, last_cell) = (shared(0), shared(1), shared(2));
    let io = Io {
        network,
        sizes,
        x: args.input(0),
        bias: args.input_if(ends.bias),
        lens,
        state: args.input_if(ends.state),
        cell,
        peephole,
        y,
        last_state,
        last_cell,
    };
    let (par, scratch) = (args.par(), args.scratch::<f32>());
    if !apart(sizes, par.width()) {
        let memory = direction_len(network, sizes, source.scratch_len(par.width()));
        return (0..sizes.directions).try_for_each(|d| direction(&io, d, source, &mut scratch[..memory], par));
    }
    let memory = direction_len(network, sizes, source.scratch_len(1));
    let failed = Mutex::new(None);
    split::rows(par, &mut scratch[..memory * sizes.directions], memory, 1, |_, first, piece| {
        for (k, piece) in piece.chunks_exact_mut(memory).enumerate() {
            if let Err(fault) = direction(&io, first + k, source, piece, &Serial) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
            }
        }
    })?;
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

pub(super) fn check_lens(lens: Option<&[i32]>, steps: usize) -> Result<(), Fault> {
    let bad = |&len: &i32| usize::try_from(len).map_or(true, |len| len > steps);
    match lens.and_then(|lens| Some((lens.iter().position(bad)?, lens))) {
        Some((b, lens)) => {
            Err(Fault::data(format!("sequence_lens is {} at element {b}, X has {steps} steps", lens[b])))
        }
        None => Ok(()),
    }
}

/// One direction from its first step to its last.
fn direction<S: Source>(
    io: &Io<'_>,
    d: usize,
    source: &S,
    memory: &mut [f32],
    par: &dyn Parallel,
) -> Result<(), Fault> {
    let (network, sizes) = (io.network, io.sizes);
    let cuts = Cuts::new(network, sizes);
    let (state, memory) = memory.split_at_mut(cuts.state);
    let (cell, memory) = memory.split_at_mut(cuts.cell);
    let (extra, memory) = memory.split_at_mut(cuts.extra);
    let (input_bias, memory) = memory.split_at_mut(cuts.bias);
    let (state_bias, memory) = memory.split_at_mut(cuts.bias);
    let (gates, memory) = memory.split_at_mut(cuts.gates);
    let mut weights = source.weights(d, memory, par)?;
    let mut lane = Lane { io, d, state, cell, extra, state_bias, weights: &mut weights };
    lane.load(input_bias);
    let chunks = sizes.steps.div_ceil(sizes.chunk.max(1));
    for k in 0..chunks {
        let k = if network.reverses(d) { chunks - 1 - k } else { k };
        let steps = k * sizes.chunk..((k + 1) * sizes.chunk).min(sizes.steps);
        lane.input(steps.clone(), &input_bias[..sizes.gates], gates)?;
        for i in 0..steps.len() {
            let i = if network.reverses(d) { steps.len() - 1 - i } else { i };
            let row = sizes.batch * sizes.gates;
            lane.step(steps.start + i, &mut gates[i * row..(i + 1) * row])?;
        }
    }
    lane.finish();
    Ok(())
}

/// A direction at some step.
struct Lane<'l, 'a, W> {
    io: &'l Io<'a>,
    d: usize,
    state: &'l mut [f32],
    cell: &'l mut [f32],
    extra: &'l mut [f32],
    state_bias: &'l mut [f32],
    weights: &'l mut W,
}

impl<W: Weights> Lane<'_, '_, W> {
    /// Initial states, and biases: both parts are added to the products of the input, but for what the reset gate of a
    /// GRU works on.
    fn load(&mut self, input_bias: &mut [f32]) {
        let Sizes { hidden, gates, .. } = *self.io.sizes;
        input_bias.fill(0.0);
        self.state_bias.fill(0.0);
        if let Some(bias) = self.io.bias {
            let (w, r) = bias[self.d * 2 * gates..][..2 * gates].split_at(gates);
            let apart = match self.io.network.cell {
                Cell::Gru { after: true, .. } => gates - hidden..gates,
                _ => 0..0,
            };
            for (k, to) in input_bias[..gates].iter_mut().enumerate() {
                *to = w[k] + if apart.contains(&k) { 0.0 } else { r[k] };
            }
            self.state_bias[apart.clone()].copy_from_slice(&r[apart]);
        }
        for (to, from) in [(&mut *self.state, self.io.state), (&mut *self.cell, self.io.cell)] {
            to.fill(0.0);
            let Some(from) = from else { continue };
            for (b, to) in to.chunks_exact_mut(hidden.max(1)).take(self.io.sizes.batch).enumerate() {
                to.copy_from_slice(&from[self.io.state_at(self.d, b)..][..hidden]);
            }
        }
    }

    /// Gates of some steps, from the input alone: step after step, within it item after item.
    fn input(&mut self, steps: Range<usize>, bias: &[f32], gates: &mut [f32]) -> Result<(), Fault> {
        let Sizes { batch, input, gates: wide, steps: all, .. } = *self.io.sizes;
        let x = |rows: Range<usize>| &self.io.x[rows.start * input..rows.end * input];
        if !self.io.network.batch_first {
            let rows = steps.start * batch..steps.end * batch;
            return self.weights.input(x(rows.clone()), bias, Target { data: gates, rows: rows.len(), step: wide });
        }
        for b in 0..batch {
            let rows = b * all + steps.start..b * all + steps.end;
            let target = Target { data: &mut gates[b * wide..], rows: steps.len(), step: batch * wide };
            self.weights.input(x(rows), bias, target)?;
        }
        Ok(())
    }

    /// One step: products of the state, then cells.
    fn step(&mut self, t: usize, gates: &mut [f32]) -> Result<(), Fault> {
        let Sizes { batch, hidden, gates: wide, .. } = *self.io.sizes;
        let (isa, clip) = (self.io.network.isa, self.io.network.clip);
        let states = batch * hidden;
        let whole = |data| Target { data, rows: batch, step: wide };
        match self.io.network.cell {
            Cell::Gru { acts, after: true } => {
                let to = whole(&mut *self.extra);
                self.weights.state(Part::All, &self.state[..states], Some(&self.state_bias[..wide]), to)?;
                for b in self.io.active(t) {
                    let row = |from: &'_ [f32]| b * wide..(b + 1) * wide.min(from.len());
                    let products = (&gates[row(gates)], &self.extra[b * wide..(b + 1) * wide]);
                    let state = &mut self.state[b * hidden..(b + 1) * hidden];
                    cells::gru_reset_after(isa, &acts[self.d], clip, products, state);
                }
            }
            Cell::Gru { acts, after: false } => {
                let [f, g] = acts[self.d];
                self.weights.state(Part::Front, &self.state[..states], None, whole(&mut *gates))?;
                for b in 0..batch {
                    let (state, reset) = (&self.state[b * hidden..][..hidden], &mut self.extra[b * hidden..][..hidden]);
                    cells::gru_gates(isa, f, clip, &mut gates[b * wide..][..wide], state, reset);
                }
                let last = Target { data: &mut gates[wide - hidden..], rows: batch, step: wide };
                self.weights.state(Part::Last, &self.extra[..states], None, last)?;
                for b in self.io.active(t) {
                    let state = &mut self.state[b * hidden..][..hidden];
                    cells::gru_state(isa, g, clip, &gates[b * wide..][..wide], state);
                }
            }
            Cell::Lstm { acts, coupled } => {
                self.weights.state(Part::All, &self.state[..states], None, whole(&mut *gates))?;
                let peephole = self.io.peephole.map(|p| &p[self.d * 3 * hidden..][..3 * hidden]);
                for b in self.io.active(t) {
                    let at = b * hidden..(b + 1) * hidden;
                    let (cell, state) = (&mut self.cell[at.clone()], &mut self.state[at]);
                    let extra = Extra { peephole, clip, coupled };
                    cells::lstm(isa, &acts[self.d], extra, &gates[b * wide..][..wide], cell, state);
                }
            }
            Cell::Rnn { acts } => {
                self.weights.state(Part::All, &self.state[..states], None, whole(&mut *gates))?;
                for b in self.io.active(t) {
                    let state = &mut self.state[b * hidden..][..hidden];
                    cells::rnn(isa, acts[self.d][0], clip, &gates[b * wide..][..wide], state);
                }
            }
        }
        self.emit(t);
        Ok(())
    }

    /// Writes this step's states, and zeros behind the end of an item.
    fn emit(&self, t: usize) {
        let Some(y) = &self.io.y else { return };
        let hidden = self.io.sizes.hidden;
        for b in 0..self.io.sizes.batch {
            // SAFETY: no other direction has this row.
            let to = unsafe { y.row(self.io.output_at(t, self.d, b), hidden) };
            match self.io.is_active(t, b) {
                true => to.copy_from_slice(&self.state[b * hidden..(b + 1) * hidden]),
                false => to.fill(0.0),
            }
        }
    }

    fn finish(&self) {
        let hidden = self.io.sizes.hidden;
        for (to, from) in [(&self.io.last_state, &*self.state), (&self.io.last_cell, &*self.cell)] {
            let Some(to) = to else { continue };
            for b in 0..self.io.sizes.batch {
                // SAFETY: no other direction has this row.
                let to = unsafe { to.row(self.io.state_at(self.d, b), hidden) };
                to.copy_from_slice(&from[b * hidden..(b + 1) * hidden]);
            }
        }
    }
}

impl Io<'_> {
    fn is_active(&self, t: usize, b: usize) -> bool {
        self.lens.is_none_or(|lens| usize::try_from(lens[b]).is_ok_and(|len| t < len))
    }

    /// Items of the batch that have not ended.
    fn active(&self, t: usize) -> impl Iterator<Item = usize> {
        (0..self.sizes.batch).filter(move |&b| self.is_active(t, b))
    }

    /// Where an item's state begins in inputs and outputs.
    fn state_at(&self, d: usize, b: usize) -> usize {
        let Sizes { batch, hidden, directions, .. } = *self.sizes;
        hidden * if self.network.batch_first { b * directions + d } else { d * batch + b }
    }

    /// Where a step's state begins in Y.
    fn output_at(&self, t: usize, d: usize, b: usize) -> usize {
        let Sizes { batch, hidden, directions, steps, .. } = *self.sizes;
        let row = match self.network.batch_first {
            true => (b * steps + t) * directions + d,
            false => (t * directions + d) * batch + b,
        };
        row * hidden
    }
}

/// An output of which each direction writes its own rows.
struct Shared<'a> {
    at: *mut f32,
    len: usize,
    _borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: rows are handed out under the condition that nobody else has them.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    fn new(data: &'a mut [f32]) -> Self {
        Shared { at: data.as_mut_ptr(), len: data.len(), _borrow: PhantomData }
    }

    /// # Safety
    /// Nobody else has any of these values.
    ///
    /// # Panics
    /// When they reach behind the end.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that rows are disjoint")]
    unsafe fn row(&self, at: usize, len: usize) -> &mut [f32] {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "a row is outside of its output");
        // SAFETY: inside of the borrowed data, and the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.at.add(at), len) }
    }
}
