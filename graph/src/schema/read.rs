//! Reads schemas from the form of [`super::text`] into a [`Table`].

use bytes::Bytes;
use hashbrown::HashMap;

use super::decode::Table;
use super::text::FLAGS;
use super::{Attr, AttrKind, TypeSet, canonical_domain};
use crate::error::{Code, Error, Result};
use crate::ir::AttrValue;

/// Reads schemas, one a line; empty lines and lines that begin with `#` are skipped.
pub(super) fn read(lines: &str) -> Result<Table> {
    let mut parsed = Vec::new();
    for (index, line) in lines.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        parsed.push(parse(line).map_err(|what| bad(what).within(format!("line {}", index + 1)))?);
    }
    parsed.sort_unstable_by(|a, b| (a.domain, a.name, a.since).cmp(&(b.domain, b.name, b.since)));
    let same = |a: &Parsed<'_>, b: &Parsed<'_>| (a.domain, a.name, a.since) == (b.domain, b.name, b.since);
    if let Some(pair) = parsed.windows(2).find(|pair| same(&pair[0], &pair[1])) {
        return Err(bad(format!("two schemas of {} in version {}", pair[0].name, pair[0].since)));
    }
    let mut builder = Builder::default();
    for schema in &parsed {
        builder.add(schema)?;
    }
    builder.finish()
}

/// A line taken apart, before it becomes part of a table.
struct Parsed<'t> {
    domain: &'t str,
    name: &'t str,
    since: u16,
    flags: u16,
    constraints: Vec<(&'t str, TypeSet)>,
    inputs: Vec<ParsedParam<'t>>,
    outputs: Vec<ParsedParam<'t>>,
    attributes: Vec<Attr<'t>>,
}

struct ParsedParam<'t> {
    name: &'t str,
    ty: ParsedType,
    option: u16,
}

enum ParsedType {
    Constraint(usize),
    Fixed(TypeSet),
}

fn parse(line: &str) -> Result<Parsed<'_>, String> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [domain, name, since, flags, inputs, outputs, attributes, constraints] = fields[..] else {
        return Err(format!("expected 8 fields one space apart, found {}", fields.len()));
    };
    if domain.is_empty() || name.is_empty() {
        return Err("the domain and the operator need a name".to_owned());
    }
    let since: u16 = since.parse().ok().filter(|s| *s > 0).ok_or_else(|| format!("'{since}' is no since-version"))?;
    let mut constraints = items(constraints, '[', ']')?
        .map(|item| {
            let (name, types) = item.split_once('=').unwrap_or((item, ""));
            let set = TypeSet::parse(types).filter(|set| !set.is_empty());
            Ok((name, set.ok_or_else(|| format!("'{item}' is no constraint name=types"))?))
        })
        .collect::<Result<Vec<_>, String>>()?;
    constraints.sort_unstable_by_key(|(name, _)| *name);
    twice(constraints.iter().map(|(name, _)| *name))?;
    let params = |text| -> Result<Vec<_>, String> {
        let params: Vec<_> =
            items(text, '(', ')')?.map(|item| parse_param(item, &constraints)).collect::<Result<_, _>>()?;
        match params.iter().rev().skip(1).find(|p| p.option & 3 == 2) {
            Some(early) => Err(format!("parameter '{}' takes any number and is not the last", early.name)),
            None => Ok(params),
        }
    };
    let (inputs, outputs) = (params(inputs)?, params(outputs)?);
    let mut attributes = items(attributes, '{', '}')?.map(parse_attribute).collect::<Result<Vec<_>, _>>()?;
    attributes.sort_unstable_by_key(|a| a.name);
    twice(attributes.iter().map(|a| a.name))?;
    let domain = canonical_domain(domain);
    let flags = parse_flags(flags)?;
    Ok(Parsed { domain, name, since, flags, constraints, inputs, outputs, attributes })
}

/// Refuses a sorted list with a name in it twice.
fn twice<'t>(names: impl Iterator<Item = &'t str> + Clone) -> Result<(), String> {
    match names.clone().zip(names.skip(1)).find(|(a, b)| a == b) {
        Some((name, _)) => Err(format!("'{name}' stands twice")),
        None => Ok(()),
    }
}

