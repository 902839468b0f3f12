//! The program `ortolan-probe`: loads one library in a process of its own, for the host's sixth check.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(ortolan::host::probe_main(std::env::args_os().skip(1)))
}
