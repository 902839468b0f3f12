//! Where values cross the border: handles of device memory for the host, and the host's memory for results.
//!
//! A handle is a number of [`Gpu::publish`], never an address. All `unsafe` of this crate is here, but for the bytes that
//! drivers get back in `pipeline.rs`.

use crate::gpu::Gpu;
use crate::memory::Slice;
use core::num::NonZero;
use ortolan_ep_abi::call::{EMPTY, Error, Result, RunCall};
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw;
use ortolan_ep_abi::view::Value;
use std::sync::Arc;

/// Keeps a slice for the host.
struct Handle {
    number: u64,
    gpu: Arc<Gpu>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.gpu.forget(self.number);
    }
}

/// Hands device memory to the host as output `index`.
pub fn give(
    call: &RunCall<'_>,
    index: u32,
    tensor: (DType, &[i64]),
    space: u32,
    gpu: &Arc<Gpu>,
    slice: Arc<Slice>,
) -> Result<()> {
    let (dtype, shape) = tensor;
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    let bytes = count.and_then(|n| dtype.bytes(n)).ok_or_else(|| Error::new(format!("{shape:?} is no size")))?;
    let number = gpu.publish(slice);
    let handle = Box::new(Handle { number, gpu: gpu.clone() });
    let address = usize::try_from(number).ok().and_then(NonZero::new);
    let address = address.ok_or_else(|| Error::new("there are no numbers left for values"))?;
    let value = raw::Value {
        kind: raw::VALUE_TENSOR,
        dtype: dtype as u32,
        rank: u32::try_from(shape.len()).map_err(|_| Error::new("the rank is too large"))?,
        shape: shape.as_ptr(),
        data: core::ptr::without_provenance_mut(address.get()),
        bytes: bytes as u64,
        space,
        ..EMPTY
    };
    // SAFETY: the handle keeps the memory behind its number, in this EP's space; the shape lives over the call.
    unsafe { call.give_own(index, &value, handle) }
}

/// The device memory of a value in this EP's space.
pub fn slice(gpu: &Gpu, value: &Value<'_>) -> Result<Arc<Slice>> {
    gpu.slice(value.raw().data.addr() as u64)
}

/// The host's memory for output `index`.
pub fn output<'c>(call: &RunCall<'c>, index: u32, dtype: DType, shape: &[i64]) -> Result<&'c mut [u8]> {
    let value = call.output_value(index, dtype, shape)?;
    if value.bytes == 0 || value.data.is_null() {
        return Ok(&mut []);
    }
    let len = usize::try_from(value.bytes).map_err(|_| Error::new("the output is too large"))?;
    // SAFETY: the host gives so many bytes for this output, once per index as the call checks, until the call returns.
    Ok(unsafe { core::slice::from_raw_parts_mut(value.data, len) })
}
