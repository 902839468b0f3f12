//! Pooling of codes: means of windows and of whole images, in the scale of the result, and greatest codes of windows of
//! images whose channels lie last.

use super::Quantity;
use crate::conv::{Geometry, Pool, Pooling};
use crate::ops::float::agree;
use crate::ops::quant::{Code, code};
use crate::ops::window::{self, Sliding};
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::{Args, Cost, Fault, Ints, NodeView, Op, Reject, Shapes, count, size, split};

/// Batch, channels and the rest of an image.
fn image(dims: &[i64], last: bool) -> Result<(usize, usize, Ints), Fault> {
    match dims {
        [batch, spatial @ .., channels] if last => Ok((size(*batch), size(*channels), spatial.into())),
        [batch, channels, spatial @ ..] if !last => Ok((size(*batch), size(*channels), spatial.into())),
        _ => Err(Fault::data(format!("{dims:?} is no batch of images"))),
    }
}

fn spatial(node: &NodeView<'_>) -> Result<usize, Reject> {
    match node.needs(0)?.rank() {
        rank @ 3.. => Ok(rank - 2),
        rank => Err(Reject::rank(format!("input 0 has rank {rank}: there are no spatial dimensions"))),
    }
}

fn sliding(node: &NodeView<'_>) -> Result<Sliding, Reject> {
    let window = Sliding::parse(node, spatial(node)?)?;
    match window.kernel {
        Some(_) => Ok(window),
        None => Err(Reject::attribute("attribute kernel_shape is missing")),
    }
}

const X: Quantity = Quantity::at(1);
const Y: Quantity = Quantity::at(3);

/// Means of windows.
pub(in crate::ops::contrib) struct Average {
    isa: Isa,
    window: Sliding,
    last: bool,
    padding: bool,
}

#[derive(Debug, Default)]
pub(in crate::ops::contrib) struct Windows {
    geometry: Option<Geometry>,
    pool: Option<Pool>,
    batch: usize,
    channels: usize,
}

impl Windows {
    fn bind(&mut self, window: &Sliding, shapes: &Shapes<'_>, last: bool) -> Result<[usize; 3], Fault> {
        let (batch, channels, input) = image(shapes.input(0), last)?;
        let (y_batch, y_channels, output) = image(shapes.output(0), last)?;
        if (batch, channels) != (y_batch, y_channels) {
            return Err(Fault::data(format!("{:?} does not become {:?}", shapes.input(0), shapes.output(0))));
        }
        let (geometry, behind) = window::geometry(window, &input, &output, window.kernel.as_deref().unwrap_or(&[]))?;
        *self = Windows { geometry: Some(geometry), pool: None, batch, channels };
        Ok(behind)
    }

    /// Values of both images as floats, which begin on vectors.
    fn room(&self) -> [usize; 2] {
        let planes = self.batch.saturating_mul(self.channels);
        let (inputs, outputs) = self.geometry.map_or((0, 0), |g| (g.inputs(), g.outputs()));
        [inputs, outputs].map(|pixels| planes.saturating_mul(pixels).div_ceil(16).saturating_mul(16))
    }
}

impl Op for Average {
    type Bound = Windows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        X.check(node, 0)?;
        Y.check(node, 0)?;
        let (last, padding) = (node.int("channels_last")? != 0, node.int("count_include_pad")? != 0);
        Ok(Average { isa: Cpu::of(node).isa, window: sliding(node)?, last, padding })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let taps: usize = self.window.kernel.iter().flatten().product();
        cost::per_element(node, 0.2 + taps as f64 * 0.05)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Windows) -> Result<(), Fault> {
        X.bind(shapes)?;
        Y.bind(shapes)?;
        let pad_end = bound.bind(&self.window, shapes, self.last)?;
        let pooling = if self.padding { Pooling::AverageWithPadding { pad_end } } else { Pooling::Average };
        bound.pool = bound.geometry.map(|geometry| Pool::new(self.isa, pooling, &geometry));
        Ok(())
    }

    fn scratch(&self, bound: &Windows, width: usize) -> usize {
        let pool = bound.pool.map_or(0, |pool| pool.scratch_len(width));
        bound.room().iter().fold(pool, |sum, &room| sum.saturating_add(room)).saturating_mul(size_of::<f32>())
    }
}

