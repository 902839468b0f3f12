//! Floats narrower than 32 bits: their element types, and what their bits mean.
//!
//! Kernels widen them to f32, compute, and round once. The conversions are plain arithmetic without branches or calls,
//! so that loops over them become vectors. It must not know operators or tensors.
//!
//! One of the files with `unsafe`: it says of its types that every bit pattern is a value.

use core::cmp::Ordering;
use ortolan_ep_kit::{DType, Element};

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident($bits:ident);)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(pub $bits);

        // SAFETY: a transparent integer of the type's size; every bit pattern is a value.
        unsafe impl Element for $name {
            const DTYPE: DType = DType::$name;
        }

        impl PartialEq for $name {
            #[inline(always)]
            fn eq(&self, other: &Self) -> bool {
                self.wide() == other.wide()
            }
        }

        impl PartialOrd for $name {
            #[inline(always)]
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.wide().partial_cmp(&other.wide())
            }
        }
    )* };
}

types! {
    /// IEEE half precision.
    F16(u16);
    /// The upper half of an f32.
    Bf16(u16);
    /// 8 bits with 3 of mantissa; NaN, no infinity.
    F8E4M3Fn(u8);
    /// 8 bits with 3 of mantissa; one NaN, no infinity, no negative zero.
    F8E4M3Fnuz(u8);
    /// 8 bits with 2 of mantissa, made like IEEE types.
    F8E5M2(u8);
    /// 8 bits with 2 of mantissa; one NaN, no infinity, no negative zero.
    F8E5M2Fnuz(u8);
    /// A power of two, or NaN.
    F8E8M0(u8);
}

impl F16 {
    /// The same value.
    #[inline(always)]
    pub fn wide(self) -> f32 {
        let bits = u32::from(self.0);
        let (sign, size) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
        // The exponent is off by 112, also for denormal numbers; infinity and NaN need the largest one.
        let scaled = f32::from_bits(size) * f32::from_bits((112 + 127) << 23);
        let special = if size >= 31 << 23 { 255 << 23 } else { 0 };
        f32::from_bits(scaled.to_bits() | special | sign)
    }

    /// The nearest value, ties to even.
    #[inline(always)]
    pub fn round(x: f32) -> F16 {
        let bits = x.to_bits();
        let (sign, size) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
        let normal = size.wrapping_add(0xfff + (size >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
        // Adding a half makes the adder round where a denormal number ends.
        let denormal = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let finite = if size < 113 << 23 { denormal } else { normal };
        let nan = 0x7e00 | (size >> 13 & 0x1ff);
        let special = if size > 255 << 23 { nan } else { 0x7c00 };
        let size = if size >= (127 + 16) << 23 { special } else { finite };
        F16((sign | size) as u16) // both parts have 16 bits
    }
}

impl Bf16 {
    /// The same value.
    #[inline(always)]
    pub fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// The nearest value, ties to even.
    #[inline(always)]
    pub fn round(x: f32) -> Bf16 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let nan = bits >> 16 | 0x40;
        Bf16(if x.is_nan() { nan } else { rounded } as u16) // shifted to 16 bits
    }
}

macro_rules! widens {
    ($($t:ident)*) => { $(
        impl ortolan_ep_kit::widen::Narrow for $t {
            #[inline(always)]
            fn widen(self) -> f32 {
                self.wide()
            }
            #[inline(always)]
            fn narrow(x: f32) -> $t {
                $t::round(x)
            }
        }
    )* };
}
widens!(F16 Bf16);

/// An f64 as an f32 that rounds on to a narrower type as the f64 itself would: what does not fit makes the last bit 1.
#[inline(always)]
pub(crate) fn sticky(x: f64) -> f32 {
    let near = x as f32; // rounds; the next lines see to the rest
    if f64::from(near) == x || x.is_nan() {
        return near;
    }
    let away = f64::from(near).abs() > x.abs();
    f32::from_bits((near.to_bits() - u32::from(away)) | 1)
}

/// A float format of at most 8 bits with a sign.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    mantissa: u32,
    bias: i32,
    sign: u8,
    /// Code of the largest finite value.
    largest: u8,
    infinity: Option<u8>,
    /// Code of NaN without its sign, and whether NaN has one.
    nan: (u8, bool),
    /// Whether the code of -0 is a zero.
    negative_zero: bool,
}

