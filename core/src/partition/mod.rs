//! Splits a graph over execution providers.
//!
//! Every EP is asked about every node once. Nodes go to the most preferred EP that claims them; parts are convex, as few
//! as possible, and go elsewhere when costs say so. What turns out later (an exact query rejected, a compilation failed)
//! comes back as a ban, and the split is made again from the same answers. No EP is known by name.

mod ask;
mod assign;
mod cost;
mod desc;
mod group;
mod pays;
mod report;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ortolan_graph::Graph;
use ortolan_graph::ir::{ExprId, ExprOp, GraphId, NodeId, Uses, ValueId};

pub(crate) use ask::{Offer, OfferGroup, Offers, askable};
use assign::Choice;
pub(crate) use assign::{Bans, Place};
pub(crate) use cost::Link;
pub(crate) use desc::{PartSpec, part_desc};
pub use report::{EpAnswer, NOBODY, NodeReport, PartReport, Report};

use crate::abi::{EpHandle, Rejection};
use crate::error::{Error, Result, codes};
use crate::program::{Program, reads};

/// An EP with the program that it is asked about.
pub(crate) struct EpCx {
    pub handle: Arc<EpHandle>,
    pub program: Arc<Program>,
    /// The way to its device's own memory, if it has one.
    pub link: Option<Link>,
    /// Operators that it is not asked about, by domain and name, and why.
    pub set_aside: BTreeMap<(String, String), Rejection>,
}

impl EpCx {
    pub fn new(handle: Arc<EpHandle>, program: Arc<Program>, set_aside: BTreeMap<(String, String), Rejection>) -> EpCx {
        let link = Link::of(handle.device());
        EpCx { handle, program, link, set_aside }
    }
}

/// All that the split is made from.
pub(crate) struct Cx<'a> {
    pub graph: &'a Graph,
    pub eps: &'a [EpCx],
    /// Numbers of symbols, -1 for unknown.
    pub hints: &'a [i64],
    pub width: u32,
    /// What a part must gain over the next EP to stay on a preferred one, in ns.
    pub min_gain_ns: f64,
    uses: Uses,
    sizes: Vec<f64>,
    /// Nodes all of whose outputs follow from constants.
    constant: Vec<bool>,
}

