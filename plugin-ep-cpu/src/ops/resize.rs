//! Resampling along axes: the places and weights are those of `taps`, here are the loops over tensors.

use super::cast;
use super::narrow::{Bf16, F16};
use super::sample::Sample;
use super::strided::run;
use super::taps::{Coordinates, Mode, Round, Rule, Sizes, Taps};
use super::value::{TENSOR, Word, by_width};
use super::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa, Simd};
use core::cell::RefCell;
use core::ops::Range;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::parallel::Stopped;
use ortolan_ep_kit::{
    Args, Cost, DType, Element, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, any, count, resolve_axis, size,
    split,
};
use smallvec::SmallVec;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Resize", (13, 19), "resize", any!(resize)).types(&[("T1", TENSOR), ("T2", ROI)]).late(),
    Kernel::new("Upsample", (9, 10), "upsample", any!(resize)).types(&[("T", TENSOR & !set(&[DType::Bf16]))]).late(),
];

const ROI: u64 = set(&[DType::F16, DType::F32, DType::F64]);

type Run = Result<(), Fault>;

/// A new grid over the old one.
struct Resize {
    isa: Isa,
    rule: Rule,
    policy: Policy,
    /// Which axes the lists are about.
    axes: Ints,
    scales: usize,
    roi: DType,
    dtype: DType,
    /// What is outside of the part that is taken.
    outside: f32,
    outside_bytes: [u8; 16],
}

/// Inputs.
const ROI_INPUT: usize = 1;
const SIZES_INPUT: usize = 3;

/// How sizes are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Stretch,
    NotLarger,
    NotSmaller,
}

/// What shapes say, and what the last run found: floats are only seen in a run, and mostly stay the same.
#[derive(Default)]
struct Bound {
    dims: Ints,
    /// `None` if only the run knows.
    out: Option<Ints>,
    sizes: Option<Ints>,
    grid: RefCell<Grid>,
}

/// A grid over an input of some dimensions.
#[derive(Default)]
struct Grid {
    axes: SmallVec<[Sizes; 6]>,
    taps: Vec<Taps>,
    /// Axes up to the last one that changes; neighbours that stay are one.
    layers: SmallVec<[Layer; 6]>,
    /// Elements behind it.
    inner: usize,
    /// Pieces of the last changing axis.
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Copy)]
struct Layer {
    out: usize,
    /// From one element of the input to the next.
    step: usize,
    /// Number of the axis if it changes.
    axis: Option<usize>,
}

/// Places of the output that need few places of the input.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: usize,
    end: usize,
    low: usize,
    high: usize,
}

impl Op for Resize {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        let upsample = node.op() == "Upsample";
        let rule = rule(node, upsample)?;
        let dtype = x.dtype();
        let moved_only = set(&[DType::Bool, DType::C64, DType::C128]) & dtype.mask() != 0;
        if moved_only && !matches!(rule.mode, Mode::Nearest(_)) {
            return Err(Reject::dtype(format!("there is no kernel that interpolates {dtype}; mode nearest has one")));
        }
        let outside = node.float_if("extrapolation_value").unwrap_or(0.0);
        let crop = rule.coordinates == Coordinates::CropAndResize;
        let outside_bytes = match cast::element(dtype, outside) {
            Some(bytes) => bytes,
            None if crop => return Err(Reject::dtype(format!("there is no kernel that crops and resizes {dtype}"))),
            None => [0; 16],
        };
        if crop {
            node.needs(ROI_INPUT)?;
        }
        let scales = if upsample { 1 } else { 2 };
        if node.input(scales).is_none() && (upsample || node.input(SIZES_INPUT).is_none()) {
            return Err(Reject::shape("neither scales nor sizes are given"));
        }
        let policy = match node.text("keep_aspect_ratio_policy").unwrap_or("stretch") {
            "stretch" => Policy::Stretch,
            "not_larger" => Policy::NotLarger,
            "not_smaller" => Policy::NotSmaller,
            other => {
                return Err(Reject::attribute(format!("attribute keep_aspect_ratio_policy = {other} is not known")));
            }
        };
        let (axes, roi) = (axes(node, x.rank())?, node.input(ROI_INPUT).map_or(DType::F32, |roi| roi.dtype()));
        Ok(Resize { isa: Cpu::of(node).isa, rule, policy, axes, scales, roi, dtype, outside, outside_bytes })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, if let Mode::Nearest(_) = self.rule.mode { 0.5 } else { 3.0 })
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Run {
        let (dims, out) = (shapes.input(0), shapes.output(0));
        bound.dims = Ints::from_slice(dims);
        bound.out = (out.len() == dims.len()).then(|| Ints::from_slice(out));
        bound.sizes = if self.by_sizes(shapes) { shapes.elements(SIZES_INPUT).map(Ints::from_slice) } else { None };
        Ok(())
    }
}

