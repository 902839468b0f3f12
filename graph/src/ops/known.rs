//! Following small integers through element-wise operators.

use smallvec::SmallVec;

use super::InferCx;
use crate::ir::{Dims, ExprId, ExprTable, KNOWN_LIMIT};

/// Sets the elements of output 0 to `f` of the elements of inputs 0 and 1, broadcast to `dims`.
pub(super) fn binary(cx: &mut InferCx<'_>, dims: &Dims, f: impl Fn(&mut ExprTable, ExprId, ExprId) -> ExprId) {
    broadcast(cx, dims, |exprs, [x, y]| f(exprs, x, y));
}

/// Sets the elements of output 0 to `f` of the elements of inputs 0, 1 and 2, broadcast to `dims`.
pub(super) fn ternary(cx: &mut InferCx<'_>, dims: &Dims, f: impl Fn(&mut ExprTable, ExprId, ExprId, ExprId) -> ExprId) {
    broadcast(cx, dims, |exprs, [x, y, z]| f(exprs, x, y, z));
}

fn broadcast<const N: usize>(cx: &mut InferCx<'_>, dims: &Dims, f: impl Fn(&mut ExprTable, [ExprId; N]) -> ExprId) {
    let Some(out) = sizes(cx, dims) else { return };
    let count: usize = out.iter().product();
    if count > KNOWN_LIMIT {
        return;
    }
    let inputs = (0..N).map(|i| Some((cx.known(i)?, fixed(cx, i)?)));
    let Some(inputs) = inputs.collect::<Option<SmallVec<[_; N]>>>() else { return };
    let made: Option<SmallVec<[ExprId; 8]>> = (0..count)
        .map(|at| {
            let mut elements = [*inputs[0].0.first()?; N];
            for (element, (known, sizes)) in elements.iter_mut().zip(&inputs) {
                *element = *known.get(source(at, &out, sizes))?;
            }
            Some(f(cx.exprs, elements))
        })
        .collect();
    if let Some(made) = made {
        cx.set_known(0, &made);
    }
}

/// Sets the elements of output 0 to `f` of each element of input 0.
pub(super) fn unary(cx: &mut InferCx<'_>, f: impl Fn(&mut ExprTable, ExprId) -> ExprId) {
    let Some(a) = cx.known(0) else { return };
    let made: SmallVec<[ExprId; 8]> = a.into_iter().map(|x| f(cx.exprs, x)).collect();
    cx.set_known(0, &made);
}

/// Sets the elements of output 0, of dims `to`, to those of input 0, of dims `from`: `place` says where each comes from.
pub(super) fn rearranged(cx: &mut InferCx<'_>, from: &Dims, place: impl Fn(&[usize]) -> Vec<usize>, to: &Dims) {
    let (Some(known), Some(from), Some(to)) = (cx.known(0), sizes(cx, from), sizes(cx, to)) else { return };
    let count: usize = to.iter().product();
    if count > KNOWN_LIMIT {
        return;
    }
    let picked: Option<SmallVec<[ExprId; 8]>> = (0..count)
        .map(|mut at| {
            let mut index: Sizes = SmallVec::from_elem(0, to.len());
            for (i, &size) in index.iter_mut().zip(&to).rev() {
                *i = at % size;
                at /= size;
            }
            let place = place(&index);
            let linear = |sum: usize, (i, size): (&usize, &usize)| sum.checked_mul(*size)?.checked_add(*i);
            known.get(place.iter().zip(&from).try_fold(0, linear)?).copied()
        })
        .collect();
    if let Some(picked) = picked {
        cx.set_known(0, &picked);
    }
}

type Sizes = SmallVec<[usize; 6]>;

fn fixed(cx: &InferCx<'_>, i: usize) -> Option<Sizes> {
    sizes(cx, &cx.dims(i)?)
}

fn sizes(cx: &InferCx<'_>, dims: &Dims) -> Option<Sizes> {
    dims.iter().map(|&d| usize::try_from(cx.exprs.as_const(d)?).ok()).collect()
}

/// Index into a tensor of dims `from` of what element `at` of the broadcast tensor `to` reads.
fn source(mut at: usize, to: &Sizes, from: &Sizes) -> usize {
    let (mut index, mut stride) = (0, 1);
    let skip = to.len() - from.len();
    for (axis, &size) in to.iter().enumerate().rev() {
        let here = at % size;
        at /= size;
        if let Some(&own) = axis.checked_sub(skip).and_then(|a| from.get(a)) {
            index += if own == 1 { 0 } else { here * stride };
            stride *= own;
        }
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast_reads_repeat_along_axes_of_one() {
        let to = Sizes::from_slice(&[2, 3]);
        let row = Sizes::from_slice(&[3]);
        let column = Sizes::from_slice(&[2, 1]);
        let rows: Vec<_> = (0..6).map(|at| source(at, &to, &row)).collect();
        let columns: Vec<_> = (0..6).map(|at| source(at, &to, &column)).collect();
        assert_eq!(rows, [0, 1, 2, 0, 1, 2]);
        assert_eq!(columns, [0, 0, 0, 1, 1, 1]);
    }
}
