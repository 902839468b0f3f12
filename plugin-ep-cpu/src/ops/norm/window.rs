//! Normalizations without a scale: across neighbouring channels, along an axis, over any axes.

use crate::ops::float::{Float, Floats, FloatsMut, agree};
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{Isa, Kernel, Math, Simd};
use ortolan_ep_kit::{Args, Cost, Fault, Ints, NodeView, Op, Reject, Shapes, count, resolve_axis, size, split};

/// `y = x / (bias + alpha / size * sum of x^2 over size neighbouring channels)^beta`
pub(super) struct Lrn {
    isa: Isa,
    /// Channels of the window in front of one, and behind it.
    before: usize,
    behind: usize,
    /// alpha / size
    scale: f64,
    beta: f32,
    bias: f32,
    float: Float,
}

/// Channels, and elements of each.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Channels {
    count: usize,
    plane: usize,
}

impl Op for Lrn {
    type Bound = Channels;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        if rank < 2 {
            return Err(Reject::rank(format!("input 0 has rank {rank}, at least batch and channels are needed")));
        }
        let size = node.int("size")?;
        let window = usize::try_from(size).ok().filter(|&n| n > 0);
        let window = window.ok_or_else(|| Reject::attribute(format!("attribute size = {size} is not positive")))?;
        Ok(Lrn {
            isa: Cpu::of(node).isa,
            before: (window - 1) / 2,
            behind: window / 2,
            scale: f64::from(node.float("alpha")?) / size as f64,
            beta: node.float("beta")?,
            bias: node.float("bias")?,
            float: Float::input(node, 0)?,
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.6)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Channels) -> Result<(), Fault> {
        let x = shapes.input(0);
        *bound = Channels { count: x.get(1).map_or(1, |&c| size(c)), plane: count(x.get(2..).unwrap_or(&[])) };
        agree("output 0", shapes.output_len(0), shapes.input_len(0))
    }
}

impl Lrn {
    /// Planes around plane `at` of all items, inside its item.
    fn window(&self, channels: &Channels, at: usize) -> core::ops::Range<usize> {
        let c = at % channels.count.max(1);
        let item = at - c;
        item + c.saturating_sub(self.before)..item + (c.saturating_add(self.behind) + 1).min(channels.count)
    }
}

pub(super) fn lrn(op: &Lrn, channels: &Channels, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y) = (args.input::<f32>(0), args.output::<f32>(0));
    let plane = channels.plane;
    split::rows(args.par(), y, plane, GRAIN.div_ceil(4 * plane.max(1)), |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(plane.max(1)).enumerate() {
            let window = op.window(channels, first + k);
            let around = &x[window.start * plane..window.end * plane];
            op.isa.dispatch(LrnPlane { op, x: &x[(first + k) * plane..][..plane], around, y });
        }
    })?;
    Ok(())
}

/// A plane and the planes of its window, one after the other.
struct LrnPlane<'a> {
    op: &'a Lrn,
    x: &'a [f32],
    around: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for LrnPlane<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LrnPlane { op, x, around, y } = self;
        let (scale, bias, power) = (s.splat(op.scale as f32), s.splat(op.bias), s.splat(-op.beta));
        let plane = x.len();
        for at in (0..plane).step_by(S::LANES) {
            let mut sum = s.zero();
            for other in around.chunks_exact(plane) {
                let other = s.load_slice(&other[at..]);
                sum = s.fma(other, other, sum);
            }
            let base = s.fma(sum, scale, bias);
            let factor = s.exp(s.mul(power, s.ln(base)));
            s.store_slice(&mut y[at..], s.mul(s.load_slice(&x[at..]), factor));
        }
    }
}

pub(super) fn lrn_plain(op: &Lrn, channels: &Channels, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y) = (Floats::input(args, 0, op.float), FloatsMut::output(args, 0, op.float));
    let plane = channels.plane.max(1);
    y.rows(args.par(), plane, GRAIN.div_ceil(4 * plane), |first, mut y| {
        for k in 0..y.len() {
            let (at, j) = (first + k / plane, k % plane);
            let sum: f64 = op.window(channels, at).map(|w| x.get(w * plane + j).powi(2)).sum();
            let base = f64::from(op.bias) + op.scale * sum;
            y.put(k, x.get(at * plane + j) * base.powf(-f64::from(op.beta)));
        }
    })?;
    Ok(())
}

/// `y = x / (sum of |x|^p along an axis)^(1/p)`, and 0 where all are 0.
pub(super) struct Lp {
    axis: usize,
    squares: bool,
    float: Float,
}

