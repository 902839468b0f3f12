//! The plugin ABI of Ortolan.
#![allow(missing_docs)]
#[macro_use]
pub mod layout;
pub mod raw;