fn rule(node: &NodeView<'_>, upsample: bool) -> Result<Rule, Reject> {
    let text = |name: &str, default: &'static str| node.text(name).unwrap_or(default).to_owned();
    let unknown = |name: &str, value: String| Reject::attribute(format!("attribute {name} = {value} is not known"));
    let flag = |name: &str| node.int_if(name).unwrap_or(0) != 0;
    let round = match text("nearest_mode", "round_prefer_floor") {
        _ if upsample => Round::Floor,
        name => match name.as_str() {
            "round_prefer_floor" => Round::PreferFloor,
            "round_prefer_ceil" => Round::PreferCeil,
            "floor" => Round::Floor,
            "ceil" => Round::Ceil,
            _ => return Err(unknown("nearest_mode", name)),
        },
    };
    let mode = text("mode", "nearest");
    let mode = match mode.as_str() {
        "nearest" => Mode::Nearest(round),
        "linear" | "bilinear" => Mode::Linear,
        "cubic" => Mode::Cubic(node.float_if("cubic_coeff_a").unwrap_or(-0.75).into()),
        _ => return Err(unknown("mode", mode)),
    };
    let name = text("coordinate_transformation_mode", "half_pixel");
    let coordinates = match name.as_str() {
        _ if upsample => Coordinates::Asymmetric,
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "tf_crop_and_resize" => Coordinates::CropAndResize,
        _ => return Err(unknown("coordinate_transformation_mode", name)),
    };
    let nearest = matches!(mode, Mode::Nearest(_));
    if nearest && flag("antialias") {
        return Err(Reject::attribute("attribute antialias = 1 goes with mode linear or cubic only"));
    }
    Ok(Rule { mode, coordinates, antialias: flag("antialias"), exclude_outside: flag("exclude_outside") && !nearest })
}

fn axes(node: &NodeView<'_>, rank: usize) -> Result<Ints, Reject> {
    let Some(axes) = node.ints("axes") else { return Ok((0..rank as i64).collect()) }; // a rank
    axes.iter()
        .map(|&axis| match resolve_axis(axis, rank) {
            Some(axis) => Ok(axis as i64), // below the rank
            None => Err(Reject::attribute(format!("attribute axes has {axis}, which is no axis of rank {rank}"))),
        })
        .collect()
}

impl Resize {
    /// Whether sizes say the output's dimensions; an empty list of scales is none.
    fn by_sizes(&self, shapes: &Shapes<'_>) -> bool {
        self.scales == 2 && shapes.has(SIZES_INPUT) && shapes.input_len(SIZES_INPUT) > 0
    }

    /// Every axis as the run finds it.
    fn find(&self, bound: &Bound, args: &Args<'_>) -> Result<SmallVec<[Sizes; 6]>, Fault> {
        let plain = |&dim: &i64| Sizes { len: size(dim), out: size(dim), scale: 1.0, roi: (0.0, 1.0) };
        let mut all: SmallVec<[Sizes; 6]> = bound.dims.iter().map(plain).collect();
        let sized = self.scales == 2 && args.input_if::<i64>(SIZES_INPUT).is_some_and(|list| !list.is_empty());
        match sized {
            true => match &bound.sizes {
                Some(sizes) => self.follow_sizes(&mut all, sizes)?,
                None => self.follow_sizes(&mut all, args.input(SIZES_INPUT))?,
            },
            false => self.follow_scales(&mut all, args.input(self.scales))?,
        }
        if let Some(out) = &bound.out {
            all.iter_mut().zip(out).for_each(|(axis, &out)| axis.out = size(out));
        }
        if self.rule.coordinates == Coordinates::CropAndResize {
            self.follow_roi(&mut all, args)?;
        }
        match all.iter().position(|axis| axis.len == 0 && axis.out > 0) {
            Some(axis) => Err(Fault::data(format!("axis {axis} has no elements to make {} of", all[axis].out))),
            None => Ok(all),
        }
    }

    fn wrong(&self, what: &str, have: usize, need: usize) -> Fault {
        Fault::data(format!("{what} has {have} elements, {need} are needed"))
    }

    fn follow_scales(&self, all: &mut [Sizes], scales: &[f32]) -> Run {
        if scales.len() != self.axes.len() {
            return Err(self.wrong("scales", scales.len(), self.axes.len()));
        }
        for (&axis, &scale) in self.axes.iter().zip(scales) {
            if !(scale > 0.0 && scale.is_finite()) {
                return Err(Fault::data(format!("scales has {scale}, which is no scale")));
            }
            let axis = &mut all[size(axis)];
            // In single precision, as everybody does it; what is too large is not to be had anyway.
            axis.out = (axis.len as f32 * scale).floor() as usize;
            axis.scale = scale.into();
        }
        Ok(())
    }

