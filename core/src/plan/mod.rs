//! A plan: what a run does, step by step, over numbered slots.
//!
//! Slots are places for values that cross from one step to another, over all graphs that the executor walks: the result
//! of a branch is made in the slot of the node's output. A plan is immutable and shared by all runs; what changes in a
//! run is on its lane.

mod binder;
mod bodies;
mod build;
pub(crate) mod control;
mod deaths;

use std::collections::HashMap;
use std::sync::Arc;

use ortolan_graph::ir::{DType, Name};

pub(crate) use binder::{Binder, DimRule, InputRule, fits};
pub(crate) use build::{build, build_once, made};

use crate::abi::{EpHandle, PartHandle};
use crate::value::{SpaceId, Value};

/// Number of a slot.
pub(crate) type Slot = u32;

/// What runs. Everything by number, nothing by name.
pub(crate) struct Plan {
    pub steps: Box<[Step]>,
    /// What runs once, before the plan is used.
    pub once: Box<[Step]>,
    pub slots: Box<[SlotInfo]>,
    pub parts: Arc<[Arc<PartHandle>]>,
    /// The model's inputs, in order.
    pub inputs: Box<[Slot]>,
    /// The model's outputs, in order.
    pub outputs: Box<[Slot]>,
    /// Whether an output's value is handed out, or only shared because it is needed again.
    pub handed_out: Box<[bool]>,
    /// Values that are there before a run begins.
    pub presets: Vec<(Slot, Value)>,
    pub binder: Binder,
    /// Most inputs of a part.
    pub widest: usize,
    /// Copies between memory spaces.
    pub copies: usize,
    /// Who copies to and from a memory space.
    owners: Box<[(SpaceId, Arc<EpHandle>)]>,
    /// Name and operator of each of the graph's nodes, for messages.
    nodes: Box<[(Name, Name)]>,
    /// By part: the graph's nodes behind nodes that its EP's dialect writes otherwise.
    pub sources: Box<[Sources]>,
    /// By part: its first node, and how many it has.
    heads: Box<[(Option<u32>, usize)]>,
}

/// Nodes of a dialect that have numbers of their own, and the graph's nodes that each stands for.
pub(crate) type Sources = HashMap<u32, Box<[u32]>>;

impl Plan {
    /// Who copies to and from a memory space.
    pub fn owner(&self, space: SpaceId) -> Option<&Arc<EpHandle>> {
        self.owners.iter().find(|o| o.0 == space).map(|o| &o.1)
    }

    /// The graph's nodes that a part's EP calls by this number; none for what is no node.
    pub fn sources_of(&self, part: u32, node: u32) -> Vec<u32> {
        match self.sources.get(part as usize).and_then(|s| s.get(&node)) {
            Some(sources) => sources.to_vec(),
            None if (node as usize) < self.nodes.len() => vec![node],
            None => Vec::new(),
        }
    }

    /// How errors name the node that an EP calls by this number: of whichever part, because what a part has left on the
    /// device may fail while another one runs.
    pub fn place_in(&self, ep: &Arc<EpHandle>, node: u32) -> Option<String> {
        let mine = |part: &&usize| Arc::ptr_eq(self.parts[**part].ep(), ep);
        let knows = |part: &usize| self.sources.get(*part).is_some_and(|s| s.contains_key(&node));
        let all: Vec<usize> = (0..self.parts.len()).collect();
        let part = all.iter().filter(mine).copied().find(knows).and_then(|p| u32::try_from(p).ok());
        let sources = self.sources_of(part.unwrap_or(u32::MAX), node);
        let places: Vec<String> = sources.into_iter().map(|n| self.place(n)).collect();
        (!places.is_empty()).then(|| places.join(", "))
    }

    /// How errors name a part.
    pub fn part_place(&self, part: u32) -> String {
        match self.heads.get(part as usize) {
            Some((Some(first), 1)) => self.place(*first),
            Some((Some(first), n)) => format!("the part of {n} nodes from {} on", self.place(*first)),
            _ => format!("part {part}"),
        }
    }

    /// How errors name a node.
    pub fn place(&self, node: u32) -> String {
        match self.nodes.get(node as usize) {
            Some((name, op)) if name.is_empty() => format!("node {node} ({op})"),
            Some((name, op)) => format!("node '{name}' ({op})"),
            None => format!("node {node}"),
        }
    }
}

