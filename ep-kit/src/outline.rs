//! What a part does, for EPs that place values and run steps by themselves, because their memory is not the host's.
//!
//! It shares the first half of compile with [`Kit`](crate::Kit): which nodes run at all, what each value is, what is fused.
//! Where values lie, in which memory and for how long, is the EP's; nothing here runs. Constant expressions are steps like
//! others: [`Step::fixed`] marks them, so that an EP can run them once.

use crate::bytes;
use crate::draft::{Class, Draft, Drafts, Request, label};
use crate::error::Fault;
use crate::expr::{UNKNOWN, eval};
use crate::kernel::{Cost, Kernel, Node};
use crate::node::{Look, NodeView, constant_ints};
use crate::plan::{ArgPlan, From};
use crate::shapes::{ShapeNumbers, Shapes};
use crate::table::Index;
use core::ops::Range;
use ortolan_ep_abi::call::{ClaimCall, Error, Result};
use ortolan_ep_abi::codes::{DType, RejectCode};
use ortolan_ep_abi::raw::{self, Expr, NONE};
use ortolan_ep_abi::view::{PartDesc, Program, ValueInfo};
use std::any::Any;
use std::collections::HashMap;

/// The rows of an EP, ready to answer claims and to read parts.
#[derive(Debug)]
pub struct Rows(pub(crate) Index);

impl Rows {
    /// Families in order: where several rows fit, the first one wins.
    pub fn new(families: &[&'static [Kernel]]) -> Self {
        Rows(Index::new(families))
    }

    /// Answers a claim from the rows. Kernels find `context` with [`NodeView::context`]. `known_free`: nodes whose results
    /// are all known from shapes are taken without a row, as nothing runs for them.
    pub fn claim(
        &self,
        call: &ClaimCall<'_>,
        program: Program<'_>,
        part: PartDesc<'_>,
        context: &(dyn Any + Send + Sync),
        known_free: bool,
    ) {
        let numbers = crate::expr::hints(program.exprs(), call.symbols());
        let look = Look { program, hints: &numbers, context };
        for &id in part.nodes() {
            let Some(node) = program.node(id) else {
                call.reject(id, RejectCode::Error, &format!("the program has no node {id}"));
                continue;
            };
            let view = NodeView::new(node, look);
            if known_free && is_known(&view) {
                call.claim(&[id], 0.0, false);
                continue;
            }
            let answer = self.0.find(&view).and_then(|(kernel, _)| kernel.accept(&view));
            match answer {
                Ok(Cost { ns }) => call.claim(&[id], if is_free(&view) { 0.0 } else { ns }, false),
                Err(r) => call.reject(id, r.code, &format!("{}: {}", node.op(), r.text)),
            }
        }
    }

    /// Reads a part. `symbols` are hints, as compile has them.
    pub fn outline(
        &self,
        program: Program<'_>,
        part: PartDesc<'_>,
        symbols: &[i64],
        context: &(dyn Any + Send + Sync),
    ) -> Result<Outline> {
        let numbers = crate::expr::hints(program.exprs(), symbols);
        let drafts = Drafts::new(Request {
            index: &self.0,
            program,
            look: Look { program, hints: &numbers, context },
            nodes: part.nodes(),
            inputs: part.inputs(),
            outputs: part.outputs(),
            once: part.is_once(),
            weights: false,
        })?;
        let (mut outline, read) = Builder::new(&drafts).build()?;
        let ops: Vec<Box<dyn Node>> = drafts.steps.into_iter().map(|draft| draft.op).collect();
        for (op, step) in ops.into_iter().zip(read) {
            outline.steps.extend(step.map(|step| step(op)));
        }
        Ok(outline)
    }
}

fn outputs<'a>(node: &NodeView<'a>) -> impl Iterator<Item = ValueInfo<'a>> {
    let raw = node.raw();
    (0..raw.outputs().len()).filter_map(move |j| raw.output(j))
}

/// Whether all that a node makes is small integers computed from shapes.
fn is_known(node: &NodeView<'_>) -> bool {
    let known = |v: ValueInfo<'_>| !v.known().is_empty() && v.dtype().is_some_and(bytes::holds_numbers);
    outputs(node).count() > 0 && outputs(node).all(known)
}

