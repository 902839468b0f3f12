//! Where the elements of a resized axis come from: places on the input's axis, and weights. It must not know tensors.

/// How places are interpolated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Nearest(Round),
    Linear,
    /// With the coefficient `a` of the cubic.
    Cubic(f64),
}

/// Which of two neighbours is the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// The nearer one, the lower one of two as near.
    PreferFloor,
    /// The nearer one, the upper one of two as near.
    PreferCeil,
    Floor,
    Ceil,
}

/// How a place of the output leads to one of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    CropAndResize,
}

/// What all axes of a node share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub mode: Mode,
    pub coordinates: Coordinates,
    /// When an axis gets smaller, the filter gets as much wider.
    pub antialias: bool,
    /// Places outside of the input do not count.
    pub exclude_outside: bool,
}

/// An axis: its length, the new one, what that is to the old one, and the part of it that is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sizes {
    pub len: usize,
    pub out: usize,
    pub scale: f64,
    pub roi: (f64, f64),
}

/// For each place of the output, as many places of the input and weights. The lists keep their memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taps {
    /// Taps of a place.
    pub count: usize,
    pub places: Vec<usize>,
    pub weights: Vec<f64>,
    /// The same weights, for values of 32 bits.
    pub narrow: Vec<f32>,
    /// Whether the place is outside of the part that is taken; empty if none is.
    pub outside: Vec<bool>,
}

impl Taps {
    /// Follows an axis with at least one element.
    pub fn fill(&mut self, rule: &Rule, axis: &Sizes) {
        self.places.clear();
        self.weights.clear();
        self.outside.clear();
        let stretch = if rule.antialias { axis.scale.min(1.0) } else { 1.0 };
        let reach = match rule.mode {
            Mode::Nearest(_) => 0.5,
            Mode::Linear => 1.0,
            Mode::Cubic(_) => 2.0,
        };
        // Places of the input from `start` on, counted from the one below the place itself.
        let start = (-reach / stretch).floor() + 1.0;
        self.count = if let Mode::Nearest(_) = rule.mode { 1 } else { (2.0 - 2.0 * start) as usize }; // small
        for at in 0..axis.out {
            let x = place(rule.coordinates, axis, at as f64); // exact
            let last = axis.len as f64 - 1.0;
            if rule.coordinates == Coordinates::CropAndResize {
                self.outside.push(!(0.0..=last).contains(&x));
            }
            match rule.mode {
                Mode::Nearest(round) => {
                    self.places.push(nearest(round, x).clamp(0.0, last) as usize); // a place
                    self.weights.push(1.0);
                }
                mode => self.spread(rule, mode, x, stretch, start, last),
            }
        }
        self.narrow.clear();
        self.narrow.extend(self.weights.iter().map(|&weight| weight as f32)); // rounds
    }

    /// Whether a place of the output is outside of what is taken.
    pub fn is_outside(&self, at: usize) -> bool {
        self.outside.get(at).is_some_and(|&outside| outside)
    }

    fn spread(&mut self, rule: &Rule, mode: Mode, x: f64, stretch: f64, start: f64, last: f64) {
        let first = x.floor() + start;
        let from = self.weights.len();
        for k in 0..self.count {
            let at = first + k as f64; // exact
            let inside = (0.0..=last).contains(&at);
            let weight = kernel(mode, (at - x) * stretch);
            self.weights.push(if rule.exclude_outside && !inside { 0.0 } else { weight });
            self.places.push(at.clamp(0.0, last) as usize); // a place
        }
        let weights = &mut self.weights[from..];
        let sum: f64 = weights.iter().sum();
        if sum != 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
    }
}

/// Place of the input under a place of the output.
fn place(coordinates: Coordinates, axis: &Sizes, at: f64) -> f64 {
    let (len, out, scale) = (axis.len as f64, axis.out as f64, axis.scale); // sizes are exact
    // The standard's cases stretch corners to the size before it was rounded down.
    let exact = scale * len;
    let half = (at + 0.5) / scale - 0.5;
    match coordinates {
        Coordinates::HalfPixel => half,
        Coordinates::HalfPixelSymmetric => len / 2.0 * (1.0 - out / exact) + half,
        Coordinates::PytorchHalfPixel if axis.out == 1 => 0.0,
        Coordinates::PytorchHalfPixel => half,
        Coordinates::Asymmetric => at / scale,
        Coordinates::AlignCorners if exact == 1.0 => 0.0,
        Coordinates::AlignCorners => at * (len - 1.0) / (exact - 1.0),
        Coordinates::CropAndResize => {
            let (start, end) = axis.roi;
            let within = if exact == 1.0 { 0.5 } else { at / (exact - 1.0) };
            (start + within * (end - start)) * (len - 1.0)
        }
    }
}

