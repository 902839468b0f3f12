//! Libraries with one thing wrong each: damaged files, lying manifests, crashing constructors, broken tables.

use crate::{builder, expect, verify, verify_here};
use ortolan::host::HostError;
use ortolan_tests::fixtures::{self, c, find, hostile, read, text};
use ortolan_tests::place::fresh;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Writes a library under a plugin's name into a folder of its own.
fn library(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("libortolan_ep_bad.so");
    std::fs::write(&path, bytes).expect("the folder is ours");
    path
}

#[test]
fn damaged_files() {
    let good = read(&fixtures::tiny());
    let half = &good[..good.len() / 2];
    let mut other_machine = good.clone();
    other_machine[18..20].copy_from_slice(&183_u16.to_le_bytes());
    let mut other_kind = good.clone();
    other_kind[16..18].copy_from_slice(&2_u16.to_le_bytes());
    let mut bits = good.clone();
    bits[4] = 1;
    let mut sections = good.clone();
    sections[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
    let cases: &[(&str, &[u8], &str, &[&str])] = &[
        ("a text", b"Not found. Please log in.\n", "not-a-library", &[]),
        ("nothing", b"", "not-a-library", &["empty"]),
        ("half a library", half, "truncated", &[&half.len().to_string()]),
        ("another processor's", &other_machine, "wrong-machine", &["aarch64"]),
        ("a program", &other_kind, "not-a-library", &[]),
        ("32 bits", &bits, "wrong-machine", &["32"]),
        ("sections beyond all ends", &sections, "truncated", &[]),
    ];
    for (what, bytes, code, words) in cases {
        let folder = fresh();
        expect(what, verify(&library(folder.path(), bytes)), code, words);
    }
    let folder = fresh();
    expect("a folder", verify(folder.path()), "file-unreadable", &[]);
    expect("no file", verify(&folder.path().join("libortolan_ep_no.so")), "file-not-found", &[]);
}

#[test]
fn truncation_anywhere_and_random_bytes_never_crash_the_checks() {
    let (good, folder) = (read(&hostile(&[])), fresh());
    let host = builder(folder.path()).build();
    let complete = host.inspect(&library(folder.path(), &good)).is_ok();
    assert!(complete, "the undamaged library passes");
    for cut in (0..good.len()).step_by(good.len() / 97) {
        let answer = host.inspect(&library(folder.path(), &good[..cut]));
        assert!(answer.is_err(), "cut at {cut} of {}", good.len());
    }
    let (mut random, mut refused) = (0x2545_F491_4F6C_DD1D_u64, 0);
    let mut next = |below: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % below
    };
    for _ in 0..400 {
        let mut bytes = good.clone();
        // Mostly the headers, where numbers lead elsewhere; sections' headers are at the end.
        let at = if next(2) == 0 { next(1024) } else { good.len() - 1 - next(2048) };
        bytes[at] = next(256) as u8;
        refused += usize::from(host.inspect(&library(folder.path(), &bytes)).is_err());
    }
    assert!(refused > 20, "only {refused} of 400 changed libraries were noticed");
}

/// What is wrong, the argument that makes it so, code, words. All are refused without running a line of theirs.
fn lying_texts() -> Vec<(&'static str, Vec<String>, &'static str, &'static [&'static str])> {
    let one = |define: &str| vec![format!("-D{define}")];
    vec![
        ("no manifest", one("NO_MANIFEST"), "no-manifest", &[]),
        ("a manifest that is no JSON", vec![text("MANIFEST", "name = hostile")], "manifest-invalid", &[]),
        ("an empty manifest", vec![text("MANIFEST", "")], "no-manifest", &[]),
        ("another format", vec![text("FORMAT", "2")], "manifest-format", &["2"]),
        ("a name that leads away", vec![text("NAME", "../../etc")], "manifest-invalid", &["../../etc"]),
        ("a version that is none", vec![text("VERSION", "one")], "manifest-invalid", &[]),
        ("another target", vec![text("TARGET", "riscv64-linux-gnu")], "wrong-target", &["riscv64"]),
        ("a feature", vec![text("CPU", "\"quantum\"")], "cpu-feature", &["quantum"]),
        ("panic=abort", vec![text("PANIC", "abort")], "panic-abort", &["abort"]),
        (
            "a wrong hash",
            vec![text("CATALOGUE_HASH", "0x0123456789abcdef"), text("CATALOGUE", "-\tRelu\t6\t14\tT=f32\t-\n")],
            "catalogue-hash",
            &["0x0e125f6e55b56481"],
        ),
        (
            "a broken row",
            vec![text("CATALOGUE_HASH", "0xaf63b24c8601a52e"), text("CATALOGUE", "?")],
            "catalogue-invalid",
            &["row 1"],
        ),
        ("no table at all", vec![text("PROVIDES", "\"something.else\"")], "no-interface", &["ortolan.ep.v1"]),
    ]
}

