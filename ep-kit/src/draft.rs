//! First half of compile: which nodes of a part run at all, what each value is, and what is fused.

use crate::bytes;
use crate::error::Reject;
use crate::item::is_item;
use crate::kernel::{Around, Kernel, Node as Op, Seam};
use crate::node::{Look, NodeView};
use crate::table::Index;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::{self, NONE};
use ortolan_ep_abi::view::{Node, Program, ValueInfo};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// What a value is to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Input of the part, by position.
    Input(u32),
    /// Constant of the program, by index.
    Constant(u32),
    /// Small integers computed from shapes; nothing makes it.
    Known,
    /// Computed from constants, in compile.
    Weight,
    /// Made by a step.
    Made,
}

/// Nodes to compile, with their ends.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub index: &'a Index,
    pub program: Program<'a>,
    pub look: Look<'a>,
    pub nodes: &'a [u32],
    pub inputs: &'a [u32],
    pub outputs: &'a [u32],
    /// Runs once: nothing is packed or fused.
    pub once: bool,
    /// Constant expressions are computed in compile; else they are steps like others.
    pub weights: bool,
}

/// A node on its way to a step.
pub(crate) struct Draft<'a> {
    pub view: NodeView<'a>,
    pub kernel: &'static Kernel,
    pub op: Box<dyn Op>,
    pub dtype: DType,
    /// Value ids; NONE where absent.
    pub ins: Vec<u32>,
    pub outs: Vec<u32>,
    /// Names of fused kernels.
    pub fused: SmallVec<[&'static str; 2]>,
    /// How many of `ins` are the node's own; the others came by fusing.
    pub own: usize,
}

impl Draft<'_> {
    /// Whether nothing runs: the output is the input under another shape.
    pub fn is_view(&self) -> bool {
        let ends = [self.ins.first(), self.outs.first()];
        self.kernel.view && ends.iter().all(|end| end.is_some_and(|&v| v != NONE))
    }

    /// Whether the step reads the elements of an input.
    pub fn reads(&self, input: usize) -> bool {
        self.ins[input] != NONE && (input >= self.own || self.kernel.unread & (1u32 << input.min(31)) == 0)
    }
}

/// See the module.
pub(crate) struct Drafts<'a> {
    pub request: Request<'a>,
    pub steps: Vec<Draft<'a>>,
    inputs: HashMap<u32, u32>,
    /// Node of the part that makes a value.
    producers: HashMap<u32, u32>,
    /// Values of class [`Class::Weight`].
    weights: HashSet<u32>,
    /// Values that are another value's bytes under another shape.
    views: HashMap<u32, u32>,
}

/// How messages call a node.
pub(crate) fn label(node: &NodeView<'_>) -> String {
    match node.raw().name() {
        "" => format!("node {} ({})", node.raw().id, node.op()),
        name => format!("node '{name}' ({})", node.op()),
    }
}

impl<'a> Drafts<'a> {
    /// Reads what has to run, in order, fused.
    pub fn new(request: Request<'a>) -> Result<Self, Error> {
        let mut drafts = Drafts {
            request,
            steps: Vec::new(),
            inputs: HashMap::new(),
            producers: HashMap::new(),
            weights: HashSet::new(),
            views: HashMap::new(),
        };
        for (k, &value) in (0..).zip(request.inputs) {
            drafts.inputs.entry(value).or_insert(k);
        }
        for &id in request.nodes {
            let node = request.program.node(id).ok_or_else(|| unknown("node", id))?;
            drafts.producers.extend(node.outputs().iter().filter(|&&v| v != NONE).map(|&v| (v, id)));
            drafts.mark_weights(node)?;
        }
        let live = drafts.live()?;
        for &id in request.nodes.iter().filter(|id| live.contains(id)) {
            let draft = drafts.draft(id)?;
            drafts.steps.push(draft);
        }
        if !request.once {
            drafts.fuse()?;
        }
        for step in drafts.steps.iter().filter(|s| s.is_view()) {
            let base = drafts.views.get(&step.ins[0]).copied().unwrap_or(step.ins[0]);
            drafts.views.insert(step.outs[0], base);
        }
        Ok(drafts)
    }

