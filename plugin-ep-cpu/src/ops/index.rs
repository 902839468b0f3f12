//! Operators that find, keep or turn round elements by what other elements say.

use super::narrow::{Bf16, F16};
use super::strided::{self, run};
use super::value::{BOOL, TENSOR, Word, by_width};
use super::{GRAIN, cost};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{
    Args, Bool, Cost, DType, Element, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, any, count, size, split, typed,
};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Compress", (9, 28), "compress", any!(compress)).types(&[("T", TENSOR), ("T1", BOOL)]).late(),
    Kernel::new("NonZero", (9, 13), "nonzero", typed!(non_zero: Bool f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64))
        .late(),
    Kernel::new("ReverseSequence", (10, 28), "reversesequence", any!(reverse))
        .types(&[("T", TENSOR), ("tensor(int64)", set(&[DType::I64]))]),
];

type Run = Result<(), Fault>;

/// Slices of an axis, or elements, for which a condition holds.
struct Compress {
    axis: Option<usize>,
    bits: usize,
}

/// The input as `outer` blocks of `len` slices of `inner` elements.
#[derive(Default)]
struct Blocks {
    dims: Ints,
    len: usize,
    inner: usize,
}

impl Op for Compress {
    type Bound = Blocks;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, condition) = (node.needs(0)?, node.needs(1)?);
        if condition.rank() != 1 {
            return Err(Reject::rank(format!("input 1 has rank {}, a list is needed", condition.rank())));
        }
        let axis = node.int_if("axis").map(|_| node.axis("axis", x.rank())).transpose()?;
        Ok(Compress { axis, bits: x.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, blocks: &mut Blocks) -> Run {
        let dims = shapes.input(0);
        *blocks = match self.axis {
            Some(axis) => {
                Blocks { dims: Ints::from_slice(dims), len: size(dims[axis]), inner: count(&dims[axis + 1..]) }
            }
            None => Blocks { dims: Ints::from_slice(&[0]), len: shapes.input_len(0), inner: 1 },
        };
        Ok(())
    }
}

fn compress(op: &Compress, blocks: &Blocks, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, compress_words(op, blocks, args))
}

fn compress_words<T: Word>(op: &Compress, blocks: &Blocks, args: &mut Args<'_>) -> Run {
    let (x, keep) = (args.input::<T>(0), args.input::<Bool>(1));
    let &Blocks { len, inner, .. } = blocks;
    if let Some(at) = keep.iter().skip(len).position(|keep| keep.get()) {
        return Err(Fault::data(format!(
            "input 1 is true at element {}, and there are {len} to choose from",
            len + at
        )));
    }
    let kept = keep.iter().filter(|keep| keep.get()).count();
    let mut dims = blocks.dims.clone();
    dims[op.axis.unwrap_or(0)] = kept as i64; // at most a dimension
    let y = args.emit::<T>(0, &dims)?;
    let block = kept * inner;
    Ok(split::rows(args.par(), y, block, GRAIN.div_ceil(block.max(1)), |_, first, blocks| {
        for (number, y) in (first..).zip(blocks.chunks_exact_mut(block)) {
            let slices = x[number * len * inner..][..len * inner].chunks_exact(inner);
            let kept = slices.zip(keep).filter(|(_, keep)| keep.get());
            y.chunks_exact_mut(inner).zip(kept).for_each(|(y, (x, _))| run(y, x));
        }
    })?)
}

/// Where elements are not zero, axis by axis.
struct NonZero;

impl Op for NonZero {
    type Bound = Ints;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        Ok(NonZero)
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, dims: &mut Ints) -> Run {
        *dims = Ints::from_slice(shapes.input(0));
        Ok(())
    }
}

fn non_zero<T: Element + PartialEq + Default>(_: &NonZero, dims: &Ints, args: &mut Args<'_>) -> Run {
    let (x, zero) = (args.input::<T>(0), T::default());
    let found = x.iter().map(|x| usize::from(*x != zero)).sum::<usize>();
    // Counts are at most the input's, which is in memory.
    let y = args.emit::<i64>(0, &[dims.len() as i64, found as i64])?;
    let Some((&line, outer)) = dims.split_last() else { return Ok(()) };
    let mut index = Ints::from_elem(0, outer.len());
    let mut at = 0;
    for line in x.chunks_exact(size(line).max(1)) {
        for (column, _) in line.iter().enumerate().filter(|(_, x)| **x != zero) {
            index.iter().enumerate().for_each(|(axis, &i)| y[axis * found + at] = i);
            y[outer.len() * found + at] = column as i64; // a place on an axis
            at += 1;
        }
        for (i, &dim) in index.iter_mut().zip(outer).rev() {
            *i += 1;
            if *i < dim {
                break;
            }
            *i = 0;
        }
    }
    Ok(())
}

