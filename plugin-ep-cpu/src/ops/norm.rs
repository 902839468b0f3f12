//! Normalizations. The rows of `norm` itself are those over the last axes of a tensor; `channel` has those with numbers
//! per channel, `window` the others.

mod channel;
pub(super) mod row;
mod window;

use super::broadcast::Broadcast;
use super::float::{F32, FLOATS, Float, Floats, FloatsMut, agree};
use super::lane::Side;
use super::{Cpu, GRAIN, cost};
use crate::simd::Isa;
use channel::{batch, batch_plain, group, group_plain};
use ortolan_ep_kit::{Args, Cost, DType, Fault, Kernel, NodeView, Op, Reject, Shapes, Slot, any, count, split};
use row::{Affine, NONE, affine};
use window::{lp, lrn, lrn_plain, mean_variance};

/// Sorted by operator; where two rows have one name, the first that fits runs.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("BatchNormalization", (14, 15), "batchnorm", any!(batch))
        .types(&[("T", F32), ("T1", F32), ("T2", F32)])
        .at(BATCH)
        .in_place(OVER),
    Kernel::new("BatchNormalization", (14, 15), "batchnorm", any!(batch_plain))
        .types(&[("T", FLOATS), ("T1", FLOATS), ("T2", FLOATS)])
        .at(BATCH)
        .fallback(),
    Kernel::new("GroupNormalization", (21, 21), "groupnorm", any!(group: f32)).in_place(OVER),
    Kernel::new("GroupNormalization", (21, 21), "groupnorm", any!(group_plain)).types(&[("T", FLOATS)]).fallback(),
    Kernel::new("InstanceNormalization", (6, 22), "instancenorm", any!(group: f32)).in_place(OVER),
    Kernel::new("InstanceNormalization", (6, 22), "instancenorm", any!(group_plain)).types(&[("T", FLOATS)]).fallback(),
    Kernel::new("LRN", (1, 13), "lrn", any!(lrn: f32)),
    Kernel::new("LRN", (1, 13), "lrn", any!(lrn_plain)).types(&[("T", FLOATS)]).fallback(),
    Kernel::new("LayerNormalization", (17, 17), "layernorm", any!(layer: f32)).in_place(OVER),
    Kernel::new("LayerNormalization", (17, 17), "layernorm", any!(plain)).types(&[("T", FLOATS)]).fallback(),
    Kernel::new("LpNormalization", (1, 22), "lpnorm", any!(lp)).types(&[("T", FLOATS)]).fallback(),
    Kernel::new("MeanVarianceNormalization", (9, 13), "meanvariancenorm", any!(mean_variance))
        .types(&[("T", FLOATS)])
        .fallback(),
    Kernel::new("RMSNormalization", (23, 23), "rmsnorm", any!(layer)).types(BOTH_F32).in_place(OVER),
    Kernel::new("RMSNormalization", (23, 23), "rmsnorm", any!(plain)).types(ANY_SCALE).fallback(),
    // ONNX Runtime has it in the standard domain, and models do so too.
    Kernel::new("SimplifiedLayerNormalization", (1, 1), "rmsnorm", any!(layer)).types(BOTH_F32).in_place(OVER),
    Kernel::new("SimplifiedLayerNormalization", (1, 1), "rmsnorm", any!(plain)).types(ANY_SCALE).fallback(),
];

const OVER: &[(u8, u8)] = &[(0, 0)];
const BATCH: &[Slot] = &[Slot::In(0), Slot::In(1), Slot::In(3)];
const BOTH_F32: &[(&str, u64)] = &[("T", F32), ("V", F32)];
const ANY_SCALE: &[(&str, u64)] = &[("T", FLOATS), ("V", FLOATS)];

/// `y = (x - mean) / sqrt(variance + epsilon) * scale + bias` over the axes from `axis` on; without the mean and with the
/// mean of squares in place of the variance if it is not `centred`.
struct Layer {
    isa: Isa,
    axis: usize,
    epsilon: f32,
    centred: bool,
    /// Types of X, scale, bias, and of the outputs.
    x: Float,
    scale: Float,
    y: Float,
    statistics: Float,
}

/// Rows of a tensor, and how scale and bias lie under them.
#[derive(Default)]
struct Rows {
    len: usize,
    /// Scale and bias have an element for each of a row, or are walked over the whole tensor.
    each: bool,
    walk: Broadcast<2>,
}

impl Op for Layer {
    type Bound = Rows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        node.needs(1)?;
        let axis = if x.rank() == 0 { 0 } else { node.axis("axis", x.rank())? };
        let float = Float::input(node, 0)?;
        stash(node, float)?;
        if let (Some(a), Some(b)) = (node.output(1), node.output(2))
            && a.dtype() as u32 != b.dtype() as u32
        {
            return Err(Reject::dtype(format!("outputs 1 and 2 differ in type: {} and {}", a.dtype(), b.dtype())));
        }
        let statistics = if node.output(1).is_some() { 1 } else { 2 };
        Ok(Layer {
            isa: Cpu::of(node).isa,
            axis,
            epsilon: node.float("epsilon")?,
            centred: node.op() == "LayerNormalization",
            x: float,
            scale: Float::input(node, 1)?,
            y: Float::output(node, 0)?,
            statistics: Float::output(node, statistics)?,
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.15)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Rows) -> Result<(), Fault> {
        let (x, scale, bias) = (shapes.input(0), shapes.input(1), shapes.input(2));
        let normalized = &x[self.axis.min(x.len())..];
        bound.len = count(normalized);
        bound.each = scale == normalized && (!shapes.has(2) || bias == normalized);
        if !bound.each {
            bound.walk.bind(x, [scale, bias])?;
        }
        agree("output 0", shapes.output_len(0), shapes.input_len(0))?;
        let rows = shapes.input_len(0) / bound.len.max(1);
        for output in 1..3 {
            if !shapes.output(output).is_empty() {
                agree("an output of statistics", shapes.output_len(output), rows)?;
            }
        }
        Ok(())
    }
}