impl<'a> Cx<'a> {
    pub fn new(graph: &'a Graph, eps: &'a [EpCx], hints: &'a [i64], width: u32, min_gain_ns: f64) -> Cx<'a> {
        let (uses, sizes, constant) = (graph.uses(), cost::sizes(graph, hints), constant_nodes(graph));
        Cx { graph, eps, hints, width, min_gain_ns, uses, sizes, constant }
    }

    /// The answers of one EP.
    pub fn ask_one(&self, ep: usize) -> Offers {
        ask::ask(self, ep)
    }

    /// Whether the executor can walk it itself.
    pub fn is_control(&self, node: NodeId) -> bool {
        crate::plan::control::kind(self.graph.node(node)).is_some()
    }

    /// Whether all it makes follows from constants, without any control flow.
    fn is_const(&self, node: NodeId) -> bool {
        self.constant[node.index()]
    }

    /// Nodes of the same graph that make what it reads.
    fn producers(&self, node: NodeId) -> Vec<NodeId> {
        let mut all: Vec<NodeId> =
            reads(self.graph, node).into_iter().filter_map(|v| self.graph.value(v).producer.map(|(n, _)| n)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Adds the symbols that an expression depends on.
    fn symbols_in(&self, expr: ExprId, seen: &mut HashSet<ExprId>, found: &mut HashSet<usize>) {
        let mut todo = vec![expr];
        while let Some(expr) = todo.pop() {
            if !seen.insert(expr) {
                continue;
            }
            let e = self.graph.exprs().get(expr);
            match e.op {
                ExprOp::Symbol => found.extend(usize::try_from(e.v).ok()),
                ExprOp::Select => todo.extend(u32::try_from(e.v).ok().and_then(ExprId::from_index)),
                _ => {}
            }
            todo.extend(e.a.iter().chain(&e.b));
        }
    }
}

fn constant_nodes(graph: &Graph) -> Vec<bool> {
    let mut constant = vec![false; graph.node_count()];
    // Nodes of outer graphs come after those of their bodies, but bodies that read them are never constant here.
    for id in graph.live_nodes() {
        let node = graph.node(id);
        let flagged = |v: &ValueId| graph.value(*v).const_expr;
        let sound = |v: &ValueId| graph.value(*v).producer.is_none_or(|(n, _)| constant[n.index()]);
        let outputs = node.outputs.iter().flatten().collect::<Vec<_>>();
        let made = !outputs.is_empty() && outputs.into_iter().all(flagged);
        constant[id.index()] = made && node.bodies().next().is_none() && node.inputs.iter().flatten().all(sound);
    }
    constant
}

/// What runs after what, in one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A part, by number.
    Part(usize),
    /// A node that the executor walks itself.
    Control(NodeId),
}

/// A split of the graph.
#[derive(Debug)]
pub(crate) struct Partition {
    pub places: Vec<Place>,
    pub parts: Vec<PartSpec>,
    /// What runs in every graph that the executor walks.
    pub graphs: BTreeMap<GraphId, Vec<Item>>,
    /// Estimated time of a run, NaN if an EP states no cost.
    pub estimate_ns: f64,
}

/// Splits the graph. `bans` grows by what the split itself rules out.
pub(crate) fn partition(cx: &Cx<'_>, offers: &[Offers], bans: &mut Bans) -> Result<Partition> {
    let mut forced = HashSet::new();
    loop {
        let choice = Choice { cx, offers, bans, forced: &forced };
        let places = choice.make();
        if let Some((node, more)) = unplaced(&choice, &places) {
            let error = nobody(&choice, node, more);
            if bans.relent(node) {
                continue;
            }
            return Err(error);
        }
        let mut found =
            Split { choice: &choice, places: &places, parts: vec![], graphs: BTreeMap::new(), left: vec![] };
        found.graph(GraphId::MAIN);
        let Split { mut parts, graphs, left, .. } = found;
        let new: Vec<NodeId> = left.into_iter().filter(|n| !forced.contains(n)).collect();
        if !new.is_empty() {
            forced.extend(new);
            continue;
        }
        if let Some((ep, nodes, why)) = torn(cx, offers, &places, &parts) {
            nodes.iter().for_each(|&n| _ = bans.add(ep, n, why.clone()));
            continue;
        }
        let needed = needed(cx, &parts, &graphs);
        desc::set_outputs(cx, &mut parts, &places, &needed);
        if let Some((at, why)) = pays::loser(&choice, &places, &parts) {
            parts[at].placed.iter().for_each(|&n| _ = bans.add(parts[at].ep, n, why.clone()));
            continue;
        }
        let estimate_ns = pays::total(&choice, &places, &parts);
        if let Some(ep) = better_alone(&choice, &places, estimate_ns) {
            let why = format!("'{}' alone is estimated to be faster", cx.eps[ep].handle.name());
            let others: Vec<(usize, NodeId)> =
                parts.iter().filter(|p| p.ep != ep).flat_map(|p| p.placed.iter().map(|&n| (p.ep, n))).collect();
            others
                .into_iter()
                .for_each(|(e, n)| _ = bans.add(e, n, Rejection::host(codes::DOES_NOT_PAY, why.as_str())));
            continue;
        }
        return Ok(Partition { places, parts, graphs, estimate_ns });
    }
}

/// The first choice of places, which may leave nodes without one, and no parts.
pub(crate) fn first_choice(cx: &Cx<'_>, offers: &[Offers]) -> Partition {
    let (bans, forced) = (Bans::default(), HashSet::new());
    let places = Choice { cx, offers, bans: &bans, forced: &forced }.make();
    Partition { places, parts: Vec::new(), graphs: BTreeMap::new(), estimate_ns: f64::NAN }
}

/// The first choice of places where branches wait for sizes. Nodes whose types follow from such a branch are placed later;
/// one that nobody takes is an error unless it is `open`: it may not run at all.
pub(crate) fn outlook(cx: &Cx<'_>, offers: &[Offers], open: &HashSet<NodeId>) -> Result<Partition> {
    let (bans, forced) = (Bans::default(), HashSet::new());
    let choice = Choice { cx, offers, bans: &bans, forced: &forced };
    let mut split = first_choice(cx, offers);
    let waits = |n: NodeId| {
        let untold = |r: Rejection| r.code == codes::UNKNOWN_RANK.name() || r.code == codes::UNTYPED.name();
        (0..offers.len()).any(|ep| reason(offers, &bans, ep, n).is_some_and(untold))
    };
    for node in cx.graph.live_nodes() {
        if split.places[node.index()] != Place::None {
            continue;
        }
        if waits(node) {
            split.places[node.index()] = Place::Later;
        } else if !open.contains(&node) {
            return Err(nobody(&choice, node, 0));
        }
    }
    Ok(split)
}

/// An EP that could run all and by the estimates would be faster than the split.
fn better_alone(choice: &Choice<'_>, places: &[Place], estimate_ns: f64) -> Option<usize> {
    let placed: Vec<NodeId> =
        choice.cx.graph.live_nodes().into_iter().filter(|n| matches!(places[n.index()], Place::Ep(_))).collect();
    let one = placed.iter().all(|n| places[n.index()] == places[placed[0].index()]);
    if one || estimate_ns.is_nan() || placed.iter().any(|&n| choice.bans.is_settled(n)) {
        return None;
    }
    (0..choice.offers.len()).find(|&ep| {
        let all: Option<f64> = placed.iter().map(|&n| choice.may(ep, n).then(|| choice.offers[ep].cost(n))?).sum();
        let transfers = choice.cx.eps[ep].link.map_or(0.0, |link| 2.0 * link.time(0.0));
        all.is_some_and(|t| t + transfers + cost::PART_NS < estimate_ns)
    })
}

/// Walks the graphs that the executor runs and collects their parts.
struct Split<'a> {
    choice: &'a Choice<'a>,
    places: &'a [Place],
    parts: Vec<PartSpec>,
    graphs: BTreeMap<GraphId, Vec<Item>>,
    /// Constant expressions that need a part of their own.
    left: Vec<NodeId>,
}

impl Split<'_> {
    fn graph(&mut self, graph: GraphId) {
        let (choice, places) = (self.choice, self.places);
        let cx = choice.cx;
        let nodes = &cx.graph.body(graph).nodes;
        let once = |n: NodeId| choice.forced.contains(&n);
        let runs = |n: NodeId| matches!(places[n.index()], Place::Ep(_) | Place::Executor);
        let mut items = Vec::new();
        for (wanted, first) in [(true, true), (false, false)] {
            for cluster in group::clusters(cx, nodes, places, |n| runs(n) && once(n) == wanted) {
                match cluster.ep {
                    Some(ep) => {
                        let (part, left) = desc::inside(choice, ep, &cluster.nodes, first);
                        self.left.extend(left);
                        items.push(Item::Part(self.parts.len()));
                        self.parts.push(part);
                    }
                    None => items.extend(cluster.nodes.into_iter().map(Item::Control)),
                }
            }
        }
        for item in items.clone() {
            if let Item::Control(node) = item {
                self.left_by(cx.graph.node(node).inputs.iter().flatten().copied());
                cx.graph.node(node).bodies().for_each(|b| self.graph(b));
            }
        }
        self.left_by(cx.graph.body(graph).outputs.iter().copied());
        self.graphs.insert(graph, items);
    }

