//! Operators: one file per family, named alike in every crate. A file holds the family's rows, what it reads of nodes, and
//! the dispatches that it asks for; the shaders themselves lie in `../shaders`.

mod arith;
mod cast;
mod compare;
mod conv;
mod elementwise;
mod gather;
mod join;
mod layout;
mod matmul;
mod moves;
mod norm;
mod pad;
mod pool;
mod reduce;
mod resize;
mod softmax;
mod spread;
#[cfg(test)]
pub mod tests;
mod unary;
mod window;

use crate::shader::Elem;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{Args, DType, Fault, Kernel, NodeView, Op, Reject, Shapes, ValueView, resolve_axis};

/// The tables of all families, sorted by file name.
pub const FAMILIES: &[&[Kernel]] = &[
    arith::KERNELS,
    cast::KERNELS,
    compare::KERNELS,
    conv::KERNELS,
    gather::KERNELS,
    join::KERNELS,
    layout::KERNELS,
    matmul::KERNELS,
    norm::KERNELS,
    pad::KERNELS,
    pool::KERNELS,
    reduce::KERNELS,
    resize::KERNELS,
    softmax::KERNELS,
    spread::KERNELS,
    unary::KERNELS,
];

/// What kernels have to know of the device and of a session's options; the rows' context.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Shaders may use f16.
    pub has_f16: bool,
    /// Bytes that a shader can bind at once.
    pub largest: u64,
    /// Products share tiles in workgroup memory; else every thread reads for itself.
    pub tiles: bool,
}

impl Settings {
    /// The settings of a node's session; the least that there may be outside of this plugin.
    pub fn of(node: &NodeView<'_>) -> Settings {
        node.context().copied().unwrap_or(Settings { has_f16: false, largest: 128 << 20, tiles: false })
    }
}

const FLOATS: u64 = set(&[DType::F32, DType::F16]);
const NUMBERS: u64 = FLOATS | set(&[DType::I32, DType::U32]);
const BOOL: u64 = set(&[DType::Bool]);
/// All types that have a place on the device.
const ALL: u64 = NUMBERS | BOOL;
/// Types of lists that the host reads: shapes, axes, indices.
const LIST: u64 = set(&[DType::I64]);

/// Rows of device kernels: `on!(Softmax)` is the computations of a row whose nodes are read by `Softmax`.
macro_rules! on {
    ($op:ty) => {
        const {
            ortolan_ep_kit::Runs::new(
                &[],
                &ortolan_ep_kit::Pick::<$op> { pick: |_| ortolan_ep_kit::kernel::run_fn(crate::ops::on_device::<$op>) },
            )
        }
    };
}
use on;

/// Never called: what runs are the dispatches that `bind` asks for.
fn on_device<S: Op>(_: &S, _: &S::Bound, _: &mut Args<'_>) -> Result<(), Fault> {
    Err(Fault::data("it runs on a device only"))
}

/// How an input lies on the device.
fn input(node: &NodeView<'_>, index: usize) -> Result<Elem, Reject> {
    placed(node, &node.needs(index)?, &format!("input {index}"))
}

/// How an output lies on the device.
fn output(node: &NodeView<'_>, index: usize) -> Result<Elem, Reject> {
    let value = node.output(index).ok_or_else(|| Reject::shape(format!("output {index} is missing")))?;
    placed(node, &value, &format!("output {index}"))
}

fn placed(node: &NodeView<'_>, value: &ValueView<'_>, what: &str) -> Result<Elem, Reject> {
    let settings = Settings::of(node);
    let dtype = value.dtype();
    let elem =
        Elem::of(dtype).ok_or_else(|| Reject::dtype(format!("{what} is {dtype}, which the device does not hold")))?;
    if elem == Elem::F16 && !settings.has_f16 {
        return Err(Reject::dtype(format!("{what} is f16, and the adapter has no feature shader-f16")));
    }
    let count = (0..value.rank()).try_fold(1i64, |n, k| n.checked_mul(value.fixed_dim(k)?));
    let bytes = count.and_then(|n| u64::try_from(n).ok()).map(|n| n.saturating_mul(elem.bytes()));
    match bytes.filter(|&b| b > settings.largest) {
        Some(bytes) => Err(Reject::memory(format!(
            "{what} has {bytes} bytes, and a shader of this adapter binds {} at most",
            settings.largest
        ))),
        None => Ok(elem),
    }
}

/// A list of integers that has to be known before anything runs: `input` may be absent.
fn list<'a>(shapes: &Shapes<'a>, input: usize) -> Result<Option<&'a [i64]>, Fault> {
    match shapes.has(input) {
        false => Ok(None),
        true => {
            shapes.elements(input).map(Some).ok_or_else(|| Fault::data(format!("input {input} is not known ahead")))
        }
    }
}

/// Refuses lists that only a run would know.
fn told(node: &NodeView<'_>, index: usize, name: &str) -> Result<(), Reject> {
    match node.input(index) {
        Some(value) if !value.is_told() => {
            Err(Reject::shape(format!("input {index} ({name}) is data, and the kernel needs it before it runs")))
        }
        _ => Ok(()),
    }
}

/// Axes counted from the front.
fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, Fault> {
    let resolve =
        |&axis: &i64| resolve_axis(axis, rank).ok_or_else(|| Fault::data(format!("{axis} is no axis of rank {rank}")));
    list.iter().map(resolve).collect()
}

/// Product of dimensions.
fn product(dims: &[i64]) -> u64 {
    dims.iter().map(|&d| u64::try_from(d).unwrap_or(0)).product()
}
