//! Operators with bodies: types flow into the bodies, through them, and out again.
//!
//! A carried value keeps a dim over all iterations if the body gives back what it got; other dims
//! become symbols of the body's input. Since a body is upgraded with the types that it has, it is walked again from
//! its first form when a carried type has to widen.

mod saved;

use std::sync::Arc;

use super::Walk;
use super::widen::{joined, without_dims};
use crate::error::{Code, Error, Result};
use crate::ir::{AttrValue, DType, Dims, ExprId, GraphId, Known, Node, NodeId, TensorType, Type, ValueId};
use crate::ops::Control;

/// In loops nested deeper than this carried values have no known dims from the start: each level may be walked
/// several times for one walk of the level around it.
const PRECISE_LOOPS: u32 = 3;

/// After so many rounds carried types that still change lose their dims, one round later all do.
const PATIENCE: u32 = 2;

impl Walk {
    pub(super) fn control(&mut self, id: NodeId, control: Control) -> Result<()> {
        match control {
            Control::If => self.branches(id),
            Control::Loop => self.iterate(id),
            Control::Scan => self.scan(id),
            Control::SequenceMap => self.map_items(id),
        }
    }

    fn branches(&mut self, id: NodeId) -> Result<()> {
        let (then, other) = (self.body_of(id, "then_branch")?, self.body_of(id, "else_branch")?);
        let wanted = self.graph.node(id).outputs.clone();
        let cond = self.input(id, 0).and_then(|v| self.graph.value(v).known.as_ref()?.first().copied());
        for (body, taken) in [(then, true), (other, false)] {
            self.has_outputs(body, wanted.len())?;
            let assumed = self.graph.assumptions.len();
            // Which branch is taken is often known only once sizes are, and the other one then contradicts them.
            self.lenient += 1;
            let done = self.body(body);
            self.lenient -= 1;
            done?;
            if let Some(cond) = cond {
                self.only_when(cond, taken, assumed);
            }
        }
        let taken = cond.and_then(|c| self.graph.exprs.truth(c));
        for (o, v) in wanted.into_iter().enumerate() {
            let Some(v) = v else { continue };
            let made = [then, other].map(|b| self.graph.body(b).outputs[o]);
            let ty = match (taken, self.ty(made[0]), self.ty(made[1])) {
                (Some(true), Some(a), _) => Some(self.leaving(&a, then, v, 0)),
                (Some(false), _, Some(b)) => Some(self.leaving(&b, other, v, 0)),
                (None, Some(a), Some(b)) => {
                    let (a, b) = (self.leaving(&a, then, v, 0), self.leaving(&b, other, v, 0));
                    Some(self.either(v, &a, &b, cond)?)
                }
                _ => None,
            };
            let known = self.either_known(made, [then, other], cond);
            let value = &mut self.graph.values[v.index()];
            (value.ty, value.known) = (ty, known);
        }
        Ok(())
    }

    /// What a branch takes for granted has to hold only when the branch is taken.
    fn only_when(&mut self, cond: ExprId, taken: bool, since: usize) {
        let exprs = &mut self.graph.exprs;
        let passed_by = if taken { exprs.not(cond) } else { cond };
        for a in &mut self.graph.assumptions[since..] {
            a.holds = exprs.or(passed_by, a.holds);
        }
    }

    /// Small integers that are known whichever branch is taken.
    fn either_known(&mut self, made: [ValueId; 2], bodies: [GraphId; 2], cond: Option<ExprId>) -> Known {
        let outside = |w: &Self, i: usize| {
            let known = w.graph.value(made[i]).known.clone()?;
            known.iter().all(|e| w.known_outside(*e, bodies[i])).then_some(known)
        };
        match cond.and_then(|c| self.graph.exprs.truth(c)) {
            Some(true) => return outside(self, 0),
            Some(false) => return outside(self, 1),
            None => {}
        }
        let (a, b) = (outside(self, 0)?, outside(self, 1)?);
        if a == b {
            return Some(a);
        }
        let cond = cond.filter(|_| a.len() == b.len() && self.ty(made[0]) == self.ty(made[1]))?;
        Some(a.iter().zip(b.iter()).map(|(x, y)| self.graph.exprs.select(cond, *x, *y)).collect())
    }

