//! What kernel-style execution providers share: kernel tables, and everything between a table and a running part.
//!
//! A plugin states **rows**: an operator, its versions and types, a function. The kit answers claims from them, makes the
//! operator catalogue, compiles parts (constants packed into one slab, memory planned, steps fused) and runs them without
//! allocating. It must not know graphs beyond the flat program view, control flow, the core, or any particular device.
//!
//! # Adding an operator
//!
//! Find the family file of the plugin (`src/ops/<family>.rs`). If its family has a fitting [`Op`], the operator is one
//! row and one function. Otherwise write an [`Op`]: what is read once ([`Op::parse`]), what depends on shapes
//! ([`Op::bind`]), and a function that computes. A complete family of one operator, with its test:
//!
//! ```
//! # #[cfg(feature = "testing")]
//! use ortolan_ep_kit::testing::{OpTest, Tensor};
//! use ortolan_ep_kit::*;
//!
//! /// `LeakyRelu(x) = x < 0 ? alpha * x : x`, element by element.
//! struct LeakyRelu {
//!     alpha: f32,
//! }
//!
//! impl Op for LeakyRelu {
//!     // What depends on shapes. Nothing here; a reduction would keep its counts and strides.
//!     type Bound = ();
//!
//!     // Attributes are read and checked once. Defaults are filled in by the host, types were checked by the row.
//!     fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
//!         let alpha = node.float("alpha")?;
//!         if !alpha.is_finite() {
//!             return Err(Reject::attribute(format!("attribute alpha = {alpha} is not finite")));
//!         }
//!         Ok(LeakyRelu { alpha })
//!     }
//!
//!     fn cost(&self, node: &NodeView<'_>) -> Cost {
//!         Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.1))
//!     }
//! }
//!
//! // One generic function, an instance per type of the row. A row with `in_place` may find its input under its output.
//! fn leaky_relu<T: Float>(op: &LeakyRelu, _: &(), args: &mut Args<'_>) -> Result<(), Fault> {
//!     let f = |x: T| if x < T::from_f32(0.0) { x * T::from_f32(op.alpha) } else { x };
//!     match args.alias(0) {
//!         Some(_) => args.output::<T>(0).iter_mut().for_each(|y| *y = f(*y)),
//!         None => args.output::<T>(0).iter_mut().zip(args.input::<T>(0)).for_each(|(y, &x)| *y = f(x)),
//!     }
//!     Ok(())
//! }
//!
//! /// The family's table.
//! pub const KERNELS: &[Kernel] = &[
//!     // operator, first and last since-version, name, function per type
//!     Kernel::new("LeakyRelu", (6, 16), "leakyrelu", typed!(leaky_relu: f32 f64)).in_place(&[(0, 0)]),
//! ];
//!
//! # trait Float: Element + PartialOrd + std::ops::Mul<Output = Self> { fn from_f32(x: f32) -> Self; }
//! # impl Float for f32 { fn from_f32(x: f32) -> Self { x } }
//! # impl Float for f64 { fn from_f32(x: f32) -> Self { x.into() } }
//! # #[cfg(feature = "testing")] {
//! // The test goes through claim, compile and run of the C table, on a host that is unfriendly on purpose.
//! let x = Tensor::new(&[3], &[-2.0f32, 0.0, 4.0]);
//! let node = || OpTest::new(&[KERNELS], "LeakyRelu", 16).input(&x).output(DType::F32, &[3]);
//! assert_eq!(node().float("alpha", 0.5).run(), [Tensor::new(&[3], &[-1.0f32, 0.0, 4.0])]);
//! let (code, sentence) = node().float("alpha", f32::NAN).rejection();
//! assert_eq!((code, &*sentence), (RejectCode::Attribute, "LeakyRelu: attribute alpha = NaN is not finite"));
//! # }
//! ```
//!
//! # What a row can say
//!
//! | | |
//! |---|---|
//! | [`typed!`] `(f: f32 i64)` | an instance of `f` per type of input 0; the type variable is called `T` |
//! | [`any!`] `(f: f32)`, `any!(f)` | one function for all types; without a list give them with [`Kernel::types`] |
//! | [`widened!`] `(Conv, conv => F16)` | narrower floats by way of the operator's f32 computation |
//! | [`Kernel::types`], [`Kernel::at`] | several type variables, and where each is seen when it is not input k |
//! | [`Kernel::in_place`] | outputs that may be written over inputs of the same size |
//! | [`Kernel::unread`] | inputs of which only the shape, or [`Shapes::elements`], matters: nobody computes them for you |
//! | [`Kernel::view`] | output 0 is input 0's bytes: nothing runs |
//! | [`Kernel::late`] | `run` finds the dimensions of outputs and asks for memory with [`Args::emit`] |
//! | [`Kernel::items`] | texts, sequences, optionals and maps are seen whole, as an [`Item`], by [`Args::item`] and [`Args::give`] |
//! | [`Kernel::fallback`] | right and slow |
//!
//! # Rules for kernels
//!
//! - Dimensions come finished: the host inferred them. What lies *inside* tensors (indices, lengths) is checked before
//!   memory is touched, and refused with [`Fault::data`].
//! - Output memory and scratch have stale content. Inputs are aligned for their elements, everything else to 64.
//! - Threads come from [`Args::par`]; [`split::rows`] hands out disjoint rows. No thread-locals: per-worker memory is a
//!   slice of the scratch that [`Op::scratch`] asked for.
//! - `run` allocates nothing, but for items. What it needs per shape lives in [`Op::Bound`], which is kept and filled in again.
//! - The same inputs give the same bits for any number of threads.

mod arena;
pub mod args;
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
pub mod item;
#[macro_use]
pub mod kernel;
mod layout;
mod memory;
mod node;
mod number;
pub mod outline;
mod pack;
pub mod parallel;
mod plan;
mod run;
mod shapes;
mod slab;
pub mod split;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod weight;
mod weights;
pub mod widen;
pub mod window;

#[cfg(test)]
mod tests;

pub use args::Args;
pub use bind::KitLane;
pub use element::{Bool, Element};
pub use ep::{Kit, KitPart};
pub use error::{Fault, Reject};
pub use item::{Item, Plain, Texts};
pub use kernel::{Around, Cost, Kernel, Op, Pick, RunFn, Runs, Seam, Slot};
pub use node::{Ints, NodeView, ValueView, resolve_axis};
#[doc(hidden)]
pub use ortolan_ep_abi;
pub use ortolan_ep_abi::codes::{DType, RejectCode};
pub use parallel::Parallel;
pub use shapes::{Shapes, count, size};
pub use weight::{Link, Pack, Weight, WeightSource};
