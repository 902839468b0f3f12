//! Changes of the element type.

use super::convert::{To, Whole};
use super::narrow::{Bf16, E2M1, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F8E8M0, F16, Format, Toward};
use super::value::{EIGHTS, SMALL};
use super::{Cpu, GRAIN, codes, cost, loops};
use crate::simd::Isa;
use ortolan_ep_kit::element::{NUMBERS, PLAIN, set};
use ortolan_ep_kit::{Args, Bool, Cost, DType, Fault, Kernel, NodeView, Op, Reject, Shapes, Slot, any, bytes, split};

/// Sorted by operator; pairs of whole types before those with a narrow one.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("BitCast", (26, 26), "bitcast", any!(view)).types(&[("T1", PLAIN), ("T2", PLAIN)]).at(ENDS).view(),
    Kernel::new("Cast", (6, 28), "cast", any!(cast)).types(WHOLE).at(ENDS),
    Kernel::new("Cast", (6, 28), "cast", any!(cast)).types(ALL).at(ENDS).fallback(),
    Kernel::new("CastLike", (15, 25), "castlike", any!(cast)).types(WHOLE).at(ENDS).unread(&[1]),
    Kernel::new("CastLike", (15, 25), "castlike", any!(cast)).types(ALL).at(ENDS).unread(&[1]).fallback(),
];

const ENDS: &[Slot] = &[Slot::In(0), Slot::Out(0)];
/// Types that convert value by value.
const BYTES: u64 = NUMBERS | set(&[DType::Bool, DType::F16, DType::Bf16]);
/// Types that go through tables and codes.
const NARROW: u64 = EIGHTS | SMALL;
const WHOLE: &[(&str, u64)] = &[("T1", BYTES), ("T2", BYTES)];
const ALL: &[(&str, u64)] = &[("T1", BYTES | NARROW), ("T2", BYTES | NARROW)];

type Run = Result<(), Fault>;

/// The same bits under another type.
struct BitCast;

impl Op for BitCast {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (from, to) = (node.needs(0)?.dtype(), node.out()?.dtype());
        if from.bits() != to.bits() {
            let text = format!("{from} has {} bits and {to} has {}: they have to be equal", from.bits(), to.bits());
            return Err(Reject::dtype(text));
        }
        Ok(BitCast)
    }

    fn cost(&self, _: &NodeView<'_>) -> Cost {
        Cost::ns(0.0)
    }
}

/// Never called: the row is a view.
fn view(_: &BitCast, (): &(), _: &mut Args<'_>) -> Run {
    Err(Fault::data("a view has nothing to run"))
}

/// Converts one type to another.
struct Cast {
    isa: Isa,
    from: DType,
    to: DType,
    /// Values of a narrow type that is read.
    values: Option<Box<[f32; 256]>>,
    /// How a narrow type is written.
    code: Option<Code>,
}

/// How values become codes of less than 16 bits.
#[derive(Debug, Clone, Copy)]
enum Code {
    Float(Format, bool),
    Power(Toward, bool),
    /// Low bits.
    Integer,
}

impl Op for Cast {
    /// Number of elements: bytes of small types do not tell.
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (from, to) = (node.needs(0)?.dtype(), node.out()?.dtype());
        if let Some(attr) = node.int_if("to").filter(|&n| n != i64::from(to as u32)) {
            return Err(Reject::attribute(format!("attribute to = {attr} names another type than {to}, the output's")));
        }
        let saturate = node.int_if("saturate").unwrap_or(1) != 0;
        let toward = match node.text("round_mode").unwrap_or("up") {
            "up" => Toward::Up,
            "down" => Toward::Down,
            "nearest" => Toward::Nearest,
            other => return Err(Reject::attribute(format!("attribute round_mode = {other} is not known"))),
        };
        let values = (NARROW & from.mask() != 0).then(|| values(from));
        Ok(Cast { isa: Cpu::of(node).isa, from, to, values, code: code(to, toward, saturate) })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        match (&self.values, &self.code) {
            (None, None) => cost::moving(node),
            _ => cost::per_element(node, 2.0),
        }
    }

    fn bind(&self, shapes: &Shapes<'_>, elements: &mut usize) -> Run {
        *elements = shapes.input_len(0);
        Ok(())
    }
}