/// What is known of a slot's value.
#[derive(Debug)]
pub(crate) struct SlotInfo {
    /// Name in the model, for messages.
    pub name: Name,
    /// Type of a tensor, as far as it is known.
    pub dtype: Option<DType>,
    /// Its ONNX number, 0 for strings and what is not known.
    pub number: u32,
    /// Bits of an element, 0 likewise.
    pub bits: u32,
    /// Rank of a tensor, if it is always the same.
    pub rank: Option<u32>,
    /// Which output of the model it is.
    pub output: Option<u32>,
    /// Symbols that the value fixes.
    pub defines: Box<[Define]>,
}

/// A symbol that a value fixes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Define {
    pub symbol: u32,
    /// Dim or element.
    pub at: u32,
    /// Element of a small integer tensor, else a dim.
    pub element: bool,
}

/// One thing that a run does. `deaths` are slots that nobody reads any more.
#[derive(Debug)]
pub(crate) enum Step {
    /// Runs a part.
    Run(RunStep),
    /// Copies values from one memory space to another in one go; one of the two spaces is the host's.
    Copy { moves: Vec<(Slot, Slot)>, space: SpaceId, deaths: Box<[Slot]> },
    /// The same value in another slot.
    Share { from: Slot, to: Slot, deaths: Box<[Slot]> },
    /// One of two bodies.
    If { node: u32, cond: Slot, then: Body, els: Body, deaths: Box<[Slot]> },
    /// A body, again and again.
    Loop { step: Box<LoopStep>, deaths: Box<[Slot]> },
    /// A body, for each row.
    Scan { step: Box<ScanStep>, deaths: Box<[Slot]> },
}

/// A part with its slots.
#[derive(Debug)]
pub(crate) struct RunStep {
    pub part: u32,
    pub ins: Box<[In]>,
    pub outs: Box<[Slot]>,
    /// `WANT_*` per output.
    pub wants: Box<[u32]>,
    /// Some output fixes symbols.
    pub defines: bool,
    pub deaths: Box<[Slot]>,
}

/// An input of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct In {
    pub slot: Slot,
    /// Where the part wants it.
    pub space: SpaceId,
    /// This is its last reader.
    pub last: bool,
}

/// A graph inside a step.
#[derive(Debug)]
pub(crate) struct Body {
    pub steps: Box<[Step]>,
    /// Slots that are empty before and after.
    pub locals: Box<[Slot]>,
    /// Values that move to a slot of the outer graph in the end.
    pub results: Box<[(Slot, Slot)]>,
}

/// `Loop`.
#[derive(Debug)]
pub(crate) struct LoopStep {
    pub node: u32,
    pub trip: Option<Slot>,
    pub cond: Option<Slot>,
    pub iter_in: Slot,
    pub cond_in: Slot,
    pub cond_out: Slot,
    pub carried: Box<[Carried]>,
    pub scans: Box<[Stack]>,
    pub body: Body,
}

/// `Scan`.
#[derive(Debug)]
pub(crate) struct ScanStep {
    pub node: u32,
    pub states: Box<[Carried]>,
    pub rows: Box<[Rows]>,
    pub scans: Box<[Stack]>,
    pub body: Body,
}

/// A value that one iteration hands to the next.
#[derive(Debug)]
pub(crate) struct Carried {
    pub initial: Slot,
    pub inside: Slot,
    pub next: Slot,
    pub result: Option<Slot>,
}

/// An input whose rows go in one by one.
#[derive(Debug)]
pub(crate) struct Rows {
    pub from: Slot,
    pub inside: Slot,
    pub axis: i64,
    pub reverse: bool,
}

/// An output that is stacked from what the iterations make.
#[derive(Debug)]
pub(crate) struct Stack {
    pub from: Slot,
    pub to: Option<Slot>,
    pub axis: i64,
    pub reverse: bool,
    /// Shape of a row when there is none.
    pub empty: Box<[i64]>,
}

impl Step {
    /// Nodes that control steps are about, for messages.
    pub fn node(&self) -> Option<u32> {
        match self {
            Step::If { node, .. } => Some(*node),
            Step::Loop { step, .. } => Some(step.node),
            Step::Scan { step, .. } => Some(step.node),
            _ => None,
        }
    }
}
