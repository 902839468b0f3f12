//! Second half of compile: numbers for everything that a run touches, memory that values share, segments.

use crate::arena::Life;
use crate::args::NO_ALIAS;
use crate::bytes;
use crate::draft::{Class, Draft, Drafts, label, operands};
use crate::node::constant_ints;
use crate::plan::{ArgPlan, Def, DefSource, End, From, Group, Known, Late, OutPlan, Plan, Renamed, Segment, Step};
use crate::slab::aligned;
use crate::weights::{Reader, Weights};
use core::ops::Range;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::{self, Expr, NONE};
use std::collections::{BTreeSet, HashMap};

/// Lives until the run is over.
const FOREVER: u32 = u32::MAX;

/// Makes the plan. `isa` ends the names of kernels.
pub(crate) fn plan(drafts: Drafts<'_>, weights: Weights, isa: &str) -> Result<Plan, Error> {
    let mut layout = Layout {
        drafts: &drafts,
        weights: &weights,
        running: (0..drafts.steps.len()).filter(|&k| !drafts.steps[k].is_view()).collect(),
        numbers: Numbers::default(),
        late: Vec::new(),
        late_of: HashMap::new(),
        known: Vec::new(),
        known_of: HashMap::new(),
        known_bytes: 0,
        fixed: Vec::new(),
        elements_of: HashMap::new(),
        groups: Vec::new(),
        group_of: HashMap::new(),
        direct: HashMap::new(),
    };
    let parts = layout.lay_out()?;
    let Layout { numbers, late, known, known_bytes, fixed, groups, .. } = layout;
    finish(drafts, weights, isa, numbers, Laid { late, known, known_bytes, fixed, groups }, parts)
}

/// Distinct shapes and expressions, as the program numbers them.
#[derive(Default)]
struct Numbers {
    shapes: Vec<Vec<u32>>,
    names: Vec<Box<str>>,
    shape_of: HashMap<Vec<u32>, u32>,
}

impl Numbers {
    fn shape(&mut self, dims: &[u32], name: &str) -> u32 {
        if let Some(&k) = self.shape_of.get(dims) {
            return k;
        }
        let k = number(self.shapes.len());
        self.shapes.push(dims.to_vec());
        self.names.push(name.into());
        self.shape_of.insert(dims.to_vec(), k);
        k
    }
}

/// A count as an id. Counts of a part are below the program's counts, which are `u32`.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(NONE)
}

fn range(at: usize, len: usize) -> Range<u32> {
    number(at)..number(at + len)
}

/// A known value on its way: the program's expressions of its elements, and what is read as a tensor.
struct KnownDraft {
    exprs: Vec<u32>,
    memory: Option<(u32, DType)>,
}

/// Values that share memory: a place in the arena, or an output of the part.
#[derive(Clone, Copy)]
struct GroupDraft {
    group: Group,
    output: Option<u32>,
}

/// Where elements of an input are known from.
#[derive(Clone, Copy)]
enum Elements {
    Fixed(u32, u32),
    Known(u32),
}

struct Layout<'l, 'a> {
    drafts: &'l Drafts<'a>,
    weights: &'l Weights,
    /// Positions of the steps that run.
    running: Vec<usize>,
    numbers: Numbers,
    late: Vec<(u32, Late)>,
    late_of: HashMap<u32, u32>,
    known: Vec<KnownDraft>,
    known_of: HashMap<u32, u32>,
    known_bytes: usize,
    fixed: Vec<i64>,
    elements_of: HashMap<u32, Option<Elements>>,
    groups: Vec<GroupDraft>,
    group_of: HashMap<u32, u32>,
    /// Root values that are written straight into an output.
    direct: HashMap<u32, u32>,
}

/// Steps and ends before segments are cut.
struct Parts {
    args: Vec<(ArgPlan, Option<Elements>)>,
    /// Per running step: position among the drafts, range of its args, alias.
    steps: Vec<(usize, Range<u32>, [u8; 2])>,
    defs: Vec<(u32, Def)>,
    inputs: Vec<End>,
    outputs: Vec<(End, OutPlan)>,
    copies: Vec<ArgPlan>,
    views: Vec<Renamed>,
}

/// What `Layout` leaves behind.
struct Laid {
    late: Vec<(u32, Late)>,
    known: Vec<KnownDraft>,
    known_bytes: usize,
    fixed: Vec<i64>,
    groups: Vec<GroupDraft>,
}

