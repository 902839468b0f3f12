//! The executor: walks a plan's steps on a lane, calls EPs, moves values, walks bodies.
//!
//! It knows slots and parts by number; no operator but the three that hold bodies, and no EP by name. On the steady path
//! nothing is allocated and no lock is taken.

mod bind;
mod cancel;
mod control;
mod frame;
mod lane;
mod memory;
mod pending;
mod profile;
mod run;
mod slot;

pub(crate) use bind::{Unbound, symbols_of};
pub use cancel::CancelToken;
pub(crate) use cancel::{Deadline, GO, stopped};
pub(crate) use lane::{Lane, Lanes};
pub(crate) use memory::Account;
pub use profile::{Profile, ProfileEvent};
pub(crate) use profile::{Recorded, Recorder};
pub(crate) use run::Run;
pub(crate) use slot::Held;
