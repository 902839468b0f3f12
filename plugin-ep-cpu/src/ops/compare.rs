//! Comparisons, logic, and the choice between two tensors.

use super::broadcast::Broadcast;
use super::lane::Side;
use super::narrow::{Bf16, F8E4M3Fn, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz, F16};
use super::value::{BOOL, TENSOR, Word, by_width};
use super::{Cpu, GRAIN, cost, loops};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Bool, Cost, Element, Fault, Kernel, NodeView, Op, Reject, Shapes, any, split, typed};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("And", (7, 7), "and", any!(and: Bool)).in_place(EITHER),
    Kernel::new("Equal", (7, 19), "equal", typed!(equal: Bool f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new("Greater", (7, 13), "greater", typed!(greater: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new(
        "GreaterOrEqual",
        (12, 16),
        "greaterorequal",
        typed!(greater_or_equal: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64),
    ),
    Kernel::new("IsInf", (10, 20), "isinf", typed!(is_inf: f32 f64 F16 Bf16 F8E4M3Fn F8E4M3Fnuz F8E5M2 F8E5M2Fnuz)),
    Kernel::new("IsNaN", (9, 20), "isnan", typed!(is_nan: f32 f64 F16 Bf16 F8E4M3Fn F8E4M3Fnuz F8E5M2 F8E5M2Fnuz)),
    Kernel::new("Less", (7, 13), "less", typed!(less: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64)),
    Kernel::new(
        "LessOrEqual",
        (12, 16),
        "lessorequal",
        typed!(less_or_equal: f32 f64 F16 Bf16 i8 i16 i32 i64 u8 u16 u32 u64),
    ),
    Kernel::new("Not", (1, 1), "not", any!(not: Bool)).in_place(&[(0, 0)]),
    Kernel::new("Or", (7, 7), "or", any!(or: Bool)).in_place(EITHER),
    Kernel::new("Where", (9, 16), "where", any!(choose)).types(&[("B", BOOL), ("T", TENSOR)]),
    Kernel::new("Xor", (7, 7), "xor", any!(xor: Bool)).in_place(EITHER),
];

const EITHER: &[(u8, u8)] = &[(0, 0), (1, 0)];

type Run = Result<(), Fault>;

/// A question to two tensors, element by element.
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

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<2>) -> Run {
        bound.follow(shapes)
    }
}

fn compare<T: Element + Sync>(
    op: &Binary,
    walk: &Broadcast<2>,
    args: &mut Args<'_>,
    f: impl Fn(T, T) -> bool + Sync,
) -> Run {
    let (isa, step) = (op.isa, walk.inner.step);
    let (a, b, y) = (args.input::<T>(0), args.input::<T>(1), args.output::<Bool>(0));
    Ok(walk.walk(args.par(), y, GRAIN, |at, y| {
        let (a, b) = (Side::new(a, at[0], step[0], y.len()), Side::new(b, at[1], step[1], y.len()));
        loops::zip(isa, |a, b| Bool::from(f(a, b)), a, b, y);
    })?)
}

macro_rules! comparisons {
    ($($name:ident: $sign:tt;)*) => { $(
        fn $name<T: Element + Sync + PartialOrd>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
            compare(op, walk, args, |a: T, b: T| a $sign b)
        }
    )* };
}
comparisons! {
    greater: >;
    greater_or_equal: >=;
    less: <;
    less_or_equal: <=;
}

fn equal<T: Element + Sync + PartialEq>(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    compare(op, walk, args, |a: T, b: T| a == b)
}

/// `f` is the same when its operands change places.
fn logic(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>, f: impl Fn(bool, bool) -> bool + Sync) -> Run {
    let Some(own) = args.alias(0) else { return compare(op, walk, args, |a: Bool, b: Bool| f(a.get(), b.get())) };
    let other = 1 - own;
    let (x, y, step) = (args.input::<Bool>(other), args.output::<Bool>(0), walk.inner.step[other]);
    Ok(walk.walk(args.par(), y, GRAIN, |at, y| match Side::new(x, at[other], step, y.len()) {
        Side::Slice(x) => y.iter_mut().zip(x).for_each(|(y, x)| *y = f(y.get(), x.get()).into()),
        Side::Scalar(x) => y.iter_mut().for_each(|y| *y = f(y.get(), x.get()).into()),
    })?)
}

