//! Reductions over axes: which elements belong together, and loops that fold them. What they are folded into is in `fold`.

use super::fold::{Fold, L1, L2, LogSum, LogSumExp, Max, Mean, Min, Prod, Sum, SumSquare, fold};
use super::narrow::{Bf16, F16};
use super::strided::{self, Axis, Walk};
use super::{Cpu, GRAIN, cost, ints};
use crate::simd::{self, Isa, Simd};
use core::marker::PhantomData;
use ortolan_ep_kit::{
    Args, Bool, Cost, DType, Element, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, size, split, typed,
};
use smallvec::SmallVec;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("ReduceL1", (18, 18), "reducel1", typed!(l1: f32 f64 F16 Bf16 i32 i64 u32 u64)).late(),
    Kernel::new("ReduceL2", (18, 18), "reducel2", typed!(l2: f32 f64 F16 Bf16 i32 i64 u32 u64)).late(),
    Kernel::new("ReduceLogSum", (18, 28), "reducelogsum", typed!(log_sum: f32 f64 F16 Bf16)).late(),
    Kernel::new("ReduceLogSumExp", (18, 28), "reducelogsumexp", typed!(log_sum_exp: f32 f64 F16 Bf16)).late(),
    Kernel::new("ReduceMax", (18, 20), "reducemax", typed!(max: f32 f64 F16 Bf16 i8 i32 i64 u8 u32 u64 Bool)).late(),
    Kernel::new("ReduceMean", (18, 18), "reducemean", typed!(mean: f32 f64 F16 Bf16 i32 i64 u32 u64)).late(),
    Kernel::new("ReduceMin", (18, 20), "reducemin", typed!(min: f32 f64 F16 Bf16 i8 i32 i64 u8 u32 u64 Bool)).late(),
    Kernel::new("ReduceProd", (18, 18), "reduceprod", typed!(prod: f32 f64 F16 Bf16 i32 i64 u32 u64)).late(),
    Kernel::new("ReduceSum", (13, 13), "reducesum", typed!(sum: f32 f64 F16 Bf16 i32 i64 u32 u64)).late(),
    Kernel::new("ReduceSumSquare", (18, 18), "reducesumsquare", typed!(sum_square: f32 f64 F16 Bf16 i32 i64 u32 u64))
        .late(),
];

type Run = Result<(), Fault>;

/// Some axes become one element.
struct Reduce {
    isa: Isa,
    keep: bool,
    /// What no axes means: none of them.
    noop: bool,
}

/// What belongs together, and where it lies.
#[derive(Default)]
struct Groups {
    /// Output dimensions.
    dims: Ints,
    /// Axes that stay and axes that go, but for the innermost axis. Neighbours of a kind are one.
    kept: SmallVec<[Axis; 4]>,
    gone: SmallVec<[Axis; 4]>,
    /// Elements of the innermost axis, and whether it goes.
    line: usize,
    line_goes: bool,
    /// Lines per result, and elements.
    lines: usize,
    count: usize,
}

#[derive(Default)]
struct Bound {
    dims: Ints,
    /// `None` if only the run knows the axes.
    groups: Option<Groups>,
}

impl Op for Reduce {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        ints::check_axes(node, 1, node.needs(0)?.rank())?;
        let flag = |name, default| node.int_if(name).unwrap_or(default) != 0;
        Ok(Reduce { isa: Cpu::of(node).isa, keep: flag("keepdims", 1), noop: flag("noop_with_empty_axes", 0) })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Run {
        bound.dims = Ints::from_slice(shapes.input(0));
        bound.groups = match ints::known(shapes, [1]) {
            Some([axes]) => Some(self.groups(&bound.dims, axes.unwrap_or_default())?),
            None => None,
        };
        Ok(())
    }
}

