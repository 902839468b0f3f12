//! From signals to spectra and back: `DFT` along an axis, `STFT` over frames.
//!
//! Several signals are transformed at once, each worker in memory of its own. Plans of a length are made once and kept.

use super::fft::Plan;
use crate::ops::lane::{Number, Real};
use crate::ops::value::Value;
use crate::ops::workers::Workers;
use crate::ops::{Cpu, cost, ints};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, DType, Fault, Ints, NodeView, Op, Reject, Shapes, size, split};
use std::sync::{Arc, Mutex, PoisonError};

/// Signals that are transformed at a time.
const SIGNALS: usize = 16;

/// The plan of the last length.
#[derive(Default)]
struct Kept(Mutex<Option<Arc<Plan>>>);

impl Kept {
    fn plan(&self, len: usize) -> Result<Arc<Plan>, Fault> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = kept.as_ref().filter(|plan| plan.len() == len) {
            return Ok(Arc::clone(plan));
        }
        let plan = Plan::new(len).ok_or_else(|| Fault::Memory(format!("no memory for transforms of {len} values")))?;
        let plan = Arc::new(plan);
        *kept = Some(Arc::clone(&plan));
        Ok(plan)
    }
}

/// Memory of all workers, whose size only the run knows.
fn memory<T: Number>(plan: &Plan, width: usize) -> Result<Vec<T>, Fault> {
    let count = plan.room(SIGNALS).saturating_mul(width);
    let mut memory = Vec::new();
    let got = memory.try_reserve_exact(count);
    got.map_err(|_| Fault::Memory(format!("no memory for transforms of {} values", plan.len())))?;
    memory.resize(count, T::default());
    Ok(memory)
}

/// The one element of an integer input.
fn scalar(args: &Args<'_>, input: usize, dtype: DType, name: &str, least: i64) -> Result<usize, Fault> {
    let list = ints::read(args, input, dtype);
    match list.as_slice() {
        &[n] if n >= least => Ok(size(n)),
        other => Err(Fault::data(format!("input {input} ({name}) holds {other:?}, not a number from {least} on"))),
    }
}

fn dtype_of(node: &NodeView<'_>, input: usize) -> DType {
    node.input(input).map_or(DType::I64, |v| v.dtype())
}

/// The last axis holds a real part, and an imaginary one or not.
fn parts(dims: &[i64]) -> Result<usize, Fault> {
    match dims.last() {
        Some(&n @ 1..=2) => Ok(size(n)),
        _ => Err(Fault::data(format!("input 0 of {dims:?} has no last axis of 1 or 2 parts"))),
    }
}

/// `X[k] = sum of x[j] e^(-2 pi i j k / n)` along an axis, or back.
pub(super) struct Dft {
    isa: Isa,
    inverse: bool,
    half: bool,
    lengths: DType,
    kept: Kept,
}

