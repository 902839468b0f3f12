//! Places of the greatest and least elements along an axis.

use super::narrow::{Bf16, F16};
use super::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa, Simd};
use core::marker::PhantomData;
use ortolan_ep_kit::{Args, Cost, Element, Fault, Kernel, NodeView, Op, Reject, Shapes, count, size, split, typed};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("ArgMax", (13, 13), "argmax", typed!(greatest: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("ArgMin", (13, 13), "argmin", typed!(least: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)),
];

type Run = Result<(), Fault>;

struct Arg {
    isa: Isa,
    axis: usize,
    last: bool,
}

/// The input as blocks of `len` rows of `inner` elements: each column has a result.
#[derive(Default)]
struct Blocks {
    len: usize,
    inner: usize,
}

impl Op for Arg {
    type Bound = Blocks;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let axis = node.axis("axis", node.needs(0)?.rank())?;
        Ok(Arg { isa: Cpu::of(node).isa, axis, last: node.int_if("select_last_index").unwrap_or(0) != 0 })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let elements = node.input(0).map_or(f64::NAN, |x| x.elements());
        Cost::ns(cost::moving(node).ns + elements * 0.2)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Blocks) -> Run {
        let dims = shapes.input(0);
        *bound = Blocks { len: size(dims[self.axis]), inner: count(&dims[self.axis + 1..]) };
        match bound.len == 0 && shapes.output_len(0) > 0 {
            true => Err(Fault::data(format!("axis {} has no elements to choose from", self.axis))),
            false => Ok(()),
        }
    }
}

/// Which of two elements counts. NaN counts most, as in NumPy.
trait Order: 'static {
    fn better<T: PartialOrd>(a: T, b: T) -> bool;
}

struct Greatest;
impl Order for Greatest {
    #[inline(always)]
    fn better<T: PartialOrd>(a: T, b: T) -> bool {
        a > b
    }
}

struct Least;
impl Order for Least {
    #[inline(always)]
    fn better<T: PartialOrd>(a: T, b: T) -> bool {
        a < b
    }
}

fn greatest<T: Element + Send + Sync + PartialOrd + Default>(op: &Arg, blocks: &Blocks, args: &mut Args<'_>) -> Run {
    arg::<T, Greatest>(op, blocks, args)
}

fn least<T: Element + Send + Sync + PartialOrd + Default>(op: &Arg, blocks: &Blocks, args: &mut Args<'_>) -> Run {
    arg::<T, Least>(op, blocks, args)
}

fn arg<T: Element + Send + Sync + PartialOrd + Default, O: Order>(
    op: &Arg,
    blocks: &Blocks,
    args: &mut Args<'_>,
) -> Run {
    let (x, y) = (args.input::<T>(0), args.output::<i64>(0));
    let grain = (GRAIN / blocks.len.max(1)).max(1);
    Ok(split::rows(args.par(), y, 1, grain, |_, first, y| {
        op.isa.dispatch(Piece::<T, O> { last: op.last, blocks, x, first, y, order: PhantomData });
    })?)
}

/// Some results, from number `first` on.
struct Piece<'a, T, O> {
    last: bool,
    blocks: &'a Blocks,
    x: &'a [T],
    first: usize,
    y: &'a mut [i64],
    order: PhantomData<O>,
}

/// Columns that are compared side by side.
const COLUMNS: usize = 64;
/// Elements of a line that are compared side by side.
const LANES: usize = 32;

impl<T: Element + PartialOrd + Default, O: Order> simd::Kernel for Piece<'_, T, O> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        if self.blocks.inner != 1 {
            return self.columns();
        }
        let Piece { last, blocks, x, first, y, .. } = self;
        for (number, y) in (first..).zip(y) {
            *y = Self::line(&x[number * blocks.len..][..blocks.len], last) as i64; // a place on an axis
        }
    }
}

