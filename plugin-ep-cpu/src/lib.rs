//! The CPU execution provider of Ortolan.
