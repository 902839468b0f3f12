//! Operators that pick elements by index.

use super::ints::{self, Index, place};
use super::strided::{self, Axis, Walk};
use super::value::{TENSOR, Word, by_width};
use super::{GRAIN, cost};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{Args, Cost, DType, Fault, Kernel, NodeView, Op, Reject, Shapes, any, count, size, split};
use smallvec::SmallVec;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Gather", (1, 13), "gather", any!(gather)).types(TYPES),
    Kernel::new("GatherElements", (11, 13), "gatherelements", any!(gather_elements)).types(TYPES),
    Kernel::new("GatherND", (11, 13), "gathernd", any!(gather_nd))
        .types(&[("T", TENSOR), ("tensor(int64)", set(&[DType::I64]))]),
];

const TYPES: &[(&str, u64)] = &[("T", TENSOR), ("Tind", set(&[DType::I32, DType::I64]))];

type Run = Result<(), Fault>;

/// Calls a function of element and index type.
macro_rules! by_index {
    ($op:ident, $f:ident($($arg:expr),*)) => {
        match $op.indices {
            DType::I32 => by_index!(@width $op.bits, i32, $f($($arg),*)),
            _ => by_index!(@width $op.bits, i64, $f($($arg),*)),
        }
    };
    (@width $bits:expr, $i:ty, $f:ident($($arg:expr),*)) => {
        match $bits {
            8 => $f::<u8, $i>($($arg),*),
            16 => $f::<u16, $i>($($arg),*),
            32 => $f::<u32, $i>($($arg),*),
            64 => $f::<u64, $i>($($arg),*),
            _ => $f::<$crate::ops::value::Word16, $i>($($arg),*),
        }
    };
}

/// Slices of an axis, by index.
struct Gather {
    axis: usize,
    bits: usize,
    indices: DType,
}

/// The input as `outer` blocks of `len` slices of `inner` elements, and how many slices are taken of each block.
#[derive(Default)]
struct Blocks {
    len: usize,
    inner: usize,
    taken: usize,
}

impl Op for Gather {
    type Bound = Blocks;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, indices) = (node.needs(0)?, node.needs(1)?);
        Ok(Gather { axis: node.axis("axis", x.rank())?, bits: x.dtype().bits(), indices: indices.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Blocks) -> Run {
        let dims = shapes.input(0);
        *bound =
            Blocks { len: size(dims[self.axis]), inner: count(&dims[self.axis + 1..]), taken: shapes.input_len(1) };
        Ok(())
    }
}

fn gather(op: &Gather, blocks: &Blocks, args: &mut Args<'_>) -> Run {
    by_index!(op, gather_words(op, blocks, args))
}

fn gather_words<T: Word, I: Index>(op: &Gather, blocks: &Blocks, args: &mut Args<'_>) -> Run {
    let &Blocks { len, inner, taken } = blocks;
    let (x, indices) = (args.input::<T>(0), args.input::<I>(1));
    ints::within(indices, len, 1, op.axis)?;
    let y = args.output::<T>(0);
    if inner == 1 {
        return Ok(split::rows(args.par(), y, 1, GRAIN, |_, first, mut y| {
            let (mut block, mut at) = (first / taken, first % taken);
            while !y.is_empty() {
                let x = &x[block * len..][..len];
                let (piece, rest) = y.split_at_mut((taken - at).min(y.len()));
                piece.iter_mut().zip(&indices[at..]).for_each(|(y, &i)| *y = x[place(i, len)]);
                (y, block, at) = (rest, block + 1, 0);
            }
        })?);
    }
    Ok(split::rows(args.par(), y, inner, GRAIN.div_ceil(inner.max(1)), |_, first, rows| {
        let (mut block, mut at) = (first / taken, first % taken);
        for row in rows.chunks_exact_mut(inner) {
            let from = (block * len + place(indices[at], len)) * inner;
            strided::run(row, &x[from..from + inner]);
            at += 1;
            if at == taken {
                (block, at) = (block + 1, 0);
            }
        }
    })?)
}

