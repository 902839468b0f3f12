//! The error of everything in this crate that builds or runs a session: a stable code, a sentence, and where.
//!
//! Errors of the graph crate keep their own codes. Nothing here knows how an error comes about.

pub mod codes;

use std::fmt;

use crate::codes::Code;

/// Result of everything that builds or runs a session.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed, where, and under which code.
#[derive(Clone, thiserror::Error)]
#[error("{0}")]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: &'static str,
    remedy: &'static str,
    message: String,
    ep: Option<String>,
    ep_code: Option<i32>,
    place: Vec<String>,
}

impl Error {
    /// An error with no place yet. The sentence says what was expected and what was found.
    #[cold]
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        let info = code.info();
        Error::of(info.name, info.remedy, message.into())
    }

    fn of(code: &'static str, remedy: &'static str, message: String) -> Error {
        Error(Box::new(Inner { code, remedy, message, ep: None, ep_code: None, place: Vec::new() }))
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// Whether it has this code.
    pub fn is(&self, code: Code) -> bool {
        self.0.code == code.name()
    }

    /// What makes it go away.
    pub fn remedy(&self) -> &'static str {
        self.0.remedy
    }

    /// The sentence, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The EP that failed, if one did.
    pub fn ep(&self) -> Option<&str> {
        self.0.ep.as_deref()
    }

    /// The code that the EP returned, if it failed with one of its own.
    pub fn ep_code(&self) -> Option<i32> {
        self.0.ep_code
    }

    /// The same error seen from one level further out, as in `node 'conv1' (Conv)`.
    #[must_use]
    pub fn within(mut self, place: impl Into<String>) -> Error {
        self.0.place.push(place.into());
        self
    }

    /// The same error in other words.
    #[must_use]
    pub(crate) fn reworded(mut self, message: String) -> Error {
        self.0.message = message;
        self
    }

    /// Whether it says where it happened.
    pub(crate) fn has_place(&self) -> bool {
        !self.0.place.is_empty()
    }

    /// About this EP, with the code that it returned.
    #[must_use]
    #[expect(clippy::wrong_self_convention, reason = "it reads as a sentence: an error from an EP")]
    pub(crate) fn from_ep(mut self, ep: &str, ep_code: Option<i32>) -> Error {
        self.0.ep = Some(ep.to_owned());
        self.0.ep_code = ep_code;
        self
    }
}

impl From<ortolan_graph::Error> for Error {
    fn from(e: ortolan_graph::Error) -> Error {
        let known = ortolan_graph::Code::ALL.iter().find(|c| c.0 == e.code());
        // Its text ends with the code, which this error adds itself.
        let (text, code) = (e.to_string(), format!(" [{}]", e.code()));
        let text = text.strip_suffix(&code).unwrap_or(&text).to_owned();
        Error::of(e.code().as_str(), known.map_or("", |c| c.2), text)
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in self.place.iter().rev() {
            write!(f, "{place}: ")?;
        }
        if let Some(ep) = &self.ep {
            write!(f, "EP '{ep}': ")?;
        }
        write!(f, "{}", self.message)?;
        match self.ep_code {
            Some(code) if code > 0 => write!(f, " (its code {code}) [{}]", self.code),
            _ => write!(f, " [{}]", self.code),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_place_ep_sentence_and_code() {
        let e =
            Error::new(codes::EP_FAILED, "no kernel").from_ep("npu", Some(7)).within("node 'a' (Add)").within("run");
        assert_eq!(e.to_string(), "run: node 'a' (Add): EP 'npu': no kernel (its code 7) [ep-failed]");
        assert_eq!((e.code(), e.ep(), e.ep_code()), ("ep-failed", Some("npu"), Some(7)));
        assert!(e.is(codes::EP_FAILED) && !e.remedy().is_empty());
    }
}
