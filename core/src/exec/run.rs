//! Walks the steps of a plan on a lane.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ortolan_ep_abi::raw::{self, OK, VALUE_DONATED, WANT_ANY, WANT_HOST};

use smallvec::SmallVec;

use super::cancel::stopped;
use super::frame::{Frame, into_bound};
use super::lane::{Lane, State};
use super::pending::Pending;
use super::slot::{Held, Late, recycle};
use crate::abi::{Copying, Ctx, EpHandle, Fence, Kind, copy, host_table, now, raw_tensor, space_name};
use crate::error::{Error, Result, codes};
use crate::plan::{Plan, RunStep, Slot, Step, made};
use crate::value::{Buffer, Input, SpaceId, Tensor, TensorView, Value};

/// A run in progress.
pub(crate) struct Run<'r> {
    pub plan: &'r Plan,
    pub lane: &'r mut Lane,
    pub cancel: &'r AtomicU32,
    pub width: u32,
    /// Buffers that the user bound, by output of the model.
    pub bound: &'r [Option<Tensor>],
}

impl<'r> Run<'r> {
    /// Runs the plan. Inputs are in their slots and bound.
    pub fn all(&mut self) -> Result<()> {
        let plan = self.plan;
        let result = self.steps(&plan.steps);
        let settled = self.settle();
        result.and(settled).map_err(|e| self.in_time(e))
    }

    /// Says "timeout" where the time was up.
    fn in_time(&self, error: Error) -> Error {
        match stopped(self.cancel) {
            Err(stopped) if error.is(codes::CANCELLED) => stopped,
            _ => error,
        }
    }

    pub fn steps(&mut self, steps: &'r [Step]) -> Result<()> {
        for step in steps {
            stopped(self.cancel)?;
            let (done, deaths) = match step {
                Step::Run(run) => (self.part(run), &run.deaths),
                Step::Copy { moves, space, deaths } => (self.copy(moves, *space), deaths),
                Step::Share { from, to, deaths } => (self.share(*from, *to), deaths),
                Step::If { cond, then, els, deaths, .. } => (self.conditional(*cond, then, els), deaths),
                Step::Loop { step, deaths } => (self.repeat(step), deaths),
                Step::Scan { step, deaths } => (self.scan(step), deaths),
            };
            match step.node() {
                Some(node) => done.map_err(|e| e.within(self.plan.place(node)))?,
                None => done?,
            }
            self.bury(deaths);
        }
        Ok(())
    }

    /// Gives up what nobody reads any more.
    fn bury(&mut self, deaths: &[Slot]) {
        let state = &mut self.lane.state;
        for &slot in deaths {
            let slot = &mut state.slots[slot as usize];
            if slot.late != Late::No && !state.pending.is_empty() {
                state.hold.push(slot.take());
            } else {
                slot.clear(&mut state.memory);
            }
        }
    }

    fn part(&mut self, step: &'r RunStep) -> Result<()> {
        let part = &self.plan.parts[step.part as usize];
        if !self.lane.state.pending.is_empty() {
            self.settle_for(step)?;
        }
        let mut elsewhere = false;
        let Lane { ins, state, .. } = &mut *self.lane;
        let ins = &mut ins[..step.ins.len()];
        for (at, input) in step.ins.iter().enumerate() {
            let slot = &state.slots[input.slot as usize];
            ins[at] = slot.raw;
            let backup = !state.backups.is_empty() && state.backups.contains(&input.slot);
            if input.last && slot.late == Late::No && slot.is_sole(backup) {
                ins[at].flags |= VALUE_DONATED;
            }
            elsewhere |= slot.raw.space != input.space.0 && input.space != SpaceId::ANYWHERE;
        }
        // Copies live until the EP has returned.
        let fence = if elsewhere {
            let _copies = self.fetch(step)?;
            self.call(step, part)?
        } else {
            self.call(step, part)?
        };
        if let Some(fence) = fence {
            self.defer(step, fence);
        }
        self.made(step, part.ep())
    }

