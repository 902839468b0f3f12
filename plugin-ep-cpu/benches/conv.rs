//! Convolutions beside the machine's peak, as `gemm` has products: layers of well-known networks, on one thread.
//!
//! `cargo bench -p ortolan-ep-cpu --bench conv`

#![expect(clippy::unwrap_used, reason = "a bench that is set up wrongly stops")]

mod peak;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use ortolan_ep_cpu::conv::{Conv, Filter, Geometry, Post, Window};
use ortolan_ep_cpu::gemm::Activation;
use ortolan_ep_cpu::simd::Isa;
use ortolan_ep_kit::parallel::Serial;

/// A square layer: name, channels in and out, groups, image, kernel, stride.
type Layer = (&'static str, usize, usize, usize, usize, usize, usize);

#[rustfmt::skip]
const LAYERS: [Layer; 19] = [
    ("resnet50 stem", 3, 64, 1, 224, 7, 2),
    ("resnet50 64 3x3", 64, 64, 1, 56, 3, 1),
    ("resnet50 64-256", 64, 256, 1, 56, 1, 1),
    ("resnet50 256-64", 256, 64, 1, 56, 1, 1),
    ("resnet50 128 3x3", 128, 128, 1, 28, 3, 1),
    ("resnet50 128-512", 128, 512, 1, 28, 1, 1),
    ("resnet50 256 3x3", 256, 256, 1, 14, 3, 1),
    ("resnet50 1024-256", 1024, 256, 1, 14, 1, 1),
    ("resnet50 512 3x3", 512, 512, 1, 7, 3, 1),
    ("resnet50 512-2048", 512, 2048, 1, 7, 1, 1),
    ("resnet50 halved", 256, 512, 1, 56, 1, 2),
    ("mobilenet stem", 3, 32, 1, 224, 3, 2),
    ("mobilenet 96 dw halved", 96, 96, 96, 112, 3, 2),
    ("mobilenet 144 dw", 144, 144, 144, 56, 3, 1),
    ("mobilenet 576 dw", 576, 576, 576, 14, 3, 1),
    ("mobilenet 960 dw", 960, 960, 960, 7, 3, 1),
    ("mobilenet 16-96", 16, 96, 1, 112, 1, 1),
    ("mobilenet 144-24", 144, 24, 1, 56, 1, 1),
    ("regnet grouped", 240, 240, 10, 28, 3, 1),
];

struct Job {
    conv: Conv,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    y: Vec<f32>,
    scratch: Vec<f32>,
    flops: usize,
}

impl Job {
    fn new(isa: Isa, (_, ins, outs, groups, size, kernel, stride): Layer) -> Self {
        let out = size.div_ceil(stride);
        let [input, output, window, step] = [size, out, kernel, stride].map(|size| [size; 2]);
        let pad = [kernel / 2; 2];
        let window =
            Window { input: &input, output: &output, kernel: &window, stride: &step, dilation: &[1; 2], pad: &pad };
        let geometry = Geometry::new(&window).unwrap();
        let dims = [outs, ins / groups, kernel, kernel];
        let filter = Filter::new(isa, &dims, groups, Some(out * out)).unwrap();
        let fill = |len: usize| (0..len).map(|i| (i % 13) as f32 * 0.1 - 0.6).collect::<Vec<_>>();
        let mut w = vec![0.0; filter.size()];
        filter.pack(&fill(dims.iter().product()), 0..filter.pieces(), &mut w).unwrap();
        let conv = Conv::new(&filter, 1, &geometry).unwrap();
        let (x, bias, y) = (fill(ins * size * size), fill(outs), vec![0.0; outs * out * out]);
        let flops = 2 * dims.iter().product::<usize>() * out * out;
        Job { conv, x, w, bias, y, scratch: vec![0.0; conv.scratch_len(1)], flops }
    }

    fn run(&mut self) {
        let post = Post { bias: Some(&self.bias), activation: Activation::Relu, ..Post::default() };
        self.conv.run(&self.x, &self.w, &post, &mut self.y, &mut self.scratch, &Serial).unwrap();
        black_box(&mut self.y);
    }
}

fn main() {
    let isas: Vec<Isa> = peak::fused();
    peak::heading("convolution");
    for &isa in &isas {
        for layer in LAYERS {
            let mut job = Job::new(isa, layer);
            let flops = job.flops;
            peak::ratio(isa, &format!("conv_f32_{} {}", isa.name(), layer.0), flops, &mut || job.run());
        }
    }
    if peak::ratios_only() {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    for isa in isas {
        let mut group = criterion.benchmark_group(format!("conv_f32_{}", isa.name()));
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        for layer in LAYERS {
            let mut job = Job::new(isa, layer);
            group.throughput(Throughput::Elements(job.flops as u64));
            group.bench_function(layer.0, |b| b.iter(|| job.run()));
        }
        group.finish();
    }
    criterion.final_summary();
}
