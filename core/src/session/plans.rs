//! The plans of a session: one; or one per set of shapes, or of outcomes of the conditions that shapes decide.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use ortolan_ep_abi::raw::UNKNOWN;
use ortolan_graph::Graph;
use ortolan_graph::ir::NodeId;

use super::bodies;
use super::choices::Choices;
use super::maker::{Maker, Means, Ready};
use super::run::check;
use crate::error::Result;
use crate::exec::{Unbound, symbols_of};
use crate::once::Evaluator;
use crate::partition::Report;
use crate::passes::{self, decide};
use crate::plan::Binder;
use crate::value::Input;

/// How a session finds the plan of a run.
pub(super) enum Plans {
    /// One for all shapes.
    One(Arc<Ready>),
    /// One per set of shapes, because an EP wants them fixed.
    Keyed { binder: Box<Binder>, maker: Box<Maker>, plans: Keyed<Ready> },
    /// Others per outcome of conditions that the inputs decide: branches that are not taken are not in them.
    Branched(Box<Branched>),
}

/// A graph in which inputs decide branches.
pub(super) struct Branched {
    binder: Binder,
    choices: Choices,
    /// Ifs whose conditions inputs left open, here or on the way here: the executor decides them.
    left: Vec<NodeId>,
    graph: Graph,
    means: Arc<Means>,
    plans: Keyed<Plans>,
}

impl Plans {
    /// The plans of a loaded graph, and what is known of them now.
    pub fn new(graph: Graph, means: &Arc<Means>) -> Result<(Plans, Report)> {
        Plans::beyond(graph, means, Vec::new())
    }

    /// The same, when some conditions are left to the executor.
    fn beyond(mut graph: Graph, means: &Arc<Means>, left: Vec<NodeId>) -> Result<(Plans, Report)> {
        let mut evaluator = Evaluator::new(&means.eps, means.shared, &means.account, means.width);
        passes::run(&mut graph, &mut evaluator)?;
        let notes = evaluator.notes;
        let choices = Choices::of(&graph, &left);
        if !choices.is_empty() {
            return Plans::branched(graph, (choices, left), means, notes);
        }
        let maker = Maker::new(graph, means, notes)?;
        if let Some(graph) = bodies::write_out(&maker)? {
            return Plans::beyond(graph, means, left);
        }
        if maker.wants_shapes() {
            let binder = Box::new(Binder::new(maker.graph(), maker.no_symbols().len()));
            let report = maker.preview()?;
            let plans = Keyed::new(means.options.max_plans);
            return Ok((Plans::Keyed { binder, maker: Box::new(maker), plans }, report));
        }
        // The graph and its maps go with the maker, but for what parts still hold.
        let ready = maker.make(&maker.no_symbols())?;
        let mut report = ready.report.clone();
        if ready.holds_constants {
            report.notes.push("an EP reads weights where they lie: the model file stays mapped".to_owned());
        }
        Ok((Plans::One(Arc::new(ready)), report))
    }

    fn branched(
        graph: Graph,
        (choices, left): (Choices, Vec<NodeId>),
        means: &Arc<Means>,
        notes: Vec<String>,
    ) -> Result<(Plans, Report)> {
        let open = decide::uncertain(&graph, &choices.nodes().collect::<Vec<_>>());
        let maker = Maker::new(graph.clone(), means, notes)?;
        let mut report = maker.outlook(&open)?;
        let text = format!("{} branches are decided by the inputs of a run, and planned then", choices.len());
        report.notes.push(text);
        let (binder, plans) = (Binder::new(&graph, 0), Keyed::new(means.options.max_plans));
        let means = Arc::clone(means);
        Ok((Plans::Branched(Box::new(Branched { binder, choices, left, graph, means, plans })), report))
    }

