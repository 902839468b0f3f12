//! Sums of products by an equation: two tensors at a time become batches of matrices, which `gemm` multiplies.
//!
//! Each letter is an index. A tensor is seen as its data and a step for each index, so a diagonal is one larger step, and
//! what is repeated has step 0. Where indices do not lie as a product wants them, they are copied together first, summed over
//! those that nobody else has. Types without vectors run on a plain loop over all indices.

use crate::gemm::{Batch, Epilogue, Gemm, Nest};
use crate::ops::lane::Number;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa};
use ortolan_ep_kit::parallel::{Parallel, Stopped};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};
use smallvec::SmallVec;

/// Numbers of indices.
type Ids = SmallVec<[usize; 8]>;

/// The equation: the index of each axis of each input and of the output.
pub(super) struct Einsum {
    isa: Isa,
    terms: Vec<Ids>,
    out: Ids,
    count: usize,
}

/// An index of a tensor that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    len: usize,
    step: usize,
}

/// How a tensor is copied together: the axes of the copy, outermost first, and those that are summed over.
#[derive(Debug, Default, Clone)]
struct Gather {
    kept: SmallVec<[Axis; 6]>,
    summed: SmallVec<[Axis; 6]>,
    len: usize,
}

/// Where a tensor is: an input, or a piece of the scratch.
#[derive(Debug, Clone, Copy)]
enum Place {
    Input(usize),
    Scratch(usize),
}

/// A product of two tensors.
#[derive(Debug)]
struct Step {
    sides: [(Place, Gather); 2],
    /// Where its memory begins: copies of the sides, as far as they are needed, and from `product` on the product.
    begin: usize,
    product: usize,
    /// Batches, rows, columns, terms of a sum.
    sizes: [usize; 4],
}

/// The equation over one set of shapes.
#[derive(Default)]
pub(super) struct Bound {
    dims: Ids,
    /// Steps of each input per index, for the plain loop.
    steps: Vec<Ids>,
    products: Vec<Step>,
    /// From the last product, or the only input, to the output.
    last: Option<(Place, Gather)>,
    scratch: usize,
    flops: u64,
}

/// A tensor between two products.
struct View {
    place: Place,
    /// Per index; `None` where it does not have it.
    steps: SmallVec<[Option<usize>; 8]>,
}

/// Numbers the letters of an equation.
#[derive(Default)]
struct Letters(Vec<char>);

impl Letters {
    fn id(&mut self, letter: char) -> usize {
        self.0.iter().position(|&l| l == letter).unwrap_or_else(|| {
            self.0.push(letter);
            self.0.len() - 1
        })
    }

    /// The index of the axis `back` from the end of the dots.
    fn rest(&mut self, back: usize) -> usize {
        // No letter of an equation is beyond ASCII.
        self.id(char::from_u32(0x1000 + back as u32).unwrap_or('\u{1000}'))
    }

    /// The indices of a term whose dots stand for so many axes.
    fn term(&mut self, term: &str, dots: usize) -> Result<Ids, Reject> {
        let mut ids = Ids::new();
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        for letter in before.chars() {
            ids.push(self.named(letter, term)?);
        }
        ids.extend((0..dots).rev().map(|back| self.rest(back)));
        for letter in after.chars() {
            ids.push(self.named(letter, term)?);
        }
        Ok(ids)
    }

    fn named(&mut self, letter: char, term: &str) -> Result<usize, Reject> {
        match letter.is_ascii_alphabetic() {
            true => Ok(self.id(letter)),
            false => Err(Reject::attribute(format!("attribute equation: the term '{term}' holds '{letter}'"))),
        }
    }
}

