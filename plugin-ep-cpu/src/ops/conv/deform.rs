//! Deformable convolution: each tap of the window is moved by an offset of its own and read between pixels, then the filters
//! are multiplied with what was read.

use crate::gemm::{Bias, Epilogue, Gemm, Lhs, Mat, MatMut, Rhs};
use crate::ops::float::agree;
use crate::ops::{Cpu, cost};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// Attributes of two spatial dimensions.
pub(super) struct Deform {
    isa: Isa,
    groups: usize,
    offset_groups: usize,
    stride: [usize; 2],
    dilation: [usize; 2],
    /// Before the image.
    pad: [usize; 2],
}

/// The convolution of one shape.
#[derive(Default, Clone, Copy)]
pub(super) struct Bound {
    batch: usize,
    channels: usize,
    /// Channels and filters of a group.
    ins: usize,
    outs: usize,
    image: [usize; 2],
    kernel: [usize; 2],
    output: [usize; 2],
}

impl Bound {
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }

    fn gemm(&self, isa: Isa) -> Gemm {
        Gemm::new(isa, self.outs, self.pixels(), self.ins * self.taps())
    }

    /// Values that are read between pixels, for a group of an image.
    fn columns(&self) -> usize {
        (self.ins * self.taps()).saturating_mul(self.pixels()).next_multiple_of(16)
    }
}

fn positive(node: &NodeView<'_>, name: &str) -> Result<usize, Reject> {
    let n = node.int(name)?;
    let count = usize::try_from(n).ok().filter(|&n| n > 0);
    count.ok_or_else(|| Reject::attribute(format!("attribute {name} = {n} is not positive")))
}

impl Op for Deform {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (i, name) in [(0, "X"), (1, "W"), (2, "offset"), (4, "mask")] {
            if let Some(rank) = node.input(i).map(|v| v.rank()).filter(|&rank| rank != 4) {
                return Err(Reject::rank(format!(
                    "input {i} ({name}) has rank {rank}: two spatial dimensions are done"
                )));
            }
        }
        let list = |name: &str, or: usize| match node.ints(name) {
            None | Some([]) => Ok([or; 2]),
            Some(&[a @ 0..=LARGEST, b @ 0..=LARGEST, ..]) if or == 0 || a > 0 && b > 0 => Ok([size(a), size(b)]),
            Some(other) => Err(Reject::attribute(format!("attribute {name} = {other:?} is not for two dimensions"))),
        };
        Ok(Deform {
            isa: Cpu::of(node).isa,
            groups: positive(node, "group")?,
            offset_groups: positive(node, "offset_group")?,
            stride: list("strides", 1)?,
            dilation: list("dilations", 1)?,
            pad: list("pads", 0)?,
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(w), Some(y)) = (node.input(1), node.output(0)) else { return Cost::UNKNOWN };
        let filters = w.dim(0).map_or(f64::NAN, |n| n.max(1) as f64);
        // Reading between pixels costs more than a product.
        cost::products(node, y.elements() * w.elements() / filters * (1.0 + 100.0 / filters))
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let (x, w, y) = (shapes.input(0), shapes.input(1), shapes.output(0));
        let (&[batch, channels, h, width], &[filters, ins, kh, kw], &[_, _, oh, ow]) = (x, w, y) else {
            return Err(Fault::data("images, filters and output have not rank 4"));
        };
        let [batch, channels, filters, ins] = [batch, channels, filters, ins].map(size);
        let two = |a: i64, b: i64| [size(a), size(b)];
        *bound = Bound {
            batch,
            channels,
            ins,
            outs: filters / self.groups,
            image: two(h, width),
            kernel: two(kh, kw),
            output: two(oh, ow),
        };
        let whole = ins.checked_mul(self.groups) == Some(channels) && filters.is_multiple_of(self.groups);
        if !whole || !channels.is_multiple_of(self.offset_groups) {
            let groups = [self.groups, self.offset_groups];
            return Err(Fault::data(format!("images of {x:?} and filters of {w:?} have not the groups {groups:?}")));
        }
        let moved = batch * self.offset_groups * bound.taps() * bound.pixels();
        agree("input 2 (offset)", shapes.input_len(2), 2 * moved)?;
        if shapes.has(4) {
            agree("input 4 (mask)", shapes.input_len(4), moved)?;
        }
        if shapes.has(3) {
            agree("input 3 (B)", shapes.input_len(3), filters)?;
        }
        agree("output 0", shapes.output_len(0), batch * filters * bound.pixels())
    }

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let product = bound.gemm(self.isa).scratch_len(false, false, width);
        bound.columns().saturating_add(product).saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Bound) -> u64 {
        2 * (bound.batch * self.groups * bound.outs * bound.pixels() * bound.ins * bound.taps()) as u64
    }
}