/// The first elements of each sample in reverse order of time.
struct Reverse {
    /// Whether time is axis 1 and the batch axis 0, not the other way round.
    time_inside: bool,
    bits: usize,
}

#[derive(Default)]
struct Samples {
    times: usize,
    batches: usize,
    inner: usize,
}

impl Op for Reverse {
    type Bound = Samples;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        node.needs(1)?;
        if x.rank() < 2 {
            return Err(Reject::rank(format!("input 0 has rank {}, at least 2 is needed", x.rank())));
        }
        let (time, batch) = (node.int_if("time_axis").unwrap_or(0), node.int_if("batch_axis").unwrap_or(1));
        match (time, batch) {
            (0, 1) | (1, 0) => Ok(Reverse { time_inside: time == 1, bits: x.dtype().bits() }),
            _ => Err(Reject::attribute(format!(
                "attributes time_axis = {time} and batch_axis = {batch} are not 0 and 1 or 1 and 0"
            ))),
        }
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Samples) -> Run {
        let dims = shapes.input(0);
        let (time, batch) = if self.time_inside { (1, 0) } else { (0, 1) };
        *bound = Samples { times: size(dims[time]), batches: size(dims[batch]), inner: count(&dims[2..]) };
        match shapes.input_len(1) == bound.batches {
            true => Ok(()),
            false => Err(Fault::data(format!(
                "input 1 has {} lengths for a batch of {}",
                shapes.input_len(1),
                bound.batches
            ))),
        }
    }
}

fn reverse(op: &Reverse, samples: &Samples, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, reverse_words(op, samples, args))
}

