//! What a lane keeps for one set of symbol numbers: dimensions, kernel parameters, tensors with their addresses.
//!
//! Binding evaluates expressions and asks kernels; nothing is inferred, and nothing is allocated once a lane has seen
//! sizes as large.

use crate::arena::{ArenaPlan, Life};
use crate::args::{ABSENT, Arg};
use crate::error::Fault;
use crate::expr::{UNKNOWN, eval};
use crate::plan::{End, From, Group, Plan, Segment};
use crate::shapes::{ShapeNumbers, Shapes};
use crate::slab::Slab;
use crate::{bytes, expr};
use core::ops::Range;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::raw::{self, NONE};
use std::any::Any;
use std::sync::Arc;

/// Bindings that a lane remembers.
const KEPT: usize = 4;
/// Address of an arena whose tensors have to be found again.
pub(crate) const MOVED: usize = usize::MAX;

/// What changes while a part runs.
#[derive(Default)]
pub struct KitLane {
    pub(crate) bounds: Vec<Bound>,
    /// The newest arena plan of each segment, in which the next binding tries to fit.
    plans: Vec<Arc<ArenaPlan>>,
    clock: u64,
    pub(crate) run: crate::run::Scratch,
}

/// See the module.
pub(crate) struct Bound {
    binding: u64,
    width: usize,
    used: u64,
    /// Segments that are bound to the numbers in `symbols`.
    pub ready: usize,
    /// Numbers of the part's symbols.
    pub symbols: Box<[i64]>,
    numbers: Box<[i64]>,
    pub dims: Box<[i64]>,
    pub counts: Box<[usize]>,
    elements: Box<[i64]>,
    known: Slab,
    /// What each step's kernel keeps.
    pub states: Box<[Box<dyn Any + Send>]>,
    /// Bytes of scratch per step.
    pub scratch: Box<[usize]>,
    pub args: Box<[Arg]>,
    pub arenas: Box<[Arc<ArenaPlan>]>,
    /// Address of each segment's arena in the last run.
    pub bases: Box<[usize]>,
}

impl KitLane {
    /// The lane's binding of that number, bound if it is new. The least recently used one makes room.
    pub(crate) fn bind(&mut self, plan: &Plan, binding: u64, symbols: &[i64], width: usize) -> Result<usize, Error> {
        self.clock += 1;
        let mut found = self.bounds.iter().position(|b| b.binding == binding && b.width == width && b.ready > 0);
        if found.is_none() {
            let oldest = || (0..self.bounds.len()).min_by_key(|&k| self.bounds[k].used);
            let at = match oldest() {
                Some(k) if self.bounds.len() == KEPT => k,
                _ => {
                    self.bounds.push(Bound::new(plan).map_err(|f| f.at(NONE, "binding"))?);
                    self.bounds.len() - 1
                }
            };
            let bound = &mut self.bounds[at];
            (bound.binding, bound.width, bound.ready) = (binding, width, 0);
            for (number, &source) in bound.symbols.iter_mut().zip(&plan.symbols) {
                *number = symbols.get(source as usize).copied().unwrap_or(UNKNOWN);
            }
            self.bind_segment(plan, at, 0)?;
            found = Some(at);
        }
        let at = found.unwrap_or_default();
        self.bounds[at].used = self.clock;
        Ok(at)
    }

    /// Binds segment `segment` of a binding; the earlier ones are.
    pub(crate) fn bind_segment(&mut self, plan: &Plan, at: usize, segment: usize) -> Result<(), Error> {
        let bound = &mut self.bounds[at];
        bound.ready = segment;
        let part = &plan.segments[segment];
        bound.evaluate(plan, part)?;
        bound.check_views(plan, part)?;
        bound.place_args(plan, part)?;
        let scratch = bound.bind_kernels(plan, part)?;
        let range = part.groups.start as usize..part.groups.end as usize;
        let groups = &plan.groups[range];
        let hint = self.plans.get(segment);
        let arena = bound.arena(groups, hint, scratch).map_err(|f| f.at(NONE, "planning memory"))?;
        bound.arenas[segment] = arena.clone();
        bound.bases[segment] = MOVED;
        match self.plans.get_mut(segment) {
            Some(hint) => *hint = arena,
            None => self.plans.push(arena),
        }
        bound.ready = segment + 1;
        Ok(())
    }
}

