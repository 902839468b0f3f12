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
    let edits = NEWER_MINOR.iter().map(|&(file, from, to)| (file, from, to.to_owned())).collect::<Vec<_>>();
    workspace("newer", &edits)
}

/// The folder of the plugin `tiny` over an ABI whose layout was changed in silence.
pub fn changed_layout() -> PathBuf {
    workspace("changed", &changed_edits())
}

/// A workspace of an edited ABI crate and the plugin `tiny` over it.
fn workspace(name: &str, edits: &[(&str, &str, String)]) -> PathBuf {
    let folder = fixture_target().join("edited").join(name);
    write(&folder.join("Cargo.toml"), workspace_manifest().as_bytes());
    copy_edited(&root().join("ep-abi"), &folder.join("ep-abi"), edits);
    let plugin = root().join("tests/fixtures/rust-ep/src/lib.rs");
    let manifest = format!(
        "[package]\nname = \"ortolan-ep-{name}\"\nversion = \"0.3.0\"\nedition = \"2024\"\n\
         [lib]\nname = \"ortolan_ep_{name}\"\npath = {plugin:?}\ncrate-type = [\"cdylib\"]\n\
         [features]\nstatic = []\n[dependencies]\nortolan-ep-abi = {{ path = \"../ep-abi\" }}\n"
    );
    write(&folder.join("plugin/Cargo.toml"), manifest.as_bytes());
    folder
}

/// What the ABI crate inherits from the repository's workspace.
fn workspace_manifest() -> String {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    let inherited = ["[workspace.package]", "[workspace.lints.rust]", "[workspace.lints.clippy]"].map(|heading| {
        let (_, rest) = text.split_once(heading).unwrap_or_else(|| panic!("Cargo.toml has no {heading}"));
        format!("{heading}{}", rest.split("\n[").next().unwrap_or_default())
    });
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"ep-abi\", \"plugin\"]\n{}\n[profile.dev]\ndebug = 0\n",
        inherited.join("\n")
    )
}

fn copy_edited(from: &Path, to: &Path, edits: &[(&str, &str, String)]) {
    let mut files = vec![PathBuf::from("Cargo.toml")];
    let sources = std::fs::read_dir(from.join("src")).expect("the crate has sources");
    files.extend(sources.map(|entry| Path::new("src").join(entry.expect("a readable folder").file_name())));
    for file in files {
        let mut text = std::fs::read_to_string(from.join(&file)).expect("a text file");
        for (_, old, new) in edits.iter().filter(|(name, _, _)| Path::new(name) == file) {
            assert_eq!(text.matches(old).count(), 1, "{old:?} in {} was rewritten: rewrite the edit", file.display());
            text = text.replace(old, new);
        }
        write(&to.join(file), text.as_bytes());
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
