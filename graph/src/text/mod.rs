//! The text form of a graph: for snapshots in tests and for bug reports. It says everything but large weights.
//!
//! ```text
//! ortolan graph 1
//! model ir=8 version=0 producer="pytorch" "2.1" domain="" name="main" doc=""
//! opset "" 17
//! s0 = dim 0 of %0 "batch"
//! c0 = float[4,3] elided
//! graph g0 "main"
//!   in %0 "x" float[s0,4]
//!   const %1 "w" c0
//!   %2 "y" float[s0,3] = MatMul-13(%0, %1) "proj"
//!   out %2 "y"
//! end
//! ```
//!
//! Values, symbols, constants and graphs are numbered in the order in which they appear, so equal graphs
//! have equal texts whatever passes did to their ids. Constants of more than `print::SHOWN` bytes are elided:
//! they read back as zeros. What follows from the rest (intervals of versions, constant expressions) is not written
//! but worked out again.

mod parse;
mod print;
mod token;

pub use parse::from_text;
pub use print::to_text;

#[cfg(test)]
mod tests;
