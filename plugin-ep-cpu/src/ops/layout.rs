//! Operators that move elements or only rename dimensions.

use super::{GRAIN, cost};
use core::fmt::Debug;
use ortolan_ep_kit::element::{BYTES, PLAIN};
use ortolan_ep_kit::{Args, Cost, Element, Fault, Ints, Kernel, Link, NodeView, Op, Reject, Shapes, any, size, split};
use smallvec::SmallVec;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Flatten", (1, 25), "flatten", any!(view)).types(&[("T", PLAIN)]).view(),
    Kernel::new("Reshape", (5, 25), "reshape", any!(view)).types(&[("T", PLAIN)]).unread(&[1]).view(),
    Kernel::new("Squeeze", (1, 25), "squeeze", any!(view)).types(&[("T", PLAIN)]).unread(&[1]).view(),
    Kernel::new("Transpose", (1, 25), "transpose", any!(transpose)).types(&[("T", BYTES)]),
    Kernel::new("Unsqueeze", (1, 25), "unsqueeze", any!(view)).types(&[("T", PLAIN)]).unread(&[1]).view(),
];

/// Another shape for the same bytes. The host has inferred it, and the kit hands the bytes on.
struct View;

impl Op for View {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, y) = (node.needs(0)?, node.out()?);
        let fixed = |v: &ortolan_ep_kit::ValueView<'_>| (0..v.rank()).map(|k| v.fixed_dim(k)).product::<Option<i64>>();
        match (fixed(&x), fixed(&y)) {
            (Some(a), Some(b)) if a != b => {
                Err(Reject::shape(format!("input 0 has {a} elements, which cannot become {b} elements")))
            }
            _ => Ok(View),
        }
    }

    fn cost(&self, _: &NodeView<'_>) -> Cost {
        Cost::ns(0.0)
    }

    fn link(&self) -> Link {
        Link::Reshape
    }
}

/// Never called: the rows are views.
fn view(_: &View, (): &(), _: &mut Args<'_>) -> Result<(), Fault> {
    Err(Fault::data("a view has nothing to run"))
}

/// `y[i] = x[i in another order of axes]`
struct Transpose {
    perm: Ints,
    bits: usize,
}

/// Output axes, innermost last, each with the input's step along it. Axes that stay together are one.
#[derive(Default)]
struct Moves {
    axes: SmallVec<[Move; 6]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    len: usize,
    step: usize,
}

impl Op for Transpose {
    type Bound = Moves;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        let perm = match node.ints("perm") {
            Some(perm) => Ints::from_slice(perm),
            None => (0..x.rank() as i64).rev().collect(),
        };
        let mut sorted = perm.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.rank() as i64) {
            return Err(Reject::attribute(format!("attribute perm = {perm:?} is no order of {} axes", x.rank())));
        }
        Ok(Transpose { perm, bits: x.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.3)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Moves) -> Result<(), Fault> {
        let dims = shapes.input(0);
        let mut steps: Ints = dims.iter().map(|_| 0).collect();
        let mut step = 1;
        for k in (0..dims.len()).rev() {
            steps[k] = step;
            step *= dims[k];
        }
        bound.axes.clear();
        for &axis in &self.perm {
            let (len, step) = (size(dims[axis as usize]), size(steps[axis as usize]));
            match bound.axes.last_mut() {
                _ if len == 1 => {}
                Some(last) if last.step == step * len => *last = Move { len: last.len * len, step },
                _ => bound.axes.push(Move { len, step }),
            }
        }
        Ok(())
    }

    fn link(&self) -> Link {
        Link::Perm(self.perm.clone())
    }
}

fn transpose(op: &Transpose, moves: &Moves, args: &mut Args<'_>) -> Result<(), Fault> {
    match op.bits {
        8 => move_all::<u8>(moves, args),
        16 => move_all::<u16>(moves, args),
        32 => move_all::<u32>(moves, args),
        64 => move_all::<u64>(moves, args),
        _ => move_wide(moves, args),
    }
}

