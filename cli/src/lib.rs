//! The command line of Ortolan, as a library: [`run`] takes arguments and streams and answers with the exit status.
//!
//! It knows nothing of kernels and names no EP; everything is asked of the core.

mod args;
mod cmd;
mod codes;
mod error;
mod feed;
mod files;
mod logs;
mod numbers;
mod port;
mod profile;
mod progress;
mod random;
mod same;
mod session;
mod show;
mod table;

use std::ffi::OsString;
use std::io::Write;

use clap::Parser;
use tracing_subscriber::filter::LevelFilter;

use args::{Cli, Command, EpCommand};
use error::Result;

/// Does what the arguments say (the first is the program's name) and answers with the exit status: 0 done or yes, 1 a
/// clear no, 2 bad usage or input, 3 a plugin failed. Results go to `out`, errors to `err`.
pub fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let text = e.render().to_string();
            let wrote = if e.use_stderr() { err.write_all(text.as_bytes()) } else { out.write_all(text.as_bytes()) };
            return if wrote.is_ok() && !e.use_stderr() { 0 } else { 2 };
        }
    };
    if let Some(complaint) = logs::start(log_level(&cli.command)) {
        let _ = writeln!(err, "warning: {complaint}");
    }
    match dispatch(&cli.command, out, err) {
        Ok(yes) => u8::from(!yes),
        Err(error) => {
            let _ = writeln!(err, "error: {error}");
            error.status as u8
        }
    }
}

/// Commands that show what was refused need no log lines about it.
fn log_level(command: &Command) -> LevelFilter {
    match command {
        Command::Ep(_) | Command::Doctor(_) | Command::Explain(_) | Command::Conformance(_) => LevelFilter::OFF,
        _ => LevelFilter::WARN,
    }
}

fn dispatch(command: &Command, out: &mut dyn Write, err: &mut dyn Write) -> Result<bool> {
    match command {
        Command::Run(args) => cmd::run::run(args, out),
        Command::Bench(args) => cmd::bench::run(args, out, err),
        Command::Check(args) => cmd::check::run(args, out),
        Command::Inspect(args) => cmd::inspect::run(args, out),
        Command::Conformance(args) => cmd::conformance::run(args, out),
        Command::Ep(EpCommand::List(args)) => cmd::ep::list(args, out),
        Command::Ep(EpCommand::Info(args)) => cmd::ep::info(args, out),
        Command::Ep(EpCommand::Verify(args)) => cmd::ep::verify(args, out),
        Command::Doctor(args) => cmd::doctor::run(args, out),
        Command::Explain(args) => cmd::explain::run(args, out),
    }
}