/// Whether a node never runs: its value is known from shapes, or computed in compile.
fn is_free(node: &NodeView<'_>) -> bool {
    outputs(node).count() > 0 && outputs(node).all(|v| v.is_const_expr() || !v.known().is_empty())
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Input of the part, by position.
    Input(u32),
    /// Constant of the program, by index.
    Constant(u32),
    /// Small integers computed from shapes; nobody makes it.
    Known,
    /// A step makes it.
    Step,
}

/// A value of a part. Values are numbered from 0 in [`Outline::values`].
#[derive(Debug, Clone)]
pub struct Value {
    /// Where it comes from.
    pub source: Source,
    /// Element type.
    pub dtype: DType,
    /// The value whose bytes it is; itself unless it is a view.
    pub root: u32,
    /// Name, for messages.
    pub name: Box<str>,
    shape: u32,
    elements: Option<Range<u32>>,
}

/// A node, or several fused ones.
pub struct Step {
    /// First of its source nodes.
    pub node: u32,
    /// Node as messages call it.
    pub label: Box<str>,
    /// Kernel name, with what was fused.
    pub name: Box<str>,
    /// Values that it reads, `None` where absent.
    pub inputs: Box<[Option<u32>]>,
    /// Values that it makes, `None` where absent.
    pub outputs: Box<[Option<u32>]>,
    /// Whether it computes the same in every run: from constants, with dimensions that no symbol decides.
    pub fixed: bool,
    /// Bit i: the elements of input i are read, not only its shape.
    reads: u32,
    args: Range<usize>,
    op: Box<dyn Node>,
}

impl Step {
    /// Whether the elements of an input are read when it runs.
    pub fn reads(&self, input: usize) -> bool {
        self.reads & (1u32 << input.min(31)) != 0
    }
}

impl core::fmt::Debug for Step {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {}: {:?} -> {:?}", self.label, self.name, self.inputs, self.outputs)
    }
}

/// See the module. Immutable; owns copies of all that it needs of the program.
#[derive(Debug)]
pub struct Outline {
    /// All values.
    pub values: Vec<Value>,
    /// Steps in an order in which they can run.
    pub steps: Vec<Step>,
    /// Values that a run hands in.
    pub inputs: Vec<u32>,
    /// Values that a run asks for.
    pub outputs: Vec<u32>,
    exprs: Vec<Expr>,
    shape_at: Vec<Range<u32>>,
    shape_exprs: Vec<u32>,
    element_exprs: Vec<Number>,
    args: Vec<ArgPlan>,
}

/// An element of an integer value.
#[derive(Debug, Clone, Copy)]
enum Number {
    Expr(u32),
    Fixed(i64),
}

/// Finished numbers of a part for one set of symbols.
#[derive(Debug)]
pub struct Sizes {
    dims: Vec<i64>,
    counts: Vec<usize>,
    elements: Vec<i64>,
}

impl Outline {
    /// Follows the numbers of a run's symbols. A dimension that no symbol decides yet is an error where a step needs it:
    /// with `fixed_only`, only the shapes of fixed steps have to be known.
    pub fn sizes(&self, symbols: &[i64], fixed_only: bool) -> Result<Sizes> {
        let mut numbers: Vec<i64> = Vec::with_capacity(self.exprs.len());
        for e in &self.exprs {
            let number = match e.op {
                raw::expr::SYMBOL => symbols.get(e.a as usize).copied().unwrap_or(UNKNOWN),
                _ => eval(e, &numbers),
            };
            numbers.push(number);
        }
        let at = |id: u32| numbers.get(id as usize).copied().unwrap_or(UNKNOWN);
        let dims: Vec<i64> = self.shape_exprs.iter().map(|&id| at(id)).collect();
        let mut counts = Vec::with_capacity(self.shape_at.len());
        for (k, range) in self.shape_at.iter().enumerate() {
            let own = &dims[range.start as usize..range.end as usize];
            let count = own.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
            let name = || self.values.iter().find(|v| v.shape as usize == k).map_or("", |v| &v.name);
            counts.push(match count {
                Some(n) => n,
                None if fixed_only => 0,
                None => {
                    let text =
                        "a size is negative or unknown, two sizes do not broadcast, or there are too many elements";
                    return Err(Error::new(format!("value '{}' would have the dimensions {own:?}: {text}", name())));
                }
            });
        }
        let number = |n: &Number| match *n {
            Number::Expr(id) => at(id),
            Number::Fixed(n) => n,
        };
        Ok(Sizes { dims, counts, elements: self.element_exprs.iter().map(number).collect() })
    }

