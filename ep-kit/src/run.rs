//! Runs a plan: asks for outputs, patches addresses that moved, walks the steps.
//!
//! In steady state nothing is allocated and nothing is locked. It knows the host only as the trait [`Host`], behind
//! which stands a call, or heap memory when constants are computed in compile.

use crate::args::{ABSENT, Arg, Args, Emit};
use crate::bind::{Bound, KitLane, MOVED};
use crate::error::Fault;
use crate::item::{Item, Plain};
use crate::node::Ints;
use crate::parallel::Parallel;
use crate::plan::{ArgPlan, DefSource, End, From, OutPlan, Plan, Segment, Step};
use crate::{bytes, memory};
use core::cell::RefCell;
use core::marker::PhantomData;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::{Event, NONE, Str};
use std::sync::Arc;

/// What a run asks of its host.
pub(crate) trait Host {
    fn is_cancelled(&self) -> bool;
    fn par(&self) -> &dyn Parallel;
    /// Address and bytes of an input of the part, if it is a tensor of that type in host memory.
    fn input(&self, index: u32, dtype: DType) -> Option<Arg>;
    /// Scratch memory for the rest of the run.
    fn alloc(&self, bytes: usize) -> Result<Arg, Fault>;
    /// Memory to write an output into.
    fn output(&self, index: u32, dtype: DType, dims: &[i64]) -> Result<Arg, Fault>;
    /// Hands an input over as an output; false when it can't be handed over.
    fn give_input(&self, index: u32, input: u32, dtype: DType, dims: &[i64]) -> Result<bool, Fault>;
    /// Hands memory over that the part holds for its life; false when a copy is wanted.
    fn give_held(&self, index: u32, dtype: DType, dims: &[i64], held: Arg) -> Result<bool, Fault>;
    /// A copy of an input that is no plain tensor; `None` if it is not there or not in host memory.
    fn item(&self, index: u32) -> Option<Item>;
    /// Hands a value over that is no plain tensor.
    fn give_item(&self, index: u32, item: &Item) -> Result<(), Fault>;
    /// Nanoseconds, if events are wanted.
    fn clock(&self) -> Option<u64>;
    fn profile(&self, events: &[Event]);
}

/// Lists that a lane keeps from run to run.
#[derive(Default)]
pub(crate) struct Scratch {
    outputs: Vec<Arg>,
    late: RefCell<Vec<LateSlot>>,
    items: RefCell<Vec<Option<Arc<Item>>>>,
    events: Vec<Event>,
}

// SAFETY: addresses and events of a run are only used within it, by the thread that has the lane.
unsafe impl Send for Scratch {}

/// Memory and dimensions of a late value.
#[derive(Clone)]
struct LateSlot {
    arg: Arg,
    dims: Ints,
}

/// Runs the part once.
pub(crate) fn run<H: Host>(
    plan: &Plan,
    lane: &mut KitLane,
    host: &H,
    binding: u64,
    symbols: &[i64],
    width: usize,
) -> Result<(), Error> {
    let at = lane.bind(plan, binding, symbols, width)?;
    let mut scratch = core::mem::take(&mut lane.run);
    let result = walk(plan, lane, at, host, &mut scratch);
    lane.run = scratch;
    result
}

fn walk<H: Host>(plan: &Plan, lane: &mut KitLane, at: usize, host: &H, scratch: &mut Scratch) -> Result<(), Error> {
    scratch.outputs.clear();
    scratch.outputs.resize(plan.outputs.len(), Arg::NONE);
    scratch.events.clear();
    let late = scratch.late.get_mut();
    late.clear();
    late.resize(plan.late.len(), LateSlot { arg: Arg::NONE, dims: Ints::new() });
    check_inputs(plan, &lane.bounds[at], host)?;
    take_items(plan, host, scratch.items.get_mut())?;
    let mut stale = false;
    for (k, segment) in plan.segments.iter().enumerate() {
        if k > 0 && (stale || lane.bounds[at].ready <= k) {
            stale = true;
            lane.bind_segment(plan, at, k)?;
        }
        let bound = &mut lane.bounds[at];
        ask_outputs(plan, bound, segment, host, &mut scratch.outputs)?;
        patch(plan, bound, k, host, scratch)?;
        walk_steps(plan, bound, k, host, scratch)?;
        stale |= define(plan, bound, segment, scratch)?;
    }
    finish_outputs(plan, &lane.bounds[at], host, scratch)?;
    scratch.items.get_mut().clear();
    if !scratch.events.is_empty() {
        host.profile(&scratch.events);
    }
    Ok(())
}

