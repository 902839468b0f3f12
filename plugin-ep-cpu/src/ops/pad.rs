//! Padding and cropping at the ends of axes.

use super::strided::{self, run};
use super::value::{EIGHTS, SMALL, TENSOR, Word, by_width};
use super::{GRAIN, codes, ints};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, any, count, size, split};
use smallvec::SmallVec;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("CenterCropPad", (18, 18), "centercroppad", any!(center)).types(&[("T", TENSOR)]).unread(&[1]),
    Kernel::new("Pad", (11, 25), "pad", any!(pad)).types(&[("T", TENSOR | EIGHTS)]).late(),
    Kernel::new("Pad", (11, 25), "pad", any!(pad_small)).types(&[("T", SMALL)]).late().fallback(),
];

type Run = Result<(), Fault>;

/// What lies beyond the ends of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Constant,
    /// The axis turned round, its end not repeated.
    Reflect,
    /// The last element again.
    Edge,
    /// The axis again.
    Wrap,
}

/// An axis of which more or less is wanted.
#[derive(Debug, Clone, Copy)]
struct Axis {
    len: usize,
    out: usize,
    /// Elements in front of the input's first one; negative if some of them are left out.
    before: i64,
    /// From one element of the input to the next.
    step: usize,
}

/// The output, axis by axis. Axes behind the last changed one are one run of elements.
#[derive(Default)]
struct Frame {
    dims: Ints,
    outer: SmallVec<[Axis; 6]>,
    last: Option<Axis>,
    inner: usize,
}

impl Axis {
    /// The input's element under element `at`, or `None` if there is none.
    fn source(&self, mode: Mode, at: usize) -> Option<usize> {
        let (place, len) = ((at as i64).wrapping_sub(self.before), self.len as i64); // sizes of tensors in memory
        if (0..len).contains(&place) {
            return Some(size(place));
        }
        let period = 2 * (len - 1);
        Some(size(match mode {
            Mode::Constant => return None,
            Mode::Edge => place.clamp(0, len - 1),
            Mode::Wrap => place.rem_euclid(len),
            Mode::Reflect if len == 1 => 0,
            Mode::Reflect => match place.rem_euclid(period) {
                near if near < len => near,
                far => period - far,
            },
        }))
    }

    /// Elements of the output that the input has as they are: where they begin there and here, and how many they are.
    fn middle(&self) -> (usize, usize, usize) {
        let (here, there) = match usize::try_from(self.before) {
            Ok(before) => (before.min(self.out), 0),
            Err(_) => (0, usize::try_from(self.before.unsigned_abs()).unwrap_or(usize::MAX).min(self.len)),
        };
        (here, there, (self.out - here).min(self.len - there))
    }
}

impl Frame {
    /// Elements in front of and behind each axis, in the order of axes.
    fn new(dims: &[i64], pads: &[(i64, i64)], mode: Mode) -> Result<Frame, Fault> {
        let mut frame = Frame { inner: 1, ..Frame::default() };
        let mut axes: SmallVec<[Axis; 8]> = SmallVec::new(); // innermost first
        for (k, (&dim, &(before, after))) in dims.iter().zip(pads).enumerate().rev() {
            let out = dim.checked_add(before).and_then(|n| n.checked_add(after));
            let Some(out) = out.filter(|&n| n >= 0) else {
                return Err(Fault::data(format!("pads {before} and {after} do not fit axis {k} of {dim} elements")));
            };
            if mode != Mode::Constant && dim == 0 && out > 0 {
                return Err(Fault::data(format!("axis {k} has no elements to pad it with")));
            }
            frame.dims.push(out);
            let axis = Axis { len: size(dim), out: size(out), before, step: count(&dims[k + 1..]) };
            let same = before == 0 && after == 0;
            match axes.last_mut() {
                None if same => frame.inner *= axis.len,
                Some(last) if same && last.before == 0 && last.len == last.out => {
                    (last.len, last.out) = (last.len * axis.len, last.out * axis.out);
                }
                _ => axes.push(axis),
            }
        }
        frame.dims.reverse();
        frame.last = axes.first().copied();
        frame.outer = axes.into_iter().skip(1).rev().collect();
        Ok(frame)
    }

