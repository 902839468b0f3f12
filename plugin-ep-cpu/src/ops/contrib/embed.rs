//! `EmbedLayerNormalization`: rows of up to three tables, added and normalized, and how many words each sequence has.

use crate::ops::float::agree;
use crate::ops::lane::Side;
use crate::ops::norm::row::{self, Affine, NONE, affine};
use crate::ops::value::Value;
use crate::ops::workers::Workers;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

pub(super) struct Embed {
    isa: Isa,
    epsilon: f32,
}

#[derive(Debug, Default)]
pub(super) struct Sizes {
    batch: usize,
    len: usize,
    width: usize,
    /// Rows of the tables of words, places and segments.
    tables: [usize; 3],
    /// Places are given for each sequence.
    own_places: bool,
}

const IDS: usize = 0;
const SEGMENTS: usize = 1;
/// Tables of words, places and segments.
const TABLES: [usize; 3] = [2, 3, 4];
const GAMMA: usize = 5;
const BETA: usize = 6;
const MASK: usize = 7;
const PLACES: usize = 8;

impl Op for Embed {
    type Bound = Sizes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (i, rank) in [(IDS, 2), (TABLES[0], 2), (TABLES[1], 2), (GAMMA, 1), (BETA, 1)] {
            let have = node.needs(i)?.rank();
            if have != rank {
                return Err(Reject::rank(format!("input {i} has rank {have}, {rank} is needed")));
            }
        }
        if node.input(SEGMENTS).is_some() != node.input(TABLES[2]).is_some() {
            return Err(Reject::shape("segment_ids and segment_embedding come together, one is missing"));
        }
        Ok(Embed { isa: Cpu::of(node).isa, epsilon: node.float("epsilon")? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.3)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Sizes) -> Result<(), Fault> {
        let (&[batch, len], &[_, width]) = (shapes.input(IDS), shapes.input(TABLES[0])) else {
            return Err(Fault::data("input_ids and word_embedding have two dimensions"));
        };
        let (batch, len, width) = (size(batch), size(len), size(width));
        let rows = TABLES.map(|i| shapes.input(i).first().map_or(0, |&d| size(d)));
        for (k, input) in TABLES.into_iter().enumerate() {
            if shapes.has(input) {
                agree("a table", shapes.input_len(input), rows[k] * width)?;
            }
        }
        agree("gamma", shapes.input_len(GAMMA), width)?;
        agree("beta", shapes.input_len(BETA), width)?;
        for (input, name) in [(SEGMENTS, "segment_ids"), (MASK, "mask")] {
            if shapes.has(input) {
                agree(name, shapes.input_len(input), batch * len)?;
            }
        }
        let own_places = shapes.input_len(PLACES) == batch * len;
        if shapes.has(PLACES) && !own_places {
            agree("position_ids", shapes.input_len(PLACES), len)?;
        }
        if !shapes.has(PLACES) && rows[1] < len {
            return Err(Fault::data(format!("position_embedding has {} rows for {len} places", rows[1])));
        }
        for (output, need) in [(0, batch * len * width), (1, batch), (2, batch * len * width)] {
            if !shapes.output(output).is_empty() {
                agree("an output", shapes.output_len(output), need)?;
            }
        }
        *bound = Sizes { batch, len, width, tables: rows, own_places };
        Ok(())
    }

    /// A row in f32 for each worker.
    fn scratch(&self, bound: &Sizes, width: usize) -> usize {
        bound.width.saturating_mul(width).saturating_mul(size_of::<f32>())
    }
}

/// Ids that are all rows of their table.
fn ids<'a>(args: &Args<'a>, input: usize, name: &str, rows: usize) -> Result<Option<&'a [i32]>, Fault> {
    let Some(ids) = args.input_if::<i32>(input) else { return Ok(None) };
    let outside = |id: &i32| usize::try_from(*id).map_or(true, |id| id >= rows);
    match ids.iter().enumerate().find(|(_, id)| outside(id)) {
        Some((at, id)) => {
            Err(Fault::data(format!("input {input} ({name}) holds {id} at {at}, its table has {rows} rows")))
        }
        None => Ok(Some(ids)),
    }
}

