//! A model that is ready to run.
//!
//! [`Session::run`] may be called from many threads at once; each call has a lane of its own, and there is no lock on the
//! way. A session keeps its execution providers alive.

mod binding;
mod bodies;
mod choices;
mod generation;
mod info;
mod maker;
pub(crate) mod onnx;
mod options;
mod outputs;
mod plans;
mod run;

use std::fmt;
use std::sync::Arc;

use ortolan_graph::{Graph, LoadOptions, load, load_bytes};
use smallvec::SmallVec;

pub use binding::Binding;
pub use info::{DimInfo, ValueInfo};
pub use options::{Model, RunOptions, SessionOptions};
pub use outputs::Outputs;

use crate::ep::{SessionEp, StartedEp};
use crate::error::{Error, Result, codes};
use crate::exec::{Account, Lane, Run, Unbound};
use crate::partition::Report;
use crate::pool::Pool;
use crate::program::Shared;
use crate::value::Input;
use generation::Generation;
use info::Io;
use maker::{Means, Ready, no_eps};
use plans::Plans;
use run::Stop;

/// A model that is ready to run.
pub struct Session {
    io: Io,
    first: Generation,
    source: Option<Source>,
    means: Arc<Means>,
}

/// What is needed to load the model again: for plans that do not believe dim names, or that do without a lost device.
struct Source {
    model: Model,
    options: SessionOptions,
}

/// Builds a session.
#[derive(Clone, Debug, Default)]
pub struct SessionBuilder {
    eps: Vec<SessionEp>,
    options: SessionOptions,
}

impl SessionBuilder {
    /// Adds execution providers, the most preferred first.
    #[must_use]
    pub fn eps(mut self, eps: impl IntoIterator<Item = SessionEp>) -> Self {
        self.eps.extend(eps);
        self
    }

    /// Threads that a run uses, the caller's own included.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// Sets all options.
    #[must_use]
    pub fn options(mut self, options: SessionOptions) -> Self {
        self.options = options;
        self
    }

    /// Says which EP takes which node before anything is compiled; nodes that nobody takes are in the report too. For
    /// models that [`build`](Self::build) refuses.
    pub fn survey(self, model: impl Into<Model>) -> Result<Report> {
        let _caller = Pool::global().enter();
        let (_, graph, means) = self.begin(model)?;
        plans::survey(graph, &means)
    }

    /// Loads the model, splits it over the EPs and compiles the parts.
    pub fn build(self, model: impl Into<Model>) -> Result<Session> {
        let _caller = Pool::global().enter();
        let (source, graph, means) = self.begin(model)?;
        let io = Io::new(&graph);
        let first = Generation::new(graph, &means)?;
        // A graph in memory is kept only where a device that is lost would leave somebody to run it.
        let keep = !matches!(source.model, Model::Graph(_)) || means.eps.len() > 1;
        Ok(Session { io, first, source: keep.then_some(source), means })
    }

    /// Loads the model and starts the EPs.
    fn begin(self, model: impl Into<Model>) -> Result<(Source, Graph, Arc<Means>)> {
        let SessionBuilder { eps, options } = self;
        options.check()?;
        let source = Source { model: model.into(), options };
        let graph = source.load(true)?;
        if eps.is_empty() && !graph.main().nodes.is_empty() {
            return Err(no_eps());
        }
        let eps = eps.iter().map(SessionEp::start).collect::<Result<Vec<_>>>()?;
        let options = source.options.clone();
        let account = Arc::new(Account::new(options.memory_limit));
        let width = options.threads.unwrap_or_else(|| Pool::global().threads());
        let shared = Shared::of(&graph, has_devices(&eps));
        let means = Arc::new(Means { eps, shared, options, account, width });
        Ok((source, graph, means))
    }
}

impl Source {
    fn load(&self, believe_dim_names: bool) -> Result<Graph> {
        let (mmap, dims) = (self.options.mmap, self.options.dims.clone());
        let options = LoadOptions { mmap, dims, believe_dim_names, ..LoadOptions::default() };
        Ok(match &self.model {
            Model::Path(path) => load(path, &options)?,
            Model::Bytes(bytes, folder) => load_bytes(bytes.clone(), folder.as_deref(), &options)?,
            Model::Graph(graph) => (**graph).clone(),
        })
    }
}