    /// Fills the output.
    fn fill<T: Word>(&self, mode: Mode, value: T, par: &dyn Parallel, x: &[T], y: &mut [T]) -> Run {
        let Some(last) = self.last else {
            return Ok(split::rows(par, y, 1, GRAIN, |_, at, y| y.copy_from_slice(&x[at..at + y.len()]))?);
        };
        let row = last.out * self.inner;
        Ok(split::rows(par, y, row, GRAIN.div_ceil(row.max(1)), |_, first, rows| {
            let mut places = Places::new(&self.outer, first);
            for row in rows.chunks_exact_mut(row) {
                match places.source(&self.outer, mode) {
                    Some(at) => self.line(&last, mode, value, &x[at..], row),
                    None => row.fill(value),
                }
                places.next(&self.outer);
            }
        })?)
    }

    /// One row; `x` begins where its axis does.
    fn line<T: Word>(&self, last: &Axis, mode: Mode, value: T, x: &[T], y: &mut [T]) {
        let (here, there, len) = last.middle();
        let (start, end) = (here * self.inner, (here + len) * self.inner);
        y[start..end].copy_from_slice(&x[there * self.inner..][..len * self.inner]);
        if mode == Mode::Constant {
            y[..start].fill(value);
            y[end..].fill(value);
            return;
        }
        for at in (0..here).chain(here + len..last.out) {
            let from = last.source(mode, at).unwrap_or_default() * self.inner;
            run(&mut y[at * self.inner..(at + 1) * self.inner], &x[from..from + self.inner]);
        }
    }

    /// The input's element under element `at` of the output.
    fn source(&self, mode: Mode, at: usize) -> Option<usize> {
        let (mut rest, mut from) = (at / self.inner, at % self.inner);
        for axis in self.outer.iter().chain(&self.last).rev() {
            from += axis.source(mode, rest % axis.out)? * axis.step;
            rest /= axis.out;
        }
        Some(from)
    }
}

/// A row's place on the outer axes.
struct Places(SmallVec<[usize; 6]>);

impl Places {
    fn new(axes: &[Axis], mut row: usize) -> Self {
        let mut places = SmallVec::from_elem(0, axes.len());
        for (place, axis) in places.iter_mut().zip(axes).rev() {
            *place = row % axis.out;
            row /= axis.out;
        }
        Places(places)
    }

    fn source(&self, axes: &[Axis], mode: Mode) -> Option<usize> {
        let from = self.0.iter().zip(axes).map(|(&place, axis)| Some(axis.source(mode, place)? * axis.step));
        from.sum()
    }

    fn next(&mut self, axes: &[Axis]) {
        for (place, axis) in self.0.iter_mut().zip(axes).rev() {
            *place += 1;
            if *place < axis.out {
                return;
            }
            *place = 0;
        }
    }
}

/// More or less at the ends of axes.
struct Pad {
    mode: Mode,
    bits: usize,
    /// Type of the list of axes.
    axes: DType,
}

#[derive(Default)]
struct Bound {
    dims: Ints,
    /// `None` if only the run knows the pads.
    frame: Option<Frame>,
}

impl Op for Pad {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        node.needs(1)?;
        ints::check_axes(node, 3, x.rank())?;
        let mode = match node.text("mode").unwrap_or("constant") {
            "constant" => Mode::Constant,
            "reflect" => Mode::Reflect,
            "edge" => Mode::Edge,
            "wrap" => Mode::Wrap,
            other => return Err(Reject::attribute(format!("attribute mode = {other} is not known"))),
        };
        let axes = node.input(3).map_or(DType::I64, |axes| axes.dtype());
        Ok(Pad { mode, bits: x.dtype().bits(), axes })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Run {
        bound.dims = Ints::from_slice(shapes.input(0));
        bound.frame = match ints::known(shapes, [1, 3]) {
            Some([pads, axes]) => Some(self.frame(&bound.dims, pads.unwrap_or_default(), axes)?),
            None => None,
        };
        if shapes.has(2) && shapes.input_len(2) != 1 {
            return Err(Fault::data(format!("input 2 has {} elements, 1 is needed", shapes.input_len(2))));
        }
        Ok(())
    }
}