fn items(text: &str, open: char, close: char) -> Result<impl Iterator<Item = &str>, String> {
    let inner = text.strip_prefix(open).and_then(|t| t.strip_suffix(close));
    let inner = inner.ok_or_else(|| format!("expected a list in {open}{close}, found '{text}'"))?;
    Ok(inner.split(';').filter(move |_| !inner.is_empty()))
}

fn parse_flags(text: &str) -> Result<u16, String> {
    if text == "-" {
        return Ok(0);
    }
    text.split(',').try_fold(0, |flags, name| {
        let known = FLAGS.iter().find(|(n, _)| *n == name);
        known.map(|(_, bit)| flags | bit).ok_or_else(|| format!("'{name}' is no flag"))
    })
}

fn parse_param<'t>(item: &'t str, constraints: &[(&str, TypeSet)]) -> Result<ParsedParam<'t>, String> {
    let bad = || format!("'{item}' is no parameter name:type with an arity");
    let (name, rest) = item.split_once(':').ok_or_else(bad)?;
    let (rest, homogeneous) = match rest.strip_suffix('~') {
        Some(rest) => (rest, 0),
        None => (rest, 4),
    };
    let at = rest.find(['?', '*', '+']).unwrap_or(rest.len());
    let option = match &rest[at..] {
        "" => 4,
        "?" => 1 | 4,
        "*" => 2 | homogeneous,
        "+" => 2 | homogeneous | 1 << 3,
        more => {
            let least: u16 = more.strip_prefix('+').and_then(|n| n.parse().ok()).ok_or_else(bad)?;
            2 | homogeneous | least.checked_mul(8).ok_or_else(bad)?
        }
    };
    let ty = &rest[..at];
    let ty = match constraints.iter().position(|(name, _)| *name == ty) {
        Some(index) => ParsedType::Constraint(index),
        None => ParsedType::Fixed(TypeSet::parse(ty).filter(|s| !s.is_empty()).ok_or_else(bad)?),
    };
    Ok(ParsedParam { name, ty, option })
}

fn parse_attribute(item: &str) -> Result<Attr<'_>, String> {
    let bad = || format!("'{item}' is no attribute name:kind, name:kind! or name:kind=value");
    let (name, rest) = item.split_once(':').ok_or_else(bad)?;
    let (kind, value) = match rest.split_once('=') {
        Some((kind, value)) => (kind, Some(value)),
        None => (rest, None),
    };
    let (kind, required) = match kind.strip_suffix('!') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let kind = AttrKind::from_name(kind).ok_or_else(bad)?;
    let default = match value {
        Some(_) if required => return Err(bad()),
        Some(value) => Some(parse_default(kind, value).ok_or_else(bad)?),
        None => None,
    };
    Ok(Attr { name, kind, required, default })
}

fn parse_default(kind: AttrKind, text: &str) -> Option<AttrValue> {
    let float = |t: &str| match t.strip_prefix("0x") {
        Some(bits) => u32::from_str_radix(bits, 16).ok().map(f32::from_bits),
        None => t.parse().ok(),
    };
    Some(match kind {
        AttrKind::Float => AttrValue::Float(float(text)?),
        AttrKind::Int => AttrValue::Int(text.parse().ok()?),
        AttrKind::String => AttrValue::String(unescape(text)?),
        AttrKind::Floats => AttrValue::Floats(list(text, float)?.into()),
        AttrKind::Ints => AttrValue::Ints(list(text, |t| t.parse().ok())?.into()),
        AttrKind::Strings => AttrValue::Strings(list(text, unescape)?.into()),
        _ => return None,
    })
}

fn list<T>(text: &str, item: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(item).collect()
}

fn unescape(text: &str) -> Option<Bytes> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &tail[2..];
    }
    Some(out.into())
}

/// Collects schemas into a table; names and sets are stored once.
#[derive(Default)]
struct Builder {
    names: Pool<String>,
    sets: Pool<[u32; 5]>,
    ints: Vec<i64>,
    floats: Vec<u32>,
    lists: Vec<u16>,
    ops: Vec<[u16; 4]>,
    since: Vec<u16>,
    at: Vec<u16>,
    code: Vec<u16>,
}

#[derive(Default)]
struct Pool<T> {
    items: Vec<T>,
    index: HashMap<T, u16>,
}

