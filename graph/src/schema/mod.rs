//! What ONNX says of an operator: versions, inputs, outputs, attributes and types, for every
//! operator and version of the standard domains and for the `com.microsoft` operators that real
//! models carry. The one home of these facts; it knows nothing of shapes, meaning or kernels.
//!
//! The standard table is static (`table.rs`, generated); nothing is built at start, and a schema is
//! decoded as it is read. Schemas written as text (contrib, and what an execution provider exports)
//! become the same tables through [`text`], whose canonical form is also what digests are made of.

pub mod check;
mod contrib;
mod node;
#[rustfmt::skip]
mod table;
pub mod text;
mod types;

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::error::{Code, Error, Result};
use crate::ir::AttrValue;

pub use node::{AttrKind, View};
pub use types::{TypeId, TypeSet, element_name, element_number};

/// The version of the `onnx` package that the standard table was made from.
pub fn package_version() -> &'static str {
    table::PACKAGE
}

/// Schemas in compact form. Names are indices into one string; the code stream holds, per schema,
/// a head (flags, counts of constraints, inputs, outputs, attributes), then the constraints (name,
/// set), the parameters (name; type: bit 15 set = constraint, else set; option in bits 0-1,
/// homogeneous in bit 2, minimum above) and the attributes (name; kind in bits 0-7, required in
/// bit 8, has a default in bit 9; index of the default). Every index is valid: the generator and
/// the text reader are the only writers.
#[derive(Debug)]
struct Table {
    names: Cow<'static, str>,
    name_at: Cow<'static, [u16]>,
    sets: Cow<'static, [[u32; 5]]>,
    ints: Cow<'static, [i64]>,
    floats: Cow<'static, [u32]>,
    lists: Cow<'static, [u16]>,
    ops: Cow<'static, [[u16; 4]]>,
    since: Cow<'static, [u16]>,
    at: Cow<'static, [u16]>,
    code: Cow<'static, [u16]>,
}

const HEAD: usize = 5;
const CONSTRAINT: usize = 2;
const ITEM: usize = 3;
const FLAG_DEPRECATED: u16 = 1;
const FLAG_EXPERIMENTAL: u16 = 2;
const FLAG_FUNCTION: u16 = 4;

static STANDARD: Table = Table {
    names: Cow::Borrowed(table::NAMES),
    name_at: Cow::Borrowed(&table::NAME_AT),
    sets: Cow::Borrowed(&table::SETS),
    ints: Cow::Borrowed(&table::INTS),
    floats: Cow::Borrowed(&table::FLOATS),
    lists: Cow::Borrowed(&table::LISTS),
    ops: Cow::Borrowed(&table::OPS),
    since: Cow::Borrowed(&table::SINCE),
    at: Cow::Borrowed(&table::AT),
    code: Cow::Borrowed(&table::CODE),
};

/// The hand-written operators. A memo of a constant text, not state.
static CONTRIB: LazyLock<Table> = LazyLock::new(contrib::table);

/// The domain under which its schemas are stored: `ai.onnx` and the empty name are one domain.
pub fn canonical_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The schema in force at an opset: the newest version of the operator that is not newer.
/// A deprecated version is answered like any other.
pub fn lookup(domain: &str, op: &str, opset: u32) -> Option<Schema<'static>> {
    let (table, row) = find(domain, op)?;
    table.at_opset(row, opset)
}

/// Exactly this version of an operator.
pub fn exact(domain: &str, op: &str, since: u32) -> Option<Schema<'static>> {
    lookup(domain, op, since).filter(|s| s.since() == since)
}

/// The since-versions of an operator, rising; empty when the operator is unknown.
pub fn versions(domain: &str, op: &str) -> &'static [u16] {
    find(domain, op).map_or(&[], |(table, row)| table.versions(row))
}

/// The newest opset of a domain that the schemas describe.
pub fn newest(domain: &str) -> Option<u32> {
    let domain = canonical_domain(domain);
    all().filter(|s| s.domain() == domain).map(|s| s.since()).max()
}

/// The domains that have schemas, sorted: the standard one (the empty name) first.
pub fn domains() -> Vec<&'static str> {
    let mut domains: Vec<_> = all().map(|s| s.domain()).collect();
    domains.sort_unstable();
    domains.dedup();
    domains
}

/// Every built-in schema: those of ONNX by domain, operator and version, then the hand-written ones.
pub fn all() -> impl Iterator<Item = Schema<'static>> {
    STANDARD.all().chain(CONTRIB.all())
}

fn find(domain: &str, op: &str) -> Option<(&'static Table, usize)> {
    let domain = canonical_domain(domain);
    let standard = STANDARD.find(domain, op).map(|row| (&STANDARD, row));
    standard.or_else(|| CONTRIB.find(domain, op).map(|row| (&*CONTRIB, row)))
}

/// The schemas of one session: the built-in ones, and those that execution providers export.
/// Built-in schemas cannot be replaced.
#[derive(Debug, Default)]
pub struct SchemaSet {
    extra: Vec<Table>,
}

