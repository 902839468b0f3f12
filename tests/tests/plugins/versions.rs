//! Older and newer plugins: which load, which are refused, and that linked-in ones get the same answers.

use crate::{builder, expect, tiny, verify, verify_here};
use ortolan::host::PluginHost;
use ortolan_ep_abi::raw::{Entry, Str};
use ortolan_tests::fixtures::{self, hostile, text};
use ortolan_tests::place::fresh;

#[test]
fn good_plugins_load_and_say_whether_they_are_proven() {
    let cases = [
        (fixtures::tiny(), "tiny", true),
        (fixtures::fake(), "fake", true),
        (fixtures::plain(), "plain", false),
        (fixtures::hostile(&[]), "hostile", false),
        (fixtures::unproven(), "tiny", false),
    ];
    for (library, name, proven) in cases {
        let ep = verify(&library).unwrap_or_else(|e| panic!("{}: {e}", library.display()));
        assert_eq!((ep.name(), ep.is_proven()), (name, proven));
        assert!(!ep.catalogue().is_empty(), "{name} has a catalogue");
        assert_eq!(ep.devices().expect("listed by verify").devices.len(), 1);
    }
}

#[test]
fn newer_minor_loads_and_its_extra_table_is_left_alone() {
    let extra = text("PROVIDES", "\"ortolan.ep.v1\",\"ortolan.ep.extra.v1\"");
    for library in [fixtures::newer_minor(), hostile(&["-DMINOR=1", &extra])] {
        let ep = verify(&library).unwrap_or_else(|e| panic!("{}: {e}", library.display()));
        assert_eq!((ep.manifest().abi.major, ep.manifest().abi.minor), (1, 1));
        assert!(ep.manifest().provides.iter().any(|id| id == "ortolan.ep.extra.v1"));
    }
}

/// The plugins of this ABI, asked by a core of the next minor version, whose root module has a field more.
#[test]
fn older_minor_loads_in_a_newer_core() {
    let helper = fixtures::newer_host();
    let ask = |library: &std::path::Path| {
        let output = std::process::Command::new(&helper).arg(library).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let names = [fixtures::tiny(), fixtures::fake(), fixtures::plain(), fixtures::newer_minor(), fixtures::unproven()];
    for library in names {
        let answer = ask(&library);
        assert!(answer.contains("\"verdict\":\"ok\""), "{}: {answer}", library.display());
    }
    for (library, code) in [(fixtures::changed_layout(), "layout"), (hostile(&["-DMAJOR=2"]), "abi-major")] {
        let answer = ask(&library);
        assert!(answer.contains("rejected") && answer.contains(&format!("\"{code}\"")), "{answer}");
    }
}

#[test]
fn minor_versions_outside_the_served_range_are_refused() {
    let cache = fresh();
    for (library, range, words) in [
        (fixtures::tiny(), 1..=u32::MAX, "1 and newer"),
        (fixtures::newer_minor(), 0..=0, "0 to 0"),
        (hostile(&["-DMINOR=7"]), 2..=6, "2 to 6"),
    ] {
        let host = builder(cache.path()).abi_minors(range).build();
        expect("another minor", host.verify(&library), "abi-minor", &[words]);
    }
}

#[test]
fn changed_layout_without_a_changed_version_is_refused() {
    let lying = fixtures::changed_layout();
    expect("a wider field", verify(&lying), "layout", &["Event"]);
    expect("a wider field, here", verify_here(&lying), "layout", &["Event"]);
    let honest = hostile(&["-DFINGERPRINT=0x1234567812345678ull"]);
    expect("another fingerprint", verify(&honest), "fingerprint", &[]);
}

/// What is wrong, the compiler's arguments that make it so, code and words.
const REFUSED: &[(&str, &str, &str, &[&str])] = &[
    ("another major", "MAJOR=2", "abi-major", &["2.0", "1.0"]),
    ("a newer core", "REQUIRES_CORE=\">=99.1\"", "core-version", &["99.1"]),
    ("an interface", "NEEDS=\"\\\"ortolan.host.teleport.v1\\\"\"", "needs-interface", &["ortolan.host.teleport.v1"]),
];

#[test]
fn plugins_that_ask_for_another_core_are_refused() {
    for &(what, define, code, words) in REFUSED {
        let library = hostile(&[&format!("-D{define}")]);
        expect(what, verify(&library), code, words);
        expect(what, verify_here(&library), code, words);
    }
}

/// An entry of the linked-in `tiny` with another manifest, as if it had been compiled in.
fn linked_in(edit: impl FnOnce(&str) -> String, change: impl FnOnce(&mut Entry)) -> &'static Entry {
    let mut entry = tiny::ENTRY;
    // SAFETY: the text of a static.
    let manifest = edit(unsafe { entry.manifest.as_str() });
    entry.manifest = Str::new(manifest.leak());
    change(&mut entry);
    Box::leak(Box::new(entry))
}

#[test]
fn linked_in_plugins_get_the_same_answers() {
    let keep = |m: &str| m.to_owned();
    let cases = [
        ("another major", linked_in(|m| m.replace("\"major\":1", "\"major\":2"), |_| ()), "abi-major"),
        ("another minor", linked_in(|m| m.replace("\"minor\":0", "\"minor\":9"), |e| e.abi_minor = 9), "abi-minor"),
        ("a newer core", linked_in(|m| m.replace(">=0.1, <2", ">=99"), |_| ()), "core-version"),
        ("an interface", linked_in(|m| m.replace("\"needs\":[", "\"needs\":[\"x.y\""), |_| ()), "needs-interface"),
        ("another layout", linked_in(keep, |e| e.fingerprint ^= 1), "fingerprint"),
        ("a small entry", linked_in(keep, |e| e.struct_size = 8), "entry-size"),
        ("no manifest", linked_in(|_| String::new(), |_| ()), "manifest-invalid"),
        (
            "another catalogue",
            linked_in(keep, |e| e.catalogue = Str::new("-\tRelu\t6\t14\tT=f32\t-\n")),
            "catalogue-hash",
        ),
        ("no magic", linked_in(keep, |e| e.magic[7] = 2), "entry-magic"),
    ];
    for (what, entry, code) in cases {
        let host = PluginHost::builder().only_given_paths().abi_minors(0..=3).build();
        let error = host.register_static(entry).expect_err(what);
        assert_eq!(error.code.name(), code, "{what}: {error}");
        assert!(error.sentence.len() < 400, "{what}: {error}");
        assert!(host.loaded().is_empty());
    }
}

#[test]
fn linked_in_plugin_registers_and_leaves() {
    let host = PluginHost::builder().only_given_paths().build();
    let ep = host.register_static(&tiny::ENTRY).expect("it is a good one");
    assert!(ep.is_proven() && ep.name() == "tiny" && ep.devices().is_ok());
    assert_eq!(host.unregister("tiny").expect_err("a handle holds it").code.name(), "in-use");
    drop(ep);
    host.unregister("tiny").expect("nobody holds it");
    assert_eq!(host.unregister("tiny").expect_err("it is gone").code.name(), "not-loaded");
    host.register_static(&tiny::ENTRY).expect("it may come back");
}
