//! Float nodes between `DequantizeLinear` and `QuantizeLinear`: a convolution, or a function of two tensors, that reads the
//! codes as they are and may write codes again.
//!
//! Only scales for whole tensors are done, and for filters also one for each, whose zero is the middle of their type.

use super::filters::{Bound, Filters, is_middle, sign};
use crate::gemm::{Activation, clip_of};
use crate::iconv::{Finish, Form, Target};
use crate::igemm::{Bytes, nearest};
use crate::ops::broadcast::Broadcast;
use crate::ops::epilogue;
use crate::ops::lane::Side;
use crate::ops::{Cpu, GRAIN};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{
    Args, Around, DType, Fault, NodeView, Pack, Seam, Shapes, ValueView, Weight, WeightSource, bytes,
};

/// Where scale and zero point of codes are among the inputs.
#[derive(Debug, Clone, Copy)]
struct Coded {
    scale: usize,
    zero: Option<usize>,
    signed: bool,
}

impl Coded {
    /// Of a node that makes codes of 8 bits into f32 or the other way round, with one scale. `extra`: where its second
    /// input will be, and its third, if it is there.
    fn of(node: &NodeView<'_>, op: &str, codes: Option<ValueView<'_>>, extra: usize) -> Option<Coded> {
        let signed = sign(&codes?)?;
        let one = |i: usize| node.input(i).is_none_or(|v| (0..v.rank()).all(|k| v.fixed_dim(k) == Some(1)));
        let precision = node.int_if("precision").unwrap_or(0);
        let plain = node.op() == op && node.int_if("block_size").unwrap_or(0) == 0 && one(1) && one(2);
        let f32s = node.input(1)?.dtype() as u32 == DType::F32 as u32 && [0, DType::F32 as i64].contains(&precision);
        (plain && f32s).then_some(Coded { scale: extra, zero: node.input(2).map(|_| extra + 1), signed })
    }

    fn read(node: &NodeView<'_>, extra: usize) -> Option<Coded> {
        Self::of(node, "DequantizeLinear", node.input(0), extra)
    }

    fn written(node: &NodeView<'_>, extra: usize) -> Option<Coded> {
        Self::of(node, "QuantizeLinear", node.output(0), extra)
    }

    fn scale(&self, args: &Args<'_>) -> f32 {
        args.input::<f32>(self.scale)[0]
    }

    fn zero(&self, args: &Args<'_>) -> i32 {
        self.zero.map_or(0, |zero| Bytes { data: args.input(zero), signed: self.signed }.get(0))
    }
}

/// How many inputs a maker appends.
fn appended(node: &NodeView<'_>) -> usize {
    node.input_count().saturating_sub(1)
}

/// A convolution of codes.
pub(crate) struct ConvOfCodes {
    filters: Filters,
    x: Coded,
    /// Scales of the filters.
    w_scale: usize,
    y: Option<Coded>,
}

/// Image and filters.
const BOTH: u32 = 0b11;

impl ConvOfCodes {
    /// For a `Conv` whose image and filters are made of codes; with the inputs to read through.
    pub fn of(node: &NodeView<'_>, around: &Around<'_>) -> Option<(Self, u32)> {
        let [Some(x), Some(w), ..] = around.makers.as_slice() else { return None };
        let coded = Coded::read(x, node.input_count())?;
        let (filters, scale, zero) = (w.input(0)?, w.input(1)?, w.input(2));
        let signed = sign(&filters)?;
        let one = (0..scale.rank()).all(|k| scale.fixed_dim(k) == Some(1));
        let each = scale.rank() == 1 && scale.same_dim(0, &filters, 0) && w.int("axis").ok() == Some(0);
        let fits = w.op() == "DequantizeLinear"
            && w.int_if("block_size").unwrap_or(0) == 0
            && scale.dtype() as u32 == DType::F32 as u32
            && filters.is_constant()
            && (one || each)
            && is_middle(zero.as_ref(), signed);
        if !fits {
            return None;
        }
        let filters = Filters::of(node, 1, [coded.signed, signed], true).ok()?;
        let w_scale = node.input_count() + appended(x);
        Some((ConvOfCodes { filters, x: coded, w_scale, y: None }, BOTH))
    }

    /// Takes over what `QuantizeLinear` does.
    pub fn fuse(&mut self, next: &NodeView<'_>, seam: Seam, activation: Activation) -> bool {
        if seam.input == 0 && self.y.is_none() && clip_of(activation).is_some() {
            self.y = Coded::written(next, seam.extra);
            return self.y.is_some();
        }
        false
    }