/// Numbers beyond this are no strides of anything.
const LARGEST: i64 = 1 << 24;

pub(super) fn deform(op: &Deform, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, w, offset) = (args.input::<f32>(0), args.input::<f32>(1), args.input::<f32>(2));
    let (bias, mask, par) = (args.input_if::<f32>(3), args.input_if::<f32>(4), args.par());
    let y = args.output::<f32>(0);
    let (columns, scratch) = args.scratch::<f32>().split_at_mut(bound.columns());
    let (n, k, outs) = (bound.pixels(), bound.ins * bound.taps(), bound.outs);
    let columns = &mut columns[..k * n];
    let read = Reading { op, bound, x, offset, mask };
    for item in 0..bound.batch * op.groups {
        let (image, group) = (item / op.groups, item % op.groups);
        let grain = (1usize << 10).div_ceil(n.max(1));
        split::rows(par, columns, n, grain, |_, first, rows| {
            for (row, to) in rows.chunks_exact_mut(n.max(1)).enumerate() {
                let (channel, tap) = ((first + row) / bound.taps(), (first + row) % bound.taps());
                read.tap(image, group * bound.ins + channel, tap, to);
            }
        })?;
        let bias = bias.map_or(Bias::None, |bias| Bias::PerRow(&bias[group * outs..][..outs]));
        let epilogue = Epilogue { bias, ..Epilogue::default() };
        let (w, y) = (&w[group * outs * k..][..outs * k], &mut y[item * outs * n..][..outs * n]);
        let (a, b) = (Lhs::Plain(Mat::new(w, outs, k)?), Rhs::Plain(Mat::new(columns, k, n)?));
        bound.gemm(op.isa).run(a, b, &epilogue, MatMut::new(y, outs, n)?, scratch, par)?;
    }
    Ok(())
}

/// Where taps are read.
struct Reading<'a> {
    op: &'a Deform,
    bound: &'a Bound,
    x: &'a [f32],
    offset: &'a [f32],
    mask: Option<&'a [f32]>,
}

impl Reading<'_> {
    /// One tap of one channel, for all pixels of the output.
    fn tap(&self, image: usize, channel: usize, tap: usize, to: &mut [f32]) {
        let (b, op) = (self.bound, self.op);
        let (n, [height, width]) = (to.len(), b.image);
        let plane = &self.x[(image * b.channels + channel) * height * width..][..height * width];
        let moved = (image * op.offset_groups + channel / (b.channels / op.offset_groups)) * b.taps() + tap;
        let (down, across) = self.offset[2 * moved * n..][..2 * n].split_at(n);
        let taps = [tap / b.kernel[1], tap % b.kernel[1]];
        // Whole positions are far below 2^24, where f32 has all integers, or offsets would be of no use.
        let at = |d: usize, out: usize| (out * op.stride[d] + taps[d] * op.dilation[d]) as f32 - op.pad[d] as f32;
        for (pixel, to) in to.iter_mut().enumerate() {
            let (row, column) = (at(0, pixel / b.output[1]) + down[pixel], at(1, pixel % b.output[1]) + across[pixel]);
            *to = between(plane, [height, width], row, column);
        }
        if let Some(mask) = self.mask {
            to.iter_mut().zip(&mask[moved * n..][..n]).for_each(|(to, mask)| *to *= mask);
        }
    }
}

