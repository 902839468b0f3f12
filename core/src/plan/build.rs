//! From a split graph and its compiled parts to a plan: slots, copies, wants, bodies.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ortolan_ep_abi::raw;
use ortolan_graph::Graph;
use ortolan_graph::ir::{Constant, DType, Data, GraphId, Name, NodeId, SymbolKind, Type, ValueId};

use super::{Binder, Define, In, Plan, RunStep, Slot, SlotInfo, Step};
use crate::abi::{EpHandle, PartHandle};
use crate::error::{Error, Result, codes};
use crate::partition::{Item, Partition};
use crate::program::number;
use crate::value::{SpaceId, Tensor, Value};

/// Makes the plan. `parts` are the compiled parts of the split, in its order.
///
/// `symbols` is how many numbers of symbols a call carries: as many as the EPs' dialects have.
pub(crate) fn build(graph: &Graph, split: &Partition, parts: &[Arc<PartHandle>], symbols: usize) -> Result<Plan> {
    let mut b = Builder::new(graph, split, parts);
    let inputs: Vec<Slot> = graph.main().inputs.iter().map(|&v| b.slot(v, GraphId::MAIN)).collect();
    b.defaults()?;
    let mut steps = b.graph(GraphId::MAIN)?;
    let mut outputs = Vec::new();
    for &value in &graph.main().outputs {
        outputs.push(b.on_host(value, GraphId::MAIN, &mut steps)?);
    }
    for ((&slot, number), name) in outputs.iter().zip(0u32..).zip(&graph.main().output_names) {
        let info = &mut b.slots[slot as usize];
        if info.output.is_none() {
            (info.output, info.name) = (Some(number), name.clone());
        }
    }
    b.finish(&mut steps, GraphId::MAIN, &outputs);
    Ok(b.plan(steps, inputs, outputs, symbols))
}

/// Makes a plan of parts that need nothing of a run, and says where the values lie that they make.
pub(crate) fn build_once(
    graph: &Graph,
    split: &Partition,
    parts: &[Arc<PartHandle>],
    symbols: usize,
) -> Result<(Plan, Vec<(ValueId, Slot)>)> {
    let mut b = Builder::new(graph, split, parts);
    for &body in split.graphs.keys() {
        b.graph(body)?;
    }
    let made =
        split.parts.iter().flat_map(|p| values(&p.outputs)).filter_map(|v| Some((v, *b.home.get(&v)?))).collect();
    Ok((b.plan(Vec::new(), Vec::new(), Vec::new(), symbols), made))
}

/// Outputs whose slot nobody needs afterwards.
fn handed_out(outputs: &[Slot], fixed: &HashSet<Slot>) -> Box<[bool]> {
    let again = |at: usize, slot: &Slot| outputs[at + 1..].contains(slot);
    outputs.iter().enumerate().map(|(at, slot)| !fixed.contains(slot) && !again(at, slot)).collect()
}

/// The first EP that names a space and can copy.
fn owners(parts: &[Arc<PartHandle>]) -> Box<[(SpaceId, Arc<EpHandle>)]> {
    let mut found: Vec<(SpaceId, Arc<EpHandle>)> = Vec::new();
    for part in parts.iter().filter(|p| p.ep().table().copy.is_some()) {
        for &space in part.ports().inputs.iter().chain(&part.ports().outputs) {
            let named = space != SpaceId::HOST && space != SpaceId::ANYWHERE;
            if named && !found.iter().any(|f| f.0 == space) {
                found.push((space, Arc::clone(part.ep())));
            }
        }
    }
    found.into()
}

fn names(graph: &Graph) -> Box<[(Name, Name)]> {
    let ids = (0..graph.node_count()).filter_map(|i| u32::try_from(i).ok().and_then(NodeId::from_index));
    ids.map(|id| (graph.node(id).name.clone(), graph.node(id).op.clone())).collect()
}

/// Spaces in which the readers of each value want it.
fn wanted(graph: &Graph, split: &Partition, parts: &[Arc<PartHandle>]) -> HashMap<u32, HashSet<SpaceId>> {
    let mut all: HashMap<u32, HashSet<SpaceId>> = HashMap::new();
    let mut add = |value: u32, space| _ = all.entry(value).or_default().insert(space);
    for (spec, part) in split.parts.iter().zip(parts) {
        spec.inputs.iter().zip(&part.ports().inputs).for_each(|(&v, &space)| add(v, space));
    }
    for (body, items) in &split.graphs {
        graph.body(*body).outputs.iter().for_each(|v| add(v.raw(), SpaceId::HOST));
        for item in items {
            if let Item::Control(node) = item {
                graph.node(*node).inputs.iter().flatten().for_each(|v| add(v.raw(), SpaceId::HOST));
            }
        }
    }
    all
}

