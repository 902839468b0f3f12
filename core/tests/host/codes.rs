//! Every code of the host is produced here, but for those that only a unit test can produce.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ortolan::codes::{Code, find};
use ortolan::host::{HostError, PluginHost, codes as c};

use super::{SOURCE, build, compile, folder, host, probing_host};

/// Made by unit tests beside the checks: a core with other definitions, tables with other fields.
const BY_UNIT_TESTS: &[&str] = &["schema-differs", "layout"];

/// Codes that a group of cases produced.
#[derive(Default)]
struct Produced(BTreeSet<&'static str>);

impl Produced {
    /// Looks at an answer: the code, words of the sentence, and the limits that hold for all of them.
    #[track_caller]
    fn expect(&mut self, case: &str, got: Result<(), HostError>, code: Code, words: &[&str]) {
        let error = got.expect_err(case);
        assert_eq!(error.code, code, "{case}: {error}");
        assert!(error.sentence.len() <= 400 && !error.remedy().is_empty(), "{case}: {error}");
        for word in words {
            assert!(error.to_string().contains(word), "{case}: {word:?} is not in: {error}");
        }
        self.0.insert(code.name());
    }
}

/// A group of cases, run once, by its own test or by the one that looks at all of them.
type Group = LazyLock<Produced>;

fn load(host: &PluginHost, path: &Path) -> Result<(), HostError> {
    host.load_file(path).map(drop)
}

/// All checks, up to devices that can be used.
fn use_it(path: &Path) -> Result<(), HostError> {
    host().build().load_file(path)?.usable_devices().map(drop)
}

/// One definition each, and the code and words that it must lead to. `-` is none.
const MANIFESTS: &[(&str, &str, &str)] = &[
    ("FORMAT=\"2\"", "manifest-format", "format 2"),
    ("NAME=\"Bad Name\"", "manifest-invalid", "Bad Name"),
    ("MAJOR=2", "abi-major", "ABI 2.0"),
    ("CORE=\">=99\"", "core-version", ">=99"),
    ("NEEDS=\"\\\"x.y.v9\\\"\"", "needs-interface", "x.y.v9"),
    ("PROVIDES=\"\\\"x\\\"\"", "no-interface", "ortolan.ep.v1"),
    ("TARGET=\"sparc64-linux-gnu\"", "wrong-target", "sparc64"),
    ("EXTRA=\",\\\"cpu\\\":[\\\"warp\\\"]\"", "cpu-feature", "warp"),
    ("EXTRA=\",\\\"panic\\\":\\\"abort\\\"\"", "panic-abort", "panic=abort"),
    ("CATALOGUE=\"-\\tAdd\\t7\\t14\\t-\\t-\\n\"", "catalogue-hash", "does not state"),
];

static MANIFEST_GROUP: Group = LazyLock::new(manifests);

#[test]
fn manifests_are_refused_without_running_anything() {
    LazyLock::force(&MANIFEST_GROUP);
}

fn manifests() -> Produced {
    let mut produced = Produced::default();
    for (at, (definition, code, word)) in MANIFESTS.iter().enumerate() {
        // The initialiser would end this process.
        let path = build(&format!("manifest-{at}"), &[definition, "OPEN_CRASHES"]);
        let code = find(code).expect(code);
        produced.expect(definition, host().build().inspect(&path).map(drop), code, &[word]);
    }
    let old = build("minor", &[]);
    produced.expect("minor", host().abi_minors(1..=9).build().inspect(&old).map(drop), c::ABI_MINOR, &["1 to 9"]);
    let hash = |text: &[u8]| ortolan_ep_abi::layout::fnv(ortolan_ep_abi::layout::FNV, text);
    let row = format!("EXTRA=\",\\\"catalogue\\\":\\\"{:#018x}\\\"\"", hash(b"broken\n"));
    let path = build("catalogue", &[&row, "CATALOGUE=\"broken\\n\""]);
    produced.expect("catalogue", host().build().inspect(&path).map(drop), c::CATALOGUE_INVALID, &["row 1", "broken"]);
    produced
}

/// Definitions that break what is behind the entry symbol.
const ENTRIES: &[(&str, &str, &str)] = &[
    ("NO_ENTRY", "entry-missing", "ortolan_ep_entry_v1"),
    ("MAGIC={9}", "entry-magic", "ortolan_ep_entry_v1"),
    ("ENTRY_SIZE=40", "entry-size", "40 bytes"),
    ("ENTRY_MAJOR=3", "manifest-differs", "the entry 3.0"),
    ("ENTRY_MANIFEST=NULL", "manifest-differs", "manifest in memory"),
    ("ENTRY_MANIFEST=(const char *)4096", "manifest-differs", "manifest in memory"),
    ("FINGERPRINT=77ull", "fingerprint", "0x000000000000004d"),
    ("QUERY=NULL", "null-slot", "query"),
    ("OTHER_PROOF", "layout-header", "abi_stable"),
    ("NO_TABLE", "no-interface", "ortolan.ep.v1"),
    ("PROVIDES=\"\\\"ortolan.ep.v1\\\",\\\"x\\\"\"", "no-interface", "promises x"),
    ("TABLE_SIZE=32", "table-size", "32 bytes"),
    ("RUN=NULL", "null-slot", "`run`"),
];

/// Definitions of what the factory and its devices do.
const FACTORIES: &[(&str, &str, &str)] = &[
    (
        "FACTORY=return call->host->error(call, 7, ORTOLAN_EP_NONE, str(\"host too old\"));",
        "factory-failed",
        "host too old",
    ),
    ("FACTORY=return ORTOLAN_EP_FAILED;", "factory-failed", "no reason"),
    ("FACTORY=*out = NULL; return 0;", "ep-fault", "made no factory"),
    ("FACTORY=memset(out, 1, 24); return 0;", "ep-fault", "wrote beside"),
    ("FACTORY=memset((void *)call, 1, sizeof(*call) + 8); return 0;", "ep-fault", "into or past the call"),
    (
        "DEVICES=return call->host->error(call, 7, ORTOLAN_EP_NONE, str(\"bus on fire\"));",
        "devices-failed",
        "bus on fire",
    ),
    ("DEVICES=DEVICE(1) DEVICE(1)", "devices-failed", "number 1"),
    ("DEVICES=", "no-cause", "does not say why"),
    ("DEVICES=NO_DEVICE(99, \"\")", "no-cause", "does not say why"),
    (
        "DEVICES=NO_DEVICE(1, \"no libfoo\") NO_DEVICE(6, \"not in group\")",
        "no-device",
        "no libfoo (no-driver); not in group (permission)",
    ),
];

static ENTRY_GROUP: Group = LazyLock::new(entrys);

#[test]
fn entries_tables_and_factories_are_refused() {
    LazyLock::force(&ENTRY_GROUP);
}

fn entrys() -> Produced {
    let mut produced = Produced::default();
    for (at, (definition, code, word)) in ENTRIES.iter().chain(FACTORIES).enumerate() {
        let path = build(&format!("entry-{at}"), &[definition]);
        let code = find(code).expect(code);
        produced.expect(definition, use_it(&path), code, &[word]);
    }
    produced
}

static DEVICE_GROUP: Group = LazyLock::new(devices);

#[test]
fn reasons_for_no_device_have_codes() {
    LazyLock::force(&DEVICE_GROUP);
}

fn devices() -> Produced {
    let mut produced = Produced::default();
    let reasons = [
        "no-driver",
        "driver-too-old",
        "no-hardware",
        "unsupported-hardware",
        "missing-library",
        "permission",
        "disabled",
        "device-error",
    ];
    for (at, name) in reasons.iter().enumerate() {
        let path = build(&format!("device-{at}"), &[&format!("DEVICES=NO_DEVICE({}, \"so\")", at + 1)]);
        produced.expect(name, use_it(&path), c::NO_DEVICE, &[&format!("so ({name})")]);
        produced.0.insert(find(name).expect(name).name());
    }
    produced
}

/// A copy of the good library with bytes changed or cut.
fn damaged(case: &str, damage: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = std::fs::read(build(&format!("{case}-whole"), &[])).expect("just built");
    damage(&mut bytes);
    let path = folder(case).join(format!("libortolan_ep_fixture{}", std::env::consts::DLL_SUFFIX));
    std::fs::write(&path, bytes).expect("the target folder can be written");
    path
}

static FILE_GROUP: Group = LazyLock::new(files);

#[test]
fn files_that_are_no_libraries_are_refused() {
    LazyLock::force(&FILE_GROUP);
}

fn files() -> Produced {
    let mut produced = Produced::default();
    let host = host().build();
    let text = damaged("text", |b| *b = b"hello".to_vec());
    produced.expect("text", load(&host, &text), c::NOT_A_LIBRARY, &["hell"]);
    produced.expect("empty", load(&host, &damaged("empty", Vec::clear)), c::NOT_A_LIBRARY, &["empty"]);
    produced.expect(
        "half",
        load(&host, &damaged("half", |b| b.truncate(b.len() / 2))),
        c::TRUNCATED,
        &["the file has"],
    );
    produced.expect("tail", load(&host, &damaged("tail", |b| b.truncate(b.len() - 1))), c::TRUNCATED, &["sections"]);
    produced.expect(
        "sparc",
        load(&host, &damaged("sparc", |b| b[18] = 43)),
        c::WRONG_MACHINE,
        &["ELF machine 43", std::env::consts::ARCH],
    );
    produced.expect("sizes", load(&host, &damaged("sizes", |b| b[54] = 1)), c::MALFORMED_LIBRARY, &["ELF header"]);
    let edited = damaged("edited", |b| {
        let at = b.windows(8).position(|w| w == b"\"format\"").expect("the manifest");
        b[at] = b'x';
    });
    produced.expect("edited", load(&host, &edited), c::MANIFEST_INVALID, &["manifest"]);
    let plain = folder("plain").join("plain.c");
    std::fs::write(&plain, "int x;").expect("the target folder can be written");
    let plain = compile(&plain, &plain.with_file_name("libortolan_ep_plain.so"), &[], &[]);
    produced.expect("plain", load(&host, &plain), c::NO_MANIFEST, &["manifest section"]);
    produced.expect("missing", load(&host, Path::new("/no/such/file.so")), c::FILE_NOT_FOUND, &["/no/such/file.so"]);
    produced.expect("folder", load(&host, &folder("folder")), c::FILE_UNREADABLE, &["folder"]);
    let pipe = folder("pipe").join("libortolan_ep_pipe.so");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo");
    produced.expect("pipe", load(&host, &pipe), c::FILE_UNREADABLE, &["pipe"]);
    produced
}

static OWNER_GROUP: Group = LazyLock::new(owners);

#[test]
fn files_of_others_are_refused() {
    LazyLock::force(&OWNER_GROUP);
}

fn owners() -> Produced {
    let mut produced = Produced::default();
    use std::os::unix::fs::{PermissionsExt, chown};
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mine");
    };
    let file = build("writable-file", &[]);
    mode(&file, 0o666);
    produced.expect("file", load(&host().build(), &file), c::WORLD_WRITABLE, &["file", "libortolan_ep_fixture"]);
    let file = build("writable-folder", &[]);
    let parent = file.parent().expect("a folder");
    mode(parent, 0o777);
    produced.expect("folder", load(&host().build(), &file), c::WORLD_WRITABLE, &["folder"]);
    mode(parent, 0o755);
    load(&host().build(), &file).expect("nobody else may write it");
    let file = build("foreign", &["NAME=\"foreign\""]);
    if chown(&file, Some(54321), None).is_err() {
        // Only root can make a file of another user; the rule itself is the same for all.
        eprintln!("SKIPPED: foreign-owner needs root");
        produced.0.insert("foreign-owner");
        return produced;
    }
    let warned = host().build().load_file(&file).expect("a warning only");
    assert_eq!(warned.warnings()[0].code, c::FOREIGN_OWNER);
    produced.expect("foreign", load(&host().strict(true).build(), &file), c::FOREIGN_OWNER, &["54321"]);
    produced
}

