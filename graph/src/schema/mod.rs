//! What ONNX says of an operator: versions, inputs, outputs, attributes and types, for every
//! operator and version of the standard domains and for the `com.microsoft` operators that real
//! models carry. The one home of these facts; it knows nothing of shapes, meaning or kernels.
//!
//! The standard table is static (`table.rs`, generated); only an index by name is built, when first asked, and a schema is
//! decoded as it is read. Schemas written as text (contrib, and what an execution provider exports)
//! become the same tables through [`text`], whose canonical form is also what digests are made of.

pub mod check;
mod contrib;
mod decode;
mod node;
mod read;
#[rustfmt::skip]
mod table;
pub mod text;
mod types;

use std::borrow::Cow;
use std::sync::LazyLock;

use hashbrown::HashMap;

use crate::error::{Code, Error, Result};

use decode::Table;
pub use decode::{Arity, Attr, History, Param, Schema};
pub use node::{AttrKind, View};
pub use types::{TypeId, TypeSet, element_name, element_number};

/// The version of the `onnx` package that the standard table was made from.
pub fn package_version() -> &'static str {
    table::PACKAGE
}

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

/// All versions of an operator; none when it is unknown.
pub fn history(domain: &str, op: &str) -> Option<History<'static>> {
    INDEX.get(&(canonical_domain(domain), op)).copied()
}

/// Every operator by its name: loading asks several times for each node. A memo of constant tables, not state.
static INDEX: LazyLock<HashMap<(&str, &str), History<'static>>> = LazyLock::new(|| {
    let all = STANDARD.operators().chain(CONTRIB.operators());
    all.map(|(domain, op, history)| ((domain, op), history)).collect()
});

/// The schema in force at an opset: the newest version of the operator that is not newer.
/// A deprecated version is answered like any other.
pub fn lookup(domain: &str, op: &str, opset: u32) -> Option<Schema<'static>> {
    history(domain, op)?.at_opset(opset)
}

/// Exactly this version of an operator.
pub fn exact(domain: &str, op: &str, since: u32) -> Option<Schema<'static>> {
    lookup(domain, op, since).filter(|s| s.since() == since)
}

/// The since-versions of an operator, rising; empty when the operator is unknown.
pub fn versions(domain: &str, op: &str) -> &'static [u16] {
    history(domain, op).map_or(&[], History::versions)
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
        let table = read::read(lines)?;
        if let Some(known) = table.all().find(|s| !self.versions(s.domain(), s.name()).is_empty()) {
            let (op, domain) = (known.name(), known.domain());
            return Err(Error::new(Code::Text, format!("operator {op} of domain '{domain}' has a schema already")));
        }
        self.extra.push(table);
        Ok(())
    }

    /// As [`history`], over everything in the set.
    pub fn history(&self, domain: &str, op: &str) -> Option<History<'_>> {
        history(domain, op).or_else(|| self.extra.iter().find_map(|table| table.find(domain, op)))
    }

    /// As [`lookup`], over everything in the set.
    pub fn lookup(&self, domain: &str, op: &str, opset: u32) -> Option<Schema<'_>> {
        self.history(domain, op)?.at_opset(opset)
    }

    /// As [`versions`], over everything in the set.
    pub fn versions(&self, domain: &str, op: &str) -> &[u16] {
        self.history(domain, op).map_or(&[], History::versions)
    }
}

#[cfg(test)]
mod tests;
