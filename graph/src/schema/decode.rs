//! [`Table`], the compact form of schemas, and [`Schema`], one of them, decoded as it is read. Where schemas come from
//! and what they are used for is not known here.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use bytes::Bytes;

use super::{AttrKind, TypeSet, text};
use crate::ir::AttrValue;

/// Schemas in compact form. Names are indices into one string; the code stream holds, per schema,
/// a head (flags, counts of constraints, inputs, outputs, attributes), then the constraints (name,
/// set), the parameters (name; type: bit 15 set = constraint, else set; option in bits 0-1,
/// homogeneous in bit 2, minimum above) and the attributes (name; kind in bits 0-7, required in
/// bit 8, has a default in bit 9; index of the default). Every index is valid: the generator and
/// the text reader are the only writers.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) names: Cow<'static, str>,
    pub(super) name_at: Cow<'static, [u16]>,
    pub(super) sets: Cow<'static, [[u32; 5]]>,
    pub(super) ints: Cow<'static, [i64]>,
    pub(super) floats: Cow<'static, [u32]>,
    pub(super) lists: Cow<'static, [u16]>,
    pub(super) ops: Cow<'static, [[u16; 4]]>,
    pub(super) since: Cow<'static, [u16]>,
    pub(super) at: Cow<'static, [u16]>,
    pub(super) code: Cow<'static, [u16]>,
}

const HEAD: usize = 5;
const CONSTRAINT: usize = 2;
const ITEM: usize = 3;
pub(super) const FLAG_DEPRECATED: u16 = 1;
pub(super) const FLAG_EXPERIMENTAL: u16 = 2;
pub(super) const FLAG_FUNCTION: u16 = 4;

impl Table {
    fn name(&self, index: u16) -> &str {
        let index = usize::from(index);
        let end = usize::from(self.name_at[index + 1]) - 1;
        &self.names[usize::from(self.name_at[index])..end]
    }

    pub(super) fn find(&self, domain: &str, op: &str) -> Option<History<'_>> {
        let key = |row: &[u16; 4]| (self.name(row[0]), self.name(row[1]));
        let op = self.ops.binary_search_by(|row| key(row).cmp(&(domain, op))).ok()?;
        Some(History { table: self, op })
    }

    pub(super) fn operators(&self) -> impl Iterator<Item = (&str, &str, History<'_>)> {
        self.ops.iter().enumerate().map(|(op, row)| (self.name(row[0]), self.name(row[1]), History { table: self, op }))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Schema<'_>> {
        (0..self.ops.len()).flat_map(|op| History { table: self, op }.iter())
    }
}

/// All versions of one operator. A small handle.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    table: &'a Table,
    op: usize,
}

impl<'a> History<'a> {
    fn rows(self) -> Range<usize> {
        let [_, _, first, count] = self.table.ops[self.op];
        usize::from(first)..usize::from(first) + usize::from(count)
    }