pub(super) fn embed<T: Value<Wide = f32>>(op: &Embed, sizes: &Sizes, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Sizes { batch, len, width, tables, own_places } = sizes;
    let words = ids(args, IDS, "input_ids", tables[0])?.unwrap_or(&[]);
    let segments = ids(args, SEGMENTS, "segment_ids", tables[2])?;
    let places = ids(args, PLACES, "position_ids", tables[1])?;
    let [table, place_table] = [TABLES[0], TABLES[1]].map(|i| args.input::<T>(i));
    let segment_table = args.input_if::<T>(TABLES[2]).unwrap_or(&[]);
    let (gamma, beta) = (args.input::<T>(GAMMA), args.input::<T>(BETA));
    let sum = |at: usize, to: &mut [f32]| {
        let row = |id: i32| {
            let start = usize::try_from(id).unwrap_or(0) * width; // checked above
            start..start + width
        };
        let place = match places {
            Some(places) => places[if own_places { at } else { at % len }],
            None => i32::try_from(at % len).unwrap_or(i32::MAX),
        };
        let word = &table[row(words[at])];
        let place = &place_table[row(place)];
        let segment = segments.map(|ids| &segment_table[row(ids[at])]);
        for (k, to) in to.iter_mut().enumerate() {
            *to = word[k].wide() + segment.map_or(0.0, |s| s[k].wide()) + place[k].wide();
        }
    };
    let grain = GRAIN.div_ceil(width.max(1));
    let workers = Workers::new(args.scratch::<f32>(), width);
    let par = args.par();
    split::rows(par, args.output::<T>(0), width, grain, |worker, first, piece| {
        workers.with(worker, |line| {
            for (k, y) in piece.chunks_exact_mut(width.max(1)).enumerate() {
                sum(first + k, line);
                let mean = row::mean(op.isa, line);
                let inverse = (row::variance(op.isa, line, mean) + op.epsilon).sqrt().recip();
                let (scale, bias) = (Side::Scalar(1.0), Side::Scalar(0.0));
                affine(op.isa, None, line, Affine { mean, inverse, scale, bias, floor: NONE });
                for (i, y) in y.iter_mut().enumerate() {
                    *y = T::of(line[i] * gamma[i].wide() + beta[i].wide());
                }
            }
        });
    })?;
    if args.wants(2) {
        split::rows(par, args.output::<T>(2), width, grain, |worker, first, piece| {
            workers.with(worker, |line| {
                for (k, y) in piece.chunks_exact_mut(width.max(1)).enumerate() {
                    sum(first + k, line);
                    y.iter_mut().zip(&*line).for_each(|(y, &x)| *y = T::of(x));
                }
            });
        })?;
    }
    if args.wants(1) {
        let mask = args.input_if::<i32>(MASK);
        for (k, y) in args.output::<i32>(1).iter_mut().enumerate().take(batch) {
            let seen = mask.map_or(0, |mask| mask[k * len..][..len].iter().filter(|&&m| m == 1).count());
            *y = i32::try_from(seen).unwrap_or(i32::MAX);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::Tensor;

    #[test]
    fn ids_beyond_a_table_are_an_error() {
        let table = Tensor::random(&[3, 4], 1);
        let row = Tensor::random(&[4], 2);
        for (bad, text) in [(3, "holds 3 at 1, its table has 3 rows"), (-1, "holds -1 at 1")] {
            let ids = Tensor::new(&[1, 2], &[0i32, bad]);
            let case = Case::new("EmbedLayerNormalization", 1).domain("com.microsoft").float("epsilon", 1e-12);
            let case = case.input(&ids).skip().input(&table).input(&table).skip().input(&row).input(&row);
            let error = case.output(DType::F32, &[1, 2, 4]).try_run().unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
