//! Normalizations with a scale and a bias per channel, which is axis 1. The tensor is seen as planes, `channels` of them
//! for each item of a batch.

use super::row::{self, Affine, NONE, affine};
use super::stash;
use crate::ops::float::{Float, Floats, FloatsMut, agree};
use crate::ops::lane::Side;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Seam, Shapes, count, size, split};

/// A tensor as planes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Planes {
    channels: usize,
    plane: usize,
    /// Planes that are normalized together.
    together: usize,
}

impl Planes {
    /// Follows the shape of input 0; the named inputs hold a number per channel.
    fn bind(&mut self, shapes: &Shapes<'_>, vectors: &[(usize, &str)]) -> Result<(), Fault> {
        let x = shapes.input(0);
        self.channels = x.get(1).map_or(1, |&c| size(c));
        self.plane = count(x.get(2..).unwrap_or(&[]));
        for &(i, name) in vectors {
            agree(name, shapes.input_len(i), self.channels)?;
        }
        agree("output 0", shapes.output_len(0), shapes.input_len(0))
    }
}

/// `y = (x - mean) / sqrt(variance + epsilon) * scale + B`, with numbers per channel.
pub(super) struct Batch {
    isa: Isa,
    epsilon: f32,
    /// Mean and variance are those of the batch; the outputs 1 and 2 mix them with the inputs by this weight.
    momentum: Option<f32>,
    /// Values below are raised to it.
    floor: f32,
    types: [Float; 3],
}

impl Op for Batch {
    type Bound = Planes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        (0..5).try_for_each(|i| node.needs(i).map(drop))?;
        let training = node.int("training_mode")? != 0;
        if !training && (1..node.output_count()).any(|j| node.output(j).is_some()) {
            return Err(Reject::attribute("attribute training_mode = 0, but outputs beside Y are wanted"));
        }
        Ok(Batch {
            isa: Cpu::of(node).isa,
            epsilon: node.float("epsilon")?,
            momentum: if training { Some(node.float("momentum")?) } else { None },
            floor: NONE,
            types: [Float::input(node, 0)?, Float::input(node, 1)?, Float::input(node, 3)?],
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.05)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Planes) -> Result<(), Fault> {
        bound.bind(shapes, &[(1, "scale"), (2, "B"), (3, "input_mean"), (4, "input_var")])?;
        for output in 1..3 {
            if !shapes.output(output).is_empty() {
                agree("an output of statistics", shapes.output_len(output), bound.channels)?;
            }
        }
        Ok(())
    }

    /// Mean and variance of each channel in turn, then all factors, then all summands.
    fn scratch(&self, bound: &Planes, _: usize) -> usize {
        bound.channels.saturating_mul(4 * size_of::<f64>())
    }

    fn fuse(&mut self, next: &NodeView<'_>, _: Seam) -> bool {
        let fits = next.op() == "Relu" && self.types == [Float::F32; 3];
        if fits {
            self.floor = 0.0;
        }
        fits
    }
}

