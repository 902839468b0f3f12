//! `DynamicQuantizeLSTM`: an LSTM with weights of 8 bits. What it multiplies with them is quantized on the way: the whole
//! input at once, the state at each step.

use super::walk::{Ends, Part, Source, Target, Weights, scratch_len, walk};
use super::{Network, Sizes};
use crate::igemm::Target as Product;
use crate::igemm::{Bytes, Factor, Finish, IGemm, Left, PackedB, Right, Zero};
use crate::ops::float::agree;
use crate::ops::quant::Scale;
use crate::simd;
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{
    Args, Cost, DType, Fault, NodeView, Op, Pack, Reject, Shapes, Weight, WeightSource, bytes, size, split,
};

/// The operator.
pub(super) struct Dynamic {
    network: Network,
    /// Whether W and R have a sign, and whether they come packed.
    signed: [bool; 2],
    packed: [bool; 2],
}

/// Inputs of the operator for W and for R.
#[derive(Debug, Clone, Copy)]
struct Side {
    weights: usize,
    scale: usize,
    zero: usize,
}

const SIDES: [Side; 2] = [Side { weights: 1, scale: 8, zero: 9 }, Side { weights: 2, scale: 10, zero: 11 }];
const ENDS: Ends = Ends { bias: 3, lens: 4, state: 5, cell: 6, peephole: 7 };

impl Op for Dynamic {
    type Bound = Sizes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (i, name) in [(0, "X"), (1, "W"), (2, "R")] {
            let rank = node.needs(i)?.rank();
            if rank != 3 {
                return Err(Reject::rank(format!("{name} has rank {rank}, needed is 3")));
            }
        }
        let signed = |i: usize| node.needs(i).map(|v| v.dtype() as u32 == DType::I8 as u32);
        for Side { weights, scale, zero } in SIDES {
            node.needs(scale)?;
            let (w, z) = (node.needs(weights)?.dtype(), node.needs(zero)?.dtype());
            if w as u32 != z as u32 {
                return Err(Reject::dtype(format!("input {zero} is {z}, not {w} as its weights are")));
            }
        }
        Ok(Dynamic { network: Network::parse(node)?, signed: [signed(1)?, signed(2)?], packed: [false; 2] })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(self.network.cost(node).ns / 3.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Sizes) -> Result<(), Fault> {
        let hidden = shapes.input(2).get(1).copied().unwrap_or(0);
        bound.bind(&self.network, shapes, hidden)?;
        for (name, input) in [("W_scale", 8), ("W_zero_point", 9), ("R_scale", 10), ("R_zero_point", 11)] {
            if shapes.input_len(input) != bound.directions {
                agree(name, shapes.input_len(input), bound.directions * bound.gates)?;
            }
        }
        Ok(())
    }

    fn scratch(&self, bound: &Sizes, width: usize) -> usize {
        scratch_len(&self.network, bound, width, |_| self.room(bound).total()).saturating_mul(size_of::<f32>())
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        let which = input.checked_sub(1).filter(|&which| which < 2)?;
        let &[directions, k, n] = source.dims else { return None };
        let layout = PackedB::new(self.network.isa, size(k), size(n));
        let format = fnv(fnv(FNV, b"quantized rnn"), &[layout.format(), u8::from(self.signed[which])]);
        self.packed[which] = true;
        Some(Pack { format, bytes: layout.size().checked_mul(size(directions))?, from_base: false })
    }

    fn fill(&self, input: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        let &[_, k, n] = weight.dims else { return Err(Fault::data("weights have three dimensions")) };
        let (k, n) = (size(k), size(n));
        let layout = PackedB::new(self.network.isa, k, n);
        let matrices = weight.bytes().chunks_exact((k * n).max(1)).zip(to.chunks_exact_mut(layout.size().max(1)));
        matrices.into_iter().try_for_each(|(data, to)| {
            let b = Bytes { data, signed: self.signed[input - 1] };
            split::rows(par, to, layout.stride(), 1, |_, first, piece| layout.pack(b, false, first, piece))
        })?;
        Ok(())
    }
}

/// Values of scratch memory of a direction.
struct Room {
    /// Codes of the input's or the state's rows.
    codes: usize,
    /// What `igemm` needs.
    gemm: usize,
    /// W and R, packed in each run.
    packing: [usize; 2],
}

/// Values of f32 that so many bytes take.
fn values(bytes: usize) -> usize {
    bytes.div_ceil(64).saturating_mul(16)
}

impl Room {
    fn total(&self) -> usize {
        [self.codes, self.gemm, self.packing[0], self.packing[1]].iter().fold(0, |sum: usize, &n| sum.saturating_add(n))
    }
}

impl Dynamic {
    /// The products of W and of R for so many rows of the input.
    fn gemms(&self, sizes: &Sizes) -> [IGemm; 2] {
        let &Sizes { batch, input, hidden, gates, chunk, .. } = sizes;
        let isa = self.network.isa;
        [IGemm::new(isa, chunk.saturating_mul(batch), gates, input), IGemm::new(isa, batch, gates, hidden)]
    }

    fn room(&self, sizes: &Sizes) -> Room {
        let &Sizes { batch, input, hidden, chunk, .. } = sizes;
        let gemms = self.gemms(sizes);
        let rows = chunk.saturating_mul(batch).saturating_mul(input);
        let packing = |k: usize| if self.packed[k] { 0 } else { values(gemms[k].packed_b().size()) };
        Room {
            codes: values(rows.max(batch.saturating_mul(hidden))),
            gemm: values(gemms[0].scratch_len().max(gemms[1].scratch_len())),
            packing: [packing(0), packing(1)],
        }
    }
}

