//! Layout operators that copy elements by even steps: expanding, tiling, and moving blocks between depth and space; and the
//! two that only read dimensions.

use super::strided::{self, Strided};
use super::value::{TENSOR, Word, by_width};
use ortolan_ep_kit::element::{PLAIN, set};
use ortolan_ep_kit::{Args, Cost, DType, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, any, count, size};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("DepthToSpace", (1, 28), "depthtospace", any!(move_blocks)).types(&[("T", TENSOR)]),
    Kernel::new("Expand", (8, 13), "expand", any!(expand)).types(&[("T", TENSOR)]).unread(&[1]),
    Kernel::new("Shape", (1, 25), "shape", any!(shape)).types(&[("T", ALL)]).unread(&[0]),
    Kernel::new("Size", (1, 25), "size", any!(element_count)).types(&[("T", ALL)]).unread(&[0]),
    Kernel::new("SpaceToDepth", (1, 28), "spacetodepth", any!(move_blocks)).types(&[("T", TENSOR)]),
    Kernel::new("Tile", (6, 13), "tile", any!(tile)).types(&[("T", TENSOR)]).unread(&[1]),
];

const ALL: u64 = PLAIN | set(&[DType::Str]);

type Run = Result<(), Fault>;

fn copy<T: Word>(walk: &Strided, args: &mut Args<'_>) -> Run {
    let (x, y) = (args.input::<T>(0), args.output::<T>(0));
    Ok(walk.copy(args.par(), x, y)?)
}

/// The input, repeated along axes of length 1 and new ones in front.
struct Expand {
    bits: usize,
}

impl Op for Expand {
    type Bound = Strided;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(Expand { bits: node.needs(0)?.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, walk: &mut Strided) -> Run {
        expanded(shapes.input(0), shapes.output(0), walk)
    }
}

/// The walk of a tensor that is repeated along axes of length 1 and new ones in front.
pub(super) fn expanded(dims: &[i64], out: &[i64], walk: &mut Strided) -> Run {
    let new = out.len().checked_sub(dims.len());
    let fits = new.is_some_and(|new| dims.iter().zip(&out[new..]).all(|(&a, &b)| a == b || a == 1));
    let (Some(new), true) = (new, fits) else {
        return Err(Fault::data(format!("dimensions {dims:?} cannot be expanded to {out:?}")));
    };
    *walk = Strided::default();
    for (k, &dim) in out.iter().enumerate() {
        let step = match k.checked_sub(new) {
            Some(k) if dims[k] != 1 => count(&dims[k + 1..]),
            _ => 0,
        };
        walk.push(size(dim), strided::step(step));
    }
    Ok(())
}

fn expand(op: &Expand, walk: &Strided, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, copy(walk, args))
}

/// The input, several times along each axis.
struct Tile {
    bits: usize,
}

impl Op for Tile {
    type Bound = Strided;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(Tile { bits: node.needs(0)?.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, walk: &mut Strided) -> Run {
        tiled(shapes.input(0), shapes.output(0), walk)
    }
}

/// The walk of a tensor that is repeated as a whole along each axis.
pub(super) fn tiled(dims: &[i64], out: &[i64], walk: &mut Strided) -> Run {
    *walk = Strided::default();
    for (k, (&dim, &whole)) in dims.iter().zip(out).enumerate() {
        let times = if dim == 0 { 0 } else { whole / dim };
        if times * dim != whole {
            return Err(Fault::data(format!("dimensions {dims:?} cannot be tiled to {out:?}")));
        }
        walk.push(size(times), 0);
        walk.push(size(dim), strided::step(count(&dims[k + 1..])));
    }
    Ok(())
}

fn tile(op: &Tile, walk: &Strided, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, copy(walk, args))
}

/// Squares of neighbours in space become channels, or channels become squares.
struct Blocks {
    /// Edge of a square.
    edge: i64,
    to_space: bool,
    /// Channels of one square lie together.
    together: bool,
    bits: usize,
}

