//! Every vector operation against plain arithmetic, lane by lane, on every
//! instruction set that this machine has; slices at odd lengths and offsets.

use super::ops::{Add, Div, Max, Min, Mul, Relu, Sub, Swap};
use super::*;

const SPECIAL: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.0e9,
    -7.25,
    1.0e-40,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    6.0,
];
const LENGTHS: [usize; 14] = [0, 1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 63, 100];

/// Equal bits, or both NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Values between -4 and 4 with many bits, by a fixed sequence.
fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 21) as f32 - 4.0
    };
    (0..n).map(|_| next()).collect()
}

/// An operation applied to one pair of values in all lanes.
struct Pair<O>(O, f32, f32);

impl<O: BinaryOp> Kernel for Pair<O> {
    type Out = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let mut out = vec![0.0; S::LANES];
        s.store_slice(&mut out, self.0.apply(s, s.splat(self.1), s.splat(self.2)));
        out
    }
}

/// A truth value as 1 or 0, by a mask of the two values.
macro_rules! mask_op {
    ($name:ident, $method:ident) => {
        struct $name;
        impl BinaryOp for $name {
            #[inline(always)]
            fn apply<S: Simd>(&self, s: S, a: S::F32, b: S::F32) -> S::F32 {
                let mask = s.$method(a, b);
                assert!([0, (1 << S::LANES) - 1].contains(&s.bits_of(mask)));
                s.select(mask, s.splat(1.0), s.zero())
            }
        }
    };
}
mask_op!(Lt, lt);
mask_op!(Le, le);
mask_op!(Gt, gt);
mask_op!(Ge, ge);
mask_op!(Eq, eq);
mask_op!(Ne, ne);

/// A vector operation whose bits are defined, as a binary operation.
macro_rules! bits_op {
    ($name:ident, |$s:ident, $a:ident, $b:ident| $e:expr) => {
        struct $name;
        impl BinaryOp for $name {
            #[inline(always)]
            fn apply<S: Simd>(&self, $s: S, $a: S::F32, $b: S::F32) -> S::F32 {
                $e
            }
        }
    };
}
bits_op!(RawMax, |s, a, b| s.max(a, b));
bits_op!(RawMin, |s, a, b| s.min(a, b));
bits_op!(SqrtAbs, |s, a, _b| s.sqrt(s.abs(a)));
bits_op!(RoundA, |s, a, _b| s.round(a));
bits_op!(FloorA, |s, a, _b| s.floor(a));
bits_op!(NegA, |s, a, _b| s.neg(a));
bits_op!(CopySign, |s, a, b| s.copysign(a, b));
bits_op!(Integers, |s, a, b| {
    let (a, b) = (s.cast_i32(a), s.cast_i32(b));
    let sum = s.add_i32(s.shl_i32(a, 3), s.shr_i32(b, 5));
    let rest = s.sub_i32(s.xor_i32(a, b), s.or_i32(a, s.and_i32(b, s.splat_i32(0xFF00))));
    s.to_f32(s.add_i32(sum, rest))
});
bits_op!(Convert, |s, a, b| {
    let near = s.to_f32(s.to_i32(s.clip(a, s.splat(-1.0e6), s.splat(1.0e6))));
    let greater = s.gt_i32(s.cast_i32(a), s.cast_i32(b));
    let both = s.and(greater, s.or(s.lt(a, b), s.ne(b, b)));
    s.select(both, near, s.splat(3.0))
});

fn integers(a: f32, b: f32) -> f32 {
    let (a, b) = (a.to_bits().cast_signed(), b.to_bits().cast_signed());
    let sum = (a << 3).wrapping_add(b >> 5);
    let rest = (a ^ b).wrapping_sub(a | (b & 0xFF00));
    sum.wrapping_add(rest) as f32
}

fn convert(a: f32, b: f32) -> f32 {
    let near = a.clamp(-1.0e6, 1.0e6).round_ties_even() as i32 as f32;
    let greater = a.to_bits().cast_signed() > b.to_bits().cast_signed();
    if greater && (a < b || b.is_nan()) { near } else { 3.0 }
}

fn keep_nan(a: f32, b: f32, pick: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { pick }
}

