//! Float tensors of any width, read and written as f64: what the plain twins of vector kernels compute with, so that one
//! function serves every type. It is slow, as each element looks at the type again.

use super::narrow::{Bf16, F16, sticky};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::parallel::{Parallel, Stopped};
use ortolan_ep_kit::{Args, DType, Fault, NodeView, Reject, split};

/// What the standard calls floats, but for those of 8 bits and less.
pub(crate) const FLOATS: u64 = set(&[DType::F32, DType::F64, DType::F16, DType::Bf16]);
/// The one with vectors.
pub(crate) const F32: u64 = DType::F32.mask();

/// One of the types of [`FLOATS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float {
    F32,
    F64,
    F16,
    Bf16,
}

impl Float {
    /// The type, if it is one of these.
    pub fn of(dtype: DType) -> Option<Float> {
        match dtype {
            DType::F32 => Some(Float::F32),
            DType::F64 => Some(Float::F64),
            DType::F16 => Some(Float::F16),
            DType::Bf16 => Some(Float::Bf16),
            _ => None,
        }
    }

    /// The type of an input; f32 for one that is absent.
    pub fn input(node: &NodeView<'_>, index: usize) -> Result<Float, Reject> {
        let Some(value) = node.input(index) else { return Ok(Float::F32) };
        Float::of(value.dtype()).ok_or_else(|| Reject::dtype(format!("input {index} is {}, no float", value.dtype())))
    }

    /// The type of an output; f32 for one that is absent.
    pub fn output(node: &NodeView<'_>, index: usize) -> Result<Float, Reject> {
        let Some(value) = node.output(index) else { return Ok(Float::F32) };
        Float::of(value.dtype()).ok_or_else(|| Reject::dtype(format!("output {index} is {}, no float", value.dtype())))
    }
}

/// Elements of a float tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Floats<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    F16(&'a [F16]),
    Bf16(&'a [Bf16]),
}

impl<'a> Floats<'a> {
    /// An input of the type that `parse` saw.
    pub fn input(args: &Args<'a>, index: usize, float: Float) -> Self {
        match float {
            Float::F32 => Floats::F32(args.input(index)),
            Float::F64 => Floats::F64(args.input(index)),
            Float::F16 => Floats::F16(args.input(index)),
            Float::Bf16 => Floats::Bf16(args.input(index)),
        }
    }

    /// An optional input.
    pub fn input_if(args: &Args<'a>, index: usize, float: Float) -> Option<Self> {
        args.has(index).then(|| Floats::input(args, index, float))
    }

    /// Element `at`.
    #[inline]
    pub fn get(&self, at: usize) -> f64 {
        match self {
            Floats::F32(x) => x[at].into(),
            Floats::F64(x) => x[at],
            Floats::F16(x) => x[at].wide().into(),
            Floats::Bf16(x) => x[at].wide().into(),
        }
    }

    /// Count of elements.
    pub fn len(&self) -> usize {
        match self {
            Floats::F32(x) => x.len(),
            Floats::F64(x) => x.len(),
            Floats::F16(x) => x.len(),
            Floats::Bf16(x) => x.len(),
        }
    }

    /// Elements from `at` on.
    pub fn row(&self, at: usize, len: usize) -> impl Iterator<Item = f64> {
        (at..at + len).map(|k| self.get(k))
    }
}

/// Elements of a float tensor to be written.
#[derive(Debug)]
pub(crate) enum FloatsMut<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
    F16(&'a mut [F16]),
    Bf16(&'a mut [Bf16]),
}

impl<'a> FloatsMut<'a> {
    /// An output of the type that `parse` saw. Once per output.
    pub fn output(args: &mut Args<'a>, index: usize, float: Float) -> Self {
        match float {
            Float::F32 => FloatsMut::F32(args.output(index)),
            Float::F64 => FloatsMut::F64(args.output(index)),
            Float::F16 => FloatsMut::F16(args.output(index)),
            Float::Bf16 => FloatsMut::Bf16(args.output(index)),
        }
    }

    /// An output, if it is wanted.
    pub fn output_if(args: &mut Args<'a>, index: usize, float: Float) -> Option<Self> {
        args.wants(index).then(|| FloatsMut::output(args, index, float))
    }

    /// Element `at`, as it is before it is written.
    pub fn get(&self, at: usize) -> f64 {
        match self {
            FloatsMut::F32(y) => y[at].into(),
            FloatsMut::F64(y) => y[at],
            FloatsMut::F16(y) => y[at].wide().into(),
            FloatsMut::Bf16(y) => y[at].wide().into(),
        }
    }

    /// Writes element `at`, rounded once.
    #[inline]
    pub fn put(&mut self, at: usize, x: f64) {
        match self {
            FloatsMut::F32(y) => y[at] = x as f32, // rounds to nearest
            FloatsMut::F64(y) => y[at] = x,
            FloatsMut::F16(y) => y[at] = F16::round(sticky(x)),
            FloatsMut::Bf16(y) => y[at] = Bf16::round(sticky(x)),
        }
    }

    /// Count of elements.
    pub fn len(&self) -> usize {
        match self {
            FloatsMut::F32(y) => y.len(),
            FloatsMut::F64(y) => y.len(),
            FloatsMut::F16(y) => y.len(),
            FloatsMut::Bf16(y) => y.len(),
        }
    }

    /// As [`split::rows`]: calls `body(first row, rows)`.
    pub fn rows(
        self,
        par: &dyn Parallel,
        row: usize,
        grain: usize,
        body: impl Fn(usize, FloatsMut<'_>) + Sync,
    ) -> Result<(), Stopped> {
        self.rows_by_worker(par, row, grain, |_, at, y| body(at, y))
    }

    /// The same with the worker's number.
    pub fn rows_by_worker(
        self,
        par: &dyn Parallel,
        row: usize,
        grain: usize,
        body: impl Fn(usize, usize, FloatsMut<'_>) + Sync,
    ) -> Result<(), Stopped> {
        match self {
            FloatsMut::F32(y) => split::rows(par, y, row, grain, |w, at, y| body(w, at, FloatsMut::F32(y))),
            FloatsMut::F64(y) => split::rows(par, y, row, grain, |w, at, y| body(w, at, FloatsMut::F64(y))),
            FloatsMut::F16(y) => split::rows(par, y, row, grain, |w, at, y| body(w, at, FloatsMut::F16(y))),
            FloatsMut::Bf16(y) => split::rows(par, y, row, grain, |w, at, y| body(w, at, FloatsMut::Bf16(y))),
        }
    }
}

/// Refuses at bind: two counts that have to agree do not.
pub(crate) fn agree(what: &str, have: usize, need: usize) -> Result<(), Fault> {
    if have == need { Ok(()) } else { Err(Fault::data(format!("{what} has {have} elements, needed are {need}"))) }
}
