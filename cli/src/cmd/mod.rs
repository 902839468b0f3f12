//! The commands, one file each, and what they share: where text goes, how a document is printed.

pub mod bench;
pub mod check;
pub mod conformance;
pub mod doctor;
pub mod ep;
pub mod explain;
pub mod inspect;
pub mod run;

use std::io::{ErrorKind, Write};

use ortolan::host::PluginHost;
use serde::Serialize;

use crate::args::SearchArgs;
use crate::codes;
use crate::error::{Error, Result};

/// Prints a result. A reader that has gone away (`| head`) is no error.
pub fn print(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::usage(codes::OUTPUT_FILE, format!("standard output cannot be written: {e}")))
        }
        _ => Ok(()),
    }
}

/// Prints one JSON document.
pub fn print_json(out: &mut dyn Write, document: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|e| Error::usage(codes::OUTPUT_FILE, format!("the result has no form in JSON: {e}")))?;
    print(out, &(text + "\n"))
}

/// The host that the arguments describe. Nothing is searched yet.
pub fn host(search: &SearchArgs) -> PluginHost {
    let builder = PluginHost::builder().strict(search.strict);
    search.ep_path.iter().fold(builder, |builder, path| builder.path(path)).build()
}

/// `1 node`, `2 nodes`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
