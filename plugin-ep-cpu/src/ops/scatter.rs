//! Operators that write elements at places that indices name.

use super::gather::{Lines, Tuples, same_rank};
use super::ints::{self, Index, place};
use super::lane::Number;
use super::narrow::{Bf16, F16};
use super::strided::{Walk, run};
use super::value::{EIGHTS, TENSOR, Value, Word, by_width};
use super::{GRAIN, codes, cost};
use core::marker::PhantomData;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{
    Args, Bool, Cost, DType, Element, Fault, Kernel, NodeView, Op, Reject, Shapes, any, count, size, split,
};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("ScatterElements", (11, 18), "scatterelements", any!(scatter_elements))
        .types(&[("T", TENSOR), ("Tind", set(&[DType::I32, DType::I64]))])
        .in_place(OVER),
    Kernel::new("ScatterND", (11, 18), "scatternd", any!(scatter_nd))
        .types(&[("T", TENSOR), ("tensor(int64)", set(&[DType::I64]))])
        .in_place(OVER),
    Kernel::new("TensorScatter", (24, 24), "tensorscatter", any!(tensor_scatter))
        .types(&[("T", TENSOR | EIGHTS)])
        .in_place(OVER),
    Kernel::new("TensorScatter", (24, 24), "tensorscatter", any!(tensor_scatter_halves))
        .types(&[("T", set(&[DType::U4, DType::I4, DType::F4E2M1]))])
        .in_place(OVER)
        .fallback(),
];

const OVER: &[(u8, u8)] = &[(0, 0)];

type Run = Result<(), Fault>;

/// What happens to an element when another comes to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Merge {
    /// The last one stays.
    Last,
    Add,
    Mul,
    Max,
    Min,
}

impl Merge {
    fn parse(node: &NodeView<'_>) -> Result<Merge, Reject> {
        let merge = match node.text("reduction").unwrap_or("none") {
            "none" => return Ok(Merge::Last),
            "add" => Merge::Add,
            "mul" => Merge::Mul,
            "max" => Merge::Max,
            "min" => Merge::Min,
            other => return Err(Reject::attribute(format!("attribute reduction = {other} is not known"))),
        };
        match node.needs(0)?.dtype() {
            dtype @ (DType::C64 | DType::C128) => {
                Err(Reject::dtype(format!("attribute reduction is not none, which {dtype} has no kernel for")))
            }
            _ => Ok(merge),
        }
    }
}

/// A type whose elements can be merged.
trait Mergeable: Element + Send + Sync {
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
}

macro_rules! values {
    ($($t:ty)*) => { $(
        impl Mergeable for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self { <$t as Value>::of(Value::wide(self).plus(Value::wide(other))) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { <$t as Value>::of(Value::wide(self).times(Value::wide(other))) }
            #[inline(always)]
            fn max(self, other: Self) -> Self { if self > other || is_nan(&self) { self } else { other } }
            #[inline(always)]
            fn min(self, other: Self) -> Self { if self < other || is_nan(&self) { self } else { other } }
        }
    )* };
}
values!(f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64);

#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN is no equal of itself")]
fn is_nan<T: PartialEq>(x: &T) -> bool {
    x != x
}

impl Mergeable for Bool {
    fn add(self, other: Self) -> Self {
        (self.get() | other.get()).into()
    }
    fn mul(self, other: Self) -> Self {
        (self.get() & other.get()).into()
    }
    fn max(self, other: Self) -> Self {
        self.add(other)
    }
    fn min(self, other: Self) -> Self {
        self.mul(other)
    }
}

/// Copies what is not written over, unless it is there already.
fn copy<'a, T: Element + Send + Sync>(args: &mut Args<'a>) -> Result<&'a mut [T], Fault> {
    let alias = args.alias(0);
    let y = args.output::<T>(0);
    if alias.is_none() {
        let x = args.input::<T>(0);
        split::rows(args.par(), y, 1, GRAIN, |_, at, y| y.copy_from_slice(&x[at..at + y.len()]))?;
    }
    Ok(y)
}

