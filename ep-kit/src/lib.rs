//! What kernel-style execution providers share: kernel tables, planning, arena, packing.

pub mod parallel;