impl SchemaSet {
    /// Reads schemas in text form, one a line. None is added when one cannot be: a malformed line,
    /// or an operator that exists already.
    pub fn extend(&mut self, lines: &str) -> Result<()> {
        let table = text::read(lines)?;
        if let Some(known) = table.all().find(|s| !self.versions(s.domain(), s.name()).is_empty()) {
            let (op, domain) = (known.name(), known.domain());
            return Err(Error::new(Code::Text, format!("operator {op} of domain '{domain}' has a schema already")));
        }
        self.extra.push(table);
        Ok(())
    }

    /// As [`lookup`], over everything in the set.
    pub fn lookup(&self, domain: &str, op: &str, opset: u32) -> Option<Schema<'_>> {
        let (table, row) = self.find(domain, op)?;
        table.at_opset(row, opset)
    }

    /// As [`versions`], over everything in the set.
    pub fn versions(&self, domain: &str, op: &str) -> &[u16] {
        self.find(domain, op).map_or(&[], |(table, row)| table.versions(row))
    }

    fn find(&self, domain: &str, op: &str) -> Option<(&Table, usize)> {
        let exported = |table| Table::find(table, domain, op).map(|row| (table, row));
        find(domain, op).or_else(|| self.extra.iter().find_map(exported))
    }
}

impl Table {
    fn name(&self, index: u16) -> &str {
        let index = usize::from(index);
        let end = usize::from(self.name_at[index + 1]) - 1;
        &self.names[usize::from(self.name_at[index])..end]
    }

    fn find(&self, domain: &str, op: &str) -> Option<usize> {
        let key = |row: &[u16; 4]| (self.name(row[0]), self.name(row[1]));
        self.ops.binary_search_by(|row| key(row).cmp(&(domain, op))).ok()
    }

    fn rows(&self, op: usize) -> std::ops::Range<usize> {
        let [_, _, first, count] = self.ops[op];
        usize::from(first)..usize::from(first) + usize::from(count)
    }

    fn versions(&self, op: usize) -> &[u16] {
        &self.since[self.rows(op)]
    }

    fn at_opset(&self, op: usize, opset: u32) -> Option<Schema<'_>> {
        let older = self.versions(op).partition_point(|since| u32::from(*since) <= opset);
        let row = self.rows(op).start + older.checked_sub(1)?;
        Some(Schema { table: self, op, row })
    }

    fn all(&self) -> impl Iterator<Item = Schema<'_>> {
        let of = move |op| self.rows(op).map(move |row| Schema { table: self, op, row });
        (0..self.ops.len()).flat_map(of)
    }
}

/// One version of one operator. A small handle, decoded as it is read.
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    table: &'a Table,
    op: usize,
    row: usize,
}

