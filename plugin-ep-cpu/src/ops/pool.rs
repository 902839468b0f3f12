//! Pooling: the greatest or the mean value of each window, or of each whole image.
//!
//! `lp` pools by a norm, `unpool` puts greatest values back where they were.

mod lp;
mod unpool;

use super::lane::Lane;
use super::narrow::{Bf16, F16};
use super::window::{self, Sliding, image};
use super::{Cpu, cost};
use crate::conv::{Geometry, Pool, Pooling, max_pool_with_indices};
use crate::simd::{self, Isa};
use lp::{GlobalLp, LpPool, global_lp, lp, lp_plain};
use ortolan_ep_kit::{
    Args, Cost, Element, Fault, Kernel, NodeView, Op, Reject, Shapes, ValueView, any, size, split, typed, widened,
};
use unpool::unpool;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("AveragePool", (7, 22), "averagepool", any!(average: f32)),
    Kernel::new("AveragePool", (7, 22), "averagepool", widened!(AveragePool, average => F16 Bf16)).fallback(),
    Kernel::new("GlobalAveragePool", (1, 22), "globalaveragepool", typed!(global_average: f32 f64)),
    Kernel::new("GlobalAveragePool", (1, 22), "globalaveragepool", widened!(Global, global_average::<f32> => F16 Bf16))
        .fallback(),
    Kernel::new("GlobalLpPool", (2, 22), "globallppool", any!(global_lp: f32)),
    Kernel::new("GlobalLpPool", (2, 22), "globallppool", widened!(GlobalLp, global_lp => F16 Bf16)).fallback(),
    Kernel::new("GlobalMaxPool", (1, 22), "globalmaxpool", typed!(global_max: f32 f64)),
    Kernel::new("GlobalMaxPool", (1, 22), "globalmaxpool", widened!(Global, global_max::<f32> => F16 Bf16)).fallback(),
    Kernel::new("LpPool", (18, 22), "lppool", any!(lp: f32)),
    Kernel::new("LpPool", (18, 22), "lppool", widened!(LpPool, lp => F16 Bf16)).fallback(),
    Kernel::new("LpPool", (18, 22), "lppool", any!(lp_plain: f64)).fallback(),
    Kernel::new("MaxPool", (8, 22), "maxpool", any!(max: f32)),
    Kernel::new("MaxPool", (8, 22), "maxpool", widened!(MaxPool, max => F16 Bf16)).fallback(),
    Kernel::new("MaxPool", (8, 22), "maxpool", typed!(max_plain: f64 i8 u8)).fallback(),
    Kernel::new("MaxUnpool", (9, 22), "maxunpool", any!(unpool: f32 f64 F16 Bf16)).late(),
];

fn spatial(x: &ValueView<'_>) -> Result<usize, Reject> {
    match x.rank() {
        rank @ 3.. => Ok(rank - 2),
        rank => Err(Reject::rank(format!("input 0 has rank {rank}: there are no spatial dimensions"))),
    }
}

/// A window and how its padding counts.
struct Windows {
    isa: Isa,
    window: Sliding,
    include_pad: bool,
    columns_first: bool,
}

/// The pooling of one shape.
#[derive(Default)]
struct Bound {
    geometry: Option<Geometry>,
    pool: Option<Pool>,
    planes: usize,
}

impl Windows {
    /// `pooling` gets the padding behind the images.
    fn bind(
        &self,
        shapes: &Shapes<'_>,
        bound: &mut Bound,
        pooling: impl Fn([usize; 3]) -> Pooling,
    ) -> Result<(), Fault> {
        let (batch, channels, input) = image(shapes.input(0))?;
        let (y_batch, y_channels, output) = image(shapes.output(0))?;
        if (batch, channels) != (y_batch, y_channels) {
            return Err(Fault::data(format!("{:?} does not become {:?}", shapes.input(0), shapes.output(0))));
        }
        let kernel = self.window.kernel.as_deref().unwrap_or(&[]);
        let (geometry, pad_end) = window::geometry(&self.window, input, output, kernel)?;
        bound.planes = batch * channels;
        bound.geometry = Some(geometry);
        bound.pool = Some(Pool::new(self.isa, pooling(pad_end), &geometry));
        Ok(())
    }

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let window = Sliding::parse(node, spatial(&node.needs(0)?)?)?;
        if window.kernel.is_none() {
            return Err(Reject::attribute("attribute kernel_shape is missing"));
        }
        let flag = |name| node.int_if(name).is_some_and(|n| n != 0); // each operator has one of them
        Ok(Windows {
            isa: Cpu::of(node).isa,
            window,
            include_pad: flag("count_include_pad"),
            columns_first: flag("storage_order"),
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let taps: usize = self.window.kernel.iter().flatten().product();
        cost::per_element(node, taps as f64 * 0.05)
    }
}

macro_rules! windowed {
    ($($name:ident, $pooling:expr;)*) => { $(
        struct $name(Windows);
        impl Op for $name {
            type Bound = Bound;
            fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
                Ok($name(Windows::parse(node)?))
            }
            fn cost(&self, node: &NodeView<'_>) -> Cost {
                self.0.cost(node)
            }
            fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
                let pooling: fn(&Windows, [usize; 3]) -> Pooling = $pooling;
                self.0.bind(shapes, bound, |pad_end| pooling(&self.0, pad_end))
            }
            fn scratch(&self, bound: &Bound, width: usize) -> usize {
                bound.pool.map_or(0, |pool| pool.scratch_len(width)).saturating_mul(size_of::<f32>())
            }
        }
    )* };
}
windowed! {
    AveragePool, |windows, pad_end| match windows.include_pad {
        true => Pooling::AverageWithPadding { pad_end },
        false => Pooling::Average,
    };
    MaxPool, |_, _| Pooling::Max;
}

