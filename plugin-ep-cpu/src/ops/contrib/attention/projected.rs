//! `Attention` and `QAttention`: one product makes queries, keys and values of the input, side by side in its rows.

use super::mask::{Bound as MaskBound, Masking};
use super::{attention, even, in_caches, in_rows, refuse};
use crate::gemm::{self, Bias, Epilogue, Lhs, Mat, MatMut, Rhs};
use crate::igemm::{Factor, Finish, Target};
use crate::ops::attention::heads::Bound as Inner;
use crate::ops::attention::work::{Work, join};
use crate::ops::attention::{Attention, heads};
use crate::ops::cost;
use crate::ops::float::agree;
use crate::ops::matmul::Right;
use crate::ops::quant::{Products, Sides, one_or_each, zero};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Pack, Reject, Shapes, Weight, WeightSource, bytes, size};

/// What follows the product.
struct Own {
    attention: Attention,
    heads: usize,
    /// Widths of queries, keys and values; each a third without any.
    widths: Option<[usize; 3]>,
    masking: Masking,
    past: usize,
}

#[derive(Default)]
pub(in crate::ops::contrib) struct Bound {
    inner: Inner,
    mask: MaskBound,
    products: Products,
    rows: usize,
    width: usize,
    /// Columns of the product, and where keys and values begin in a row.
    columns: usize,
    starts: [usize; 2],
    /// Values of a present of keys or of values.
    present: usize,
}

impl Own {
    fn parse(node: &NodeView<'_>, mask: usize, past: usize, bias: Option<usize>) -> Result<Own, Reject> {
        for (i, rank) in [(0, 3), (1, 2)] {
            let have = node.needs(i)?.rank();
            if have != rank {
                return Err(Reject::rank(format!("input {i} has rank {have}, {rank} is needed")));
            }
        }
        refuse(node, "do_rotary", "positions are turned in by RotaryEmbedding")?;
        refuse(node, "past_present_share_buffer", "the present is a tensor of its own")?;
        let heads = heads(node, "num_heads")?;
        let widths = match node.ints("qkv_hidden_sizes") {
            None => None,
            Some(&[q, k, v]) if q == k && [q, v].iter().all(|&n| n > 0 && size(n).is_multiple_of(heads)) => {
                Some([q, k, v].map(size))
            }
            Some(other) => {
                let needed = "three multiples of num_heads are needed, the first two alike";
                return Err(Reject::attribute(format!("attribute qkv_hidden_sizes = {other:?}: {needed}")));
            }
        };
        let masking = Masking::parse(node, mask, bias)?;
        let mut attention = attention(node, [heads; 2]);
        attention.causal = node.int("unidirectional")? != 0;
        attention.mask = masking.kind();
        attention.past = node.input(past).is_some();
        Ok(Own { attention, heads, widths, masking, past })
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let (x, w) = (shapes.input(0), shapes.input(1));
        let (&[batch, len, width], &[rows, columns]) = (x, w) else {
            return Err(Fault::data(format!("an input of {x:?} and weights of {w:?} have other ranks")));
        };
        let ([batch, len, width], columns) = ([batch, len, width].map(size), size(columns));
        agree("a column of the weights", size(rows), width)?;
        let third = columns / 3;
        let [q, k, v] = self.widths.unwrap_or([third; 3]);
        if q + k + v != columns || !q.is_multiple_of(self.heads) || !v.is_multiple_of(self.heads) {
            return Err(Fault::data(format!(
                "{columns} columns are not queries, keys and values of {} heads",
                self.heads
            )));
        }
        let own = |width: usize| in_rows(batch, self.heads, len, width / self.heads, columns);
        let (queries, keys, values) = (own(q), own(k), own(v));
        let mut past = in_caches(batch, self.heads, 0, keys.size, 0);
        if self.attention.past {
            let dims = shapes.input(self.past);
            match *dims {
                [2, b, n, p, h] if [b, n, h].map(size) == [batch, self.heads, keys.size] && q == v => {
                    past = in_caches(batch, self.heads, size(p), keys.size, size(p));
                }
                _ => return Err(Fault::data(format!("a past of {dims:?} does not go with keys of {}", keys.size))),
            }
        }
        let y = in_rows(batch, self.heads, len, values.size, v);
        agree("output 0", shapes.output_len(0), batch * len * v)?;
        let past_v = crate::ops::attention::heads::Heads { size: values.size, ..past };
        bound.inner.lay(queries, [past, keys], [past_v, values], y, self.attention.scale);
        self.masking.bind(shapes, &mut bound.inner, &mut bound.mask)?;
        (bound.rows, bound.width, bound.columns, bound.starts) = (batch * len, width, columns, [q, q + k]);
        bound.present = batch * self.heads * bound.inner.total * keys.size;
        match shapes.output(1) {
            [] => Ok(()),
            _ if q != v => Err(Fault::data("a present holds keys and values, which differ in width here")),
            _ => agree("present", shapes.output_len(1), 2 * bound.present),
        }
    }

