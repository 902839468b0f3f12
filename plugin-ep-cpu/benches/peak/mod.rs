//! The machine's peak, and how near to it a kernel comes.
//!
//! The machine may be shared and change its clock, so the loop that measures the peak and the kernel take turns, and the
//! ratio is of their best times.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ortolan_ep_cpu::simd::{Isa, Kernel, Simd};

/// Independent chains of multiply-adds, enough to fill every unit's pipeline.
const CHAINS: usize = 12;

/// Runs `CHAINS` multiply-adds of vectors that many times; answers their flops.
struct Peak {
    rounds: usize,
}

impl Kernel for Peak {
    type Out = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let mut sums = [s.splat(black_box(1.0)); CHAINS];
        let (a, b) = (s.splat(black_box(0.999)), s.splat(black_box(0.001)));
        for _ in 0..self.rounds {
            for sum in &mut sums {
                *sum = s.fma(*sum, a, b);
            }
        }
        let total = sums.into_iter().fold(s.zero(), |total, sum| s.add(total, sum));
        black_box(s.reduce_sum(total));
        2 * CHAINS * S::LANES * self.rounds
    }
}

/// The instruction sets with fused multiply-adds: without them the peak loop measures another thing.
pub fn fused() -> Vec<Isa> {
    Isa::available().filter(|isa| isa.name() != "scalar").collect()
}

/// Whether criterion's own figures are not wanted.
pub fn ratios_only() -> bool {
    std::env::args().any(|arg| arg == "--ratios")
}

/// The head of the table that [`ratio`] prints.
pub fn heading(what: &str) {
    println!("{what:<44}{:>12}{:>12}{:>12}{:>9}", "best", "GFLOP/s", "peak", "ratio");
}

/// Prints the best time of `f` and what part of the peak that is.
pub fn ratio(isa: Isa, name: &str, flops: usize, f: &mut dyn FnMut()) {
    const ROUNDS: usize = 100_000;
    let (mut best, mut peak) = (Duration::MAX, 0.0_f64);
    let start = Instant::now();
    let mut turns = 0;
    while turns < 12 || start.elapsed() < Duration::from_millis(800) {
        let at = Instant::now();
        let done = isa.dispatch(Peak { rounds: ROUNDS });
        peak = peak.max(done as f64 / at.elapsed().as_secs_f64());
        for _ in 0..3 {
            let at = Instant::now();
            f();
            best = best.min(at.elapsed());
        }
        turns += 1;
    }
    let rate = flops as f64 / best.as_secs_f64();
    let percent = 100.0 * rate / peak;
    println!("{name:<44}{best:>12.1?}{:>12.1}{:>12.1}{percent:>8.1}%", rate / 1e9, peak / 1e9);
}
