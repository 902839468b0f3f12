//! Convolutions and poolings against nested loops over all taps. Operands hold small integers, so that every order of
//! additions gives the same exact result.

use super::*;
use crate::gemm::testing::{Cancelled, Threads, integers};
use crate::simd::Isa;

/// A case by its numbers: spatial lists as in [`Window`].
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    batch: usize,
    groups: usize,
    /// Channels of a group: in, out.
    channels: (usize, usize),
    input: &'static [usize],
    kernel: &'static [usize],
    stride: &'static [usize],
    dilation: &'static [usize],
    /// Before and behind.
    pads: (&'static [usize], &'static [usize]),
}

impl Case {
    fn output(&self) -> Vec<usize> {
        let size = |d: usize| {
            let padded = self.input[d] + self.pads.0[d] + self.pads.1[d];
            let window = (self.kernel[d] - 1) * self.dilation[d] + 1;
            padded.checked_sub(window).map_or(0, |rest| rest / self.stride[d] + 1)
        };
        (0..self.input.len()).map(size).collect()
    }

    fn geometry(&self) -> Geometry {
        let Case { input, kernel, stride, dilation, pads, .. } = *self;
        Geometry::new(&Window { input, output: &self.output(), kernel, stride, dilation, pad: pads.0 }).unwrap()
    }

    fn filter(&self, isa: Isa, pixels: Option<usize>) -> Filter {
        let dims = [&[self.groups * self.channels.1, self.channels.0], self.kernel].concat();
        Filter::new(isa, &dims, self.groups, pixels).unwrap()
    }
}

