//! What every step between two versions of an operator means, and how a node takes it. The one home
//! of these verdicts; the walk applies them, projection and the matrix ask them.
//!
//! Each step of each operator in the schema table has a verdict, written in one file per operator
//! family: **same** (what was valid stays valid and means the same), **adapter** (a function that
//! rewrites the node, unless the step changes nothing for it), or **kept** (a deprecated operator
//! stays in its last version). A step without a verdict fails a test.
//!
//! What the walk has to supply is [`Upgrade`]. Its contract:
//!
//! * Nodes are upgraded in topological order: types, dims and small integer values of inputs are
//!   inferred before [`upgrade`] is called.
//! * The node's attributes hold the defaults of its own version ([`crate::schema::check::fill_defaults`]).
//!   A default that changed is thereby written out, and stays as it was. After the upgrade the walk fills in
//!   the defaults of the newest version.
//! * Nodes that an adapter adds ([`Upgrade::before`], [`Upgrade::after`]) are in the newest form of
//!   their operator; their types are inferred when they are made.
//! * [`holds`] is asked when the types of inputs and outputs are known, of the newest form and of the
//!   form in the file, each with the defaults of its version filled in. Within that interval a node is
//!   written with those of its attributes that the schema in force has; the others stand for what that
//!   version means anyway.
//! * An error leaves the node in a form between; the caller keeps the form of the file, or fails.

mod build;
mod carry;

mod arith;
mod attention;
mod cast;
mod compare;
mod control;
mod conv;
mod index;
mod join;
mod layout;
mod matmul;
mod ml;
mod norm;
mod pad;
mod pool;
mod quant;
mod random;
mod reduce;
mod resize;
mod rnn;
mod sequence;
mod signal;
mod softmax;
#[cfg(test)]
pub(crate) mod testing;
mod training;
mod unary;
mod vision;

use std::sync::LazyLock;

use crate::error::{Code, Error, Result};
use crate::ir::{AttrValue, DType, Holds, ValueId};
use crate::schema::{self, History, Schema, View};

