//! The different elements, or the different slices of an axis.

use super::cost;
use super::narrow::{Bf16, F16};
use core::cmp::Ordering;
use ortolan_ep_kit::{
    Args, Bool, Cost, Element, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, count, size, typed,
};

/// One operator.
pub const KERNELS: &[Kernel] =
    &[Kernel::new("Unique", (11, 28), "unique", typed!(unique: Bool f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64))
        .late()];

type Run = Result<(), Fault>;

/// A type whose elements have an order: NaN is one element and the last.
trait Ordered: Element {
    fn order(self, other: Self) -> Ordering;
}

macro_rules! floats {
    ($($t:ty => |$x:ident| $wide:expr;)*) => { $(
        impl Ordered for $t {
            #[inline]
            fn order(self, other: Self) -> Ordering {
                let wide = |$x: $t| $wide;
                let (a, b) = (wide(self), wide(other));
                a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            }
        }
    )* };
}
floats! {
    f32 => |x| x;
    f64 => |x| x;
    F16 => |x| x.wide();
    Bf16 => |x| x.wide();
}

macro_rules! integers {
    ($($t:ty)*) => { $(
        impl Ordered for $t {
            #[inline]
            fn order(self, other: Self) -> Ordering { self.cmp(&other) }
        }
    )* };
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl Ordered for Bool {
    fn order(self, other: Self) -> Ordering {
        self.get().cmp(&other.get())
    }
}

struct Unique {
    /// `None`: all elements, one by one.
    axis: Option<usize>,
    sorted: bool,
    /// Which outputs there are.
    wanted: [bool; 4],
}

/// The input as `outer` blocks of `len` slices of `inner` elements.
#[derive(Default)]
struct Slices {
    dims: Ints,
    outer: usize,
    len: usize,
    inner: usize,
}

/// Lists in scratch, each of a number per slice.
const LISTS: usize = 5;

impl Op for Unique {
    type Bound = Slices;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        let axis = node.int_if("axis").map(|_| node.axis("axis", x.rank())).transpose()?;
        let sorted = match node.int_if("sorted").unwrap_or(1) {
            n @ (0 | 1) => n == 1,
            other => return Err(Reject::attribute(format!("attribute sorted = {other} is not 0 or 1"))),
        };
        Ok(Unique { axis, sorted, wanted: core::array::from_fn(|k| node.output(k).is_some()) })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let elements = node.input(0).map_or(f64::NAN, |x| x.elements());
        Cost::ns(cost::moving(node).ns + elements * 50.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Slices) -> Run {
        let dims = shapes.input(0);
        *bound = match self.axis {
            Some(axis) => Slices {
                dims: Ints::from_slice(dims),
                outer: count(&dims[..axis]),
                len: size(dims[axis]),
                inner: count(&dims[axis + 1..]),
            },
            None => Slices { dims: Ints::from_slice(&[0]), outer: 1, len: shapes.input_len(0), inner: 1 },
        };
        Ok(())
    }

    fn scratch(&self, bound: &Slices, _: usize) -> usize {
        LISTS * bound.len * size_of::<u64>()
    }
}

impl Slices {
    fn order<T: Ordered>(&self, x: &[T], a: usize, b: usize) -> Ordering {
        for block in 0..self.outer {
            let slice = |at: usize| &x[(block * self.len + at) * self.inner..][..self.inner];
            let order = slice(a).iter().zip(slice(b)).map(|(&a, &b)| a.order(b)).find(|order| order.is_ne());
            if let Some(order) = order {
                return order;
            }
        }
        Ordering::Equal
    }
}

/// A number that was made from a place.
fn place(number: u64) -> usize {
    number as usize
}

fn unique<T: Ordered>(op: &Unique, slices: &Slices, args: &mut Args<'_>) -> Run {
    let x = args.input::<T>(0);
    let lists = &mut args.scratch::<u64>()[..LISTS * slices.len];
    let (order, lists) = lists.split_at_mut(slices.len);
    let (group_of, lists) = lists.split_at_mut(slices.len);
    let (first, lists) = lists.split_at_mut(slices.len);
    let (counts, rank) = lists.split_at_mut(slices.len);
    (0..).zip(order.iter_mut()).for_each(|(k, at)| *at = k);
    order.sort_unstable_by(|&a, &b| slices.order(x, place(a), place(b)).then(a.cmp(&b)));
    let mut groups = 0;
    for (k, &at) in order.iter().enumerate() {
        if k == 0 || slices.order(x, place(order[k - 1]), place(at)).is_ne() {
            (first[groups], counts[groups]) = (at, 0); // the smallest place of its group
            groups += 1;
        }
        counts[groups - 1] += 1;
        group_of[place(at)] = groups as u64 - 1; // a place
    }
    // From here on, `order` is the order of groups, and `rank` the other way round.
    let order = &mut order[..groups];
    (0..).zip(order.iter_mut()).for_each(|(k, group)| *group = k);
    if !op.sorted {
        order.sort_unstable_by_key(|&group| first[place(group)]);
    }
    (0..).zip(order.iter()).for_each(|(k, &group)| rank[place(group)] = k);
    write(op, slices, args, Found { x, order, group_of, first, counts, rank })
}

struct Found<'a, T> {
    x: &'a [T],
    order: &'a [u64],
    group_of: &'a [u64],
    first: &'a [u64],
    counts: &'a [u64],
    rank: &'a [u64],
}