fn and(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    logic(op, walk, args, |a, b| a & b)
}

fn or(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    logic(op, walk, args, |a, b| a | b)
}

fn xor(op: &Binary, walk: &Broadcast<2>, args: &mut Args<'_>) -> Run {
    logic(op, walk, args, |a, b| a ^ b)
}

/// A question to one tensor. The attributes are those of `IsInf`.
struct Unary {
    isa: Isa,
    negative: bool,
    positive: bool,
}

impl Op for Unary {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        let flag = |name| node.int_if(name).unwrap_or(1) != 0;
        Ok(Unary { isa: Cpu::of(node).isa, negative: flag("detect_negative"), positive: flag("detect_positive") })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }
}

fn ask<T: Element + Sync>(op: &Unary, args: &mut Args<'_>, f: impl Fn(T) -> bool + Sync) -> Run {
    let (x, y) = (args.input::<T>(0), args.output::<Bool>(0));
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, at, y| {
        loops::map(op.isa, |x| Bool::from(f(x)), &x[at..at + y.len()], y);
    })?)
}

fn not(op: &Unary, (): &(), args: &mut Args<'_>) -> Run {
    if args.alias(0).is_none() {
        return ask(op, args, |x: Bool| !x.get());
    }
    let y = args.output::<Bool>(0);
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, _, y| y.iter_mut().for_each(|y| *y = (!y.get()).into()))?)
}

/// Values that are no ordinary numbers.
trait Float: Element + Sync {
    fn nan(self) -> bool;
    fn infinite(self) -> bool;
    fn negative(self) -> bool;
}

macro_rules! floats {
    ($($t:ty => |$x:ident| $wide:expr;)*) => { $(
        impl Float for $t {
            #[inline(always)]
            fn nan(self) -> bool { let $x = self; $wide.is_nan() }
            #[inline(always)]
            fn infinite(self) -> bool { let $x = self; $wide.is_infinite() }
            #[inline(always)]
            fn negative(self) -> bool { let $x = self; $wide.is_sign_negative() }
        }
    )* };
}
floats! {
    f32 => |x| x;
    f64 => |x| x;
    F16 => |x| x.wide();
    Bf16 => |x| x.wide();
    F8E4M3Fn => |x| x.wide();
    F8E4M3Fnuz => |x| x.wide();
    F8E5M2 => |x| x.wide();
    F8E5M2Fnuz => |x| x.wide();
}

fn is_nan<T: Float>(op: &Unary, (): &(), args: &mut Args<'_>) -> Run {
    ask(op, args, |x: T| x.nan())
}

fn is_inf<T: Float>(op: &Unary, (): &(), args: &mut Args<'_>) -> Run {
    let (negative, positive) = (op.negative, op.positive);
    ask(op, args, |x: T| x.infinite() & if x.negative() { negative } else { positive })
}

/// `y[i] = c[i] ? a[i] : b[i]`
struct Where {
    isa: Isa,
    bits: usize,
}

impl Op for Where {
    type Bound = Broadcast<3>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        node.needs(2)?;
        Ok(Where { isa: Cpu::of(node).isa, bits: node.needs(1)?.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<3>) -> Run {
        bound.follow(shapes)
    }
}

fn choose(op: &Where, walk: &Broadcast<3>, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, choose_words(op.isa, walk, args))
}

