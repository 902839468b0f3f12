//! The child's side: loads one library as the host would, up to its factory, and says how far it got.
//!
//! No device is asked for: that may start a driver, take long, and say nothing about the library.

use super::super::discover::{self, Rules};
use super::super::error::Result;
use super::super::library;
use super::super::places::PlaceKind;
use super::super::{Offer, sys};
use super::{MARK, PROTOCOL, Verdict};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::Path;

/// The one line that the parent waits for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub probe: u32,
    pub core: String,
    pub verdict: Verdict,
}

/// What the program `ortolan-probe` does: `arguments` (without the program's name) are the path of one library.
/// Gives back the exit status: 0 when the library loads, 1 when it is rejected, 2 for wrong arguments.
///
/// Prints one line to standard output. The calling process should end right afterwards: the library stays loaded.
pub fn probe_main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let [library] = arguments.as_slice() else {
        eprintln!(
            "usage: ortolan-probe LIBRARY\nLoads an execution-provider library to see whether that crashes or hangs."
        );
        return 2;
    };
    sys::prepare_probe();
    let verdict = match probe(Path::new(library)) {
        Ok(()) => Verdict::Ok,
        Err(error) => Verdict::Rejected(error.code.name().to_owned(), error.sentence),
    };
    let status = u8::from(verdict != Verdict::Ok);
    let answer = Answer { probe: PROTOCOL, core: env!("CARGO_PKG_VERSION").to_owned(), verdict };
    // The library may have left text without a line's end.
    println!("\n{MARK}{}", serde_json::to_string(&answer).unwrap_or_default());
    status
}

/// Checks 1 to 11. The parent's stricter rules were applied by the parent.
fn probe(library: &Path) -> Result<()> {
    let offer = Offer { abi_minors: 0..=u32::MAX, ..Offer::default() };
    let candidate = discover::inspect(library, PlaceKind::Given, &Rules { strict: false, offer })?;
    library::open(&candidate).map(drop)
}
