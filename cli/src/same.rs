//! Whether a value is the one that was wanted: kinds, types and sizes to the letter, numbers up to a tolerance.

use ortolan::value::{Tensor, Value};
use ortolan_graph::ir::DType;

use crate::numbers::{self, Number};

/// How far numbers may be apart.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// Relative; two steps of bf16 count for it if they are more.
    pub relative: f64,
    /// Absolute.
    pub absolute: f64,
}

/// Nothing if a value is what is wanted, else a sentence.
pub fn differs(found: &Value, wanted: &Value, tolerance: Tolerance) -> Option<String> {
    match (found, wanted) {
        (Value::Optional(found), Value::Optional(wanted)) => match (found, wanted) {
            (Some(found), Some(wanted)) => differs(found, wanted, tolerance),
            (None, None) => None,
            (found, _) => Some(format!("it is {}", if found.is_some() { "there, wanted is none" } else { "none" })),
        },
        // Test data holds optionals as what is in them.
        (Value::Optional(Some(found)), wanted) => differs(found, wanted, tolerance),
        (found, Value::Optional(Some(wanted))) => differs(found, wanted, tolerance),
        (Value::Tensor(found), Value::Tensor(wanted)) => tensors(found, wanted, tolerance),
        (Value::Sequence(found), Value::Sequence(wanted)) if found.len() == wanted.len() => {
            let mut pairs = found.iter().zip(wanted.iter()).enumerate();
            pairs.find_map(|(i, (a, b))| differs(a, b, tolerance).map(|why| format!("item {i}: {why}")))
        }
        (Value::Sequence(found), Value::Sequence(wanted)) => {
            Some(format!("it has {} items, wanted are {}", found.len(), wanted.len()))
        }
        (found, wanted) => Some(format!("it is a {}, wanted is a {}", found.kind_name(), wanted.kind_name())),
    }
}

fn tensors(found: &Tensor, wanted: &Tensor, tolerance: Tolerance) -> Option<String> {
    if found.dtype() != wanted.dtype() || found.shape() != wanted.shape() {
        let show = |t: &Tensor| format!("{} {:?}", t.dtype(), t.shape());
        return Some(format!("it is {}, wanted is {}", show(found), show(wanted)));
    }
    let relative = tolerance.relative.max(step(found.dtype()));
    let (a, b) = match (numbers::iter(found), numbers::iter(wanted)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(why), _) | (_, Err(why)) => return Some(why),
    };
    let near = |x: f64, y: f64| {
        x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance.absolute + relative * y.abs()
    };
    let mut off = a.zip(b).enumerate().filter(|(_, (a, b))| match (a, b) {
        (Number::Complex(a, b), Number::Complex(c, d)) => !(near(*a, *c) && near(*b, *d)),
        (Number::Float(_) | Number::Float32(_), Number::Float(_) | Number::Float32(_)) => {
            !a.real().zip(b.real()).is_some_and(|(x, y)| near(x, y))
        }
        (a, b) => a != b,
    });
    let (at, (a, b)) = off.next()?;
    let all: i64 = found.shape().iter().product();
    Some(format!("element {at} is {a}, wanted is {b} ({} of {all} are off)", 1 + off.count()))
}

/// What two steps of bf16 are in proportion, as the standard's own runner has it.
fn step(dtype: DType) -> f64 {
    if dtype == DType::Bf16 { 2.0 / 128.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIGHT: Tolerance = Tolerance { relative: 1e-3, absolute: 1e-5 };

    #[test]
    fn what_differs_is_told() {
        let floats = |x: &[f32]| Value::from(x.to_vec());
        // 1, and what lies two steps above it.
        let narrow = |dtype, bits: u16| Value::from(Tensor::from_bytes(dtype, &[1], &bits.to_ne_bytes()).unwrap());
        let (half, brain) = (|bits| narrow(DType::F16, bits), |bits| narrow(DType::Bf16, bits));
        let cases = [
            (floats(&[1.0, f32::NAN]), floats(&[1.0005, f32::NAN]), None),
            (
                floats(&[1.0, 2.0, 3.0]),
                floats(&[1.0, 2.1, 3.1]),
                Some("element 1 is 2.0, wanted is 2.1 (2 of 3 are off)"),
            ),
            (floats(&[1.0]), Value::from(vec![1.0f64]), Some("it is float [1], wanted is double [1]")),
            (Value::from(vec![1i64, 2]), Value::from(vec![1i64, 3]), Some("element 1 is 2, wanted is 3")),
            (half(0x3c00), half(0x3c01), None),
            (half(0x3c00), half(0x3c02), Some("element 0 is")),
            (brain(0x3f80), brain(0x3f82), None),
            (brain(0x3f80), brain(0x3f83), Some("element 0 is")),
            (Value::Optional(None), Value::Optional(Some(floats(&[1.0]).into())), Some("it is none")),
            (Value::Optional(Some(floats(&[1.0]).into())), floats(&[1.0]), None),
            (Value::sequence([floats(&[1.0])]), Value::sequence([floats(&[2.0])]), Some("item 0: element 0")),
            (Value::sequence([]), floats(&[2.0]), Some("it is a sequence, wanted is a tensor")),
        ];
        for (found, wanted, part) in cases {
            let why = differs(&found, &wanted, TIGHT);
            match part {
                None => assert_eq!(why, None),
                Some(part) => assert!(why.as_deref().is_some_and(|w| w.contains(part)), "{why:?}, not {part}"),
            }
        }
    }
}
