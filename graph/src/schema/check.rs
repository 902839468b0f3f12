//! Does a node keep to its operator's schema? Counts, attributes and types, each fault with the
//! node, the place, what was expected and what was found. Shapes are inference's business.

use thiserror::Error;

use super::{Arity, Attr, AttrKind, NodeView, Param, Schema, TypeId};

/// Why a node does not keep to its schema. `node` reads like `'conv1' (Conv-22)`.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CheckError {
    /// Too few or too many inputs or outputs.
    #[error("node {node}: expected {expected} {what}, found {found}")]
    Count {
        /// The node.
        node: String,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many the schema allows.
        expected: String,
        /// How many the node lists.
        found: usize,
    },
    /// A required input or output has no name.
    #[error("node {node}: {what} '{param}' is required but absent")]
    Missing {
        /// The node.
        node: String,
        /// Which one, for example `input 1`.
        what: String,
        /// Its formal name.
        param: String,
    },
    /// An attribute that the operator does not have.
    #[error("node {node}: has no attribute '{attr}' in this version; it has {known}")]
    UnknownAttr {
        /// The node.
        node: String,
        /// The attribute.
        attr: String,
        /// Those that it has.
        known: String,
    },
    /// An attribute that holds something else.
    #[error("node {node}: attribute '{attr}': expected {expected}, found {found}")]
    AttrKind {
        /// The node.
        node: String,
        /// The attribute.
        attr: String,
        /// The kind in the schema.
        expected: AttrKind,
        /// The kind in the node.
        found: AttrKind,
    },
    /// A required attribute is missing.
    #[error("node {node}: attribute '{attr}' ({expected}) is required but absent")]
    MissingAttr {
        /// The node.
        node: String,
        /// The attribute.
        attr: String,
        /// Its kind.
        expected: AttrKind,
    },
    /// A value's type is none of those that the operator takes there.
    #[error("node {node}: {what} '{param}' (value '{value}'): expected {expected}, found {found}")]
    Type {
        /// The node.
        node: String,
        /// Which one, for example `input 1`.
        what: String,
        /// Its formal name.
        param: String,
        /// The value's name.
        value: String,
        /// The types that it may have.
        expected: String,
        /// The type that it has.
        found: TypeId,
    },
}

impl CheckError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            CheckError::Count { .. } => "schema-count",
            CheckError::Missing { .. } => "schema-missing-value",
            CheckError::UnknownAttr { .. } => "schema-unknown-attribute",
            CheckError::AttrKind { .. } => "schema-attribute-kind",
            CheckError::MissingAttr { .. } => "schema-missing-attribute",
            CheckError::Type { .. } => "schema-type",
        }
    }
}

/// Checks everything that the schema says of a node; the first fault is returned. Input types that
/// are not known are taken as fitting.
pub fn check(schema: Schema<'_>, node: &dyn NodeView) -> Result<(), CheckError> {
    let label = || label(schema, node);
    count(schema.input_counts(), node.input_count(), "inputs", &label)?;
    count(schema.output_counts(), node.output_count(), "outputs", &label)?;
    present(schema, node, &label)?;
    attributes(schema, node, &label)?;
    types(schema, node, &label)
}

/// How messages name a node.
pub fn label(schema: Schema<'_>, node: &dyn NodeView) -> String {
    let domain = if schema.domain().is_empty() { "" } else { schema.domain() };
    let dot = if domain.is_empty() { "" } else { "." };
    format!("'{}' ({domain}{dot}{}-{})", node.name(), schema.name(), schema.since())
}

fn count(
    allowed: std::ops::RangeInclusive<usize>,
    found: usize,
    what: &'static str,
    label: &dyn Fn() -> String,
) -> Result<(), CheckError> {
    if allowed.contains(&found) {
        return Ok(());
    }
    let expected = match (*allowed.start(), *allowed.end()) {
        (min, usize::MAX) => format!("at least {min}"),
        (min, max) if min == max => min.to_string(),
        (min, max) => format!("{min} to {max}"),
    };
    Err(CheckError::Count { node: label(), what, expected, found })
}