fn indices(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Bound {
    fn new(plan: &Plan) -> Result<Bound, Fault> {
        let mut elements = vec![0; plan.element_count];
        elements[..plan.fixed_elements.len()].copy_from_slice(&plan.fixed_elements);
        let segments = plan.segments.len();
        Ok(Bound {
            binding: 0,
            width: 0,
            used: 0,
            ready: 0,
            symbols: vec![UNKNOWN; plan.symbols.len()].into(),
            numbers: vec![UNKNOWN; plan.exprs.len()].into(),
            dims: vec![0; plan.shape_exprs.len()].into(),
            counts: vec![0; plan.shape_at.len()].into(),
            elements: elements.into(),
            known: Slab::new(plan.known_bytes)?,
            states: plan.steps.iter().map(|s| s.op.new_bound()).collect(),
            scratch: vec![0; plan.steps.len()].into(),
            args: vec![Arg::NONE; plan.args.len()].into(),
            arenas: vec![Arc::default(); segments].into(),
            bases: vec![MOVED; segments].into(),
        })
    }

    /// The numbers of all shapes.
    pub fn shapes<'b>(&'b self, plan: &'b Plan) -> ShapeNumbers<'b> {
        ShapeNumbers { at: &plan.shape_at, dims: &self.dims, counts: &self.counts, elements: &self.elements }
    }

    /// Memory of a known value.
    pub fn known(&self, at: u32) -> &[u8] {
        self.known.bytes().get(at as usize..).unwrap_or(&[])
    }

    fn evaluate(&mut self, plan: &Plan, segment: &Segment) -> Result<(), Error> {
        for k in indices(&segment.exprs) {
            let e = &plan.exprs[k];
            self.numbers[k] = match e.op {
                raw::expr::SYMBOL => self.symbols.get(e.a as usize).copied().unwrap_or(expr::UNKNOWN),
                _ => eval(e, &self.numbers),
            };
        }
        for k in indices(&segment.shapes) {
            let mut count = Some(1usize);
            for at in indices(&plan.shape_at[k]) {
                let dim = self.numbers[plan.shape_exprs[at] as usize];
                self.dims[at] = dim;
                count = count.and_then(|n| n.checked_mul(usize::try_from(dim).ok()?));
            }
            self.counts[k] = count.ok_or_else(|| self.impossible(plan, k))?;
        }
        for known in &plan.known[indices(&segment.known)] {
            let at = known.at as usize;
            for (k, e) in indices(&known.exprs).enumerate() {
                self.elements[at + k] = self.numbers[plan.known_exprs[e] as usize];
            }
            if let Some((memory, dtype)) = known.memory {
                let numbers = &self.elements[at..at + known.exprs.len()];
                let size = dtype.bytes(numbers.len()).unwrap_or(0);
                let memory = memory as usize;
                bytes::write_numbers(dtype, numbers, &mut self.known.bytes_mut()[memory..memory + size]);
            }
        }
        Ok(())
    }

    /// A view of another size would reach behind its memory.
    fn check_views(&self, plan: &Plan, segment: &Segment) -> Result<(), Error> {
        for view in &plan.views[indices(&segment.views)] {
            let [from, to] = view.ends;
            let bytes = |end: End| end.dtype.bytes(self.counts[end.shape as usize]);
            if bytes(from) != bytes(to) {
                let table = self.shapes(plan);
                let text =
                    format!("{:?} cannot become {:?}: the sizes differ", table.dims(from.shape), table.dims(to.shape));
                return Err(Fault::data(text).at(view.node, &view.label));
            }
        }
        Ok(())
    }

    fn impossible(&self, plan: &Plan, shape: usize) -> Error {
        let dims = &self.dims[indices(&plan.shape_at[shape])];
        let shown: Vec<_> = dims.iter().map(|&d| if d < 0 { "?".to_owned() } else { d.to_string() }).collect();
        Error::new(format!(
            "value '{}' would have the dimensions [{}]: a size is negative or unknown, two sizes do not broadcast, or \
             there are too many elements",
            plan.shape_names[shape],
            shown.join(", ")
        ))
    }

    fn place_args(&mut self, plan: &Plan, segment: &Segment) -> Result<(), Error> {
        let known = self.known.bytes_mut().as_mut_ptr();
        for k in indices(&segment.args) {
            let arg = &plan.args[k];
            let size = match (arg.from, arg.packed) {
                (From::Absent, _) => ABSENT,
                (_, Some(packed)) => packed,
                // The size of a late value comes with its memory; items have none here.
                (From::Late(_) | From::Item(_), _) => 0,
                _ => {
                    let count = self.counts[arg.shape as usize];
                    let size = match arg.bytes_each {
                        0 => arg.dtype.bytes(count),
                        each => count.checked_mul(each as usize),
                    };
                    size.ok_or_else(|| self.impossible(plan, arg.shape as usize))?
                }
            };
            self.args[k] = Arg {
                bytes: size,
                ptr: match arg.from {
                    From::Held(address) => core::ptr::with_exposed_provenance_mut(address),
                    From::Known(at) => known.wrapping_add(at as usize),
                    _ => core::ptr::null_mut(),
                },
            };
        }
        Ok(())
    }

    /// Asks the kernels; the answer is the most scratch that one of them wants.
    fn bind_kernels(&mut self, plan: &Plan, segment: &Segment) -> Result<usize, Error> {
        let mut most = 0;
        let table =
            ShapeNumbers { at: &plan.shape_at, dims: &self.dims, counts: &self.counts, elements: &self.elements };
        for k in indices(&segment.steps) {
            let step = &plan.steps[k];
            let shapes = Shapes { args: &plan.args[indices(&step.args)], inputs: step.inputs as usize, table };
            let scratch = step.op.bind(&shapes, &mut *self.states[k], self.width);
            self.scratch[k] = scratch.map_err(|f| f.at(step.node, &step.label))?;
            most = most.max(self.scratch[k]);
        }
        Ok(most)
    }

    fn arena(&self, groups: &[Group], hint: Option<&Arc<ArenaPlan>>, scratch: usize) -> Result<Arc<ArenaPlan>, Fault> {
        let size = |g: &Group| g.dtype.bytes(self.counts[g.shape as usize]).unwrap_or(usize::MAX);
        if let Some(plan) = hint
            && plan.fits(groups.iter().map(size), scratch)
        {
            return Ok(plan.clone());
        }
        let lives: Vec<Life> = groups.iter().map(|g| g.life).collect();
        let sizes: Vec<usize> = groups.iter().map(size).collect();
        let plan = match hint {
            Some(plan) => plan.grow(&lives, &sizes, scratch)?,
            None => ArenaPlan::new(&lives, &sizes, scratch)?,
        };
        Ok(Arc::new(plan))
    }
}
