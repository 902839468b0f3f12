//! Computes what follows from constants while a session is built, on the first EP that can do it in host memory.
//!
//! Which nodes that are is the folding pass's choice. What no EP computes stays in the graph.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ortolan_ep_abi::raw::{self, UNKNOWN};
use ortolan_graph::Graph;
use ortolan_graph::ir::{GraphId, NodeId, ValueId};

use crate::abi::{Answer, Answers, Setup};
use crate::compile::{compile, release};
use crate::ep::StartedEp;
use crate::error::Result;
use crate::exec::{Account, GO, Lane, Run};
use crate::partition::{EpCx, Item, PartSpec, Partition, askable, part_desc};
use crate::plan;
use crate::program::{Program, Shared};
use crate::value::Value;

/// Computes values of a graph.
pub(crate) struct Evaluator<'a> {
    eps: &'a [StartedEp],
    shared: Shared,
    account: &'a Arc<Account>,
    width: u32,
    /// What was computed where, for the report.
    pub notes: Vec<String>,
}

impl<'a> Evaluator<'a> {
    pub fn new(eps: &'a [StartedEp], shared: Shared, account: &'a Arc<Account>, width: u32) -> Evaluator<'a> {
        Evaluator { eps, shared, account, width, notes: Vec::new() }
    }

    /// Computes `values`, which `nodes` make of constants, as far as an EP runs those nodes. Each node reads constants and
    /// what nodes of its own graph make.
    pub fn evaluate(&mut self, graph: &Graph, nodes: &[NodeId], values: &[ValueId]) -> Result<Vec<(ValueId, Value)>> {
        for ep in self.eps.iter().filter(|e| !e.own_memory() && e.handle.lost().is_none()) {
            let cx =
                EpCx::new(Arc::clone(&ep.handle), Program::new(graph, &ep.opset, self.shared)?, ep.set_aside.clone());
            let specs = self.specs(&cx, graph, nodes, values);
            if specs.is_empty() {
                continue;
            }
            let count: usize = specs.iter().map(|s| s.placed.len()).sum();
            match self.run(&cx, graph, specs) {
                Ok(found) => {
                    self.notes.push(format!("'{}' folded {count} nodes", cx.handle.name()));
                    return Ok(found);
                }
                Err(error) => tracing::info!(ep = cx.handle.name(), %error, "constants were not folded"),
            }
        }
        Ok(Vec::new())
    }

    /// One part per graph: the nodes that the EP claims and that need nothing but each other.
    fn specs(&self, cx: &EpCx, graph: &Graph, nodes: &[NodeId], values: &[ValueId]) -> Vec<PartSpec> {
        let mut by_graph: BTreeMap<GraphId, Vec<NodeId>> = BTreeMap::new();
        for &node in nodes {
            by_graph.entry(graph.node(node).graph).or_default().push(node);
        }
        by_graph.into_iter().filter_map(|(body, nodes)| self.spec(cx, body, &nodes, values)).collect()
    }

    fn spec(&self, cx: &EpCx, graph: GraphId, nodes: &[NodeId], values: &[ValueId]) -> Option<PartSpec> {
        let program = &cx.program;
        let whole =
            |n: &NodeId| program.written(*n).iter().all(|w| program.sources(*w).iter().all(|s| nodes.contains(s)));
        let mut asked: Vec<NodeId> = nodes.iter().filter(|n| whole(n)).flat_map(|&n| program.written(n)).collect();
        asked.sort_unstable_by_key(|n| program.rank(*n));
        asked.dedup();
        asked.retain(|&n| askable(cx, n).is_ok());
        let ids: Vec<u32> = asked.iter().map(|n| n.raw()).collect();
        let outputs: Vec<u32> = values.iter().map(|v| v.raw()).collect();
        let setup = Setup::plain(cx.handle.name(), self.width);
        let part = part_desc(&ids, &[], &outputs, raw::PART_FREE | raw::PART_ONCE);
        let answers = if ids.is_empty() { None } else { cx.handle.claim(&setup, program.raw(), &part).ok() };
        let taken = closed(program, &asked, &answers?);
        let made: HashSet<ValueId> = taken.iter().flat_map(|&n| program.outputs(n)).collect();
        let outputs: Vec<u32> = values.iter().filter(|v| made.contains(v)).map(|v| v.raw()).collect();
        let placed = nodes.iter().copied().filter(|&n| {
            let written = program.written(n);
            !written.is_empty() && written.iter().all(|w| taken.contains(w))
        });
        (!outputs.is_empty()).then(|| PartSpec {
            ep: 0,
            graph,
            placed: placed.collect(),
            nodes: taken.iter().map(|n| n.raw()).collect(),
            inputs: Vec::new(),
            outputs,
            shapes_only: 0,
            once: true,
        })
    }

    fn run(&self, cx: &EpCx, graph: &Graph, specs: Vec<PartSpec>) -> Result<Vec<(ValueId, Value)>> {
        let symbols = vec![UNKNOWN; cx.program.raw().symbol_count as usize];
        let release = |constant| release(graph, constant);
        let compiled = specs.iter().map(|s| compile(cx, &symbols, self.width, s, &release).map(Arc::new));
        let parts = compiled.collect::<Result<Vec<_>>>()?;
        let mut graphs: BTreeMap<GraphId, Vec<Item>> = BTreeMap::new();
        for (at, spec) in specs.iter().enumerate() {
            graphs.entry(spec.graph).or_default().push(Item::Part(at));
        }
        let split = Partition { places: Vec::new(), parts: specs, graphs, estimate_ns: f64::NAN };
        let (plan, slots) = plan::build_once(graph, &split, &parts, symbols.len())?;
        let go = AtomicU32::new(GO);
        let mut lane = Lane::new(&plan, self.account);
        let mut run = Run { plan: &plan, lane: &mut lane, cancel: &go, width: self.width, bound: &[] };
        let made: BTreeMap<u32, Value> = run.once()?.into_iter().collect();
        let value = |(v, slot): (ValueId, u32)| Some((v, made.get(&slot)?.to_host()));
        slots.into_iter().filter_map(value).map(|(v, value)| Ok((v, value?))).collect()
    }
}

/// The nodes that are claimed, without those that need one that is not.
fn closed(program: &Program, asked: &[NodeId], answers: &Answers) -> Vec<NodeId> {
    let claimed = asked.iter().zip(&answers.of).filter(|(_, a)| matches!(a, Answer::Claimed(_)));
    let mut taken: Vec<NodeId> = claimed.map(|(n, _)| *n).collect();
    loop {
        let made: HashSet<ValueId> = taken.iter().flat_map(|&n| program.outputs(n)).collect();
        let before = taken.len();
        let ids: HashSet<u32> = taken.iter().map(|n| n.raw()).collect();
        let torn = |n: &NodeId| {
            let mut groups = answers.groups.iter().filter(|g| g.whole && g.nodes.contains(&n.raw()));
            groups.any(|g| g.nodes.iter().any(|m| !ids.contains(m)))
        };
        let fed = |n: &NodeId| {
            let reads = program.reads(*n).into_iter();
            reads.filter(|v| program.graph().value(*v).constant.is_none()).all(|v| made.contains(&v))
        };
        taken.retain(|n| fed(n) && !torn(n));
        if taken.len() == before {
            return taken;
        }
    }
}
