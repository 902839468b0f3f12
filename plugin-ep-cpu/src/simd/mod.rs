//! Vectors of f32, one trait over every instruction set.
//!
//! A kernel is written once, generic over [`Simd`], and compiled once per
//! instruction set: [`Isa::dispatch`] picks the copy. The backends are
//! `scalar` (four lanes of plain Rust, everywhere), `avx2` (AVX2 + FMA),
//! `avx512` (AVX-512 F, BW, DQ, VL) and `neon` (aarch64).
//!
//! The type that implements [`Simd`] is a token that exists only where its
//! instructions exist, because only the dispatcher makes it after [`Isa`] has
//! asked the CPU. So operations on registers are safe functions; only those on
//! raw pointers are not.
//!
//! Inside kernels loops count indices: iterators and closures are functions of their
//! own, which the compiler may leave outside of the code that the instructions are
//! enabled for, and then every vector goes through memory.
//!
//! This module must not know operators, tensors or threads.
//!
//! ```
//! use ortolan_ep_cpu::simd::{self, Isa, Simd, UnaryOp};
//!
//! struct Double;
//! impl UnaryOp for Double {
//!     #[inline(always)]
//!     fn apply<S: Simd>(&self, s: S, x: S::F32) -> S::F32 {
//!         s.add(x, x)
//!     }
//! }
//!
//! let mut y = [0.0; 5];
//! simd::map_unary(Isa::best(), &Double, &[1.0, 2.0, 3.0, 4.0, 5.0], &mut y);
//! assert_eq!(y, [2.0, 4.0, 6.0, 8.0, 10.0]);
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod cache;
mod isa;
mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod ops;
mod reduce;
mod scalar;
mod slices;
#[cfg(test)]
mod tests;
mod vector;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use isa::{ISA_VARIABLE, Isa, IsaError, Kernel, isa};
pub use math::Math;
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;
pub use ops::{BinaryOp, UnaryOp};
pub use reduce::{dot, exp_sub_sum, exp_sub_sum_in_place, max, min, sum, sum_squares};
pub use scalar::Scalar;
pub use slices::{Operand, map_binary, map_binary_in_place, map_unary, map_unary_in_place};
pub use vector::Simd;