    fn table<'a>(&'a self, sizes: &'a Sizes) -> ShapeNumbers<'a> {
        ShapeNumbers { at: &self.shape_at, dims: &sizes.dims, counts: &sizes.counts, elements: &sizes.elements }
    }

    /// Dimensions of a value.
    pub fn dims<'a>(&'a self, sizes: &'a Sizes, value: u32) -> &'a [i64] {
        self.table(sizes).dims(self.values[value as usize].shape)
    }

    /// Number of elements of a value.
    pub fn count(&self, sizes: &Sizes, value: u32) -> usize {
        sizes.counts[self.values[value as usize].shape as usize]
    }

    /// Elements of a small integer value that are known before anything runs.
    pub fn elements<'a>(&self, sizes: &'a Sizes, value: u32) -> Option<&'a [i64]> {
        let range = self.values[value as usize].elements.clone()?;
        let all = &sizes.elements[range.start as usize..range.end as usize];
        if all.contains(&UNKNOWN) { None } else { Some(all) }
    }

    /// The bytes of a known value, as the host wants them.
    pub fn known_bytes(&self, sizes: &Sizes, value: u32) -> Option<Vec<u8>> {
        let (dtype, numbers) = (self.values[value as usize].dtype, self.elements(sizes, value)?);
        let mut to = vec![0; dtype.bytes(numbers.len())?];
        bytes::write_numbers(dtype, numbers, &mut to).then_some(to)
    }

    /// What a step's kernel makes of its shapes: a fresh [`Op::Bound`](crate::Op::Bound), filled in.
    pub fn bind<B: Default + Send + 'static>(&self, sizes: &Sizes, step: &Step) -> Result<Box<B>> {
        let mut bound = step.op.new_bound();
        let args = &self.args[step.args.clone()];
        let shapes = Shapes { args, inputs: step.inputs.len(), table: self.table(sizes) };
        step.op.bind(&shapes, &mut *bound, 1).map_err(|f| f.at(step.node, &step.label))?;
        let bound: Box<dyn Any> = bound;
        bound.downcast().map_err(|_| Error::new(format!("{}: its kernel is no kernel of this EP", step.label)))
    }

    /// An error of a step, at a node that a person can find.
    pub fn fault(&self, step: &Step, fault: Fault) -> Error {
        fault.at(step.node, &step.label)
    }
}

/// A step without its kernel.
type Unmade = Box<dyn FnOnce(Box<dyn Node>) -> Step>;

/// Numbers values and shapes.
struct Builder<'d, 'a> {
    drafts: &'d Drafts<'a>,
    numbers: HashMap<u32, u32>,
    shapes: HashMap<Vec<u32>, u32>,
    out: Outline,
}

impl<'d, 'a> Builder<'d, 'a> {
    fn new(drafts: &'d Drafts<'a>) -> Self {
        let out = Outline {
            values: Vec::new(),
            steps: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            exprs: drafts.request.program.exprs().to_vec(),
            shape_at: Vec::new(),
            shape_exprs: Vec::new(),
            element_exprs: Vec::new(),
            args: Vec::new(),
        };
        Builder { drafts, numbers: HashMap::new(), shapes: HashMap::new(), out }
    }

    fn shape(&mut self, dims: &[u32]) -> u32 {
        if let Some(&at) = self.shapes.get(dims) {
            return at;
        }
        let (start, at) = (self.out.shape_exprs.len() as u32, self.out.shape_at.len() as u32);
        self.out.shape_exprs.extend(dims);
        self.out.shape_at.push(start..start + dims.len() as u32);
        self.shapes.insert(dims.to_vec(), at);
        at
    }

    /// The number of a value.
    fn value(&mut self, id: u32) -> Result<u32> {
        if let Some(&at) = self.numbers.get(&id) {
            return Ok(at);
        }
        let info = self.drafts.value(id)?;
        let source = match self.drafts.class(id)? {
            Class::Input(k) => Source::Input(k),
            Class::Constant(k) => Source::Constant(k),
            Class::Known => Source::Known,
            Class::Weight | Class::Made => Source::Step,
        };
        let missing = || Error::new(format!("value '{}' is no tensor", info.name()));
        let dtype = info.dtype().ok_or_else(missing)?;
        let shape = self.shape(info.dims());
        let known: Vec<Number> = match info.known() {
            [] => info
                .constant()
                .and_then(|c| constant_ints(&c))
                .unwrap_or_default()
                .iter()
                .map(|&n| Number::Fixed(n))
                .collect(),
            ids => ids.iter().map(|&id| Number::Expr(id)).collect(),
        };
        let start = self.out.element_exprs.len() as u32;
        let is_list = !known.is_empty() || info.constant().is_some_and(|c| constant_ints(&c).is_some());
        self.out.element_exprs.extend(known);
        let elements = is_list.then_some(start..self.out.element_exprs.len() as u32);
        let at = self.out.values.len() as u32;
        self.out.values.push(Value { source, dtype, root: at, name: info.name().into(), shape, elements });
        self.numbers.insert(id, at);
        let root = self.drafts.root(id);
        if root != id {
            let root = self.value(root)?;
            self.out.values[at as usize].root = root;
        }
        Ok(at)
    }

