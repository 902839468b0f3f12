//! What kernel-style execution providers share: kernel tables, planning, arena, packing.

pub mod args;
mod arena;
mod bind;
pub mod bytes;
pub mod catalogue;
mod consteval;
mod draft;
pub mod element;
mod ep;
mod error;
mod expr;
mod host;
#[macro_use]
pub mod kernel;
mod layout;
mod memory;
mod node;
mod pack;
pub mod parallel;
mod plan;
mod run;
mod shapes;
mod slab;
pub mod split;
mod table;
mod weight;
mod weights;

pub use args::Args;
pub use bind::KitLane;
pub use element::{Bool, Element};
pub use ep::{Kit, KitPart};
pub use error::{Fault, Reject};
pub use kernel::{Cost, Kernel, Op, Pick, RunFn, Runs, Seam, Slot};
pub use node::{Ints, NodeView, ValueView, resolve_axis};
#[doc(hidden)]
pub use ortolan_ep_abi;
pub use ortolan_ep_abi::codes::{DType, RejectCode};
pub use parallel::Parallel;
pub use shapes::{Shapes, count, size};
pub use weight::{Link, Pack, Weight, WeightSource};
