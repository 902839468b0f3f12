//! Does a node keep to its operator's schema? Counts, attributes and types, each fault with the
//! place, what was expected and what was found. Shapes are inference's business.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use super::{Arity, Param, Schema, TypeId, TypeSet, View};
use crate::error::{Code, Error, Result};
use crate::ir;

/// Checks everything that the schema says of a node; the first fault is returned, without the
/// node's name (the caller adds it). Types that are not known are taken as fitting.
pub fn check(schema: Schema<'_>, node: View<'_>) -> Result<()> {
    count(schema.input_counts(), node.input_count(), "inputs")?;
    count(schema.output_counts(), node.output_count(), "outputs")?;
    for i in (0..node.input_count()).filter(|i| !node.has_input(*i)) {
        let Some(param) = schema.input(i).filter(|p| p.arity != Arity::Optional) else { continue };
        return fail(Code::NodeInputs, format!("input {i} '{}' is left out, but it is not optional", param.name));
    }
    attributes(schema, node)?;
    types(schema, node)
}

/// Adds the defaults of the attributes that a node leaves out, and sorts all by name.
pub fn fill_defaults(schema: Schema<'_>, attrs: &mut Vec<ir::Attr>) {
    let held = attrs.len();
    for (name, value) in schema.attributes().filter_map(|a| Some((a.name, a.default?))) {
        if !attrs[..held].iter().any(|a| &*a.name == name) {
            attrs.push(ir::Attr { name: name.into(), value });
        }
    }
    attrs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
}

/// The types that output `index` may have, given those of the inputs: one when a type variable
/// that an input sets decides it, else the schema's set. None for an output that does not exist.
pub fn output_types(schema: Schema<'_>, node: View<'_>, index: usize) -> Option<TypeSet> {
    let out = schema.output(index)?;
    let bound = binding(&out).and_then(|variable| {
        let shares = |i: &usize| schema.input(*i).and_then(|p| binding(&p)) == Some(variable);
        (0..node.input_count()).filter(shares).find_map(|i| TypeId::of(node.ty(i)?))
    });
    Some(bound.map_or(out.types, TypeSet::of))
}

fn fail<T>(code: Code, message: String) -> Result<T> {
    Err(Error::new(code, message))
}

fn count(allowed: RangeInclusive<usize>, found: usize, what: &str) -> Result<()> {
    if allowed.contains(&found) {
        return Ok(());
    }
    let expected = match (*allowed.start(), *allowed.end()) {
        (min, usize::MAX) => format!("at least {min}"),
        (min, max) if min == max => min.to_string(),
        (min, max) => format!("{min} to {max}"),
    };
    fail(Code::NodeInputs, format!("expected {expected} {what}, found {found}"))
}

fn attributes(schema: Schema<'_>, node: View<'_>) -> Result<()> {
    for held in node.attrs {
        let Some(kind) = schema.attribute_kind(&held.name) else {
            let (name, known) = (&held.name, names(schema));
            return fail(Code::BadAttribute, format!("has no attribute '{name}' in this version; it has {known}"));
        };
        if !kind.takes(&held.value) {
            let (name, found) = (&held.name, super::AttrKind::of(&held.value));
            return fail(Code::BadAttribute, format!("attribute '{name}': expected {kind}, found {found}"));
        }
    }
    match schema.required().find(|name| node.attr(name).is_none()) {
        Some(name) => {
            let kind = schema.attribute_kind(name).map_or("", super::AttrKind::name);
            fail(Code::BadAttribute, format!("attribute '{name}' ({kind}) is required but absent"))
        }
        None => Ok(()),
    }
}

fn names(schema: Schema<'_>) -> String {
    let names: Vec<&str> = schema.attributes().map(|a| a.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn types(schema: Schema<'_>, node: View<'_>) -> Result<()> {
    let mut bound = Bound::default();
    for i in 0..node.input_count() {
        let (Some(param), Some(ty)) = (schema.input(i), node.ty(i)) else { continue };
        let Some(found) = TypeId::of(ty) else { continue };
        let expected = match bound.add(&param, i, found) {
            _ if !param.types.contains(found) => param.types.to_string(),
            Some((variable, at, ty)) => format!("{ty}, the {variable} that input {at} sets"),
            None => continue,
        };
        let value = node.input(i).map_or("", |v| &v.name);
        let name = param.name;
        return fail(
            Code::BadType,
            format!("input {i} '{name}' (value '{value}'): expected {expected}, found {found}"),
        );
    }
    Ok(())
}

/// Type variables with the first parameter that set each.
#[derive(Default)]
pub(crate) struct Bound<'a>(SmallVec<[(&'a str, usize, TypeId); 4]>);

