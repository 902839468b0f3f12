//! Joining tensors along an axis, cutting them into parts, and slicing.

use super::strided::{self, Strided};
use super::value::{TENSOR, Word, by_width};
use super::{GRAIN, cost, ints};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{Args, Cost, DType, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, any, count, size, split};
use smallvec::SmallVec;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Concat", (4, 13), "concat", any!(concat)).types(&[("T", TENSOR)]),
    Kernel::new("Slice", (10, 13), "slice", any!(slice))
        .types(&[("T", TENSOR), ("Tind", set(&[DType::I32, DType::I64]))])
        .late(),
    Kernel::new("Split", (18, 18), "split", any!(split_up)).types(&[("T", TENSOR)]).unread(&[1]),
];

type Run = Result<(), Fault>;

/// All inputs, one behind the other along an axis.
struct Concat {
    axis: usize,
    bits: usize,
}

/// A row of the output is one row of each input.
#[derive(Default)]
struct Rows {
    /// Elements of a row.
    len: usize,
    parts: Vec<Piece>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    input: usize,
    /// Where it begins in the row, and elements of the row that it has.
    start: usize,
    len: usize,
}

impl Op for Concat {
    type Bound = Rows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        let axis = node.axis("axis", x.rank())?;
        for k in 0..node.input_count() {
            let (rank, dtype) = (node.needs(k)?.rank(), node.needs(k)?.dtype());
            if rank != x.rank() {
                return Err(Reject::rank(format!("input {k} has rank {rank}, and input 0 {}", x.rank())));
            }
            if dtype as u32 != x.dtype() as u32 {
                return Err(Reject::dtype(format!("input {k} is {dtype}, and input 0 {}", x.dtype())));
            }
        }
        Ok(Concat { axis, bits: x.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, rows: &mut Rows) -> Run {
        let out = shapes.output(0);
        rows.parts.clear();
        rows.len = 0;
        for input in (0..).take_while(|&k| shapes.has(k)) {
            let dims = shapes.input(input);
            let differs = dims.iter().zip(out).enumerate().any(|(k, (a, b))| k != self.axis && a != b);
            if differs {
                return Err(Fault::data(format!("input {input} has dimensions {dims:?} and the output {out:?}")));
            }
            let len = count(&dims[self.axis..]);
            if len > 0 {
                rows.parts.push(Piece { input, start: rows.len, len });
            }
            rows.len += len;
        }
        match rows.len == count(&out[self.axis..]) {
            true => Ok(()),
            false => Err(Fault::data(format!("the inputs do not add up to dimensions {out:?}"))),
        }
    }
}

fn concat(op: &Concat, rows: &Rows, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, concat_words(rows, args))
}

fn concat_words<T: Word>(rows: &Rows, args: &mut Args<'_>) -> Run {
    let inputs: SmallVec<[&[T]; 32]> = rows.parts.iter().map(|part| args.input::<T>(part.input)).collect();
    let y = args.output::<T>(0);
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, first, mut y| {
        let (mut row, mut column) = (first / rows.len, first % rows.len);
        let mut k = rows.parts.partition_point(|part| part.start + part.len <= column);
        while !y.is_empty() {
            let part = rows.parts[k];
            let within = column - part.start;
            let (piece, rest) = y.split_at_mut((part.len - within).min(y.len()));
            strided::run(piece, &inputs[k][row * part.len + within..][..piece.len()]);
            (y, k, column) = (rest, k + 1, part.start + part.len);
            if k == rows.parts.len() {
                (row, k, column) = (row + 1, 0, 0);
            }
        }
    })?)
}

/// One input, cut along an axis.
struct Split {
    axis: usize,
    bits: usize,
    outputs: usize,
    /// Sizes of the parts, if they are the same in every run.
    sizes: Option<Ints>,
}

/// Where each output lies in the input.
#[derive(Default)]
struct Parts(Vec<Strided>);