    fn follow_sizes(&self, all: &mut [Sizes], sizes: &[i64]) -> Run {
        if sizes.len() != self.axes.len() {
            return Err(self.wrong("sizes", sizes.len(), self.axes.len()));
        }
        if let Some(wrong) = sizes.iter().find(|&&n| n < 0) {
            return Err(Fault::data(format!("sizes has {wrong}")));
        }
        let ratio = |axis: &Sizes, size: i64| size as f64 / axis.len as f64; // sizes are exact
        for (&axis, &n) in self.axes.iter().zip(sizes) {
            let axis = &mut all[size(axis)];
            (axis.out, axis.scale) = (size(n), ratio(axis, n));
        }
        let ratios = self.axes.iter().map(|&axis| all[size(axis)].scale);
        let common = match self.policy {
            Policy::Stretch => return Ok(()),
            Policy::NotLarger => ratios.fold(f64::INFINITY, f64::min),
            Policy::NotSmaller => ratios.fold(0.0, f64::max),
        };
        for &axis in &self.axes {
            let axis = &mut all[size(axis)];
            (axis.out, axis.scale) = ((common * axis.len as f64 + 0.5).floor() as usize, common); // saturates
        }
        Ok(())
    }

    fn follow_roi(&self, all: &mut [Sizes], args: &Args<'_>) -> Run {
        let count = self.axes.len();
        let roi = floats(args, ROI_INPUT, self.roi);
        if roi.len() != 2 * count {
            return Err(self.wrong("roi", roi.len(), 2 * count));
        }
        for (k, &axis) in self.axes.iter().enumerate() {
            all[size(axis)].roi = (roi[k], roi[count + k]);
        }
        Ok(())
    }
}

/// Elements of a float input.
fn floats(args: &Args<'_>, input: usize, dtype: DType) -> SmallVec<[f64; 16]> {
    match dtype {
        DType::F16 => args.input::<F16>(input).iter().map(|x| x.wide().into()).collect(),
        DType::F64 => args.input::<f64>(input).iter().copied().collect(),
        _ => args.input::<f32>(input).iter().map(|&x| x.into()).collect(),
    }
}

/// Elements that are worked on together, on the stack.
const BUFFER: usize = 2048;
/// Elements behind the last axis that are worked on together.
const INNER: usize = 128;
/// Places that are worked on together.
const PLACES: usize = 512;

impl Grid {
    /// Follows other axes.
    fn fill(&mut self, rule: &Rule, dims: &[i64], axes: SmallVec<[Sizes; 6]>) {
        self.taps.resize_with(axes.len(), Taps::default);
        self.layers.clear();
        self.pieces.clear();
        self.inner = 1;
        let stays = |axis: &Sizes| axis.len == axis.out && (axis.scale - 1.0).abs() < 1e-9 && axis.roi == (0.0, 1.0);
        for (k, axis) in axes.iter().enumerate().rev() {
            let step = count(&dims[k + 1..]);
            match (stays(axis), self.layers.last_mut()) {
                (true, None) => self.inner *= axis.len,
                (true, Some(last)) if last.axis.is_none() => last.out *= axis.len,
                (true, Some(_)) => self.layers.push(Layer { out: axis.out, step, axis: None }),
                (false, _) => {
                    if axis.len > 0 {
                        self.taps[k].fill(rule, axis);
                    }
                    self.layers.push(Layer { out: axis.out, step, axis: Some(k) });
                }
            }
        }
        self.layers.reverse();
        if let Some(axis) = self.layers.last().and_then(|layer| layer.axis) {
            self.cut(axis);
        }
        self.axes = axes;
    }

    /// Cuts an axis into pieces whose input fits into the buffer, if that can be.
    fn cut(&mut self, axis: usize) {
        let taps = &self.taps[axis];
        let most = BUFFER / self.inner.clamp(1, INNER);
        for (at, places) in taps.places.chunks_exact(taps.count.max(1)).enumerate() {
            let low = places.iter().copied().min().unwrap_or_default();
            let high = places.iter().copied().max().unwrap_or_default();
            match self.pieces.last_mut() {
                Some(piece) if at - piece.start < PLACES && high.max(piece.high) - low.min(piece.low) < most => {
                    *piece = Piece { end: at + 1, low: low.min(piece.low), high: high.max(piece.high), ..*piece };
                }
                _ => self.pieces.push(Piece { start: at, end: at + 1, low, high }),
            }
        }
    }

    /// Elements of a row of the output: the last layer and what is behind it.
    fn row(&self) -> usize {
        self.layers.last().map_or(1, |layer| layer.out) * self.inner
    }