#[test]
fn each_operation_gives_the_defined_bits() {
    let truth = |t: bool| f32::from(u8::from(t));
    for isa in Isa::available() {
        for a in SPECIAL {
            for b in SPECIAL {
                let cases = [
                    ("add", isa.dispatch(Pair(Add, a, b)), a + b),
                    ("sub", isa.dispatch(Pair(Sub, a, b)), a - b),
                    ("swapped sub", isa.dispatch(Pair(Swap(Sub), a, b)), b - a),
                    ("mul", isa.dispatch(Pair(Mul, a, b)), a * b),
                    ("div", isa.dispatch(Pair(Div, a, b)), a / b),
                    ("max", isa.dispatch(Pair(RawMax, a, b)), if a > b { a } else { b }),
                    ("min", isa.dispatch(Pair(RawMin, a, b)), if a < b { a } else { b }),
                    ("Max", isa.dispatch(Pair(Max, a, b)), keep_nan(a, b, if a > b { a } else { b })),
                    ("Min", isa.dispatch(Pair(Min, a, b)), keep_nan(a, b, if a < b { a } else { b })),
                    ("lt", isa.dispatch(Pair(Lt, a, b)), truth(a < b)),
                    ("le", isa.dispatch(Pair(Le, a, b)), truth(a <= b)),
                    ("gt", isa.dispatch(Pair(Gt, a, b)), truth(a > b)),
                    ("ge", isa.dispatch(Pair(Ge, a, b)), truth(a >= b)),
                    ("eq", isa.dispatch(Pair(Eq, a, b)), truth(a == b)),
                    ("ne", isa.dispatch(Pair(Ne, a, b)), truth(a != b)),
                    ("sqrt", isa.dispatch(Pair(SqrtAbs, a, b)), a.abs().sqrt()),
                    ("round", isa.dispatch(Pair(RoundA, a, b)), a.round_ties_even()),
                    ("floor", isa.dispatch(Pair(FloorA, a, b)), a.floor()),
                    ("neg", isa.dispatch(Pair(NegA, a, b)), -a),
                    ("copysign", isa.dispatch(Pair(CopySign, a, b)), a.copysign(b)),
                    ("integers", isa.dispatch(Pair(Integers, a, b)), integers(a, b)),
                    ("convert", isa.dispatch(Pair(Convert, a, b)), convert(a, b)),
                ];
                for (name, got, want) in cases {
                    let right = got.iter().all(|&got| same(got, want));
                    assert!(right, "{name}_{}({a}, {b}) = {got:?}, not {want}", isa.name());
                }
            }
        }
    }
}

/// Lanes that differ from each other: head loads and stores, folds, transposes.
struct Lanes;

impl Kernel for Lanes {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = S::LANES;
        let x: Vec<f32> = (0..n).map(|i| i as f32 - 2.0).collect();
        for count in 0..=n {
            let mut out = vec![9.0; n];
            // SAFETY: both hold LANES >= count values.
            unsafe { s.store_head(out.as_mut_ptr(), s.load_head(x.as_ptr(), count), count) };
            let want: Vec<f32> = (0..n).map(|i| if i < count { x[i] } else { 9.0 }).collect();
            assert_eq!(out, want);
            // SAFETY: as above.
            s.store_slice(&mut out, unsafe { s.load_head(x.as_ptr(), count) });
            assert!(out[count..].iter().all(|&lane| lane == 0.0));
        }
        let long = values(2 * n - 1, 8);
        let mut even = vec![0.0; n];
        // SAFETY: that many values are readable.
        s.store_slice(&mut even, unsafe { s.load_even(long.as_ptr()) });
        assert!(long.iter().step_by(2).eq(&even));
        for count in 1..=n {
            // SAFETY: 2 * count - 1 values are readable.
            s.store_slice(&mut even, unsafe { s.load_even_head(long.as_ptr(), count) });
            assert!((0..count).all(|i| even[i] == long[2 * i]));
        }
        let v = s.load_slice(&x);
        assert_eq!(s.reduce_sum(v), x.iter().sum::<f32>());
        assert_eq!(s.reduce_max(v), n as f32 - 3.0);
        assert_eq!(s.reduce_min(v), -2.0);
        assert_eq!(s.bits_of(s.lt(v, s.zero())), 0b11);
        let (from_step, to_step) = (n + 3, n + 1);
        for rows in 0..=n {
            // No more than the rows to be read.
            let square = values(rows * from_step, 5);
            let mut turned = vec![9.0; n * to_step];
            // SAFETY: rows of n values at these steps lie inside both.
            unsafe { s.transpose(square.as_ptr(), from_step, rows, turned.as_mut_ptr(), to_step) };
            for r in 0..n {
                for c in 0..n {
                    let want = if r < rows { square[r * from_step + c] } else { 0.0 };
                    assert_eq!(turned[c * to_step + r], want);
                }
            }
        }
        let integers: Vec<i32> = (0..n as i32).collect();
        let mut copy = vec![0; n];
        // SAFETY: both hold LANES values.
        unsafe { s.store_i32(copy.as_mut_ptr(), s.load_i32(integers.as_ptr())) };
        assert_eq!(copy, integers);
        s.prefetch(x.as_ptr());
    }
}