pub(super) fn batch(op: &Batch, planes: &Planes, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Planes { channels, plane, .. } = planes;
    let alias = args.alias(0);
    let y = args.output::<f32>(0);
    let x = if alias.is_none() { Some(args.input::<f32>(0)) } else { None };
    let (statistics, lines) = args.scratch::<f32>()[..4 * channels].split_at_mut(2 * channels);
    if let Some(momentum) = op.momentum {
        let x = x.unwrap_or(y);
        split::rows(args.par(), statistics, 2, 1, |_, first, piece| {
            for (k, to) in piece.chunks_exact_mut(2).enumerate() {
                to.copy_from_slice(&channel_moments(op.isa, x, planes, first + k));
            }
        })?;
        mix(args, momentum, |channel, which| statistics[2 * channel + which].into());
    } else {
        let (mean, variance) = (args.input::<f32>(3), args.input::<f32>(4));
        for (to, (&mean, &variance)) in statistics.chunks_exact_mut(2).zip(mean.iter().zip(variance)) {
            to.copy_from_slice(&[mean, variance]);
        }
    }
    let (scale, bias) = (args.input::<f32>(1), args.input::<f32>(2));
    let (factors, summands) = lines.split_at_mut(channels);
    for (c, moments) in statistics.chunks_exact(2).enumerate() {
        factors[c] = scale[c] / (moments[1] + op.epsilon).sqrt();
        summands[c] = bias[c] - moments[0] * factors[c];
    }
    // Without planes, the channels themselves are the rows.
    let row = if plane == 1 { channels } else { plane };
    split::rows(args.par(), y, row, GRAIN.div_ceil(row.max(1)), |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(row.max(1)).enumerate() {
            let x = x.map(|x| &x[(first + k) * row..][..row]);
            let c = (first + k) % channels.max(1);
            let (scale, bias) = match plane {
                1 => (Side::Slice(&*factors), Side::Slice(&*summands)),
                _ => (Side::Scalar(factors[c]), Side::Scalar(summands[c])),
            };
            affine(op.isa, x, y, Affine { mean: 0.0, inverse: 1.0, scale, bias, floor: op.floor });
        }
    })?;
    Ok(())
}

/// Mean and variance of a channel over the batch; sums of planes are added in f64.
fn channel_moments(isa: Isa, x: &[f32], planes: &Planes, channel: usize) -> [f32; 2] {
    let &Planes { channels, plane, .. } = planes;
    let each = || x.chunks_exact(plane.max(1)).skip(channel).step_by(channels.max(1));
    let n = (each().count() * plane) as f64;
    let mean = each().map(|x| f64::from(simd::sum(isa, x))).sum::<f64>() / n;
    let mean = mean as f32; // what the other path reads from its input, too
    let variance = each().map(|x| f64::from(simd::sum_squares(isa, x, mean))).sum::<f64>() / n;
    [mean, variance as f32]
}

/// Outputs 1 and 2 of f32: what was and what is now, weighted.
fn mix(args: &mut Args<'_>, momentum: f32, now: impl Fn(usize, usize) -> f64) {
    mix_any(args, momentum, Float::F32, now);
}

fn mix_any(args: &mut Args<'_>, momentum: f32, float: Float, now: impl Fn(usize, usize) -> f64) {
    let momentum = f64::from(momentum);
    for which in 0..2 {
        let before = Floats::input(args, 3 + which, float);
        let Some(mut to) = FloatsMut::output_if(args, 1 + which, float) else { continue };
        for c in 0..to.len() {
            to.put(c, before.get(c) * momentum + now(c, which) * (1.0 - momentum));
        }
    }
}

pub(super) fn batch_plain(op: &Batch, planes: &Planes, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Planes { channels, plane, .. } = planes;
    let [x_type, scale_type, mean_type] = op.types;
    let (x, y) = (Floats::input(args, 0, x_type), FloatsMut::output(args, 0, x_type));
    let moments = &mut args.scratch::<f64>()[..2 * channels];
    let count = y.len();
    if let Some(momentum) = op.momentum {
        let n = (count / channels.max(1)) as f64;
        for (c, to) in moments.chunks_exact_mut(2).enumerate() {
            let starts = || (c * plane..count).step_by((channels * plane).max(1));
            to[0] = starts().flat_map(|at| x.row(at, plane)).sum::<f64>() / n;
            to[1] = starts().flat_map(|at| x.row(at, plane)).map(|x| (x - to[0]) * (x - to[0])).sum::<f64>() / n;
        }
        mix_any(args, momentum, mean_type, |c, which| moments[2 * c + which]);
    } else {
        let (mean, variance) = (Floats::input(args, 3, mean_type), Floats::input(args, 4, mean_type));
        for (c, to) in moments.chunks_exact_mut(2).enumerate() {
            to.copy_from_slice(&[mean.get(c), variance.get(c)]);
        }
    }
    let (scale, bias) = (Floats::input(args, 1, scale_type), Floats::input(args, 2, scale_type));
    y.rows(args.par(), plane, GRAIN.div_ceil(plane.max(1)), |first, mut y| {
        for k in 0..y.len() {
            let c = (first + k / plane.max(1)) % channels.max(1);
            let inverse = (moments[2 * c + 1] + f64::from(op.epsilon)).sqrt().recip();
            let x = x.get(first * plane + k) - moments[2 * c];
            y.put(k, x * inverse * scale.get(c) + bias.get(c));
        }
    })?;
    Ok(())
}

