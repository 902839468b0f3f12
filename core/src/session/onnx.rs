//! A part as a model of its own, for compilers that read ONNX.

use ortolan_ep_abi::raw;

use crate::error::Result;
use crate::program::Program;

/// The bytes of a part.
pub(super) fn part(_program: &Program, _part: &raw::PartDesc) -> Result<Vec<u8>> {
    Err(crate::error::Error::new(crate::error::codes::INTERNAL, "parts are not written as ONNX"))
}
