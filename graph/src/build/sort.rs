//! Order of nodes: files that are not in topological order are sorted, rings are refused.

use hashbrown::{HashMap, HashSet};

use crate::error::{Code, Error, Result};
use crate::order;
use crate::proto::{GraphProto, NodeProto};

/// Indices of `nodes` so that what makes a value comes before what reads it; among several such
/// orders the one closest to the file's. Names that no node makes are not looked at.
pub(crate) fn order(nodes: &[NodeProto]) -> Result<Vec<usize>> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|n| !n.is_empty()) {
            if makers.insert(name, i).is_some() {
                return Err(
                    Error::new(Code::DuplicateName, format!("two nodes make the value '{name}'")).within(place(node))
                );
            }
        }
    }
    let needs: Vec<Vec<usize>> =
        nodes.iter().map(|n| reads(n).iter().filter_map(|r| makers.get(r).copied()).collect()).collect();
    match order::order(&needs) {
        Ok(order) => Ok(order.unwrap_or_else(|| (0..nodes.len()).collect())),
        Err(stuck) => Err(ring(nodes, &needs, &stuck)),
    }
}

/// Follows what is missing backwards until a node comes up again: that node is in a ring.
fn ring(nodes: &[NodeProto], needs: &[Vec<usize>], stuck: &[usize]) -> Error {
    let waits = |i: usize| needs[i].iter().copied().find(|b| stuck.binary_search(b).is_ok());
    let mut at = stuck.first().copied().unwrap_or(0);
    let mut seen = HashSet::new();
    while seen.insert(at) {
        at = waits(at).unwrap_or(at);
    }
    let first = at;
    let mut names = vec![place(&nodes[first])];
    while let Some(next) = waits(at).filter(|n| *n != first) {
        at = next;
        if names.len() == 4 {
            names.push("…".to_owned());
            break;
        }
        names.push(place(&nodes[at]));
    }
    Error::new(Code::Cycle, format!("nodes feed each other in a ring: {}", names.join(" needs ")))
}

/// Names that a node reads, from outside its bodies.
fn reads(node: &NodeProto) -> HashSet<&str> {
    let mut names: HashSet<&str> = node.input.iter().map(String::as_str).collect();
    for attr in &node.attribute {
        for graph in attr.g.iter().chain(&attr.graphs) {
            names.extend(free(graph));
        }
    }
    names
}

/// Names that a graph reads and does not define.
fn free(graph: &GraphProto) -> HashSet<&str> {
    let mut names: HashSet<&str> = graph.node.iter().flat_map(reads).collect();
    names.extend(graph.output.iter().map(|o| o.name.as_str()));
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref());
    let own = graph.input.iter().map(|i| &i.name).chain(graph.initializer.iter().chain(sparse).map(|t| &t.name));
    for name in own.chain(graph.node.iter().flat_map(|n| &n.output)) {
        names.remove(name.as_str());
    }
    names
}

/// How errors name a node of the file.
pub(crate) fn place(node: &NodeProto) -> String {
    let domain = if node.domain.is_empty() { String::new() } else { format!("{}::", node.domain) };
    match (node.name.as_str(), node.output.iter().find(|o| !o.is_empty())) {
        ("", Some(first)) => format!("node of '{first}' ({domain}{})", node.op_type),
        (name, _) => format!("node '{name}' ({domain}{})", node.op_type),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(list: &[(&str, &str)]) -> Vec<NodeProto> {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        list.iter().map(|(i, o)| NodeProto { input: words(i), output: words(o), ..NodeProto::default() }).collect()
    }

    #[test]
    fn orders() {
        for (name, list, want) in [
            ("sorted stays", vec![("x", "a"), ("x", "b"), ("a b", "c")], vec![0, 1, 2]),
            ("reversed", vec![("b", "c"), ("a", "b"), ("x", "a")], vec![2, 1, 0]),
            ("one out of place", vec![("x", "a"), ("c", "b"), ("a", "c"), ("x", "d")], vec![0, 2, 1, 3]),
            ("one value read twice", vec![("b b", "c"), ("x", "b")], vec![1, 0]),
        ] {
            assert_eq!(order(&nodes(&list)).unwrap(), want, "{name}");
        }
    }

    #[test]
    fn bodies_count_as_readers() {
        let mut list = nodes(&[("", "y"), ("x", "a")]);
        let inner = nodes(&[("a l", "b"), ("x", "l")]);
        let body = GraphProto { node: inner, ..GraphProto::default() };
        list[0].attribute.push(crate::proto::AttributeProto { g: Some(body), ..Default::default() });
        assert_eq!(order(&list).unwrap(), [1, 0]);
    }

    #[test]
    fn rings_and_doubles_are_named() {
        let e = order(&nodes(&[("x", "o"), ("o c", "a"), ("a", "b"), ("b", "c")])).unwrap_err();
        assert_eq!(e.code(), Code::Cycle);
        assert!(e.message().contains("'a'") && e.message().contains("'c'") && !e.message().contains("'o'"), "{e}");
        assert_eq!(order(&nodes(&[("x", "a"), ("x", "a")])).unwrap_err().code(), Code::DuplicateName);
        assert_eq!(order(&nodes(&[("a", "a")])).unwrap_err().code(), Code::Cycle);
    }
}
