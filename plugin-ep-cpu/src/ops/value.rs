//! Element types as kernels that only move, compare or add them see them: by width, and with the type they compute in.

use super::lane::Number;
use super::narrow::{Bf16, F16};
use core::fmt::Debug;
use ortolan_ep_kit::element::{NUMBERS, set};
use ortolan_ep_kit::{Bool, DType, Element};

/// What the standard calls all tensor types, but for strings: numbers, bool and complex numbers of 8 bits and more.
pub(crate) const TENSOR: u64 = NUMBERS | set(&[DType::Bool, DType::F16, DType::Bf16, DType::C64, DType::C128]);

/// Floats of one byte.
pub(crate) const EIGHTS: u64 =
    set(&[DType::F8E4M3Fn, DType::F8E4M3Fnuz, DType::F8E5M2, DType::F8E5M2Fnuz, DType::F8E8M0]);

/// Types of less than a byte.
pub(crate) const SMALL: u64 = set(&[DType::U4, DType::I4, DType::F4E2M1, DType::U2, DType::I2]);

/// An element of 16 bytes that is only moved. One of the types with `unsafe`: it says that all bits are a value.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(transparent)]
pub(crate) struct Word16([u64; 2]);

// SAFETY: plain integers without padding; every bit pattern is a value.
unsafe impl Element for Word16 {
    const DTYPE: DType = DType::C128;
}

/// An element that is only moved; its default is all zero bits.
pub(crate) trait Word: Element + Send + Sync + Default + PartialEq + Debug {
    /// From its first bytes.
    fn from_bytes(bytes: &[u8; 16]) -> Self;
}

macro_rules! words {
    ($($t:ty)*) => { $(
        impl Word for $t {
            fn from_bytes(bytes: &[u8; 16]) -> $t {
                u128::from_le_bytes(*bytes) as $t // the low bits are the first bytes
            }
        }
    )* };
}
words!(u8 u16 u32 u64);

impl Word for Word16 {
    fn from_bytes(bytes: &[u8; 16]) -> Word16 {
        let all = u128::from_le_bytes(*bytes);
        Word16([all as u64, (all >> 64) as u64]) // both halves
    }
}

/// Calls a function that is generic over [`Word`] for elements of so many bits: `by_width!(op.bits, copy(x, y))`.
macro_rules! by_width {
    ($bits:expr, $f:ident($($arg:expr),* $(,)?)) => {
        match $bits {
            8 => $f::<u8>($($arg),*),
            16 => $f::<u16>($($arg),*),
            32 => $f::<u32>($($arg),*),
            64 => $f::<u64>($($arg),*),
            _ => $f::<$crate::ops::value::Word16>($($arg),*),
        }
    };
}
pub(crate) use by_width;

/// A number that a type is computed in.
pub(crate) trait Value: Element + Send + Sync + PartialOrd + Default + Debug {
    /// Itself, or f32 for narrower floats.
    type Wide: Number + Debug;
    fn wide(self) -> Self::Wide;
    /// Rounds.
    fn of(wide: Self::Wide) -> Self;
}

macro_rules! own {
    ($($t:ty)*) => { $(
        impl Value for $t {
            type Wide = $t;
            #[inline(always)]
            fn wide(self) -> $t { self }
            #[inline(always)]
            fn of(wide: $t) -> $t { wide }
        }
    )* };
}
own!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! halves {
    ($($t:ty)*) => { $(
        impl Value for $t {
            type Wide = f32;
            #[inline(always)]
            fn wide(self) -> f32 { <$t>::wide(self) }
            #[inline(always)]
            fn of(wide: f32) -> $t { <$t>::round(wide) }
        }
    )* };
}
halves!(F16 Bf16);

/// Bits of a bool's set, for rows.
pub(crate) const BOOL: u64 = Bool::DTYPE.mask();
