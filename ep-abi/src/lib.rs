//! The plugin ABI of Ortolan: tables, layout proof, manifest and author traits.
