//! What elements are folded into: sums, products, extremes, and what is made of them. It must not know tensors.

use super::lane::{Number, Real};
use super::value::Value;
use ortolan_ep_kit::Bool;

/// A way to make one element of many. `join` may see its parts in any grouping, always the same for the same shapes.
pub(crate) trait Fold<T: Copy>: 'static {
    /// What is kept while elements come.
    type Sum: Copy + Send;
    /// For no elements.
    fn start() -> Self::Sum;
    fn take(sum: Self::Sum, x: T) -> Self::Sum;
    fn join(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// The result for so many elements.
    fn end(sum: Self::Sum, count: usize) -> T;
}

/// Elements that are folded side by side.
const LANES: usize = 32;

/// Folds a run of elements.
#[inline(always)]
pub(crate) fn fold<T: Copy, F: Fold<T>>(x: &[T]) -> F::Sum {
    if x.len() < LANES {
        return x.iter().fold(F::start(), |sum, &x| F::take(sum, x));
    }
    let mut sums = [F::start(); LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, &x) in sums.iter_mut().zip(chunk) {
            *sum = F::take(*sum, x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum = F::take(*sum, x);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for k in 0..width {
            sums[k] = F::join(sums[k], sums[k + width]);
        }
        width /= 2;
    }
    sums[0]
}

/// Numbers that totals are.
pub(crate) trait Total: Number {
    const ONE: Self;
    /// At most and at least every number, infinite if the type has that.
    const LEAST: Self;
    const MOST: Self;
    /// Without its sign.
    fn size(self) -> Self;
    /// Divided; integers round towards zero, and nothing divided by nothing is 0.
    fn part(self, count: usize) -> Self;
    fn root(self) -> Self;
    fn is_nan(self) -> bool;
}

macro_rules! totals {
    (float: $($t:ident)*) => { $(
        impl Total for $t {
            const ONE: Self = 1.0;
            const LEAST: Self = $t::NEG_INFINITY;
            const MOST: Self = $t::INFINITY;
            #[inline(always)]
            fn size(self) -> Self { self.abs() }
            #[inline(always)]
            fn part(self, count: usize) -> Self { self / count as $t } // counts are exact enough to divide by
            #[inline(always)]
            fn root(self) -> Self { self.sqrt() }
            #[inline(always)]
            fn is_nan(self) -> bool { self.is_nan() }
        }
    )* };
    (integer: $($t:ident, $size:expr;)*) => { $(
        impl Total for $t {
            const ONE: Self = 1;
            const LEAST: Self = $t::MIN;
            const MOST: Self = $t::MAX;
            #[inline(always)]
            fn size(self) -> Self { ($size)(self) }
            #[inline(always)]
            fn part(self, count: usize) -> Self {
                $t::try_from(count).ok().and_then(|count| self.checked_div(count)).unwrap_or(0)
            }
            #[inline(always)]
            fn root(self) -> Self { (self as f64).sqrt() as $t } // towards zero, as Cast does
            #[inline(always)]
            fn is_nan(self) -> bool { false }
        }
    )* };
}
totals!(float: f32 f64);
totals! {
    integer:
    i8, i8::wrapping_abs;
    i32, i32::wrapping_abs;
    i64, i64::wrapping_abs;
    u8, |x| x;
    u32, |x| x;
    u64, |x| x;
}

/// Sums of something: what each element counts, and what becomes of the sum.
macro_rules! sums {
    ($($(#[$doc:meta])* $name:ident: $bound:ident, |$x:ident| $each:expr, |$sum:ident, $count:ident| $end:expr;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;

        impl<T: Value<Wide: $bound>> Fold<T> for $name {
            type Sum = T::Wide;
            #[inline(always)]
            fn start() -> T::Wide { T::Wide::default() }
            #[inline(always)]
            fn take(sum: T::Wide, x: T) -> T::Wide { let $x = x.wide(); sum.plus($each) }
            #[inline(always)]
            fn join(a: T::Wide, b: T::Wide) -> T::Wide { a.plus(b) }
            #[inline(always)]
            fn end($sum: T::Wide, $count: usize) -> T { T::of($end) }
        }
    )* };
}
sums! {
    /// The sum; integers wrap.
    Sum: Total, |x| x, |sum, _count| sum;
    /// The mean.
    Mean: Total, |x| x, |sum, count| sum.part(count);
    /// The sum of sizes.
    L1: Total, |x| x.size(), |sum, _count| sum;
    /// The root of the sum of squares.
    L2: Total, |x| x.times(x), |sum, _count| sum.root();
    /// The sum of squares.
    SumSquare: Total, |x| x.times(x), |sum, _count| sum;
    /// The logarithm of the sum.
    LogSum: Real, |x| x, |sum, _count| sum.ln();
}

/// The product; integers wrap.
pub(crate) struct Prod;

impl<T: Value<Wide: Total>> Fold<T> for Prod {
    type Sum = T::Wide;
    #[inline(always)]
    fn start() -> T::Wide {
        T::Wide::ONE
    }
    #[inline(always)]
    fn take(sum: T::Wide, x: T) -> T::Wide {
        sum.times(x.wide())
    }
    #[inline(always)]
    fn join(a: T::Wide, b: T::Wide) -> T::Wide {
        a.times(b)
    }
    #[inline(always)]
    fn end(sum: T::Wide, _: usize) -> T {
        T::of(sum)
    }
}

/// Greatest and least elements; NaN if one is.
macro_rules! extremes {
    ($($(#[$doc:meta])* $name:ident: $sign:tt, $start:ident, |$a:ident, $b:ident| $bools:expr;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $name;

        impl<T: Value<Wide: Total>> Fold<T> for $name {
            type Sum = T::Wide;
            #[inline(always)]
            fn start() -> T::Wide { T::Wide::$start }
            #[inline(always)]
            fn take(sum: T::Wide, x: T) -> T::Wide { <$name as Fold<T>>::join(sum, x.wide()) }
            #[inline(always)]
            fn join(a: T::Wide, b: T::Wide) -> T::Wide { if b $sign a || b.is_nan() { b } else { a } }
            #[inline(always)]
            fn end(sum: T::Wide, _: usize) -> T { T::of(sum) }
        }

        impl Fold<Bool> for $name {
            type Sum = bool;
            #[inline(always)]
            fn start() -> bool { !(true $sign false) }
            #[inline(always)]
            fn take(sum: bool, x: Bool) -> bool { <$name as Fold<Bool>>::join(sum, x.get()) }
            #[inline(always)]
            fn join($a: bool, $b: bool) -> bool { $bools }
            #[inline(always)]
            fn end(sum: bool, _: usize) -> Bool { sum.into() }
        }
    )* };
}
extremes! {
    /// The greatest element.
    Max: >, LEAST, |a, b| a | b;
    /// The least element.
    Min: <, MOST, |a, b| a & b;
}

/// The logarithm of the sum of exponentials, which are taken of differences from the greatest element so far.
pub(crate) struct LogSumExp;

impl<T: Value<Wide: Real + Total>> Fold<T> for LogSumExp {
    /// The greatest element, and the sum of `e^(x - greatest)`.
    type Sum = (T::Wide, T::Wide);

    #[inline(always)]
    fn start() -> Self::Sum {
        (T::Wide::LEAST, T::Wide::default())
    }

    #[inline(always)]
    fn take(sum: Self::Sum, x: T) -> Self::Sum {
        <Self as Fold<T>>::join(sum, (x.wide(), T::Wide::ONE))
    }

    #[inline(always)]
    fn join((a, sum): Self::Sum, (b, more): Self::Sum) -> Self::Sum {
        match a == b {
            true => (a, sum.plus(more)), // infinities have no difference
            false if b > a => (b, sum.times(a.minus(b).exp()).plus(more)),
            false => (a, sum.plus(more.times(b.minus(a).exp()))),
        }
    }

    #[inline(always)]
    fn end((greatest, sum): Self::Sum, _: usize) -> T {
        T::of(greatest.plus(sum.ln()))
    }
}