/// `y = (x - mean) / sqrt(variance + epsilon) * scale + bias` over groups of channels of one item of the batch.
pub(super) struct Group {
    isa: Isa,
    epsilon: f32,
    /// `None`: each channel is a group.
    groups: Option<usize>,
    float: Float,
}

impl Op for Group {
    type Bound = Planes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        if rank < 2 {
            return Err(Reject::rank(format!("input 0 has rank {rank}, at least batch and channels are needed")));
        }
        node.needs(1)?;
        node.needs(2)?;
        let float = Float::input(node, 0)?;
        let mut groups = None;
        if node.op() == "GroupNormalization" {
            stash(node, float)?;
            let n = node.int("num_groups")?;
            let positive = usize::try_from(n).ok().filter(|&n| n > 0);
            groups =
                Some(positive.ok_or_else(|| Reject::attribute(format!("attribute num_groups = {n} is not positive")))?);
        }
        Ok(Group { isa: Cpu::of(node).isa, epsilon: node.float("epsilon")?, groups, float })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.15)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Planes) -> Result<(), Fault> {
        bound.bind(shapes, &[(1, "scale"), (2, "bias")])?;
        bound.together = match self.groups {
            None => 1,
            Some(groups) if bound.channels.is_multiple_of(groups) => bound.channels / groups,
            Some(groups) => {
                let channels = bound.channels;
                return Err(Fault::data(format!("{channels} channels cannot be split into num_groups = {groups}")));
            }
        };
        Ok(())
    }
}

pub(super) fn group(op: &Group, planes: &Planes, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Planes { channels, plane, together } = planes;
    let alias = args.alias(0);
    let y = args.output::<f32>(0);
    let x = if alias.is_none() { Some(args.input::<f32>(0)) } else { None };
    let (scale, bias) = (args.input::<f32>(1), args.input::<f32>(2));
    let row = together * plane;
    split::rows(args.par(), y, row, GRAIN.div_ceil(row.max(1)), |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(row.max(1)).enumerate() {
            let at = first + k;
            let x = x.map(|x| &x[at * row..][..row]);
            let mean = row::mean(op.isa, x.unwrap_or(y));
            let inverse = (row::variance(op.isa, x.unwrap_or(y), mean) + op.epsilon).sqrt().recip();
            for (i, y) in y.chunks_exact_mut(plane).enumerate() {
                let c = (at * together + i) % channels;
                let (scale, bias) = (Side::Scalar(scale[c]), Side::Scalar(bias[c]));
                let x = x.map(|x| &x[i * plane..][..plane]);
                affine(op.isa, x, y, Affine { mean, inverse, scale, bias, floor: NONE });
            }
        }
    })?;
    Ok(())
}

pub(super) fn group_plain(op: &Group, planes: &Planes, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Planes { channels, plane, together } = planes;
    let (x, y) = (Floats::input(args, 0, op.float), FloatsMut::output(args, 0, op.float));
    let (scale, bias) = (Floats::input(args, 1, op.float), Floats::input(args, 2, op.float));
    let row = (together * plane).max(1);
    y.rows(args.par(), row, GRAIN.div_ceil(row), |first, mut y| {
        for k in 0..y.len() / row {
            let start = (first + k) * row;
            let mean = x.row(start, row).sum::<f64>() / row as f64;
            let variance = x.row(start, row).map(|x| (x - mean) * (x - mean)).sum::<f64>() / row as f64;
            let inverse = (variance + f64::from(op.epsilon)).sqrt().recip();
            for (j, x) in x.row(start, row).enumerate() {
                let c = (start + j) / plane % channels;
                y.put(k * row + j, (x - mean) * inverse * scale.get(c) + bias.get(c));
            }
        }
    })?;
    Ok(())
}
