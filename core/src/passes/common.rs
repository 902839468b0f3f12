//! Leads readers of what was computed before to the first that computes it, in the same graph or one around it.

use std::collections::HashMap;

use ortolan_graph::Graph;
use ortolan_graph::ir::{AttrValue, ConstId, DType, Data, GraphId, Name, Node, NodeId, ValueId};
use ortolan_graph::ops::Fold;
use smallvec::SmallVec;

use crate::error::Result;
use crate::once::Evaluator;

pub(super) fn run(graph: &mut Graph, _: &mut Evaluator<'_>) -> Result<usize> {
    let mut search = Search { graph, constants: constants(graph), same: HashMap::new(), seen: HashMap::new() };
    search.graph(GraphId::MAIN);
    let (same, mut edit) = (search.same, graph.edit());
    if same.is_empty() {
        return Ok(0);
    }
    same.iter().for_each(|(&old, &new)| edit.replace(old, new));
    edit.finish()?;
    Ok(same.len())
}

/// Constants up to so many bytes are compared; beyond it files hardly repeat one, and reading them all takes time.
const COMPARED: usize = 256;

/// By constant: the first with the same elements, where they are few.
fn constants(graph: &Graph) -> Vec<ConstId> {
    let mut first: HashMap<(DType, &[i64], &[u8]), ConstId> = HashMap::new();
    let all = graph.constants().iter();
    all.map(|c| match c.data {
        Data::Small(_) if c.bytes().len() <= COMPARED => *first.entry((c.dtype, &c.dims, c.bytes())).or_insert(c.id),
        _ => c.id,
    })
    .collect()
}

/// What a node reads.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Read {
    Nothing,
    Constant(ConstId),
    Value(ValueId),
}

/// What nodes that may be the same have in common, but for attributes.
type Key = (Name, Name, SmallVec<[Read; 4]>);

struct Search<'g> {
    graph: &'g Graph,
    constants: Vec<ConstId>,
    /// What was found: a value, and the earlier one that is the same.
    same: HashMap<ValueId, ValueId>,
    /// Nodes of this graph and those around it that come before.
    seen: HashMap<Key, Vec<NodeId>>,
}

impl Search<'_> {
    // As deep as graphs are nested.
    fn graph(&mut self, id: GraphId) {
        let mut added = Vec::new();
        for &node in &self.graph.body(id).nodes {
            let n = self.graph.node(node);
            n.bodies().for_each(|b| self.graph(b));
            if n.def.is_none_or(|d| d.fold == Fold::Random || d.control.is_some()) || n.bodies().next().is_some() {
                continue;
            }
            let key: Key = (n.domain.clone(), n.op.clone(), n.inputs.iter().map(|v| self.read(*v)).collect());
            let earlier = self.seen.get(&key).into_iter().flatten().map(|&e| self.graph.node(e));
            match earlier.into_iter().find(|e| self.alike(e, n)) {
                Some(earlier) => {
                    let pairs = n.outputs.iter().zip(&earlier.outputs);
                    self.same.extend(pairs.filter_map(|(old, new)| (*old).zip(*new)));
                }
                None => {
                    added.push((key.clone(), node));
                    self.seen.entry(key).or_default().push(node);
                }
            }
        }
        // What a body computes cannot be read outside.
        for (key, node) in added {
            if let Some(nodes) = self.seen.get_mut(&key) {
                nodes.retain(|n| *n != node);
            }
        }
    }

    fn read(&self, value: Option<ValueId>) -> Read {
        let Some(value) = value else { return Read::Nothing };
        match self.graph.value(value).constant {
            Some(c) => Read::Constant(self.constants[c.index()]),
            None => Read::Value(*self.same.get(&value).unwrap_or(&value)),
        }
    }

    /// Whether a node with the same key makes everything that `later` makes.
    fn alike(&self, earlier: &Node, later: &Node) -> bool {
        let makes = |at: usize| earlier.outputs.get(at).is_some_and(Option::is_some);
        earlier.since == later.since
            && later.outputs.iter().enumerate().all(|(at, v)| v.is_none() || makes(at))
            && earlier.attrs.len() == later.attrs.len()
            && earlier.attrs.iter().zip(&later.attrs).all(|(a, b)| a.name == b.name && self.equal(&a.value, &b.value))
    }

    fn equal(&self, a: &AttrValue, b: &AttrValue) -> bool {
        let bits = |v: &[f32]| v.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
        match (a, b) {
            (AttrValue::Float(a), AttrValue::Float(b)) => a.to_bits() == b.to_bits(),
            (AttrValue::Floats(a), AttrValue::Floats(b)) => bits(a) == bits(b),
            (AttrValue::Tensor(a), AttrValue::Tensor(b)) => self.constants[a.index()] == self.constants[b.index()],
            (a, b) => a == b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changed, changed_body, operators};

    #[test]
    fn what_was_computed_is_read_again() {
        let cases = [
            ("twice", "a = Relu(x)\nb = Relu(x)\ny = Add(a,b)", 1, "Relu Add"),
            ("a chain", "a = Relu(x)\nb = Relu(x)\nd = Neg(a)\ne = Neg(b)\ny = Add(d,e)", 2, "Relu Neg Add"),
            ("other attributes", "a = Elu(x) alpha=1.0\nb = Elu(x) alpha=2.0\ny = Add(a,b)", 0, "Elu Elu Add"),
            ("other inputs", "a = Sub(x,w)\nb = Sub(w,x)\ny = Add(a,b)", 0, "Sub Sub Add"),
            ("equal constants", "a = Add(x,k1)\nb = Add(x,k2)\ny = Mul(a,b)", 1, "Add Mul"),
            (
                "random",
                "a = RandomNormalLike(x)\nb = RandomNormalLike(x)\ny = Add(a,b)",
                0,
                "RandomNormalLike RandomNormalLike Add",
            ),
        ];
        for (name, text, want, left) in cases {
            let (graph, count) = changed(text, super::run);
            assert_eq!((count, operators(&graph).as_str()), (want, left), "{name}");
        }
    }

    #[test]
    fn branches_read_what_stands_around_them_but_not_each_other() {
        let (graph, count) =
            changed_body("a = Relu(x)\ny = If(c)", "t = Relu(x)\nu = Neg(t)", "e = Relu(x)\nf = Neg(e)", super::run);
        // The two Negs stand apart, and so they stay.
        assert_eq!((count, operators(&graph).as_str()), (2, "Relu Neg Neg If"));
    }
}