pub(super) struct Builder<'a> {
    pub(super) graph: &'a Graph,
    pub(super) split: &'a Partition,
    parts: &'a [Arc<PartHandle>],
    pub(super) slots: Vec<SlotInfo>,
    /// Where each slot's value lies.
    spaces: Vec<SpaceId>,
    /// The graph that each slot belongs to.
    pub(super) owners: Vec<GraphId>,
    pub(super) home: HashMap<ValueId, Slot>,
    /// Copies in other spaces that can be read from here.
    pub(super) moved: HashMap<(Slot, SpaceId), Slot>,
    /// Slots that several steps may fill, always in host memory.
    pub(super) pinned: HashSet<Slot>,
    pub(super) presets: Vec<(Slot, Value)>,
    wanted: HashMap<u32, HashSet<SpaceId>>,
    pub(super) once: Vec<Step>,
    copies: usize,
    /// Bodies that are being planned, the innermost last.
    pub(super) scopes: Vec<Scope>,
    /// Copies that belong before the loop that was just planned.
    pub(super) hoisted: Vec<Step>,
    /// What is being planned runs once, when the session is built.
    is_once: bool,
}

/// A body that is being planned.
pub(super) struct Scope {
    pub body: GraphId,
    /// The graph of the node that has it.
    pub around: GraphId,
    /// It runs whenever its node does, and again and again.
    pub repeats: bool,
    /// Copies that are the same in every iteration, so that they are made before.
    pub before: Vec<Step>,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, split: &'a Partition, parts: &'a [Arc<PartHandle>]) -> Builder<'a> {
        Builder {
            graph,
            split,
            parts,
            slots: Vec::new(),
            spaces: Vec::new(),
            owners: Vec::new(),
            home: HashMap::new(),
            moved: HashMap::new(),
            pinned: HashSet::new(),
            presets: Vec::new(),
            wanted: wanted(graph, split, parts),
            once: Vec::new(),
            copies: 0,
            scopes: Vec::new(),
            hoisted: Vec::new(),
            is_once: false,
        }
    }

    fn plan(self, steps: Vec<Step>, inputs: Vec<Slot>, outputs: Vec<Slot>, symbols: usize) -> Plan {
        let handed_out = handed_out(&outputs, &self.fixed());
        Plan {
            steps: steps.into(),
            once: self.once.into(),
            slots: self.slots.into(),
            parts: self.parts.into(),
            inputs: inputs.into(),
            handed_out,
            outputs: outputs.into(),
            presets: self.presets,
            binder: Binder::new(self.graph, symbols),
            widest: self.split.parts.iter().map(|p| p.inputs.len()).max().unwrap_or(0),
            copies: self.copies,
            owners: owners(self.parts),
            nodes: names(self.graph),
            sources: Box::default(),
            heads: self.split.parts.iter().map(|p| (p.placed.first().map(|n| n.raw()), p.placed.len())).collect(),
        }
    }

    pub(super) fn new_slot(&mut self, info: SlotInfo, space: SpaceId, owner: GraphId) -> Slot {
        self.slots.push(info);
        self.spaces.push(space);
        self.owners.push(owner);
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    /// The slot of a value; made if there is none.
    pub(super) fn slot(&mut self, value: ValueId, owner: GraphId) -> Slot {
        if let Some(&slot) = self.home.get(&value) {
            return slot;
        }
        let info = self.info(value);
        let slot = self.new_slot(info, SpaceId::HOST, owner);
        self.home.insert(value, slot);
        slot
    }

    pub(super) fn info(&self, value: ValueId) -> SlotInfo {
        let v = self.graph.value(value);
        let tensor = v.ty.as_ref().and_then(Type::as_tensor);
        let plain = tensor.map(|t| t.dtype).filter(|d| *d != DType::String);
        let inputs = &self.graph.main().inputs;
        let symbols = self.graph.exprs().symbols().iter().zip(0u32..);
        let defines = symbols.filter(|(s, _)| s.value == value && !inputs.contains(&value)).map(|(s, symbol)| Define {
            symbol,
            at: s.at,
            element: s.kind == SymbolKind::Element,
        });
        SlotInfo {
            name: v.name.clone(),
            dtype: tensor.map(|t| t.dtype),
            number: plain.map_or(0, number),
            bits: plain.map_or(0, DType::bits),
            rank: tensor.and_then(|t| t.rank()).and_then(|r| u32::try_from(r).ok()),
            output: None,
            defines: defines.collect(),
        }
    }

    /// The slot to read a value from. Constants get one here, as they are needed.
    fn read(&mut self, value: ValueId) -> Result<Slot> {
        if let Some(&slot) = self.home.get(&value) {
            return Ok(slot);
        }
        let v = self.graph.value(value);
        let Some(constant) = v.constant else {
            let text = format!("the plan reads '{}' before anything makes it", v.name);
            return Err(Error::new(codes::INTERNAL, text));
        };
        let slot = self.slot(value, v.graph);
        self.presets.push((slot, owned(self.graph.constant(constant))?));
        Ok(slot)
    }

    /// Inputs that have a default.
    fn defaults(&mut self) -> Result<()> {
        for &value in &self.graph.main().inputs {
            if let Some(constant) = self.graph.value(value).default {
                let slot = self.slot(value, GraphId::MAIN);
                self.presets.push((slot, owned(self.graph.constant(constant))?));
            }
        }
        Ok(())
    }

    pub(super) fn graph(&mut self, graph: GraphId) -> Result<Vec<Step>> {
        let items = self.split.graphs.get(&graph).cloned().unwrap_or_default();
        let mut steps = Vec::new();
        for item in items {
            let mut new = Vec::new();
            let once = match item {
                Item::Part(at) => {
                    self.is_once = self.split.parts[at].once;
                    self.part(at, graph, &mut new)?;
                    std::mem::take(&mut self.is_once)
                }
                Item::Control(node) => {
                    self.control(node, graph, &mut new)?;
                    false
                }
            };
            if once { self.once.extend(new) } else { steps.extend(new) }
        }
        Ok(steps)
    }

    fn part(&mut self, at: usize, graph: GraphId, steps: &mut Vec<Step>) -> Result<()> {
        let (spec, part) = (&self.split.parts[at], &self.parts[at]);
        let ports = part.ports();
        let mut ins = Vec::new();
        for (value, &space) in values(&spec.inputs).zip(&ports.inputs) {
            let home = self.read(value)?;
            let anywhere = space == SpaceId::ANYWHERE;
            let slot = if anywhere { home } else { self.in_space(home, space, graph, steps) };
            ins.push(In { slot, space, last: false });
        }
        let (mut outs, mut wants) = (Vec::new(), Vec::new());
        let full = spec.outputs.len() - spec.shapes_only;
        for ((value, &space), k) in values(&spec.outputs).zip(&ports.outputs).zip(0..) {
            let (want, space) = if k < full { self.want(value, space) } else { (raw::WANT_SHAPE, space) };
            let slot = self.slot(value, graph);
            let element = self.slots[slot as usize].defines.iter().any(|d| d.element);
            // An element can only be read in host memory.
            let (want, space) =
                if element || self.pinned.contains(&slot) { (raw::WANT_HOST, SpaceId::HOST) } else { (want, space) };
            self.spaces[slot as usize] = space;
            outs.push(slot);
            wants.push(want);
        }
        let defines = outs.iter().any(|&s| !self.slots[s as usize].defines.is_empty());
        let part = u32::try_from(at).unwrap_or(u32::MAX);
        let (ins, outs, wants) = (ins.into(), outs.into(), wants.into());
        steps.push(Step::Run(RunStep { part, ins, outs, wants, defines, deaths: Box::new([]) }));
        Ok(())
    }

    /// How an output is asked for, and where it then lies.
    fn want(&self, value: ValueId, port: SpaceId) -> (u32, SpaceId) {
        let readers = self.wanted.get(&value.raw());
        if readers.is_some_and(|r| r.iter().all(|&s| s == SpaceId::ANYWHERE)) {
            return (raw::WANT_SHAPE, port);
        }
        let on_host = |s: &SpaceId| *s == SpaceId::HOST || *s == SpaceId::ANYWHERE;
        let host_only = readers.is_none_or(|r| r.iter().all(on_host));
        if host_only || port == SpaceId::HOST { (raw::WANT_HOST, SpaceId::HOST) } else { (raw::WANT_ANY, port) }
    }

    /// The value of a slot in another space, copied once for all that read it from here on.
    fn in_space(&mut self, slot: Slot, space: SpaceId, graph: GraphId, steps: &mut Vec<Step>) -> Slot {
        let here = self.spaces[slot as usize];
        if here == space {
            return slot;
        }
        if let Some(&there) = self.moved.get(&(slot, space)) {
            return there;
        }
        // Two devices have no way to each other but through the host.
        let from = if here != SpaceId::HOST && space != SpaceId::HOST {
            self.in_space(slot, SpaceId::HOST, graph, steps)
        } else {
            slot
        };
        let info = &self.slots[slot as usize];
        let info = SlotInfo {
            name: info.name.clone(),
            dtype: info.dtype,
            number: info.number,
            bits: info.bits,
            rank: info.rank,
            output: None,
            defines: Box::new([]),
        };
        let way = (self.spaces[from as usize], space);
        self.copies += 1;
        let to = match self.outermost(slot) {
            Some(at) => {
                let to = self.new_slot(info, space, self.scopes[at].around);
                add_copy(&mut self.scopes[at].before, (from, to), way, &self.spaces);
                to
            }
            None => {
                let to = self.new_slot(info, space, graph);
                add_copy(steps, (from, to), way, &self.spaces);
                to
            }
        };
        self.moved.insert((slot, space), to);
        to
    }

    /// The outermost loop before which a slot has its value, and which runs all bodies in it down to what is being planned.
    fn outermost(&self, slot: Slot) -> Option<usize> {
        if self.is_once {
            return None;
        }
        let fixed = self.fixed().contains(&slot);
        let outside = |s: &Scope| fixed || !self.is_inside(self.owners[slot as usize], s.body);
        let loops = self.scopes.iter().enumerate().rev().take_while(|(_, s)| s.repeats && outside(s));
        loops.last().map(|(at, _)| at)
    }

    /// Whether a graph is a body or in one of its bodies.
    pub(super) fn is_inside(&self, mut graph: GraphId, body: GraphId) -> bool {
        loop {
            if graph == body {
                return true;
            }
            let Some(parent) = self.graph.body(graph).parent else { return false };
            graph = self.graph.node(parent).graph;
        }
    }

    /// A value in host memory.
    pub(super) fn on_host(&mut self, value: ValueId, graph: GraphId, steps: &mut Vec<Step>) -> Result<Slot> {
        let slot = self.read(value)?;
        Ok(self.in_space(slot, SpaceId::HOST, graph, steps))
    }
}