impl<'a> Layout<'_, 'a> {
    fn lay_out(&mut self) -> Result<Parts, Error> {
        self.find_late();
        let outputs = self.choose_outputs()?;
        let steps = self.running.clone();
        let lives = self.lives(&outputs)?;
        let mut parts = Parts {
            args: Vec::new(),
            steps: Vec::new(),
            defs: Vec::new(),
            inputs: Vec::new(),
            outputs,
            copies: Vec::new(),
            views: Vec::new(),
        };
        for (position, &k) in steps.iter().enumerate() {
            self.step(position, k, &lives, &mut parts)?;
        }
        for (j, value) in self.drafts.request.outputs.iter().enumerate() {
            if let OutPlan::Copy(at) = &mut parts.outputs[j].1 {
                *at = number(parts.copies.len());
                let arg = self.arg(self.drafts.root(*value), None)?;
                parts.copies.push(arg.0);
            }
        }
        for view in self.drafts.steps.iter().filter(|s| s.is_view()) {
            let ends = [self.end(self.drafts.root(view.ins[0]))?, self.end(view.outs[0])?];
            let label = label(&view.view).into();
            parts.views.push(Renamed { node: view.view.raw().id, label, ends });
        }
        for &value in self.drafts.request.inputs {
            let end = self.end(value)?;
            parts.inputs.push(end);
        }
        Ok(parts)
    }

    fn end(&mut self, value: u32) -> Result<End, Error> {
        let info = self.drafts.value(value)?;
        let dtype = info.dtype().unwrap_or(DType::Str);
        Ok(End { shape: self.numbers.shape(info.dims(), info.name()), dtype })
    }

    /// Outputs of late rows that a dimension symbol hangs on.
    fn find_late(&mut self) {
        let program = self.drafts.request.program;
        let symbols = program.symbols();
        for &k in &self.running {
            let step = &self.drafts.steps[k];
            for &value in step.outs.iter().filter(|&&v| v != NONE && step.kernel.late) {
                let Some(info) = program.value(value) else { continue };
                let own = |d: &u32| {
                    program.exprs().get(*d as usize).is_some_and(|e| {
                        let symbol = symbols.get(e.a as usize);
                        e.op == raw::expr::SYMBOL
                            && symbol.is_some_and(|s| s.value == value && s.kind == raw::SYMBOL_DIM)
                    })
                };
                if info.dims().iter().any(own) {
                    self.late_of.insert(value, number(self.late.len()));
                    self.late.push((value, Late { output: None, dtype: info.dtype().unwrap_or(DType::U8) }));
                }
            }
        }
    }

    /// Decides how each output comes about; the first output of a value gets its bytes written straight to it.
    fn choose_outputs(&mut self) -> Result<Vec<(End, OutPlan)>, Error> {
        let mut outputs = Vec::new();
        for (j, &value) in self.drafts.request.outputs.iter().enumerate() {
            let end = self.end(value)?;
            let root = self.drafts.root(value);
            let j = number(j);
            let plan = match self.drafts.class(root)? {
                Class::Input(i) => OutPlan::Input(i),
                Class::Constant(_) | Class::Weight => OutPlan::Held(self.held(Reader::Output(j as usize), root)?.0),
                Class::Known => OutPlan::Known(self.known_tensor(root)?),
                Class::Made => match self.late_of.get(&root) {
                    Some(&late) if root == value && self.late[late as usize].1.output.is_none() => {
                        self.late[late as usize].1.output = Some(j);
                        OutPlan::Late
                    }
                    None if !self.direct.contains_key(&root) && (root == value || self.sized_before(value)?) => {
                        self.direct.insert(root, j);
                        OutPlan::Direct
                    }
                    _ => OutPlan::Copy(0),
                },
            };
            outputs.push((end, plan));
        }
        Ok(outputs)
    }

    /// Whether the dimensions of a value are known before the part runs.
    fn sized_before(&self, value: u32) -> Result<bool, Error> {
        let program = self.drafts.request.program;
        let used = used_exprs(program.exprs(), self.drafts.value(value)?.dims().iter());
        Ok(used.iter().filter_map(|&id| program.exprs().get(id as usize)).all(|e| {
            let symbol = program.symbols().get(e.a as usize).filter(|_| e.op == raw::expr::SYMBOL);
            symbol.is_none_or(|s| self.drafts.producer(s.value).is_none())
        }))
    }

    /// First and last step of each root value that steps make, by position among the running steps.
    fn lives(&self, outputs: &[(End, OutPlan)]) -> Result<HashMap<u32, Life>, Error> {
        let mut lives: HashMap<u32, Life> = HashMap::new();
        for (position, &k) in self.running.iter().enumerate() {
            let (step, at) = (&self.drafts.steps[k], number(position));
            for (_, &value) in step.ins.iter().enumerate().filter(|&(i, _)| step.reads(i)) {
                if let Some(life) = lives.get_mut(&self.drafts.root(value)) {
                    life.last = at;
                }
            }
            for &value in step.outs.iter().filter(|&&v| v != NONE) {
                lives.insert(value, Life { def: at, last: at });
            }
        }
        for (&value, (_, plan)) in self.drafts.request.outputs.iter().zip(outputs) {
            if let (OutPlan::Copy(_), Some(life)) = (plan, lives.get_mut(&self.drafts.root(value))) {
                life.last = FOREVER;
            }
        }
        Ok(lives)
    }

    fn step(&mut self, position: usize, k: usize, lives: &HashMap<u32, Life>, parts: &mut Parts) -> Result<(), Error> {
        let step = &self.drafts.steps[k];
        let begin = parts.args.len();
        for (i, &value) in step.ins.iter().enumerate() {
            let arg = if value == NONE {
                absent()
            } else if step.reads(i) {
                self.arg(value, Some(Reader::Step(k, i)))?
            } else {
                self.shape_only(value)?
            };
            parts.args.push(arg);
        }
        let mut alias = [NO_ALIAS; 2];
        for (j, &value) in step.outs.iter().enumerate() {
            if value == NONE {
                parts.args.push(absent());
                continue;
            }
            if let Some(i) = self.overwrites(step, position, j, lives)? {
                alias[j] = u8::try_from(i).unwrap_or(NO_ALIAS);
                self.share(self.drafts.root(step.ins[i]), value, lives);
            }
            self.make_group(value, lives)?;
            let arg = self.arg(value, None)?;
            parts.args.push(arg);
            self.defs(value, position, parts);
        }
        parts.steps.push((k, range(begin, parts.args.len() - begin), alias));
        Ok(())
    }

    /// Which input the output may be written over: made here, of the same size in every run, and read by nobody else.
    fn overwrites(
        &self,
        step: &Draft<'_>,
        position: usize,
        output: usize,
        lives: &HashMap<u32, Life>,
    ) -> Result<Option<usize>, Error> {
        let value = step.outs[output];
        if output > 1 || self.late_of.contains_key(&value) {
            return Ok(None);
        }
        let pairs = step.kernel.in_place.iter().filter(|p| p.1 as usize == output);
        for input in pairs.map(|p| p.0 as usize).filter(|&i| i < step.own && step.reads(i)) {
            let root = self.drafts.root(step.ins[input]);
            let only =
                step.ins.iter().enumerate().filter(|&(i, &v)| step.reads(i) && self.drafts.root(v) == root).count()
                    == 1;
            let ends_here = lives.get(&root).is_some_and(|life| life.last == number(position));
            let (a, b) = (self.drafts.value(step.ins[input])?, self.drafts.value(value)?);
            let same = a.dims() == b.dims() && a.dtype().map(DType::bits) == b.dtype().map(DType::bits);
            let group = self.group_of.get(&root).map(|&g| &self.groups[g as usize]);
            if only && ends_here && same && group.is_some_and(|g| g.output.is_none()) {
                return Ok(Some(input));
            }
        }
        Ok(None)
    }

    /// Puts a value into the memory of another. If the new one is an output of the part, both are written there.
    fn share(&mut self, old: u32, new: u32, lives: &HashMap<u32, Life>) {
        let Some(&group) = self.group_of.get(&old) else { return };
        let draft = &mut self.groups[group as usize];
        draft.output = self.direct.get(&new).copied();
        if let Some(life) = lives.get(&new) {
            draft.group.life.last = life.last;
        }
        self.group_of.insert(new, group);
    }

    fn make_group(&mut self, value: u32, lives: &HashMap<u32, Life>) -> Result<(), Error> {
        if self.late_of.contains_key(&value) || self.group_of.contains_key(&value) {
            return Ok(());
        }
        let end = self.end(value)?;
        let life = lives.get(&value).copied().unwrap_or(Life { def: 0, last: FOREVER });
        self.group_of.insert(value, number(self.groups.len()));
        let group = Group { life, shape: end.shape, dtype: end.dtype };
        self.groups.push(GroupDraft { group, output: self.direct.get(&value).copied() });
        Ok(())
    }

    /// Symbols that a value defines.
    fn defs(&mut self, value: u32, position: usize, parts: &mut Parts) {
        let late = self.late_of.get(&value).copied();
        let arg = number(parts.args.len() - 1);
        let symbols = self.drafts.request.program.symbols().iter().enumerate();
        for (id, symbol) in symbols.filter(|(_, s)| self.drafts.root(s.value) == value) {
            let source = match (symbol.kind, late) {
                (raw::SYMBOL_ELEMENT, _) => DefSource::Element { arg },
                (_, Some(late)) if symbol.value == value => DefSource::Dim { late },
                _ => continue,
            };
            parts.defs.push((number(id), Def { symbol: 0, step: number(position), source, at: symbol.at }));
        }
    }

    /// Place of a value that is read as a tensor, or written.
    fn arg(&mut self, value: u32, reader: Option<Reader>) -> Result<(ArgPlan, Option<Elements>), Error> {
        let End { shape, dtype } = self.end(value)?;
        let elements = self.elements(value)?;
        let root = self.drafts.root(value);
        let mut packed = None;
        let from = match self.drafts.class(root)? {
            Class::Input(k) => From::Input(k),
            Class::Known => From::Known(self.known_memory(root)?),
            Class::Constant(_) | Class::Weight => {
                let reader = reader.ok_or_else(|| Error::new("a constant has no reader"))?;
                let (address, size) = self.held(reader, root)?;
                packed = size;
                From::Held(address)
            }
            Class::Made => match (self.late_of.get(&root), self.group_of.get(&root)) {
                (Some(&late), _) => From::Late(late),
                (_, Some(&group)) => From::Arena(group),
                _ => return Err(Error::new("a value is read before it is made")),
            },
        };
        Ok((ArgPlan::new(from, shape, dtype, packed), elements))
    }

    /// An input of which the step reads no elements: there, without memory.
    fn shape_only(&mut self, value: u32) -> Result<(ArgPlan, Option<Elements>), Error> {
        let End { shape, dtype } = self.end(value)?;
        let elements = self.elements(value)?;
        Ok((ArgPlan::new(From::Held(0), shape, dtype, Some(0)), elements))
    }

    /// Memory of a constant for a reader. A view of a constant is looked up by who reads the view.
    fn held(&self, reader: Reader, root: u32) -> Result<(usize, Option<usize>), Error> {
        self.weights.at.get(&reader).copied().ok_or_else(|| {
            let name = self.drafts.request.program.value(root).map_or("", |v| v.name());
            Error::new(format!("constant '{name}' was not resolved"))
        })
    }

    fn elements(&mut self, value: u32) -> Result<Option<Elements>, Error> {
        if let Some(&elements) = self.elements_of.get(&value) {
            return Ok(elements);
        }
        let elements = self.find_elements(value)?;
        self.elements_of.insert(value, elements);
        Ok(elements)
    }

    fn find_elements(&mut self, value: u32) -> Result<Option<Elements>, Error> {
        let info = self.drafts.value(value)?;
        if !info.known().is_empty() {
            return Ok(Some(Elements::Known(self.known_value(value)?)));
        }
        let Some(numbers) = info.constant().and_then(|c| constant_ints(&c)) else { return Ok(None) };
        let at = number(self.fixed.len());
        self.fixed.extend(&numbers);
        Ok(Some(Elements::Fixed(at, number(numbers.len()))))
    }

    fn known_value(&mut self, value: u32) -> Result<u32, Error> {
        if let Some(&k) = self.known_of.get(&value) {
            return Ok(k);
        }
        let k = number(self.known.len());
        self.known.push(KnownDraft { exprs: self.drafts.value(value)?.known().to_vec(), memory: None });
        self.known_of.insert(value, k);
        Ok(k)
    }

    /// A known value that somebody reads as a tensor.
    fn known_tensor(&mut self, value: u32) -> Result<u32, Error> {
        let k = self.known_value(value)?;
        let dtype = self.drafts.value(value)?.dtype().unwrap_or(DType::I64);
        let known = &mut self.known[k as usize];
        if known.memory.is_none() {
            debug_assert!(bytes::holds_numbers(dtype), "class() asks before");
            known.memory = Some((number(self.known_bytes), dtype));
            let size = dtype.bytes(known.exprs.len()).and_then(aligned);
            self.known_bytes += size.ok_or_else(|| Error::new("a value of known numbers is too large"))?;
        }
        Ok(k)
    }

    fn known_memory(&mut self, value: u32) -> Result<u32, Error> {
        let k = self.known_tensor(value)?;
        Ok(self.known[k as usize].memory.map_or(0, |(at, _)| at))
    }
}

