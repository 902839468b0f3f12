//! Walks the steps of a plan on a lane.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ortolan_ep_abi::raw::{self, OK, VALUE_DONATED, WANT_ANY};

use smallvec::SmallVec;

use super::cancel::stopped;
use super::frame::{Frame, into_bound};
use super::lane::{Lane, State};
use super::pending::Pending;
use super::slot::{Held, recycle};
use crate::abi::{Ctx, EpHandle, Fence, Kind, copy, host_table, now, raw_tensor, space_name};
use crate::error::{Error, Result, codes};
use crate::plan::{Plan, RunStep, Slot, Step};
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
                Step::Copy { from, to, space, deaths } => (self.copy(*from, *to, *space), deaths),
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
            match state.pending.last_mut() {
                Some(pending) if slot.pending => pending.hold.push(slot.take()),
                _ => slot.clear(&mut state.memory),
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
            if input.last && slot.is_sole(!state.backups.is_empty() && state.backups.contains(&input.slot)) {
                ins[at].flags |= VALUE_DONATED;
            }
            elsewhere |= slot.raw.space != input.space.0;
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
            Ok(status) => ctx.outcome(status, codes::EP_FAILED, &|node| plan.place_in(step.part, node)),
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
            (Err(error), None) => Err(error),
            (Err(error), Some(fence)) => {
                // It failed and will still finish: nothing it has may go before.
                self.defer(step, fence);
                self.settle().and(Err(error))
            }
        }
    }

    /// Checks that all outputs were made, brings them where they were wanted, and binds what they fix.
    fn made(&mut self, step: &RunStep, ep: &Arc<EpHandle>) -> Result<()> {
        for (at, &slot) in step.outs.iter().enumerate() {
            let (state, want) = (&self.lane.state.slots[slot as usize], step.wants[at]);
            if state.is_empty() {
                let text = format!("run made no output {at} ('{}')", self.plan.slots[slot as usize].name);
                return Err(Error::new(codes::EP_FAULT, text).from_ep(ep.name(), None));
            }
            if want != WANT_ANY && state.raw.space != 0 && !self.is_kept(slot) {
                self.bring_home(slot)?;
            }
        }
        if step.defines {
            self.define(&step.outs)?;
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
        self.settle()?;
        let Some(tensor) = self.lane.state.slots[slot as usize].tensor() else { return Ok(()) };
        let mut moved = self.moved(&tensor, SpaceId::HOST)?;
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
        self.settle()?;
        let mut kept = Vec::new();
        for (at, input) in step.ins.iter().enumerate() {
            let state = &self.lane.state.slots[input.slot as usize];
            if state.raw.space == input.space.0 || state.raw.kind != raw::VALUE_TENSOR {
                continue;
            }
            let Some(tensor) = self.owned(input.slot)? else { continue };
            let moved = Box::new(self.moved(&tensor, input.space)?);
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

    /// A tensor in another memory space; from one device to another through the host.
    fn moved(&mut self, tensor: &Tensor, to: SpaceId) -> Result<Tensor> {
        let from = tensor.space();
        if from == to {
            return Ok(tensor.clone());
        }
        if from != SpaceId::HOST && to != SpaceId::HOST {
            let staged = self.moved(tensor, SpaceId::HOST)?;
            return self.moved(&staged, to);
        }
        let start = self.lane.state.recorder.is_some().then(now);
        let device = if to == SpaceId::HOST { from } else { to };
        let moved = match self.plan.owner(device) {
            Some(ep) => {
                let memory = &mut self.lane.state.memory;
                let mut make = |bytes| memory.buffer(bytes).map_err(Error::from);
                copy(ep, tensor, to, Some(self.cancel), &mut make)?
            }
            None if to == SpaceId::HOST => tensor.to_host()?,
            None => {
                let text = format!("no execution provider of the session copies to '{}'", space_name(to));
                return Err(Error::new(codes::NO_COPY, text));
            }
        };
        if let (Some(start), Some(recorder)) = (start, &mut self.lane.state.recorder) {
            recorder.host("copy", None, start, tensor.bytes as u64);
        }
        Ok(moved)
    }

    fn copy(&mut self, from: Slot, to: Slot, space: SpaceId) -> Result<()> {
        self.settle()?;
        let value = match self.owned(from)? {
            Some(tensor) => {
                let moved = self.moved(&tensor, space)?;
                let was_lent = self.lane.state.slots[from as usize].is_lent();
                if was_lent {
                    recycle(Value::Tensor(tensor), &mut self.lane.state.memory);
                }
                Value::Tensor(moved)
            }
            None => match self.lane.state.slots[from as usize].composite() {
                Some(value) => value.to_host()?,
                None => return Err(self.missing(from)),
            },
        };
        self.lane.state.slots[to as usize].set(value);
        Ok(())
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
        self.lane.state.slots[to as usize].pending = self.lane.state.slots[from as usize].pending;
        self.define(&[to])
    }

    /// Waits when a step touches what is pending.
    #[cold]
    fn settle_for(&mut self, step: &RunStep) -> Result<()> {
        let state = &self.lane.state;
        let touched = step.ins.iter().map(|i| i.slot).chain(step.outs.iter().copied());
        let mut touched = touched.map(|s| state.slots[s as usize].pending);
        if touched.any(|p| p) || state.pending.iter().any(|p| p.part == step.part) {
            return self.settle();
        }
        Ok(())
    }

    #[cold]
    fn defer(&mut self, step: &RunStep, fence: Arc<Fence>) {
        let state = &mut self.lane.state;
        let slots: Vec<Slot> = step.ins.iter().map(|i| i.slot).chain(step.outs.iter().copied()).collect();
        let lent = |s: &Slot| state.slots[*s as usize].is_lent();
        let borrows = slots.iter().any(lent) || !self.bound.is_empty();
        for &slot in &slots {
            state.slots[slot as usize].pending = true;
        }
        state.pending.push(Pending { fence, part: step.part, slots, hold: Vec::new(), borrows });
    }

    /// Runs what runs once and makes the results the plan's own.
    pub fn once(&mut self) -> Result<Vec<(Slot, Value)>> {
        let plan = self.plan;
        let result = self.steps(&plan.once);
        self.settle().and(result)?;
        let outs = plan.once.iter().flat_map(|step| match step {
            Step::Run(run) => run.outs.to_vec(),
            Step::Copy { to, .. } | Step::Share { to, .. } => vec![*to],
            _ => Vec::new(),
        });
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
        for slot in &mut state.slots {
            slot.pending = false;
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
