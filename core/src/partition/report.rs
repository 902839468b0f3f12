//! Says of every node where it runs and, for every EP, why there or why not.

use std::fmt;

use serde::Serialize;

use super::{Bans, Cx, Offers, Partition, Place, reason};
use crate::error::codes;

/// Place of a node that no EP takes. A session has none; a survey may.
pub const NOBODY: &str = "nobody";

/// The placement of a session's model.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// EPs in order of preference.
    pub eps: Vec<String>,
    /// Every node that was left after the passes, in topological order.
    pub nodes: Vec<NodeReport>,
    /// Every part.
    pub parts: Vec<PartReport>,
    /// Copies between memory spaces in the plan.
    pub copies: usize,
    /// Estimated time of a run in ns, if all EPs state costs.
    pub estimate_ns: Option<f64>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// Number in the graph.
    pub id: u32,
    /// Name in the file.
    pub name: String,
    /// Operator, with its domain unless it is the standard one.
    pub op: String,
    /// `ep`, `executor` (control flow), `constant` (evaluated where it is used), `inside` (a body that an EP runs whole),
    /// `later` (the first run tells its types, and it gets a place then) or [`NOBODY`].
    pub place: &'static str,
    /// The EP that runs it.
    pub ep: Option<String>,
    /// Number of the part.
    pub part: Option<usize>,
    /// Estimated time in ns.
    pub cost_ns: Option<f64>,
    /// What each of the other EPs says, in their order.
    pub answers: Vec<EpAnswer>,
}

/// Why an EP does not run a node.
#[derive(Clone, Debug, Serialize)]
pub struct EpAnswer {
    /// The EP.
    pub ep: String,
    /// Stable code: the EP's reason, or the host's.
    pub code: String,
    /// A sentence.
    pub sentence: String,
}

/// One part.
#[derive(Clone, Debug, Serialize)]
pub struct PartReport {
    /// The EP.
    pub ep: String,
    /// Nodes in it, constant expressions that it evaluates among them.
    pub nodes: usize,
    /// Values that enter.
    pub inputs: usize,
    /// Values that leave.
    pub outputs: usize,
    /// It ran when the session was built.
    pub once: bool,
}

impl Report {
    pub(crate) fn new(cx: &Cx<'_>, offers: &[Offers], bans: &Bans, split: &Partition) -> Report {
        let name = |ep: usize| cx.eps[ep].handle.name().to_owned();
        let mut part_of = vec![None; cx.graph.node_count()];
        for (at, part) in split.parts.iter().enumerate() {
            part.placed.iter().for_each(|n| part_of[n.index()] = Some(at));
        }
        let nodes = cx.graph.live_nodes().into_iter().map(|id| {
            let (node, place) = (cx.graph.node(id), split.places[id.index()]);
            let mine = if let Place::Ep(ep) = place { Some(ep) } else { None };
            let other = |ep: usize| {
                let taken = |owner: String| (codes::TAKEN_BY.name().to_owned(), format!("'{owner}' runs it"));
                let (code, sentence) = match (reason(offers, bans, ep, id), mine) {
                    (Some(why), _) => (why.code, why.sentence),
                    (None, Some(owner)) => taken(name(owner)),
                    (None, None) => return None,
                };
                Some(EpAnswer { ep: name(ep), code, sentence })
            };
            NodeReport {
                id: id.raw(),
                name: node.name.to_string(),
                op: if node.domain.is_empty() { node.op.to_string() } else { format!("{}::{}", node.domain, node.op) },
                place: match place {
                    Place::Ep(_) => "ep",
                    Place::Executor => "executor",
                    Place::Constant => "constant",
                    Place::Inside(_) => "inside",
                    Place::Later => "later",
                    Place::None => NOBODY,
                },
                ep: mine.map(name),
                part: part_of[id.index()],
                cost_ns: mine.and_then(|ep| offers[ep].cost(id)).filter(|c| !c.is_nan()),
                answers: (0..cx.eps.len()).filter(|&ep| Some(ep) != mine).filter_map(other).collect(),
            }
        });
        let part = |p: &super::PartSpec| PartReport {
            ep: name(p.ep),
            nodes: p.nodes.len(),
            inputs: p.inputs.len(),
            outputs: p.outputs.len(),
            once: p.once,
        };
        Report {
            eps: (0..cx.eps.len()).map(name).collect(),
            nodes: nodes.collect(),
            parts: split.parts.iter().map(part).collect(),
            copies: 0,
            estimate_ns: Some(split.estimate_ns).filter(|e| !e.is_nan()),
            notes: Vec::new(),
        }
    }

    /// How many nodes each EP runs, in the EPs' order.
    pub fn nodes_by_ep(&self) -> Vec<(&str, usize)> {
        let count = |ep: &str| self.nodes.iter().filter(|n| n.ep.as_deref() == Some(ep)).count();
        self.eps.iter().map(|ep| (ep.as_str(), count(ep))).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ep, nodes) in self.nodes_by_ep() {
            let parts = self.parts.iter().filter(|p| p.ep == ep).count();
            writeln!(f, "{ep}: {nodes} nodes in {parts} parts")?;
        }
        for n in &self.nodes {
            let place = n.ep.as_deref().unwrap_or(n.place);
            write!(f, "{:>5} {} '{}' -> {place}", n.id, n.op, n.name)?;
            for a in &n.answers {
                write!(f, "; not {}: {} [{}]", a.ep, a.sentence, a.code)?;
            }
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}