/// Runs `$f::<T, …>` with the function that merges two elements.
macro_rules! merging {
    ($op:ident, $f:ident($($arg:expr),*)) => {
        match ($op.merge, $op.dtype) {
            (Merge::Last, dtype) => match dtype.bits() {
                8 => $f($($arg,)* |_: u8, new| new),
                16 => $f($($arg,)* |_: u16, new| new),
                32 => $f($($arg,)* |_: u32, new| new),
                64 => $f($($arg,)* |_: u64, new| new),
                _ => $f($($arg,)* |_: $crate::ops::value::Word16, new| new),
            },
            (merge, DType::Bool) => merging!(@kind merge, Bool, $f($($arg),*)),
            (merge, DType::F32) => merging!(@kind merge, f32, $f($($arg),*)),
            (merge, DType::F64) => merging!(@kind merge, f64, $f($($arg),*)),
            (merge, DType::F16) => merging!(@kind merge, F16, $f($($arg),*)),
            (merge, DType::Bf16) => merging!(@kind merge, Bf16, $f($($arg),*)),
            (merge, DType::I8) => merging!(@kind merge, i8, $f($($arg),*)),
            (merge, DType::I16) => merging!(@kind merge, i16, $f($($arg),*)),
            (merge, DType::I32) => merging!(@kind merge, i32, $f($($arg),*)),
            (merge, DType::I64) => merging!(@kind merge, i64, $f($($arg),*)),
            (merge, DType::U8) => merging!(@kind merge, u8, $f($($arg),*)),
            (merge, DType::U16) => merging!(@kind merge, u16, $f($($arg),*)),
            (merge, DType::U32) => merging!(@kind merge, u32, $f($($arg),*)),
            (merge, DType::U64) => merging!(@kind merge, u64, $f($($arg),*)),
            (_, dtype) => Err(Fault::data(format!("elements of {dtype} are not merged"))),
        }
    };
    (@kind $merge:ident, $t:ty, $f:ident($($arg:expr),*)) => {
        match $merge {
            Merge::Add => $f($($arg,)* <$t as Mergeable>::add),
            Merge::Mul => $f($($arg,)* <$t as Mergeable>::mul),
            Merge::Max => $f($($arg,)* <$t as Mergeable>::max),
            _ => $f($($arg,)* <$t as Mergeable>::min),
        }
    };
}

/// An element for each index, all other coordinates being the index's own.
struct ScatterElements {
    axis: usize,
    merge: Merge,
    dtype: DType,
    indices: DType,
}

/// Blocks of the output along axis 0 that no index leads out of, and lines of indices per block.
#[derive(Default)]
struct Blocks {
    lines: Lines,
    block: usize,
    /// Lines per block.
    count: usize,
}

impl Op for ScatterElements {
    type Bound = Blocks;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, indices) = (node.needs(0)?, node.needs(1)?);
        same_rank(x.rank(), indices.rank())?;
        node.needs(2)?;
        let axis = node.axis("axis", x.rank())?;
        Ok(ScatterElements { axis, merge: Merge::parse(node)?, dtype: x.dtype(), indices: indices.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let updates = node.input(2).map_or(f64::NAN, |u| u.elements());
        Cost::ns(cost::moving(node).ns + updates)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Blocks) -> Run {
        let (dims, indices) = (shapes.input(0), shapes.input(1));
        if shapes.input(2) != indices {
            return Err(Fault::data(format!("input 2 has dimensions {:?}, and input 1 {indices:?}", shapes.input(2))));
        }
        bound.lines.bind(dims, indices, self.axis)?;
        let all: usize = bound.lines.outer.iter().map(|axis| axis.len).product();
        let blocks = match (self.axis, bound.lines.outer.first()) {
            (1.., Some(first)) if first.len > 0 => first.len,
            _ => 1,
        };
        bound.count = all / blocks;
        bound.block = if blocks == 1 { usize::MAX } else { shapes.input_len(0) / size(dims[0]) };
        Ok(())
    }
}