impl Op for Einsum {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let Some(equation) = node.text("equation") else {
            return Err(Reject::attribute("attribute equation is missing"));
        };
        let equation: String = equation.split_whitespace().collect();
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (&*equation, None),
        };
        let names: Vec<&str> = left.split(',').collect();
        if names.len() != node.input_count() {
            let counts = [names.len(), node.input_count()];
            return Err(Reject::attribute(format!(
                "attribute equation = {equation} and inputs: {counts:?}, one each is needed"
            )));
        }
        let (mut letters, mut terms, mut most) = (Letters::default(), Vec::new(), 0);
        for (i, name) in names.iter().enumerate() {
            let (rank, named) = (node.needs(i)?.rank(), name.replace("...", "").chars().count());
            let dots = rank.checked_sub(named).filter(|&dots| dots == 0 || name.contains("..."));
            let Some(dots) = dots else {
                return Err(Reject::rank(format!("attribute equation: '{name}' is not for input {i} of rank {rank}")));
            };
            most = most.max(dots);
            terms.push(letters.term(name, dots)?);
        }
        let out = match right {
            Some(right) if most > 0 && !right.contains("...") => {
                return Err(Reject::attribute(format!(
                    "attribute equation = {equation} loses what the dots stand for"
                )));
            }
            Some(right) => {
                let known = letters.0.len();
                let out = letters.term(right, if right.contains("...") { most } else { 0 })?;
                let twice = out.iter().enumerate().any(|(k, id)| out[..k].contains(id));
                if twice || letters.0.len() > known {
                    return Err(Reject::attribute(format!("attribute equation = {equation}: '{right}' can't be made")));
                }
                out
            }
            None => {
                let mut once: Vec<char> = left.chars().filter(|l| l.is_alphabetic()).collect();
                once.retain(|l| left.matches(*l).count() == 1);
                once.sort_unstable();
                let mut out: Ids = (0..most).rev().map(|back| letters.rest(back)).collect();
                out.extend(once.iter().map(|&l| letters.id(l)));
                out
            }
        };
        Ok(Einsum { isa: Cpu::of(node).isa, terms, out, count: letters.0.len() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let mut dims: SmallVec<[f64; 8]> = SmallVec::from_elem(1.0, self.count);
        for (i, term) in self.terms.iter().enumerate() {
            let Some(x) = node.input(i) else { return Cost::UNKNOWN };
            for (axis, &id) in term.iter().enumerate() {
                let dim = x.dim(axis).map_or(f64::NAN, |n| n as f64);
                dims[id] = if dims[id] > dim { dims[id] } else { dim };
            }
        }
        cost::products(node, dims.iter().product())
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        self.bind_dims(shapes, bound)?;
        bound.products.clear();
        bound.scratch = 0;
        bound.flops = 0;
        let mut terms = (0..self.terms.len()).map(|i| self.view(bound, i));
        let Some(mut so_far) = terms.next() else { return Err(Fault::data("there are no inputs")) };
        let rest: Vec<View> = terms.collect();
        for (k, next) in rest.iter().enumerate() {
            let wanted = |id: usize| self.out.contains(&id) || rest[k + 1..].iter().any(|v| v.steps[id].is_some());
            so_far = bound.product(self, &so_far, next, wanted);
        }
        let last = bound.gather(&so_far, &self.out, |id| so_far.steps[id].is_some() && !self.out.contains(&id));
        if last.len != shapes.output_len(0) {
            return Err(Fault::data(format!("the equation does not make {:?}", shapes.output(0))));
        }
        bound.last = Some((so_far.place, last));
        Ok(())
    }

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        let sizes = bound.products.iter().map(|step| step.gemm(self.isa).batch_scratch_len(width));
        sizes.max().unwrap_or(0).saturating_add(bound.scratch).saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Bound) -> u64 {
        bound.flops
    }
}

impl Einsum {
    /// Sizes of all indices, and each input's steps.
    fn bind_dims(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        bound.dims = Ids::from_elem(1, self.count);
        for (i, term) in self.terms.iter().enumerate() {
            for (&id, &dim) in term.iter().zip(shapes.input(i)) {
                let (have, dim) = (bound.dims[id], size(dim));
                if have != 1 && dim != 1 && have != dim {
                    return Err(Fault::data(format!("an index of the equation is {have} and, in input {i}, {dim}")));
                }
                bound.dims[id] = if have == 1 { dim } else { have };
            }
        }
        bound.steps.clear();
        for (i, term) in self.terms.iter().enumerate() {
            let (dims, mut steps, mut step) = (shapes.input(i), Ids::from_elem(0, self.count), 1);
            for (&id, &dim) in term.iter().zip(dims).rev() {
                steps[id] += if dim == 1 { 0 } else { step };
                step *= size(dim);
            }
            bound.steps.push(steps);
        }
        Ok(())
    }

    /// An input. An index of which it has one value only is not its own.
    fn view(&self, bound: &Bound, input: usize) -> View {
        let steps = &bound.steps[input];
        let own = |id: usize| bound.dims[id] == 0 && self.terms[input].contains(&id) || steps[id] > 0;
        View { place: Place::Input(input), steps: (0..self.count).map(|id| own(id).then_some(steps[id])).collect() }
    }
}

