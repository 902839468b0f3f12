//! Sampling at places that a tensor names, and the places of an affine map.

use super::narrow::{Bf16, F16};
use super::sample::Sample;
use super::{GRAIN, cost};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{
    Args, Cost, DType, Element, Fault, Kernel, NodeView, Op, Reject, Shapes, any, count, size, split, typed,
};
use smallvec::SmallVec;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("AffineGrid", (20, 20), "affinegrid", typed!(affine: f32 f64 F16 Bf16)).unread(&[1]),
    Kernel::new("GridSample", (20, 22), "gridsample", any!(sample)).types(&[("T1", SAMPLED), ("T2", FLOATS)]),
];

const FLOATS: u64 = set(&[DType::F32, DType::F64, DType::F16, DType::Bf16]);
const SAMPLED: u64 = FLOATS | ortolan_ep_kit::element::NUMBERS;

type Run = Result<(), Fault>;

/// How values between elements come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// What is outside of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    Zeros,
    /// The nearest element.
    Border,
    /// The input, mirrored at its ends.
    Reflection,
}

struct GridSample {
    mode: Mode,
    padding: Padding,
    /// Whether -1 and 1 are the middles of the outermost elements, not their outer edges.
    corners: bool,
    dtype: DType,
    grid: DType,
}

#[derive(Default)]
struct Space {
    /// Length of each axis, outermost first, and from one element to the next.
    axes: SmallVec<[(usize, usize); 4]>,
    channels: usize,
    /// Elements of a channel of the input, and of the output.
    input: usize,
    output: usize,
}

impl Op for GridSample {
    type Bound = Space;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, grid) = (node.needs(0)?, node.needs(1)?);
        if x.rank() < 3 || grid.rank() != x.rank() {
            let text =
                format!("input 0 has rank {} and input 1 {}: one rank of at least 3 is needed", x.rank(), grid.rank());
            return Err(Reject::rank(text));
        }
        if x.rank() - 2 > MOST_AXES {
            return Err(Reject::rank(format!("input 0 has {} axes to sample, at most {MOST_AXES} are", x.rank() - 2)));
        }
        let mode = match node.text("mode").unwrap_or("linear") {
            "nearest" => Mode::Nearest,
            "linear" => Mode::Linear,
            "cubic" => Mode::Cubic,
            other => return Err(Reject::attribute(format!("attribute mode = {other} is not known"))),
        };
        let padding = match node.text("padding_mode").unwrap_or("zeros") {
            "zeros" => Padding::Zeros,
            "border" => Padding::Border,
            "reflection" => Padding::Reflection,
            other => return Err(Reject::attribute(format!("attribute padding_mode = {other} is not known"))),
        };
        let corners = node.int_if("align_corners").unwrap_or(0) != 0;
        Ok(GridSample { mode, padding, corners, dtype: x.dtype(), grid: grid.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, if self.mode == Mode::Cubic { 20.0 } else { 5.0 })
    }

    fn bind(&self, shapes: &Shapes<'_>, space: &mut Space) -> Run {
        let (dims, grid) = (shapes.input(0), shapes.input(1));
        let axes = dims.len() - 2;
        if grid.last().map(|&n| size(n)) != Some(axes) || grid.first() != dims.first() {
            return Err(Fault::data(format!("a grid of {grid:?} does not fit an input of {dims:?}")));
        }
        *space = Space {
            axes: (2..dims.len()).map(|k| (size(dims[k]), count(&dims[k + 1..]))).collect(),
            channels: size(dims[1]),
            input: count(&dims[2..]),
            output: count(&grid[1..=axes]),
        };
        match space.input == 0 && self.padding != Padding::Zeros && shapes.output_len(0) > 0 {
            true => Err(Fault::data(format!("an input of {dims:?} has no elements to pad it with"))),
            false => Ok(()),
        }
    }

    /// The grid as f64.
    fn scratch(&self, space: &Space, _: usize) -> usize {
        // The batch is not bound: places of one sample at a time.
        space.output * space.axes.len() * size_of::<f64>()
    }
}