fn present(schema: Schema<'_>, node: &dyn NodeView, label: &dyn Fn() -> String) -> Result<(), CheckError> {
    for index in 0..node.input_count() {
        let Some(param) = schema.input(index) else {
            break;
        };
        if node.input(index).is_none() && param.arity != Arity::Optional {
            let (what, param) = (format!("input {index}"), param.name.to_owned());
            return Err(CheckError::Missing { node: label(), what, param });
        }
    }
    Ok(())
}

fn attributes(schema: Schema<'_>, node: &dyn NodeView, label: &dyn Fn() -> String) -> Result<(), CheckError> {
    for (attr, found) in (0..node.attr_count()).filter_map(|i| node.attr_at(i)) {
        let Some(known) = schema.attribute(attr) else {
            let (node, attr, known) = (label(), attr.to_owned(), names(schema));
            return Err(CheckError::UnknownAttr { node, attr, known });
        };
        if known.kind != found {
            let (node, attr, expected) = (label(), attr.to_owned(), known.kind);
            return Err(CheckError::AttrKind { node, attr, expected, found });
        }
    }
    let held = |a: &Attr<'_>| (0..node.attr_count()).filter_map(|i| node.attr_at(i)).any(|(name, _)| name == a.name);
    match schema.attributes().find(|a| a.required && !held(a)) {
        Some(a) => {
            let (node, attr, expected) = (label(), a.name.to_owned(), a.kind);
            Err(CheckError::MissingAttr { node, attr, expected })
        }
        None => Ok(()),
    }
}

fn names(schema: Schema<'_>) -> String {
    let names: Vec<&str> = schema.attributes().map(|a| a.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn types(schema: Schema<'_>, node: &dyn NodeView, label: &dyn Fn() -> String) -> Result<(), CheckError> {
    // The first input of each type variable, which the others have to agree with.
    let mut bound: Vec<(&str, usize, TypeId)> = Vec::new();
    for index in 0..node.input_count() {
        let (Some(param), Some(found)) = (schema.input(index), node.input_type(index)) else {
            continue;
        };
        let first = binding(&param).and_then(|v| bound.iter().find(|(name, ..)| *name == v));
        let expected = match first {
            _ if !param.types.contains(found) => param.types.to_string(),
            Some((variable, at, ty)) if *ty != found => {
                format!("{ty}, the {variable} that input {at} set")
            }
            Some(_) => continue,
            None => {
                bound.extend(binding(&param).map(|v| (v, index, found)));
                continue;
            }
        };
        let value = node.input(index).unwrap_or_default().to_owned();
        let (what, param) = (format!("input {index}"), param.name.to_owned());
        return Err(CheckError::Type { node: label(), what, param, value, expected, found });
    }
    Ok(())
}

/// The variable that a value of this parameter binds; heterogeneous ones bind nothing.
fn binding<'a>(param: &Param<'a>) -> Option<&'a str> {
    let free = matches!(param.arity, Arity::Variadic { homogeneous: false, .. });
    param.variable.filter(|_| !free)
}

/// The types that output `index` may have, given the types of the inputs: one when a type variable
/// that the inputs set decides it, else the schema's set. None for an output that does not exist.
pub fn output_types(schema: Schema<'_>, node: &dyn NodeView, index: usize) -> Option<super::TypeSet> {
    let out = schema.output(index)?;
    let variable = binding(&out);
    let set = variable.and_then(|variable| {
        let bound = |i: usize| schema.input(i).and_then(|p| binding(&p)) == Some(variable);
        (0..node.input_count()).filter(|i| bound(*i)).find_map(|i| node.input_type(i))
    });
    Some(set.map_or(out.types, super::TypeSet::of))
}
