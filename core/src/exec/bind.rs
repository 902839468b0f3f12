//! Symbols of a run: from the shapes of its inputs, and from what its steps make.

use ortolan_ep_abi::raw::{self, UNKNOWN};
use ortolan_graph::ir::UNDEFINED;

use super::lane::State;
use super::run::Run;
use super::slot::SlotState;
use crate::error::{Error, Result, codes};
use crate::plan::{Binder, DimRule, InputRule, Slot};
use crate::value::Input;

/// The ABI and the graph crate mean the same, so that symbols are read as they are.
const _: () = assert!(UNKNOWN == UNDEFINED);

/// Why inputs cannot be bound.
#[derive(Debug)]
pub(crate) enum Unbound {
    /// Two dims of one name differ; a plan that does not believe names may take them.
    Names(Error),
    /// They fit no plan.
    Never(Error),
}

impl From<Unbound> for Error {
    fn from(u: Unbound) -> Error {
        match u {
            Unbound::Names(e) | Unbound::Never(e) => e,
        }
    }
}

/// Element `at` of a small integer tensor in host memory, or UNKNOWN.
fn element(value: &raw::Value, at: u32) -> i64 {
    let at = at as usize;
    let read = |size: usize| {
        let end = at.checked_add(1)?.checked_mul(size)?;
        if value.space != 0 || value.data.is_null() || end as u64 > value.bytes {
            return None;
        }
        // SAFETY: host memory of `bytes` bytes.
        let bytes = unsafe { raw::slice(value.data.cast_const(), end) };
        Some(&bytes[end - size..])
    };
    let number = match value.dtype {
        7 => read(8).and_then(|b| b.try_into().ok()).map(i64::from_ne_bytes),
        6 => read(4).and_then(|b| b.try_into().ok()).map(|b| i32::from_ne_bytes(b).into()),
        5 => read(2).and_then(|b| b.try_into().ok()).map(|b| i16::from_ne_bytes(b).into()),
        2 | 9 => read(1).map(|b| b[0].into()),
        3 => read(1).map(|b| i64::from(b[0] as i8)),
        _ => None,
    };
    number.unwrap_or(UNKNOWN)
}

fn shape(value: &raw::Value) -> &[i64] {
    // SAFETY: a slot's struct describes a live value.
    unsafe { raw::slice(value.shape, value.rank as usize) }
}

