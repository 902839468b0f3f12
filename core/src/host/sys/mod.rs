//! What differs between operating systems, under equal names: files, the loader, child processes.
//!
//! The only files of the plugin host with `cfg` for platforms. They know nothing of plugins.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(super) use unix::*;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub(super) use windows::*;

/// A file's identity and state. Equal values mean: nobody replaced or wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(super) struct FileId {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub modified_ns: i128,
    pub changed_ns: i128,
}

/// Why the system's loader refused a library, in its own words.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