/// An element for each index, all other coordinates being the index's own.
struct GatherElements {
    axis: usize,
    bits: usize,
    indices: DType,
}

/// How tensors of one rank lie that are walked along the last axis of `indices`, while an index says the place on an axis
/// of the other tensor.
#[derive(Default)]
pub(crate) struct Lines {
    /// Axes of `indices` but the last one, and how far the other tensor goes along them.
    pub outer: SmallVec<[Axis; 6]>,
    /// Elements of the last axis of `indices`, and how far the other tensor goes along it.
    pub line: usize,
    pub along: usize,
    /// Elements of the indexed axis, and how far they are from each other.
    pub len: usize,
    pub step: usize,
}

impl Lines {
    /// Follows new shapes.
    pub fn bind(&mut self, dims: &[i64], indices: &[i64], axis: usize) -> Run {
        let behind = (0..dims.len()).find(|&k| k != axis && indices[k] > dims[k]);
        if let Some(k) = behind {
            return Err(Fault::data(format!(
                "dimension {k} of input 1 is {}, more than that of input 0, {}",
                indices[k], dims[k]
            )));
        }
        let far = |k: usize| if k == axis { 0 } else { count(&dims[k + 1..]) };
        let last = dims.len() - 1;
        self.outer = (0..last).map(|k| Axis { len: size(indices[k]), step: strided::step(far(k)) }).collect();
        (self.line, self.along) = (size(indices[last]), far(last));
        (self.len, self.step) = (size(dims[axis]), count(&dims[axis + 1..]));
        Ok(())
    }
}

impl Op for GatherElements {
    type Bound = Lines;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, indices) = (node.needs(0)?, node.needs(1)?);
        same_rank(x.rank(), indices.rank())?;
        Ok(GatherElements { axis: node.axis("axis", x.rank())?, bits: x.dtype().bits(), indices: indices.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.5)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Lines) -> Run {
        bound.bind(shapes.input(0), shapes.input(1), self.axis)
    }
}

/// Refuses indices of another rank than the data.
pub(crate) fn same_rank(data: usize, indices: usize) -> Result<(), Reject> {
    match data == indices {
        true => Ok(()),
        false => Err(Reject::rank(format!("input 0 has rank {data} and input 1 {indices}: they have to be equal"))),
    }
}

fn gather_elements(op: &GatherElements, lines: &Lines, args: &mut Args<'_>) -> Run {
    by_index!(op, elements(op, lines, args))
}

fn elements<T: Word, I: Index>(op: &GatherElements, lines: &Lines, args: &mut Args<'_>) -> Run {
    let (x, indices) = (args.input::<T>(0), args.input::<I>(1));
    ints::within(indices, lines.len, 1, op.axis)?;
    let y = args.output::<T>(0);
    Ok(split::rows(args.par(), y, lines.line, GRAIN.div_ceil(lines.line.max(1)), |_, first, rows| {
        let mut walk = Walk::new(&lines.outer, 0, first);
        let indices = indices[first * lines.line..].chunks_exact(lines.line);
        for (row, indices) in rows.chunks_exact_mut(lines.line).zip(indices) {
            let mut at = walk.at;
            for (y, &index) in row.iter_mut().zip(indices) {
                *y = x[at + place(index, lines.len) * lines.step];
                at += lines.along;
            }
            walk.next(&lines.outer);
        }
    })?)
}

/// Slices behind the first axes, by tuples of indices.
struct GatherNd {
    batch: usize,
    bits: usize,
}

/// How tuples of indices lead into a tensor.
#[derive(Default)]
pub(crate) struct Tuples {
    /// First axes, which data and tuples share: blocks of both.
    pub batches: usize,
    /// Tuples per block.
    pub count: usize,
    /// Length of the indexed axes, and how far their elements are from each other.
    pub axes: SmallVec<[(usize, usize); 6]>,
    /// Elements of a slice.
    pub inner: usize,
    /// Axes in front of the indexed ones.
    pub batch: usize,
}

