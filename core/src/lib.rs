//! The Ortolan core: plugin host, partitioner, plan, executor, session.

pub mod abi;
pub mod codes;
pub mod error;
pub mod host;
pub mod pool;
pub mod value;

pub use error::{Error, Result};
pub use value::{Input, Tensor, TensorView, Value};
