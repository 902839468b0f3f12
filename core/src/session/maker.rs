//! Makes plans: asks, splits, compiles, and begins again with what a failure taught.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use ortolan_ep_abi::raw::UNKNOWN;
use ortolan_graph::Graph;
use ortolan_graph::ir::NodeId;

use super::SessionOptions;
use crate::abi::{Answer, PartHandle, Rejection, Setup};
use crate::compile::{compile, constants, release};
use crate::ep::StartedEp;
use crate::error::{Error, Result, codes};
use crate::exec::{Account, GO, Lane, Lanes, Run};
use crate::partition::{Bans, Cx, EpCx, Offers, PartSpec, Report, first_choice, outlook, partition};
use crate::plan::{self, Plan, Sources};
use crate::program::{Program, Shared};

/// What all plans of a session are made with.
#[derive(Clone)]
pub(super) struct Means {
    pub eps: Vec<StartedEp>,
    /// Constants of the loaded model.
    pub shared: Shared,
    pub options: SessionOptions,
    pub account: Arc<Account>,
    pub width: u32,
}

/// A plan with its lanes and its report.
pub(super) struct Ready {
    // Lanes go before the parts that made what is in them.
    pub lanes: Lanes,
    pub plan: Plan,
    pub report: Report,
    /// Some part may still read the program's constants.
    pub holds_constants: bool,
}

/// Everything that plans of one graph are made from.
pub(super) struct Maker {
    graph: Arc<Graph>,
    eps: Vec<EpCx>,
    means: Arc<Means>,
    /// Symbols of the largest dialect.
    symbols: usize,
    state: Mutex<State>,
}

/// What is kept from plan to plan.
#[derive(Default)]
struct State {
    /// Answers that do not depend on shapes, by EP.
    offers: HashMap<usize, Offers>,
    /// Parts by what they are, and by the symbols for EPs that want fixed shapes.
    compiled: HashMap<(PartSpec, Box<[i64]>), Arc<PartHandle>>,
    notes: Vec<String>,
}

impl Maker {
    /// `notes` are for every report.
    pub fn new(graph: Graph, means: &Arc<Means>, notes: Vec<String>) -> Result<Maker> {
        let mut eps = Vec::new();
        for ep in &means.eps {
            let program = Program::new(&graph, &ep.opset, means.shared)?;
            eps.push(EpCx::new(Arc::clone(&ep.handle), program, ep.set_aside.clone()));
        }
        let symbols = eps.iter().map(|e| e.program.raw().symbol_count as usize).max().unwrap_or(0);
        let symbols = symbols.max(graph.exprs().symbols().len());
        let state = Mutex::new(State { notes, ..State::default() });
        Ok(Maker { graph: Arc::new(graph), eps, means: Arc::clone(means), symbols, state })
    }

    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// The same for another graph.
    pub fn again(&self, graph: Graph) -> Result<Maker> {
        Maker::new(graph, &self.means, Vec::new())
    }

    /// The newest standard opset that all EPs read.
    pub fn opset(&self) -> u32 {
        let versions = self.means.eps.iter().filter_map(|ep| ep.opset.get("").copied());
        versions.min().unwrap_or(0)
    }

