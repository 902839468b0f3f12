//! The same texts under other dimensions, which the host has inferred.

use ortolan_ep_kit::{Args, Fault, Ints, Item, NodeView, Op, Reject, Shapes, Texts, count};

/// Another shape for the same texts.
pub(super) struct Rename;

impl Op for Rename {
    type Bound = Ints;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        match node.is_late() {
            true => Err(Reject::shape("the dimensions of texts are decided by data, and the kernel needs them before")),
            false => Ok(Rename),
        }
    }

    fn bind(&self, shapes: &Shapes<'_>, dims: &mut Ints) -> Result<(), Fault> {
        *dims = Ints::from_slice(shapes.output(0));
        Ok(())
    }
}

pub(super) fn rename(_: &Rename, dims: &Ints, args: &mut Args<'_>) -> Result<(), Fault> {
    let item = args.item(0)?;
    let texts = item.texts()?.texts.clone();
    if texts.len() != count(dims) {
        return Err(Fault::data(format!("{:?} cannot become {dims:?}: the sizes differ", item.dims())));
    }
    args.give(0, Item::Texts(Texts { dims: dims.clone(), texts }))
}