pub(super) fn dynamic(op: &Dynamic, sizes: &Sizes, args: &mut Args<'_>) -> Result<(), Fault> {
    let side = |which: usize| {
        let Side { weights, scale, zero } = SIDES[which];
        Tables { weights: args.input(weights), scale: args.input(scale), zero: args.input(zero) }
    };
    let source = Quantized { op, sizes, x: args.input(0), sides: [side(0), side(1)] };
    walk(&op.network, sizes, ENDS, args, &source)
}

/// Weights of all directions with their scales.
#[derive(Debug, Clone, Copy)]
struct Tables<'a> {
    weights: &'a [u8],
    scale: &'a [f32],
    zero: &'a [u8],
}

struct Quantized<'a> {
    op: &'a Dynamic,
    sizes: &'a Sizes,
    x: &'a [f32],
    sides: [Tables<'a>; 2],
}

impl Source for Quantized<'_> {
    type Weights<'s>
        = Lane<'s>
    where
        Self: 's;

    fn scratch_len(&self, _: usize) -> usize {
        self.op.room(self.sizes).total()
    }

    fn weights<'s>(
        &'s self,
        direction: usize,
        scratch: &'s mut [f32],
        par: &'s dyn Parallel,
    ) -> Result<Lane<'s>, Fault> {
        let room = self.op.room(self.sizes);
        let (codes, scratch) = scratch.split_at_mut(room.codes);
        let (gemm, scratch) = scratch.split_at_mut(room.gemm);
        let (first, second) = scratch.split_at_mut(room.packing[0]);
        let isa = self.op.network.isa;
        Ok(Lane {
            sizes: self.sizes,
            op: self.op,
            x_scale: Scale::of(simd::min(isa, self.x), simd::max(isa, self.x)),
            sides: [self.side(0, direction, first, par)?, self.side(1, direction, second, par)?],
            codes: bytes::of_mut(codes),
            scratch: bytes::of_mut(gemm),
            par,
        })
    }
}

impl Quantized<'_> {
    /// A direction's W (0) or R (1).
    fn side<'s>(
        &'s self,
        which: usize,
        direction: usize,
        packing: &'s mut [f32],
        par: &dyn Parallel,
    ) -> Result<(Right<'s>, Factor<'s>), Fault> {
        let &Sizes { directions, gates, .. } = self.sizes;
        let Tables { weights, scale, zero } = self.sides[which];
        let layout = self.op.gemms(self.sizes)[which].packed_b();
        let signed = self.op.signed[which];
        let packed = if self.op.packed[which] {
            &weights[direction * layout.size()..][..layout.size()]
        } else {
            let len = weights.len() / directions.max(1);
            let b = Bytes { data: &weights[direction * len..][..len], signed };
            let to = &mut bytes::of_mut(packing)[..layout.size()];
            split::rows(par, to, layout.stride(), 1, |_, first, piece| layout.pack(b, false, first, piece))?;
            &*to
        };
        let zeros = Bytes { data: zero, signed };
        let zero = match zero.len() == directions {
            true => Zero::All(zeros.get(direction)),
            false => Zero::Each(Bytes { data: &zero[direction * gates..][..gates], signed }),
        };
        let factor = match scale.len() == directions {
            true => Factor::All(scale[direction]),
            false => Factor::Each(&scale[direction * gates..][..gates]),
        };
        Ok((Right { packed, signed, zero }, factor))
    }
}

/// A direction's weights.
struct Lane<'s> {
    sizes: &'s Sizes,
    op: &'s Dynamic,
    x_scale: Scale,
    sides: [(Right<'s>, Factor<'s>); 2],
    codes: &'s mut [u8],
    scratch: &'s mut [u8],
    par: &'s dyn Parallel,
}

impl Lane<'_> {
    fn product(
        &mut self,
        which: usize,
        a: &[f32],
        scale: Scale,
        (bias, add): (Option<&[f32]>, bool),
        to: Target<'_>,
    ) -> Result<(), Fault> {
        let isa = self.op.network.isa;
        let k = if which == 0 { self.sizes.input } else { self.sizes.hidden };
        let codes = &mut self.codes[..a.len()];
        scale.quantize(isa, a, codes);
        let (right, column) = self.sides[which];
        let left = Left { a: Bytes { data: codes, signed: false }, zero: Zero::All(scale.zero.into()) };
        let finish = Finish::Floats { row: Factor::All(scale.scale), column, bias, add };
        let gemm = IGemm::new(isa, to.rows, self.sizes.gates, k);
        Ok(gemm.run(left, right, &finish, Product::F32(to.data), to.step, self.scratch, self.par)?)
    }
}

impl Weights for Lane<'_> {
    fn input(&mut self, x: &[f32], bias: &[f32], to: Target<'_>) -> Result<(), Fault> {
        self.product(0, x, self.x_scale, (Some(bias), false), to)
    }

    fn state(&mut self, _: Part, state: &[f32], bias: Option<&[f32]>, to: Target<'_>) -> Result<(), Fault> {
        let isa = self.op.network.isa;
        let scale = Scale::of(simd::min(isa, state), simd::max(isa, state));
        self.product(1, state, scale, (bias, bias.is_none()), to)
    }
}