impl Op for Split {
    type Bound = Parts;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        let outputs = node.output_count();
        let sizes = node.input(1).and_then(|v| v.fixed_elements());
        if let Some(sizes) = sizes.as_ref().filter(|sizes| sizes.len() != outputs) {
            return Err(Reject::shape(format!("input 1 has {} sizes for {outputs} outputs", sizes.len())));
        }
        let said = node.int_if("num_outputs").filter(|_| node.input(1).is_none());
        if let Some(said) = said.filter(|&n| usize::try_from(n) != Ok(outputs)) {
            return Err(Reject::attribute(format!("attribute num_outputs = {said}, but there are {outputs} outputs")));
        }
        let omitted = (0..outputs).find(|&k| node.output(k).is_none());
        if let (Some(k), Some(_), None) = (omitted, node.input(1), &sizes) {
            return Err(Reject::shape(format!("output {k} is omitted and its size is not known before the run")));
        }
        Ok(Split { axis: node.axis("axis", x.rank())?, bits: x.dtype().bits(), outputs, sizes })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, Parts(walks): &mut Parts) -> Run {
        let dims = shapes.input(0);
        let (len, inner) = (size(dims[self.axis]), count(&dims[self.axis + 1..]));
        walks.clear();
        let mut start = 0;
        for k in 0..self.outputs {
            let part = match (shapes.output(k).get(self.axis), &self.sizes) {
                (Some(&dim), _) => size(dim),
                (None, Some(sizes)) => size(sizes[k]),
                (None, None) => len.div_ceil(self.outputs).min(len - start.min(len)),
            };
            let mut walk = Strided::at(start * inner);
            walk.push(count(&dims[..self.axis]), strided::step(len * inner));
            walk.push(part * inner, 1);
            walks.push(walk);
            start += part;
        }
        match start == len {
            true => Ok(()),
            false => {
                Err(Fault::data(format!("the parts have {start} elements along axis {}, the input {len}", self.axis)))
            }
        }
    }
}

fn split_up(op: &Split, Parts(walks): &Parts, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, split_words(walks, args))
}

fn split_words<T: Word>(walks: &[Strided], args: &mut Args<'_>) -> Run {
    let x = args.input::<T>(0);
    for (k, walk) in walks.iter().enumerate() {
        if args.wants(k) {
            let y = args.output::<T>(k);
            walk.copy(args.par(), x, y)?;
        }
    }
    Ok(())
}

/// Elements from starts to ends, by steps.
struct Slice {
    bits: usize,
    indices: DType,
}

/// Inputs of [`Slice`] that say what is taken.
const LISTS: [usize; 4] = [1, 2, 3, 4];

/// What is taken of an input.
#[derive(Default)]
struct Cut {
    dims: Ints,
    /// `None` if only the run knows.
    taken: Option<Taken>,
}

#[derive(Default)]
struct Taken {
    dims: Ints,
    walk: Strided,
}

impl Op for Slice {
    type Bound = Cut;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, starts) = (node.needs(0)?, node.needs(1)?);
        for input in 1..node.input_count() {
            if let Some(list) = node.input(input).filter(|list| list.rank() != 1) {
                return Err(Reject::rank(format!("input {input} has rank {}, a list is needed", list.rank())));
            }
        }
        node.needs(2)?;
        ints::check_axes(node, 3, x.rank())?;
        let steps = node.input(4).and_then(|v| v.fixed_elements());
        if let Some(k) = steps.and_then(|steps| steps.iter().position(|&step| step == 0)) {
            return Err(Reject::shape(format!("input 4 has step 0 at element {k}")));
        }
        Ok(Slice { bits: x.dtype().bits(), indices: starts.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, cut: &mut Cut) -> Run {
        cut.dims = Ints::from_slice(shapes.input(0));
        cut.taken = match ints::known(shapes, LISTS) {
            Some(lists) => Some(take(&cut.dims, lists)?),
            None => None,
        };
        Ok(())
    }
}

/// Follows starts, ends, axes and steps.
fn take(dims: &[i64], [starts, ends, axes, steps]: [Option<&[i64]>; 4]) -> Result<Taken, Fault> {
    let (starts, ends) = (starts.unwrap_or_default(), ends.unwrap_or_default());
    let lengths = [ends.len(), axes.map_or(starts.len(), <[i64]>::len), steps.map_or(starts.len(), <[i64]>::len)];
    if lengths.iter().any(|&n| n != starts.len()) || (axes.is_none() && starts.len() > dims.len()) {
        return Err(Fault::data(format!(
            "starts has {} elements, ends {}, axes {}, steps {}: they do not fit each other and rank {}",
            starts.len(),
            lengths[0],
            lengths[1],
            lengths[2],
            dims.len()
        )));
    }
    let mut ranges: SmallVec<[Range; 8]> = dims.iter().map(|&len| Range { start: 0, len, step: 1 }).collect();
    for k in 0..starts.len() {
        let axis = match axes {
            Some(axes) => ints::axis(axes[k], dims.len(), 3)?,
            None => k,
        };
        let step = steps.map_or(1, |steps| steps[k]);
        if step == 0 {
            return Err(Fault::data(format!("input 4 has step 0 at element {k}")));
        }
        ranges[axis] = Range::new(dims[axis], starts[k], ends[k], step);
    }
    let mut taken = Taken { dims: ranges.iter().map(|range| range.len).collect(), walk: Strided::default() };
    let mut inside = 1;
    let mut steps: SmallVec<[isize; 8]> = SmallVec::from_elem(0, dims.len());
    for (axis, range) in ranges.iter().enumerate().rev() {
        taken.walk.start += size(range.start) * inside;
        // A step that leads out of the axis is never taken, so it may be any.
        steps[axis] = isize::try_from(range.step).ok().and_then(|s| s.checked_mul(strided::step(inside))).unwrap_or(0);
        inside *= size(dims[axis]);
    }
    ranges.iter().zip(steps).for_each(|(range, step)| taken.walk.push(size(range.len), step));
    Ok(taken)
}

