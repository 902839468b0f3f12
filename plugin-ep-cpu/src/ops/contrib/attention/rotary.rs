//! `RotaryEmbedding` of ONNX Runtime: as the standard's, but places come as a list or as the first one of each sequence.

use crate::ops::attention::rotary::Turn;
use crate::ops::float::agree;
use crate::ops::value::Value;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

pub(in crate::ops::contrib) struct Rotary {
    isa: Isa,
    /// Heads have an axis.
    by_heads: bool,
    /// Heads in a row; 0 where the caches tell how wide one is.
    heads: usize,
    neighbours: bool,
}

#[derive(Debug, Default)]
pub(in crate::ops::contrib) struct Sizes {
    len: usize,
    heads: usize,
    width: usize,
    pairs: usize,
    /// Rows of the caches.
    angles: usize,
    /// Each token has a place.
    each: bool,
}

impl Op for Rotary {
    type Bound = Sizes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let by_heads = match node.needs(0)?.rank() {
            3 => false,
            4 => true,
            rank => return Err(Reject::rank(format!("input 0 has rank {rank}, 3 and 4 are possible"))),
        };
        for (i, ranks) in [(1, 1..=2), (2, 2..=2), (3, 2..=2)] {
            let rank = node.needs(i)?.rank();
            if !ranks.contains(&rank) {
                return Err(Reject::rank(format!("input {i} has rank {rank}, possible is {ranks:?}")));
            }
        }
        let number = |name: &str| match node.int_if(name).unwrap_or(0) {
            n @ 0.. => Ok(size(n)),
            n => Err(Reject::attribute(format!("attribute {name} = {n} is negative"))),
        };
        let (heads, part) = (number("num_heads")?, number("rotary_embedding_dim")?);
        if part > 0 && heads == 0 {
            return Err(Reject::attribute("attribute rotary_embedding_dim needs num_heads"));
        }
        let neighbours = node.int_if("interleaved").unwrap_or(0) != 0;
        Ok(Rotary { isa: Cpu::of(node).isa, by_heads, heads: if part > 0 { heads } else { 0 }, neighbours })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.2)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Sizes) -> Result<(), Fault> {
        let (x, caches) = (shapes.input(0), shapes.input(2));
        let &[angles, pairs] = caches else { return Err(Fault::data("cos_cache has two dimensions")) };
        let (angles, pairs) = (size(angles), size(pairs));
        let (batch, heads, len, width) = match *x {
            [batch, heads, len, width] if self.by_heads => (size(batch), size(heads), size(len), size(width)),
            [batch, len, row] => {
                let width = size(row).checked_div(self.heads).unwrap_or(2 * pairs);
                (size(batch), size(row) / width.max(1), size(len), width)
            }
            _ => return Err(Fault::data(format!("input 0 of {x:?} has no heads"))),
        };
        if batch * heads * len * width != shapes.input_len(0) || 2 * pairs > width {
            return Err(Fault::data(format!("heads of {width} in {x:?} are not turned by {pairs} angles")));
        }
        agree("sin_cache", shapes.input_len(3), shapes.input_len(2))?;
        agree("output 0", shapes.output_len(0), shapes.input_len(0))?;
        let each = shapes.input(1).len() == 2;
        agree("position_ids", shapes.input_len(1), if each { batch * len } else { 1 })?;
        *bound = Sizes { len, heads, width, pairs, angles, each };
        Ok(())
    }
}

pub(in crate::ops::contrib) fn rotary<T: Value<Wide = f32>>(
    op: &Rotary,
    sizes: &Sizes,
    args: &mut Args<'_>,
) -> Result<(), Fault> {
    let &Sizes { len, heads, width, pairs, angles, each } = sizes;
    let (x, ids) = (args.input::<T>(0), args.input::<i64>(1));
    let (cos, sin) = (args.input::<T>(2), args.input::<T>(3));
    // The last place that a token has: each its own, or those behind the first one.
    let behind = if each { 0 } else { i64::try_from(len.saturating_sub(1)).unwrap_or(i64::MAX) };
    let outside = |id: &i64| *id < 0 || usize::try_from(id.saturating_add(behind)).map_or(true, |last| last >= angles);
    if let Some((at, id)) = ids.iter().enumerate().find(|(_, id)| outside(id)).filter(|_| !x.is_empty()) {
        return Err(Fault::data(format!("input 1 (position_ids) holds {id} at {at}, the caches have {angles} rows")));
    }
    let grain = GRAIN.div_ceil(width.max(1));
    Ok(split::rows(args.par(), args.output::<T>(0), width, grain, |_, first, rows| {
        for (k, y) in rows.chunks_exact_mut(width.max(1)).enumerate() {
            let at = first + k;
            let (batch, token) = match op.by_heads {
                true => (at / (heads * len), at % len),
                false => (at / (heads * len), at / heads % len),
            };
            let place = if each { size(ids[batch * len + token]) } else { size(ids[0]) + token };
            let (cos, sin) = (&cos[place * pairs..][..pairs], &sin[place * pairs..][..pairs]);
            op.isa.dispatch(Turn { x: &x[at * width..][..width], y, cos, sin, neighbours: op.neighbours });
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::Tensor;

    #[test]
    fn places_beyond_the_caches_are_an_error() {
        let x = Tensor::random(&[1, 3, 4], 1);
        let cache = Tensor::random(&[5, 2], 2);
        for (ids, text) in [
            (Tensor::new(&[1], &[3i64]), "holds 3 at 0, the caches have 5 rows"),
            (Tensor::new(&[1, 3], &[0i64, 5, 0]), "holds 5 at 1"),
            (Tensor::new(&[1, 3], &[0i64, 0, -1]), "holds -1 at 2"),
        ] {
            let case = Case::new("RotaryEmbedding", 1).domain("com.microsoft").input(&x).input(&ids);
            let error = case.input(&cache).input(&cache).output(DType::F32, &[1, 3, 4]).try_run().unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