    fn iterate(&mut self, id: NodeId) -> Result<()> {
        let body = self.body_of(id, "body")?;
        let node = self.graph.node(id).clone();
        let carried: Vec<Option<ValueId>> = node.inputs.iter().skip(2).copied().collect();
        let inputs = self.graph.body(body).inputs.clone();
        if inputs.len() != carried.len() + 2 {
            return Err(self.mismatch(body, "inputs", carried.len() + 2, inputs.len()));
        }
        self.has_outputs(body, (node.outputs.len() + 1).max(carried.len() + 1))?;
        let (trips, cond) = (self.input(id, 0), self.input(id, 1));
        self.scalar(inputs[0], DType::I64)?;
        self.scalar(inputs[1], DType::Bool)?;
        // The body only ever runs when the condition holds.
        let one = self.graph.exprs.constant(1);
        self.graph.values[inputs[1].index()].known = Some([one].into());
        let first: Vec<Option<Type>> = carried.iter().map(|v| v.and_then(|v| self.ty(v))).collect();
        let types = self.settle_carried(body, &inputs[2..], first, 1)?;
        for (i, ty) in types.iter().enumerate() {
            self.set_outer(&node, i, ty.as_ref(), body);
        }
        let count = self.trip_count(body, trips, cond);
        self.stacked(&node, body, carried.len(), 1 + carried.len(), count, &[])
    }

    /// How often a Loop runs, if only its trip count decides.
    fn trip_count(&mut self, body: GraphId, trips: Option<ValueId>, cond: Option<ValueId>) -> Option<ExprId> {
        let holds = |w: &Self, v: ValueId| {
            let known = w.graph.value(v).known.as_ref();
            known.and_then(|k| w.graph.exprs.truth(*k.first()?)) == Some(true)
        };
        let known = *self.graph.value(trips?).known.as_ref()?.first()?;
        let always = holds(self, self.graph.body(body).outputs[0]) && cond.is_none_or(|c| holds(self, c));
        let zero = self.graph.exprs.constant(0);
        always.then(|| self.graph.exprs.max(known, zero))
    }

    fn scan(&mut self, id: NodeId) -> Result<()> {
        let body = self.body_of(id, "body")?;
        let node = self.graph.node(id).clone();
        let rows = node.attr("num_scan_inputs").and_then(AttrValue::as_int).and_then(|n| usize::try_from(n).ok());
        let rows = rows.filter(|n| (1..=node.inputs.len()).contains(n)).ok_or_else(|| {
            Error::new(
                Code::BadAttribute,
                format!("num_scan_inputs is not between 1 and the {} inputs", node.inputs.len()),
            )
        })?;
        let states = node.inputs.len() - rows;
        let inputs = self.graph.body(body).inputs.clone();
        if inputs.len() != node.inputs.len() {
            return Err(self.mismatch(body, "inputs", node.inputs.len(), inputs.len()));
        }
        self.has_outputs(body, node.outputs.len().max(states))?;
        let axes = node.attr("scan_input_axes").and_then(AttrValue::as_ints).unwrap_or(&[]).to_vec();
        let mut length = None;
        for i in 0..rows {
            let ty = self.input(id, states + i).and_then(|v| self.ty(v));
            let ty = self.row(ty, axes.get(i).copied().unwrap_or(0), &mut length)?;
            self.graph.values[inputs[states + i].index()].ty = ty;
        }
        let first: Vec<Option<Type>> = (0..states).map(|i| self.input(id, i).and_then(|v| self.ty(v))).collect();
        let types = self.settle_carried(body, &inputs[..states], first, 0)?;
        for (i, ty) in types.iter().enumerate() {
            self.set_outer(&node, i, ty.as_ref(), body);
        }
        let axes = node.attr("scan_output_axes").and_then(AttrValue::as_ints).unwrap_or(&[]).to_vec();
        self.stacked(&node, body, states, states, length, &axes)
    }

