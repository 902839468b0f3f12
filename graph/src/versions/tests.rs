//! Tests over all steps: none is missing, and no step is called the same that the schemas contradict.

use super::*;
use crate::schema::{Arity, Param};

#[test]
fn every_step_has_a_verdict() {
    let mut missing = Vec::new();
    let mut steps = 0;
    for schema in schema::all() {
        let history = schema::history(schema.domain(), schema.name()).unwrap();
        if history.versions().last().is_some_and(|v| u32::from(*v) > schema.since()) {
            steps += 1;
            if verdict(schema.domain(), schema.name(), schema.since()).is_none() {
                missing.push(format!("{}-{}", schema.name(), schema.since()));
            }
        }
    }
    assert!(missing.is_empty(), "no verdict on what follows {}", missing.join(", "));
    assert_eq!(steps, 432);
}

#[test]
fn every_verdict_is_on_a_step() {
    let rows = || FAMILIES.iter().copied().flatten();
    assert_eq!(INDEX.len(), rows().count(), "an operator has two rows");
    for row in rows() {
        let versions = schema::versions(row.domain, row.op);
        let to: Vec<u16> = row.steps.iter().map(|s| s.to).collect();
        assert_eq!(to, versions[1.min(versions.len())..], "{}", row.op);
    }
    for family in FAMILIES {
        assert!(family.windows(2).all(|pair| pair[0].op < pair[1].op), "{} is out of order", family[0].op);
    }
}

#[test]
fn verdicts_by_count() {
    let mut counts = std::collections::BTreeMap::new();
    for schema in schema::all() {
        if let Some(verdict) = verdict(schema.domain(), schema.name(), schema.since()) {
            *counts.entry(verdict).or_insert(0) += 1;
        }
    }
    let found: Vec<_> = counts.into_iter().collect();
    assert_eq!(found, [("adapter", 62), ("kept", 2), ("same", 368)]);
}

/// What was valid has to stay valid at every step that is called the same.
#[test]
fn schemas_agree_that_same_is_same() {
    let mut wrong = Vec::new();
    for old in schema::all() {
        let (history, steps, at) = place(old.domain(), old.name(), old.since()).unwrap();
        let (Some(step), Some(new)) = (steps.get(at), history.get(at + 1)) else { continue };
        if matches!(step.verdict, Verdict::Same | Verdict::Kept) {
            let step_name = format!("{}-{} to {}", old.name(), old.since(), new.since());
            wrong.extend(contradictions(old, new, step).into_iter().map(|what| format!("{step_name}: {what}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn contradictions(old: Schema<'_>, new: Schema<'_>, step: &Step) -> Vec<String> {
    let mut wrong = Vec::new();
    let dropped = |name: &str| step.omit.iter().any(|(n, when)| *n == name && matches!(when, Omit::Always));
    for a in old.attributes() {
        match new.attribute(a.name) {
            None if !dropped(a.name) => wrong.push(format!("attribute {} is gone", a.name)),
            Some(b) if a.kind != b.kind => wrong.push(format!("attribute {} is another kind", a.name)),
            _ => {}
        }
    }
    for b in new.attributes().filter(|b| b.required) {
        if old.attribute(b.name).is_none_or(|a| !a.required) {
            wrong.push(format!("attribute {} became required", b.name));
        }
    }
    let inputs: Vec<_> = old.inputs().collect();
    wrong.extend(params(&inputs, &new.inputs().collect::<Vec<_>>(), "input"));
    let outputs: Vec<_> = old.outputs().collect();
    wrong.extend(params(&outputs, &new.outputs().collect::<Vec<_>>(), "output"));
    if new.deprecated() && !old.deprecated() && !matches!(step.verdict, Verdict::Kept) {
        wrong.push("became deprecated".to_owned());
    }
    wrong
}

fn params(old: &[Param<'_>], new: &[Param<'_>], what: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, a) in old.iter().enumerate() {
        let Some(b) = new.get(i) else {
            wrong.push(format!("{what} {i} is gone"));
            continue;
        };
        if !b.types.includes(a.types) {
            wrong.push(format!("{what} {i} takes fewer types"));
        }
        let loose = match (a.arity, b.arity) {
            (Arity::Variadic { min: a, .. }, Arity::Variadic { min: b, .. }) => b <= a,
            (Arity::Optional, Arity::Single) => false,
            (a, b) => a == b || a == Arity::Single,
        };
        if !loose {
            wrong.push(format!("{what} {i} became {:?}", b.arity));
        }
        // Types that were free of each other must not be bound together.
        let pairs = old.iter().zip(new).take(i);
        let bound = pairs.filter(|(_, other)| other.variable.is_some() && other.variable == b.variable);
        for (other, _) in bound.filter(|(other, _)| other.variable.is_none() || other.variable != a.variable) {
            if a.types.len() > 1 || other.types != a.types {
                wrong.push(format!("{what} {i} is bound to '{}'", other.name));
            }
        }
    }
    let extra = new.iter().skip(old.len());
    wrong.extend(extra.filter(|p| p.arity == Arity::Single).map(|p| format!("{what} '{}' is new", p.name)));
    wrong
}

/// Nodes of every version, with few and many inputs of known and unknown ranks, reach the newest version, keep to its
/// schema and lead back; or they say why not.
#[test]
fn nodes_of_every_version_reach_the_newest() {
    let mut stuck = std::collections::BTreeSet::new();
    let mut reached = 0;
    let mut wrong = Vec::new();
    for schema in schema::all() {
        for rank in [None, Some(0), Some(1), Some(2), Some(4)] {
            for (last, full) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut node = testing::Fake::of(schema, rank, last, full);
                if schema::check::check(schema, node.view()).is_err() {
                    continue;
                }
                let (domain, name, since) = node.op.clone();
                match upgrade(&mut node, &domain, &name, since) {
                    Ok(form) => {
                        reached += 1;
                        if let Err(e) = node.check(form.op.unwrap_or(&name), form, since) {
                            wrong.push(format!("{name}-{since} {rank:?} {last} {full}: {e}"));
                        }
                    }
                    Err(e) if e.code() == Code::Version => {
                        stuck.insert(name);
                    }
                    Err(e) => wrong.push(format!("{name}-{since}: {e}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} nodes:\n{}", wrong.len(), wrong.join("\n"));
    assert!(reached > 7000, "only {reached} nodes were tried");
    // LpPool-1 without its kernel, Reshape-1 without its shape, PRelu-6 and Split-1 and Tile-1 and Scan-8 without knowledge.
    let stuck: Vec<_> = stuck.iter().map(String::as_str).collect();
    assert_eq!(stuck, ["LpPool", "PRelu", "Reshape", "Scan", "Split", "Tile"]);
}