impl Op for Dft {
    /// Dimensions of the input.
    type Bound = Ints;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        if rank < 2 {
            return Err(Reject::rank(format!("input 0 has rank {rank}: an axis and its parts are needed")));
        }
        Ok(Dft {
            isa: Cpu::of(node).isa,
            inverse: node.int("inverse")? != 0,
            half: node.int("onesided")? != 0,
            lengths: dtype_of(node, 1),
            kept: Kept::default(),
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 5.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Ints) -> Result<(), Fault> {
        *bound = Ints::from_slice(shapes.input(0));
        Ok(())
    }
}

/// Sizes of a transform along an axis.
struct Along {
    /// Values of a signal that are there, that the transform has, and that are written.
    have: usize,
    len: usize,
    made: usize,
    /// Signals side by side.
    inner: usize,
    /// Parts of values that are read, and written.
    parts: [usize; 2],
}

pub(super) fn dft<T: Value<Wide: Real>>(op: &Dft, dims: &Ints, args: &mut Args<'_>) -> Result<(), Fault> {
    let rank = dims.len();
    let axis = match args.input_if::<i64>(2) {
        None => rank - 2,
        Some(&[axis]) => ints::axis(axis, rank, 2)?,
        Some(other) => return Err(Fault::data(format!("input 2 (axis) holds {} elements, not one", other.len()))),
    };
    if axis == rank - 1 {
        return Err(Fault::data(format!("input 2 (axis) is {axis}, which holds the parts of numbers")));
    }
    let have = size(dims[axis]);
    let back = op.inverse && op.half;
    let len = match args.has(1) {
        true => scalar(args, 1, op.lengths, "dft_length", 1)?,
        false if back => 2 * have.saturating_sub(1),
        false => have,
    };
    let made = if op.half && !op.inverse { len / 2 + 1 } else { len };
    let inner = dims[axis + 1..rank - 1].iter().map(|&d| size(d)).product();
    let along = Along { have, len, made, inner, parts: [parts(dims)?, if back { 1 } else { 2 }] };
    let mut out = dims.clone();
    (out[axis], out[rank - 1]) = (made as i64, along.parts[1] as i64); // the host refuses what is no size
    let (par, x) = (args.par(), args.input::<T>(0));
    let y = args.emit::<T>(0, &out)?;
    if y.is_empty() || len == 0 {
        y.fill(T::default()); // sums of nothing
        return Ok(());
    }
    let plan = op.kept.plan(len)?;
    let mut memory = memory::<T::Wide>(&plan, par.width())?;
    let workers = Workers::new(&mut memory, plan.room(SIGNALS));
    let row = made * inner * along.parts[1];
    let (read, grain) = (have * inner * along.parts[0], SIGNALS.div_ceil(inner));
    Ok(split::rows(par, y, row, grain, |worker, first, y| {
        workers.with(worker, |memory| {
            let x = &x[first * read..][..y.len() / row * read];
            let signals = y.len() / row * inner;
            for at in (0..signals).step_by(SIGNALS) {
                along.signals(op, &plan, (at, SIGNALS.min(signals - at)), x, y, memory);
            }
        });
    })?)
}

impl Along {
    /// Transforms some signals of a piece.
    fn signals<T: Value<Wide: Real>>(
        &self,
        op: &Dft,
        plan: &Plan,
        (first, count): (usize, usize),
        x: &[T],
        y: &mut [T],
        memory: &mut [T::Wide],
    ) {
        let zero = T::Wide::default();
        let at = |signal: usize, len: usize, k: usize| {
            let (block, place) = ((first + signal) / self.inner, (first + signal) % self.inner);
            (block * len + k) * self.inner + place
        };
        let value = |signal: usize, k: usize| {
            let at = at(signal, self.have, k) * self.parts[0];
            let im = if self.parts[0] == 2 { x[at + 1].wide() } else { zero };
            (x[at].wide(), im)
        };
        let load = |re: &mut [T::Wide], im: &mut [T::Wide]| {
            for (k, (re, im)) in re.chunks_exact_mut(count).zip(im.chunks_exact_mut(count)).enumerate() {
                for signal in 0..count {
                    let (a, b) = self.spectrum(op, k, |k| value(signal, k));
                    // The way back is that of exchanged parts.
                    (re[signal], im[signal]) = if op.inverse { (b, a) } else { (a, b) };
                }
            }
        };
        let scale = T::Wide::of(1.0).over(T::Wide::of(self.len as f32)); // lengths that fit memory
        plan.run(op.isa, count, memory, load, |re, im| {
            for k in 0..self.made {
                for signal in 0..count {
                    let (a, b) = (re[k * count + signal], im[k * count + signal]);
                    let (a, b) = if op.inverse { (b.times(scale), a.times(scale)) } else { (a, b) };
                    let to = at(signal, self.made, k) * self.parts[1];
                    y[to] = T::of(a);
                    if self.parts[1] == 2 {
                        y[to + 1] = T::of(b);
                    }
                }
            }
        });
    }

