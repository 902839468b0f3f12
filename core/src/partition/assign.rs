//! Which EP runs which node: the most preferred that claims it, unless costs or bans speak against it.

use std::collections::{HashMap, HashSet};

use ortolan_graph::ir::{GraphId, NodeId};

use super::{Cx, Offer, Offers};
use crate::abi::Rejection;
use crate::error::codes;

/// Where a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere (yet).
    None,
    /// On the EP with this number.
    Ep(usize),
    /// The executor walks its bodies.
    Executor,
    /// It depends on constants only and goes along with every part that needs it.
    Constant,
    /// A run's sizes tell its types, and then it gets a place.
    Later,
    /// In a body of this node, which an EP runs whole.
    Inside(NodeId),
}

/// Nodes that an EP may not have although it claims them, and why.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bans {
    all: HashMap<(usize, NodeId), Rejection>,
    /// Nodes that found no place because of costs, so that costs have no say about them any more.
    settled: HashSet<NodeId>,
}

impl Bans {
    /// True if it is new.
    pub fn add(&mut self, ep: usize, node: NodeId, why: Rejection) -> bool {
        let mut new = false;
        self.all.entry((ep, node)).or_insert_with(|| {
            new = true;
            why
        });
        new
    }

    pub fn get(&self, ep: usize, node: NodeId) -> Option<&Rejection> {
        self.all.get(&(ep, node))
    }

    /// Takes back what only costs said about a node. True if there was something.
    pub fn relent(&mut self, node: NodeId) -> bool {
        let before = self.all.len();
        self.all.retain(|(_, n), why| *n != node || why.code != codes::DOES_NOT_PAY.name());
        self.settled.insert(node);
        self.all.len() < before
    }

    /// Whether costs may move the node.
    pub fn is_settled(&self, node: NodeId) -> bool {
        self.settled.contains(&node)
    }
}

/// The choice so far, from which the next one is made.
pub(super) struct Choice<'a> {
    pub cx: &'a Cx<'a>,
    pub offers: &'a [Offers],
    pub bans: &'a Bans,
    /// Constant expressions that must run in a part of their own.
    pub forced: &'a HashSet<NodeId>,
}

impl Choice<'_> {
    /// A place for every node that runs; `Place::None` where nobody takes it.
    pub fn make(&self) -> Vec<Place> {
        let mut places = vec![Place::None; self.cx.graph.node_count()];
        self.graph(GraphId::MAIN, &mut places);
        places
    }

    /// Whether EP and node may come together.
    pub fn may(&self, ep: usize, node: NodeId) -> bool {
        matches!(self.offers[ep].of[node.index()], Offer::Claimed(_)) && self.bans.get(ep, node).is_none()
    }

    /// Whether one of the nodes runs in a part of its own.
    pub fn is_forced(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().any(|n| self.forced.contains(n))
    }

    /// Whether nodes could all move to an EP: none of them claimed only together with one that stays.
    pub fn could_move(&self, nodes: &[NodeId], ep: usize, places: &[Place]) -> bool {
        let stays = |n: &NodeId| {
            !nodes.contains(n) && !matches!(places[n.index()], Place::Constant) && places[n.index()] != Place::Ep(ep)
        };
        let torn = |g: &super::OfferGroup| {
            g.whole && g.members.iter().any(|n| nodes.contains(n)) && g.members.iter().any(stays)
        };
        nodes.iter().all(|&n| self.may(ep, n)) && !self.offers[ep].groups.iter().any(torn)
    }

    fn graph(&self, graph: GraphId, places: &mut [Place]) {
        let nodes = &self.cx.graph.body(graph).nodes;
        for &node in nodes.iter().filter(|n| self.cx.is_const(**n) && !self.forced.contains(*n)) {
            places[node.index()] = Place::Constant;
        }
        for ep in 0..self.offers.len() {
            for group in self.offers[ep].groups.iter().filter(|g| g.graph == graph) {
                self.group(ep, group, places);
            }
        }
        for &node in nodes {
            let bodies: Vec<GraphId> = self.cx.graph.node(node).bodies().collect();
            match places[node.index()] {
                Place::None if self.cx.is_control(node) => {
                    places[node.index()] = Place::Executor;
                    bodies.iter().for_each(|&b| self.graph(b, places));
                }
                Place::Ep(_) => bodies.iter().for_each(|&b| inside(self.cx, node, b, places)),
                _ => {}
            }
        }
    }

    fn group(&self, ep: usize, group: &super::OfferGroup, places: &mut [Place]) {
        let free = |n: &&NodeId| places[n.index()] == Place::None && self.may(ep, **n);
        let constant = |n: &&NodeId| places[n.index()] == Place::Constant;
        let taken: Vec<NodeId> = group.members.iter().filter(free).copied().collect();
        let constants = group.members.iter().filter(constant).count();
        if group.whole && taken.len() + constants < group.members.len() {
            return;
        }
        for node in taken {
            places[node.index()] = Place::Ep(ep);
        }
    }
}

fn inside(cx: &Cx<'_>, of: NodeId, graph: GraphId, places: &mut [Place]) {
    for &node in &cx.graph.body(graph).nodes {
        places[node.index()] = Place::Inside(of);
        for body in cx.graph.node(node).bodies() {
            inside(cx, of, body, places);
        }
    }
}
