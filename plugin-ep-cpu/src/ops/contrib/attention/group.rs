//! `GroupQueryAttention`: keys and values go to caches first, turned to their places if they are to be, and queries look at
//! the caches.
//!
//! A cache is the past with new rows behind it. How many of its rows each sequence has is told at run time.

use super::cache::{self, Scales, Store};
use super::mask::{Bound as MaskBound, Masking};
use super::{attention, even, in_caches, in_rows, refuse};
use crate::ops::attention::heads::{Bound as Inner, Heads};
use crate::ops::attention::rotary::Turn;
use crate::ops::attention::work::Work;
use crate::ops::attention::{Attention, Stage, heads};
use crate::ops::float::agree;
use crate::ops::{GRAIN, cost};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, bytes, size, split};

pub(in crate::ops::contrib) struct Group {
    attention: Attention,
    heads: [usize; 2],
    /// Queries, keys and values come in one tensor.
    packed: bool,
    past: bool,
    /// Places are turned in; pairs are neighbours.
    turned: bool,
    neighbours: bool,
    /// Every head has a sink of score 0.
    smooth: bool,
    masking: Masking,
    store: Store,
}

#[derive(Default)]
pub(in crate::ops::contrib) struct Bound {
    inner: Inner,
    mask: MaskBound,
    /// Where new keys and values lie, and where keys, values and the past begin: rows of a past and of a present.
    pub new: Heads,
    starts: [usize; 2],
    pub past: usize,
    pub present: usize,
    /// Angles of a row of the caches, and rows of them.
    pairs: usize,
    angles: usize,
}

const PAST: [usize; 2] = [3, 4];
const LENS: usize = 5;
const TOTAL: usize = 6;
const COS: usize = 7;
const SIN: usize = 8;
const PLACES: usize = 9;
const ADDED: usize = 10;
const SINKS: usize = 11;
const SCALES: [usize; 2] = [12, 13];
const NEW: usize = 16;
/// What has no input here: a mask of keys.
const NONE: usize = usize::MAX;