fn scatter_elements(op: &ScatterElements, blocks: &Blocks, args: &mut Args<'_>) -> Run {
    match op.indices {
        DType::I32 => merging!(op, elements(op, blocks, args, PhantomData::<i32>)),
        _ => merging!(op, elements(op, blocks, args, PhantomData::<i64>)),
    }
}

fn elements<T: Element + Send + Sync, I: Index>(
    op: &ScatterElements,
    blocks: &Blocks,
    args: &mut Args<'_>,
    _: PhantomData<I>,
    merge: impl Fn(T, T) -> T + Sync,
) -> Run {
    let (lines, indices, updates) = (&blocks.lines, args.input::<I>(1), args.input::<T>(2));
    ints::within(indices, lines.len, 1, op.axis)?;
    let y = copy::<T>(args)?;
    if indices.is_empty() {
        return Ok(());
    }
    let block = blocks.block.min(y.len());
    Ok(split::rows(args.par(), y, block, GRAIN.div_ceil(block), |_, first, piece| {
        for (number, y) in (first..).zip(piece.chunks_exact_mut(block)) {
            // Dimension 0 of the indices may be the smaller one.
            let range = number * blocks.count * lines.line..(number + 1) * blocks.count * lines.line;
            let (Some(indices), Some(updates)) = (indices.get(range.clone()), updates.get(range)) else { return };
            let mut walk = Walk::new(&lines.outer, 0, number * blocks.count);
            for (indices, updates) in indices.chunks_exact(lines.line).zip(updates.chunks_exact(lines.line)) {
                let mut at = walk.at - number * block;
                for (&index, &update) in indices.iter().zip(updates) {
                    let y = &mut y[at + place(index, lines.len) * lines.step];
                    *y = merge(*y, update);
                    at += lines.along;
                }
                walk.next(&lines.outer);
            }
        }
    })?)
}

/// Slices at tuples of indices.
struct ScatterNd {
    merge: Merge,
    dtype: DType,
}

impl Op for ScatterNd {
    type Bound = Tuples;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(1)?;
        node.needs(2)?;
        Ok(ScatterNd { merge: Merge::parse(node)?, dtype: node.needs(0)?.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Tuples) -> Run {
        bound.bind(shapes.input(0), shapes.input(1), 0)?;
        let (have, need) = (shapes.input_len(2), bound.count * bound.inner);
        match have == need {
            true => Ok(()),
            false => Err(Fault::data(format!("input 2 has {have} elements, and input 1 names {need}"))),
        }
    }
}

fn scatter_nd(op: &ScatterNd, tuples: &Tuples, args: &mut Args<'_>) -> Run {
    merging!(op, slices(tuples, args))
}

/// One after the other, as the order decides where tuples are equal.
fn slices<T: Element + Send + Sync>(tuples: &Tuples, args: &mut Args<'_>, merge: impl Fn(T, T) -> T + Sync) -> Run {
    let (indices, updates) = (args.input::<i64>(1), args.input::<T>(2));
    let y = copy::<T>(args)?;
    for number in 0..tuples.count {
        let at = tuples.place(number, indices)?;
        let updates = &updates[number * tuples.inner..][..tuples.inner];
        y[at..at + tuples.inner].iter_mut().zip(updates).for_each(|(y, &update)| *y = merge(*y, update));
    }
    Ok(())
}

/// New rows of a cache, from a place on that each sample of the batch has for itself.
struct TensorScatter {
    axis: usize,
    circular: bool,
    bits: usize,
}

/// The cache as `batches` samples of `blocks` blocks of `len` rows of `inner` elements, of which `new` come.
#[derive(Default)]
struct Cache {
    batches: usize,
    blocks: usize,
    len: usize,
    inner: usize,
    new: usize,
}

impl Op for TensorScatter {
    type Bound = Cache;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        same_rank(x.rank(), node.needs(1)?.rank())?;
        let axis = node.axis("axis", x.rank())?;
        if axis == 0 {
            return Err(Reject::attribute("attribute axis names axis 0, which is the batch"));
        }
        let circular = match node.text("mode").unwrap_or("linear") {
            "linear" => false,
            "circular" => true,
            other => return Err(Reject::attribute(format!("attribute mode = {other} is not known"))),
        };
        Ok(TensorScatter { axis, circular, bits: x.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Cache) -> Run {
        let (dims, new) = (shapes.input(0), shapes.input(1));
        let differs = |k: usize| if k == self.axis { new[k] > dims[k] } else { new[k] != dims[k] };
        if (0..dims.len()).any(differs) {
            return Err(Fault::data(format!("input 1 of {new:?} does not fit into a cache of {dims:?}")));
        }
        if shapes.has(2) && shapes.input_len(2) != size(dims[0]) {
            return Err(Fault::data(format!("input 2 has {} places for a batch of {}", shapes.input_len(2), dims[0])));
        }
        *bound = Cache {
            batches: size(dims[0]),
            blocks: count(&dims[1..self.axis]),
            len: size(dims[self.axis]),
            inner: count(&dims[self.axis + 1..]),
            new: size(new[self.axis]),
        };
        Ok(())
    }
}

impl TensorScatter {
    /// Row from which on a sample's rows are new.
    fn start(&self, cache: &Cache, starts: Option<&[i64]>, sample: usize) -> Result<usize, Fault> {
        let start = starts.map_or(0, |starts| starts[sample]);
        let place = match self.circular {
            true if cache.len > 0 => Some(start.rem_euclid(cache.len as i64)), // a dimension
            _ => (0..=(cache.len - cache.new) as i64).contains(&start).then_some(start), // a dimension
        };
        place.map(size).ok_or_else(|| {
            Fault::data(format!(
                "input 2 has place {start} at element {sample}, from which {} rows do not fit into {}",
                cache.new, cache.len
            ))
        })
    }

