//! One run: inputs into their slots, symbols, steps, outputs out of their slots.

use std::sync::atomic::AtomicU32;

use smallvec::SmallVec;

use super::info::Io;
use super::maker::Ready;
use super::{Outputs, RunOptions};
use crate::error::{Error, Result, codes};
use crate::exec::{Deadline, GO, Held, Lane, Profile, ProfileEvent, Recorder, Run, stopped};
use crate::plan::{InputRule, Plan, fits};
use crate::value::{Input, Tensor, TensorView, Value, align_of_dtype};

/// The word of runs that nobody can stop.
static NEVER: AtomicU32 = AtomicU32::new(GO);

/// What stops a run.
pub(super) enum Stop<'o> {
    Never,
    Token(&'o crate::exec::CancelToken),
    Deadline(Deadline),
}

impl<'o> Stop<'o> {
    pub fn of(options: &'o RunOptions) -> Stop<'o> {
        match (options.timeout, &options.cancel) {
            (Some(timeout), token) => Stop::Deadline(Deadline::new(timeout, token.as_ref())),
            (None, Some(token)) => Stop::Token(token),
            (None, None) => Stop::Never,
        }
    }

    pub fn word(&self) -> &AtomicU32 {
        match self {
            Stop::Never => &NEVER,
            Stop::Token(token) => token.word(),
            Stop::Deadline(deadline) => deadline.word(),
        }
    }

    /// An error if the run was stopped, also when an EP finished its last part all the same.
    pub fn in_time(&self) -> Result<()> {
        if let Stop::Deadline(deadline) = self {
            deadline.look();
        }
        stopped(self.word())
    }
}

#[cold]
fn wrong(code: crate::codes::Code, rule: &InputRule, text: impl std::fmt::Display) -> Error {
    Error::new(code, format!("input '{}' {text}", rule.name))
}

/// Checks kind, element type and rank of an input against the model.
pub(super) fn check(rule: &InputRule, input: &Input<'_>) -> Result<()> {
    let tensor = |dtype, shape: &[i64]| match (rule.dtype, &rule.dims) {
        (Some(want), _) if want != dtype => {
            Err(wrong(codes::INPUT_TYPE, rule, format_args!("is {dtype}, and the model takes {want}")))
        }
        (Some(_), Some(dims)) if dims.len() != shape.len() => {
            let text = format_args!("has the shape {shape:?}, and the model takes rank {}", dims.len());
            Err(wrong(codes::INPUT_SHAPE, rule, text))
        }
        (None, _) if rule.ty.is_some() => {
            Err(wrong(codes::INPUT_TYPE, rule, "is a tensor, and the model takes another kind"))
        }
        _ => Ok(()),
    };
    let value = |v: &Value| match (v, &rule.ty) {
        (Value::Tensor(t), _) => tensor(t.dtype(), t.shape()),
        (v, Some(ty)) if !fits(v, ty) => Err(wrong(
            codes::INPUT_TYPE,
            rule,
            format_args!("is a {}, and the model takes {}", v.kind_name(), ty.kind_name()),
        )),
        _ => Ok(()),
    };
    match input {
        Input::View(v) => tensor(v.dtype(), v.shape()),
        Input::Shared(v) => value(v),
        Input::Moved(v) => value(v),
    }
}

/// Puts a checked input into its slot.
///
/// # Safety
/// Lent memory must stay valid until the slot is emptied.
pub(super) unsafe fn place(plan: &Plan, lane: &mut Lane, at: usize, input: Input<'_>) -> Result<()> {
    let slot = &mut lane.state.slots[plan.inputs[at] as usize];
    match input {
        Input::View(view) if is_aligned(&view) => {
            // SAFETY: the caller's promise.
            unsafe { slot.lend(&view) }
        }
        Input::View(view) => {
            tracing::debug!(input = &*plan.binder.inputs[at].name, "a misaligned input was copied");
            lane.state.extra_copies += 1;
            let copy = Tensor::from_bytes(view.dtype, view.shape, view.data)?;
            lane.state.slots[plan.inputs[at] as usize].set(Value::Tensor(copy));
        }
        Input::Shared(value) => slot.set(value.clone()),
        Input::Moved(value) => slot.set(value),
    }
    Ok(())
}

fn is_aligned(view: &TensorView<'_>) -> bool {
    view.data.as_ptr().addr().is_multiple_of(align_of_dtype(view.dtype))
}

/// An error if an input is missing that has no default.
pub(super) fn complete(plan: &Plan, lane: &Lane) -> Result<()> {
    for (rule, &slot) in plan.binder.inputs.iter().zip(&plan.inputs) {
        if lane.state.slots[slot as usize].is_empty() {
            return Err(wrong(codes::INPUT_MISSING, rule, "was not given"));
        }
    }
    Ok(())
}

/// Begins: limits and recorder.
pub(super) fn begin(lane: &mut Lane, options: &RunOptions) {
    lane.state.memory.limit = options.memory_limit.unwrap_or(u64::MAX);
    if options.profile {
        lane.state.recorder = Some(Recorder::default());
    }
}

/// Takes the outputs out of their slots.
pub(super) fn outputs(run: &mut Run<'_>, io: &Io) -> Result<Outputs> {
    let plan = run.plan;
    let mut values: SmallVec<[Value; 2]> = SmallVec::with_capacity(plan.outputs.len());
    for (&slot, &mine) in plan.outputs.iter().zip(&plan.handed_out) {
        let state = &mut run.lane.state.slots[slot as usize];
        let value = if state.is_lent() {
            // An input that the caller lent comes out as a copy.
            run.owned(slot)?.map(Value::Tensor)
        } else if mine {
            match state.take() {
                Held::Value(v) => Some(v),
                Held::Lent | Held::Empty => None,
            }
        } else {
            state.value()
        };
        values.push(value.ok_or_else(|| run.missing(slot))?);
    }
    let profile = run.lane.state.recorder.take().map(|r| Box::new(profile(plan, r)));
    Ok(Outputs { names: std::sync::Arc::clone(&io.output_names), values, profile })
}

/// Empties input slots, so that nothing of the caller's stays. Defaults come back.
pub(super) fn end(plan: &Plan, lane: &mut Lane) {
    let state = &mut lane.state;
    for &slot in plan.inputs.iter().chain(&plan.outputs) {
        state.slots[slot as usize].clear(&mut state.memory);
    }
    for (slot, value) in &plan.presets {
        let slot = &mut state.slots[*slot as usize];
        if slot.is_empty() {
            slot.set(value.clone());
        }
    }
}

fn profile(plan: &Plan, recorder: Recorder) -> Profile {
    let event = |r: crate::exec::Recorded| {
        let ep = r.part.and_then(|p| plan.parts.get(p as usize)).map_or("host", |p| p.ep().name());
        let k = r.kernel;
        let sources = r.part.map_or_else(Vec::new, |p| plan.sources_of(p, k.node));
        let places: Vec<String> = sources.iter().map(|&n| plan.place(n)).collect();
        ProfileEvent {
            name: k.name,
            ep: ep.to_owned(),
            node: sources.first().copied(),
            place: places.join(", "),
            worker: k.worker,
            start_ns: k.start_ns,
            dur_ns: k.dur_ns,
            flops: k.flops,
            bytes: k.bytes,
        }
    };
    let mut events: Vec<ProfileEvent> = recorder.events.into_iter().map(event).collect();
    // Those of devices came late.
    events.sort_by_key(|e| e.start_ns.saturating_add(e.dur_ns));
    Profile { events }
}

/// Puts a lane back, or keeps it for good when an EP may still write to it.
pub(super) fn give_back(ready: &std::sync::Arc<Ready>, lane: Box<Lane>) {
    if lane.state.lost {
        tracing::error!("a lane is given up: a run on it never finished");
        std::mem::forget((std::sync::Arc::clone(ready), lane));
        return;
    }
    ready.lanes.put(lane);
}