/// The host's tensors have to be as large as its symbols say: kernels rely on it.
fn check_inputs<H: Host>(plan: &Plan, bound: &Bound, host: &H) -> Result<(), Error> {
    for (k, end) in (0..).zip(&plan.inputs).filter(|(_, end)| !end.item) {
        let need = end.dtype.bytes(bound.counts[end.shape as usize]);
        let have = host.input(k, end.dtype).map(|arg| arg.bytes);
        if have.is_none() || have < need {
            let dims = bound.shapes(plan).dims(end.shape);
            return Err(Error::new(format!(
                "input {k} is not in host memory as {} of dimensions {dims:?}: {have:?} of {need:?} bytes",
                end.dtype
            )));
        }
    }
    Ok(())
}

/// Reads inputs that are no plain tensors, and lays constants beside them.
fn take_items<H: Host>(plan: &Plan, host: &H, items: &mut Vec<Option<Arc<Item>>>) -> Result<(), Error> {
    items.clear();
    items.resize(plan.items.count as usize, None);
    for (item, constant) in &plan.items.constants {
        items[*item as usize] = Some(constant.clone());
    }
    for &(input, item) in &plan.items.inputs {
        let value = host.item(input).ok_or_else(|| Error::new(format!("input {input} is not in host memory")))?;
        items[item as usize] = Some(Arc::new(value));
    }
    Ok(())
}

fn ask_outputs<H: Host>(
    plan: &Plan,
    bound: &Bound,
    segment: &Segment,
    host: &H,
    outputs: &mut [Arg],
) -> Result<(), Error> {
    for &j in &segment.outputs {
        let (end, _) = plan.outputs[j as usize];
        outputs[j as usize] = output(plan, bound, host, j, end)?;
    }
    Ok(())
}

fn output<H: Host>(plan: &Plan, bound: &Bound, host: &H, j: u32, end: End) -> Result<Arg, Error> {
    let dims = bound.shapes(plan).dims(end.shape);
    let failed = |f: Fault| f.at(NONE, &format!("output {j}"));
    let arg = host.output(j, end.dtype, dims).map_err(failed)?;
    let need = end.dtype.bytes(bound.counts[end.shape as usize]).unwrap_or(usize::MAX);
    if arg.bytes < need {
        return Err(failed(Fault::Memory(format!("the host gave {} of {need} bytes", arg.bytes))));
    }
    Ok(Arg { bytes: need, ..arg })
}

/// Writes the addresses that this run has.
fn patch<H: Host>(plan: &Plan, bound: &mut Bound, k: usize, host: &H, scratch: &mut Scratch) -> Result<(), Error> {
    let segment = &plan.segments[k];
    let arena = bound.arenas[k].total;
    let mut base = 0;
    if arena > 0 {
        let memory = host.alloc(arena).map_err(|f| f.at(NONE, "memory for intermediate values"))?;
        base = memory.ptr.expose_provenance();
    }
    if base != bound.bases[k] {
        bound.bases[k] = base;
        // What later segments read of this one moves, too.
        bound.bases[k + 1..].fill(MOVED);
        for &arg in &plan.resting[segment.resting.start as usize..segment.resting.end as usize] {
            if let From::Arena(group) = plan.args[arg as usize].from {
                bound.args[arg as usize].ptr = arena_address(plan, bound, group);
            }
        }
    }
    let late = scratch.late.get_mut();
    for &arg in &plan.moving[segment.moving.start as usize..segment.moving.end as usize] {
        let (to, planned) = (&mut bound.args[arg as usize], &plan.args[arg as usize]);
        match planned.from {
            From::Input(i) => to.ptr = host.input(i, plan.inputs[i as usize].dtype).map_or(to.ptr, |a| a.ptr),
            From::Output(j) => to.ptr = scratch.outputs[j as usize].ptr,
            From::Late(l) => *to = late[l as usize].arg,
            _ => {}
        }
    }
    Ok(())
}