impl Session {
    /// Begins to build a session.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// The model's inputs.
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.io.inputs
    }

    /// The model's outputs.
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.io.outputs
    }

    /// Where every node runs, and why.
    /// Where branches wait for the sizes of a run, it says more once there was one; after a device was lost and a run was
    /// made without it, where that one ran.
    pub fn report(&self) -> &Report {
        self.first.newest().report()
    }

    /// Threads that a run uses.
    pub fn threads(&self) -> u32 {
        self.means.width
    }

    /// Host memory that lanes hold now, in bytes.
    pub fn memory(&self) -> u64 {
        self.means.account.used()
    }

    /// Gives up memory that is kept for further runs.
    pub fn trim(&self) {
        self.first.trim();
    }

    /// Runs the model on named inputs.
    pub fn run<'i, N: AsRef<str>, I: Into<Input<'i>>>(
        &self,
        inputs: impl IntoIterator<Item = (N, I)>,
    ) -> Result<Outputs> {
        self.run_with(inputs, &RunOptions::default())
    }

    /// Runs the model with options. After an error the session can be used again.
    pub fn run_with<'i, N: AsRef<str>, I: Into<Input<'i>>>(
        &self,
        inputs: impl IntoIterator<Item = (N, I)>,
        options: &RunOptions,
    ) -> Result<Outputs> {
        let _caller = Pool::global().enter();
        let stop = Stop::of(options);
        let named = inputs.into_iter().map(|(name, input)| (self.input(name.as_ref()), input.into()));
        let generation = self.current()?;
        let result = match &generation.plans {
            Plans::One(ready) => self.run_one(generation, ready, named, options, &stop, true),
            keyed => {
                let inputs = named.map(|(at, input)| Ok((at?, input))).collect::<Result<SmallVec<[_; 8]>>>()?;
                self.run_keyed(generation, keyed, inputs, options, &stop)
            }
        };
        result.map_err(|e| generation.learn(&self.means, e))
    }

    /// Prepares runs with the same inputs and outputs again and again.
    pub fn bind(&self) -> Result<Binding<'_>> {
        Binding::new(self)
    }

    fn input(&self, name: &str) -> Result<usize> {
        self.io.input(name).ok_or_else(|| self.unknown(codes::INPUT_UNKNOWN, "input", name, &self.io.inputs))
    }

    fn output(&self, name: &str) -> Result<usize> {
        self.io.output(name).ok_or_else(|| self.unknown(codes::OUTPUT_UNKNOWN, "output", name, &self.io.outputs))
    }

    #[cold]
    fn unknown(&self, code: crate::codes::Code, kind: &str, name: &str, all: &[ValueInfo]) -> Error {
        let names: Vec<&str> = all.iter().take(20).map(|i| i.name.as_str()).collect();
        Error::new(code, format!("there is no {kind} '{name}'; there are: {}", names.join(", ")))
    }

    fn run_one<'i>(
        &self,
        generation: &Generation,
        ready: &Arc<Ready>,
        inputs: impl Iterator<Item = (Result<usize>, Input<'i>)>,
        options: &RunOptions,
        stop: &Stop<'_>,
        relax: bool,
    ) -> Result<Outputs> {
        let mut lane = ready.lanes.take(&ready.plan);
        let relax = relax.then_some(generation);
        let result = self.run_on(ready, &mut lane, inputs, options, stop, relax);
        run::give_back(ready, lane);
        result
    }

    fn run_on<'i>(
        &self,
        ready: &Arc<Ready>,
        lane: &mut Lane,
        inputs: impl Iterator<Item = (Result<usize>, Input<'i>)>,
        options: &RunOptions,
        stop: &Stop<'_>,
        relax: Option<&Generation>,
    ) -> Result<Outputs> {
        let plan = &ready.plan;
        run::begin(lane, options);
        let mut run = Run { plan, lane, cancel: stop.word(), width: self.means.width, bound: &[] };
        let result = match place_all(&mut run, inputs).map(|()| run.bind()) {
            Ok(Ok(())) => run.all().and_then(|()| stop.in_time()).and_then(|()| run::outputs(&mut run, &self.io)),
            Ok(Err(unbound)) => match (unbound, relax) {
                (Unbound::Names(error), Some(generation)) => {
                    self.run_relaxed(generation, &mut run, error, options, stop)
                }
                (unbound, _) => Err(unbound.into()),
            },
            Err(error) => Err(error),
        };
        match result {
            Ok(_) => run::end(plan, run.lane),
            Err(_) => run.reset(),
        }
        run.lane.state.recorder = None;
        result
    }

    /// Dim names of this model lie: the same run on a plan that does not believe them.
    #[cold]
    fn run_relaxed(
        &self,
        generation: &Generation,
        run: &mut Run<'_>,
        why: Error,
        options: &RunOptions,
        stop: &Stop<'_>,
    ) -> Result<Outputs> {
        let plans = generation.relaxed(self, why)?;
        // SAFETY: what the caller lent, it lent for all of this run.
        let inputs = unsafe { run.take_inputs() };
        self.run_keyed(generation, plans, inputs, options, stop)
    }

    fn run_keyed(
        &self,
        generation: &Generation,
        plans: &Plans,
        inputs: SmallVec<[(usize, Input<'_>); 8]>,
        options: &RunOptions,
        stop: &Stop<'_>,
    ) -> Result<Outputs> {
        let ready = match generation.ready(plans, &inputs) {
            Ok(ready) => ready,
            Err(Unbound::Names(why)) if std::ptr::eq(plans, &generation.plans) => {
                generation.relaxed(self, why)?.of(&inputs)?
            }
            Err(unbound) => return Err(unbound.into()),
        };
        let inputs = inputs.into_iter().map(|(at, input)| (Ok(at), input));
        self.run_one(generation, &ready, inputs, options, stop, false)
    }
}

/// Whether an EP has memory of its own: one copy of each weight there is worth comparing models.
fn has_devices(eps: &[StartedEp]) -> bool {
    eps.iter().any(StartedEp::own_memory)
}

/// Checks the inputs and puts them into their slots.
fn place_all<'i>(run: &mut Run<'_>, inputs: impl Iterator<Item = (Result<usize>, Input<'i>)>) -> Result<()> {
    let mut given: u64 = 0;
    for (at, input) in inputs {
        let at = at?;
        let rule = &run.plan.binder.inputs[at];
        run::check(rule, &input)?;
        // A slot that is filled was given before, or has a default.
        let bit = 1u64 << (at % 64);
        let twice = !run.is_free(at) && (!rule.has_default || (at < 64 && given & bit != 0));
        if twice {
            return Err(Error::new(codes::INPUT_UNKNOWN, format!("input '{}' was given twice", rule.name)));
        }
        given |= bit;
        // SAFETY: the inputs' lifetime covers this run, and `end` or `reset` empties the slots before it is over.
        unsafe { run::place(run.plan, run.lane, at, input) }?;
    }
    run::complete(run.plan, run.lane)
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({} inputs, {} outputs)", self.io.inputs.len(), self.io.outputs.len())
    }
}