    /// Where a row's elements come from: positions and weights, or `None` if it is outside.
    fn terms(&self, mut row: usize) -> Option<SmallVec<[(usize, f64); 16]>> {
        let mut terms: SmallVec<[(usize, f64); 16]> = SmallVec::from_slice(&[(0, 1.0)]);
        let front = self.layers.split_last().map_or(&[][..], |(_, front)| front);
        for layer in front.iter().rev() {
            let at = row % layer.out;
            row /= layer.out;
            let Some(axis) = layer.axis else {
                terms.iter_mut().for_each(|term| term.0 += at * layer.step);
                continue;
            };
            let taps = &self.taps[axis];
            if taps.is_outside(at) {
                return None;
            }
            let range = at * taps.count..(at + 1) * taps.count;
            let taps = || taps.places[range.clone()].iter().zip(&taps.weights[range.clone()]);
            let spread = |&(from, weight): &(usize, f64)| {
                taps()
                    .filter(|tap| *tap.1 != 0.0)
                    .map(move |(&place, &more)| (from + place * layer.step, weight * more))
            };
            terms = terms.iter().flat_map(spread).collect();
        }
        Some(terms)
    }
}

fn resize(op: &Resize, bound: &Bound, args: &mut Args<'_>) -> Run {
    if matches!(op.rule.mode, Mode::Nearest(_)) {
        return by_width!(op.dtype.bits(), nearest(op, bound, args));
    }
    match op.dtype {
        DType::F32 => interpolate::<f32>(op, bound, args),
        DType::F64 => interpolate::<f64>(op, bound, args),
        DType::F16 => interpolate::<F16>(op, bound, args),
        DType::Bf16 => interpolate::<Bf16>(op, bound, args),
        DType::I8 => interpolate::<i8>(op, bound, args),
        DType::I16 => interpolate::<i16>(op, bound, args),
        DType::I32 => interpolate::<i32>(op, bound, args),
        DType::I64 => interpolate::<i64>(op, bound, args),
        DType::U8 => interpolate::<u8>(op, bound, args),
        DType::U16 => interpolate::<u16>(op, bound, args),
        DType::U32 => interpolate::<u32>(op, bound, args),
        DType::U64 => interpolate::<u64>(op, bound, args),
        other => Err(Fault::data(format!("elements of {other} are not interpolated"))),
    }
}

/// Asks for the output, then follows the grid, as the host limits how large it may be. `work` gets input, output and the
/// last changing axis.
fn over<T: Element + Send + Sync>(
    op: &Resize,
    bound: &Bound,
    args: &mut Args<'_>,
    work: impl FnOnce(&Grid, &Taps, &[T], &mut [T]) -> Result<(), Stopped>,
) -> Run {
    let axes = op.find(bound, args)?;
    let dims: Ints = axes.iter().map(|axis| i64::try_from(axis.out).unwrap_or(i64::MAX)).collect();
    let (x, y) = (args.input::<T>(0), args.emit::<T>(0, &dims)?);
    if y.is_empty() {
        return Ok(());
    }
    let mut grid = bound.grid.borrow_mut();
    if grid.axes != axes {
        grid.fill(&op.rule, &bound.dims, axes);
    }
    match grid.layers.last().and_then(|layer| layer.axis) {
        Some(axis) => work(&grid, &grid.taps[axis], x, y)?,
        None => split::rows(args.par(), y, 1, GRAIN, |_, at, y| y.copy_from_slice(&x[at..at + y.len()]))?,
    }
    Ok(())
}

fn nearest<T: Word>(op: &Resize, bound: &Bound, args: &mut Args<'_>) -> Run {
    let (par, outside) = (args.par(), T::from_bytes(&op.outside_bytes));
    over::<T>(op, bound, args, |grid, taps, x, y| {
        let row = grid.row();
        split::rows(par, y, row, GRAIN.div_ceil(row), |_, first, rows| {
            // Rows that come from the same place follow each other when an axis grows.
            let mut before = None;
            for number in 0..rows.len() / row {
                let (done, rest) = rows.split_at_mut(number * row);
                let y = &mut rest[..row];
                let from = grid.terms(first + number).and_then(|terms| terms.first().map(|term| term.0));
                match from {
                    Some(from) if before == Some(from) => y.copy_from_slice(&done[done.len() - row..]),
                    Some(from) => nearest_row(grid.inner, taps, outside, &x[from..], y),
                    None => y.fill(outside),
                }
                before = from;
            }
        })
    })
}

