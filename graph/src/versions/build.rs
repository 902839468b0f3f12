//! What adapters have in common: small constants, attributes that became inputs, rules for when a
//! step changes nothing, and the error of a node that cannot take one.

use super::{Upgrade, Way};
use crate::error::{Code, Error, Result};
use crate::ir::{AttrValue, DType, ValueId};
use crate::schema::View;

/// The error of a node that has no form in the next version; `what` is the reason.
pub(super) fn stuck<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(Code::Version, what.into()))
}

/// A list of `int64`.
pub(super) fn ints(cx: &mut dyn Upgrade, list: &[i64]) -> Result<ValueId> {
    let bytes: Vec<u8> = list.iter().flat_map(|n| n.to_le_bytes()).collect();
    let len = i64::try_from(list.len()).unwrap_or(i64::MAX);
    cx.constant(DType::I64, &[len], &bytes)
}

/// One `int64` without dims.
pub(super) fn int(cx: &mut dyn Upgrade, n: i64) -> Result<ValueId> {
    cx.constant(DType::I64, &[], &n.to_le_bytes())
}

/// A list of `float`.
pub(super) fn floats(cx: &mut dyn Upgrade, list: &[f32]) -> Result<ValueId> {
    let bytes: Vec<u8> = list.iter().flat_map(|n| n.to_le_bytes()).collect();
    let len = i64::try_from(list.len()).unwrap_or(i64::MAX);
    cx.constant(DType::F32, &[len], &bytes)
}

/// One number without dims, of the element type that input 0 has.
pub(super) fn float_like_data(cx: &mut dyn Upgrade, n: f32) -> Result<ValueId> {
    match cx.view().dtype(0) {
        Some(DType::F32) => cx.constant(DType::F32, &[], &n.to_le_bytes()),
        Some(DType::F64) => cx.constant(DType::F64, &[], &f64::from(n).to_le_bytes()),
        Some(DType::F16) => cx.constant(DType::F16, &[], &half(n).to_le_bytes()),
        Some(other) => stuck(format!("a constant of type {other} was not possible in the old version")),
        None => stuck("the element type of the data is not known"),
    }
}

/// The nearest `float16`, ties to even; too large numbers are infinite.
fn half(n: f32) -> u16 {
    let bits = n.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return sign | 0x7E00;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7C00;
    }
    // Subnormal results: shift the full significand; normal ones: rebase the exponent.
    let (value, cut) = match (magnitude >> 23) as i32 - 127 {
        exponent if exponent < -25 => (0, 1),
        exponent if exponent < -14 => ((magnitude & 0x007F_FFFF) | 0x0080_0000, (-1 - exponent) as u32),
        _ => (magnitude - (112 << 23), 13),
    };
    let (kept, rest, tie) = (value >> cut, value & ((1 << cut) - 1), 1 << (cut - 1));
    let up = rest > tie || (rest == tie && kept & 1 == 1);
    sign | (kept + u32::from(up)) as u16
}

/// Moves a list of integers from an attribute to an input; nothing when the node does not hold it.
pub(super) fn ints_to_input(cx: &mut dyn Upgrade, attr: &str, index: usize) -> Result<()> {
    let list = match cx.view().attr(attr) {
        None => return Ok(()),
        Some(AttrValue::Ints(list)) => list.clone(),
        Some(_) => return stuck(format!("attribute '{attr}' is no short list of integers")),
    };
    let value = ints(cx, &list)?;
    cx.set_input(index, Some(value));
    cx.remove_attr(attr);
    Ok(())
}

/// Runs the node in another element type: input 0 is cast to it, output 0 back.
pub(super) fn through(cx: &mut dyn Upgrade, dtype: DType) -> Result<()> {
    let Some(own) = cx.view().dtype(0) else { return stuck("the element type of the data is not known") };
    let to = |dtype: DType| [("to", AttrValue::Int(dtype.number().into()))];
    let data = cx.view().inputs[0];
    let wide = cx.before("Cast", &[data], &to(dtype))?;
    cx.set_input(0, Some(wide));
    cx.after(0, "Cast", &[], &to(own))
}

/// The value at an input.
pub(super) fn input(cx: &dyn Upgrade, index: usize) -> Option<ValueId> {
    cx.view().inputs.get(index).copied().flatten()
}

/// Negative axes came with the newer version.
pub(super) fn no_negative_axis(node: View<'_>, way: Way) -> bool {
    way == Way::Up || node.int("axis").is_none_or(|axis| axis >= 0)
}

/// Negative axes came with the newer version.
pub(super) fn no_negative_axes(node: View<'_>, way: Way) -> bool {
    way == Way::Up || node.ints("axes").is_none_or(|axes| axes.iter().all(|axis| *axis >= 0))
}

/// The older version does something else whenever the newer one is written as it can be.
pub(super) fn up_only(_: View<'_>, way: Way) -> bool {
    way == Way::Up
}

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn half_rounds_to_nearest_even() {
        for (n, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3C00),
            (-2.0, 0xC000),
            (65504.0, 0x7BFF),
            (65519.9, 0x7BFF),
            (65520.0, 0x7C00),
            (1e9, 0x7C00),
            (f32::NEG_INFINITY, 0xFC00),
            (0.1, 0x2E66),
            (1.000_488_3, 0x3C00),
            (1.001_464_8, 0x3C02),
            (6.103_515_6e-5, 0x0400),
            (6.097_555e-5, 0x03FF),
            (5.960_464_5e-8, 1),
            (2.980_232_2e-8, 0),
            (2.980_232_6e-8, 1),
            (1e-9, 0),
        ] {
            assert_eq!(half(n), bits, "{n}");
        }
        assert_eq!(half(f32::NAN) & 0x7E00, 0x7E00);
    }
}
