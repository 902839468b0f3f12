//! Convolution and its transpose in f64: taps are added to planes line by line, without blocks or packed filters.

use super::Conv;
use super::transposed::{self, Transposed};
use crate::conv::Geometry;
use crate::ops::float::agree;
use crate::ops::window::{self, Sizes, image};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// How much slower than f32 it is.
const SLOWER: f64 = 20.0;

pub(super) struct WideConv(Conv);

/// The convolution of one shape: channels and filters of a group.
#[derive(Default)]
pub(super) struct Bound {
    geometry: Option<Geometry>,
    ins: usize,
    outs: usize,
}

impl Op for WideConv {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Conv::parse(node).map(WideConv)
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(self.0.cost(node).ns * SLOWER)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let ((batch, channels, input), w) = (image(shapes.input(0))?, shapes.input(1));
        let (y_batch, y_channels, output) = image(shapes.output(0))?;
        let (outs, ins, kernel) = image(w)?;
        let groups = self.0.groups;
        let fits = (y_batch, y_channels) == (batch, outs) && ins.checked_mul(groups) == Some(channels);
        if !fits || !outs.is_multiple_of(groups) {
            let (x, y) = (shapes.input(0), shapes.output(0));
            return Err(Fault::data(format!("a filter of {w:?} in {groups} groups does not lead from {x:?} to {y:?}")));
        }
        if shapes.has(2) {
            agree("input 2", shapes.input_len(2), outs)?;
        }
        let kernel: Sizes = kernel.iter().map(|&d| size(d)).collect();
        let (geometry, _) = window::geometry(&self.0.window, input, output, &kernel)?;
        *bound = Bound { geometry: Some(geometry), ins, outs: outs / groups };
        Ok(())
    }
}

pub(super) fn conv(op: &WideConv, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let g = bound.geometry.as_ref().ok_or_else(|| Fault::data("it was not bound"))?;
    let (x, w, bias) = (args.input::<f64>(0), args.input::<f64>(1), args.input_if::<f64>(2));
    let (groups, ins, outs) = (op.0.groups, bound.ins, bound.outs);
    Ok(split::rows(args.par(), args.output::<f64>(0), g.outputs(), 1, |_, first, planes| {
        for (k, y) in planes.chunks_exact_mut(g.outputs().max(1)).enumerate() {
            let (image, filter) = ((first + k) / (groups * outs), (first + k) % (groups * outs));
            y.fill(bias.map_or(0.0, |bias| bias[filter]));
            for channel in 0..ins {
                let plane = (image * groups + filter / outs) * ins + channel;
                let x = &x[plane * g.inputs()..][..g.inputs()];
                let w = &w[(filter * ins + channel) * g.taps()..][..g.taps()];
                w.iter().enumerate().for_each(|(tap, &w)| {
                    lines(g, tap, |from, to, len| add(&mut y[to..to + len], 1, &x[from..], g.stride[2], w));
                });
            }
        }
    })?)
}

pub(super) struct WideTransposed(Transposed);

impl Op for WideTransposed {
    type Bound = transposed::Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Transposed::parse(node).map(WideTransposed)
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(self.0.cost(node).ns * SLOWER)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut transposed::Bound) -> Result<(), Fault> {
        self.0.bind(shapes, bound)
    }
}

pub(super) fn turned(op: &WideTransposed, bound: &transposed::Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let ((g, ins, outs), groups) = (bound.sizes().ok_or_else(|| Fault::data("it was not bound"))?, op.0.groups());
    let (x, w, bias) = (args.input::<f64>(0), args.input::<f64>(1), args.input_if::<f64>(2));
    Ok(split::rows(args.par(), args.output::<f64>(0), g.inputs(), 1, |_, first, planes| {
        for (k, y) in planes.chunks_exact_mut(g.inputs().max(1)).enumerate() {
            let (image, filter) = ((first + k) / (groups * outs), (first + k) % (groups * outs));
            y.fill(bias.map_or(0.0, |bias| bias[filter]));
            for channel in 0..ins {
                let row = filter / outs * ins + channel;
                let x = &x[(image * groups * ins + row) * g.outputs()..][..g.outputs()];
                let w = &w[(row * outs + filter % outs) * g.taps()..][..g.taps()];
                w.iter().enumerate().for_each(|(tap, &w)| {
                    lines(g, tap, |to, from, len| add(&mut y[to..], g.stride[2], &x[from..from + len], 1, w));
                });
            }
        }
    })?)
}

