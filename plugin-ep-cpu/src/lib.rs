//! The CPU execution provider of Ortolan.
//!
//! [`ops`] has the operator tables; [`conv`], [`gemm`], `iconv`, [`igemm`] and [`simd`] are the numeric kernels, which know
//! no operators. Claims, planning and running are the kit's. This library must not know the core or other plugins.

pub mod conv;
mod factory;
pub mod gemm;
mod iconv;
pub mod igemm;
pub mod ops;
pub mod simd;

pub use factory::CpuFactory;

/// The operators of this library, as its catalogue section has them.
pub const CATALOGUE: &str = ortolan_ep_kit::kernel_catalogue!(ops::FAMILIES);

ortolan_ep_abi::export_ep! {
    factory: CpuFactory,
    name: "cpu",
    vendor: "Ortolan",
    requires_core: ">=0.1, <2",
    opset: [("", 28), ("ai.onnx.ml", 5), ("ai.onnx.preview.training", 1), ("com.microsoft", 1)],
    device_kinds: ["cpu"],
    catalogue: CATALOGUE,
    symbol: cfg(not(feature = "static")),
}
