//! Against sums taken by the definition, on every instruction set.

use super::{Conv, Filter, Finish, Form, Target, middle};
use crate::conv::{Geometry, Window};
use crate::gemm::Activation;
use crate::igemm::Bytes;
use crate::simd::Isa;
use ortolan_ep_kit::parallel::Serial;

/// Batch, groups, channels of a group, filters of a group; sizes, kernel, strides, dilations, pads before and behind.
struct Case(usize, usize, usize, usize, &'static [[usize; 6]]);

const CASES: &[Case] = &[
    Case(1, 1, 1, 1, &[[1, 1, 1, 1, 0, 0]]),
    Case(1, 1, 8, 70, &[[5, 1, 1, 1, 0, 0], [7, 1, 1, 1, 0, 0]]),
    Case(2, 1, 3, 17, &[[9, 3, 2, 1, 1, 1], [11, 3, 1, 2, 2, 1]]),
    Case(1, 2, 5, 6, &[[6, 3, 1, 1, 1, 1], [6, 2, 3, 1, 1, 0]]),
    Case(1, 1, 4, 33, &[[112, 7, 2, 1, 3, 3], [23, 7, 2, 1, 3, 2]]),
    Case(1, 1, 6, 3, &[[3, 2, 1, 1, 1, 0], [4, 3, 1, 1, 1, 1], [5, 3, 2, 1, 0, 1]]),
    Case(2, 7, 1, 1, &[[14, 3, 1, 1, 1, 1], [15, 3, 2, 1, 1, 1]]),
    Case(1, 3, 1, 2, &[[40, 5, 1, 2, 4, 4]]),
    Case(1, 4, 1, 1, &[[33, 17, 1, 1, 8, 8], [20, 17, 1, 1, 8, 8]]), // too many taps for floats
    Case(1, 1, 9, 200, &[[13, 3, 1, 1, 1, 1], [15, 3, 1, 1, 1, 1]]),
    Case(0, 1, 2, 2, &[[4, 3, 1, 1, 1, 1]]),
    Case(1, 1, 2, 2, &[[2, 3, 1, 1, 0, 0]]), // no outputs
];

impl Case {
    fn geometry(&self) -> Geometry {
        let all = |k: usize| self.4.iter().map(|d| d[k]).collect::<Vec<_>>();
        let output: Vec<usize> = self
            .4
            .iter()
            .map(|&[n, k, s, d, before, behind]| {
                (n + before + behind).checked_sub((k - 1) * d + 1).map_or(0, |n| n / s + 1)
            })
            .collect();
        let (input, kernel, stride, dilation, pad) = (all(0), all(1), all(2), all(3), all(4));
        let window =
            Window { input: &input, output: &output, kernel: &kernel, stride: &stride, dilation: &dilation, pad: &pad };
        Geometry::new(&window).unwrap()
    }

    fn filter_dims(&self) -> Vec<usize> {
        let mut dims = vec![self.1 * self.3, self.2];
        dims.extend(self.4.iter().map(|d| d[1]));
        dims
    }

    /// Sums, with the channel of each.
    fn sums(&self, g: &Geometry, (x, zero): (Bytes<'_>, i32), w: Bytes<'_>) -> Vec<(i32, usize)> {
        let &Case(batch, groups, ins, outs, _) = self;
        let mut all = Vec::new();
        for plane in 0..batch * groups * outs {
            let (item, out) = (plane / outs, plane / outs % groups * outs + plane % outs);
            for at in 0..g.outputs() {
                let place = [at / g.output[2] / g.output[1], at / g.output[2] % g.output[1], at % g.output[2]];
                let mut sum = 0;
                for k in 0..ins * g.taps() {
                    let (channel, tap) = (k / g.taps(), k % g.taps());
                    let tap3 = [tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
                    let source: Option<Vec<usize>> = (0..3).map(|d| g.at(d, place[d], tap3[d])).collect();
                    let Some(source) = source else { continue };
                    let source = (source[0] * g.input[1] + source[1]) * g.input[2] + source[2];
                    let x = x.get((item * ins + channel) * g.inputs() + source) - zero;
                    sum += x * (w.get(out * ins * g.taps() + k) - middle(w.signed));
                }
                all.push((sum, out));
            }
        }
        all
    }
}

fn codes(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|k| ((k * 89 + seed * 57 + k / 7 * 13) % 256) as u8).collect()
}

#[test]
fn like_the_definition_in_all_forms() {
    for (number, case) in CASES.iter().enumerate() {
        let g = case.geometry();
        let &Case(batch, groups, ins, outs, _) = case;
        let (x, w) =
            (codes(batch * groups * ins * g.inputs(), number), codes(groups * outs * ins * g.taps(), number + 9));
        for (x_signed, w_signed, zero) in [(false, true, 3), (true, true, -7), (true, false, 127), (false, false, 255)]
        {
            let (x, w) = (Bytes { data: &x, signed: x_signed }, Bytes { data: &w, signed: w_signed });
            let want = case.sums(&g, (x, zero), w);
            let of = |f: fn(usize) -> f32| (0..groups * outs).map(f).collect::<Vec<f32>>();
            let (factor, bias) = (of(|k| 0.0004 + (k % 5) as f32 * 0.0003), of(|k| k as f32 - 3.5));
            let add: Vec<i32> = (0..groups * outs).map(|k| k as i32 * 100 - 350).collect();
            for isa in Isa::available() {
                let run = |finish: &Finish<'_>, target: Target<'_>| {
                    let filter = Filter::new(isa, &case.filter_dims(), groups).unwrap();
                    let mut packed = vec![0xA5; filter.size()];
                    filter.pack(w, 0..filter.pieces(), &mut packed);
                    let mut conv = Conv::default();
                    conv.bind(&filter, batch, &g).unwrap();
                    let mut scratch = vec![0x5A5A_5A5Au32; conv.scratch_len(&filter, 1).div_ceil(4) + 16];
                    // Whole cache lines, as kernels get it.
                    let skip = scratch.as_ptr().align_offset(64);
                    let scratch = ortolan_ep_kit::bytes::of_mut(&mut scratch[skip..]);
                    conv.run(&filter, (x, zero), &packed, finish, target, scratch, &Serial).unwrap();
                };
                let mut sums = vec![1; want.len()];
                run(&Finish { add: Some(&add), form: Form::Sums }, Target::I32(&mut sums));
                let plus: Vec<i32> = want.iter().map(|&(sum, out)| sum + add[out]).collect();
                assert_eq!(sums, plus, "case {number} {isa:?} {x_signed} {w_signed}");

                let mut floats = vec![f32::NAN; want.len()];
                let form = Form::Floats { factor: &factor, bias: Some(&bias), activation: Activation::Relu };
                run(&Finish { add: None, form }, Target::F32(&mut floats));
                let value = |&(sum, out): &(i32, usize)| sum as f32 * factor[out] + bias[out];
                for (y, sum) in floats.iter().zip(&want) {
                    let want = value(sum).max(0.0);
                    assert!((y - want).abs() <= 1e-5 * want.abs().max(1.0), "case {number} {isa:?}: {y} {want}");
                }

                let mut bytes = vec![0; want.len()];
                let form =
                    Form::Codes { factor: &factor, bias: Some(&bias), clip: (-100.0, 90.0), zero: 5, signed: x_signed };
                run(&Finish { add: None, form }, Target::U8(&mut bytes));
                let (low, high) = if x_signed { (-128.0, 127.0) } else { (0.0, 255.0) };
                for (k, sum) in want.iter().enumerate() {
                    let want = (value(sum).clamp(-100.0, 90.0).round_ties_even() + 5.0).clamp(low, high);
                    let y = Bytes { data: &bytes, signed: x_signed }.get(k) as f32;
                    // A tie may fall to either side by the last bit of the product.
                    let tie = (value(sum).fract().abs() - 0.5).abs() < 1e-3;
                    assert!(y == want || tie && (y - want).abs() <= 1.0, "case {number} {isa:?}: {y} {want}");
                }
            }
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let filter = Filter::new(Isa::scalar(), &[4, 2, 3, 3], 1).unwrap();
    assert!(Filter::new(Isa::scalar(), &[4, 2], 1).is_err());
    assert!(Filter::new(Isa::scalar(), &[4, 2, 3, 3], 3).is_err());
    let sizes: &[usize] = &[8];
    let window = Window { input: sizes, output: sizes, kernel: &[1], stride: &[1], dilation: &[1], pad: &[0] };
    let mut conv = Conv::default();
    let error = conv.bind(&filter, 1, &Geometry::new(&window).unwrap()).unwrap_err();
    assert!(error.to_string().contains("filter's size"), "{error}");
    let x = Bytes { data: &[], signed: false };
    let finish = Finish { add: None, form: Form::Sums };
    let error = conv.run(&filter, (x, 0), &[], &finish, Target::I32(&mut []), &mut [], &Serial).unwrap_err();
    assert!(error.to_string().contains("not bound"), "{error}");
}