/// Calls with the places in the input and the output, and the positions, of each line on which a tap is inside.
fn lines(g: &Geometry, tap: usize, mut f: impl FnMut(usize, usize, usize)) {
    let taps = [tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
    let columns = g.inside(2, taps[2]);
    let Some(start) = (!columns.is_empty()).then(|| g.at(2, columns.start, taps[2])).flatten() else { return };
    for (depth, row) in (0..g.output[0] * g.output[1]).map(|line| (line / g.output[1], line % g.output[1])) {
        if let (Some(z), Some(v)) = (g.at(0, depth, taps[0]), g.at(1, row, taps[1])) {
            let from = (z * g.input[1] + v) * g.input[2] + start;
            let to = (depth * g.output[1] + row) * g.output[2] + columns.start;
            f(from, to, columns.len());
        }
    }
}

/// `y += w x`, every so many elements, as far as the side without gaps reaches.
fn add(y: &mut [f64], y_step: usize, x: &[f64], x_step: usize, w: f64) {
    if (x_step, y_step) == (1, 1) {
        return y.iter_mut().zip(x).for_each(|(y, x)| *y += w * x);
    }
    y.iter_mut().step_by(y_step).zip(x.iter().step_by(x_step)).for_each(|(y, x)| *y += w * x);
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{Tensor, assert_close};

    /// Operator, image, filter, output, groups, strides, dilations, pads.
    type Shape = (&'static str, [&'static [i64]; 3], i64, [&'static [i64]; 3]);

    const SHAPES: &[Shape] = &[
        ("Conv", [&[2, 3, 11], &[4, 3, 3], &[2, 4, 6]], 1, [&[2], &[1], &[1, 1]]),
        ("Conv", [&[1, 4, 7, 9], &[6, 2, 3, 2], &[1, 6, 4, 9]], 2, [&[2, 1], &[1, 2], &[1, 1, 1, 1]]),
        (
            "Conv",
            [&[1, 2, 4, 5, 6], &[3, 2, 2, 3, 3], &[1, 3, 3, 5, 3]],
            1,
            [&[1, 1, 2], &[1, 1, 1], &[0, 1, 1, 0, 1, 1]],
        ),
        ("ConvTranspose", [&[2, 3, 5], &[3, 4, 3], &[2, 4, 9]], 1, [&[2], &[1], &[1, 1]]),
        ("ConvTranspose", [&[1, 4, 3, 4], &[4, 3, 2, 3], &[1, 6, 4, 9]], 2, [&[1, 2], &[1, 1], &[0; 4]]),
    ];

    #[test]
    fn the_same_as_in_f32() {
        for &(op, [x, w, y], group, [strides, dilations, pads]) in SHAPES {
            let tensors = [Tensor::random(x, 1), Tensor::random(w, 2), Tensor::random(&y[1..2], 3)];
            let node = |tensors: &[Tensor], dtype| {
                let case = Case::new(op, 22).int("group", group).ints("strides", strides).ints("dilations", dilations);
                let case = tensors.iter().fold(case.ints("pads", pads).width(3), |case, t| case.input(t));
                case.output(dtype, y).run().remove(0)
            };
            let want = node(&tensors, DType::F32);
            let wide =
                |t: &Tensor| Tensor::new(&t.dims, &t.to_vec::<f32>().into_iter().map(f64::from).collect::<Vec<_>>());
            let got = node(&tensors.each_ref().map(wide), DType::F64).to_vec::<f64>();
            assert_close(&Tensor::new(y, &got.iter().map(|&y| y as f32).collect::<Vec<_>>()), &want, 1e-5);
        }
    }
}