fn nearest_row<T: Word>(inner: usize, taps: &Taps, outside: T, x: &[T], y: &mut [T]) {
    if taps.outside.is_empty() && inner == 1 {
        return y.iter_mut().zip(&taps.places).for_each(|(y, &place)| *y = x[place]);
    }
    for (at, y) in y.chunks_exact_mut(inner).enumerate() {
        match taps.is_outside(at) {
            true => y.fill(outside),
            false => run(y, &x[taps.places[at] * inner..][..inner]),
        }
    }
}

fn interpolate<T: Sample>(op: &Resize, bound: &Bound, args: &mut Args<'_>) -> Run {
    let (par, outside) = (args.par(), T::round(T::weight(op.outside.into())));
    over::<T>(op, bound, args, |grid, taps, x, y| {
        let row = grid.row();
        split::rows(par, y, row, (GRAIN / 4).div_ceil(row), |_, first, y| {
            op.isa.dispatch(Rows { grid, taps, outside, x, first, y });
        })
    })
}

/// Some rows, from number `first` on.
struct Rows<'a, T> {
    grid: &'a Grid,
    taps: &'a Taps,
    outside: T,
    x: &'a [T],
    first: usize,
    y: &'a mut [T],
}

impl<T: Sample> simd::Kernel for Rows<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Rows { grid, taps, outside, x, first, y } = self;
        let mut buffer = [T::Wide::default(); BUFFER];
        for (number, y) in (first..).zip(y.chunks_exact_mut(grid.row())) {
            let Some(terms) = grid.terms(number) else {
                y.fill(outside);
                continue;
            };
            for piece in &grid.pieces {
                for from in (0..grid.inner).step_by(INNER) {
                    let columns = from..(from + INNER).min(grid.inner);
                    let line = Line { grid, taps, x, terms: &terms, piece, columns };
                    match (piece.high - piece.low + 1) * line.columns.len() <= BUFFER {
                        true => line.near(&mut buffer, y),
                        false => line.far(y),
                    }
                }
                for at in (piece.start..piece.end).filter(|&at| taps.is_outside(at)) {
                    y[at * grid.inner..(at + 1) * grid.inner].fill(outside);
                }
            }
        }
    }
}

/// A piece of a row, and some of the elements behind its axis.
struct Line<'a, T> {
    grid: &'a Grid,
    taps: &'a Taps,
    x: &'a [T],
    terms: &'a [(usize, f64)],
    piece: &'a Piece,
    columns: Range<usize>,
}

