//! The Ortolan core: plugin host, partitioner, plan, executor, session.

pub mod codes;
pub mod host;
