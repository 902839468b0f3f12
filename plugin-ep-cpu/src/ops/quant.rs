//! Quantized numbers: to them, from them, and products of them.
//!
//! `linear` and `codes` change between floats and codes, `dynamic` finds the scale in the data, `matmul` multiplies on
//! `igemm`, `conv` and `filters` convolve on `iconv`, `fused` has float nodes between codes.

mod codes;
mod conv;
mod dynamic;
mod filters;
mod fused;
mod linear;
mod matmul;
#[cfg(test)]
mod tests;

use super::float::F32;
use codes::CODES;
pub(crate) use codes::{Code, FLOAT_CODES, Values};
use conv::{conv_integer, qlinear_conv};
use dynamic::dynamic_quantize;
pub(crate) use dynamic::{BLOCK as LIMITS_OF, Scale, scale_of};
pub(crate) use filters::Bound as FiltersBound;
pub(crate) use fused::{BinaryOfCodes, ConvOfCodes};
pub(crate) use linear::code;
use linear::{dequantize, dequantize_plain, quantize, quantize_plain};
pub(crate) use matmul::{Products, Sides, integer_cost, one_or_each, zero};
use matmul::{matmul_integer, qlinear_matmul};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{DType, Kernel, Slot, any, typed};

/// Sorted by operator; of two rows for one operator the first that fits runs.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("ConvInteger", (10, 10), "convinteger", any!(conv_integer)).types(&[("T1", BYTES), ("T2", BYTES)]),
    Kernel::new("DequantizeLinear", (13, 28), "dequantize", typed!(dequantize: u8 i8 u16 i16 i32))
        .types(&[("T1", WHOLE_CODES | DType::I32.mask()), ("T2", F32), ("T3", F32)])
        .at(&[Slot::In(0), Slot::In(1), Slot::Out(0)]),
    Kernel::new("DequantizeLinear", (13, 28), "dequantize", any!(dequantize_plain))
        .types(&[("T1", CODES | DType::I32.mask()), ("T2", SCALES), ("T3", HALVES | F32)])
        .at(&[Slot::In(0), Slot::In(1), Slot::Out(0)])
        .fallback(),
    Kernel::new("DynamicQuantizeLinear", (11, 11), "dynamicquantize", any!(dynamic_quantize: f32)),
    Kernel::new("MatMulInteger", (10, 10), "matmulinteger", any!(matmul_integer))
        .types(&[("T1", BYTES), ("T2", BYTES)]),
    Kernel::new("QLinearConv", (10, 10), "qlinearconv", any!(qlinear_conv))
        .types(&[("T1", BYTES), ("T2", BYTES), ("T3", BYTES)])
        .at(&[Slot::In(0), Slot::In(3), Slot::Out(0)]),
    Kernel::new("QLinearMatMul", (10, 21), "qlinearmatmul", any!(qlinear_matmul))
        .types(&[("T1", BYTES), ("T2", BYTES), ("T3", BYTES), ("TS", HALVES | F32)])
        .at(&[Slot::In(0), Slot::In(3), Slot::Out(0), Slot::In(1)]),
    Kernel::new("QuantizeLinear", (13, 28), "quantize", typed!(quantize: u8 i8 u16 i16))
        .types(&[("T3", WHOLE_CODES), ("T1", F32), ("T2", F32)])
        .at(&[Slot::Out(0), Slot::In(0), Slot::In(1)]),
    Kernel::new("QuantizeLinear", (13, 28), "quantize", any!(quantize_plain))
        .types(&[
            ("T3", CODES | FLOAT_CODES),
            ("T1", HALVES | F32 | DType::I32.mask()),
            ("T2", SCALES | DType::I32.mask()),
        ])
        .at(&[Slot::Out(0), Slot::In(0), Slot::In(1)])
        .fallback(),
];

/// 8 bits with or without a sign.
const BYTES: u64 = set(&[DType::U8, DType::I8]);
/// Codes that are whole bytes.
const WHOLE_CODES: u64 = BYTES | set(&[DType::U16, DType::I16]);
const HALVES: u64 = set(&[DType::F16, DType::Bf16]);
/// Types of scales.
const SCALES: u64 = HALVES | F32 | DType::F8E8M0.mask();
