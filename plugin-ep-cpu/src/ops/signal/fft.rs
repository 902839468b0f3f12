//! Fast Fourier transforms of any length over several signals at once.
//!
//! Signals stand side by side: value k of all of them, then value k + 1. So every butterfly is a loop over neighbours, for
//! short signals over those of many, and in later passes over a signal's own. Lengths are cut into factors up to 13, four
//! before two (Stockham's order, which sorts itself); a length with a greater prime is a convolution with a chirp, done by
//! transforms of a power of two. Tables are f64, whatever is transformed.
//!
//! It knows no operators.

use crate::ops::lane::Real;
use crate::simd::{Isa, Kernel, Simd};
use core::f64::consts::TAU;

/// The greatest factor that is transformed by its definition.
const MOST_FACTOR: usize = 13;

/// A length.
#[derive(Debug)]
pub(crate) struct Plan {
    len: usize,
    /// First to last pass; empty for a chirp.
    factors: Vec<usize>,
    /// Powers of the root of unity, cosine and sine; all `len`.
    roots: Vec<[f64; 2]>,
    chirp: Option<Box<Chirp>>,
}

#[derive(Debug)]
struct Chirp {
    plan: Plan,
    /// `e^(-i pi k^2 / len)`
    own: Vec<[f64; 2]>,
    /// The transform of its conjugate around 0.
    filter: Vec<[f64; 2]>,
}

/// Real and imaginary parts.
#[derive(Debug)]
pub(crate) struct Pair<'a, T> {
    pub re: &'a mut [T],
    pub im: &'a mut [T],
}

impl<T> Pair<'_, T> {
    fn reborrow(&mut self) -> Pair<'_, T> {
        Pair { re: self.re, im: self.im }
    }
}

impl Plan {
    /// A plan for signals of `len` values, at least 1; `None` if there is no memory for it.
    pub fn new(len: usize) -> Option<Plan> {
        let mut rest = len;
        let mut factors = Vec::new();
        for factor in [4, 2, 3, 5, 7, 11, MOST_FACTOR] {
            while rest.is_multiple_of(factor) && rest > 1 {
                factors.push(factor);
                rest /= factor;
            }
        }
        if rest == 1 {
            let roots = table(len, |k| k as f64 / len as f64)?; // lengths are below 2^53
            return Some(Plan { len, factors, roots, chirp: None });
        }
        let chirp = Box::new(Chirp::new(len)?);
        Some(Plan { len, factors: Vec::new(), roots: Vec::new(), chirp: Some(chirp) })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Values that [`run`](Self::run) wants for so many signals, those to be transformed among them.
    pub fn room(&self, signals: usize) -> usize {
        let inner = self.chirp.as_ref().map_or(0, |chirp| chirp.plan.room(signals));
        signals.saturating_mul(self.len).saturating_mul(if self.chirp.is_some() { 2 } else { 4 }).saturating_add(inner)
    }

    /// Transforms `signals` signals that `load` writes, and gives them to `read`. Both get real and imaginary parts. To go
    /// back, exchange the parts.
    pub fn run<T: Real>(
        &self,
        isa: Isa,
        signals: usize,
        memory: &mut [T],
        load: impl FnOnce(&mut [T], &mut [T]),
        read: impl FnOnce(&[T], &[T]),
    ) {
        let count = self.len * signals;
        let (re, rest) = memory.split_at_mut(count);
        let (im, rest) = rest.split_at_mut(count);
        load(re, im);
        let x = Pair { re, im };
        match &self.chirp {
            Some(chirp) => chirp.run(isa, signals, x, rest, read),
            None => {
                let (re, rest) = rest.split_at_mut(count);
                let other = Pair { re, im: &mut rest[..count] };
                let done = self.passes(isa, signals, x, other);
                read(done.re, done.im);
            }
        }
    }

    fn passes<'a, T: Real>(&self, isa: Isa, signals: usize, mut x: Pair<'a, T>, mut y: Pair<'a, T>) -> Pair<'a, T> {
        let mut step = signals;
        for &factor in &self.factors {
            let (from, to) = (x.reborrow(), y.reborrow());
            isa.dispatch(Pass { plan: self, signals, step, factor, x: from, y: to });
            step *= factor;
            core::mem::swap(&mut x, &mut y);
        }
        x
    }

    /// Power `at` of the root, as a type.
    fn root<T: Real>(&self, at: usize) -> (T, T) {
        let [cos, sin] = self.roots[at % self.len];
        (of(cos), of(sin))
    }
}

/// An f64 in another type.
fn of<T: Real>(x: f64) -> T {
    let high = x as f32; // rounds; the rest is added for types that have it
    T::of(high).plus(T::of((x - f64::from(high)) as f32))
}

/// `e^(-2 pi i turns(k))` for k below `count`.
fn table(count: usize, turns: impl Fn(usize) -> f64) -> Option<Vec<[f64; 2]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.extend((0..count).map(|k| {
        let (sin, cos) = (-TAU * turns(k)).sin_cos();
        [cos, sin]
    }));
    Some(all)
}

