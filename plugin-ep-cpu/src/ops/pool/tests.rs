//! Poolings against their definition.

use crate::ops::testing::{Case, on_all};
use ortolan_ep_kit::testing::{OpTest, Tensor, assert_close};
use ortolan_ep_kit::{DType, RejectCode};

/// A pooling of two dimensions, with padding before and behind.
struct Shape {
    x: [i64; 4],
    kernel: [i64; 2],
    stride: [i64; 2],
    dilation: [i64; 2],
    pads: [i64; 4],
    /// One output more than whole windows give.
    ceil: bool,
}

const SHAPES: &[Shape] = &[
    Shape { x: [1, 2, 6, 7], kernel: [2, 2], stride: [2, 2], dilation: [1, 1], pads: [0; 4], ceil: false },
    Shape { x: [2, 3, 17, 33], kernel: [3, 3], stride: [2, 2], dilation: [1, 1], pads: [1; 4], ceil: false },
    Shape { x: [1, 1, 9, 9], kernel: [3, 2], stride: [1, 3], dilation: [2, 1], pads: [1, 0, 2, 1], ceil: false },
    Shape { x: [1, 2, 6, 6], kernel: [3, 3], stride: [2, 2], dilation: [1, 1], pads: [0; 4], ceil: true },
    Shape { x: [1, 2, 7, 6], kernel: [3, 3], stride: [2, 2], dilation: [1, 1], pads: [1; 4], ceil: true },
    Shape { x: [0, 2, 6, 6], kernel: [3, 3], stride: [1, 1], dilation: [1, 1], pads: [0; 4], ceil: false },
];

impl Shape {
    fn output(&self) -> Vec<i64> {
        let mut y = self.x[..2].to_vec();
        for d in 0..2 {
            let room = self.x[2 + d] + self.pads[d] + self.pads[2 + d] - self.dilation[d] * (self.kernel[d] - 1) - 1;
            y.push(if self.ceil { (room + self.stride[d] - 1) / self.stride[d] } else { room / self.stride[d] } + 1);
        }
        y
    }

    fn attributes(&self, case: OpTest) -> OpTest {
        let case = case.ints("kernel_shape", &self.kernel).ints("strides", &self.stride);
        case.ints("dilations", &self.dilation).ints("pads", &self.pads).int("ceil_mode", self.ceil.into())
    }

    /// The places in a plane that a window sees, and how many of its taps are in the input or its padding.
    fn window(&self, row: i64, column: i64) -> (Vec<usize>, usize) {
        let (mut places, mut inside) = (Vec::new(), 0);
        for tap in 0..self.kernel[0] * self.kernel[1] {
            let at = [
                row * self.stride[0] + tap / self.kernel[1] * self.dilation[0] - self.pads[0],
                column * self.stride[1] + tap % self.kernel[1] * self.dilation[1] - self.pads[1],
            ];
            inside += usize::from((0..2).all(|d| at[d] < self.x[2 + d] + self.pads[2 + d]));
            if (0..2).all(|d| (0..self.x[2 + d]).contains(&at[d])) {
                places.push((at[0] * self.x[3] + at[1]) as usize);
            }
        }
        (places, inside)
    }

    /// `f` gets the values of a window, their places in the tensor, and the taps in the input or its padding.
    fn naive<R>(&self, x: &[f32], f: impl Fn(&[f32], &[usize], usize) -> R) -> Vec<R> {
        let y = self.output();
        let plane = (self.x[2] * self.x[3]) as usize;
        let count = y.iter().product::<i64>() as usize;
        (0..count)
            .map(|at| {
                let at = at as i64;
                let (places, inside) = self.window(at / y[3] % y[2], at % y[3]);
                let first = (at / y[3] / y[2]) as usize * plane;
                let places: Vec<usize> = places.into_iter().map(|p| first + p).collect();
                let values: Vec<f32> = places.iter().map(|&p| x[p]).collect();
                f(&values, &places, inside)
            })
            .collect()
    }
}

