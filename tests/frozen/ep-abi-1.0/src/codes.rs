//! Closed lists of codes that cross the ABI, and the ONNX type numbers. An unknown number prints as `other(n)`.

macro_rules! codes {
    ($(#[$m:meta])* $n:ident { $($(#[doc = $d:literal])* $v:ident = $num:literal $text:literal,)* }) => {
        $(#[$m])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        #[allow(missing_docs)] // the text of each code is its documentation
        pub enum $n { $($(#[doc = $d])* $v = $num),* }
        impl $n {
            /// All codes, in order.
            pub const ALL: &[$n] = &[$($n::$v),*];
            /// The code of a number.
            pub const fn from_u32(number: u32) -> Option<Self> {
                match number { $($num => Some($n::$v),)* _ => None }
            }
            /// Name as reports print it.
            pub const fn as_str(self) -> &'static str {
                match self { $($n::$v => $text),* }
            }
        }
        impl core::fmt::Display for $n {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

codes! {
    /// Why an EP does not take a node.
    RejectCode {
        /// It has no such operator.
        Operator = 1 "operator",
        /// Not in this version.
        Version = 2 "version",
        /// Not with these types.
        Dtype = 3 "dtype",
        /// Not with this rank.
        Rank = 4 "rank",
        /// Not with these dimensions.
        Shape = 5 "shape",
        /// Not with this attribute value.
        Attribute = 6 "attribute",
        /// Not with this memory layout.
        Layout = 7 "layout",
        /// It would not fit.
        Memory = 8 "memory",
        /// An option forbids it.
        Policy = 9 "policy",
        /// The EP failed while looking at it.
        Error = 10 "error",
    }
}

codes! {
    /// Why a factory has no device.
    NoDeviceCode {
        /// No driver is installed.
        NoDriver = 1 "no-driver",
        /// The driver is older than needed.
        DriverTooOld = 2 "driver-too-old",
        /// No such hardware.
        NoHardware = 3 "no-hardware",
        /// The hardware is there but not supported.
        UnsupportedHardware = 4 "unsupported-hardware",
        /// A library of the vendor is missing.
        MissingLibrary = 5 "missing-library",
        /// The user may not use it.
        Permission = 6 "permission",
        /// Switched off by an option or variable.
        Disabled = 7 "disabled",
        /// Asking failed.
        Error = 8 "error",
    }
}

codes! {
    /// ONNX tensor types, by their TensorProto numbers.
    DType {
        F32 = 1 "f32",
        U8 = 2 "u8",
        I8 = 3 "i8",
        U16 = 4 "u16",
        I16 = 5 "i16",
        I32 = 6 "i32",
        I64 = 7 "i64",
        Str = 8 "string",
        Bool = 9 "bool",
        F16 = 10 "f16",
        F64 = 11 "f64",
        U32 = 12 "u32",
        U64 = 13 "u64",
        C64 = 14 "complex64",
        C128 = 15 "complex128",
        Bf16 = 16 "bf16",
        F8E4M3Fn = 17 "f8e4m3fn",
        F8E4M3Fnuz = 18 "f8e4m3fnuz",
        F8E5M2 = 19 "f8e5m2",
        F8E5M2Fnuz = 20 "f8e5m2fnuz",
        U4 = 21 "u4",
        I4 = 22 "i4",
        F4E2M1 = 23 "f4e2m1",
        F8E8M0 = 24 "f8e8m0",
        U2 = 25 "u2",
        I2 = 26 "i2",
    }
}

impl DType {
    /// Bits of one element; 128 for a string, which is a `Str` in memory.
    pub const fn bits(self) -> usize {
        use DType::*;
        match self {
            U2 | I2 => 2,
            U4 | I4 | F4E2M1 => 4,
            U8 | I8 | Bool | F8E4M3Fn | F8E4M3Fnuz | F8E5M2 | F8E5M2Fnuz | F8E8M0 => 8,
            U16 | I16 | F16 | Bf16 => 16,
            F32 | U32 | I32 => 32,
            F64 | U64 | I64 | C64 => 64,
            C128 | Str => 128,
        }
    }

    /// Bytes of `count` elements; sub-byte types are packed. `None` on overflow.
    pub const fn bytes(self, count: usize) -> Option<usize> {
        let bits = self.bits();
        if bits < 8 {
            return Some(count.div_ceil(8 / bits));
        }
        count.checked_mul(bits / 8)
    }

    /// Alignment of an element in host memory.
    pub const fn align(self) -> usize {
        match self {
            DType::Str | DType::C128 => 8,
            DType::C64 => 4,
            other => other.bits().div_ceil(8),
        }
    }

    /// A set with only this type, for catalogue rows.
    pub const fn mask(self) -> u64 {
        1 << self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_go_back_and_forth() {
        for &c in RejectCode::ALL {
            assert_eq!(RejectCode::from_u32(c as u32), Some(c));
        }
        for &d in DType::ALL {
            assert_eq!(DType::from_u32(d as u32), Some(d));
        }
        assert_eq!(DType::from_u32(0), None);
        assert_eq!(RejectCode::from_u32(11), None);
    }

    #[test]
    fn sub_byte_types_round_up() {
        assert_eq!(DType::U4.bytes(3), Some(2));
        assert_eq!(DType::I2.bytes(5), Some(2));
        assert_eq!(DType::F32.bytes(3), Some(12));
        assert_eq!(DType::F64.bytes(usize::MAX), None);
    }
}
