//! Windows. Written from the documentation and checked by the compiler only; permissions are left to the system.

use super::{FileId, chain};
use libloading::os::windows::Library;
use std::ffi::c_void;
use std::fs::{File, Metadata};
use std::io;
use std::os::windows::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

/// There are no shared folders of libraries.
pub(crate) const SYSTEM_LIB_FOLDERS: &[&str] = &[];

pub(crate) fn read_exact_at(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.seek_read(&mut buffer[done..], at + done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n,
        }
    }
    Ok(())
}

pub(crate) fn file_id(meta: &Metadata) -> FileId {
    let ns = |ticks: u64| i128::from(ticks) * 100;
    FileId {
        device: 0,
        inode: meta.creation_time(),
        size: meta.file_size(),
        modified_ns: ns(meta.last_write_time()),
        changed_ns: 0,
    }
}

pub(crate) fn world_writable(_: &Metadata) -> bool {
    false
}

pub(crate) fn foreign_owner(_: &Metadata) -> Option<u32> {
    None
}

pub(crate) fn elevated() -> bool {
    false
}

pub(crate) fn core_library() -> Option<PathBuf> {
    None
}

pub(crate) fn image_base(_: *const c_void) -> Option<usize> {
    None
}

/// An opened library. It stays open until the process ends.
pub(crate) struct Opened(Library);

impl Opened {
    /// # Safety
    /// Runs the library's initialisers.
    pub(crate) unsafe fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: running the initialisers is the caller's decision.
        let library = unsafe { Library::new(path) }.map_err(|e| chain(&e))?;
        library.pin().map_err(|e| chain(&e))?;
        Ok(Opened(library))
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<*const c_void> {
        // SAFETY: only the address is taken; nothing is read or called through the type.
        let symbol = unsafe { self.0.get::<*const c_void>(name.as_bytes()) };
        symbol.ok().and_then(|s| s.into_raw()).map(|f| f as *const c_void)
    }
}

pub(crate) fn is_loaded(name: &str) -> bool {
    Library::open_already_loaded(name).is_ok()
}

pub(crate) fn own_group(_: &mut Command) {}

pub(crate) fn kill(child: &mut Child) {
    let _ = child.kill();
}

pub(crate) fn prepare_probe() {}

pub(crate) fn signal_of(status: ExitStatus) -> Option<String> {
    status.code().filter(|code| *code < 0).map(|code| format!("exception {code:#x}"))
}
