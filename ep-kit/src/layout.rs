//! Second half of compile: where each value is during a run, and which values share memory.

use crate::arena::Life;
use crate::args::NO_ALIAS;
use crate::bytes;
use crate::draft::{Class, Draft, Drafts, label};
use crate::item::{Item, is_item};
use crate::node::{constant_ints, defines};
use crate::number::used_exprs;
use crate::plan::{ArgPlan, Def, DefSource, End, From, Group, Items, Late, OutPlan, Renamed};
use crate::slab::aligned;
use crate::weights::{Reader, Weights};
use core::ops::Range;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::{self, NONE};
use std::collections::HashMap;
use std::sync::Arc;

/// Lives until the run is over.
const FOREVER: u32 = u32::MAX;

/// Lays the part out. `weights` says where constants are.
pub(crate) fn lay_out(drafts: &Drafts<'_>, weights: &Weights) -> Result<Laid, Error> {
    let mut symbols_of: HashMap<u32, Vec<u32>> = HashMap::new();
    for (id, symbol) in (0..).zip(drafts.request.program.symbols()) {
        symbols_of.entry(drafts.root(symbol.value)).or_default().push(id);
    }
    let mut layout = Layout {
        drafts,
        weights,
        running: (0..drafts.steps.len()).filter(|&k| !drafts.steps[k].is_view()).collect(),
        late_of: HashMap::new(),
        known_of: HashMap::new(),
        item_of: HashMap::new(),
        elements_of: HashMap::new(),
        group_of: HashMap::new(),
        direct: HashMap::new(),
        symbols_of,
        laid: Laid::default(),
    };
    layout.all()?;
    Ok(layout.laid)
}

/// Distinct shapes, as lists of the program's expressions, each with the name of a value.
#[derive(Default)]
pub(crate) struct Interned {
    pub dims: Vec<Vec<u32>>,
    pub names: Vec<Box<str>>,
    known: HashMap<Vec<u32>, u32>,
}

impl Interned {
    pub fn intern(&mut self, dims: &[u32], name: &str) -> u32 {
        if let Some(&k) = self.known.get(dims) {
            return k;
        }
        let k = number(self.dims.len());
        self.dims.push(dims.to_vec());
        self.names.push(name.into());
        self.known.insert(dims.to_vec(), k);
        k
    }
}

/// A count as an id. Counts of a part are below the program's counts, which are `u32`.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(NONE)
}

pub(crate) fn range(at: usize, len: usize) -> Range<u32> {
    number(at)..number(at + len)
}

/// A known value on its way: the program's expressions of its elements, and what is read as a tensor.
pub(crate) struct KnownDraft {
    pub exprs: Vec<u32>,
    pub memory: Option<(u32, DType)>,
}

/// Values that share memory: a place in the arena, or an output of the part.
#[derive(Clone, Copy)]
pub(crate) struct GroupDraft {
    pub group: Group,
    pub output: Option<u32>,
}

/// Where elements of an input are known from.
#[derive(Clone, Copy)]
pub(crate) enum Elements {
    Fixed(u32, u32),
    Known(u32),
}

/// What a run needs, under the numbers in which it was found.
#[derive(Default)]
pub(crate) struct Laid {
    pub shapes: Interned,
    pub late: Vec<Late>,
    pub known: Vec<KnownDraft>,
    pub known_bytes: usize,
    /// Elements of constants.
    pub fixed: Vec<i64>,
    pub groups: Vec<GroupDraft>,
    pub args: Vec<(ArgPlan, Option<Elements>)>,
    /// Per running step: position among the drafts, range of its args, alias.
    pub steps: Vec<(usize, Range<u32>, [u8; 2])>,
    /// The program's symbol, and what defines it.
    pub defs: Vec<(u32, Def)>,
    pub inputs: Vec<End>,
    pub outputs: Vec<(End, OutPlan)>,
    pub copies: Vec<ArgPlan>,
    pub items: Items,
    pub views: Vec<Renamed>,
}

struct Layout<'l, 'a> {
    drafts: &'l Drafts<'a>,
    weights: &'l Weights,
    /// Positions of the steps that run.
    running: Vec<usize>,
    late_of: HashMap<u32, u32>,
    known_of: HashMap<u32, u32>,
    /// Numbers of values that are no plain tensors.
    item_of: HashMap<u32, u32>,
    elements_of: HashMap<u32, Option<Elements>>,
    group_of: HashMap<u32, u32>,
    /// Root values that are written straight into an output.
    direct: HashMap<u32, u32>,
    /// The program's symbols by the root of the value that defines them.
    symbols_of: HashMap<u32, Vec<u32>>,
    laid: Laid,
}