impl Op for Group {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        refuse(node, "sliding_window_cache", "caches hold whole sequences here")?;
        for (input, name) in [(14, "q_norm_weight"), (15, "k_norm_weight")] {
            if node.input(input).is_some() {
                return Err(Reject::shape(format!("input {input} ({name}) has no kernel")));
            }
        }
        let [heads, kv_heads] = [heads(node, "num_heads")?, heads(node, "kv_num_heads")?];
        if !heads.is_multiple_of(kv_heads) {
            return Err(Reject::attribute(format!(
                "attribute num_heads = {heads} is no multiple of {kv_heads} kv_num_heads"
            )));
        }
        let (packed, past) = (node.input(1).is_none(), node.input(PAST[0]).is_some());
        if packed != node.input(2).is_none() || past != node.input(PAST[1]).is_some() {
            return Err(Reject::shape("keys and values come together, one of them is missing"));
        }
        let store = Store::parse(node, [1, 2])?;
        for scale in SCALES.into_iter().filter(|_| store != Store::Floats) {
            node.needs(scale)?;
        }
        let turned = node.int_if("do_rotary").unwrap_or(0) != 0;
        if turned && (node.input(COS).is_none() || node.input(SIN).is_none()) {
            return Err(Reject::shape("attribute do_rotary needs cos_cache and sin_cache"));
        }
        let masking = Masking::parse(node, NONE, Some(ADDED))?;
        let mut attention = attention(node, [heads, kv_heads]);
        attention.causal = node.int("causal")? != 0;
        attention.cap = node.float_if("softcap").unwrap_or(0.0);
        attention.mask = masking.kind();
        attention.window[0] = match node.int("local_window_size")? {
            -1 => None,
            n if n > 0 && attention.causal => Some(size(n - 1)),
            n => return Err(Reject::attribute(format!("attribute local_window_size = {n} is not a number of keys"))),
        };
        attention.shown = match (node.int("qk_output")?, node.output(3).is_some()) {
            (1, true) => Stage::Biased,
            (2, true) => Stage::Soft,
            (_, false) => Stage::Biased,
            (n, true) => {
                return Err(Reject::attribute(format!("attribute qk_output = {n} does not say what output 3 is")));
            }
        };
        Ok(Group {
            attention,
            heads: [heads, kv_heads],
            packed,
            past,
            turned,
            neighbours: node.int_if("rotary_interleaved").unwrap_or(0) != 0,
            smooth: node.int("smooth_softmax")? > 0,
            masking,
            store,
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(y), Some(present)) = (node.output(0), node.output(1)) else { return Cost::UNKNOWN };
        cost::products(node, y.elements() * 2.0 * present.dim(2).map_or(f64::NAN, |n| n as f64))
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let [heads, kv_heads] = self.heads;
        let (q, present) = (shapes.input(0), shapes.output(1));
        let misfit = || {
            let all = [0, 1, 2, PAST[0], PAST[1]].map(|i| shapes.input(i));
            Fault::data(format!(
                "query, key, value and past of {all:?} do not fit each other and a present of {present:?}"
            ))
        };
        let (&[batch, len, row], &[_, _, room, width]) = (q, present) else { return Err(misfit()) };
        let ([batch, len, row], [room, own]) = ([batch, len, row].map(size), [room, width].map(size));
        let width = own * self.store.numbers();
        let parts = if self.packed { heads + 2 * kv_heads } else { heads };
        if row != parts * width || present.iter().map(|&d| size(d)).ne([batch, kv_heads, room, own]) {
            return Err(misfit());
        }
        let queries = in_rows(batch, heads, len, width, row);
        (bound.new, bound.starts) = if self.packed {
            (in_rows(batch, kv_heads, len, width, row), [heads * width, (heads + kv_heads) * width])
        } else {
            let own = |i: usize| shapes.input(i).iter().map(|&d| size(d)).eq([batch, len, kv_heads * width]);
            if !own(1) || !own(2) {
                return Err(misfit());
            }
            (in_rows(batch, kv_heads, len, width, kv_heads * width), [0; 2])
        };
        bound.past = 0;
        if self.past {
            bound.past = shapes.input(PAST[0]).get(2).map_or(0, |&d| size(d));
            let fits = |i: usize| shapes.input(i).iter().map(|&d| size(d)).eq([batch, kv_heads, bound.past, own]);
            if !fits(PAST[0]) || !fits(PAST[1]) {
                return Err(misfit());
            }
        }
        bound.present = room;
        agree("present_value", shapes.output_len(2), shapes.output_len(1))?;
        agree("output 0", shapes.output_len(0), batch * heads * len * width)?;
        agree("seqlens_k", shapes.input_len(LENS), batch)?;
        agree("total_sequence_length", shapes.input_len(TOTAL), 1)?;
        // Turned queries are copies by heads.
        let q = if self.turned { in_caches(batch, heads, len, width, len) } else { queries };
        let total = shapes.elements(TOTAL).and_then(|t| t.first()).map_or(room, |&total| size(total)).min(room);
        let none = in_caches(batch, kv_heads, 0, width, 0);
        let kept = in_caches(batch, kv_heads, total, width, room);
        let y = in_rows(batch, heads, len, width, heads * width);
        bound.inner.lay(q, [none, kept], [none, kept], y, self.attention.scale);
        self.masking.bind(shapes, &mut bound.inner, &mut bound.mask)?;
        for scales in SCALES.into_iter().filter(|_| self.store != Store::Floats) {
            Scales::bind(shapes, scales, kv_heads, width)?;
        }
        if shapes.has(SINKS) {
            agree("head_sink", shapes.input_len(SINKS), heads)?;
        }
        if shapes.has(NEW) {
            agree("query_seqlens", shapes.input_len(NEW), batch)?;
        }
        if !shapes.output(3).is_empty() {
            agree("output_qk", shapes.output_len(3), bound.inner.queries() * total)?;
        }
        if self.turned { self.bind_angles(shapes, bound) } else { Ok(()) }
    }

