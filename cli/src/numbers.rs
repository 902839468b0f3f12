//! Elements of tensors of any type, one by one, as numbers and texts that can be shown, counted and compared.

use std::fmt;

use half::{bf16, f16};
use ortolan::value::Tensor;
use ortolan_graph::ir::DType;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number<'a> {
    /// Integers of any width.
    Int(i128),
    /// Truth values.
    Bool(bool),
    /// 64-bit floats.
    Float(f64),
    /// Floats of fewer bits, shown with the digits that tell them from their neighbours in 32 bits.
    Float32(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
    /// Texts.
    Text(&'a str),
}

impl Number<'_> {
    /// The number, if it is real.
    pub fn real(&self) -> Option<f64> {
        match *self {
            Number::Int(n) => Some(n as f64),
            Number::Bool(b) => Some(f64::from(u8::from(b))),
            Number::Float(x) | Number::Float32(x) => Some(x),
            Number::Complex(..) | Number::Text(_) => None,
        }
    }
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(n) => write!(f, "{n}"),
            Number::Bool(b) => write!(f, "{b}"),
            Number::Float(x) => write!(f, "{x:?}"),
            Number::Float32(x) => write!(f, "{:?}", *x as f32),
            Number::Complex(re, im) => write!(f, "{re:?}{im:+?}i"),
            Number::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// All elements in row order. The error is a sentence.
pub fn iter(tensor: &Tensor) -> Result<Box<dyn Iterator<Item = Number<'_>> + '_>, String> {
    let say = |e: ortolan::Error| e.message().to_owned();
    if tensor.dtype() == DType::String {
        return Ok(Box::new(tensor.texts().map_err(say)?.map(Number::Text)));
    }
    let bytes = tensor.bytes().map_err(say)?;
    macro_rules! each {
        ($t:ty, $to:expr) => {
            Box::new(bytes.as_chunks().0.iter().map(|&c| $to(<$t>::from_le_bytes(c))))
        };
    }
    macro_rules! complex {
        ($t:ty, $half:literal) => {
            Box::new(bytes.as_chunks::<{ 2 * $half }>().0.iter().map(|c| {
                let part =
                    |at: usize| c[at..at + $half].first_chunk().map_or(0.0, |&p| f64::from(<$t>::from_le_bytes(p)));
                Number::Complex(part(0), part($half))
            }))
        };
    }
    let count = tensor.elements();
    Ok(match tensor.dtype() {
        DType::I8 => each!(i8, |n| Number::Int(i128::from(n))),
        DType::I16 => each!(i16, |n| Number::Int(i128::from(n))),
        DType::I32 => each!(i32, |n| Number::Int(i128::from(n))),
        DType::I64 => each!(i64, |n| Number::Int(i128::from(n))),
        DType::U8 => each!(u8, |n| Number::Int(i128::from(n))),
        DType::U16 => each!(u16, |n| Number::Int(i128::from(n))),
        DType::U32 => each!(u32, |n| Number::Int(i128::from(n))),
        DType::U64 => each!(u64, |n| Number::Int(i128::from(n))),
        DType::F16 => each!(f16, |x| Number::Float32(f64::from(x))),
        DType::Bf16 => each!(bf16, |x| Number::Float32(f64::from(x))),
        DType::F32 => each!(f32, |x| Number::Float32(f64::from(x))),
        DType::F64 => each!(f64, Number::Float),
        DType::Bool => Box::new(bytes.iter().map(|&b| Number::Bool(b != 0))),
        DType::C64 => complex!(f32, 4),
        DType::C128 => complex!(f64, 8),
        small => Box::new((0..count).map_while(move |i| {
            let bits = small.bits() as usize;
            let byte = bytes.get(i * bits / 8)?;
            Some(decode(small, (byte >> (i * bits % 8)) & (0xff >> (8 - bits))))
        })),
    })
}

/// The number that the bits of a type below 16 bits stand for.
fn decode(dtype: DType, bits: u8) -> Number<'static> {
    let signed = |width: u32| Number::Int(i128::from((bits << (8 - width)) as i8 >> (8 - width)));
    match dtype {
        DType::I4 => signed(4),
        DType::I2 => signed(2),
        DType::F8E4M3Fn => small_float(bits, 8, 3, 7, Specials::OnlyNan),
        DType::F8E4M3Fnuz => small_float(bits, 8, 3, 8, Specials::NanIsMinusZero),
        DType::F8E5M2 => small_float(bits, 8, 2, 15, Specials::Ieee),
        DType::F8E5M2Fnuz => small_float(bits, 8, 2, 16, Specials::NanIsMinusZero),
        DType::F4E2M1 => small_float(bits, 4, 1, 1, Specials::None),
        DType::F8E8M0 if bits == 0xff => Number::Float32(f64::NAN),
        DType::F8E8M0 => Number::Float(2f64.powi(i32::from(bits) - 127)),
        _ => Number::Int(i128::from(bits)),
    }
}

