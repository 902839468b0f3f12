//! `ortolan bench`: how long runs of a model take.

use std::io::Write;
use std::time::{Duration, Instant};

use ortolan::RunOptions;
use serde::Serialize;

use super::{print, print_json};
use crate::args::BenchArgs;
use crate::error::Result;
use crate::feed::{self, Feed};
use crate::progress::Progress;
use crate::session::{Opened, owned};
use crate::show::decimal;
use crate::{files, profile};

/// The document of `bench --json`; scripts compare its fields.
#[derive(Debug, Serialize)]
struct Document {
    model: String,
    eps: Vec<String>,
    threads: u32,
    load_ms: f64,
    first_run_ms: f64,
    latency_ms: Latency,
    runs: usize,
    /// The most memory that the process had resident at once; `null` where the system does not say.
    peak_rss_bytes: Option<u64>,
}

/// Of all measured runs.
#[derive(Debug, PartialEq, Serialize)]
struct Latency {
    min: f64,
    median: f64,
    p90: f64,
    mean: f64,
}

/// Loads, runs once, warms up, measures. Every run makes its outputs anew, as for a caller who keeps the last ones.
pub fn run(args: &BenchArgs, out: &mut dyn Write, err: &mut dyn Write) -> Result<bool> {
    let opened = Opened::open(&args.feed)?;
    let feed = feed::gather(&args.feed, &opened.inputs)?;
    let options = RunOptions { timeout: args.feed.timeout, ..RunOptions::default() };
    let timed = || {
        let start = Instant::now();
        opened.run(&feed, &options).map(|outputs| (start.elapsed(), outputs))
    };
    let (first, mut last) = timed()?;
    let progress = Progress::new("runs", u64::from(args.warmup) + u64::from(args.runs));
    for _ in 0..args.warmup {
        last = timed()?.1;
        progress.step();
    }
    let mut times = Vec::with_capacity(args.runs as usize);
    for _ in 0..args.runs {
        let (time, outputs) = timed()?;
        times.push(time);
        last = outputs;
        progress.step();
    }
    progress.done();
    let document = Document {
        model: args.feed.model.display().to_string(),
        eps: opened.eps.names().map(str::to_owned).collect(),
        threads: opened.session.threads(),
        load_ms: ms(opened.load),
        first_run_ms: ms(first),
        latency_ms: latency(&times),
        runs: times.len(),
        peak_rss_bytes: peak_rss(),
    };
    if let Some(dir) = &args.feed.output_dir {
        files::write_all(dir, &owned(last))?;
    }
    profiled(args, &opened, &feed, err)?;
    if args.feed.json {
        print_json(out, &document)?
    } else {
        print(out, &text(&document))?
    }
    Ok(true)
}

/// Runs whose medians are in the table of a profile.
const PROFILED: u32 = 10;

/// More runs with a profile, if it was asked for: a trace file of one, or a table of several beside the results.
fn profiled(args: &BenchArgs, opened: &Opened, feed: &Feed, err: &mut dyn Write) -> Result<()> {
    let Some(file) = &args.profile else { return Ok(()) };
    let options = RunOptions { timeout: args.feed.timeout, profile: true, ..RunOptions::default() };
    let run = || opened.run(feed, &options).map(|outputs| outputs.profile().cloned().unwrap_or_default());
    match file {
        Some(file) => profile::write(file, &run()?),
        None => {
            let runs = (0..PROFILED.min(args.runs)).map(|_| run()).collect::<Result<Vec<_>>>()?;
            print(err, &profile::table(&runs))
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Median: the mean of the two middle ones of an even number. p90: the smallest time that 90 % do not exceed.
fn latency(times: &[Duration]) -> Latency {
    let mut all: Vec<f64> = times.iter().copied().map(ms).collect();
    all.sort_by(f64::total_cmp);
    let at = |i: usize| all.get(i).copied().unwrap_or(0.0);
    let n = all.len();
    Latency {
        min: at(0),
        median: (at(n.saturating_sub(1) / 2) + at(n / 2)) / 2.0,
        p90: at((n * 9).div_ceil(10).saturating_sub(1)),
        mean: all.iter().sum::<f64>() / n.max(1) as f64,
    }
}

/// The process's high-water mark of resident memory.
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn text(d: &Document) -> String {
    let l = &d.latency_ms;
    let peak = d.peak_rss_bytes.map_or("unknown".to_owned(), super::inspect::bytes);
    let threads = if d.threads == 1 { "thread" } else { "threads" };
    let ms = |x: f64| format!("{} ms", decimal(x));
    format!(
        "{}\n  on          {}, {} {threads}\n  load        {}\n  first run   {}\n  latency     median {}, min {}, p90 {}, mean {} of {} runs\n  peak memory {peak}\n",
        d.model,
        d.eps.join(", "),
        d.threads,
        ms(d.load_ms),
        ms(d.first_run_ms),
        ms(l.median),
        ms(l.min),
        ms(l.p90),
        ms(l.mean),
        d.runs,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_those_of_the_sorted_times() {
        let of = |list: &[u64]| latency(&list.iter().map(|&n| Duration::from_millis(n)).collect::<Vec<_>>());
        assert_eq!(of(&[7]), Latency { min: 7.0, median: 7.0, p90: 7.0, mean: 7.0 });
        assert_eq!(of(&[4, 1]), Latency { min: 1.0, median: 2.5, p90: 4.0, mean: 2.5 });
        assert_eq!(of(&[10, 1, 2, 3, 4, 5, 6, 7, 8, 9]), Latency { min: 1.0, median: 5.5, p90: 9.0, mean: 5.5 });
        assert_eq!(of(&[3, 2, 1]), Latency { min: 1.0, median: 2.0, p90: 3.0, mean: 2.0 });
    }

    #[test]
    fn the_document_has_exactly_the_fields_of_the_contract() {
        let document = Document {
            model: "m".into(),
            eps: vec!["a".into()],
            threads: 1,
            load_ms: 1.0,
            first_run_ms: 2.0,
            latency_ms: latency(&[Duration::from_millis(3)]),
            runs: 1,
            peak_rss_bytes: Some(4),
        };
        assert_eq!(
            serde_json::to_string(&document).unwrap(),
            r#"{"model":"m","eps":["a"],"threads":1,"load_ms":1.0,"first_run_ms":2.0,"latency_ms":{"min":3.0,"median":3.0,"p90":3.0,"mean":3.0},"runs":1,"peak_rss_bytes":4}"#
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_the_peak_of_memory() {
        let held = vec![1u8; 32 << 20];
        assert!(peak_rss().unwrap() > held.len() as u64);
    }
}
