//! The program `ortolan`: hands its arguments to the library and its streams to the results.

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr());
    ExitCode::from(ortolan_cli::run(std::env::args_os(), &mut out, &mut err))
}
