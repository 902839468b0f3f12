//! The plugin host: from a file on disk to an execution provider that can be asked for devices.

mod catalogue;
pub mod codes;
mod compat;
mod error;
mod file;
mod image;
mod manifest;
mod sys;

pub use catalogue::CatalogueRow;
pub use compat::{ABI_MINOR_MIN, Offer};
pub use error::{HostError, Result, SENTENCE_LIMIT};
pub use manifest::{AbiVersion, Manifest, PanicStrategy, Threads};