impl Chirp {
    fn new(len: usize) -> Option<Chirp> {
        let long = len.checked_mul(2)?.checked_next_power_of_two()?;
        let plan = Plan::new(long)?;
        // k^2 / 2n in turns; the square is taken modulo 2n, so that no digits are lost.
        let square = |k: usize| (k as u128 * k as u128 % (2 * len as u128)) as f64 / (2 * len) as f64; // below 2^53
        let own = table(len, square)?;
        let mut memory: Vec<f64> = Vec::new();
        memory.try_reserve_exact(plan.room(1)).ok()?;
        memory.resize(plan.room(1), 0.0);
        let mut filter = Vec::new();
        filter.try_reserve_exact(long).ok()?;
        let load = |re: &mut [f64], im: &mut [f64]| {
            re.fill(0.0);
            im.fill(0.0);
            for (k, &[cos, sin]) in own.iter().enumerate() {
                for at in [k, (long - k) % long] {
                    (re[at], im[at]) = (cos, -sin);
                }
            }
        };
        // The way back divides by the length; the filter does it at once.
        let scale = 1.0 / long as f64;
        plan.run(Isa::scalar(), 1, &mut memory, load, |re, im| {
            filter.extend(re.iter().zip(im).map(|(re, im)| [re * scale, im * scale]));
        });
        Some(Chirp { plan, own, filter })
    }

    /// `X[k] = chirp[k] (x chirp * conjugate of chirp)[k]`
    fn run<T: Real>(
        &self,
        isa: Isa,
        signals: usize,
        mut x: Pair<'_, T>,
        memory: &mut [T],
        read: impl FnOnce(&[T], &[T]),
    ) {
        let count = x.re.len();
        let by = |x: Pair<'_, T>, factors: &[[f64; 2]], sign: f64| {
            let rows = x.re.chunks_exact_mut(signals.max(1)).zip(x.im.chunks_exact_mut(signals.max(1)));
            for ((re, im), &[cos, sin]) in rows.zip(factors) {
                let (c, s): (T, T) = (of(cos), of(sign * sin));
                for (re, im) in re.iter_mut().zip(im) {
                    (*re, *im) = (re.times(c).minus(im.times(s)), re.times(s).plus(im.times(c)));
                }
            }
        };
        by(x.reborrow(), &self.own, 1.0);
        let long = self.plan.len * signals;
        let (re, rest) = memory.split_at_mut(long);
        let (im, rest) = rest.split_at_mut(long);
        for (to, from) in [(&mut *re, &*x.re), (&mut *im, &*x.im)] {
            to[..count].copy_from_slice(from);
            to[count..].fill(T::default());
        }
        let (other_re, rest) = rest.split_at_mut(long);
        let mut other = Pair { re: other_re, im: &mut rest[..long] };
        // Passes change the two buffers with each other.
        let mut first = Pair { re, im };
        let odd = !self.plan.factors.len().is_multiple_of(2);
        self.plan.passes(isa, signals, first.reborrow(), other.reborrow());
        let (mut there, back) = if odd { (other, first) } else { (first, other) };
        by(there.reborrow(), &self.filter, 1.0);
        // The transform back is that of exchanged parts.
        let done =
            self.plan.passes(isa, signals, Pair { re: there.im, im: there.re }, Pair { re: back.im, im: back.re });
        x.re.copy_from_slice(&done.im[..count]);
        x.im.copy_from_slice(&done.re[..count]);
        by(x.reborrow(), &self.own, 1.0);
        read(x.re, x.im);
    }
}

