//! Runs with the same inputs and outputs again and again: names are looked up once, the lane is kept, outputs may lie in
//! the caller's buffers, and outputs may be kept as inputs of the next run.

use std::sync::Arc;

use smallvec::SmallVec;

use super::generation::Generation;
use super::maker::Ready;
use super::plans::Plans;
use super::run::{self, Stop};
use super::{Outputs, RunOptions, Session, place_all};
use crate::error::{Error, Result, codes};
use crate::exec::{Lane, Run};
use crate::pool::Pool;
use crate::value::{Input, Tensor, Value};

/// A prepared run. It belongs to one thread at a time; make one per thread.
pub struct Binding<'s> {
    session: &'s Session,
    inputs: Vec<Given>,
    bound: Vec<Option<Tensor>>,
    /// Outputs that become inputs: number of the output, number of the input.
    keep: Vec<(usize, usize)>,
    lane: Option<(Arc<Ready>, Box<Lane>)>,
}

/// What a binding has for an input.
#[derive(Clone, Debug)]
enum Given {
    Nothing,
    /// The same for every run.
    Value(Value),
    /// What the last run kept.
    Kept(Value),
    /// It was overwritten in a run that failed.
    Lost,
}

impl<'s> Binding<'s> {
    pub(super) fn new(session: &'s Session) -> Result<Binding<'s>> {
        let bound = session.io.outputs.iter().map(|_| None).collect();
        let inputs = session.io.inputs.iter().map(|_| Given::Nothing).collect();
        Ok(Binding { session, inputs, bound, keep: Vec::new(), lane: None })
    }

    /// Sets an input for all runs from now on.
    pub fn input(&mut self, name: &str, value: impl Into<Value>) -> Result<&mut Self> {
        let at = self.session.input(name)?;
        self.inputs[at] = Given::Value(value.into());
        Ok(self)
    }

    /// Binds a tensor that may be written and that nobody shares to an output: runs write there. Its size is what
    /// the output may have at most. A bound tensor that does not fit is the error `bound-shape`.
    pub fn output(&mut self, name: &str, tensor: Tensor) -> Result<&mut Self> {
        let at = self.session.output(name)?;
        if !tensor.is_writable() {
            let text = format!("the tensor for output '{name}' is shared or may not be written");
            return Err(Error::new(codes::BAD_VALUE, text));
        }
        self.bound[at] = Some(tensor);
        Ok(self)
    }

    /// Keeps an output as an input of the next run, wherever the EP leaves it. The input's first value is set as any other.
    ///
    /// The last reader of a kept value may overwrite it. If a run fails, a value in an EP's own memory space is as before,
    /// unless a device is gone; one in host memory is lost and has to be set again.
    pub fn keep(&mut self, output: &str, input: &str) -> Result<&mut Self> {
        let pair = (self.session.output(output)?, self.session.input(input)?);
        self.keep.retain(|k| k.0 != pair.0 && k.1 != pair.1);
        self.keep.push(pair);
        Ok(self)
    }

    /// Runs. Kept outputs are among the outputs too, and share their memory with the next run's inputs.
    pub fn run(&mut self) -> Result<Outputs> {
        self.run_with(&RunOptions::default())
    }

    /// Runs with options.
    pub fn run_with(&mut self, options: &RunOptions) -> Result<Outputs> {
        let _caller = Pool::global().enter();
        let stop = Stop::of(options);
        self.unshared()?;
        let generation = self.session.current()?;
        let (ready, mut lane) = self.prepare(generation)?;
        let result = self.run_on(&ready, &mut lane, options, &stop);
        let result = result.map_err(|e| {
            if e.is(codes::DEVICE_LOST) {
                self.forget_kept();
            }
            generation.learn(&self.session.means, e)
        });
        if lane.state.lost {
            run::give_back(&ready, lane);
        } else {
            self.lane = Some((ready, lane));
        }
        result
    }

    /// Memory that somebody still reads must not be written.
    fn unshared(&self) -> Result<()> {
        let shared =
            self.bound.iter().zip(&self.session.io.outputs).find(|(b, _)| b.as_ref().is_some_and(|b| !b.is_writable()));
        match shared {
            Some((_, info)) => {
                let text = format!("the tensor bound to output '{}' is still shared with an earlier result", info.name);
                Err(Error::new(codes::BAD_VALUE, text))
            }
            None => Ok(()),
        }
    }

    /// What was kept in a device's memory may be gone.
    #[cold]
    fn forget_kept(&mut self) {
        let kept = |g: &Given| matches!(g, Given::Kept(v) if !is_host(v));
        self.inputs.iter_mut().filter(|g| kept(g)).for_each(|g| *g = Given::Lost);
    }

    /// The plan for the inputs, and a lane of it.
    fn prepare(&mut self, generation: &Generation) -> Result<(Arc<Ready>, Box<Lane>)> {
        let ready = match &generation.plans {
            Plans::One(ready) => Arc::clone(ready),
            keyed => {
                let given = self.inputs.iter().enumerate().filter_map(|(at, g)| match g {
                    Given::Value(v) | Given::Kept(v) => Some((at, Input::Shared(v))),
                    Given::Nothing | Given::Lost => None,
                });
                generation.ready(keyed, &given.collect::<SmallVec<[_; 8]>>())?
            }
        };
        match self.lane.take() {
            Some((old, lane)) if Arc::ptr_eq(&old, &ready) => Ok((ready, lane)),
            other => {
                if let Some((old, lane)) = other {
                    run::give_back(&old, lane);
                }
                let lane = ready.lanes.take(&ready.plan);
                Ok((ready, lane))
            }
        }
    }

    fn run_on(
        &mut self,
        ready: &Arc<Ready>,
        lane: &mut Lane,
        options: &RunOptions,
        stop: &Stop<'_>,
    ) -> Result<Outputs> {
        let plan = &ready.plan;
        run::begin(lane, options);
        lane.state.keep.clear();
        lane.state.keep.extend(self.keep.iter().filter_map(|k| u32::try_from(k.0).ok()));
        lane.state.backups.clear();
        self.look_over(plan, lane)?;
        let (bound, session, given) = (&self.bound, self.session, &mut self.inputs);
        let inputs = given.iter_mut().enumerate().filter_map(|(at, given)| Some((Ok(at), given.hand_over()?)));
        let mut run = Run { plan, lane, cancel: stop.word(), width: session.means.width, bound };
        let result = place_all(&mut run, inputs)
            .and_then(|()| run.bind().map_err(Error::from))
            .and_then(|()| run.all())
            .and_then(|()| stop.in_time())
            .and_then(|()| run::outputs(&mut run, &session.io));
        match &result {
            Ok(outputs) => {
                run::end(plan, run.lane);
                for &(output, input) in &self.keep {
                    self.inputs[input] = Given::Kept(outputs[output].clone());
                }
            }
            Err(_) => run.reset(),
        }
        run.lane.state.recorder = None;
        run.lane.state.keep.clear();
        result
    }

    /// Notes kept inputs of which a handle stays here in case the run fails. An error if one was lost.
    fn look_over(&self, plan: &crate::plan::Plan, lane: &mut Lane) -> Result<()> {
        for (at, given) in self.inputs.iter().enumerate() {
            match given {
                Given::Kept(v) if !is_host(v) => lane.state.backups.push(plan.inputs[at]),
                Given::Lost => {
                    let name = &self.session.io.inputs[at].name;
                    let text = format!("the value kept for input '{name}' was lost in a run that failed: set it again");
                    return Err(Error::new(codes::INPUT_MISSING, text));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Anything but a tensor counts as lying in host memory.
fn is_host(value: &Value) -> bool {
    value.as_tensor().map_or(true, Tensor::is_host)
}

impl Given {
    /// The input of a run. What was kept is given away; in an EP's memory, with one handle left here.
    fn hand_over(&mut self) -> Option<Input<'static>> {
        match self {
            Given::Nothing | Given::Lost => None,
            Given::Value(v) => Some(Input::Moved(v.clone())),
            Given::Kept(v) if !is_host(v) => Some(Input::Moved(v.clone())),
            Given::Kept(_) => match std::mem::replace(self, Given::Lost) {
                Given::Kept(v) => Some(Input::Moved(v)),
                _ => None,
            },
        }
    }
}

impl Drop for Binding<'_> {
    fn drop(&mut self) {
        if let Some((ready, lane)) = self.lane.take() {
            run::give_back(&ready, lane);
        }
    }
}

impl std::fmt::Debug for Binding<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Binding({} inputs, {} bound outputs)", self.inputs.len(), self.bound.iter().flatten().count())
    }
}