fn arena_address(plan: &Plan, bound: &Bound, group: u32) -> *mut u8 {
    let segment = plan.segments.iter().position(|s| s.groups.contains(&group)).unwrap_or_default();
    let at = (group - plan.segments[segment].groups.start) as usize;
    let base = core::ptr::with_exposed_provenance_mut::<u8>(bound.bases[segment]);
    base.wrapping_add(bound.arenas[segment].offsets[at])
}

fn walk_steps<H: Host>(plan: &Plan, bound: &Bound, k: usize, host: &H, scratch: &mut Scratch) -> Result<(), Error> {
    let segment = &plan.segments[k];
    let base = core::ptr::with_exposed_provenance_mut::<u8>(bound.bases[k]);
    let memory = base.wrapping_add(bound.arenas[k].scratch.0);
    let par = host.par();
    for at in segment.steps.start as usize..segment.steps.end as usize {
        if host.is_cancelled() {
            return Err(Error::cancelled());
        }
        let step = &plan.steps[at];
        let emitter = Emitter { plan, bound, step, host, late: &scratch.late, items: &scratch.items };
        let mut args = Args {
            all: &bound.args[step.args.start as usize..step.args.end as usize],
            inputs: step.inputs as usize,
            alias: step.alias,
            taken: 0,
            scratch: Arg { ptr: memory, bytes: bound.scratch[at] },
            par,
            late: if step.late { Some(&emitter) } else { None },
            _borrow: PhantomData,
        };
        let start = host.clock();
        let done = step.op.run(&*bound.states[at], &mut args);
        if let Some(start_ns) = start {
            let dur_ns = host.clock().unwrap_or(start_ns).saturating_sub(start_ns);
            scratch.events.push(event(bound, at, step, start_ns, dur_ns));
        }
        done.map_err(|f| f.at(step.node, &step.label))?;
    }
    Ok(())
}

fn event(bound: &Bound, at: usize, step: &Step, start_ns: u64, dur_ns: u64) -> Event {
    let args = &bound.args[step.args.start as usize..step.args.end as usize];
    let bytes = args.iter().filter(|a| a.bytes != ABSENT).map(|a| a.bytes as u64).sum();
    let flops = step.op.flops(&*bound.states[at]);
    Event { kernel: Str::new(&step.name), node: step.node, worker: 0, start_ns, dur_ns, flops, bytes }
}

/// Reads the symbols that the segment's steps defined; the answer is whether one of them is another number than before.
fn define(plan: &Plan, bound: &mut Bound, segment: &Segment, scratch: &mut Scratch) -> Result<bool, Error> {
    let late = scratch.late.get_mut();
    let mut changed = false;
    for def in &plan.defs[segment.defs.start as usize..segment.defs.end as usize] {
        let step = &plan.steps[def.step as usize];
        let number = match def.source {
            DefSource::Dim { late: l } => late[l as usize].dims.get(def.at as usize).copied(),
            DefSource::Element { arg } => {
                let dtype = plan.args[arg as usize].dtype;
                bytes::read_number(dtype, memory::bytes(bound.args[arg as usize]), def.at as usize)
            }
            DefSource::Item { item } => {
                let item = scratch.items.get_mut().get(item as usize).and_then(Option::as_ref);
                item.and_then(|item| item.dims().get(def.at as usize).copied())
            }
        };
        let number = number.ok_or_else(|| {
            Fault::data(format!("it did not produce number {} that a later size depends on", def.at))
                .at(step.node, &step.label)
        })?;
        let symbol = &mut bound.symbols[def.symbol as usize];
        changed |= *symbol != number;
        *symbol = number;
    }
    Ok(changed)
}