fn absent() -> (ArgPlan, Option<Elements>) {
    (ArgPlan::new(From::Absent, 0, DType::U8, None), None)
}

/// Levels: a number of level k is there once segment k begins.
struct Levels {
    exprs: HashMap<u32, u32>,
    symbols: HashMap<u32, u32>,
}

fn finish(
    mut drafts: Drafts<'_>,
    weights: Weights,
    isa: &str,
    mut numbers: Numbers,
    mut laid: Laid,
    mut parts: Parts,
) -> Result<Plan, Error> {
    numbers.shape(&[], ""); // absent arguments need a shape to point at
    let program = drafts.request.program;
    let table = program.exprs();
    let used = used_exprs(table, numbers.shapes.iter().flatten().chain(laid.known.iter().flat_map(|k| &k.exprs)));
    let used_symbols: BTreeSet<u32> =
        used.iter().map(|&id| &table[id as usize]).filter(|e| e.op == raw::expr::SYMBOL).map(|e| e.a).collect();
    parts.defs.retain(|(symbol, _)| used_symbols.contains(symbol));
    parts.defs.sort_by_key(|(_, def)| def.step);

    // Segments end behind steps that define symbols.
    let cuts: BTreeSet<u32> = parts.defs.iter().map(|(_, def)| def.step).collect();
    let segment_of = |step: u32| number(cuts.range(..step).count());
    let segment_count = cuts.len() + 1;
    let symbol_levels = parts.defs.iter().map(|&(symbol, def)| (symbol, segment_of(def.step) + 1)).collect();
    let levels = Levels::new(table, &used, symbol_levels);

    // Everything is numbered by rising level.
    let mut order = used.clone();
    order.sort_by_key(|id| (levels.exprs[id], *id));
    let local: HashMap<u32, u32> = order.iter().enumerate().map(|(k, &id)| (id, number(k))).collect();
    let symbols: Vec<u32> = used_symbols.iter().copied().collect();
    let symbol_local = |id: u32| number(symbols.partition_point(|&s| s < id));
    let exprs: Box<[Expr]> = order.iter().map(|&id| renumber(&table[id as usize], &local, symbol_local)).collect();
    let level_of = |ids: &[u32]| ids.iter().map(|id| levels.exprs[id]).max().unwrap_or(0);

    let mut segments = vec![Segment::default(); segment_count];
    cut(&mut segments, order.iter().map(|id| levels.exprs[id]), |s| &mut s.exprs);
    let shapes = sort_by_level(&numbers.shapes, |dims| level_of(dims));
    cut(&mut segments, shapes.order.iter().map(|&k| level_of(&numbers.shapes[k])), |s| &mut s.shapes);
    let known = sort_by_level(&laid.known, |k| level_of(&k.exprs));
    cut(&mut segments, known.order.iter().map(|&k| level_of(&laid.known[k].exprs)), |s| &mut s.known);
    let view_level =
        |r: &Renamed| r.ends.iter().map(|e| level_of(&numbers.shapes[e.shape as usize])).max().unwrap_or(0);
    parts.views.sort_by_key(view_level);
    cut(&mut segments, parts.views.iter().map(view_level), |s| &mut s.views);
    // Groups that are outputs need no place in an arena: they come last and are left out.
    let mut groups = sort_by_level(&laid.groups, |g| g.output.map_or(segment_of(g.group.life.def), |_| NONE));
    groups.order.retain(|&k| laid.groups[k].output.is_none());
    cut(&mut segments, groups.order.iter().map(|&k| segment_of(laid.groups[k].group.life.def)), |s| &mut s.groups);
    cut(&mut segments, (0..number(parts.steps.len())).map(segment_of), |s| &mut s.steps);
    cut(&mut segments, parts.defs.iter().map(|(_, d)| segment_of(d.step)), |s| &mut s.defs);
    for (segment, s) in (0..).zip(segments.iter_mut()) {
        let direct = parts.outputs.iter().enumerate().filter(|(_, (end, plan))| {
            *plan == OutPlan::Direct && level_of(&numbers.shapes[end.shape as usize]) == segment
        });
        s.outputs = direct.map(|(j, _)| number(j)).collect();
    }

    // Lists with their new numbers.
    let (mut shape_at, mut shape_exprs) = (Vec::new(), Vec::new());
    for &k in &shapes.order {
        shape_at.push(range(shape_exprs.len(), numbers.shapes[k].len()));
        shape_exprs.extend(numbers.shapes[k].iter().map(|id| local[id]));
    }
    let (mut known_list, mut known_exprs) = (Vec::new(), Vec::new());
    let mut element_count = laid.fixed.len();
    for &k in &known.order {
        let draft = &laid.known[k];
        known_list.push(Known {
            exprs: range(known_exprs.len(), draft.exprs.len()),
            at: number(element_count),
            memory: draft.memory,
        });
        element_count += draft.exprs.len();
        known_exprs.extend(draft.exprs.iter().map(|id| local[id]));
    }
    for draft in &mut laid.groups {
        draft.group.shape = shapes.new[draft.group.shape as usize];
    }
    let arg = |(mut arg, elements): (ArgPlan, Option<Elements>)| {
        arg.shape = shapes.new[arg.shape as usize];
        if let From::Arena(group) = arg.from {
            let new = groups.new[group as usize];
            arg.from = laid.groups[group as usize].output.map_or(From::Arena(new), From::Output);
        }
        arg.elements = elements.map(|e| match e {
            Elements::Fixed(at, len) => at..at + len,
            Elements::Known(k) => {
                let known = &known_list[known.new[k as usize] as usize];
                known.at..known.at + (known.exprs.end - known.exprs.start)
            }
        });
        arg
    };
    let end = |end: End| End { shape: shapes.new[end.shape as usize], ..end };
    let out = |(e, plan): (End, OutPlan)| match plan {
        OutPlan::Known(k) => (end(e), OutPlan::Known(known.new[k as usize])),
        other => (end(e), other),
    };
    let defs = parts.defs.iter().map(|&(symbol, def)| Def { symbol: symbol_local(symbol), ..def }).collect();
    let defined: BTreeSet<u32> = parts.defs.iter().map(|(symbol, _)| *symbol).collect();
    let args: Box<[ArgPlan]> = parts.args.into_iter().map(arg).collect();
    let (mut moving, mut resting) = (Vec::new(), Vec::new());
    for segment in &mut segments {
        let steps = &parts.steps[segment.steps.start as usize..segment.steps.end as usize];
        segment.args = steps.first().map_or(0, |s| s.1.start)..steps.last().map_or(0, |s| s.1.end);
        let (moved, rested) = (moving.len(), resting.len());
        for k in segment.args.clone() {
            match args[k as usize].from {
                From::Input(_) | From::Output(_) | From::Late(_) => moving.push(k),
                From::Arena(_) => resting.push(k),
                From::Absent | From::Held(_) | From::Known(_) => {}
            }
        }
        segment.moving = range(moved, moving.len() - moved);
        segment.resting = range(rested, resting.len() - rested);
    }
    let steps = steps(&mut drafts, &parts.steps, isa);
    Ok(Plan {
        exprs,
        symbols: symbols.iter().map(|s| if defined.contains(s) { NONE } else { *s }).collect(),
        shape_at: shape_at.into(),
        shape_exprs: shape_exprs.into(),
        shape_names: shapes.order.iter().map(|&k| core::mem::take(&mut numbers.names[k])).collect(),
        known: known_list.clone().into(),
        known_exprs: known_exprs.into(),
        fixed_elements: laid.fixed.into(),
        element_count,
        known_bytes: laid.known_bytes,
        views: parts.views.into_iter().map(|r| Renamed { ends: r.ends.map(end), ..r }).collect(),
        groups: groups.order.iter().map(|&k| laid.groups[k].group).collect(),
        defs,
        late: laid.late.into_iter().map(|(_, late)| late).collect(),
        steps,
        args,
        moving: moving.into(),
        resting: resting.into(),
        segments: segments.into(),
        inputs: parts.inputs.into_iter().map(end).collect(),
        outputs: parts.outputs.into_iter().map(out).collect(),
        copies: parts.copies.into_iter().map(|c| arg((c, None))).collect(),
        held: weights.held,
    })
}

