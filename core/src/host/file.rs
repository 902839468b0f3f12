//! Check 1: the file, who may write it and whom it belongs to.

use super::codes;
use super::error::{HostError, Result};
use super::sys::{self, FileId};
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// A library's file, open, so that it stays the one that was checked.
#[derive(Debug)]
pub(super) struct PluginFile {
    /// Absolute, without links.
    pub path: PathBuf,
    pub file: File,
    pub id: FileId,
}

/// Opens the file. The second part are warnings; `strict` makes refusals of them.
pub(super) fn open(given: &Path, strict: bool) -> Result<(PluginFile, Vec<HostError>)> {
    let path = std::fs::canonicalize(given).map_err(|e| io_error("path", &e).at(given))?;
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(&path).is_ok_and(|meta| meta.is_file()) {
        return Err(HostError::new(codes::FILE_UNREADABLE, "this is a folder, pipe or device, not a file").at(given));
    }
    let file = File::open(&path).map_err(|e| io_error("file", &e).at(given))?;
    let meta = file.metadata().map_err(|e| io_error("file", &e).at(given))?;
    let mut warnings = Vec::new();
    check_owner("file", &path, &meta, &mut warnings)?;
    for folder in folders(given, &path) {
        let meta = std::fs::metadata(&folder).map_err(|e| io_error("folder", &e).at(&folder))?;
        check_owner("folder", &folder, &meta, &mut warnings)?;
    }
    if strict && let Some(refusal) = warnings.pop() {
        return Err(refusal);
    }
    let id = sys::file_id(&meta);
    Ok((PluginFile { path, file, id }, warnings))
}

impl PluginFile {
    /// Whether the path still leads to the very file that was opened, unchanged.
    pub fn check_unchanged(&self) -> Result<()> {
        let now = |meta: io::Result<Metadata>| meta.map(|m| sys::file_id(&m)).ok();
        if now(std::fs::metadata(&self.path)) == Some(self.id) && now(self.file.metadata()) == Some(self.id) {
            return Ok(());
        }
        let sentence = "the file was replaced or written between the checks and the opening";
        Err(HostError::new(codes::CHANGED_WHILE_LOADING, sentence).at(&self.path))
    }
}

/// The folder of the file and, if the given path is a link, the folder of the link.
fn folders(given: &Path, path: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = path.parent().map(Path::to_owned).into_iter().collect();
    if let Ok(link) = std::path::absolute(given)
        && let Some(folder) = link.parent().and_then(|f| std::fs::canonicalize(f).ok())
        && !folders.contains(&folder)
    {
        folders.push(folder);
    }
    folders
}

fn check_owner(what: &str, path: &Path, meta: &Metadata, warnings: &mut Vec<HostError>) -> Result<()> {
    if sys::world_writable(meta) {
        let sentence = format!("every user of this machine may write this {what}");
        return Err(HostError::new(codes::WORLD_WRITABLE, sentence).at(path));
    }
    if let Some(owner) = sys::foreign_owner(meta) {
        let sentence = format!("this {what} belongs to user {owner}, who is neither this one nor root");
        warnings.push(HostError::new(codes::FOREIGN_OWNER, sentence).at(path));
    }
    Ok(())
}

fn io_error(what: &str, error: &io::Error) -> HostError {
    let code = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => codes::FILE_NOT_FOUND,
        _ => codes::FILE_UNREADABLE,
    };
    HostError::new(code, format!("the {what} cannot be opened: {error}"))
}
