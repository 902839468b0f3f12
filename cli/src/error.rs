//! The one error of the command line: exit status, stable code, a sentence and a remedy.
//!
//! Errors of the crates below keep their code and sentence; only the exit status is decided here.

use std::path::Path;

use ortolan::codes::Code;
use ortolan::host::HostError;

/// Result of everything that a command does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a command ends when it does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A clear no: not placeable, a policy broken, a run out of time.
    No = 1,
    /// Bad usage or bad input.
    Usage = 2,
    /// A plugin failed.
    Plugin = 3,
}

/// What failed, where, and what would make it work.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message} [{code}]\n  what to do: {remedy}")]
pub struct Error {
    /// Exit status.
    pub status: Status,
    /// Stable code.
    pub code: &'static str,
    /// Names what and where.
    pub message: String,
    /// What would make it work.
    pub remedy: String,
}

impl Error {
    /// An error with the remedy of its code.
    pub fn new(status: Status, code: Code, message: impl Into<String>) -> Error {
        let info = code.info();
        Error { status, code: info.name, message: message.into(), remedy: info.remedy.to_owned() }
    }

    /// Bad usage or input.
    pub fn usage(code: Code, message: impl Into<String>) -> Error {
        Error::new(Status::Usage, code, message)
    }

    /// The same with a remedy that fits better than the code's.
    #[must_use]
    pub fn try_this(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = remedy.into();
        self
    }

    /// The same, with the place put before the sentence.
    #[must_use]
    pub fn at(mut self, place: impl std::fmt::Display) -> Error {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

impl From<HostError> for Error {
    /// A request that nothing fits is bad usage; everything else that the host reports, a plugin has to answer for.
    fn from(error: HostError) -> Error {
        use ortolan::host::codes::*;
        let usage = [EP_REQUEST, EP_NOT_FOUND, NO_MATCHING_VERSION, FILE_NOT_FOUND, FILE_UNREADABLE];
        let status = if usage.contains(&error.code) { Status::Usage } else { Status::Plugin };
        let path = error.path.as_ref().map_or(String::new(), |p| format!("{}: ", p.display()));
        Error::new(status, error.code, format!("{path}{}", error.sentence))
    }
}

impl From<ortolan::Error> for Error {
    /// Whose fault it is goes by the code: the placement's, a plugin's, or else the caller's.
    fn from(error: ortolan::Error) -> Error {
        use ortolan::error::codes::*;
        let no = [NO_EPS, UNPLACED, UNKNOWN_RANK, UNTYPED, CANCELLED, TIMEOUT, MEMORY_LIMIT, OUT_OF_MEMORY];
        let plugin = [EP_NEW_FAILED, COMPILE_FAILED, EP_FAILED, EP_PANIC, EP_FAULT, NO_COPY, FENCE_LOST, INTERNAL];
        let is = |list: &[Code]| list.iter().any(|code| error.is(*code));
        let status = if is(&no) {
            Status::No
        } else if is(&plugin) {
            Status::Plugin
        } else {
            Status::Usage
        };
        Error {
            status,
            code: error.code(),
            message: without_code(&error, error.code()),
            remedy: error.remedy().to_owned(),
        }
    }
}

/// The text of an error that ends with its code, without it.
fn without_code(error: &dyn std::fmt::Display, code: &str) -> String {
    let text = error.to_string();
    text.strip_suffix(&format!(" [{code}]")).unwrap_or(&text).to_owned()
}

impl From<ortolan_graph::Error> for Error {
    /// The model is at fault.
    fn from(error: ortolan_graph::Error) -> Error {
        use ortolan_graph::Code;
        let (code, remedy) = Code::ALL
            .iter()
            .find(|(code, ..)| *code == error.code())
            .map_or((error.code().as_str(), ""), |(_, name, remedy)| (*name, *remedy));
        Error { status: Status::Usage, code, message: without_code(&error, code), remedy: remedy.to_owned() }
    }
}

/// The file's bytes, or an error that tells a missing file from a folder from one that may not be read.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    is_file(path)?;
    std::fs::read(path).map_err(|e| unreadable(path, &e.to_string()))
}

/// Makes sure that the path leads to something that can be read like a file.
pub fn is_file(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(unreadable(path, "it is a folder")),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("{}: there is no such file", path.display());
            Err(Error::usage(ortolan::host::codes::FILE_NOT_FOUND, message))
        }
        Err(e) => Err(unreadable(path, &e.to_string())),
    }
}

fn unreadable(path: &Path, why: &str) -> Error {
    Error::usage(ortolan::host::codes::FILE_UNREADABLE, format!("{}: cannot be read: {why}", path.display()))
        .try_this("Name a file, not a folder, that this user may read.")
}

/// The candidate nearest to a mistyped word, if one is near.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        let score = strsim::jaro_winkler(&word.to_lowercase(), &candidate.to_lowercase());
        if score > 0.75 && best.is_none_or(|(s, _)| score > s) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// At most `most` quoted names and how many more there are: `'a', 'b' and 3 more`.
pub fn names<'a>(all: impl ExactSizeIterator<Item = &'a str>, most: usize) -> String {
    let total = all.len();
    let shown: Vec<String> = all.take(most).map(|name| format!("'{name}'")).collect();
    let more = total - shown.len();
    match (shown.split_last(), more) {
        (None, _) => "none".to_owned(),
        (Some((last, [])), 0) => last.clone(),
        (Some((last, first)), 0) => format!("{} and {last}", first.join(", ")),
        _ => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_only_when_near() {
        let all = ["image", "attention_mask", "input_ids"];
        assert_eq!(nearest("imgae", all), Some("image"));
        assert_eq!(nearest("Input_id", all), Some("input_ids"));
        assert_eq!(nearest("zzz", all), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn lists_of_names_end() {
        assert_eq!(names(["a"].into_iter(), 3), "'a'");
        assert_eq!(names(["a", "b"].into_iter(), 3), "'a' and 'b'");
        assert_eq!(names(["a", "b", "c", "d"].into_iter(), 2), "'a', 'b' and 2 more");
        assert_eq!(names([].into_iter(), 2), "none");
    }

    #[test]
    fn folders_and_missing_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let folder = read_file(dir.path()).unwrap_err();
        assert!(folder.message.contains("it is a folder") && folder.code == "file-unreadable", "{folder}");
        let missing = read_file(&dir.path().join("x")).unwrap_err();
        assert!(missing.code == "file-not-found" && missing.status == Status::Usage, "{missing}");
    }
}
