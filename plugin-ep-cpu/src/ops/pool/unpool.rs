//! Greatest values back at the places that `MaxPool` said, with zeros around them.

use super::spatial;
use crate::ops::cost;
use crate::ops::value::{Word, by_width};
use ortolan_ep_kit::{Args, Cost, Fault, Ints, NodeView, Op, Reject, Shapes, count, size};

/// What is added to the sizes of an axis, which are multiplied by the stride first.
pub(super) struct Unpool {
    bits: usize,
    stride: Ints,
    more: Ints,
}

impl Op for Unpool {
    /// Dimensions of the input.
    type Bound = Ints;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        let spatial = spatial(&x)?;
        let list = |name: &str, len: usize, least: i64| match node.ints(name) {
            Some(list) if list.len() == len && list.iter().all(|n| (least..=1 << 32).contains(n)) => {
                Ok(Some(Ints::from_slice(list)))
            }
            None => Ok(None),
            Some(list) => Err(Reject::attribute(format!(
                "attribute {name} = {list:?} is not a list of {len} numbers from {least} on"
            ))),
        };
        let Some(kernel) = list("kernel_shape", spatial, 1)? else {
            return Err(Reject::attribute("attribute kernel_shape is missing"));
        };
        let stride = list("strides", spatial, 1)?.unwrap_or_else(|| Ints::from_elem(1, spatial));
        let pads = list("pads", 2 * spatial, 0)?.unwrap_or_else(|| Ints::from_elem(0, 2 * spatial));
        let more = (0..spatial).map(|d| kernel[d] - stride[d] - pads[d] - pads[spatial + d]).collect();
        Ok(Unpool { bits: x.dtype().bits(), stride, more })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Ints) -> Result<(), Fault> {
        *bound = Ints::from_slice(shapes.input(0));
        crate::ops::float::agree("input 1 (the indices)", shapes.input_len(1), shapes.input_len(0))
    }
}

pub(super) fn unpool(op: &Unpool, dims: &Ints, args: &mut Args<'_>) -> Result<(), Fault> {
    by_width!(op.bits, put(op, dims, args))
}

fn put<T: Word>(op: &Unpool, dims: &Ints, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, indices) = (args.input::<T>(0), args.input::<i64>(1));
    // The shape that indices mean.
    let mut meant = dims.clone();
    for (d, n) in meant[2..].iter_mut().enumerate() {
        *n = n.saturating_mul(op.stride[d]).saturating_add(op.more[d]).max(0);
    }
    let made = match args.input_if::<i64>(2) {
        None => meant.clone(),
        Some(stated) => {
            let fits = stated.len() == meant.len() && meant.iter().zip(stated).all(|(n, to)| n <= to);
            if !fits || stated[..2] != meant[..2] {
                return Err(Fault::data(format!("input 2 (output_shape) is {stated:?}, {:?} are put there", &*meant)));
            }
            Ints::from_slice(stated)
        }
    };
    let total = meant.iter().try_fold(1i64, |all, &n| all.checked_mul(n)).unwrap_or(i64::MAX);
    if let Some((at, index)) = indices.iter().enumerate().find(|(_, index)| !(0..total).contains(*index)) {
        return Err(Fault::data(format!("input 1 holds index {index} at {at}, there are {total} places")));
    }
    let y = args.emit::<T>(0, &made)?;
    debug_assert_eq!(y.len(), count(&made));
    y.fill(T::default());
    let same = meant == made;
    for (&x, &index) in x.iter().zip(indices) {
        y[if same { size(index) } else { moved(&meant, &made, index) }] = x;
    }
    Ok(())
}

/// The place in `to` of an index into `from`, which is not larger in any dimension.
fn moved(from: &[i64], to: &[i64], mut index: i64) -> usize {
    let (mut place, mut step) = (0, 1);
    for (&from, &to) in from.iter().zip(to).rev() {
        place += index % from * step;
        index /= from;
        step *= to;
    }
    size(place)
}
