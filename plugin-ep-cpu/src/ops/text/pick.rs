//! Texts picked out of tensors: by index, by condition, in another order, one tensor behind the other.

use super::{Run, few};
use ortolan_ep_kit::{Args, Bool, DType, Fault, Ints, Item, NodeView, Op, Reject, Texts, count, resolve_axis, size};
use std::borrow::Cow;

/// The attribute that says how, as far as the operator has one.
pub(super) struct Pick {
    axis: i64,
    perm: Option<Ints>,
    inputs: usize,
}

impl Op for Pick {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (axis, perm) = (node.int_if("axis").unwrap_or(0), node.ints("perm").map(Ints::from_slice));
        Ok(Pick { axis, perm, inputs: node.input_count() })
    }
}

impl Pick {
    fn axis(&self, rank: usize) -> Result<usize, Fault> {
        let axis = resolve_axis(self.axis, rank);
        axis.ok_or_else(|| Fault::data(format!("attribute axis = {} is no axis of texts of rank {rank}", self.axis)))
    }
}

/// Steps from index to index along each axis.
fn steps(dims: &[i64]) -> Ints {
    let mut steps = Ints::from_elem(1, dims.len());
    for k in (0..dims.len().saturating_sub(1)).rev() {
        steps[k] = steps[k + 1].saturating_mul(dims[k + 1]);
    }
    steps
}

/// Where each element of some dimensions is under steps.
fn places<'a>(dims: &'a [i64], steps: &'a [i64]) -> impl Iterator<Item = usize> + 'a {
    (0..count(dims)).map(move |at| {
        let (mut at, mut place) = (at as i64, 0); // below the number of texts
        for (dim, step) in dims.iter().zip(steps).rev() {
            place += at % dim * step;
            at /= dim;
        }
        size(place)
    })
}

fn give<'t>(args: &mut Args<'_>, dims: Ints, texts: impl Iterator<Item = Option<&'t Box<str>>>) -> Run {
    few(dims.iter().try_fold(1usize, |all, &d| all.checked_mul(size(d))).unwrap_or(usize::MAX))?;
    let texts: Option<Vec<Box<str>>> = texts.map(|text| text.cloned()).collect();
    let texts = texts.ok_or_else(|| Fault::data("the texts are fewer than their dimensions say"))?;
    args.give(0, Item::Texts(Texts { dims, texts }))
}

/// Slices along an axis, by indices that may count from the end.
pub(super) fn gather(op: &Pick, (): &(), args: &mut Args<'_>) -> Run {
    let (texts, indices) = (args.item(0)?, args.item(1)?);
    let (texts, indices) = (texts.texts()?, indices.tensor()?);
    let axis = op.axis(texts.dims.len())?;
    let list: Cow<'_, [i64]> = match indices.dtype {
        DType::I32 => Cow::Owned(indices.elements::<i32>()?.iter().map(|&n| n.into()).collect()),
        _ => indices.elements::<i64>()?,
    };
    let len = texts.dims[axis];
    let mut chosen = Vec::new();
    for (at, &index) in list.iter().enumerate() {
        let place = if index < 0 { index.saturating_add(len) } else { index };
        if !(0..len).contains(&place) {
            return Err(Fault::data(format!(
                "input 1 has index {index} at element {at}, axis {axis} has {len} elements"
            )));
        }
        chosen.push(size(place));
    }
    let (outer, inner) = (count(&texts.dims[..axis]), count(&texts.dims[axis + 1..]));
    let mut dims = Ints::from_slice(&texts.dims[..axis]);
    dims.extend_from_slice(&indices.dims);
    dims.extend_from_slice(&texts.dims[axis + 1..]);
    let slices = (0..outer).flat_map(|o| chosen.iter().map(move |&at| (o * size(len) + at) * inner));
    let all = slices.flat_map(|from| (from..from + inner).map(|at| texts.texts.get(at)));
    give(args, dims, all)
}

/// Tensors behind each other along an axis.
pub(super) fn concat(op: &Pick, (): &(), args: &mut Args<'_>) -> Run {
    let items = (0..op.inputs).map(|i| args.item(i)).collect::<Result<Vec<_>, _>>()?;
    let all = items.iter().map(|item| item.texts()).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = all.first() else { return Err(Fault::data("there are no texts to put together")) };
    let axis = op.axis(first.dims.len())?;
    let mut dims = first.dims.clone();
    dims[axis] = 0;
    for texts in &all {
        let same = texts.dims.len() == dims.len() && (0..dims.len()).all(|k| k == axis || texts.dims[k] == dims[k]);
        if !same {
            return Err(Fault::data(format!(
                "texts of {:?} and {:?} do not fit along axis {axis}",
                first.dims, texts.dims
            )));
        }
        dims[axis] = dims[axis].saturating_add(texts.dims[axis]);
    }
    let outer = count(&dims[..axis]);
    let pieces = (0..outer).flat_map(|o| all.iter().map(move |texts| (o, texts)));
    let texts = pieces.flat_map(|(o, texts)| {
        let len = count(&texts.dims[axis..]);
        (o * len..(o + 1) * len).map(|at| texts.texts.get(at))
    });
    give(args, dims, texts)
}