#[test]
fn averages_like_the_definition() {
    for shape in SHAPES {
        let (x, dims) = (Tensor::random(&shape.x, 1), shape.output());
        for include in [0, 1] {
            let want = shape.naive(&x.to_vec::<f32>(), |values, _, inside| {
                values.iter().sum::<f32>() / if include == 1 { inside } else { values.len() } as f32
            });
            on_all("AveragePool", 22, |case| {
                let case = shape.attributes(case).int("count_include_pad", include);
                let y = case.input(&x).output(DType::F32, &dims).run();
                assert_close(&y[0], &Tensor::new(&dims, &want), 1e-5);
            });
        }
    }
}

#[test]
fn maxima_and_their_places() {
    for shape in SHAPES {
        let x = Tensor::random(&shape.x, 2);
        let (values, dims) = (x.to_vec::<f32>(), shape.output());
        let most = |v: &[f32]| v.iter().copied().fold(f32::MIN, f32::max);
        let want = Tensor::new(&dims, &shape.naive(&values, |v, _, _| most(v)));
        let places = shape.naive(&values, |v, p, _| p[v.iter().position(|&x| x == most(v)).unwrap()] as i64);
        let [rows, columns] = [shape.x[2], shape.x[3]];
        let turned: Vec<i64> =
            places.iter().map(|p| p - p % (rows * columns) + p / columns % rows + rows * (p % columns)).collect();
        on_all("MaxPool", 22, |case| {
            let y = shape.attributes(case).input(&x).output(DType::F32, &dims).run();
            assert_eq!(y[0], want);
        });
        for (order, places) in [(0, &places), (1, &turned)] {
            let case = shape.attributes(Case::new("MaxPool", 22)).int("storage_order", order).input(&x);
            let y = case.output(DType::F32, &dims).output(DType::I64, &dims).run();
            assert_eq!(y, [want.clone(), Tensor::new(&dims, places)]);
        }
        let bytes = |t: &Tensor| Tensor::from_fn(&t.dims, |k| (t.to_vec::<f32>()[k] * 100.0) as i8);
        let case = shape.attributes(Case::new("MaxPool", 22)).input(&bytes(&x));
        assert_eq!(case.output(DType::I8, &dims).run()[0], bytes(&want));
    }
}

#[test]
fn whole_images() {
    for dims in [&[1i64, 3, 7][..], &[2, 5, 6, 7], &[1, 2, 3, 4, 5], &[0, 3, 4, 4]] {
        let plane: usize = dims[2..].iter().product::<i64>() as usize;
        let x = Tensor::random(dims, 3);
        let mut y_dims = dims.to_vec();
        y_dims[2..].fill(1);
        let values = x.to_vec::<f32>();
        let mean = Tensor::from_fn(&y_dims, |k| values[k * plane..][..plane].iter().sum::<f32>() / plane as f32);
        let most = Tensor::from_fn(&y_dims, |k| values[k * plane..][..plane].iter().copied().fold(f32::MIN, f32::max));
        on_all("GlobalAveragePool", 22, |case| {
            assert_close(&case.input(&x).output(DType::F32, &y_dims).run()[0], &mean, 1e-6);
        });
        on_all("GlobalMaxPool", 22, |case| assert_eq!(case.input(&x).output(DType::F32, &y_dims).run()[0], most));
    }
}

#[test]
fn refusals_and_faults() {
    let (x, flat) = (Tensor::random(&[1, 1, 3, 3], 1), Tensor::random(&[3, 3], 1));
    let (code, text) = Case::new("MaxPool", 22).input(&x).output(DType::F32, &[1, 1, 3, 3]).rejection();
    assert_eq!((code, &*text), (RejectCode::Attribute, "MaxPool: attribute kernel_shape is missing"));
    let (code, text) = Case::new("GlobalMaxPool", 22).input(&flat).output(DType::F32, &[3, 3]).rejection();
    assert!(code == RejectCode::Rank && text.contains("input 0 has rank 2"), "{text}");
    let bytes = Tensor::new(&[1, 1, 3, 3], &[1u8; 9]);
    let case = Case::new("MaxPool", 22).ints("kernel_shape", &[1, 1]).ints("pads", &[1, 0, 0, 0]).input(&bytes);
    let error = case.output(DType::U8, &[1, 1, 4, 3]).try_run().unwrap_err();
    assert!(error.contains("wholly in the padding"), "{error}");
}

