//! Integers inside tensors: short lists that say how an operator works, and indices. All are checked before anything is
//! reached through them.

use ortolan_ep_kit::{Args, DType, Element, Fault, Ints, NodeView, Reject, Shapes};

/// The elements of an integer input of a running node.
pub(crate) fn read(args: &Args<'_>, input: usize, dtype: DType) -> Ints {
    match dtype {
        DType::I32 => args.input::<i32>(input).iter().map(|&n| n.into()).collect(),
        _ => Ints::from_slice(args.input::<i64>(input)),
    }
}

/// Elements of some integer inputs, when shapes are bound; an absent input has none. `None` if one of them is only known
/// to the run.
pub(crate) fn known<'a, const N: usize>(shapes: &Shapes<'a>, inputs: [usize; N]) -> Option<[Option<&'a [i64]>; N]> {
    let mut lists = [None; N];
    for (list, input) in lists.iter_mut().zip(inputs) {
        *list = shapes.elements(input);
        if list.is_none() && shapes.has(input) {
            return None;
        }
    }
    Some(lists)
}

/// All elements of an integer input, of either type that indices have.
#[derive(Clone, Copy)]
pub(crate) enum List<'a> {
    I32(&'a [i32]),
    I64(&'a [i64]),
}

impl List<'_> {
    #[inline(always)]
    pub fn at(&self, at: usize) -> i64 {
        match self {
            List::I32(x) => x[at].into(),
            List::I64(x) => x[at],
        }
    }
}

/// The elements of a long integer input of a running node, where they lie.
pub(crate) fn list<'a>(args: &Args<'a>, input: usize, dtype: DType) -> List<'a> {
    match dtype {
        DType::I32 => List::I32(args.input(input)),
        _ => List::I64(args.input(input)),
    }
}

/// An axis from a tensor, counted from the front.
pub(crate) fn axis(axis: i64, rank: usize, input: usize) -> Result<usize, Fault> {
    ortolan_ep_kit::resolve_axis(axis, rank)
        .ok_or_else(|| Fault::data(format!("input {input} has {axis}, which is no axis of a tensor of rank {rank}")))
}

/// Refuses axes that are known before any run and no axes of the tensor.
pub(crate) fn check_axes(node: &NodeView<'_>, input: usize, rank: usize) -> Result<(), Reject> {
    let Some(axes) = node.input(input).and_then(|v| v.fixed_elements()) else { return Ok(()) };
    match axes.iter().find(|&&axis| ortolan_ep_kit::resolve_axis(axis, rank).is_none()) {
        Some(axis) => {
            Err(Reject::shape(format!("input {input} has {axis}, which is no axis of a tensor of rank {rank}")))
        }
        None => Ok(()),
    }
}

/// A type of indices, which count from the end when they are negative.
pub(crate) trait Index: Element + Send + Sync {
    fn wide(self) -> i64;
}

impl Index for i32 {
    #[inline(always)]
    fn wide(self) -> i64 {
        self.into()
    }
}

impl Index for i64 {
    #[inline(always)]
    fn wide(self) -> i64 {
        self
    }
}

/// Position of an index among `len` elements, or more than `len` if there is none.
#[inline(always)]
pub(crate) fn place(index: impl Index, len: usize) -> usize {
    let (index, len) = (index.wide(), len as i64); // lengths fit an i64
    let from_front = if index < 0 { index.wrapping_add(len) } else { index };
    usize::try_from(from_front).unwrap_or(usize::MAX)
}

/// Checks that all indices of an input are among `len` elements.
pub(crate) fn within<I: Index>(indices: &[I], len: usize, input: usize, axis: usize) -> Result<(), Fault> {
    // Without an early end, so that it is a loop of vectors.
    let bad = indices.iter().fold(false, |bad, &index| bad | (place(index, len) >= len));
    if !bad {
        return Ok(());
    }
    let at = indices.iter().position(|&index| place(index, len) >= len).unwrap_or_default();
    Err(outside(indices[at].wide(), at, len, input, axis))
}

/// An index that leads nowhere.
pub(crate) fn outside(index: i64, at: usize, len: usize, input: usize, axis: usize) -> Fault {
    Fault::data(format!("input {input} has index {index} at element {at}, but axis {axis} has {len} elements"))
}