impl Pad {
    fn frame(&self, dims: &[i64], pads: &[i64], axes: Option<&[i64]>) -> Result<Frame, Fault> {
        let count = axes.map_or(dims.len(), <[i64]>::len);
        if pads.len() != 2 * count {
            return Err(Fault::data(format!("input 1 has {} pads, 2 are needed for each of {count} axes", pads.len())));
        }
        let mut ends: SmallVec<[(i64, i64); 8]> = SmallVec::from_elem((0, 0), dims.len());
        for k in 0..count {
            let axis = match axes {
                Some(axes) => ints::axis(axes[k], dims.len(), 3)?,
                None => k,
            };
            ends[axis] = (pads[k], pads[count + k]);
        }
        Frame::new(dims, &ends, self.mode)
    }

    /// Calls with the frame, found before the run or in it.
    fn with(&self, bound: &Bound, args: &mut Args<'_>, fill: impl FnOnce(&Frame, &mut Args<'_>) -> Run) -> Run {
        match &bound.frame {
            Some(frame) => fill(frame, args),
            None => {
                let axes = args.has(3).then(|| ints::read(args, 3, self.axes));
                let frame = self.frame(&bound.dims, &ints::read(args, 1, DType::I64), axes.as_deref())?;
                fill(&frame, args)
            }
        }
    }
}

fn pad(op: &Pad, bound: &Bound, args: &mut Args<'_>) -> Run {
    op.with(bound, args, |frame, args| by_width!(op.bits, pad_words(op.mode, frame, args)))
}

fn pad_words<T: Word>(mode: Mode, frame: &Frame, args: &mut Args<'_>) -> Run {
    let value = args.input_if::<T>(2).and_then(|value| value.first().copied()).unwrap_or_default();
    let (x, y) = (args.input::<T>(0), args.emit::<T>(0, &frame.dims)?);
    frame.fill(mode, value, args.par(), x, y)
}

/// Elements share bytes.
fn pad_small(op: &Pad, bound: &Bound, args: &mut Args<'_>) -> Run {
    op.with(bound, args, |frame, args| {
        let value = args.input_if::<u8>(2).and_then(|value| value.first().copied()).unwrap_or_default();
        let (x, y) = (args.input::<u8>(0), args.emit::<u8>(0, &frame.dims)?);
        let elements = count(&frame.dims);
        Ok(split::rows(args.par(), y, 1, GRAIN, |_, first, y| {
            codes::write(op.bits, elements, first, y, |at| {
                frame.source(op.mode, at).map_or(value, |from| codes::read(op.bits, x, from))
            });
        })?)
    })
}

/// The middle of the input, or the input in the middle of zeros.
struct Center {
    bits: usize,
}

impl Op for Center {
    type Bound = Frame;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, y) = (node.needs(0)?, node.out()?);
        match x.rank() == y.rank() {
            true => Ok(Center { bits: x.dtype().bits() }),
            false => Err(Reject::rank(format!("input 0 has rank {} and output 0 {}", x.rank(), y.rank()))),
        }
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, frame: &mut Frame) -> Run {
        let (dims, out) = (shapes.input(0), shapes.output(0));
        // Half of what is too much or too little is in front, rounded towards none of it.
        let ends: SmallVec<[(i64, i64); 8]> =
            dims.iter().zip(out).map(|(&dim, &out)| ((out - dim) / 2, out - dim - (out - dim) / 2)).collect();
        *frame = Frame::new(dims, &ends, Mode::Constant)?;
        Ok(())
    }
}

fn center(op: &Center, frame: &Frame, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, center_words(frame, args))
}

fn center_words<T: Word>(frame: &Frame, args: &mut Args<'_>) -> Run {
    let (x, y) = (args.input::<T>(0), args.output::<T>(0));
    frame.fill(Mode::Constant, T::default(), args.par(), x, y)
}