/// Most axes whose taps fit on the stack: 4^3 of a cubic.
const MOST_AXES: usize = 3;
/// Most taps of a place.
const MOST_TAPS: usize = 64;
/// A tap that is outside and counts as 0.
const NOWHERE: usize = usize::MAX;

fn sample(op: &GridSample, space: &Space, args: &mut Args<'_>) -> Run {
    match op.dtype {
        DType::F32 => sample_all::<f32>(op, space, args),
        DType::F64 => sample_all::<f64>(op, space, args),
        DType::F16 => sample_all::<F16>(op, space, args),
        DType::Bf16 => sample_all::<Bf16>(op, space, args),
        DType::I8 => sample_all::<i8>(op, space, args),
        DType::I16 => sample_all::<i16>(op, space, args),
        DType::I32 => sample_all::<i32>(op, space, args),
        DType::I64 => sample_all::<i64>(op, space, args),
        DType::U8 => sample_all::<u8>(op, space, args),
        DType::U16 => sample_all::<u16>(op, space, args),
        DType::U32 => sample_all::<u32>(op, space, args),
        DType::U64 => sample_all::<u64>(op, space, args),
        other => Err(Fault::data(format!("elements of {other} are not sampled"))),
    }
}

/// Numbers of the grid from `start` on.
fn places(args: &Args<'_>, dtype: DType, start: usize, to: &mut [f64]) {
    let range = start..start + to.len();
    match dtype {
        DType::F64 => to.copy_from_slice(&args.input::<f64>(1)[range]),
        DType::F16 => to.iter_mut().zip(&args.input::<F16>(1)[range]).for_each(|(y, x)| *y = x.wide().into()),
        DType::Bf16 => to.iter_mut().zip(&args.input::<Bf16>(1)[range]).for_each(|(y, x)| *y = x.wide().into()),
        _ => to.iter_mut().zip(&args.input::<f32>(1)[range]).for_each(|(y, &x)| *y = x.into()),
    }
}

fn sample_all<T: Sample>(op: &GridSample, space: &Space, args: &mut Args<'_>) -> Run {
    let (x, y) = (args.input::<T>(0), args.output::<T>(0));
    let places_of = &mut args.scratch::<f64>()[..space.output * space.axes.len()];
    let block = space.channels * space.output;
    if block == 0 {
        return Ok(());
    }
    for (sample, y) in y.chunks_exact_mut(block).enumerate() {
        places(args, op.grid, sample * places_of.len(), places_of);
        let (grid, x) = (&*places_of, &x[sample * space.channels * space.input..][..space.channels * space.input]);
        let grain = (GRAIN / 8).div_ceil(space.output);
        split::rows(args.par(), y, space.output, grain, |_, first, y| {
            let channels = y.len() / space.output;
            for (at, place) in grid.chunks_exact(space.axes.len()).enumerate() {
                let taps = op.taps(space, place);
                for channel in 0..channels {
                    let x = &x[(first + channel) * space.input..][..space.input];
                    let mut sum = T::Wide::default();
                    for &(from, weight) in &taps {
                        // What is outside is 0, and not infinity times 0.
                        if from != NOWHERE {
                            sum += x[from].wide() * T::weight(weight);
                        }
                    }
                    y[channel * space.output + at] = T::cut(sum);
                }
            }
        })?;
    }
    Ok(())
}

type Taps = SmallVec<[(usize, f64); MOST_TAPS]>;

impl GridSample {
    /// Elements and weights of a place. The last number of a place is about the outermost axis.
    fn taps(&self, space: &Space, place: &[f64]) -> Taps {
        let mut taps = Taps::from_slice(&[(0, 1.0)]);
        for (&(len, step), &at) in space.axes.iter().zip(place.iter().rev()) {
            let (axis, count) = self.axis(len, at);
            let spread = |&(from, weight): &(usize, f64)| {
                axis[..count].iter().map(move |&(place, more)| match from == NOWHERE || place == NOWHERE {
                    true => (NOWHERE, 0.0),
                    false => (from + place * step, weight * more),
                })
            };
            taps = taps.iter().flat_map(spread).collect();
        }
        taps
    }