impl Op for Blocks {
    type Bound = Strided;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        if x.rank() != 4 {
            return Err(Reject::rank(format!("input 0 has rank {}, 4 is needed", x.rank())));
        }
        let edge = node.int("blocksize")?;
        if edge < 1 || edge.checked_mul(edge).is_none() {
            return Err(Reject::attribute(format!("attribute blocksize = {edge} is no edge of a block")));
        }
        let together = match node.text("mode").unwrap_or("DCR") {
            "DCR" => false,
            "CRD" => true,
            other => return Err(Reject::attribute(format!("attribute mode = {other} is not known"))),
        };
        Ok(Blocks { edge, to_space: node.op() == "DepthToSpace", together, bits: x.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, walk: &mut Strided) -> Run {
        let &[n, c, h, w] = shapes.input(0) else { return Err(Fault::data("the input has not 4 dimensions")) };
        let s = self.edge;
        let fits = if self.to_space { c % (s * s) == 0 } else { h % s == 0 && w % s == 0 };
        if !fits {
            return Err(Fault::data(format!("blocks of {s} x {s} do not come out even in {:?}", shapes.input(0))));
        }
        // The input's axes, and which of them each axis of the output is.
        let (axes, order) = match (self.to_space, self.together) {
            (true, false) => ([n, s, s, c / (s * s), h, w], [0, 3, 4, 1, 5, 2]),
            (true, true) => ([n, c / (s * s), s, s, h, w], [0, 1, 4, 2, 5, 3]),
            (false, false) => ([n, c, h / s, s, w / s, s], [0, 3, 5, 1, 2, 4]),
            (false, true) => ([n, c, h / s, s, w / s, s], [0, 1, 3, 5, 2, 4]),
        };
        *walk = Strided::default();
        order.iter().for_each(|&k| walk.push(size(axes[k]), strided::step(count(&axes[k + 1..]))));
        Ok(())
    }
}

fn move_blocks(op: &Blocks, walk: &Strided, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, copy(walk, args))
}

/// Some of the input's dimensions.
struct Shape {
    start: i64,
    end: i64,
}

impl Op for Shape {
    type Bound = Ints;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        Ok(Shape { start: node.int_if("start").unwrap_or(0), end: node.int_if("end").unwrap_or(i64::MAX) })
    }

    fn cost(&self, _: &NodeView<'_>) -> Cost {
        Cost::ns(20.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, dims: &mut Ints) -> Run {
        let all = shapes.input(0);
        let rank = all.len() as i64; // a rank
        let place = |at: i64| size((if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank));
        let (start, end) = (place(self.start), place(self.end));
        *dims = Ints::from_slice(all.get(start..end).unwrap_or(&[]));
        Ok(())
    }
}

fn shape(_: &Shape, dims: &Ints, args: &mut Args<'_>) -> Run {
    let y = args.output::<i64>(0);
    if y.len() != dims.len() {
        return Err(Fault::data(format!("there are {} dimensions, and the output takes {}", dims.len(), y.len())));
    }
    y.copy_from_slice(dims);
    Ok(())
}

/// The number of elements.
struct Size;

impl Op for Size {
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        Ok(Size)
    }

    fn cost(&self, _: &NodeView<'_>) -> Cost {
        Cost::ns(20.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, count: &mut usize) -> Run {
        *count = shapes.input_len(0);
        Ok(())
    }
}

