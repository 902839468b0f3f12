//! Convex parts: nodes of one EP that can run one after the other without anybody else's node in between.
//!
//! Nodes with the same EP and the same number of EP changes on the longest path to them form a group. Such groups are
//! convex and in no circle: an edge inside a group keeps the number, every other edge raises it. Groups are then merged
//! while the graph of groups stays without circles.

use std::collections::HashMap;

use ortolan_graph::ir::NodeId;

use super::{Cx, Place};

/// Beyond so many groups merging would take longer than it saves.
const MERGE_LIMIT: usize = 1000;

/// A node of the group graph.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// The EP, or none for a control node of the executor.
    pub ep: Option<usize>,
    /// In topological order.
    pub nodes: Vec<NodeId>,
}

/// The nodes of one graph that `take` accepts, in clusters, in an order in which they can run.
pub(super) fn clusters(cx: &Cx<'_>, nodes: &[NodeId], places: &[Place], take: impl Fn(NodeId) -> bool) -> Vec<Cluster> {
    let mine: Vec<NodeId> = nodes.iter().copied().filter(|&n| take(n)).collect();
    let mut groups = Groups::by_depth(cx, &mine, places);
    if groups.clusters.len() <= MERGE_LIMIT {
        groups.merge();
    }
    groups.ordered(&mine)
}

struct Groups {
    clusters: Vec<Option<Cluster>>,
    /// Direct followers, by cluster.
    next: Vec<Vec<usize>>,
}

impl Groups {
    fn by_depth(cx: &Cx<'_>, nodes: &[NodeId], places: &[Place]) -> Groups {
        let mut depth: HashMap<NodeId, u32> = HashMap::new();
        let mut of: HashMap<NodeId, usize> = HashMap::new();
        let mut at: HashMap<(usize, u32), usize> = HashMap::new();
        let mut groups = Groups { clusters: Vec::new(), next: Vec::new() };
        for &node in nodes {
            let ep = if let Place::Ep(ep) = places[node.index()] { Some(ep) } else { None };
            let before: Vec<NodeId> = cx.producers(node).into_iter().filter(|p| depth.contains_key(p)).collect();
            let same = |p: NodeId| ep.is_some() && places[p.index()] == places[node.index()];
            let d = before.iter().map(|&p| depth[&p] + u32::from(!same(p))).max().unwrap_or(0);
            let fresh = groups.clusters.len();
            let group = match ep {
                Some(ep) => *at.entry((ep, d)).or_insert(fresh),
                None => fresh,
            };
            if group == fresh {
                groups.clusters.push(Some(Cluster { ep, nodes: Vec::new() }));
                groups.next.push(Vec::new());
            }
            if let Some(c) = &mut groups.clusters[group] {
                c.nodes.push(node);
            }
            for p in before.iter().map(|p| of[p]).filter(|&p| p != group) {
                if !groups.next[p].contains(&group) {
                    groups.next[p].push(group);
                }
            }
            depth.insert(node, d);
            of.insert(node, group);
        }
        groups
    }

    fn merge(&mut self) {
        for a in 0..self.clusters.len() {
            for b in a + 1..self.clusters.len() {
                let ep = |c: &Option<Cluster>| c.as_ref().and_then(|c| c.ep);
                let same = ep(&self.clusters[a]).is_some() && ep(&self.clusters[a]) == ep(&self.clusters[b]);
                if same && !self.detour(a, b) && !self.detour(b, a) {
                    self.join(a, b);
                }
            }
        }
    }

    /// Whether a path from `a` to `b` leads through another cluster.
    fn detour(&self, a: usize, b: usize) -> bool {
        let mut seen = vec![false; self.clusters.len()];
        let mut todo: Vec<usize> = self.next[a].iter().copied().filter(|&n| n != b).collect();
        while let Some(at) = todo.pop() {
            if at == b {
                return true;
            }
            if !std::mem::replace(&mut seen[at], true) {
                todo.extend(&self.next[at]);
            }
        }
        false
    }

    /// `b` becomes part of `a`.
    fn join(&mut self, a: usize, b: usize) {
        let gone = self.clusters[b].take();
        if let (Some(into), Some(gone)) = (&mut self.clusters[a], gone) {
            into.nodes.extend(gone.nodes);
        }
        let followers = std::mem::take(&mut self.next[b]);
        self.next[a].extend(followers);
        for list in &mut self.next {
            list.iter_mut().filter(|n| **n == b).for_each(|n| *n = a);
        }
        for (at, list) in self.next.iter_mut().enumerate() {
            list.sort_unstable();
            list.dedup();
            list.retain(|&n| n != at);
        }
    }

    /// Clusters in topological order, those with earlier nodes first; their nodes in the order of `nodes`.
    fn ordered(mut self, nodes: &[NodeId]) -> Vec<Cluster> {
        let rank: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(at, &n)| (n, at)).collect();
        for c in self.clusters.iter_mut().flatten() {
            c.nodes.sort_unstable_by_key(|n| rank[n]);
        }
        let first = |c: &Option<Cluster>| c.as_ref().and_then(|c| c.nodes.first()).map_or(usize::MAX, |n| rank[n]);
        let mut waits = vec![0usize; self.clusters.len()];
        for &n in self.next.iter().flatten() {
            waits[n] += 1;
        }
        let ready = |at: usize, waits: &[usize], cs: &[Option<Cluster>]| waits[at] == 0 && cs[at].is_some();
        let mut open: std::collections::BTreeSet<(usize, usize)> = (0..self.clusters.len())
            .filter(|&at| ready(at, &waits, &self.clusters))
            .map(|at| (first(&self.clusters[at]), at))
            .collect();
        let mut all = Vec::new();
        while let Some((_, at)) = open.pop_first() {
            for &n in &self.next[at] {
                waits[n] -= 1;
                if ready(n, &waits, &self.clusters) {
                    open.insert((first(&self.clusters[n]), n));
                }
            }
            all.extend(self.clusters[at].take());
        }
        all
    }
}
