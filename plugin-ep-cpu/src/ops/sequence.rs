//! Sequences and optionals. Their tensors are moved by reference; only splitting and joining copies elements.

use ortolan_ep_kit::element::BYTES;
use ortolan_ep_kit::{
    Args, Bool, Cost, DType, Fault, Ints, Item, Kernel, NodeView, Op, Plain, Reject, Texts, any, count, resolve_axis,
    size,
};
use std::sync::Arc;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("ConcatFromSequence", (11, 11), "concatfromsequence", any!(join)).types(NONE).items(),
    Kernel::new("Identity", (14, 25), "identity", any!(hand_on)).types(NONE).items(),
    Kernel::new("Optional", (15, 28), "optional", any!(wrap)).types(NONE).items(),
    Kernel::new("OptionalGetElement", (15, 28), "optionalgetelement", any!(unwrap)).types(NONE).items(),
    Kernel::new("OptionalHasElement", (15, 28), "optionalhaselement", any!(has)).types(NONE).items(),
    Kernel::new("SequenceAt", (11, 11), "sequenceat", any!(at)).types(NONE).items(),
    Kernel::new("SequenceConstruct", (11, 11), "sequenceconstruct", any!(construct)).types(NONE).items(),
    Kernel::new("SequenceEmpty", (11, 11), "sequenceempty", any!(construct)).types(NONE).items(),
    Kernel::new("SequenceErase", (11, 11), "sequenceerase", any!(erase)).types(NONE).items(),
    Kernel::new("SequenceInsert", (11, 11), "sequenceinsert", any!(insert)).types(NONE).items(),
    Kernel::new("SequenceLength", (11, 11), "sequencelength", any!(length)).types(NONE).items(),
    Kernel::new("SplitToSequence", (11, 24), "splittosequence", any!(split)).types(NONE).items(),
];

/// Any types: nothing looks at elements.
const NONE: &[(&str, u64)] = &[];

type Run = Result<(), Fault>;

/// Whatever attributes the operators have.
struct Whole {
    inputs: usize,
    axis: i64,
    /// A new axis is made, or the one that was split stays.
    extra: bool,
}

impl Op for Whole {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let inputs = node.input_count();
        let needs: usize = match node.op() {
            "ConcatFromSequence" | "Identity" | "SequenceErase" | "SequenceLength" | "SplitToSequence" => 1,
            "SequenceAt" | "SequenceInsert" => 2,
            _ => 0,
        };
        if let Some(missing) = (0..needs).find(|&k| !node.has_input(k)) {
            return Err(Reject::shape(format!("input {missing} is missing")));
        }
        let extra = match node.op() {
            "ConcatFromSequence" => node.int_if("new_axis").unwrap_or(0) != 0,
            _ => node.int_if("keepdims").unwrap_or(1) != 0,
        };
        Ok(Whole { inputs, axis: node.int_if("axis").unwrap_or(0), extra })
    }

    fn cost(&self, _: &NodeView<'_>) -> Cost {
        Cost::ns(200.0)
    }
}

fn hand_on(_: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    args.give(0, item)
}

fn wrap(_: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let item = if args.has(0) { Some(args.item(0)?) } else { None };
    args.give(0, Item::Optional(item))
}

fn unwrap(_: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    match &*item {
        Item::Optional(Some(inner)) => args.give(0, inner.clone()),
        Item::Optional(None) => Err(Fault::data("the optional holds nothing")),
        _ => args.give(0, item),
    }
}

fn has(_: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let there = args.has(0) && !matches!(&*args.item(0)?, Item::Optional(None));
    args.give(0, Item::from(Plain::new(&[], &[Bool::from(there)])))
}

fn construct(op: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let all = (0..op.inputs).map(|k| args.item(k)).collect::<Result<Vec<_>, _>>()?;
    args.give(0, Item::Sequence(all))
}

fn length(_: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let count = args.item(0)?.sequence()?.len();
    let count = i64::try_from(count).map_err(|_| Fault::data("the sequence is too long"))?;
    args.give(0, Item::from(Plain::new(&[], &[count])))
}

/// The integer in a tensor with one element.
fn integer(args: &Args<'_>, input: usize) -> Result<i64, Fault> {
    integers(&*args.item(input)?)?.first().copied().ok_or_else(|| Fault::data(format!("input {input} has no elements")))
}

