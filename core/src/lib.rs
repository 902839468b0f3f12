//! The Ortolan core: plugin host, partitioner, plan, executor, session.

pub mod abi;
pub mod codes;
mod compile;
pub mod ep;
pub mod error;
mod exec;
pub mod host;
mod once;
mod partition;
mod passes;
mod plan;
pub mod pool;
mod program;
mod same;
pub mod session;
pub mod value;

pub use ep::SessionEp;
pub use error::{Error, Result};
pub use exec::{CancelToken, Profile, ProfileEvent};
pub use partition::{EpAnswer, NOBODY, NodeReport, PartReport, Report};
pub use session::{Binding, Model, Outputs, RunOptions, Session, SessionOptions};
pub use value::{Input, Tensor, TensorView, Value};
