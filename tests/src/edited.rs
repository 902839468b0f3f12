//! Copies of the ABI crate with a few words changed: the plugins of other versions that do not exist yet.
//!
//! Once the ABI is frozen and has a past, real old crates take the place of these.

use crate::place::{fixture_target, root};
use std::path::{Path, PathBuf};

/// File of the ABI crate, text that stands there exactly once, and what takes its place.
type Edit = (&'static str, &'static str, &'static str);

/// ABI 1.1: a table more, offered by `query` and as a suffix field of the root module.
const NEWER_MINOR: &[Edit] = &[
    ("Cargo.toml", "version = \"1.0.0\"", "version = \"1.1.0\""),
    ("src/raw.rs", "pub const ABI_MINOR: u32 = 0;", "pub const ABI_MINOR: u32 = 1;"),
    (
        "src/raw.rs",
        "/// Every struct of version 1, in order.",
        "c_struct! {
            /// A table that 1.0 does not know.
            pub struct ExtraV1 {
                /// Its size.
                struct_size: u32,
                /// 1.
                version: u32,
                /// What it is for.
                answer: unsafe extern \"C\" fn(u64) -> u64,
            }
        }
        unsafe extern \"C\" fn answer(question: u64) -> u64 { question + 42 }
        /// The table.
        pub static EXTRA_V1: ExtraV1 = ExtraV1 { struct_size: 16, version: 1, answer };
        /// Every struct of version 1, in order.",
    ),
    (
        "src/author.rs",
        "        _ => core::ptr::null(),",
        "        \"ortolan.ep.extra.v1\" => core::ptr::from_ref(&raw::EXTRA_V1).cast(),\n        _ => core::ptr::null(),",
    ),
    (
        "src/sabi.rs",
        "pub host_v1: ROption<RRef<'static, HostTables>>,",
        "pub host_v1: ROption<RRef<'static, HostTables>>,\n    /// New in 1.1.\n    pub extra_v1: ROption<RRef<'static, crate::raw::ExtraV1>>,",
    ),
    ("src/sabi.rs", "host_v1: RNone }", "host_v1: RNone, extra_v1: ROption::RSome(RRef::new(&crate::raw::EXTRA_V1)) }"),
    ("src/text.rs", "&[crate::raw::EP_V1_ID]", "&[crate::raw::EP_V1_ID, \"ortolan.ep.extra.v1\"]"),
];

/// One field wider and still the old version and fingerprint: what a careless fork would ship.
fn changed_edits() -> Vec<(&'static str, &'static str, String)> {
    let fingerprint = format!("pub const V1_FINGERPRINT: u64 = {:#x};", ortolan_ep_abi::raw::V1_FINGERPRINT);
    vec![
        (
            "src/raw.rs",
            "/// Worker, 0 is the caller.\n        worker: u32,",
            "/// Worker.\n        worker: u64,".to_owned(),
        ),
        ("src/raw.rs", "pub const V1_FINGERPRINT: u64 = crate::layout::fingerprint(V1_LAYOUT);", fingerprint),
    ]
}

/// The folder of the plugin `tiny` over ABI 1.1.
pub fn newer_minor() -> PathBuf {
    plugin("newer", &newer_edits())
}

/// The folder of the plugin `tiny` over an ABI whose layout was changed in silence.
pub fn changed_layout() -> PathBuf {
    plugin("changed", &changed_edits())
}

/// The folder of a core of ABI 1.1, with the program that probes libraries for it.
pub fn newer_host() -> PathBuf {
    let folder = workspace("newer-host", &["graph", "core", "probe"], &newer_edits());
    for part in ["graph", "core"] {
        copy(&root().join(part), &folder.join(part), &[]);
    }
    let main = root().join("tests/src/probe.rs");
    let manifest = format!(
        "[package]\nname = \"ortolan-newer-probe\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [[bin]]\nname = \"ortolan-newer-probe\"\npath = {main:?}\n[dependencies]\nortolan.workspace = true\n"
    );
    write(&folder.join("probe/Cargo.toml"), manifest.as_bytes());
    folder
}

