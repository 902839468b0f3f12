//! Asks every EP about every node, once, and keeps the answers by graph node.
//!
//! The dialect's nodes may stand for the graph's in other numbers: what is written together is claimed together.

use std::collections::HashMap;

use ortolan_ep_abi::raw;
use ortolan_graph::Graph;
use ortolan_graph::ir::{GraphId, NodeId, Type, ValueId};

use super::{Cx, EpCx};
use crate::abi::{Answer, Answers, Rejection, Setup};
use crate::error::codes;
use crate::program::{Form, Program};

/// What an EP says of a graph's node.
#[derive(Clone, Debug)]
pub(crate) enum Offer {
    /// It would run it, in about so many ns (NaN: unknown).
    Claimed(f64),
    /// It would not, or was not asked.
    Rejected(Rejection),
}

/// Nodes of one graph that were claimed together.
#[derive(Clone, Debug)]
pub(crate) struct OfferGroup {
    pub graph: GraphId,
    pub members: Vec<NodeId>,
    pub whole: bool,
}

/// Everything that one EP says.
#[derive(Clone, Debug)]
pub(crate) struct Offers {
    pub of: Vec<Offer>,
    pub groups: Vec<OfferGroup>,
}

impl Offers {
    /// Estimated cost of a node, if it is claimed.
    pub fn cost(&self, node: NodeId) -> Option<f64> {
        match self.of[node.index()] {
            Offer::Claimed(cost) => Some(cost),
            Offer::Rejected(_) => None,
        }
    }
}

/// The answers of EP number `at`.
pub(crate) fn ask(cx: &Cx<'_>, at: usize) -> Offers {
    let ep = &cx.eps[at];
    let program = &ep.program;
    let mut found = Found { of: HashMap::new(), groups: Vec::new() };
    if let Some(why) = ep.handle.lost() {
        let nodes = program.graph().live_bodies().into_iter().flat_map(|g| program.graph().body(g).nodes.clone());
        nodes.for_each(|node| found.reject(node, Rejection::host(codes::DEVICE_LOST, why)));
        return found.offers(cx.graph, program);
    }
    for graph in program.graph().live_bodies() {
        let mut asked = Vec::new();
        for &node in &program.graph().body(graph).nodes {
            match askable(ep, node) {
                Err(why) => found.reject(node, why),
                Ok(()) => asked.push(node.raw()),
            }
        }
        if !asked.is_empty() {
            ask_graph(cx, ep, graph, &asked, &mut found);
        }
    }
    found.offers(cx.graph, program)
}

/// Whether the EP may be asked about a node of its dialect.
pub(crate) fn askable(ep: &EpCx, node: NodeId) -> Result<(), Rejection> {
    let (program, n) = (&ep.program, ep.program.graph().node(node));
    if let Form::Missing(why) = program.form(program.sources(node)[0]) {
        return Err(Rejection::host(codes::NOT_ASKED, why.as_str()));
    }
    if !ep.set_aside.is_empty()
        && let Some(why) = ep.set_aside.get(&(n.domain.to_string(), n.op.to_string()))
    {
        return Err(why.clone());
    }
    typed(program.graph(), node)
}

/// Answers by the dialect's nodes.
struct Found {
    of: HashMap<NodeId, Result<f64, Rejection>>,
    /// Claims of several nodes, all or none.
    groups: Vec<Vec<NodeId>>,
}

impl Found {
    fn reject(&mut self, node: NodeId, why: Rejection) {
        self.of.insert(node, Err(why));
    }

    fn take(&mut self, asked: &[u32], answers: Answers) {
        for (node, answer) in ids(asked).zip(answers.of) {
            if let Answer::Rejected(why) = answer {
                self.reject(node, why);
            }
        }
        for claimed in answers.groups {
            // Fewer than 2^32 nodes in a group.
            let share = claimed.cost_ns / claimed.nodes.len() as f64;
            for node in ids(&claimed.nodes) {
                self.of.insert(node, Ok(share));
            }
            if claimed.whole && claimed.nodes.len() > 1 {
                self.groups.push(ids(&claimed.nodes).collect());
            }
        }
    }