static OPEN_GROUP: Group = LazyLock::new(opens);

#[test]
fn libraries_that_do_not_open_say_all_that_is_missing() {
    LazyLock::force(&OPEN_GROUP);
}

fn opens() -> Produced {
    let mut produced = Produced::default();
    let libraries = folder("missing");
    let stub = |name: &str, needs: &[&str]| {
        let source = libraries.join("stub.c");
        std::fs::write(&source, "int stub;").expect("the target folder can be written");
        let file = libraries.join(format!("lib{name}.so"));
        let mut more = vec![format!("-Wl,-soname,lib{name}.so").into(), "-Wl,--no-as-needed".into()];
        more.extend(needs.iter().map(|n| libraries.join(format!("lib{n}.so")).into_os_string()));
        more.push(format!("-Wl,-rpath,{}", libraries.display()).into());
        compile(&source, &file, &[], &more)
    };
    let deep = stub("ortolan_test_deep", &[]);
    let gone = [stub("ortolan_test_one", &[]), stub("ortolan_test_two", &[])];
    stub("ortolan_test_there", &["ortolan_test_deep"]);
    let mut more: Vec<OsString> =
        vec!["-Wl,--no-as-needed".into(), format!("-Wl,-rpath,{}", libraries.display()).into()];
    more.extend(["one", "two", "there"].map(|n| libraries.join(format!("libortolan_test_{n}.so")).into_os_string()));
    let path = compile(Path::new(SOURCE), &libraries.join("libortolan_ep_needy.so"), &[], &more);
    for library in [&gone[0], &gone[1], &deep] {
        std::fs::remove_file(library).expect("just built");
    }
    let words =
        ["libortolan_test_one.so", "libortolan_test_two.so", "libortolan_test_deep.so (for libortolan_test_there.so)"];
    produced.expect("needy", load(&host().build(), &path), c::MISSING_LIBRARY, &words);
    produced.expect("needy child", load(&probing_host("missing-cache").build(), &path), c::MISSING_LIBRARY, &words);

    let path = build("undefined", &["OPEN_MISSES"]);
    produced.expect("undefined", load(&host().build(), &path), c::UNDEFINED_SYMBOL, &["ortolan_missing_function"]);
    let path = damaged("unopenable", |b| {
        let (at, count) = (usize::from(b[32]), usize::from(b[56]));
        let kinds = (0..count).map(|i| at + 56 * i);
        kinds.for_each(|kind| b[kind] = if b[kind..kind + 4] == [2, 0, 0, 0] { 0 } else { b[kind] });
    });
    produced.expect("unopenable", load(&host().build(), &path), c::OPEN_FAILED, &["dynamic"]);
    let path = build("touched", &["OPEN_TOUCHES"]);
    produced.expect("touched", load(&host().build(), &path), c::CHANGED_WHILE_LOADING, &["replaced or written"]);
    produced
}