    /// Nodes that no EP takes by its first answer, and that the executor does not walk.
    pub fn refused(&self) -> Vec<NodeId> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let symbols = self.no_symbols();
        let cx = self.cx(&symbols);
        let offers = self.offers(&cx, &mut state);
        let lost = |n: &NodeId| !cx.is_control(*n) && offers.iter().all(|o| o.cost(*n).is_none());
        self.graph.live_nodes().into_iter().filter(lost).collect()
    }

    /// Whether plans depend on the numbers of symbols.
    pub fn wants_shapes(&self) -> bool {
        let open = !self.graph.exprs().symbols().is_empty();
        open && self.eps.iter().any(|e| e.handle.device().static_shapes)
    }

    /// Numbers of symbols of which nothing is known.
    pub fn no_symbols(&self) -> Vec<i64> {
        vec![UNKNOWN; self.symbols]
    }

    fn cx<'a>(&'a self, symbols: &'a [i64]) -> Cx<'a> {
        Cx::new(&self.graph, &self.eps, symbols, self.means.width, self.means.options.min_gain_ns)
    }

    /// Makes the plan for these numbers of symbols.
    pub fn make(&self, symbols: &[i64]) -> Result<Ready> {
        // One at a time: a build uses all threads anyway.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Parts for fixed shapes go with the last plan that has them.
        state.compiled.retain(|(_, symbols), part| symbols.is_empty() || Arc::strong_count(part) > 1);
        let cx = self.cx(symbols);
        let mut offers = self.offers(&cx, &mut state);
        let mut bans = Bans::default();
        let mut lost = self.means.lost();
        loop {
            // A device may go away at any time: then begin again without it.
            if self.means.lost() > lost {
                lost = self.means.lost();
                offers = self.offers(&cx, &mut state);
            }
            let split = partition(&cx, &offers, &mut bans)?;
            if !self.confirm(&cx, &split.parts, &mut bans) {
                continue;
            }
            let Some(parts) = self.compile_all(symbols, &split.parts, &mut bans, &mut state)? else { continue };
            let mut plan = plan::build(&self.graph, &split, &parts, self.symbols)?;
            plan.sources = split.parts.iter().map(|p| sources(&self.eps[p.ep].program, p)).collect();
            match self.run_once(&mut plan) {
                Err(e) if e.is(codes::DEVICE_LOST) && self.means.lost() > lost => continue,
                made => made?,
            }
            let mut report = Report::new(&cx, &offers, &bans, &split);
            report.copies = plan.copies;
            report.notes.clone_from(&state.notes);
            let holds_constants = parts.iter().any(|p| p.holds_constants());
            return Ok(Ready { lanes: Lanes::new(Arc::clone(&self.means.account)), plan, report, holds_constants });
        }
    }

    /// The split of a model whose plans depend on shapes that are not known yet.
    pub fn preview(&self) -> Result<Report> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let symbols = self.no_symbols();
        let cx = self.cx(&symbols);
        let offers = self.offers(&cx, &mut state);
        let mut bans = Bans::default();
        let split = partition(&cx, &offers, &mut bans)?;
        let mut report = Report::new(&cx, &offers, &bans, &split);
        report.notes.clone_from(&state.notes);
        report
            .notes
            .push("an EP wants fixed shapes: plans are made at the first run with each set of shapes".to_owned());
        Ok(report)
    }

    /// Who takes which node, as far as that can be told before branches are decided: `open` are the nodes of those branches.
    pub fn outlook(&self, open: &HashSet<NodeId>) -> Result<Report> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let symbols = self.no_symbols();
        let cx = self.cx(&symbols);
        let offers = self.offers(&cx, &mut state);
        let split = outlook(&cx, &offers, open)?;
        let mut report = Report::new(&cx, &offers, &Bans::default(), &split);
        report.notes.clone_from(&state.notes);
        Ok(report)
    }

    /// Who takes which node, by the first answers of all EPs.
    pub fn survey(&self) -> Report {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let symbols = self.no_symbols();
        let cx = self.cx(&symbols);
        let offers = self.offers(&cx, &mut state);
        Report::new(&cx, &offers, &Bans::default(), &first_choice(&cx, &offers))
    }

    fn offers(&self, cx: &Cx<'_>, state: &mut State) -> Vec<Offers> {
        let each = self.eps.iter().enumerate().map(|(at, ep)| {
            if ep.handle.device().static_shapes || ep.handle.lost().is_some() {
                return cx.ask_one(at);
            }
            state.offers.entry(at).or_insert_with(|| cx.ask_one(at)).clone()
        });
        each.collect()
    }

    /// Asks about every part exactly as it would be compiled. False if that ruled something out.
    fn confirm(&self, cx: &Cx<'_>, parts: &[PartSpec], bans: &mut Bans) -> bool {
        if self.eps.len() == 1 && parts.len() == 1 {
            return true;
        }
        let mut fine = true;
        for spec in parts {
            let ep = &self.eps[spec.ep];
            let setup = Setup { symbols: cx.hints, ..Setup::plain(ep.handle.name(), self.means.width) };
            let answers = ep.handle.claim(&setup, ep.program.raw(), &spec.desc());
            let refused: Vec<(u32, Rejection)> = match answers {
                Ok(answers) => spec.nodes.iter().copied().zip(answers.of).filter_map(rejected).collect(),
                Err(e) => {
                    let why = Rejection { code: e.code().to_owned(), sentence: e.message().to_owned() };
                    spec.nodes.iter().map(|&n| (n, why.clone())).collect()
                }
            };
            for (node, why) in refused {
                let Some(node) = NodeId::from_index(node) else { continue };
                for source in ep.program.sources(node) {
                    fine &= !bans.add(spec.ep, source, why.clone());
                }
            }
        }
        fine
    }

    /// Compiles what is not compiled yet. `None` if a part failed, which is then banned from its EP.
    fn compile_all(
        &self,
        symbols: &[i64],
        specs: &[PartSpec],
        bans: &mut Bans,
        state: &mut State,
    ) -> Result<Option<Vec<Arc<PartHandle>>>> {
        let holders = Holders::new(&self.graph, &self.eps, specs);
        let mut parts = Vec::new();
        for spec in specs {
            let ep = &self.eps[spec.ep];
            let fixed = ep.handle.device().static_shapes;
            let key = (spec.clone(), if fixed { symbols.into() } else { Box::default() });
            if let Some(part) = state.compiled.get(&key) {
                parts.push(Arc::clone(part));
                continue;
            }
            let release = |constant| holders.release(constant);
            match compile(ep, symbols, self.means.width, spec, &release) {
                Ok(part) => {
                    let part = Arc::new(part);
                    state.compiled.insert(key, Arc::clone(&part));
                    parts.push(part);
                }
                Err(error) if error.is(codes::DEVICE_LOST) => {
                    tracing::warn!(%error, "planning goes on without it");
                    return Ok(None);
                }
                Err(error) => {
                    tracing::warn!(ep = ep.handle.name(), %error, "a part could not be compiled");
                    let place =
                        spec.placed.first().map_or_else(String::new, |&n| self.graph.node(n).place(&self.graph));
                    state.notes.push(format!("a part of {} nodes from {place} on: {error}", spec.placed.len()));
                    let why = Rejection::host(codes::COMPILE_FAILED, error.message());
                    let new = spec.placed.iter().filter(|&&n| bans.add(spec.ep, n, why.clone())).count();
                    return if new > 0 { Ok(None) } else { Err(error) };
                }
            }
        }
        Ok(Some(parts))
    }

    /// Runs the parts that depend on constants only; their results become the plan's own.
    fn run_once(&self, plan: &mut Plan) -> Result<()> {
        if plan.once.is_empty() {
            return Ok(());
        }
        let go = AtomicU32::new(GO);
        let mut lane = Lane::new(plan, &self.means.account);
        let mut run = Run { plan, lane: &mut lane, cancel: &go, width: self.means.width, bound: &[] };
        let made = run.once()?;
        drop(lane);
        plan.presets.extend(made);
        Ok(())
    }
}

