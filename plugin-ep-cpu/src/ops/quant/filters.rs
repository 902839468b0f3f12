//! Filters of codes on images of codes, for all operators that have them.
//!
//! Where the zero of the filters is the middle of their type, `iconv` runs it. Else the pixels under each tap are copied
//! together and multiplied by `igemm`, which takes zero points of both sides out. Padding counts as nothing.

use super::BYTES;
use crate::conv::Geometry;
use crate::iconv::{Conv, Filter, Finish, Form, Target, middle};
use crate::igemm::{self, Bytes, Factor, IGemm, Left, PackedB, Right, Zero};
use crate::ops::float::agree;
use crate::ops::window::{self, Sizes, Sliding, image};
use crate::ops::{Cpu, cost};
use crate::simd::Isa;
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{
    Cost, DType, Fault, NodeView, Pack, Reject, Shapes, ValueView, Weight, WeightSource, size, split,
};

/// What is known before shapes are.
pub(super) struct Filters {
    isa: Isa,
    /// Input of the filters.
    w: usize,
    pub groups: usize,
    window: Sliding,
    /// Whether image and filters have signs.
    signed: [bool; 2],
    /// Whether the filters' zero is known to be the middle of their type.
    middle: bool,
    packed: Option<Filter>,
}

/// The convolution of one shape.
#[derive(Default)]
pub(crate) struct Bound {
    geometry: Option<Geometry>,
    batch: usize,
    /// Channels and filters of a group.
    ins: usize,
    pub(super) outs: usize,
    conv: Conv,
    /// A filter that `run` has to pack.
    plain: Option<Filter>,
}

/// Whether a value's elements are codes of 8 bits, and if so, whether they have signs.
pub(super) fn sign(value: &ValueView<'_>) -> Option<bool> {
    (BYTES & value.dtype().mask() != 0).then_some(value.dtype() as u32 == DType::I8 as u32)
}

/// Whether the zero point of filters, which may be absent, is known to be the middle of their type.
pub(super) fn is_middle(zero: Option<&ValueView<'_>>, signed: bool) -> bool {
    match zero {
        None => signed,
        Some(zero) => zero.fixed_bytes().is_some_and(|all| all.iter().all(|&z| i32::from(z) == middle(signed))),
    }
}

impl Filters {
    /// Reads a node whose filters are input `w`, and their zero point input `zero`.
    pub fn parse(node: &NodeView<'_>, w: usize, zero: usize) -> Result<Self, Reject> {
        let sign_of = |i: usize| {
            let v = node.needs(i)?;
            sign(&v).ok_or_else(|| Reject::dtype(format!("input {i} is {}, not i8 or u8", v.dtype())))
        };
        let signed = [sign_of(0)?, sign_of(w)?];
        Self::of(node, w, signed, is_middle(node.input(zero).as_ref(), signed[1]))
    }

    /// The same when signs and zero are known.
    pub fn of(node: &NodeView<'_>, w: usize, signed: [bool; 2], middle: bool) -> Result<Self, Reject> {
        let (window, groups) = Sliding::of_filters(node, w)?;
        Ok(Filters { isa: Cpu::of(node).isa, w, groups, window, signed, middle, packed: None })
    }