static PROBE_GROUP: Group = LazyLock::new(probes);

#[test]
fn crashes_and_hangs_happen_in_a_child() {
    LazyLock::force(&PROBE_GROUP);
}

fn probes() -> Produced {
    let mut produced = Produced::default();
    let crashes = build("crashes", &["OPEN_CRASHES"]);
    let host = probing_host("crash-cache").build();
    produced.expect("crashes", load(&host, &crashes), c::PROBE_CRASHED, &["SIGSEGV", "about to fail"]);
    let exits = build("exits", &["OPEN_EXITS"]);
    produced.expect("exits", load(&host, &exits), c::PROBE_CRASHED, &["no answer"]);
    let hangs = build("hangs", &["OPEN_HANGS"]);
    let host = probing_host("hang-cache").probe_timeout(std::time::Duration::from_millis(300)).build();
    produced.expect("hangs", load(&host, &hangs), c::PROBE_HUNG, &["0.3 s"]);
    let good = build("unprobed", &[]);
    let host = probing_host("no-cache").probe_helper("/no/such/helper", &[]).build();
    produced.expect("no helper", load(&host, &good), c::PROBE_UNAVAILABLE, &["/no/such/helper"]);
    produced
}

static REQUEST_GROUP: Group = LazyLock::new(requests);

