//! `QGemm`: a product of two matrices of codes with integers added, as floats or as codes.

use super::Quantity;
use crate::igemm::{Bytes, Finish, IGemm, Left, PackedB, Right, Target, nearest};
use crate::ops::broadcast::Broadcast;
use crate::ops::float::agree;
use crate::ops::quant::{integer_cost, one_or_each, zero};
use crate::ops::{Cpu, GRAIN};
use crate::simd::Isa;
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{
    Args, Cost, DType, Fault, NodeView, Op, Pack, Reject, Shapes, Weight, WeightSource, bytes, size, split,
};

/// `Y = alpha a_scale b_scale ((A - a_zero) (B - b_zero) + C)`, over y_scale and with y_zero_point if they are there.
pub(in crate::ops::contrib) struct QGemm {
    isa: Isa,
    alpha: f32,
    turned: [bool; 2],
    signed: [bool; 2],
    /// Whether B comes packed.
    packed: bool,
    codes: bool,
    signed_codes: bool,
}

#[derive(Debug, Default)]
pub(in crate::ops::contrib) struct Sizes {
    m: usize,
    n: usize,
    k: usize,
    /// C under Y.
    c: Broadcast<1>,
}

const A: Quantity = Quantity::at(1);
const B: usize = 3;
const B_SCALE: usize = 4;
const B_ZERO: usize = 5;
const C: usize = 6;
const Y: Quantity = Quantity::at(7);

impl Op for QGemm {
    type Bound = Sizes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        A.check(node, 0)?;
        node.needs(B_SCALE)?;
        for i in [0, B] {
            let rank = node.needs(i)?.rank();
            if rank != 2 {
                return Err(Reject::rank(format!("input {i} has rank {rank}, a matrix has 2")));
            }
        }
        let (b, b_zero) = (node.needs(B)?.dtype(), node.needs(B_ZERO)?.dtype());
        if b as u32 != b_zero as u32 {
            return Err(Reject::dtype(format!("input {B_ZERO} is {b_zero}, not {b} as B is")));
        }
        let y = node.out()?.dtype();
        let codes = node.input(Y.scale).is_some();
        if codes != (y as u32 != DType::F32 as u32) || codes != node.input(Y.zero).is_some() {
            return Err(Reject::shape(format!("y_scale and y_zero_point come with codes, the output is {y}")));
        }
        if codes {
            let zero = node.needs(Y.zero)?.dtype();
            if zero as u32 != y as u32 {
                return Err(Reject::dtype(format!("input {} is {zero}, the output {y}", Y.zero)));
            }
        }
        let signed = |dtype: DType| dtype as u32 == DType::I8 as u32;
        Ok(QGemm {
            isa: Cpu::of(node).isa,
            alpha: node.float("alpha")?,
            turned: [node.int("transA")? != 0, node.int("transB")? != 0],
            signed: [signed(node.needs(0)?.dtype()), signed(b)],
            packed: false,
            codes,
            signed_codes: signed(y),
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        integer_cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Sizes) -> Result<(), Fault> {
        let matrix = |i: usize, turned: bool| match *shapes.input(i) {
            [rows, cols] if turned => Ok((size(cols), size(rows))),
            [rows, cols] => Ok((size(rows), size(cols))),
            ref dims => Err(Fault::data(format!("input {i} is no matrix: {dims:?}"))),
        };
        let ((m, k), (rows, n)) = (matrix(0, self.turned[0])?, matrix(B, self.turned[1])?);
        if k != rows || shapes.output(0).iter().map(|&d| size(d)).ne([m, n]) {
            return Err(Fault::data(format!("[{m}, {k}] times [{rows}, {n}] is not {:?}", shapes.output(0))));
        }
        (bound.m, bound.n, bound.k) = (m, n, k);
        A.bind(shapes)?;
        one_or_each(shapes, B_SCALE, "b_scale", n)?;
        one_or_each(shapes, B_ZERO, "b_zero_point", n)?;
        if self.codes {
            agree("y_scale", shapes.input_len(Y.scale), 1)?;
            agree("y_zero_point", shapes.input_len(Y.zero), 1)?;
        }
        if shapes.has(C) { bound.c.bind(shapes.output(0), [shapes.input(C)]) } else { Ok(()) }
    }

    fn scratch(&self, bound: &Sizes, _: usize) -> usize {
        let room = self.room(bound);
        room.iter().fold(self.gemm(bound).scratch_len(), |sum, &room| sum.saturating_add(room))
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        let &[rows, cols] = source.dims else { return None };
        if input != B {
            return None;
        }
        let (k, n) = if self.turned[1] { (cols, rows) } else { (rows, cols) };
        let layout = PackedB::new(self.isa, size(k), size(n));
        let format = [layout.format(), u8::from(self.signed[1]), u8::from(self.turned[1])];
        self.packed = true;
        Some(Pack { format: fnv(fnv(FNV, b"igemm qgemm"), &format), bytes: layout.size(), from_base: false })
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        let &[rows, cols] = weight.dims else { return Err(Fault::data("a packed matrix has two dimensions")) };
        let (k, n) = if self.turned[1] { (cols, rows) } else { (rows, cols) };
        self.pack_b(weight.bytes(), (size(k), size(n)), to, par)
    }
}

impl QGemm {
    fn gemm(&self, sizes: &Sizes) -> IGemm {
        IGemm::new(self.isa, sizes.m, sizes.n, sizes.k)
    }