    pub fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(w), Some(y)) = (node.input(self.w), node.output(0)) else { return Cost::UNKNOWN };
        let filters = w.dim(0).map_or(f64::NAN, |n| n.max(1) as f64);
        cost::products(node, y.elements() * w.elements() / filters / 3.0)
    }

    pub fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let (batch, channels, input) = image(shapes.input(0))?;
        let (y_batch, y_channels, output) = image(shapes.output(0))?;
        let w = shapes.input(self.w);
        let (outs, ins, kernel) = image(w)?;
        let fits = (y_batch, y_channels) == (batch, outs) && ins.checked_mul(self.groups) == Some(channels);
        if !fits || !outs.is_multiple_of(self.groups) {
            let (x, y) = (shapes.input(0), shapes.output(0));
            return Err(Fault::data(format!(
                "filters of {w:?} in {} groups do not lead from {x:?} to {y:?}",
                self.groups
            )));
        }
        let kernel: Sizes = kernel.iter().map(|&d| size(d)).collect();
        let (geometry, _) = window::geometry(&self.window, input, output, &kernel)?;
        bound.plain = None;
        if self.middle {
            let filter = match self.packed {
                Some(filter) => filter,
                None => *bound.plain.insert(self.filter(w)?),
            };
            bound.conv.bind(&filter, batch, &geometry)?;
        }
        (bound.geometry, bound.batch, bound.ins, bound.outs) = (Some(geometry), batch, ins, outs / self.groups);
        Ok(())
    }

    fn filter(&self, dims: &[i64]) -> Result<Filter, Fault> {
        let dims: Sizes = dims.iter().map(|&d| size(d)).collect();
        Ok(Filter::new(self.isa, &dims, self.groups)?)
    }

    /// Zero points and scales are one for all, or one for each filter.
    pub fn each(&self, shapes: &Shapes<'_>, bound: &Bound, input: usize, name: &str) -> Result<(), Fault> {
        match shapes.has(input) && shapes.input_len(input) != 1 {
            true => agree(name, shapes.input_len(input), bound.outs * self.groups),
            false => Ok(()),
        }
    }

    /// Bytes of scratch memory that [`run`](Self::run) needs, in whole cache lines.
    pub fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let Some(g) = &bound.geometry else { return 0 };
        let need = match bound.plain.or(self.packed).filter(|_| self.middle) {
            Some(filter) => {
                let plain = bound.plain.map_or(0, |filter| room(&filter));
                bound.conv.scratch_len(&filter, width).saturating_add(plain)
            }
            None => {
                let pixels = bound.ins.saturating_mul(g.taps()).saturating_mul(g.outputs());
                let gemm = bound.gemm(self.isa, g);
                pixels.saturating_add(gemm.packed_b().size()).saturating_add(gemm.scratch_len())
            }
        };
        need.checked_next_multiple_of(64).unwrap_or(usize::MAX)
    }

    /// A plan for constant filters.
    pub fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input != self.w || !self.middle {
            return None;
        }
        let filter = self.filter(source.dims).ok()?;
        self.packed = Some(filter);
        // The layout with everything in it, as text.
        let format = fnv(fnv(FNV, b"iconv filter"), format!("{filter:?}{}", self.signed[1]).as_bytes());
        (filter.size() != usize::MAX).then_some(Pack { format, bytes: filter.size(), from_base: false })
    }

    pub fn fill(&self, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        let Some(filter) = &self.packed else { return Err(Fault::data("the filter was not planned")) };
        self.pack_all(filter, weight.bytes(), to, par)
    }

    fn pack_all(&self, filter: &Filter, w: &[u8], to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        let w = Bytes { data: w, signed: self.signed[1] };
        let grain = (1usize << 14).div_ceil(filter.piece_len().max(1));
        split::rows(par, to, filter.piece_len(), grain, |_, first, to| {
            filter.pack(w, first..first + to.len() / filter.piece_len().max(1), to);
        })?;
        Ok(())
    }

    /// Convolves.
    #[expect(clippy::too_many_arguments, reason = "two sides with their zeros, a result and means")]
    pub fn run(
        &self,
        bound: &Bound,
        (x, x_zero): (&[u8], u8),
        (w, w_zero): (&[u8], Option<&[u8]>),
        finish: &Finish<'_>,
        target: Target<'_>,
        scratch: &mut [u8],
        par: &dyn Parallel,
    ) -> Result<(), Fault> {
        if !self.middle {
            return self.each_group(bound, (x, x_zero), (w, w_zero), finish, target, scratch, par);
        }
        let x = Bytes { data: x, signed: self.signed[0] };
        let x = (x, Bytes { data: &[x_zero], ..x }.get(0));
        if let Some(filter) = &self.packed {
            return Ok(bound.conv.run(filter, x, w, finish, target, scratch, par)?);
        }
        let Some(filter) = &bound.plain else { return Err(Fault::data("it was not bound")) };
        let (packed, scratch) = scratch.split_at_mut(room(filter));
        self.pack_all(filter, w, &mut packed[..filter.size()], par)?;
        Ok(bound.conv.run(filter, x, packed, finish, target, scratch, par)?)
    }

    /// For filters with any zero.
    #[expect(clippy::too_many_arguments, reason = "as above")]
    fn each_group(
        &self,
        bound: &Bound,
        (x, x_zero): (&[u8], u8),
        (w, w_zero): (&[u8], Option<&[u8]>),
        finish: &Finish<'_>,
        mut target: Target<'_>,
        scratch: &mut [u8],
        par: &dyn Parallel,
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
            let own = group * outs..(group + 1) * outs;
            let (at, finish) = (item * outs * n..(item + 1) * outs * n, finish_rows(finish, own)?);
            let target = match &mut target {
                Target::I32(y) => igemm::Target::I32(&mut y[at]),
                Target::F32(y) => igemm::Target::F32(&mut y[at]),
                Target::U8(y) => igemm::Target::U8(&mut y[at]),
            };
            gemm.run(left, right, &finish, target, n, scratch, par)?;
        }
        Ok(())
    }
}

/// The same for a product whose rows are some of the output channels.
fn finish_rows<'a>(finish: &Finish<'a>, own: core::ops::Range<usize>) -> Result<igemm::Finish<'a>, Fault> {
    let add = finish.add.map(|add| &add[own.clone()]);
    match finish.form {
        Form::Sums if add.is_none() => Ok(igemm::Finish::Sums),
        Form::Codes { factor, bias: None, clip: (f32::NEG_INFINITY, f32::INFINITY), zero, signed } => {
            let row = Factor::Each(&factor[own]);
            Ok(igemm::Finish::Bytes { row, column: Factor::All(1.0), bias: add, zero, signed })
        }
        _ => Err(Fault::data("a filter with a zero point of its own takes nothing over")),
    }
}

/// Bytes for a filter packed in scratch memory.
fn room(filter: &Filter) -> usize {
    filter.size().checked_next_multiple_of(64).unwrap_or(usize::MAX)
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