impl<'a> Bound<'a> {
    /// Binds a parameter's variable; what it was bound to before when that is another type.
    pub(crate) fn add(&mut self, param: &Param<'a>, index: usize, found: TypeId) -> Option<(&'a str, usize, TypeId)> {
        let variable = binding(param)?;
        match self.0.iter().find(|(name, ..)| *name == variable) {
            Some(first) => Some(*first).filter(|(.., ty)| *ty != found),
            None => {
                self.0.push((variable, index, found));
                None
            }
        }
    }
}

/// The variable that a value of this parameter binds; heterogeneous ones bind nothing.
fn binding<'a>(param: &Param<'a>) -> Option<&'a str> {
    let free = matches!(param.arity, Arity::Variadic { homogeneous: false, .. });
    param.variable.filter(|_| !free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;
    use crate::versions::Upgrade as _;
    use crate::versions::testing::Fake;

    #[test]
    fn faults_say_where_and_what() {
        for (op, inputs, attrs, message) in [
            ("Abs-13", "float[2]", "", ""),
            ("Abs-13", "", "", "expected 1 inputs, found 0"),
            ("Abs-13", "float[2] float[2]", "", "expected 1 inputs, found 2"),
            ("Abs-13 2", "float[2]", "", "expected 1 outputs, found 2"),
            ("Concat-13", "", "axis=0", "expected at least 1 inputs, found 0"),
            ("Clip-13", "float[2] _ float[]", "", ""),
            ("Clip-13", "_ float[]", "", "input 0 'input' is left out, but it is not optional"),
            ("Clip-13", "float[2] float[] float[] float[]", "", "expected 1 to 3 inputs, found 4"),
            ("Concat-13", "float[2] float[2]", "", "attribute 'axis' (int) is required but absent"),
            ("Concat-13", "float[2] float[2]", "axis=1.5", "attribute 'axis': expected int, found float"),
            ("Concat-13", "float[2]", "axis=0 axes=[0]", "has no attribute 'axes' in this version; it has axis"),
            ("Abs-13", "float[2]", "axis=0", "has no attribute 'axis' in this version; it has none"),
            (
                "Abs-13",
                "bool[2]",
                "",
                "input 0 'X' (value 'v0'): expected f32,u8,i8,u16,i16,i32,i64,f16,f64,u32,u64,bf16, found bool",
            ),
            (
                "Add-14",
                "float[2] int64[2]",
                "",
                "input 1 'B' (value 'v1'): expected f32, the T that input 0 sets, found i64",
            ),
            (
                "Concat-13",
                "float[2] float[2] double[2]",
                "axis=0",
                "input 2 'inputs' (value 'v2'): expected f32, the T that",
            ),
            ("SequenceLength-11", "float[2]", "", "found f32"),
            ("SequenceLength-11", "seq(seq(float))", "", "found other"),
            ("Loop-25", "int64[] bool[] float[2] int32[2]", "body={}", ""),
            ("Reshape-25", "float[2] int32[1]", "", "input 1 'shape' (value 'v1'): expected i64, found i32"),
        ] {
            let node = Fake::new(op, inputs, attrs);
            let found = check(node.schema(), node.view()).map_err(|e| e.to_string());
            match message {
                "" => assert_eq!(found, Ok(()), "{op} {inputs} {attrs}"),
                part => assert!(found.as_ref().is_err_and(|e| e.contains(part)), "{op} {inputs} {attrs}: {found:?}"),
            }
        }
    }

    #[test]
    fn defaults_join_what_is_held() {
        let schema = schema::lookup("", "Conv", 22).unwrap();
        let held = ir::Attr { name: "group".into(), value: ir::AttrValue::Int(4) };
        let mut attrs = vec![ir::Attr { name: "pads".into(), value: ir::AttrValue::ints(&[1, 1]) }, held.clone()];
        fill_defaults(schema, &mut attrs);
        let names: Vec<&str> = attrs.iter().map(|a| &*a.name).collect();
        assert_eq!(names, ["auto_pad", "group", "pads"]);
        assert_eq!(attrs[1], held);
    }

    #[test]
    fn output_types_follow_the_inputs() {
        for (op, inputs, output, types) in [
            ("Abs-13", "float[2]", 0, "f32"),
            ("Abs-13", "double", 0, "f64"),
            ("TopK-24", "float[2] int64[1]", 1, "i64"),
            ("Cast-13", "float[2]", 0, "f32,u8,i8,u16,i16,i32,i64,str,bool,f16,f64,u32,u64,bf16"),
            ("SequenceAt-11", "seq(float) int64[]", 0, "f32,u8,i8,u16,i16,i32,i64,str,bool,f16,f64,u32,u64,c64,c128"),
        ] {
            let attrs = if op.starts_with("Cast") { "to=1" } else { "" };
            let node = Fake::new(op, inputs, attrs);
            let found = output_types(node.schema(), node.view(), output);
            assert_eq!(found, TypeSet::parse(types), "{op}");
            assert_eq!(output_types(node.schema(), node.view(), 9), None);
        }
    }
}
