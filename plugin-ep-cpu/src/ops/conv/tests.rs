//! Convolutions against their definition: groups, strides, dilations, paddings, one to three dimensions.

use crate::ops::testing::{Case, on_all};
use crate::ops::{Cpu, FAMILIES};
use crate::simd::Isa;
use ortolan_ep_kit::testing::{Model, OpTest, Session, Tensor, assert_close};
use ortolan_ep_kit::{DType, Kit, RejectCode};

/// A convolution and its attributes; lists are as long as there are spatial dimensions.
#[derive(Clone, Copy)]
struct Shape {
    x: &'static [i64],
    w: &'static [i64],
    group: i64,
    stride: &'static [i64],
    dilation: &'static [i64],
    /// Before, then behind.
    pads: &'static [i64],
}

const fn shape(x: &'static [i64], w: &'static [i64], group: i64) -> Shape {
    Shape { x, w, group, stride: &[1, 1, 1], dilation: &[1, 1, 1], pads: &[0; 6] }
}

const SHAPES: &[Shape] = &[
    shape(&[1, 3, 8, 9], &[5, 3, 3, 3], 1),
    shape(&[2, 16, 7, 7], &[33, 16, 1, 1], 1),
    Shape { stride: &[2, 2], pads: &[3, 3, 3, 3], ..shape(&[1, 3, 20, 21], &[8, 3, 7, 7], 1) },
    Shape { stride: &[2, 1], dilation: &[1, 2], pads: &[0, 1, 2, 3], ..shape(&[2, 4, 9, 11], &[6, 2, 3, 2], 2) },
    Shape { pads: &[1, 1, 1, 1], ..shape(&[1, 20, 12, 13], &[20, 1, 3, 3], 20) },
    Shape { pads: &[2, 1], stride: &[2], ..shape(&[2, 5, 30], &[7, 5, 4], 1) },
    Shape { pads: &[1; 6], ..shape(&[1, 3, 4, 5, 6], &[4, 3, 3, 3, 3], 1) },
    shape(&[1, 64, 3, 3], &[32, 64, 3, 3], 1),
    shape(&[0, 3, 8, 8], &[5, 3, 3, 3], 1),
];

impl Shape {
    fn spatial(&self) -> usize {
        self.x.len() - 2
    }

    fn output(&self) -> Vec<i64> {
        let mut y = vec![self.x[0], self.w[0]];
        for d in 0..self.spatial() {
            let padded = self.x[2 + d] + self.pads[d] + self.pads[self.spatial() + d];
            y.push((padded - self.dilation[d] * (self.w[2 + d] - 1) - 1) / self.stride[d] + 1);
        }
        y
    }

    fn attributes(&self, case: OpTest) -> OpTest {
        let n = self.spatial();
        let case = case.int("group", self.group).ints("strides", &self.stride[..n]);
        let case = case.ints("dilations", &self.dilation[..n]).ints("pads", &self.pads[..2 * n]);
        case.ints("kernel_shape", &self.w[2..])
    }

    fn naive(&self, x: &Tensor, w: &Tensor, bias: &Tensor) -> Tensor {
        let (n, y_dims) = (self.spatial(), self.output());
        let (x, w, bias) = (x.to_vec::<f32>(), w.to_vec::<f32>(), bias.to_vec::<f32>());
        let split = |mut at: usize, dims: &[i64]| {
            let mut index = vec![0; dims.len()];
            for d in (0..dims.len()).rev() {
                index[d] = (at % dims[d] as usize) as i64;
                at /= dims[d] as usize;
            }
            index
        };
        let join = |index: &[i64], dims: &[i64]| index.iter().zip(dims).fold(0, |at, (&i, &d)| at * d + i) as usize;
        let (ins, outs) = (self.w[1], self.w[0] / self.group);
        let taps: i64 = self.w[2..].iter().product();
        Tensor::from_fn(&y_dims, |at| {
            let y = split(at, &y_dims);
            let mut sum = f64::from(bias[y[1] as usize]);
            for channel in 0..ins {
                for tap in 0..taps {
                    let tap = split(tap as usize, &self.w[2..]);
                    let at = |d: usize| y[2 + d] * self.stride[d] + tap[d] * self.dilation[d] - self.pads[d];
                    if (0..n).any(|d| at(d) < 0 || at(d) >= self.x[2 + d]) {
                        continue;
                    }
                    let mut from = vec![y[0], y[1] / outs * ins + channel];
                    from.extend((0..n).map(at));
                    let mut weight = vec![y[1], channel];
                    weight.extend(&tap);
                    sum += f64::from(x[join(&from, self.x)]) * f64::from(w[join(&weight, self.w)]);
                }
            }
            sum as f32
        })
    }
}

