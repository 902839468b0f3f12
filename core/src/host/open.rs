//! Check 7: the system's loader opens the file that was checked.

use super::codes;
use super::discover::Candidate;
use super::error::{HostError, Result, join_names};
use super::needed;
use super::sys::Opened;

/// Opens the library for the rest of the process's life.
pub(super) fn open(candidate: &Candidate) -> Result<Opened> {
    // SAFETY: the file has the manifest of a plugin of this ABI, which is a promise about its initialisers; unknown
    // files were probed in a child before. What remains is trust in the file, which is the user's decision.
    let opened = unsafe { Opened::open(&candidate.path) };
    let opened = opened.map_err(|text| refusal(candidate, &text))?;
    candidate.checked.file.check_unchanged()?;
    Ok(opened)
}

fn refusal(candidate: &Candidate, text: &str) -> HostError {
    let missing = needed::missing(&candidate.path);
    if !missing.is_empty() {
        let own = candidate.path.file_name().unwrap_or_default().to_string_lossy();
        let names: Vec<String> = missing
            .iter()
            .map(|m| if m.needed_by == own { m.name.clone() } else { format!("{} (for {})", m.name, m.needed_by) })
            .collect();
        let what = if names.len() == 1 { "a shared library is" } else { "shared libraries are" };
        return HostError::new(codes::MISSING_LIBRARY, format!("{what} missing: {}", join_names(&names, 12)));
    }
    let reason = text.strip_prefix("dlopen failed: ").unwrap_or(text);
    match reason.split_once("undefined symbol: ") {
        Some((_, symbol)) => {
            let symbol: String = symbol.split_whitespace().next().unwrap_or_default().chars().take(200).collect();
            let sentence = format!("no library has the symbol {} that it uses", symbol.trim_end_matches(','));
            HostError::new(codes::UNDEFINED_SYMBOL, sentence)
        }
        None => HostError::new(codes::OPEN_FAILED, format!("the system refused to open it: {reason}")),
    }
}