#[test]
fn lying_texts_are_refused_before_any_code_runs() {
    let folder = fresh();
    let host = builder(folder.path()).build();
    for (what, args, code, words) in lying_texts() {
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        // If the library were opened, the test would end here.
        args.push("-DFAULT=CONSTRUCTOR_CRASHES");
        let path = hostile(&args);
        let error = host.inspect(&path).expect_err(what);
        assert_eq!(error.code.name(), code, "{what}: {error}");
        expect(what, verify_here(&path), code, words);
    }
}

#[test]
fn crashes_and_hangs_at_opening_cost_a_child_only() {
    for (fault, code, words) in [
        ("CONSTRUCTOR_CRASHES", "probe-crashed", "SIGSEGV"),
        ("CONSTRUCTOR_EXITS", "probe-crashed", "no answer"),
        ("FACTORY_CRASHES", "probe-crashed", "SIGSEGV"),
        ("FACTORY_WRITES_HOST", "probe-crashed", "SIG"),
    ] {
        expect(fault, verify(&hostile(&[&format!("-DFAULT={fault}")])), code, &[words]);
    }
    let (cache, start) = (fresh(), Instant::now());
    let host = builder(cache.path()).probe_timeout(Duration::from_millis(400)).build();
    let path = hostile(&["-DFAULT=CONSTRUCTOR_HANGS"]);
    expect("a hang", host.verify(&path), "probe-hung", &["0.4"]);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // What was found is remembered, so that it does not hang again.
    let again = Instant::now();
    assert_eq!(host.load_file(&path).expect_err("remembered").code.name(), "probe-hung");
    assert!(again.elapsed() < Duration::from_millis(300), "{:?}", again.elapsed());
}

#[test]
fn without_a_helper_the_policy_decides() {
    let (cache, path) = (fresh(), hostile(&[]));
    let host = builder(cache.path()).probe_helper(cache.path().join("nowhere"), &[]).build();
    expect("no helper", host.verify(&path), "probe-unavailable", &[]);
    let host = builder(cache.path())
        .probe_helper(cache.path().join("nowhere"), &[])
        .probe(ortolan::host::ProbePolicy::IfAvailable)
        .build();
    let ep = host.verify(&path).expect("it is let in with a warning");
    assert_eq!(ep.warnings().iter().map(|w| w.code.name()).collect::<Vec<_>>(), ["probe-unavailable"]);
}

#[test]
fn three_missing_libraries_are_named_at_once() {
    let gone = ["gone_one", "gone_two", "gone_three"];
    let stubs = fresh();
    let source = "hostile/stub.c";
    for name in gone {
        let stub = c(name, source, &[&format!("-DSTUB={name}")], &[]);
        std::fs::copy(stub, stubs.path().join(format!("lib{name}.so"))).expect("the folder is ours");
    }
    let search = format!("-L{}", stubs.path().display());
    let flags = ["-Wl,--no-as-needed", &search, "-lgone_one", "-lgone_two", "-lgone_three"];
    let built = c("ortolan_ep_needy", "hostile/hostile.c", &["-DX"], &flags);
    drop(stubs);
    let names: Vec<String> = gone.iter().map(|name| format!("lib{name}.so")).collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    expect("three missing libraries", verify(&built), "missing-library", &words);
    expect("three missing libraries, here", verify_here(&built), "missing-library", &words);
}