    /// Places and weights on one axis, and how many they are.
    fn axis(&self, len: usize, at: f64) -> ([(usize, f64); 4], usize) {
        let length = len as f64; // exact
        let x = match self.corners {
            true => (at + 1.0) / 2.0 * (length - 1.0),
            false => ((at + 1.0) * length - 1.0) / 2.0,
        };
        let x = if self.mode == Mode::Nearest { x.round_ties_even() } else { x };
        let (least, most) = if self.corners { (0.0, length - 1.0) } else { (-0.5, length - 0.5) };
        let x = match self.padding {
            _ if (least..=most).contains(&x) => x,
            Padding::Zeros => x,
            Padding::Border => x.clamp(0.0, length - 1.0),
            Padding::Reflection => reflect(x, least, most),
        };
        let element = |place: f64| match self.padding {
            _ if (0.0..length).contains(&place) => place as usize, // an element
            Padding::Zeros => NOWHERE,
            Padding::Border => place.clamp(0.0, length - 1.0) as usize, // an element
            Padding::Reflection => reflect(place, least, most).clamp(0.0, length - 1.0) as usize, // an element
        };
        let floor = x.floor();
        let rest = x - floor;
        let mut taps = [(NOWHERE, 0.0); 4];
        let count = match self.mode {
            Mode::Nearest => {
                taps[0] = (element(x), 1.0);
                1
            }
            Mode::Linear => {
                taps[0] = (element(floor), 1.0 - rest);
                taps[1] = (element(floor + 1.0), rest);
                2
            }
            Mode::Cubic => {
                for (k, tap) in (0u8..).zip(&mut taps) {
                    let place = floor + f64::from(k) - 1.0;
                    *tap = (element(place), cubic(rest + 1.0 - f64::from(k)));
                }
                4
            }
        };
        (taps, count)
    }
}

/// Mirrors a place at both ends until it is between them.
fn reflect(x: f64, least: f64, most: f64) -> f64 {
    let range = most - least;
    if range <= 0.0 {
        return least;
    }
    let beyond = if x < least {
        least - x
    } else if x > most {
        x - most
    } else {
        return x;
    };
    let turns = (beyond / range).floor();
    let rest = beyond - turns * range;
    // After an even number of whole lengths it has come back from the end that it left by.
    if (x < least) == (turns % 2.0 == 0.0) { least + rest } else { most - rest }
}

