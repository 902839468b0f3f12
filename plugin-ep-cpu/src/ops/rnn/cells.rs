//! What follows the products of a step: gates of one item of the batch become its next state. It must not know operators.

use super::activation::{Activation, Gate, UsualSigmoid, UsualTanh};
use crate::simd::{Isa, Kernel, Simd};

/// What a cell can have beside its gates and functions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extra<'a> {
    /// Weights of the cell state for the gates i, o and f.
    pub peephole: Option<&'a [f32]>,
    /// Bound of what goes into functions.
    pub clip: Option<f32>,
    /// The gate f is 1 - i.
    pub coupled: bool,
}

impl Extra<'_> {
    fn is_none(&self) -> bool {
        self.peephole.is_none() && self.clip.is_none() && !self.coupled
    }
}

#[inline(always)]
fn clipped<S: Simd>(s: S, x: S::F32, clip: Option<f32>) -> S::F32 {
    match clip {
        Some(most) => s.clip(x, s.splat(-most), s.splat(most)),
        None => x,
    }
}

/// LSTM: `gates` holds i, o, f, c, each as long as the state.
pub(super) fn lstm(
    isa: Isa,
    acts: &[Activation; 3],
    extra: Extra<'_>,
    gates: &[f32],
    cell: &mut [f32],
    state: &mut [f32],
) {
    let [f, g, h] = *acts;
    if extra.is_none() && *acts == USUAL_LSTM {
        isa.dispatch(Lstm { f: UsualSigmoid, g: UsualTanh, h: UsualTanh, extra: Extra::default(), gates, cell, state });
    } else {
        isa.dispatch(Lstm { f, g, h, extra, gates, cell, state });
    }
}

/// The functions of an LSTM that says nothing.
pub(super) const USUAL_LSTM: [Activation; 3] = [Activation::Sigmoid, Activation::Tanh, Activation::Tanh];
/// The functions of a GRU that says nothing.
pub(super) const USUAL_GRU: [Activation; 2] = [Activation::Sigmoid, Activation::Tanh];

struct Lstm<'a, F, G, H> {
    f: F,
    g: G,
    h: H,
    extra: Extra<'a>,
    gates: &'a [f32],
    cell: &'a mut [f32],
    state: &'a mut [f32],
}

impl<F: Gate, G: Gate, H: Gate> Kernel for Lstm<'_, F, G, H> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Lstm { f, g, h, extra, gates, cell, state } = self;
        let n = state.len();
        let load = |gate: usize, at: usize| s.load_slice(&gates[gate * n + at..(gate + 1) * n]);
        // The peepholes are in the order i, o, f.
        let peep = |x: S::F32, which: usize, c: S::F32, at: usize| match extra.peephole {
            Some(p) => s.fma(s.load_slice(&p[which * n + at..(which + 1) * n]), c, x),
            None => x,
        };
        for at in (0..n).step_by(S::LANES) {
            let before = s.load_slice(&cell[at..]);
            let i = f.apply(s, clipped(s, peep(load(0, at), 0, before, at), extra.clip));
            let forget = match extra.coupled {
                true => s.sub(s.splat(1.0), i),
                false => f.apply(s, clipped(s, peep(load(2, at), 2, before, at), extra.clip)),
            };
            let new = g.apply(s, clipped(s, load(3, at), extra.clip));
            let now = s.fma(forget, before, s.mul(i, new));
            let o = f.apply(s, clipped(s, peep(load(1, at), 1, now, at), extra.clip));
            s.store_slice(&mut cell[at..], now);
            s.store_slice(&mut state[at..], s.mul(o, h.apply(s, now)));
        }
    }
}

/// GRU whose reset gate works on the product of the state: `gates` holds z, r, h of the input, `recurrent` the same of the
/// state.
pub(super) fn gru_reset_after(
    isa: Isa,
    acts: &[Activation; 2],
    clip: Option<f32>,
    (gates, recurrent): (&[f32], &[f32]),
    state: &mut [f32],
) {
    if clip.is_none() && *acts == USUAL_GRU {
        isa.dispatch(ResetAfter { f: UsualSigmoid, g: UsualTanh, clip: None, gates, recurrent, state });
    } else {
        isa.dispatch(ResetAfter { f: acts[0], g: acts[1], clip, gates, recurrent, state });
    }
}