fn code(to: DType, toward: Toward, saturate: bool) -> Option<Code> {
    Some(match to {
        DType::F8E4M3Fn => Code::Float(E4M3FN, saturate),
        DType::F8E4M3Fnuz => Code::Float(E4M3FNUZ, saturate),
        DType::F8E5M2 => Code::Float(E5M2, saturate),
        DType::F8E5M2Fnuz => Code::Float(E5M2FNUZ, saturate),
        DType::F4E2M1 => Code::Float(E2M1, true),
        DType::F8E8M0 => Code::Power(toward, saturate),
        DType::U4 | DType::I4 | DType::U2 | DType::I2 => Code::Integer,
        _ => return None,
    })
}

/// What each code of a narrow type means.
fn values(from: DType) -> Box<[f32; 256]> {
    let signed = |code: u8, bits: u32| f32::from((code << (8 - bits)) as i8 >> (8 - bits));
    let mut table = Box::new([0.0; 256]);
    for (value, code) in table.iter_mut().zip(0..=u8::MAX) {
        *value = match from {
            DType::F8E4M3Fn => E4M3FN.decode(code),
            DType::F8E4M3Fnuz => E4M3FNUZ.decode(code),
            DType::F8E5M2 => E5M2.decode(code),
            DType::F8E5M2Fnuz => E5M2FNUZ.decode(code),
            DType::F4E2M1 => E2M1.decode(code & 15),
            DType::F8E8M0 => F8E8M0(code).wide(),
            DType::I4 => signed(code & 15, 4),
            DType::I2 => signed(code & 3, 2),
            _ => f32::from(code),
        };
    }
    table
}

impl Code {
    fn of<A: Whole>(self, x: A) -> u8 {
        match self {
            Code::Float(format, saturate) => format.encode(x.to_f32(), saturate),
            Code::Power(toward, saturate) => F8E8M0::round(x.to_f32(), toward, saturate).0,
            Code::Integer => x.to_i64() as u8, // the low bits are what is asked for
        }
    }
}

/// Calls `$f::<T, …>` for the type of a dtype.
macro_rules! by_type {
    ($dtype:expr, $f:ident::<_ $(, $more:ty)?>($($arg:expr),*), $none:expr) => {
        match $dtype {
            DType::Bool => $f::<Bool $(, $more)?>($($arg),*),
            DType::F32 => $f::<f32 $(, $more)?>($($arg),*),
            DType::F64 => $f::<f64 $(, $more)?>($($arg),*),
            DType::F16 => $f::<F16 $(, $more)?>($($arg),*),
            DType::Bf16 => $f::<Bf16 $(, $more)?>($($arg),*),
            DType::I8 => $f::<i8 $(, $more)?>($($arg),*),
            DType::I16 => $f::<i16 $(, $more)?>($($arg),*),
            DType::I32 => $f::<i32 $(, $more)?>($($arg),*),
            DType::I64 => $f::<i64 $(, $more)?>($($arg),*),
            DType::U8 => $f::<u8 $(, $more)?>($($arg),*),
            DType::U16 => $f::<u16 $(, $more)?>($($arg),*),
            DType::U32 => $f::<u32 $(, $more)?>($($arg),*),
            DType::U64 => $f::<u64 $(, $more)?>($($arg),*),
            _ => $none,
        }
    };
}

/// The bytes of a number as an element of a type of whole bytes.
pub(crate) fn element(dtype: DType, x: f32) -> Option<[u8; 16]> {
    fn put<B: Whole>(x: f32) -> Option<[u8; 16]>
    where
        f32: To<B>,
    {
        let mut all = [0; 16];
        let element: [B; 1] = [x.to()];
        let bytes = bytes::of(&element);
        all[..bytes.len()].copy_from_slice(bytes);
        Some(all)
    }
    by_type!(dtype, put::<_>(x), None)
}

