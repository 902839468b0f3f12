//! The crate's error: a stable code, a sentence, and the place (file, node, value) it speaks of.
//!
//! Codes are an interface: scripts match on them, so a code is never renamed. `Warning` is for
//! what a model says wrongly but harmlessly.

use std::fmt;

/// Result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! codes {
    ($($name:ident $text:literal $remedy:literal;)*) => {
        /// Why something failed. The text form is stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $(#[doc = $remedy] $name,)* }

        impl Code {
            /// Every code with its text and what would help, for `explain` and `docs/codes.md`.
            pub const ALL: &'static [(Code, &'static str, &'static str)] = &[$((Code::$name, $text, $remedy),)*];

            /// Stable text form.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }
        }
    };
}

codes! {
    BadAttribute "bad-attribute" "An attribute has another type or value than its operator allows: correct the exporter, or the operator's version.";
    BadTensor "bad-tensor" "A tensor's data does not fit its type and dims: the file is damaged or was written wrongly.";
    BadType "bad-type" "A value has a type that the operator does not take: compare with the operator's type list.";
    Cycle "cycle" "Nodes feed each other in a ring: the model can't be run in any order.";
    Dim "dim" "A dim given by the caller contradicts the model: leave it out or give the size that the model states.";
    DuplicateName "duplicate-name" "Two values of one graph have the same name: rename one of them.";
    Edit "edit" "A pass asked for a change that would leave the graph inconsistent: a bug in the pass.";
    ExternalData "external-data" "A tensor's external file is missing, too short, or outside the model's folder: keep it beside the model.";
    Infer "infer" "Sizes inside the model contradict each other at this node: the model can't run as it stands.";
    Io "io" "A file can't be read: check path and permissions.";
    Limit "limit" "The file would need far more memory than its size justifies: it is damaged or hostile.";
    Malformed "malformed" "The bytes are not an ONNX model: the file is damaged, cut off, or of another format.";
    MissingGraph "missing-graph" "The file holds no graph: it is empty or not a model.";
    NodeInputs "node-inputs" "A node has too few or too many inputs or outputs for its operator.";
    Opset "opset" "The model uses an operator set that this build does not know or that the model does not import.";
    Text "text" "The text form can't be read back: see the line that the message names.";
    TooDeep "too-deep" "Graphs or types are nested deeper than any exporter makes them.";
    UnknownValue "unknown-value" "A node reads a value that nothing produces: the model is cut off or was edited wrongly.";
    Unsupported "unsupported" "The model uses a part of ONNX that this build can't carry: see the message.";
    Verify "verify" "The graph breaks one of its own invariants: a bug in the pass that ran last.";
    Version "version" "A node can't be written in the wanted operator set.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What went wrong, where, and under which code.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: Code,
    message: String,
    place: Vec<String>,
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in self.place.iter().rev() {
            write!(f, "{place}: ")?;
        }
        write!(f, "{} [{}]", self.message, self.code)
    }
}

impl Error {
    /// An error with no place yet. `message` says what was expected and what was found.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { code, message: message.into(), place: Vec::new() }))
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The sentence without its place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The same error seen from one level further out, as in `node 'conv1' (Conv)`.
    #[must_use]
    pub fn within(mut self, place: impl Into<String>) -> Error {
        self.0.place.push(place.into());
        self
    }
}

/// Something that the model says wrongly, with no effect on results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where: a node or value, as errors print it.
    pub place: String,
    /// What was declared, what holds, and which is used.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_printed_from_the_outside_in() {
        let e = Error::new(Code::Infer, "3 is not 4").within("node 'a' (Add)").within("graph 'main'");
        assert_eq!(e.to_string(), "graph 'main': node 'a' (Add): 3 is not 4 [infer]");
    }

    #[test]
    fn codes_are_sorted_and_unique() {
        assert!(Code::ALL.windows(2).all(|w| w[0].1 < w[1].1));
    }
}