struct ResetAfter<'a, F, G> {
    f: F,
    g: G,
    clip: Option<f32>,
    gates: &'a [f32],
    recurrent: &'a [f32],
    state: &'a mut [f32],
}

impl<F: Gate, G: Gate> Kernel for ResetAfter<'_, F, G> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ResetAfter { f, g, clip, gates, recurrent, state } = self;
        let n = state.len();
        for at in (0..n).step_by(S::LANES) {
            let load = |from: &[f32], gate: usize| s.load_slice(&from[gate * n + at..(gate + 1) * n]);
            let z = f.apply(s, clipped(s, s.add(load(gates, 0), load(recurrent, 0)), clip));
            let r = f.apply(s, clipped(s, s.add(load(gates, 1), load(recurrent, 1)), clip));
            let new = g.apply(s, clipped(s, s.fma(r, load(recurrent, 2), load(gates, 2)), clip));
            let before = s.load_slice(&state[at..]);
            // (1 - z) new + z before
            s.store_slice(&mut state[at..], s.fma(z, s.sub(before, new), new));
        }
    }
}

/// First half of a GRU whose reset gate works on the state: z takes its place in `gates`, and `reset` is r times the state.
pub(super) fn gru_gates(
    isa: Isa,
    act: Activation,
    clip: Option<f32>,
    gates: &mut [f32],
    state: &[f32],
    reset: &mut [f32],
) {
    isa.dispatch(Gates { act, clip, gates, state, reset });
}

struct Gates<'a> {
    act: Activation,
    clip: Option<f32>,
    gates: &'a mut [f32],
    state: &'a [f32],
    reset: &'a mut [f32],
}

impl Kernel for Gates<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Gates { act, clip, gates, state, reset } = self;
        let n = state.len();
        for at in (0..n).step_by(S::LANES) {
            let z = act.apply(s, clipped(s, s.load_slice(&gates[at..n]), clip));
            let r = act.apply(s, clipped(s, s.load_slice(&gates[n + at..2 * n]), clip));
            s.store_slice(&mut gates[at..n], z);
            s.store_slice(&mut reset[at..], s.mul(r, s.load_slice(&state[at..])));
        }
    }
}

/// Second half: `gates` holds z, anything, and h with the product of `reset` in it.
pub(super) fn gru_state(isa: Isa, act: Activation, clip: Option<f32>, gates: &[f32], state: &mut [f32]) {
    isa.dispatch(State { act, clip, gates, state });
}

struct State<'a> {
    act: Activation,
    clip: Option<f32>,
    gates: &'a [f32],
    state: &'a mut [f32],
}

impl Kernel for State<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let State { act, clip, gates, state } = self;
        let n = state.len();
        for at in (0..n).step_by(S::LANES) {
            let z = s.load_slice(&gates[at..n]);
            let new = act.apply(s, clipped(s, s.load_slice(&gates[2 * n + at..3 * n]), clip));
            let before = s.load_slice(&state[at..]);
            s.store_slice(&mut state[at..], s.fma(z, s.sub(before, new), new));
        }
    }
}

/// RNN: the next state is the function of the gate.
pub(super) fn rnn(isa: Isa, act: Activation, clip: Option<f32>, gate: &[f32], state: &mut [f32]) {
    isa.dispatch(Simple { act, clip, gate, state });
}

struct Simple<'a> {
    act: Activation,
    clip: Option<f32>,
    gate: &'a [f32],
    state: &'a mut [f32],
}

impl Kernel for Simple<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Simple { act, clip, gate, state } = self;
        for at in (0..state.len()).step_by(S::LANES) {
            let x = clipped(s, s.load_slice(&gate[at..]), clip);
            s.store_slice(&mut state[at..], act.apply(s, x));
        }
    }
}
