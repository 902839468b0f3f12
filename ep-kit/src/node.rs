//! What a kernel sees of a node before it runs: attributes, types, dimensions as far as they are known.

use crate::error::Reject;
use crate::expr::UNKNOWN;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw;
use ortolan_ep_abi::view::{self, Program, ValueInfo};
use smallvec::SmallVec;
use std::any::Any;
use std::borrow::Cow;

/// A short list of integers: dims, axes, strides.
pub type Ints = SmallVec<[i64; 8]>;

/// A node in claim and compile. All its inputs and outputs are tensors of known types, unless the row is marked
/// [`items`](crate::Kernel::items): the kit refuses others before it asks a kernel.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    node: view::Node<'a>,
    look: Look<'a>,
}

/// A value of a node in claim and compile.
#[derive(Clone, Copy)]
pub struct ValueView<'a> {
    info: ValueInfo<'a>,
    dtype: DType,
    look: Look<'a>,
}

/// What all views of a call share.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    /// The program that all ids mean.
    pub program: Program<'a>,
    /// Number per expression for the hinted symbols, or [`UNKNOWN`].
    pub hints: &'a [i64],
    /// The plugin's own object.
    pub context: &'a (dyn Any + Send + Sync),
}

impl<'a> NodeView<'a> {
    pub(crate) fn new(node: view::Node<'a>, look: Look<'a>) -> Self {
        NodeView { node, look }
    }

    /// The node as the ABI has it, for what no reader here tells: the types of values that are no tensors.
    pub fn raw(&self) -> view::Node<'a> {
        self.node
    }

    /// Operator.
    pub fn op(&self) -> &'a str {
        self.node.op()
    }

    /// Since-version of the form in which it is written.
    pub fn version(&self) -> u32 {
        self.node.version()
    }

    /// The plugin's object that was handed to the kit; `None` if it is of another type.
    pub fn context<T: Any>(&self) -> Option<&'a T> {
        let context: &'a dyn Any = self.look.context;
        context.downcast_ref()
    }

    /// Count of inputs, absent ones included.
    pub fn input_count(&self) -> usize {
        self.node.inputs().len()
    }

    /// Count of outputs, absent ones included.
    pub fn output_count(&self) -> usize {
        self.node.outputs().len()
    }

    /// Input, if present.
    pub fn input(&self, index: usize) -> Option<ValueView<'a>> {
        ValueView::new(self.node.input(index)?, self.look)
    }

    /// Output, if present.
    pub fn output(&self, index: usize) -> Option<ValueView<'a>> {
        ValueView::new(self.node.output(index)?, self.look)
    }

    /// Whether an input is there, of whatever kind.
    pub fn has_input(&self, index: usize) -> bool {
        self.node.input(index).is_some()
    }

    /// An input that must be there.
    pub fn needs(&self, index: usize) -> Result<ValueView<'a>, Reject> {
        self.input(index).ok_or_else(|| Reject::shape(format!("input {index} is missing")))
    }

    /// Output 0, which every node has.
    pub fn out(&self) -> Result<ValueView<'a>, Reject> {
        self.output(0).ok_or_else(|| Reject::shape("output 0 is missing"))
    }

    fn attr(&self, name: &str) -> Option<view::Attr<'a>> {
        self.node.attr(name)
    }

    /// An integer attribute. Defaults of the standard are filled in by the host.
    pub fn int(&self, name: &str) -> Result<i64, Reject> {
        self.int_if(name).ok_or_else(|| missing(name))
    }

    /// An integer attribute without a default.
    pub fn int_if(&self, name: &str) -> Option<i64> {
        self.attr(name)?.int()
    }

    /// A float attribute.
    pub fn float(&self, name: &str) -> Result<f32, Reject> {
        self.float_if(name).ok_or_else(|| missing(name))
    }

    /// A float attribute without a default.
    pub fn float_if(&self, name: &str) -> Option<f32> {
        self.attr(name)?.float()
    }

    /// A list of integers; `None` when absent.
    pub fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.attr(name).map(|a| a.ints())
    }

    /// A list of floats; `None` when absent.
    pub fn floats(&self, name: &str) -> Option<&'a [f32]> {
        self.attr(name).map(|a| a.floats())
    }

    /// A list of integers of any length: hosts hand over long ones as constants. `None` when absent.
    pub fn long_ints(&self, name: &str) -> Option<Cow<'a, [i64]>> {
        let attr = self.attr(name)?;
        match attr.constant() {
            Some(constant) => Some(Cow::Owned(constant.to_vec()?)),
            None => Some(Cow::Borrowed(attr.ints())),
        }
    }

    /// A list of floats of any length; `None` when absent.
    pub fn long_floats(&self, name: &str) -> Option<Cow<'a, [f32]>> {
        let attr = self.attr(name)?;
        match attr.constant() {
            Some(constant) => Some(Cow::Owned(constant.to_vec()?)),
            None => Some(Cow::Borrowed(attr.floats())),
        }
    }

    /// A text; `None` when absent.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.attr(name)?.strings().next()
    }

    /// A list of texts; `None` when absent.
    pub fn texts(&self, name: &str) -> Option<impl ExactSizeIterator<Item = &'a str>> {
        self.attr(name).map(|a| a.strings())
    }

    /// A tensor; `None` when absent. It may be unaligned.
    pub fn tensor(&self, name: &str) -> Option<view::Value<'a>> {
        let attr = self.attr(name)?;
        attr.constant().or_else(|| attr.tensors().first().copied())
    }

    /// The axis in an attribute, counted from the front.
    pub fn axis(&self, name: &str, rank: usize) -> Result<usize, Reject> {
        let axis = self.int(name)?;
        resolve_axis(axis, rank).ok_or_else(|| {
            Reject::attribute(format!("attribute {name} = {axis} is no axis of a tensor of rank {rank}"))
        })
    }

    /// Whether a dimension of an output is decided by what `run` finds in its inputs.
    pub fn is_late(&self) -> bool {
        let (program, outputs) = (self.node.program(), self.node.outputs());
        let dims = outputs.iter().filter_map(|&v| program.value(v)).flat_map(|v| v.dims());
        dims.filter_map(|&id| program.exprs().get(id as usize)).any(|e| defines(program, outputs, e))
    }
}