fn integers(item: &Item) -> Result<Ints, Fault> {
    let tensor = item.tensor()?;
    match tensor.dtype {
        DType::I32 => Ok(tensor.elements::<i32>()?.iter().map(|&n| n.into()).collect()),
        _ => Ok(Ints::from_slice(&tensor.elements::<i64>()?)),
    }
}

/// A position among `len`, counted from either end.
fn place(at: i64, len: usize) -> Result<usize, Fault> {
    resolve_axis(at, len).ok_or_else(|| Fault::data(format!("position {at} is none in a sequence of {len}")))
}

fn at(_: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let all = args.item(0)?;
    let all = all.sequence()?;
    let item = all[place(integer(args, 1)?, all.len())?].clone();
    args.give(0, item)
}

fn erase(_: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let mut all = args.item(0)?.sequence()?.to_vec();
    let at = if args.has(1) { integer(args, 1)? } else { -1 };
    all.remove(place(at, all.len())?);
    args.give(0, Item::Sequence(all))
}

fn insert(_: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let mut all = args.item(0)?.sequence()?.to_vec();
    // Behind the last one is a position, too; negative ones count from the last.
    let at = match args.has(2) {
        false => all.len(),
        true => match integer(args, 2)? {
            at if usize::try_from(at) == Ok(all.len()) => all.len(),
            at => place(at, all.len())?,
        },
    };
    all.insert(at, args.item(1)?);
    args.give(0, Item::Sequence(all))
}

/// A tensor as `outer` blocks of `len` slices of `inner` elements.
fn blocks(dims: &[i64], axis: usize) -> (usize, usize, usize) {
    (count(&dims[..axis]), size(dims[axis]), count(&dims[axis + 1..]))
}

fn axis_of(axis: i64, rank: usize) -> Result<usize, Fault> {
    resolve_axis(axis, rank)
        .ok_or_else(|| Fault::data(format!("attribute axis = {axis} is no axis of a tensor of rank {rank}")))
}

/// Bytes of an element.
fn width(dtype: DType) -> Result<usize, Fault> {
    match BYTES & dtype.mask() {
        0 => Err(Fault::data(format!("there is no kernel that cuts tensors of {dtype}"))),
        _ => Ok(dtype.bits() / 8),
    }
}

fn split(op: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let item = args.item(0)?;
    let dims = Ints::from_slice(item.dims());
    let axis = axis_of(op.axis, dims.len())?;
    let (outer, len, inner) = blocks(&dims, axis);
    let lengths = match args.has(1) {
        false => vec![1; len],
        true => lengths(&*args.item(1)?, len)?,
    };
    // Slices of one keep their axis if that is said; with given lengths it always stays.
    let keeps = op.extra || args.has(1);
    let (mut all, mut start) = (Vec::new(), 0);
    for length in lengths {
        let mut to = dims.clone();
        match keeps {
            true => to[axis] = i64::try_from(length).unwrap_or(i64::MAX),
            false => drop(to.remove(axis)),
        }
        let runs = (0..outer).map(|k| (k * len + start) * inner..(k * len + start + length) * inner);
        all.push(Arc::new(match &*item {
            Item::Texts(from) => {
                Item::Texts(Texts { dims: to, texts: runs.flat_map(|run| from.texts[run].iter().cloned()).collect() })
            }
            other => {
                let (from, width) = (other.tensor()?, width(other.tensor()?.dtype)?);
                let bytes = runs.flat_map(|run| &from.bytes[run.start * width..run.end * width]).copied().collect();
                Item::Tensor(Plain { dtype: from.dtype, dims: to, bytes })
            }
        }));
        start += length;
    }
    args.give(0, Item::Sequence(all))
}

/// Lengths of the parts: one for all, the last one shorter, or a list.
fn lengths(item: &Item, len: usize) -> Result<Vec<usize>, Fault> {
    let numbers = integers(item)?;
    let wrong = || Fault::data(format!("parts of {numbers:?} are not {len} elements"));
    if item.dims().is_empty() {
        let step = numbers.first().and_then(|&n| usize::try_from(n).ok()).filter(|&n| n > 0).ok_or_else(wrong)?;
        return Ok((0..len).step_by(step).map(|start| step.min(len - start)).collect());
    }
    let lengths = numbers.iter().map(|&n| usize::try_from(n).map_err(|_| wrong())).collect::<Result<Vec<_>, _>>()?;
    let sum = lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
    if sum == Some(len) { Ok(lengths) } else { Err(wrong()) }
}

