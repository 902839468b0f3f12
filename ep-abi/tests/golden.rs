//! The committed lock text and C header equal what the tables say; `ORTOLAN_BLESS=1` rewrites them.

use ortolan_ep_abi::{header, layout, raw};
use std::path::Path;

fn golden(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("ORTOLAN_BLESS").is_some() {
        std::fs::write(&path, text).expect("write the golden file");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{file} differs from the tables: a layout change needs a new version; see docs/decisions"
    );
}

#[test]
fn lock_text_is_what_was_agreed() {
    golden("abi.lock", &layout::lock_text(raw::V1_LAYOUT));
}

#[test]
fn header_is_generated() {
    golden("include/ortolan_ep.h", &header::c_header());
}

#[test]
fn sizes_are_those_of_the_design() {
    let expected = [
        ("Value", 64),
        ("Call", 80),
        ("Node", 80),
        ("ValueInfo", 48),
        ("Program", 136),
        ("Constant", 72),
        ("Device", 80),
        ("Event", 56),
        ("HostV1", 152),
        ("HostFenceV1", 32),
        ("EpV1", 104),
        ("Entry", 72),
    ];
    for (name, size) in expected {
        let s = raw::V1_LAYOUT.iter().find(|s| s.name == name).expect("listed");
        assert_eq!(s.size, size, "{name}");
    }
}

#[test]
fn fingerprint_sees_signatures() {
    let field = |ty| layout::FieldLayout { name: "f", ty, offset: 0, size: 8, doc: &[] };
    let make = |fields| layout::StructLayout { name: "T", size: 8, align: 8, fields, doc: &[] };
    let (a, b, c) = ([field("fn(u32) -> i32")], [field("fn(u64) -> i32")], [field("fn (u32)->i32")]);
    let print = |f: &'static [layout::FieldLayout]| layout::fingerprint(&[make(f)]);
    let (a, b, c) = (print(Vec::from(a).leak()), print(Vec::from(b).leak()), print(Vec::from(c).leak()));
    assert_ne!(a, b);
    assert_eq!(a, c, "white space is not part of a type");
}

#[test]
fn header_compiles_as_c() {
    let dir = std::env::temp_dir().join(format!("ortolan-header-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("temporary folder");
    let source = dir.join("t.c");
    std::fs::write(&source, "#include \"ortolan_ep.h\"\nconst OrtolanEpEntry e = { ORTOLAN_EP_MAGIC, 1, 0, sizeof(OrtolanEpEntry), 0, ORTOLAN_EP_V1_FINGERPRINT, {0, 0}, {0, 0}, 0 };\nconst char t[] = ORTOLAN_EP_TARGET;\n").expect("write");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let output = std::process::Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .arg(include)
        .arg(&source)
        .output()
        .expect("a C compiler named cc is installed");
    std::fs::remove_dir_all(&dir).expect("remove");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