impl Bound {
    fn gather(&self, view: &View, kept: &[usize], summed: impl Fn(usize) -> bool) -> Gather {
        let axis = |id: usize| Axis { len: self.dims[id], step: view.steps[id].unwrap_or(0) };
        let summed: Ids = (0..self.dims.len()).filter(|&id| summed(id)).collect();
        let len = kept.iter().map(|&id| self.dims[id]).product();
        Gather { kept: merged(kept.iter().map(|&id| axis(id))), summed: merged(summed.iter().map(|&id| axis(id))), len }
    }

    fn room(&mut self, len: usize) -> usize {
        let at = self.scratch;
        self.scratch = self.scratch.saturating_add(len.next_multiple_of(16));
        at
    }

    /// The product of two tensors, with the indices that are wanted of it.
    fn product(&mut self, op: &Einsum, a: &View, b: &View, wanted: impl Fn(usize) -> bool) -> View {
        let has = |v: &View, id: usize| v.steps[id].is_some();
        // As the output has them, where it does: then less is copied behind the last product.
        let others = (0..op.count).filter(|id| !op.out.contains(id));
        let order: Ids = op.out.iter().copied().chain(others).collect();
        let pick = |f: &dyn Fn(usize) -> bool| -> Ids { order.iter().copied().filter(|&id| f(id)).collect() };
        let batch = pick(&|id| has(a, id) && has(b, id) && wanted(id));
        let rows = pick(&|id| has(a, id) && !has(b, id) && wanted(id));
        let columns = pick(&|id| !has(a, id) && has(b, id) && wanted(id));
        let terms = pick(&|id| has(a, id) && has(b, id) && !wanted(id));
        let all = |lists: [&Ids; 3]| -> Ids { lists.iter().flat_map(|list| list.iter().copied()).collect() };
        let left = self.gather(a, &all([&batch, &rows, &terms]), |id| has(a, id) && !has(b, id) && !wanted(id));
        let right = self.gather(b, &all([&batch, &terms, &columns]), |id| !has(a, id) && has(b, id) && !wanted(id));
        let count = |ids: &Ids| ids.iter().map(|&id| self.dims[id]).product::<usize>();
        let sizes = [&batch, &rows, &columns, &terms].map(count);
        let made = all([&batch, &rows, &columns]);
        let begin = self.scratch;
        for side in [&left, &right].into_iter().filter(|g| !g.is_plain()) {
            self.room(side.len);
        }
        let product = self.room(sizes[0] * sizes[1] * sizes[2]);
        self.flops += 2 * sizes.iter().product::<usize>() as u64;
        let (mut steps, mut step) = (SmallVec::from_elem(None, op.count), 1);
        for &id in made.iter().rev() {
            steps[id] = Some(step);
            step *= self.dims[id];
        }
        self.products.push(Step { sides: [(a.place, left), (b.place, right)], begin, product, sizes });
        View { place: Place::Scratch(product), steps }
    }
}

/// Axes without those of one index, neighbours made one where they can be.
fn merged(axes: impl Iterator<Item = Axis>) -> SmallVec<[Axis; 6]> {
    let mut all: SmallVec<[Axis; 6]> = SmallVec::new();
    for axis in axes.filter(|axis| axis.len != 1) {
        match all.last_mut() {
            Some(last) if last.step == axis.step * axis.len => *last = Axis { len: last.len * axis.len, ..axis },
            _ => all.push(axis),
        }
    }
    all
}

impl Gather {
    /// Whether the copy would be the same as what it is of.
    fn is_plain(&self) -> bool {
        self.summed.is_empty() && matches!(*self.kept, [] | [Axis { step: 1, .. }])
    }

    fn run(&self, par: &dyn Parallel, x: &[f32], y: &mut [f32], isa: Isa) -> Result<(), Stopped> {
        let one = Axis { len: 1, step: 0 };
        let (row, outer) = self.kept.split_last().map_or((one, &[][..]), |(row, outer)| (*row, outer));
        let each: usize = self.summed.iter().map(|axis| axis.len).product();
        let grain = GRAIN.div_ceil((row.len * each).max(1));
        split::rows(par, y, row.len, grain, |_, first, rows| {
            for (k, y) in rows.chunks_exact_mut(row.len.max(1)).enumerate() {
                let from = offset(outer, first + k);
                match self.summed.split_last() {
                    None => copy(x, from, row.step, y),
                    Some((last, summed)) if last.step == 1 && row.step != 1 => {
                        let times: usize = summed.iter().map(|axis| axis.len).product();
                        for (j, y) in y.iter_mut().enumerate() {
                            let parts = (0..times).map(|at| from + j * row.step + offset(summed, at));
                            *y = parts.map(|at| simd::sum(isa, &x[at..at + last.len])).sum();
                        }
                    }
                    Some(_) => {
                        y.fill(0.0);
                        for at in (0..each).map(|at| from + offset(&self.summed, at)) {
                            y.iter_mut().enumerate().for_each(|(j, y)| *y += x[at + j * row.step]);
                        }
                    }
                }
            }
        })
    }
}