    /// A scan input without its scanned axis, whose size is `length` for all of them.
    fn row(&mut self, ty: Option<Type>, axis: i64, length: &mut Option<ExprId>) -> Result<Option<Type>> {
        let Some(Type::Tensor(t)) = ty else { return Ok(ty) };
        let Some(mut dims) = t.dims else { return Ok(Some(Type::unranked(t.dtype))) };
        let at = position(axis, dims.len())?;
        let size = dims.remove(at);
        match *length {
            Some(known) if self.graph.exprs.as_const(known).is_some() => {
                let differ = self.graph.exprs.eq(known, size);
                if self.graph.exprs.truth(differ) == Some(false) {
                    let (a, b) = (self.graph.exprs.show(known), self.graph.exprs.show(size));
                    return Err(Error::new(Code::Infer, format!("scan inputs have {a} and {b} rows")));
                }
            }
            _ => *length = Some(size),
        }
        Ok(Some(Type::Tensor(TensorType { dtype: t.dtype, dims: Some(dims) })))
    }

    fn map_items(&mut self, id: NodeId) -> Result<()> {
        let body = self.body_of(id, "body")?;
        let node = self.graph.node(id).clone();
        let inputs = self.graph.body(body).inputs.clone();
        if inputs.len() != node.inputs.len() {
            return Err(self.mismatch(body, "inputs", node.inputs.len(), inputs.len()));
        }
        self.has_outputs(body, node.outputs.len())?;
        for (i, inner) in inputs.into_iter().enumerate() {
            let ty = match self.input(id, i).and_then(|v| self.ty(v)) {
                Some(Type::Sequence(item)) => Some((*item).clone()),
                other => other,
            };
            self.graph.values[inner.index()].ty = ty;
        }
        self.body(body)?;
        for (o, v) in node.outputs.iter().enumerate() {
            let Some(v) = v else { continue };
            let made = self.graph.body(body).outputs[o];
            let item = self.ty(made).map(|t| self.item_leaving(&t, body));
            self.graph.values[v.index()].ty = item.map(|t| Type::Sequence(Arc::new(t)));
        }
        Ok(())
    }

    /// Walks a body until its carried inputs have types that an iteration keeps. Outputs from `skip` on are theirs.
    fn settle_carried(
        &mut self,
        body: GraphId,
        inputs: &[ValueId],
        mut types: Vec<Option<Type>>,
        skip: usize,
    ) -> Result<Vec<Option<Type>>> {
        if self.loops >= PRECISE_LOOPS {
            types.iter_mut().flatten().for_each(|t| *t = without_dims(t));
        }
        let saved = self.save(body);
        for round in 0.. {
            for (v, ty) in inputs.iter().zip(&types) {
                self.graph.values[v.index()].ty = ty.clone();
            }
            self.loops += 1;
            let walked = self.body(body);
            self.loops -= 1;
            walked?;
            let outputs = &self.graph.body(body).outputs;
            let made: Vec<Option<Type>> = outputs.iter().skip(skip).map(|v| self.ty(*v)).collect();
            let mut next = Vec::with_capacity(types.len());
            for ((ty, made), v) in types.iter().zip(made).zip(inputs) {
                let place = |e: Error| e.within(format!("carried value '{}'", self.graph.value(*v).name));
                next.push(match (ty, made) {
                    (Some(ty), Some(made)) => {
                        let wider = joined(ty, &made).map_err(place)?;
                        let wider = if *ty == made { wider } else { self.carried(*v, ty, &made).unwrap_or(wider) };
                        Some(if round >= PATIENCE && wider != *ty { without_dims(&wider) } else { wider })
                    }
                    (None, made) => made.map(|t| without_dims(&t)).filter(|_| round == 0),
                    (Some(_), None) => None,
                });
            }
            if next == types {
                return Ok(types);
            }
            if round > PATIENCE {
                next.iter_mut().flatten().for_each(|t| *t = without_dims(t));
            }
            self.restore(&saved);
            types = next;
        }
        unreachable!("carried types only ever lose dims, and there is a first round without any")
    }

    /// A carried tensor's type before an iteration, given what the iteration makes of it; `None` when ranks differ.
    fn carried(&mut self, input: ValueId, before: &Type, made: &Type) -> Option<Type> {
        let (Type::Tensor(TensorType { dtype, dims: Some(before) }), Type::Tensor(TensorType { dims: Some(made), .. })) =
            (before, made)
        else {
            return None;
        };
        if before.len() != made.len() {
            return None;
        }
        let own = |w: &Self, d: ExprId| {
            let symbol = w.graph.exprs.as_symbol(d).map(|s| &w.graph.exprs.symbols()[s.index()]);
            symbol.is_some_and(|s| s.value == input)
        };
        let mut dims = Dims::new();
        for (axis, (b, m)) in before.iter().zip(made).enumerate() {
            dims.push(if b == m || own(self, *b) { *b } else { self.fresh(input, axis) });
        }
        Some(Type::Tensor(TensorType { dtype: *dtype, dims: Some(dims) }))
    }

