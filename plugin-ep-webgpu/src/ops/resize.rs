//! Resampling along axes. Where each result reads, and with what weights, is found by the host; the shader only sums.

use super::{ALL, FLOATS, input, list, on, output, told};
use crate::recipe::{Buf, Build, Recipe, word};
use crate::shader::Elem;
use ortolan_ep_kit::{Cost, Fault, Kernel, NodeView, Op, Reject, Shapes, resolve_axis};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Resize", (13, 19), "resize", on!(Resize)).types(&[("T1", ALL), ("T2", FLOATS)]).unread(&[1, 2, 3]),
    Kernel::new("Upsample", (9, 10), "upsample", on!(Resize)).types(&[("T", ALL)]).unread(&[1]),
];

#[derive(Debug, Clone, Copy)]
enum Mode {
    Nearest(Round),
    Linear,
    Cubic(f64),
}

/// Place in an axis of `len` elements of element `i` of `out`.
type Place = fn(i: f64, len: f64, out: f64, scale: f64) -> f64;

const PLACES: &[(&str, Place)] = &[
    ("align_corners", |i, len, out, _| if out <= 1.0 { 0.0 } else { i * (len - 1.0) / (out - 1.0) }),
    ("asymmetric", |i, _, _, scale| i / scale),
    ("half_pixel", |i, _, _, scale| (i + 0.5) / scale - 0.5),
    ("half_pixel_symmetric", |i, len, out, scale| {
        let middle = len / 2.0 * (1.0 - out / (scale * len));
        middle + (i + 0.5) / scale - 0.5
    }),
    ("pytorch_half_pixel", |i, _, out, scale| if out <= 1.0 { 0.0 } else { (i + 0.5) / scale - 0.5 }),
];

/// Which element a place lies in.
type Round = fn(f64) -> f64;

const ROUNDS: &[(&str, Round)] = &[
    ("ceil", f64::ceil),
    ("floor", f64::floor),
    ("round_prefer_ceil", |x| (x + 0.5).floor()),
    ("round_prefer_floor", |x| (x - 0.5).ceil()),
];

/// See the module.
#[derive(Debug)]
struct Resize {
    elem: Elem,
    mode: Mode,
    place: Place,
    antialias: bool,
    exclude_outside: bool,
    axes: Vec<usize>,
    /// `None`: sizes say how.
    scales: Option<Vec<f64>>,
    policy: u8,
}

impl Op for Resize {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (rank, upsample) = (node.needs(0)?.rank(), node.op() == "Upsample");
        output(node, 0)?;
        let elem = input(node, 0)?;
        let text = |name: &str, default: &'static str| node.text(name).unwrap_or(default).to_owned();
        let unknown = |name: &str, value: &str| Reject::attribute(format!("attribute {name} = {value} is not done"));
        let rounding = text("nearest_mode", if upsample { "floor" } else { "round_prefer_floor" });
        let mode = match &*text("mode", "nearest") {
            "nearest" => {
                let round =
                    ROUNDS.iter().find(|r| r.0 == rounding).ok_or_else(|| unknown("nearest_mode", &rounding))?;
                Mode::Nearest(round.1)
            }
            "linear" | "bilinear" => Mode::Linear,
            "cubic" => Mode::Cubic(node.float_if("cubic_coeff_a").unwrap_or(-0.75).into()),
            other => return Err(unknown("mode", other)),
        };
        if !matches!(mode, Mode::Nearest(_)) && !matches!(elem, Elem::F32 | Elem::F16) {
            return Err(Reject::dtype("only floats are interpolated; mode nearest takes all types"));
        }
        let name = text("coordinate_transformation_mode", if upsample { "asymmetric" } else { "half_pixel" });
        let place = PLACES.iter().find(|p| p.0 == name);
        let place = place.ok_or_else(|| unknown("coordinate_transformation_mode", &name))?.1;
        let axes: Option<Vec<usize>> = match node.ints("axes") {
            Some(axes) => axes.iter().map(|&a| resolve_axis(a, rank)).collect(),
            None => Some((0..rank).collect()),
        };
        let axes = axes.ok_or_else(|| Reject::attribute(format!("attribute axes has no axes of rank {rank}")))?;
        let at = if upsample { 1 } else { 2 };
        let given = |k: usize| node.input(k).filter(|v| v.fixed_dim(0) != Some(0));
        let scales = match (given(at), if upsample { None } else { given(3) }) {
            (_, Some(_)) => {
                told(node, 3, "sizes")?;
                None
            }
            (Some(scales), None) => {
                let numbers = scales.fixed_floats().filter(|s| s.len() == axes.len());
                let numbers = numbers.ok_or_else(|| {
                    Reject::shape(format!("input {at} (scales) is no constant with a number per axis"))
                })?;
                Some(numbers.iter().map(|&s| s.into()).collect())
            }
            (None, None) => return Err(Reject::shape("neither scales nor sizes are given")),
        };
        let policy = match &*text("keep_aspect_ratio_policy", "stretch") {
            "stretch" => 0,
            "not_larger" => 1,
            "not_smaller" => 2,
            other => return Err(unknown("keep_aspect_ratio_policy", other)),
        };
        let flag = |name: &str| node.int_if(name).unwrap_or(0) != 0;
        let (antialias, exclude_outside) = (flag("antialias"), flag("exclude_outside"));
        Ok(Resize { elem, mode, place, antialias, exclude_outside, axes, scales, policy })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.1))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, y) = (shapes.input(0), shapes.output(0));
        if x.len() != y.len() || (x.contains(&0) && !y.contains(&0)) {
            return Err(Fault::data(format!("{x:?} does not become {y:?}")));
        }
        let count = shapes.output_len(0) as u64;
        if count == 0 {
            return Ok(());
        }
        let scales = self.scales(shapes)?;
        let nearest = matches!(self.mode, Mode::Nearest(_));
        let (mut params, mut table) = (vec![word(count)?, word(x.len())?, 1], Vec::new());
        let (mut step, mut total) = (x.iter().product::<i64>(), 1u64);
        for k in 0..x.len() {
            step /= x[k];
            let taps = self.taps(x[k] as f64, y[k] as f64, scales[k]);
            let width = taps.first().map_or(1, Vec::len);
            total = total.saturating_mul(width as u64);
            params.extend([word(y[k])?, word(step)?, word(width)?, word(table.len())?]);
            for (index, weight) in taps.iter().flatten() {
                table.extend([*index as u32, (*weight as f32).to_bits()]);
            }
        }
        params[2] = word(total)?;
        let elem = if nearest { self.elem.moved() } else { self.elem };
        recipe.tables.push(table);
        let (name, template) = match nearest {
            true => ("resize_nearest", include_str!("../shaders/resize_nearest.wgsl")),
            false => ("resize", include_str!("../shaders/resize.wgsl")),
        };
        let buffers = vec![(Buf::In(0), elem), (Buf::Table(0), Elem::U32), (Buf::Out(0), elem)];
        recipe.each(Build { name, template, buffers, places: Vec::new(), params }, count)
    }
}