#[test]
fn like_the_definition() {
    for shape in SHAPES {
        let (x, w) = (Tensor::random(shape.x, 1), Tensor::random(shape.w, 2));
        let bias = Tensor::random(&shape.w[..1], 3);
        let (zero, dims) = (Tensor::from_fn(&shape.w[..1], |_| 0.0f32), shape.output());
        let (plain, want) = (shape.naive(&x, &w, &zero), shape.naive(&x, &w, &bias));
        on_all("Conv", 22, |case| {
            let case = shape.attributes(case).input(&x).constant(&w).constant(&bias);
            assert_close(&case.output(DType::F32, &dims).run()[0], &want, 1e-4);
        });
        on_all("Conv", 22, |case| {
            let case = shape.attributes(case).input(&x).input(&w);
            assert_close(&case.output(DType::F32, &dims).run()[0], &plain, 1e-4);
        });
    }
}

#[test]
fn automatic_padding() {
    let (x, w) = (Tensor::random(&[1, 2, 9, 10], 1), Tensor::random(&[3, 2, 4, 3], 2));
    let zero = Tensor::from_fn(&[3], |_| 0.0f32);
    // By hand for strides of 2 and 3: rows 9 -> 5 need 3 of padding, columns 10 -> 4 need 2.
    let cases: [(&str, &'static [i64]); 3] =
        [("SAME_UPPER", &[1, 1, 2, 1]), ("SAME_LOWER", &[2, 1, 1, 1]), ("VALID", &[0, 0, 0, 0])];
    for (name, pads) in cases {
        let given = Shape { stride: &[2, 3], pads, ..shape(&[1, 2, 9, 10], &[3, 2, 4, 3], 1) };
        let want = given.naive(&x, &w, &zero);
        let case = Case::new("Conv", 22).int("group", 1).ints("strides", &[2, 3]).text("auto_pad", name);
        let y = case.input(&x).constant(&w).output(DType::F32, &given.output()).run();
        assert_close(&y[0], &want, 1e-4);
    }
}

#[test]
fn a_residual_block_is_one_step() {
    let mut m = Model::new();
    let n = m.symbol();
    let image = |m: &mut Model, name: &str| m.value(name, DType::F32, &[n, 6.into(), 5.into(), 5.into()]);
    let x = image(&mut m, "x");
    m.mark_input(x);
    let (w, b) = (Tensor::random(&[6, 6, 3, 3], 5), Tensor::random(&[1, 6, 1, 1], 6));
    let (w_id, b_id) = (m.constant(&w), m.constant(&b));
    let [c, s, r, y] = ["c", "s", "r", "y"].map(|name| image(&mut m, name));
    let conv = m.call("Conv", 22, &[x, w_id], &[c]);
    m.ints(conv, "group", &[1], false);
    m.ints(conv, "pads", &[1, 1, 1, 1], true);
    m.call("Add", 14, &[c, b_id], &[s]);
    m.call("Add", 14, &[x, s], &[r]);
    m.call("Relu", 14, &[r], &[y]);
    m.mark_output(y);
    let isa = Isa::best();
    let session = Session::new(Kit::new(FAMILIES, isa.name(), Cpu { isa }), m, 2);
    let mut part = session.compile().unwrap();
    let names: Vec<_> = part.part().steps().map(|s| s.1.to_owned()).collect();
    assert_eq!(names, [format!("conv_f32_{}+add+add+relu", isa.name())]);
    for batch in [1, 3] {
        let x = Tensor::random(&[batch, 6, 5, 5], batch as u64);
        let dims = Box::leak(Box::new([batch, 6, 5, 5]));
        let shape = Shape { pads: &[1; 4], ..shape(dims, &[6, 6, 3, 3], 1) };
        let bias = Tensor { dims: vec![6], ..b.clone() };
        let (sum, x_values) = (shape.naive(&x, &w, &bias).to_vec::<f32>(), x.to_vec::<f32>());
        let want = Tensor::from_fn(dims, |k| (sum[k] + x_values[k]).max(0.0));
        assert_close(&part.run(&[x]).unwrap()[0], &want, 1e-4);
    }
}

#[test]
fn refusals_and_faults() {
    let (x, w) = (Tensor::random(&[1, 2, 5, 5], 1), Tensor::random(&[4, 2, 3, 3], 2));
    let node = || Case::new("Conv", 22).input(&x).input(&w).output(DType::F32, &[1, 4, 3, 3]);
    let flat = Tensor::random(&[1, 2], 1);
    let cases = [
        (node().int("group", 0), RejectCode::Attribute, "attribute group = 0"),
        (node().int("group", 1).ints("pads", &[1]), RejectCode::Attribute, "attribute pads = [1] is not a list of 4"),
        (node().int("group", 1).ints("strides", &[0, 1]), RejectCode::Attribute, "attribute strides = [0, 1]"),
        (
            node().int("group", 1).ints("kernel_shape", &[2, 3]),
            RejectCode::Attribute,
            "attribute kernel_shape = [2, 3]",
        ),
        (node().int("group", 1).text("auto_pad", "SOME"), RejectCode::Attribute, "attribute auto_pad = SOME"),
        (
            Case::new("Conv", 22).int("group", 1).input(&flat).input(&flat).output(DType::F32, &[1, 2]),
            RejectCode::Rank,
            "inputs of ranks 2 and 2",
        ),
    ];
    for (case, code, part) in cases {
        let (got, text) = case.rejection();
        assert!(got == code && text.contains(part), "{got}: {text}");
    }
    let wrong = Case::new("Conv", 22).int("group", 2).input(&x).input(&w).output(DType::F32, &[1, 4, 3, 3]);
    let error = wrong.try_run().unwrap_err();
    assert!(error.contains("in 2 groups does not lead from [1, 2, 5, 5] to [1, 4, 3, 3]"), "{error}");
}

#[test]
fn constant_bounds_are_taken_over() {
    let isa = Isa::best();
    for constant in [true, false] {
        let mut m = Model::new();
        let (x, w) = (Tensor::random(&[1, 4, 6, 6], 1), Tensor::random(&[5, 4, 1, 1], 2));
        let (x_id, w_id) = (m.input_value(&x), m.constant(&w));
        let (low, high) = (Tensor::new(&[], &[-0.25f32]), Tensor::new(&[], &[0.5f32]));
        let high_id = if constant { m.constant(&high) } else { m.input_value(&high) };
        let low_id = m.constant(&low);
        let image = |m: &mut Model, name: &str| m.value(name, DType::F32, &[1, 5, 6, 6].map(Into::into));
        let [c, y] = ["c", "y"].map(|name| image(&mut m, name));
        let conv = m.call("Conv", 22, &[x_id, w_id], &[c]);
        m.ints(conv, "group", &[1], false);
        m.call("Clip", 13, &[c, low_id, high_id], &[y]);
        m.mark_output(y);
        let session = Session::new(Kit::new(FAMILIES, isa.name(), Cpu { isa }), m, 2);
        let mut part = session.compile().unwrap();
        assert_eq!(part.part().steps().count(), if constant { 1 } else { 2 });
        let (zero, shape) = (Tensor::new(&[5], &[0.0f32; 5]), shape(&[1, 4, 6, 6], &[5, 4, 1, 1], 1));
        let want = shape.naive(&x, &w, &zero).to_vec::<f32>();
        let want = Tensor::from_fn(&[1, 5, 6, 6], |k| want[k].clamp(-0.25, 0.5));
        let inputs = if constant { vec![x] } else { vec![x, high] };
        assert_close(&part.run(&inputs).unwrap()[0], &want, 1e-4);
    }
}