/// Adds a copy; those at the end of the list that go the same way take it along.
fn add_copy(steps: &mut Vec<Step>, (from, to): (Slot, Slot), way: (SpaceId, SpaceId), spaces: &[SpaceId]) {
    let is_copy = |s: &Step| matches!(s, Step::Copy { .. });
    let copies = steps.iter().rposition(|s| !is_copy(s)).map_or(0, |at| at + 1);
    // What makes `from` comes first.
    let after = steps[copies..].iter().rposition(|s| made(s).contains(&from)).map_or(copies, |at| copies + at + 1);
    for step in &mut steps[after..] {
        if let Step::Copy { moves, space, .. } = step
            && (spaces[moves[0].0 as usize], *space) == way
        {
            return moves.push((from, to));
        }
    }
    steps.push(Step::Copy { moves: vec![(from, to)], space: way.1, deaths: Box::new([]) });
}

/// Slots that a step fills.
pub(crate) fn made(step: &Step) -> Vec<Slot> {
    match step {
        Step::Run(run) => run.outs.to_vec(),
        Step::Copy { moves, .. } => moves.iter().map(|m| m.1).collect(),
        Step::Share { to, .. } => vec![*to],
        _ => Vec::new(),
    }
}

fn values(ids: &[u32]) -> impl Iterator<Item = ValueId> + '_ {
    ids.iter().filter_map(|&v| ValueId::from_index(v))
}