impl Resize {
    /// Scale of every axis.
    fn scales(&self, shapes: &Shapes<'_>) -> Result<Vec<f64>, Fault> {
        let (x, y) = (shapes.input(0), shapes.output(0));
        let mut all: Vec<f64> = x.iter().map(|_| 1.0).collect();
        let given = match &self.scales {
            Some(scales) => scales.clone(),
            None => {
                let sizes = list(shapes, 3)?.unwrap_or_default();
                if sizes.len() != self.axes.len() {
                    return Err(Fault::data(format!("there are {} sizes for {} axes", sizes.len(), self.axes.len())));
                }
                let ratios = sizes.iter().zip(&self.axes).map(|(&n, &axis)| n as f64 / x[axis] as f64);
                let common = match self.policy {
                    1 => Some(ratios.clone().fold(f64::INFINITY, f64::min)),
                    2 => Some(ratios.clone().fold(0.0, f64::max)),
                    _ => None,
                };
                ratios.map(|ratio| common.unwrap_or(ratio)).collect()
            }
        };
        for (&axis, &scale) in self.axes.iter().zip(&given) {
            all[axis] = scale;
        }
        match all.iter().position(|s| !(*s > 0.0 && s.is_finite())) {
            Some(axis) => Err(Fault::data(format!("{} is no scale of axis {axis} from {x:?} to {y:?}", all[axis]))),
            None => Ok(all),
        }
    }

    /// For each element of an axis of the output, the elements of the input that it is made of, with their weights.
    fn taps(&self, len: f64, out: f64, scale: f64) -> Vec<Vec<(f64, f64)>> {
        let whole = 0..out as u64;
        if len == out && scale == 1.0 {
            return whole.map(|i| vec![(i as f64, 1.0)]).collect();
        }
        let inside = |at: f64| at.clamp(0.0, len - 1.0);
        // Below scale 1 an antialiasing filter is as much wider.
        let narrow = if self.antialias { scale.min(1.0) } else { 1.0 };
        whole
            .map(|i| {
                let x = (self.place)(i as f64, len, out, scale);
                let (reach, weight): (f64, Box<dyn Fn(f64) -> f64>) = match self.mode {
                    Mode::Nearest(round) => return vec![(inside(round(x)), 1.0)],
                    Mode::Linear => (1.0, Box::new(|d: f64| (1.0 - d.abs()).max(0.0))),
                    Mode::Cubic(a) => (2.0, Box::new(move |d: f64| cubic(a, d.abs()))),
                };
                let (base, first) = (x.floor(), (-reach / narrow).floor() + 1.0);
                let count = (2.0 - 2.0 * first) as u64;
                let mut taps: Vec<(f64, f64)> = (0..count)
                    .map(|k| {
                        let at = base + first + k as f64;
                        let outside = self.exclude_outside && at != inside(at);
                        (inside(at), if outside { 0.0 } else { weight((at - x) * narrow) })
                    })
                    .collect();
                let sum: f64 = taps.iter().map(|t| t.1).sum();
                if sum != 0.0 && (self.antialias || self.exclude_outside) {
                    taps.iter_mut().for_each(|t| t.1 /= sum);
                }
                taps
            })
            .collect()
    }
}

/// Keys' cubic convolution kernel.
fn cubic(a: f64, d: f64) -> f64 {
    match d {
        d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
        _ => 0.0,
    }
}