fn choose_words<T: Word>(isa: Isa, walk: &Broadcast<3>, args: &mut Args<'_>) -> Run {
    let step = walk.inner.step;
    let (c, a, b) = (args.input::<Bool>(0), args.input::<T>(1), args.input::<T>(2));
    let y = args.output::<T>(0);
    Ok(walk.walk(args.par(), y, GRAIN, |at, y| {
        let n = y.len();
        let c = Side::new(c, at[0], step[0], n);
        let (a, b) = (Side::new(a, at[1], step[1], n), Side::new(b, at[2], step[2], n));
        match c {
            Side::Scalar(c) => match if c.get() { a } else { b } {
                Side::Slice(x) => y.copy_from_slice(x),
                Side::Scalar(x) => y.fill(x),
            },
            Side::Slice(c) => loops::choose(isa, c, a, b, y),
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::Dims;
    use crate::ops::narrow::{Bf16, F8E4M3Fn, F8E5M2, F16};
    use crate::ops::testing::{Case, broadcast, offset, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::{OpTest, Tensor};
    use ortolan_ep_kit::{Bool, DType, Element, RejectCode};

    /// Output, a, b.
    const SHAPES: &[(&[i64], &[i64], &[i64])] = &[
        (&[], &[], &[]),
        (&[7], &[7], &[7]),
        (&[0], &[0], &[1]),
        (&[3, 17], &[3, 17], &[17]),
        (&[3, 17], &[3, 1], &[17]),
        (&[2, 5, 3, 4], &[5, 1, 4], &[2, 1, 3, 1]),
        (&[3, 20_001], &[3, 20_001], &[3, 1]),
    ];

    fn check<T: Element>(op: &str, version: u32, number: impl Fn(usize) -> T + Copy, f: impl Fn(T, T) -> bool + Copy) {
        for &(out, a, b) in SHAPES {
            let (a, b) = (Tensor::from_fn(a, number), Tensor::from_fn(b, |k| number(k + 3)));
            let want = broadcast(out, &a, &b, |a, b| Bool::from(f(a, b)));
            on_all(op, version, |case: OpTest| {
                let y = case.input(&a).input(&b).output(DType::Bool, out).run();
                assert_eq!(y, from_ref(&want), "{op} {out:?} {}", T::DTYPE);
            });
        }
    }

    #[test]
    fn comparisons_at_all_shapes() {
        // Every fifth number is NaN, and both zeros appear.
        let float = |k: usize| if k % 5 == 4 { f32::NAN } else { [-1.5, -0.0, 0.0, 2.0][k * 7 % 4] };
        check("Equal", 19, float, |a, b| a == b);
        check("Greater", 13, float, |a, b| a > b);
        check("GreaterOrEqual", 16, float, |a, b| a >= b);
        check("Less", 13, float, |a, b| a < b);
        check("LessOrEqual", 16, float, |a, b| a <= b);
        check("Less", 13, |k| f64::from(float(k)), |a, b| a < b);
        check("Equal", 19, |k| F16::round(float(k)), |a, b| a.wide() == b.wide());
        check("GreaterOrEqual", 16, |k| Bf16::round(float(k)), |a, b| a.wide() >= b.wide());
        check("Equal", 19, |k| Bool((k * 7 % 3) as u8), |a, b| a.get() == b.get());
        check("Greater", 13, |k| (k as i8).wrapping_mul(37), |a, b| a > b);
        check("Less", 13, |k| (k as u64).wrapping_mul(u64::MAX / 7), |a, b| a < b);
        check("LessOrEqual", 16, |k| (k as i64 % 5 - 2) * (i64::MAX / 2), |a, b| a <= b);
        check("Equal", 19, |k| k as u16 % 3, |a, b| a == b);
    }

    #[test]
    fn logic_takes_any_byte_as_true() {
        let byte = |k: usize| Bool([0, 1, 255, 0, 2][k % 5]);
        check("And", 7, byte, |a, b| a.get() && b.get());
        check("Or", 7, byte, |a, b| a.get() || b.get());
        check("Xor", 7, byte, |a, b| a.get() != b.get());
        let x = Tensor::from_fn(&[3, 5], byte);
        let y = Case::new("Not", 1).input(&x).output(DType::Bool, &[3, 5]).run();
        assert_eq!(y, [Tensor::from_fn(&[3, 5], |k| Bool::from(!byte(k).get()))]);
    }

    #[test]
    fn numbers_that_are_none() {
        let x = [0.0, f32::NAN, f32::INFINITY, -1.0, f32::NEG_INFINITY];
        let nan = [0, 1, 0, 0, 0];
        let all = |flags: [u8; 5]| Tensor::new(&[5], &flags.map(Bool));
        let inputs = [
            Tensor::new(&[5], &x),
            Tensor::new(&[5], &x.map(f64::from)),
            Tensor::new(&[5], &x.map(F16::round)),
            Tensor::new(&[5], &x.map(Bf16::round)),
            Tensor::new(&[5], &[0x00, 0x7f, 0x7c, 0xbc, 0xfc].map(F8E5M2)),
        ];
        for x in inputs {
            let run = |op, version, negative, positive| {
                let case = Case::new(op, version).int("detect_negative", negative).int("detect_positive", positive);
                case.input(&x).output(DType::Bool, &[5]).run().remove(0)
            };
            assert_eq!(run("IsNaN", 20, 1, 1), all(nan), "{}", x.dtype);
            assert_eq!(run("IsInf", 20, 1, 1), all([0, 0, 1, 0, 1]), "{}", x.dtype);
            assert_eq!(run("IsInf", 20, 0, 1), all([0, 0, 1, 0, 0]), "{}", x.dtype);
            assert_eq!(run("IsInf", 20, 1, 0), all([0, 0, 0, 0, 1]), "{}", x.dtype);
        }
        let x = Tensor::new(&[3], &[0x7f, 0x7e, 0xff].map(F8E4M3Fn));
        let y = Case::new("IsNaN", 20).input(&x).output(DType::Bool, &[3]).run();
        assert_eq!(y, [Tensor::new(&[3], &[1, 0, 1].map(Bool))]);
    }

    #[test]
    fn where_at_all_shapes_and_widths() {
        // Output, condition, a, b.
        let cases: &[(Dims, Dims, Dims, Dims)] = &[
            (&[], &[], &[], &[]),
            (&[9], &[9], &[9], &[9]),
            (&[9], &[9], &[], &[9]),
            (&[9], &[9], &[9], &[1]),
            (&[9], &[9], &[], &[]),
            (&[9], &[1], &[9], &[]),
            (&[0, 4], &[0, 1], &[4], &[]),
            (&[3, 4], &[3, 1], &[3, 4], &[4]),
            (&[2, 3, 4], &[3, 1], &[2, 1, 4], &[1, 3, 4]),
            (&[2, 3, 20_001], &[3, 20_001], &[2, 1, 20_001], &[]),
        ];
        for dtype in [DType::U8, DType::F16, DType::F32, DType::I64, DType::C128] {
            for &(out, c, a, b) in cases {
                let size = dtype.bits() / 8;
                let count = |dims: &[i64]| dims.iter().product::<i64>() as usize;
                let data = |dims: &[i64], seed: usize| {
                    let bytes = (0..count(dims) * size).map(|k| (k * 31 + seed + k / 256) as u8).collect();
                    Tensor { dtype, dims: dims.to_vec(), bytes }
                };
                let (a, b) = (data(a, 1), data(b, 7));
                let c = Tensor::from_fn(c, |k| Bool([0, 3, 1, 0][k * 5 % 4]));
                let mut bytes = Vec::new();
                for k in 0..count(out) {
                    let x = if c.bytes[offset(out, &c.dims, k)] != 0 { &a } else { &b };
                    let at = offset(out, &x.dims, k) * size;
                    bytes.extend(&x.bytes[at..at + size]);
                }
                let want = Tensor { dtype, dims: out.to_vec(), bytes };
                on_all("Where", 16, |case| {
                    let y = case.input(&c).input(&a).input(&b).output(dtype, out).run();
                    assert_eq!(y, from_ref(&want), "{dtype} {out:?} {:?}", c.dims);
                });
            }
        }
    }

    #[test]
    fn refusals() {
        let x = Tensor::new(&[1], &[1.0f32]);
        let (code, text) = Case::new("And", 7).input(&x).input(&x).output(DType::Bool, &[1]).rejection();
        assert_eq!((code, &*text), (RejectCode::Dtype, "And: T = f32 (input 0) has no kernel; there are bool"));
        let (code, _) = Case::new("Where", 16).input(&x).input(&x).input(&x).output(DType::F32, &[1]).rejection();
        assert_eq!(code, RejectCode::Dtype);
        let (code, text) = Case::new("Equal", 19).input(&x).output(DType::Bool, &[1]).rejection();
        assert_eq!((code, &*text), (RejectCode::Shape, "Equal: input 1 is missing"));
    }
}
