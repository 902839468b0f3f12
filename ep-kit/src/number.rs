//! Last step of compile: everything gets the numbers under which a run finds it, sorted by the segment that needs it.
//!
//! A segment ends behind a step that defines symbols. Numbers of level k are there once segment k begins.

use crate::draft::{Draft, Drafts, label, operands};
use crate::layout::{Elements, Laid, range};
use crate::plan::{ArgPlan, Def, End, From, Group, Known, OutPlan, Plan, Renamed, Segment, Step};
use crate::weights::Weights;
use core::ops::Range;
use ortolan_ep_abi::raw::{self, Expr, NONE};
use std::collections::{BTreeSet, HashMap};

/// Makes the plan. `isa` ends the names of kernels.
pub(crate) fn number(mut drafts: Drafts<'_>, weights: Weights, isa: &str, mut laid: Laid) -> Plan {
    laid.shapes.intern(&[], ""); // absent arguments need a shape to point at
    let table = drafts.request.program.exprs();
    let order = Order::new(table, &mut laid);
    let mut segments = vec![Segment::default(); order.cuts.len() + 1];
    let lists = Lists::new(&order, &mut laid, &mut segments);
    let (shape_at, shape_exprs) = shapes(&order, &lists, &laid);
    let (known, known_exprs, element_count) = known(&order, &lists, &laid);
    let renumber = Renumber { laid: &laid, lists: &lists, known: &known };
    let args: Box<[ArgPlan]> = laid.args.iter().map(|(arg, elements)| renumber.arg(arg, *elements)).collect();
    let (moving, resting) = moves(&args, &laid.steps, &mut segments);
    Plan {
        exprs: order.exprs.iter().map(|&id| order.renumber(&table[id as usize])).collect(),
        symbols: order.symbols.iter().map(|s| if order.defined.contains_key(s) { NONE } else { *s }).collect(),
        shape_at,
        shape_exprs,
        shape_names: lists.shapes.order.iter().map(|&k| laid.shapes.names[k].clone()).collect(),
        known_exprs,
        fixed_elements: laid.fixed.clone().into(),
        element_count,
        known_bytes: laid.known_bytes,
        views: laid.views.iter().map(|r| Renamed { ends: r.ends.map(|e| renumber.end(e)), ..r.clone() }).collect(),
        groups: lists.groups.order.iter().map(|&k| renumber.group(k)).collect(),
        defs: laid.defs.iter().map(|&(id, def)| Def { symbol: order.symbol(id), ..def }).collect(),
        late: laid.late.clone().into(),
        args,
        moving,
        resting,
        segments: segments.into(),
        inputs: laid.inputs.iter().map(|&e| renumber.end(e)).collect(),
        outputs: laid.outputs.iter().map(|&out| renumber.output(out)).collect(),
        copies: laid.copies.iter().map(|copy| renumber.arg(copy, None)).collect(),
        steps: steps(&mut drafts, &laid.steps, isa),
        known,
        items: core::mem::take(&mut laid.items),
        held: weights.held,
    }
}

/// Which expressions and symbols the part uses, and when each is known.
struct Order {
    /// Steps behind which a segment ends.
    cuts: BTreeSet<u32>,
    /// The program's expressions that are used, by rising level, children first.
    exprs: Vec<u32>,
    /// The part's number of each.
    local: HashMap<u32, u32>,
    levels: HashMap<u32, u32>,
    /// The program's symbols that are used.
    symbols: Vec<u32>,
    /// Levels of those that steps define.
    defined: HashMap<u32, u32>,
}

impl Order {
    fn new(table: &[Expr], laid: &mut Laid) -> Self {
        let roots = laid.shapes.dims.iter().flatten().chain(laid.known.iter().flat_map(|k| &k.exprs));
        let used = used_exprs(table, roots);
        let symbols: BTreeSet<u32> =
            used.iter().map(|&id| &table[id as usize]).filter(|e| e.op == raw::expr::SYMBOL).map(|e| e.a).collect();
        laid.defs.retain(|(symbol, _)| symbols.contains(symbol));
        laid.defs.sort_by_key(|(_, def)| def.step);
        let cuts: BTreeSet<u32> = laid.defs.iter().map(|(_, def)| def.step).collect();
        let level = |step: u32| count(cuts.range(..step).count()) + 1;
        let defined: HashMap<u32, u32> = laid.defs.iter().map(|&(symbol, def)| (symbol, level(def.step))).collect();
        let mut levels = HashMap::new();
        for &id in &used {
            let e = &table[id as usize];
            let level = match e.op {
                raw::expr::SYMBOL => defined.get(&e.a).copied(),
                _ => operands(e).iter().filter_map(|o| levels.get(o)).copied().max(),
            };
            levels.insert(id, level.unwrap_or(0));
        }
        let mut exprs = used;
        exprs.sort_by_key(|id| (levels[id], *id));
        let local = exprs.iter().enumerate().map(|(k, &id)| (id, count(k))).collect();
        Order { cuts, exprs, local, levels, symbols: symbols.into_iter().collect(), defined }
    }

