//! What lies in regions of pictures, brought to one size: sampled between pixels (`RoiAlign`), or the greatest pixel of each
//! cell (`MaxRoiPool`).
//!
//! Coordinates are computed in the type that elements are computed in. Where samples fall is the same for all channels of a
//! region, and for rows apart from columns: two short tables in the scratch memory say it.

use crate::ops::cost;
use crate::ops::float::agree;
use crate::ops::lane::{Number, Real};
use crate::ops::value::Value;
use crate::ops::workers::Workers;
use core::ops::Range;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// A coordinate.
pub(super) trait Place: Real {
    /// Towards zero; 0 for NaN and below.
    fn index(self) -> usize;
    fn from_index(at: usize) -> Self;
    fn double(self) -> f64;
    fn from_double(x: f64) -> Self;
}

macro_rules! places {
    ($($t:ty)*) => { $(
        impl Place for $t {
            fn index(self) -> usize { self as usize } // saturates
            fn from_index(at: usize) -> $t { at as $t } // pictures have fewer than 2^24 rows, as `bind` checks
            fn double(self) -> f64 { self.into() }
            fn from_double(x: f64) -> $t { x as $t } // rounds
        }
    )* };
}
places!(f32 f64);

/// Sizes of pictures and of what regions become.
#[derive(Default)]
pub(super) struct Bound {
    images: usize,
    channels: usize,
    height: usize,
    width: usize,
    rows: usize,
    columns: usize,
}

impl Bound {
    fn bind(&mut self, shapes: &Shapes<'_>, numbers: usize) -> Result<(), Fault> {
        let (x, y) = (shapes.input(0), shapes.output(0));
        let (&[images, channels, height, width], &[regions, _, rows, columns]) = (x, y) else {
            return Err(Fault::data(format!("pictures of {x:?} do not become {y:?}")));
        };
        let [images, channels, height, width] = [images, channels, height, width].map(size);
        *self = Bound { images, channels, height, width, rows: size(rows), columns: size(columns) };
        agree("input 1 (rois)", shapes.input_len(1), size(regions) * numbers)?;
        agree("output 0", shapes.output_len(0), size(regions) * channels * self.cells())?;
        if height.max(width) >= 1 << 24 || size(regions) > 0 && height * width == 0 {
            return Err(Fault::data(format!("there are no regions in pictures of {x:?}")));
        }
        Ok(())
    }

    fn cells(&self) -> usize {
        self.rows * self.columns
    }

    fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// The picture that a region is in.
    fn image(&self, number: f64, input: usize, region: usize) -> Result<usize, Fault> {
        let index = (number >= 0.0 && number < self.images as f64).then_some(number as usize); // below 2^53
        index.ok_or_else(|| {
            Fault::data(format!("input {input} says picture {number} for region {region}, there are {}", self.images))
        })
    }
}

fn ranks(node: &NodeView<'_>) -> Result<(), Reject> {
    for (i, name, rank) in [(0, "X", 4), (1, "rois", 2)] {
        let have = node.needs(i)?.rank();
        if have != rank {
            return Err(Reject::rank(format!("input {i} ({name}) has rank {have}, {rank} is needed")));
        }
    }
    Ok(())
}

/// Samples at places of a grid in each cell, their mean or greatest.
pub(super) struct Align {
    half_pixel: bool,
    mean: bool,
    /// Samples along each side of a cell; 0 for one a pixel.
    samples: usize,
    scale: f32,
    /// Bytes of a coordinate.
    bytes: usize,
}

/// Samples of all cells along one side of a region: more would take longer than the picture is worth.
const MOST_SAMPLES: usize = 1 << 14;
/// Numbers of a sample: two pixels and their weights.
const SAMPLE: usize = 4;