/// A constant in memory of its own, for runs that hand it out.
pub(crate) fn owned(constant: &Constant) -> Result<Value> {
    let tensor = match &constant.data {
        Data::Strings(texts) => Tensor::strings(&constant.dims, texts),
        data => Tensor::from_bytes(constant.dtype, &constant.dims, data.bytes()),
    };
    tensor.map(Value::Tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ortolan_graph::proto::{
        GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TypeProto, ValueInfoProto, type_proto,
    };
    use std::collections::BTreeMap;

    /// No road through a session leads here: a split that leaves out a node is handed in.
    #[test]
    fn a_split_without_the_node_that_makes_an_output_is_a_fault_of_ours() {
        let float = type_proto::Tensor { elem_type: 1, ..Default::default() };
        let float = TypeProto { value: Some(type_proto::Value::Tensor(float)), ..Default::default() };
        let named =
            |name: &str| ValueInfoProto { name: name.into(), r#type: Some(float.clone()), ..Default::default() };
        let relu = NodeProto {
            op_type: "Relu".into(),
            input: vec!["x".into()],
            output: vec!["y".into()],
            ..Default::default()
        };
        let model = ModelProto {
            ir_version: 10,
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 20 }],
            graph: Some(GraphProto {
                node: vec![relu],
                input: vec![named("x")],
                output: vec![named("y")],
                ..Default::default()
            }),
            ..Default::default()
        };
        let bytes = prost::Message::encode_to_vec(&model);
        let graph = ortolan_graph::load_bytes(bytes, None, &Default::default()).expect("a model");
        let split = Partition { places: vec![], parts: vec![], graphs: BTreeMap::new(), estimate_ns: 0.0 };
        let error = build(&graph, &split, &[], 0).map(|_| ()).expect_err("nothing makes y");
        assert!(error.code() == codes::INTERNAL.name() && error.to_string().contains("'y'"), "{error}");
    }
}
