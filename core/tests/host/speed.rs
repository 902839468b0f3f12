//! What checks 1 to 11 cost for one known plugin, in a fresh process each time, as every start of a program pays it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{FOLDER, build, probing_host};

/// Tells a child that it is the stop watch; its value is the folder of verdicts.
pub const VARIABLE: &str = "ORTOLAN_TEST_STOPWATCH";

/// The bound is 1 ms for an optimised build on a quiet machine; this one is neither.
const BOUND: Duration = Duration::from_millis(if cfg!(debug_assertions) { 10 } else { 1 });

pub fn child(library: &Path) -> ! {
    let cache = std::env::var_os(VARIABLE).expect("set by the parent");
    let host = probing_host("").probe_cache(cache).build();
    let start = Instant::now();
    let loaded = host.load_file(library).map(|ep| ep.name().to_owned());
    println!("\nload_ns={}", start.elapsed().as_nanos());
    loaded.expect("a good library");
    std::process::exit(0);
}

#[test]
fn known_plugin_is_checked_in_a_millisecond() {
    let library = build("speed", &[]);
    let cache = FOLDER.join("speed-cache");
    probing_host("speed-cache").build().load_file(&library).expect("a good library");
    let run = || {
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args(["child", "--exact", "--nocapture"]).arg(&library).env(VARIABLE, &cache);
        let output = child.output().expect("this program");
        let text = String::from_utf8_lossy(&output.stdout);
        let ns = text.lines().find_map(|line| line.strip_prefix("load_ns=")).expect("a time");
        Duration::from_nanos(ns.parse().expect("a number"))
    };
    let mut times: Vec<Duration> = (0..20).map(|_| run()).collect();
    times.sort_unstable();
    println!("checks 1 to 11, warm: least {:?}, median {:?}", times[0], times[times.len() / 2]);
    assert!(times[0] < BOUND, "{times:?}");
}