    /// Values for the product and for the mask.
    fn room(&self, bound: &Bound) -> [usize; 2] {
        [even(bound.rows.saturating_mul(bound.columns)), self.masking.room(&bound.mask)]
    }

    fn run(
        &self,
        bound: &Bound,
        args: &mut Args<'_>,
        qkv: &[f32],
        mask: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), Fault> {
        let par = args.par();
        let past = if self.attention.past { args.input::<f32>(self.past) } else { &[] };
        let (past_k, past_v) = past.split_at(past.len() / 2);
        let side = |start: usize| qkv.get(start..).unwrap_or(&[]);
        let (k, v) = ([past_k, side(bound.starts[0])], [past_v, side(bound.starts[1])]);
        if args.wants(1) {
            let (to_k, to_v) = args.output::<f32>(1).split_at_mut(bound.present);
            join(par, k, &bound.inner.k, to_k)?;
            join(par, v, &bound.inner.v, to_v)?;
        }
        let added = self.masking.fill(&bound.mask, args, mask)?;
        let work = Work {
            op: &self.attention,
            bound: &bound.inner,
            q: qkv,
            k,
            v,
            added,
            seen: &[],
            lengths: &[],
            starts: &[],
            sinks: &[],
            whole: false,
        };
        work.run(par, args.output::<f32>(0), &mut [], scratch)
    }

    fn flops(&self, bound: &Bound) -> u64 {
        bound.inner.flops() + 2 * (bound.rows * bound.width * bound.columns) as u64
    }
}

fn projected_cost(node: &NodeView<'_>, share: f64) -> Cost {
    let (Some(x), Some(w)) = (node.input(0), node.input(1)) else { return Cost::UNKNOWN };
    let dim = |n: Option<i64>| n.map_or(f64::NAN, |n| n as f64);
    let (batch, len, columns) = (dim(x.dim(0)), dim(x.dim(1)), dim(w.dim(1)));
    cost::products(node, x.elements() * columns * share + batch * len * len * columns * 2.0 / 3.0)
}

/// With f32 weights.
pub(in crate::ops::contrib) struct Projected {
    own: Own,
    right: Option<Right>,
}

impl Op for Projected {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        if node.input(6).is_some() {
            return Err(Reject::shape("input 6 (past_sequence_length) is for a past and present in one buffer"));
        }
        Ok(Projected { own: Own::parse(node, 3, 4, Some(5))?, right: None })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        projected_cost(node, 1.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        self.own.bind(shapes, bound)?;
        if shapes.has(2) { agree("the bias", shapes.input_len(2), bound.columns) } else { Ok(()) }
    }

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let isa = self.own.attention.isa;
        let gemm = gemm::Gemm::new(isa, bound.rows, bound.columns, bound.width);
        let after = bound.inner.scratch(isa, width).max(gemm.scratch_len(false, self.right.is_some(), width));
        let room = self.own.room(bound).into_iter().fold(after, |sum, room| sum.saturating_add(room));
        room.saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Bound) -> u64 {
        self.own.flops(bound)
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input != 1 {
            return None;
        }
        let (right, pack) = Right::plan(self.own.attention.isa, source, false)?;
        self.right = Some(right);
        Some(pack)
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.right.as_ref().map_or(Ok(()), |right| right.fill(weight, to, par))
    }
}

pub(in crate::ops::contrib) fn projected(op: &Projected, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Bound { rows, width, columns, .. } = bound;
    let [qkv_room, mask_room] = op.own.room(bound);
    let (qkv, rest) = args.scratch::<f32>().split_at_mut(qkv_room);
    let (mask, scratch) = rest.split_at_mut(mask_room);
    let qkv = &mut qkv[..rows * columns];
    let gemm = gemm::Gemm::new(op.own.attention.isa, rows, columns, width);
    let bias = args.input_if::<f32>(2).map_or(Bias::None, Bias::PerColumn);
    let w = args.input::<f32>(1);
    let right = match &op.right {
        Some(right) => Rhs::Packed(right.layout, w),
        None => Rhs::Plain(Mat::new(w, width, columns)?),
    };
    let left = Lhs::Plain(Mat::new(args.input::<f32>(0), rows, width)?);
    let to = MatMut::new(&mut *qkv, rows, columns)?;
    gemm.run(left, right, &Epilogue { bias, ..Epilogue::default() }, to, scratch, args.par())?;
    op.own.run(bound, args, qkv, mask, scratch)
}