    fn is_fixed(&self, value: u32, made: &HashMap<u32, bool>) -> bool {
        let v = &self.out.values[value as usize];
        let numbers = v.elements.iter().flat_map(|r| &self.out.element_exprs[r.start as usize..r.end as usize]);
        let mut ids = numbers.filter_map(|n| match n {
            Number::Expr(id) => Some(*id),
            Number::Fixed(_) => None,
        });
        match v.source {
            Source::Input(_) => false,
            Source::Constant(_) => true,
            Source::Known => ids.all(|id| self.drafts.request.program.constant_expr(id).is_some()),
            Source::Step => made.get(&v.root).copied().unwrap_or(false),
        }
    }

    fn has_fixed_dims(&self, value: u32) -> bool {
        let range = &self.out.shape_at[self.out.values[value as usize].shape as usize];
        let ids = &self.out.shape_exprs[range.start as usize..range.end as usize];
        ids.iter().all(|&id| self.drafts.request.program.constant_expr(id).is_some())
    }

    /// The outline without its steps, and for each draft the step that lacks its kernel; `None` for views.
    fn build(mut self) -> Result<(Outline, Vec<Option<Unmade>>)> {
        let request = self.drafts.request;
        for &id in request.inputs {
            let at = self.value(id)?;
            self.out.inputs.push(at);
        }
        let mut made: HashMap<u32, bool> = HashMap::new();
        let mut steps = Vec::new();
        for draft in &self.drafts.steps {
            let step = self.step(draft, &mut made)?;
            steps.push(step);
        }
        for &id in request.outputs {
            let at = self.value(id)?;
            self.out.outputs.push(at);
        }
        if self.out.shape_at.is_empty() {
            self.out.shape_at.push(0..0); // absent arguments need a shape to point at
        }
        Ok((self.out, steps))
    }

    fn step(&mut self, draft: &Draft<'a>, made: &mut HashMap<u32, bool>) -> Result<Option<Unmade>> {
        let (inputs, outputs) = (self.values(&draft.ins)?, self.values(&draft.outs)?);
        if draft.is_view() {
            return Ok(None);
        }
        let reads = (0..inputs.len().min(32)).filter(|&i| draft.reads(i)).fold(0, |bits, i| bits | 1u32 << i);
        let fixed = inputs.iter().flatten().all(|&v| self.is_fixed(v, made) && self.has_fixed_dims(v))
            && outputs.iter().flatten().all(|&v| self.has_fixed_dims(v));
        made.extend(outputs.iter().flatten().map(|&v| (v, fixed)));
        let start = self.out.args.len();
        for v in inputs.iter().chain(&outputs) {
            self.out.args.push(match v.map(|v| &self.out.values[v as usize]) {
                // Where it lies is the EP's: any place but "nowhere" will do.
                Some(v) => {
                    ArgPlan { elements: v.elements.clone(), ..ArgPlan::new(From::Input(0), v.shape, v.dtype, None) }
                }
                None => ArgPlan::new(From::Absent, 0, DType::F32, None),
            });
        }
        let mut name = format!("{}_{}", draft.kernel.name, draft.dtype);
        for fused in &draft.fused {
            name = name + "+" + fused;
        }
        let args = start..self.out.args.len();
        let (node, label, name) = (draft.view.raw().id, label(&draft.view).into(), name.into());
        Ok(Some(Box::new(move |op| Step { node, label, name, inputs, outputs, fixed, reads, args, op })))
    }

    fn values(&mut self, ids: &[u32]) -> Result<Box<[Option<u32>]>> {
        ids.iter().map(|&v| if v == NONE { Ok(None) } else { self.value(v).map(Some) }).collect()
    }
}
