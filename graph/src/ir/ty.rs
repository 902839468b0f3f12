//! Types of values: element types, shapes, and the four kinds of ONNX value.
//!
//! Dims are expression ids; a tensor type says nothing about where its data lies.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::ExprId;

macro_rules! dtypes {
    ($($name:ident = $number:literal $text:literal $bits:literal;)*) => {
        /// Element type of a tensor, with ONNX's numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DType { $(#[doc = concat!("`", $text, "`")] $name = $number,)* }

        impl DType {
            /// Every element type, by number.
            pub const ALL: &'static [DType] = &[$(DType::$name,)*];

            /// Name as ONNX's type strings write it, as in `tensor(float16)`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$name => $text,)* }
            }

            /// Bits of one element in a dense buffer; sub-byte types are packed, low bits first. 0 for strings.
            pub const fn bits(self) -> u32 {
                match self { $(DType::$name => $bits,)* }
            }
        }
    };
}

dtypes! {
    F32 = 1 "float" 32;
    U8 = 2 "uint8" 8;
    I8 = 3 "int8" 8;
    U16 = 4 "uint16" 16;
    I16 = 5 "int16" 16;
    I32 = 6 "int32" 32;
    I64 = 7 "int64" 64;
    String = 8 "string" 0;
    Bool = 9 "bool" 8;
    F16 = 10 "float16" 16;
    F64 = 11 "double" 64;
    U32 = 12 "uint32" 32;
    U64 = 13 "uint64" 64;
    C64 = 14 "complex64" 64;
    C128 = 15 "complex128" 128;
    Bf16 = 16 "bfloat16" 16;
    F8E4M3Fn = 17 "float8e4m3fn" 8;
    F8E4M3Fnuz = 18 "float8e4m3fnuz" 8;
    F8E5M2 = 19 "float8e5m2" 8;
    F8E5M2Fnuz = 20 "float8e5m2fnuz" 8;
    U4 = 21 "uint4" 4;
    I4 = 22 "int4" 4;
    F4E2M1 = 23 "float4e2m1" 4;
    F8E8M0 = 24 "float8e8m0" 8;
    U2 = 25 "uint2" 2;
    I2 = 26 "int2" 2;
    F6E2M3 = 27 "float6e2m3" 6;
    F6E3M2 = 28 "float6e3m2" 6;
}

impl DType {
    /// The type with this ONNX number.
    pub fn from_number(number: i32) -> Option<DType> {
        DType::ALL.iter().copied().find(|d| d.number() == number)
    }

    /// The type that an ONNX type string names: `float16` or `tensor(float16)`.
    pub fn from_name(name: &str) -> Option<DType> {
        let inner = name.strip_prefix("tensor(").and_then(|n| n.strip_suffix(')')).unwrap_or(name);
        DType::ALL.iter().copied().find(|d| d.name() == inner)
    }

    /// ONNX's number, as it stands in files and crosses the plugin ABI.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// Bytes of `elements` packed elements, the last byte padded; `None` on overflow and for strings.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        match self.bits() {
            0 => None,
            bits => elements.checked_mul(u64::from(bits)).map(|b| b.div_ceil(8)),
        }
    }

    /// Integers of any width and sign (not bool).
    pub const fn is_int(self) -> bool {
        use DType::*;
        matches!(self, U8 | I8 | U16 | I16 | I32 | I64 | U32 | U64 | U4 | I4 | U2 | I2)
    }

    /// Real floating-point numbers of any width.
    pub const fn is_float(self) -> bool {
        use DType::*;
        !self.is_int() && !matches!(self, String | Bool | C64 | C128)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Dims of a tensor of known rank.
pub type Dims = SmallVec<[ExprId; 6]>;

/// A dense tensor: element type and, when the rank is known, its dims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// `None` while not even the rank is known. A dim that nothing is known of is a symbol of its own.
    pub dims: Option<Dims>,
}

impl TensorType {
    /// The rank, if known.
    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(|d| d.len())
    }
}

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A dense tensor.
    Tensor(TensorType),
    /// A sequence of values of one type; its length is never part of the type.
    Sequence(Arc<Type>),
    /// A value or nothing.
    Optional(Arc<Type>),
    /// A map; keys are strings or integers.
    Map(DType, Arc<Type>),
    /// A tensor type or sequence whose element type nothing says (an empty sequence, an unknown operator).
    Unknown,
}

impl Type {
    /// A tensor type of known rank.
    pub fn tensor(dtype: DType, dims: impl IntoIterator<Item = ExprId>) -> Type {
        Type::Tensor(TensorType { dtype, dims: Some(dims.into_iter().collect()) })
    }

    /// A tensor type of unknown rank.
    pub fn unranked(dtype: DType) -> Type {
        Type::Tensor(TensorType { dtype, dims: None })
    }

    /// The tensor type, if this is one.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// Short name of the kind, as errors print it: `tensor(float)`, `seq(tensor(int64))`.
    pub fn kind_name(&self) -> String {
        match self {
            Type::Tensor(t) => format!("tensor({})", t.dtype),
            Type::Sequence(t) => format!("seq({})", t.kind_name()),
            Type::Optional(t) => format!("optional({})", t.kind_name()),
            Type::Map(key, value) => format!("map({key},{})", value.kind_name()),
            Type::Unknown => "unknown".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for &d in DType::ALL {
            assert_eq!(DType::from_number(d.number()), Some(d));
            assert_eq!(DType::from_name(&format!("tensor({d})")), Some(d));
        }
        assert_eq!(DType::from_number(0), None);
        assert_eq!(DType::from_number(29), None);
    }

    #[test]
    fn packed_sizes_round_up_and_never_overflow() {
        for (d, n, want) in [
            (DType::I4, 3, Some(2)),
            (DType::U2, 5, Some(2)),
            (DType::F64, u64::MAX / 8, None),
            (DType::F32, 3, Some(12)),
            (DType::String, 1, None),
        ] {
            assert_eq!(d.bytes(n), want, "{d} × {n}");
        }
    }
}
