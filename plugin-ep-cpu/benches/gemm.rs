//! Products beside the machine's peak.
//!
//! The machine may be shared and change its clock, so the loop that measures the
//! peak and the product take turns, and the ratio is of their best times. It is
//! printed first; criterion's own figures follow.
//!
//! `cargo bench -p ortolan-ep-cpu --bench gemm`

#![expect(clippy::unwrap_used, reason = "a bench that is set up wrongly stops")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use ortolan_ep_cpu::gemm::{Epilogue, Gemm, Lhs, Mat, MatMut, PackedB, Rhs};
use ortolan_ep_cpu::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::parallel::Serial;

/// M, K, N; whether B is packed ahead, as weights are.
const SHAPES: [(usize, usize, usize, bool); 9] = [
    (1024, 1024, 1024, false),
    (1024, 1024, 1024, true),
    (128, 768, 3072, true),
    (128, 768, 768, true),
    (128, 64, 128, false),
    (49, 4608, 512, true),
    (8, 768, 3072, true),
    (1, 768, 3072, true),
    (1, 768, 3072, false),
];

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

/// A product with its operands.
struct Job {
    gemm: Gemm,
    packed: Option<(PackedB, Vec<f32>)>,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    scratch: Vec<f32>,
}

impl Job {
    fn new(isa: Isa, (m, k, n, pack): (usize, usize, usize, bool)) -> Self {
        let gemm = Gemm::new(isa, m, n, k);
        let fill = |len: usize| (0..len).map(|i| (i % 13) as f32 * 0.1 - 0.6).collect::<Vec<_>>();
        let b = fill(k * n);
        let packed = pack.then(|| {
            let layout = PackedB::new(isa, k, n);
            let mut data = vec![0.0; layout.size()];
            let mat = Mat::new(&b, k, n).unwrap();
            layout.pack(mat, 0..layout.pieces(), &mut data).unwrap();
            (layout, data)
        });
        let scratch = vec![0.0; gemm.scratch_len(false, pack, 1)];
        Job { gemm, packed, a: fill(m * k), b, c: vec![0.0; m * n], scratch }
    }

    fn run(&mut self) {
        let Gemm { m, n, k, .. } = self.gemm;
        let a = Lhs::Plain(Mat::new(&self.a, m, k).unwrap());
        let b = match &self.packed {
            Some((layout, data)) => Rhs::Packed(*layout, data),
            None => Rhs::Plain(Mat::new(&self.b, k, n).unwrap()),
        };
        let c = MatMut::new(&mut self.c, m, n).unwrap();
        self.gemm.run(a, b, &Epilogue::default(), c, &mut self.scratch, &Serial).unwrap();
        black_box(&mut self.c);
    }

    fn flops(&self) -> usize {
        2 * self.gemm.m * self.gemm.n * self.gemm.k
    }
}

fn name((m, k, n, pack): (usize, usize, usize, bool)) -> String {
    format!("{m}x{k}x{n}{}", if pack { "_packed" } else { "" })
}

/// The best time of `f` and of the peak loop, taking turns.
fn best_of_turns(isa: Isa, f: &mut dyn FnMut()) -> (Duration, f64) {
    const ROUNDS: usize = 100_000;
    let (mut best, mut peak) = (Duration::MAX, 0.0_f64);
    let start = Instant::now();
    let mut turns = 0;
    while turns < 12 || start.elapsed() < Duration::from_millis(800) {
        let at = Instant::now();
        let flops = isa.dispatch(Peak { rounds: ROUNDS });
        peak = peak.max(flops as f64 / at.elapsed().as_secs_f64());
        for _ in 0..3 {
            let at = Instant::now();
            f();
            best = best.min(at.elapsed());
        }
        turns += 1;
    }
    (best, peak)
}

fn ratios(isas: &[Isa]) {
    println!("{:<32}{:>12}{:>12}{:>12}{:>9}", "product", "best", "GFLOP/s", "peak", "ratio");
    for &isa in isas {
        for shape in SHAPES {
            let mut job = Job::new(isa, shape);
            let (best, peak) = best_of_turns(isa, &mut || job.run());
            let rate = job.flops() as f64 / best.as_secs_f64();
            println!(
                "{:<32}{best:>12.1?}{:>12.1}{:>12.1}{:>8.1}%",
                format!("gemm_f32_{} {}", isa.name(), name(shape)),
                rate / 1e9,
                peak / 1e9,
                100.0 * rate / peak,
            );
        }
    }
}

fn main() {
    // Those with fused multiply-add: without it the peak loop measures another thing.
    let isas: Vec<Isa> = Isa::available().filter(|isa| isa.name() != "scalar").collect();
    ratios(&isas);
    if std::env::args().any(|arg| arg == "--ratios") {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    for isa in isas {
        let mut group = criterion.benchmark_group(format!("gemm_f32_{}", isa.name()));
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        for shape in SHAPES {
            let mut job = Job::new(isa, shape);
            group.throughput(Throughput::Elements(job.flops() as u64));
            group.bench_function(BenchmarkId::from_parameter(name(shape)), |b| b.iter(|| job.run()));
        }
        group.finish();
    }
    criterion.final_summary();
}
