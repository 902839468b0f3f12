//! Control-flow nodes that the executor walks itself.

use ortolan_graph::ir::{AttrValue, GraphId, Node};
use ortolan_graph::ops::Control;

/// What kind of control flow a node is, if the executor walks it.
pub(crate) fn kind(node: &Node) -> Option<Control> {
    node.def.and_then(|d| d.control).filter(|c| matches!(c, Control::If | Control::Loop | Control::Scan))
}

/// The body in an attribute.
pub(crate) fn body(node: &Node, attr: &str) -> Option<GraphId> {
    match node.attr(attr)? {
        AttrValue::Graph(graph) => Some(*graph),
        _ => None,
    }
}

/// The attribute that holds the branch for a condition.
pub(crate) fn branch(condition: bool) -> &'static str {
    if condition { "then_branch" } else { "else_branch" }
}

/// Integers of an attribute, or as many of `default`.
pub(crate) fn ints(node: &Node, attr: &str, count: usize, default: i64) -> Vec<i64> {
    match node.attr(attr).and_then(AttrValue::as_ints) {
        Some(list) if list.len() == count => list.to_vec(),
        _ => vec![default; count],
    }
}
