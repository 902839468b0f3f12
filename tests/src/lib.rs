//! What tests across Ortolan's crates share: where things lie, EPs, and the plugins and models they are made with.
//!
//! Nothing here may name the plugins of this repository: tests find them as users do, by searching a folder.

pub mod decoder;
mod edited;
pub mod ep;
pub mod fixtures;
pub mod model;
pub mod place;
pub mod stress;
