//! Transposed convolution: a product makes what each input pixel gives to each tap, then the taps are added up plane by
//! plane. It works through the input in blocks of lines, so that what lies between stays in the cache.

use super::super::window::{self, Sizes, Sliding, image};
use super::super::{Cpu, cost};
use crate::conv::Geometry;
use crate::gemm::{Epilogue, Gemm, Lhs, Mat, MatMut, PackedA, Rhs};
use crate::simd::{self, Isa, Operand, ops};
use core::ops::Range;
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::{
    Args, Cost, Fault, NodeView, Op, Pack, Parallel, Reject, Shapes, Weight, WeightSource, bytes, size, split,
};

/// Values between the product and the sums, about; a line more if that is not enough for one.
const BLOCK: usize = 1 << 17;

/// Attributes, and the layout of the filter if it is packed.
pub(super) struct Transposed {
    isa: Isa,
    groups: usize,
    window: Sliding,
    output_padding: Sizes,
    /// The output's size was given and decides the padding.
    sized: bool,
    packed: Option<PackedA>,
}

/// The convolution of one shape.
#[derive(Default)]
pub(super) struct Bound {
    /// The convolution that leads from the output back to the input.
    geometry: Option<Geometry>,
    batch: usize,
    ins: usize,
    outs: usize,
    /// Lines of the input that are worked on together, and how many there are.
    block: usize,
    lines: usize,
    /// Values between the product and the sums.
    columns: usize,
    flops: u64,
}

impl Op for Transposed {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (window, groups) = Sliding::of_filters(node, 1)?;
        let list = node.ints("output_padding").unwrap_or(&[]);
        let output_padding: Sizes = (0..window.spatial).map(|d| list.get(d).map_or(0, |&n| size(n))).collect();
        let sized = node.ints("output_shape").is_some_and(|list| !list.is_empty());
        Ok(Transposed { isa: Cpu::of(node).isa, groups, window, output_padding, sized, packed: None })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(x), Some(w)) = (node.input(0), node.input(1)) else { return Cost::UNKNOWN };
        let ins = w.dim(0).map_or(f64::NAN, |n| n.max(1) as f64);
        cost::products(node, x.elements() * w.elements() / ins)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let ((batch, channels, input), w) = (image(shapes.input(0))?, shapes.input(1));
        let (y_batch, y_channels, output) = image(shapes.output(0))?;
        let (w_channels, outs, kernel) = image(w)?;
        let fits = channels == w_channels
            && channels % self.groups == 0
            && outs.checked_mul(self.groups) == Some(y_channels)
            && batch == y_batch;
        if !fits {
            return Err(Fault::data(format!(
                "a filter of {w:?} in {} groups does not lead from {:?} to {:?}",
                self.groups,
                shapes.input(0),
                shapes.output(0)
            )));
        }
        if shapes.has(2) && shapes.input_len(2) != y_channels {
            let have = shapes.input_len(2);
            return Err(Fault::data(format!(
                "input 2 has {have} elements, one for each of {y_channels} channels is needed"
            )));
        }
        let kernel: Sizes = kernel.iter().map(|&d| size(d)).collect();
        let geometry = window::transposed(&self.window, input, output, &kernel, &self.output_padding, self.sized)?;
        let rows = outs.saturating_mul(geometry.taps());
        let line = geometry.output[2];
        bound.lines = geometry.output[0] * geometry.output[1];
        bound.block = (BLOCK / rows.saturating_mul(line).max(1)).clamp(1, bound.lines.max(1));
        (bound.batch, bound.ins, bound.outs) = (batch, channels / self.groups, outs);
        let columns = rows.saturating_mul(bound.block * line).checked_next_multiple_of(16).unwrap_or(usize::MAX);
        bound.columns = columns;
        bound.flops = 2 * shapes.input_len(0).saturating_mul(rows) as u64;
        bound.geometry = Some(geometry);
        Ok(())
    }

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let Some(geometry) = &bound.geometry else { return 0 };
        // The last block may be a smaller one, which may be cut otherwise.
        let sizes = [bound.block, bound.lines % bound.block.max(1)]
            .map(|lines| self.gemm(bound, geometry, lines).scratch_len(self.packed.is_some(), false, width));
        bound.columns.saturating_add(sizes[0].max(sizes[1])).saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Bound) -> u64 {
        bound.flops
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        let [channels, outs @ ..] = source.dims else { return None };
        let channels = size(*channels);
        if input != 1 || !channels.is_multiple_of(self.groups) {
            return None;
        }
        let rows = outs.iter().try_fold(1usize, |n, &d| n.checked_mul(size(d)))?;
        let layout = PackedA::new(self.isa, rows, channels / self.groups);
        let bytes = layout.size().checked_mul(self.groups)?.checked_mul(size_of::<f32>())?;
        self.packed = Some(layout);
        let format = fnv(fnv(FNV, b"transposed conv filter"), format!("{layout:?} {}", self.groups).as_bytes());
        Some(Pack { format, bytes, from_base: false })
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], _: &dyn Parallel) -> Result<(), Fault> {
        let Some(layout) = &self.packed else { return Err(Fault::data("the filter was not planned")) };
        let w = weight.elements::<f32>();
        let group = w.len() / self.groups;
        let (ins, to) = (weight.dims.first().map_or(0, |&n| size(n)) / self.groups, bytes::elements_mut::<f32>(to));
        for (w, to) in w.chunks_exact(group.max(1)).zip(to.chunks_exact_mut(layout.size().max(1))) {
            let w = Mat::new(w, ins, group / ins.max(1))?.transposed();
            layout.pack(w, 0..layout.pieces(), to)?;
        }
        Ok(())
    }
}