fn nearest(round: Round, x: f64) -> f64 {
    match round {
        Round::PreferFloor => (x - 0.5).ceil(),
        Round::PreferCeil => (x + 0.5).floor(),
        Round::Floor => x.floor(),
        Round::Ceil => x.ceil(),
    }
}

/// Weight of an element at a distance.
fn kernel(mode: Mode, distance: f64) -> f64 {
    let t = distance.abs();
    match mode {
        Mode::Cubic(a) if t <= 1.0 => ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0,
        Mode::Cubic(a) if t < 2.0 => ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a,
        Mode::Linear if t < 1.0 => 1.0 - t,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mode: Mode, coordinates: Coordinates) -> Rule {
        Rule { mode, coordinates, antialias: false, exclude_outside: false }
    }

    fn sizes(len: usize, out: usize, scale: f64) -> Sizes {
        Sizes { len, out, scale, roi: (0.0, 1.0) }
    }

    fn fill(rule: Rule, axis: Sizes) -> Taps {
        let mut taps = Taps::default();
        taps.fill(&rule, &axis);
        taps
    }

    #[test]
    fn places_of_every_kind() {
        // Coordinates, length, new length, scale, the new axis under a ramp.
        let cases: &[(Coordinates, usize, usize, f64, &[f64])] = &[
            (Coordinates::HalfPixel, 2, 4, 2.0, &[0.0, 0.25, 0.75, 1.0]),
            (Coordinates::Asymmetric, 2, 4, 2.0, &[0.0, 0.5, 1.0, 1.0]),
            (Coordinates::AlignCorners, 3, 5, 5.0 / 3.0, &[0.0, 0.5, 1.0, 1.5, 2.0]),
            (Coordinates::AlignCorners, 3, 1, 1.0 / 3.0, &[0.0]),
            (Coordinates::PytorchHalfPixel, 3, 1, 1.0 / 3.0, &[0.0]),
            (Coordinates::HalfPixelSymmetric, 4, 2, 0.6, &[1.5 - 5.0 / 6.0, 1.5 + 5.0 / 6.0]),
            (Coordinates::CropAndResize, 5, 3, 0.6, &[0.0, 2.0, 4.0]),
            (Coordinates::CropAndResize, 5, 1, 0.2, &[2.0]),
        ];
        for &(coordinates, len, out, scale, want) in cases {
            let taps = fill(rule(Mode::Linear, coordinates), sizes(len, out, scale));
            for (at, want) in want.iter().enumerate() {
                let range = at * taps.count..(at + 1) * taps.count;
                let pairs = taps.places[range.clone()].iter().zip(&taps.weights[range]);
                let got: f64 = pairs.map(|(&place, weight)| place as f64 * weight).sum();
                assert!((got - want).abs() < 1e-12, "{coordinates:?} {len} to {out}, {at}: {got}, expected {want}");
            }
        }
    }

    #[test]
    fn the_nearest() {
        let cases: &[(Round, &[usize])] = &[
            (Round::PreferFloor, &[0, 0, 1, 1, 2, 2]),
            (Round::PreferCeil, &[0, 1, 1, 2, 2, 2]),
            (Round::Floor, &[0, 0, 1, 1, 2, 2]),
            (Round::Ceil, &[0, 1, 1, 2, 2, 2]),
        ];
        for &(round, want) in cases {
            let taps = fill(rule(Mode::Nearest(round), Coordinates::Asymmetric), sizes(3, 6, 2.0));
            assert_eq!(taps.places, want, "{round:?}");
        }
    }

    #[test]
    fn weights_add_up_and_filters_grow() {
        for mode in [Mode::Linear, Mode::Cubic(-0.75)] {
            for (antialias, exclude_outside) in [(false, false), (true, false), (true, true), (false, true)] {
                let rule = Rule { mode, coordinates: Coordinates::HalfPixel, antialias, exclude_outside };
                for (len, out) in [(1, 4), (7, 3), (3, 7), (10, 2)] {
                    let taps = fill(rule, sizes(len, out, out as f64 / len as f64));
                    for weights in taps.weights.chunks(taps.count) {
                        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                    }
                    assert!(taps.places.iter().all(|&place| place < len));
                }
            }
        }
        let wide = Rule { antialias: true, ..rule(Mode::Linear, Coordinates::HalfPixel) };
        let taps = fill(wide, sizes(8, 2, 0.25));
        assert_eq!(taps.count, 8);
        assert_eq!(taps.weights[..8].iter().filter(|&&weight| weight > 0.0).count(), 8);
    }

    #[test]
    fn a_crop_has_an_outside() {
        let axis = Sizes { roi: (0.5, 1.5), ..sizes(5, 3, 0.6) };
        let taps = fill(rule(Mode::Linear, Coordinates::CropAndResize), axis);
        assert_eq!(taps.outside, [false, false, true]);
    }
}
