//! `MultiHeadAttention`: queries, keys and values apart or packed, with biases of the projections that made them.

use super::mask::{Bound as MaskBound, Masking};
use super::{attention, even, in_caches, in_rows};
use crate::ops::attention::heads::{Bound as Inner, Heads};
use crate::ops::attention::work::{Work, join};
use crate::ops::attention::{Attention, heads};
use crate::ops::float::agree;
use crate::ops::{GRAIN, cost};
use crate::simd::{self, Isa, Operand, ops};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

/// How queries, keys and values are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// In rows of tensors of their own.
    Apart,
    /// Keys and values by heads, as other nodes keep them.
    Heads,
    /// Keys and values of each head beside each other.
    KeysAndValues,
    /// All three of each head beside each other.
    All,
}

pub(in crate::ops::contrib) struct Multi {
    attention: Attention,
    heads: usize,
    form: Form,
    bias: bool,
    masking: Masking,
}

/// Where one of the three lies: in an input from some value on, and where it stands in the biases if it has one.
#[derive(Debug, Default, Clone, Copy)]
struct Side {
    input: usize,
    from: usize,
    lies: Heads,
    bias: Option<usize>,
}

#[derive(Default)]
pub(in crate::ops::contrib) struct Bound {
    inner: Inner,
    mask: MaskBound,
    sides: [Side; 3],
}

const BIAS: usize = 3;
const MASK: usize = 4;
const ADDED: usize = 5;
const PAST: [usize; 2] = [6, 7];

impl Side {
    /// Values of a copy with the bias added.
    fn room(&self) -> usize {
        let Heads { batch, heads, len, size, .. } = self.lies;
        even(self.bias.map_or(0, |_| batch.saturating_mul(heads * len * size)))
    }

    /// Where the values lie that are multiplied.
    fn placed(&self) -> Heads {
        let Heads { batch, heads, len, size, .. } = self.lies;
        if self.bias.is_some() { in_rows(batch, heads, len, size, heads * size) } else { self.lies }
    }

    /// The values with their bias, copied if there is one.
    fn read<'a>(&self, isa: Isa, args: &Args<'a>, to: &'a mut [f32], par: &dyn Parallel) -> Result<&'a [f32], Fault> {
        let x = args.input::<f32>(self.input).get(self.from..).unwrap_or(&[]);
        let Some(bias) = self.bias else { return Ok(x) };
        let Heads { batch, heads, len, size, .. } = self.lies;
        let row = heads * size;
        let bias = &args.input::<f32>(BIAS)[bias..][..row];
        let to = &mut to[..batch * len * row];
        split::rows(par, to, size, GRAIN.div_ceil(size.max(1)), |_, first, pieces| {
            for (k, y) in pieces.chunks_exact_mut(size.max(1)).enumerate() {
                let (at, head) = ((first + k) / heads, (first + k) % heads);
                let x = &x[self.lies.at(at / len, head, at % len)..][..size];
                simd::map_binary(isa, &ops::Add, Operand::Slice(x), Operand::Slice(&bias[head * size..]), y);
            }
        })?;
        Ok(to)
    }
}

