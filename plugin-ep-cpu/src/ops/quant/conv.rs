//! `ConvInteger` and `QLinearConv`: filters times the pixels under them, on `igemm`.
//!
//! The pixels are copied together for each group of each image, where a filter has more than one tap; bytes are few enough
//! for that. Padding is the zero point of the image, which counts as nothing.

use super::BYTES;
use crate::conv::Geometry;
use crate::igemm::{Bytes, Factor, Finish, IGemm, Left, PackedB, Right, Target, Zero};
use crate::ops::float::agree;
use crate::ops::window::{self, Sizes, Sliding, image};
use crate::ops::{Cpu, cost};
use crate::simd::Isa;
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Reject, Shapes, size, split};

/// What both operators share. `w` is the input of filters.
struct Filters {
    isa: Isa,
    w: usize,
    groups: usize,
    window: Sliding,
    signed: [bool; 2],
}

/// The convolution of one shape.
#[derive(Default)]
pub(super) struct Bound {
    geometry: Option<Geometry>,
    batch: usize,
    /// Channels and filters of a group.
    ins: usize,
    outs: usize,
}

impl Filters {
    fn parse(node: &NodeView<'_>, w: usize) -> Result<Self, Reject> {
        let (x, filters) = (node.needs(0)?, node.needs(w)?);
        let (window, groups) = Sliding::of_filters(node, w)?;
        for (i, v) in [(0, &x), (w, &filters)] {
            if BYTES & v.dtype().mask() == 0 {
                return Err(Reject::dtype(format!("input {i} is {}, not i8 or u8", v.dtype())));
            }
        }
        let signed = [&x, &filters].map(|v| v.dtype() as u32 == DType::I8 as u32);
        Ok(Filters { isa: Cpu::of(node).isa, w, groups, window, signed })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(w), Some(y)) = (node.input(self.w), node.output(0)) else { return Cost::UNKNOWN };
        let filters = w.dim(0).map_or(f64::NAN, |n| n.max(1) as f64);
        cost::products(node, y.elements() * w.elements() / filters / 3.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let (batch, channels, input) = image(shapes.input(0))?;
        let (y_batch, y_channels, output) = image(shapes.output(0))?;
        let (outs, ins, kernel) = image(shapes.input(self.w))?;
        let fits = (y_batch, y_channels) == (batch, outs) && ins.checked_mul(self.groups) == Some(channels);
        if !fits || !outs.is_multiple_of(self.groups) {
            let (x, w, y) = (shapes.input(0), shapes.input(self.w), shapes.output(0));
            return Err(Fault::data(format!(
                "filters of {w:?} in {} groups do not lead from {x:?} to {y:?}",
                self.groups
            )));
        }
        let kernel: Sizes = kernel.iter().map(|&d| size(d)).collect();
        let (geometry, _) = window::geometry(&self.window, input, output, &kernel)?;
        *bound = Bound { geometry: Some(geometry), batch, ins, outs: outs / self.groups };
        Ok(())
    }

    /// Zero points and scales are one for all, or one for each filter.
    fn each(&self, shapes: &Shapes<'_>, bound: &Bound, input: usize, name: &str) -> Result<(), Fault> {
        match shapes.has(input) && shapes.input_len(input) != 1 {
            true => agree(name, shapes.input_len(input), bound.outs * self.groups),
            false => Ok(()),
        }
    }

    fn scratch(&self, bound: &Bound) -> usize {
        let Some(g) = &bound.geometry else { return 0 };
        let pixels = bound.ins.saturating_mul(g.taps()).saturating_mul(g.outputs());
        let gemm = bound.gemm(self.isa, g);
        pixels.saturating_add(gemm.packed_b().size()).saturating_add(gemm.scratch_len())
    }