impl Op for Align {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        ranks(node)?;
        let half_pixel = match node.text("coordinate_transformation_mode").unwrap_or("half_pixel") {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => {
                return Err(Reject::attribute(format!(
                    "attribute coordinate_transformation_mode = {other} is unknown"
                )));
            }
        };
        let mean = match node.text("mode").unwrap_or("avg") {
            "avg" => true,
            "max" => false,
            other => return Err(Reject::attribute(format!("attribute mode = {other} is neither avg nor max"))),
        };
        let ratio = node.int("sampling_ratio")?;
        let samples = usize::try_from(ratio).ok().filter(|&n| n <= MOST_SAMPLES);
        let samples = samples.ok_or_else(|| {
            Reject::attribute(format!("attribute sampling_ratio = {ratio} is not 0 to {MOST_SAMPLES}"))
        })?;
        let bytes = if node.needs(0)?.dtype().bits() == 64 { 8 } else { 4 };
        Ok(Align { half_pixel, mean, samples, scale: node.float("spatial_scale")?, bytes })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 8.0 * self.samples.max(2).pow(2) as f64)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        bound.bind(shapes, 4)?;
        agree("input 2 (batch_indices)", shapes.input_len(2), shapes.input_len(1) / 4)
    }

    fn scratch(&self, _: &Bound, width: usize) -> usize {
        2 * MOST_SAMPLES * SAMPLE * self.bytes * width
    }
}

pub(super) fn align<T: Value<Wide: Place>>(op: &Align, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, rois, indices) = (args.input::<T>(0), args.input::<T>(1), args.input::<i64>(2));
    let grids = |region: usize| {
        let corners = core::array::from_fn(|k| rois[region * 4 + k].wide());
        Grid::new(op, bound, corners).ok_or_else(|| {
            Fault::data(format!("input 1 (rois) has region {region} of {corners:?}: it wants too many samples"))
        })
    };
    for (region, &index) in indices.iter().enumerate() {
        bound.image(index as f64, 2, region)?; // one beyond 2^53 is far outside
        grids(region)?;
    }
    let row = bound.channels * bound.cells();
    let workers = Workers::new(args.scratch::<T::Wide>(), 2 * MOST_SAMPLES * SAMPLE);
    Ok(split::rows(args.par(), args.output::<T>(0), row, 1, |worker, first, rows| {
        workers.with(worker, |tables| {
            let (down, across) = tables.split_at_mut(MOST_SAMPLES * SAMPLE);
            for (k, y) in rows.chunks_exact_mut(row.max(1)).enumerate() {
                let Ok(grid) = grids(first + k) else { continue }; // checked above
                grid.table(1, bound.height, bound.rows, down);
                grid.table(0, bound.width, bound.columns, across);
                let image = size(indices[first + k]) * bound.channels * bound.pixels();
                for (channel, y) in y.chunks_exact_mut(bound.cells().max(1)).enumerate() {
                    let plane = &x[image + channel * bound.pixels()..][..bound.pixels()];
                    grid.sample(op.mean, bound, plane, (down, across), y);
                }
            }
        });
    })?)
}

/// Where samples of a region are: x, then y.
struct Grid<W> {
    start: [W; 2],
    /// Size of a cell.
    cell: [W; 2],
    /// Samples of a cell.
    count: [usize; 2],
}

impl<W: Place> Grid<W> {
    /// The grid of a region between two corners, x before y; `None` if it has too many samples.
    fn new(op: &Align, bound: &Bound, corners: [W; 4]) -> Option<Self> {
        let (scale, offset) = (W::of(op.scale), W::of(if op.half_pixel { 0.5 } else { 0.0 }));
        let at = corners.map(|x| x.times(scale).minus(offset));
        let cells = [bound.columns, bound.rows];
        let mut grid = Grid { start: [at[0], at[1]], cell: [W::default(); 2], count: [0; 2] };
        for d in 0..2 {
            let mut side = at[2 + d].minus(at[d]);
            let one = W::of(1.0);
            // Malformed regions are one pixel large.
            side = if op.half_pixel || side >= one { side } else { one };
            grid.cell[d] = side.over(W::from_index(cells[d].max(1)));
            let pixels = grid.cell[d].double().ceil();
            grid.count[d] = if op.samples > 0 { op.samples } else { pixels as usize }; // saturates; 0 for NaN
            if grid.count[d].checked_mul(cells[d]).is_none_or(|all| all > MOST_SAMPLES) {
                return None;
            }
        }
        Some(grid)
    }