fn newer_edits() -> Vec<(&'static str, &'static str, String)> {
    NEWER_MINOR.iter().map(|&(file, from, to)| (file, from, to.to_owned())).collect()
}

/// A workspace of an edited ABI crate and the plugin `tiny` over it.
fn plugin(name: &str, edits: &[(&str, &str, String)]) -> PathBuf {
    let folder = workspace(name, &["plugin"], edits);
    let source = root().join("tests/fixtures/rust-ep/src/lib.rs");
    let manifest = format!(
        "[package]\nname = \"ortolan-ep-{name}\"\nversion = \"0.3.0\"\nedition = \"2024\"\n\
         [lib]\nname = \"ortolan_ep_{name}\"\npath = {source:?}\ncrate-type = [\"cdylib\"]\n\
         [features]\nstatic = []\n[dependencies]\nortolan-ep-abi.workspace = true\n"
    );
    write(&folder.join("plugin/Cargo.toml"), manifest.as_bytes());
    folder
}

/// A workspace of an edited ABI crate and other members, with all that crates of this repository inherit.
fn workspace(name: &str, members: &[&str], edits: &[(&str, &str, String)]) -> PathBuf {
    let folder = fixture_target().join("edited").join(name);
    let text = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    let inherited = ["package", "dependencies", "lints.rust", "lints.clippy"].map(|section| {
        let heading = format!("[workspace.{section}]");
        let (_, rest) = text.split_once(&heading).unwrap_or_else(|| panic!("Cargo.toml has no {heading}"));
        let lines = rest.split("\n[").next().unwrap_or_default().lines();
        // Members that are not copied are not depended on either.
        let here = |l: &&str| {
            !l.contains("path = ") || members.iter().chain(&["ep-abi"]).any(|m| l.contains(&format!("\"{m}\"")))
        };
        format!("{heading}{}\n", lines.filter(here).collect::<Vec<_>>().join("\n"))
    });
    let head = format!("[workspace]\nresolver = \"3\"\nmembers = {:?}\n", [&["ep-abi"], members].concat());
    let manifest = format!("{head}{}[profile.dev]\ndebug = 0\n", inherited.concat());
    write(&folder.join("Cargo.toml"), manifest.as_bytes());
    let crate_folder = root().join("ep-abi");
    assert!(edits.iter().all(|(file, _, _)| crate_folder.join(file).is_file()), "an edited file was renamed");
    copy(&crate_folder, &folder.join("ep-abi"), edits);
    folder
}

/// Copies a crate. Every edit must find its text.
fn copy(from: &Path, to: &Path, edits: &[(&str, &str, String)]) {
    for entry in std::fs::read_dir(from).expect("the crate has files") {
        let entry = entry.expect("a readable folder");
        let (path, name) = (entry.path(), entry.file_name().into_string().expect("a plain name"));
        if path.is_dir() {
            let inside = edits
                .iter()
                .filter_map(|(file, old, new)| Some((file.strip_prefix(&name)?.strip_prefix('/')?, *old, new.clone())));
            copy(&path, &to.join(&name), &inside.collect::<Vec<_>>());
            continue;
        }
        let mut text = std::fs::read(&path).expect("a readable file");
        for (_, old, new) in edits.iter().filter(|(file, _, _)| *file == name) {
            let before = String::from_utf8(text).expect("a text file");
            assert_eq!(before.matches(old).count(), 1, "{old:?} in {} was rewritten: rewrite the edit", path.display());
            text = before.replace(old, new).into_bytes();
        }
        write(&to.join(&name), &text);
    }
}

/// Writes a file if it differs, so that cargo rebuilds only then.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return;
    }
    std::fs::create_dir_all(path.parent().expect("a file in a folder")).expect("the target folder can be written");
    std::fs::write(path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