    /// Calls the EP.
    fn call(&mut self, step: &'r RunStep, part: &crate::abi::PartHandle) -> Result<Option<Arc<Fence>>> {
        let (plan, cancel, width) = (self.plan, self.cancel, self.width);
        let Lane { plugin, ins, state, .. } = &mut *self.lane;
        let start = state.recorder.is_some().then(now);
        let (symbols, binding) = (state.symbols.as_ptr(), state.binding);
        let inputs = &ins[..step.ins.len()];
        let kept = if state.keep.is_empty() { Vec::new() } else { kept_wants(plan, step, state) };
        let wants = if kept.is_empty() { &step.wants[..] } else { &kept };
        let mut frame = Frame { plan, step, state, bound: self.bound, inputs, fence: None };
        let ctx = Ctx::new(part.ep().name(), width, Some(cancel), Kind::Run(UnsafeCell::new(&mut frame)));
        let call = raw::Call {
            host: host_table(),
            ctx: ctx.as_raw(),
            inputs: inputs.as_ptr(),
            wants: wants.as_ptr(),
            symbols,
            binding,
            cancel: cancel.as_ptr().cast_const(),
            input_count: inputs.len() as u32,
            output_count: step.outs.len() as u32,
            symbol_count: plan.binder.symbols as u32,
            width,
            flags: if start.is_some() { raw::CALL_PROFILE } else { 0 },
        };
        // SAFETY: the call is complete, and the EP's lane is this lane's own, used by this thread only.
        let status = unsafe { part.run(&mut plugin[step.part as usize], &call) };
        let outcome = match status {
            Ok(OK) => Ok(()),
            Ok(status) => ctx.outcome(status, codes::EP_FAILED, &|node| plan.place_in(part.ep(), node)),
            Err(refusal) => Err(Error::from(refusal).from_ep(part.ep().name(), None)),
        };
        let fence = frame.fence;
        state.memory.end_part();
        if !kept.is_empty() {
            state.wants = kept;
        }
        if !state.loose.is_empty() {
            state.loose.clear();
        }
        if let (Some(start), Some(recorder)) = (start, &mut state.recorder) {
            recorder.host("run", Some(step.part), start, 0);
        }
        match (outcome, fence) {
            (Ok(()), fence) => Ok(fence),
            (Err(error), None) => Err(self.failed(step.part, error)),
            (Err(error), Some(fence)) => {
                // It failed and will still finish: nothing it has may go before.
                let error = self.failed(step.part, error);
                self.defer(step, fence);
                self.settle().and(Err(error))
            }
        }
    }

    /// An error of a part, which may be that the device is gone. It says where, if the EP does not.
    #[cold]
    pub fn failed(&self, part: u32, error: Error) -> Error {
        let error = self.plan.parts[part as usize].ep().noted(error);
        if error.has_place() || error.is(codes::CANCELLED) { error } else { error.within(self.plan.part_place(part)) }
    }

    /// Checks that all outputs were made, brings them where they were wanted, and binds what they fix.
    fn made(&mut self, step: &RunStep, ep: &Arc<EpHandle>) -> Result<()> {
        for (at, &slot) in step.outs.iter().enumerate() {
            let (state, want) = (&self.lane.state.slots[slot as usize], step.wants[at]);
            if state.is_empty() {
                let text = format!("run made no output {at} ('{}')", self.plan.slots[slot as usize].name);
                return Err(Error::new(codes::EP_FAULT, text).from_ep(ep.name(), None));
            }
            if want == WANT_HOST && state.raw.space != 0 && !self.is_kept(slot) {
                self.bring_home(slot)?;
            }
        }
        if step.defines {
            self.settle_elements(&step.outs)?;
            self.define(&step.outs)?;
        }
        Ok(())
    }

    /// Waits for values whose elements are sizes of others.
    fn settle_elements(&mut self, outs: &[Slot]) -> Result<()> {
        let element = |s: &Slot| self.plan.slots[*s as usize].defines.iter().any(|d| d.element);
        if !self.lane.state.pending.is_empty() && outs.iter().any(element) {
            return self.settle_slots(outs);
        }
        Ok(())
    }

    /// Whether a slot's value stays where the EP leaves it, because the caller keeps it for the next run.
    fn is_kept(&self, slot: Slot) -> bool {
        let output = self.plan.slots[slot as usize].output;
        output.is_some_and(|k| self.lane.state.keep.contains(&k))
    }