/// One pass: butterflies of `factor` values.
struct Pass<'a, 'p, T> {
    plan: &'p Plan,
    signals: usize,
    /// Neighbours that are treated alike: signals, and what earlier passes have sorted.
    step: usize,
    factor: usize,
    x: Pair<'a, T>,
    y: Pair<'a, T>,
}

impl<T: Real> Kernel for Pass<'_, '_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let sorted = self.step / self.signals;
        // Butterflies are `apart` from value to value, and there are as many of them.
        let apart = self.plan.len / sorted / self.factor;
        let Pass { plan, step, factor, x, y, .. } = self;
        for p in 0..apart {
            let from = |j: usize| (p + apart * j) * step..(p + apart * j + 1) * step;
            let to = p * factor * step;
            let out = Pair { re: &mut y.re[to..to + factor * step], im: &mut y.im[to..to + factor * step] };
            match factor {
                2 => two([0, 1].map(|j| (&x.re[from(j)], &x.im[from(j)])), plan.root(p * sorted), out),
                4 => {
                    let roots = [1, 2, 3].map(|k| plan.root(p * k * sorted));
                    four([0, 1, 2, 3].map(|j| (&x.re[from(j)], &x.im[from(j)])), roots, out);
                }
                _ => {
                    let unit = plan.len / factor;
                    for k in 0..factor {
                        let (re, im) = (&mut out.re[k * step..(k + 1) * step], &mut out.im[k * step..(k + 1) * step]);
                        for j in 0..factor {
                            let root = plan.root(j * k % factor * unit + p * k * sorted);
                            add(root, (&x.re[from(j)], &x.im[from(j)]), (&mut *re, &mut *im), j == 0);
                        }
                    }
                }
            }
        }
    }
}

type Values<'a, T> = (&'a [T], &'a [T]);