/// With weights of 8 bits.
pub(in crate::ops::contrib) struct QProjected {
    own: Own,
    sides: Sides,
}

const BIAS: usize = 2;
const X_SCALE: usize = 3;
const W_SCALE: usize = 4;
const X_ZERO: usize = 6;
const W_ZERO: usize = 7;

impl Op for QProjected {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for input in [BIAS, X_SCALE, W_SCALE] {
            let dtype = node.needs(input)?.dtype();
            if dtype as u32 != DType::F32 as u32 {
                return Err(Reject::dtype(format!("input {input} is {dtype}, f32 is needed")));
            }
        }
        for (codes, zero) in [(0, X_ZERO), (1, W_ZERO)] {
            let code = node.needs(codes)?.dtype();
            if let Some(v) = node.input(zero).filter(|v| v.dtype() as u32 != code as u32) {
                return Err(Reject::dtype(format!("input {zero} is {}, not {code} as its codes are", v.dtype())));
            }
        }
        Ok(QProjected { own: Own::parse(node, 5, 8, None)?, sides: Sides::parse(node, 1)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        projected_cost(node, 1.0 / 3.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        self.own.bind(shapes, bound)?;
        let x = shapes.input(0);
        let columns = shapes.input(1).get(1).copied().unwrap_or(0);
        let product = [x.first().copied().unwrap_or(0), x.get(1).copied().unwrap_or(0), columns];
        self.sides.bind(&mut bound.products, [x, shapes.input(1), &product], false)?;
        agree("the bias", shapes.input_len(BIAS), bound.columns)?;
        agree("input_scale", shapes.input_len(X_SCALE), 1)?;
        one_or_each(shapes, W_SCALE, "weight_scale", bound.columns)?;
        one_or_each(shapes, W_ZERO, "weight_zero_point", bound.columns)?;
        if shapes.has(X_ZERO) { agree("input_zero_point", shapes.input_len(X_ZERO), 1) } else { Ok(()) }
    }

    /// Factors of columns come before the rest.
    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let inner = bound.inner.scratch(self.own.attention.isa, width).saturating_mul(size_of::<f32>());
        let after = inner.max(self.sides.scratch(&bound.products)).div_ceil(64).saturating_mul(64);
        let [qkv, mask] = self.own.room(bound);
        let floats = even(bound.columns).saturating_add(qkv).saturating_add(mask);
        floats.saturating_mul(size_of::<f32>()).saturating_add(after)
    }

    fn flops(&self, bound: &Bound) -> u64 {
        self.own.flops(bound)
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input == 1 { self.sides.pack(source) } else { None }
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], _: &dyn Parallel) -> Result<(), Fault> {
        self.sides.fill(weight, to)
    }
}

pub(in crate::ops::contrib) fn qprojected(op: &QProjected, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Bound { rows, columns, ref products, .. } = bound;
    let [qkv_room, mask_room] = op.own.room(bound);
    let floats = (even(columns) + qkv_room + mask_room) * size_of::<f32>();
    let (floats, scratch) = args.scratch::<u8>().split_at_mut(floats);
    let (factors, rest) = bytes::elements_mut::<f32>(floats).split_at_mut(even(columns));
    let (qkv, mask) = rest.split_at_mut(qkv_room);
    let (qkv, factors) = (&mut qkv[..rows * columns], &mut factors[..columns]);
    let (x_scale, w_scale) = (args.input::<f32>(X_SCALE)[0], args.input::<f32>(W_SCALE));
    let of = |j: usize| x_scale * w_scale[if w_scale.len() == 1 { 0 } else { j }];
    factors.iter_mut().enumerate().for_each(|(j, factor)| *factor = of(j));
    let zeros = [zero(args, X_ZERO, op.sides.signed[0]), zero(args, W_ZERO, op.sides.signed[1])];
    let column = Factor::Each(factors);
    let finish = Finish::Floats { row: Factor::All(1.0), column, bias: Some(args.input(BIAS)), add: false };
    let (x, w, par, gemm) = (args.input::<u8>(0), args.input::<u8>(1), args.par(), op.sides.gemm(products));
    op.sides.each(products, (x, w), zeros, scratch, par, |left, right, at, scratch| {
        Ok(gemm.run(left, right, &finish, Target::F32(&mut qkv[at]), columns, scratch, par)?)
    })?;
    let inner = bound.inner.scratch(op.own.attention.isa, par.width()) * size_of::<f32>();
    op.own.run(bound, args, qkv, mask, bytes::elements_mut::<f32>(&mut scratch[..inner]))
}