    /// A value that was to be in host memory and is not.
    #[cold]
    fn bring_home(&mut self, slot: Slot) -> Result<()> {
        self.settle_slots(&[slot])?;
        let Some(tensor) = self.lane.state.slots[slot as usize].tensor() else { return Ok(()) };
        let mut moved = self.moved_one(tensor, SpaceId::HOST)?;
        let info = &self.plan.slots[slot as usize];
        if let Some(bound) = info.output.and_then(|k| self.bound.get(k as usize)).and_then(Option::as_ref) {
            moved = into_bound(info, bound, &moved)?;
        }
        self.lane.state.extra_copies += 1;
        self.lane.state.slots[slot as usize].set_tensor(moved);
        Ok(())
    }

    /// Copies of inputs that are not where the part wants them, and their structs in place.
    #[cold]
    #[expect(clippy::vec_box, reason = "the structs point to their shapes, so they must not move")]
    fn fetch(&mut self, step: &RunStep) -> Result<Vec<Box<Tensor>>> {
        let slots: Vec<Slot> = step.ins.iter().map(|i| i.slot).collect();
        self.settle_slots(&slots)?;
        let mut kept = Vec::new();
        for (at, input) in step.ins.iter().enumerate() {
            let state = &self.lane.state.slots[input.slot as usize];
            let there = state.raw.space == input.space.0 || input.space == SpaceId::ANYWHERE;
            if there || state.raw.kind != raw::VALUE_TENSOR {
                continue;
            }
            let Some(tensor) = self.owned(input.slot)? else { continue };
            let moved = Box::new(self.moved_one(tensor, input.space)?);
            self.lane.state.extra_copies += 1;
            self.lane.ins[at] = raw_tensor(&moved);
            kept.push(moved);
        }
        Ok(kept)
    }

    /// The tensor of a slot; one that is lent is copied.
    pub fn owned(&mut self, slot: Slot) -> Result<Option<Tensor>> {
        let state = &mut self.lane.state;
        let s = &state.slots[slot as usize];
        if !s.is_lent() {
            return Ok(s.tensor());
        }
        let info = &self.plan.slots[slot as usize];
        let Some(dtype) = info.dtype else { return Ok(None) };
        // SAFETY: a lent tensor's shape and data are valid for the run.
        let (shape, data) = unsafe {
            (raw::slice(s.raw.shape, s.raw.rank as usize), raw::slice(s.raw.data.cast_const(), s.raw.bytes as usize))
        };
        let buffer = match info.output {
            Some(k) => state.memory.output(k as usize, data.len()),
            None => state.memory.buffer(data.len()),
        };
        let buffer = buffer?;
        // SAFETY: the buffer has that many bytes and is nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), buffer.ptr(), data.len()) };
        Ok(Some(Tensor { dtype, shape: shape.into(), buffer, at: 0, bytes: data.len() }))
    }

    fn moved_one(&mut self, tensor: Tensor, to: SpaceId) -> Result<Tensor> {
        let made = self.moved(std::slice::from_ref(&tensor), to)?.pop();
        made.ok_or_else(|| Error::new(codes::INTERNAL, "a copy of one value gave none"))
    }

    /// Tensors in another memory space; those that lie in one space go together.
    fn moved(&mut self, tensors: &[Tensor], to: SpaceId) -> Result<Vec<Tensor>> {
        let mut made: Vec<Option<Tensor>> = vec![None; tensors.len()];
        while let Some(first) = made.iter().position(Option::is_none) {
            let from = tensors[first].space();
            let group: Vec<usize> = (first..tensors.len()).filter(|&k| tensors[k].space() == from).collect();
            let all: Vec<&Tensor> = group.iter().map(|&k| &tensors[k]).collect();
            let new = self.moved_from(from, &all, to)?;
            group.into_iter().zip(new).for_each(|(k, t)| made[k] = Some(t));
        }
        Ok(made.into_iter().flatten().collect())
    }

