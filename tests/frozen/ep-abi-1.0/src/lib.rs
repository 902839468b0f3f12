//! The plugin ABI of Ortolan: everything that an execution provider (EP) and the core share.
//!
//! - [`raw`]: the C tables, the whole of what crosses. C authors use them through `include/ortolan_ep.h`.
//! - [`author`], [`call`], [`view`]: safe Rust on top: implement [`author::Factory`], [`author::Ep`], [`author::Part`]
//!   and write one [`export_ep!`].
//! - [`layout`], `sabi`: proofs that both sides were built from the same tables.
//! - [`text`]: manifest and operator catalogue, embedded in the library file, readable without running it.
//! - [`header`]: prints the C header and the lock text.
//!
//! This crate must not know ONNX graphs beyond the flat program, kernels, or the core.

#[macro_use]
pub mod layout;
pub mod author;
pub mod call;
pub mod codes;
pub mod export;
pub mod header;
mod plugin;
pub mod raw;
#[cfg(feature = "sabi")]
pub mod sabi;
pub mod text;
pub mod view;

#[cfg(feature = "sabi")]
#[doc(hidden)]
pub use abi_stable;