fn write<T: Ordered>(op: &Unique, slices: &Slices, args: &mut Args<'_>, found: Found<'_, T>) -> Run {
    let &Slices { len, inner, .. } = slices;
    let groups = found.order.len();
    let whole = |n: usize| n as i64; // counts of what is in memory
    if op.wanted[0] {
        let mut dims = slices.dims.clone();
        dims[op.axis.unwrap_or(0)] = whole(groups);
        let y = args.emit::<T>(0, &dims)?;
        for (k, y) in y.chunks_exact_mut(inner.max(1)).enumerate() {
            let (block, group) = (k / groups, place(found.order[k % groups]));
            y.copy_from_slice(&found.x[(block * len + place(found.first[group])) * inner..][..inner]);
        }
    }
    let of_groups = [(1, found.first), (3, found.counts)];
    for (output, list) in of_groups.into_iter().filter(|&(output, _)| op.wanted[output]) {
        let y = args.emit::<i64>(output, &[whole(groups)])?;
        y.iter_mut().zip(found.order).for_each(|(y, &group)| *y = whole(place(list[place(group)])));
    }
    if op.wanted[2] {
        let y = args.emit::<i64>(2, &[whole(len)])?;
        y.iter_mut().zip(found.group_of).for_each(|(y, &group)| *y = whole(place(found.rank[place(group)])));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{index, pick, position};
    use crate::ops::narrow::F16;
    use crate::ops::testing::Case;
    use ortolan_ep_kit::testing::{OpTest, Tensor};
    use ortolan_ep_kit::{Bool, DType, Element, RejectCode};

    /// Slices as lists of numbers, compared as such. NaN is not among them.
    fn check<T: Element>(number: impl Fn(usize) -> T + Copy, wide: impl Fn(T) -> f64) {
        let cases: &[(&[i64], Option<i64>)] = &[
            (&[0], None),
            (&[9], None),
            (&[9], Some(0)),
            (&[3, 4], None),
            (&[7, 2], Some(0)),
            (&[2, 9], Some(-1)),
            (&[2, 7, 2], Some(1)),
            (&[2, 0], Some(0)),
        ];
        for &(dims, axis) in cases {
            let x = Tensor::from_fn(dims, number);
            let flat = Tensor { dims: vec![dims.iter().product()], ..x.clone() };
            let (from, at) = match axis {
                Some(axis) => (&x, axis.rem_euclid(dims.len() as i64) as usize),
                None => (&flat, 0),
            };
            let numbers: Vec<f64> = x.to_vec::<T>().into_iter().map(&wide).collect();
            let places = |k: usize| (0..numbers.len()).filter(move |&n| index(&from.dims, n)[at] == k);
            let slices: Vec<Vec<f64>> =
                (0..from.dims[at] as usize).map(|k| places(k).map(|n| numbers[n]).collect()).collect();
            for sorted in [true, false] {
                let mut groups: Vec<usize> = Vec::new(); // first places
                for k in 0..slices.len() {
                    if !groups.iter().any(|&g| slices[g] == slices[k]) {
                        groups.push(k);
                    }
                }
                if sorted {
                    groups.sort_by(|&a, &b| slices[a].partial_cmp(&slices[b]).unwrap());
                }
                let mut out = from.dims.clone();
                out[at] = groups.len() as i64;
                let y = pick(from, &out, |i| {
                    let mut i = i.to_vec();
                    i[at] = groups[i[at]];
                    i
                });
                let list = |list: Vec<usize>| Tensor::from_fn(&[list.len() as i64], |k| list[k] as i64);
                let group = |slice: &Vec<f64>| groups.iter().position(|&g| slices[g] == *slice).unwrap();
                let equal = |&g: &usize| slices.iter().filter(|slice| **slice == slices[g]).count();
                let want = [
                    y,
                    list(groups.clone()),
                    list(slices.iter().map(group).collect()),
                    list(groups.iter().map(equal).collect()),
                ];
                let mut case = Case::new("Unique", 28).int("sorted", sorted.into()).input(&x);
                if let Some(axis) = axis {
                    case = case.int("axis", axis);
                }
                let late = |case: OpTest, rank| case.late_output(DType::I64, rank);
                let case = case.late_output(T::DTYPE, out.len());
                let case = late(late(case, 1), 1);
                assert_eq!(late(case, 1).run(), want, "{} {dims:?} {axis:?} {sorted}", T::DTYPE);
            }
        }
        assert_eq!(position(&[1], &[0]), 0);
    }

    #[test]
    fn like_comparing_all_slices() {
        let float = |k: usize| [0.5f32, -1.0, 2.0][k * 7 % 11 % 3];
        check(float, f64::from);
        check(|k| f64::from(float(k)), |x| x);
        check(|k| F16::round(float(k)), |x| x.wide().into());
        check(|k| (k * 7 % 11 % 3) as i64 - 1, |x| x as f64);
        check(|k| (k * 7 % 11 % 3) as u8, f64::from);
        check(|k| Bool([0, 5, 1][k * 7 % 11 % 3]), |x| f64::from(u8::from(x.get())));
    }

    #[test]
    fn nan_is_one_element() {
        let x = Tensor::new(&[5], &[f32::NAN, 1.0, f32::NAN, -0.0, 0.0]);
        let case = Case::new("Unique", 28).int("sorted", 1).input(&x).late_output(DType::F32, 1);
        let y = case.late_output(DType::I64, 1).run();
        assert!(y[0].to_vec::<f32>()[2].is_nan());
        assert_eq!(y[1].to_vec::<i64>(), [3, 1, 0]);
    }

    #[test]
    fn refusals() {
        let x = Tensor::new(&[2], &[1.0f32; 2]);
        let case = Case::new("Unique", 28).int("sorted", 2).input(&x).late_output(DType::F32, 1);
        let (code, text) = case.rejection();
        assert_eq!((code, &*text), (RejectCode::Attribute, "Unique: attribute sorted = 2 is not 0 or 1"));
    }
}