fn element_count(_: &Size, &count: &usize, args: &mut Args<'_>) -> Run {
    args.output::<i64>(0).fill(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{Dims, index, pick, position, ramp};
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, RejectCode};

    const TYPES: [DType; 5] = [DType::U8, DType::Bf16, DType::F32, DType::I64, DType::C128];

    #[test]
    fn expand_and_tile() {
        // Operator, input, output.
        let cases: &[(&str, Dims, Dims)] = &[
            ("Expand", &[], &[]),
            ("Expand", &[], &[3, 4]),
            ("Expand", &[1], &[7]),
            ("Expand", &[3, 1], &[2, 3, 4]),
            ("Expand", &[1, 4], &[3, 4]),
            ("Expand", &[2, 1, 5], &[2, 3, 5]),
            ("Expand", &[1, 3], &[0, 3]),
            ("Expand", &[2, 1, 3, 1], &[2, 5, 3, 4001]),
            ("Tile", &[3], &[3]),
            ("Tile", &[1], &[9]),
            ("Tile", &[2, 3], &[6, 6]),
            ("Tile", &[2, 3], &[2, 12]),
            ("Tile", &[2, 3], &[0, 3]),
            ("Tile", &[2, 1, 3], &[4, 5, 3]),
            ("Tile", &[50, 9], &[50, 900]),
        ];
        for dtype in TYPES {
            for &(op, dims, out) in cases {
                let x = ramp(dtype, dims, 3);
                let want = pick(&x, out, |i| {
                    let i = &i[out.len() - dims.len()..];
                    i.iter().zip(dims).map(|(&i, &d)| i % d as usize).collect()
                });
                let list: Vec<i64> = match op {
                    "Expand" => out.to_vec(),
                    _ => out.iter().zip(dims).map(|(&a, &b)| a / b).collect(),
                };
                on_all(op, 13, |case| {
                    let case = case.input(&x).input(&Tensor::new(&[list.len() as i64], &list));
                    assert_eq!(case.output(dtype, out).run(), from_ref(&want), "{op} {dtype} {dims:?} {out:?}");
                });
            }
        }
    }

    #[test]
    fn depth_and_space() {
        for dtype in TYPES {
            for (deep, edge) in
                [([1, 4, 1, 1], 2), ([2, 12, 3, 5], 2), ([1, 18, 4, 7], 3), ([2, 5, 3, 4], 1), ([1, 4, 0, 2], 2)]
            {
                let [n, c, h, w]: [i64; 4] = deep;
                let wide = [n, c / (edge * edge), h * edge, w * edge];
                for mode in ["DCR", "CRD"] {
                    // Place in depth of a place in space.
                    let from = |i: &[usize]| {
                        let (s, channels) = (edge as usize, wide[1] as usize);
                        let square = i[2] % s * s + i[3] % s;
                        let channel = if mode == "DCR" { square * channels + i[1] } else { i[1] * s * s + square };
                        vec![i[0], channel, i[2] / s, i[3] / s]
                    };
                    let x = ramp(dtype, &deep, 1);
                    let y = pick(&x, &wide, from);
                    on_all("DepthToSpace", 28, |case| {
                        let case = case.int("blocksize", edge).text("mode", mode).input(&x);
                        assert_eq!(case.output(dtype, &wide).run(), from_ref(&y), "{dtype} {deep:?} {mode}");
                    });
                    on_all("SpaceToDepth", 28, |case| {
                        let case = case.int("blocksize", edge).text("mode", mode).input(&y);
                        assert_eq!(case.output(dtype, &deep).run(), from_ref(&x), "{dtype} {deep:?} {mode}");
                    });
                }
            }
        }
        assert_eq!(position(&[2, 3], &index(&[2, 3], 5)), 5);
    }

    #[test]
    fn dimensions() {
        let x = ramp(DType::U4, &[2, 3, 4], 0);
        // Start, end, dimensions.
        let cases: &[(i64, Option<i64>, Dims)] = &[
            (0, None, &[2, 3, 4]),
            (-1, None, &[4]),
            (1, Some(2), &[3]),
            (-9, Some(-1), &[2, 3]),
            (2, Some(1), &[]),
            (0, Some(99), &[2, 3, 4]),
        ];
        for &(start, end, want) in cases {
            let mut case = Case::new("Shape", 25).int("start", start).input(&x);
            if let Some(end) = end {
                case = case.int("end", end);
            }
            let want = Tensor::new(&[want.len() as i64], want);
            assert_eq!(case.output(DType::I64, &want.dims).run(), from_ref(&want), "{start} {end:?}");
        }
        let y = Case::new("Size", 25).input(&x).output(DType::I64, &[]).run();
        assert_eq!(y, [Tensor::new(&[], &[24i64])]);
    }

    #[test]
    fn what_does_not_fit() {
        let x = ramp(DType::F32, &[2, 3], 0);
        let list = Tensor::new(&[2], &[2i64, 4]);
        for (op, text) in [("Expand", "cannot be expanded to [2, 4]"), ("Tile", "cannot be tiled to [2, 4]")] {
            let error = Case::new(op, 13).input(&x).input(&list).output(DType::F32, &[2, 4]).try_run().unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        let case = Case::new("DepthToSpace", 28).int("blocksize", 2).input(&x);
        let (code, text) = case.output(DType::F32, &[2, 3]).rejection();
        assert_eq!((code, &*text), (RejectCode::Rank, "DepthToSpace: input 0 has rank 2, 4 is needed"));
        let x = ramp(DType::F32, &[1, 3, 2, 2], 0);
        let case = Case::new("DepthToSpace", 28).int("blocksize", 2).input(&x).output(DType::F32, &[1, 0, 4, 4]);
        let error = case.try_run().unwrap_err();
        assert!(error.contains("blocks of 2 x 2 do not come out even in [1, 3, 2, 2]"), "{error}");
        let case = Case::new("SpaceToDepth", 28).int("blocksize", 0).input(&x).output(DType::F32, &[1, 3, 2, 2]);
        let (code, text) = case.rejection();
        let want = "SpaceToDepth: attribute blocksize = 0 is no edge of a block";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
    }
}