/// Elements of one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: i64,
    len: i64,
    step: i64,
}

impl Range {
    /// As NumPy slices: negative places count from the end, and places outside are moved to the ends.
    fn new(size: i64, start: i64, end: i64, step: i64) -> Range {
        let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
        let place = |at: i64| if at < 0 { at.saturating_add(size) } else { at }.max(low).min(high);
        let (start, end) = (place(start), place(end));
        let span = if step > 0 { end - start } else { start - end };
        let len = match u64::try_from(span) {
            Ok(span) => i64::try_from(span.div_ceil(step.unsigned_abs())).unwrap_or(0), // at most the size
            Err(_) => 0,
        };
        Range { start, len, step }
    }
}

fn slice(op: &Slice, cut: &Cut, args: &mut Args<'_>) -> Run {
    let found;
    let taken = match &cut.taken {
        Some(taken) => taken,
        None => {
            let lists = LISTS.map(|input| args.has(input).then(|| ints::read(args, input, op.indices)));
            found = take(&cut.dims, lists.each_ref().map(|list| list.as_deref()))?;
            &found
        }
    };
    by_width!(op.bits, slice_words(taken, args))
}

fn slice_words<T: Word>(taken: &Taken, args: &mut Args<'_>) -> Run {
    let (x, y) = (args.input::<T>(0), args.emit::<T>(0, &taken.dims)?);
    Ok(taken.walk.copy(args.par(), x, y)?)
}