    /// The since-versions, rising.
    pub fn versions(self) -> &'a [u16] {
        &self.table.since[self.rows()]
    }

    /// One version, counted from the oldest.
    pub fn get(self, index: usize) -> Option<Schema<'a>> {
        let row = self.rows().nth(index)?;
        Some(Schema { table: self.table, op: self.op, row })
    }

    /// The versions, oldest first.
    pub fn iter(self) -> impl Iterator<Item = Schema<'a>> {
        self.rows().map(move |row| Schema { table: self.table, op: self.op, row })
    }

    /// The newest version that is not newer than an opset.
    pub fn at_opset(self, opset: u32) -> Option<Schema<'a>> {
        let older = self.versions().partition_point(|since| u32::from(*since) <= opset);
        self.get(older.checked_sub(1)?)
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
        let at = self.inputs_at();
        (0..self.count(2)).map(move |i| self.param(at + i * ITEM))
    }

    /// The outputs in order; only the last can be variadic.
    pub fn outputs(self) -> impl ExactSizeIterator<Item = Param<'a>> + Clone {
        let at = self.outputs_at();
        (0..self.count(3)).map(move |i| self.param(at + i * ITEM))
    }

    /// The attributes by name.
    pub fn attributes(self) -> impl ExactSizeIterator<Item = Attr<'a>> + Clone {
        let at = self.attributes_at();
        (0..self.count(4)).map(move |i| self.attr(at + i * ITEM))
    }

    /// One attribute.
    pub fn attribute(self, name: &str) -> Option<Attr<'a>> {
        self.attribute_at(name).map(|at| self.attr(at))
    }

    /// The kind of one attribute, without its default.
    pub(crate) fn attribute_kind(self, name: &str) -> Option<AttrKind> {
        self.attribute_at(name).map(|at| self.kind(at))
    }

    /// The names of the attributes that a node must have.
    pub(crate) fn required(self) -> impl Iterator<Item = &'a str> {
        let at = self.attributes_at();
        let places = (0..self.count(4)).map(move |i| at + i * ITEM);
        places.filter(move |at| self.word(at + 1) & 0x100 != 0).map(move |at| self.table.name(self.word(at)))
    }

    fn attribute_at(self, name: &str) -> Option<usize> {
        let at = self.attributes_at();
        (0..self.count(4)).map(|i| at + i * ITEM).find(|at| self.table.name(self.word(*at)) == name)
    }

    fn kind(self, at: usize) -> AttrKind {
        AttrKind::from_number(self.word(at + 1).to_le_bytes()[0]).unwrap_or(AttrKind::Tensor)
    }

    /// The type variables by name, each with the types that it may stand for.
    pub fn constraints(self) -> impl ExactSizeIterator<Item = (&'a str, TypeSet)> + Clone {
        (0..self.count(1)).map(move |i| self.constraint(i))
    }

    /// How many inputs a node must and may list. Optional inputs before the last one that is
    /// present are listed with an empty name.
    pub fn input_counts(self) -> RangeInclusive<usize> {
        self.counts(self.inputs_at(), self.count(2))
    }

    /// How many outputs a node must and may list.
    pub fn output_counts(self) -> RangeInclusive<usize> {
        self.counts(self.outputs_at(), self.count(3))
    }

    /// What input `index` of a node is; the last one stands for all of a variadic rest.
    pub fn input(self, index: usize) -> Option<Param<'a>> {
        self.place(self.inputs_at(), self.count(2), index).map(|at| self.param(at))
    }

    /// What output `index` of a node is.
    pub fn output(self, index: usize) -> Option<Param<'a>> {
        self.place(self.outputs_at(), self.count(3), index).map(|at| self.param(at))
    }

    fn inputs_at(self) -> usize {
        HEAD + self.count(1) * CONSTRAINT
    }

    fn outputs_at(self) -> usize {
        self.inputs_at() + self.count(2) * ITEM
    }

    fn attributes_at(self) -> usize {
        self.outputs_at() + self.count(3) * ITEM
    }

    fn counts(self, at: usize, len: usize) -> RangeInclusive<usize> {
        let (mut min, mut max) = (0, len);
        for i in 0..len {
            match self.arity(at + i * ITEM) {
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

    /// Where the parameter that an index falls to stands.
    fn place(self, at: usize, len: usize, index: usize) -> Option<usize> {
        let last = at + len.checked_sub(1)? * ITEM;
        let rest = matches!(self.arity(last), Arity::Variadic { .. });
        let place = at + index * ITEM;
        if place <= last { Some(place) } else { Some(last).filter(|_| rest) }
    }

    fn word(self, at: usize) -> u16 {
        self.table.code[usize::from(self.table.at[self.row]) + at]
    }

    pub(super) fn flag(self, bit: u16) -> bool {
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
        let ty = self.word(at + 1);
        let (variable, types) = match ty.checked_sub(0x8000) {
            Some(index) => {
                let (variable, types) = self.constraint(usize::from(index));
                (Some(variable), types)
            }
            None => (None, self.set(ty)),
        };
        Param { name: self.table.name(self.word(at)), variable, types, arity: self.arity(at) }
    }

    fn arity(self, at: usize) -> Arity {
        let option = self.word(at + 2);
        match option & 3 {
            0 => Arity::Single,
            1 => Arity::Optional,
            _ => Arity::Variadic { min: option >> 3, homogeneous: option & 4 != 0 },
        }
    }

    fn attr(self, at: usize) -> Attr<'a> {
        let (bits, index, kind) = (self.word(at + 1), self.word(at + 2), self.kind(at));
        let default = (bits & 0x200 != 0).then(|| self.default_value(kind, index)).flatten();
        Attr { name: self.table.name(self.word(at)), kind, required: bits & 0x100 != 0, default }
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
