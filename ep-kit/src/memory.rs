//! Reads and copies tensors by address.
//!
//! One of the files with `unsafe`. Its callers hold addresses that are valid until the run is over: inputs and outputs
//! of the host, the arena, memory of the part or of the binding.

use crate::args::{ABSENT, Arg};
use crate::error::Fault;

/// The bytes of a tensor of the running part.
pub(crate) fn bytes<'r>(arg: Arg) -> &'r [u8] {
    if arg.bytes == ABSENT || arg.bytes == 0 || arg.ptr.is_null() {
        return &[];
    }
    // SAFETY: see the module; no step runs while the bytes are looked at.
    unsafe { core::slice::from_raw_parts(arg.ptr, arg.bytes) }
}

/// Copies a tensor to one of equal size.
pub(crate) fn copy(from: Arg, to: Arg) -> Result<(), Fault> {
    if from.bytes == ABSENT || from.bytes < to.bytes {
        return Err(Fault::data("there are fewer bytes than its dimensions ask for"));
    }
    if to.bytes > 0 {
        // SAFETY: both are valid for so many bytes; `copy` allows them to overlap, as a host may hand out one buffer as
        // input and output.
        unsafe { core::ptr::copy(from.ptr, to.ptr, to.bytes) };
    }
    Ok(())
}
