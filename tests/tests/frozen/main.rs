//! ABI 1.0 as it was frozen: a copy of its crate, header and example plugins, which nobody edits.
//!
//! Plugins that are built from the copy have to load and run in today's core, and today's tables have to be those of the
//! copy. A plugin of a later version is in the tests of versions.

use ortolan::{Session, SessionEp, TensorView};
use ortolan_ep_abi::{header, layout, raw};
use ortolan_tests::ep::load;
use ortolan_tests::fixtures;
use ortolan_tests::model::{Model, Tensor};
use ortolan_tests::place::root;
use std::path::{Path, PathBuf};

/// FNV-1a 64 over names and bytes of everything below `tests/frozen`.
const DIGEST: u64 = 0x88ae_1d83_dd01_b186;

fn frozen(file: &str) -> String {
    std::fs::read_to_string(root().join("tests/frozen/ep-abi-1.0").join(file)).expect("a file of the frozen crate")
}

#[test]
fn plugins_of_1_0_run_in_this_core() {
    let (rust, c) = (load(&fixtures::frozen_rust()), load(&fixtures::frozen_c()));
    assert_eq!((rust.name(), rust.is_proven()), ("tiny", true), "its proof is held against today's crate");
    assert_eq!((c.name(), c.is_proven()), ("plain", false));
    let model = Model::new(17)
        .input("x", &["n", "4"])
        .weight("w", Tensor::random(&[4, 4], 1))
        .weight("b", Tensor::random(&[4], 2))
        .node("MatMul", &["x", "w"], "m")
        .node("Add", &["m", "b"], "a")
        .node("Relu", &["a"], "r")
        .node("Softmax", &["r"], "y")
        .output("y");
    let eps = [SessionEp::from(&*rust), SessionEp::from(&*c)];
    let session = Session::builder().eps(eps).threads(2).build(model.bytes()).expect("every node has an EP");
    assert_eq!(session.report().nodes_by_ep(), [("tiny", 2), ("plain", 2)]);
    for n in [1, 3, 3, 0, 5] {
        let x = Tensor::random(&[n, 4], 7);
        let view = TensorView::new(&x.shape, &x.data).expect("it fits");
        let found = session.run([("x", view)]).expect("it runs");
        let want = &model.interpret(&[("x", x)])["y"];
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
        let found = found[0].as_slice::<f32>().expect("f32");
        assert!(found.len() == want.data.len() && found.iter().zip(&want.data).all(close), "{found:?} {want:?}");
    }
}

#[test]
fn tables_and_numbers_are_those_of_1_0() {
    assert_eq!(layout::lock_text(raw::V1_LAYOUT), frozen("abi.lock"), "a frozen table was changed");
    assert_eq!(raw::ABI_MAJOR, 1);
    let (then, now) = (frozen("include/ortolan_ep.h"), header::c_header());
    // The minor version grows; all else that had a name has it still, with the same number.
    let define = |l: &&str| l.starts_with("#define ORTOLAN_") && !l.contains("_ABI_MINOR ");
    let defines: Vec<&str> = then.lines().filter(define).collect();
    assert!(defines.len() > 90, "{} definitions were found", defines.len());
    let lost: Vec<&&str> = defines.iter().filter(|d| !now.lines().any(|l| l == **d)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn the_frozen_copy_is_as_it_was() {
    let mut files = Vec::new();
    collect(&root().join("tests/frozen"), &mut files);
    files.sort();
    assert!(files.len() > 15, "{files:?}");
    let digest = files.iter().fold(layout::FNV, |hash, path| {
        let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
        layout::fnv(layout::fnv(hash, name.as_bytes()), &std::fs::read(path).expect("a readable file"))
    });
    assert_eq!(digest, DIGEST, "tests/frozen is never edited: {digest:#018x}");
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        match path.is_dir() {
            true => collect(&path, found),
            // What cargo writes.
            false if path.ends_with("Cargo.lock") => {}
            false => found.push(path),
        }
    }
}