/// Outputs that no step writes.
fn finish_outputs<H: Host>(plan: &Plan, bound: &Bound, host: &H, scratch: &mut Scratch) -> Result<(), Error> {
    for (j, &(end, how)) in (0..).zip(&plan.outputs) {
        let dims = bound.shapes(plan).dims(end.shape);
        let failed = |f: Fault| f.at(NONE, &format!("output {j}"));
        let size = end.dtype.bytes(bound.counts[end.shape as usize]).unwrap_or(usize::MAX);
        let source = match how {
            OutPlan::Direct | OutPlan::Late => continue,
            OutPlan::Item(item) => {
                let item = scratch.items.get_mut().get(item as usize).cloned().flatten();
                let item = item.ok_or_else(|| failed(Fault::data("nothing has made it")))?;
                host.give_item(j, &item).map_err(failed)?;
                continue;
            }
            OutPlan::Input(i) => {
                if host.give_input(j, i, end.dtype, dims).map_err(failed)? {
                    continue;
                }
                host.input(i, plan.inputs[i as usize].dtype).unwrap_or(Arg::NONE)
            }
            OutPlan::Held(address) => {
                let held = Arg { ptr: core::ptr::with_exposed_provenance_mut(address), bytes: size };
                if host.give_held(j, end.dtype, dims, held).map_err(failed)? {
                    continue;
                }
                held
            }
            OutPlan::Known(k) => {
                let at = plan.known[k as usize].memory.map_or(0, |(at, _)| at);
                let bytes = bound.known(at);
                Arg { ptr: bytes.as_ptr().cast_mut(), bytes: size.min(bytes.len()) }
            }
            OutPlan::Copy(c) => locate(plan, bound, scratch, &plan.copies[c as usize], size),
        };
        let to = output(plan, bound, host, j, end)?;
        memory::copy(source, to).map_err(failed)?;
    }
    Ok(())
}

/// Where a value is at the end of the run.
fn locate(plan: &Plan, bound: &Bound, scratch: &mut Scratch, arg: &ArgPlan, size: usize) -> Arg {
    match arg.from {
        From::Output(j) => scratch.outputs[j as usize],
        From::Arena(group) => Arg { ptr: arena_address(plan, bound, group), bytes: size },
        From::Late(l) => scratch.late.get_mut()[l as usize].arg,
        _ => Arg::NONE,
    }
}

/// Memory for what a late kernel finds.
struct Emitter<'r, H> {
    plan: &'r Plan,
    bound: &'r Bound,
    step: &'r Step,
    host: &'r H,
    late: &'r RefCell<Vec<LateSlot>>,
    items: &'r RefCell<Vec<Option<Arc<Item>>>>,
}

impl<H: Host> Emit for Emitter<'_, H> {
    fn emit(&self, output: usize, dims: &[i64]) -> Result<Arg, Fault> {
        let at = self.step.args.start as usize + self.step.inputs as usize + output;
        let planned = &self.plan.args[at];
        let expected = self.bound.shapes(self.plan);
        let From::Late(l) = planned.from else {
            let expected = expected.dims(planned.shape);
            if expected != dims {
                return Err(Fault::data(format!(
                    "output {output} has dimensions {dims:?}, expected were {expected:?}"
                )));
            }
            return Ok(self.bound.args[at]);
        };
        let rank = self.plan.shape_at[planned.shape as usize].len();
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        let size = count.and_then(|n| planned.dtype.bytes(n));
        let Some(size) = size.filter(|_| dims.len() == rank) else {
            return Err(Fault::data(format!("output {output} of rank {rank} cannot have dimensions {dims:?}")));
        };
        let late = self.plan.late[l as usize];
        let arg = match late.output {
            Some(j) => self.host.output(j, late.dtype, dims)?,
            None => self.host.alloc(size)?,
        };
        if arg.bytes < size {
            return Err(Fault::Memory(format!("the host gave {} of {size} bytes", arg.bytes)));
        }
        let arg = Arg { bytes: size, ..arg };
        self.late.borrow_mut()[l as usize] = LateSlot { arg, dims: Ints::from_slice(dims) };
        Ok(arg)
    }

    fn item(&self, input: usize) -> Result<Arc<Item>, Fault> {
        let at = self.step.args.start as usize + input;
        let planned = &self.plan.args[at];
        let dims = match planned.from {
            From::Absent => return Err(Fault::data(format!("input {input} is missing"))),
            From::Item(item) => {
                let item = self.items.borrow().get(item as usize).cloned().flatten();
                return item.ok_or_else(|| Fault::data(format!("input {input} was not made")));
            }
            From::Late(l) => self.late.borrow()[l as usize].dims.clone(),
            _ => Ints::from_slice(self.bound.shapes(self.plan).dims(planned.shape)),
        };
        let bytes = memory::bytes(self.bound.args[at]).to_vec();
        Ok(Arc::new(Item::Tensor(Plain { dtype: planned.dtype, dims, bytes })))
    }

    fn give(&self, output: usize, item: Arc<Item>) -> bool {
        let at = self.step.args.start as usize + self.step.inputs as usize + output;
        let From::Item(slot) = self.plan.args[at].from else { return false };
        self.items.borrow_mut()[slot as usize] = Some(item);
        true
    }
}
