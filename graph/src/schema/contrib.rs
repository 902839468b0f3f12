//! The `com.microsoft` operators that real models carry, written by hand in the form of
//! [`super::text`] after ONNX Runtime's operator documentation. A pure list.

use super::{Table, text};

/// The domain of every operator here.
pub(super) const DOMAIN: &str = "com.microsoft";

/// The operators, by name.
const TEXT: &str = "\
com.microsoft BiasGelu 1 - (A:T;B:T) (C:T) {} [T=bf16,f16,f32,f64]
";

/// The list as a table.
pub(super) fn table() -> Table {
    text::read(TEXT).expect("the constant text is well formed: a test reads it")
}