impl Bound {
    /// The window, and channels and filters of a group.
    pub fn sizes(&self) -> Option<(&Geometry, usize, usize)> {
        self.geometry.as_ref().map(|geometry| (geometry, self.ins, self.outs))
    }
}

impl Transposed {
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// What some lines of the input give to the taps.
    fn gemm(&self, bound: &Bound, geometry: &Geometry, lines: usize) -> Gemm {
        Gemm::new(self.isa, bound.outs * geometry.taps(), lines * geometry.output[2], bound.ins)
    }
}

pub(super) fn transposed(op: &Transposed, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let Some(geometry) = &bound.geometry else { return Err(Fault::data("it was not bound")) };
    let (x, w, y) = (args.input::<f32>(0), args.input::<f32>(1), args.output::<f32>(0));
    let bias = args.input_if::<f32>(2);
    let (columns, scratch) = args.scratch::<f32>().split_at_mut(bound.columns);
    let (pixels, plane) = (geometry.outputs(), geometry.inputs());
    let group_of_w = if let Some(layout) = &op.packed { layout.size() } else { w.len() / op.groups };
    let rows = bound.outs * geometry.taps();
    for item in 0..bound.batch * op.groups {
        let group = item % op.groups;
        let y = &mut y[item * bound.outs * plane..][..bound.outs * plane];
        for (k, y) in y.chunks_exact_mut(plane.max(1)).enumerate() {
            y.fill(bias.map_or(0.0, |bias| bias[group * bound.outs + k]));
        }
        let (x, w) = (&x[item * bound.ins * pixels..][..bound.ins * pixels], &w[group * group_of_w..][..group_of_w]);
        let a = match op.packed {
            Some(layout) => Lhs::Packed(layout, w),
            None => Lhs::Plain(Mat::new(w, bound.ins, rows)?.transposed()),
        };
        for first in (0..bound.lines).step_by(bound.block) {
            let lines = first..(first + bound.block).min(bound.lines);
            let gemm = op.gemm(bound, geometry, lines.len());
            let columns = &mut columns[..rows * gemm.n];
            if gemm.n == 0 || rows == 0 {
                continue;
            }
            match bound.ins {
                0 => columns.fill(0.0),
                ins => {
                    let b = Rhs::Plain(Mat::strided(&x[first * geometry.output[2]..], ins, gemm.n, pixels, 1)?);
                    let out = MatMut::new(columns, rows, gemm.n)?;
                    gemm.run(a, b, &Epilogue::default(), out, scratch, args.par())?;
                }
            }
            let columns = &*columns;
            split::rows(args.par(), y, plane, 1, |_, first_out, planes| {
                for (out, y) in (first_out..).zip(planes.chunks_exact_mut(plane)) {
                    let columns = &columns[out * geometry.taps() * gemm.n..][..geometry.taps() * gemm.n];
                    add_taps(op.isa, geometry, lines.clone(), columns, y);
                }
            })?;
        }
    }
    Ok(())
}

