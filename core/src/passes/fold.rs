//! Computes small values that follow from constants, once, on an EP.
//!
//! Larger ones stay in the graph as constant expressions: the EP that reads them evaluates them into its own form. What
//! dequantises stays at any size, so that weights stay as small as they are.

use std::collections::HashSet;

use ortolan_graph::Graph;
use ortolan_graph::ir::{DType, Data, NodeId, Type, Use, ValueId};
use ortolan_graph::ops::Fold;

use crate::error::Result;
use crate::once::Evaluator;
use crate::value::Value;

/// Results up to this many bytes are folded; a string counts as a table entry.
const LIMIT: u64 = 64 << 10;

pub(super) fn run(graph: &mut Graph, evaluator: &mut Evaluator<'_>) -> Result<usize> {
    let nodes = foldable(graph);
    if nodes.is_empty() {
        return Ok(0);
    }
    let values = read_outside(graph, &nodes);
    let mut found = evaluator.evaluate(graph, &nodes, &values)?;
    found.retain(|(_, v)| matches!(v, Value::Tensor(t) if t.bytes as u64 <= LIMIT));
    if found.is_empty() {
        return Ok(0);
    }
    let count = found.len();
    let mut edit = graph.edit();
    for (value, made) in found {
        let tensor = made.as_tensor()?;
        let data = match tensor.dtype() {
            DType::String => Data::Strings(tensor.texts()?.map(str::to_owned).collect()),
            _ => Data::copied(tensor.bytes()?),
        };
        let home = edit.graph().value(value).graph;
        let constant = edit.constant(home, tensor.dtype(), tensor.shape(), data)?;
        edit.replace(value, constant);
    }
    edit.finish()?;
    graph.infer()?;
    Ok(count)
}

/// Nodes that read constants and each other within their graph, and whose results are small, in topological order.
fn foldable(graph: &Graph) -> Vec<NodeId> {
    let (mut all, mut chosen) = (Vec::new(), HashSet::new());
    for id in graph.live_nodes() {
        let node = graph.node(id);
        let folds = node.def.is_some_and(|d| d.fold == Fold::Small && d.control.is_none());
        let fed = |v: ValueId| match graph.value(v).producer {
            Some((n, _)) => chosen.contains(&n) && graph.node(n).graph == node.graph,
            None => graph.value(v).constant.is_some(),
        };
        let inputs = || node.inputs.iter().flatten().copied();
        if folds && inputs().all(fed) && node.bodies().next().is_none() && is_small(graph, id) {
            chosen.insert(id);
            all.push(id);
        }
    }
    all
}

/// Whether what a node makes is small, or at least what it makes it of, where only computing it tells.
fn is_small(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let size = |v: &ValueId| bytes(graph, *v);
    let made: Option<u64> = node.outputs.iter().flatten().map(size).sum();
    let read = || node.inputs.iter().flatten().map(size).sum::<Option<u64>>();
    let tensors =
        node.outputs.iter().flatten().all(|v| graph.value(*v).ty.as_ref().is_some_and(|t| t.as_tensor().is_some()));
    tensors && made.or_else(read).is_some_and(|b| b <= LIMIT)
}

/// Bytes of a tensor whose dims are all numbers.
fn bytes(graph: &Graph, value: ValueId) -> Option<u64> {
    let ty = graph.value(value).ty.as_ref().and_then(Type::as_tensor)?;
    let sizes = ty.dims.as_ref()?.iter().map(|&d| graph.exprs().as_const(d).and_then(|d| u64::try_from(d).ok()));
    let elements = sizes.into_iter().try_fold(1u64, |n, d| n.checked_mul(d?))?;
    if ty.dtype == DType::String { elements.checked_mul(16) } else { ty.dtype.bytes(elements) }
}

/// Values of these nodes that others read.
fn read_outside(graph: &Graph, nodes: &[NodeId]) -> Vec<ValueId> {
    let (uses, mine) = (graph.uses(), nodes.iter().collect::<HashSet<_>>());
    let outside = |u: &Use| match u {
        Use::Input(n, _) => !mine.contains(n),
        Use::Output(..) => true,
    };
    let made = nodes.iter().flat_map(|&n| graph.node(n).outputs.iter().flatten().copied());
    made.filter(|v| uses.of(*v).iter().any(outside)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::changed;

    #[test]
    fn what_folds_is_small_and_the_same_each_time() {
        let cases = [
            ("a chain of constants", "a = Neg(k1)\nb = Relu(a)\ny = Add(x,b)", "Neg Relu"),
            ("what a run gives", "a = Neg(x)\ny = Relu(a)", ""),
            ("dequantised", "a = Cast(k1) to=3\nb = DequantizeLinear(a,half)\nd = Neg(b)\ny = Add(x,d)", "Cast"),
            ("quantised", "a = QuantizeLinear(k1,half)\nb = Cast(a) to=1\ny = Add(x,b)", "QuantizeLinear Cast"),
            ("random", "a = RandomNormalLike(k1)\nb = Neg(a)\ny = Add(x,b)", ""),
            ("too large", "a = Expand(half,large)\nb = Neg(a)\ny = Relu(b)", ""),
            ("of a size that only computing tells", "a = NonZero(k1)\ny = Cast(a) to=1", "NonZero"),
        ];
        for (name, text, want) in cases {
            let (graph, count) = changed(text, super::run);
            let found: Vec<&str> = super::foldable(&graph).iter().map(|n| &*graph.node(*n).op).collect();
            assert_eq!((count, found.join(" ").as_str()), (0, want), "{name}");
        }
    }
}