    /// The same by the graph's nodes. What is written together is claimed together.
    fn offers(self, graph: &Graph, program: &Program) -> Offers {
        let none = Offer::Rejected(Rejection::host(codes::NOT_ASKED, "the node does not run"));
        let mut offers = Offers { of: vec![none; graph.node_count()], groups: Vec::new() };
        let mut together = Together::new(graph.node_count());
        for unit in program.units() {
            unit.sources.windows(2).for_each(|w| together.join(w[0], w[1]));
        }
        for group in &self.groups {
            let sources: Vec<NodeId> = group.iter().flat_map(|&n| program.sources(n)).collect();
            sources.windows(2).for_each(|w| together.join(w[0], w[1]));
        }
        let mut groups: HashMap<NodeId, usize> = HashMap::new();
        for node in graph.live_nodes() {
            let written = program.written(node);
            let all: Result<f64, Rejection> = written.iter().map(|n| self.answer(*n)).sum();
            let first = program.sources(written.first().copied().unwrap_or(node))[0] == node;
            offers.of[node.index()] = match all {
                Err(why) => Offer::Rejected(why),
                Ok(_) if written.is_empty() => Offer::Rejected(missing(program, node)),
                Ok(cost) => {
                    let group = *groups.entry(together.root(node)).or_insert(offers.groups.len());
                    if group == offers.groups.len() {
                        let graph = graph.node(node).graph;
                        offers.groups.push(OfferGroup { graph, members: Vec::new(), whole: false });
                    }
                    offers.groups[group].members.push(node);
                    // The first of those that are written together carries the cost of all.
                    Offer::Claimed(if first { cost } else { 0.0 })
                }
            };
        }
        together.complete(&mut offers);
        offers
    }

    fn answer(&self, node: NodeId) -> Result<f64, Rejection> {
        self.of.get(&node).cloned().unwrap_or_else(|| Err(Rejection::host(codes::UNANSWERED, "it was not answered")))
    }
}

fn missing(program: &Program, node: NodeId) -> Rejection {
    let text = if let Form::Missing(why) = program.form(node) { why.as_str() } else { "it is not in the program" };
    Rejection::host(codes::NOT_ASKED, text)
}

/// Sets of nodes that are claimed together.
struct Together {
    parent: Vec<usize>,
    size: Vec<usize>,
}

impl Together {
    fn new(count: usize) -> Together {
        Together { parent: (0..count).collect(), size: vec![1; count] }
    }

    fn find(&mut self, mut at: usize) -> usize {
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.find(a.index()), self.find(b.index()));
        if a != b {
            self.parent[b] = a;
            self.size[a] += self.size[b];
        }
    }

    fn root(&mut self, node: NodeId) -> NodeId {
        let root = self.find(node.index());
        u32::try_from(root).ok().and_then(NodeId::from_index).unwrap_or(node)
    }

    /// Marks groups as whole; one that misses a member which was rejected is no offer.
    fn complete(&mut self, offers: &mut Offers) {
        let why = Rejection::host(codes::NOT_CONVEX, "it is claimed only together with a node that is rejected");
        for at in 0..offers.groups.len() {
            let members = offers.groups[at].members.clone();
            let size = self.find(members[0].index());
            let size = self.size[size];
            offers.groups[at].whole = size > 1;
            if members.len() < size {
                members.iter().for_each(|n| offers.of[n.index()] = Offer::Rejected(why.clone()));
                offers.groups[at].members.clear();
            }
        }
    }
}

fn typed(graph: &Graph, node: NodeId) -> Result<(), Rejection> {
    let n = graph.node(node);
    for &value in n.inputs.iter().chain(&n.outputs).flatten() {
        let v = graph.value(value);
        match &v.ty {
            Some(ty) if ranked(ty) => {}
            Some(Type::Unknown) | None => {
                return Err(Rejection::host(codes::UNTYPED, format!("the type of '{}' is not known", v.name)));
            }
            Some(_) => {
                return Err(Rejection::host(codes::UNKNOWN_RANK, format!("the rank of '{}' is not known", v.name)));
            }
        }
    }
    Ok(())
}

fn ranked(ty: &Type) -> bool {
    match ty {
        Type::Tensor(t) => t.dims.is_some(),
        // The rank of elements is told by the elements.
        Type::Sequence(_) | Type::Optional(_) | Type::Map(..) => true,
        Type::Unknown => false,
    }
}

fn ask_graph(cx: &Cx<'_>, ep: &EpCx, graph: GraphId, asked: &[u32], found: &mut Found) {
    let body = ep.program.graph().body(graph);
    let raw_ids = |ids: &[ValueId]| ids.iter().map(|v| v.raw()).collect::<Vec<u32>>();
    let (inputs, outputs) = (raw_ids(&body.inputs), raw_ids(&body.outputs));
    let part = super::desc::part_desc(asked, &inputs, &outputs, raw::PART_FREE);
    let setup = Setup { symbols: cx.hints, ..Setup::plain(ep.handle.name(), cx.width) };
    match ep.handle.claim(&setup, ep.program.raw(), &part) {
        Ok(answers) => found.take(asked, answers),
        Err(error) => {
            tracing::warn!(ep = ep.handle.name(), %error, "claim failed");
            let why = Rejection { code: error.code().to_owned(), sentence: error.message().to_owned() };
            ids(asked).for_each(|n| found.reject(n, why.clone()));
        }
    }
}

fn ids(raw: &[u32]) -> impl Iterator<Item = NodeId> + '_ {
    raw.iter().filter_map(|&n| NodeId::from_index(n))
}
