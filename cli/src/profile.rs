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

/// The nodes that take longest, by their median over profiled runs, with what they achieve.
pub fn table(runs: &[Profile]) -> String {
    let events = || runs.iter().flat_map(|r| &r.events);
    let tell: HashSet<&str> = events().filter(|e| e.node.is_some()).map(|e| e.ep.as_str()).collect();
    let mut rows: HashMap<(&str, &str, &str), Row<'_>> = HashMap::new();
    for (at, run) in runs.iter().enumerate() {
        // Of an EP that tells nothing of its kernels there are only its parts.
        for e in run.events.iter().filter(|e| e.node.is_some() || (e.name == PART && !tell.contains(e.ep.as_str()))) {
            let key = (e.ep.as_str(), e.name.as_str(), e.place.as_str());
            rows.entry(key).or_insert_with(|| Row::of(e, runs.len())).add(e, at);
        }
    }
    let mut rows: Vec<(u64, Row<'_>)> = rows.into_values().map(|row| (median(&row.ns), row)).collect();
    rows.sort_by(|(a, x), (b, y)| (b, x.place).cmp(&(a, y.place)));
    let all: u64 = rows.iter().map(|(ns, _)| ns).sum();
    let mut table = table::new(&["KERNEL", "EP", "CALLS", "MS", "SHARE", "GFLOP/S", "GB/S", "NODE"], &[2, 3, 4, 5, 6]);
    let count = runs.len().max(1) as f64;
    let ms = |ns: u64| decimal(ns as f64 / 1e6);
    for (ns, r) in rows.iter().take(ROWS) {
        let rate = |n: u64| if n == 0 || *ns == 0 { String::new() } else { decimal(n as f64 / count / *ns as f64) };
        table.add_row([
            r.kernel.to_owned(),
            r.ep.to_owned(),
            decimal(r.calls as f64 / count),
            ms(*ns),
            format!("{:.1} %", 100.0 * *ns as f64 / all.max(1) as f64),
            rate(r.flops),
            rate(r.bytes),
            r.place.to_owned(),
        ]);
    }
    let mut text = table::text(&table);
    if rows.len() > ROWS {
        let rest: u64 = rows[ROWS..].iter().map(|(ns, _)| ns).sum();
        text += &format!("and {} more, {} ms\n", rows.len() - ROWS, ms(rest));
    }
    if !rows.is_empty() {
        text += &format!("kernels {} ms of {} ms in parts", ms(all), ms(host(runs, PART)));
        text += &match host(runs, "copy") {
            0 => "\n".to_owned(),
            copies => format!(", copies {} ms\n", ms(copies)),
        };
    }
    text
}

/// The median over the runs of what the host did under this name.
fn host(runs: &[Profile], name: &str) -> u64 {
    let of = |run: &Profile| run.events.iter().filter(|e| e.node.is_none() && e.name == name).map(|e| e.dur_ns).sum();
    median(&runs.iter().map(of).collect::<Vec<u64>>())
}

/// One run that was interrupted says nothing. The mean of the two middle ones of an even number.
fn median(ns: &[u64]) -> u64 {
    let mut ns = ns.to_vec();
    ns.sort_unstable();
    let at = |i: usize| ns.get(i).copied().unwrap_or(0);
    at(ns.len().saturating_sub(1) / 2).midpoint(at(ns.len() / 2))
}

/// All calls of a kernel for one node.
struct Row<'a> {
    ep: &'a str,
    kernel: &'a str,
    place: &'a str,
    calls: usize,
    /// By run.
    ns: Vec<u64>,
    flops: u64,
    bytes: u64,
}

impl<'a> Row<'a> {
    fn of(event: &'a ProfileEvent, runs: usize) -> Row<'a> {
        Row { ep: &event.ep, kernel: &event.name, place: &event.place, calls: 0, ns: vec![0; runs], flops: 0, bytes: 0 }
    }

    fn add(&mut self, event: &ProfileEvent, run: usize) {
        self.calls += 1;
        self.ns[run] = self.ns[run].saturating_add(event.dur_ns);
        self.flops = self.flops.saturating_add(event.flops);
        self.bytes = self.bytes.saturating_add(event.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stand_longest_first_with_their_median_over_the_runs() {
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
                event("y", Some(2), 2_000_000 * scale, 8_000_000),
                event("x", Some(3), 1_500_000 * scale, 0),
                event("run", None, 5_000_000 * scale, 0),
            ],
        };
        assert_eq!(
            // The third run was interrupted.
            table(&[run(1), run(2), run(100)]),
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