pub(in crate::ops::contrib) fn average<T: Code>(
    op: &Average,
    bound: &Windows,
    args: &mut Args<'_>,
) -> Result<(), Fault> {
    let unbound = || Fault::data("it was not bound");
    let (pool, g) = (bound.pool.ok_or_else(unbound)?, bound.geometry.ok_or_else(unbound)?);
    let ((x_scale, x_zero), (y_scale, y_zero)) = (X.read::<T>(args), Y.read::<T>(args));
    let (x, par) = (args.input::<T>(0), args.par());
    let &Windows { batch, channels, .. } = bound;
    let [inputs, outputs] = bound.room();
    let (wide, rest) = args.scratch::<f32>().split_at_mut(inputs);
    let (means, scratch) = rest.split_at_mut(outputs);
    let (pixels, planes) = (g.inputs(), batch * channels);
    split::rows(par, &mut wide[..planes * pixels], pixels, GRAIN.div_ceil(pixels.max(1)), |_, first, pieces| {
        for (plane, to) in pieces.chunks_exact_mut(pixels.max(1)).enumerate() {
            let (item, channel) = ((first + plane) / channels, (first + plane) % channels);
            let (at, step) =
                if op.last { (item * pixels * channels + channel, channels) } else { ((first + plane) * pixels, 1) };
            for (to, x) in to.iter_mut().zip(x[at..].iter().step_by(step)) {
                *to = (x.wide() - x_zero) as f32 * x_scale; // 9 bits
            }
        }
    })?;
    pool.run(planes, wide, means, scratch, par)?;
    let means = &*means;
    let pixels = g.outputs();
    let row = if op.last { channels } else { pixels };
    Ok(split::rows(par, args.output::<T>(0), row, GRAIN.div_ceil(row.max(1)), |_, first, rows| {
        for (k, to) in rows.chunks_exact_mut(row.max(1)).enumerate() {
            let at = first + k;
            let (from, step) =
                if op.last { (at / pixels * channels * pixels + at % pixels, pixels) } else { (at * pixels, 1) };
            for (to, &mean) in to.iter_mut().zip(means[from..].iter().step_by(step)) {
                *to = code(mean / y_scale, y_zero);
            }
        }
    })?)
}

/// Means of whole images.
pub(in crate::ops::contrib) struct Global {
    isa: Isa,
    last: bool,
}

impl Op for Global {
    /// Pixels, channels.
    type Bound = (usize, usize);

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        X.check(node, 0)?;
        Y.check(node, 0)?;
        spatial(node)?;
        Ok(Global { isa: Cpu::of(node).isa, last: node.int("channels_last")? != 0 })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut (usize, usize)) -> Result<(), Fault> {
        X.bind(shapes)?;
        Y.bind(shapes)?;
        let (batch, channels, spatial) = image(shapes.input(0), self.last)?;
        *bound = (count(&spatial), channels);
        if bound.0 == 0 && batch * channels > 0 {
            return Err(Fault::data("the images have no pixels to pool"));
        }
        agree("output 0", shapes.output_len(0), batch * channels)
    }

    /// Sums of the channels of an image for each worker, where they lie last.
    fn scratch(&self, bound: &(usize, usize), width: usize) -> usize {
        if self.last { bound.1.saturating_mul(width).saturating_mul(size_of::<i32>()) } else { 0 }
    }
}

pub(in crate::ops::contrib) fn global<T: Code>(
    op: &Global,
    &(pixels, channels): &(usize, usize),
    args: &mut Args<'_>,
) -> Result<(), Fault> {
    let ((x_scale, x_zero), (y_scale, y_zero)) = (X.read::<T>(args), Y.read::<T>(args));
    let (x, par) = (args.input::<T>(0), args.par());
    let factor = x_scale / (y_scale * pixels as f32); // as precise as the scales
    // Zero points are taken out of the sums; what does not fit an i32 has over eight million pixels.
    let finish = |sum: i32| code::<T>(sum as f32 * factor, y_zero); // rounds to nearest
    let own = i32::try_from(pixels).unwrap_or(i32::MAX).wrapping_mul(x_zero);
    if !op.last {
        let grain = GRAIN.div_ceil(pixels.max(1));
        return Ok(split::rows(par, args.output::<T>(0), 1, grain, |_, first, y| {
            for (k, y) in y.iter_mut().enumerate() {
                let sum = op.isa.dispatch(Sum(&x[(first + k) * pixels..][..pixels]));
                *y = finish(sum.wrapping_sub(own));
            }
        })?);
    }
    let workers = crate::ops::workers::Workers::new(args.scratch::<i32>(), channels);
    Ok(split::rows(par, args.output::<T>(0), channels, 1, |worker, first, rows| {
        workers.with(worker, |sums| {
            for (k, y) in rows.chunks_exact_mut(channels.max(1)).enumerate() {
                sums.fill(0);
                for row in x[(first + k) * pixels * channels..][..pixels * channels].chunks_exact(channels.max(1)) {
                    op.isa.dispatch(AddTo { sums, row });
                }
                y.iter_mut().zip(&*sums).for_each(|(y, &sum)| *y = finish(sum.wrapping_sub(own)));
            }
        });
    })?)
}

struct Sum<'a, T>(&'a [T]);

