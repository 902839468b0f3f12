//! Makes plans: asks, splits, compiles, and begins again with what a failure taught.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use ortolan_ep_abi::raw;
use ortolan_graph::Graph;
use ortolan_graph::ir::{AttrValue, ConstId, Data, NodeId};

use super::SessionOptions;
use crate::abi::{Answer, Compiling, PartHandle, Ports, Rejection, Setup};
use crate::ep::SessionEp;
use crate::error::{Error, Result, codes};
use crate::exec::{Account, GO, Lane, Lanes, Run};
use crate::partition::{Bans, Cx, EpCx, Offers, PartSpec, Report, first_choice, partition};
use crate::plan::{self, Plan};
use crate::program::Program;
use crate::value::SpaceId;

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
    width: u32,
    min_gain_ns: f64,
    account: Arc<Account>,
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
    pub fn new(
        graph: Graph,
        eps: &[SessionEp],
        options: &SessionOptions,
        account: Arc<Account>,
        width: u32,
    ) -> Result<Maker> {
        let mut cxs = Vec::new();
        for ep in eps {
            let program = Program::new(&graph, ep.opset())?;
            cxs.push(EpCx::new(ep.start()?, program, ep.set_aside().clone()));
        }
        let symbols = cxs.iter().map(|e| e.program.raw().symbol_count as usize).max().unwrap_or(0);
        let symbols = symbols.max(graph.exprs().symbols().len());
        let min_gain_ns = options.min_gain_ns;
        Ok(Maker { graph: Arc::new(graph), eps: cxs, width, min_gain_ns, account, symbols, state: Mutex::default() })
    }

    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Whether plans depend on the numbers of symbols.
    pub fn wants_shapes(&self) -> bool {
        let open = !self.graph.exprs().symbols().is_empty();
        open && self.eps.iter().any(|e| e.handle.device().static_shapes)
    }

    /// Numbers of symbols of which nothing is known.
    pub fn no_symbols(&self) -> Vec<i64> {
        vec![-1; self.symbols]
    }

    /// Makes the plan for these numbers of symbols, -1 for unknown.
    pub fn make(&self, symbols: &[i64]) -> Result<Ready> {
        // One at a time: a build uses all threads anyway.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Parts for fixed shapes go with the last plan that has them.
        state.compiled.retain(|(_, symbols), part| symbols.is_empty() || Arc::strong_count(part) > 1);
        let cx = Cx::new(&self.graph, &self.eps, symbols, self.width, self.min_gain_ns);
        let offers = self.offers(&cx, &mut state);
        let mut bans = Bans::default();
        loop {
            let split = partition(&cx, &offers, &mut bans)?;
            if !self.confirm(&cx, &split.parts, &mut bans) {
                continue;
            }
            let Some(parts) = self.compile_all(symbols, &split.parts, &mut bans, &mut state)? else { continue };
            let mut plan = plan::build(&self.graph, &split, &parts, self.symbols)?;
            self.run_once(&mut plan)?;
            let mut report = Report::new(&cx, &offers, &bans, &split);
            report.copies = plan.copies;
            report.notes.clone_from(&state.notes);
            let holds_constants = parts.iter().any(|p| p.holds_constants());
            return Ok(Ready { lanes: Lanes::new(Arc::clone(&self.account)), plan, report, holds_constants });
        }
    }

    /// The split of a model whose plans depend on shapes that are not known yet.
    pub fn preview(&self) -> Result<Report> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let symbols = self.no_symbols();
        let cx = Cx::new(&self.graph, &self.eps, &symbols, self.width, self.min_gain_ns);
        let offers = self.offers(&cx, &mut state);
        let mut bans = Bans::default();
        let split = partition(&cx, &offers, &mut bans)?;
        let mut report = Report::new(&cx, &offers, &bans, &split);
        report
            .notes
            .push("an EP wants fixed shapes: plans are made at the first run with each set of shapes".to_owned());
        Ok(report)
    }

    /// Who takes which node, by the first answers of all EPs.
    pub fn survey(&self) -> Report {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let symbols = self.no_symbols();
        let cx = Cx::new(&self.graph, &self.eps, &symbols, self.width, self.min_gain_ns);
        let offers = self.offers(&cx, &mut state);
        Report::new(&cx, &offers, &Bans::default(), &first_choice(&cx, &offers))
    }

    fn offers(&self, cx: &Cx<'_>, state: &mut State) -> Vec<Offers> {
        let each = self.eps.iter().enumerate().map(|(at, ep)| {
            if ep.handle.device().static_shapes {
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
            let setup = Setup { symbols: cx.hints, ..Setup::plain(ep.handle.name(), self.width) };
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
            match self.compile(ep, symbols, spec, &holders) {
                Ok(part) => {
                    let part = Arc::new(part);
                    state.compiled.insert(key, Arc::clone(&part));
                    parts.push(part);
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

    fn compile(&self, ep: &EpCx, symbols: &[i64], spec: &PartSpec, holders: &Holders<'_>) -> Result<PartHandle> {
        let setup = Setup { symbols, ..Setup::plain(ep.handle.name(), self.width) };
        let release = |constant| holders.release(constant);
        let onnx = |part: &raw::PartDesc| super::onnx::part(&ep.program, part);
        let compiling = Compiling {
            ports: RefCell::new(Ports {
                inputs: vec![SpaceId::HOST; spec.inputs.len()].into(),
                outputs: vec![SpaceId::HOST; spec.outputs.len()].into(),
            }),
            done: (0..ep.program.constants()).map(|_| AtomicBool::new(false)).collect(),
            release: &release,
            onnx: &onnx,
            bytes: RefCell::default(),
        };
        let keep = Arc::clone(&ep.program) as Arc<dyn Any + Send + Sync>;
        let mut part = ep.handle.compile(&setup, (ep.program.raw(), &spec.desc()), &compiling, keep)?;
        let done = |c: &ConstId| compiling.done.get(c.index()).is_some_and(|d| d.load(Relaxed));
        if constants(ep.program.graph(), &spec.nodes).iter().all(done) {
            part.let_go();
        }
        tracing::debug!(ep = ep.handle.name(), nodes = spec.nodes.len(), "compiled a part");
        Ok(part)
    }

    /// Runs the parts that depend on constants only; their results become the plan's own.
    fn run_once(&self, plan: &mut Plan) -> Result<()> {
        if plan.once.is_empty() {
            return Ok(());
        }
        let go = AtomicU32::new(GO);
        let mut lane = Lane::new(plan, &self.account);
        let mut run = Run { plan, lane: &mut lane, cancel: &go, width: self.width, bound: &[] };
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

/// Constants that nodes of a dialect read, as inputs or attributes, in their bodies too.
fn constants(graph: &Graph, nodes: &[u32]) -> Vec<ConstId> {
    let mut all = Vec::new();
    let mut todo: Vec<NodeId> = nodes.iter().filter_map(|&n| NodeId::from_index(n)).collect();
    while let Some(node) = todo.pop() {
        let node = graph.node(node);
        all.extend(node.inputs.iter().flatten().filter_map(|&v| graph.value(v).constant));
        for attr in &node.attrs {
            match &attr.value {
                AttrValue::Tensor(c) | AttrValue::BigInts(c) | AttrValue::BigFloats(c) => all.push(*c),
                AttrValue::Tensors(c) => all.extend(c.iter()),
                _ => {}
            }
        }
        todo.extend(node.bodies().flat_map(|b| graph.body(b).nodes.iter()));
    }
    all.sort_unstable();
    all.dedup();
    all
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
        let last = count.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)) == Ok(1);
        let id = ConstId::from_index(constant).map(|c| self.graph.constant(c));
        if let (true, Some(Data::Mapped { map, at, len })) = (last, id.map(|c| &c.data)) {
            map.release(*at, *len);
        }
    }
}

/// A failure for which no further plan helps.
pub(super) fn no_eps() -> Error {
    Error::new(codes::NO_EPS, "no execution provider was given to the session")
}