impl Reduce {
    fn groups(&self, dims: &[i64], axes: &[i64]) -> Result<Groups, Fault> {
        let mut goes: SmallVec<[bool; 8]> = SmallVec::from_elem(axes.is_empty() && !self.noop, dims.len());
        for &axis in axes {
            goes[ints::axis(axis, dims.len(), 1)?] = true;
        }
        // Innermost first; neighbours of a kind are one.
        let mut parts: SmallVec<[(bool, Axis); 8]> = SmallVec::new();
        let mut inner = 1;
        for (&goes, &dim) in goes.iter().zip(dims).rev() {
            match (size(dim), parts.last_mut()) {
                (1, _) => {}
                (len, Some((before, axis))) if *before == goes => axis.len *= len,
                (len, _) => parts.push((goes, Axis { len, step: strided::step(inner) })),
            }
            inner *= size(dim);
        }
        let kind = |kind: bool| parts.iter().skip(1).rev().filter(move |part| part.0 == kind).map(|part| part.1);
        let (line_goes, line) = parts.first().map_or((false, 1), |&(goes, axis)| (goes, axis.len));
        let (kept, gone): (SmallVec<_>, SmallVec<[Axis; 4]>) = (kind(false).collect(), kind(true).collect());
        let lines = gone.iter().map(|axis| axis.len).product();
        let out = goes.iter().zip(dims).filter(|&(&goes, _)| self.keep || !goes);
        Ok(Groups {
            dims: out.map(|(&goes, &dim)| if goes { 1 } else { dim }).collect(),
            count: if line_goes { lines * line } else { lines },
            kept,
            gone,
            line,
            line_goes,
            lines,
        })
    }
}

macro_rules! reductions {
    ($($name:ident = $fold:ident;)*) => { $(
        fn $name<T: Element + Send + Sync>(op: &Reduce, bound: &Bound, args: &mut Args<'_>) -> Run
        where
            $fold: Fold<T>,
        {
            reduce::<T, $fold>(op, bound, args)
        }
    )* };
}
reductions! {
    l1 = L1;
    l2 = L2;
    log_sum = LogSum;
    log_sum_exp = LogSumExp;
    max = Max;
    mean = Mean;
    min = Min;
    prod = Prod;
    sum = Sum;
    sum_square = SumSquare;
}

fn reduce<T: Element + Send + Sync, F: Fold<T>>(op: &Reduce, bound: &Bound, args: &mut Args<'_>) -> Run {
    let found;
    let groups = match &bound.groups {
        Some(groups) => groups,
        None => {
            found = op.groups(&bound.dims, &ints::read(args, 1, DType::I64))?;
            &found
        }
    };
    let (x, y) = (args.input::<T>(0), args.emit::<T>(0, &groups.dims)?);
    if x.is_empty() {
        y.fill(F::end(F::start(), 0));
        return Ok(());
    }
    let grain = (GRAIN / groups.count).max(1);
    Ok(split::rows(args.par(), y, 1, grain, |_, first, y| {
        op.isa.dispatch(Piece::<T, F> { groups, x, first, y, fold: PhantomData });
    })?)
}

/// Some results, from number `first` on.
struct Piece<'a, T, F> {
    groups: &'a Groups,
    x: &'a [T],
    first: usize,
    y: &'a mut [T],
    fold: PhantomData<F>,
}

impl<T: Copy, F: Fold<T>> simd::Kernel for Piece<'_, T, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self.groups.line_goes {
            true => self.rows(),
            false => self.columns(),
        }
    }
}

/// Columns that are folded together: their sums stay in the nearest cache.
const COLUMNS: usize = 128;

