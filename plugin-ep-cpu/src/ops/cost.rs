//! Estimates in nanoseconds on one thread. Only their proportions matter, to the partitioner.

use ortolan_ep_kit::{Cost, NodeView};

/// Going from step to step.
const STEP_NS: f64 = 30.0;
/// Bytes that a plain loop reads or writes in a nanosecond.
const BYTES_PER_NS: f64 = 10.0;
/// Floating-point operations that a product of matrices does in a nanosecond.
const FLOPS_PER_NS: f64 = 80.0;

/// A node that is bound by the memory of its tensors.
pub(crate) fn moving(node: &NodeView<'_>) -> Cost {
    let ins = (0..node.input_count()).filter_map(|i| node.input(i));
    let outs = (0..node.output_count()).filter_map(|j| node.output(j));
    let bytes: f64 = ins.chain(outs).map(|v| v.bytes()).sum();
    Cost::ns(STEP_NS + bytes / BYTES_PER_NS)
}

/// A node that computes `ns` per element of its output.
pub(crate) fn per_element(node: &NodeView<'_>, ns: f64) -> Cost {
    let elements = node.output(0).map_or(f64::NAN, |y| y.elements());
    Cost::ns(moving(node).ns + elements * ns)
}

/// A node of so many multiply-adds.
pub(crate) fn products(node: &NodeView<'_>, count: f64) -> Cost {
    Cost::ns(moving(node).ns + 2.0 * count / FLOPS_PER_NS)
}