/// The symbols that inputs fix, UNKNOWN for others.
pub(crate) fn symbols_of(binder: &Binder, inputs: &[(usize, Input<'_>)]) -> Result<Box<[i64]>, Unbound> {
    let mut symbols = vec![UNKNOWN; binder.symbols];
    for (at, input) in inputs {
        let rule = &binder.inputs[*at];
        let mut slot = SlotState::new();
        match input {
            // SAFETY: the slot goes before the view does.
            Input::View(view) => unsafe { slot.lend(view) },
            Input::Shared(value) => slot.set((*value).clone()),
            Input::Moved(value) => slot.set(value.clone()),
        }
        if let Some(dims) = &rule.dims {
            bind_dims(rule, dims, shape(&slot.raw), &mut symbols)?;
        }
        for &(symbol, at) in &rule.elements {
            symbols[symbol as usize] = element(&slot.raw, at);
        }
    }
    Ok(symbols.into())
}

impl Run<'_> {
    /// Binds the symbols to the inputs in their slots. Equal inputs as last time: nothing to do.
    pub fn bind(&mut self) -> Result<(), Unbound> {
        let (plan, state) = (self.plan, &mut self.lane.state);
        if !state.bound || !same(&plan.binder.inputs, &plan.inputs, state) {
            state.bound = false;
            self.bind_anew()?;
        } else if plan.binder.late {
            state.symbols.copy_from_slice(&state.base);
        }
        let state = &mut self.lane.state;
        state.binding = state.base_binding;
        Ok(())
    }

    fn bind_anew(&mut self) -> Result<(), Unbound> {
        let (plan, state) = (self.plan, &mut self.lane.state);
        state.last.clear();
        state.symbols.fill(UNKNOWN);
        for (rule, &slot) in plan.binder.inputs.iter().zip(&plan.inputs) {
            let value = &state.slots[slot as usize].raw;
            if let Some(dims) = &rule.dims {
                bind_dims(rule, dims, shape(value), &mut state.symbols)?;
                state.last.extend_from_slice(shape(value));
            }
            for &(symbol, at) in &rule.elements {
                let number = element(value, at);
                state.symbols[symbol as usize] = number;
                state.last.push(number);
            }
        }
        state.base.copy_from_slice(&state.symbols);
        state.base_binding = state.seen.number(&state.symbols);
        self.check_assumptions()?;
        self.lane.state.bound = true;
        Ok(())
    }

    /// What inference took for granted, now that sizes are known.
    fn check_assumptions(&mut self) -> Result<(), Unbound> {
        let (binder, state) = (&self.plan.binder, &mut self.lane.state);
        if binder.assumptions.is_empty() {
            return Ok(());
        }
        binder.exprs.eval(&state.symbols, &mut state.numbers);
        for (holds, text) in &binder.assumptions {
            if state.numbers.get(holds.index()) == Some(&0) {
                return Err(Unbound::Never(Error::new(codes::ASSUMPTION, text.as_str())));
            }
        }
        Ok(())
    }

    /// Sets the symbols that values fix which were just made.
    pub fn define(&mut self, slots: &[Slot]) -> Result<()> {
        let (plan, state) = (self.plan, &mut self.lane.state);
        let mut changed = false;
        for &slot in slots {
            let value = state.slots[slot as usize].raw;
            for d in &plan.slots[slot as usize].defines {
                let number = if d.element {
                    element(&value, d.at)
                } else {
                    shape(&value).get(d.at as usize).copied().unwrap_or(UNKNOWN)
                };
                changed |= std::mem::replace(&mut state.symbols[d.symbol as usize], number) != number;
            }
        }
        if changed {
            state.binding = state.seen.number(&state.symbols);
        }
        Ok(())
    }
}

/// Whether sizes and elements are those of the last run.
fn same(rules: &[InputRule], slots: &[Slot], state: &State) -> bool {
    let mut last = &state.last[..];
    for (rule, &slot) in rules.iter().zip(slots) {
        let value = &state.slots[slot as usize].raw;
        if let Some(dims) = &rule.dims {
            match last.split_at_checked(dims.len()) {
                Some((before, rest)) if before == shape(value) => last = rest,
                _ => return false,
            }
        }
        for &(_, at) in &rule.elements {
            match last.split_first() {
                Some((before, rest)) if *before == element(value, at) => last = rest,
                _ => return false,
            }
        }
    }
    true
}

fn bind_dims(rule: &InputRule, dims: &[DimRule], shape: &[i64], symbols: &mut [i64]) -> Result<(), Unbound> {
    let wrong = |text: String| {
        let text = format!("input '{}' has the shape {shape:?}, and {text}", rule.name);
        Error::new(codes::INPUT_SHAPE, text)
    };
    if dims.len() != shape.len() {
        return Err(Unbound::Never(wrong(format!("the model takes rank {}", dims.len()))));
    }
    for (axis, (dim, &size)) in dims.iter().zip(shape).enumerate() {
        match *dim {
            DimRule::Fixed(n) if n != size => {
                return Err(Unbound::Never(wrong(format!("the model takes {n} in dimension {axis}"))));
            }
            DimRule::Symbol(s) => {
                let bound = &mut symbols[s as usize];
                if *bound != UNKNOWN && *bound != size {
                    let text = format!("dimension {axis} has the name of one that is {bound} in this run");
                    return Err(Unbound::Names(wrong(text)));
                }
                *bound = size;
            }
            DimRule::Fixed(_) | DimRule::Any => {}
        }
    }
    Ok(())
}