    /// Tensors of one space in another; from one device to another through the host.
    fn moved_from(&mut self, from: SpaceId, tensors: &[&Tensor], to: SpaceId) -> Result<Vec<Tensor>> {
        if from == to {
            return Ok(tensors.iter().map(|&t| t.clone()).collect());
        }
        if from != SpaceId::HOST && to != SpaceId::HOST {
            let staged = self.moved_from(from, tensors, SpaceId::HOST)?;
            return self.moved_from(SpaceId::HOST, &staged.iter().collect::<Vec<_>>(), to);
        }
        let start = self.lane.state.recorder.is_some().then(now);
        let device = if to == SpaceId::HOST { from } else { to };
        let plan = self.plan;
        let moved = match plan.owner(device) {
            Some(ep) => {
                let memory = &mut self.lane.state.memory;
                let mut make = |bytes| memory.buffer(bytes).map_err(Error::from);
                let place = |node| plan.place_in(ep, node);
                let copying = Copying { cancel: Some(self.cancel), place: Some(&place) };
                copy(ep, tensors, to, &copying, &mut make)?
            }
            None if to == SpaceId::HOST => tensors.iter().map(|t| t.to_host()).collect::<Result<_>>()?,
            None => {
                let text = format!("no execution provider of the session copies to '{}'", space_name(to));
                return Err(Error::new(codes::NO_COPY, text));
            }
        };
        if let (Some(start), Some(recorder)) = (start, &mut self.lane.state.recorder) {
            recorder.host("copy", None, start, tensors.iter().map(|t| t.bytes as u64).sum());
        }
        Ok(moved)
    }

    fn copy(&mut self, moves: &[(Slot, Slot)], space: SpaceId) -> Result<()> {
        self.settle_slots(&moves.iter().map(|m| m.0).collect::<SmallVec<[Slot; 8]>>())?;
        let (mut tensors, mut to) = (Vec::with_capacity(moves.len()), SmallVec::<[(Slot, bool); 8]>::new());
        for &(from, there) in moves {
            let lent = self.lane.state.slots[from as usize].is_lent();
            match self.owned(from)? {
                Some(tensor) => {
                    tensors.push(tensor);
                    to.push((there, lent));
                }
                None => {
                    let value = match self.lane.state.slots[from as usize].composite() {
                        Some(value) => value.to_host()?,
                        None => return Err(self.missing(from)),
                    };
                    self.lane.state.slots[there as usize].set(value);
                }
            }
        }
        let made = self.moved(&tensors, space).map_err(|e| self.copying(moves, space, e))?;
        for (((slot, lent), tensor), staged) in to.into_iter().zip(made).zip(tensors) {
            self.lane.state.slots[slot as usize].set_tensor(tensor);
            if lent {
                recycle(Value::Tensor(staged), &mut self.lane.state.memory);
            }
        }
        Ok(())
    }

    /// An error of a copy, which names what was copied.
    #[cold]
    fn copying(&self, moves: &[(Slot, Slot)], space: SpaceId, error: Error) -> Error {
        let names = moves.iter().map(|m| format!("'{}'", self.plan.slots[m.0 as usize].name)).collect::<Vec<_>>();
        error.within(format!("copying {} to '{}'", names.join(", "), space_name(space)))
    }

    pub fn missing(&self, slot: Slot) -> Error {
        let text = format!("'{}' is read before anything made it", self.plan.slots[slot as usize].name);
        Error::new(codes::INTERNAL, text)
    }

    /// The value of one slot in another, too.
    pub fn share(&mut self, from: Slot, to: Slot) -> Result<()> {
        let slots = &mut self.lane.state.slots;
        match slots.get_disjoint_mut([from as usize, to as usize]) {
            Ok([from_slot, to_slot]) if !from_slot.is_empty() => to_slot.share(from_slot),
            _ => return Err(self.missing(from)),
        }
        self.lane.state.slots[to as usize].late = self.lane.state.slots[from as usize].late;
        for pending in &mut self.lane.state.pending {
            pending.share(from, to);
        }
        self.define(&[to])
    }