    /// The value whose bytes a value is.
    pub fn root(&self, value: u32) -> u32 {
        self.views.get(&value).copied().unwrap_or(value)
    }

    /// Outputs that can be computed in compile: constant expressions of fixed size whose inputs are all at hand.
    fn mark_weights(&mut self, node: Node<'a>) -> Result<(), Error> {
        if !self.request.weights {
            return Ok(());
        }
        for &value in node.inputs().iter().filter(|&&v| v != NONE) {
            if matches!(self.class(value)?, Class::Input(_) | Class::Made) {
                return Ok(());
            }
        }
        for &value in node.outputs().iter().filter(|&&v| v != NONE) {
            let info = self.value(value)?;
            if info.is_const_expr() && !is_item(&info) && (0..info.rank()).all(|k| info.fixed_dim(k).is_some()) {
                self.weights.insert(value);
            }
        }
        Ok(())
    }

    pub fn value(&self, id: u32) -> Result<ValueInfo<'a>, Error> {
        self.request.program.value(id).ok_or_else(|| unknown("value", id))
    }

    pub fn class(&self, id: u32) -> Result<Class, Error> {
        if let Some(&k) = self.inputs.get(&id) {
            return Ok(Class::Input(k));
        }
        let info = self.value(id)?;
        if let Some(k) = info.constant_index() {
            return Ok(Class::Constant(k));
        }
        if !info.known().is_empty() && info.dtype().is_some_and(bytes::holds_numbers) {
            return Ok(Class::Known);
        }
        match self.producers.contains_key(&id) {
            true if self.weights.contains(&id) => Ok(Class::Weight),
            true => Ok(Class::Made),
            false => Err(Error::new(format!("value '{}' is read and neither made nor handed in", info.name()))),
        }
    }

    /// Node of the part that makes a value.
    pub fn producer(&self, value: u32) -> Option<u32> {
        self.producers.get(&value).copied()
    }

    /// The node with its kernel, for good.
    pub fn draft(&self, id: u32) -> Result<Draft<'a>, Error> {
        let node = self.request.program.node(id).ok_or_else(|| unknown("node", id))?;
        let view = NodeView::new(node, self.request.look);
        let refused = |r: Reject| Error::new(format!("{}: {r}", label(&view))).at(id);
        let (kernel, dtype) = self.request.index.find(&view).map_err(refused)?;
        let op = kernel.make(&view, dtype).map_err(refused)?;
        let (ins, outs) = (node.inputs().to_vec(), node.outputs().to_vec());
        let own = ins.len();
        Ok(Draft { view, kernel, op, dtype, ins, outs, fused: SmallVec::new(), own })
    }

    /// Nodes that have to run: those that outputs, or sizes of outputs, come from.
    fn live(&self) -> Result<HashSet<u32>, Error> {
        let mut need = Need { drafts: self, values: HashSet::new(), nodes: HashSet::new(), seen: HashSet::new() };
        for &value in self.request.outputs {
            need.read(value)?;
        }
        for &id in self.request.nodes.iter().rev() {
            let node = self.request.program.node(id).ok_or_else(|| unknown("node", id))?;
            let wanted = need.nodes.contains(&id) || node.outputs().iter().any(|v| need.values.contains(v));
            if !wanted {
                continue;
            }
            need.nodes.insert(id);
            let view = NodeView::new(node, self.request.look);
            let unread = self.request.index.find(&view).map_or(0, |(kernel, _)| kernel.unread);
            for &value in node.outputs().iter().filter(|&&v| v != NONE) {
                need.shape(value)?;
            }
            for (k, &value) in node.inputs().iter().enumerate().filter(|&(_, &v)| v != NONE) {
                if k < 32 && unread & (1 << k) != 0 {
                    need.shape(value)?;
                } else {
                    need.read(value)?;
                }
            }
        }
        Ok(need.nodes)
    }

    /// Lets each step take over what makes its inputs, then the only reader of its output. A fused step stands where its
    /// reader stood, so that all inputs are there.
    fn fuse(&mut self) -> Result<(), Error> {
        let mut steps: Vec<Option<Draft<'a>>> = core::mem::take(&mut self.steps).into_iter().map(Some).collect();
        self.read_through(&mut steps)?;
        let readers = self.readers(&steps);
        for k in 0..steps.len() {
            let Some((reader, input)) = follower(&steps, &readers, k) else { continue };
            let (Some(step), Some(next)) = (steps[k].take(), steps[reader].take()) else { continue };
            (steps[k], steps[reader]) = join(step, next, input);
        }
        self.steps = steps.into_iter().flatten().collect();
        Ok(())
    }

    /// Those that nobody reads any more are gone.
    fn read_through(&self, steps: &mut [Option<Draft<'a>>]) -> Result<(), Error> {
        let readers = self.readers(steps);
        let mut dropped = HashSet::new();
        for k in 0..steps.len() {
            let next = follower(steps, &readers, k).and_then(|(reader, _)| Some(steps[reader].as_ref()?.view));
            let Some(step) = &mut steps[k] else { continue };
            let makers = step.ins.iter().map(|&value| self.maker(value)).collect();
            let taken = step.op.read_through(&step.view, &Around { makers, next });
            for i in (0..step.own.min(32)).filter(|i| taken & (1 << i) != 0) {
                let maker = self.draft(self.producer(step.ins[i]).unwrap_or(NONE))?;
                dropped.insert(core::mem::replace(&mut step.ins[i], maker.ins[0]));
                step.ins.extend(&maker.ins[1..]);
                if !step.fused.contains(&maker.kernel.name) {
                    step.fused.push(maker.kernel.name);
                }
            }
        }
        let mut wanted: HashSet<u32> = steps.iter().flatten().flat_map(|s| &s.ins).copied().collect();
        wanted.extend(self.request.outputs);
        wanted.extend(self.request.program.symbols().iter().map(|s| s.value));
        for step in steps {
            let made = step.as_ref().and_then(|s| single(&s.outs));
            step.take_if(|_| made.is_some_and(|v| dropped.contains(&v) && !wanted.contains(&v)));
        }
        Ok(())
    }

    /// The node that makes a value by changing the elements of its first input alone.
    fn maker(&self, value: u32) -> Option<NodeView<'a>> {
        let node = self.request.program.node(self.producer(value)?)?;
        let view = NodeView::new(node, self.request.look);
        let (from, to) = (view.input(0)?, view.output(0)?);
        (single(node.outputs()).is_some() && from.same_dims(&to)).then_some(view)
    }

    /// For each value that only steps need, those that read its elements.
    fn readers(&self, steps: &[Option<Draft<'a>>]) -> Readers {
        let mut readers = Readers::new();
        for (k, step) in steps.iter().enumerate().filter_map(|(k, step)| Some((k, step.as_ref()?))) {
            for (i, &value) in step.ins.iter().enumerate().filter(|&(i, _)| step.reads(i)) {
                readers.entry(value).or_default().push((k, i));
            }
        }
        let others = self.request.program.symbols().iter().map(|s| &s.value).chain(self.request.outputs);
        others.for_each(|value| drop(readers.remove(value)));
        readers
    }
}