#[inline(always)]
fn two<T: Real>([a, b]: [Values<'_, T>; 2], (c, s): (T, T), out: Pair<'_, T>) {
    let n = a.0.len();
    let ((a_re, a_im), (b_re, b_im)) = ((&a.0[..n], &a.1[..n]), (&b.0[..n], &b.1[..n]));
    let (re_0, re_1) = out.re.split_at_mut(n);
    let (im_0, im_1) = out.im.split_at_mut(n);
    let (re_1, im_0, im_1) = (&mut re_1[..n], &mut im_0[..n], &mut im_1[..n]);
    for i in 0..n {
        let (x, y) = (a_re[i].minus(b_re[i]), a_im[i].minus(b_im[i]));
        re_0[i] = a_re[i].plus(b_re[i]);
        im_0[i] = a_im[i].plus(b_im[i]);
        re_1[i] = x.times(c).minus(y.times(s));
        im_1[i] = x.times(s).plus(y.times(c));
    }
}

#[inline(always)]
fn four<T: Real>(x: [Values<'_, T>; 4], w: [(T, T); 3], out: Pair<'_, T>) {
    let n = x[0].0.len();
    let [(a_re, a_im), (b_re, b_im), (c_re, c_im), (d_re, d_im)] = x.map(|(re, im)| (&re[..n], &im[..n]));
    let (re_01, re_23) = out.re.split_at_mut(2 * n);
    let (im_01, im_23) = out.im.split_at_mut(2 * n);
    let ((re_0, re_1), (re_2, re_3)) = (re_01.split_at_mut(n), re_23.split_at_mut(n));
    let ((im_0, im_1), (im_2, im_3)) = (im_01.split_at_mut(n), im_23.split_at_mut(n));
    let (re_3, im_3) = (&mut re_3[..n], &mut im_3[..n]);
    let [(c1, s1), (c2, s2), (c3, s3)] = w;
    for i in 0..n {
        let (even_re, even_im) = (a_re[i].plus(c_re[i]), a_im[i].plus(c_im[i]));
        let (far_re, far_im) = (a_re[i].minus(c_re[i]), a_im[i].minus(c_im[i]));
        let (odd_re, odd_im) = (b_re[i].plus(d_re[i]), b_im[i].plus(d_im[i]));
        // i (b - d)
        let (turn_re, turn_im) = (d_im[i].minus(b_im[i]), b_re[i].minus(d_re[i]));
        re_0[i] = even_re.plus(odd_re);
        im_0[i] = even_im.plus(odd_im);
        let (x, y) = (far_re.minus(turn_re), far_im.minus(turn_im));
        re_1[i] = x.times(c1).minus(y.times(s1));
        im_1[i] = x.times(s1).plus(y.times(c1));
        let (x, y) = (even_re.minus(odd_re), even_im.minus(odd_im));
        re_2[i] = x.times(c2).minus(y.times(s2));
        im_2[i] = x.times(s2).plus(y.times(c2));
        let (x, y) = (far_re.plus(turn_re), far_im.plus(turn_im));
        re_3[i] = x.times(c3).minus(y.times(s3));
        im_3[i] = x.times(s3).plus(y.times(c3));
    }
}

/// `to (+)= root * from`
#[inline(always)]
fn add<T: Real>((c, s): (T, T), from: Values<'_, T>, to: (&mut [T], &mut [T]), first: bool) {
    let n = from.0.len();
    let ((x, y), (re, im)) = ((&from.0[..n], &from.1[..n]), (&mut to.0[..n], &mut to.1[..n]));
    for i in 0..n {
        let (a, b) = (x[i].times(c).minus(y[i].times(s)), x[i].times(s).plus(y[i].times(c)));
        (re[i], im[i]) = if first { (a, b) } else { (re[i].plus(a), im[i].plus(b)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(isa: Isa, len: usize, signals: usize) {
        let plan = Plan::new(len).unwrap();
        let value = |k: usize| ((k * 37 % 101) as f64 * 0.7).sin();
        let mut memory = vec![f64::NAN; plan.room(signals)];
        let load = |re: &mut [f64], im: &mut [f64]| {
            re.iter_mut().enumerate().for_each(|(k, x)| *x = value(k));
            im.iter_mut().enumerate().for_each(|(k, x)| *x = value(k + 5000));
        };
        plan.run(isa, signals, &mut memory, load, |re, im| {
            for k in 0..len {
                for signal in 0..signals {
                    let (mut a, mut b) = (0.0, 0.0);
                    for j in 0..len {
                        let (sin, cos) = (-TAU * (j * k % len) as f64 / len as f64).sin_cos();
                        let at = j * signals + signal;
                        let (x, y) = (value(at), value(at + 5000));
                        (a, b) = (a + x * cos - y * sin, b + x * sin + y * cos);
                    }
                    let at = k * signals + signal;
                    let off = (re[at] - a).abs().max((im[at] - b).abs());
                    assert!(off < 1e-11 * len as f64, "length {len}, {signals} signals, value {k}: {off}");
                }
            }
        });
    }

    #[test]
    fn like_the_definition_at_every_length() {
        for isa in Isa::available() {
            for len in (1..=40).chain([49, 64, 77, 101, 128, 144, 169, 221]) {
                check(isa, len, 1);
                check(isa, len, 3);
            }
            check(isa, 24, 17);
        }
    }
}
