//! Log lines on standard error, by `ORTOLAN_LOG`: a level, or `target=level` pairs between commas.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// The variable.
pub const VARIABLE: &str = "ORTOLAN_LOG";

/// Begins to log, once for the process; a later call changes nothing. The answer is a complaint about the variable.
pub fn start(default: LevelFilter) -> Option<String> {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let (filter, complaint) = filter(&text, default);
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false).without_time().compact();
    // A program that uses this crate as a library may have a subscriber of its own.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    complaint
}

fn filter(text: &str, default: LevelFilter) -> (Targets, Option<String>) {
    let otherwise = || Targets::new().with_default(default);
    if text.trim().is_empty() {
        return (otherwise(), None);
    }
    match text.parse() {
        Ok(filter) => (filter, None),
        Err(e) => {
            let complaint =
                format!("{VARIABLE}={text} is not used: {e}; write a level such as debug, or ortolan=debug");
            (otherwise(), Some(complaint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::filter::LevelFilter as L;

    #[test]
    fn levels_are_read_by_target() {
        let enabled = |text: &str, target: &str| {
            let (filter, complaint) = filter(text, L::WARN);
            let levels = [L::ERROR, L::WARN, L::INFO, L::DEBUG, L::TRACE].map(|l| l.into_level().unwrap());
            (levels.iter().filter(|l| filter.would_enable(target, l)).count(), complaint.is_some())
        };
        assert_eq!(enabled("", "ortolan"), (2, false));
        assert_eq!(enabled("debug", "ortolan::host"), (4, false));
        assert_eq!(enabled("ortolan::host=trace", "ortolan::host"), (5, false));
        assert_eq!(enabled("ortolan::host=trace", "ortolan::graph"), (0, false));
        assert_eq!(enabled("loud", "ortolan"), (0, false));
        assert_eq!(enabled("ortolan=loud", "ortolan"), (2, true));
    }
}