/// A node on its way to the newest version, in the hands of the walk.
///
/// Functions that make something fail only when a table of the graph is full.
pub trait Upgrade {
    /// The node as it stands now.
    fn view(&self) -> View<'_>;
    /// Puts a value at an input; the list grows with absent ones as needed. `None` leaves the input
    /// out; absent inputs at the end are cut off.
    fn set_input(&mut self, index: usize, value: Option<ValueId>);
    /// Sets an attribute, replacing one of that name.
    fn set_attr(&mut self, name: &str, value: AttrValue);
    /// Gives an attribute another name; nothing happens when the node does not hold it.
    fn rename_attr(&mut self, from: &str, to: &str);
    /// Takes an attribute away; nothing happens when the node does not hold it.
    fn remove_attr(&mut self, name: &str);
    /// A new constant; `bytes` are dense and little-endian.
    fn constant(&mut self, dtype: DType, dims: &[i64], bytes: &[u8]) -> Result<ValueId>;
    /// A new node of the standard domain right before this one; its one output.
    fn before(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<ValueId>;
    /// A new node of the standard domain right after this one: its first input is what the node, or
    /// the node that `after` added for this output before, makes there; `inputs` are the further
    /// ones. Its one output takes the place of the node's for every reader. Nothing happens when the
    /// output is not wanted.
    fn after(
        &mut self,
        output: usize,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<()>;
}

/// The form that [`upgrade`] brought a node to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The operator that it became, when it is not the one that it was.
    pub op: Option<&'static str>,
    /// The since-version of its form.
    pub since: u32,
    /// Whether the node can no longer be written in the version in which it stood: then the form that it had is worth
    /// keeping as its origin.
    pub changed: bool,
}

/// Brings a node from the version in which it stands to the newest. `since` is the since-version of
/// the schema in force at the node's opset.
pub fn upgrade(cx: &mut dyn Upgrade, domain: &str, op: &str, since: u32) -> Result<Form> {
    let domain = schema::canonical_domain(domain);
    let mut form = Form { op: None, since, changed: false };
    let mut name = op;
    // One turn per operator that the node is: an adapter may make another of it.
    while let Some((history, steps, mut at)) = place(domain, name, form.since) {
        let before = form.op;
        while let Some((step, from, to)) = step(history, steps, at) {
            if matches!(step.verdict, Verdict::Kept) {
                break;
            }
            let unchanged = step.passes(cx.view(), from, to, Way::Up);
            if !unchanged {
                let place = |e: Error| e.within(format!("{name} from version {} to {}", from.since(), to.since()));
                form.op = step.apply(cx, to).map_err(place)?.or(form.op);
            }
            (form.since, at) = (to.since(), at + 1);
            if form.op != before {
                form.changed = true;
                break;
            }
            omit_unknown(cx, to);
            // What passes upwards need not lead back: the older version may want what was left out, or not allow
            // what the file has all the same.
            form.changed |= !unchanged || !step.passes(cx.view(), to, from, Way::Down);
        }
        let Some(new) = form.op.filter(|_| form.op != before) else { break };
        name = new;
    }
    Ok(form)
}

/// The opset versions in which a node, as it stands in the form of `since`, means the same. Empty
/// knowledge is taken with care: where a step asks for a fact that is not known, the interval ends.
/// Operators without a schema hold everywhere.
pub fn holds(node: View<'_>, domain: &str, op: &str, since: u32) -> Holds {
    let Some((history, steps, own)) = place(schema::canonical_domain(domain), op, since) else { return Holds::ALWAYS };
    let passes = |at: usize, way: Way| {
        let Some((step, old, new)) = step(history, steps, at) else { return false };
        let (from, to) = if way == Way::Up { (old, new) } else { (new, old) };
        step.passes(node, from, to, way)
    };
    let mut first = own;
    while first > 0 && passes(first - 1, Way::Down) {
        first -= 1;
    }
    let mut last = own;
    while passes(last, Way::Up) {
        last += 1;
    }
    let versions = history.versions();
    let to = versions.get(last + 1).map_or(u32::MAX, |v| u32::from(*v) - 1);
    Holds { from: versions[first].into(), to }
}

/// The word for a step's verdict, for reports: `same`, `adapter` or `kept`. None when there is no
/// such step.
pub fn verdict(domain: &str, op: &str, since: u32) -> Option<&'static str> {
    let (_, steps, at) = place(schema::canonical_domain(domain), op, since)?;
    Some(match steps.get(at)?.verdict {
        Verdict::Same => "same",
        Verdict::Adapter(_) | Verdict::Becomes(..) => "adapter",
        Verdict::Kept => "kept",
    })
}

fn omit_unknown(cx: &mut dyn Upgrade, schema: Schema<'_>) {
    let gone = |cx: &dyn Upgrade| {
        let mut attrs = cx.view().attrs.iter();
        attrs.find(|a| schema.attribute_kind(&a.name).is_none()).map(|a| a.name.clone())
    };
    while let Some(name) = gone(cx) {
        cx.remove_attr(&name);
    }
}

/// Why a node cannot take a step that rewrites nothing.
fn misfit(node: View<'_>, to: Schema<'_>) -> Error {
    let fault = schema::check::check(to, node).err();
    let what = fault.map_or("it means something else there".to_owned(), |e| e.message().to_owned());
    Error::new(Code::Version, what)
}

/// Which way a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A node of the older form is read in the newer version.
    Up,
    /// A node of the newer form is read in the older version.
    Down,
}

type Run = fn(&mut dyn Upgrade) -> Result<()>;

