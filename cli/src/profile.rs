//! A profiled run as a trace file or as a table of kernels.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use ortolan::{Profile, ProfileEvent};

use crate::codes;
use crate::error::{Error, Result};
use crate::show::decimal;
use crate::table;

/// Rows of the table.
const ROWS: usize = 40;

/// Writes the trace.
pub fn write(path: &Path, profile: &Profile) -> Result<()> {
    let file = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        profile.write_trace(&mut out)?;
        out.flush()
    };
    file().map_err(|e| Error::usage(codes::OUTPUT_FILE, format!("{}: cannot be written: {e}", path.display())))
}

/// Time by EP and kernel, longest first.
pub fn table(profile: &Profile) -> String {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for event in &profile.events {
        match rows.iter_mut().find(|r| r.ep == event.ep && r.kernel == event.name) {
            Some(row) => row.add(event),
            None => rows.push(Row::of(event)),
        }
    }
    rows.sort_by_key(|r| std::cmp::Reverse(r.ns));
    let all: u64 = rows.iter().map(|r| r.ns).sum();
    let mut table = table::new(&["KERNEL", "EP", "CALLS", "MS", "SHARE", "GFLOP/S", "GB/S"], &[2, 3, 4, 5, 6]);
    for r in rows.iter().take(ROWS) {
        let rate = |n: u64| if n == 0 || r.ns == 0 { String::new() } else { decimal(n as f64 / r.ns as f64) };
        table.add_row([
            r.kernel.to_owned(),
            r.ep.to_owned(),
            r.calls.to_string(),
            decimal(r.ns as f64 / 1e6),
            format!("{:.1} %", 100.0 * r.ns as f64 / all.max(1) as f64),
            rate(r.flops),
            rate(r.bytes),
        ]);
    }
    let more = rows.len().saturating_sub(ROWS);
    table::text(&table) + &if more > 0 { format!("and {more} more\n") } else { String::new() }
}

/// All calls of one kernel.
struct Row<'a> {
    ep: &'a str,
    kernel: &'a str,
    calls: usize,
    ns: u64,
    flops: u64,
    bytes: u64,
}

impl<'a> Row<'a> {
    fn of(event: &'a ProfileEvent) -> Row<'a> {
        let mut row = Row { ep: &event.ep, kernel: &event.name, calls: 0, ns: 0, flops: 0, bytes: 0 };
        row.add(event);
        row
    }

    fn add(&mut self, event: &ProfileEvent) {
        self.calls += 1;
        self.ns = self.ns.saturating_add(event.dur_ns);
        self.flops = self.flops.saturating_add(event.flops);
        self.bytes = self.bytes.saturating_add(event.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_summed_longest_first() {
        let event = |name: &str, dur_ns, flops| ProfileEvent {
            name: name.into(),
            ep: "a".into(),
            node: None,
            place: String::new(),
            worker: 0,
            start_ns: 0,
            dur_ns,
            flops,
            bytes: 0,
        };
        let profile = Profile {
            events: vec![event("x", 1_000_000, 0), event("y", 2_000_000, 4_000_000), event("x", 1_500_000, 0)],
        };
        assert_eq!(
            table(&profile),
            "KERNEL  EP  CALLS   MS   SHARE  GFLOP/S  GB/S\nx       a       2  2.5  55.6 %\ny       a       1    2  44.4 %        2\n"
        );
        assert_eq!(table(&Profile::default()), "");
    }
}