fn cast(op: &Cast, elements: &usize, args: &mut Args<'_>) -> Run {
    if op.from as u32 == op.to as u32 {
        return copy(args);
    }
    match (&op.values, op.code) {
        (None, None) => whole(op, args),
        (None, Some(code)) => by_type!(op.from, encode::<_>(op, code, args), Err(missing(op))),
        (Some(values), None) => by_type!(op.to, decode::<_>(op, values, args), Err(missing(op))),
        (Some(values), Some(code)) => recode(op, values, code, elements, args),
    }
}

fn missing(op: &Cast) -> Fault {
    Fault::data(format!("there is no conversion from {} to {}", op.from, op.to))
}

fn copy(args: &mut Args<'_>) -> Run {
    let (x, y) = (args.input::<u8>(0), args.output::<u8>(0));
    Ok(split::rows(args.par(), y, 1, 8 * GRAIN, |_, at, y| y.copy_from_slice(&x[at..at + y.len()]))?)
}

macro_rules! pairs {
    ($op:ident, $args:ident: $($dtype:ident $t:ty,)*) => {
        match $op.from {
            $(DType::$dtype => by_type!($op.to, convert::<_, $t>($op, $args), Err(missing($op))),)*
            _ => Err(missing($op)),
        }
    };
}

fn whole(op: &Cast, args: &mut Args<'_>) -> Run {
    pairs! {
        op, args:
        Bool Bool, F32 f32, F64 f64, F16 F16, Bf16 Bf16,
        I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64,
    }
}

fn convert<B: Whole, A: Whole + To<B>>(op: &Cast, args: &mut Args<'_>) -> Run {
    let (x, y) = (args.input::<A>(0), args.output::<B>(0));
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, at, y| {
        let x = &x[at..at + y.len()];
        if A::SHORT_FLOAT || B::SHORT_FLOAT {
            loops::map(op.isa, A::to, x, y);
        } else {
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = x.to());
        }
    })?)
}

fn encode<A: Whole>(op: &Cast, code: Code, args: &mut Args<'_>) -> Run {
    let (x, y) = (args.input::<A>(0), args.output::<u8>(0));
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, first, y| {
        codes::write(op.to.bits(), x.len(), first, y, |at| code.of(x[at]));
    })?)
}

fn decode<B: Whole>(op: &Cast, values: &[f32; 256], args: &mut Args<'_>) -> Run
where
    f32: To<B>,
{
    let (x, y, bits) = (args.input::<u8>(0), args.output::<B>(0), op.from.bits());
    let mask = u8::MAX >> (8 - bits);
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, first, y| {
        for (at, y) in (first..).zip(y) {
            *y = values[usize::from(codes::read(bits, x, at) & mask)].to();
        }
    })?)
}