const fn case(
    name: &'static str,
    (batch, groups, channels): (usize, usize, (usize, usize)),
    input: &'static [usize],
    kernel: &'static [usize],
    [stride, dilation, before, behind]: [&'static [usize]; 4],
) -> Case {
    Case { name, batch, groups, channels, input, kernel, stride, dilation, pads: (before, behind) }
}

const ONES: [&[usize]; 4] = [&[1, 1], &[1, 1], &[0, 0], &[0, 0]];
const SAME: [&[usize]; 4] = [&[1, 1], &[1, 1], &[1, 1], &[1, 1]];
const HALF: [&[usize]; 4] = [&[2, 2], &[1, 1], &[1, 1], &[1, 1]];

#[rustfmt::skip]
const CASES: [Case; 25] = [
    case("pointwise", (2, 1, (5, 7)), &[6, 9], &[1, 1], ONES),
    case("pointwise, many channels", (1, 1, (40, 70)), &[7, 7], &[1, 1], ONES),
    case("pointwise on one pixel", (3, 1, (20, 37)), &[1, 1], &[1, 1], ONES),
    case("pointwise, strided", (1, 1, (6, 20)), &[9, 13], &[1, 1], [&[2, 2], &[1, 1], &[0, 0], &[0, 0]]),
    case("pointwise, padded", (1, 1, (3, 4)), &[3, 5], &[1, 1], SAME),
    case("3x3", (2, 1, (4, 17)), &[11, 14], &[3, 3], SAME),
    case("3x3 on 7x7", (1, 1, (9, 66)), &[7, 7], &[3, 3], SAME),
    case("3x3, wide", (1, 1, (3, 5)), &[5, 75], &[3, 3], SAME),
    case("3x3, halved", (1, 1, (3, 18)), &[15, 40], &[3, 3], HALF),
    case("7x7 stem", (1, 1, (3, 32)), &[21, 70], &[7, 7], [&[2, 2], &[1, 1], &[3, 3], &[3, 3]]),
    case("stride 3, uneven pads", (1, 1, (2, 3)), &[10, 23], &[2, 5], [&[3, 3], &[1, 1], &[0, 4], &[2, 1]]),
    case("dilated", (1, 1, (3, 20)), &[12, 19], &[3, 2], [&[1, 2], &[3, 4], &[2, 3], &[3, 0]]),
    case("grouped", (2, 3, (4, 6)), &[8, 10], &[3, 3], SAME),
    case("many groups", (1, 9, (2, 2)), &[6, 6], &[3, 3], HALF),
    case("depthwise", (2, 7, (1, 1)), &[13, 21], &[3, 3], SAME),
    case("depthwise, halved", (1, 5, (1, 1)), &[14, 37], &[3, 3], HALF),
    case("depthwise, multiplied", (2, 4, (1, 3)), &[9, 7], &[5, 5], [&[1, 1], &[1, 1], &[2, 2], &[2, 2]]),
    case("depthwise, dilated, stride 3", (1, 3, (1, 2)), &[30, 41], &[3, 4], [&[3, 3], &[2, 5], &[4, 1], &[0, 6]]),
    case("depthwise, tall", (1, 2, (1, 1)), &[400, 90], &[3, 3], SAME),
    case("depthwise, many taps", (1, 2, (1, 1)), &[12, 20], &[9, 9], [&[1, 1], &[1, 1], &[4, 4], &[4, 4]]),
    case("1-D", (2, 1, (5, 8)), &[50], &[5], [&[2], &[3], &[4], &[1]]),
    case("1-D depthwise", (1, 6, (1, 1)), &[101], &[7], [&[1], &[1], &[6], &[0]]),
    case("3-D", (1, 2, (3, 4)), &[5, 6, 7], &[3, 2, 3], [&[1, 2, 1], &[2, 1, 1], &[2, 1, 1], &[1, 0, 1]]),
    case("3-D depthwise", (1, 3, (1, 1)), &[6, 7, 8], &[2, 3, 3], [&[2, 1, 2], &[1, 2, 1], &[1, 2, 1], &[1, 2, 1]]),
    case("no output", (1, 1, (2, 3)), &[2, 2], &[3, 3], ONES),
];

/// All taps of one window with what they stand on: (tap, place in the plane).
fn taps(g: &Geometry, out: usize) -> Vec<(usize, usize)> {
    let [_, rows, columns] = g.output;
    let out = [out / columns / rows, out / columns % rows, out % columns];
    let mut found = Vec::new();
    for tap in 0..g.taps() {
        let t = [tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
        let at = |d: usize| {
            let at = (out[d] * g.stride[d] + t[d] * g.dilation[d]) as isize - g.pad[d] as isize;
            (0..g.input[d] as isize).contains(&at).then_some(at as usize)
        };
        if let (Some(a), Some(b), Some(c)) = (at(0), at(1), at(2)) {
            found.push((tap, (a * g.input[1] + b) * g.input[2] + c));
        }
    }
    found
}

fn naive(case: &Case, x: &[f32], w: &[f32], post: &Post<'_>) -> Vec<f32> {
    let g = case.geometry();
    let (ins, outs) = case.channels;
    let mut y = Vec::new();
    for item in 0..case.batch * case.groups * outs {
        let (image, out) = (item / (case.groups * outs), item % (case.groups * outs));
        for pixel in 0..g.outputs() {
            let mut sum = post.bias.map_or(0.0, |bias| bias[out]);
            for channel in 0..ins {
                let plane = &x[((image * case.groups + out / outs) * ins + channel) * g.inputs()..];
                let w = &w[(out * ins + channel) * g.taps()..];
                sum += taps(&g, pixel).iter().map(|&(tap, at)| w[tap] * plane[at]).sum::<f32>();
            }
            sum += post.residual.map_or(0.0, |residual| residual[y.len()]);
            y.push(match post.activation {
                Activation::None => sum,
                Activation::Relu => sum.max(0.0),
                Activation::Clip { low, high } => sum.max(low).min(high),
                Activation::LeakyRelu(alpha) => {
                    if sum < 0.0 {
                        alpha * sum
                    } else {
                        sum
                    }
                }
                other => panic!("{other:?} is not exact"),
            });
        }
    }
    y
}

/// Packs in two steps, so that parts are tested, into memory full of NaN.
fn packed(filter: &Filter, w: &[f32]) -> Vec<f32> {
    let mut data = vec![f32::NAN; filter.size()];
    let half = filter.pieces() / 2;
    for pieces in [half..filter.pieces(), 0..half] {
        let span = filter.span(pieces.clone());
        filter.pack(w, pieces, &mut data[span]).unwrap();
    }
    data
}

#[test]
fn convolutions() {
    for case in CASES {
        let g = case.geometry();
        let (ins, outs) = case.channels;
        let images = case.batch * case.groups;
        let x = integers(images * ins * g.inputs(), 1);
        let w = integers(case.groups * outs * ins * g.taps(), 2);
        let bias = integers(case.groups * outs, 3);
        let residual = integers(images * outs * g.outputs(), 4);
        let (bias, residual) = (Some(&bias[..]), Some(&residual[..]));
        let posts = [
            Post::default(),
            Post { bias, activation: Activation::Relu, ..Post::default() },
            Post { bias, residual, activation: Activation::Clip { low: -3.0, high: 9.0 } },
            Post { residual, activation: Activation::LeakyRelu(0.5), ..Post::default() },
        ];
        for post in posts {
            let want = naive(&case, &x, &w, &post);
            for isa in Isa::available() {
                for (pixels, width) in [(None, 1), (None, 2), (Some(g.outputs()), 1), (Some(g.outputs()), 3)] {
                    let filter = case.filter(isa, pixels);
                    let conv = Conv::new(&filter, case.batch, &g).unwrap();
                    let mut y = vec![f32::NAN; want.len()];
                    let mut scratch = vec![f32::NAN; conv.scratch_len(width)];
                    conv.run(&x, &packed(&filter, &w), &post, &mut y, &mut scratch, &Threads(width)).unwrap();
                    let name = case.name;
                    assert!(y == want, "{name}: conv_f32_{} {:?} {post:?} on {width}", isa.name(), filter.way);
                }
            }
        }
    }
}

#[test]
fn each_way_is_taken() {
    for isa in Isa::available() {
        let ways = |pixels| CASES.map(|case: Case| case.filter(isa, pixels).way);
        let deep = ways(Some(49)).iter().filter(|way| matches!(way, Way::Deep(_))).count();
        let depthwise = ways(None).iter().filter(|&&way| way == Way::Depthwise).count();
        assert!(deep >= 5 && depthwise == 8, "{}: {deep} and {depthwise}", isa.name());
    }
}

#[test]
fn curved_activations_come_last() {
    use crate::simd::{map_unary_in_place, ops};
    for case in [CASES[1], CASES[5], CASES[6], CASES[14]] {
        let g = case.geometry();
        let x = integers(case.batch * case.groups * case.channels.0 * g.inputs(), 1);
        let w = integers(case.groups * case.channels.0 * case.channels.1 * g.taps(), 2);
        let mut want = naive(&case, &x, &w, &Post::default());
        for isa in Isa::available() {
            for pixels in [None, Some(1)] {
                let filter = case.filter(isa, pixels);
                let conv = Conv::new(&filter, case.batch, &g).unwrap();
                let mut y = vec![0.0; want.len()];
                let mut scratch = vec![0.0; conv.scratch_len(1)];
                let post = Post { activation: Activation::HardSwish, ..Post::default() };
                conv.run(&x, &packed(&filter, &w), &post, &mut y, &mut scratch, &Serial).unwrap();
                let before = want.clone();
                map_unary_in_place(isa, &ops::HardSwish, &mut want);
                assert_eq!(y, want, "{}_{}", case.name, isa.name());
                want = before;
            }
        }
    }
}

fn naive_pool(g: &Geometry, pooling: Pooling, x: &[f32]) -> Vec<f32> {
    let window = |out: usize| {
        let values = taps(g, out).into_iter().map(|(_, at)| x[at]);
        let count = match pooling {
            Pooling::Max => return values.fold(f32::NEG_INFINITY, f32::max),
            Pooling::Average => values.len(),
            Pooling::Sum => 1,
            Pooling::AverageWithPadding { pad_end } => {
                let wide = Geometry { pad: [0; 3], input: [0, 1, 2].map(|d| g.pad[d] + g.input[d] + pad_end[d]), ..*g };
                taps(&wide, out).len()
            }
        };
        values.sum::<f32>() / count.max(1) as f32
    };
    (0..g.outputs()).map(window).collect()
}

#[test]
fn poolings() {
    for case in CASES {
        let mut output = case.output();
        // One position more than fits, as rounding up gives it.
        for more in [0, 1] {
            output.iter_mut().for_each(|size| *size += more);
            let Case { input, kernel, stride, dilation, pads, .. } = case;
            let g = Geometry::new(&Window { input, output: &output, kernel, stride, dilation, pad: pads.0 }).unwrap();
            let mut pad_end = [0; 3];
            pad_end[3 - input.len()..].copy_from_slice(pads.1);
            let x = integers(3 * g.inputs(), 5);
            for pooling in [Pooling::Max, Pooling::Average, Pooling::Sum, Pooling::AverageWithPadding { pad_end }] {
                let planes = (0..3).map(|plane| naive_pool(&g, pooling, &x[plane * g.inputs()..]));
                let want = planes.collect::<Vec<_>>().concat();
                for isa in Isa::available() {
                    for width in [1, 2] {
                        let pool = Pool::new(isa, pooling, &g);
                        let mut y = vec![f32::NAN; want.len()];
                        let mut scratch = vec![f32::NAN; pool.scratch_len(width)];
                        pool.run(3, &x, &mut y, &mut scratch, &Threads(width)).unwrap();
                        assert_eq!(y, want, "{}: {pooling:?}_{} on {width}", case.name, isa.name());
                    }
                }
            }
        }
    }
}

#[test]
fn maxima_keep_nan_and_tell_their_places() {
    for case in CASES {
        let g = case.geometry();
        let mut x = integers(g.inputs(), 6);
        if let Some(value) = x.get_mut(g.inputs() / 2) {
            *value = f32::NAN;
        }
        let (mut y, mut indices) = (vec![0.0; g.outputs()], vec![9; g.outputs()]);
        max_pool_with_indices(&g, &x, &mut y, &mut indices).unwrap();
        for out in 0..g.outputs() {
            let places: Vec<_> = taps(&g, out).into_iter().map(|(_, at)| at).collect();
            let best = places.iter().fold(f32::NEG_INFINITY, |best, &at| {
                if x[at].is_nan() {
                    x[at]
                } else if best.is_nan() {
                    best
                } else {
                    best.max(x[at])
                }
            });
            let first = places.iter().find(|&&at| x[at] == best || (best.is_nan() && x[at].is_nan()));
            assert_eq!(indices[out], first.map_or(-1, |&at| at as i64), "{}", case.name);
            assert!(y[out] == best || (y[out].is_nan() && best.is_nan()), "{}", case.name);
        }
        for isa in Isa::available() {
            let pool = Pool::new(isa, Pooling::Max, &g);
            let mut z = vec![0.0; g.outputs()];
            pool.run(1, &x, &mut z, &mut vec![0.0; pool.scratch_len(1)], &Serial).unwrap();
            assert!(y.iter().zip(&z).all(|(y, z)| y == z || (y.is_nan() && z.is_nan())), "{}", case.name);
        }
    }
}

#[test]
fn mistakes_are_told() {
    let isa = Isa::best();
    for (part, dims, groups) in [
        ("three to five", &[4, 3][..], 1),
        ("three to five", &[4, 3, 1, 1, 1, 1], 1),
        ("do not divide", &[4, 3, 1], 3),
        ("do not divide", &[4, 3, 1], 0),
        ("no taps", &[4, 3, 0], 1),
    ] {
        let text = Filter::new(isa, dims, groups, None).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    }
    let case = CASES[12];
    let (g, filter) = (case.geometry(), case.filter(isa, None));
    assert!(Conv::new(&filter, 1, &CASES[0].geometry()).is_err());
    assert!(filter.pack(&[0.0; 3], 0..1, &mut [0.0; 4_000]).is_err());
    let conv = Conv::new(&filter, case.batch, &g).unwrap();
    let (x, y, w) = (6 * 4 * g.inputs(), 6 * 6 * g.outputs(), filter.size());
    let scratch = conv.scratch_len(2);
    for (part, x, w, y, bias, residual, scratch) in [
        ("the input has", x - 1, w, y, 18, y, scratch),
        ("packed filter has", x, w - 1, y, 18, y, scratch),
        ("the output has", x, w, y - 1, 18, y, scratch),
        ("the bias has", x, w, y, 17, y, scratch),
        ("the residual has", x, w, y, 18, y - 1, scratch),
        ("scratch memory has", x, w, y, 18, y, 1),
        ("cancelled", x, w, y, 18, y, scratch),
    ] {
        let (bias, residual) = (vec![0.0; bias], vec![0.0; residual]);
        let post = Post { bias: Some(&bias), residual: Some(&residual), ..Post::default() };
        let (x, w, mut y, mut scratch) = (vec![0.0; x], vec![0.0; w], vec![0.0; y], vec![0.0; scratch]);
        let got = conv.run(&x, &w, &post, &mut y, &mut scratch, &Cancelled);
        let text = got.unwrap_err().to_string();
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    let pool = Pool::new(isa, Pooling::Max, &g);
    assert!(pool.run(1, &[], &mut vec![0.0; y], &mut vec![0.0; pool.scratch_len(1)], &Serial).is_err());
    assert!(max_pool_with_indices(&g, &vec![0.0; x], &mut [], &mut []).is_err());
}