/// Whether an expression is a dimension that one of a node's outputs defines.
pub(crate) fn defines(program: Program<'_>, outputs: &[u32], e: &raw::Expr) -> bool {
    let symbol = program.symbols().get(e.a as usize).filter(|_| e.op == raw::expr::SYMBOL);
    symbol.is_some_and(|s| s.kind == raw::SYMBOL_DIM && outputs.contains(&s.value))
}

fn missing(name: &str) -> Reject {
    Reject::attribute(format!("attribute {name} is missing"))
}

/// An axis counted from the front; `None` if there is no such axis.
pub fn resolve_axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&axis) { usize::try_from(axis).ok() } else { None }
}

impl<'a> ValueView<'a> {
    pub(crate) fn new(info: ValueInfo<'a>, look: Look<'a>) -> Option<Self> {
        Some(ValueView { info, dtype: info.dtype()?, look })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.info.rank()
    }

    /// Dimension `axis` when it is the same in every run.
    pub fn fixed_dim(&self, axis: usize) -> Option<i64> {
        self.info.fixed_dim(axis)
    }

    /// Dimension `axis` as it is now, or as hinted for claims; `None` when unknown.
    pub fn dim(&self, axis: usize) -> Option<i64> {
        let &id = self.info.dims().get(axis)?;
        self.look.hints.get(id as usize).copied().filter(|&n| n != UNKNOWN)
    }

    /// Number of elements for the hinted symbols; NaN when unknown.
    pub fn elements(&self) -> f64 {
        (0..self.rank()).map(|k| self.dim(k).map_or(f64::NAN, |n| n as f64)).product()
    }

    /// Bytes for the hinted symbols; NaN when unknown.
    pub fn bytes(&self) -> f64 {
        self.elements() * self.dtype.bits() as f64 / 8.0
    }

    /// Whether both have the same dimensions in every run. Equal expressions are equal numbers, so false may only mean
    /// that nobody can say.
    pub fn same_dims(&self, other: &ValueView<'_>) -> bool {
        self.info.dims() == other.info.dims()
    }

    /// Whether dimension `axis` is dimension `other_axis` of another value in every run.
    pub fn same_dim(&self, axis: usize, other: &ValueView<'_>, other_axis: usize) -> bool {
        let (a, b) = (self.info.dims().get(axis), other.info.dims().get(other_axis));
        a.is_some() && a == b
    }

    /// Whether its bytes are the same in every run.
    pub fn is_constant(&self) -> bool {
        self.info.constant_index().is_some() || self.info.is_const_expr()
    }

    /// Integer elements that are the same in every run, if they are few and at hand without computing.
    pub fn fixed_elements(&self) -> Option<Ints> {
        let known = self.info.known();
        if !known.is_empty() {
            return known.iter().map(|&id| self.look.program.constant_expr(id)).collect();
        }
        constant_ints(&self.info.constant()?)
    }

    /// Whether its elements are integers that [`Shapes::elements`](crate::Shapes::elements) will tell at bind.
    pub fn is_told(&self) -> bool {
        !self.info.known().is_empty() || self.info.constant().is_some_and(|c| constant_ints(&c).is_some())
    }

    /// The bytes of a small constant of any type.
    pub fn fixed_bytes(&self) -> Option<&'a [u8]> {
        self.info.constant()?.bytes().filter(|bytes| bytes.len() <= MOST_ELEMENTS)
    }

    /// f32 elements that are the same in every run, if they are few and at hand without computing.
    pub fn fixed_floats(&self) -> Option<SmallVec<[f32; 4]>> {
        let value = self.info.constant().filter(|value| value.bytes().is_some_and(|b| b.len() <= MOST_FLOATS * 4))?;
        value.to_vec::<f32>().map(SmallVec::from_vec)
    }
}

/// Longest constant list of floats that kernels may read before they run.
const MOST_FLOATS: usize = 64;

/// Longest constant list of integers that kernels may read at bind.
const MOST_ELEMENTS: usize = 4096;

/// The elements of a small integer constant.
pub(crate) fn constant_ints(value: &view::Value<'_>) -> Option<Ints> {
    if value.bytes()?.len() > MOST_ELEMENTS * 8 {
        return None;
    }
    match value.dtype()? {
        DType::I64 => value.to_vec::<i64>().map(Ints::from_vec),
        DType::I32 => Some(value.to_vec::<i32>()?.into_iter().map(i64::from).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::resolve_axis;

    #[test]
    fn axes_count_from_either_end() {
        let cases = [(0, 3, Some(0)), (-1, 3, Some(2)), (-3, 3, Some(0)), (3, 3, None), (-4, 3, None), (0, 0, None)];
        for (axis, rank, want) in cases {
            assert_eq!(resolve_axis(axis, rank), want, "{axis} of {rank}");
        }
    }
}
