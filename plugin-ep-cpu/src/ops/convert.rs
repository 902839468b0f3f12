//! Conversions between element types of whole bytes, one value at a time, as `Cast` defines them.
//!
//! Floats round to nearest and become infinite where they do not fit; integers keep their low bits; anything but zero is
//! true. A float that an integer type cannot hold has no defined result: here types below 32 bits get the low bits of
//! what an i32 would hold, wider ones their nearest value.

use super::narrow::{Bf16, F16, sticky};
use ortolan_ep_kit::{Bool, Element};

/// A type that values are converted from and to.
pub(crate) trait Whole: Element + Send + Sync {
    /// A float of at most 32 bits: loops over these gain most from wide vectors.
    const SHORT_FLOAT: bool = false;
    /// Rounded to odd: good for rounding on to fewer bits.
    fn to_f32(self) -> f32;
    /// Low 64 bits, towards zero.
    fn to_i64(self) -> i64;
}

/// One conversion.
pub(crate) trait To<B> {
    fn to(self) -> B;
}

/// `a as b` for all pairs of a list with the types behind it.
macro_rules! as_pairs {
    ($($a:ty)* => $b:tt) => { $( as_pairs!(@one $a => $b); )* };
    (@one $a:ty => ($($b:ty)*)) => { $(
        impl To<$b> for $a {
            #[inline(always)]
            fn to(self) -> $b { self as $b }
        }
    )* };
}
as_pairs!(i8 i16 i32 i64 u8 u16 u32 u64 => (i8 i16 i32 i64 u8 u16 u32 u64 f32 f64));
as_pairs!(f32 f64 => (i32 i64 u64 f32 f64));

/// By way of a wider integer, whose low bits stay.
macro_rules! by_way {
    ($way:ty: $($b:ty)*) => { $(
        impl To<$b> for f32 {
            #[inline(always)]
            fn to(self) -> $b { self as $way as $b }
        }
        impl To<$b> for f64 {
            #[inline(always)]
            fn to(self) -> $b { self as $way as $b }
        }
    )* };
}
by_way!(i32: i8 i16 u8 u16);
by_way!(i64: u32);

macro_rules! numbers {
    ($($t:ty: $zero:literal, $f32:expr, $short:literal;)*) => { $(
        impl Whole for $t {
            const SHORT_FLOAT: bool = $short;
            #[inline(always)]
            fn to_f32(self) -> f32 { ($f32)(self) }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
        }
        impl To<Bool> for $t {
            #[inline(always)]
            fn to(self) -> Bool { (self != $zero).into() }
        }
        impl To<F16> for $t {
            #[inline(always)]
            fn to(self) -> F16 { F16::round(self.to_f32()) }
        }
        impl To<Bf16> for $t {
            #[inline(always)]
            fn to(self) -> Bf16 { Bf16::round(self.to_f32()) }
        }
        impl To<$t> for Bool {
            #[inline(always)]
            fn to(self) -> $t { u8::from(self.get()).to() }
        }
        impl To<$t> for F16 {
            #[inline(always)]
            fn to(self) -> $t { self.wide().to() }
        }
        impl To<$t> for Bf16 {
            #[inline(always)]
            fn to(self) -> $t { self.wide().to() }
        }
    )* };
}
numbers! {
    f32: 0.0, |x| x, true;
    f64: 0.0, sticky, false;
    i8: 0, |x| x as f32, false;
    i16: 0, |x| x as f32, false;
    i32: 0, |x| sticky(x as f64), false;
    i64: 0, |x| sticky(x as f64), false;
    u8: 0, |x| x as f32, false;
    u16: 0, |x| x as f32, false;
    u32: 0, |x| sticky(x as f64), false;
    u64: 0, |x| sticky(x as f64), false;
}

/// By way of a type that holds all their values.
macro_rules! small {
    ($($t:ty: |$x:ident| $wide:expr, $short:literal => $($b:ty)*;)*) => { $(
        impl Whole for $t {
            const SHORT_FLOAT: bool = $short;
            #[inline(always)]
            fn to_f32(self) -> f32 { let $x = self; $wide.to() }
            #[inline(always)]
            fn to_i64(self) -> i64 { let $x = self; $wide.to() }
        }
        $(impl To<$b> for $t {
            #[inline(always)]
            fn to(self) -> $b { let $x = self; $wide.to() }
        })*
    )* };
}
small! {
    Bool: |x| u8::from(x.get()), false => Bool F16 Bf16;
    F16: |x| x.wide(), true => Bool F16 Bf16;
    Bf16: |x| x.wide(), true => Bool F16 Bf16;
}