fn reverse_words<T: Word>(op: &Reverse, samples: &Samples, args: &mut Args<'_>) -> Run {
    let (x, lengths, y) = (args.input::<T>(0), args.input::<i64>(1), args.output::<T>(0));
    let &Samples { times, batches, inner } = samples;
    let wrong = lengths.iter().position(|&n| n < 0 || size(n) > times);
    if let Some(at) = wrong {
        let text = format!("input 1 has length {} at element {at}, and there are {times} times", lengths[at]);
        return Err(Fault::data(text));
    }
    Ok(split::rows(args.par(), y, inner, GRAIN.div_ceil(inner.max(1)), |_, first, rows| {
        for (number, y) in (first..).zip(rows.chunks_exact_mut(inner)) {
            let (time, sample) = match op.time_inside {
                true => (number % times, number / times),
                false => (number / batches, number % batches),
            };
            let length = size(lengths[sample]);
            let from = if time < length { length - 1 - time } else { time };
            let row = if op.time_inside { sample * times + from } else { from * batches + sample };
            run(y, &x[row * inner..][..inner]);
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{Dims, count, index, pick, ramp};
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{Bool, DType, Element, RejectCode};

    const TYPES: [DType; 5] = [DType::U8, DType::Bf16, DType::F32, DType::I64, DType::C128];

    #[test]
    fn kept_slices() {
        // Dimensions, axis, condition.
        let cases: &[(Dims, Option<i64>, &[u8])] = &[
            (&[5], None, &[1, 0, 0, 2, 1]),
            (&[5], Some(0), &[0, 0]),
            (&[2, 3], None, &[0, 1, 1, 0, 1]),
            (&[2, 3], Some(-1), &[1, 0, 1]),
            (&[2, 3, 4], Some(1), &[0, 1, 1, 0, 0]),
            (&[2, 0, 4], Some(2), &[0, 1, 1]),
            (&[60, 3, 301], Some(1), &[1, 0, 1]),
        ];
        for dtype in TYPES {
            for &(dims, axis, keep) in cases {
                let x = ramp(dtype, dims, 1);
                let flat = Tensor { dims: vec![count(dims) as i64], ..x.clone() };
                let (from, at) = match axis {
                    Some(axis) => (&x, axis.rem_euclid(dims.len() as i64) as usize),
                    None => (&flat, 0),
                };
                let places: Vec<usize> = (0..keep.len()).filter(|&k| keep[k] != 0).collect();
                let mut out = from.dims.clone();
                out[at] = places.len() as i64;
                let want = pick(from, &out, |i| {
                    let mut i = i.to_vec();
                    i[at] = places[i[at]];
                    i
                });
                let keep = Tensor::from_fn(&[keep.len() as i64], |k| Bool(keep[k]));
                for late in [false, true] {
                    on_all("Compress", 28, |mut case| {
                        if let Some(axis) = axis {
                            case = case.int("axis", axis);
                        }
                        let case = case.input(&x).input(&keep);
                        let case = match late {
                            true => case.late_output(dtype, out.len()),
                            false => case.output(dtype, &out),
                        };
                        assert_eq!(case.run(), from_ref(&want), "{dtype} {dims:?} {axis:?}");
                    });
                }
            }
        }
        let (x, keep) = (ramp(DType::F32, &[2], 0), Tensor::new(&[4], &[Bool(1), Bool(0), Bool(0), Bool(1)]));
        let error = Case::new("Compress", 28).input(&x).input(&keep).late_output(DType::F32, 1).try_run().unwrap_err();
        assert!(error.contains("input 1 is true at element 3, and there are 2 to choose from"), "{error}");
    }

    fn places<T: Element + PartialEq + Default>(number: impl Fn(usize) -> T) {
        for dims in [&[][..], &[0], &[7], &[3, 4], &[2, 0, 3], &[3, 4, 5], &[1, 2, 3, 2]] {
            let x = Tensor::from_fn(dims, &number);
            let found: Vec<Vec<usize>> =
                (0..count(dims)).filter(|&k| number(k) != T::default()).map(|k| index(dims, k)).collect();
            let want = Tensor::from_fn(&[dims.len() as i64, found.len() as i64], |k| {
                found[k % found.len()][k / found.len()] as i64
            });
            for late in [false, true] {
                let case = Case::new("NonZero", 13).input(&x);
                let case = match late {
                    true => case.late_output(DType::I64, 2),
                    false => case.output(DType::I64, &want.dims),
                };
                assert_eq!(case.run(), from_ref(&want), "{} {dims:?}", T::DTYPE);
            }
        }
    }

    #[test]
    fn places_of_what_is_not_zero() {
        places(|k| [0.0f32, 1.0, -0.0, f32::NAN, 0.0][k * 3 % 5]);
        places(|k| F16([0, 1, 0x8000, 0x7e00][k * 3 % 4]));
        places(|k| Bool([0, 7, 1][k % 3]));
        places(|k| k as i64 % 3 - 1);
        places(|_| 0u8);
        places(|_| 1i16);
    }

    #[test]
    fn reversed_sequences() {
        for dtype in TYPES {
            for dims in [&[4i64, 3][..], &[4, 3, 5], &[3, 4, 2, 2], &[2, 0, 3], &[60, 70, 80]] {
                for inside in [false, true] {
                    let (time, batch) = if inside { (1, 0) } else { (0, 1) };
                    let x = ramp(dtype, dims, 1);
                    let lengths: Vec<i64> = (0..dims[batch]).map(|k| (k * 3 + 1) % (dims[time] + 1)).collect();
                    let want = pick(&x, dims, |i| {
                        let mut i = i.to_vec();
                        let length = lengths[i[batch]] as usize;
                        if i[time] < length {
                            i[time] = length - 1 - i[time];
                        }
                        i
                    });
                    on_all("ReverseSequence", 28, |case| {
                        let case = case.int("time_axis", time as i64).int("batch_axis", batch as i64);
                        let case = case.input(&x).input(&Tensor::new(&[dims[batch]], &lengths));
                        assert_eq!(case.output(dtype, dims).run(), from_ref(&want), "{dtype} {dims:?} {inside}");
                    });
                }
            }
        }
        let (x, lengths) = (ramp(DType::F32, &[2, 3], 0), Tensor::new(&[3], &[1i64, 2, 3]));
        let case = || Case::new("ReverseSequence", 28).input(&x).input(&lengths);
        let error = case().int("time_axis", 0).int("batch_axis", 1).output(DType::F32, &[2, 3]).try_run().unwrap_err();
        assert!(error.contains("input 1 has length 3 at element 2, and there are 2 times"), "{error}");
        let case = case().int("time_axis", 1).int("batch_axis", 1).output(DType::F32, &[2, 3]);
        let (code, text) = case.rejection();
        let want = "ReverseSequence: attributes time_axis = 1 and batch_axis = 1 are not 0 and 1 or 1 and 0";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
    }
}
