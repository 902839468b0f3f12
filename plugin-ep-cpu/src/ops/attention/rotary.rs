//! Positions in queries and keys: pairs of numbers of each head are turned by the angle of their place.

use super::heads;
use crate::ops::float::agree;
use crate::ops::value::Value;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// `(x, y)` becomes `(cos x - sin y, sin x + cos y)`.
pub(crate) struct Rotary {
    isa: Isa,
    /// Heads on the last axis of rank 3; `None` when they have an axis.
    heads: Option<usize>,
    /// Numbers of a head that take part; 0 for all.
    turned: usize,
    /// Pairs are neighbours; else the halves of what takes part.
    neighbours: bool,
    /// Angles are looked up by position.
    positions: bool,
}

/// Heads and sequence, and pairs of a head.
#[derive(Default)]
pub(crate) struct Bound {
    heads: usize,
    len: usize,
    width: usize,
    pairs: usize,
    /// Rows of the caches.
    angles: usize,
}

impl Op for Rotary {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let heads = match node.needs(0)?.rank() {
            3 => Some(heads(node, "num_heads")?),
            4 => None,
            rank => return Err(Reject::rank(format!("input 0 has rank {rank}, 3 and 4 are possible"))),
        };
        let positions = node.input(3).is_some();
        let rank = if positions { 2 } else { 3 };
        for (i, name) in [(1, "cos_cache"), (2, "sin_cache")] {
            let have = node.needs(i)?.rank();
            if have != rank {
                return Err(Reject::rank(format!("input {i} ({name}) has rank {have}, {rank} is needed")));
            }
        }
        let dim = node.int("rotary_embedding_dim")?;
        let turned = usize::try_from(dim).ok().filter(|n| n.is_multiple_of(2));
        let turned = turned.ok_or_else(|| {
            Reject::attribute(format!("attribute rotary_embedding_dim = {dim} is not an even number of elements"))
        })?;
        Ok(Rotary { isa: Cpu::of(node).isa, heads, turned, neighbours: node.int("interleaved")? != 0, positions })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.2)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let x = shapes.input(0);
        let (batch, heads, len, width) = match (x, self.heads) {
            (&[batch, heads, len, width], None) => (size(batch), size(heads), size(len), size(width)),
            (&[batch, len, all], Some(n)) if size(all).is_multiple_of(n) => (size(batch), n, size(len), size(all) / n),
            _ => return Err(Fault::data(format!("input 0 of dimensions {x:?} does not hold the heads"))),
        };
        let turned = if self.turned == 0 { width } else { self.turned };
        if turned > width || !turned.is_multiple_of(2) {
            return Err(Fault::data(format!("{turned} elements of heads of {width} can't be turned in pairs")));
        }
        let pairs = turned / 2;
        for input in 1..3 {
            let last = shapes.input(input).last().map_or(0, |&d| size(d));
            if last != pairs {
                return Err(Fault::data(format!("input {input} has {last} angles, there are {pairs} pairs")));
            }
        }
        let angles = shapes.input(1).iter().rev().skip(1).map(|&d| size(d)).product();
        agree("sin_cache", shapes.input_len(2), shapes.input_len(1))?;
        match self.positions {
            true => agree("position_ids", shapes.input_len(3), batch * len)?,
            false => agree("cos_cache", shapes.input_len(1), batch * len * pairs)?,
        }
        agree("output 0", shapes.output_len(0), shapes.input_len(0))?;
        *bound = Bound { heads, len, width, pairs, angles };
        Ok(())
    }
}

pub(super) fn rotary<T: Value<Wide = f32>>(op: &Rotary, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Bound { heads, len, width, pairs, angles } = bound;
    let (x, cos, sin) = (args.input::<T>(0), args.input::<T>(1), args.input::<T>(2));
    let ids = if op.positions { Some(args.input::<i64>(3)) } else { None };
    let outside = |id: &i64| usize::try_from(*id).map_or(true, |id| id >= angles);
    if let Some((at, id)) = ids.unwrap_or(&[]).iter().enumerate().find(|(_, id)| outside(id)) {
        return Err(Fault::data(format!("input 3 (position_ids) holds {id} at {at}, the caches have {angles} rows")));
    }
    let by_row = op.heads.is_some();
    let grain = GRAIN.div_ceil(width.max(1));
    Ok(split::rows(args.par(), args.output::<T>(0), width, grain, |_, first, rows| {
        for (k, y) in rows.chunks_exact_mut(width.max(1)).enumerate() {
            let at = first + k;
            let place = if by_row { at / heads } else { at / (heads * len) * len + at % len };
            let angle = ids.map_or(place, |ids| size(ids[place]));
            let x = &x[at * width..][..width];
            let (cos, sin) = (&cos[angle * pairs..][..pairs], &sin[angle * pairs..][..pairs]);
            op.isa.dispatch(Turn { x, y: &mut *y, cos, sin, neighbours: op.neighbours });
        }
    })?)
}

/// Turns the pairs at the front of `x`, as many as there are angles; the rest stays as it is.
pub(crate) struct Turn<'a, T> {
    pub x: &'a [T],
    pub y: &'a mut [T],
    pub cos: &'a [T],
    pub sin: &'a [T],
    /// Pairs are neighbours; else the halves of what takes part.
    pub neighbours: bool,
}

impl<T: Value<Wide = f32>> Kernel for Turn<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pairs = self.cos.len();
        let sin = &self.sin[..pairs];
        let (x, x_rest) = self.x.split_at(2 * pairs);
        let (y, y_rest) = self.y.split_at_mut(2 * pairs);
        y_rest.copy_from_slice(x_rest);
        if self.neighbours {
            for i in 0..pairs {
                let (c, s) = (self.cos[i].wide(), sin[i].wide());
                let (a, b) = (x[2 * i].wide(), x[2 * i + 1].wide());
                y[2 * i] = T::of(c * a - s * b);
                y[2 * i + 1] = T::of(s * a + c * b);
            }
            return;
        }
        let (left, right) = x.split_at(pairs);
        let (y_left, y_right) = y.split_at_mut(pairs);
        for i in 0..pairs {
            let (c, s) = (self.cos[i].wide(), sin[i].wide());
            let (a, b) = (left[i].wide(), right[i].wide());
            y_left[i] = T::of(c * a - s * b);
            y_right[i] = T::of(s * a + c * b);
        }
    }
}