    /// Constant expressions that the executor itself needs.
    fn left_by(&mut self, values: impl Iterator<Item = ValueId>) {
        let cx = self.choice.cx;
        let producers = values.filter_map(|v| cx.graph.value(v).producer.map(|(n, _)| n));
        self.left.extend(producers.filter(|n| self.places[n.index()] == Place::Constant));
    }
}

fn needed(cx: &Cx<'_>, parts: &[PartSpec], graphs: &BTreeMap<GraphId, Vec<Item>>) -> HashSet<ValueId> {
    let mut needed: HashSet<ValueId> =
        parts.iter().flat_map(|p| p.inputs.iter().filter_map(|&v| ValueId::from_index(v))).collect();
    for (graph, items) in graphs {
        needed.extend(&cx.graph.body(*graph).outputs);
        for item in items {
            if let Item::Control(node) = item {
                needed.extend(cx.graph.node(*node).inputs.iter().flatten());
            }
        }
    }
    needed
}

/// A group that was claimed whole and ended up in several parts.
fn torn(
    cx: &Cx<'_>,
    offers: &[Offers],
    places: &[Place],
    parts: &[PartSpec],
) -> Option<(usize, Vec<NodeId>, Rejection)> {
    let mut part_of = vec![usize::MAX; cx.graph.node_count()];
    for (at, part) in parts.iter().enumerate() {
        part.placed.iter().for_each(|n| part_of[n.index()] = at);
    }
    offers.iter().enumerate().find_map(|(ep, offers)| {
        let group = offers.groups.iter().filter(|g| g.whole).find(|g| {
            let mut mine = g.members.iter().filter(|n| places[n.index()] == Place::Ep(ep)).map(|n| part_of[n.index()]);
            let first = mine.next();
            mine.any(|p| Some(p) != first)
        })?;
        let text = "it is claimed only together with nodes that cannot be in the same part";
        Some((ep, group.members.clone(), Rejection::host(codes::NOT_CONVEX, text)))
    })
}

