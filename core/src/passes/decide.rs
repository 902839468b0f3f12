//! Puts the branch that is taken in the place of an If whose condition is known.
//!
//! Ranks and sizes behind an If are often known only once it is decided, so everything is inferred again, and then more may
//! be decided.

use std::collections::HashSet;

use ortolan_graph::Graph;
use ortolan_graph::ir::{GraphId, NodeId, ValueId};
use ortolan_graph::ops::{Control, Fold};

use crate::error::{Error, Result, codes};
use crate::once::Evaluator;
use crate::plan::control;

/// Values between inputs and a condition that they decide; beyond it more than a switch is computed.
const FEW: usize = 16;

pub(super) fn run(graph: &mut Graph, _: &mut Evaluator<'_>) -> Result<usize> {
    let inputs = deciding(graph);
    graph.follow(&inputs)?;
    let mut count = 0;
    loop {
        let found = outermost(graph, |cond| truth(graph, cond));
        if found.is_empty() {
            return Ok(count);
        }
        count += found.len();
        take(graph, &found)?;
    }
}

/// Inputs of the model on whose elements, and on constants and sizes, a condition depends that is not known.
///
/// Only integers are followed. A truth that is given as such stays with the executor: both branches take turns, as a rule.
fn deciding(graph: &Graph) -> Vec<ValueId> {
    let unknown = |cond: ValueId| graph.value(cond).known.is_none().then_some(cond);
    let mut all = Vec::new();
    for (_, cond) in outermost(graph, unknown) {
        let (mut todo, mut seen, mut inputs) = (vec![cond], HashSet::new(), Vec::new());
        let simple = loop {
            let Some(at) = todo.pop() else { break true };
            let value = graph.value(at);
            if !seen.insert(at) || value.known.is_some() || value.constant.is_some() {
                continue;
            }
            match value.producer.map(|(n, _)| graph.node(n)) {
                Some(node) if seen.len() <= FEW && node.def.is_some_and(|d| d.fold == Fold::Small) => {
                    todo.extend(node.inputs.iter().flatten());
                }
                None if graph.main().inputs.contains(&at) => inputs.push(at),
                _ => break false,
            }
        };
        if simple {
            all.extend(inputs);
        }
    }
    all
}

/// Whether a condition is known.
fn truth(graph: &Graph, cond: ValueId) -> Option<bool> {
    graph.exprs().truth(*graph.value(cond).known.as_ref()?.first()?)
}

/// Ifs of which `pick` says something by their condition, in none of each other's branches.
pub(crate) fn outermost<T>(graph: &Graph, pick: impl Fn(ValueId) -> Option<T>) -> Vec<(NodeId, T)> {
    let (mut found, mut todo) = (Vec::new(), vec![GraphId::MAIN]);
    while let Some(at) = todo.pop() {
        for &id in &graph.body(at).nodes {
            let node = graph.node(id);
            let cond = node.inputs.first().copied().flatten();
            let picked = cond.filter(|_| control::kind(node) == Some(Control::If)).and_then(&pick);
            match picked {
                Some(picked) => found.push((id, picked)),
                None => todo.extend(node.bodies()),
            }
        }
    }
    found
}

/// Puts the branches that are taken in the places of their Ifs, and infers again.
pub(crate) fn take(graph: &mut Graph, ifs: &[(NodeId, bool)]) -> Result<()> {
    let mut edit = graph.edit();
    for &(id, taken) in ifs {
        let branch = control::body(edit.graph().node(id), control::branch(taken));
        let branch = branch.ok_or_else(|| {
            Error::new(codes::INTERNAL, "it has no such branch").within(edit.graph().node(id).place(edit.graph()))
        })?;
        edit.inline(id, branch)?;
    }
    edit.finish()?;
    graph.infer()?;
    Ok(())
}

/// Nodes that may not run once these Ifs are decided: those of their branches, and those that only conditions read.
pub(crate) fn uncertain(graph: &Graph, ifs: &[NodeId]) -> HashSet<NodeId> {
    let mut certain = HashSet::new();
    let mut todo: Vec<ValueId> = graph.main().outputs.clone();
    while let Some(value) = todo.pop() {
        let Some((id, _)) = graph.value(value).producer else { continue };
        if !certain.insert(id) {
            continue;
        }
        let node = graph.node(id);
        if ifs.contains(&id) {
            continue;
        }
        todo.extend(node.inputs.iter().flatten());
        node.bodies().for_each(|b| todo.extend(&graph.body(b).outputs));
    }
    graph.live_nodes().into_iter().filter(|n| !certain.contains(n)).collect()
}

#[cfg(test)]
mod tests {
    use ortolan_graph::ir::Type;

    use super::super::testing::{changed_body, operators};

    #[test]
    fn a_known_condition_leaves_one_branch() {
        let cases = [
            ("true", "c2 = Equal(one,one)\ny = If(c2)", 1, "Relu"),
            ("false", "c2 = Equal(one,two)\ny = If(c2)", 1, "Neg Neg"),
            ("a rank", "s = Shape(x)\nr = Size(s)\nc2 = Equal(r,two)\ny = If(c2)", 1, "Neg Neg"),
            ("a truth that is given", "y = If(c)", 0, "Neg Neg Relu If"),
            ("only a size tells", "s = Size(x)\nc2 = Equal(s,one)\ny = If(c2)", 0, "Size Equal Neg Neg Relu If"),
        ];
        for (name, text, want, left) in cases {
            let (graph, count) = changed_body(text, "t = Relu(x)", "e = Neg(x)\nf = Neg(e)", super::run);
            assert_eq!((count, operators(&graph).as_str()), (want, left), "{name}");
        }
    }

    #[test]
    fn ranks_behind_a_decided_branch_are_known() {
        let text = "c2 = Equal(one,one)\na = If(c2)\ny = Relu(a)";
        let (graph, count) = changed_body(text, "t = Unsqueeze(x,axes)", "e = Neg(x)", super::run);
        let y = graph.value(graph.main().outputs[0]);
        assert_eq!((count, y.ty.as_ref().and_then(Type::as_tensor).and_then(|t| t.rank())), (1, Some(2)));
    }
}