/// The precision of the computation. It is that of f32, or of f64 for f64, unless the node asks for more.
fn stash(node: &NodeView<'_>, x: Float) -> Result<(), Reject> {
    let stash = node.int_if("stash_type").unwrap_or(1);
    let dtype = u32::try_from(stash).ok().and_then(DType::from_u32);
    match dtype.and_then(Float::of) {
        Some(Float::F64) if x != Float::F64 => {
            Err(Reject::attribute("attribute stash_type = 11 asks for f64, kernels compute in f32"))
        }
        Some(_) => Ok(()),
        None => Err(Reject::attribute(format!("attribute stash_type = {stash} is no float type"))),
    }
}

fn layer(op: &Layer, rows: &Rows, args: &mut Args<'_>) -> Result<(), Fault> {
    let alias = args.alias(0);
    let y = args.output::<f32>(0);
    let x = if alias.is_none() { Some(args.input::<f32>(0)) } else { None };
    statistics(op, rows, args, Floats::F32(x.unwrap_or(y)))?;
    let (scale, bias) = (args.input::<f32>(1), args.input_if::<f32>(2));
    let (len, isa) = (rows.len, op.isa);
    split::rows(args.par(), y, len, GRAIN.div_ceil(len.max(1)), |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(len.max(1)).enumerate() {
            let x = x.map(|x| &x[(first + k) * len..][..len]);
            let (mean, inverse) = moments(op, x.unwrap_or(y));
            let (mut scales, mut biases) = (Side::Scalar(1.0), Side::Scalar(0.0));
            if rows.each {
                (scales, biases) = (Side::Slice(scale), bias.map_or(biases, Side::Slice));
            }
            affine(isa, x, y, Affine { mean, inverse, scale: scales, bias: biases, floor: NONE });
        }
    })?;
    if !rows.each {
        let step = rows.walk.inner.step;
        rows.walk.walk(args.par(), y, GRAIN, |at, piece| {
            for (k, y) in piece.iter_mut().enumerate() {
                *y = *y * scale[at[0] + k * step[0]] + bias.map_or(0.0, |b| b[at[1] + k * step[1]]);
            }
        })?;
    }
    Ok(())
}

/// Mean and inverse deviation of a row.
fn moments(op: &Layer, x: &[f32]) -> (f32, f32) {
    let mean = if op.centred { row::mean(op.isa, x) } else { 0.0 };
    let variance = row::variance(op.isa, x, mean);
    (mean, (variance + op.epsilon).sqrt().recip())
}

/// The same of the elements of any type from `at` on.
fn wide_moments(op: &Layer, x: &Floats<'_>, at: usize, len: usize) -> (f64, f64) {
    let mean = if op.centred { x.row(at, len).sum::<f64>() / len as f64 } else { 0.0 };
    let variance = x.row(at, len).map(|x| (x - mean) * (x - mean)).sum::<f64>() / len as f64;
    (mean, (variance + f64::from(op.epsilon)).sqrt().recip())
}

/// The optional outputs: the mean of each row where there is one, and the inverse deviation.
fn statistics(op: &Layer, rows: &Rows, args: &mut Args<'_>, x: Floats<'_>) -> Result<(), Fault> {
    let par = args.par();
    for output in 1..=if op.centred { 2 } else { 1 } {
        let Some(to) = FloatsMut::output_if(args, output, op.statistics) else { continue };
        let wants_mean = op.centred && output == 1;
        to.rows(par, 1, GRAIN.div_ceil(rows.len.max(1)), |first, mut to| {
            for k in 0..to.len() {
                let (mean, inverse) = wide_moments(op, &x, (first + k) * rows.len, rows.len);
                to.put(k, if wants_mean { mean } else { inverse });
            }
        })?;
    }
    Ok(())
}

/// The same for all types.
fn plain(op: &Layer, rows: &Rows, args: &mut Args<'_>) -> Result<(), Fault> {
    let x = Floats::input(args, 0, op.x);
    statistics(op, rows, args, x)?;
    let (scale, bias) = (Floats::input(args, 1, op.scale), Floats::input_if(args, 2, op.scale));
    let y = FloatsMut::output(args, 0, op.y);
    let len = rows.len.max(1);
    y.rows(args.par(), len, GRAIN.div_ceil(len), |first, mut y| {
        for row in 0..y.len() / len {
            let start = (first + row) * len;
            let (mean, inverse) = wide_moments(op, &x, start, len);
            for (j, x) in x.row(start, len).enumerate() {
                let at = if rows.each { [j, j] } else { offsets(&rows.walk, start + j) };
                let bias = bias.map_or(0.0, |b| b.get(at[1]));
                y.put(row * len + j, (x - mean) * inverse * scale.get(at[0]) + bias);
            }
        }
    })?;
    Ok(())
}

/// Where scale and bias of an element are.
fn offsets(walk: &Broadcast<2>, mut at: usize) -> [usize; 2] {
    let mut offsets = [0; 2];
    for axis in core::iter::once(&walk.inner).chain(walk.outer.iter().rev()) {
        let index = at % axis.len.max(1);
        at /= axis.len.max(1);
        (0..2).for_each(|i| offsets[i] += index * axis.step[i]);
    }
    offsets
}

#[cfg(test)]
mod tests;
