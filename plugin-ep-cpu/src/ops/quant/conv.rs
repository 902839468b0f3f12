//! `ConvInteger` and `QLinearConv`.

use super::filters::{Bound, Filters};
use crate::iconv::{Finish, Form, Target};
use crate::igemm::Bytes;
use crate::ops::float::agree;
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Pack, Reject, Shapes, Weight, WeightSource, bytes};

/// Sums in i32.
pub(super) struct ConvInteger(Filters);

impl Op for ConvInteger {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(ConvInteger(Filters::parse(node, 1, 3)?))
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

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        self.0.scratch(bound, width)
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        self.0.pack(input, source)
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.0.fill(weight, to, par)
    }
}

pub(super) fn conv_integer(op: &ConvInteger, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let zero = args.input_if::<u8>(2).map_or(0, |zero| zero[0]);
    let (x, w, y) = (args.input::<u8>(0), args.input::<u8>(1), args.output::<i32>(0));
    let (w_zero, par, scratch) = (args.input_if::<u8>(3), args.par(), args.scratch::<u8>());
    let finish = Finish { add: None, form: Form::Sums };
    op.0.run(bound, (x, zero), (w, w_zero), &finish, Target::I32(y), scratch, par)
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
        Ok(QLinearConv { filters: Filters::parse(node, W, 5)?, signed })
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

    /// Factors of filters come last.
    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let factors = (bound.outs * self.filters.groups).saturating_mul(size_of::<f32>());
        self.filters.scratch(bound, width).saturating_add(factors)
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        self.filters.pack(input, source)
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.filters.fill(weight, to, par)
    }
}

pub(super) fn qlinear_conv(op: &QLinearConv, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (all, par) = (bound.outs * op.filters.groups, args.par());
    let [x_scale, w_scale, y_scale] = [1, 4, 6].map(|i| args.input::<f32>(i));
    let scratch = args.scratch::<u8>();
    let (scratch, factors) = scratch.split_at_mut(scratch.len() - all * size_of::<f32>());
    let factors = bytes::elements_mut::<f32>(factors);
    for (k, factor) in factors.iter_mut().enumerate() {
        *factor = x_scale[0] * w_scale[if w_scale.len() == 1 { 0 } else { k }] / y_scale[0];
    }
    let zero = Bytes { data: args.input(7), signed: op.signed }.get(0);
    let clip = (f32::NEG_INFINITY, f32::INFINITY);
    let form = Form::Codes { factor: factors, bias: None, clip, zero, signed: op.signed };
    let finish = Finish { add: args.input_if::<i32>(BIAS), form };
    let (x, w, y) = (args.input::<u8>(0), args.input::<u8>(W), args.output::<u8>(0));
    let (x_zero, w_zero) = (args.input::<u8>(2)[0], args.input::<u8>(5));
    op.filters.run(bound, (x, x_zero), (w, Some(w_zero)), &finish, Target::U8(y), scratch, par)
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
