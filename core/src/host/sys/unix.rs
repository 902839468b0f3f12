//! Linux and macOS.

use super::{FileId, chain};
use libloading::os::unix::Library;
use std::ffi::{CStr, OsStr, c_void};
use std::fs::{File, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

/// Folders of libraries that belong to the system, where only root may write.
pub(crate) const SYSTEM_LIB_FOLDERS: &[&str] = &["/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64"];

pub(crate) fn read_exact_at(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<()> {
    file.read_exact_at(buffer, at)
}

pub(crate) fn file_id(meta: &Metadata) -> FileId {
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    FileId {
        device: meta.dev(),
        inode: meta.ino(),
        size: meta.size(),
        modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
        changed_ns: ns(meta.ctime(), meta.ctime_nsec()),
    }
}

/// Whether every user of the machine may write it.
pub(crate) fn world_writable(meta: &Metadata) -> bool {
    meta.mode() & 0o002 != 0
}

/// The owner, when it is neither this user nor root.
pub(crate) fn foreign_owner(meta: &Metadata) -> Option<u32> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let me = unsafe { libc::geteuid() };
    (meta.uid() != me && meta.uid() != 0).then(|| meta.uid())
}

/// Whether this program runs with more rights than the user who started it, so that the environment is not to be trusted.
pub(crate) fn elevated() -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: getauxval has no preconditions.
        unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        // SAFETY: the four functions have no preconditions and cannot fail.
        unsafe { libc::getuid() != libc::geteuid() || libc::getgid() != libc::getegid() }
    }
}

/// File and base address of the library or program that holds the address.
fn module_of(address: *const c_void) -> Option<(PathBuf, usize)> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is writable memory for one Dl_info; any address may be asked about.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zeroed is a valid Dl_info (null pointers), and dladdr fills it in when it finds something.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a NUL-terminated name that lives as long as the module; modules with our code stay.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some((PathBuf::from(OsStr::from_bytes(name.to_bytes())), info.dli_fbase as usize))
}

/// The library (or program) that holds this crate.
pub(crate) fn core_library() -> Option<PathBuf> {
    module_of(core_library as *const c_void).map(|(path, _)| path)
}

/// Where the module that holds the address begins.
pub(crate) fn image_base(address: *const c_void) -> Option<usize> {
    module_of(address).map(|(_, base)| base)
}

/// An opened library. It stays open until the process ends.
pub(crate) struct Opened(Library);

impl Opened {
    /// Opens with all symbols bound at once, kept apart from other libraries, never to be unmapped.
    ///
    /// # Safety
    /// Runs the library's initialisers.
    pub(crate) unsafe fn open(path: &Path) -> Result<Self, String> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
        // SAFETY: running the initialisers is the caller's decision.
        unsafe { Library::open(Some(path), flags) }.map(Opened).map_err(|e| chain(&e))
    }

    /// The address of a symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<*const c_void> {
        // SAFETY: only the address is taken; nothing is read or called through the type.
        let symbol = unsafe { self.0.get::<*const c_void>(name.as_bytes()) };
        symbol.ok().map(|s| s.into_raw().cast_const()).filter(|p| !p.is_null())
    }
}

/// Whether a library of this name is loaded already, whoever did it.
pub(crate) fn is_loaded(name: &str) -> bool {
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
    // SAFETY: with RTLD_NOLOAD nothing is loaded, so no initialiser runs.
    unsafe { Library::open(Some(name), flags) }.is_ok()
}

/// Puts the child into a process group of its own, so that all it starts can be ended with it.
pub(crate) fn own_group(command: &mut Command) {
    command.process_group(0);
}

/// Ends a child and its group.
pub(crate) fn kill(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // SAFETY: a child that was not waited for keeps its number, so the group is ours.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.kill();
}

/// For a probing child: leave no core file, and end when the parent does.
pub(crate) fn prepare_probe() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is a valid limit; lowering it is always allowed.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    #[cfg(target_os = "linux")]
    {
        // SAFETY: plain numbers; a piped core handler is skipped for processes that are not dumpable.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
        // SAFETY: plain numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    }
}

/// The signal that ended a process, in words.
pub(crate) fn signal_of(status: ExitStatus) -> Option<String> {
    let signal = status.signal()?;
    let name = match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        _ => return Some(format!("signal {signal}")),
    };
    Some(name.to_owned())
}