fn unbound() -> Fault {
    Fault::data("it was not bound")
}

fn average(_: &AveragePool, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    run(bound, args)
}

fn run(bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let pool = bound.pool.as_ref().ok_or_else(unbound)?;
    let (x, y) = (args.input::<f32>(0), args.output::<f32>(0));
    let scratch = args.scratch::<f32>();
    Ok(pool.run(bound.planes, x, y, scratch, args.par())?)
}

fn max(op: &MaxPool, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    if !args.wants(1) {
        return run(bound, args);
    }
    let geometry = bound.geometry.as_ref().ok_or_else(unbound)?;
    let (x, y, places) = (args.input::<f32>(0), args.output::<f32>(0), args.output::<i64>(1));
    let (inputs, outputs) = (geometry.inputs(), geometry.outputs());
    for plane in 0..bound.planes {
        let at = plane * outputs..(plane + 1) * outputs;
        max_pool_with_indices(geometry, &x[plane * inputs..], &mut y[at.clone()], &mut places[at.clone()])?;
        places[at].iter_mut().for_each(|place| *place = of_tensor(geometry, plane, *place, op.0.columns_first));
    }
    Ok(())
}

/// The index of a place of a plane in the whole tensor.
fn of_tensor(geometry: &Geometry, plane: usize, place: i64, columns_first: bool) -> i64 {
    let (place, [depth, rows, columns]) = (size(place), geometry.input);
    let place = if columns_first {
        let (z, row, column) = (place / columns / rows, place / columns % rows, place % columns);
        z + depth * (row + rows * column)
    } else {
        place
    };
    i64::try_from(plane * geometry.inputs() + place).unwrap_or(i64::MAX)
}

fn max_plain<T: Lane + PartialOrd>(op: &MaxPool, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let g = bound.geometry.as_ref().ok_or_else(unbound)?;
    let (x, y) = (args.input::<T>(0), args.output::<T>(0));
    let mut places = args.wants(1).then(|| args.output::<i64>(1));
    let [_, rows, columns] = g.output;
    for (at, y) in y.iter_mut().enumerate() {
        let (plane, pixel) = (at / g.outputs(), at % g.outputs());
        let out = [pixel / columns / rows, pixel / columns % rows, pixel % columns];
        let mut best: Option<(T, usize)> = None;
        for tap in 0..g.taps() {
            let taps = [tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
            let [Some(z), Some(row), Some(column)] = [0, 1, 2].map(|d| g.at(d, out[d], taps[d])) else { continue };
            let place = (z * g.input[1] + row) * g.input[2] + column;
            let value = x[plane * g.inputs() + place];
            if best.is_none_or(|(most, _)| value > most) {
                best = Some((value, place));
            }
        }
        let (value, place) =
            best.ok_or_else(|| Fault::data("a window lies wholly in the padding: it has no maximum"))?;
        *y = value;
        if let Some(places) = &mut places {
            places[at] = of_tensor(g, plane, i64::try_from(place).unwrap_or(-1), op.0.columns_first);
        }
    }
    Ok(())
}

/// One value for each channel of each image.
struct Global {
    isa: Isa,
}

impl Op for Global {
    /// Values of a plane.
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        spatial(&node.needs(0)?)?;
        Ok(Global { isa: Cpu::of(node).isa })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut usize) -> Result<(), Fault> {
        let (batch, channels, spatial) = image(shapes.input(0))?;
        *bound = spatial.iter().map(|&d| size(d)).product();
        if shapes.output_len(0) != batch * channels {
            return Err(Fault::data(format!("{:?} does not become {:?}", shapes.input(0), shapes.output(0))));
        }
        if *bound == 0 && batch * channels > 0 {
            return Err(Fault::data("the images have no pixels to pool"));
        }
        Ok(())
    }
}

/// What one plane becomes.
trait Plane: Element + Send + Sync {
    fn mean(isa: Isa, x: &[Self]) -> Self;
    fn most(isa: Isa, x: &[Self]) -> Self;
}

impl Plane for f32 {
    fn mean(isa: Isa, x: &[f32]) -> f32 {
        simd::sum(isa, x) / x.len() as f32
    }
    fn most(isa: Isa, x: &[f32]) -> f32 {
        simd::max(isa, x)
    }
}

impl Plane for f64 {
    fn mean(_: Isa, x: &[f64]) -> f64 {
        x.iter().sum::<f64>() / x.len() as f64
    }
    fn most(_: Isa, x: &[f64]) -> f64 {
        x.iter().fold(f64::NEG_INFINITY, |most, &x| if x > most || x.is_nan() { x } else { most })
    }
}

fn global_average<T: Plane>(op: &Global, plane: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    planes(*plane, args, |x: &[T]| T::mean(op.isa, x))
}

fn global_max<T: Plane>(op: &Global, plane: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    planes(*plane, args, |x: &[T]| T::most(op.isa, x))
}

fn planes<T: Plane>(plane: usize, args: &mut Args<'_>, f: impl Fn(&[T]) -> T + Sync) -> Result<(), Fault> {
    let (x, y) = (args.input::<T>(0), args.output::<T>(0));
    Ok(split::rows(args.par(), y, 1, super::GRAIN.div_ceil(plane.max(1)), |_, first, y| {
        for (k, y) in y.iter_mut().enumerate() {
            *y = f(&x[(first + k) * plane..][..plane]);
        }
    })?)
}

#[cfg(test)]
mod tests;