    /// Whether it writes codes, so that nothing else can be taken over.
    pub fn is_closed(&self) -> bool {
        self.y.is_some()
    }

    pub fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        self.filters.bind(shapes, bound)
    }

    /// Factors and biases come last.
    pub fn scratch(&self, bound: &Bound, width: usize) -> usize {
        self.filters.scratch(bound, width).saturating_add(self.factors(bound).saturating_mul(size_of::<f32>()))
    }

    fn factors(&self, bound: &Bound) -> usize {
        2 * bound.outs * self.filters.groups
    }

    pub fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        self.filters.pack(input, source)
    }

    pub fn fill(&self, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.filters.fill(weight, to, par)
    }

    pub fn run(&self, bound: &Bound, finish: epilogue::Finish, args: &mut Args<'_>) -> Result<(), Fault> {
        let (scales, bias, par) =
            (args.input::<f32>(self.w_scale), finish.bias.map(|i| args.input::<f32>(i)), args.par());
        let (x_scale, y_scale) = (self.x.scale(args), self.y.map_or(1.0, |y| y.scale(args)));
        let scratch = args.scratch::<u8>();
        let (scratch, factors) = scratch.split_at_mut(scratch.len() - self.factors(bound) * size_of::<f32>());
        let factors = bytes::elements_mut::<f32>(factors);
        let (factor, biases) = factors.split_at_mut(factors.len() / 2);
        for (k, factor) in factor.iter_mut().enumerate() {
            *factor = x_scale * scales[if scales.len() == 1 { 0 } else { k }] / y_scale;
        }
        let biases = bias.map(|bias| {
            biases.iter_mut().zip(bias).for_each(|(to, bias)| *to = bias / y_scale);
            &*biases
        });
        let (factor, activation) = (&*factor, finish.activation);
        let x = (args.input::<u8>(0), self.x.zero(args) as u8); // a code of 8 bits
        let w = (args.input::<u8>(1), None);
        let Some(y) = self.y else {
            let form = Form::Floats { factor, bias: biases, activation };
            let target = Target::F32(args.output(0));
            return self.filters.run(bound, x, w, &Finish { add: None, form }, target, scratch, par);
        };
        let (low, high) = clip_of(activation).unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        let clip = (low / y_scale, high / y_scale);
        let form = Form::Codes { factor, bias: biases, clip, zero: y.zero(args), signed: y.signed };
        let target = Target::U8(args.output(0));
        self.filters.run(bound, x, w, &Finish { add: None, form }, target, scratch, par)
    }
}

/// A sum or product of codes.
pub(crate) struct BinaryOfCodes {
    isa: Isa,
    of: [Coded; 2],
    y: Option<Coded>,
    multiplies: bool,
}

impl BinaryOfCodes {
    /// For an `Add` or `Mul` that stands between codes; with the inputs to read through.
    pub fn of(node: &NodeView<'_>, around: &Around<'_>) -> Option<(Self, u32)> {
        let multiplies = match node.op() {
            "Add" => false,
            "Mul" => true,
            _ => return None,
        };
        let [Some(a), Some(b)] = around.makers.as_slice() else { return None };
        Coded::written(around.next.as_ref()?, 0)?;
        let extra = node.input_count();
        let of = [Coded::read(a, extra)?, Coded::read(b, extra + appended(a))?];
        Some((BinaryOfCodes { isa: Cpu::of(node).isa, of, y: None, multiplies }, BOTH))
    }

    /// Takes over what `QuantizeLinear` does.
    pub fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        if seam.input == 0 && self.y.is_none() {
            self.y = Coded::written(next, seam.extra);
            return self.y.is_some();
        }
        false
    }

    pub fn run(&self, walk: &Broadcast<2>, args: &mut Args<'_>) -> Result<(), Fault> {
        let y = self.y.ok_or_else(|| Fault::data("nothing makes codes of the result"))?;
        let (zeros, scales) = (self.of.map(|c| c.zero(args)), self.of.map(|c| c.scale(args)));
        let line = Line {
            zeros,
            // What a code counts, or what a product of both does.
            scales: match self.multiplies {
                false => scales.map(|scale| scale / y.scale(args)),
                true => [scales[0] * scales[1] / y.scale(args), 1.0],
            },
            zero: y.zero(args),
            signed: [self.of[0].signed, self.of[1].signed, y.signed],
            multiplies: self.multiplies,
        };
        let alias = args.alias(0);
        let [a, b] = [0, 1].map(|i| if alias == Some(i) { None } else { Some(args.input::<u8>(i)) });
        let step = walk.inner.step;
        let y = args.output::<u8>(0);
        walk.walk(args.par(), y, GRAIN, |at, y| {
            for (k, y) in y.chunks_mut(CHUNK).enumerate() {
                // What lies under the output is read before it is written.
                let mut under = [0; CHUNK];
                let under = &mut under[..y.len()];
                under.copy_from_slice(y);
                let under: &[u8] = under;
                let [a, b] = [(0, a), (1, b)].map(|(i, x)| match x {
                    Some(x) => Side::new(x, at[i] + k * CHUNK * step[i], step[i], under.len()),
                    None => Side::Slice(under),
                });
                self.isa.dispatch(Of { line, a, b, y });
            }
        })?;
        Ok(())
    }
}