/// A value between four pixels; what lies outside is 0.
fn between(plane: &[f32], [height, width]: [usize; 2], row: f32, column: f32) -> f32 {
    let inside = row > -1.0 && column > -1.0 && row < height as f32 && column < width as f32;
    if !inside {
        return 0.0; // NaN, too
    }
    let (top, left) = (row.floor(), column.floor());
    let (down, across) = (row - top, column - left);
    let pixel = |row: f32, column: f32| {
        let there = row >= 0.0 && column >= 0.0 && row < height as f32 && column < width as f32;
        if there { plane[row as usize * width + column as usize] } else { 0.0 }
    };
    let upper = pixel(top, left) * (1.0 - across) + pixel(top, left + 1.0) * across;
    let lower = pixel(top + 1.0, left) * (1.0 - across) + pixel(top + 1.0, left + 1.0) * across;
    upper * (1.0 - down) + lower * down
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    /// Batch, channels, filters, groups, offset groups; image, kernel, stride, dilation, pad.
    const CASES: &[([usize; 5], [[usize; 2]; 5])] = &[
        ([1, 1, 1, 1, 1], [[3, 3], [2, 2], [1, 1], [1, 1], [0, 0]]),
        ([2, 4, 6, 2, 1], [[7, 9], [3, 2], [2, 1], [1, 2], [1, 1]]),
        ([1, 6, 4, 1, 3], [[5, 5], [3, 3], [1, 1], [1, 1], [1, 1]]),
        ([0, 2, 2, 1, 1], [[5, 5], [3, 3], [1, 1], [1, 1], [1, 1]]),
    ];

    #[test]
    fn like_the_definition() {
        for &([n, c, m, groups, offsets], [image, kernel, stride, dilation, pad]) in CASES {
            let side = |d: usize| (image[d] + 2 * pad[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
            let (out, taps, ins) = ([side(0), side(1)], kernel[0] * kernel[1], c / groups);
            let pixels = out[0] * out[1];
            let dims = |a: usize, b: usize, hw: [usize; 2]| [a as i64, b as i64, hw[0] as i64, hw[1] as i64];
            let (x, w) = (Tensor::random(&dims(n, c, image), 1), Tensor::random(&dims(m, ins, kernel), 2));
            let random = Tensor::random(&dims(n, offsets * taps * 2, out), 3);
            let offset = Tensor::from_fn(&random.dims, |k| random.to_vec::<f32>()[k] * 3.0);
            let (mask, bias) = (Tensor::random(&dims(n, offsets * taps, out), 4), Tensor::random(&[m as i64], 5));
            let [xs, ws, os, ms, bs] = [&x, &w, &offset, &mask, &bias].map(|t| t.to_vec::<f32>());
            let pixel = |i: usize, ch: usize, row: f64, column: f64| {
                let there = row >= 0.0 && column >= 0.0 && row < image[0] as f64 && column < image[1] as f64;
                let at = ((i * c + ch) * image[0] + row.max(0.0) as usize) * image[1] + column.max(0.0) as usize;
                if there { f64::from(xs[at]) } else { 0.0 }
            };
            let want = Tensor::from_fn(&dims(n, m, out), |at| {
                let (i, f, p) = (at / (m * pixels), at / pixels % m, at % pixels);
                let mut sum = f64::from(bs[f]);
                for (ch, tap) in (0..ins * taps).map(|k| (k / taps, k % taps)) {
                    let channel = f / (m / groups) * ins + ch;
                    let moved = (i * offsets + channel / (c / offsets)) * taps + tap;
                    let base = |d: usize, o: usize, t: usize| (o * stride[d] + t * dilation[d]) as f64 - pad[d] as f64;
                    let row = base(0, p / out[1], tap / kernel[1]) + f64::from(os[2 * moved * pixels + p]);
                    let column = base(1, p % out[1], tap % kernel[1]) + f64::from(os[(2 * moved + 1) * pixels + p]);
                    let (t, l) = (row.floor(), column.floor());
                    let (v, u) = (row - t, column - l);
                    let value = pixel(i, channel, t, l) * (1.0 - v) * (1.0 - u)
                        + pixel(i, channel, t, l + 1.0) * (1.0 - v) * u
                        + pixel(i, channel, t + 1.0, l) * v * (1.0 - u)
                        + pixel(i, channel, t + 1.0, l + 1.0) * v * u;
                    sum += value * f64::from(ms[moved * pixels + p]) * f64::from(ws[(f * ins + ch) * taps + tap]);
                }
                sum as f32
            });
            on_all("DeformConv", 22, |case| {
                let two = |a: [usize; 2]| a.map(|n| n as i64);
                let case =
                    case.int("group", groups as i64).int("offset_group", offsets as i64).ints("strides", &two(stride));
                let pads = [pad[0], pad[1], pad[0], pad[1]].map(|n| n as i64);
                let case = case.ints("dilations", &two(dilation)).ints("pads", &pads);
                let case = case.input(&x).input(&w).input(&offset).input(&bias).input(&mask);
                assert_close(&case.output(DType::F32, &dims(n, m, out)).run()[0], &want, 1e-5);
            });
        }
    }

    #[test]
    fn other_ranks_are_refused() {
        let x = Tensor::random(&[1, 1, 3], 1);
        let case = Case::new("DeformConv", 22).int("group", 1).int("offset_group", 1).input(&x).input(&x).input(&x);
        let (code, text) = case.output(DType::F32, &[1, 1, 3]).rejection();
        assert_eq!((code, text.contains("input 0 (X) has rank 3")), (RejectCode::Rank, true), "{text}");
    }
}