    /// The plan for these inputs.
    pub fn of(&self, inputs: &[(usize, Input<'_>)]) -> Result<Arc<Ready>, Unbound> {
        let binder = match self {
            Plans::One(ready) => return Ok(Arc::clone(ready)),
            Plans::Keyed { binder, .. } => binder,
            Plans::Branched(b) => &b.binder,
        };
        for (at, input) in inputs {
            check(&binder.inputs[*at], input).map_err(Unbound::Never)?;
        }
        let symbols = symbols_of(binder, inputs)?;
        self.for_symbols(&symbols).map_err(Unbound::Never)
    }

    fn for_symbols(&self, symbols: &[i64]) -> Result<Arc<Ready>> {
        match self {
            Plans::One(ready) => Ok(Arc::clone(ready)),
            Plans::Keyed { binder, maker, plans } => {
                // Symbols that a branch added are known only once it has run.
                let mut all = symbols.to_vec();
                all.resize(binder.symbols, UNKNOWN);
                plans.get(&all, || maker.make(&all))
            }
            Plans::Branched(b) => {
                let outcome = b.choices.outcome(symbols);
                b.plans.get(&outcome, || b.decided(&outcome))?.for_symbols(symbols)
            }
        }
    }

    /// Calls `f` with every plan that was made.
    pub fn each(&self, f: &mut dyn FnMut(&Ready)) {
        match self {
            Plans::One(ready) => f(ready),
            Plans::Keyed { plans, .. } => plans.ready().iter().for_each(|r| f(r)),
            Plans::Branched(b) => b.plans.ready().iter().for_each(|p| p.each(f)),
        }
    }
}

impl Branched {
    /// The plans in which conditions have this outcome.
    fn decided(&self, outcome: &[i64]) -> Result<Plans> {
        let (taken, mut left) = self.choices.split(outcome);
        tracing::debug!(decided = taken.len(), left = left.len(), "branches");
        left.extend(&self.left);
        let mut graph = self.graph.clone();
        decide::take(&mut graph, &taken)?;
        Plans::beyond(graph, &self.means, left).map(|(plans, _)| plans)
    }
}

/// Who takes which node of a loaded graph, by the first answers of all EPs.
pub(super) fn survey(mut graph: Graph, means: &Arc<Means>) -> Result<Report> {
    let mut evaluator = Evaluator::new(&means.eps, means.shared, &means.account, means.width);
    passes::run(&mut graph, &mut evaluator)?;
    let maker = Maker::new(graph, means, evaluator.notes)?;
    match bodies::write_out(&maker)? {
        Some(graph) => survey(graph, means),
        None => Ok(maker.survey()),
    }
}

/// What was made for some numbers, most recently used last.
pub(super) struct Keyed<T> {
    all: RwLock<Vec<Entry<T>>>,
    most: usize,
}

struct Entry<T> {
    key: Box<[i64]>,
    made: Arc<OnceLock<Result<Arc<T>>>>,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Entry<T> {
        Entry { key: self.key.clone(), made: Arc::clone(&self.made) }
    }
}

impl<T> Keyed<T> {
    pub fn new(most: usize) -> Keyed<T> {
        Keyed { all: RwLock::default(), most }
    }

    /// What belongs to these numbers. Whoever comes first makes it; others with the same wait for it, and nobody else does.
    pub fn get(&self, key: &[i64], make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let made = self.find(key).unwrap_or_else(|| self.insert(key));
        made.get_or_init(|| make().map(Arc::new)).clone()
    }

    fn find(&self, key: &[i64]) -> Option<Arc<OnceLock<Result<Arc<T>>>>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|e| *e.key == *key)?;
        let made = Arc::clone(&all[at].made);
        let newest = at + 1 == all.len();
        drop(all);
        if !newest {
            let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = all.iter().position(|e| Arc::ptr_eq(&e.made, &made)) {
                let entry = all.remove(at);
                all.push(entry);
            }
        }
        Some(made)
    }

    fn insert(&self, key: &[i64]) -> Arc<OnceLock<Result<Arc<T>>>> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = all.iter().find(|e| *e.key == *key) {
            return Arc::clone(&entry.made);
        }
        if all.len() >= self.most {
            all.remove(0);
        }
        let made: Arc<OnceLock<Result<Arc<T>>>> = Arc::default();
        all.push(Entry { key: key.into(), made: Arc::clone(&made) });
        made
    }

    /// All that is ready.
    pub fn ready(&self) -> Vec<Arc<T>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|e| e.made.get()?.as_ref().ok().cloned()).collect()
    }
}