fn recode(op: &Cast, values: &[f32; 256], code: Code, elements: &usize, args: &mut Args<'_>) -> Run {
    let (x, y, bits) = (args.input::<u8>(0), args.output::<u8>(0), op.from.bits());
    let mask = u8::MAX >> (8 - bits);
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, first, y| {
        codes::write(op.to.bits(), *elements, first, y, |at| {
            code.of(values[usize::from(codes::read(bits, x, at) & mask)])
        });
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::{Bf16, E2M1, E4M3FN, F16};
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{Bool, DType, Element, RejectCode};

    fn cast(x: &Tensor, to: DType) -> Tensor {
        let case = Case::new("Cast", 28).int("to", to as i64).int("saturate", 1).text("round_mode", "up");
        case.input(x).output(to, &x.dims).run().remove(0)
    }

    /// Numbers that every type holds, through all pairs of types.
    #[test]
    fn small_numbers_survive_every_pair() {
        let numbers: Vec<f32> = (0..261).map(|k| (k % 2) as f32).collect();
        let plain = Tensor::new(&[29, 9], &numbers);
        let types: Vec<DType> = DType::ALL
            .iter()
            .copied()
            .filter(|d| !matches!(d, DType::Str | DType::C64 | DType::C128 | DType::F8E8M0 | DType::I2))
            .collect();
        for &from in &types {
            let x = cast(&plain, from);
            assert_eq!(x.bytes.len(), from.bytes(261).unwrap(), "{from}");
            for &to in &types {
                let y = cast(&x, to);
                assert_eq!((y.dtype, y.bytes.len()), (to, to.bytes(261).unwrap()), "{from} to {to}");
                assert_eq!(cast(&y, DType::F32), plain, "{from} to {to}");
            }
        }
    }

    fn check<A: Element, B: Element>(cases: &[(A, B)]) {
        let dims = [cases.len() as i64];
        let (x, want): (Vec<A>, Vec<B>) = cases.iter().copied().unzip();
        let (x, want) = (Tensor::new(&dims, &x), Tensor::new(&dims, &want));
        on_all("Cast", 28, |case| {
            let y = case.int("to", B::DTYPE as i64).input(&x).output(B::DTYPE, &dims).run().remove(0);
            assert_eq!(y.bytes, want.bytes, "{} to {}: {y:?}", A::DTYPE, B::DTYPE);
        });
    }

    #[test]
    fn numbers_become_others_as_the_standard_says() {
        check(&[(1.9f32, 1i64), (-1.9, -1), (3e9, 3_000_000_000)]);
        check(&[(2.5f64, 2i32), (-7.9, -7)]);
        check(&[(200i16, -56i8), (-1, -1), (256, 0)]);
        check(&[(-1i64, u32::MAX), (1 << 32, 0)]);
        check(&[(i64::MAX, 9.223_372e18f32), (16_777_217, 16_777_216.0)]);
        check(&[(u64::MAX, 1.844_674_4e19f32)]);
        check(&[(f32::NAN, Bool(1)), (-0.0, Bool(0)), (0.1, Bool(1))]);
        check(&[(Bool(7), 1.0f32), (Bool(0), 0.0)]);
        check(&[(Bool(7), 1u8), (Bool(0), 0)]);
        check(&[(36i32, Bool(1)), (0, Bool(0)), (256, Bool(1))]);
        check(&[(1e300f64, f32::INFINITY), (-1e300, f32::NEG_INFINITY)]);
        check(&[(65_520.0f32, F16(0x7c00)), (1.0, F16(0x3c00)), (5.9e-8, F16(1))]);
        check(&[(1.0 + 1.0 / 2048.0 + 1e-12f64, F16(0x3c01))]);
        check(&[(100_000i32, F16(0x7c00)), (-3, F16(0xc200))]);
        check(&[(F16(0x3e00), Bf16(0x3fc0)), (F16(0xc000), Bf16(0xc000))]);
        check(&[(Bf16(0x4049), 3i32), (Bf16(0xc049), -3)]);
        check(&[(300.0f32, 44u8), (-1.0, 255)]);
    }

    #[test]
    fn bulk_conversions_meet_the_definition() {
        let x = Tensor::from_fn(&[3, 11_003], |k| (k as f32 * 0.37).sin() * 100.0);
        let numbers = x.to_vec::<f32>();
        let of = |f: fn(f32) -> F16| Tensor::from_fn(&x.dims, |k| f(numbers[k]));
        let half = of(F16::round);
        on_all("Cast", 28, |case| {
            let y = case.int("to", 10).input(&x).output(DType::F16, &x.dims).run();
            assert_eq!(y[0].bytes, half.bytes);
        });
        on_all("Cast", 28, |case| {
            let y = case.int("to", 7).input(&half).output(DType::I64, &x.dims).run();
            let want = Tensor::from_fn(&x.dims, |k| F16::round(numbers[k]).wide() as i64);
            assert_eq!(y, [want]);
        });
    }

    #[test]
    fn narrow_types_round_and_saturate() {
        let x = Tensor::new(&[5], &[1.06f32, 1000.0, -0.0, 5.3, f32::INFINITY]);
        let to = |dtype: DType, saturate, round| {
            let case = Case::new("Cast", 28).int("to", dtype as i64).int("saturate", saturate);
            case.text("round_mode", round).input(&x).output(dtype, &[5]).run().remove(0).bytes
        };
        let codes = |saturate| x.to_vec::<f32>().iter().map(|&x| E4M3FN.encode(x, saturate)).collect::<Vec<u8>>();
        assert_eq!(to(DType::F8E4M3Fn, 1, "up"), codes(true));
        assert_eq!(to(DType::F8E4M3Fn, 0, "up"), codes(false));
        assert_eq!(to(DType::F8E8M0, 1, "down")[..2], [127, 136]);
        assert_eq!(to(DType::F8E8M0, 1, "up")[..2], [128, 137]);
        let four: Vec<u8> = x.to_vec::<f32>().iter().map(|&x| E2M1.encode(x, true)).collect();
        assert_eq!(to(DType::F4E2M1, 1, "up"), [four[0] | four[1] << 4, four[2] | four[3] << 4, four[4]]);
    }

    #[test]
    fn integers_below_a_byte_keep_their_low_bits() {
        let x = Tensor::new(&[5], &[-8i32, 7, 17, -1, 2]);
        assert_eq!(cast(&x, DType::I4).bytes, [0x78, 0xf1, 0x02]);
        assert_eq!(cast(&cast(&x, DType::I4), DType::I8).to_vec::<i8>(), [-8, 7, 1, -1, 2]);
        assert_eq!(cast(&cast(&x, DType::U4), DType::I8).to_vec::<i8>(), [8, 7, 1, 15, 2]);
        assert_eq!(cast(&cast(&x, DType::U2), DType::F32).to_vec::<f32>(), [0.0, 3.0, 1.0, 3.0, 2.0]);
        assert_eq!(cast(&cast(&x, DType::I2), DType::I64).to_vec::<i64>(), [0, -1, 1, -1, -2]);
    }

    #[test]
    fn like_another_tensor() {
        let x = Tensor::new(&[2], &[1.5f32, -2.5]);
        let like = Tensor::new(&[0], &[0i8; 0]);
        let y = Case::new("CastLike", 25).input(&x).input(&like).output(DType::I8, &[2]).run();
        assert_eq!(y, [Tensor::new(&[2], &[1i8, -2])]);
    }

    #[test]
    fn bits_stay() {
        let x = Tensor::new(&[2], &[1.0f32, -0.0]);
        let y = Case::new("BitCast", 26).int("to", 6).input(&x).output(DType::I32, &[2]).run();
        assert_eq!(y, [Tensor::new(&[2], &[0x3f80_0000, i32::MIN])]);
    }

    #[test]
    fn refusals() {
        let x = Tensor::new(&[1], &[1.0f32]);
        let (code, text) = Case::new("BitCast", 26).int("to", 7).input(&x).output(DType::I64, &[1]).rejection();
        let want = "BitCast: f32 has 32 bits and i64 has 64: they have to be equal";
        assert_eq!((code, &*text), (RejectCode::Dtype, want));
        let case = Case::new("Cast", 28).int("to", 24).text("round_mode", "odd").input(&x);
        let (code, text) = case.output(DType::F8E8M0, &[1]).rejection();
        assert_eq!((code, &*text), (RejectCode::Attribute, "Cast: attribute round_mode = odd is not known"));
        let (code, text) = Case::new("Cast", 28).int("to", 6).input(&x).output(DType::I64, &[1]).rejection();
        let want = "Cast: attribute to = 6 names another type than i64, the output's";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
    }
}