#[derive(Clone, Copy)]
enum Verdict {
    Same,
    Adapter(Run),
    /// The node becomes this operator, in the form of the same version.
    Becomes(&'static str),
    Kept,
}

/// When an attribute that only one side of a step knows may be left out, where that is not simply when
/// it holds the default of that side.
#[derive(Clone, Copy)]
enum Omit {
    Always,
    /// All numbers of the list are 1.
    Ones,
    /// It is this word.
    Is(&'static str),
}

/// One step: the version that it leads to, the verdict, and for which nodes it changes nothing.
#[derive(Clone, Copy)]
struct Step {
    to: u16,
    verdict: Verdict,
    omit: &'static [(&'static str, Omit)],
    only: fn(View<'_>, Way) -> bool,
    narrows: bool,
}

const fn same(to: u16) -> Step {
    Step { to, verdict: Verdict::Same, omit: &[], only: |_, _| true, narrows: false }
}

/// As [`same`]; the hint that a buffer may be reused, which opset 6 did away with, is left out.
const fn legacy(to: u16) -> Step {
    same(to).omit(&[("consumed_inputs", Omit::Always)])
}

const fn kept(to: u16) -> Step {
    Step { verdict: Verdict::Kept, ..same(to) }
}

const fn adapter(to: u16, run: Run) -> Step {
    Step { verdict: Verdict::Adapter(run), ..same(to) }
}

const fn becomes(to: u16, op: &'static str) -> Step {
    Step { verdict: Verdict::Becomes(op), only: |_, _| false, ..same(to) }
}

impl Step {
    /// Attributes that may be left out on the side that does not know them.
    const fn omit(self, omit: &'static [(&'static str, Omit)]) -> Step {
        Step { omit, ..self }
    }

    /// What must hold besides the schemas for the step to change nothing.
    const fn only(self, only: fn(View<'_>, Way) -> bool) -> Step {
        Step { only, ..self }
    }

    /// The newer version takes fewer types: they are checked on the way up, too.
    const fn narrows(self) -> Step {
        Step { narrows: true, ..self }
    }

    /// Rewrites a node that the step changes; the operator that it becomes, when that is another.
    fn apply(&self, cx: &mut dyn Upgrade, to: Schema<'_>) -> Result<Option<&'static str>> {
        match self.verdict {
            Verdict::Adapter(run) => run(cx).map(|()| None),
            Verdict::Becomes(op) => Ok(Some(op)),
            Verdict::Same | Verdict::Kept => Err(misfit(cx.view(), to)),
        }
    }

    /// Whether a node of the form `from` means the same when it is read in the form `to`.
    fn passes(&self, node: View<'_>, from: Schema<'_>, to: Schema<'_>, way: Way) -> bool {
        let types = self.narrows || way == Way::Down;
        let deprecated = to.deprecated() && !from.deprecated() && !matches!(self.verdict, Verdict::Kept);
        !deprecated && carry::fits(node, from, to, self.omit, types) && (self.only)(node, way)
    }
}

/// The steps of one operator, oldest first.
struct Row {
    domain: &'static str,
    op: &'static str,
    steps: &'static [Step],
}

const fn row(op: &'static str, steps: &'static [Step]) -> Row {
    Row { domain: "", op, steps }
}

/// Every family. Sorted by name.
const FAMILIES: &[&[Row]] = &[
    arith::ROWS,
    attention::ROWS,
    cast::ROWS,
    compare::ROWS,
    control::ROWS,
    conv::ROWS,
    index::ROWS,
    join::ROWS,
    layout::ROWS,
    matmul::ROWS,
    ml::ROWS,
    norm::ROWS,
    pad::ROWS,
    pool::ROWS,
    quant::ROWS,
    random::ROWS,
    reduce::ROWS,
    resize::ROWS,
    rnn::ROWS,
    sequence::ROWS,
    signal::ROWS,
    softmax::ROWS,
    training::ROWS,
    unary::ROWS,
    vision::ROWS,
];

/// The rows by operator. A memo of a constant list, not state.
static INDEX: LazyLock<hashbrown::HashMap<(&str, &str), &Row>> =
    LazyLock::new(|| FAMILIES.iter().copied().flatten().map(|row| ((row.domain, row.op), row)).collect());

/// The versions of an operator, the steps between them (step `i` leads from version `i` to the next), and which of the
/// versions a node stands in.
fn place(domain: &str, op: &str, since: u32) -> Option<(History<'static>, &'static [Step], usize)> {
    let history = schema::history(domain, op)?;
    let at = history.versions().iter().position(|v| u32::from(*v) == since)?;
    Some((history, INDEX.get(&(domain, op)).map_or(&[], |row| row.steps), at))
}

/// The step that leads from version `at` to the next, with both schemas.
fn step(
    history: History<'static>,
    steps: &'static [Step],
    at: usize,
) -> Option<(&'static Step, Schema<'static>, Schema<'static>)> {
    let (step, from, to) = (steps.get(at)?, history.get(at)?, history.get(at + 1)?);
    (u32::from(step.to) == to.since()).then_some((step, from, to))
}

#[cfg(test)]
mod tests;
