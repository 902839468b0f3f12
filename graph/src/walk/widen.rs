//! Types that meet: the branches of an If, a carried value before and after an iteration; and types
//! that leave a body, where dims that only the body knows become dims of the outer value.

use std::sync::Arc;

use hashbrown::HashSet;

use super::Walk;
use crate::error::{Code, Error, Result};
use crate::ir::{Dims, ExprId, ExprOp, GraphId, SymbolKind, TensorType, Type, ValueId};

impl Walk {
    /// A dim that only a run can tell.
    pub(super) fn fresh(&mut self, value: ValueId, axis: usize) -> ExprId {
        let at = u32::try_from(axis).unwrap_or(u32::MAX);
        self.graph.exprs.symbol_of(value, at, SymbolKind::Dim)
    }

    /// What `value` may be when it is `a` or `b`; `cond` chooses, when it is known as an expression.
    pub(super) fn either(&mut self, value: ValueId, a: &Type, b: &Type, cond: Option<ExprId>) -> Result<Type> {
        Ok(match (a, b) {
            (Type::Tensor(x), Type::Tensor(y)) if x.dtype == y.dtype => {
                let dims = match (&x.dims, &y.dims) {
                    (Some(x), Some(y)) if x.len() == y.len() => {
                        let all = x.iter().zip(y).enumerate();
                        Some(all.map(|(axis, (p, q))| self.either_dim(value, axis, *p, *q, cond)).collect())
                    }
                    _ => None,
                };
                Type::Tensor(TensorType { dtype: x.dtype, dims })
            }
            (Type::Sequence(x), Type::Sequence(y)) => Type::Sequence(Arc::new(joined(x, y)?)),
            (Type::Optional(x), Type::Optional(y)) => Type::Optional(Arc::new(joined(x, y)?)),
            (a, b) => joined(a, b)?,
        })
    }

    fn either_dim(&mut self, value: ValueId, axis: usize, a: ExprId, b: ExprId, cond: Option<ExprId>) -> ExprId {
        match cond {
            _ if a == b => a,
            Some(cond) => self.graph.exprs.select(cond, a, b),
            None => self.fresh(value, axis),
        }
    }

    /// A type of a value of `inner` as the type of `outer`, which stands outside.
    pub(super) fn leaving(&mut self, ty: &Type, inner: GraphId, outer: ValueId, first_axis: usize) -> Type {
        match ty {
            Type::Tensor(TensorType { dtype, dims: Some(dims) }) => {
                let kept = |(axis, d): (usize, &ExprId)| match self.known_outside(*d, inner) {
                    true => *d,
                    false => self.fresh(outer, first_axis + axis),
                };
                let dims: Dims = dims.iter().enumerate().map(kept).collect();
                Type::Tensor(TensorType { dtype: *dtype, dims: Some(dims) })
            }
            Type::Sequence(t) => Type::Sequence(Arc::new(self.item_leaving(t, inner))),
            Type::Optional(t) => Type::Optional(Arc::new(self.item_leaving(t, inner))),
            other => other.clone(),
        }
    }

    /// The same for what a sequence or optional holds: a dim that is not known outside takes the rank along, since no
    /// symbol could stand for it in every item.
    pub(super) fn item_leaving(&mut self, ty: &Type, inner: GraphId) -> Type {
        match ty {
            Type::Tensor(TensorType { dtype, dims: Some(dims) })
                if !dims.iter().all(|d| self.known_outside(*d, inner)) =>
            {
                Type::unranked(*dtype)
            }
            other => other.clone(),
        }
    }

    /// Whether a number depends on nothing inside `inner` and the bodies in it.
    pub(super) fn known_outside(&self, e: ExprId, inner: GraphId) -> bool {
        let exprs = &self.graph.exprs;
        let mut seen = HashSet::new();
        let mut open = vec![e];
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let e = exprs.get(id);
            open.extend(e.a.into_iter().chain(e.b));
            if e.op == ExprOp::Select {
                open.extend(u32::try_from(e.v).ok().and_then(ExprId::from_index));
            }
            if let Some(s) = exprs.as_symbol(id) {
                let owner = exprs.symbols()[s.index()].value;
                if self.is_inside(self.graph.value(owner).graph, inner) {
                    return false;
                }
            }
        }
        true
    }

    fn is_inside(&self, mut graph: GraphId, outer: GraphId) -> bool {
        loop {
            if graph == outer {
                return true;
            }
            match self.graph.body(graph).parent {
                Some(parent) => graph = self.graph.node(parent).graph,
                None => return false,
            }
        }
    }
}

/// What two types have in common without any dims that differ.
pub(super) fn joined(a: &Type, b: &Type) -> Result<Type> {
    Ok(match (a, b) {
        (a, b) if a == b => a.clone(),
        (Type::Unknown, other) | (other, Type::Unknown) => other.clone(),
        (Type::Tensor(x), Type::Tensor(y)) if x.dtype == y.dtype => Type::unranked(x.dtype),
        (Type::Sequence(x), Type::Sequence(y)) => Type::Sequence(Arc::new(joined(x, y)?)),
        (Type::Optional(x), Type::Optional(y)) => Type::Optional(Arc::new(joined(x, y)?)),
        // An optional may be given as its bare item by one side.
        (Type::Optional(x), y) | (y, Type::Optional(x)) => Type::Optional(Arc::new(joined(x, y)?)),
        (Type::Map(k, x), Type::Map(l, y)) if k == l => Type::Map(*k, Arc::new(joined(x, y)?)),
        (a, b) => {
            let message = format!("a value is {} on one way and {} on another", a.kind_name(), b.kind_name());
            return Err(Error::new(Code::BadType, message));
        }
    })
}

/// The type with nothing said of shapes.
pub(super) fn without_dims(ty: &Type) -> Type {
    match ty {
        Type::Tensor(t) => Type::unranked(t.dtype),
        Type::Sequence(t) => Type::Sequence(Arc::new(without_dims(t))),
        Type::Optional(t) => Type::Optional(Arc::new(without_dims(t))),
        other => other.clone(),
    }
}