/// One of two, element by element.
pub(super) fn choose(_: &Pick, (): &(), args: &mut Args<'_>) -> Run {
    let (condition, a, b) = (args.item(0)?, args.item(1)?, args.item(2)?);
    let (first, a, b) = (condition.tensor()?.elements::<Bool>()?, a.texts()?, b.texts()?);
    let all = [condition.dims(), &a.dims, &b.dims];
    let rank = all.iter().map(|dims| dims.len()).max().unwrap_or(0);
    let mut dims = Ints::from_elem(1, rank);
    let mut under: [Ints; 3] = core::array::from_fn(|_| Ints::new());
    for own in all {
        for (to, &dim) in dims[rank - own.len()..].iter_mut().zip(own) {
            if *to != 1 && dim != 1 && *to != dim {
                return Err(Fault::data(format!("dimensions {all:?} do not broadcast")));
            }
            *to = if *to == 1 { dim } else { *to };
        }
    }
    for (under, own) in under.iter_mut().zip(all) {
        let steps = steps(own);
        let moves = own.iter().zip(&steps).map(|(&dim, &step)| if dim == 1 { 0 } else { step });
        *under = core::iter::repeat_n(0, rank - own.len()).chain(moves).collect();
    }
    few(dims.iter().try_fold(1usize, |all, &d| all.checked_mul(size(d))).unwrap_or(usize::MAX))?;
    let places = places(&dims, &under[0]).zip(places(&dims, &under[1]).zip(places(&dims, &under[2])));
    let texts: Vec<Option<&Box<str>>> =
        places.map(|(c, (i, j))| if first.get(c)?.get() { a.texts.get(i) } else { b.texts.get(j) }).collect();
    give(args, dims.clone(), texts.into_iter())
}

/// Axes in another order.
pub(super) fn transpose(op: &Pick, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let texts = item.texts()?;
    let rank = texts.dims.len();
    let perm: Ints = op.perm.clone().unwrap_or_else(|| (0..rank as i64).rev().collect()); // a rank
    let mut seen = perm.clone();
    seen.sort_unstable();
    if seen.iter().copied().ne(0..rank as i64) {
        return Err(Fault::data(format!("attribute perm = {perm:?} is no order of {rank} axes")));
    }
    let from = steps(&texts.dims);
    let dims: Ints = perm.iter().map(|&k| texts.dims[size(k)]).collect();
    let moved: Ints = perm.iter().map(|&k| from[size(k)]).collect();
    let all: Vec<_> = places(&dims, &moved).map(|at| texts.texts.get(at)).collect();
    give(args, dims, all.into_iter())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::testing::{OpTest, Tensor};
    use ortolan_ep_kit::{Bool, DType, Item, Texts};

    fn texts(dims: &[i64], all: &[&str]) -> Item {
        Item::Texts(Texts::new(dims, all))
    }

    fn one(case: OpTest, rank: usize) -> Item {
        case.late_output(DType::Str, rank).run_items().remove(0)
    }

    #[test]
    fn slices_by_index() {
        let x = texts(&[2, 3], &["a", "b", "c", "d", "é", "f"]);
        let case = Case::new("Gather", 13).int("axis", 1).item(x.clone()).input(&Tensor::new(&[2], &[-1i64, 1]));
        assert_eq!(one(case, 2), texts(&[2, 2], &["c", "b", "f", "é"]));
        let case = Case::new("Gather", 13).int("axis", 0).item(x.clone()).input(&Tensor::new(&[], &[1i32]));
        assert_eq!(one(case, 1), texts(&[3], &["d", "é", "f"]));
        let case = Case::new("Gather", 13).int("axis", 0).item(x).input(&Tensor::new(&[1], &[2i64]));
        let error = case.late_output(DType::Str, 2).try_items().unwrap_err();
        assert!(error.contains("index 2 at element 0, axis 0 has 2 elements"), "{error}");
    }

    #[test]
    fn behind_each_other() {
        let (x, y) = (texts(&[2, 1], &["a", "b"]), texts(&[2, 2], &["c", "d", "e", "f"]));
        let case = Case::new("Concat", 13).int("axis", -1).item(x.clone()).item(y.clone());
        assert_eq!(one(case, 2), texts(&[2, 3], &["a", "c", "d", "b", "e", "f"]));
        let case = Case::new("Concat", 13).int("axis", 0).item(x).item(y).late_output(DType::Str, 2);
        assert!(case.try_items().unwrap_err().contains("do not fit along axis 0"));
    }

    #[test]
    fn one_of_two() {
        let condition = Tensor::new(&[2, 1], &[true, false].map(Bool::from));
        let case = Case::new("Where", 16).input(&condition).item(texts(&[2], &["x", "y"])).item(texts(&[], &["-"]));
        assert_eq!(one(case, 2), texts(&[2, 2], &["x", "y", "-", "-"]));
    }

    #[test]
    fn in_another_order() {
        let x = texts(&[2, 3], &["a", "b", "c", "d", "e", "f"]);
        let turned = texts(&[3, 2], &["a", "d", "b", "e", "c", "f"]);
        assert_eq!(one(Case::new("Transpose", 25).item(x.clone()), 2), turned);
        assert_eq!(one(Case::new("Transpose", 25).ints("perm", &[0, 1]).item(x.clone()), 2), x);
    }
}