fn copy(x: &[f32], from: usize, step: usize, y: &mut [f32]) {
    match step {
        1 => y.copy_from_slice(&x[from..from + y.len()]),
        0 => y.fill(x[from]),
        _ => y.iter_mut().enumerate().for_each(|(j, y)| *y = x[from + j * step]),
    }
}

/// Where element `at` of some axes is.
fn offset(axes: &[Axis], mut at: usize) -> usize {
    let mut offset = 0;
    for axis in axes.iter().rev() {
        offset += at % axis.len * axis.step;
        at /= axis.len;
    }
    offset
}

impl Step {
    fn gemm(&self, isa: Isa) -> Gemm {
        let [_, m, n, k] = self.sizes;
        Gemm::new(isa, m, n, k)
    }
}

pub(super) fn einsum(op: &Einsum, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let par = args.par();
    let Some((place, last)) = &bound.last else { return Err(Fault::data("it was not bound")) };
    let y = args.output::<f32>(0);
    let (all, scratch) = args.scratch::<f32>().split_at_mut(bound.scratch);
    for (at, step) in bound.products.iter().enumerate() {
        let (before, own) = all.split_at_mut(step.begin);
        let (mut free, product) = own.split_at_mut(step.product - step.begin);
        let mut sides: [&[f32]; 2] = [&[]; 2];
        for (side, (place, gather)) in sides.iter_mut().zip(&step.sides) {
            let x = at_place(*place, args, before);
            if gather.is_plain() {
                *side = x;
                continue;
            }
            let (to, rest) = core::mem::take(&mut free).split_at_mut(gather.len.next_multiple_of(16));
            free = rest;
            gather.run(par, x, &mut to[..gather.len], op.isa)?;
            *side = to;
        }
        let [batch, m, n, k] = step.sizes;
        let (a, b, c) = (Nest::dense(batch, m, k), Nest::dense(batch, k, n), Nest::dense(batch, m, n));
        let batch = Batch { count: [1, batch], a, b, c };
        // The last product may be the output as it is.
        let direct = at + 1 == bound.products.len() && last.is_plain();
        let to = if direct { &mut *y } else { product };
        step.gemm(op.isa).run_batch(&batch, (sides[0], sides[1]), &Epilogue::default(), to, scratch, par)?;
        if direct {
            return Ok(());
        }
    }
    let x = at_place(*place, args, all);
    Ok(last.run(par, x, y, op.isa)?)
}

fn at_place<'x>(place: Place, args: &Args<'x>, scratch: &'x [f32]) -> &'x [f32] {
    match place {
        Place::Input(i) => args.input(i),
        Place::Scratch(at) => &scratch[at..],
    }
}

/// Types without vectors: all indices, one by one.
pub(super) fn einsum_plain<T: Number>(op: &Einsum, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let inputs: SmallVec<[&[T]; 4]> = (0..op.terms.len()).map(|i| args.input::<T>(i)).collect();
    let summed: Ids = (0..op.count).filter(|id| !op.out.contains(id)).collect();
    let axes = |i: usize, ids: &Ids| -> SmallVec<[Axis; 6]> {
        ids.iter().map(|&id| Axis { len: bound.dims[id], step: bound.steps[i][id] }).collect()
    };
    let kept: SmallVec<[_; 4]> = (0..inputs.len()).map(|i| (axes(i, &op.out), axes(i, &summed))).collect();
    let each: usize = summed.iter().map(|&id| bound.dims[id]).product();
    let grain = GRAIN.div_ceil((each * inputs.len()).max(1));
    Ok(split::rows(args.par(), args.output::<T>(0), 1, grain, |_, first, y| {
        for (at, y) in (first..).zip(y) {
            *y = T::default();
            for term in 0..each {
                let factor = |i: usize| inputs[i][offset(&kept[i].0, at) + offset(&kept[i].1, term)];
                let product = (1..inputs.len()).fold(factor(0), |product, i| product.times(factor(i)));
                *y = y.plus(product);
            }
        }
    })?)
}