    /// Calls `run` with group, product, filters, pixels, and where in the output they go.
    fn each_group(
        &self,
        bound: &Bound,
        (x, x_zero): (&[u8], u8),
        (w, w_zero): (&[u8], Option<&[u8]>),
        scratch: &mut [u8],
        par: &dyn Parallel,
        mut run: impl FnMut(usize, IGemm, (Left<'_>, Right<'_>), core::ops::Range<usize>, &mut [u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let g = bound.geometry.as_ref().ok_or_else(|| Fault::data("it was not bound"))?;
        let (k, n, outs) = (bound.ins * g.taps(), g.outputs(), bound.outs);
        let gemm = bound.gemm(self.isa, g);
        let layout: PackedB = gemm.packed_b();
        let (pixels, rest) = scratch.split_at_mut(k * n);
        let (packed, scratch) = rest.split_at_mut(layout.size());
        if n == 0 || outs == 0 {
            return Ok(());
        }
        for item in 0..bound.batch * self.groups {
            let group = item % self.groups;
            let x = &x[item * bound.ins * g.inputs()..][..bound.ins * g.inputs()];
            let under: &[u8] = if g.is_pointwise() {
                x
            } else {
                let grain = (1usize << 14).div_ceil(n);
                split::rows(par, pixels, n, grain, |_, first, rows| {
                    for (row, to) in rows.chunks_exact_mut(n).enumerate() {
                        gather(g, x, first + row, x_zero, to);
                    }
                })?;
                pixels
            };
            let b = Bytes { data: under, signed: self.signed[0] };
            split::rows(par, packed, layout.stride(), 1, |_, first, piece| layout.pack(b, false, first, piece))?;
            let signed = self.signed[1];
            let zero = match w_zero {
                None => Zero::All(0),
                Some(all @ &[_]) => Zero::All(Bytes { data: all, signed }.get(0)),
                Some(each) => Zero::Each(Bytes { data: &each[group * outs..][..outs], signed }),
            };
            let left = Left { a: Bytes { data: &w[group * outs * k..][..outs * k], signed }, zero };
            let x_zero = Bytes { data: &[x_zero], signed: self.signed[0] }.get(0);
            let right = Right { packed, signed: self.signed[0], zero: Zero::All(x_zero) };
            run(group, gemm, (left, right), item * outs * n..(item + 1) * outs * n, scratch)?;
        }
        Ok(())
    }
}

impl Bound {
    fn gemm(&self, isa: Isa, g: &Geometry) -> IGemm {
        IGemm::new(isa, self.outs, g.outputs(), self.ins * g.taps())
    }
}

/// The pixels under one tap of one channel.
fn gather(g: &Geometry, x: &[u8], row: usize, padding: u8, to: &mut [u8]) {
    let (channel, tap) = (row / g.taps(), row % g.taps());
    let taps = [tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
    let (inside, stride) = (g.inside(2, taps[2]), g.stride[2]);
    let columns = g.output[2];
    for (line, to) in to.chunks_exact_mut(columns.max(1)).enumerate() {
        let (depth, height) = (line / g.output[1], line % g.output[1]);
        let (Some(depth), Some(height)) = (g.at(0, depth, taps[0]), g.at(1, height, taps[1])) else {
            to.fill(padding);
            continue;
        };
        to[..inside.start].fill(padding);
        to[inside.end..].fill(padding);
        let Some(start) = (!inside.is_empty()).then(|| g.at(2, inside.start, taps[2])).flatten() else { continue };
        let from = &x[((channel * g.input[0] + depth) * g.input[1] + height) * g.input[2] + start..];
        let to = &mut to[inside.clone()];
        match stride {
            1 => to.copy_from_slice(&from[..to.len()]),
            n => to.iter_mut().zip(from.iter().step_by(n)).for_each(|(to, &from)| *to = from),
        }
    }
}

/// Sums in i32.
pub(super) struct ConvInteger(Filters);

impl Op for ConvInteger {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(ConvInteger(Filters::parse(node, 1)?))
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.0.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        self.0.bind(shapes, bound)?;
        if shapes.has(2) {
            agree("x_zero_point", shapes.input_len(2), 1)?;
        }
        self.0.each(shapes, bound, 3, "w_zero_point")
    }

    fn scratch(&self, bound: &Bound, _: usize) -> usize {
        self.0.scratch(bound)
    }
}

pub(super) fn conv_integer(op: &ConvInteger, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let zero = args.input_if::<u8>(2).map_or(0, |zero| zero[0]);
    let (x, w, y) = (args.input::<u8>(0), args.input::<u8>(1), args.output::<i32>(0));
    let (w_zero, par, n) = (args.input_if::<u8>(3), args.par(), bound.geometry.map_or(0, |g| g.outputs()));
    let scratch = args.scratch::<u8>();
    op.0.each_group(bound, (x, zero), (w, w_zero), scratch, par, |_, gemm, (left, right), at, scratch| {
        Ok(gemm.run(left, right, &Finish::Sums, Target::I32(&mut y[at]), n, scratch, par)?)
    })
}

/// Codes to codes.
pub(super) struct QLinearConv {
    filters: Filters,
    signed: bool,
}

/// Inputs of filters and of biases.
const W: usize = 3;
const BIAS: usize = 8;

impl Op for QLinearConv {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        (0..BIAS).try_for_each(|i| node.needs(i).map(drop))?;
        let signed = node.out()?.dtype() as u32 == DType::I8 as u32;
        Ok(QLinearConv { filters: Filters::parse(node, W)?, signed })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.filters.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        self.filters.bind(shapes, bound)?;
        for (input, name) in [(1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")] {
            agree(name, shapes.input_len(input), 1)?;
        }
        self.filters.each(shapes, bound, 4, "w_scale")?;
        self.filters.each(shapes, bound, 5, "w_zero_point")?;
        match shapes.has(BIAS) {
            true => agree("B", shapes.input_len(BIAS), bound.outs * self.filters.groups),
            false => Ok(()),
        }
    }

    /// Factors of filters come first.
    fn scratch(&self, bound: &Bound, _: usize) -> usize {
        let factors = (bound.outs * self.filters.groups).saturating_mul(size_of::<f32>());
        self.filters.scratch(bound).saturating_add(factors)
    }
}

pub(super) fn qlinear_conv(op: &QLinearConv, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (outs, par, n) = (bound.outs, args.par(), bound.geometry.map_or(0, |g| g.outputs()));
    let [x_scale, w_scale, y_scale] = [1, 4, 6].map(|i| args.input::<f32>(i));
    let all = outs * op.filters.groups;
    let (factors, scratch) = args.scratch::<u8>().split_at_mut(all * size_of::<f32>());
    let factors = ortolan_ep_kit::bytes::elements_mut::<f32>(factors);
    for (k, factor) in factors.iter_mut().enumerate() {
        *factor = x_scale[0] * w_scale[if w_scale.len() == 1 { 0 } else { k }] / y_scale[0];
    }
    let (zero, bias) = (Bytes { data: args.input(7), signed: op.signed }.get(0), args.input_if::<i32>(BIAS));
    let (x, w, y) = (args.input::<u8>(0), args.input::<u8>(W), args.output::<u8>(0));
    let (x_zero, w_zero) = (args.input::<u8>(2)[0], args.input::<u8>(5));
    let sides = ((x, x_zero), (w, Some(w_zero)));
    op.filters.each_group(bound, sides.0, sides.1, scratch, par, |group, gemm, (left, right), at, scratch| {
        let own = group * outs..(group + 1) * outs;
        let finish = Finish::Bytes {
            row: Factor::Each(&factors[own.clone()]),
            column: Factor::All(1.0),
            bias: bias.map(|bias| &bias[own]),
            zero,
            signed: op.signed,
        };
        Ok(gemm.run(left, right, &finish, Target::U8(&mut y[at]), n, scratch, par)?)
    })
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::on_all;
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{OpTest, Tensor};

    /// Image, filters, groups, strides, dilations, pads.
    struct Shape(&'static [i64], &'static [i64], i64, [i64; 2], [i64; 2], [i64; 4]);

    const SHAPES: &[Shape] = &[
        Shape(&[1, 1, 3, 3], &[1, 1, 2, 2], 1, [1, 1], [1, 1], [0; 4]),
        Shape(&[2, 3, 7, 9], &[5, 3, 3, 2], 1, [2, 1], [1, 2], [1, 0, 2, 1]),
        Shape(&[1, 4, 6, 6], &[6, 2, 3, 3], 2, [1, 3], [1, 1], [1; 4]),
        Shape(&[2, 8, 5, 5], &[17, 8, 1, 1], 1, [1, 1], [1, 1], [0; 4]),
        Shape(&[1, 3, 8, 8], &[3, 1, 3, 3], 3, [1, 1], [1, 1], [1; 4]),
        Shape(&[0, 3, 8, 8], &[3, 1, 3, 3], 3, [1, 1], [1, 1], [1; 4]),
    ];

    impl Shape {
        fn out(&self) -> [i64; 4] {
            let Shape(x, w, _, stride, dilation, pads) = self;
            let side = |d: usize| (x[2 + d] + pads[d] + pads[2 + d] - dilation[d] * (w[2 + d] - 1) - 1) / stride[d] + 1;
            [x[0], w[0], side(0), side(1)]
        }

        /// Sums, with the filter of each.
        fn sums(&self, x: &[i32], w: &[i32]) -> Vec<(i32, usize)> {
            let Shape(dims, filter, groups, stride, dilation, pads) = self;
            let out = self.out();
            let (ins, outs) = (filter[1], filter[0] / groups);
            let mut all = Vec::new();
            for at in 0..out.iter().product::<i64>() {
                let (n, m, i, j) = (
                    at / (out[1] * out[2] * out[3]),
                    at / (out[2] * out[3]) % out[1],
                    at / out[3] % out[2],
                    at % out[3],
                );
                let mut sum = 0;
                for tap in 0..ins * filter[2] * filter[3] {
                    let (c, u, v) = (tap / (filter[2] * filter[3]), tap / filter[3] % filter[2], tap % filter[3]);
                    let (row, column) =
                        (i * stride[0] + u * dilation[0] - pads[0], j * stride[1] + v * dilation[1] - pads[1]);
                    if (0..dims[2]).contains(&row) && (0..dims[3]).contains(&column) {
                        let channel = m / outs * ins + c;
                        let place = ((n * dims[1] + channel) * dims[2] + row) * dims[3] + column;
                        sum += x[place as usize] * w[(m * ins * filter[2] * filter[3] + tap) as usize];
                    }
                }
                all.push((sum, m as usize));
            }
            all
        }

        fn attributes(&self, case: OpTest) -> OpTest {
            let Shape(_, _, groups, stride, dilation, pads) = self;
            case.int("group", *groups).ints("strides", stride).ints("dilations", dilation).ints("pads", pads)
        }
    }

    fn bytes(dims: &[i64], seed: usize) -> (Tensor, Vec<u8>) {
        let t = Tensor::from_fn(dims, |k| ((k * 71 + seed * 29) % 251) as u8);
        let values = t.to_vec();
        (t, values)
    }

    #[test]
    fn sums_like_the_definition() {
        for shape in SHAPES {
            let ((x, xs), (w, ws)) = (bytes(shape.0, 1), bytes(shape.1, 2));
            let signed = Tensor { dtype: DType::I8, ..w.clone() };
            let filter = (shape.1[1] * shape.1[2] * shape.1[3]) as usize;
            let zeros: Vec<i8> = (0..shape.1[0]).map(|k| (k * 3) as i8 - 4).collect();
            let less: Vec<i32> = xs.iter().map(|&x| i32::from(x) - 7).collect();
            let (own, each) = (ws.iter().map(|&w| i32::from(w)), ws.iter().enumerate());
            let plain = shape.sums(&less, &own.collect::<Vec<_>>());
            let offset: Vec<i32> = each.map(|(k, &w)| i32::from(w as i8) - i32::from(zeros[k / filter])).collect();
            let offset = shape.sums(&less, &offset);
            let want = |sums: &[(i32, usize)]| Tensor::new(&shape.out(), &sums.iter().map(|s| s.0).collect::<Vec<_>>());
            on_all("ConvInteger", 10, |case| {
                let case = shape.attributes(case).input(&x).input(&w).input(&Tensor::new(&[], &[7u8]));
                assert_eq!(case.output(DType::I32, &shape.out()).run()[0], want(&plain));
            });
            on_all("ConvInteger", 10, |case| {
                let case = shape.attributes(case).input(&x).input(&signed).input(&Tensor::new(&[1], &[7u8]));
                let case = case.input(&Tensor::new(&[shape.1[0]], &zeros)).output(DType::I32, &shape.out());
                assert_eq!(case.run()[0], want(&offset));
            });
        }
    }

    #[test]
    fn codes_like_the_definition() {
        for shape in SHAPES {
            let ((x, xs), (w, ws)) = (bytes(shape.0, 3), bytes(shape.1, 4));
            let m = shape.1[0];
            let less = |all: &[u8], zero: i32| all.iter().map(|&x| i32::from(x) - zero).collect::<Vec<_>>();
            let sums = shape.sums(&less(&xs, 120), &less(&ws, 130));
            let scales: Vec<f32> = (0..m).map(|k| 0.01 + k as f32 * 0.003).collect();
            let bias: Vec<i32> = (0..m as i32).map(|k| k * 100 - 150).collect();
            let codes: Vec<i8> = sums
                .iter()
                .map(|&(sum, k)| {
                    let exact = f64::from(sum + bias[k]) * f64::from(0.5 * scales[k] / 3.0);
                    (exact.round_ties_even() - 5.0).clamp(-128.0, 127.0) as i8
                })
                .collect();
            on_all("QLinearConv", 10, |case| {
                let one = |x: f32| Tensor::new(&[], &[x]);
                let case = shape.attributes(case).input(&x).input(&one(0.5)).input(&Tensor::new(&[], &[120u8]));
                let case = case.input(&w).input(&Tensor::new(&[m], &scales)).input(&Tensor::new(&[], &[130u8]));
                let case = case.input(&one(3.0)).input(&Tensor::new(&[], &[-5i8])).input(&Tensor::new(&[m], &bias));
                let got = case.output(DType::I8, &shape.out()).run()[0].to_vec::<i8>();
                // A code next to it where the value lies between two.
                assert!(got.len() == codes.len() && got.iter().zip(&codes).all(|(a, b)| a.abs_diff(*b) <= 1));
                let off = got.iter().zip(&codes).filter(|(a, b)| a != b).count();
                assert!(off * 50 <= got.len(), "{off} of {} codes", got.len());
            });
        }
    }
}