    fn pack_b(&self, data: &[u8], (k, n): (usize, usize), to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        let layout = PackedB::new(self.isa, k, n);
        let b = Bytes { data, signed: self.signed[1] };
        Ok(split::rows(par, to, layout.stride(), 1, |_, first, piece| layout.pack(b, self.turned[1], first, piece))?)
    }

    /// Bytes for A as it is multiplied, B packed, sums, and factors of columns.
    fn room(&self, sizes: &Sizes) -> [usize; 4] {
        let &Sizes { m, n, k, .. } = sizes;
        let even = |bytes: usize| bytes.div_ceil(64).saturating_mul(64);
        [
            if self.turned[0] { even(m.saturating_mul(k)) } else { 0 },
            if self.packed { 0 } else { even(PackedB::new(self.isa, k, n).size()) },
            even(m.saturating_mul(n).saturating_mul(size_of::<i32>())),
            even(n.saturating_mul(size_of::<f32>())),
        ]
    }
}

pub(in crate::ops::contrib) fn qgemm(op: &QGemm, sizes: &Sizes, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Sizes { m, n, k, ref c } = sizes;
    let (par, [a_room, b_room, sum_room, factor_room]) = (args.par(), op.room(sizes));
    let scratch = args.scratch::<u8>();
    let (turned, rest) = scratch.split_at_mut(a_room);
    let (packing, rest) = rest.split_at_mut(b_room);
    let (sums, rest) = rest.split_at_mut(sum_room);
    let (factors, scratch) = rest.split_at_mut(factor_room);
    let (a, b) = (args.input::<u8>(0), args.input::<u8>(B));
    let a: &[u8] = if op.turned[0] {
        let turned = &mut turned[..m * k];
        split::rows(par, turned, k, GRAIN.div_ceil(k.max(1)), |_, first, rows| {
            for (i, row) in rows.chunks_exact_mut(k.max(1)).enumerate() {
                row.iter_mut().enumerate().for_each(|(p, to)| *to = a[p * m + first + i]);
            }
        })?;
        turned
    } else {
        a
    };
    let packed: &[u8] = if op.packed {
        b
    } else {
        op.pack_b(b, (k, n), packing, par)?;
        packing
    };
    let left = Left { a: Bytes { data: a, signed: op.signed[0] }, zero: zero(args, A.zero, op.signed[0]) };
    let right = Right { packed, signed: op.signed[1], zero: zero(args, B_ZERO, op.signed[1]) };
    let sums = &mut bytes::elements_mut::<i32>(sums)[..m * n];
    op.gemm(sizes).run(left, right, &Finish::Sums, Target::I32(sums), n, scratch, par)?;
    if let Some(summands) = args.input_if::<i32>(C) {
        let step = c.inner.step[0];
        c.walk(par, sums, GRAIN, |[at], piece| {
            piece.iter_mut().enumerate().for_each(|(i, sum)| *sum = sum.wrapping_add(summands[at + i * step]));
        })?;
    }
    let factors = &mut bytes::elements_mut::<f32>(factors)[..n];
    let (a_scale, b_scales) = (args.input::<f32>(A.scale)[0], args.input::<f32>(B_SCALE));
    let over = if op.codes { args.input::<f32>(Y.scale)[0] } else { 1.0 };
    for (j, factor) in factors.iter_mut().enumerate() {
        *factor = op.alpha * a_scale * b_scales[if b_scales.len() == 1 { 0 } else { j }] / over;
    }
    let grain = GRAIN.div_ceil(n.max(1));
    let (sums, factors): (&[i32], &[f32]) = (sums, factors);
    if !op.codes {
        return Ok(split::rows(par, args.output::<f32>(0), n, grain, |_, first, rows| {
            for (i, row) in rows.chunks_exact_mut(n.max(1)).enumerate() {
                let sums = &sums[(first + i) * n..];
                row.iter_mut().enumerate().for_each(|(j, y)| *y = sums[j] as f32 * factors[j]); // rounds to nearest
            }
        })?);
    }
    let zero = Bytes { data: args.input(Y.zero), signed: op.signed_codes }.get(0);
    let (low, high) = if op.signed_codes { (-128, 127) } else { (0, 255) };
    let (least, most) = ((low - zero) as f32, (high - zero) as f32); // small integers
    Ok(split::rows(par, args.output::<u8>(0), n, grain, |_, first, rows| {
        for (i, row) in rows.chunks_exact_mut(n.max(1)).enumerate() {
            let sums = &sums[(first + i) * n..];
            for (j, y) in row.iter_mut().enumerate() {
                let value = sums[j] as f32 * factors[j]; // rounds to nearest
                *y = nearest(value.max(least).min(most)).wrapping_add(zero) as u8; // within the limits
            }
        }
    })?)
}
