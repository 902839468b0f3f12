//! Caches of keys or values: the past with new rows behind it, as floats or as codes of 8 or 4 bits with a scale for all or
//! for each element of a head.

use super::group::Bound;
use crate::igemm::nearest;
use crate::ops::GRAIN;
use crate::ops::attention::heads::Heads;
use crate::ops::float::agree;
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, DType, Fault, NodeView, Reject, Shapes, size, split};

/// How rows are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    Floats,
    /// A byte for each number.
    Bytes,
    /// Four bits for each number, the first of two low, with 8 added.
    Halves,
}

impl Store {
    pub fn parse(node: &NodeView<'_>, presents: [usize; 2]) -> Result<Store, Reject> {
        let kinds = ["k_quant_type", "v_quant_type"].map(|name| node.text(name).unwrap_or("NONE"));
        let dtypes = presents.map(|output| node.output(output).map(|v| v.dtype()));
        let [Some(k), Some(v)] = dtypes else {
            return Err(Reject::shape(
                "present_key and present_value are where keys and values are kept; one is missing",
            ));
        };
        let floats = k as u32 == node.needs(0)?.dtype() as u32;
        if k as u32 != v as u32 {
            return Err(Reject::dtype(format!("keys are kept as {k}, values as {v}")));
        }
        if floats {
            return match kinds {
                ["NONE", "NONE"] => Ok(Store::Floats),
                _ => Err(Reject::attribute(format!(
                    "attributes k_quant_type and v_quant_type = {kinds:?}: caches are {k}"
                ))),
            };
        }
        if kinds.iter().any(|kind| !["PER_TENSOR", "PER_CHANNEL"].contains(kind)) {
            return Err(Reject::attribute(format!(
                "attributes k_quant_type and v_quant_type = {kinds:?}: caches are {k}"
            )));
        }
        match (k, node.int_if("kv_cache_bit_width").unwrap_or(8)) {
            (DType::I8, 8) => Ok(Store::Bytes),
            (DType::U8, 4) => Ok(Store::Halves),
            (_, width) => Err(Reject::attribute(format!(
                "attribute kv_cache_bit_width = {width} with caches of {k} has no kernel"
            ))),
        }
    }

    /// Numbers in an element.
    pub fn numbers(self) -> usize {
        if self == Store::Halves { 2 } else { 1 }
    }

    /// Values of a cache as floats beside that of codes.
    pub fn room(self, values: usize) -> usize {
        if self == Store::Floats { 0 } else { super::even(values) }
    }
}

/// Scales of a cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scales<'a>(&'a [f32]);

impl Scales<'_> {
    pub fn bind(shapes: &Shapes<'_>, input: usize, heads: usize, size: usize) -> Result<(), Fault> {
        match shapes.input_len(input) {
            1 => Ok(()),
            have => agree("scales of a cache", have, heads * size),
        }
    }

    pub fn read<'a>(args: &Args<'a>, input: usize) -> Scales<'a> {
        Scales(args.input_if(input).unwrap_or(&[]))
    }

    /// The scale of an element of a head.
    fn get(&self, head: usize, size: usize, at: usize) -> f32 {
        if self.0.len() == 1 { self.0[0] } else { self.0[head * size + at] }
    }
}

/// Lays rows of floats into a cache: those of the past by `old`, new ones by `put`, which knows sequence and token; others
/// become 0.
pub(super) fn floats(
    par: &dyn Parallel,
    bound: &Bound,
    past: &[f32],
    new: &[f32],
    starts: &[i64],
    put: impl Fn(usize, usize, &[f32], &mut [f32]) + Sync,
    to: &mut [f32],
) -> Result<(), Fault> {
    let Heads { heads, len, size: width, .. } = bound.new;
    Ok(rows(par, bound, width, to, |unit, row, y| {
        let (batch, start) = (unit / heads, size(starts[unit / heads]));
        if row < start && !past.is_empty() {
            y.copy_from_slice(&past[(unit * bound.past + row) * width..][..width]);
        } else if row >= start && row - start < len {
            put(batch, row - start, &new[bound.new.at(batch, unit % heads, row - start)..][..width], y);
        } else {
            y.fill(0.0);
        }
    })?)
}

/// Lays rows of codes into a cache, new ones from their floats, and makes floats of all of them.
pub(super) fn codes(
    (par, store): (&dyn Parallel, Store),
    bound: &Bound,
    past: &[u8],
    (starts, scales): (&[i64], Scales<'_>),
    wide: &mut [f32],
    to: &mut [u8],
) -> Result<(), Fault> {
    let Heads { heads, len, size: width, .. } = bound.new;
    let own = width / store.numbers();
    let new = &*wide;
    rows(par, bound, own, to, |unit, row, y| {
        let start = size(starts[unit / heads]);
        if row < start {
            y.copy_from_slice(&past[(unit * bound.past + row) * own..][..own]);
        } else if row - start < len {
            let x = &new[(unit * bound.present + row) * width..][..width];
            let code = |at: usize, low: f32, high: f32| {
                let x = x[at] / scales.get(unit % heads, width, at);
                nearest(if x > low { if x < high { x } else { high } } else { low }) // NaN becomes the lower limit
            };
            for (at, y) in y.iter_mut().enumerate() {
                *y = match store {
                    Store::Halves => {
                        let [low, high] = [2 * at, 2 * at + 1].map(|at| (code(at, -8.0, 7.0) + 8) as u8); // below 16
                        low | high << 4
                    }
                    _ => code(at, -128.0, 127.0) as u8, // the bits of an i8
                };
            }
        } else {
            y.fill(0);
        }
    })?;
    let from = &*to;
    Ok(rows(par, bound, width, wide, |unit, row, y| {
        let x = &from[(unit * bound.present + row) * own..][..own];
        for (at, y) in y.iter_mut().enumerate() {
            let code = match store {
                Store::Halves => i32::from(x[at / 2] >> (4 * (at % 2)) & 15) - 8,
                _ => x[at].cast_signed().into(),
            };
            *y = code as f32 * scales.get(unit % heads, width, at); // 8 bits
        }
    })?)
}

/// Calls `body` with the number of a head, that of a row, and the row, for all rows of a cache.
fn rows<T: Send>(
    par: &dyn Parallel,
    bound: &Bound,
    width: usize,
    to: &mut [T],
    body: impl Fn(usize, usize, &mut [T]) + Sync,
) -> Result<(), ortolan_ep_kit::parallel::Stopped> {
    split::rows(par, to, width, GRAIN.div_ceil(width.max(1)), |_, first, pieces| {
        for (k, y) in pieces.chunks_exact_mut(width.max(1)).enumerate() {
            body((first + k) / bound.present, (first + k) % bound.present, y);
        }
    })
}
