//! The stable codes of this crate: what each means and what to do about it.
//!
//! A code is a short text (`world-writable`) that scripts may compare and that is never renamed. Every part of the crate
//! that reports codes has its list beside it, made by the macro `codes!`; [`AREAS`] names them all, and
//! `docs/codes.md` and `ortolan explain` are printed from it. Nothing here knows when a code is reported.

use std::fmt::{self, Write};

/// What is known about a code.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeInfo {
    /// The code itself.
    pub name: &'static str,
    /// A few words.
    pub title: &'static str,
    /// What it means, in a sentence or two.
    pub means: &'static str,
    /// What makes it go away.
    pub remedy: &'static str,
    /// First version of the core that reports it.
    pub since: &'static str,
}

/// A stable code. Two codes are equal when their names are.
#[derive(Clone, Copy)]
pub struct Code(&'static CodeInfo);

impl Code {
    #[doc(hidden)]
    pub const fn new(info: &'static CodeInfo) -> Self {
        Code(info)
    }

    /// The code's text.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Everything that is known about it.
    pub const fn info(self) -> &'static CodeInfo {
        self.0
    }
}

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Code {}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl serde::Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name)
    }
}

/// Codes of one part of the crate.
#[derive(Debug)]
pub struct Area {
    /// Heading in `docs/codes.md`.
    pub title: &'static str,
    /// In the order in which they can be met.
    pub codes: &'static [Code],
}

/// Declares one constant per code and `CODES`, the list of all of them, in order.
macro_rules! codes {
    ($($id:ident = $name:literal, $since:literal, $title:literal, $means:literal, $remedy:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $means)]
            pub const $id: $crate::codes::Code = $crate::codes::Code::new(&$crate::codes::CodeInfo {
                name: $name, title: $title, means: $means, remedy: $remedy, since: $since,
            });
        )*
        /// All codes of this area, in order.
        pub const CODES: &[$crate::codes::Code] = &[$($id),*];
    };
}
pub(crate) use codes;

/// Every area, in the order of a model's way through the core.
pub const AREAS: &[Area] = &[
    Area { title: "Finding and loading execution providers", codes: crate::host::codes::CODES },
    Area { title: "Building and running a session", codes: crate::error::codes::CODES },
];

/// The code of that name.
pub fn find(name: &str) -> Option<Code> {
    all().find(|code| code.name() == name)
}

/// All codes of all areas.
pub fn all() -> impl Iterator<Item = Code> {
    AREAS.iter().flat_map(|area| area.codes.iter().copied())
}

/// What a person should know about a code, or `None` if there is no such code.
pub fn explain(name: &str) -> Option<String> {
    let CodeInfo { name, title, means, remedy, since } = find(name)?.info();
    Some(format!("{name}: {title}\n\n{means}\n\nWhat to do: {remedy}\n\nSince {since}.\n"))
}

/// The text of `docs/codes.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Codes\n\nPrinted from the tables in the source by `codes::markdown`; \
         `ORTOLAN_BLESS=1 cargo test -p ortolan-core codes` writes it anew.\n\
         A code is stable: scripts may compare it. `ortolan explain CODE` prints the same text.\n",
    );
    for area in AREAS {
        let _ = write!(text, "\n## {}\n", area.title);
        for code in area.codes {
            let CodeInfo { name, title, means, remedy, since } = code.info();
            let _ =
                write!(text, "\n### `{name}`\n\n**{title}.** {means}\n\n*What to do:* {remedy} *(since {since})*\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn names_are_unique_and_plain() {
        let mut seen = BTreeSet::new();
        for code in all() {
            let name = code.name();
            assert!(seen.insert(name), "{name} is declared twice");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{name}");
            let info = code.info();
            for text in [info.means, info.remedy] {
                assert!(text.ends_with('.') && text.len() < 400, "{name}: {text}");
            }
        }
    }

    #[test]
    fn explain_knows_codes_only() {
        let text = explain("world-writable").expect("a known code");
        assert!(text.contains("chmod o-w"), "{text}");
        assert_eq!(explain("no-such-code"), None);
    }

    #[test]
    fn committed_page_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/codes.md");
        if std::env::var_os("ORTOLAN_BLESS").is_some() {
            std::fs::write(&path, markdown()).expect("docs/codes.md can be written");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, markdown(), "run ORTOLAN_BLESS=1 cargo test -p ortolan-core codes");
    }
}