impl<T: Element + PartialOrd + Default, O: Order> Piece<'_, T, O> {
    /// Whether `a` takes the place of `b`, which came before it.
    #[inline(always)]
    fn takes(a: T, b: T, last: bool) -> bool {
        let (number, other) = (equal(a, a), equal(b, b));
        if last { !number | (other & (O::better(a, b) | equal(a, b))) } else { other & (!number | O::better(a, b)) }
    }

    /// First the best element, by vectors, then its place.
    #[inline(always)]
    fn line(x: &[T], last: bool) -> usize {
        let (chunks, rest) = x.as_chunks::<LANES>();
        let start = chunks.first().copied().unwrap_or([x[0]; LANES]);
        let mut best = start;
        for chunk in chunks {
            for (best, &x) in best.iter_mut().zip(chunk) {
                *best = if Self::takes(x, *best, false) { x } else { *best };
            }
        }
        for (best, &x) in best.iter_mut().zip(rest) {
            *best = if Self::takes(x, *best, false) { x } else { *best };
        }
        let best = best.iter().fold(best[0], |best, &x| if Self::takes(x, best, false) { x } else { best });
        let is_best = |x: &T| equal(*x, best) | (!equal(*x, *x) & !equal(best, best));
        let place = if last { x.iter().rposition(is_best) } else { x.iter().position(is_best) };
        place.unwrap_or_default()
    }

    #[inline(always)]
    fn columns(self) {
        let Piece { last, blocks, x, first, mut y, .. } = self;
        let &Blocks { len, inner } = blocks;
        let (mut block, mut column) = (first / inner, first % inner);
        while !y.is_empty() {
            let (piece, rest) = y.split_at_mut((inner - column).min(COLUMNS).min(y.len()));
            let start = block * len * inner + column;
            let mut best = [T::default(); COLUMNS];
            best[..piece.len()].copy_from_slice(&x[start..start + piece.len()]);
            piece.fill(0);
            for row in 1..len {
                let line = &x[start + row * inner..][..piece.len()];
                for ((y, best), &x) in piece.iter_mut().zip(&mut best).zip(line) {
                    let takes = Self::takes(x, *best, last);
                    *y = if takes { row as i64 } else { *y }; // a place on an axis
                    *best = if takes { x } else { *best };
                }
            }
            column += piece.len();
            y = rest;
            if column == inner {
                (block, column) = (block + 1, 0);
            }
        }
    }
}

/// False where one of them is NaN.
#[inline(always)]
fn equal<T: PartialEq>(a: T, b: T) -> bool {
    a == b
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{index, position};
    use crate::ops::narrow::{Bf16, F16};
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, Element, RejectCode};

    const SHAPES: [&[i64]; 9] =
        [&[1], &[7], &[3, 4], &[3, 1, 5], &[2, 3, 70], &[0, 3], &[40, 301], &[3, 32], &[2, 65, 3]];

    fn check<T: Element>(number: impl Fn(usize) -> T + Copy, wide: impl Fn(T) -> f64 + Copy) {
        for dims in SHAPES {
            for axis in (0..dims.len()).filter(|&k| dims[k] > 0) {
                let x = Tensor::from_fn(dims, number);
                let list: Vec<f64> = x.to_vec::<T>().into_iter().map(wide).collect();
                let mut out = dims.to_vec();
                out[axis] = 1;
                for (op, sign) in [("ArgMax", 1.0), ("ArgMin", -1.0)] {
                    for last in [false, true] {
                        let want = Tensor::from_fn(&out, |k| {
                            let mut i = index(&out, k);
                            let lane: Vec<f64> = (0..dims[axis] as usize)
                                .map(|at| {
                                    i[axis] = at;
                                    let x = list[position(dims, &i)] * sign;
                                    if x.is_nan() { f64::INFINITY } else { x.clamp(-1e300, 1e300) }
                                })
                                .collect();
                            let best = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                            let place = |x: &f64| *x == best;
                            (if last { lane.iter().rposition(place) } else { lane.iter().position(place) }).unwrap()
                                as i64
                        });
                        on_all(op, 13, |case| {
                            let case = case.int("axis", axis as i64).int("select_last_index", last.into());
                            let y = case.int("keepdims", 1).input(&x).output(DType::I64, &out).run();
                            assert_eq!(y, from_ref(&want), "{op} {} {dims:?} {axis} {last}", T::DTYPE);
                        });
                    }
                }
            }
        }
    }

    #[test]
    fn like_the_definition() {
        // Few numbers, so that many are equal; NaN is rare.
        let float = |k: usize| if k % 97 == 50 { f32::NAN } else { [0.0, -1.0, 2.5, -0.0, f32::INFINITY][k * 3 % 5] };
        check(float, f64::from);
        check(|k| f64::from(float(k)), |x| x);
        check(|k| F16::round(float(k)), |x| x.wide().into());
        check(|k| Bf16::round(float(k)), |x| x.wide().into());
        check(|k| (k * 3 % 5) as i8 - 2, f64::from);
        check(|k| (k * 3 % 5) as u16, f64::from);
        check(|k| (k as i32 * 7919) % 101, f64::from);
        check(|k| (k as i64 * 7919) % 101, |x| x as f64);
    }

    #[test]
    fn nothing_to_choose_from() {
        let x = Tensor::new(&[2, 0], &[0f32; 0]);
        let case = Case::new("ArgMax", 13).int("axis", 1).int("keepdims", 0).input(&x).output(DType::I64, &[2]);
        let error = case.try_run().unwrap_err();
        assert!(error.contains("axis 1 has no elements to choose from"), "{error}");
        let (code, _) = Case::new("ArgMin", 13).int("axis", 2).input(&x).output(DType::I64, &[2]).rejection();
        assert_eq!(code, RejectCode::Attribute);
    }
}