    /// Pixels and weights of all samples along a side of `len` pixels.
    fn table(&self, d: usize, len: usize, cells: usize, to: &mut [W]) {
        let count = W::from_index(self.count[d].max(1));
        let samples = (0..cells * self.count[d]).map(|k| (k / self.count[d], k % self.count[d]));
        for ((cell, sample), to) in samples.zip(to.chunks_exact_mut(SAMPLE)) {
            let half = W::from_index(sample).plus(W::of(0.5));
            let within = half.times(self.cell[d]).over(count);
            let at = self.start[d].plus(W::from_index(cell).times(self.cell[d])).plus(within);
            to.fill(W::default());
            if !(at >= W::of(-1.0) && at <= W::from_index(len)) {
                continue;
            }
            let at = if at > W::default() { at } else { W::default() };
            let (low, rest) = match at.index() {
                low if low + 1 >= len => (len - 1, W::default()),
                low => (low, at.minus(W::from_index(low))),
            };
            let weights = [W::of(1.0).minus(rest), rest];
            let high = W::from_index((low + 1).min(len - 1));
            to.copy_from_slice(&[W::from_index(low), high, weights[0], weights[1]]);
        }
    }

    fn sample<T: Value<Wide = W>>(
        &self,
        mean: bool,
        bound: &Bound,
        plane: &[T],
        (down, across): (&[W], &[W]),
        y: &mut [T],
    ) {
        let [columns, rows] = self.count;
        let count = W::from_index((rows * columns).max(1));
        for (cell, y) in y.iter_mut().enumerate() {
            let (row, column) = (cell / bound.columns, cell % bound.columns);
            let (mut sum, mut most) = (W::default(), None::<W>);
            for v in down[row * rows * SAMPLE..][..rows * SAMPLE].chunks_exact(SAMPLE) {
                for u in across[column * columns * SAMPLE..][..columns * SAMPLE].chunks_exact(SAMPLE) {
                    let at = |v: W, u: W| plane[v.index() * bound.width + u.index()].wide();
                    let all = [
                        v[2].times(u[2]).times(at(v[0], u[0])),
                        v[2].times(u[3]).times(at(v[0], u[1])),
                        v[3].times(u[2]).times(at(v[1], u[0])),
                        v[3].times(u[3]).times(at(v[1], u[1])),
                    ];
                    if mean {
                        sum = all.iter().fold(sum, |sum, &x| sum.plus(x));
                        continue;
                    }
                    // The standard's maximum is over weighted pixels, one by one.
                    let greatest = all.into_iter().chain(most).reduce(|a, b| if b > a { b } else { a });
                    most = greatest;
                }
            }
            *y = T::of(if mean { sum.over(count) } else { most.unwrap_or_default() });
        }
    }
}

/// The greatest pixel of each cell.
pub(super) struct MaxPool {
    scale: f32,
}

impl Op for MaxPool {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        ranks(node)?;
        Ok(MaxPool { scale: node.float("spatial_scale")? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 20.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        bound.bind(shapes, 5)
    }
}

pub(super) fn max_pool<T: Value<Wide: Place>>(op: &MaxPool, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, rois) = (args.input::<T>(0), args.input::<T>(1));
    for (region, roi) in rois.chunks_exact(5).enumerate() {
        bound.image(roi[0].wide().double(), 1, region)?;
    }
    let row = bound.channels * bound.cells();
    Ok(split::rows(args.par(), args.output::<T>(0), row, 1, |_, first, rows| {
        for (k, y) in rows.chunks_exact_mut(row.max(1)).enumerate() {
            let roi: [f64; 5] = core::array::from_fn(|i| rois[(first + k) * 5 + i].wide().double());
            // Corners are rounded in the type of coordinates, halves away from zero.
            let at = |i: usize| T::Wide::from_double(roi[i]).times(T::Wide::of(op.scale)).double().round();
            let image = size(roi[0] as i64) * bound.channels * bound.pixels(); // checked above
            for (place, y) in y.iter_mut().enumerate() {
                let (channel, cell) = (place / bound.cells(), place % bound.cells());
                let rows = cells(at(2), at(4), bound.rows, cell / bound.columns, bound.height);
                let columns = cells(at(1), at(3), bound.columns, cell % bound.columns, bound.width);
                let plane = &x[image + channel * bound.pixels()..][..bound.pixels()];
                let lines = rows.map(|row| &plane[row * bound.width..][columns.clone()]);
                let most = lines.flatten().copied().reduce(|a, b| if b > a { b } else { a });
                *y = most.unwrap_or_default();
            }
        }
    })?)
}

