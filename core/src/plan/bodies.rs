//! Plans of control-flow nodes: branches made in the slots of their node, loops with what they carry, walk and stack.

use std::collections::HashSet;

use ortolan_graph::ir::{GraphId, NodeId, Type};
use ortolan_graph::ops::Control;

use super::build::{Builder, Scope, made};
use super::{Body, Carried, LoopStep, Rows, ScanStep, Slot, SlotInfo, Stack, Step, control, deaths};
use crate::error::{Error, Result, codes};
use crate::value::SpaceId;

impl Builder<'_> {
    pub(super) fn control(&mut self, id: NodeId, graph: GraphId, steps: &mut Vec<Step>) -> Result<()> {
        let node = self.graph.node(id);
        let mut inputs = Vec::new();
        for input in &node.inputs {
            inputs.push(match input {
                Some(v) => Some(self.on_host(*v, graph, steps)?),
                None => None,
            });
        }
        let outputs: Vec<Option<Slot>> = node.outputs.iter().map(|o| o.map(|v| self.slot(v, graph))).collect();
        self.pinned.extend(outputs.iter().flatten());
        let step = match control::kind(node) {
            Some(Control::If) => self.conditional(id, &inputs, &outputs),
            Some(Control::Loop) => self.repeat(id, &inputs, &outputs),
            Some(Control::Scan) => self.scan(id, &inputs, &outputs),
            _ => None,
        };
        match step {
            Some(step) => {
                steps.append(&mut self.hoisted);
                steps.push(step?);
            }
            None => {
                return Err(
                    Error::new(codes::INTERNAL, "the node's bodies do not fit it").within(node.place(self.graph))
                );
            }
        }
        Ok(())
    }

    fn conditional(&mut self, id: NodeId, ins: &[Option<Slot>], outs: &[Option<Slot>]) -> Option<Result<Step>> {
        let node = self.graph.node(id);
        let cond = (*ins.first()?)?;
        let (then, els) = (control::body(node, control::branch(true))?, control::body(node, control::branch(false))?);
        let build = |b: &mut Self| {
            let (then, els) = (b.branch(then, outs)?, b.branch(els, outs)?);
            Ok(Step::If { node: id.raw(), cond, then, els, deaths: Box::new([]) })
        };
        Some(build(self))
    }

    /// A branch whose outputs are made in the node's slots where possible.
    fn branch(&mut self, body: GraphId, outs: &[Option<Slot>]) -> Result<Body> {
        let outputs = self.graph.body(body).outputs.clone();
        for (&value, out) in outputs.iter().zip(outs) {
            let v = self.graph.value(value);
            let made_here = v.graph == body && v.producer.is_some() && !self.home.contains_key(&value);
            // What runs once keeps its result in a slot of its own.
            let made_here = made_here && !self.split.parts.iter().any(|p| p.once && p.outputs.contains(&value.raw()));
            if let (true, Some(slot)) = (made_here, out) {
                self.home.insert(value, *slot);
            }
        }
        let (mut steps, before) = (Vec::new(), self.moved.clone());
        let around = self.graph.body(body).parent.map_or(GraphId::MAIN, |n| self.graph.node(n).graph);
        self.scopes.push(Scope { body, around, repeats: false, before: Vec::new() });
        steps.extend(self.graph(body)?);
        let mut results = Vec::new();
        for (&value, out) in outputs.iter().zip(outs) {
            let Some(to) = *out else { continue };
            let from = self.on_host(value, body, &mut steps)?;
            if from != to {
                results.push((from, to));
            }
        }
        self.scopes.pop();
        self.moved = before;
        Ok(self.body(body, steps, results))
    }

    fn body(&mut self, graph: GraphId, mut steps: Vec<Step>, results: Vec<(Slot, Slot)>) -> Body {
        let kept: Vec<Slot> = results.iter().map(|r| r.0).collect();
        self.finish(&mut steps, graph, &kept);
        let mine = self.owners.iter().zip(0u32..).filter(|(g, _)| **g == graph).map(|(_, slot)| slot);
        let fixed = self.fixed();
        let locals = mine.filter(|s| !fixed.contains(s)).collect();
        Body { steps: steps.into(), locals, results: results.into() }
    }

    /// Sets where values of a graph die; `kept` are needed after its last step.
    pub(super) fn finish(&self, steps: &mut [Step], graph: GraphId, kept: &[Slot]) {
        let fixed = self.fixed();
        let mine = self.owners.iter().zip(0u32..).filter(|(g, _)| **g == graph).map(|(_, slot)| slot);
        let local = mine.filter(|s| !kept.contains(s) && !fixed.contains(s)).collect();
        deaths::set(steps, &local);
    }

    /// Slots whose value is there before a run begins and stays.
    pub(super) fn fixed(&self) -> HashSet<Slot> {
        self.presets.iter().map(|p| p.0).chain(self.once.iter().flat_map(made)).collect()
    }

    /// Sizes of a body's output as far as they are fixed, 0 where they are not.
    fn fixed_shape(&self, body: GraphId, output: usize) -> Box<[i64]> {
        let value = self.graph.value(self.graph.body(body).outputs[output]);
        let dims = value.ty.as_ref().and_then(Type::as_tensor).and_then(|t| t.dims.as_ref());
        dims.map_or_else(Box::default, |dims| {
            dims.iter().map(|&d| self.graph.exprs().as_const(d).unwrap_or(0)).collect()
        })
    }

    /// Slots of a body's inputs.
    fn body_inputs(&mut self, body: GraphId) -> Vec<Slot> {
        let inputs = self.graph.body(body).inputs.clone();
        inputs.into_iter().map(|v| self.slot(v, body)).collect()
    }

    /// The steps of a loop's body and the slots of its outputs, all different and none an input's.
    fn loop_body(&mut self, body: GraphId, inputs: &[Slot]) -> Result<(Vec<Step>, Vec<Slot>)> {
        let around = self.graph.body(body).parent.map_or(GraphId::MAIN, |n| self.graph.node(n).graph);
        self.scopes.push(Scope { body, around, repeats: true, before: Vec::new() });
        let mut steps = self.graph(body)?;
        let mut outs: Vec<Slot> = Vec::new();
        for &value in &self.graph.body(body).outputs.clone() {
            let slot = self.on_host(value, body, &mut steps)?;
            let own = self.owners[slot as usize] == body && !self.fixed().contains(&slot);
            if own && !outs.contains(&slot) && !inputs.contains(&slot) {
                outs.push(slot);
                continue;
            }
            let info = SlotInfo { output: None, defines: Box::new([]), ..self.info(value) };
            let to = self.new_slot(info, SpaceId::HOST, body);
            steps.push(Step::Share { from: slot, to, deaths: Box::new([]) });
            outs.push(to);
        }
        self.hoisted.extend(self.scopes.pop().into_iter().flat_map(|s| s.before));
        // Copies made before the loop stay; those in it are of an iteration.
        let mut moved = std::mem::take(&mut self.moved);
        moved.retain(|_, to| !self.is_inside(self.owners[*to as usize], body));
        self.moved = moved;
        Ok((steps, outs))
    }

    fn repeat(&mut self, id: NodeId, ins: &[Option<Slot>], outs: &[Option<Slot>]) -> Option<Result<Step>> {
        let body = control::body(self.graph.node(id), "body")?;
        let count = ins.len().checked_sub(2)?;
        let inside = self.body_inputs(body);
        let ends = self.graph.body(body).outputs.len();
        let initial: Vec<Slot> = ins[2..].iter().copied().collect::<Option<_>>()?;
        if inside.len() != count + 2 || ends < count + 1 || outs.len() > ends - 1 {
            return None;
        }
        let (steps, next) = match self.loop_body(body, &inside) {
            Ok(found) => found,
            Err(e) => return Some(Err(e)),
        };
        let out = |k: usize| outs.get(k).copied().flatten();
        let carried = carried(&initial, &inside[2..], &next[1..], out);
        let stack = |k: usize| {
            let empty = self.fixed_shape(body, k);
            Stack { from: next[k], to: out(k - 1), axis: 0, reverse: false, empty }
        };
        let scans = (count + 1..ends).map(stack).collect();
        let body = self.loop_end(body, steps, &next);
        let step = LoopStep {
            node: id.raw(),
            trip: ins[0],
            cond: ins[1],
            iter_in: inside[0],
            cond_in: inside[1],
            cond_out: next[0],
            carried,
            scans,
            body,
        };
        Some(Ok(Step::Loop { step: Box::new(step), deaths: Box::new([]) }))
    }

    fn scan(&mut self, id: NodeId, ins: &[Option<Slot>], outs: &[Option<Slot>]) -> Option<Result<Step>> {
        let node = self.graph.node(id);
        let body = control::body(node, "body")?;
        let rows = usize::try_from(node.attr("num_scan_inputs")?.as_int()?).ok()?;
        let states = ins.len().checked_sub(rows)?;
        let inside = self.body_inputs(body);
        let ends = self.graph.body(body).outputs.len();
        let from: Vec<Slot> = ins.iter().copied().collect::<Option<_>>()?;
        if inside.len() != ins.len() || ends < states || outs.len() > ends {
            return None;
        }
        let made = ends - states;
        let ints = |attr: &str, count: usize| control::ints(node, attr, count, 0);
        let (in_axes, in_dirs) = (ints("scan_input_axes", rows), ints("scan_input_directions", rows));
        let (out_axes, out_dirs) = (ints("scan_output_axes", made), ints("scan_output_directions", made));
        let (steps, next) = match self.loop_body(body, &inside) {
            Ok(found) => found,
            Err(e) => return Some(Err(e)),
        };
        let out = |k: usize| outs.get(k).copied().flatten();
        let row = |k: usize| {
            let (from, inside) = (from[states + k], inside[states + k]);
            Rows { from, inside, axis: in_axes[k], reverse: in_dirs[k] == 1 }
        };
        let stack = |k: usize| {
            let (from, to, empty) = (next[states + k], out(states + k), self.fixed_shape(body, states + k));
            Stack { from, to, axis: out_axes[k], reverse: out_dirs[k] == 1, empty }
        };
        let (rows, scans) = ((0..rows).map(row).collect(), (0..made).map(stack).collect());
        let states = carried(&from[..states], &inside[..states], &next[..states], out);
        let body = self.loop_end(body, steps, &next);
        let step = ScanStep { node: id.raw(), states, rows, scans, body };
        Some(Ok(Step::Scan { step: Box::new(step), deaths: Box::new([]) }))
    }

    fn loop_end(&mut self, body: GraphId, mut steps: Vec<Step>, next: &[Slot]) -> Body {
        self.finish(&mut steps, body, next);
        let mut made = self.body(body, Vec::new(), Vec::new());
        made.steps = steps.into();
        made
    }
}

fn carried(initial: &[Slot], inside: &[Slot], next: &[Slot], out: impl Fn(usize) -> Option<Slot>) -> Box<[Carried]> {
    let all = initial.iter().zip(inside).zip(next).enumerate();
    all.map(|(k, ((&initial, &inside), &next))| Carried { initial, inside, next, result: out(k) }).collect()
}
