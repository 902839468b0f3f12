//! The largest or smallest elements along an axis.
//!
//! Every element becomes an unsigned number that orders as the element does, with its place behind it, so that selecting
//! and sorting are those of plain integers, and equal elements stay in order.

use super::cost;
use super::narrow::{Bf16, F16};
use super::workers::Workers;
use ortolan_ep_kit::{
    Args, Cost, DType, Element, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, count, size, split, typed,
};

/// One operator.
pub const KERNELS: &[Kernel] =
    &[Kernel::new("TopK", (10, 24), "topk", typed!(top_k: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)).late()];

type Run = Result<(), Fault>;

/// A type whose elements have an order: NaN is the largest, and both zeros are one.
trait Ranked: Element + Send + Sync {
    /// Rank and place.
    type Key: Ord + Copy;
    /// Words of a key.
    const WORDS: usize;
    /// Memory for keys.
    fn keys(words: &mut [u64]) -> &mut [Self::Key];
    /// Smaller keys come first.
    fn key(self, largest: bool, place: u32) -> Self::Key;
    fn place(key: Self::Key) -> u32;
}

/// Types whose rank leaves room for the place in one word.
macro_rules! short {
    ($($t:ty => |$x:ident| $rank:expr;)*) => { $(
        impl Ranked for $t {
            type Key = u64;
            const WORDS: usize = 1;
            #[inline(always)]
            fn keys(words: &mut [u64]) -> &mut [u64] { words }
            #[inline(always)]
            fn key(self, largest: bool, place: u32) -> u64 {
                let $x = self;
                let rank: u32 = $rank;
                u64::from(if largest { !rank } else { rank }) << 32 | u64::from(place)
            }
            #[inline(always)]
            fn place(key: u64) -> u32 { key as u32 } // the lower half
        }
    )* };
}
short! {
    f32 => |x| rank_f32(x);
    F16 => |x| rank_f32(x.wide());
    Bf16 => |x| rank_f32(x.wide());
    i8 => |x| i32::from(x) as u32 ^ 1 << 31; // signs turned over
    i16 => |x| i32::from(x) as u32 ^ 1 << 31;
    i32 => |x| x as u32 ^ 1 << 31;
    u8 => |x| x.into();
    u16 => |x| x.into();
    u32 => |x| x;
}

/// Types whose rank is a word.
macro_rules! long {
    ($($t:ty => |$x:ident| $rank:expr;)*) => { $(
        impl Ranked for $t {
            type Key = [u64; 2];
            const WORDS: usize = 2;
            #[inline(always)]
            fn keys(words: &mut [u64]) -> &mut [[u64; 2]] { words.as_chunks_mut().0 }
            #[inline(always)]
            fn key(self, largest: bool, place: u32) -> [u64; 2] {
                let $x = self;
                let rank: u64 = $rank;
                [if largest { !rank } else { rank }, place.into()]
            }
            #[inline(always)]
            fn place(key: [u64; 2]) -> u32 { key[1] as u32 } // was one
        }
    )* };
}
long! {
    f64 => |x| rank_f64(x);
    i64 => |x| x as u64 ^ 1 << 63;
    u64 => |x| x;
}

#[inline(always)]
fn rank_f32(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits(); // -0 becomes 0
    let rank = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    if x.is_nan() { u32::MAX } else { rank }
}

#[inline(always)]
fn rank_f64(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let rank = if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    if x.is_nan() { u64::MAX } else { rank }
}

/// The first elements in order.
struct TopK {
    axis: usize,
    largest: bool,
    words: usize,
    /// Whether anybody wants the elements besides their places.
    values: bool,
}

/// The input as blocks of `len` rows of `inner` elements: lanes go down the columns.
#[derive(Default)]
struct Lanes {
    dims: Ints,
    len: usize,
    inner: usize,
    /// `None` if only the run knows.
    k: Option<i64>,
}