#[cfg(test)]
mod tests {
    use crate::ops::codes;
    use crate::ops::naive::{Dims, count, element, index, position, ramp};
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, RejectCode};

    const TYPES: [DType; 5] = [DType::U8, DType::Bf16, DType::F32, DType::I64, DType::C128];

    /// Walks outwards from the ends, one step at a time.
    fn source(mode: &str, len: i64, mut at: i64) -> Option<usize> {
        let (mut step, inside) = (if at < 0 { 1 } else { -1 }, |at: i64| (0..len).contains(&at));
        if inside(at) {
            return Some(at as usize);
        }
        match mode {
            "constant" => None,
            "edge" => Some(if at < 0 { 0 } else { len as usize - 1 }),
            "wrap" => {
                while !inside(at) {
                    at += step * len;
                }
                Some(at as usize)
            }
            _ => {
                // A ball that turns round at the ends.
                let (mut ball, mut left) = (if at < 0 { 0 } else { len - 1 }, if at < 0 { -at } else { at - len + 1 });
                while left > 0 && len > 1 {
                    ball += step;
                    left -= 1;
                    if ball == 0 || ball == len - 1 {
                        step = -step;
                    }
                }
                Some(ball as usize)
            }
        }
    }

    fn naive(x: &Tensor, before: &[i64], out: &[i64], mode: &str, value: &[u8]) -> Tensor {
        let mut bytes = Vec::new();
        for k in 0..count(out) {
            let from: Option<Vec<usize>> = index(out, k)
                .iter()
                .enumerate()
                .map(|(axis, &i)| source(mode, x.dims[axis], i as i64 - before[axis]))
                .collect();
            bytes.extend(from.map_or(value, |from| element(x, position(&x.dims, &from))));
        }
        Tensor { dtype: x.dtype, dims: out.to_vec(), bytes }
    }

    /// Dimensions, pads in front, pads behind.
    const CASES: &[(Dims, Dims, Dims)] = &[
        (&[], &[], &[]),
        (&[5], &[0], &[0]),
        (&[5], &[2], &[3]),
        (&[5], &[-2], &[-1]),
        (&[5], &[-7], &[4]),
        (&[1], &[3], &[2]),
        (&[4], &[11], &[14]),
        (&[3, 4], &[1, 2], &[0, 1]),
        (&[3, 4], &[1, 0], &[2, 0]),
        (&[3, 4], &[-1, 2], &[1, -3]),
        (&[2, 3, 4, 5], &[0, 0, 1, 1], &[0, 0, 2, 1]),
        (&[2, 3, 4, 5], &[0, 1, 0, 0], &[0, 1, 0, 0]),
        (&[2, 3, 4, 5], &[1, 0, 0, 2], &[1, 0, 0, 0]),
        (&[8, 40, 60], &[0, 1, 1], &[0, 1, 1]),
    ];

    fn outs(dims: &[i64], before: &[i64], after: &[i64]) -> Vec<i64> {
        dims.iter().zip(before.iter().zip(after)).map(|(d, (a, b))| d + a + b).collect()
    }

    #[test]
    fn every_mode_at_all_shapes() {
        for dtype in TYPES {
            for mode in ["constant", "reflect", "edge", "wrap"] {
                for &(dims, before, after) in CASES {
                    let (x, out) = (ramp(dtype, dims, 3), outs(dims, before, after));
                    let value = ramp(dtype, &[], 200);
                    let want = naive(&x, before, &out, mode, &value.bytes);
                    let pads = Tensor::new(&[2 * dims.len() as i64], &[before, after].concat());
                    for (constant, late) in [(true, false), (false, false), (false, true)] {
                        on_all("Pad", 25, |case| {
                            let case = case.text("mode", mode).input(&x);
                            let case = if constant { case.constant(&pads) } else { case.input(&pads) };
                            let case = case.input(&value);
                            let case = match late {
                                true => case.late_output(dtype, dims.len()),
                                false => case.output(dtype, &out),
                            };
                            assert_eq!(case.run(), from_ref(&want), "{dtype} {mode} {dims:?} {before:?} {after:?}");
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn some_axes_and_no_value() {
        let x = ramp(DType::F32, &[2, 3, 4], 1);
        let want = naive(&x, &[0, 2, 1], &[2, 5, 5], "constant", &[0; 4]);
        let pads = Tensor::new(&[4], &[1i64, 2, 0, 0]);
        for axes in [Tensor::new(&[2], &[-1i64, 1]), Tensor::new(&[2], &[-1i32, 1])] {
            let case = Case::new("Pad", 25).text("mode", "constant").input(&x).input(&pads).skip().input(&axes);
            assert_eq!(case.output(DType::F32, &[2, 5, 5]).run(), from_ref(&want));
        }
        let none = ramp(DType::F32, &[0, 2], 1);
        let pads = Tensor::new(&[4], &[1i64, 0, 0, 1]);
        let y = Case::new("Pad", 25).input(&none).input(&pads).output(DType::F32, &[1, 3]).run();
        assert_eq!(y, [Tensor::new(&[1, 3], &[0.0f32; 3])]);
    }

    #[test]
    fn elements_below_a_byte() {
        for (dtype, bits) in [(DType::U4, 4), (DType::I2, 2)] {
            let pack = |dims: &[i64], codes: &[u8]| {
                let mut bytes = vec![0; dtype.bytes(codes.len()).unwrap()];
                codes::write(bits, codes.len(), 0, &mut bytes, |k| codes[k]);
                Tensor { dtype, dims: dims.to_vec(), bytes }
            };
            let list: Vec<u8> = (0..15).map(|k| k * 5 % (1 << bits)).collect();
            let spread = Tensor { dtype: DType::U8, dims: vec![3, 5], bytes: list.clone() };
            for mode in ["constant", "reflect"] {
                let want = naive(&spread, &[1, 2], &[4, 8], mode, &[3]);
                let case = Case::new("Pad", 25).text("mode", mode).input(&pack(&[3, 5], &list));
                let case = case.constant(&Tensor::new(&[4], &[1i64, 2, 0, 1])).input(&pack(&[], &[3]));
                assert_eq!(case.output(dtype, &[4, 8]).run(), [pack(&[4, 8], &want.bytes)], "{dtype} {mode}");
            }
        }
    }

    #[test]
    fn the_middle() {
        // Dimensions, output, pads in front.
        let cases: &[(Dims, Dims, Dims)] =
            &[(&[5], &[5], &[0]), (&[5], &[2], &[-1]), (&[5], &[8], &[1]), (&[10, 7, 3], &[4, 9, 3], &[-3, 1, 0])];
        for dtype in TYPES {
            for &(dims, out, before) in cases {
                let x = ramp(dtype, dims, 3);
                let want = naive(&x, before, out, "constant", &vec![0; dtype.bits() / 8]);
                on_all("CenterCropPad", 18, |case| {
                    let case = case.input(&x).input(&Tensor::new(&[out.len() as i64], out));
                    assert_eq!(case.output(dtype, out).run(), from_ref(&want), "{dtype} {dims:?} {out:?}");
                });
            }
        }
    }

    #[test]
    fn what_does_not_fit() {
        let x = ramp(DType::F32, &[0, 3], 0);
        let list = |pads: &[i64]| Tensor::new(&[pads.len() as i64], pads);
        // Mode, pads, axes; what is said.
        let cases: &[(&str, Dims, Option<Dims>, &str)] = &[
            ("edge", &[1, 0, 0, 0], None, "axis 0 has no elements to pad it with"),
            ("constant", &[0, -2, 0, -2], None, "pads -2 and -2 do not fit axis 1 of 3 elements"),
            ("constant", &[0, i64::MAX, 0, 1], None, "do not fit axis 1"),
            ("constant", &[0, 1], None, "input 1 has 2 pads, 2 are needed for each of 2 axes"),
            ("constant", &[0, 1], Some(&[2]), "input 3 has 2, which is no axis of a tensor of rank 2"),
        ];
        for &(mode, pads, axes, want) in cases {
            let mut case = Case::new("Pad", 25).text("mode", mode).input(&x).input(&list(pads)).skip();
            case = if let Some(axes) = axes { case.input(&list(axes)) } else { case.skip() };
            let error = case.late_output(DType::F32, 2).try_run().unwrap_err();
            assert!(error.contains(want), "{error}");
        }
        let case = Case::new("Pad", 25).text("mode", "mirror").input(&x).input(&list(&[0; 4]));
        let (code, text) = case.output(DType::F32, &[0, 3]).rejection();
        assert_eq!((code, &*text), (RejectCode::Attribute, "Pad: attribute mode = mirror is not known"));
    }
}
