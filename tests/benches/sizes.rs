//! How long a clean release build takes and how large what it makes is, beside the bounds of ARCHITECTURE section 7; above
//! one of them the bench fails. Megabytes are millions of bytes.
//!
//! `cargo bench -p ortolan-tests --bench sizes`, on a machine with two quiet cores: it builds everything anew.

use ortolan_tests::{fixtures, place};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

fn main() {
    let target = place::fresh();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--release"]).current_dir(place::root()).env("CARGO_TARGET_DIR", target.path());
    let start = Instant::now();
    assert!(build.status().expect("cargo can be started").success(), "the release build failed");
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    let made = target.path().join("release");
    let rows = [
        ("clean release build of the default members", minutes, 8.0, "minutes"),
        ("ortolan", size(&made.join("ortolan")), 6.0, "MB"),
        ("the EP for processors", size(&made.join("libortolan_ep_cpu.so")), 20.0, "MB"),
        ("the core alone", size(&fixtures::core_alone()), 3.0, "MB"),
    ];
    let mut failed = false;
    for (what, found, bound, unit) in rows {
        let over = found > bound;
        failed |= over;
        println!("{what:<44} {found:>6.2} {unit:<8} bound {bound}{}", if over { "  TOO MUCH" } else { "" });
    }
    std::process::exit(i32::from(failed));
}

fn size(file: &Path) -> f64 {
    let bytes = std::fs::metadata(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).len();
    bytes as f64 / 1e6
}
