//! Tests over what the repository does not carry: the cases of the `onnx` package, the package itself, models that others
//! made. Where it is named lies in the environment; a test whose data is not named counts as ignored, not as passed:
//!
//! - `ORTOLAN_ONNX_CASES`: the folder that `tests/scripts/onnx_cases.py` makes. CI makes it.
//! - `ORTOLAN_PYTHON`: a Python with `tests/scripts/requirements.txt`. CI makes it.
//! - `ORTOLAN_OPEN_MODELS`, `ORTOLAN_ZOO_MODELS`: folders of models. CI has none of them; `projections` runs the same
//!   checks over small architectures.
#![allow(clippy::unwrap_used, reason = "tests")]

use libtest_mimic::{Arguments, Trial};

mod cases;
mod models;
mod projections;
mod schemas;

/// A test, and the variables without which it has nothing to look at.
struct Given {
    name: &'static str,
    needs: &'static [&'static str],
    run: fn(),
}

impl Given {
    fn trial(&self) -> Trial {
        let run = self.run;
        let missing = self.needs.iter().any(|v| std::env::var_os(v).is_none());
        let trial = Trial::test(self.name, move || {
            run();
            Ok(())
        });
        let kind = if missing { format!("needs {}", self.needs.join(", ")) } else { String::new() };
        trial.with_kind(kind).with_ignored_flag(missing)
    }
}

/// What a variable of the environment says.
fn said(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"))
}

fn main() {
    let all = [cases::ALL, models::ALL, projections::ALL, schemas::ALL];
    let trials = all.into_iter().flatten().map(Given::trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
