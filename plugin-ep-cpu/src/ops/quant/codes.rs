//! What the bits of quantized types mean, one value at a time: integers of 2 to 32 bits, and floats of 4 and 8.

use crate::ops::narrow::{Bf16, E2M1, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F8E8M0, F16, Format};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{DType, Element};

/// Floats of 4 and 8 bits.
pub(crate) const FLOAT_CODES: u64 =
    set(&[DType::F8E4M3Fn, DType::F8E4M3Fnuz, DType::F8E5M2, DType::F8E5M2Fnuz, DType::F4E2M1]);
/// All types that numbers are quantized to.
pub(super) const CODES: u64 =
    FLOAT_CODES | set(&[DType::U8, DType::I8, DType::U16, DType::I16, DType::U4, DType::I4, DType::U2, DType::I2]);

/// A type of codes of whole bytes.
pub(crate) trait Code: Element + Send + Sync {
    /// The least value.
    const LOW: i32;
    /// The greatest value.
    const HIGH: i32;
    /// As an integer.
    fn wide(self) -> i32;
    /// From an integer within the limits.
    fn of(x: i32) -> Self;
}

macro_rules! codes {
    ($($t:ty)*) => { $(
        impl Code for $t {
            const LOW: i32 = <$t>::MIN as i32;
            const HIGH: i32 = <$t>::MAX as i32;
            #[inline(always)]
            fn wide(self) -> i32 { self.into() }
            #[inline(always)]
            fn of(x: i32) -> Self { x as $t }
        }
    )* };
}
codes!(u8 i8 u16 i16 i32);

/// Values of any type that has to do with quantization, by position. Types below a byte are packed, low bits first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Values<'a> {
    pub dtype: DType,
    pub data: &'a [u8],
}

/// The format of a float of 4 or 8 bits.
fn format(dtype: DType) -> Option<&'static Format> {
    match dtype {
        DType::F8E4M3Fn => Some(&E4M3FN),
        DType::F8E4M3Fnuz => Some(&E4M3FNUZ),
        DType::F8E5M2 => Some(&E5M2),
        DType::F8E5M2Fnuz => Some(&E5M2FNUZ),
        DType::F4E2M1 => Some(&E2M1),
        _ => None,
    }
}

/// Least and greatest value of an integer type.
fn limits(dtype: DType) -> (i32, i32) {
    match dtype {
        DType::U2 => (0, 3),
        DType::I2 => (-2, 1),
        DType::U4 => (0, 15),
        DType::I4 => (-8, 7),
        DType::I8 => (-128, 127),
        DType::U16 => (0, 65_535),
        DType::I16 => (-32_768, 32_767),
        _ => (0, 255),
    }
}

impl Values<'_> {
    /// Bytes of element `at`, as many as asked for.
    fn chunk<const N: usize>(&self, at: usize) -> [u8; N] {
        self.data.as_chunks::<N>().0[at]
    }

    /// Element `at` of a type below a byte.
    fn bits(&self, at: usize) -> u8 {
        let bits = self.dtype.bits();
        let per = 8 / bits;
        (self.data[at / per] >> (at % per * bits)) & ((1 << bits) - 1)
    }

    /// The value of element `at`.
    pub fn get(&self, at: usize) -> f64 {
        let sign = |bits: u8, width: u32| f64::from((bits << (8 - width)).cast_signed() >> (8 - width));
        match self.dtype {
            DType::U8 => self.data[at].into(),
            DType::I8 => self.data[at].cast_signed().into(),
            DType::U16 => u16::from_ne_bytes(self.chunk(at)).into(),
            DType::I16 => i16::from_ne_bytes(self.chunk(at)).into(),
            DType::I32 => i32::from_ne_bytes(self.chunk(at)).into(),
            DType::U4 | DType::U2 => self.bits(at).into(),
            DType::I4 => sign(self.bits(at), 4),
            DType::I2 => sign(self.bits(at), 2),
            DType::F32 => f32::from_ne_bytes(self.chunk(at)).into(),
            DType::F16 => F16(u16::from_ne_bytes(self.chunk(at))).wide().into(),
            DType::Bf16 => Bf16(u16::from_ne_bytes(self.chunk(at))).wide().into(),
            DType::F8E8M0 => F8E8M0(self.data[at]).wide().into(),
            DType::F4E2M1 => E2M1.decode(self.bits(at)).into(),
            other => format(other).map_or(0.0, |format| format.decode(self.data[at]).into()),
        }
    }
}

/// Writes element `at`: an integer is rounded, ties to even, and held at its limits; a float is rounded and, if
/// `saturate`, held at its greatest value.
pub(super) fn put(dtype: DType, data: &mut [u8], at: usize, x: f64, saturate: bool) {
    let code = match format(dtype) {
        Some(format) => format.encode(x as f32, saturate).into(), // rounds twice, as casts to f32 and on do
        None => {
            let (low, high) = limits(dtype);
            x.round_ties_even().max(low.into()).min(high.into()) as i32 // within limits; NaN became the lower one
        }
    };
    match dtype.bits() {
        16 => data.as_chunks_mut::<2>().0[at] = (code as u16).to_ne_bytes(), // low bits
        8 => data[at] = code as u8,                                          // low bits
        bits => {
            let (per, mask) = (8 / bits, (1u8 << bits) - 1);
            let shift = at % per * bits;
            let byte = &mut data[at / per];
            *byte = *byte & !(mask << shift) | (code as u8 & mask) << shift;
        }
    }
}
