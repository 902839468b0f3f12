//! Products beside the machine's peak, on one thread. The ratios are printed first; criterion's own figures follow, unless
//! `-- --ratios` is given.
//!
//! `cargo bench -p ortolan-ep-cpu --bench gemm`

#![expect(clippy::unwrap_used, reason = "a bench that is set up wrongly stops")]

mod peak;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use ortolan_ep_cpu::gemm::{Epilogue, Gemm, Lhs, Mat, MatMut, PackedB, Rhs};
use ortolan_ep_cpu::simd::Isa;
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

fn main() {
    let isas: Vec<Isa> = peak::fused();
    peak::heading("product");
    for &isa in &isas {
        for shape in SHAPES {
            let mut job = Job::new(isa, shape);
            let flops = job.flops();
            peak::ratio(isa, &format!("gemm_f32_{} {}", isa.name(), name(shape)), flops, &mut || job.run());
        }
    }
    if peak::ratios_only() {
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
