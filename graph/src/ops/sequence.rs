//! Sequences, optionals, and tensors in and out of them.

use std::sync::Arc;

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{AttrValue, DType, Dims, ExprId, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("ConcatFromSequence", concat_from_sequence),
    OpDef::new("Optional", optional),
    OpDef::new("OptionalGetElement", optional_get),
    OpDef::new("OptionalHasElement", optional_has),
    OpDef::new("SequenceAt", sequence_at),
    OpDef::new("SequenceConstruct", sequence_construct),
    OpDef::new("SequenceEmpty", sequence_empty),
    OpDef::new("SequenceErase", super::unary::like),
    OpDef::new("SequenceInsert", sequence_insert),
    OpDef::new("SequenceLength", sequence_length),
    OpDef::new("SplitToSequence", split_to_sequence),
];

fn element(cx: &InferCx<'_>, i: usize) -> Option<Type> {
    match cx.ty(i)? {
        Type::Sequence(inner) => Some(inner.as_ref().clone()),
        _ => None,
    }
}

/// A type that both are of: of tensors with other dims only the element type is left.
fn common(a: &Type, b: &Type) -> Option<Type> {
    let (Type::Tensor(a), Type::Tensor(b)) = (a, b) else { return (a == b).then(|| a.clone()) };
    if a.dtype != b.dtype {
        return None;
    }
    let dims = if a.dims == b.dims { a.dims.clone() } else { None };
    Some(Type::Tensor(TensorType { dtype: a.dtype, dims }))
}

fn sequence_construct(cx: &mut InferCx<'_>) -> Result<()> {
    let types: Option<Vec<Type>> = (0..cx.input_count()).map(|i| cx.ty(i).cloned()).collect();
    let Some(types) = types else { return Ok(()) };
    let Some((first, rest)) = types.split_first() else { return Ok(()) };
    let mut all = first.clone();
    for (i, next) in rest.iter().enumerate() {
        let Some(both) = common(&all, next) else {
            let (a, b) = (all.kind_name(), next.kind_name());
            return Err(cx.fail(format!("input {} is a {b}, the ones before it are {a}", i + 1)));
        };
        all = both;
    }
    cx.set(0, Type::Sequence(Arc::new(all)));
    Ok(())
}

fn sequence_empty(cx: &mut InferCx<'_>) -> Result<()> {
    let dtype = cx.attr_dtype("dtype")?.unwrap_or(DType::F32);
    cx.set(0, Type::Sequence(Arc::new(Type::unranked(dtype))));
    Ok(())
}

/// A tensor that a run takes from a sequence: its dims are free where the sequence's type does not fix them.
fn sequence_at(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(ty) = element(cx, 0) {
        cx.set(0, ty);
    }
    Ok(())
}

fn sequence_insert(cx: &mut InferCx<'_>) -> Result<()> {
    let (Some(inside), Some(new)) = (element(cx, 0), cx.ty(1).cloned()) else {
        cx.set_like(0, 0);
        return Ok(());
    };
    // An empty sequence of tensors says nothing of dims, so what goes in first does not narrow it either.
    match common(&inside, &new) {
        Some(both) => cx.set(0, Type::Sequence(Arc::new(both))),
        None => {
            let (a, b) = (inside.kind_name(), new.kind_name());
            return Err(cx.fail(format!("a {b} can't go into a sequence of {a}")));
        }
    }
    Ok(())
}

fn sequence_length(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set_tensor(0, DType::I64, Some(Dims::new()));
    Ok(())
}

fn concat_from_sequence(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(Type::Tensor(t)) = element(cx, 0) else { return Ok(()) };
    let fresh = cx.attr_int("new_axis").unwrap_or(0) != 0;
    let axis = cx.attr_int("axis").unwrap_or(0);
    let dims = match t.dims {
        Some(mut dims) if fresh => {
            let axis = cx.axis(axis, dims.len() + 1)?;
            dims.insert(axis, cx.fresh_dim(0, axis));
            Some(dims)
        }
        Some(mut dims) => {
            let axis = cx.axis(axis, dims.len())?;
            dims[axis] = cx.fresh_dim(0, axis);
            Some(dims)
        }
        None => None,
    };
    cx.set_tensor(0, t.dtype, dims);
    Ok(())
}

/// Chunks of one size have one type; else only the rank is common, which a sequence's type can't say alone.
fn split_to_sequence(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let Some(x) = cx.dims(0) else {
        cx.set(0, Type::Sequence(Arc::new(Type::unranked(dtype))));
        return Ok(());
    };
    let axis = cx.axis(cx.attr_int("axis").unwrap_or(0), x.len())?;
    let one = cx.int(1);
    let dims = match cx.has_input(1) {
        false if cx.attr_int("keepdims").unwrap_or(1) != 0 => {
            let mut dims = x;
            dims[axis] = one;
            Some(dims)
        }
        false => Some(x.iter().enumerate().filter(|&(i, _)| i != axis).map(|(_, &d)| d).collect()),
        true => chunk(cx, x[axis]).map(|size| {
            let mut dims = x;
            dims[axis] = size;
            dims
        }),
    };
    cx.set(0, Type::Sequence(Arc::new(Type::Tensor(TensorType { dtype, dims }))));
    Ok(())
}

/// The size of all chunks when it is the same for each.
fn chunk(cx: &mut InferCx<'_>, whole: ExprId) -> Option<ExprId> {
    let sizes = cx.ints(1)?;
    let &first = sizes.first()?;
    if cx.rank(1) == Some(0) {
        let size = cx.int(first);
        let rest = cx.exprs.modulo(whole, size);
        return (cx.exprs.truth(rest) == Some(false)).then_some(size);
    }
    sizes.iter().all(|&s| s == first).then(|| cx.int(first))
}

fn optional(cx: &mut InferCx<'_>) -> Result<()> {
    let ty = match (cx.ty(0), cx.attr("type")) {
        (Some(ty), _) => Some(ty.clone()),
        (None, Some(AttrValue::Type(ty))) => Some(ty.clone()),
        _ => None,
    };
    if let Some(ty) = ty {
        cx.set(0, Type::Optional(Arc::new(ty)));
    }
    Ok(())
}

/// What is no optional passes through.
fn optional_get(cx: &mut InferCx<'_>) -> Result<()> {
    match cx.ty(0).cloned() {
        Some(Type::Optional(inner)) => cx.set(0, inner.as_ref().clone()),
        Some(other) => cx.set(0, other),
        None => {}
    }
    Ok(())
}

fn optional_has(cx: &mut InferCx<'_>) -> Result<()> {
    cx.set_tensor(0, DType::Bool, Some(Dims::new()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn kinds() {
        check(&[
            ("SequenceConstruct", "float[2] float[2]", "", "seq(tensor(float))"),
            ("SequenceConstruct", "float[2] int64[2]", "", "!input 1 is a tensor(int64)"),
            ("SequenceEmpty", "", "dtype=7", "seq(tensor(int64))"),
            ("SplitToSequence", "float[4,3]", "keepdims=0", "seq(tensor(float))"),
            ("OptionalHasElement", "float[2]", "", "bool[]"),
            ("OptionalGetElement", "float[2]", "", "float[2]"),
            ("Optional", "float[2]", "", "optional(tensor(float))"),
        ]);
    }
}
