//! Spectra and windows.

use super::{BodyCx, InferCx, OpDef};
use crate::error::Result;
use crate::ir::{DType, ExprId};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("BlackmanWindow", window).body(|cx| window_body(cx, [0.42, 0.5, 0.08])),
    OpDef::new("DFT", dft),
    OpDef::new("HammingWindow", window).body(|cx| window_body(cx, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    OpDef::new("HannWindow", window).body(|cx| window_body(cx, [0.5, 0.5, 0.0])),
    OpDef::new("MelWeightMatrix", mel),
    OpDef::new("STFT", stft),
];

fn window(cx: &mut InferCx<'_>) -> Result<()> {
    let dtype = cx.attr_dtype("output_datatype")?.unwrap_or(DType::F32);
    let size = scalar(cx, 0).unwrap_or_else(|| cx.fresh_dim(0, 0));
    cx.set_tensor(0, dtype, Some([size].into_iter().collect()));
    Ok(())
}

fn scalar(cx: &mut InferCx<'_>, i: usize) -> Option<ExprId> {
    cx.known_or_symbols(i)?.first().copied()
}

/// Half of the spectrum says all when the signal is real: n / 2 + 1.
fn one_sided(cx: &mut InferCx<'_>, n: ExprId) -> ExprId {
    let (one, two) = (cx.int(1), cx.int(2));
    let half = cx.exprs.div(n, two);
    cx.exprs.add(half, one)
}

/// [batch, signal…, 1 or 2]; the axis gets `dft_length`, half of it when one-sided.
fn dft(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(mut dims) = cx.dims(0) else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    cx.need_rank(0, "input", 2..=usize::MAX)?;
    let last = dims.len() - 1;
    let one_way = cx.attr_int("onesided").unwrap_or(0) != 0;
    let inverse = cx.attr_int("inverse").unwrap_or(0) != 0;
    dims[last] = if one_way && inverse { cx.int(1) } else { cx.int(2) };
    let axis = match (cx.has_input(2), cx.ints(2).and_then(|a| a.first().copied())) {
        (false, _) => Some(cx.axis(-2, dims.len())?),
        (true, Some(axis)) => Some(cx.axis(axis, dims.len())?),
        (true, None) => None,
    };
    let Some(axis) = axis else {
        let dims = cx.fresh_dims(0, dims.len());
        cx.set_tensor(0, dtype, Some(dims));
        return Ok(());
    };
    if axis == last {
        return Err(cx.fail(format!("axis {axis} holds the real and imaginary parts, not a signal")));
    }
    let length = match cx.has_input(1) {
        true => scalar(cx, 1).unwrap_or_else(|| cx.fresh_dim(0, axis)),
        false if one_way && inverse => {
            let (one, two) = (cx.int(1), cx.int(2));
            let pairs = cx.exprs.sub(dims[axis], one);
            cx.exprs.mul(pairs, two)
        }
        false => dims[axis],
    };
    dims[axis] = if one_way && !inverse { one_sided(cx, length) } else { length };
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

/// [batch, samples, 1 or 2] to [batch, frames, bins, 2].
fn stft(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    cx.need_rank(0, "signal", 2..=3)?;
    let step = scalar(cx, 1);
    let window = cx.dims(2).and_then(|w| w.first().copied());
    let length = if cx.has_input(3) { scalar(cx, 3) } else { window };
    let (batch, frames) = match (cx.dims(0), step, length) {
        (Some(x), Some(step), Some(length)) => {
            let room = cx.exprs.sub(x[1], length);
            if cx.exprs.bounds(room).1 < 0 {
                let (have, need) = (cx.show(x[1]), cx.show(length));
                return Err(cx.fail(format!("a frame of {need} samples does not fit into a signal of {have}")));
            }
            let one = cx.int(1);
            let steps = cx.exprs.div(room, step);
            (x[0], cx.exprs.add(steps, one))
        }
        (Some(x), ..) => (x[0], cx.fresh_dim(0, 1)),
        (None, ..) => (cx.fresh_dim(0, 0), cx.fresh_dim(0, 1)),
    };
    let length = length.unwrap_or_else(|| cx.fresh_dim(0, 2));
    let bins = if cx.attr_int("onesided").unwrap_or(1) != 0 { one_sided(cx, length) } else { length };
    let two = cx.int(2);
    cx.set_tensor(0, dtype, Some([batch, frames, bins, two].into_iter().collect()));
    Ok(())
}

fn mel(cx: &mut InferCx<'_>) -> Result<()> {
    let dtype = cx.attr_dtype("output_datatype")?.unwrap_or(DType::F32);
    let bins = match scalar(cx, 1) {
        Some(length) => one_sided(cx, length),
        None => cx.fresh_dim(0, 0),
    };
    let mels = scalar(cx, 0).unwrap_or_else(|| cx.fresh_dim(0, 1));
    cx.set_tensor(0, dtype, Some([bins, mels].into_iter().collect()));
    Ok(())
}

/// a0 - a1 cos x + a2 cos 2x over one turn.
fn window_body(cx: &mut BodyCx<'_>, [a0, a1, a2]: [f32; 3]) -> Result<()> {
    let periodic = cx.view().int("periodic").unwrap_or(1) != 0;
    cx.write("count = Cast(size) to=1")?;
    cx.write(if periodic { "turn = Identity(count)" } else { "turn = Sub(count, 1f)" })?;
    cx.write(&format!(
        "step = Div({tau}f, turn); at = Range(0f, count, 1f); angle = Mul(at, step); wave = Cos(angle);
         first = Mul({a1}f, wave); rest = Sub({a0}f, first)",
        tau = std::f32::consts::TAU
    ))?;
    match a2 == 0.0 {
        true => cx.write("sum = Identity(rest)")?,
        false => cx.write(&format!(
            "double = Mul(angle, 2f); twice = Cos(double); second = Mul({a2}f, twice); sum = Add(rest, second)"
        ))?,
    }
    cx.write("output = Cast(sum) to=@output_datatype")
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            ("HannWindow", "int64[]{10}", "output_datatype=11", "double[10]"),
            ("DFT", "float[b,10,1]", "", "float[b,10,2]"),
            ("DFT", "float[b,10,1]", "onesided=1", "float[b,6,2]"),
            ("DFT", "float[b,6,2]", "onesided=1 inverse=1", "float[b,10,1]"),
            ("DFT", "float[b,10,7,1] int64[]{16} int64[]{1}", "", "float[b,16,7,2]"),
            ("DFT", "float[b,10,1] _ int64[]{-1}", "", "!holds the real and imaginary parts"),
            ("STFT", "float[b,128,1] int64[]{8} _ int64[]{16}", "", "float[b,15,9,2]"),
            ("STFT", "float[b,128,1] int64[]{8} float[16]", "onesided=0", "float[b,15,16,2]"),
            ("STFT", "float[b,8,1] int64[]{8} float[16]", "", "!does not fit into a signal of 8"),
            ("MelWeightMatrix", "int64[]{8} int64[]{16} int64[] float[] float[]", "", "float[9,8]"),
        ]);
    }
}