/// Pixels of cell `cell` between two edges, both of which belong to the region, inside of a picture.
fn cells(start: f64, end: f64, count: usize, cell: usize, len: usize) -> Range<usize> {
    let size = (end - start + 1.0).max(1.0) / count as f64;
    let from = (cell as f64 * size).floor() + start;
    let to = ((cell + 1) as f64 * size).ceil() + start;
    let inside = |x: f64| x.clamp(0.0, len as f64) as usize; // 0 for NaN
    inside(from).min(inside(to))..inside(to)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{OpTest, Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    const X: [i64; 4] = [2, 3, 9, 7];

    fn pixel(x: &Tensor, [n, c]: [usize; 2], y: f64, u: f64) -> [f64; 4] {
        let (h, w) = (X[2] as f64, X[3] as f64);
        if y < -1.0 || y > h || u < -1.0 || u > w {
            return [0.0; 4];
        }
        let split = |at: f64, len: f64| {
            let at = at.max(0.0);
            if at.floor() >= len - 1.0 {
                (len - 1.0, len - 1.0, 0.0)
            } else {
                (at.floor(), at.floor() + 1.0, at.fract())
            }
        };
        let ((y0, y1, fy), (x0, x1, fx)) = (split(y, h), split(u, w));
        let values = x.to_vec::<f32>();
        let at = |y: f64, u: f64| f64::from(values[((n * 3 + c) * 9 + y as usize) * 7 + u as usize]);
        [
            (1.0 - fy) * (1.0 - fx) * at(y0, x0),
            (1.0 - fy) * fx * at(y0, x1),
            fy * (1.0 - fx) * at(y1, x0),
            fy * fx * at(y1, x1),
        ]
    }

    fn naive(x: &Tensor, rois: &[f32], half: bool, mean: bool, ratio: usize, scale: f32) -> Vec<f32> {
        let (rows, columns) = (2usize, 3usize);
        let mut out = Vec::new();
        for (r, roi) in rois.chunks(4).enumerate() {
            let at: Vec<f64> = roi.iter().map(|&v| f64::from(v * scale) - if half { 0.5 } else { 0.0 }).collect();
            let side = |d: usize| if half { at[2 + d] - at[d] } else { (at[2 + d] - at[d]).max(1.0) };
            let (cw, ch) = (side(0) / columns as f64, side(1) / rows as f64);
            let count = |cell: f64| if ratio > 0 { ratio } else { cell.ceil().max(0.0) as usize };
            for (c, cell) in (0..3 * rows * columns).map(|k| (k / (rows * columns), k % (rows * columns))) {
                let (mut all, (nh, nw)) = (Vec::new(), (count(ch), count(cw)));
                for (i, j) in (0..nh * nw).map(|k| (k / nw, k % nw)) {
                    let y = at[1] + (cell / columns) as f64 * ch + (i as f64 + 0.5) * ch / nh as f64;
                    let u = at[0] + (cell % columns) as f64 * cw + (j as f64 + 0.5) * cw / nw as f64;
                    all.push(pixel(x, [r % 2, c], y, u));
                }
                let sum: f64 = all.iter().flatten().sum();
                let most = all.iter().flatten().copied().reduce(f64::max).unwrap_or(0.0);
                out.push(if mean { sum / (nh * nw).max(1) as f64 } else { most } as f32);
            }
        }
        out
    }

    const ROIS: &[f32] = &[0.0, 0.0, 12.0, 16.0, 3.3, -4.0, 9.1, 30.0, 5.0, 5.0, 5.0, 4.0, 1.0, 2.0, 2.5, 2.25];

    fn node(case: OpTest, half: bool, mean: bool, ratio: i64) -> OpTest {
        let mode = if half { "half_pixel" } else { "output_half_pixel" };
        let case = case.text("coordinate_transformation_mode", mode).text("mode", if mean { "avg" } else { "max" });
        case.int("sampling_ratio", ratio).float("spatial_scale", 0.5).int("output_height", 2).int("output_width", 3)
    }

    #[test]
    fn samples_like_the_definition() {
        let (x, rois) = (Tensor::random(&X, 1), Tensor::new(&[4, 4], ROIS));
        let indices = Tensor::new(&[4], &[0i64, 1, 0, 1]);
        for (half, mean, ratio) in [(true, true, 0), (false, true, 2), (true, false, 3), (false, false, 0)] {
            let want = Tensor::new(&[4, 3, 2, 3], &naive(&x, ROIS, half, mean, ratio, 0.5));
            on_all("RoiAlign", 22, |case| {
                let case = node(case, half, mean, ratio as i64).input(&x).input(&rois).input(&indices);
                assert_close(&case.output(DType::F32, &[4, 3, 2, 3]).run()[0], &want, 1e-5);
            });
        }
    }

    #[test]
    fn cells_like_the_definition() {
        let x = Tensor::random(&X, 3);
        let values = x.to_vec::<f32>();
        let rois: [[f32; 5]; 3] = [[0.0, 0.0, 0.0, 12.0, 16.0], [1.0, 4.0, 5.0, 5.0, 7.0], [1.0, 20.0, 1.0, 30.0, 3.0]];
        let mut want = Vec::new();
        for [n, x1, y1, x2, y2] in rois {
            let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(|v| (v * 0.5).round());
            let bins = |from: f32, to: f32, count: f32, k: f32, len: i64| {
                let size = (to - from + 1.0).max(1.0) / count;
                let edge = |v: f32| (v + from).clamp(0.0, len as f32) as usize;
                edge((k * size).floor())..edge(((k + 1.0) * size).ceil())
            };
            for (c, cell) in (0..18).map(|k| (k / 6, k % 6)) {
                let mut most = None::<f32>;
                for i in bins(y1, y2, 2.0, (cell / 3) as f32, 9) {
                    for j in bins(x1, x2, 3.0, (cell % 3) as f32, 7) {
                        let v = values[((n as usize * 3 + c) * 9 + i) * 7 + j];
                        most = Some(most.map_or(v, |m| m.max(v)));
                    }
                }
                want.push(most.unwrap_or(0.0));
            }
        }
        let rois = Tensor::new(&[3, 5], rois.as_flattened());
        on_all("MaxRoiPool", 22, |case| {
            let case = case.float("spatial_scale", 0.5).ints("pooled_shape", &[2, 3]).input(&x).input(&rois);
            assert_eq!(case.output(DType::F32, &[3, 3, 2, 3]).run()[0], Tensor::new(&[3, 3, 2, 3], &want));
        });
    }

    #[test]
    fn regions_of_nowhere_are_faults() {
        let x = Tensor::random(&X, 1);
        let try_one = |roi: [f32; 4], index: i64| {
            let case = node(Case::new("RoiAlign", 22), true, true, 0).input(&x).input(&Tensor::new(&[1, 4], &roi));
            case.input(&Tensor::new(&[1], &[index])).output(DType::F32, &[1, 3, 2, 3]).try_run().unwrap_err()
        };
        let error = try_one([0.0, 0.0, 4.0, 4.0], 2);
        assert!(error.contains("input 2 says picture 2 for region 0, there are 2"), "{error}");
        let error = try_one([0.0, 0.0, 1e9, 4.0], 0);
        assert!(error.contains("too many samples"), "{error}");
        let case = Case::new("MaxRoiPool", 22).float("spatial_scale", 1.0).input(&x);
        let case = case.input(&Tensor::new(&[1, 5], &[-1.0f32, 0.0, 0.0, 1.0, 1.0])).output(DType::F32, &[1, 3, 2, 3]);
        let error = case.try_run().unwrap_err();
        assert!(error.contains("input 1 says picture -1 for region 0"), "{error}");
        let (code, text) = node(Case::new("RoiAlign", 22), true, true, -1)
            .input(&x)
            .input(&Tensor::new(&[1, 4], &[0f32; 4]))
            .input(&Tensor::new(&[1], &[0i64]))
            .output(DType::F32, &[1, 3, 2, 3])
            .rejection();
        assert_eq!((code, text.contains("sampling_ratio = -1")), (RejectCode::Attribute, true), "{text}");
    }
}