/// Elements of 16 bytes move as two words.
fn move_wide(moves: &Moves, args: &mut Args<'_>) -> Result<(), Fault> {
    let mut wide = Moves { axes: moves.axes.iter().map(|m| Move { len: m.len, step: m.step * 2 }).collect() };
    match wide.axes.last_mut() {
        Some(last) if last.step == 2 => *last = Move { len: last.len * 2, step: 1 },
        _ => wide.axes.push(Move { len: 2, step: 1 }),
    }
    move_all::<u64>(&wide, args)
}

fn move_all<T: Element + Send + Sync + Debug>(moves: &Moves, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y) = (args.input::<T>(0), args.output::<T>(0));
    let par = args.par();
    let Some((&last, outer)) = moves.axes.split_last() else {
        y.copy_from_slice(x); // one element, or none
        return Ok(());
    };
    if last.step == 1 {
        // Whole rows move.
        let grain = GRAIN.div_ceil(last.len.max(1));
        return Ok(split::rows(par, y, last.len, grain, |_, first, rows| {
            for (k, row) in rows.chunks_exact_mut(last.len).enumerate() {
                let at = offset(outer, first + k);
                row.copy_from_slice(&x[at..at + last.len]);
            }
        })?);
    }
    // Some axis in front is dense in x, as the last one is not: tiles of that axis and the last one stay in the cache.
    let dense = outer.iter().rposition(|m| m.step == 1).unwrap_or(0);
    let (front, rest) = (&outer[..dense], &moves.axes[dense + 1..]);
    let rows = moves.axes[dense].len;
    let line: usize = rest.iter().map(|m| m.len).product();
    Ok(split::rows(par, y, line, GRAIN.div_ceil(line.max(1)).next_multiple_of(TILE), |_, first, piece| {
        let (mut row, mut left) = (first, piece);
        while !left.is_empty() {
            let (block, at) = (row / rows, row % rows);
            let count = (rows - at).min(left.len() / line);
            let (now, later) = left.split_at_mut(count * line);
            turn(rest, &x[offset(front, block) + at..], now, line);
            (row, left) = (row + count, later);
        }
    })?)
}

/// Edge of a tile.
const TILE: usize = 16;

/// Moves rows of `line` elements, which are neighbours in `x`. `rest` are the axes inside a row.
fn turn<T: Copy>(rest: &[Move], x: &[T], y: &mut [T], line: usize) {
    let Some((&last, middle)) = rest.split_last() else { return };
    for m in 0..middle.iter().map(|m| m.len).product() {
        let (from, to) = (offset(middle, m), m * last.len);
        for (i0, tile) in y.chunks_mut(TILE * line).enumerate() {
            for j0 in (0..last.len).step_by(TILE) {
                let j1 = (j0 + TILE).min(last.len);
                for (i, row) in tile.chunks_exact_mut(line).enumerate() {
                    let at = from + i0 * TILE + i;
                    for (j, y) in (j0..j1).zip(&mut row[to + j0..to + j1]) {
                        *y = x[at + j * last.step];
                    }
                }
            }
        }
    }
}