impl<T: Copy, F: Fold<T>> Piece<'_, T, F> {
    /// Each result is made of whole lines.
    #[inline(always)]
    fn rows(self) {
        let Piece { groups, x, first, y, .. } = self;
        let line = |at: usize| fold::<T, F>(&x[at..at + groups.line]);
        let mut result = Walk::new(&groups.kept, 0, first);
        for y in y {
            let mut sum = line(result.at);
            let mut walk = Walk::new(&groups.gone, result.at, 0);
            for _ in 1..groups.lines {
                walk.next(&groups.gone);
                sum = F::join(sum, line(walk.at));
            }
            *y = F::end(sum, groups.count);
            result.next(&groups.kept);
        }
    }

    /// A line holds an element of each of its results.
    #[inline(always)]
    fn columns(self) {
        let Piece { groups, x, first, mut y, .. } = self;
        let mut column = first % groups.line;
        let mut result = Walk::new(&groups.kept, 0, first / groups.line);
        while !y.is_empty() {
            let (piece, rest) = y.split_at_mut((groups.line - column).min(COLUMNS).min(y.len()));
            let mut sums = [F::start(); COLUMNS];
            let sums = &mut sums[..piece.len()];
            let mut walk = Walk::new(&groups.gone, result.at + column, 0);
            for _ in 0..groups.lines {
                for (sum, &x) in sums.iter_mut().zip(&x[walk.at..walk.at + piece.len()]) {
                    *sum = F::take(*sum, x);
                }
                walk.next(&groups.gone);
            }
            piece.iter_mut().zip(sums).for_each(|(y, sum)| *y = F::end(*sum, groups.count));
            column += piece.len();
            y = rest;
            if column == groups.line {
                column = 0;
                result.next(&groups.kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{index, position};
    use crate::ops::narrow::{Bf16, F16};
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{Bool, DType, Element, RejectCode};

    /// Dimensions, axes.
    const SHAPES: &[(&[i64], &[i64])] = &[
        (&[], &[]),
        (&[1], &[0]),
        (&[7], &[0]),
        (&[7], &[]),
        (&[5, 6], &[]),
        (&[5, 6], &[0]),
        (&[5, 6], &[-1]),
        (&[3, 1, 4], &[1]),
        (&[3, 4, 5], &[1]),
        (&[3, 4, 5], &[0, 2]),
        (&[3, 4, 5], &[0, -2]),
        (&[2, 3, 4, 5], &[1, 3]),
        (&[2, 3, 4, 5], &[0, 2]),
        (&[4, 133], &[1]),
        (&[4, 133], &[0]),
        (&[3, 9, 300], &[1]),
        (&[2, 64, 700], &[2]),
        (&[3, 0], &[0]),
        (&[3, 0], &[1]),
        (&[0, 3], &[1]),
    ];

    /// Numbers of a group and what they become.
    type Definition = fn(&[f64]) -> f64;

    fn naive(x: &[f64], dims: &[i64], axes: &[i64], keep: bool, f: Definition) -> (Vec<i64>, Vec<f64>) {
        let goes = |k: usize| axes.is_empty() || axes.iter().any(|a| a.rem_euclid(dims.len() as i64) as usize == k);
        let kept: Vec<i64> = dims.iter().enumerate().map(|(k, &d)| if goes(k) { 1 } else { d }).collect();
        let mut groups = vec![Vec::new(); kept.iter().product::<i64>() as usize];
        for (k, &x) in x.iter().enumerate() {
            let at: Vec<usize> = index(dims, k).iter().enumerate().map(|(k, &i)| if goes(k) { 0 } else { i }).collect();
            groups[position(&kept, &at)].push(x);
        }
        let out = (0..dims.len()).filter(|&k| keep || !goes(k)).map(|k| kept[k]).collect();
        (out, groups.iter().map(|group| f(group)).collect())
    }

    const SUM: Definition = |x| x.iter().sum();
    const FLOATS: &[(&str, u32, Definition)] = &[
        ("ReduceL1", 18, |x| x.iter().map(|x| x.abs()).sum()),
        ("ReduceL2", 18, |x| x.iter().map(|x| x * x).sum::<f64>().sqrt()),
        ("ReduceLogSum", 28, |x| x.iter().sum::<f64>().ln()),
        ("ReduceLogSumExp", 28, |x| x.iter().map(|x| x.exp()).sum::<f64>().ln()),
        ("ReduceMax", 20, |x| x.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        ("ReduceMean", 18, |x| x.iter().sum::<f64>() / x.len() as f64),
        ("ReduceMin", 20, |x| x.iter().copied().fold(f64::INFINITY, f64::min)),
        ("ReduceProd", 18, |x| x.iter().product()),
        ("ReduceSum", 13, SUM),
        ("ReduceSumSquare", 18, |x| x.iter().map(|x| x * x).sum()),
    ];

    fn floats<T: Element>(of: impl Fn(f64) -> T + Copy, wide: impl Fn(T) -> f64 + Copy, tolerance: f64) {
        for &(op, version, f) in FLOATS {
            for &(dims, axes) in SHAPES {
                let x = Tensor::from_fn(dims, |k| of(1.0 + (k as f64 * 0.37).sin() * 0.25));
                let numbers: Vec<f64> = x.to_vec::<T>().into_iter().map(wide).collect();
                for keep in [true, false] {
                    let (out, want) = naive(&numbers, dims, axes, keep, f);
                    let want = Tensor::new(&out, &want);
                    on_all(op, version, |case| {
                        let case = case.int("keepdims", keep.into()).input(&x);
                        let case = case.constant(&Tensor::new(&[axes.len() as i64], axes));
                        let y = case.output(T::DTYPE, &out).run().remove(0).to_vec::<T>();
                        let y = Tensor::new(&out, &y.into_iter().map(wide).collect::<Vec<_>>());
                        assert_close(&y, &want, tolerance);
                    });
                }
            }
        }
    }

    #[test]
    fn floats_like_the_definition() {
        floats(|x| x as f32, f64::from, 2e-5);
        floats(|x| x, |x: f64| x, 1e-12);
        floats(|x| F16::round(x as f32), |x| x.wide().into(), 1e-3);
        floats(|x| Bf16::round(x as f32), |x| x.wide().into(), 8e-3);
    }

    #[test]
    fn integers_like_the_definition() {
        let cases: &[(&str, u32, Definition)] = &[
            ("ReduceL1", 18, |x| x.iter().map(|x| x.abs()).sum()),
            ("ReduceL2", 18, |x| x.iter().map(|x| x * x).sum::<f64>().sqrt().floor()),
            ("ReduceMax", 20, |x| x.iter().copied().fold(f64::from(i32::MIN), f64::max)),
            ("ReduceMean", 18, |x| if x.is_empty() { 0.0 } else { (x.iter().sum::<f64>() / x.len() as f64).trunc() }),
            ("ReduceMin", 20, |x| x.iter().copied().fold(f64::from(i32::MAX), f64::min)),
            ("ReduceSum", 13, SUM),
            ("ReduceSumSquare", 18, |x| x.iter().map(|x| x * x).sum()),
        ];
        for &(op, version, f) in cases {
            for &(dims, axes) in SHAPES {
                let x = Tensor::from_fn(dims, |k| (k as i32 * 7) % 19 - 9);
                let numbers: Vec<f64> = x.to_vec::<i32>().into_iter().map(f64::from).collect();
                let (out, want) = naive(&numbers, dims, axes, true, f);
                let want = Tensor::new(&out, &want.into_iter().map(|x| x as i32).collect::<Vec<_>>());
                on_all(op, version, |case| {
                    let case = case.int("keepdims", 1).input(&x).input(&Tensor::new(&[axes.len() as i64], axes));
                    assert_eq!(case.output(DType::I32, &out).run(), from_ref(&want), "{op} {dims:?} {axes:?}");
                });
            }
        }
        let x = Tensor::new(&[3], &[i64::MAX, 1, 1]);
        let y = Case::new("ReduceSum", 13).int("keepdims", 0).input(&x).output(DType::I64, &[]).run();
        assert_eq!(y, [Tensor::new(&[], &[i64::MIN + 1])]);
        let x = Tensor::new(&[2, 2], &[200u8, 3, 7, 255]);
        let axes = Tensor::new(&[1], &[1i64]);
        let y = Case::new("ReduceMax", 20).int("keepdims", 0).input(&x).constant(&axes).output(DType::U8, &[2]).run();
        assert_eq!(y, [Tensor::new(&[2], &[200u8, 255])]);
    }

    #[test]
    fn truth_values() {
        let x = Tensor::new(&[3, 2], &[Bool(0), Bool(9), Bool(0), Bool(1), Bool(0), Bool(0)]);
        let axes = Tensor::new(&[1], &[0i64]);
        for (op, want) in [("ReduceMax", [Bool(0), Bool(1)]), ("ReduceMin", [Bool(0), Bool(0)])] {
            let case = Case::new(op, 20).int("keepdims", 0).input(&x).constant(&axes);
            assert_eq!(case.output(DType::Bool, &[2]).run(), [Tensor::new(&[2], &want)], "{op}");
        }
        let none = Tensor::new(&[0], &[Bool(0); 0]);
        for (op, want) in [("ReduceMax", Bool(0)), ("ReduceMin", Bool(1))] {
            let y = Case::new(op, 20).int("keepdims", 0).input(&none).output(DType::Bool, &[]).run();
            assert_eq!(y, [Tensor::new(&[], &[want])], "{op}");
        }
    }

    #[test]
    fn what_is_no_number_shows() {
        for (op, version) in [("ReduceMax", 20), ("ReduceMin", 20), ("ReduceSum", 13), ("ReduceLogSumExp", 28)] {
            for dims in [[1i64, 5], [5, 1], [2, 40], [40, 2]] {
                for axis in [0i64, 1] {
                    let x = Tensor::from_fn(&dims, |k| if k == 3 { f32::NAN } else { 1.0 });
                    let case = Case::new(op, version).int("keepdims", 0).input(&x);
                    let out = [dims[1 - axis as usize]];
                    let y = case.constant(&Tensor::new(&[1], &[axis])).output(DType::F32, &out).run();
                    assert_eq!(y[0].to_vec::<f32>().iter().filter(|y| y.is_nan()).count(), 1, "{op} {dims:?} {axis}");
                }
            }
        }
        let infinite =
            Tensor::new(&[3, 2], &[f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, f32::INFINITY, f32::NEG_INFINITY, 0.0]);
        let case = Case::new("ReduceLogSumExp", 28).int("keepdims", 0).input(&infinite);
        let y = case.constant(&Tensor::new(&[1], &[0i64])).output(DType::F32, &[2]).run();
        assert_eq!(y[0].to_vec::<f32>(), [f32::NEG_INFINITY, f32::INFINITY]);
        let large = Tensor::new(&[2], &[1000.0f32, 1000.0]);
        let y = Case::new("ReduceLogSumExp", 28).int("keepdims", 0).input(&large).output(DType::F32, &[]).run();
        assert_close(&y[0], &Tensor::new(&[], &[1000.0 + 2f32.ln()]), 1e-6);
    }

    #[test]
    fn no_axes_may_mean_none() {
        let x = Tensor::new(&[2, 2], &[1.0f32, -2.0, 3.0, -4.0]);
        for (op, version, want) in
            [("ReduceSum", 13, [1.0f32, -2.0, 3.0, -4.0]), ("ReduceSumSquare", 18, [1.0, 4.0, 9.0, 16.0])]
        {
            for axes in [None, Some(Tensor::new(&[0], &[0i64; 0]))] {
                let mut case = Case::new(op, version).int("keepdims", 1).int("noop_with_empty_axes", 1).input(&x);
                if let Some(axes) = axes {
                    case = case.input(&axes);
                }
                assert_eq!(case.output(DType::F32, &[2, 2]).run(), [Tensor::new(&[2, 2], &want)], "{op}");
            }
        }
    }

    #[test]
    fn axes_that_only_the_run_knows() {
        let x = Tensor::from_fn(&[2, 3, 4], |k| k as i32);
        let axes = Tensor::new(&[2], &[-1i64, 0]);
        let case = Case::new("ReduceSum", 13).int("keepdims", 0).input(&x).input(&axes);
        let want: Vec<i32> = (0..3).map(|j| (0..24).filter(|k| k / 4 % 3 == j).sum()).collect();
        assert_eq!(case.late_output(DType::I32, 1).run(), [Tensor::new(&[3], &want)]);
        let case = Case::new("ReduceSum", 13).int("keepdims", 1).input(&x).input(&Tensor::new(&[1], &[3i64]));
        let error = case.late_output(DType::I32, 3).try_run().unwrap_err();
        assert!(error.contains("input 1 has 3, which is no axis of a tensor of rank 3"), "{error}");
    }

    #[test]
    fn refusals() {
        let x = Tensor::new(&[2], &[1.0f32; 2]);
        let case = Case::new("ReduceMean", 18).int("keepdims", 1).input(&x).constant(&Tensor::new(&[1], &[1i64]));
        let (code, text) = case.output(DType::F32, &[2]).rejection();
        let want = "ReduceMean: input 1 has 1, which is no axis of a tensor of rank 1";
        assert_eq!((code, &*text), (RejectCode::Shape, want));
    }
}
