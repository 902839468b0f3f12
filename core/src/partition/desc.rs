//! What exactly a part is: its nodes as they are written for its EP, and the values that enter and leave.

use std::collections::HashSet;

use ortolan_ep_abi::raw::{self, PartDesc};
use ortolan_graph::ir::{GraphId, NodeId, ValueId};

use super::{Choice, Cx, Place};
use crate::program::Program;

/// A part to be compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartSpec {
    /// Number of its EP.
    pub ep: usize,
    /// The graph that its nodes are in.
    pub graph: GraphId,
    /// The graph's nodes that were placed here, in topological order.
    pub placed: Vec<NodeId>,
    /// The program's nodes: those, as they are written, and the constant expressions that they need.
    pub nodes: Vec<u32>,
    /// Values that a run hands in.
    pub inputs: Vec<u32>,
    /// Values that a run asks for.
    pub outputs: Vec<u32>,
    /// The last so many outputs are only asked for their shape.
    pub shapes_only: usize,
    /// It depends on constants only and runs once, when the session is built.
    pub once: bool,
}

impl PartSpec {
    /// How it is asked about or compiled.
    pub fn desc(&self) -> PartDesc {
        let once = if self.once { raw::PART_ONCE } else { 0 };
        part_desc(&self.nodes, &self.inputs, &self.outputs, raw::PART_EXACT | once)
    }
}

/// A description over these lists, which must outlive it.
pub(crate) fn part_desc(nodes: &[u32], inputs: &[u32], outputs: &[u32], flags: u32) -> PartDesc {
    let count = |list: &[u32]| u32::try_from(list.len()).unwrap_or(u32::MAX);
    PartDesc {
        nodes: nodes.as_ptr(),
        inputs: inputs.as_ptr(),
        outputs: outputs.as_ptr(),
        node_count: count(nodes),
        input_count: count(inputs),
        output_count: count(outputs),
        flags,
    }
}

/// Values that a dialect's node reads, captured ones among them. Constants are left out.
fn reads(program: &Program, node: NodeId) -> Vec<ValueId> {
    let mut all = program.reads(node);
    all.retain(|&v| program.graph().value(v).constant.is_none());
    all
}

/// Constant expressions that a value needs; `None` if the EP does not take one of them along.
fn closure(choice: &Choice<'_>, ep: usize, graph: GraphId, value: ValueId) -> Option<Vec<NodeId>> {
    let program = &choice.cx.eps[ep].program;
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut todo = vec![value];
    while let Some(value) = todo.pop() {
        let Some((node, _)) = program.graph().value(value).producer else { continue };
        let sources = program.sources(node);
        if choice.is_forced(&sources) || !seen.insert(sources.clone()) {
            continue;
        }
        if program.graph().node(node).graph != graph || !sources.iter().all(|&s| choice.may(ep, s)) {
            return None;
        }
        let written = program.written(sources[0]);
        todo.extend(written.iter().flat_map(|&n| reads(program, n)));
        found.extend(written);
    }
    Some(found)
}

/// The part of these placed nodes, without outputs, and the constant expressions that it cannot take along.
pub(super) fn inside(choice: &Choice<'_>, ep: usize, placed: &[NodeId], once: bool) -> (PartSpec, Vec<NodeId>) {
    let (cx, program) = (choice.cx, &choice.cx.eps[ep].program);
    let graph = placed.first().map_or(GraphId::MAIN, |n| cx.graph.node(*n).graph);
    let mut nodes: Vec<NodeId> = placed.iter().flat_map(|&n| program.written(n)).collect();
    let own: HashSet<NodeId> = nodes.iter().copied().collect();
    let mut left = Vec::new();
    for value in nodes.clone().iter().flat_map(|&n| reads(program, n)) {
        let Some((producer, _)) = program.graph().value(value).producer else { continue };
        let sources = program.sources(producer);
        if own.contains(&producer) || !sources.iter().all(|&s| cx.is_const(s)) || choice.is_forced(&sources) {
            continue;
        }
        match closure(choice, ep, graph, value) {
            Some(more) => nodes.extend(more),
            None => left.extend(sources),
        }
    }
    nodes.sort_unstable_by_key(|n| program.rank(*n));
    nodes.dedup();
    let inputs = enters(program, &nodes);
    let spec = PartSpec {
        ep,
        graph,
        placed: placed.to_vec(),
        nodes: nodes.iter().map(|n| n.raw()).collect(),
        inputs: inputs.iter().map(|v| v.raw()).collect(),
        outputs: Vec::new(),
        shapes_only: 0,
        once,
    };
    (spec, left)
}