    /// Lengths and starts of the sequences, sinks, turned queries, caches as floats, and what the core needs.
    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let words = 4usize.saturating_mul(even(bound.inner.q.batch)).saturating_add(even(self.heads[0]));
        let inner = bound.inner.scratch(self.attention.isa, width);
        let caches = 2usize.saturating_mul(self.wide(bound));
        [self.room(bound), caches, inner]
            .into_iter()
            .fold(words, usize::saturating_add)
            .saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Bound) -> u64 {
        bound.inner.flops()
    }
}

impl Group {
    fn bind_angles(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let caches = shapes.input(COS);
        let &[angles, pairs] = caches else { return Err(Fault::data("cos_cache has two dimensions")) };
        (bound.angles, bound.pairs) = (size(angles), size(pairs));
        if 2 * bound.pairs > bound.new.size {
            let width = bound.new.size;
            return Err(Fault::data(format!("heads of {width} are not turned by {} angles", bound.pairs)));
        }
        agree("sin_cache", shapes.input_len(SIN), shapes.input_len(COS))?;
        match shapes.has(PLACES) {
            true => agree("position_ids", shapes.input_len(PLACES), bound.inner.q.batch * bound.inner.q.len),
            false => Ok(()),
        }
    }

    /// Values of turned queries.
    fn room(&self, bound: &Bound) -> usize {
        if self.turned { even(bound.inner.queries().saturating_mul(bound.new.size)) } else { 0 }
    }

    /// Values of a cache as floats, if it is of codes.
    fn wide(&self, bound: &Bound) -> usize {
        let Heads { batch, heads, size, .. } = bound.new;
        self.store.room(batch.saturating_mul(heads).saturating_mul(bound.present).saturating_mul(size))
    }

    /// How many keys each sequence has, and how many of them are from before.
    fn lengths(&self, bound: &Bound, args: &Args<'_>, ends: &mut [i64], starts: &mut [i64]) -> Result<(), Fault> {
        let (lens, total) = (args.input::<i32>(LENS), i64::from(args.input::<i32>(TOTAL)[0]));
        let (len, room) = (bound.inner.q.len as i64, bound.present as i64); // dimensions
        let new = args.input_if::<i32>(NEW);
        let first = new.is_none() && total == len;
        for (b, (end, start)) in ends.iter_mut().zip(starts.iter_mut()).enumerate() {
            *end = i64::from(lens[b]).saturating_add(1);
            let own = new.map_or(len.min(*end), |new| i64::from(new[b]));
            *start = if first { 0 } else { *end - own };
            let held = *start <= bound.past as i64; // a dimension
            if *end < 1
                || *end > bound.inner.total as i64
                || *start < 0
                || own < 0
                || own > len
                || !held
                || *start + own > room
            {
                let (past, all) = (bound.past, bound.inner.total);
                return Err(Fault::data(format!(
                    "input {LENS} (seqlens_k) holds {} at {b}: {own} new keys behind {past} of the past are not {end} of {all}",
                    lens[b]
                )));
            }
        }
        Ok(())
    }
}

/// What turns rows: nothing, or angles by place.
struct Angles<'a> {
    isa: Isa,
    tables: Option<[&'a [f32]; 2]>,
    pairs: usize,
    rows: usize,
    neighbours: bool,
    places: Option<&'a [i64]>,
    len: usize,
    starts: &'a [i64],
}

