//! Leads readers of a node that gives its input on, and outputs that it makes, to what it was given.

use ortolan_graph::Graph;
use ortolan_graph::ir::{Node, NodeId, Type, ValueId};
use ortolan_graph::ops::Same;

use crate::error::Result;
use crate::once::Evaluator;

pub(super) fn run(graph: &mut Graph, _: &mut Evaluator<'_>) -> Result<usize> {
    let live = graph.live_nodes();
    let found: Vec<(NodeId, ValueId, ValueId)> = live
        .into_iter()
        .filter_map(|id| {
            let (from, to) = given_on(graph, graph.node(id))?;
            Some((id, from, to))
        })
        .collect();
    if found.is_empty() {
        return Ok(0);
    }
    let mut edit = graph.edit();
    found.iter().for_each(|&(_, from, to)| edit.replace(to, from));
    edit.finish()?;
    Ok(found.len())
}

/// Input and output of a node that gives the one on as the other, and makes nothing else.
fn given_on(graph: &Graph, node: &Node) -> Option<(ValueId, ValueId)> {
    let (from, to) = ((*node.inputs.first()?)?, (*node.outputs.first()?)?);
    let tensor = |v: ValueId| graph.value(v).ty.as_ref().and_then(Type::as_tensor);
    let same = match node.def?.same {
        Same::Never => false,
        Same::Always => true,
        Same::Type => tensor(from).zip(tensor(to)).is_some_and(|(a, b)| a.dtype == b.dtype),
        Same::Shape => tensor(from).zip(tensor(to)).is_some_and(|(a, b)| a.dims.is_some() && a.dims == b.dims),
        Same::Alone => node.inputs.len() == 1,
    };
    (same && node.outputs.iter().flatten().count() == 1).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changed, operators};

    #[test]
    fn readers_pass_nodes_that_change_nothing() {
        let cases = [
            ("identity", "a = Identity(x)\ny = Relu(a)", 1, "Relu"),
            ("two in a row, into an output", "a = Identity(x)\ny = Identity(a)", 2, ""),
            ("a cast to the same type", "a = Cast(x) to=1\ny = Relu(a)", 1, "Relu"),
            ("a cast to another", "a = Cast(x) to=7\ny = Neg(a)", 0, "Cast Neg"),
            ("the same shape", "s = Shape(x)\na = Reshape(x,s)\ny = Relu(a)", 1, "Relu"),
            ("another shape", "a = Flatten(x) axis=0\ny = Relu(a)", 0, "Flatten Relu"),
            ("one alone", "a = Concat(x) axis=0\nb = Sum(a)\ny = Relu(b)", 2, "Relu"),
            ("two", "a = Concat(x,x) axis=0\ny = Relu(a)", 0, "Concat Relu"),
        ];
        for (name, text, want, left) in cases {
            let (graph, count) = changed(text, super::run);
            assert_eq!((count, operators(&graph).as_str()), (want, left), "{name}");
        }
    }
}