    /// The segment in which a step runs.
    fn segment(&self, step: u32) -> u32 {
        count(self.cuts.range(..step).count())
    }

    /// The level of some expressions together.
    fn level(&self, exprs: &[u32]) -> u32 {
        exprs.iter().filter_map(|id| self.levels.get(id)).copied().max().unwrap_or(0)
    }

    fn symbol(&self, id: u32) -> u32 {
        count(self.symbols.partition_point(|&s| s < id))
    }

    /// An expression with the part's numbers for what it reads. An operand that the program does not have stays out of
    /// range, and so unknown.
    fn renumber(&self, e: &Expr) -> Expr {
        let at = |id: u32| self.local.get(&id).copied().unwrap_or(NONE);
        match e.op {
            raw::expr::CONST => *e,
            raw::expr::SYMBOL => Expr { a: self.symbol(e.a), ..*e },
            raw::expr::SELECT => {
                Expr { a: at(e.a), b: at(e.b), v: i64::from(at(u32::try_from(e.v).unwrap_or(NONE))), ..*e }
            }
            _ => Expr { a: at(e.a), b: at(e.b), ..*e },
        }
    }
}

/// All expressions that some numbers come from, children first.
pub(crate) fn used_exprs<'e>(table: &[Expr], roots: impl Iterator<Item = &'e u32>) -> Vec<u32> {
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

/// A count as an id. Counts of a part are below the program's counts, which are `u32`.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(NONE)
}

/// Shapes, known values and groups of the arena, sorted by segment.
struct Lists {
    shapes: Sorted,
    known: Sorted,
    groups: Sorted,
}

/// A list in a new order.
struct Sorted {
    /// Old positions in the new order.
    order: Vec<usize>,
    /// New number of each old position.
    new: Vec<u32>,
}

impl Lists {
    /// Sorts, and gives each segment its ranges.
    fn new(order: &Order, laid: &mut Laid, segments: &mut [Segment]) -> Self {
        let level = |dims: &Vec<u32>| order.level(dims);
        cut(segments, order.exprs.iter().map(|id| order.levels[id]), |s| &mut s.exprs);
        let shapes = sort(&laid.shapes.dims, level, segments, |s| &mut s.shapes);
        let known = sort(&laid.known, |k| order.level(&k.exprs), segments, |s| &mut s.known);
        // Groups that are outputs need no place in an arena: they come last and are left out.
        let groups = sort(
            &laid.groups,
            |g| g.output.map_or(order.segment(g.group.life.def), |_| NONE),
            segments,
            |s| &mut s.groups,
        );
        let of_end = |end: &End| level(&laid.shapes.dims[end.shape as usize]);
        let of_view = |view: &Renamed| view.ends.iter().map(of_end).max().unwrap_or(0);
        laid.views.sort_by_key(of_view);
        cut(segments, laid.views.iter().map(of_view), |s| &mut s.views);
        cut(segments, (0..count(laid.steps.len())).map(|step| order.segment(step)), |s| &mut s.steps);
        cut(segments, laid.defs.iter().map(|(_, d)| order.segment(d.step)), |s| &mut s.defs);
        for (segment, s) in (0..).zip(segments.iter_mut()) {
            let asked = |(end, plan): &(End, OutPlan)| *plan == OutPlan::Direct && of_end(end) == segment;
            s.outputs = (0..).zip(&laid.outputs).filter(|(_, out)| asked(out)).map(|(j, _)| j).collect();
        }
        Lists { shapes, known, groups }
    }
}