impl Angles<'_> {
    /// The place of a token; `None` if the caches lack it.
    fn place(&self, batch: usize, token: usize) -> Option<usize> {
        let place = match self.places {
            Some(places) => places[batch * self.len + token],
            None => self.starts[batch].saturating_add(i64::try_from(token).ok()?),
        };
        usize::try_from(place).ok().filter(|&place| place < self.rows)
    }

    /// Refuses places beyond the caches of tokens that are no padding.
    fn check(&self, ends: &[i64]) -> Result<(), Fault> {
        if self.tables.is_none() {
            return Ok(());
        }
        for (b, (start, end)) in self.starts.iter().zip(ends).enumerate() {
            let own = size(end - start).min(self.len);
            if let Some(token) = (0..own).find(|&token| self.place(b, token).is_none()) {
                let rows = self.rows;
                return Err(Fault::data(format!(
                    "token {token} of sequence {b} has a place beyond the {rows} rows of the caches"
                )));
            }
        }
        Ok(())
    }

    /// Copies a row of a head, turned.
    fn turn(&self, batch: usize, token: usize, x: &[f32], y: &mut [f32]) {
        let place = self.place(batch, token).unwrap_or(0) * self.pairs; // padding may have none
        match self.tables {
            None => y.copy_from_slice(x),
            Some([cos, sin]) => {
                let (cos, sin) = (&cos[place..][..self.pairs], &sin[place..][..self.pairs]);
                self.isa.dispatch(Turn { x, y, cos, sin, neighbours: self.neighbours });
            }
        }
    }
}

pub(in crate::ops::contrib) fn group(op: &Group, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (par, Heads { batch, heads, len, .. }) = (args.par(), bound.inner.q);
    let words = 4 * even(batch);
    let (lens, rest) = args.scratch::<f32>().split_at_mut(words);
    let (ends, starts) = bytes::elements_mut::<i64>(bytes::of_mut(lens)).split_at_mut(words / 4);
    let (ends, starts) = (&mut ends[..batch], &mut starts[..batch]);
    op.lengths(bound, args, ends, starts)?;
    let (ends, starts): (&[i64], &[i64]) = (ends, starts);
    let (smooth, rest) = rest.split_at_mut(even(heads));
    let (turned, rest) = rest.split_at_mut(op.room(bound));
    let (wide, scratch) = rest.split_at_mut(2 * op.wide(bound));
    let angles = Angles {
        isa: op.attention.isa,
        tables: op.turned.then(|| [args.input(COS), args.input(SIN)]),
        pairs: bound.pairs,
        rows: bound.angles,
        neighbours: op.neighbours,
        places: args.input_if::<i64>(PLACES).filter(|_| op.turned),
        len,
        starts,
    };
    angles.check(ends)?;
    let [k, v] = keep(op, bound, args, &angles, wide)?;
    let smooth = &mut smooth[..heads];
    smooth.fill(0.0);
    let sinks: &[f32] = args.input_if::<f32>(SINKS).unwrap_or(if op.smooth { smooth } else { &[] });
    let whole = args.wants(3);
    let work = Work {
        op: &op.attention,
        bound: &bound.inner,
        q: queries(op, bound, args, &angles, turned)?,
        k: [&[], k],
        v: [&[], v],
        added: op.masking.fill(&bound.mask, args, &mut [])?,
        seen: &[],
        lengths: ends,
        starts,
        sinks,
        whole,
    };
    let shown = if whole { args.output::<f32>(3) } else { &mut [] };
    work.run(par, args.output::<f32>(0), &mut *shown, scratch)?;
    work.cover(par, shown, 0.0)
}

/// Keys and values of the presents, which are made, as floats; `wide` has room for them where they are kept as codes.
fn keep<'a>(
    op: &Group,
    bound: &Bound,
    args: &mut Args<'a>,
    angles: &Angles<'_>,
    wide: &'a mut [f32],
) -> Result<[&'a [f32]; 2], Fault> {
    let (par, starts, q) = (args.par(), angles.starts, args.input::<f32>(0));
    let [new_k, new_v] = if op.packed { [q, q] } else { [args.input::<f32>(1), args.input::<f32>(2)] };
    let new_k = new_k.get(bound.starts[0]..).unwrap_or(&[]);
    let new_v = new_v.get(bound.starts[1]..).unwrap_or(&[]);
    let turn = |b: usize, token: usize, x: &[f32], y: &mut [f32]| angles.turn(b, token, x, y);
    let copy = |_: usize, _: usize, x: &[f32], y: &mut [f32]| y.copy_from_slice(x);
    if op.store == Store::Floats {
        let past = PAST.map(|i| args.input_if::<f32>(i).unwrap_or(&[]));
        let (k, v) = (args.output::<f32>(1), args.output::<f32>(2));
        cache::floats(par, bound, past[0], new_k, starts, turn, k)?;
        cache::floats(par, bound, past[1], new_v, starts, copy, v)?;
        return Ok([k, v]);
    }
    let Heads { batch, heads, size: width, .. } = bound.new;
    let values = batch * heads * bound.present * width;
    let (wide_k, wide_v) = wide.split_at_mut(wide.len() / 2);
    let (wide_k, wide_v) = (&mut wide_k[..values], &mut wide_v[..values]);
    cache::floats(par, bound, &[], new_k, starts, turn, wide_k)?;
    cache::floats(par, bound, &[], new_v, starts, copy, wide_v)?;
    for (which, wide) in [&mut *wide_k, &mut *wide_v].into_iter().enumerate() {
        let past = args.input_if::<u8>(PAST[which]).unwrap_or(&[]);
        let scales = Scales::read(args, SCALES[which]);
        cache::codes((par, op.store), bound, past, (starts, scales), wide, args.output::<u8>(1 + which))?;
    }
    Ok([wide_k, wide_v])
}