    /// Waits when a step touches what is pending.
    #[cold]
    fn settle_for(&mut self, step: &RunStep) -> Result<()> {
        let state = &self.lane.state;
        let late = |slot: Slot| state.slots[slot as usize].late;
        let waits = step.ins.iter().any(|i| late(i.slot) == Late::Made)
            || step.outs.iter().any(|&s| late(s) != Late::No)
            || state.pending.iter().any(|p| p.part == step.part);
        if waits { self.settle_if(|p| p.is_before(step)) } else { Ok(()) }
    }

    #[cold]
    fn defer(&mut self, step: &RunStep, fence: Arc<Fence>) {
        let state = &mut self.lane.state;
        let reads: Vec<Slot> = step.ins.iter().map(|i| i.slot).collect();
        let makes = step.outs.to_vec();
        let lent = |s: &Slot| state.slots[*s as usize].is_lent();
        let borrows = reads.iter().chain(&makes).any(lent) || !self.bound.is_empty();
        let pending = Pending { fence, part: step.part, reads, makes, borrows };
        pending.mark(&mut state.slots);
        state.pending.push(pending);
    }

    /// Runs what runs once and makes the results the plan's own.
    pub fn once(&mut self) -> Result<Vec<(Slot, Value)>> {
        let plan = self.plan;
        let result = self.steps(&plan.once);
        self.settle().and(result)?;
        let outs = plan.once.iter().flat_map(made);
        let slots = &self.lane.state.slots;
        Ok(outs.filter_map(|s| Some((s, slots[s as usize].value()?))).collect())
    }

    /// Whether no input was put there yet.
    pub fn is_free(&self, input: usize) -> bool {
        self.lane.state.slots[self.plan.inputs[input] as usize].is_empty()
    }

    /// Takes the inputs out of their slots again. Defaults are left.
    ///
    /// # Safety
    /// Memory that was lent stays valid for `'i`.
    pub unsafe fn take_inputs<'i>(&mut self) -> SmallVec<[(usize, Input<'i>); 8]> {
        let mut all = SmallVec::new();
        for (at, (&slot, rule)) in self.plan.inputs.iter().zip(&self.plan.binder.inputs).enumerate() {
            let raw = self.lane.state.slots[slot as usize].raw;
            match (self.lane.state.slots[slot as usize].take(), rule.dtype) {
                (Held::Value(value), _) => all.push((at, Input::Moved(value))),
                (Held::Lent, Some(dtype)) => {
                    // SAFETY: the caller's promise; the struct describes what was lent.
                    let shape = unsafe { raw::slice(raw.shape, raw.rank as usize) };
                    // SAFETY: as above.
                    let data = unsafe { raw::slice(raw.data.cast_const(), raw.bytes as usize) };
                    all.push((at, Input::View(TensorView { dtype, shape, data })));
                }
                (Held::Lent | Held::Empty, _) => {}
            }
        }
        all
    }

    /// Empties all slots but presets; used after a failure. A lane on which a run never finished keeps all it has: the EP
    /// may still read and write it.
    #[cold]
    pub fn reset(&mut self) {
        let state = &mut self.lane.state;
        if state.lost {
            return;
        }
        state.hold.clear();
        for slot in &mut state.slots {
            slot.late = Late::No;
            slot.clear(&mut state.memory);
        }
        for (slot, value) in &self.plan.presets {
            state.slots[*slot as usize].set(value.clone());
        }
    }
}

/// How a part's outputs are wanted when some of them are kept, in the lane's list for it.
#[cold]
fn kept_wants(plan: &Plan, step: &RunStep, state: &mut State) -> Vec<u32> {
    let mut list = std::mem::take(&mut state.wants);
    list.clear();
    let kept = |slot: &Slot| plan.slots[*slot as usize].output.is_some_and(|k| state.keep.contains(&k));
    let wants = step.outs.iter().zip(&step.wants);
    list.extend(wants.map(|(slot, &want)| if kept(slot) { WANT_ANY } else { want }));
    list
}

/// A fresh host buffer with these bytes.
pub(super) fn buffer_of(memory: &mut super::memory::Memory, bytes: &[u8]) -> Result<Arc<Buffer>> {
    let buffer = memory.buffer(bytes.len())?;
    // SAFETY: the buffer has that many bytes and is nobody else's.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.ptr(), bytes.len()) };
    Ok(buffer)
}