#[test]
fn norms_of_windows_and_images() {
    for shape in SHAPES {
        let x = Tensor::random(&shape.x, 1);
        for p in [1i32, 2, 3] {
            let values: Vec<f32> = x.to_vec();
            let norm = |all: &[f32]| {
                let sum: f64 = all.iter().map(|x| f64::from(x.abs()).powi(p)).sum();
                sum.powf(1.0 / f64::from(p)) as f32
            };
            let want = Tensor::new(&shape.output(), &shape.naive(&values, |all, _, _| norm(all)));
            on_all("LpPool", 22, |case| {
                let case = shape.attributes(case).int("p", p.into()).input(&x);
                assert_close(&case.output(DType::F32, &shape.output()).run()[0], &want, 1e-5);
            });
            let wide = Tensor::from_fn(&shape.x, |k| f64::from(values[k]));
            let case = shape.attributes(Case::new("LpPool", 22)).int("p", p.into()).input(&wide);
            let got: Vec<f32> =
                case.output(DType::F64, &shape.output()).run()[0].to_vec::<f64>().iter().map(|&y| y as f32).collect();
            assert_close(&Tensor::new(&shape.output(), &got), &want, 1e-6);
            let plane = (shape.x[2] * shape.x[3]) as usize;
            let dims = [shape.x[0], shape.x[1], 1, 1];
            let want = Tensor::new(&dims, &values.chunks(plane).map(norm).collect::<Vec<_>>());
            on_all("GlobalLpPool", 22, |case| {
                let case = case.int("p", p.into()).input(&x).output(DType::F32, &dims);
                assert_close(&case.run()[0], &want, 1e-5);
            });
        }
    }
    let (code, text) = SHAPES[0]
        .attributes(Case::new("LpPool", 22))
        .int("p", 0)
        .input(&Tensor::random(&SHAPES[0].x, 1))
        .output(DType::F32, &SHAPES[0].output())
        .rejection();
    assert_eq!((code, text.contains("p = 0")), (RejectCode::Attribute, true), "{text}");
}

#[test]
fn greatest_values_go_back() {
    let x = Tensor::new(&[1, 2, 2, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let places: &[i64] = &[5, 7, 13, 15, 16, 18, 24, 31];
    let node = |places: &[i64]| {
        let case = Case::new("MaxUnpool", 22).ints("kernel_shape", &[2, 2]).ints("strides", &[2, 2]);
        case.input(&x).input(&Tensor::new(&[1, 2, 2, 2], places))
    };
    let want = |dims: [i64; 4]| {
        let mut y = vec![0.0f32; dims.iter().product::<i64>() as usize];
        for (k, &at) in places.iter().enumerate() {
            let (plane, row, column) = (at / 16, at / 4 % 4, at % 4);
            y[((plane * dims[2] + row) * dims[3] + column) as usize] = k as f32 + 1.0;
        }
        Tensor::new(&dims, &y)
    };
    assert_eq!(node(places).late_output(DType::F32, 4).run()[0], want([1, 2, 4, 4]));
    let larger = node(places).input(&Tensor::new(&[4], &[1i64, 2, 5, 6])).late_output(DType::F32, 4);
    assert_eq!(larger.run()[0], want([1, 2, 5, 6]));
    let error = node(&[5, 7, 13, 15, 16, 18, 24, 32]).late_output(DType::F32, 4).try_run().unwrap_err();
    assert!(error.contains("input 1 holds index 32 at 7, there are 32 places"), "{error}");
    let smaller = node(places).input(&Tensor::new(&[4], &[1i64, 2, 3, 6])).late_output(DType::F32, 4);
    let error = smaller.try_run().unwrap_err();
    assert!(error.contains("input 2 (output_shape) is [1, 2, 3, 6]"), "{error}");
}
