//! The standard's own operator cases on the repository's own EP: what passes, passes; what does not is listed with a reason.
//!
//! `ORTOLAN_ONNX_CASES` names the folder that `tests/scripts/onnx_cases.py` makes; without it the test counts as ignored.
//! `tests/expectations/conformance.txt` has the cases that are set aside, and how many have to pass: the number only rises.

use libtest_mimic::{Arguments, Failed, Trial};
use ortolan::host::Origin;
use ortolan_tests::ep::own;
use ortolan_tests::place;
use std::ffi::OsString;
use std::path::Path;

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
    let ep = own();
    let Origin::File { path, .. } = ep.origin() else { panic!("it is a library") };
    args.extend(["--ep".into(), ep.name().into(), "--ep-path".into(), path.into()]);
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    match ortolan_cli::run(args, &mut out, &mut errors) {
        0 => Ok(()),
        status => {
            let said = [out, errors].concat();
            Err(format!("exit status {status}\n{}", String::from_utf8_lossy(&said)).into())
        }
    }
}