/// Where element `at`, counted over the axes, lies in the input.
fn offset(axes: &[Move], mut at: usize) -> usize {
    let mut offset = 0;
    for axis in axes.iter().rev() {
        offset += at % axis.len * axis.step;
        at /= axis.len;
    }
    offset
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, RejectCode};

    fn naive(x: &Tensor, perm: &[usize]) -> Tensor {
        let size = x.dtype.bits() / 8;
        let dims: Vec<i64> = perm.iter().map(|&k| x.dims[k]).collect();
        let count: i64 = dims.iter().product();
        let mut bytes = Vec::new();
        for mut k in 0..count as usize {
            let mut index = vec![0; dims.len()];
            for axis in (0..dims.len()).rev() {
                index[perm[axis]] = k % dims[axis] as usize;
                k /= dims[axis] as usize;
            }
            let at = index.iter().zip(&x.dims).fold(0, |at, (&i, &d)| at * d as usize + i);
            bytes.extend(&x.bytes[at * size..(at + 1) * size]);
        }
        Tensor { dtype: x.dtype, dims, bytes }
    }

    #[test]
    fn transpose_moves_elements_of_every_size() {
        let cases: &[(&[i64], &[usize])] = &[
            (&[], &[]),
            (&[5], &[0]),
            (&[3, 4], &[1, 0]),
            (&[33, 17], &[1, 0]),
            (&[2, 3, 4, 5], &[0, 2, 1, 3]),
            (&[2, 3, 4, 5], &[0, 2, 3, 1]),
            (&[2, 3, 4, 5], &[3, 2, 1, 0]),
            (&[2, 3, 4, 5], &[1, 3, 0, 2]),
            (&[2, 3, 4, 5], &[0, 3, 1, 2]),
            (&[1, 3, 1, 5], &[2, 3, 0, 1]),
            (&[2, 0, 4], &[2, 0, 1]),
            (&[200, 301], &[1, 0]),
            (&[2, 2, 2, 2, 2, 2, 2, 2, 2], &[8, 0, 7, 1, 6, 2, 5, 3, 4]),
        ];
        for dtype in [DType::U8, DType::Bf16, DType::F32, DType::I64, DType::C128] {
            for &(dims, perm) in cases {
                let bytes = dims.iter().product::<i64>() as usize * dtype.bits() / 8;
                let x =
                    Tensor { dtype, dims: dims.to_vec(), bytes: (0..bytes).map(|k| (k * 7 + k / 256) as u8).collect() };
                let want = naive(&x, perm);
                let order: Vec<i64> = perm.iter().map(|&p| p as i64).collect();
                on_all("Transpose", 25, |case| {
                    let y = case.ints("perm", &order).input(&x).output(dtype, &want.dims).run();
                    assert_eq!(y[0], want, "{dtype} {dims:?} by {perm:?}");
                });
            }
        }
    }

    #[test]
    fn without_perm_the_axes_turn_round() {
        let x = Tensor::random(&[2, 3, 4], 1);
        let want = naive(&x, &[2, 1, 0]);
        assert_eq!(Case::new("Transpose", 13).input(&x).output(DType::F32, &[4, 3, 2]).run(), [want]);
    }

    #[test]
    fn views_keep_the_bytes() {
        let x = Tensor::random(&[2, 3, 1, 4], 2);
        let shaped = |dims: &[i64]| Tensor { dims: dims.to_vec(), ..x.clone() };
        let shape = |s: &[i64]| Tensor::new(&[s.len() as i64], s);
        let cases = [
            (Case::new("Flatten", 25).int("axis", 2).input(&x), vec![6, 4]),
            (Case::new("Reshape", 25).input(&x).input(&shape(&[4, -1])), vec![4, 6]),
            (Case::new("Reshape", 14).int("allowzero", 0).input(&x).constant(&shape(&[0, 12])), vec![2, 12]),
            (Case::new("Squeeze", 25).input(&x).constant(&shape(&[-2])), vec![2, 3, 4]),
            (Case::new("Squeeze", 13).input(&x), vec![2, 3, 4]),
            (Case::new("Unsqueeze", 25).input(&x).constant(&shape(&[0, 5])), vec![1, 2, 3, 1, 4, 1]),
        ];
        for (case, dims) in cases {
            assert_eq!(case.output(DType::F32, &dims).run(), [shaped(&dims)]);
        }
    }

    #[test]
    fn refusals() {
        let x = Tensor::random(&[2, 3], 3);
        let case = Case::new("Transpose", 25).ints("perm", &[0, 0]).input(&x).output(DType::F32, &[2, 2]);
        let (code, text) = case.rejection();
        assert_eq!((code, &*text), (RejectCode::Attribute, "Transpose: attribute perm = [0, 0] is no order of 2 axes"));
        let shape = Tensor::new(&[1], &[5i64]);
        let (code, text) = Case::new("Reshape", 25).input(&x).input(&shape).output(DType::F32, &[5]).rejection();
        assert_eq!(
            (code, &*text),
            (RejectCode::Shape, "Reshape: input 0 has 6 elements, which cannot become 5 elements")
        );
    }
}
