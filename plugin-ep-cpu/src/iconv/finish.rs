//! What follows the sums of an output channel: they are written as they are, as floats, or as codes.
//!
//! One of the files with `unsafe`: workers write lines of one output.

use crate::gemm::{Activation, KernelError, activate, clip_of, enough};
use crate::igemm::nearest;
use crate::simd::Isa;
use core::marker::PhantomData;

/// What becomes of the sums; values are one for each output channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish<'a> {
    /// Added to the sums, wrapping.
    pub add: Option<&'a [i32]>,
    /// What is written.
    pub form: Form<'a>,
}

/// What is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form<'a> {
    /// The sums, in i32.
    Sums,
    /// `activation(sum * factor + bias)`, in f32.
    Floats {
        /// Factors.
        factor: &'a [f32],
        /// Summands.
        bias: Option<&'a [f32]>,
        /// Applied last.
        activation: Activation,
    },
    /// `round(clip(sum * factor + bias)) + zero`, in 8 bits, held at its limits.
    Codes {
        /// Factors.
        factor: &'a [f32],
        /// Summands.
        bias: Option<&'a [f32]>,
        /// Least and greatest value before rounding.
        clip: (f32, f32),
        /// Zero point of the output.
        zero: i32,
        /// Whether the output has a sign.
        signed: bool,
    },
}

/// Where results go; its type has to be that of the [`Form`].
#[derive(Debug)]
pub(crate) enum Target<'a> {
    /// Of [`Form::Sums`].
    I32(&'a mut [i32]),
    /// Of [`Form::Floats`].
    F32(&'a mut [f32]),
    /// Of [`Form::Codes`].
    U8(&'a mut [u8]),
}

impl<'a> Finish<'a> {
    /// Whether there are values for so many channels.
    pub(super) fn check(&self, outs: usize) -> Result<(), KernelError> {
        let (factor, bias) = match self.form {
            Form::Sums => (None, None),
            Form::Floats { factor, bias, .. } | Form::Codes { factor, bias, .. } => (Some(factor), bias),
        };
        let lens = [self.add.map(<[i32]>::len), factor.map(<[f32]>::len), bias.map(<[f32]>::len)];
        match lens.into_iter().flatten().all(|len| len >= outs) {
            true => Ok(()),
            false => Err(KernelError::Shape("there are fewer factors or biases than output channels")),
        }
    }

    /// The same for some of the channels.
    pub(super) fn of_outs(&self, first: usize, count: usize) -> Finish<'a> {
        let own = |all: &'a [f32]| &all[first..][..count];
        let form = match self.form {
            Form::Sums => Form::Sums,
            Form::Floats { factor, bias, activation } => {
                Form::Floats { factor: own(factor), bias: bias.map(own), activation }
            }
            Form::Codes { factor, bias, clip, zero, signed } => {
                Form::Codes { factor: own(factor), bias: bias.map(own), clip, zero, signed }
            }
        };
        Finish { add: self.add.map(|all| &all[first..][..count]), form }
    }
}

/// A target that threads share.
pub(crate) struct To<'a> {
    at: Pointer,
    len: usize,
    _borrow: PhantomData<&'a mut [u8]>,
}

#[derive(Debug, Clone, Copy)]
enum Pointer {
    I32(*mut i32),
    F32(*mut f32),
    U8(*mut u8),
}

// SAFETY: whoever writes has elements that nobody else has.
unsafe impl Sync for To<'_> {}

impl<'a> To<'a> {
    pub fn new(target: Target<'a>, finish: &Finish<'_>, len: usize) -> Result<Self, KernelError> {
        let (at, have) = match (target, &finish.form) {
            (Target::I32(y), Form::Sums) => (Pointer::I32(y.as_mut_ptr()), y.len()),
            (Target::F32(y), Form::Floats { .. }) => (Pointer::F32(y.as_mut_ptr()), y.len()),
            (Target::U8(y), Form::Codes { .. }) => (Pointer::U8(y.as_mut_ptr()), y.len()),
            _ => return Err(KernelError::Shape("the output is not of the finish's type")),
        };
        enough("the output", len, have)?;
        Ok(To { at, len, _borrow: PhantomData })
    }

    /// Writes the sums of pixels of output channel `out` from element `at` on. `add` is added to them as well.
    ///
    /// # Safety
    /// Nobody else writes or reads these elements at the same time.
    #[inline(always)]
    pub unsafe fn write(&self, isa: Isa, finish: &Finish<'_>, (out, add): (usize, i32), at: usize, sums: &[i32]) {
        let n = sums.len();
        assert!(at <= self.len && n <= self.len - at, "a line is outside of its output");
        let add = finish.add.map_or(0, |all| all[out]).wrapping_add(add);
        match (self.at, finish.form) {
            (Pointer::I32(y), Form::Sums) => {
                // SAFETY: n elements of the target, as was checked, which the caller alone writes.
                let y = unsafe { core::slice::from_raw_parts_mut(y.add(at), n) };
                for k in 0..n {
                    y[k] = sums[k].wrapping_add(add);
                }
            }
            (Pointer::F32(y), Form::Floats { factor, bias, activation }) => {
                let (factor, bias) = (factor[out], bias.map_or(0.0, |bias| bias[out]));
                let clip = clip_of(activation);
                let (low, high) = clip.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
                // SAFETY: as above.
                let y = unsafe { core::slice::from_raw_parts_mut(y.add(at), n) };
                for k in 0..n {
                    let value = sums[k].wrapping_add(add) as f32 * factor + bias;
                    let value = if value > low { value } else { low };
                    y[k] = if value < high { value } else { high };
                }
                if clip.is_none() {
                    // SAFETY: the line that was just written.
                    unsafe { activate(isa, activation, y.as_mut_ptr(), n, 1, n) };
                }
            }
            (Pointer::U8(y), Form::Codes { factor, bias, clip, zero, signed }) => {
                let (factor, bias) = (factor[out], bias.map_or(0.0, |bias| bias[out]));
                let (least, most) = if signed { (-128, 127) } else { (0, 255) };
                // The zero point is an integer: limits may come before it. All are small.
                let (low, high) = (clip.0.max((least - zero) as f32), clip.1.min((most - zero) as f32));
                // SAFETY: as above.
                let y = unsafe { core::slice::from_raw_parts_mut(y.add(at), n) };
                for k in 0..n {
                    let value = sums[k].wrapping_add(add) as f32 * factor + bias;
                    let value = if value > low { value } else { low };
                    let value = if value < high { value } else { high };
                    y[k] = nearest(value).wrapping_add(zero) as u8; // within its limits
                }
            }
            _ => {}
        }
    }
}