/// An axis of `len`, with `inner` elements from one index to the next.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Along {
    len: usize,
    inner: usize,
}

impl Op for Lp {
    type Bound = Along;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        let axis = if rank == 0 { 0 } else { node.axis("axis", rank)? };
        let p = node.int("p")?;
        if !(1..=2).contains(&p) {
            return Err(Reject::attribute(format!("attribute p = {p}, the standard has 1 and 2")));
        }
        Ok(Lp { axis, squares: p == 2, float: Float::input(node, 0)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 4.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Along) -> Result<(), Fault> {
        let x = shapes.input(0);
        *bound = Along {
            len: x.get(self.axis).map_or(1, |&d| size(d)),
            inner: count(x.get(self.axis + 1..).unwrap_or(&[])),
        };
        agree("output 0", shapes.output_len(0), shapes.input_len(0))
    }
}

pub(super) fn lp(op: &Lp, along: &Along, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y) = (Floats::input(args, 0, op.float), FloatsMut::output(args, 0, op.float));
    let &Along { len, inner } = along;
    let block = (len * inner).max(1);
    y.rows(args.par(), block, GRAIN.div_ceil(4 * block), |first, mut y| {
        for (b, j) in (0..y.len() / block).flat_map(|b| (0..inner).map(move |j| (b, j))) {
            let at = |k: usize| b * block + k * inner + j;
            let each = (0..len).map(|k| x.get(first * block + at(k)).abs());
            let norm = if op.squares { each.map(|x| x * x).sum::<f64>().sqrt() } else { each.sum() };
            for k in 0..len {
                let x = x.get(first * block + at(k));
                y.put(at(k), if norm == 0.0 { 0.0 } else { x / norm });
            }
        }
    })?;
    Ok(())
}

/// `y = (x - mean) / (deviation + 1e-9)` over some axes.
pub(super) struct MeanVariance {
    /// Per axis of the tensor: whether means are taken over it.
    over: Vec<bool>,
    float: Float,
}

/// Where elements of a tensor belong: its axes, and the step of each among the means.
#[derive(Debug, Default)]
pub(super) struct Means {
    dims: Ints,
    steps: Vec<usize>,
    count: usize,
}

impl Op for MeanVariance {
    type Bound = Means;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        let mut over = vec![false; rank];
        for &axis in node.ints("axes").unwrap_or(&[0, 2, 3]) {
            let at = resolve_axis(axis, rank);
            let at = at.ok_or_else(|| {
                Reject::attribute(format!("attribute axes has {axis}, no axis of a tensor of rank {rank}"))
            })?;
            over[at] = true;
        }
        Ok(MeanVariance { over, float: Float::input(node, 0)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 20.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Means) -> Result<(), Fault> {
        let x = shapes.input(0);
        bound.dims = Ints::from_slice(x);
        bound.steps.clear();
        bound.steps.resize(x.len(), 0);
        bound.count = 1;
        for (k, &dim) in x.iter().enumerate().rev() {
            if !self.over.get(k).copied().unwrap_or(false) {
                bound.steps[k] = bound.count;
                bound.count *= size(dim);
            }
        }
        agree("output 0", shapes.output_len(0), shapes.input_len(0))
    }

    fn scratch(&self, bound: &Means, _: usize) -> usize {
        bound.count.saturating_mul(2 * size_of::<f64>())
    }
}

impl Means {
    fn of(&self, mut at: usize) -> usize {
        let mut mean = 0;
        for (&dim, &step) in self.dims.iter().zip(&self.steps).rev() {
            mean += at % size(dim) * step;
            at /= size(dim);
        }
        mean
    }
}

pub(super) fn mean_variance(op: &MeanVariance, means: &Means, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, mut y) = (Floats::input(args, 0, op.float), FloatsMut::output(args, 0, op.float));
    let (mean, deviation) = args.scratch::<f64>()[..2 * means.count].split_at_mut(means.count);
    let n = (y.len() / means.count.max(1)) as f64;
    mean.fill(0.0);
    deviation.fill(0.0);
    (0..y.len()).for_each(|k| mean[means.of(k)] += x.get(k));
    mean.iter_mut().for_each(|sum| *sum /= n);
    for k in 0..y.len() {
        let at = means.of(k);
        deviation[at] += (x.get(k) - mean[at]).powi(2);
    }
    deviation.iter_mut().for_each(|sum| *sum = (*sum / n).sqrt() + 1e-9);
    for k in 0..y.len() {
        let at = means.of(k);
        y.put(k, (x.get(k) - mean[at]) / deviation[at]);
    }
    Ok(())
}