    /// Outputs that stack what every iteration makes: node outputs from `first` on are body outputs from `skip` on.
    fn stacked(
        &mut self,
        node: &Node,
        body: GraphId,
        first: usize,
        skip: usize,
        length: Option<ExprId>,
        axes: &[i64],
    ) -> Result<()> {
        let mut length = length;
        for (k, v) in node.outputs.iter().skip(first).enumerate() {
            let Some(v) = *v else { continue };
            let made = self.graph.body(body).outputs[skip + k];
            let Some(Type::Tensor(row)) = self.ty(made) else { continue };
            let ty = match &row.dims {
                None => Type::unranked(row.dtype),
                Some(dims) => {
                    let at = position(axes.get(k).copied().unwrap_or(0), dims.len() + 1)?;
                    let Type::Tensor(mut t) = self.leaving(&Type::Tensor(row.clone()), body, v, 0) else { continue };
                    let count = *length.get_or_insert_with(|| self.fresh(v, at));
                    if let Some(outer) = &mut t.dims {
                        // Fresh dims were numbered as if the stacked axis were not there.
                        for (axis, (d, inner)) in outer.iter_mut().zip(dims).enumerate().skip(at) {
                            if d != inner {
                                *d = self.fresh(v, axis + 1);
                            }
                        }
                        outer.insert(at, count);
                    }
                    Type::Tensor(t)
                }
            };
            self.graph.values[v.index()].ty = Some(ty);
        }
        Ok(())
    }

    fn set_outer(&mut self, node: &Node, o: usize, ty: Option<&Type>, body: GraphId) {
        if let (Some(v), Some(ty)) = (node.outputs.get(o).copied().flatten(), ty) {
            let ty = self.leaving(ty, body, v, 0);
            self.graph.values[v.index()].ty = Some(ty);
        }
    }

    /// The type of an iteration's number or condition: a scalar, or a vector of one where the body declares that.
    fn scalar(&mut self, v: ValueId, dtype: DType) -> Result<()> {
        let declared = self.declared_type(v)?;
        let rank = declared.as_ref().and_then(Type::as_tensor).and_then(TensorType::rank);
        let one = self.graph.exprs.constant(1);
        let dims = std::iter::repeat_n(one, rank.unwrap_or(0).min(1));
        self.graph.values[v.index()].ty = Some(Type::tensor(dtype, dims));
        Ok(())
    }

    fn input(&self, id: NodeId, i: usize) -> Option<ValueId> {
        self.graph.node(id).inputs.get(i).copied().flatten()
    }

    fn ty(&self, v: ValueId) -> Option<Type> {
        self.graph.value(v).ty.clone()
    }

    fn body_of(&self, id: NodeId, name: &str) -> Result<GraphId> {
        match self.graph.node(id).attr(name) {
            Some(AttrValue::Graph(g)) => Ok(*g),
            _ => Err(Error::new(Code::BadAttribute, format!("attribute '{name}' (graph) is required but absent"))),
        }
    }

    fn has_outputs(&self, body: GraphId, at_least: usize) -> Result<()> {
        let found = self.graph.body(body).outputs.len();
        if found >= at_least { Ok(()) } else { Err(self.mismatch(body, "outputs", at_least, found)) }
    }

    fn mismatch(&self, body: GraphId, what: &str, needed: usize, found: usize) -> Error {
        let name = &self.graph.body(body).name;
        Error::new(Code::NodeInputs, format!("its body '{name}' has {found} {what}, but {needed} are needed"))
    }
}

fn position(axis: i64, rank: usize) -> Result<usize> {
    let r = i64::try_from(rank).unwrap_or(i64::MAX);
    let at = if axis < 0 { axis.saturating_add(r) } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|a| *a < rank)
        .ok_or_else(|| Error::new(Code::Infer, format!("axis {axis} is outside a tensor of rank {rank}")))
}
