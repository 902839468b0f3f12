//! The command line of Ortolan.
