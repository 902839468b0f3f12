//! Seeded inputs for `--random-inputs`: the same on every machine for the same seed and input name.
//!
//! Floats are drawn from the standard normal distribution, integers from 0 to 9 (they mostly index something), truth
//! values by a coin, texts are such integers in decimal. An optional holds a value, a sequence three.

use half::{bf16, f16};
use ortolan::value::{Tensor, Value};
use ortolan_graph::ir::DType;

use crate::port::{Port, PortType};

/// Bytes of a tensor above which nothing is drawn.
const LIMIT: usize = 1 << 34;

/// A value for the port. Free sizes are 1. The error is a sentence.
pub fn value(port: &Port, seed: u64) -> Result<Value, String> {
    // FNV-1a of the name, so that an input's numbers do not depend on the others.
    let hash =
        port.name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    draw(&port.ty, &mut fastrand::Rng::with_seed(seed ^ hash))
}

fn draw(ty: &PortType, rng: &mut fastrand::Rng) -> Result<Value, String> {
    match ty {
        PortType::Tensor { dims: None, .. } => Err("its rank is not known, so no shape can be drawn".into()),
        PortType::Tensor { dtype, dims: Some(dims) } => {
            let shape: Vec<i64> = dims.iter().map(|d| d.fixed().unwrap_or(1)).collect();
            tensor(*dtype, &shape, rng).map(Value::Tensor)
        }
        PortType::Sequence(item) => {
            Ok(Value::sequence((0..3).map(|_| draw(item, rng)).collect::<Result<Vec<_>, _>>()?))
        }
        PortType::Optional(item) => Ok(Value::Optional(Some(draw(item, rng)?.into()))),
        other => Err(format!("nothing is drawn for a {other}; give it as .json")),
    }
}

fn tensor(dtype: DType, shape: &[i64], rng: &mut fastrand::Rng) -> Result<Tensor, String> {
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    let count =
        count.filter(|n| n.saturating_mul(16) <= LIMIT).ok_or_else(|| format!("shape {shape:?} is too large"))?;
    let mut bytes = Vec::new();
    macro_rules! fill {
        ($next:expr) => {
            for _ in 0..count {
                bytes.extend_from_slice(&$next.to_le_bytes());
            }
        };
    }
    match dtype {
        DType::F32 => fill!(normal(rng) as f32),
        DType::F64 => fill!(normal(rng)),
        DType::F16 => fill!(f16::from_f64(normal(rng))),
        DType::Bf16 => fill!(bf16::from_f64(normal(rng))),
        DType::C64 => (0..2).for_each(|_| fill!(normal(rng) as f32)),
        DType::C128 => (0..2).for_each(|_| fill!(normal(rng))),
        DType::I64 | DType::U64 => fill!(rng.u64(0..10)),
        DType::I32 | DType::U32 => fill!(rng.u32(0..10)),
        DType::I16 | DType::U16 => fill!(rng.u16(0..10)),
        DType::I8 | DType::U8 => fill!(rng.u8(0..10)),
        DType::Bool => fill!(u8::from(rng.bool())),
        DType::String => {
            let texts: Vec<String> = (0..count).map(|_| rng.u8(0..10).to_string()).collect();
            return Tensor::strings(shape, &texts).map_err(|e| e.message().to_owned());
        }
        packed if packed.bits() < 8 => bytes.resize_with((count * packed.bits() as usize).div_ceil(8), || rng.u8(..)),
        // Bytes whose top exponent bits are not all set are finite numbers in every 8-bit format.
        _ => fill!(rng.u8(0..0x70)),
    }
    Tensor::from_bytes(dtype, shape, &bytes).map_err(|e| e.message().to_owned())
}

/// Box and Muller's transform; one of the two numbers is enough.
fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers;
    use crate::port::Dim;

    fn port(name: &str, dtype: DType, dims: Vec<Dim>) -> Port {
        Port { name: name.into(), ty: PortType::Tensor { dtype, dims: Some(dims) }, optional: false }
    }

    #[test]
    fn every_type_has_finite_numbers() {
        for &dtype in DType::ALL {
            let port = port("x", dtype, vec![Dim::Fixed(35), Dim::Named("n".into())]);
            let value = value(&port, 0).unwrap();
            assert_eq!(value.shape(), [35, 1], "{dtype}");
            let finite = |n: numbers::Number<'_>| n.real().is_none_or(f64::is_finite);
            assert!(numbers::iter(value.as_tensor().unwrap()).unwrap().all(finite), "{dtype}");
        }
    }

    #[test]
    fn numbers_depend_on_seed_and_name_only() {
        let draw = |name: &str, seed| {
            let value = value(&port(name, DType::F32, vec![Dim::Fixed(1000)]), seed).unwrap();
            value.as_slice::<f32>().unwrap().to_vec()
        };
        assert_eq!(draw("a", 1), draw("a", 1));
        assert!(draw("a", 1) != draw("a", 2) && draw("a", 1) != draw("b", 1));
        let sample = draw("a", 3);
        let mean = sample.iter().sum::<f32>() / 1000.0;
        let variance = sample.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 1000.0;
        assert!(mean.abs() < 0.15 && (variance - 1.0).abs() < 0.15, "{mean} {variance}");
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        let unranked =
            Port { name: "x".into(), ty: PortType::Tensor { dtype: DType::F32, dims: None }, optional: false };
        assert!(value(&unranked, 0).unwrap_err().contains("rank"));
        let huge = port("x", DType::F32, vec![Dim::Fixed(i64::MAX), Dim::Fixed(2)]);
        assert!(value(&huge, 0).unwrap_err().contains("too large"));
        let map = Port { ty: PortType::Map(DType::I64, Box::new(huge.ty.clone())), ..huge };
        assert!(value(&map, 0).unwrap_err().contains(".json"));
    }
}
