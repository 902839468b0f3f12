//! Arithmetic between two tensors, with broadcasting.

use super::broadcast::Broadcast;
use super::lane::{Number, Side};
use super::{Cpu, GRAIN, cost};
use crate::simd::ops::{Add, Div, Mul, Sub, Swap};
use crate::simd::{BinaryOp, Isa};
use ortolan_ep_kit::{Args, Cost, Fault, Kernel, NodeView, Op, Reject, Shapes, typed};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Add", (7, 14), "add", typed!(add: f32 f64 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(EITHER),
    Kernel::new("Div", (7, 14), "div", typed!(div: f32 f64 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(EITHER),
    Kernel::new("Mul", (7, 14), "mul", typed!(mul: f32 f64 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(EITHER),
    Kernel::new("Sub", (7, 14), "sub", typed!(sub: f32 f64 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(EITHER),
];

const EITHER: &[(u8, u8)] = &[(0, 0), (1, 0)];

/// A function of two tensors, element by element.
struct Binary {
    isa: Isa,
}

impl Op for Binary {
    type Bound = Broadcast<2>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        node.needs(1)?;
        Ok(Binary { isa: Cpu::of(node).isa })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<2>) -> Result<(), Fault> {
        bound.follow(shapes)
    }
}

type Run = Result<(), Fault>;

fn add<T: Number>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    run(op, walk, args, Add, T::plus)
}

fn sub<T: Number>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    run(op, walk, args, Sub, T::minus)
}

fn mul<T: Number>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    run(op, walk, args, Mul, T::times)
}

fn div<T: Number>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    if T::INTEGER {
        // The divisor lies under the output only if it has as many elements.
        let zero = match args.alias(0) {
            Some(1) => return div_over_divisor::<T>(walk, args),
            _ => args.input::<T>(1).iter().position(|&b| b == T::default()),
        };
        not_zero(zero)?;
    }
    run(op, walk, args, Div, T::over)
}

fn not_zero(zero: Option<usize>) -> Run {
    zero.map_or(Ok(()), |k| Err(Fault::data(format!("input 1 is 0 at element {k}: integers cannot be divided by it"))))
}

/// Integers divided into the memory of the divisor, which is checked as it goes.
fn div_over_divisor<T: Number>(walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    let (a, y) = (args.input::<T>(0), args.output::<T>(0));
    not_zero(y.iter().position(|&b| b == T::default()))?;
    Ok(walk.walk(args.par(), y, GRAIN, |[at, _], piece| {
        for (k, y) in piece.iter_mut().enumerate() {
            *y = a[at + k * walk.inner.step[0]].over(*y);
        }
    })?)
}

fn run<T: Number, V: BinaryOp + Copy>(
    op: &Binary,
    walk: &Broadcast<2>,
    args: &mut Args<'_>,
    vector: V,
    scalar: impl Fn(T, T) -> T + Sync,
) -> Run {
    let (isa, step) = (op.isa, walk.inner.step);
    let alias = args.alias(0);
    let y = args.output::<T>(0);
    match alias {
        None => {
            let (a, b) = (args.input::<T>(0), args.input::<T>(1));
            walk.walk(args.par(), y, GRAIN, |at, y| {
                let a = Side::new(a, at[0], step[0], y.len());
                let b = Side::new(b, at[1], step[1], y.len());
                T::zip(isa, &vector, &scalar, a, b, y);
            })?;
        }
        Some(0) => {
            let b = args.input::<T>(1);
            walk.walk(args.par(), y, GRAIN, |at, y| {
                let b = Side::new(b, at[1], step[1], y.len());
                T::zip_in_place(isa, &vector, &scalar, y, b);
            })?;
        }
        Some(_) => {
            let a = args.input::<T>(0);
            walk.walk(args.par(), y, GRAIN, |at, y| {
                let a = Side::new(a, at[0], step[0], y.len());
                T::zip_in_place(isa, &Swap(vector), |b, a| scalar(a, b), y, a);
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, broadcast, on_all};
    use ortolan_ep_kit::testing::OpTest;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, Element};

    /// Output, a, b.
    const SHAPES: &[(&[i64], &[i64], &[i64])] = &[
        (&[], &[], &[]),
        (&[1], &[1], &[]),
        (&[7], &[7], &[7]),
        (&[0], &[0], &[1]),
        (&[2, 0, 3], &[2, 0, 1], &[3]),
        (&[3, 17], &[3, 17], &[17]),
        (&[3, 17], &[3, 1], &[3, 17]),
        (&[2, 5, 3, 4], &[5, 1, 4], &[2, 1, 3, 1]),
        (&[3, 20_001], &[3, 20_001], &[3, 1]),
    ];

    fn check<T: Element + PartialEq + core::fmt::Debug>(
        op: &str,
        number: impl Fn(usize) -> T + Copy,
        f: impl Fn(T, T) -> T + Copy,
    ) {
        for &(out, a, b) in SHAPES {
            let (a, b) = (Tensor::from_fn(a, number), Tensor::from_fn(b, |k| number(k + 3)));
            let want = broadcast(out, &a, &b, f);
            on_all(op, 14, |case: OpTest| {
                let y = case.input(&a).input(&b).output(T::DTYPE, out).run();
                assert_eq!(y[0], want, "{op} {out:?}");
            });
        }
    }

    #[test]
    fn like_the_definition_at_all_shapes() {
        let float = |k: usize| (k as f32 * 0.37).sin() * 3.0 + 0.1;
        check::<f32>("Add", float, |a, b| a + b);
        check::<f32>("Sub", float, |a, b| a - b);
        check::<f32>("Mul", float, |a, b| a * b);
        check::<f32>("Div", float, |a, b| a / b);
        check::<f64>("Sub", |k| f64::from(float(k)), |a, b| a - b);
        check::<f64>("Div", |k| f64::from(float(k)), |a, b| a / b);
        check::<i64>("Add", |k| k as i64 - 5, |a, b| a + b);
        check::<i64>("Div", |k| (k as i64 % 9) * 2 - 9, |a, b| a / b);
        check::<i32>("Mul", |k| (k as i32).wrapping_mul(77_777), i32::wrapping_mul);
        check::<u8>("Sub", |k| k as u8, u8::wrapping_sub);
        check::<i8>("Add", |k| k as i8, i8::wrapping_add);
    }

    #[test]
    fn integer_division_by_zero_is_a_fault() {
        let (a, b) = (Tensor::new(&[3], &[1i32, 2, 3]), Tensor::new(&[3], &[1i32, 0, 2]));
        let error = Case::new("Div", 14).input(&a).input(&b).output(DType::I32, &[3]).try_run().unwrap_err();
        assert!(error.contains("input 1 is 0 at element 1"), "{error}");
    }

    #[test]
    fn smallest_integer_over_minus_one_wraps() {
        let (a, b) = (Tensor::new(&[1], &[i32::MIN]), Tensor::new(&[1], &[-1i32]));
        let y = Case::new("Div", 14).input(&a).input(&b).output(DType::I32, &[1]).run();
        assert_eq!(y, [a]);
    }
}
