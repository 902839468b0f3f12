//! Profiled runs as a trace file, or as a table of the nodes that take longest.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use ortolan::{Profile, ProfileEvent};

use crate::codes;
use crate::error::{Error, Result};
use crate::show::decimal;
use crate::table;

/// Rows of the table.
const ROWS: usize = 10;
/// What the host calls the run of a part.
const PART: &str = "run";

/// Writes the trace.
pub fn write(path: &Path, profile: &Profile) -> Result<()> {
    let file = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        profile.write_trace(&mut out)?;
        out.flush()
    };
    file().map_err(|e| Error::usage(codes::OUTPUT_FILE, format!("{}: cannot be written: {e}", path.display())))
}

/// The nodes that take longest, by their mean over profiled runs, with what they achieve.
pub fn table(runs: &[Profile]) -> String {
    let mut rows: HashMap<(&str, &str, &str), Row<'_>> = HashMap::new();
    let events = || runs.iter().flat_map(|r| &r.events);
    let tell: HashSet<&str> = events().filter(|e| e.node.is_some()).map(|e| e.ep.as_str()).collect();
    // Of an EP that tells nothing of its kernels there are only its parts.
    for e in events().filter(|e| e.node.is_some() || (e.name == PART && !tell.contains(e.ep.as_str()))) {
        let key = (e.ep.as_str(), e.name.as_str(), e.place.as_str());
        rows.entry(key).or_insert_with(|| Row::of(e)).add(e);
    }
    let mut rows: Vec<Row<'_>> = rows.into_values().collect();
    rows.sort_by(|a, b| (b.ns, a.place).cmp(&(a.ns, b.place)));
    let all: u64 = rows.iter().map(|r| r.ns).sum();
    let mut table = table::new(&["KERNEL", "EP", "CALLS", "MS", "SHARE", "GFLOP/S", "GB/S", "NODE"], &[2, 3, 4, 5, 6]);
    let count = runs.len().max(1) as f64;
    for r in rows.iter().take(ROWS) {
        let rate = |n: u64| if n == 0 || r.ns == 0 { String::new() } else { decimal(n as f64 / r.ns as f64) };
        table.add_row([
            r.kernel.to_owned(),
            r.ep.to_owned(),
            decimal(r.calls as f64 / count),
            decimal(r.ns as f64 / 1e6 / count),
            format!("{:.1} %", 100.0 * r.ns as f64 / all.max(1) as f64),
            rate(r.flops),
            rate(r.bytes),
            r.place.to_owned(),
        ]);
    }
    let spent = |name: &str| events().filter(|e| e.node.is_none() && e.name == name).map(|e| e.dur_ns).sum::<u64>();
    let ms = |ns: u64| decimal(ns as f64 / 1e6 / count);
    let mut text = table::text(&table);
    if rows.len() > ROWS {
        let rest: u64 = rows[ROWS..].iter().map(|r| r.ns).sum();
        text += &format!("and {} more, {} ms\n", rows.len() - ROWS, ms(rest));
    }
    if !rows.is_empty() {
        text += &format!("kernels {} ms of {} ms in parts", ms(all), ms(spent(PART)));
        text += &match spent("copy") {
            0 => "\n".to_owned(),
            copies => format!(", copies {} ms\n", ms(copies)),
        };
    }
    text
}

/// All calls of a kernel for one node.
struct Row<'a> {
    ep: &'a str,
    kernel: &'a str,
    place: &'a str,
    calls: usize,
    ns: u64,
    flops: u64,
    bytes: u64,
}

impl<'a> Row<'a> {
    fn of(event: &'a ProfileEvent) -> Row<'a> {
        Row { ep: &event.ep, kernel: &event.name, place: &event.place, calls: 0, ns: 0, flops: 0, bytes: 0 }
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
    fn nodes_stand_longest_first_with_their_mean_over_the_runs() {
        let event = |name: &str, node: Option<u32>, dur_ns, flops| ProfileEvent {
            name: name.into(),
            ep: "a".into(),
            node,
            place: node.map_or_else(String::new, |n| format!("node 'n{n}' (Op)")),
            worker: 0,
            start_ns: 0,
            dur_ns,
            flops,
            bytes: 0,
        };
        let run = |scale: u64| Profile {
            events: vec![
                event("x", Some(1), 1_000_000 * scale, 0),
                event("y", Some(2), 2_000_000 * scale, 4_000_000 * scale),
                event("x", Some(3), 1_500_000 * scale, 0),
                event("run", None, 5_000_000 * scale, 0),
            ],
        };
        assert_eq!(
            table(&[run(1), run(3)]),
            "KERNEL  EP  CALLS  MS   SHARE  GFLOP/S  GB/S  NODE\n\
             y       a       1   4  44.4 %        2        node 'n2' (Op)\n\
             x       a       1   3  33.3 %                 node 'n3' (Op)\n\
             x       a       1   2  22.2 %                 node 'n1' (Op)\n\
             kernels 9 ms of 10 ms in parts\n"
        );
        assert_eq!(table(&[]), "");
        let silent = Profile { events: vec![event("run", None, 1_000_000, 0)] };
        assert!(table(&[silent]).ends_with("kernels 1 ms of 1 ms in parts\n"));
        let many = Profile { events: (0..12).map(|n| event("x", Some(n), 1_000_000, 0)).collect() };
        assert!(table(&[many]).contains("and 2 more, 2 ms\n"));
    }
}
