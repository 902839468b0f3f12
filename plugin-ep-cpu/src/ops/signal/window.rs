//! Windows, and the matrix that sums the bins of a spectrum into bands as wide as an ear hears them.

use crate::ops::float::{Float, Floats};
use crate::ops::narrow::{Bf16, F16, sticky};
use crate::ops::{cost, ints};
use core::f64::consts::{LN_10, TAU};
use ortolan_ep_kit::{Args, Cost, DType, Element, Fault, NodeView, Op, Reject, Shapes};

/// A type that numbers are rounded or cut to.
pub(super) trait Made: Element + Send + Sync + Default {
    fn of_double(x: f64) -> Self;
}

macro_rules! made {
    ($($t:ty)*) => { $(
        impl Made for $t {
            fn of_double(x: f64) -> $t { x as $t } // cut to integers, rounded to floats, as a cast does
        }
    )* };
}
made!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64);

impl Made for F16 {
    fn of_double(x: f64) -> F16 {
        F16::round(sticky(x))
    }
}

impl Made for Bf16 {
    fn of_double(x: f64) -> Bf16 {
        Bf16::round(sticky(x))
    }
}

/// `a - b cos x + c cos 2x` over one turn.
pub(super) struct Window {
    periodic: bool,
    sizes: DType,
}

impl Op for Window {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(Window { periodic: node.int("periodic")? != 0, sizes: node.needs(0)?.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 20.0)
    }
}

pub(super) fn blackman<T: Made>(op: &Window, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    op.fill::<T>(args, [0.42, 0.5, 0.08])
}

pub(super) fn hamming<T: Made>(op: &Window, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    op.fill::<T>(args, [25.0 / 46.0, 21.0 / 46.0, 0.0])
}

pub(super) fn hann<T: Made>(op: &Window, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    op.fill::<T>(args, [0.5, 0.5, 0.0])
}

impl Window {
    fn fill<T: Made>(&self, args: &mut Args<'_>, [a, b, c]: [f64; 3]) -> Result<(), Fault> {
        let size = one(args, 0, self.sizes, "size", 0)?;
        let turn = if self.periodic { size } else { size - 1 } as f64; // far below 2^53, or it fits no memory
        let y = args.emit::<T>(0, &[size])?;
        for (k, y) in y.iter_mut().enumerate() {
            // The window of a single value is that value whole.
            let angle = if turn > 0.0 { TAU * k as f64 / turn } else { TAU / 2.0 };
            *y = T::of_double(a - b * angle.cos() + c * (2.0 * angle).cos());
        }
        Ok(())
    }
}

/// The one element of an integer input.
fn one(args: &Args<'_>, input: usize, dtype: DType, name: &str, least: i64) -> Result<i64, Fault> {
    match ints::read(args, input, dtype).as_slice() {
        &[n] if n >= least => Ok(n),
        other => Err(Fault::data(format!("input {input} ({name}) holds {other:?}, not a number from {least} on"))),
    }
}

/// Triangles over the bins of a spectrum, at equal distances on the mel scale.
pub(super) struct Mel {
    sizes: DType,
    edges: Float,
}