/// Queries as they are multiplied: copies by heads if they are turned.
fn queries<'a>(
    op: &Group,
    bound: &Bound,
    args: &Args<'a>,
    angles: &Angles<'_>,
    turned: &'a mut [f32],
) -> Result<&'a [f32], Fault> {
    let q = args.input::<f32>(0);
    if !op.turned {
        return Ok(q);
    }
    let Heads { batch, heads, len, size: width, .. } = bound.inner.q;
    let row = if op.packed { (heads + 2 * op.heads[1]) * width } else { heads * width };
    let lies = in_rows(batch, heads, len, width, row);
    let turned = &mut turned[..batch * heads * len * width];
    split::rows(args.par(), turned, width, GRAIN.div_ceil(width.max(1)), |_, first, rows| {
        for (k, y) in rows.chunks_exact_mut(width.max(1)).enumerate() {
            let (unit, token) = ((first + k) / len, (first + k) % len);
            angles.turn(unit / heads, token, &q[lies.at(unit / heads, unit % heads, token)..][..width], y);
        }
    })?;
    Ok(turned)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::testing::{OpTest, Tensor};
    use ortolan_ep_kit::{DType, RejectCode};

    fn token(lens: &[i32]) -> OpTest {
        let batch = lens.len() as i64;
        let (q, k) = (Tensor::random(&[batch, 1, 16], 1), Tensor::random(&[batch, 1, 8], 2));
        let past = Tensor::random(&[batch, 1, 4, 8], 3);
        let case =
            Case::new("GroupQueryAttention", 1).domain("com.microsoft").int("num_heads", 2).int("kv_num_heads", 1);
        let case = case.int("causal", 1).int("local_window_size", -1).int("qk_output", 0).int("smooth_softmax", -1);
        let case = case.input(&q).input(&k).input(&k).input(&past).input(&past);
        case.input(&Tensor::new(&[batch], lens)).input(&Tensor::new(&[], &[5i32]))
    }

    #[test]
    fn lengths_beyond_the_cache_are_an_error() {
        let run = |lens: &[i32]| {
            let batch = lens.len() as i64;
            let case = token(lens).output(DType::F32, &[batch, 1, 16]);
            case.output(DType::F32, &[batch, 1, 5, 8]).output(DType::F32, &[batch, 1, 5, 8]).try_run()
        };
        assert!(run(&[4, 2]).is_ok());
        for (lens, part) in [([4, 5], "holds 5 at 1"), ([-1, 4], "holds -1 at 0"), ([i32::MAX, 0], "at 0")] {
            let error = run(&lens).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn caches_of_another_kind_than_stated_are_refused() {
        let case = token(&[4]).text("k_quant_type", "PER_TENSOR").output(DType::F32, &[1, 1, 16]);
        let case = case.output(DType::F32, &[1, 1, 5, 8]).output(DType::F32, &[1, 1, 5, 8]);
        let (code, text) = case.rejection();
        assert_eq!(code, RejectCode::Attribute);
        assert!(text.contains("caches are f32"), "{text}");
    }
}
