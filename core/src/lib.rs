//! The Ortolan core: plugin host, partitioner, plan, executor, session.