impl Op for Multi {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (input, name) in [(8, "past_sequence_length"), (9, "cache_indirection")] {
            if node.input(input).is_some() {
                return Err(Reject::shape(format!("input {input} ({name}) is for a past and present in one buffer")));
            }
        }
        let rank = |i: usize| node.input(i).map(|v| v.rank());
        let form = match [rank(0), rank(1), rank(2)] {
            [Some(3), Some(3), Some(3)] => Form::Apart,
            [Some(3), Some(4), Some(4)] => Form::Heads,
            [Some(3), Some(5), None] => Form::KeysAndValues,
            [Some(5), None, None] => Form::All,
            ranks => return Err(Reject::rank(format!("query, key and value of ranks {ranks:?} have no kernel"))),
        };
        let past = PAST.map(|i| node.input(i).is_some());
        if past[0] != past[1] {
            return Err(Reject::shape("past_key and past_value come together, one is missing"));
        }
        if past[0] && form == Form::Heads {
            return Err(Reject::shape("keys and values by heads have no past"));
        }
        let heads = heads(node, "num_heads")?;
        let masking = Masking::parse(node, MASK, Some(ADDED))?;
        let mut attention = attention(node, [heads; 2]);
        attention.causal = node.int("unidirectional")? != 0;
        attention.mask = masking.kind();
        attention.past = past[0];
        Ok(Multi { attention, heads, form, bias: node.input(BIAS).is_some(), masking })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(q), Some(y)) = (node.input(0), node.output(0)) else { return Cost::UNKNOWN };
        let of = |i: usize, axis: usize| node.input(i).and_then(|k| k.dim(axis)).map_or(f64::NAN, |n| n as f64);
        let keys = match self.form {
            Form::Apart | Form::KeysAndValues => of(1, 1),
            Form::Heads => of(1, 2),
            Form::All => of(0, 1),
        };
        let before = if self.attention.past { of(PAST[0], 2) } else { 0.0 };
        cost::products(node, (keys + before) * (q.elements() + y.elements()))
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        bound.sides = self.sides(shapes)?;
        let [q, k, v] = bound.sides.map(|side| side.placed());
        let fits = [k, v].iter().all(|h| (h.batch, h.heads, h.len) == (q.batch, self.heads, k.len)) && q.size == k.size;
        if !fits || q.heads != self.heads {
            let dims = [0, 1, 2].map(|i| shapes.input(i));
            return Err(Fault::data(format!("query, key and value of {dims:?} do not fit each other")));
        }
        let mut past = [in_caches(q.batch, self.heads, 0, k.size, 0), in_caches(q.batch, self.heads, 0, v.size, 0)];
        if self.attention.past {
            for ((past, input), own) in past.iter_mut().zip(PAST).zip([k, v]) {
                let dims = shapes.input(input);
                match *dims {
                    [b, n, p, h] if [b, n, h].map(size) == [q.batch, self.heads, own.size] => {
                        *past = in_caches(q.batch, self.heads, size(p), own.size, size(p));
                    }
                    _ => return Err(Fault::data(format!("a past of {dims:?} does not go with heads of {}", own.size))),
                }
            }
            agree("past_value", past[1].len, past[0].len)?;
        }
        let y = in_rows(q.batch, self.heads, q.len, v.size, self.heads * v.size);
        bound.inner.lay(q, [past[0], k], [past[1], v], y, self.attention.scale);
        self.masking.bind(shapes, &mut bound.inner, &mut bound.mask)?;
        if self.bias {
            let row = |side: &Side| side.lies.heads * side.lies.size;
            agree("the bias", shapes.input_len(BIAS), bound.sides.iter().map(row).sum())?;
        }
        agree("output 0", shapes.output_len(0), bound.inner.queries() * v.size)?;
        let total = bound.inner.total;
        let cells = q.batch * self.heads * total;
        for (output, need) in [(1, cells * k.size), (2, cells * v.size), (3, bound.inner.queries() * total)] {
            if !shapes.output(output).is_empty() {
                agree("an output", shapes.output_len(output), need)?;
            }
        }
        Ok(())
    }

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let copies = bound.sides.iter().map(Side::room);
        let rooms = copies.chain([self.masking.room(&bound.mask), bound.inner.scratch(self.attention.isa, width)]);
        rooms.fold(0, usize::saturating_add).saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Bound) -> u64 {
        bound.inner.flops()
    }
}

impl Multi {
    /// Where queries, keys and values lie.
    fn sides(&self, shapes: &Shapes<'_>) -> Result<[Side; 3], Fault> {
        let n = self.heads;
        let rows = |input: usize| Heads::new("an input", shapes.input(input), n);
        // Of `of` that lie beside each other for each head.
        let packed = |input: usize, of: usize| match *shapes.input(input) {
            [batch, len, heads, parts, width] if size(parts) == of && size(heads) == n => {
                let [batch, len, width] = [batch, len, width].map(size);
                Ok(Heads {
                    batch,
                    heads: n,
                    len,
                    size: width,
                    step: [len * n * of * width, of * width, n * of * width],
                })
            }
            ref dims => Err(Fault::data(format!("input {input} of {dims:?} does not hold {n} heads of {of} parts"))),
        };
        let side = |input: usize, from: usize, lies: Heads| Side { input, from, lies, bias: None };
        let mut sides = match self.form {
            Form::Apart | Form::Heads => [side(0, 0, rows(0)?), side(1, 0, rows(1)?), side(2, 0, rows(2)?)],
            Form::KeysAndValues => {
                let both = packed(1, 2)?;
                [side(0, 0, rows(0)?), side(1, 0, both), side(1, both.size, both)]
            }
            Form::All => {
                let all = packed(0, 3)?;
                [0, 1, 2].map(|part| side(0, part * all.size, all))
            }
        };
        if self.bias {
            let mut start = 0;
            for (which, side) in sides.iter_mut().enumerate() {
                // Keys and values by heads have their biases already.
                side.bias = if which == 0 || self.form != Form::Heads { Some(start) } else { None };
                start += side.lies.heads * side.lies.size;
            }
        }
        Ok(sides)
    }
}