#[test]
fn undefined_symbol_is_named() {
    let path = hostile(&["-DUNDEFINED_SYMBOL"]);
    expect("a symbol", verify(&path), "undefined-symbol", &["ortolan_test_symbol_that_nobody_has"]);
    expect("a symbol, here", verify_here(&path), "undefined-symbol", &["ortolan_test_symbol_that_nobody_has"]);
}

#[test]
fn entries_and_tables_that_do_not_fit() {
    let other = text("ENTRY_MANIFEST", "{}");
    let cases: &[(&str, &[&str], &str, &[&str])] = &[
        ("no entry", &["-DENTRY=something_else"], "entry-missing", &["ortolan_ep_entry_v1"]),
        ("another magic", &["-DMAGIC={'O','R','T','O','L','E','P',9}"], "entry-magic", &[]),
        ("a small entry", &["-DENTRY_SIZE=16"], "entry-size", &["16"]),
        ("another manifest", &[&other], "manifest-differs", &[]),
        ("another catalogue", &["-DENTRY_CATALOGUE=\"\""], "manifest-differs", &[]),
        ("another major in the entry", &["-DENTRY_MAJOR=2"], "manifest-differs", &["2"]),
        ("no table", &["-DFAULT=QUERY_NOTHING"], "no-interface", &["ortolan.ep.v1"]),
        ("a small table", &["-DFAULT=TABLE_SMALL"], "table-size", &["88", "104"]),
        ("a crooked table", &["-DFAULT=TABLE_MISALIGNED"], "table-size", &[]),
        (
            "a promise",
            &["-DPROVIDES=\"\\\"ortolan.ep.v1\\\",\\\"ortolan.ep.more.v1\\\"\""],
            "no-interface",
            &["ortolan.ep.more.v1"],
        ),
        ("a refusal", &["-DFAULT=FACTORY_FAILS"], "factory-failed", &["the moon is in the wrong phase"]),
        ("no factory", &["-DFAULT=FACTORY_NULL"], "ep-fault", &["made no factory"]),
        ("a write past", &["-DFAULT=FACTORY_WRITES_PAST"], "ep-fault", &["wrote beside"]),
        ("a changed call", &["-DFAULT=FACTORY_CHANGES_CALL"], "ep-fault", &["the call"]),
        ("no device, no cause", &["-DFAULT=DEVICES_NONE"], "no-cause", &[]),
        ("devices fail", &["-DFAULT=DEVICES_FAIL"], "devices-failed", &["the bus is on strike"]),
        ("one number twice", &["-DFAULT=DEVICES_TWICE"], "devices-failed", &["0"]),
        ("a larger call", &["-DFAULT=DEVICES_WRITES_PAST"], "ep-fault", &["past the call"]),
    ];
    for (what, args, code, words) in cases {
        let path = hostile(args);
        expect(what, verify(&path), code, words);
        expect(what, verify_here(&path), code, words);
    }
}

#[test]
fn every_null_slot_is_named() {
    let slots = [
        "factory_new",
        "factory_free",
        "devices",
        "ep_new",
        "ep_free",
        "claim",
        "compile",
        "part_free",
        "run",
        "lane_free",
    ];
    for (slot, name) in slots.iter().enumerate() {
        let path = hostile(&[&format!("-DNULL_SLOT={slot}")]);
        expect(name, verify_here(&path), "null-slot", &[name]);
    }
    verify_here(&hostile(&["-DNULL_SLOT=10"])).expect("copy may be missing");
}

#[test]
fn no_device_with_a_cause_is_an_answer() {
    let ep = verify(&hostile(&["-DFAULT=DEVICES_CAUSE"])).expect("the plugin itself is fine");
    let error = ep.usable_devices().expect_err("there is none");
    assert_eq!(error.code.name(), "no-device");
    for words in ["driver 3 is installed, 5 is needed", "driver-too-old", "it is Monday", "device-error"] {
        assert!(error.sentence.contains(words), "{error}");
    }
    let ep = verify(&hostile(&["-DFAULT=DEVICES_NULL_NAME"])).expect("a missing name is no reason");
    assert_eq!(ep.devices().expect("one").devices.len(), 1);
}

