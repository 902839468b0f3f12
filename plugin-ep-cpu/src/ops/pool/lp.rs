//! Pooling by a norm: the p-th root of the sum of p-th powers of magnitudes. f32 is raised first, then summed by the windows
//! that averages have.

use super::{Bound, Windows, spatial, unbound};
use crate::conv::Pooling;
use crate::ops::window::image;
use crate::ops::{Cpu, GRAIN, cost, loops};
use crate::simd::{self, Isa, Operand, ops};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// The norm of each window.
pub(super) struct LpPool {
    windows: Windows,
    p: f32,
}

/// The norm of each channel of each image.
pub(super) struct GlobalLp {
    isa: Isa,
    p: f32,
}

fn power(node: &NodeView<'_>) -> Result<f32, Reject> {
    match node.int("p")? {
        p @ 1..=1024 => Ok(p as f32), // exact
        p => Err(Reject::attribute(format!("attribute p = {p} is none of 1 to 1024"))),
    }
}

impl Op for LpPool {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(LpPool { windows: Windows::parse(node)?, p: power(node)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.windows.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        self.windows.bind(shapes, bound, |_| Pooling::Sum)
    }

    /// The raised images, then what pooling wants.
    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let pool = bound.pool.map_or(0, |pool| pool.scratch_len(width));
        raised(bound).saturating_add(pool).saturating_mul(size_of::<f32>())
    }
}

/// Values of all images, up to a vector's boundary.
fn raised(bound: &Bound) -> usize {
    bound.planes.saturating_mul(bound.geometry.map_or(0, |g| g.inputs())).next_multiple_of(16)
}

pub(super) fn lp(op: &LpPool, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let pool = bound.pool.as_ref().ok_or_else(unbound)?;
    let (isa, par) = (op.windows.isa, args.par());
    let (x, y) = (args.input::<f32>(0), args.output::<f32>(0));
    let (all, scratch) = args.scratch::<f32>().split_at_mut(raised(bound));
    let all = &mut all[..x.len()];
    split::rows(par, all, 1, GRAIN, |_, at, to| raise(isa, op.p, &x[at..at + to.len()], to))?;
    pool.run(bound.planes, all, y, scratch, par)?;
    Ok(split::rows(par, y, 1, GRAIN, |_, _, y| root(isa, op.p, y))?)
}

/// `|x|^p`
fn raise(isa: Isa, p: f32, x: &[f32], y: &mut [f32]) {
    match p {
        1.0 => simd::map_unary(isa, &ops::Abs, x, y),
        2.0 => simd::map_binary(isa, &ops::Mul, Operand::Slice(x), Operand::Slice(x), y),
        _ => loops::map(isa, |x: f32| x.abs().powf(p), x, y),
    }
}

fn root(isa: Isa, p: f32, y: &mut [f32]) {
    match p {
        1.0 => {}
        2.0 => simd::map_unary_in_place(isa, &ops::Sqrt, y),
        _ => y.iter_mut().for_each(|y| *y = y.powf(1.0 / p)),
    }
}

/// Window by window, for f64.
pub(super) fn lp_plain(op: &LpPool, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (g, p) = (bound.geometry.as_ref().ok_or_else(unbound)?, f64::from(op.p));
    let (x, y) = (args.input::<f64>(0), args.output::<f64>(0));
    let [_, rows, columns] = g.output;
    for (at, y) in y.iter_mut().enumerate() {
        let (plane, pixel) = (at / g.outputs(), at % g.outputs());
        let out = [pixel / columns / rows, pixel / columns % rows, pixel % columns];
        let mut sum = 0.0;
        for tap in 0..g.taps() {
            let taps = [tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
            let [Some(z), Some(row), Some(column)] = [0, 1, 2].map(|d| g.at(d, out[d], taps[d])) else { continue };
            sum += x[plane * g.inputs() + (z * g.input[1] + row) * g.input[2] + column].abs().powf(p);
        }
        *y = sum.powf(1.0 / p);
    }
    Ok(())
}

impl Op for GlobalLp {
    /// Values of a plane.
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        spatial(&node.needs(0)?)?;
        Ok(GlobalLp { isa: Cpu::of(node).isa, p: power(node)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut usize) -> Result<(), Fault> {
        let (batch, channels, spatial) = image(shapes.input(0))?;
        *bound = spatial.iter().map(|&d| size(d)).product();
        match shapes.output_len(0) == batch * channels {
            true => Ok(()),
            false => Err(Fault::data(format!("{:?} does not become {:?}", shapes.input(0), shapes.output(0)))),
        }
    }
}

/// Values that are raised at a time.
const PIECE: usize = 256;

pub(super) fn global_lp(op: &GlobalLp, plane: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    let plane = *plane;
    let (x, y) = (args.input::<f32>(0), args.output::<f32>(0));
    Ok(split::rows(args.par(), y, 1, GRAIN.div_ceil(plane.max(1)), |_, first, y| {
        for (k, y) in y.iter_mut().enumerate() {
            let mut piece = [0.0; PIECE];
            *y = 0.0;
            for x in x[(first + k) * plane..][..plane].chunks(PIECE) {
                raise(op.isa, op.p, x, &mut piece[..x.len()]);
                *y += simd::sum(op.isa, &piece[..x.len()]);
            }
        }
        root(op.isa, op.p, y);
    })?)
}