impl<T: Code> Kernel for Sum<'_, T> {
    type Out = i32;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> i32 {
        self.0.iter().fold(0i32, |sum, x| sum.wrapping_add(x.wide()))
    }
}

struct AddTo<'a, T> {
    sums: &'a mut [i32],
    row: &'a [T],
}

impl<T: Code> Kernel for AddTo<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.sums.iter_mut().zip(self.row).for_each(|(sum, x)| *sum = sum.wrapping_add(x.wide()));
    }
}

/// Greatest codes of windows; channels lie last.
pub(in crate::ops::contrib) struct Greatest {
    isa: Isa,
    window: Sliding,
}

impl Op for Greatest {
    type Bound = Windows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(Greatest { isa: Cpu::of(node).isa, window: sliding(node)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let taps: usize = self.window.kernel.iter().flatten().product();
        cost::per_element(node, taps as f64 * 0.03)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Windows) -> Result<(), Fault> {
        bound.bind(&self.window, shapes, true).map(drop)
    }
}

pub(in crate::ops::contrib) fn greatest<T: Code>(
    op: &Greatest,
    bound: &Windows,
    args: &mut Args<'_>,
) -> Result<(), Fault> {
    let g = bound.geometry.ok_or_else(|| Fault::data("it was not bound"))?;
    let (channels, x, par) = (bound.channels, args.input::<T>(0), args.par());
    let [_, rows, columns] = g.output;
    let grain = GRAIN.div_ceil((channels * g.taps()).max(1));
    Ok(split::rows(par, args.output::<T>(0), channels, grain, |_, first, pixels| {
        for (k, y) in pixels.chunks_exact_mut(channels.max(1)).enumerate() {
            let (item, pixel) = ((first + k) / g.outputs(), (first + k) % g.outputs());
            let out = [pixel / columns / rows, pixel / columns % rows, pixel % columns];
            y.fill(T::of(T::LOW));
            for tap in 0..g.taps() {
                let taps = [tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
                let [Some(z), Some(row), Some(column)] = [0, 1, 2].map(|d| g.at(d, out[d], taps[d])) else { continue };
                let place = item * g.inputs() + (z * g.input[1] + row) * g.input[2] + column;
                op.isa.dispatch(Above { most: y, x: &x[place * channels..][..channels] });
            }
        }
    })?)
}

struct Above<'a, T> {
    most: &'a mut [T],
    x: &'a [T],
}

impl<T: Code> Kernel for Above<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (most, &x) in self.most.iter_mut().zip(self.x) {
            *most = T::of(most.wide().max(x.wide()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::on_all;
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::Tensor;

    #[test]
    fn greatest_and_means_of_windows() {
        // One image of 3 by 4 pixels with channels last; windows of 2 by 2 with a border of nothing.
        for channels in [1usize, 3, 70] {
            let dims = [1, 3, 4, channels as i64];
            let x = Tensor::from_fn(&dims, |k| (k * 97 % 241) as u8);
            let values = x.to_vec::<u8>();
            let under = |pixel: usize, channel: usize| -> Vec<u8> {
                let (row, column) = (pixel / 5, pixel % 5);
                let taps = (0..4).map(|tap| ((row + tap / 2).wrapping_sub(1), (column + tap % 2).wrapping_sub(1)));
                let inside = taps.filter(|&(r, c)| r < 3 && c < 4);
                inside.map(|(r, c)| values[(r * 4 + c) * channels + channel]).collect()
            };
            let out = [1, 4, 5, channels as i64];
            let window = |case: ortolan_ep_kit::testing::OpTest| {
                case.domain("com.microsoft").ints("kernel_shape", &[2, 2]).ints("pads", &[1, 1, 1, 1]).input(&x)
            };
            on_all("NhwcMaxPool", 1, |case| {
                let got = window(case).output(DType::U8, &out).run()[0].to_vec::<u8>();
                for (at, got) in got.into_iter().enumerate() {
                    assert_eq!(Some(&got), under(at / channels, at % channels).iter().max());
                }
            });
            on_all("QLinearAveragePool", 1, |case| {
                let one = |x: f32| Tensor::new(&[], &[x]);
                let zero = |x: u8| Tensor::new(&[], &[x]);
                let case = window(case).int("channels_last", 1).int("count_include_pad", 0);
                let case = case.input(&one(0.5)).input(&zero(3)).input(&one(0.75)).input(&zero(9));
                let got = case.output(DType::U8, &out).run()[0].to_vec::<u8>();
                for (at, got) in got.into_iter().enumerate() {
                    let under = under(at / channels, at % channels);
                    let mean = under.iter().map(|&x| f64::from(x) - 3.0).sum::<f64>() / under.len() as f64;
                    let want = mean * 0.5 / 0.75 + 9.0;
                    assert!((f64::from(got) - want).abs() <= 0.5001, "{at}: {got} for {want}");
                }
            });
        }
    }
}
