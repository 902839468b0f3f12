//! Operators of ONNX Runtime (domain `com.microsoft`) that its optimiser writes and real models carry, on the building
//! blocks of the standard's families. Those that differ from a standard operator by their name only are rows of that family.

mod attention;
mod blocks;
mod distance;
mod embed;
mod fused;
mod gelu;
mod inverse;
mod nbits;
mod quant;
mod skip;

use super::float::F32;
use super::narrow::{Bf16, F16};
use super::quant::FLOAT_CODES;
use attention::group::{Group, group};
use attention::multi::{Multi, multi};
use attention::projected::{Projected, projected, qprojected};
use attention::rotary::rotary;
use blocks::blocks;
use distance::distance;
use embed::embed;
use fused::{FusedConv, FusedGemm, FusedMatMul, fused_conv, fused_gemm, fused_matmul, fused_matmul_plain};
use gelu::{Biased, biased};
use inverse::inverse;
use nbits::{NBits, nbits};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{DType, Kernel, Runs, Slot, any, typed, widened};
use quant::element::{one, pair};
use quant::gemm::qgemm;
use quant::join::join;
use quant::matmul::to_float;
use quant::pool::{average, global, greatest};
use quant::softmax::softmax;
use skip::{Skip, skip};

/// Sorted by operator; of two rows for one operator the first that fits runs.
pub const KERNELS: &[Kernel] = &[
    ms("Attention", "attention", any!(projected: f32)),
    ms("Attention", "attention", widened!(Projected, projected => F16 Bf16)).fallback(),
    ms("BiasGelu", "biasgelu", any!(biased: f32)).in_place(OVER),
    ms("BiasGelu", "biasgelu", widened!(Biased, biased => F16 Bf16)).fallback(),
    ms("CDist", "cdist", typed!(distance: f32 f64)),
    ms("DynamicQuantizeMatMul", "dynamicquantizematmul", any!(to_float)).types(&[("T1", F32), ("T2", BYTES)]),
    ms("EmbedLayerNormalization", "embedlayernorm", typed!(embed: f32 F16)).types(EMBEDDED).at(TABLE_AND_IDS),
    ms("FastGelu", "fastgelu", any!(biased: f32)).in_place(OVER),
    ms("FastGelu", "fastgelu", widened!(Biased, biased => F16 Bf16)).fallback(),
    ms("FusedConv", "fusedconv", any!(fused_conv: f32)),
    ms("FusedConv", "fusedconv", widened!(FusedConv, fused_conv => F16)).fallback(),
    ms("FusedGemm", "fusedgemm", any!(fused_gemm: f32)),
    ms("FusedGemm", "fusedgemm", widened!(FusedGemm, fused_gemm => F16)).fallback(),
    ms("FusedMatMul", "fusedmatmul", any!(fused_matmul: f32)),
    ms("FusedMatMul", "fusedmatmul", any!(fused_matmul_plain: f64)).fallback(),
    ms("FusedMatMul", "fusedmatmul", widened!(FusedMatMul, fused_matmul => F16 Bf16)).fallback(),
    ms("GatherBlockQuantized", "gatherblockquantized", typed!(blocks: f32 F16 Bf16))
        .types(BLOCKED)
        .at(SCALES_AND_CODES),
    ms("GroupQueryAttention", "groupqueryattention", any!(group))
        .types(&[("T", F32), ("T_CACHE", F32 | BYTES)])
        .at(QUERY_AND_PRESENT),
    ms("GroupQueryAttention", "groupqueryattention", widened!(Group, group => F16 Bf16))
        .types(&[("T", HALVES), ("T_CACHE", HALVES | BYTES)])
        .at(QUERY_AND_PRESENT)
        .fallback(),
    ms("Inverse", "inverse", any!(inverse: f32 f64 F16)),
    ms("MatMulIntegerToFloat", "matmulintegertofloat", any!(to_float))
        .types(&[("T1", BYTES), ("T2", BYTES), ("T3", F32)])
        .at(TWO_AND_SCALE),
    ms("MatMulNBits", "matmulnbits", any!(nbits: f32)),
    ms("MatMulNBits", "matmulnbits", widened!(NBits, nbits => F16 Bf16)).fallback(),
    ms("MultiHeadAttention", "multiheadattention", any!(multi: f32)),
    ms("MultiHeadAttention", "multiheadattention", widened!(Multi, multi => F16 Bf16)).fallback(),
    ms("NhwcMaxPool", "nhwcmaxpool", typed!(greatest: u8 i8)),
    ms("QAttention", "qattention", any!(qprojected)).types(&[("T1", BYTES), ("T2", BYTES)]),
    ms("QGemm", "qgemm", any!(qgemm)).types(&[("TA", BYTES), ("TB", BYTES)]).at(&[Slot::In(0), Slot::In(3)]),
    ms("QLinearAdd", "qlinearadd", typed!(pair: u8 i8)),
    ms("QLinearAveragePool", "qlinearaveragepool", typed!(average: u8 i8)),
    ms("QLinearConcat", "qlinearconcat", typed!(join: u8 i8)).at(&[Slot::In(1)]),
    ms("QLinearGlobalAveragePool", "qlinearglobalaveragepool", typed!(global: u8 i8)),
    ms("QLinearLeakyRelu", "qlinearleakyrelu", typed!(one: u8 i8)),
    ms("QLinearMul", "qlinearmul", typed!(pair: u8 i8)),
    ms("QLinearSigmoid", "qlinearsigmoid", typed!(one: u8 i8)),
    ms("QLinearSoftmax", "qlinearsoftmax", typed!(softmax: u8 i8)),
    ms("RotaryEmbedding", "rotaryembedding", typed!(rotary: f32 F16 Bf16)),
    ms("SkipLayerNormalization", "skiplayernorm", any!(skip: f32)),
    ms("SkipLayerNormalization", "skiplayernorm", widened!(Skip, skip => F16 Bf16)).fallback(),
    ms("SkipSimplifiedLayerNormalization", "skiprmsnorm", any!(skip: f32)),
    ms("SkipSimplifiedLayerNormalization", "skiprmsnorm", widened!(Skip, skip => F16 Bf16)).fallback(),
];

/// A row of this domain, whose operators have one version.
const fn ms(op: &'static str, name: &'static str, runs: Runs) -> Kernel {
    Kernel::new(op, (1, 1), name, runs).domain("com.microsoft")
}

const OVER: &[(u8, u8)] = &[(0, 0)];
/// 8 bits with or without a sign.
const BYTES: u64 = DType::U8.mask() | DType::I8.mask();
const TWO_AND_SCALE: &[Slot] = &[Slot::In(0), Slot::In(1), Slot::In(2)];
const HALVES: u64 = set(&[DType::F16, DType::Bf16]);
const QUERY_AND_PRESENT: &[Slot] = &[Slot::In(0), Slot::Out(1)];
const SCALES_AND_CODES: &[Slot] = &[Slot::In(2), Slot::In(0), Slot::In(1)];
const BLOCKED: &[(&str, u64)] = &[
    ("T2", F32 | set(&[DType::F16, DType::Bf16])),
    ("T1", FLOAT_CODES | set(&[DType::U8, DType::U4, DType::I4])),
    ("Tind", set(&[DType::I32, DType::I64])),
];
const TABLE_AND_IDS: &[Slot] = &[Slot::In(2), Slot::In(0)];
const EMBEDDED: &[(&str, u64)] = &[("T", F32 | DType::F16.mask()), ("T1", DType::I32.mask())];
