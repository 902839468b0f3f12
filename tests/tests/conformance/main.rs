//! The standard's own operator cases on the repository's own EP: what passes, passes; what does not is listed with a reason.
//!
//! `ORTOLAN_ONNX_CASES` names the folder that `tests/scripts/onnx_cases.py` makes; without it the test counts as ignored.
//! `tests/expectations/conformance.txt` has the cases that are set aside, and how many have to pass: the number only rises.

use libtest_mimic::{Arguments, Failed, Trial};
use ortolan::host::{PluginHost, ProbePolicy};
use ortolan_tests::place;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const FOLDER: &str = "ORTOLAN_ONNX_CASES";

fn main() {
    let folder = std::env::var_os(FOLDER);
    let kind = if folder.is_none() { format!("needs {FOLDER}") } else { String::new() };
    let ignored = folder.is_none();
    let run = move || all_cases_end_as_expected(&folder.unwrap_or_default());
    let trial = Trial::test("all_cases_end_as_expected", run).with_kind(kind).with_ignored_flag(ignored);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn all_cases_end_as_expected(folder: &OsString) -> Result<(), Failed> {
    let expected = place::root().join("tests/expectations/conformance.txt");
    let mut args: Vec<OsString> = ["ortolan", "conformance"].map(OsString::from).into();
    args.push(Path::new(folder).join("node").into());
    args.extend(["--threads", "1", "--expect"].map(OsString::from));
    args.push(expected.into());
    let (name, library) = own();
    args.extend(["--ep".into(), name.into(), "--ep-path".into(), library.into()]);
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    match ortolan_cli::run(args, &mut out, &mut errors) {
        0 => Ok(()),
        status => {
            let said = [out, errors].concat();
            Err(format!("exit status {status}\n{}", String::from_utf8_lossy(&said)).into())
        }
    }
}

/// Name and library of the repository's own EP for processors, found by what it says.
fn own() -> (String, PathBuf) {
    let host = PluginHost::builder().only_given_paths().probe(ProbePolicy::Never).build();
    let named = |path: PathBuf| {
        let ep = host.load_file(&path).unwrap_or_else(|e| panic!("{e}"));
        (ep.manifest().device_kinds == ["cpu"]).then(|| (ep.name().to_owned(), path))
    };
    place::renamed_plugins().into_iter().find_map(named).expect("cargo has built the plugin for processors")
}