impl<T: Sample> Line<'_, T> {
    /// First all rows of the input become one, then its places are weighed.
    #[inline(always)]
    fn near(&self, buffer: &mut [T::Wide; BUFFER], y: &mut [T]) {
        let Line { taps, x, piece, .. } = *self;
        let (inner, width) = (self.grid.inner, self.columns.len());
        let buffer = &mut buffer[..(piece.high - piece.low + 1) * width];
        buffer.fill(T::Wide::default());
        for &(from, weight) in self.terms {
            let (start, weight) = (from + piece.low * inner + self.columns.start, T::weight(weight));
            if width == inner {
                let x = &x[start..start + buffer.len()];
                buffer.iter_mut().zip(x).for_each(|(sum, x)| *sum += x.wide() * weight);
                continue;
            }
            for (place, sums) in buffer.chunks_exact_mut(width).enumerate() {
                let x = &x[start + place * inner..][..width];
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x.wide() * weight);
            }
        }
        let weights = T::weights(taps);
        for at in piece.start..piece.end {
            let range = at * taps.count..(at + 1) * taps.count;
            let (places, weights) = (&taps.places[range.clone()], &weights[range]);
            for (k, y) in y[at * inner + self.columns.start..][..width].iter_mut().enumerate() {
                let mut sum = T::Wide::default();
                for (&place, &weight) in places.iter().zip(weights) {
                    sum += buffer[(place - piece.low) * width + k] * weight;
                }
                *y = T::round(sum);
            }
        }
    }

    /// The same for a filter that reaches further than the buffer.
    fn far(&self, y: &mut [T]) {
        let Line { taps, x, piece, .. } = *self;
        for at in piece.start..piece.end {
            for k in self.columns.clone() {
                let mut sum = T::Wide::default();
                for tap in at * taps.count..(at + 1) * taps.count {
                    for &(from, weight) in self.terms {
                        let weight = T::weight(weight * taps.weights[tap]);
                        sum += x[from + taps.places[tap] * self.grid.inner + k].wide() * weight;
                    }
                }
                y[at * self.grid.inner + k] = T::round(sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{Dims, count, index, position, ramp};
    use crate::ops::narrow::F16;
    use crate::ops::taps::{Coordinates, Mode, Round, Rule, Sizes, Taps};
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    /// Every element by the product of all its axes' weights.
    fn naive(x: &[f64], dims: &[i64], out: &[i64], rule: &Rule, scales: &[f64], roi: &[(f64, f64)]) -> Vec<f64> {
        let axes: Vec<Taps> = (0..dims.len())
            .map(|k| {
                let mut taps = Taps::default();
                let sizes = Sizes { len: dims[k] as usize, out: out[k] as usize, scale: scales[k], roi: roi[k] };
                taps.fill(rule, &sizes);
                taps
            })
            .collect();
        let element = |k: usize| {
            let at = index(out, k);
            if at.iter().zip(&axes).any(|(&at, taps)| taps.is_outside(at)) {
                return 7.5;
            }
            let mut terms = vec![(Vec::new(), 1.0)];
            for (&at, taps) in at.iter().zip(&axes) {
                let more = |(place, weight): &(Vec<usize>, f64)| -> Vec<(Vec<usize>, f64)> {
                    (at * taps.count..(at + 1) * taps.count)
                        .map(|tap| ([&place[..], &[taps.places[tap]]].concat(), weight * taps.weights[tap]))
                        .collect()
                };
                terms = terms.iter().flat_map(more).collect();
            }
            terms.iter().map(|(place, weight)| x[position(dims, place)] * weight).sum()
        };
        (0..count(out)).map(element).collect()
    }

    /// Dimensions, scales.
    const SCALES: &[(Dims, &[f32])] = &[
        (&[5], &[2.0]),
        (&[5], &[0.6]),
        (&[3, 4], &[1.0, 2.5]),
        (&[3, 4], &[2.0, 1.0]),
        (&[2, 3, 4, 5], &[1.0, 1.0, 2.0, 2.0]),
        (&[2, 3, 7, 9], &[1.0, 1.0, 0.5, 0.4]),
        (&[2, 7, 9, 3], &[1.0, 0.7, 1.3, 1.0]),
        (&[1, 4, 5, 300], &[1.0, 0.6, 1.7, 1.0]),
        (&[2, 3, 4, 5], &[1.0, 2.0, 1.0, 1.5]),
        (&[1, 2, 30, 1300], &[1.0, 1.0, 0.3, 1.2]),
        (&[1, 2, 3, 2, 2], &[1.0, 1.0, 1.5, 2.0, 0.5]),
        (&[2, 0, 4], &[1.0, 2.0, 2.0]),
    ];

    const COORDINATES: &[(&str, Coordinates)] = &[
        ("half_pixel", Coordinates::HalfPixel),
        ("half_pixel_symmetric", Coordinates::HalfPixelSymmetric),
        ("pytorch_half_pixel", Coordinates::PytorchHalfPixel),
        ("align_corners", Coordinates::AlignCorners),
        ("asymmetric", Coordinates::Asymmetric),
    ];

    fn out(dims: &[i64], scales: &[f32]) -> Vec<i64> {
        dims.iter().zip(scales).map(|(&d, &s)| (d as f32 * s).floor() as i64).collect()
    }

    #[test]
    fn interpolation_like_the_definition() {
        let modes = [("linear", Mode::Linear), ("cubic", Mode::Cubic(-0.5))];
        for (mode_name, mode) in modes {
            for &(name, coordinates) in COORDINATES {
                for (antialias, exclude_outside) in [(false, false), (true, false), (false, true)] {
                    let rule = Rule { mode, coordinates, antialias, exclude_outside };
                    // The large ones are there for the loops, which do not know coordinates.
                    let large = coordinates == Coordinates::HalfPixel && !exclude_outside;
                    for &(dims, scales) in SCALES.iter().filter(|case| large || count(case.0) < 1000) {
                        let (x, out) = (Tensor::random(dims, 3), out(dims, scales));
                        let numbers: Vec<f64> = x.to_vec::<f32>().into_iter().map(f64::from).collect();
                        let wide: Vec<f64> = scales.iter().map(|&s| s.into()).collect();
                        let want = naive(&numbers, dims, &out, &rule, &wide, &vec![(0.0, 1.0); dims.len()]);
                        let want: Vec<f32> = want.into_iter().map(|y| y as f32).collect();
                        let list = Tensor::new(&[scales.len() as i64], scales);
                        on_all("Resize", 19, |case| {
                            let case = case.text("mode", mode_name).text("coordinate_transformation_mode", name);
                            let case = case.int("antialias", antialias.into()).float("cubic_coeff_a", -0.5);
                            let case = case.int("exclude_outside", exclude_outside.into());
                            let y = case.input(&x).skip().constant(&list).output(DType::F32, &out).run();
                            assert_close(&y[0], &Tensor::new(&out, &want), 1e-5);
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn the_nearest_of_every_width() {
        let rounds = [
            ("round_prefer_floor", Round::PreferFloor),
            ("round_prefer_ceil", Round::PreferCeil),
            ("floor", Round::Floor),
            ("ceil", Round::Ceil),
        ];
        for dtype in [DType::U8, DType::F16, DType::F32, DType::I64, DType::C128] {
            for (round_name, round) in rounds {
                for &(name, coordinates) in COORDINATES {
                    let rule =
                        Rule { mode: Mode::Nearest(round), coordinates, antialias: false, exclude_outside: false };
                    for &(dims, scales) in SCALES {
                        let (x, out) = (ramp(dtype, dims, 3), out(dims, scales));
                        let places: Vec<f64> = (0..count(dims)).map(|k| k as f64).collect();
                        let wide: Vec<f64> = scales.iter().map(|&s| s.into()).collect();
                        let from = naive(&places, dims, &out, &rule, &wide, &vec![(0.0, 1.0); dims.len()]);
                        let size = dtype.bits() / 8;
                        let bytes = from.iter().flat_map(|&at| &x.bytes[at as usize * size..(at as usize + 1) * size]);
                        let want = Tensor { dtype, dims: out.clone(), bytes: bytes.copied().collect() };
                        let case = Case::new("Resize", 19).text("mode", "nearest").text("nearest_mode", round_name);
                        let case = case.text("coordinate_transformation_mode", name).input(&x).skip();
                        let case = case.constant(&Tensor::new(&[scales.len() as i64], scales));
                        assert_eq!(
                            case.output(dtype, &out).run(),
                            from_ref(&want),
                            "{dtype} {dims:?} {scales:?} {name}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_whether_known_before_or_found_in_the_run() {
        let x = Tensor::random(&[2, 3, 4, 6], 1);
        let numbers: Vec<f64> = x.to_vec::<f32>().into_iter().map(f64::from).collect();
        let rule =
            Rule { mode: Mode::Linear, coordinates: Coordinates::HalfPixel, antialias: false, exclude_outside: false };
        // Policy, sizes of axes 3 and 2, their new sizes, common scale.
        type Row = (&'static str, [i64; 2], [i64; 2], Option<f64>);
        let cases: &[Row] = &[
            ("stretch", [3, 8], [3, 8], None),
            ("not_larger", [9, 8], [9, 6], Some(1.5)),
            ("not_smaller", [9, 8], [12, 8], Some(2.0)),
        ];
        for &(policy, sizes, [w, h], scale) in cases {
            let out = [2, 3, h, w];
            let scales = [1.0, 1.0, scale.unwrap_or(h as f64 / 4.0), scale.unwrap_or(w as f64 / 6.0)];
            let want = naive(&numbers, &x.dims, &out, &rule, &scales, &[(0.0, 1.0); 4]);
            let want = Tensor::new(&out, &want.into_iter().map(|y| y as f32).collect::<Vec<_>>());
            for (constant, late) in [(true, false), (false, false), (false, true)] {
                let case = Case::new("Resize", 19).text("mode", "linear").text("keep_aspect_ratio_policy", policy);
                let case = case.ints("axes", &[-1, 2]).input(&x).skip().skip();
                let list = Tensor::new(&[2], &sizes);
                let case = if constant { case.constant(&list) } else { case.input(&list) };
                let case = if late { case.late_output(DType::F32, 4) } else { case.output(DType::F32, &out) };
                assert_close(&case.run()[0], &want, 1e-6);
            }
        }
    }

    #[test]
    fn crops() {
        let rule = Rule {
            mode: Mode::Linear,
            coordinates: Coordinates::CropAndResize,
            antialias: false,
            exclude_outside: false,
        };
        let (dims, out) = ([1, 2, 4, 5], [1, 2, 3, 7]);
        let x = Tensor::random(&dims, 1);
        let numbers: Vec<f64> = x.to_vec::<f32>().into_iter().map(f64::from).collect();
        let roi = [(0.0, 1.0), (0.0, 1.0), (0.25, 0.75), (0.5, 1.5)];
        let want = naive(&numbers, &dims, &out, &rule, &[1.0, 1.0, 0.75, 1.4], &roi);
        assert!(want.contains(&7.5));
        let want = Tensor::new(&out, &want.into_iter().map(|y| y as f32).collect::<Vec<_>>());
        for nearest in [false, true] {
            let list = [0.0, 0.0, 0.25, 0.5, 1.0, 1.0, 0.75, 1.5f32];
            let rois = [Tensor::new(&[8], &list), Tensor::new(&[8], &list.map(F16::round))];
            for roi in rois {
                let case = Case::new("Resize", 19).text("mode", if nearest { "nearest" } else { "linear" });
                let case = case.text("coordinate_transformation_mode", "tf_crop_and_resize");
                let case = case.float("extrapolation_value", 7.5).input(&x).input(&roi).skip();
                let y = case.constant(&Tensor::new(&[4], &out)).output(DType::F32, &out).run();
                if nearest {
                    let outside = |t: &Tensor| t.to_vec::<f32>().iter().map(|&y| y == 7.5).collect::<Vec<_>>();
                    assert_eq!(outside(&y[0]), outside(&want));
                } else {
                    assert_close(&y[0], &want, 1e-6);
                }
            }
        }
    }

    #[test]
    fn integers_round_and_stay_within() {
        let x = Tensor::new(&[4], &[0u8, 255, 0, 255]);
        let case = Case::new("Resize", 19).text("mode", "cubic").float("cubic_coeff_a", -0.75).input(&x).skip();
        let y = case.constant(&Tensor::new(&[1], &[2.0f32])).output(DType::U8, &[8]).run();
        assert_eq!(y[0].to_vec::<u8>(), [0, 67, 224, 215, 40, 31, 188, 255]);
    }

    #[test]
    fn upsample_repeats() {
        let x = Tensor::new(&[1, 1, 2, 2], &[1i32, 2, 3, 4]);
        let scales = Tensor::new(&[4], &[1.0f32, 1.0, 2.0, 3.0]);
        let case = Case::new("Upsample", 9).text("mode", "nearest").input(&x).input(&scales);
        let want = [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 3, 3, 3, 4, 4, 4];
        assert_eq!(case.late_output(DType::I32, 4).run(), [Tensor::new(&[1, 1, 4, 6], &want)]);
    }

    #[test]
    fn what_does_not_fit() {
        let x = Tensor::random(&[2, 3], 1);
        let scales = |scales: &[f32]| Tensor::new(&[scales.len() as i64], scales);
        // Scales; what is said.
        let cases: &[(&[f32], &str)] = &[
            (&[1.0], "scales has 1 elements, 2 are needed"),
            (&[1.0, 0.0], "scales has 0, which is no scale"),
            (&[1.0, f32::NAN], "scales has NaN, which is no scale"),
        ];
        for &(list, want) in cases {
            let case = Case::new("Resize", 19).input(&x).skip().input(&scales(list)).late_output(DType::F32, 2);
            let error = case.try_run().unwrap_err();
            assert!(error.contains(want), "{error}");
        }
        let huge = Case::new("Resize", 19).input(&x).skip().input(&scales(&[1e18, 1e18])).late_output(DType::F32, 2);
        assert!(huge.try_run().is_err());
        let none = Tensor::random(&[0, 3], 1);
        let case = Case::new("Resize", 19).input(&none).skip().skip().input(&Tensor::new(&[2], &[2i64, 3]));
        let error = case.late_output(DType::F32, 2).try_run().unwrap_err();
        assert!(error.contains("axis 0 has no elements to make 2 of"), "{error}");
    }

    #[test]
    fn refusals() {
        let (x, scales) = (Tensor::random(&[2, 3], 1), Tensor::new(&[2], &[1.0f32, 2.0]));
        // Attribute, value; what is said.
        let cases = [
            ("mode", "area", "Resize: attribute mode = area is not known"),
            ("nearest_mode", "up", "Resize: attribute nearest_mode = up is not known"),
            (
                "coordinate_transformation_mode",
                "x",
                "Resize: attribute coordinate_transformation_mode = x is not known",
            ),
            ("keep_aspect_ratio_policy", "x", "Resize: attribute keep_aspect_ratio_policy = x is not known"),
        ];
        for (name, value, want) in cases {
            let case = Case::new("Resize", 19).text(name, value).input(&x).skip().input(&scales);
            let (code, text) = case.output(DType::F32, &[2, 6]).rejection();
            assert_eq!((code, &*text), (RejectCode::Attribute, want));
        }
        let case = Case::new("Resize", 19).text("mode", "linear").input(&ramp(DType::C64, &[2, 3], 0)).skip();
        let (code, text) = case.input(&scales).output(DType::C64, &[2, 6]).rejection();
        let want = "Resize: there is no kernel that interpolates complex64; mode nearest has one";
        assert_eq!((code, &*text), (RejectCode::Dtype, want));
        let case = Case::new("Resize", 19).ints("axes", &[2]).input(&x).skip().input(&scales);
        let (code, text) = case.output(DType::F32, &[2, 6]).rejection();
        let want = "Resize: attribute axes has 2, which is no axis of rank 2";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
        let case = Case::new("Resize", 19).int("antialias", 1).input(&x).skip().input(&scales);
        let (code, text) = case.output(DType::F32, &[2, 6]).rejection();
        let want = "Resize: attribute antialias = 1 goes with mode linear or cubic only";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
    }
}