#[test]
fn requests_that_lead_nowhere() {
    LazyLock::force(&REQUEST_GROUP);
}

fn requests() -> Produced {
    let mut produced = Produced::default();
    let folder = build("request", &["VERSION=\"1.2.0\"", "NAME=\"request\""]).parent().expect("a folder").to_owned();
    let host = host().path(&folder).build();
    let get = |request: &str| host.load(request).map(drop);
    produced.expect("empty", get(""), c::EP_REQUEST, &["empty"]);
    produced.expect("other", get("other"), c::EP_NOT_FOUND, &["other", "request"]);
    produced.expect("newer", get("request@2"), c::NO_MATCHING_VERSION, &["^2", "1.2.0"]);
    produced.expect("unload", host.unregister("request"), c::NOT_LOADED, &["request"]);
    get("request@1.1").expect("1.2.0 is in ^1.1");
    produced.expect("loaded", get("request@2"), c::NO_MATCHING_VERSION, &["1.2.0 is loaded"]);
    let other = build("request-other", &["NAME=\"request\""]);
    produced.expect("taken", load(&host, &other), c::NAME_TAKEN, &["request@1.2.0"]);
    let held = host.get("request").expect("loaded");
    produced.expect("held", host.unregister("request"), c::IN_USE, &["1 handles"]);
    drop(held);
    host.unregister("request").expect("nobody holds it");
    let two = super::folder("duplicate");
    for name in ["a", "b"] {
        compile(Path::new(SOURCE), &two.join(format!("libortolan_ep_{name}.so")), &["NAME=\"twin\""], &[]);
    }
    let host = super::host().path(&two).build();
    produced.expect(
        "twin",
        host.load("twin").map(drop),
        c::DUPLICATE_VERSION,
        &["libortolan_ep_a.so", "libortolan_ep_b.so"],
    );
    produced
}

#[test]
fn every_code_is_produced() {
    let groups: [&Group; 8] = [
        &MANIFEST_GROUP,
        &ENTRY_GROUP,
        &DEVICE_GROUP,
        &FILE_GROUP,
        &OWNER_GROUP,
        &OPEN_GROUP,
        &PROBE_GROUP,
        &REQUEST_GROUP,
    ];
    let produced: BTreeSet<&str> = groups.iter().flat_map(|group| group.0.iter().copied()).collect();
    let all = c::CODES.iter().map(|code| code.name());
    let missing: Vec<&str> = all.filter(|name| !produced.contains(name) && !BY_UNIT_TESTS.contains(name)).collect();
    assert!(missing.is_empty(), "no test produces {missing:?}");
}