fn rejected((node, answer): (u32, Answer)) -> Option<(u32, Rejection)> {
    match answer {
        Answer::Rejected(why) => Some((node, why)),
        Answer::Claimed(_) => None,
    }
}

/// What nodes of a part stand for that its dialect writes otherwise.
fn sources(program: &Program, spec: &PartSpec) -> Sources {
    let renamed = spec.nodes.iter().filter_map(|&n| {
        let sources = program.sources(NodeId::from_index(n)?);
        let plain = sources.len() == 1 && sources[0].raw() == n;
        (!plain).then(|| (n, sources.iter().map(|s| s.raw()).collect()))
    });
    renamed.collect()
}

/// How many parts may still read each constant of a file. At none its pages go back to the system.
struct Holders<'a> {
    graph: &'a Graph,
    by_const: Vec<AtomicU32>,
}

impl<'a> Holders<'a> {
    fn new(graph: &'a Graph, eps: &[EpCx], specs: &[PartSpec]) -> Holders<'a> {
        let mut by_const = vec![0u32; graph.constants().len()];
        for spec in specs {
            for c in constants(eps[spec.ep].program.graph(), &spec.nodes) {
                if let Some(n) = by_const.get_mut(c.index()) {
                    *n += 1;
                }
            }
        }
        Holders { graph, by_const: by_const.into_iter().map(AtomicU32::new).collect() }
    }

    fn release(&self, constant: u32) {
        let Some(count) = self.by_const.get(constant as usize) else { return };
        if count.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)) == Ok(1) {
            release(self.graph, constant);
        }
    }
}

impl Means {
    /// How many EPs have lost their device.
    pub fn lost(&self) -> usize {
        self.eps.iter().filter(|ep| ep.handle.lost().is_some()).count()
    }
}

/// A failure for which no further plan helps.
pub(super) fn no_eps() -> Error {
    Error::new(codes::NO_EPS, "no execution provider was given to the session")
}
