//! The CPU execution provider of Ortolan.

pub mod gemm;
pub mod simd;