fn steps(drafts: &mut Drafts<'_>, running: &[(usize, Range<u32>, [u8; 2])], isa: &str) -> Box<[Step]> {
    let mut all: Vec<Option<Draft<'_>>> = core::mem::take(&mut drafts.steps).into_iter().map(Some).collect();
    let mut steps = Vec::with_capacity(running.len());
    for (k, args, alias) in running {
        let Some(draft) = all[*k].take() else { continue };
        let isa = if draft.kernel.fallback { "scalar" } else { isa };
        let mut name = format!("{}_{}_{isa}", draft.kernel.name, draft.dtype);
        draft.fused.iter().for_each(|fused| {
            name.push('+');
            name.push_str(fused);
        });
        steps.push(Step {
            node: draft.view.raw().id,
            name: name.into(),
            label: label(&draft.view).into(),
            args: args.clone(),
            inputs: number(draft.ins.len()),
            alias: *alias,
            late: draft.kernel.late,
            op: draft.op,
        });
    }
    steps.into()
}

/// All expressions that some numbers come from, children first.
fn used_exprs<'e>(table: &[Expr], roots: impl Iterator<Item = &'e u32>) -> Vec<u32> {
    let mut used = BTreeSet::new();
    let mut open: Vec<u32> = roots.copied().collect();
    while let Some(id) = open.pop() {
        if let Some(e) = table.get(id as usize)
            && used.insert(id)
        {
            open.extend(operands(e));
        }
    }
    used.into_iter().collect()
}