impl Tuples {
    /// Follows new shapes.
    pub fn bind(&mut self, dims: &[i64], indices: &[i64], batch: usize) -> Run {
        let (&depth, front) = indices.split_last().ok_or_else(|| Fault::data("input 1 is a scalar"))?;
        let indexed = dims.get(batch..).and_then(|dims| dims.get(..size(depth)));
        let Some(indexed) = indexed.filter(|_| front.len() >= batch && front[..batch] == dims[..batch]) else {
            return Err(Fault::data(format!(
                "input 1 of {indices:?} cannot lead into {dims:?} behind {batch} batch axes"
            )));
        };
        let behind = batch + indexed.len();
        self.batches = count(&dims[..batch]);
        self.count = count(&front[batch..]);
        self.axes = (batch..behind).map(|k| (size(dims[k]), count(&dims[k + 1..]))).collect();
        self.inner = count(&dims[behind..]);
        self.batch = batch;
        Ok(())
    }

    /// Where the slice of tuple `number` of a block begins in the block.
    #[inline]
    pub fn place(&self, number: usize, indices: &[i64]) -> Result<usize, Fault> {
        let depth = self.axes.len();
        let tuple = &indices[number * depth..][..depth];
        let mut at = 0;
        for (k, (&index, &(len, step))) in tuple.iter().zip(&self.axes).enumerate() {
            let place = place(index, len);
            if place >= len {
                return Err(ints::outside(index, number * depth + k, len, 1, self.batch + k));
            }
            at += place * step;
        }
        Ok(at)
    }

    /// Elements of a block of the data.
    pub fn block(&self) -> usize {
        self.axes.first().map_or(self.inner, |&(len, step)| len * step)
    }
}

impl Op for GatherNd {
    type Bound = Tuples;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, indices) = (node.needs(0)?, node.needs(1)?);
        let batch = node.int_if("batch_dims").unwrap_or(0);
        let fits = usize::try_from(batch).ok().filter(|&b| b < x.rank().min(indices.rank()));
        let Some(batch) = fits else {
            let text = format!("attribute batch_dims = {batch} is not below ranks {} and {}", x.rank(), indices.rank());
            return Err(Reject::attribute(text));
        };
        Ok(GatherNd { batch, bits: x.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Tuples) -> Run {
        bound.bind(shapes.input(0), shapes.input(1), self.batch)
    }

    /// Where each slice begins.
    fn scratch(&self, bound: &Tuples, _: usize) -> usize {
        bound.batches * bound.count * size_of::<u64>()
    }
}

fn gather_nd(op: &GatherNd, tuples: &Tuples, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, slices(tuples, args))
}

