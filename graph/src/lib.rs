//! ONNX models as typed graphs: messages, schemas, version steps, inference.
//!
//! [`load`] reads a model file and brings every node to the newest version of its operator while
//! it infers types, shapes and small integer values; the result is one flat [`ir::Graph`].
//! The crate knows nothing of execution providers, devices or kernels.

mod build;
pub mod edit;
pub mod error;
mod infer;
pub mod ir;
mod load;
pub mod ops;
mod order;
pub mod project;
pub mod proto;
pub mod schema;
#[cfg(test)]
mod testing;
pub mod text;
pub mod verify;
pub mod versions;
mod walk;
pub mod write;

pub use error::{Code, Error, Result, Warning};
pub use ir::Graph;
pub use load::{LoadOptions, load, load_bytes};