/// The first node that nobody runs, and how many more there are.
fn unplaced(choice: &Choice<'_>, places: &[Place]) -> Option<(NodeId, usize)> {
    let cx = choice.cx;
    let walked = |n: &NodeId| places[n.index()] == Place::None;
    let lost: Vec<NodeId> = cx.graph.live_nodes().into_iter().filter(walked).collect();
    let reached = |n: NodeId| {
        let mut graph = cx.graph.node(n).graph;
        while let Some(parent) = cx.graph.body(graph).parent {
            if places[parent.index()] != Place::Executor {
                return false;
            }
            graph = cx.graph.node(parent).graph;
        }
        true
    };
    lost.iter().find(|n| reached(**n)).map(|&n| (n, lost.len() - 1))
}

/// An error that names a node that nobody runs, with everybody's reason.
fn nobody(choice: &Choice<'_>, node: NodeId, more: usize) -> Error {
    let cx = choice.cx;
    let reasons: Vec<String> = (0..cx.eps.len())
        .map(|ep| {
            let why = reason(choice.offers, choice.bans, ep, node);
            let text = why.map_or_else(|| "not asked".to_owned(), |r| format!("{} [{}]", r.sentence, r.code));
            format!("'{}': {text}", cx.eps[ep].handle.name())
        })
        .collect();
    let others = if more > 0 { format!(" ({more} more nodes likewise)") } else { String::new() };
    let text = format!("no execution provider runs it{others}: {}", reasons.join("; "));
    Error::new(codes::UNPLACED, text).within(cx.graph.node(node).place(cx.graph))
}

/// Why an EP does not have a node, if it is for a reason of its own or a ban.
fn reason(offers: &[Offers], bans: &Bans, ep: usize, node: NodeId) -> Option<Rejection> {
    match &offers[ep].of[node.index()] {
        Offer::Rejected(why) => Some(why.clone()),
        Offer::Claimed(_) => bans.get(ep, node).cloned(),
    }
}