#[cfg(test)]
mod tests {
    use super::Range;
    use crate::ops::naive::{Dims, pick, ramp};
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, RejectCode};

    const TYPES: [DType; 5] = [DType::U8, DType::Bf16, DType::F32, DType::I64, DType::C128];

    #[test]
    fn concat_at_all_shapes() {
        // Dimensions, axis, sizes along it.
        let cases: &[(&[i64], i64, &[i64])] = &[
            (&[1], 0, &[1]),
            (&[1], 0, &[3, 0, 4]),
            (&[3, 1], 1, &[1, 1, 1, 1]),
            (&[3, 1], -1, &[2, 5]),
            (&[1, 7], 0, &[2, 1, 3]),
            (&[2, 1, 5], 1, &[3, 1, 0, 4]),
            (&[2, 1, 0], 1, &[3, 1]),
            (&[4, 1, 5003], -2, &[1, 2]),
            (&[1, 2], 0, &[1; 40]),
        ];
        for dtype in TYPES {
            for &(dims, axis, sizes) in cases {
                let at = axis.rem_euclid(dims.len() as i64) as usize;
                let with =
                    |n: i64| dims.iter().enumerate().map(|(k, &d)| if k == at { n } else { d }).collect::<Vec<_>>();
                let whole = ramp(dtype, &with(sizes.iter().sum()), 3);
                on_all("Concat", 13, |mut case| {
                    let mut start = 0;
                    for &n in sizes {
                        let part = pick(&whole, &with(n), |i| {
                            let mut i = i.to_vec();
                            i[at] += start;
                            i
                        });
                        start += n as usize;
                        // The fake host hands in few inputs.
                        case = if start < 9 { case.input(&part) } else { case.constant(&part) };
                    }
                    let y = case.int("axis", axis).output(dtype, &whole.dims).run();
                    assert_eq!(y, from_ref(&whole), "{dtype} {dims:?} {axis} {sizes:?}");
                });
            }
        }
    }

    #[test]
    fn split_at_all_shapes() {
        // Dimensions, axis, sizes, whether they are given.
        let cases: &[(Dims, i64, Dims, bool)] = &[
            (&[7], 0, &[7], false),
            (&[7], 0, &[3, 3, 1], false),
            (&[3, 6], 1, &[2, 2, 2], false),
            (&[3, 6], -1, &[1, 0, 5], true),
            (&[3, 6], 0, &[2, 1], true),
            (&[2, 5, 301], 1, &[4, 1], true),
            (&[0, 4], 1, &[2, 2], true),
        ];
        for dtype in TYPES {
            for &(dims, axis, sizes, given) in cases {
                let at = axis.rem_euclid(dims.len() as i64) as usize;
                let x = ramp(dtype, dims, 5);
                for constant in [false, true] {
                    on_all("Split", 18, |case| {
                        let mut case = case.int("axis", axis).input(&x);
                        let list = Tensor::new(&[sizes.len() as i64], sizes);
                        case = match (given, constant) {
                            (false, _) => case.int("num_outputs", sizes.len() as i64),
                            (true, false) => case.input(&list),
                            (true, true) => case.constant(&list),
                        };
                        let (mut start, mut want) = (0, Vec::new());
                        for &n in sizes {
                            let mut part = dims.to_vec();
                            part[at] = n;
                            want.push(pick(&x, &part, |i| {
                                let mut i = i.to_vec();
                                i[at] += start;
                                i
                            }));
                            start += n as usize;
                            case = case.output(dtype, &part);
                        }
                        assert_eq!(case.run(), want, "{dtype} {dims:?} {axis} {sizes:?}");
                    });
                }
            }
        }
    }

    #[test]
    fn ranges_are_those_of_slices() {
        const ALL: i64 = i64::MAX;
        // Size, start, end, step; what is taken.
        let cases: &[(i64, i64, i64, i64, &[i64])] = &[
            (5, 1, 3, 1, &[1, 2]),
            (5, -2, ALL, 1, &[3, 4]),
            (5, -9, 2, 1, &[0, 1]),
            (5, 3, 1, 1, &[]),
            (5, 0, ALL, 2, &[0, 2, 4]),
            (5, 4, -ALL, -1, &[4, 3, 2, 1, 0]),
            (5, ALL, i64::MIN, -2, &[4, 2, 0]),
            (5, -1, 0, -1, &[4, 3, 2, 1]),
            (5, -9, -99, -1, &[]),
            (5, 1, ALL, ALL, &[1]),
            (5, 3, i64::MIN, i64::MIN, &[3]),
            (0, 0, ALL, 1, &[]),
            (0, -1, i64::MIN, -1, &[]),
        ];
        for &(size, start, end, step, want) in cases {
            let range = Range::new(size, start, end, step);
            let got: Vec<i64> = (0..range.len).map(|k| range.start + k * range.step).collect();
            assert_eq!(got, want, "{start}..{end} by {step} of {size}");
        }
    }

    struct Cut {
        dims: &'static [i64],
        starts: &'static [i64],
        ends: &'static [i64],
        axes: Option<&'static [i64]>,
        steps: Option<&'static [i64]>,
    }

    const CUTS: &[Cut] = &[
        Cut { dims: &[9], starts: &[2], ends: &[7], axes: None, steps: None },
        Cut { dims: &[9], starts: &[-1], ends: &[-10], axes: None, steps: Some(&[-1]) },
        Cut { dims: &[5, 6], starts: &[1, 0], ends: &[4, 99], axes: None, steps: None },
        Cut { dims: &[5, 6], starts: &[1], ends: &[99], axes: Some(&[-1]), steps: Some(&[2]) },
        Cut { dims: &[5, 6], starts: &[4, 4], ends: &[-99, 0], axes: Some(&[0, 1]), steps: Some(&[-2, -3]) },
        Cut { dims: &[3, 85, 4], starts: &[0, 2], ends: &[3, 80], axes: Some(&[2, 1]), steps: None },
        Cut { dims: &[2, 3, 4, 70], starts: &[1], ends: &[2], axes: Some(&[2]), steps: None },
        Cut { dims: &[4, 0], starts: &[1], ends: &[3], axes: Some(&[0]), steps: None },
        Cut { dims: &[4, 3], starts: &[3], ends: &[1], axes: Some(&[0]), steps: None },
        Cut { dims: &[2, 3], starts: &[], ends: &[], axes: Some(&[]), steps: None },
        Cut { dims: &[150, 301], starts: &[1, 300], ends: &[149, -400], axes: None, steps: Some(&[1, -1]) },
    ];

    impl Cut {
        fn want(&self, x: &Tensor) -> Tensor {
            let mut ranges: Vec<Range> = x.dims.iter().map(|&d| Range { start: 0, len: d, step: 1 }).collect();
            for k in 0..self.starts.len() {
                let axis = self.axes.map_or(k as i64, |axes| axes[k]).rem_euclid(x.dims.len() as i64) as usize;
                let step = self.steps.map_or(1, |steps| steps[k]);
                ranges[axis] = Range::new(x.dims[axis], self.starts[k], self.ends[k], step);
            }
            let dims: Vec<i64> = ranges.iter().map(|r| r.len).collect();
            pick(x, &dims, |i| i.iter().zip(&ranges).map(|(&i, r)| (r.start + i as i64 * r.step) as usize).collect())
        }
    }

    #[test]
    fn slices_whether_known_before_or_found_in_the_run() {
        for dtype in TYPES {
            for cut in CUTS {
                let x = ramp(dtype, cut.dims, 7);
                let want = cut.want(&x);
                let lists = [Some(cut.starts), Some(cut.ends), cut.axes, cut.steps];
                for (constant, late, short) in [(true, false, false), (false, false, true), (false, true, false)] {
                    on_all("Slice", 13, |mut case| {
                        case = case.input(&x);
                        for list in lists {
                            let dims = [cut.starts.len() as i64];
                            case = match list {
                                Some(list) => {
                                    let narrow: Vec<i32> = list
                                        .iter()
                                        .map(|&n| n.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
                                        .collect();
                                    let list =
                                        if short { Tensor::new(&dims, &narrow) } else { Tensor::new(&dims, list) };
                                    if constant { case.constant(&list) } else { case.input(&list) }
                                }
                                None => case.skip(),
                            };
                        }
                        let case = match late {
                            true => case.late_output(dtype, x.dims.len()),
                            false => case.output(dtype, &want.dims),
                        };
                        assert_eq!(case.run(), from_ref(&want), "{dtype} {:?} {:?}", cut.dims, cut.starts);
                    });
                }
            }
        }
    }

    #[test]
    fn slices_that_are_no_slices() {
        let x = ramp(DType::F32, &[4, 5], 1);
        let list = |n: &[i64]| Tensor::new(&[n.len() as i64], n);
        // Starts, ends, axes, steps; what is said.
        let cases: &[(Dims, Dims, Dims, Dims, &str)] = &[
            (&[0], &[1], &[2], &[1], "input 3 has 2, which is no axis of a tensor of rank 2"),
            (&[0], &[1], &[0], &[0], "input 4 has step 0 at element 0"),
            (&[0], &[1, 2], &[0], &[1], "starts has 1 elements, ends 2, axes 1, steps 1"),
        ];
        for &(starts, ends, axes, steps, want) in cases {
            let case = Case::new("Slice", 13).input(&x).input(&list(starts)).input(&list(ends)).input(&list(axes));
            let error = case.input(&list(steps)).late_output(DType::F32, 2).try_run().unwrap_err();
            assert!(error.contains(want), "{error}");
        }
        let case = Case::new("Slice", 13).input(&x).input(&list(&[0])).input(&list(&[1])).constant(&list(&[7]));
        let (code, text) = case.output(DType::F32, &[1, 5]).rejection();
        let want = "Slice: input 3 has 7, which is no axis of a tensor of rank 2";
        assert_eq!((code, &*text), (RejectCode::Shape, want));
        let case = Case::new("Slice", 13).input(&x).input(&list(&[0])).input(&list(&[1])).skip().constant(&list(&[0]));
        let (code, text) = case.output(DType::F32, &[1, 5]).rejection();
        assert_eq!((code, &*text), (RejectCode::Shape, "Slice: input 4 has step 0 at element 0"));
    }

    #[test]
    fn joins_that_do_not_fit() {
        let (a, b) = (ramp(DType::F32, &[2, 3], 1), ramp(DType::F32, &[2], 2));
        let (code, text) =
            Case::new("Concat", 13).int("axis", 0).input(&a).input(&b).output(DType::F32, &[4, 3]).rejection();
        assert_eq!((code, &*text), (RejectCode::Rank, "Concat: input 1 has rank 1, and input 0 2"));
        let (code, _) = Case::new("Concat", 13).int("axis", 2).input(&a).output(DType::F32, &[2, 3]).rejection();
        assert_eq!(code, RejectCode::Attribute);
        let sizes = Tensor::new(&[2], &[1i64, 1]);
        let case = Case::new("Split", 18).int("axis", 1).input(&a).input(&sizes);
        let error = case.output(DType::F32, &[2, 1]).output(DType::F32, &[2, 1]).try_run().unwrap_err();
        assert!(error.contains("the parts have 2 elements along axis 1, the input 3"), "{error}");
        let case = Case::new("Split", 18).int("axis", 1).int("num_outputs", 3).input(&a);
        let (code, text) = case.output(DType::F32, &[2, 3]).rejection();
        let want = "Split: attribute num_outputs = 3, but there are 1 outputs";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
    }
}