/// `F8E4M3Fn`.
pub(crate) const E4M3FN: Format =
    Format { mantissa: 3, bias: 7, sign: 0x80, largest: 0x7e, infinity: None, nan: (0x7f, true), negative_zero: true };
/// `F8E4M3Fnuz`.
pub(crate) const E4M3FNUZ: Format = Format {
    mantissa: 3,
    bias: 8,
    sign: 0x80,
    largest: 0x7f,
    infinity: None,
    nan: (0x80, false),
    negative_zero: false,
};
/// `F8E5M2`.
pub(crate) const E5M2: Format = Format {
    mantissa: 2,
    bias: 15,
    sign: 0x80,
    largest: 0x7b,
    infinity: Some(0x7c),
    nan: (0x7e, true),
    negative_zero: true,
};
/// `F8E5M2Fnuz`.
pub(crate) const E5M2FNUZ: Format = Format { mantissa: 2, bias: 16, ..E4M3FNUZ };
/// `F4E2M1`, which has no NaN: it becomes -0.
pub(crate) const E2M1: Format =
    Format { mantissa: 1, bias: 1, sign: 0x8, largest: 0x7, infinity: None, nan: (0x8, false), negative_zero: true };

impl Format {
    /// What a code means; bits above the sign are ignored.
    pub const fn decode(&self, code: u8) -> f32 {
        let size = code & (self.sign - 1);
        let negative = code & self.sign != 0;
        let is_infinity = matches!(self.infinity, Some(infinity) if infinity == size);
        let is_nan =
            if self.nan.1 { size > self.largest && !is_infinity } else { !self.negative_zero && code == self.sign };
        if is_nan {
            return f32::NAN;
        }
        let (exponent, mantissa) = ((size >> self.mantissa) as i32, size as u32 & ((1 << self.mantissa) - 1));
        let value = match exponent {
            _ if is_infinity => f32::INFINITY,
            0 => mantissa as f32 * power(1 - self.bias - self.mantissa as i32),
            _ => (mantissa + (1 << self.mantissa)) as f32 * power(exponent - self.bias - self.mantissa as i32),
        };
        if negative { -value } else { value }
    }

    /// The nearest code, ties to even. What is too large becomes the largest value or, if not `saturate`, infinity or
    /// NaN where the format has them.
    #[inline]
    pub fn encode(&self, x: f32, saturate: bool) -> u8 {
        let (nan, signed) = self.nan;
        let sign = if x.is_sign_negative() { self.sign } else { 0 };
        if x.is_nan() {
            return nan | if signed { sign } else { 0 };
        }
        let size = self.round(x.abs());
        if size <= u32::from(self.largest) {
            let size = size as u8; // at most `largest`
            return if size == 0 && !self.negative_zero { 0 } else { size | sign };
        }
        match self.infinity {
            _ if saturate || self.sign == E2M1.sign => self.largest | sign,
            Some(infinity) => infinity | sign,
            None => nan | if signed { sign } else { 0 },
        }
    }

    /// Code of a positive value if exponents went on for ever.
    #[inline]
    fn round(&self, x: f32) -> u32 {
        if x.is_infinite() {
            return u32::MAX;
        }
        let least = 1 - self.bias;
        let exponent = ((x.to_bits() >> 23) as i32 - 127).max(least);
        let units = (x * power(self.mantissa as i32 - exponent)).round_ties_even() as u32; // at most 16
        (((exponent - least) as u32) << self.mantissa) + units
    }
}

/// A power of two from 2^-126 to 2^127, and 0 or infinity beyond.
const fn power(exponent: i32) -> f32 {
    match exponent {
        ..-126 => 0.0,
        -126..=127 => f32::from_bits(((exponent + 127) as u32) << 23),
        _ => f32::INFINITY,
    }
}