/// Values that enter, in the order of their first use.
fn enters(program: &Program, nodes: &[NodeId]) -> Vec<ValueId> {
    let made: HashSet<ValueId> = nodes.iter().flat_map(|&n| program.outputs(n)).collect();
    let mut seen = HashSet::new();
    let reads = nodes.iter().flat_map(|&n| reads(program, n));
    reads.filter(|v| !made.contains(v) && seen.insert(*v)).collect()
}

/// Sets the outputs: what somebody else needs, then values whose shape defines symbols that others need.
pub(super) fn set_outputs(cx: &Cx<'_>, parts: &mut [PartSpec], places: &[Place], needed: &HashSet<ValueId>) {
    let needs: Vec<HashSet<usize>> = parts.iter().map(|p| symbols_of(cx, p)).collect();
    let definers: Vec<ValueId> = cx.graph.exprs().symbols().iter().map(|s| s.value).collect();
    for (at, part) in parts.iter_mut().enumerate() {
        let program = &cx.eps[part.ep].program;
        let mine: Vec<NodeId> = part.nodes.iter().filter_map(|&n| NodeId::from_index(n)).collect();
        // Constant expressions are made again wherever they are needed.
        let placed = |n: &NodeId| program.sources(*n).iter().any(|s| places[s.index()] != Place::Constant);
        let made: Vec<u32> =
            mine.iter().filter(|n| placed(n)).flat_map(|&n| program.outputs(n)).map(|v| v.raw()).collect();
        let wanted = |v: &u32| ValueId::from_index(*v).is_some_and(|v| needed.contains(&v));
        let mut outputs: Vec<u32> = made.iter().copied().filter(wanted).collect();
        let full = outputs.len();
        let others = needs.iter().enumerate().filter(|(other, _)| *other != at).flat_map(|(_, n)| n.iter());
        let mut defining: Vec<u32> = others.map(|&s| definers[s].raw()).filter(|v| made.contains(v)).collect();
        defining.sort_unstable();
        defining.dedup();
        outputs.extend(defining.into_iter().filter(|v| !wanted(v)));
        part.shapes_only = outputs.len() - full;
        part.outputs = outputs;
    }
}

/// Symbols that the types and small integers of a part's values depend on.
fn symbols_of(cx: &Cx<'_>, part: &PartSpec) -> HashSet<usize> {
    let program = &cx.eps[part.ep].program;
    let nodes = part.nodes.iter().filter_map(|&n| NodeId::from_index(n));
    let values = nodes.flat_map(|n| program.reads(n).into_iter().chain(program.outputs(n)).collect::<Vec<_>>());
    let mut found = HashSet::new();
    let mut seen = HashSet::new();
    // Values that only this dialect has depend on symbols of their own.
    for value in values.filter(|v| v.index() < cx.graph.value_count()) {
        let v = cx.graph.value(value);
        let dims = v.ty.iter().filter_map(|t| t.as_tensor()).filter_map(|t| t.dims.as_ref()).flatten();
        let known = v.known.iter().flat_map(|k| k.iter());
        for &expr in dims.chain(known) {
            cx.symbols_in(expr, &mut seen, &mut found);
        }
    }
    found
}