impl Op for Mel {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        (0..5).try_for_each(|i| node.needs(i).map(drop))?;
        Ok(Mel { sizes: node.needs(0)?.dtype(), edges: Float::input(node, 3)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, (): &mut ()) -> Result<(), Fault> {
        match (3..5).all(|input| shapes.input_len(input) == 1) {
            true => Ok(()),
            false => Err(Fault::data("inputs 3 and 4 (the edges in hertz) are not one number each")),
        }
    }
}

/// More are neither heard nor worth a matrix.
const MOST: i64 = 1 << 24;

pub(super) fn mel<T: Made>(op: &Mel, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let [bands, len, rate] = [(0, "num_mel_bins", 1), (1, "dft_length", 1), (2, "sample_rate", 1)]
        .map(|(input, name, least)| one(args, input, op.sizes, name, least));
    let (bands, len, rate) = (bands?, len?, rate?);
    let [low, high] = [3, 4].map(|input| Floats::input(args, input, op.edges).get(0));
    if bands.max(len) > MOST {
        return Err(Fault::data(format!("inputs 0 and 1 hold {bands} and {len}, more than {MOST}")));
    }
    let bins = len / 2 + 1;
    let on_scale = |hertz: f64| 2595.0 * (hertz / 700.0).ln_1p() / LN_10;
    let step = (on_scale(high) - on_scale(low)) / (bands + 2) as f64; // small integers
    // The bin of each corner of the triangles.
    let corner = |k: i64| {
        let hertz = 700.0 * ((k as f64 * step + on_scale(low)) / 2595.0 * LN_10).exp_m1();
        ((len + 1) as f64 * hertz / rate as f64).floor()
    };
    for k in 0..bands + 2 {
        let at = corner(k);
        if !(0.0..=bins as f64).contains(&at) {
            return Err(Fault::data(format!("inputs 3 and 4 ask for {low} to {high} hertz: bin {at} of {bins}")));
        }
    }
    let y = args.emit::<T>(0, &[bins, bands])?;
    y.fill(T::default());
    for band in 0..bands {
        let [left, centre, right] = [0, 1, 2].map(|k| corner(band + k) as i64); // checked above
        let mut put = |bin: i64, x: f64| {
            let at = usize::try_from(bin * bands + band).ok().filter(|_| bin < bins);
            if let Some(y) = at.and_then(|at| y.get_mut(at)) {
                *y = T::of_double(x);
            }
        };
        if left == centre {
            put(centre, 1.0);
        }
        (left..=centre)
            .filter(|_| left < centre)
            .for_each(|bin| put(bin, (bin - left) as f64 / (centre - left) as f64));
        (centre..right).for_each(|bin| put(bin, (right - bin) as f64 / (right - centre) as f64));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::Case;
    use core::f64::consts::PI;
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{Tensor, assert_close};

    /// A window by the angle.
    type Form = fn(f64) -> f64;

    #[test]
    fn windows_of_all_kinds() {
        let kinds: [(&str, Form); 3] = [
            ("HannWindow", |x| (x / 2.0).sin().powi(2)),
            ("HammingWindow", |x| 25.0 / 46.0 - 21.0 / 46.0 * x.cos()),
            ("BlackmanWindow", |x| 0.42 - 0.5 * x.cos() + 0.08 * (2.0 * x).cos()),
        ];
        for (op, f) in kinds {
            for (size, periodic) in [(10, true), (10, false), (7, false), (0, true), (2, false)] {
                let turn = if periodic { size } else { size - 1 } as f64;
                let exact: Vec<f64> = (0..size).map(|k| f(2.0 * PI * f64::from(k) / turn)).collect();
                let node = |dtype| {
                    let case = Case::new(op, 17).int("periodic", periodic.into()).input(&Tensor::new(&[], &[size]));
                    case.late_output(dtype, 1).run().remove(0)
                };
                let want = Tensor::new(&[size.into()], &exact.iter().map(|&x| x as f32).collect::<Vec<_>>());
                assert_close(&node(DType::F32), &want, 1e-6);
                let halves = node(DType::F16).to_vec::<F16>();
                halves.iter().zip(&exact).for_each(|(y, x)| assert!((f64::from(y.wide()) - x).abs() < 1e-3));
            }
        }
        let case = Case::new("HannWindow", 17).int("periodic", 1).input(&Tensor::new(&[], &[-1i64]));
        let error = case.late_output(DType::F32, 1).try_run().unwrap_err();
        assert!(error.contains("input 0 (size) holds [-1]"), "{error}");
    }

    fn mel(bands: i64, len: i64, rate: i64, low: f32, high: f32) -> Result<Vec<Tensor>, String> {
        let case = Case::new("MelWeightMatrix", 17).input(&Tensor::new(&[], &[bands])).input(&Tensor::new(&[], &[len]));
        let case = case.input(&Tensor::new(&[], &[rate])).input(&Tensor::new(&[], &[low]));
        case.input(&Tensor::new(&[], &[high])).late_output(DType::F32, 2).try_run()
    }

    #[test]
    fn bands_are_triangles() {
        let y = mel(8, 64, 8192, 100.0, 4000.0).unwrap().remove(0);
        assert_eq!(y.dims, [33, 8]);
        let values = y.to_vec::<f32>();
        for band in 0..8 {
            let column: Vec<f32> = values.iter().skip(band).step_by(8).copied().collect();
            let peak = column.iter().position(|&x| x == 1.0).unwrap();
            assert!(column[..peak].is_sorted() && column[peak..].iter().rev().is_sorted(), "{column:?}");
        }
    }

    #[test]
    fn edges_outside_of_the_spectrum_are_faults() {
        let error = mel(8, 16, 8192, 0.0, 100_000.0).unwrap_err();
        assert!(error.contains("ask for 0 to 100000 hertz"), "{error}");
        let error = mel(0, 16, 8192, 0.0, 4096.0).unwrap_err();
        assert!(error.contains("input 0 (num_mel_bins) holds [0]"), "{error}");
    }
}