/// Which bit patterns of a small float are no finite number.
#[derive(Clone, Copy, PartialEq)]
enum Specials {
    /// Infinities and NaN at the largest exponent.
    Ieee,
    /// NaN where all bits but the sign are set.
    OnlyNan,
    /// NaN in the place of -0.
    NanIsMinusZero,
    /// None.
    None,
}

fn small_float(bits: u8, width: u32, mantissa_bits: u32, bias: i32, specials: Specials) -> Number<'static> {
    let magnitude = bits & ((1 << (width - 1)) - 1);
    let negative = bits >> (width - 1) & 1 == 1;
    let mantissa = f64::from(magnitude & ((1 << mantissa_bits) - 1));
    let exponent = i32::from(magnitude >> mantissa_bits);
    let top = (1 << (width - 1 - mantissa_bits)) - 1;
    let scale = f64::from(1u32 << mantissa_bits);
    let x = match specials {
        Specials::Ieee if exponent == top && mantissa == 0.0 => f64::INFINITY,
        Specials::Ieee if exponent == top => f64::NAN,
        Specials::OnlyNan if magnitude == 0x7f => f64::NAN,
        Specials::NanIsMinusZero if bits == 0x80 => f64::NAN,
        _ if exponent == 0 => mantissa / scale * 2f64.powi(1 - bias),
        _ => (1.0 + mantissa / scale) * 2f64.powi(exponent - bias),
    };
    Number::Float32(if negative { -x } else { x })
}

/// The name that numpy gives the type, ONNX's where numpy has none.
pub fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        other => other.name(),
    }
}

/// The type of a numpy or ONNX name.
pub fn from_numpy_name(name: &str) -> Option<DType> {
    DType::ALL.iter().copied().find(|&d| numpy_name(d) == name).or_else(|| DType::from_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(dtype: DType, shape: &[i64], bytes: &[u8]) -> Vec<String> {
        let tensor = Tensor::from_bytes(dtype, shape, bytes).unwrap();
        iter(&tensor).unwrap().map(|n| n.to_string()).collect()
    }

    #[test]
    fn packed_elements_are_taken_from_the_low_bits_up() {
        assert_eq!(all(DType::U4, &[3], &[0x21, 0x0f]), ["1", "2", "15"]);
        assert_eq!(all(DType::I4, &[3], &[0xf7, 0x08]), ["7", "-1", "-8"]);
        assert_eq!(all(DType::U2, &[5], &[0b11_10_01_00, 0b01]), ["0", "1", "2", "3", "1"]);
        assert_eq!(all(DType::I2, &[2], &[0b10_01]), ["1", "-2"]);
        assert_eq!(all(DType::F4E2M1, &[4], &[0x21, 0xf7]), ["0.5", "1.0", "6.0", "-6.0"]);
    }

    #[test]
    fn small_floats_have_the_values_of_their_formats() {
        // Largest, smallest and special numbers of the ONNX pages on float8 and float4.
        let cases: &[(DType, &[u8], &[&str])] = &[
            (
                DType::F8E4M3Fn,
                &[0x7e, 0x08, 0x01, 0x7f, 0xff, 0x38],
                &["448.0", "0.015625", "0.001953125", "NaN", "NaN", "1.0"],
            ),
            (DType::F8E4M3Fnuz, &[0x7f, 0x80, 0x01, 0x40], &["240.0", "NaN", "0.0009765625", "1.0"]),
            (DType::F8E5M2, &[0x7b, 0x7c, 0xfc, 0x7d, 0x3c], &["57344.0", "inf", "-inf", "NaN", "1.0"]),
            (DType::F8E5M2Fnuz, &[0x7f, 0x80, 0x40], &["57344.0", "NaN", "1.0"]),
            (DType::F8E8M0, &[127, 128, 255], &["1.0", "2.0", "NaN"]),
        ];
        for (dtype, bytes, want) in cases {
            assert_eq!(all(*dtype, &[bytes.len() as i64], bytes), *want, "{dtype}");
        }
    }

    #[test]
    fn numbers_are_shown_with_their_own_precision() {
        assert_eq!(all(DType::F32, &[1], &0.1f32.to_le_bytes()), ["0.1"]);
        assert_eq!(all(DType::F64, &[1], &0.1f64.to_le_bytes()), ["0.1"]);
        assert_eq!(all(DType::U64, &[1], &u64::MAX.to_le_bytes()), ["18446744073709551615"]);
        assert_eq!(all(DType::C64, &[1], &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]), ["1.0-2.0i"]);
        assert_eq!(all(DType::Bool, &[2], &[0, 1]), ["false", "true"]);
    }

    #[test]
    fn names_of_numpy_and_onnx_are_known() {
        assert_eq!(from_numpy_name("float32"), Some(DType::F32));
        assert_eq!(from_numpy_name("float"), Some(DType::F32));
        assert_eq!(from_numpy_name("bfloat16"), Some(DType::Bf16));
        assert_eq!(from_numpy_name("object"), None);
    }
}