impl Levels {
    /// `used` has children before parents.
    fn new(table: &[Expr], used: &[u32], symbols: HashMap<u32, u32>) -> Self {
        let mut levels = Levels { exprs: HashMap::new(), symbols };
        for &id in used {
            let e = &table[id as usize];
            let level = match e.op {
                raw::expr::SYMBOL => levels.symbols.get(&e.a).copied().unwrap_or(0),
                _ => operands(e).iter().filter_map(|o| levels.exprs.get(o)).copied().max().unwrap_or(0),
            };
            levels.exprs.insert(id, level);
        }
        levels
    }
}

/// An expression with the part's numbers for what it reads. An operand that the program does not have stays out of range,
/// and so unknown.
fn renumber(e: &Expr, local: &HashMap<u32, u32>, symbol: impl Fn(u32) -> u32) -> Expr {
    let at = |id: u32| local.get(&id).copied().unwrap_or(NONE);
    match e.op {
        raw::expr::CONST => *e,
        raw::expr::SYMBOL => Expr { a: symbol(e.a), ..*e },
        raw::expr::SELECT => {
            Expr { a: at(e.a), b: at(e.b), v: i64::from(at(u32::try_from(e.v).unwrap_or(NONE))), ..*e }
        }
        _ => Expr { a: at(e.a), b: at(e.b), ..*e },
    }
}

/// A list in a new order.
struct Sorted {
    /// Old positions in the new order.
    order: Vec<usize>,
    /// New number of each old position.
    new: Vec<u32>,
}

fn sort_by_level<T>(list: &[T], level: impl Fn(&T) -> u32) -> Sorted {
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by_key(|&k| level(&list[k]));
    let mut new = vec![0; list.len()];
    order.iter().enumerate().for_each(|(to, &from)| new[from] = number(to));
    Sorted { order, new }
}

/// Gives each segment its range of a list that is sorted by segment.
fn cut(segments: &mut [Segment], levels: impl Iterator<Item = u32>, field: impl Fn(&mut Segment) -> &mut Range<u32>) {
    let mut counts = vec![0u32; segments.len()];
    levels.for_each(|level| counts[level as usize] += 1);
    let mut at = 0;
    for (segment, count) in segments.iter_mut().zip(counts) {
        *field(segment) = at..at + count;
        at += count;
    }
}
