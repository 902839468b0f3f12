//! Element types that are interpolated, and the type that their sums have. It must not know operators.

use super::narrow::{Bf16, F16};
use super::taps::Taps;
use ortolan_ep_kit::Element;

/// A type that is interpolated.
pub(crate) trait Sample: Element + Send + Sync {
    /// f32 or f64.
    type Wide: Copy + Default + core::ops::Mul<Output = Self::Wide> + core::ops::AddAssign;
    fn wide(self) -> Self::Wide;
    /// The nearest value.
    fn round(wide: Self::Wide) -> Self;
    /// The value; integers are cut towards zero.
    fn cut(wide: Self::Wide) -> Self;
    /// As f64, which holds all but the largest integers.
    fn exact(self) -> f64;
    fn weights(taps: &Taps) -> &[Self::Wide];
    fn weight(weight: f64) -> Self::Wide;
}

macro_rules! samples {
    ($wide:ty, $field:ident: $($t:ty => |$x:ident| $from:expr, |$y:ident| $to:expr, $cut:expr;)*) => { $(
        impl Sample for $t {
            type Wide = $wide;
            #[inline(always)]
            fn wide(self) -> $wide { let $x = self; $from }
            #[inline(always)]
            fn round($y: $wide) -> $t { $to }
            #[inline(always)]
            fn cut($y: $wide) -> $t { $cut }
            #[inline(always)]
            fn exact(self) -> f64 { Sample::wide(self) as f64 }
            fn weights(taps: &Taps) -> &[$wide] { &taps.$field }
            fn weight(weight: f64) -> $wide { weight as $wide } // rounds
        }
    )* };
}
// Integers round to nearest and stay within their type.
samples! {
    f32, narrow:
    f32 => |x| x, |y| y, y;
    F16 => |x| x.wide(), |y| F16::round(y), F16::round(y);
    Bf16 => |x| x.wide(), |y| Bf16::round(y), Bf16::round(y);
    i8 => |x| x.into(), |y| y.round_ties_even() as i8, y as i8;
    i16 => |x| x.into(), |y| y.round_ties_even() as i16, y as i16;
    u8 => |x| x.into(), |y| y.round_ties_even() as u8, y as u8;
    u16 => |x| x.into(), |y| y.round_ties_even() as u16, y as u16;
}
samples! {
    f64, weights:
    f64 => |x| x, |y| y, y;
    i32 => |x| x.into(), |y| y.round_ties_even() as i32, y as i32;
    i64 => |x| x as f64, |y| y.round_ties_even() as i64, y as i64;
    u32 => |x| x.into(), |y| y.round_ties_even() as u32, y as u32;
    u64 => |x| x as f64, |y| y.round_ties_even() as u64, y as u64;
}