pub(in crate::ops::contrib) fn multi(op: &Multi, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (par, isa) = (args.par(), op.attention.isa);
    let mut rest = args.scratch::<f32>();
    let mut take = |values: usize| {
        let (piece, more) = core::mem::take(&mut rest).split_at_mut(values);
        rest = more;
        piece
    };
    let [to_q, to_k, to_v] = bound.sides.map(|side| take(side.room()));
    let mask = take(op.masking.room(&bound.mask));
    let [side_q, side_k, side_v] = &bound.sides;
    let q = side_q.read(isa, args, to_q, par)?;
    let past = PAST.map(|i| args.input_if::<f32>(i).unwrap_or(&[]));
    let k = [past[0], side_k.read(isa, args, to_k, par)?];
    let v = [past[1], side_v.read(isa, args, to_v, par)?];
    if args.wants(1) {
        join(par, k, &bound.inner.k, args.output(1))?;
    }
    if args.wants(2) {
        join(par, v, &bound.inner.v, args.output(2))?;
    }
    let added = op.masking.fill(&bound.mask, args, mask)?;
    let whole = args.wants(3);
    let work = Work {
        op: &op.attention,
        bound: &bound.inner,
        q,
        k,
        v,
        added,
        seen: &[],
        lengths: &[],
        starts: &[],
        sinks: &[],
        whole,
    };
    let shown = if whole { args.output::<f32>(3) } else { &mut [] };
    work.run(par, args.output::<f32>(0), &mut *shown, rest)?;
    if op.attention.causal {
        work.cover(par, shown, f32::MIN)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    /// Rows of `parts` packed for each head, from tensors of their own.
    fn packed(parts: &[&Tensor], batch: i64, len: i64, heads: i64, width: i64) -> Tensor {
        let all: Vec<Vec<f32>> = parts.iter().map(|t| t.to_vec()).collect();
        let (n, w, count) = (heads as usize, width as usize, parts.len());
        Tensor::from_fn(&[batch, len, heads, count as i64, width], |at| {
            let (element, part, head, row) = (at % w, at / w % count, at / w / count % n, at / w / count / n);
            all[part][(row * n + head) * w + element]
        })
    }

    #[test]
    fn packed_like_apart() {
        let (batch, len, heads, width) = (2, 5, 3, 8);
        let dims = [batch, len, heads * width];
        let [q, k, v] = [1, 2, 3].map(|seed| Tensor::random(&dims, seed));
        let bias = Tensor::random(&[3 * heads * width], 4);
        let case = || {
            Case::new("MultiHeadAttention", 1).domain("com.microsoft").int("num_heads", heads).int("unidirectional", 0)
        };
        let want = case().input(&q).input(&k).input(&v).input(&bias).output(DType::F32, &dims).run();
        let [two, three] = [&[&k, &v][..], &[&q, &k, &v][..]].map(|parts| packed(parts, batch, len, heads, width));
        on_all("MultiHeadAttention", 1, |case| {
            let case = case.domain("com.microsoft").int("num_heads", heads).int("unidirectional", 0);
            let got = case.input(&q).input(&two).skip().input(&bias).output(DType::F32, &dims).run();
            assert_close(&got[0], &want[0], 1e-5);
        });
        on_all("MultiHeadAttention", 1, |case| {
            let case = case.domain("com.microsoft").int("num_heads", heads).int("unidirectional", 0);
            let got = case.input(&three).skip().skip().input(&bias).output(DType::F32, &dims).run();
            assert_close(&got[0], &want[0], 1e-5);
        });
    }

    #[test]
    fn shared_buffers_are_refused() {
        let q = Tensor::random(&[1, 1, 4], 1);
        let past = Tensor::random(&[1, 1, 2, 4], 2);
        let case =
            Case::new("MultiHeadAttention", 1).domain("com.microsoft").int("num_heads", 1).int("unidirectional", 0);
        let case = case.input(&q).input(&q).input(&q).skip().skip().skip().input(&past).input(&past);
        let case = case.input(&Tensor::new(&[1], &[1i32])).output(DType::F32, &[1, 1, 4]);
        let (code, text) = case.rejection();
        assert_eq!(code, RejectCode::Shape);
        assert!(text.contains("past_sequence_length) is for a past and present in one buffer"), "{text}");
    }
}