impl Op for TopK {
    type Bound = Lanes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        node.needs(1)?;
        if node.output(1).is_none() {
            return Err(Reject::shape("output 1 is omitted"));
        }
        let words = if matches!(x.dtype(), DType::F64 | DType::I64 | DType::U64) { 2 } else { 1 };
        let largest = node.int_if("largest").unwrap_or(1) != 0;
        Ok(TopK { axis: node.axis("axis", x.rank())?, largest, words, values: node.output(0).is_some() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let elements = node.input(0).map_or(f64::NAN, |x| x.elements());
        Cost::ns(cost::moving(node).ns + elements * 4.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Lanes) -> Run {
        bound.dims = Ints::from_slice(shapes.input(0));
        (bound.len, bound.inner) = (size(bound.dims[self.axis]), count(&bound.dims[self.axis + 1..]));
        bound.k = shapes.elements(1).and_then(|k| k.first().copied());
        match u32::try_from(bound.len) {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(Fault::data(format!("axis {} has {} elements, more than places can name", self.axis, bound.len)))
            }
        }
    }

    /// Keys of a lane, for each worker.
    fn scratch(&self, bound: &Lanes, width: usize) -> usize {
        bound.len * self.words * size_of::<u64>() * width
    }
}

fn top_k<T: Ranked>(op: &TopK, lanes: &Lanes, args: &mut Args<'_>) -> Run {
    let k = match lanes.k.or_else(|| args.input::<i64>(1).first().copied()) {
        Some(k) if k >= 0 && size(k) <= lanes.len => k,
        Some(k) => return Err(Fault::data(format!("K is {k}, and axis {} has {} elements", op.axis, lanes.len))),
        None => return Err(Fault::data("K is an empty tensor")),
    };
    let mut dims = lanes.dims.clone();
    dims[op.axis] = k;
    let (x, k, inner) = (args.input::<T>(0), size(k), lanes.inner);
    let places = args.emit::<i64>(1, &dims)?;
    let words = (lanes.len * T::WORDS).max(1);
    let workers = Workers::new(args.scratch::<u64>(), words);
    let block = k * inner;
    let grain = 4096usize.div_ceil((lanes.len * inner).max(1));
    split::rows(args.par(), places, block, grain, |worker, first, blocks| {
        workers.with(worker, |words| {
            for (number, block) in (first..).zip(blocks.chunks_exact_mut(block)) {
                let x = &x[number * lanes.len * inner..][..lanes.len * inner];
                for column in 0..inner {
                    let lane = x[column..].iter().step_by(inner);
                    let first = select(lane, op.largest, k, T::keys(words));
                    for (to, &key) in block[column..].iter_mut().step_by(inner).zip(first.iter()) {
                        *to = T::place(key).into();
                    }
                }
            }
        });
    })?;
    if !op.values {
        return Ok(());
    }
    let places = &*places;
    let values = args.emit::<T>(0, &dims)?;
    Ok(split::rows(args.par(), values, block, grain, |_, first, blocks| {
        for (number, block_of) in (first..).zip(blocks.chunks_exact_mut(block)) {
            let x = &x[number * lanes.len * inner..][..lanes.len * inner];
            for (at, y) in block_of.iter_mut().enumerate() {
                let place = places[number * block + at] as usize; // a place in a lane
                *y = x[place * inner + at % inner];
            }
        }
    })?)
}

/// Keys of the first `k` elements of a lane, in order.
fn select<'k, 'x, T: Ranked>(
    lane: impl Iterator<Item = &'x T>,
    largest: bool,
    k: usize,
    keys: &'k mut [T::Key],
) -> &'k mut [T::Key] {
    for (place, (key, &x)) in (0..).zip(keys.iter_mut().zip(lane)) {
        *key = x.key(largest, place);
    }
    if 0 < k && k < keys.len() {
        keys.select_nth_unstable(k - 1);
    }
    let first = &mut keys[..k];
    first.sort_unstable();
    first
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{count, index, pick, position};
    use crate::ops::narrow::{Bf16, F16};
    use crate::ops::testing::{Case, on_all};
    use core::cmp::Ordering;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, Element, RejectCode};

    /// Values and places by sorting whole lanes.
    fn naive<T: Element>(
        x: &Tensor,
        axis: usize,
        k: i64,
        order: impl Fn(T, T) -> Ordering,
        largest: bool,
    ) -> [Tensor; 2] {
        let all = x.to_vec::<T>();
        let mut dims = x.dims.clone();
        dims[axis] = k;
        let at = |i: &[usize], place: usize| {
            let mut i = i.to_vec();
            i[axis] = place;
            position(&x.dims, &i)
        };
        let places = Tensor::from_fn(&dims, |n| {
            let i = index(&dims, n);
            let mut lane: Vec<usize> = (0..x.dims[axis] as usize).collect();
            lane.sort_by(|&a, &b| {
                let order = order(all[at(&i, a)], all[at(&i, b)]);
                if largest { order.reverse() } else { order }
            });
            lane[i[axis]] as i64
        });
        let list = places.to_vec::<i64>();
        let values = pick(x, &dims, |i| {
            let mut from = i.to_vec();
            from[axis] = list[position(&dims, i)] as usize;
            from
        });
        [values, places]
    }

    fn check<T: Element>(number: impl Fn(usize) -> T + Copy, order: impl Fn(T, T) -> Ordering + Copy) {
        // Dimensions, axis, K.
        let cases: &[(&[i64], i64, i64)] = &[
            (&[1], 0, 1),
            (&[9], -1, 4),
            (&[9], 0, 9),
            (&[9], 0, 0),
            (&[3, 7], 1, 2),
            (&[7, 3], 0, 5),
            (&[2, 6, 5], 1, 3),
            (&[0, 4], 1, 2),
            (&[40, 301], 1, 17),
        ];
        for &(dims, axis, k) in cases {
            let at = axis.rem_euclid(dims.len() as i64) as usize;
            let x = Tensor::from_fn(dims, number);
            for largest in [true, false] {
                let want = naive(&x, at, k, order, largest);
                let out = want[0].dims.clone();
                for late in [false, true] {
                    on_all("TopK", 24, |case| {
                        let case = case.int("axis", axis).int("largest", largest.into()).int("sorted", 1);
                        let case = case.input(&x).input(&Tensor::new(&[1], &[k]));
                        let case = match late {
                            true => case.late_output(T::DTYPE, dims.len()).late_output(DType::I64, dims.len()),
                            false => case.output(T::DTYPE, &out).output(DType::I64, &out),
                        };
                        let got = case.run();
                        assert_eq!(got[1], want[1], "{} {dims:?} {axis} {k} {largest}", T::DTYPE);
                        assert_eq!(got[0].bytes, want[0].bytes, "{} {dims:?} {axis} {k}", T::DTYPE);
                    });
                }
            }
        }
        assert_eq!(count(&[2, 3]), 6);
    }

    #[test]
    fn like_sorting_every_lane() {
        // Few different numbers, so that many are equal; some NaN, which is the largest; both zeros.
        let float = |k: usize| if k % 11 == 7 { f32::NAN } else { [0.0, -0.0, 1.5, -2.5, f32::INFINITY][k * 7 % 5] };
        let order = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
        check(float, |a, b| order(a.into(), b.into()));
        check(|k| f64::from(float(k)), order);
        check(|k| F16::round(float(k)), |a, b| order(a.wide().into(), b.wide().into()));
        check(|k| Bf16::round(float(k)), |a, b| order(a.wide().into(), b.wide().into()));
        check(|k| (k as i8).wrapping_mul(37), |a, b| a.cmp(&b));
        check(|k| (k * 7 % 5) as i16 - 2, |a, b| a.cmp(&b));
        check(|k| (k as i32).wrapping_mul(0x7654_3210), |a, b| a.cmp(&b));
        check(|k| (k as i64).wrapping_mul(i64::MAX / 5), |a, b| a.cmp(&b));
        check(|k| (k as u64).wrapping_mul(u64::MAX / 5), |a, b| a.cmp(&b));
        check(|k| k as u32 * 7 % 5, |a, b| a.cmp(&b));
        check(|k| (k * 7 % 5) as u8, |a, b| a.cmp(&b));
    }

    #[test]
    fn more_than_there_are_is_refused() {
        let x = Tensor::new(&[2, 3], &[1.0f32; 6]);
        for k in [4i64, -1] {
            let case = Case::new("TopK", 24).int("axis", -1).input(&x).input(&Tensor::new(&[1], &[k]));
            let case = case.late_output(DType::F32, 2).late_output(DType::I64, 2);
            let error = case.try_run().unwrap_err();
            assert!(error.contains(&format!("K is {k}, and axis 1 has 3 elements")), "{error}");
        }
        let case = Case::new("TopK", 24).int("axis", 2).input(&x).input(&Tensor::new(&[1], &[1i64]));
        let (code, _) = case.output(DType::F32, &[2, 3]).output(DType::I64, &[2, 3]).rejection();
        assert_eq!(code, RejectCode::Attribute);
    }
}
