//! The CPU execution provider of Ortolan.

pub mod simd;
