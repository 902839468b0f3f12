//! Which step is the last to need a slot: there the value is given up, and its reader may overwrite it.

use std::collections::{HashMap, HashSet};

use super::{Body, Slot, Step};
use crate::value::SpaceId;

/// Sets `deaths` and `last` of the steps of one graph. `local` are the slots of this graph that nobody needs afterwards.
pub(super) fn set(steps: &mut [Step], local: &HashSet<Slot>) {
    let mut last: HashMap<Slot, usize> = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        touched(step, &mut |slot| _ = last.insert(slot, at));
    }
    let mut dying: Vec<Vec<Slot>> = vec![Vec::new(); steps.len()];
    for (&slot, &at) in last.iter().filter(|(s, _)| local.contains(s)) {
        dying[at].push(slot);
    }
    for (step, mut slots) in steps.iter_mut().zip(dying) {
        slots.sort_unstable();
        if let Step::Run(run) = step {
            let reads: Vec<Slot> = run.ins.iter().map(|i| i.slot).collect();
            for input in &mut run.ins {
                let once = reads.iter().filter(|&&s| s == input.slot).count() == 1;
                let read = input.space != SpaceId::ANYWHERE;
                input.last = once && read && slots.binary_search(&input.slot).is_ok();
            }
        }
        *deaths(step) = slots.into();
    }
}

fn deaths(step: &mut Step) -> &mut Box<[Slot]> {
    match step {
        Step::Run(run) => &mut run.deaths,
        Step::Copy { deaths, .. }
        | Step::Share { deaths, .. }
        | Step::If { deaths, .. }
        | Step::Loop { deaths, .. }
        | Step::Scan { deaths, .. } => deaths,
    }
}

/// Every slot that a step reads or writes, in its bodies too.
pub(super) fn touched(step: &Step, f: &mut impl FnMut(Slot)) {
    match step {
        Step::Run(run) => {
            run.ins.iter().for_each(|i| f(i.slot));
            run.outs.iter().copied().for_each(f);
        }
        Step::Copy { moves, .. } => moves.iter().for_each(|(from, to)| [*from, *to].into_iter().for_each(&mut *f)),
        Step::Share { from, to, .. } => {
            f(*from);
            f(*to);
        }
        Step::If { cond, then, els, .. } => {
            f(*cond);
            body(then, f);
            body(els, f);
        }
        Step::Loop { step, .. } => {
            step.trip.iter().chain(&step.cond).copied().for_each(&mut *f);
            [step.iter_in, step.cond_in, step.cond_out].into_iter().for_each(&mut *f);
            step.carried.iter().for_each(|c| carried(c, f));
            step.scans.iter().for_each(|s| std::iter::once(s.from).chain(s.to).for_each(&mut *f));
            body(&step.body, f);
        }
        Step::Scan { step, .. } => {
            step.states.iter().for_each(|c| carried(c, f));
            step.rows.iter().for_each(|r| [r.from, r.inside].into_iter().for_each(&mut *f));
            step.scans.iter().for_each(|s| std::iter::once(s.from).chain(s.to).for_each(&mut *f));
            body(&step.body, f);
        }
    }
}

fn carried(c: &super::Carried, f: &mut impl FnMut(Slot)) {
    [c.initial, c.inside, c.next].into_iter().chain(c.result).for_each(f);
}

fn body(b: &Body, f: &mut impl FnMut(Slot)) {
    b.steps.iter().for_each(|s| touched(s, f));
    b.results.iter().for_each(|&(from, to)| {
        f(from);
        f(to);
    });
}