/// Adds what some lines of the input give to each tap to a plane of the output.
fn add_taps(isa: Isa, g: &Geometry, lines: Range<usize>, columns: &[f32], y: &mut [f32]) {
    let line = g.output[2];
    let of_tap = columns.chunks_exact(columns.len() / g.taps());
    for (tap, columns) in of_tap.enumerate() {
        let (t0, t1, t2) = (tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]);
        let inside = g.inside(2, t2);
        let Some(start) = g.at(2, inside.start, t2).filter(|_| !inside.is_empty()) else { continue };
        for (number, columns) in lines.clone().zip(columns.chunks_exact(line)) {
            let (i0, i1) = (number / g.output[1], number % g.output[1]);
            let (Some(y0), Some(y1)) = (g.at(0, i0, t0), g.at(1, i1, t1)) else { continue };
            let y = &mut y[(y0 * g.input[1] + y1) * g.input[2]..][..g.input[2]];
            let (y, columns) = (&mut y[start..], &columns[inside.clone()]);
            match g.stride[2] {
                1 => simd::map_binary_in_place(isa, &ops::Add, y, Operand::Slice(columns)),
                // A stride that the compiler knows.
                2 => y.iter_mut().step_by(2).zip(columns).for_each(|(y, x)| *y += x),
                stride => y.iter_mut().step_by(stride).zip(columns).for_each(|(y, x)| *y += x),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    /// Input, filter, groups, strides, dilations, pads in front and behind, output padding.
    type Shape = (&'static [i64], &'static [i64], i64, &'static [i64], &'static [i64], &'static [i64], &'static [i64]);

    const SHAPES: &[Shape] = &[
        (&[1, 3, 5, 6], &[3, 4, 3, 3], 1, &[1, 1], &[1, 1], &[0, 0, 0, 0], &[0, 0]),
        (&[2, 4, 5, 7], &[4, 3, 2, 2], 1, &[2, 2], &[1, 1], &[0, 0, 0, 0], &[0, 0]),
        (&[2, 4, 5, 7], &[4, 3, 3, 3], 2, &[2, 3], &[1, 2], &[1, 0, 0, 2], &[1, 0]),
        (&[1, 6, 9], &[6, 5, 4], 1, &[3], &[1], &[1, 2], &[1]),
        (&[1, 2, 3, 4, 5], &[2, 2, 2, 3, 2], 1, &[2, 1, 2], &[1, 1, 1], &[0, 1, 0, 1, 0, 0], &[0, 0, 1]),
        (&[1, 64, 40, 50], &[64, 9, 5, 5], 1, &[2, 2], &[1, 1], &[2, 2, 2, 2], &[1, 1]),
        (&[1, 2, 0], &[2, 2, 3], 1, &[2], &[1], &[0, 0], &[0]),
    ];

    fn output(&(x, w, group, stride, dilation, pads, extra): &Shape) -> Vec<i64> {
        let n = x.len() - 2;
        let size =
            |d: usize| stride[d] * (x[2 + d] - 1) + extra[d] + (w[2 + d] - 1) * dilation[d] + 1 - pads[d] - pads[n + d];
        [x[0], w[1] * group].into_iter().chain((0..n).map(|d| size(d).max(0))).collect()
    }

    /// Every input element gives to every tap.
    fn naive(shape: &Shape, x: &Tensor, w: &Tensor, bias: &[f32]) -> Tensor {
        let &(xd, wd, group, stride, dilation, pads, _) = shape;
        let y_dims = output(shape);
        let count = |dims: &[i64]| dims.iter().product::<i64>() as usize;
        let (pixels, taps, plane) = (count(&xd[2..]), count(&wd[2..]), count(&y_dims[2..]));
        let (ins, outs) = ((xd[1] / group) as usize, wd[1] as usize);
        let mut y: Vec<f64> = (0..count(&y_dims)).map(|k| bias[k / plane % bias.len()].into()).collect();
        let (x, w) = (x.to_vec::<f32>(), w.to_vec::<f32>());
        for (at, value) in x.iter().enumerate() {
            let (image, channel, pixel) = (at / pixels / xd[1] as usize, at / pixels % xd[1] as usize, at % pixels);
            for out in 0..outs {
                for tap in 0..taps {
                    let (mut p, mut t, mut to, mut reach, mut inside) = (pixel as i64, tap as i64, 0, 1, true);
                    for d in (0..xd.len() - 2).rev() {
                        let place = p % xd[2 + d] * stride[d] + t % wd[2 + d] * dilation[d] - pads[d];
                        inside &= (0..y_dims[2 + d]).contains(&place);
                        to += place * reach;
                        (p, t, reach) = (p / xd[2 + d], t / wd[2 + d], reach * y_dims[2 + d]);
                    }
                    if inside {
                        let y_channel = channel / ins * outs + out;
                        let weight = w[(channel * outs + out) * taps + tap];
                        y[(image * y_dims[1] as usize + y_channel) * plane + to as usize] += f64::from(value * weight);
                    }
                }
            }
        }
        Tensor::new(&y_dims, &y.into_iter().map(|y| y as f32).collect::<Vec<_>>())
    }

    #[test]
    fn like_the_definition() {
        for shape in SHAPES {
            let &(xd, wd, group, stride, dilation, pads, extra) = shape;
            let (x, w) = (Tensor::random(xd, 1), Tensor::random(wd, 2));
            let y_dims = output(shape);
            let bias = Tensor::random(&[y_dims[1]], 3);
            let want = naive(shape, &x, &w, &bias.to_vec());
            for constant in [true, false] {
                on_all("ConvTranspose", 22, |case| {
                    let case = case.int("group", group).ints("strides", stride).ints("dilations", dilation);
                    let case = case.ints("pads", pads).ints("output_padding", extra).input(&x);
                    let case = if constant { case.constant(&w) } else { case.input(&w) };
                    assert_close(&case.input(&bias).output(DType::F32, &y_dims).run()[0], &want, 1e-4);
                });
            }
        }
    }

    #[test]
    fn a_given_size_decides_the_padding() {
        // One element through a filter of three, of which two are kept.
        let (x, w) = (Tensor::new(&[1, 1, 1], &[1.0f32]), Tensor::new(&[1, 1, 3], &[1.0f32, 2.0, 3.0]));
        for (auto_pad, want) in [("NOTSET", [2.0f32, 3.0]), ("SAME_LOWER", [2.0, 3.0]), ("SAME_UPPER", [1.0, 2.0])] {
            let case = Case::new("ConvTranspose", 22).text("auto_pad", auto_pad).ints("output_shape", &[2]);
            let y = case.ints("strides", &[1]).input(&x).input(&w).output(DType::F32, &[1, 1, 2]).run();
            assert_eq!(y[0].to_vec::<f32>(), want, "{auto_pad}");
        }
    }

    #[test]
    fn what_does_not_fit() {
        let (x, w) = (Tensor::random(&[1, 3, 4], 1), Tensor::random(&[2, 1, 3], 2));
        let case = Case::new("ConvTranspose", 22).input(&x).input(&w).output(DType::F32, &[1, 1, 6]);
        let error = case.try_run().unwrap_err();
        assert!(
            error.contains("a filter of [2, 1, 3] in 1 groups does not lead from [1, 3, 4] to [1, 1, 6]"),
            "{error}"
        );
        let case = Case::new("ConvTranspose", 22).int("group", 0).input(&x).input(&w).output(DType::F32, &[1, 1, 6]);
        let want = "ConvTranspose: attribute group = 0 is not positive".to_owned();
        assert_eq!(case.rejection(), (RejectCode::Attribute, want));
    }
}