fn join(op: &Whole, (): &(), args: &mut Args<'_>) -> Run {
    let all = args.item(0)?;
    let all = all.sequence()?;
    let Some(first) = all.first() else { return Err(Fault::data("the sequence has no tensors to join")) };
    let rank = first.dims().len();
    let axis = axis_of(op.axis, rank + usize::from(op.extra))?;
    // Each tensor's dimensions, with the axis along which they meet.
    let dims = |item: &Item| {
        let mut dims = Ints::from_slice(item.dims());
        if op.extra {
            dims.insert(axis.min(dims.len()), 1);
        }
        dims
    };
    let mut out = dims(first);
    let mut whole = 0;
    for item in all {
        let mut dims = dims(item);
        let fits = dims.len() == out.len();
        whole += if fits { core::mem::replace(&mut dims[axis], out[axis]) } else { 0 };
        if !fits || dims != out {
            return Err(Fault::data(format!(
                "{:?} and {:?} cannot be joined along axis {axis}",
                first.dims(),
                item.dims()
            )));
        }
    }
    out[axis] = whole;
    let outer = count(&out[..axis]);
    let run = |item: &Item, k: usize| {
        let (_, len, inner) = blocks(&dims(item), axis);
        k * len * inner..(k + 1) * len * inner
    };
    if let Item::Texts(_) = &**first {
        let mut texts = Vec::new();
        for k in 0..outer {
            for item in all {
                texts.extend_from_slice(&item.texts()?.texts[run(item, k)]);
            }
        }
        return args.give(0, Item::Texts(Texts { dims: out, texts }));
    }
    let (dtype, mut bytes) = (first.tensor()?.dtype, Vec::new());
    let width = width(dtype)?;
    for k in 0..outer {
        for item in all {
            let (tensor, run) = (item.tensor()?, run(item, k));
            if tensor.dtype as u32 != dtype as u32 {
                return Err(Fault::data(format!("tensors of {dtype} and {} cannot be joined", tensor.dtype)));
            }
            bytes.extend_from_slice(&tensor.bytes[run.start * width..run.end * width]);
        }
    }
    args.give(0, Item::Tensor(Plain { dtype, dims: out, bytes }))
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use core::slice::from_ref;
    use ortolan_ep_abi::raw;
    use ortolan_ep_kit::testing::OpTest;
    use ortolan_ep_kit::{DType, Item, Plain, Texts};
    use std::sync::Arc;

    fn floats(dims: &[i64], elements: &[f32]) -> Item {
        Plain::new(dims, elements).into()
    }

    fn sequence(items: &[Item]) -> Item {
        Item::Sequence(items.iter().cloned().map(Arc::new).collect())
    }

    fn scalar(n: i64) -> Item {
        Plain::new(&[], &[n]).into()
    }

    fn three() -> [Item; 3] {
        [floats(&[1], &[1.0]), floats(&[2], &[2.0, 3.0]), floats(&[0], &[])]
    }

    fn run(case: OpTest, inputs: &[Item]) -> Item {
        let case = inputs.iter().cloned().fold(case, OpTest::item);
        case.whole_output(raw::VALUE_SEQUENCE).run_items().remove(0)
    }

    #[test]
    fn sequences_grow_and_shrink() {
        let [a, b, c] = three();
        let all = sequence(&three());
        assert_eq!(run(Case::new("SequenceConstruct", 11), &three()), all);
        assert_eq!(run(Case::new("SequenceEmpty", 11), &[]), sequence(&[]));
        let texts: Item = Texts::new(&[1], &["t"]).into();
        let cases = [
            ("SequenceInsert", vec![sequence(&[a.clone(), b.clone()]), c.clone()], all.clone()),
            ("SequenceInsert", vec![sequence(&[a.clone(), c.clone()]), b.clone(), scalar(1)], all.clone()),
            ("SequenceInsert", vec![sequence(&[a.clone(), c.clone()]), b.clone(), scalar(-1)], all.clone()),
            ("SequenceInsert", vec![sequence(&[a.clone(), b.clone()]), c.clone(), scalar(2)], all.clone()),
            ("SequenceInsert", vec![sequence(&[]), texts.clone()], sequence(&[texts])),
            ("SequenceErase", vec![all.clone()], sequence(&[a.clone(), b])),
            ("SequenceErase", vec![all, scalar(-2)], sequence(&[a, c])),
        ];
        for (op, inputs, want) in cases {
            assert_eq!(run(Case::new(op, 11), &inputs), want, "{op}");
        }
    }

    #[test]
    fn items_are_found() {
        let all = sequence(&three());
        for (at, want) in [(0, 0), (-2, 1), (2, 2)] {
            let case = Case::new("SequenceAt", 11).item(all.clone()).item(scalar(at)).late_output(DType::F32, 1);
            assert_eq!(case.run_items(), [three()[want].clone()], "{at}");
        }
        let case = Case::new("SequenceAt", 11).item(all.clone()).item(scalar(3)).late_output(DType::F32, 1);
        let error = case.try_items().unwrap_err();
        assert!(error.contains("position 3 is none in a sequence of 3"), "{error}");
        let case = Case::new("SequenceLength", 11).item(all).output(DType::I64, &[]);
        assert_eq!(case.run_items(), [scalar(3)]);
    }

    #[test]
    fn splitting_and_joining() {
        let x = floats(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let columns = [floats(&[2, 2], &[0.0, 1.0, 3.0, 4.0]), floats(&[2, 1], &[2.0, 5.0])];
        let split =
            |lengths: &Item| run(Case::new("SplitToSequence", 24).int("axis", 1), &[x.clone(), lengths.clone()]);
        assert_eq!(split(&scalar(2)), sequence(&columns));
        assert_eq!(split(&Plain::new(&[2], &[2i64, 1]).into()), sequence(&columns));
        let rows = run(Case::new("SplitToSequence", 24).int("axis", 0).int("keepdims", 0), from_ref(&x));
        assert_eq!(rows, sequence(&[floats(&[3], &[0.0, 1.0, 2.0]), floats(&[3], &[3.0, 4.0, 5.0])]));
        let joined = |case: OpTest, all: Item| case.item(all).late_output(DType::F32, 2).run_items().remove(0);
        assert_eq!(joined(Case::new("ConcatFromSequence", 11).int("axis", -1), sequence(&columns)), x);
        assert_eq!(joined(Case::new("ConcatFromSequence", 11).int("axis", 0).int("new_axis", 1), rows), x);
        let texts: Item = Texts::new(&[3], &["a", "b", "c"]).into();
        let parts = run(Case::new("SplitToSequence", 24).int("axis", 0), &[texts.clone(), scalar(2)]);
        let case = Case::new("ConcatFromSequence", 11).int("axis", 0).item(parts).late_output(DType::Str, 1);
        assert_eq!(case.run_items(), [texts]);
        let wrong: Item = Plain::new(&[2], &[2i64, 2]).into();
        let case = Case::new("SplitToSequence", 24).int("axis", 1).item(x).item(wrong);
        let error = case.whole_output(raw::VALUE_SEQUENCE).try_items().unwrap_err();
        assert!(error.contains("parts of [2, 2] are not 3 elements"), "{error}");
        let case = Case::new("ConcatFromSequence", 11).int("axis", 0).item(sequence(&columns));
        let error = case.late_output(DType::F32, 2).try_items().unwrap_err();
        assert!(error.contains("[2, 2] and [2, 1] cannot be joined along axis 0"), "{error}");
    }

    #[test]
    fn optionals() {
        let x = floats(&[1], &[1.0]);
        let full = Item::Optional(Some(Arc::new(x.clone())));
        let case = Case::new("Optional", 28).item(x.clone()).whole_output(raw::VALUE_OPTIONAL);
        assert_eq!(case.run_items(), from_ref(&full));
        assert_eq!(Case::new("Optional", 28).whole_output(raw::VALUE_OPTIONAL).run_items(), [Item::Optional(None)]);
        for (item, there) in [(full.clone(), 1u8), (Item::Optional(None), 0), (x.clone(), 1)] {
            let case = Case::new("OptionalHasElement", 28).item(item).output(DType::Bool, &[]);
            assert_eq!(case.run_items()[0].tensor().unwrap().bytes, [there]);
        }
        for item in [full, x.clone()] {
            let case = Case::new("OptionalGetElement", 28).item(item).late_output(DType::F32, 1);
            assert_eq!(case.run_items(), from_ref(&x));
        }
        let case = Case::new("OptionalGetElement", 28).item(Item::Optional(None)).late_output(DType::F32, 1);
        assert!(case.try_items().unwrap_err().contains("the optional holds nothing"));
    }
}
