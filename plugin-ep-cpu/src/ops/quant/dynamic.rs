//! `DynamicQuantizeLinear`, and the numbers it finds, which other kernels use on floats of their own.

use crate::igemm::nearest;
use crate::ops::float::agree;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa, Kernel, Simd};
use ortolan_ep_kit::parallel::{Parallel, Stopped};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, split};

/// A scale and a zero point for u8.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    pub scale: f32,
    pub zero: u8,
}

impl Scale {
    /// That of numbers between two limits; 0 is always among them.
    pub fn of(low: f32, high: f32) -> Scale {
        let (low, high) = (low.min(0.0), high.max(0.0));
        // Zeros alone have any scale.
        let scale = if high > low { (high - low) / 255.0 } else { 1.0 };
        let zero = (-low / scale).round_ties_even().clamp(0.0, 255.0);
        Scale { scale, zero: zero as u8 } // between 0 and 255; NaN becomes 0
    }

    /// `y = round(x / scale) + zero`, held at the limits.
    pub fn quantize(self, isa: Isa, x: &[f32], y: &mut [u8]) {
        isa.dispatch(Quantize { scale: self, x, y });
    }
}

struct Quantize<'a> {
    scale: Scale,
    x: &'a [f32],
    y: &'a mut [u8],
}

impl Kernel for Quantize<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Scale { scale, zero } = self.scale;
        let zero = i32::from(zero);
        let (low, high) = (-zero as f32, (255 - zero) as f32); // small integers
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            let x = x / scale;
            let x = if x > low { x } else { low };
            let x = if x < high { x } else { high };
            *y = (nearest(x) + zero) as u8; // within the limits
        }
    }
}

/// The operator.
pub(super) struct Dynamic {
    isa: Isa,
}

impl Op for Dynamic {
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        Ok(Dynamic { isa: Cpu::of(node).isa })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.15)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut usize) -> Result<(), Fault> {
        *bound = shapes.input_len(0);
        for (j, need) in [*bound, 1, 1].into_iter().enumerate() {
            if shapes.output_len(j) > 0 {
                agree("an output", shapes.output_len(j), need)?;
            }
        }
        Ok(())
    }

    /// Both limits of each block.
    fn scratch(&self, bound: &usize, _: usize) -> usize {
        bound.div_ceil(BLOCK) * 2 * size_of::<f32>()
    }
}

/// Elements whose limits are found together.
pub(crate) const BLOCK: usize = GRAIN;

pub(super) fn dynamic_quantize(op: &Dynamic, len: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, par) = (args.input::<f32>(0), args.par());
    let limits = &mut args.scratch::<f32>()[..len.div_ceil(BLOCK) * 2];
    let found = scale_of(op.isa, x, limits, par)?;
    if args.wants(0) {
        let y = args.output::<u8>(0);
        split::rows(par, y, 1, GRAIN, |_, at, y| found.quantize(op.isa, &x[at..at + y.len()], y))?;
    }
    if args.wants(1) {
        args.output::<f32>(1).fill(found.scale);
    }
    if args.wants(2) {
        args.output::<u8>(2).fill(found.zero);
    }
    Ok(())
}

/// The scale of all of `x`; `limits` holds two values for each block.
pub(crate) fn scale_of(isa: Isa, x: &[f32], limits: &mut [f32], par: &dyn Parallel) -> Result<Scale, Stopped> {
    split::rows(par, limits, 2, 1, |_, first, piece| {
        for (k, to) in piece.chunks_exact_mut(2).enumerate() {
            let block = &x[(first + k) * BLOCK..];
            let block = &block[..block.len().min(BLOCK)];
            to.copy_from_slice(&[simd::min(isa, block), simd::max(isa, block)]);
        }
    })?;
    let of = |which: usize| limits.iter().skip(which).step_by(2).copied();
    Ok(Scale::of(of(0).fold(0.0, f32::min), of(1).fold(0.0, f32::max)))
}
