//! Tests across Ortolan's crates: faulty plugins, versions, costs, tidy checks.