/// Codes at a time.
const CHUNK: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Line {
    zeros: [i32; 2],
    scales: [f32; 2],
    zero: i32,
    /// Of both inputs and the output.
    signed: [bool; 3],
    multiplies: bool,
}

struct Of<'a> {
    line: Line,
    a: Side<'a, u8>,
    b: Side<'a, u8>,
    y: &'a mut [u8],
}

impl Kernel for Of<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Of { line, a, b, y } = self;
        let mut all = [[0.0; CHUNK]; 2];
        for (i, side) in [a, b].into_iter().enumerate() {
            let (sign, zero) = if line.signed[i] { (0x80, line.zeros[i] + 128) } else { (0, line.zeros[i]) };
            let value = |code: u8| (i32::from(code ^ sign) - zero) as f32 * line.scales[i]; // nine bits
            match side {
                Side::Slice(x) => all[i].iter_mut().zip(x).for_each(|(to, &x)| *to = value(x)),
                Side::Scalar(x) => all[i][..y.len()].fill(value(x)),
            }
        }
        let (least, most) = if line.signed[2] { (-128, 127) } else { (0, 255) };
        let (low, high) = ((least - line.zero) as f32, (most - line.zero) as f32); // small integers
        for k in 0..y.len() {
            let (a, b) = (all[0][k], all[1][k]);
            let value = if line.multiplies { a * b } else { a + b };
            let value = if value > low { value } else { low };
            let value = if value < high { value } else { high };
            y[k] = nearest(value).wrapping_add(line.zero) as u8; // within its limits
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::{Cpu, FAMILIES};
    use crate::simd::Isa;
    use ortolan_ep_abi::raw;
    use ortolan_ep_kit::testing::{Dim, Model, Session, Tensor, ValueId, assert_close};
    use ortolan_ep_kit::{DType, Kit};

    fn codes(dims: &[i64], dtype: DType, seed: usize) -> Tensor {
        let t = Tensor::from_fn(dims, |k| ((k * 83 + seed * 37 + k / 5) % 256) as u8);
        Tensor { dtype, ..t }
    }

    /// What a graph between codes is made of.
    struct Graph {
        model: Model,
        /// Values so far.
        count: usize,
    }

    impl Graph {
        fn value(&mut self, dtype: DType, dims: &[i64]) -> ValueId {
            self.count += 1;
            let dims: Vec<Dim> = dims.iter().map(|&d| d.into()).collect();
            self.model.value(&format!("v{}", self.count), dtype, &dims)
        }

        fn linear(
            &mut self,
            op: &str,
            x: ValueId,
            to: DType,
            dims: &[i64],
            scale: f32,
            zero: Option<Tensor>,
        ) -> ValueId {
            let y = self.value(to, dims);
            let scale = self.model.constant(&Tensor::new(&[], &[scale]));
            let zero = zero.map(|zero| self.model.constant(&zero));
            let inputs: Vec<_> = [x, scale].into_iter().chain(zero).collect();
            let node = self.model.call(op, 21, &inputs, &[y]);
            self.model.ints(node, "axis", &[1], false);
            y
        }

        /// Filters of i8 with a scale for each.
        fn filters(&mut self, dims: &[i64]) -> ValueId {
            let w = self.model.constant(&codes(dims, DType::I8, 3));
            let scales = self.model.constant(&Tensor::from_fn(&dims[..1], |k| 0.002 + k as f32 * 0.001));
            let zeros = self.model.constant(&Tensor::from_fn(&dims[..1], |_| 0i8));
            let y = self.value(DType::F32, dims);
            let node = self.model.call("DequantizeLinear", 21, &[w, scales, zeros], &[y]);
            self.model.ints(node, "axis", &[0], false);
            self.model.const_expr(y);
            y
        }

        fn conv(&mut self, x: ValueId, w: &[i64], group: i64, out: &[i64]) -> ValueId {
            let filters = self.filters(w);
            let bias = self.model.constant(&Tensor::from_fn(&w[..1], |k| k as f32 * 0.3 - 1.0));
            let y = self.value(DType::F32, out);
            let node = self.model.call("Conv", 22, &[x, filters, bias], &[y]);
            self.model.ints(node, "group", &[group], false);
            self.model.ints(node, "pads", &[1; 4], true);
            y
        }
    }

    fn u8s(zero: u8) -> Option<Tensor> {
        Some(Tensor::new(&[], &[zero]))
    }

    fn i8s(zero: i8) -> Option<Tensor> {
        Some(Tensor::new(&[], &[zero]))
    }

    const IMAGE: [i64; 4] = [2, 5, 6, 7];
    const INPUTS: [DType; 4] = [DType::U8, DType::U8, DType::I8, DType::I8];

    /// A convolution with Relu, a depthwise one, a sum, a product, and a convolution that stays in floats. Scales are such
    /// that results hardly ever lie between two codes.
    fn graph() -> Model {
        let mut g = Graph { model: Model::new(), count: 0 };
        let inputs = INPUTS.map(|dtype| g.value(dtype, &IMAGE));
        inputs.iter().for_each(|&x| g.model.mark_input(x));
        let zeros = [u8s(120), u8s(3), i8s(-9), None];
        let [a, b, c, d] = core::array::from_fn(|k| {
            let scale = [0.0513, 0.0617, 0.0409, 0.0823][k];
            g.linear("DequantizeLinear", inputs[k], DType::F32, &IMAGE, scale, zeros[k].clone())
        });
        let (first, positive) = (g.conv(a, &[5, 5, 3, 3], 1, &IMAGE), g.value(DType::F32, &IMAGE));
        g.model.call("Relu", 14, &[first], &[positive]);
        let second = g.conv(b, &[5, 1, 3, 3], 5, &IMAGE);
        let (sum, product) = (g.value(DType::F32, &IMAGE), g.value(DType::F32, &IMAGE));
        g.model.call("Add", 14, &[b, c], &[sum]);
        g.model.call("Mul", 14, &[c, d], &[product]);
        let outputs = [
            g.linear("QuantizeLinear", positive, DType::U8, &IMAGE, 0.0611, u8s(7)),
            g.linear("QuantizeLinear", second, DType::I8, &IMAGE, 0.0403, i8s(-9)),
            g.linear("QuantizeLinear", sum, DType::I8, &IMAGE, 0.0827, None),
            g.linear("QuantizeLinear", product, DType::U8, &IMAGE, 0.1013, u8s(100)),
            g.conv(d, &[3, 5, 3, 3], 1, &[2, 3, 6, 7]),
        ];
        outputs.iter().for_each(|&y| g.model.mark_output(y));
        g.model
    }

    #[test]
    fn nodes_between_codes_are_one_step_each() {
        for isa in Isa::available() {
            let name = isa.name();
            let session = Session::new(Kit::new(FAMILIES, name, Cpu { isa }), graph(), 2);
            let mut part = session.compile().unwrap();
            let names: Vec<_> = part.part().steps().map(|s| s.1.to_owned()).collect();
            assert_eq!(
                names,
                [
                    format!("conv_f32_{name}+dequantize+relu+quantize"),
                    format!("conv_f32_{name}+dequantize+quantize"),
                    format!("add_f32_{name}+dequantize+quantize"),
                    format!("mul_f32_{name}+dequantize+quantize"),
                    format!("conv_f32_{name}+dequantize"),
                ]
            );
            // A part that runs once takes nothing over: node by node, in floats.
            let mut plain = session.compile_with(raw::PART_ONCE).unwrap();
            for seed in 0..4 {
                let inputs: Vec<_> = (0..).zip(INPUTS).map(|(k, dtype)| codes(&IMAGE, dtype, seed + k)).collect();
                let (got, want) = (part.run(&inputs).unwrap(), plain.run(&inputs).unwrap());
                for (got, want) in got.iter().zip(&want).take(4) {
                    let differ = got.bytes.iter().zip(&want.bytes).filter(|(a, b)| a != b);
                    let (count, most) = differ.fold((0, 0), |(n, most), (a, b)| {
                        (n + 1, most.max(a.wrapping_sub(*b).min(b.wrapping_sub(*a))))
                    });
                    // Floats are summed in another order: next to a tie they may fall on the other side.
                    assert!(most <= 1 && count * 100 <= got.bytes.len(), "{name}: {count} codes differ, by {most}");
                }
                assert_close(&got[4], &want[4], 1e-5);
            }
        }
    }
}