/// Steps that read a value, with the input.
type Readers = HashMap<u32, SmallVec<[(usize, usize); 2]>>;

/// The only reader of what a step makes, with the input, if it may be taken over.
fn follower(steps: &[Option<Draft<'_>>], readers: &Readers, k: usize) -> Option<(usize, usize)> {
    let step = steps[k].as_ref()?;
    let &[(reader, input)] = readers.get(&single(&step.outs)?)?.as_slice() else { return None };
    let next = steps[reader].as_ref().filter(|_| reader != k)?;
    joins(step, next, input).then_some((reader, input))
}

/// Lets a step take the next one over. The answer is what stands at the place of either.
fn join<'a>(mut step: Draft<'a>, next: Draft<'a>, input: usize) -> (Option<Draft<'a>>, Option<Draft<'a>>) {
    let seam = Seam { input, extra: step.ins.len() };
    match step.op.fuse(&next.view, seam) {
        true => (None, Some(merge(step, next, input))),
        false => (Some(step), Some(next)),
    }
}

/// Whether `next` may be taken over at all: one output of the shape of what it reads.
fn joins(step: &Draft<'_>, next: &Draft<'_>, input: usize) -> bool {
    let Some(result) = next.view.output(0) else { return false };
    let fused_shape = next.view.input(input).is_some_and(|v| v.same_dims(&result));
    single(&next.outs).is_some()
        && fused_shape
        && next.fused.is_empty()
        && !next.kernel.view
        && !next.kernel.late
        && !step.kernel.view
        && !step.kernel.late
}

