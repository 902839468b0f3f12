//! Arithmetic between tensors, with broadcasting.
//!
//! `many` takes any number of tensors, `gate` is SwiGLU, `power` is Pow, `whole` has what only integers have.

mod gate;
mod many;
mod power;
mod whole;

use super::broadcast::Broadcast;
use super::lane::{Number, Side};
use super::narrow::{Bf16, F16};
use super::quant::BinaryOfCodes;
use super::{Cpu, GRAIN, cost};
use crate::simd::ops::{Add, Div, Mul, Sub, Swap};
use crate::simd::{BinaryOp, Isa, Simd};
use gate::swiglu;
use many::{max, mean, min, sum};
use ortolan_ep_kit::element::{NUMBERS, set};
use ortolan_ep_kit::{Args, Around, Cost, DType, Fault, Kernel, NodeView, Op, Reject, Seam, Shapes, any, typed};
use power::{pow, pow_plain};
use whole::{bit_shift, bitwise_and, bitwise_or, bitwise_xor, modulo, modulo_floats};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Add", (7, 14), "add", typed!(add: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(EITHER),
    Kernel::new("BitShift", (11, 28), "bitshift", typed!(bit_shift: i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("BitwiseAnd", (18, 18), "bitwiseand", typed!(bitwise_and: i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("BitwiseOr", (18, 18), "bitwiseor", typed!(bitwise_or: i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("BitwiseXor", (18, 18), "bitwisexor", typed!(bitwise_xor: i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("Div", (7, 14), "div", typed!(div: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(EITHER),
    Kernel::new("Max", (8, 13), "max", typed!(max: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("Mean", (8, 13), "mean", typed!(mean: f32 f64 F16 Bf16)),
    Kernel::new("Min", (8, 13), "min", typed!(min: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("Mod", (10, 28), "mod", typed!(modulo: i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("Mod", (10, 28), "mod", typed!(modulo_floats: f32 f64 F16 Bf16)).fallback(),
    Kernel::new("Mul", (7, 14), "mul", typed!(mul: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(EITHER),
    Kernel::new("PRelu", (7, 16), "prelu", typed!(prelu: f32 f64 F16 Bf16 i32 i64 u32 u64)),
    Kernel::new("Pow", (7, 15), "pow", any!(pow: f32)).types(&[("T", DType::F32.mask()), ("T1", DType::F32.mask())]),
    Kernel::new("Pow", (7, 15), "pow", typed!(pow_plain: f32 f64 F16 Bf16 i32 i64))
        .types(&[("T", POWERS), ("T1", NUMBERS | set(&[DType::F16, DType::Bf16]))])
        .fallback(),
    Kernel::new("Sub", (7, 14), "sub", typed!(sub: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)).in_place(EITHER),
    Kernel::new("Sum", (8, 13), "sum", typed!(sum: f32 f64 F16 Bf16)),
    Kernel::new("SwiGLU", (28, 28), "swiglu", typed!(swiglu: f32 F16 Bf16)).in_place(&[(0, 0)]),
    Kernel::new("SwiGLU", (28, 28), "swiglu", typed!(swiglu: f64)).in_place(&[(0, 0)]).fallback(),
];

const POWERS: u64 = set(&[DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::I64]);

const EITHER: &[(u8, u8)] = &[(0, 0), (1, 0)];

/// A function of two tensors, element by element.
struct Binary {
    isa: Isa,
    /// Both are codes, and the result becomes codes.
    codes: Option<BinaryOfCodes>,
}

impl Op for Binary {
    type Bound = Broadcast<2>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        node.needs(1)?;
        Ok(Binary { isa: Cpu::of(node).isa, codes: None })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<2>) -> Result<(), Fault> {
        bound.follow(shapes)
    }

    fn read_through(&mut self, node: &NodeView<'_>, around: &Around<'_>) -> u32 {
        let Some((codes, inputs)) = BinaryOfCodes::of(node, around) else { return 0 };
        self.codes = Some(codes);
        inputs
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        self.codes.as_mut().is_some_and(|codes| codes.fuse(next, seam))
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

/// A slope where negative.
#[derive(Clone, Copy)]
struct Slope;

impl BinaryOp for Slope {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F32, slope: S::F32) -> S::F32 {
        s.select(s.lt(x, s.zero()), s.mul(x, slope), x)
    }
}

fn prelu<T: Number>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    run(op, walk, args, Slope, |x: T, slope| if x < T::default() { x.times(slope) } else { x })
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
    if let Some(codes) = &op.codes {
        return codes.run(walk, args);
    }
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
    use crate::ops::narrow::{Bf16, F16};
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
        let half = |k: usize| F16::round(float(k));
        check::<F16>("Add", half, |a, b| F16::round(a.wide() + b.wide()));
        check::<F16>("Div", half, |a, b| F16::round(a.wide() / b.wide()));
        check::<Bf16>("Mul", |k| Bf16::round(float(k)), |a, b| Bf16::round(a.wide() * b.wide()));
    }

    #[test]
    fn slopes() {
        let x = Tensor::from_fn(&[2, 3, 5], |k| (k as f32 * 0.7).sin());
        let slope = Tensor::new(&[3, 1], &[0.5f32, 2.0, -1.0]);
        let want = broadcast(&[2, 3, 5], &x, &slope, |x: f32, s: f32| if x < 0.0 { x * s } else { x });
        on_all("PRelu", 16, |case| {
            assert_eq!(case.input(&x).input(&slope).output(DType::F32, &[2, 3, 5]).run()[0], want);
        });
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