/// The cubic convolution kernel with the coefficient -0.75.
fn cubic(distance: f64) -> f64 {
    const A: f64 = -0.75;
    let t = distance.abs();
    if t <= 1.0 { ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0 } else { ((A * t - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A }
}

/// Places of a grid under an affine map.
struct Affine {
    corners: bool,
    /// Axes of the space.
    axes: usize,
}

impl Op for Affine {
    /// Lengths of the axes, outermost first.
    type Bound = SmallVec<[usize; 3]>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        if rank != 3 {
            return Err(Reject::rank(format!("input 0 has rank {rank}, 3 is needed")));
        }
        let axes = match node.out()?.rank() {
            rank @ (4 | 5) => rank - 2,
            rank => return Err(Reject::rank(format!("output 0 has rank {rank}, 4 or 5 is needed"))),
        };
        Ok(Affine { corners: node.int_if("align_corners").unwrap_or(0) != 0, axes })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 2.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, lengths: &mut SmallVec<[usize; 3]>) -> Run {
        let (theta, out) = (shapes.input(0), shapes.output(0));
        let need = [out[0], self.axes as i64, self.axes as i64 + 1]; // 2 or 3 axes
        if theta != need || out[self.axes + 1] != need[1] {
            return Err(Fault::data(format!("input 0 has dimensions {theta:?}, {need:?} are needed for {out:?}")));
        }
        *lengths = out[1..=self.axes].iter().map(|&n| size(n)).collect();
        Ok(())
    }
}

fn affine<T: Sample + Element>(op: &Affine, lengths: &SmallVec<[usize; 3]>, args: &mut Args<'_>) -> Run {
    let (theta, y) = (args.input::<T>(0), args.output::<T>(0));
    let (axes, points) = (op.axes, lengths.iter().product::<usize>());
    // Middle of an element, from -1 to 1.
    let middle = |at: usize, len: usize| match op.corners {
        true if len == 1 => 0.0,
        true => 2.0 * at as f64 / (len as f64 - 1.0) - 1.0,
        false => (2.0 * at as f64 + 1.0) / len as f64 - 1.0,
    };
    Ok(split::rows(args.par(), y, axes, GRAIN / 8, |_, first, y| {
        for (number, y) in (first..).zip(y.chunks_exact_mut(axes)) {
            let theta = &theta[number / points * axes * (axes + 1)..][..axes * (axes + 1)];
            let (mut point, mut rest) = ([0.0; 3], number % points);
            // The innermost axis is the first coordinate.
            for (x, &len) in point.iter_mut().zip(lengths.iter().rev()) {
                *x = middle(rest % len, len);
                rest /= len;
            }
            for (y, row) in y.iter_mut().zip(theta.chunks_exact(axes + 1)) {
                let moved = row.iter().zip(&point[..axes]).map(|(&a, &x)| T::exact(a) * x).sum::<f64>();
                *y = T::round(T::weight(moved + T::exact(row[axes])));
            }
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    /// Corners of -1 and 1 on the middles of 3 x 4 elements, then beyond them.
    const PLACES: [f32; 12] = [-1.0, -1.0, 1.0, 1.0, 0.0, 0.0, 1.0 / 3.0, -0.5, -3.0, 1.0, 1.5, 1.5];

    fn sample(mode: &str, padding: &str, corners: i64) -> Vec<f32> {
        let x = Tensor::from_fn(&[1, 1, 3, 4], |k| k as f32);
        let case = Case::new("GridSample", 22).text("mode", mode).text("padding_mode", padding);
        let case = case.int("align_corners", corners).input(&x).input(&Tensor::new(&[1, 2, 3, 2], &PLACES));
        case.output(DType::F32, &[1, 1, 2, 3]).run()[0].to_vec()
    }

    #[test]
    fn places_of_a_ramp() {
        // A ramp is `x + 4 y`: 0 and 11 at the corners, 5.5 in the middle, (2, 0.5) at the fourth place. The fifth place
        // is x = -3, y = 2; the sixth x = 3.75, y = 2.5.
        let cases: &[(&str, &str, [f32; 6])] = &[
            ("linear", "border", [0.0, 11.0, 5.5, 4.0, 8.0, 11.0]),
            ("linear", "zeros", [0.0, 11.0, 5.5, 4.0, 0.0, 1.375]),
            ("linear", "reflection", [0.0, 11.0, 5.5, 4.0, 11.0, 8.25]),
            ("nearest", "border", [0.0, 11.0, 6.0, 2.0, 8.0, 11.0]),
            ("nearest", "zeros", [0.0, 11.0, 6.0, 2.0, 0.0, 0.0]),
        ];
        for &(mode, padding, want) in cases {
            let got = sample(mode, padding, 1);
            assert_close(&Tensor::new(&[6], &got), &Tensor::new(&[6], &want), 1e-5);
        }
        // On elements, a cubic is the elements.
        assert_close(&Tensor::new(&[2], &sample("cubic", "border", 1)[..2]), &Tensor::new(&[2], &[0.0f32, 11.0]), 1e-5);
    }

    #[test]
    fn channels_batches_and_threads() {
        let x = Tensor::from_fn(&[2, 3, 5, 4], |k| (k as f32 * 0.7).sin());
        let grid = Tensor::from_fn(&[2, 6, 7, 2], |k| (k as f32 * 0.37).cos() * 1.3);
        let (elements, places) = (x.to_vec::<f32>(), grid.to_vec::<f32>());
        let want = Tensor::from_fn(&[2, 3, 6, 7], |k| {
            let (at, plane) = (k % 42, k / 42);
            let place = &places[(plane / 3 * 42 + at) * 2..][..2];
            let (px, py) = (((place[0] + 1.0) * 4.0 - 1.0) / 2.0, ((place[1] + 1.0) * 5.0 - 1.0) / 2.0);
            let mut sum = 0.0;
            for (dx, dy) in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)] {
                let (cx, cy) = (px.floor() + dx, py.floor() + dy);
                let weight = (1.0 - (px - cx).abs()) * (1.0 - (py - cy).abs());
                if (0.0..4.0).contains(&cx) && (0.0..5.0).contains(&cy) {
                    sum += weight * elements[plane * 20 + cy as usize * 4 + cx as usize];
                }
            }
            sum
        });
        on_all("GridSample", 22, |case| {
            let case = case.text("mode", "linear").text("padding_mode", "zeros").input(&x).input(&grid);
            assert_close(&case.output(DType::F32, &[2, 3, 6, 7]).run()[0], &want, 1e-5);
        });
    }

    #[test]
    fn places_that_are_no_numbers_stay_inside() {
        let x = Tensor::new(&[1, 1, 3], &[1i32, 2, 3]);
        let wild = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30];
        for mode in ["nearest", "linear", "cubic"] {
            for padding in ["zeros", "border", "reflection"] {
                let case = Case::new("GridSample", 22).text("mode", mode).text("padding_mode", padding).input(&x);
                let case = case.input(&Tensor::new(&[1, 4, 1], &wild)).output(DType::I32, &[1, 1, 4]);
                assert_eq!(case.run()[0].dims, [1, 1, 4], "{mode} {padding}");
            }
        }
    }

    #[test]
    fn affine_grids() {
        let theta = Tensor::new(&[1, 2, 3], &[2.0f32, 0.0, 0.5, 0.0, 1.0, -1.0]);
        // Rows of 2, columns of 3.
        let size = Tensor::new(&[4], &[1i64, 1, 2, 3]);
        for (corners, xs, ys) in [(1, [-1.0, 0.0, 1.0], [-1.0, 1.0]), (0, [-2.0 / 3.0, 0.0, 2.0 / 3.0], [-0.5, 0.5f32])]
        {
            let want = Tensor::from_fn(&[1, 2, 3, 2], |k| match k % 2 {
                0 => 2.0 * xs[k / 2 % 3] + 0.5,
                _ => ys[k / 6] - 1.0,
            });
            on_all("AffineGrid", 20, |case| {
                let case = case.int("align_corners", corners).input(&theta).input(&size);
                assert_close(&case.output(DType::F32, &[1, 2, 3, 2]).run()[0], &want, 1e-6);
            });
        }
        let half = Tensor::new(&[1, 2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0].map(F16::round));
        let y = Case::new("AffineGrid", 20).input(&half).input(&size).output(DType::F16, &[1, 2, 3, 2]).run();
        assert_eq!(y[0].to_vec::<F16>()[2].wide(), 0.0);
    }

    #[test]
    fn refusals() {
        let (x, grid) = (Tensor::random(&[1, 1, 3, 4], 1), Tensor::random(&[1, 2, 3, 3], 1));
        let case = Case::new("GridSample", 22).input(&x).input(&grid).output(DType::F32, &[1, 1, 2, 3]);
        let error = case.try_run().unwrap_err();
        assert!(error.contains("a grid of [1, 2, 3, 3] does not fit an input of [1, 1, 3, 4]"), "{error}");
        for (name, value) in [("mode", "area"), ("padding_mode", "none")] {
            let case = Case::new("GridSample", 22).text(name, value).input(&x).input(&grid);
            let (code, text) = case.output(DType::F32, &[1, 1, 2, 3]).rejection();
            assert_eq!(code, RejectCode::Attribute);
            assert_eq!(text, format!("GridSample: attribute {name} = {value} is not known"));
        }
        let theta = Tensor::random(&[2, 3], 1);
        let size = Tensor::new(&[4], &[1i64, 1, 2, 3]);
        let case = Case::new("AffineGrid", 20).input(&theta).input(&size).output(DType::F32, &[1, 2, 3, 2]);
        assert_eq!(case.rejection(), (RejectCode::Rank, "AffineGrid: input 0 has rank 2, 3 is needed".to_owned()));
    }
}