impl<'a> Schema<'a> {
    /// The domain; empty for `ai.onnx`.
    pub fn domain(self) -> &'a str {
        self.table.name(self.table.ops[self.op][0])
    }

    /// The operator's name.
    pub fn name(self) -> &'a str {
        self.table.name(self.table.ops[self.op][1])
    }

    /// The opset in which this version came.
    pub fn since(self) -> u32 {
        self.table.since[self.row].into()
    }

    /// Whether this version says that the operator must not be used any more.
    pub fn deprecated(self) -> bool {
        self.flag(FLAG_DEPRECATED)
    }

    /// Whether ONNX calls this version experimental.
    pub fn experimental(self) -> bool {
        self.flag(FLAG_EXPERIMENTAL)
    }

    /// Whether ONNX defines this version by a body of other operators.
    pub fn has_function(self) -> bool {
        self.flag(FLAG_FUNCTION)
    }

    /// The inputs in order; only the last can be variadic.
    pub fn inputs(self) -> impl ExactSizeIterator<Item = Param<'a>> + Clone {
        let at = HEAD + self.count(1) * CONSTRAINT;
        (0..self.count(2)).map(move |i| self.param(at + i * ITEM))
    }

    /// The outputs in order; only the last can be variadic.
    pub fn outputs(self) -> impl ExactSizeIterator<Item = Param<'a>> + Clone {
        let at = HEAD + self.count(1) * CONSTRAINT + self.count(2) * ITEM;
        (0..self.count(3)).map(move |i| self.param(at + i * ITEM))
    }

    /// The attributes by name.
    pub fn attributes(self) -> impl ExactSizeIterator<Item = Attr<'a>> + Clone {
        let params = self.count(2) + self.count(3);
        let at = HEAD + self.count(1) * CONSTRAINT + params * ITEM;
        (0..self.count(4)).map(move |i| self.attr(at + i * ITEM))
    }

    /// One attribute.
    pub fn attribute(self, name: &str) -> Option<Attr<'a>> {
        self.attributes().find(|a| a.name == name)
    }

    /// The type variables by name, each with the types that it may stand for.
    pub fn constraints(self) -> impl ExactSizeIterator<Item = (&'a str, TypeSet)> + Clone {
        (0..self.count(1)).map(move |i| self.constraint(i))
    }

    /// How many inputs a node must and may list. Optional inputs before the last one that is
    /// present are listed with an empty name.
    pub fn input_counts(self) -> std::ops::RangeInclusive<usize> {
        counts(self.inputs())
    }

    /// How many outputs a node must and may list.
    pub fn output_counts(self) -> std::ops::RangeInclusive<usize> {
        counts(self.outputs())
    }

    /// What input `index` of a node is; the last one stands for all of a variadic rest.
    pub fn input(self, index: usize) -> Option<Param<'a>> {
        nth(self.inputs(), index)
    }

    /// What output `index` of a node is.
    pub fn output(self, index: usize) -> Option<Param<'a>> {
        nth(self.outputs(), index)
    }

    fn word(self, at: usize) -> u16 {
        self.table.code[usize::from(self.table.at[self.row]) + at]
    }

    fn flag(self, bit: u16) -> bool {
        self.word(0) & bit != 0
    }

    fn count(self, which: usize) -> usize {
        usize::from(self.word(which))
    }

    fn constraint(self, index: usize) -> (&'a str, TypeSet) {
        let at = HEAD + index * CONSTRAINT;
        (self.table.name(self.word(at)), self.set(self.word(at + 1)))
    }

    fn set(self, index: u16) -> TypeSet {
        TypeSet(self.table.sets[usize::from(index)])
    }

    fn param(self, at: usize) -> Param<'a> {
        let (name, ty, option) = (self.word(at), self.word(at + 1), self.word(at + 2));
        let (variable, types) = match ty.checked_sub(0x8000) {
            Some(index) => {
                let (variable, types) = self.constraint(usize::from(index));
                (Some(variable), types)
            }
            None => (None, self.set(ty)),
        };
        let arity = match option & 3 {
            0 => Arity::Single,
            1 => Arity::Optional,
            _ => Arity::Variadic { min: option >> 3, homogeneous: option & 4 != 0 },
        };
        Param { name: self.table.name(name), variable, types, arity }
    }

    fn attr(self, at: usize) -> Attr<'a> {
        let (name, bits, index) = (self.word(at), self.word(at + 1), self.word(at + 2));
        let kind = AttrKind::from_number(bits.to_le_bytes()[0]).unwrap_or(AttrKind::Tensor);
        let default = (bits & 0x200 != 0).then(|| self.default_value(kind, index)).flatten();
        Attr { name: self.table.name(name), kind, required: bits & 0x100 != 0, default }
    }

    fn default_value(self, kind: AttrKind, index: u16) -> Option<AttrValue> {
        let table = self.table;
        let float = |i: u16| f32::from_bits(table.floats[usize::from(i)]);
        let int = |i: u16| table.ints[usize::from(i)];
        let string = |i: u16| Bytes::copy_from_slice(table.name(i).as_bytes());
        let list = || {
            let at = usize::from(index);
            table.lists[at + 1..at + 1 + usize::from(table.lists[at])].iter().copied()
        };
        Some(match kind {
            AttrKind::Float => AttrValue::Float(float(index)),
            AttrKind::Int => AttrValue::Int(int(index)),
            AttrKind::String => AttrValue::String(string(index)),
            AttrKind::Floats => AttrValue::Floats(list().map(float).collect()),
            AttrKind::Ints => AttrValue::Ints(list().map(int).collect()),
            AttrKind::Strings => AttrValue::Strings(list().map(string).collect()),
            _ => return None,
        })
    }
}

impl std::fmt::Debug for Schema<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text::line(*self))
    }
}

fn counts<'a>(params: impl ExactSizeIterator<Item = Param<'a>>) -> std::ops::RangeInclusive<usize> {
    let mut min = 0;
    let mut max = params.len();
    for (i, param) in params.enumerate() {
        match param.arity {
            Arity::Single => min = i + 1,
            Arity::Optional => {}
            Arity::Variadic { min: least, .. } => {
                max = usize::MAX;
                min = if least == 0 { min } else { i + usize::from(least) };
            }
        }
    }
    min..=max
}

fn nth<'a>(mut params: impl ExactSizeIterator<Item = Param<'a>> + Clone, index: usize) -> Option<Param<'a>> {
    let variadic = |p: &Param<'_>| matches!(p.arity, Arity::Variadic { .. });
    params.clone().nth(index).or_else(|| params.by_ref().last().filter(variadic))
}

/// An input or output as an operator declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param<'a> {
    /// The formal name.
    pub name: &'a str,
    /// The type variable; none when the type is fixed.
    pub variable: Option<&'a str>,
    /// The types that it may have.
    pub types: TypeSet,
    /// How often it may appear.
    pub arity: Arity,
}

/// How often a parameter may appear in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Once.
    Single,
    /// Once, or left out.
    Optional,
    /// Any number of times from `min` on; all of one type when `homogeneous`.
    Variadic {
        /// The least count.
        min: u16,
        /// Whether all of them share the type variable's type.
        homogeneous: bool,
    },
}

/// An attribute as an operator declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Attr<'a> {
    /// The name.
    pub name: &'a str,
    /// What it holds.
    pub kind: AttrKind,
    /// Whether a node must have it.
    pub required: bool,
    /// What a node that lacks it means; none for "no value".
    pub default: Option<AttrValue>,
}

#[cfg(test)]
mod tests;
