//! Whether a node of one version fits the schema of another without a change: counts, attributes
//! that only one side knows, types. What such a node means there is the verdicts' business.

use super::Omit;
use crate::ir::{AttrValue, Value};
use crate::schema::check::Bound;
use crate::schema::{Arity, Param, Schema, TypeId, View};

/// Whether a node of the form `from` can be read in the form `to`, leaving out attributes that `to` does
/// not know where they say nothing: by the rule that `omit` has for them, else when they hold the default of `from`.
pub(super) fn fits(
    node: View<'_>,
    from: Schema<'_>,
    to: Schema<'_>,
    omit: &[(&'static str, Omit)],
    types: bool,
) -> bool {
    counts(node, to) && attributes(node, from, to, omit) && (!types || self::types(node, to))
}

fn counts(node: View<'_>, to: Schema<'_>) -> bool {
    let inputs = node.input_count();
    let present = |i: usize| node.has_input(i) || to.input(i).is_some_and(|p| p.arity == Arity::Optional);
    to.input_counts().contains(&inputs) && to.output_counts().contains(&node.output_count()) && (0..inputs).all(present)
}

fn attributes(node: View<'_>, from: Schema<'_>, to: Schema<'_>, omit: &[(&'static str, Omit)]) -> bool {
    let carried = node.attrs.iter().all(|held| match to.attribute_kind(&held.name) {
        Some(kind) => kind.takes(&held.value),
        // A step nearer to the node has left out what not even `from` knows.
        None if from.attribute_kind(&held.name).is_none() => true,
        None => omittable(&held.name, &held.value, omit)
            .unwrap_or_else(|| from.attribute(&held.name).and_then(|a| a.default).as_ref() == Some(&held.value)),
    });
    carried && to.required().all(|name| node.attr(name).is_some())
}

/// Whether the step has an attribute left out; none when it says nothing of that attribute.
fn omittable(name: &str, value: &AttrValue, omit: &[(&'static str, Omit)]) -> Option<bool> {
    let (_, when) = omit.iter().find(|(n, _)| *n == name)?;
    Some(match when {
        Omit::Always => true,
        Omit::Ones => value.as_ints().is_some_and(|list| list.iter().all(|n| *n == 1)),
        Omit::Is(word) => value.as_str() == Some(word),
    })
}

fn types<'a>(node: View<'_>, to: Schema<'a>) -> bool {
    let mut bound = Bound::default();
    let mut fits = |param: Option<Param<'a>>, i: usize, value: Option<&Value>| {
        let found = value.and_then(|v| v.ty.as_ref()).and_then(TypeId::of);
        let (Some(param), Some(found)) = (param, found) else { return true };
        param.types.contains(found) && bound.add(&param, i, found).is_none()
    };
    (0..node.input_count()).all(|i| fits(to.input(i), i, node.input(i)))
        && (0..node.output_count()).all(|o| fits(to.output(o), o, node.output(o)))
}