impl<T: Clone + Eq + std::hash::Hash> Pool<T> {
    fn add(&mut self, item: T) -> Result<u16> {
        if let Some(found) = self.index.get(&item) {
            return Ok(*found);
        }
        let next = small(self.items.len())?;
        self.items.push(item.clone());
        self.index.insert(item, next);
        Ok(next)
    }
}

fn bad(what: String) -> Error {
    Error::new(Code::Text, format!("schema text: {what}"))
}

fn too_large() -> Error {
    bad("too large for one table, which holds at most 32,767 names, defaults and types; split it".to_owned())
}

fn small(n: usize) -> Result<u16> {
    // The top bit marks constraints in the code stream.
    u16::try_from(n).ok().filter(|n| *n < 0x8000).ok_or_else(too_large)
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<u16> {
    list.push(item);
    small(list.len() - 1)
}

impl Builder {
    fn add(&mut self, schema: &Parsed<'_>) -> Result<()> {
        let domain = self.names.add(schema.domain.to_owned())?;
        let name = self.names.add(schema.name.to_owned())?;
        let row = push(&mut self.since, schema.since)?;
        match self.ops.last_mut() {
            Some(last) if last[..2] == [domain, name] => last[3] += 1,
            _ => self.ops.push([domain, name, row, 1]),
        }
        self.at.push(u16::try_from(self.code.len()).map_err(|_| too_large())?);
        self.code.push(schema.flags);
        for count in [schema.constraints.len(), schema.inputs.len(), schema.outputs.len(), schema.attributes.len()] {
            self.code.push(small(count)?);
        }
        for (name, types) in &schema.constraints {
            let words = [self.names.add((*name).to_owned())?, self.sets.add(types.0)?];
            self.code.extend(words);
        }
        for p in schema.inputs.iter().chain(&schema.outputs) {
            let ty = match p.ty {
                ParsedType::Constraint(index) => 0x8000 | small(index)?,
                ParsedType::Fixed(types) => self.sets.add(types.0)?,
            };
            let name = self.names.add(p.name.to_owned())?;
            self.code.extend([name, ty, p.option]);
        }
        for a in &schema.attributes {
            let has = if a.default.is_some() { 0x200 } else { 0 };
            let required = if a.required { 0x100 } else { 0 };
            let index = a.default.as_ref().map_or(Ok(0), |value| self.default_index(value))?;
            let name = self.names.add(a.name.to_owned())?;
            self.code.extend([name, a.kind as u16 | has | required, index]);
        }
        Ok(())
    }

    fn default_index(&mut self, value: &AttrValue) -> Result<u16> {
        let items: Result<Vec<u16>> = match value {
            AttrValue::Float(f) => return push(&mut self.floats, f.to_bits()),
            AttrValue::Int(i) => return push(&mut self.ints, *i),
            AttrValue::String(s) => return self.string(s),
            AttrValue::Floats(list) => list.iter().map(|f| push(&mut self.floats, f.to_bits())).collect(),
            AttrValue::Ints(list) => list.iter().map(|i| push(&mut self.ints, *i)).collect(),
            AttrValue::Strings(list) => list.iter().map(|s| self.string(s)).collect(),
            _ => return Ok(0),
        };
        let items = items?;
        let at = push(&mut self.lists, small(items.len())?)?;
        self.lists.extend(items);
        Ok(at)
    }

    fn string(&mut self, bytes: &Bytes) -> Result<u16> {
        let text = std::str::from_utf8(bytes).map_err(|_| bad("a default string is not UTF-8".to_owned()))?;
        self.names.add(text.to_owned())
    }

    fn finish(self) -> Result<Table> {
        let mut names = String::new();
        let mut name_at = Vec::new();
        let offset = |names: &String| u16::try_from(names.len()).map_err(|_| too_large());
        for name in &self.names.items {
            name_at.push(offset(&names)?);
            names.push_str(name);
            names.push(' ');
        }
        name_at.push(offset(&names)?);
        Ok(Table {
            names: names.into(),
            name_at: name_at.into(),
            sets: self.sets.items.into(),
            ints: self.ints.into(),
            floats: self.floats.into(),
            lists: self.lists.into(),
            ops: self.ops.into(),
            since: self.since.into(),
            at: self.at.into(),
            code: self.code.into(),
        })
    }
}