    /// Value `k` that is transformed: zeros are put behind what is there; half of a spectrum is the whole of a real signal's.
    fn spectrum<W: Real>(&self, op: &Dft, k: usize, value: impl Fn(usize) -> (W, W)) -> (W, W) {
        let there = |k: usize| if k < self.have { value(k) } else { (W::default(), W::default()) };
        if !(op.inverse && op.half) {
            return there(k);
        }
        match self.len - k {
            _ if k == 0 || 2 * k == self.len => (there(k).0, W::default()),
            other if k > other => {
                let (re, im) = there(other);
                (re, W::default().minus(im))
            }
            _ => there(k),
        }
    }
}

/// Spectra of frames of a signal, each weighted by a window.
pub(super) struct Stft {
    isa: Isa,
    half: bool,
    sizes: [DType; 2],
    kept: Kept,
}

impl Op for Stft {
    /// Dimensions of the input.
    type Bound = Ints;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        if !(2..=3).contains(&rank) {
            return Err(Reject::rank(format!("input 0 has rank {rank}, 2 and 3 are possible")));
        }
        if !node.has_input(2) && !node.has_input(3) {
            return Err(Reject::shape("neither window nor frame_length says how long a frame is"));
        }
        Ok(Stft {
            isa: Cpu::of(node).isa,
            half: node.int("onesided")? != 0,
            sizes: [dtype_of(node, 1), dtype_of(node, 3)],
            kept: Kept::default(),
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 5.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Ints) -> Result<(), Fault> {
        *bound = Ints::from_slice(shapes.input(0));
        if bound.len() == 2 {
            bound.push(1);
        }
        Ok(())
    }
}

pub(super) fn stft<T: Value<Wide: Real>>(op: &Stft, dims: &Ints, args: &mut Args<'_>) -> Result<(), Fault> {
    let parts = parts(dims)?;
    let (batch, samples) = (size(dims[0]), size(dims[1]));
    let step = scalar(args, 1, op.sizes[0], "frame_step", 1)?;
    let window = args.input_if::<T>(2);
    let len = match args.has(3) {
        true => scalar(args, 3, op.sizes[1], "frame_length", 1)?,
        false => window.map_or(0, <[T]>::len),
    };
    if len == 0 || len > samples {
        return Err(Fault::data(format!("a frame of {len} samples does not fit into a signal of {samples}")));
    }
    let frames = (samples - len) / step + 1;
    let bins = if op.half { len / 2 + 1 } else { len };
    let (par, x) = (args.par(), args.input::<T>(0));
    let y = args.emit::<T>(0, &[batch, frames, bins, 2].map(|n| n as i64))?; // the host refuses what is no size
    let plan = op.kept.plan(len)?;
    let mut memory = memory::<T::Wide>(&plan, par.width())?;
    let workers = Workers::new(&mut memory, plan.room(SIGNALS));
    let weight = |k: usize| match window {
        None => T::Wide::of(1.0),
        Some(window) => window.get(k).map_or_else(T::Wide::default, |w| w.wide()),
    };
    let row = 2 * bins;
    Ok(split::rows(par, y, row, SIGNALS, |worker, first, y| {
        workers.with(worker, |memory| {
            for (k, y) in y.chunks_mut(row * SIGNALS).enumerate() {
                let (first, count) = (first + k * SIGNALS, y.len() / row);
                let load = |re: &mut [T::Wide], im: &mut [T::Wide]| {
                    for (k, (re, im)) in re.chunks_exact_mut(count).zip(im.chunks_exact_mut(count)).enumerate() {
                        let weight = weight(k);
                        for frame in 0..count {
                            let (block, place) = ((first + frame) / frames, (first + frame) % frames);
                            let at = (block * samples + place * step + k) * parts;
                            re[frame] = x[at].wide().times(weight);
                            im[frame] = if parts == 2 { x[at + 1].wide().times(weight) } else { T::Wide::default() };
                        }
                    }
                };
                plan.run(op.isa, count, memory, load, |re, im| {
                    for (frame, y) in y.chunks_exact_mut(row).enumerate() {
                        for (k, y) in y.chunks_exact_mut(2).enumerate() {
                            (y[0], y[1]) = (T::of(re[k * count + frame]), T::of(im[k * count + frame]));
                        }
                    }
                });
            }
        });
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use core::f64::consts::TAU;
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, Element};

    /// The sum that defines value `k`, of signals of `have` values.
    fn sum(x: impl Fn(usize) -> (f64, f64), have: usize, len: usize, k: usize, sign: f64) -> (f64, f64) {
        (0..have.min(len)).fold((0.0, 0.0), |(a, b), j| {
            let (sin, cos) = (sign * TAU * (j * k % len.max(1)) as f64 / len as f64).sin_cos();
            let (re, im) = x(j);
            (a + re * cos - im * sin, b + re * sin + im * cos)
        })
    }

    fn transform(x: &Tensor, axis: usize, len: usize, made: usize, inverse: bool) -> Tensor {
        let (values, dims) = (x.to_vec::<f32>(), x.dims.iter().map(|&d| d as usize).collect::<Vec<_>>());
        let rank = dims.len();
        let (inner, parts): (usize, usize) = (dims[axis + 1..rank - 1].iter().product(), dims[rank - 1]);
        let outer: usize = dims[..axis].iter().product();
        let mut out = vec![];
        for (o, k, i) in (0..outer * made * inner).map(|at| (at / (made * inner), at / inner % made, at % inner)) {
            let value = |j: usize| {
                let at = ((o * dims[axis] + j) * inner + i) * parts;
                (f64::from(values[at]), if parts == 2 { f64::from(values[at + 1]) } else { 0.0 })
            };
            let (a, b) = sum(value, dims[axis], len, k, if inverse { 1.0 } else { -1.0 });
            let scale = if inverse { len.max(1) as f64 } else { 1.0 };
            out.extend([(a / scale) as f32, (b / scale) as f32]);
        }
        let mut to = x.dims.clone();
        (to[axis], to[rank - 1]) = (made as i64, 2);
        Tensor::new(&to, &out)
    }

    #[test]
    fn along_every_axis_and_length() {
        for (dims, axis, len) in [
            (&[1i64, 10, 1][..], 1, None),
            (&[2, 17, 2], 1, None),
            (&[3, 8, 5, 2], 1, Some(12)),
            (&[3, 8, 21, 1], 2, Some(19)),
            (&[40, 6, 2], 0, None),
            (&[2, 1, 2], 1, Some(1)),
            (&[0, 4, 1], 1, None),
            (&[2, 0, 1], 1, None),
        ] {
            let x = Tensor::random(dims, 1);
            let n = len.unwrap_or(dims[axis] as usize);
            for (inverse, half) in [(false, false), (true, false), (false, true)] {
                let want = transform(&x, axis, n, if half { n / 2 + 1 } else { n }, inverse);
                on_all("DFT", 20, |case| {
                    let case = case.int("inverse", inverse.into()).int("onesided", half.into()).input(&x);
                    let case = match len {
                        Some(n) => case.input(&Tensor::new(&[], &[n as i32])),
                        None => case.skip(),
                    };
                    let case = case.input(&Tensor::new(&[], &[axis as i64 - dims.len() as i64]));
                    assert_close(&case.late_output(DType::F32, dims.len()).run()[0], &want, 1e-5);
                });
            }
        }
    }

    #[test]
    fn half_a_spectrum_becomes_the_signal_again() {
        for n in [2usize, 7, 10, 34] {
            let signal = Tensor::random(&[2, n as i64, 1], 3);
            let there = transform(&signal, 1, n, n / 2 + 1, false);
            let case = Case::new("DFT", 20).int("inverse", 1).int("onesided", 1).input(&there);
            let case = case.input(&Tensor::new(&[], &[n as i64])).late_output(DType::F32, 3);
            assert_close(&case.run()[0], &signal, 1e-5);
        }
    }

    #[test]
    fn other_floats() {
        let x = Tensor::random(&[2, 12, 2], 5);
        let want = transform(&x, 1, 12, 12, false).to_vec::<f32>();
        let values = x.to_vec::<f32>();
        let node = |x: &Tensor, dtype| {
            let case = Case::new("DFT", 20).int("inverse", 0).int("onesided", 0).input(x);
            case.late_output(dtype, 3).run().remove(0)
        };
        let wide = node(&Tensor::from_fn(&[2, 12, 2], |k| f64::from(values[k])), DType::F64).to_vec::<f64>();
        wide.iter().zip(&want).for_each(|(a, &b)| assert!((a - f64::from(b)).abs() < 1e-5));
        let half = node(&Tensor::from_fn(&[2, 12, 2], |k| F16::round(values[k])), F16::DTYPE).to_vec::<F16>();
        half.iter().zip(&want).for_each(|(a, &b)| assert!((a.wide() - b).abs() < 2e-2));
    }

    #[test]
    fn frames_are_weighted_and_transformed() {
        for (parts, step, len, window, half) in [
            (1i64, 4i64, 16usize, true, true),
            (1, 3, 10, false, true),
            (2, 5, 9, true, false),
            (2, 64, 50, false, false),
        ] {
            let x = Tensor::random(&[2, 70, parts], 1);
            let (values, weights) = (x.to_vec::<f32>(), Tensor::random(&[len as i64], 2));
            let weight = weights.to_vec::<f32>();
            let (frames, bins) = ((70 - len) / step as usize + 1, if half { len / 2 + 1 } else { len });
            let mut want = Vec::new();
            for (b, f, k) in (0..2 * frames * bins).map(|at| (at / (frames * bins), at / bins % frames, at % bins)) {
                let value = |j: usize| {
                    let at = (b * 70 + f * step as usize + j) * parts as usize;
                    let w = if window { f64::from(weight[j]) } else { 1.0 };
                    (f64::from(values[at]) * w, if parts == 2 { f64::from(values[at + 1]) * w } else { 0.0 })
                };
                let (a, b) = sum(value, len, len, k, -1.0);
                want.extend([a as f32, b as f32]);
            }
            let want = Tensor::new(&[2, frames as i64, bins as i64, 2], &want);
            on_all("STFT", 17, |case| {
                let case = case.int("onesided", half.into()).input(&x).input(&Tensor::new(&[], &[step]));
                let case = if window { case.input(&weights) } else { case.skip() };
                let case = case.input(&Tensor::new(&[], &[len as i64])).late_output(DType::F32, 4);
                assert_close(&case.run()[0], &want, 1e-5);
            });
        }
    }

    #[test]
    fn lengths_and_axes_are_checked() {
        let x = Tensor::random(&[1, 8, 1], 1);
        let dft = |len: i64, axis: i64| {
            let case = Case::new("DFT", 20).int("inverse", 0).int("onesided", 0).input(&x);
            let case = case.input(&Tensor::new(&[], &[len])).input(&Tensor::new(&[], &[axis]));
            case.late_output(DType::F32, 3).try_run().unwrap_err()
        };
        assert!(dft(0, 1).contains("input 1 (dft_length) holds [0]"), "{}", dft(0, 1));
        assert!(dft(8, 2).contains("input 2 (axis) is 2"), "{}", dft(8, 2));
        assert!(dft(8, 5).contains("input 2 has 5"), "{}", dft(8, 5));
        let stft = |step: i64, len: i64| {
            let case = Case::new("STFT", 17).int("onesided", 1).input(&x).input(&Tensor::new(&[], &[step])).skip();
            case.input(&Tensor::new(&[], &[len])).late_output(DType::F32, 4).try_run().unwrap_err()
        };
        assert!(stft(0, 4).contains("input 1 (frame_step) holds [0]"), "{}", stft(0, 4));
        assert!(stft(1, 9).contains("a frame of 9 samples does not fit into a signal of 8"), "{}", stft(1, 9));
    }
}