    /// Calls `put(from, to, rows)` for runs of rows.
    fn rows(&self, cache: &Cache, args: &Args<'_>, mut put: impl FnMut(usize, usize, usize)) -> Run {
        let starts = args.input_if::<i64>(2);
        for sample in 0..cache.batches {
            let start = self.start(cache, starts, sample)?;
            let before_end = cache.new.min(cache.len - start);
            for block in sample * cache.blocks..(sample + 1) * cache.blocks {
                put(block * cache.new, block * cache.len + start, before_end);
                put(block * cache.new + before_end, block * cache.len, cache.new - before_end);
            }
        }
        Ok(())
    }
}

fn tensor_scatter(op: &TensorScatter, cache: &Cache, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, rows(op, cache, args))
}

fn rows<T: Word>(op: &TensorScatter, cache: &Cache, args: &mut Args<'_>) -> Run {
    let (new, y, inner) = (args.input::<T>(1), copy::<T>(args)?, cache.inner);
    op.rows(cache, args, |from, to, rows| {
        run(&mut y[to * inner..(to + rows) * inner], &new[from * inner..(from + rows) * inner]);
    })
}

/// Two elements share a byte.
fn tensor_scatter_halves(op: &TensorScatter, cache: &Cache, args: &mut Args<'_>) -> Run {
    let (new, y, inner) = (args.input::<u8>(1), copy::<u8>(args)?, cache.inner);
    op.rows(cache, args, |from, to, rows| {
        for k in 0..rows * inner {
            let (from, to) = (from * inner + k, to * inner + k);
            let half = codes::read(4, new, from) & 15;
            let byte = &mut y[to / 2];
            *byte = *byte & (0xf0 >> (to % 2 * 4)) | half << (to % 2 * 4);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::Mergeable;
    use crate::ops::naive::{Dims, count, element, index, position, ramp};
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{Bool, DType, Element, RejectCode};

    const TYPES: [DType; 5] = [DType::U8, DType::Bf16, DType::F32, DType::I64, DType::C128];

    /// Writes the bytes of `new`'s element k over element `to(k)`.
    fn put(x: &Tensor, new: &Tensor, to: impl Fn(usize) -> usize) -> Tensor {
        let (mut y, size) = (x.clone(), x.dtype.bits() / 8);
        for k in 0..count(&new.dims) {
            let at = to(k) * size;
            y.bytes[at..at + size].copy_from_slice(element(new, k));
        }
        y
    }

    /// Data, indices.
    const ELEMENTS: &[(&[i64], &[i64])] = &[
        (&[7], &[3]),
        (&[7], &[0]),
        (&[3, 4], &[3, 4]),
        (&[3, 4], &[2, 3]),
        (&[5, 4, 6], &[2, 4, 3]),
        (&[5, 4, 6], &[2, 0, 3]),
        (&[70, 301], &[60, 300]),
    ];

    fn indices(dims: &[i64], len: i64) -> Vec<i64> {
        (0..count(dims) as i64).map(|k| (k * 5 + k / 7 + 3).rem_euclid(2 * len) - len).collect()
    }

    fn target(dims: &[i64], places: &[i64], list: &[i64], axis: usize, k: usize) -> usize {
        let mut at = index(places, k);
        at[axis] = list[k].rem_euclid(dims[axis]) as usize;
        position(dims, &at)
    }

    #[test]
    fn elements_along_every_axis() {
        for dtype in TYPES {
            for &(dims, places) in ELEMENTS {
                for axis in 0..dims.len() {
                    let (x, new) = (ramp(dtype, dims, 1), ramp(dtype, places, 101));
                    let list = indices(places, dims[axis]);
                    let want = put(&x, &new, |k| target(dims, places, &list, axis, k));
                    let short: Vec<i32> = list.iter().map(|&i| i as i32).collect();
                    for list in [Tensor::new(places, &list), Tensor::new(places, &short)] {
                        on_all("ScatterElements", 18, |case| {
                            let case = case.int("axis", axis as i64).text("reduction", "none");
                            let y = case.input(&x).input(&list).input(&new).output(dtype, dims).run();
                            assert_eq!(y, from_ref(&want), "{dtype} {dims:?} {places:?} {axis}");
                        });
                    }
                }
            }
        }
    }

    type Kind<T> = (&'static str, fn(T, T) -> T);

    fn merged<T: Element + Mergeable + PartialEq + core::fmt::Debug>(number: impl Fn(usize) -> T + Copy) {
        let kinds: [Kind<T>; 4] = [("add", T::add), ("mul", T::mul), ("max", T::max), ("min", T::min)];
        for (reduction, f) in kinds {
            for &(dims, places) in &ELEMENTS[..6] {
                for axis in 0..dims.len() {
                    let (x, new) = (Tensor::from_fn(dims, number), Tensor::from_fn(places, |k| number(k + 3)));
                    let list = indices(places, dims[axis]);
                    let mut want = x.to_vec::<T>();
                    for (k, &u) in new.to_vec::<T>().iter().enumerate() {
                        let at = target(dims, places, &list, axis, k);
                        want[at] = f(want[at], u);
                    }
                    let case = Case::new("ScatterElements", 18).int("axis", axis as i64).text("reduction", reduction);
                    let case = case.input(&x).input(&Tensor::new(places, &list)).input(&new);
                    let y = case.output(T::DTYPE, dims).run();
                    assert_eq!(y, [Tensor::new(dims, &want)], "{} {reduction} {dims:?} {axis}", T::DTYPE);
                }
            }
        }
    }

    #[test]
    fn elements_merge() {
        let float = |k: usize| (k as f32 * 0.7).sin() * 3.0;
        merged(float);
        merged(|k| f64::from(float(k)));
        merged(|k| F16::round(float(k)));
        merged(|k| k as i64 - 6);
        merged(|k| (k as i8).wrapping_mul(77));
        merged(|k| k as u32 * 3);
        merged(|k| Bool(u8::from(k % 3 == 0)));
        let nan = [1.0f32.max(f32::NAN), Mergeable::max(1.0f32, f32::NAN), Mergeable::min(f32::NAN, 1.0)];
        assert!(!nan[0].is_nan() && nan[1].is_nan() && nan[2].is_nan());
    }

    #[test]
    fn slices_at_tuples() {
        // Data, indices, list; `None` is made up.
        let cases: &[(&[i64], &[i64])] = &[
            (&[7], &[3, 1]),
            (&[3, 4], &[5, 2]),
            (&[3, 4], &[2]),
            (&[3, 4], &[1]),
            (&[3, 4, 5], &[2, 3, 2]),
            (&[3, 4, 5], &[0, 2]),
            (&[40, 7, 501], &[9, 1]),
        ];
        for dtype in TYPES {
            for &(dims, places) in cases {
                let (depth, front) = (places[places.len() - 1] as usize, &places[..places.len() - 1]);
                let list: Vec<i64> = (0..count(places))
                    .map(|k| (k as i64 * 5 + 3).rem_euclid(2 * dims[k % depth]) - dims[k % depth])
                    .collect();
                let inner = count(&dims[depth..]);
                let (x, new) = (ramp(dtype, dims, 1), ramp(dtype, &[front, &dims[depth..]].concat(), 90));
                let want = put(&x, &new, |k| {
                    let tuple = (0..depth).map(|d| list[k / inner * depth + d].rem_euclid(dims[d]) as usize);
                    let tuple: Vec<usize> = tuple.collect();
                    position(&dims[..depth], &tuple) * inner + k % inner
                });
                let list = Tensor::new(places, &list);
                on_all("ScatterND", 18, |case| {
                    let case = case.text("reduction", "none").input(&x).input(&list).input(&new);
                    assert_eq!(case.output(dtype, dims).run(), from_ref(&want), "{dtype} {dims:?} {places:?}");
                });
            }
        }
        let (x, list) = (Tensor::new(&[3], &[1i32, 2, 3]), Tensor::new(&[4, 1], &[0i64, -1, 0, 2]));
        let new = Tensor::new(&[4], &[10i32, 20, 30, 40]);
        for (reduction, want) in
            [("add", [41, 2, 63]), ("mul", [300, 2, 2400]), ("max", [30, 2, 40]), ("min", [1, 2, 3])]
        {
            let case = Case::new("ScatterND", 18).text("reduction", reduction).input(&x).input(&list).input(&new);
            assert_eq!(case.output(DType::I32, &[3]).run(), [Tensor::new(&[3], &want)], "{reduction}");
        }
    }

    #[test]
    fn caches_take_new_rows() {
        // Cache, new rows, axis, mode, starts.
        let cases: &[(Dims, i64, i64, &str, Option<Dims>)] = &[
            (&[2, 5, 3], 2, -2, "linear", None),
            (&[2, 5, 3], 2, 1, "linear", Some(&[3, 0])),
            (&[2, 5, 3], 4, 1, "circular", Some(&[3, 11])),
            (&[3, 2, 7, 5], 3, 2, "circular", Some(&[6, 0, -1])),
            (&[2, 3, 4], 3, -1, "linear", Some(&[1, 0])),
        ];
        for dtype in [DType::U8, DType::F8E4M3Fn, DType::F16, DType::F32, DType::I64, DType::C128, DType::U4] {
            for &(dims, rows, axis, mode, starts) in cases {
                let at = axis.rem_euclid(dims.len() as i64) as usize;
                let mut new_dims = dims.to_vec();
                new_dims[at] = rows;
                // Elements below a byte are spread out, put, and packed again.
                let wide = if dtype.bits() < 8 { DType::U8 } else { dtype };
                let spread = |dims: &[i64], seed| {
                    let mut x = ramp(wide, dims, seed);
                    x.bytes.iter_mut().for_each(|b| *b &= if dtype.bits() < 8 { 15 } else { 255 });
                    x
                };
                let (x, new) = (spread(dims, 1), spread(&new_dims, 77));
                let want = put(&x, &new, |k| {
                    let mut i = index(&new_dims, k);
                    let start = starts.map_or(0, |s| s[i[0]]);
                    i[at] = (start + i[at] as i64).rem_euclid(dims[at]) as usize;
                    position(dims, &i)
                });
                let pack = |x: &Tensor| match dtype.bits() {
                    4 => {
                        let halves = |b: &[u8]| b[0] | b.get(1).map_or(0, |b| b << 4);
                        Tensor { dtype, dims: x.dims.clone(), bytes: x.bytes.chunks(2).map(halves).collect() }
                    }
                    _ => x.clone(),
                };
                on_all("TensorScatter", 24, |case| {
                    let mut case = case.int("axis", axis).text("mode", mode).input(&pack(&x)).input(&pack(&new));
                    if let Some(starts) = starts {
                        case = case.input(&Tensor::new(&[starts.len() as i64], starts));
                    }
                    let y = case.output(dtype, dims).run();
                    assert_eq!(y, [pack(&want)], "{dtype} {dims:?} {rows} {mode}");
                });
            }
        }
    }

    #[test]
    fn places_that_are_none_are_named() {
        let (x, new) = (ramp(DType::F32, &[3, 4], 0), ramp(DType::F32, &[1, 2], 0));
        let list = |dims: &[i64], list: &[i64]| Tensor::new(dims, list);
        let case = Case::new("ScatterElements", 18).int("axis", 0).input(&x).input(&list(&[1, 2], &[0, 3])).input(&new);
        let error = case.output(DType::F32, &[3, 4]).try_run().unwrap_err();
        assert!(error.contains("input 1 has index 3 at element 1, but axis 0 has 3 elements"), "{error}");
        let case =
            Case::new("ScatterND", 18).input(&x).input(&list(&[1, 2], &[0, -5])).input(&ramp(DType::F32, &[1], 0));
        let error = case.output(DType::F32, &[3, 4]).try_run().unwrap_err();
        assert!(error.contains("input 1 has index -5 at element 1, but axis 1 has 4 elements"), "{error}");
        let case = Case::new("ScatterND", 18).input(&x).input(&list(&[1, 1], &[0])).input(&ramp(DType::F32, &[1], 0));
        let error = case.output(DType::F32, &[3, 4]).try_run().unwrap_err();
        assert!(error.contains("input 2 has 1 elements, and input 1 names 4"), "{error}");
        let rows = ramp(DType::F32, &[3, 2], 0);
        let case = Case::new("TensorScatter", 24).int("axis", 1).text("mode", "linear").input(&x).input(&rows);
        let error = case.input(&list(&[3], &[0, 3, 0])).output(DType::F32, &[3, 4]).try_run().unwrap_err();
        assert!(error.contains("input 2 has place 3 at element 1, from which 2 rows do not fit into 4"), "{error}");
    }

    #[test]
    fn refusals() {
        let x = ramp(DType::F32, &[3], 0);
        let list = Tensor::new(&[3], &[0i64; 3]);
        let case = |op, version| Case::new(op, version).int("axis", 0).input(&x).input(&list).input(&x);
        let (code, text) = case("ScatterElements", 18).text("reduction", "mean").output(DType::F32, &[3]).rejection();
        let want = "ScatterElements: attribute reduction = mean is not known";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
        let c = ramp(DType::C64, &[3], 0);
        let case = Case::new("ScatterElements", 18).int("axis", 0).text("reduction", "add");
        let (code, text) = case.input(&c).input(&list).input(&c).output(DType::C64, &[3]).rejection();
        let want = "ScatterElements: attribute reduction is not none, which complex64 has no kernel for";
        assert_eq!((code, &*text), (RejectCode::Dtype, want));
        let case = Case::new("TensorScatter", 24).int("axis", 0).input(&x).input(&x);
        let (code, text) = case.output(DType::F32, &[3]).rejection();
        let want = "TensorScatter: attribute axis names axis 0, which is the batch";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
    }
}