impl<'a> Layout<'_, 'a> {
    fn all(&mut self) -> Result<(), Error> {
        self.find_late();
        self.choose_outputs()?;
        let lives = self.lives()?;
        for (position, k) in self.running.clone().into_iter().enumerate() {
            self.step(position, k, &lives)?;
        }
        for (j, &value) in self.drafts.request.outputs.iter().enumerate() {
            if let OutPlan::Copy(_) = self.laid.outputs[j].1 {
                self.laid.outputs[j].1 = OutPlan::Copy(number(self.laid.copies.len()));
                let (arg, _) = self.arg(self.drafts.root(value), None)?;
                self.laid.copies.push(arg);
            }
        }
        for view in self.drafts.steps.iter().filter(|s| s.is_view()) {
            let ends = [self.end(self.drafts.root(view.ins[0]))?, self.end(view.outs[0])?];
            let label = label(&view.view).into();
            self.laid.views.push(Renamed { node: view.view.raw().id, label, ends });
        }
        for &value in self.drafts.request.inputs {
            let end = self.end(value)?;
            self.laid.inputs.push(end);
        }
        Ok(())
    }

    fn end(&mut self, value: u32) -> Result<End, Error> {
        let info = self.drafts.value(value)?;
        let dtype = info.dtype().unwrap_or(DType::Str);
        Ok(End { shape: self.laid.shapes.intern(info.dims(), info.name()), dtype, item: is_item(&info) })
    }

    /// Number of a value that is no plain tensor.
    fn item(&mut self, value: u32) -> Result<u32, Error> {
        if let Some(&item) = self.item_of.get(&value) {
            return Ok(item);
        }
        let item = self.laid.items.count;
        self.laid.items.count += 1;
        self.item_of.insert(value, item);
        let program = self.drafts.request.program;
        match self.drafts.class(value)? {
            Class::Input(k) => self.laid.items.inputs.push((k, item)),
            Class::Constant(k) => {
                let constant = program.constant(k).and_then(|(constant, _)| Item::of(&constant));
                let constant = constant.ok_or_else(|| Error::new("a constant is not in host memory"))?;
                self.laid.items.constants.push((item, Arc::new(constant)));
            }
            _ => {}
        }
        Ok(item)
    }

    /// Outputs of late rows whose dimensions hang on one that the row's run decides.
    fn find_late(&mut self) {
        let program = self.drafts.request.program;
        for step in self.running.iter().map(|&k| &self.drafts.steps[k]).filter(|s| s.kernel.late) {
            for value in step.outs.iter().filter_map(|&v| program.value(v)).filter(|v| !is_item(v)) {
                let used = used_exprs(program.exprs(), value.dims().iter());
                let mut exprs = used.iter().filter_map(|&id| program.exprs().get(id as usize));
                if exprs.any(|e| defines(program, &step.outs, e)) {
                    self.late_of.insert(value.id, number(self.laid.late.len()));
                    let dtype = value.dtype().unwrap_or(DType::U8);
                    self.laid.late.push(Late { output: None, dtype });
                }
            }
        }
    }

    /// Decides how each output comes about; the first output of a value gets its bytes written straight to it.
    fn choose_outputs(&mut self) -> Result<(), Error> {
        for (j, &value) in self.drafts.request.outputs.iter().enumerate() {
            let end = self.end(value)?;
            let root = self.drafts.root(value);
            let j = number(j);
            if end.item {
                let item = self.item(value)?;
                self.laid.outputs.push((end, OutPlan::Item(item)));
                continue;
            }
            let plan = match self.drafts.class(root)? {
                Class::Input(i) => OutPlan::Input(i),
                Class::Constant(_) | Class::Weight => OutPlan::Held(self.held(Reader::Output(j as usize), root)?.0),
                Class::Known => OutPlan::Known(self.known_tensor(root)?),
                Class::Made => match self.late_of.get(&root) {
                    Some(&late) if root == value && self.laid.late[late as usize].output.is_none() => {
                        self.laid.late[late as usize].output = Some(j);
                        OutPlan::Late
                    }
                    None if !self.direct.contains_key(&root) && (root == value || self.sized_before(value)?) => {
                        self.direct.insert(root, j);
                        OutPlan::Direct
                    }
                    _ => OutPlan::Copy(0),
                },
            };
            self.laid.outputs.push((end, plan));
        }
        Ok(())
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
    fn lives(&self) -> Result<HashMap<u32, Life>, Error> {
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
        for (&value, (_, plan)) in self.drafts.request.outputs.iter().zip(&self.laid.outputs) {
            if let (OutPlan::Copy(_), Some(life)) = (plan, lives.get_mut(&self.drafts.root(value))) {
                life.last = FOREVER;
            }
        }
        Ok(lives)
    }

    fn step(&mut self, position: usize, k: usize, lives: &HashMap<u32, Life>) -> Result<(), Error> {
        let step = &self.drafts.steps[k];
        let begin = self.laid.args.len();
        for (i, &value) in step.ins.iter().enumerate() {
            let arg = if value == NONE {
                absent()
            } else if step.reads(i) {
                self.arg(value, Some(Reader::Step(k, i)))?
            } else {
                self.shape_only(value)?
            };
            self.laid.args.push(arg);
        }
        let mut alias = [NO_ALIAS; 2];
        for (j, &value) in step.outs.iter().enumerate() {
            if value == NONE {
                self.laid.args.push(absent());
                continue;
            }
            if let Some(i) = self.overwrites(step, position, j, lives)? {
                alias[j] = u8::try_from(i).unwrap_or(NO_ALIAS);
                self.share(self.drafts.root(step.ins[i]), value, lives);
            }
            self.make_group(value, lives)?;
            let arg = self.arg(value, None)?;
            self.laid.args.push(arg);
            self.defs(value, position);
        }
        self.laid.steps.push((k, range(begin, self.laid.args.len() - begin), alias));
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
        // Elements that sizes depend on are written to memory of their own, not to the arena.
        if output > 1 || self.late_of.contains_key(&value) || self.drafts.class(value)? != Class::Made {
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
            let group = self.group_of.get(&root).map(|&g| &self.laid.groups[g as usize]);
            if only && ends_here && same && group.is_some_and(|g| g.output.is_none()) {
                return Ok(Some(input));
            }
        }
        Ok(None)
    }

    /// Puts a value into the memory of another. If the new one is an output of the part, both are written there.
    fn share(&mut self, old: u32, new: u32, lives: &HashMap<u32, Life>) {
        let Some(&group) = self.group_of.get(&old) else { return };
        let draft = &mut self.laid.groups[group as usize];
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
        if end.item {
            return Ok(());
        }
        let life = lives.get(&value).copied().unwrap_or(Life { def: 0, last: FOREVER });
        self.group_of.insert(value, number(self.laid.groups.len()));
        let group = Group { life, shape: end.shape, dtype: end.dtype };
        self.laid.groups.push(GroupDraft { group, output: self.direct.get(&value).copied() });
        Ok(())
    }

    /// Symbols that a value defines.
    fn defs(&mut self, value: u32, position: usize) {
        let late = self.late_of.get(&value).copied();
        let arg = number(self.laid.args.len() - 1);
        let symbols = self.drafts.request.program.symbols();
        for &id in self.symbols_of.get(&value).into_iter().flatten() {
            let symbol = &symbols[id as usize];
            let item = self.item_of.get(&value).copied();
            let source = match (symbol.kind, late) {
                (raw::SYMBOL_DIM, _) if item.is_some() => DefSource::Item { item: item.unwrap_or(NONE) },
                (raw::SYMBOL_ELEMENT, _) => DefSource::Element { arg },
                (_, Some(late)) if symbol.value == value => DefSource::Dim { late },
                _ => continue,
            };
            self.laid.defs.push((id, Def { symbol: 0, step: number(position), source, at: symbol.at }));
        }
    }

    /// Place of a value that is read as a tensor, or written.
    fn arg(&mut self, value: u32, reader: Option<Reader>) -> Result<(ArgPlan, Option<Elements>), Error> {
        let End { shape, dtype, item } = self.end(value)?;
        if item {
            return Ok((ArgPlan::new(From::Item(self.item(value)?), shape, dtype, None), None));
        }
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
        let End { shape, dtype, .. } = self.end(value)?;
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
        let at = number(self.laid.fixed.len());
        self.laid.fixed.extend(&numbers);
        Ok(Some(Elements::Fixed(at, number(numbers.len()))))
    }

    fn known_value(&mut self, value: u32) -> Result<u32, Error> {
        if let Some(&k) = self.known_of.get(&value) {
            return Ok(k);
        }
        let k = number(self.laid.known.len());
        self.laid.known.push(KnownDraft { exprs: self.drafts.value(value)?.known().to_vec(), memory: None });
        self.known_of.insert(value, k);
        Ok(k)
    }

    /// A known value that somebody reads as a tensor.
    fn known_tensor(&mut self, value: u32) -> Result<u32, Error> {
        let k = self.known_value(value)?;
        let dtype = self.drafts.value(value)?.dtype().unwrap_or(DType::I64);
        let known = &mut self.laid.known[k as usize];
        if known.memory.is_none() {
            debug_assert!(bytes::holds_numbers(dtype), "class() asks before");
            known.memory = Some((number(self.laid.known_bytes), dtype));
            let size = dtype.bytes(known.exprs.len()).and_then(aligned);
            self.laid.known_bytes += size.ok_or_else(|| Error::new("a value of known numbers is too large"))?;
        }
        Ok(k)
    }

    fn known_memory(&mut self, value: u32) -> Result<u32, Error> {
        let k = self.known_tensor(value)?;
        Ok(self.laid.known[k as usize].memory.map_or(0, |(at, _)| at))
    }
}

fn absent() -> (ArgPlan, Option<Elements>) {
    (ArgPlan::new(From::Absent, 0, DType::U8, None), None)
}