fn merge<'a>(mut first: Draft<'a>, second: Draft<'a>, input: usize) -> Draft<'a> {
    let others = second.ins.iter().enumerate().filter(|&(k, &v)| k != input && v != NONE);
    first.ins.extend(others.map(|(_, &v)| v));
    first.outs = second.outs;
    first.fused.push(second.kernel.name);
    first
}

/// The one output that is there.
fn single(outs: &[u32]) -> Option<u32> {
    let (&first, rest) = outs.split_first()?;
    (first != NONE && rest.iter().all(|&v| v == NONE)).then_some(first)
}

fn unknown(what: &str, id: u32) -> Error {
    Error::new(format!("the program has no {what} {id}"))
}

/// What the outputs of a part need, collected from back to front.
struct Need<'d, 'a> {
    drafts: &'d Drafts<'a>,
    values: HashSet<u32>,
    nodes: HashSet<u32>,
    seen: HashSet<u32>,
}

impl Need<'_, '_> {
    /// Elements of a value are needed.
    fn read(&mut self, value: u32) -> Result<(), Error> {
        if self.drafts.class(value)? == Class::Made {
            self.values.insert(value);
        }
        self.shape(value)
    }

    /// Dimensions of a value are needed, and the elements that the host computes.
    fn shape(&mut self, value: u32) -> Result<(), Error> {
        let info = self.drafts.value(value)?;
        for &id in info.dims().iter().chain(info.known()) {
            self.expr(id);
        }
        Ok(())
    }

    fn expr(&mut self, id: u32) {
        let program = self.drafts.request.program;
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let Some(e) = program.exprs().get(id as usize) else { continue };
            if !self.seen.insert(id) {
                continue;
            }
            match e.op {
                raw::expr::CONST => {}
                raw::expr::SYMBOL => self.symbol(e.a),
                _ => open.extend(operands(e)),
            }
        }
    }

    fn symbol(&mut self, id: u32) {
        let Some(symbol) = self.drafts.request.program.symbols().get(id as usize) else { return };
        if self.drafts.inputs.contains_key(&symbol.value) {
            return;
        }
        let Some(node) = self.drafts.producer(symbol.value) else { return };
        if symbol.kind == raw::SYMBOL_ELEMENT {
            self.values.insert(symbol.value);
        }
        self.nodes.insert(node);
    }
}

/// Expressions that an operation reads.
pub(crate) fn operands(e: &raw::Expr) -> SmallVec<[u32; 3]> {
    match e.op {
        raw::expr::CONST | raw::expr::SYMBOL => SmallVec::new(),
        raw::expr::NOT => SmallVec::from_slice(&[e.a]),
        raw::expr::SELECT => SmallVec::from_slice(&[e.a, e.b, u32::try_from(e.v).unwrap_or(NONE)]),
        _ => SmallVec::from_slice(&[e.a, e.b]),
    }
}