#[test]
fn panics_before_a_session_are_caught() {
    for (place, code) in [("factory_new", "ep-panic"), ("devices", "ep-panic")] {
        let folder = fresh();
        let path = library(folder.path(), &fixtures::panics(place));
        let words = format!("told to panic in {place}");
        for answer in [verify(&path), verify_here(&path)] {
            expect(place, answer, code, &[&words, "lib.rs"]);
        }
    }
    let folder = fresh();
    let path = library(folder.path(), &fixtures::panics("factory_free"));
    drop(verify_here(&path).expect("it panics only when it is freed"));
}

#[test]
fn panic_abort_is_refused() {
    expect("panic=abort", verify(&fixtures::abort()), "panic-abort", &["panic=abort"]);
}

#[test]
fn two_files_with_one_name_and_version() {
    let (folder, cache) = (fresh(), fresh());
    let good = read(&hostile(&[]));
    for name in ["libortolan_ep_a.so", "libortolan_ep_b.so"] {
        std::fs::write(folder.path().join(name), &good).expect("the folder is ours");
    }
    let host = builder(cache.path()).path(folder.path()).build();
    let error = host.load("hostile").expect_err("which one?");
    assert_eq!(error.code.name(), "duplicate-version");
    for word in ["libortolan_ep_a.so", "libortolan_ep_b.so"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    // A higher version beside them is not in doubt.
    let newer = read(&hostile(&[&text("VERSION", "1.1.0")]));
    std::fs::write(folder.path().join("libortolan_ep_c.so"), newer).expect("the folder is ours");
    let host = builder(cache.path()).path(folder.path()).build();
    assert_eq!(host.load("hostile").expect("the highest").manifest().version.to_string(), "1.1.0");
    let code = |r: Result<_, HostError>| r.map(|_: std::sync::Arc<_>| ()).expect_err("in doubt").code.name();
    let fresh_host = builder(cache.path()).path(folder.path()).build();
    assert_eq!(code(fresh_host.load("hostile@=1.0.0")), "duplicate-version");
    assert_eq!(code(fresh_host.load("hostile@^7")), "no-matching-version");
    assert_eq!(code(fresh_host.load("nobody")), "ep-not-found");
    assert_eq!(code(fresh_host.load("hostile@@")), "ep-request");
}

#[test]
fn name_of_a_loaded_plugin_is_taken() {
    let (folder, cache) = (fresh(), fresh());
    let host = builder(cache.path()).build();
    let first = host.load_file(&hostile(&[])).expect("it is good");
    let again = host.load_file(&hostile(&[])).expect("the same file is the same EP");
    assert!(std::sync::Arc::ptr_eq(&first, &again));
    let copy = library(folder.path(), &read(&hostile(&[])));
    assert_eq!(host.load_file(&copy).expect_err("another file").code.name(), "name-taken");
}

#[test]
fn unregistering_waits_for_nobody() {
    let cache = fresh();
    let host = builder(cache.path()).build();
    let ep = host.load_file(&fixtures::plain()).expect("it is good");
    let error = host.unregister("plain").expect_err("a handle holds it");
    assert!(error.code.name() == "in-use" && error.sentence.contains("1 handles"), "{error}");
    drop(ep);
    host.unregister("plain").expect("nobody holds it");
    host.load_file(&fixtures::plain()).expect("and back again");
}

#[test]
#[cfg(unix)]
fn files_that_anyone_may_write_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = fresh();
    let path = library(folder.path(), &read(&hostile(&[])));
    let mode = |path: &Path, bits| std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).expect("ours");
    mode(&path, 0o777);
    expect("a writable file", verify(&path), "world-writable", &[]);
    mode(&path, 0o755);
    mode(folder.path(), 0o777);
    expect("a writable folder", verify(&path), "world-writable", &[]);
    mode(folder.path(), 0o700);
    verify(&path).expect("now it is ours alone");
}

/// The bytes of the fixture stay as the tests above expect them.
#[test]
fn hostile_without_a_fault_is_a_good_plugin() {
    let path = hostile(&[]);
    assert!(find(&read(&path), b"\"name\":\"hostile\"").is_some());
    verify(&path).expect("nothing is wrong with it");
}