fn slices<T: Word>(tuples: &Tuples, args: &mut Args<'_>) -> Run {
    let (x, indices) = (args.input::<T>(0), args.input::<i64>(1));
    let (block, inner) = (tuples.block(), tuples.inner);
    let starts = &mut args.scratch::<u64>()[..tuples.batches * tuples.count];
    for (number, start) in starts.iter_mut().enumerate() {
        *start = (number / tuples.count * block + tuples.place(number, indices)?) as u64; // a usize
    }
    let y = args.output::<T>(0);
    Ok(split::rows(args.par(), y, inner, GRAIN.div_ceil(inner.max(1)), |_, first, rows| {
        for (row, &start) in rows.chunks_exact_mut(inner).zip(&starts[first..]) {
            strided::run(row, &x[start as usize..][..inner]); // was made from a usize
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{Dims, count, index, pick, position, ramp};
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, RejectCode};

    const TYPES: [DType; 5] = [DType::U8, DType::Bf16, DType::F32, DType::I64, DType::C128];

    /// Indices below `len`, from both ends.
    fn indices(dims: &[i64], len: i64) -> Vec<i64> {
        (0..count(dims) as i64).map(|k| (k * 5 + 3).rem_euclid(2 * len) - len).collect()
    }

    fn both(dims: &[i64], list: &[i64]) -> [Tensor; 2] {
        let short: Vec<i32> = list.iter().map(|&i| i as i32).collect();
        [Tensor::new(dims, list), Tensor::new(dims, &short)]
    }

    #[test]
    fn gather_along_every_axis() {
        // Data, indices.
        let cases: &[(&[i64], &[i64])] = &[
            (&[7], &[]),
            (&[7], &[3]),
            (&[7], &[2, 5]),
            (&[5, 1], &[4]),
            (&[5, 12], &[2, 2]),
            (&[3, 4, 5], &[]),
            (&[3, 4, 5], &[3, 0]),
            (&[0, 4], &[2]),
            (&[33, 301], &[123]),
        ];
        for dtype in TYPES {
            for &(dims, places) in cases {
                for axis in (0..dims.len()).filter(|&k| dims[k] > 0) {
                    let x = ramp(dtype, dims, axis);
                    let list = indices(places, dims[axis]);
                    let out = [&dims[..axis], places, &dims[axis + 1..]].concat();
                    let want = pick(&x, &out, |i| {
                        let at = position(places, &i[axis..axis + places.len()]);
                        let picked = list[at].rem_euclid(dims[axis]) as usize;
                        [&i[..axis], &[picked], &i[axis + places.len()..]].concat()
                    });
                    for places in both(places, &list) {
                        on_all("Gather", 13, |case| {
                            let case = case.int("axis", axis as i64 - dims.len() as i64).input(&x).input(&places);
                            let y = case.output(dtype, &out).run();
                            assert_eq!(y, from_ref(&want), "{dtype} {dims:?} {axis} {:?}", places.dims);
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn gather_elements_along_every_axis() {
        // Data, indices.
        let cases: &[(&[i64], &[i64])] = &[
            (&[7], &[3]),
            (&[3, 4], &[3, 4]),
            (&[3, 4], &[2, 3]),
            (&[3, 4, 5], &[2, 4, 3]),
            (&[3, 4, 5], &[0, 4, 3]),
            (&[70, 301], &[70, 301]),
        ];
        for dtype in TYPES {
            for &(dims, places) in cases {
                for axis in 0..dims.len() {
                    let x = ramp(dtype, dims, axis);
                    let list = indices(places, dims[axis]);
                    let want = pick(&x, places, |i| {
                        let mut from = i.to_vec();
                        from[axis] = list[position(places, i)].rem_euclid(dims[axis]) as usize;
                        from
                    });
                    for places in both(places, &list) {
                        on_all("GatherElements", 13, |case| {
                            let case = case.int("axis", axis as i64).input(&x).input(&places);
                            assert_eq!(
                                case.output(dtype, &places.dims).run(),
                                from_ref(&want),
                                "{dtype} {dims:?} {axis}"
                            );
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn gather_nd_at_all_depths() {
        // Data, indices, batch axes.
        let cases: &[(&[i64], &[i64], usize)] = &[
            (&[7], &[3, 1], 0),
            (&[3, 4], &[5, 2], 0),
            (&[3, 4], &[2], 0),
            (&[3, 4, 5], &[2, 3, 2], 0),
            (&[3, 4, 5], &[0, 2], 0),
            (&[2, 4, 5], &[2, 3, 1], 1),
            (&[2, 3, 4, 5], &[2, 3, 2], 2),
            (&[2, 3, 4, 5], &[2, 6, 2], 1),
            (&[40, 7, 501], &[40, 9, 1], 1),
        ];
        for dtype in TYPES {
            for &(dims, places, batch) in cases {
                let (depth, front) = (places[places.len() - 1] as usize, &places[..places.len() - 1]);
                let list: Vec<i64> = (0..count(places))
                    .map(|k| {
                        let len = dims[batch + k % depth];
                        (k as i64 * 5 + 3).rem_euclid(2 * len) - len
                    })
                    .collect();
                let x = ramp(dtype, dims, batch);
                let out = [front, &dims[batch + depth..]].concat();
                let want = pick(&x, &out, |i| {
                    let tuple = position(front, &i[..front.len()]) * depth;
                    let picked = (0..depth).map(|k| list[tuple + k].rem_euclid(dims[batch + k]) as usize);
                    i[..batch].iter().copied().chain(picked).chain(i[front.len()..].iter().copied()).collect()
                });
                let places = Tensor::new(places, &list);
                on_all("GatherND", 13, |case| {
                    let case = case.int("batch_dims", batch as i64).input(&x).input(&places);
                    assert_eq!(case.output(dtype, &out).run(), from_ref(&want), "{dtype} {dims:?} {batch}");
                });
            }
        }
        assert_eq!(index(&[2, 3], 4), [1, 1]);
    }

    #[test]
    fn indices_that_lead_nowhere_are_named() {
        let x = ramp(DType::F32, &[3, 4], 0);
        // Operator, indices, dimensions, output, what is said.
        let cases: &[(&str, Dims, Dims, Dims, &str)] = &[
            ("Gather", &[0, 3], &[2], &[2, 4], "input 1 has index 3 at element 1, but axis 0 has 3 elements"),
            ("Gather", &[-4], &[1], &[1, 4], "index -4 at element 0"),
            ("Gather", &[i64::MIN], &[1], &[1, 4], "index -9223372036854775808 at element 0"),
            ("GatherElements", &[0, 5], &[1, 2], &[1, 2], "index 5 at element 1, but axis 0"),
            ("GatherND", &[0, 0, 2, 4], &[2, 2], &[2], "index 4 at element 3, but axis 1 has 4 elements"),
            ("GatherND", &[-4], &[1, 1], &[1, 4], "index -4 at element 0, but axis 0"),
        ];
        for &(op, list, dims, out, want) in cases {
            let case = Case::new(op, 13).int("axis", 0).int("batch_dims", 0).input(&x).input(&Tensor::new(dims, list));
            let error = case.output(DType::F32, out).try_run().unwrap_err();
            assert!(error.contains(want) && error.contains(op), "{error}");
        }
        let empty = ramp(DType::F32, &[0, 4], 0);
        let case = Case::new("Gather", 13).int("axis", 0).input(&empty).input(&Tensor::new(&[1], &[0i64]));
        assert!(case.output(DType::F32, &[1, 4]).try_run().unwrap_err().contains("axis 0 has 0 elements"));
    }

    #[test]
    fn refusals() {
        let x = ramp(DType::F32, &[3, 4], 0);
        let (scalar, list) = (Tensor::new(&[], &[0i64]), Tensor::new(&[1], &[0i64]));
        let (code, text) =
            Case::new("Gather", 13).int("axis", 2).input(&x).input(&scalar).output(DType::F32, &[4]).rejection();
        let want = "Gather: attribute axis = 2 is no axis of a tensor of rank 2";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
        let case = Case::new("GatherElements", 13).int("axis", 0).input(&x).input(&list);
        let (code, text) = case.output(DType::F32, &[1]).rejection();
        let want = "GatherElements: input 0 has rank 2 and input 1 1: they have to be equal";
        assert_eq!((code, &*text), (RejectCode::Rank, want));
        let case = Case::new("GatherND", 13).int("batch_dims", 1).input(&x).input(&list);
        let (code, text) = case.output(DType::F32, &[1]).rejection();
        let want = "GatherND: attribute batch_dims = 1 is not below ranks 2 and 1";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
        let case = Case::new("GatherElements", 13).int("axis", 0).input(&x).input(&ramp(DType::I64, &[1, 5], 0));
        let error = case.output(DType::F32, &[1, 5]).try_run().unwrap_err();
        assert!(error.contains("dimension 1 of input 1 is 5, more than that of input 0, 4"), "{error}");
    }
}
