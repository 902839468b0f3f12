//! Builds the plugins under `tests/fixtures` when a test asks for one, once, and hands out the library's path.
//!
//! C sources are compiled in milliseconds and kept under a hash of everything that went in. Rust fixtures are workspaces
//! of their own that share one target folder, so that their dependencies are compiled once; cargo's own lock keeps test
//! processes apart.

use crate::edited;
use crate::place::{fixture_target, root};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// f32 Add and Relu in Rust, by name `tiny`: an EP as its author writes it.
pub fn tiny() -> PathBuf {
    rust(&source("rust-ep"), "dev", "ortolan_ep_tiny")
}

/// f32 Softmax and MatMul in C, by name `plain`.
pub fn plain() -> PathBuf {
    c("ortolan_ep_plain", "c-ep/plain.c", &["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"], &["-lm"])
}

/// `tiny` as it was when ABI 1.0 was frozen, built against the crate of that day.
pub fn frozen_rust() -> PathBuf {
    rust(&root().join("tests/frozen/plugin-1.0"), "dev", "ortolan_ep_frozen")
}

/// `plain` as it was when ABI 1.0 was frozen, built against the header of that day.
pub fn frozen_c() -> PathBuf {
    let frozen = root().join("tests/frozen");
    let (source, include) = (frozen.join("plugin-1.0/c/plain.c"), frozen.join("ep-abi-1.0/include"));
    c_file("ortolan_ep_plain_1_0", &source, &include, &["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"], &["-lm"])
}

/// f32 Add, Mul and Relu on a device that is not there, by name `fake`.
pub fn fake() -> PathBuf {
    rust(&source("fake-device"), "dev", "ortolan_ep_fake")
}

/// f32 Relu in C, by name `hostile`, with one thing wrong that `args` choose: `-DFAULT=RUN_HUGE`, `-DMINOR=1`.
pub fn hostile(args: &[&str]) -> PathBuf {
    let mut all = vec!["-Wall", "-Wextra", "-Werror"];
    all.extend(args);
    c("ortolan_ep_hostile", "hostile/hostile.c", &all, &[])
}

/// A macro of `hostile` that is a C string.
pub fn text(name: &str, value: &str) -> String {
    format!("-D{name}=\"{}\"", value.escape_default())
}

/// The bytes of the Rust plugin `panics` that panics in this place: `run`, `claim`, `lane`, `part_free`…
pub fn panics(place: &str) -> Vec<u8> {
    const MARK: &[u8] = b"ortolan-fixture-panics-in:nowhere         ";
    let mut bytes = read(&rust(&source("panics"), "dev", "ortolan_ep_panics"));
    let at = find(&bytes, MARK).expect("the library carries its mark");
    let name = &mut bytes[at + MARK.len() - 16..at + MARK.len()];
    name.fill(b' ');
    name[..place.len()].copy_from_slice(place.as_bytes());
    bytes
}

/// The plugin `tiny` without abi_stable, so without its layout proof.
pub fn unproven() -> PathBuf {
    rust(&source("abort"), "dev", "ortolan_ep_abort")
}

/// The plugin `tiny` built with panic=abort.
pub fn abort() -> PathBuf {
    rust(&source("abort"), "abort", "ortolan_ep_abort")
}

/// The plugin `tiny` from an ABI crate of the next minor version, which has one table more.
pub fn newer_minor() -> PathBuf {
    rust(&edited::newer_minor(), "dev", "ortolan_ep_newer")
}

/// The plugin `tiny` from an ABI crate in which one struct was changed but no version, and that lies about its fingerprint.
pub fn changed_layout() -> PathBuf {
    rust(&edited::changed_layout(), "dev", "ortolan_ep_changed")
}

/// The program that probes libraries for a core of the next minor version of the ABI.
pub fn newer_host() -> PathBuf {
    build(&edited::newer_host(), "dev", "ortolan-newer-probe")
}

/// The core alone behind one C function, optimised and stripped as a release is.
pub fn core_alone() -> PathBuf {
    rust(&root().join("tests/core-alone"), "release", "ortolan_core_alone")
}

/// Position of `needle` in `bytes`.
pub fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// The bytes of a file.
pub fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn source(folder: &str) -> PathBuf {
    root().join("tests/fixtures").join(folder)
}

/// Compiles a C file of the fixtures into a shared library called `lib<name>.so`. A warning is a failure if `args` say so.
pub fn c(name: &str, file: &str, args: &[&str], libraries: &[&str]) -> PathBuf {
    c_file(name, &source(file), &root().join("ep-abi/include"), args, libraries)
}

fn c_file(name: &str, source: &Path, include: &Path, args: &[&str], libraries: &[&str]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (name, args, libraries, read(source), read(&include.join("ortolan_ep.h"))).hash(&mut hasher);
    let folder = fixture_target().join("c").join(format!("{:016x}", hasher.finish()));
    let library = folder.join(format!("lib{name}.so"));
    if library.exists() {
        return library;
    }
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    let fresh = tempfile::Builder::new().prefix("lib").tempfile_in(&folder).expect("the target folder can be written");
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=c11", "-fPIC", "-shared", "-fvisibility=hidden", "-I"]).arg(include).args(args);
    run(command.arg(source).arg("-o").arg(fresh.path()).args(libraries));
    let path = fresh.into_temp_path();
    readable_by_all(&path);
    path.persist(&library).expect("the library can be moved");
    library
}

/// Builds the Rust workspace in `folder` and returns its library `lib<name>.so`.
pub fn rust(folder: &Path, profile: &str, name: &str) -> PathBuf {
    build(folder, profile, &format!("lib{name}.so"))
}

/// Builds the Rust workspace in `folder`, once in this process, and returns one of the files that come out.
fn build(folder: &Path, profile: &str, file: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<(PathBuf, String)>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().unwrap_or_else(|e| e.into_inner());
    let target = fixture_target();
    if built.insert((folder.to_owned(), profile.to_owned())) {
        lock_versions(folder);
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["build", "--quiet", "--offline", "--profile", profile]).current_dir(folder);
        // Lints are checked where the code stands, not in copies.
        command.env("CARGO_TARGET_DIR", &target).env_remove("CARGO_BUILD_TARGET").env_remove("RUSTFLAGS");
        run(&mut command);
    }
    target.join(if profile == "dev" { "debug" } else { profile }).join(file)
}

/// Gives a fixture this repository's versions of all dependencies: `cargo test` has downloaded and compiled for them.
fn lock_versions(folder: &Path) {
    let (ours, theirs) = (root().join("Cargo.lock"), folder.join("Cargo.lock"));
    let time = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    if time(&theirs) < time(&ours) {
        edited::write(&theirs, &read(&ours));
    }
}

/// Runs a build command; its output is shown if it fails.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{:?} cannot be started: {e}", command.get_program()));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{text}");
}

fn readable_by_all(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("the library is ours");
    }
    #[cfg(not(unix))]
    let _ = path;
}
