//! Tests of node checks.
