//! The answer of the plugin host when something cannot be used: a code, a sentence and where.

use super::codes;
use crate::codes::Code;
use std::fmt;
use std::path::{Path, PathBuf};

/// Longest sentence, in bytes; the rest is cut off.
pub const SENTENCE_LIMIT: usize = 400;

/// Why a library, or a request for one, was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize)]
pub struct HostError {
    /// Stable code.
    pub code: Code,
    /// Name of the EP, once it is known.
    pub ep: Option<String>,
    /// File or folder that it is about.
    pub path: Option<PathBuf>,
    /// What failed, at most [`SENTENCE_LIMIT`] bytes, without the path.
    pub sentence: String,
}

/// Result of the plugin host.
pub type Result<T> = std::result::Result<T, HostError>;

impl HostError {
    /// An error that names no file yet.
    pub fn new(code: Code, sentence: impl Into<String>) -> Self {
        HostError { code, ep: None, path: None, sentence: clip(sentence.into()) }
    }

    /// About this file or folder, unless one is named already.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// About this EP, unless one is named already.
    #[must_use]
    pub fn of(mut self, ep: &str) -> Self {
        self.ep.get_or_insert_with(|| ep.to_owned());
        self
    }

    /// What makes it go away.
    pub fn remedy(&self) -> &'static str {
        self.code.info().remedy
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{} [{}]", self.sentence, self.code)
    }
}

/// For programs with one error type for all of the core.
impl From<HostError> for crate::Error {
    fn from(error: HostError) -> Self {
        let path = error.path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
        let made = crate::Error::new(error.code, format!("{path}{}", error.sentence));
        match error.ep {
            Some(ep) => made.from_ep(&ep, None),
            None => made,
        }
    }
}

/// Cuts text that a plugin or the system wrote down to the limit, at a character.
fn clip(mut text: String) -> String {
    if text.len() > SENTENCE_LIMIT {
        let mut end = SENTENCE_LIMIT - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// `a, b and c`, or, beyond `most`, `a, b and 7 more`.
pub(super) fn join_names<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let shown = if names.len() > most { most.saturating_sub(1) } else { names.len() };
    let mut parts: Vec<String> = names.iter().take(shown).map(|name| name.as_ref().to_owned()).collect();
    if shown < names.len() {
        parts.push(format!("{} more", names.len() - shown));
    }
    match parts.pop() {
        None => String::new(),
        Some(last) if parts.is_empty() => last,
        Some(last) => format!("{} and {last}", parts.join(", ")),
    }
}

/// The code under which a plugin's reason for having no device is reported.
pub fn device_code(code: Option<ortolan_ep_abi::codes::NoDeviceCode>) -> Code {
    use ortolan_ep_abi::codes::NoDeviceCode as C;
    match code {
        Some(C::NoDriver) => codes::NO_DRIVER,
        Some(C::DriverTooOld) => codes::DRIVER_TOO_OLD,
        Some(C::NoHardware) => codes::NO_HARDWARE,
        Some(C::UnsupportedHardware) => codes::UNSUPPORTED_HARDWARE,
        Some(C::MissingLibrary) => codes::MISSING_LIBRARY,
        Some(C::Permission) => codes::PERMISSION,
        Some(C::Disabled) => codes::DISABLED,
        Some(C::Error) | None => codes::DEVICE_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_cut_at_a_character() {
        let error = HostError::new(codes::OPEN_FAILED, "é".repeat(400));
        assert!(error.sentence.len() <= SENTENCE_LIMIT && error.sentence.ends_with('…'), "{error}");
    }

    #[test]
    fn names_are_joined_like_a_sentence() {
        let cases: &[(&[&str], &str)] = &[
            (&[], ""),
            (&["a"], "a"),
            (&["a", "b"], "a and b"),
            (&["a", "b", "c"], "a, b and c"),
            (&["a", "b", "c", "d"], "a, b and 2 more"),
        ];
        for (names, text) in cases {
            assert_eq!(join_names(names, 3), *text);
        }
    }

    #[test]
    fn display_has_place_sentence_and_code() {
        let error = HostError::new(codes::TRUNCATED, "it ends at 10 bytes").at(Path::new("a.so"));
        assert_eq!(error.to_string(), "a.so: it ends at 10 bytes [truncated]");
        assert!(error.remedy().starts_with("Copy"));
        let whole = crate::Error::from(error.of("a"));
        assert!(whole.is(codes::TRUNCATED) && whole.ep() == Some("a"));
        assert!(whole.message().starts_with("a.so: it ends"), "{whole}");
    }
}