/// Sorts by level, gives each segment its range, and leaves out what has none.
fn sort<T>(
    list: &[T],
    level: impl Fn(&T) -> u32,
    segments: &mut [Segment],
    field: impl Fn(&mut Segment) -> &mut Range<u32>,
) -> Sorted {
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by_key(|&k| level(&list[k]));
    let mut new = vec![0; list.len()];
    order.iter().enumerate().for_each(|(to, &from)| new[from] = count(to));
    order.retain(|&k| level(&list[k]) != NONE);
    cut(segments, order.iter().map(|&k| level(&list[k])), field);
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

/// Where each shape's dimensions stand, and which expressions they are.
fn shapes(order: &Order, lists: &Lists, laid: &Laid) -> (Box<[Range<u32>]>, Box<[u32]>) {
    let (mut at, mut exprs) = (Vec::new(), Vec::new());
    for &k in &lists.shapes.order {
        at.push(range(exprs.len(), laid.shapes.dims[k].len()));
        exprs.extend(laid.shapes.dims[k].iter().map(|id| order.local.get(id).copied().unwrap_or(NONE)));
    }
    (at.into(), exprs.into())
}

/// Known values, which expressions their elements are, and the length of a binding's list of elements.
fn known(order: &Order, lists: &Lists, laid: &Laid) -> (Box<[Known]>, Box<[u32]>, usize) {
    let (mut all, mut exprs) = (Vec::new(), Vec::new());
    let mut elements = laid.fixed.len();
    for &k in &lists.known.order {
        let draft = &laid.known[k];
        let at = count(elements);
        all.push(Known { exprs: range(exprs.len(), draft.exprs.len()), at, memory: draft.memory });
        elements += draft.exprs.len();
        exprs.extend(draft.exprs.iter().map(|id| order.local.get(id).copied().unwrap_or(NONE)));
    }
    (all.into(), exprs.into(), elements)
}

/// Puts new numbers into what the layout made.
struct Renumber<'n> {
    laid: &'n Laid,
    lists: &'n Lists,
    known: &'n [Known],
}

impl Renumber<'_> {
    fn shape(&self, old: u32) -> u32 {
        self.lists.shapes.new[old as usize]
    }

    fn end(&self, end: End) -> End {
        End { shape: self.shape(end.shape), ..end }
    }

    fn group(&self, k: usize) -> Group {
        let group = self.laid.groups[k].group;
        Group { shape: self.shape(group.shape), ..group }
    }

    fn output(&self, (end, plan): (End, OutPlan)) -> (End, OutPlan) {
        let plan = match plan {
            OutPlan::Known(k) => OutPlan::Known(self.lists.known.new[k as usize]),
            other => other,
        };
        (self.end(end), plan)
    }

    fn arg(&self, arg: &ArgPlan, elements: Option<Elements>) -> ArgPlan {
        let from = match arg.from {
            From::Arena(group) => {
                let output = self.laid.groups[group as usize].output;
                output.map_or(From::Arena(self.lists.groups.new[group as usize]), From::Output)
            }
            other => other,
        };
        let elements = elements.map(|e| match e {
            Elements::Fixed(at, len) => at..at + len,
            Elements::Known(k) => {
                let known = &self.known[self.lists.known.new[k as usize] as usize];
                known.at..known.at + (known.exprs.end - known.exprs.start)
            }
        });
        ArgPlan { from, elements, shape: self.shape(arg.shape), ..arg.clone() }
    }
}

/// Arguments that move from run to run, and those in arenas, segment by segment.
fn moves(
    args: &[ArgPlan],
    steps: &[(usize, Range<u32>, [u8; 2])],
    segments: &mut [Segment],
) -> (Box<[u32]>, Box<[u32]>) {
    let (mut moving, mut resting) = (Vec::new(), Vec::new());
    for segment in segments {
        let steps = &steps[segment.steps.start as usize..segment.steps.end as usize];
        segment.args = steps.first().map_or(0, |s| s.1.start)..steps.last().map_or(0, |s| s.1.end);
        let (moved, rested) = (moving.len(), resting.len());
        for k in segment.args.clone() {
            match args[k as usize].from {
                From::Input(_) | From::Output(_) | From::Late(_) => moving.push(k),
                From::Arena(_) => resting.push(k),
                From::Absent | From::Held(_) | From::Known(_) | From::Item(_) => {}
            }
        }
        segment.moving = range(moved, moving.len() - moved);
        segment.resting = range(rested, resting.len() - rested);
    }
    (moving.into(), resting.into())
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
            inputs: count(draft.ins.len()),
            alias: *alias,
            late: draft.kernel.late,
            op: draft.op,
        });
    }
    steps.into()
}