/// All values of a format of 8 bits.
const fn table(format: &Format) -> [f32; 256] {
    let (mut table, mut code) = ([0.0; 256], 0);
    while code < 256 {
        table[code] = format.decode(code as u8); // below 256
        code += 1;
    }
    table
}

macro_rules! eight_bits {
    ($($name:ident = $format:ident, $table:ident;)*) => { $(
        static $table: [f32; 256] = table(&$format);

        impl $name {
            /// The same value.
            #[inline(always)]
            pub fn wide(self) -> f32 {
                $table[usize::from(self.0)]
            }
        }
    )* };
}

eight_bits! {
    F8E4M3Fn = E4M3FN, E4M3FN_VALUES;
    F8E4M3Fnuz = E4M3FNUZ, E4M3FNUZ_VALUES;
    F8E5M2 = E5M2, E5M2_VALUES;
    F8E5M2Fnuz = E5M2FNUZ, E5M2FNUZ_VALUES;
}

/// How a value between two powers of two becomes one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Toward {
    /// The larger one.
    Up,
    /// The smaller one.
    Down,
    /// The nearer one, the larger one if both are as near.
    Nearest,
}

impl F8E8M0 {
    /// The same value.
    #[inline(always)]
    pub fn wide(self) -> f32 {
        match self.0 {
            0 => f32::from_bits(1 << 22), // 2^-127
            255 => f32::NAN,
            code => f32::from_bits(u32::from(code) << 23),
        }
    }

