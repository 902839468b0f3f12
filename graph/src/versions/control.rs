//! Version steps of control flow and constants.

use super::build::{input, ints, stuck};
use super::{Row, Step, Upgrade, adapter, row, same};
use crate::error::Result;
use crate::schema::View;

pub(super) const ROWS: &[Row] = &[
    row("Constant", &[same(9), same(11), same(12), same(13), same(19), same(21), same(23), same(24), same(25)]),
    row("If", BODIES),
    row("Loop", BODIES),
    row(
        "Scan",
        &[
            adapter(9, without_batch).only(|_, _| false),
            same(11).only(no_negative_scan_axes),
            same(16),
            same(19),
            same(21),
            same(23),
            same(24),
            same(25),
        ],
    ),
];

/// What bodies and values may be made of grew.
const BODIES: &[Step] = &[same(11), same(13), same(16), same(19), same(21), same(23), same(24), same(25)];

/// Negative axes came with the newer version.
fn no_negative_scan_axes(node: View<'_>, way: super::Way) -> bool {
    let fine = |name: &str| node.ints(name).is_none_or(|axes| axes.iter().all(|axis| *axis >= 0));
    way == super::Way::Up || (fine("scan_input_axes") && fine("scan_output_axes"))
}

/// Version 8 runs its body for every sequence of a batch (axis 0), each with a length of its own. A batch of one is a
/// plain scan.
fn without_batch(cx: &mut dyn Upgrade) -> Result<()> {
    let node = cx.view();
    let (inputs, outputs) = (node.input_count(), node.output_count());
    if node.has_input(0) {
        return stuck("sequence_lens has no successor; run the sequences one by one");
    }
    if let Some(i) = (1..inputs).find(|i| node.dim(*i, 0) != Some(1)) {
        return stuck(format!(
            "input {i} is not known to be a batch of one sequence; larger batches have no successor"
        ));
    }
    cx.rename_attr("directions", "scan_input_directions");
    let batch = ints(cx, &[0])?;
    for i in 1..inputs {
        let value = cx.before("Squeeze", &[input(cx, i), Some(batch)], &[])?;
        cx.set_input(i - 1, Some(value));
    }
    cx.set_input(inputs - 1, None);
    (0..outputs).try_for_each(|o| cx.after(o, "Unsqueeze", &[Some(batch)], &[]))
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn a_batch_of_one_is_a_plain_scan() {
        check(&[
            (
                "Scan-8 2",
                "_ float[1,2] float[1,3,2]",
                "num_scan_inputs=1 body={} directions=[1]",
                "Squeeze(v1, [0]) > t0; Squeeze(v2, [0]) > t1; \
                 Scan-25(t0, t1 body={} num_scan_inputs=1 scan_input_directions=[1]) > t2,t3; \
                 Unsqueeze(t2, [0]); Unsqueeze(t3, [0])",
            ),
            ("Scan-8", "_ float[2,2] float[2,3,2]", "num_scan_inputs=1 body={}", "!larger batches have no successor"),
            (
                "Scan-8",
                "int64[1] float[1,2] float[1,3,2]",
                "num_scan_inputs=1 body={}",
                "!sequence_lens has no successor",
            ),
            ("If-1", "bool[]", "then_branch={} else_branch={}", "If-25(v0 else_branch={} then_branch={})"),
        ]);
    }

    #[test]
    fn intervals() {
        check_holds(&[
            ("Scan-25", "float[2] float[3,2]", "num_scan_inputs=1 body={}", "9.."),
            ("Scan-25", "float[2] float[3,2]", "num_scan_inputs=1 body={} scan_input_axes=[-2]", "11.."),
            ("Scan-8", "_ float[1,2] float[1,3,2]", "num_scan_inputs=1 body={}", "8..8"),
            ("Loop-25", "int64[] bool[] float[2]", "body={}", "1.."),
            ("Loop-25", "int64[] bool[]", "body={}", "11.."),
            ("Loop-25", "int64[] bool[] seq(float)", "body={}", "13.."),
            ("Constant-25", "> float[2]", "value_floats=[1.,2.]", "12.."),
        ]);
    }
}
