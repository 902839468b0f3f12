//! What a kernel can answer instead of a result.

use ortolan_ep_kit::parallel::Stopped;

/// Why a kernel did not run to its end. Shapes are checked before kernels are
/// called, so all but the first are mistakes of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The run was cancelled; the output is incomplete.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// A slice is too short for the shape it comes with.
    #[error("{what} has {have} values where {need} are needed")]
    Short {
        /// Which slice.
        what: &'static str,
        /// Values that it would have to hold.
        need: usize,
        /// Values that it holds.
        have: usize,
    },
    /// Two things that have to agree do not, or a size is out of range.
    #[error("{0}")]
    Shape(&'static str),
}

/// Checks that a slice of `have` values is long enough.
pub(crate) fn enough(what: &'static str, need: usize, have: usize) -> Result<(), KernelError> {
    if have < need { Err(KernelError::Short { what, need, have }) } else { Ok(()) }
}