    /// A power of two beside the size of `x`. What is above all of them becomes the largest one or, if not `saturate`,
    /// NaN.
    #[inline]
    pub fn round(x: f32, toward: Toward, saturate: bool) -> F8E8M0 {
        let size = x.to_bits() & 0x7fff_ffff;
        let (exponent, rest) = (size >> 23, size & 0x7f_ffff);
        if x.is_nan() {
            return F8E8M0(255);
        }
        // 2^-127 itself is a denormal f32: half of the first exponent's numbers are nearer to 0 than to 2^-126.
        let up = match toward {
            Toward::Up if exponent == 0 => rest > 1 << 22,
            Toward::Up => rest > 0,
            Toward::Down => false,
            Toward::Nearest if exponent == 0 => rest >= 3 << 21,
            Toward::Nearest => rest >= 1 << 22,
        };
        let code = exponent + u32::from(up);
        F8E8M0(if code < 255 { code as u8 } else { 255 - u8::from(saturate) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nearest by search over all codes, ties to the even code.
    fn nearest(x: f64, codes: impl Iterator<Item = (u32, f64)>) -> u32 {
        let distance = |v: f64| (v - x).abs();
        codes.min_by(|a, b| distance(a.1).total_cmp(&distance(b.1)).then((a.0 & 1).cmp(&(b.0 & 1)))).unwrap().0
    }

    #[test]
    fn halves_come_back() {
        for code in 0..=u16::MAX {
            let (half, brain) = (F16(code), Bf16(code));
            if half.wide().is_nan() {
                assert!(F16::round(half.wide()).wide().is_nan(), "{code:#x}");
            } else {
                assert_eq!(F16::round(half.wide()).0, code);
            }
            if !brain.wide().is_nan() {
                assert_eq!(Bf16::round(brain.wide()).0, code);
            }
        }
        assert_eq!([F16(0x3c00).wide(), F16(0xc000).wide(), F16(1).wide()], [1.0, -2.0, 5.960_464_5e-8]);
        assert!(Bf16::round(f32::NAN).wide().is_nan() && F16::round(-f32::NAN).wide().is_nan());
    }

    #[test]
    fn halves_round_to_the_nearest() {
        let finite = |code: u32| F16(code as u16).wide().is_finite();
        for k in 0..2000u32 {
            let x = f32::from_bits(0x3000_0000 + k * 131_071); // up to about 2 million
            let want = nearest(x.into(), (0..0x7c00).filter(|&c| finite(c)).map(|c| (c, F16(c as u16).wide().into())));
            let want = if x >= 65_520.0 { 0x7c00 } else { want };
            assert_eq!(u32::from(F16::round(x).0), want, "{x}");
        }
        let cases = [(65_519.0, 0x7bff), (65_520.0, 0x7c00), (2.98e-8, 0), (2.981e-8, 1), (f32::INFINITY, 0x7c00)];
        for (x, want) in cases {
            assert_eq!(F16::round(x).0, want, "{x}");
            assert_eq!(F16::round(-x).0, want | 0x8000, "{x}");
        }
    }

    #[test]
    fn doubles_round_once() {
        // A tie for f16 but for the last bits of an f64, which an f32 would lose.
        let above = 1.0 + 1.0 / 2048.0 + 1e-15;
        assert_eq!(F16::round(sticky(above)).0, 0x3c01);
        assert_eq!(F16::round(sticky(1.0 + 1.0 / 2048.0)).0, 0x3c00);
        assert_eq!(F16::round(sticky(-above)).0, 0xbc01);
        assert_eq!(sticky(0.5), 0.5);
        assert_eq!(sticky(f64::INFINITY), f32::INFINITY);
    }

    #[test]
    fn small_formats_round_to_the_nearest() {
        let formats = [(E4M3FN, 448.0), (E4M3FNUZ, 240.0), (E5M2, 57344.0), (E5M2FNUZ, 57344.0), (E2M1, 6.0)];
        for (format, largest) in formats {
            assert_eq!(format.decode(format.largest), largest);
            for k in 0..4000 {
                let x = 2.0f32.powf(k as f32 / 100.0 - 22.0);
                let codes = (0..=u32::from(format.largest)).map(|c| (c, format.decode(c as u8).into()));
                let want = nearest(x.into(), codes) as u8;
                assert_eq!(format.encode(x, true), want, "{format:?} {x}");
                let minus = if want == 0 && !format.negative_zero { 0 } else { want | format.sign };
                assert_eq!(format.encode(-x, true), minus, "{format:?} {x}");
            }
            for code in 0..=(format.sign | (format.sign - 1)) {
                let x = format.decode(code);
                assert!(x.is_nan() || format.encode(x, false) == code, "{format:?} {code:#x}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_follows_the_standard() {
        // Value; E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ: saturated, then not.
        let cases = [
            (f32::NAN, [0x7f, 0x80, 0x7e, 0x80], [0x7f, 0x80, 0x7e, 0x80]),
            (f32::INFINITY, [0x7e, 0x7f, 0x7b, 0x7f], [0x7f, 0x80, 0x7c, 0x80]),
            (f32::NEG_INFINITY, [0xfe, 0xff, 0xfb, 0xff], [0xff, 0x80, 0xfc, 0x80]),
            (1e6, [0x7e, 0x7f, 0x7b, 0x7f], [0x7f, 0x80, 0x7c, 0x80]),
            (-1e6, [0xfe, 0xff, 0xfb, 0xff], [0xff, 0x80, 0xfc, 0x80]),
            (-0.0, [0x80, 0, 0x80, 0], [0x80, 0, 0x80, 0]),
        ];
        for (x, saturated, not) in cases {
            let codes = |saturate| [E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ].map(|f| f.encode(x, saturate));
            assert_eq!(codes(true), saturated, "{x}");
            assert_eq!(codes(false), not, "{x}");
        }
    }

    #[test]
    fn powers_of_two() {
        let cases = [
            (1.0, [127, 127, 127]),
            (1.25, [128, 127, 127]),
            (1.5, [128, 127, 128]),
            (-3.5, [129, 128, 129]),
            (0.0, [0, 0, 0]),
            (f32::MAX, [254, 254, 254]),
            (f32::INFINITY, [254, 254, 254]),
        ];
        for (x, want) in cases {
            let codes = [Toward::Up, Toward::Down, Toward::Nearest].map(|toward| F8E8M0::round(x, toward, true).0);
            assert_eq!(codes, want, "{x}");
        }
        assert_eq!(F8E8M0::round(f32::MAX, Toward::Up, false).0, 255);
        for code in 0..=254 {
            assert_eq!(F8E8M0::round(F8E8M0(code).wide(), Toward::Up, false).0, code);
        }
    }
}