#[test]
fn lanes_keep_their_places() {
    Isa::available().for_each(|isa| isa.dispatch(Lanes));
}

#[test]
fn slices_at_odd_lengths_and_offsets() {
    for isa in Isa::available() {
        for n in LENGTHS {
            for offset in [0, 1, 3] {
                let (a, b) = (values(n + offset, 1), values(n + offset, 2));
                let (a, b) = (&a[offset..], &b[offset..]);
                let name = format!("{} n={n} offset={offset}", isa.name());
                let check = |got: &[f32], want: &dyn Fn(usize) -> f32| {
                    assert!((0..n).all(|i| same(got[i], want(i))), "{name}: {got:?}");
                };
                // One value more than the sources: it has to stay.
                let mut y = vec![7.0; n + 1];
                map_unary(isa, &Relu, a, &mut y);
                check(&y, &|i| a[i].max(0.0));
                map_binary(isa, &Sub, Operand::Slice(a), Operand::Slice(b), &mut y);
                check(&y, &|i| a[i] - b[i]);
                map_binary(isa, &Sub, Operand::Scalar(2.0), Operand::Slice(b), &mut y);
                check(&y, &|i| 2.0 - b[i]);
                map_binary(isa, &Sub, Operand::Slice(a), Operand::Scalar(2.0), &mut y);
                check(&y, &|i| a[i] - 2.0);
                assert_eq!(y[n], 7.0);
                y.copy_from_slice(&[a, &[7.0]].concat());
                map_binary_in_place(isa, &Swap(Sub), &mut y, Operand::Slice(b));
                check(&y, &|i| b[i] - a[i]);
                assert_eq!(y[n], 7.0);
                y[..n].copy_from_slice(a);
                map_binary_in_place(isa, &Mul, &mut y[..n], Operand::Scalar(3.0));
                check(&y, &|i| a[i] * 3.0);
                y[..n].copy_from_slice(a);
                map_unary_in_place(isa, &Relu, &mut y[..n]);
                check(&y, &|i| a[i].max(0.0));
                map_binary(isa, &Add, Operand::Scalar(1.0), Operand::Scalar(2.5), &mut y);
                assert!(y.iter().all(|&y| y == 3.5));
            }
        }
    }
}

#[test]
fn reductions_at_odd_lengths() {
    let close = |got: f32, want: f64| (f64::from(got) - want).abs() <= 1e-5 * want.abs().max(1.0);
    for isa in Isa::available() {
        for n in LENGTHS {
            let (a, b) = (values(n + 1, 3), values(n + 1, 4));
            let (a, b) = (&a[1..], &b[1..]);
            let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let (wa, wb) = (wide(a), wide(b));
            assert!(close(sum(isa, a), wa.iter().sum()));
            assert!(close(dot(isa, a, b), wa.iter().zip(&wb).map(|(a, b)| a * b).sum()));
            let squares = wa.iter().map(|a| (a - 0.5) * (a - 0.5)).sum();
            assert!(close(sum_squares(isa, a, 0.5), squares));
            assert_eq!(max(isa, a), a.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x)));
            assert_eq!(min(isa, a), a.iter().fold(f32::INFINITY, |m, &x| m.min(x)));
            let mut y = vec![0.0; n];
            let total = exp_sub_sum(isa, a, 4.0, &mut y);
            assert!(close(total, wa.iter().map(|a| (a - 4.0).exp()).sum()));
            let mut z = a.to_vec();
            assert!(same(exp_sub_sum_in_place(isa, &mut z, 4.0), total));
            assert_eq!(y, z);
        }
    }
}

#[test]
fn extremes_show_nan_wherever_it_stands() {
    for isa in Isa::available() {
        for n in [1, 4, 17, 64, 100] {
            for at in 0..n {
                let mut x = values(n, 6);
                x[at] = f32::NAN;
                assert!(max(isa, &x).is_nan() && min(isa, &x).is_nan(), "{} n={n} at={at}", isa.name());
            }
        }
    }
}
