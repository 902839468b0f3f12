//! Constant inputs: where their bytes come from, and how a kernel wants them packed.

use crate::element::Element;
use crate::node::Ints;
use ortolan_ep_abi::codes::DType;
use std::borrow::Cow;

/// What a node between a constant and its reader does to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Axis k of the result is axis `perm[k]` of the source.
    Perm(Ints),
    /// Same elements, other dimensions.
    Reshape,
    /// Something that only its own kernel can do.
    Other,
}

/// A constant input before packing: its type and how it comes about.
#[derive(Debug, Clone, Copy)]
pub struct WeightSource<'a> {
    /// Type of the input.
    pub dtype: DType,
    /// Dimensions of the input.
    pub dims: &'a [i64],
    /// What happens to the base, first link first. Empty: the input is the base.
    pub chain: &'a [Link],
    /// Dimensions of the constant at the start of the chain; `None` if a link is [`Link::Other`].
    pub base: Option<&'a [i64]>,
}

/// A packing plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pack {
    /// Number of the packed layout with all that it depends on besides the source: kernel, block sizes, element type,
    /// instruction set. Equal formats of equal sources are shared over the session.
    pub format: u64,
    /// Size of the packed form.
    pub bytes: usize,
    /// Pack from the base of the chain instead of the evaluated input.
    pub from_base: bool,
}

/// A constant at hand for packing.
#[derive(Debug, Clone, Copy)]
pub struct Weight<'a> {
    /// Element type.
    pub dtype: DType,
    /// Dimensions: the input's, or the base's if the plan says so.
    pub dims: &'a [i64],
    pub(crate) data: &'a [u8],
}

impl<'a> Weight<'a> {
    /// Elements; copied when the file's bytes are not aligned.
    ///
    /// # Panics
    /// When the type is another one.
    pub fn elements<T: Element>(&self) -> Cow<'a, [T]> {
        assert!(self.dtype as u32 == T::DTYPE as u32, "the weight is {}, not {}", self.dtype, T::DTYPE);
        crate::bytes::elements(self.data)
    }

    /// Raw bytes, of any alignment.
    pub fn bytes(&self) -> &'a [u8] {
        self.data
    }
}
