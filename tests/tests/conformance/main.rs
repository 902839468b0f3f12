//! Operator cases on the repository's own EP: what passes, passes; what does not is listed with a reason. Those of the
//! standard stand in `ORTOLAN_ONNX_CASES`, made by `tests/scripts/onnx_cases.py`; those of ONNX Runtime's own operators in
//! `ORTOLAN_CONTRIB_CASES`, made by `tests/scripts/contrib_cases.py`. Without its folder a test counts as ignored.
//!
//! `tests/expectations` has the cases that are set aside, and how many have to pass: the numbers only rise.

mod contrib;

use libtest_mimic::{Arguments, Failed, Trial};
use ortolan::host::Origin;
use ortolan_tests::ep::own;
use ortolan_tests::place;
use std::ffi::OsString;
use std::path::Path;

fn main() {
    let trials = vec![
        trial("all_cases_end_as_expected", "ORTOLAN_ONNX_CASES", |folder| {
            end_as_expected(&folder.join("node"), "conformance.txt")
        }),
        trial("contrib_cases_end_as_expected", "ORTOLAN_CONTRIB_CASES", |folder| {
            end_as_expected(folder, "contrib.txt")
        }),
        trial("every_contrib_operator_has_cases", "ORTOLAN_CONTRIB_CASES", contrib::every_operator_has_cases),
    ];
    // One after the other: they load the same library.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit();
}

/// A test over the folder that a variable names.
fn trial(name: &str, variable: &str, run: fn(&Path) -> Result<(), Failed>) -> Trial {
    let folder = std::env::var_os(variable);
    let kind = if folder.is_none() { format!("needs {variable}") } else { String::new() };
    let ignored = folder.is_none();
    let run = move || run(Path::new(&folder.unwrap_or_default()));
    Trial::test(name, run).with_kind(kind).with_ignored_flag(ignored)
}

fn end_as_expected(folder: &Path, expected: &str) -> Result<(), Failed> {
    let expected = place::root().join("tests/expectations").join(expected);
    let mut args: Vec<OsString> = ["ortolan", "conformance"].map(OsString::from).into();
    args.push(folder.into());
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
