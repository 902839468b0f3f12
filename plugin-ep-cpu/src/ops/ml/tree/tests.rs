//! Trees against a walk that follows branches one by one.

use super::*;

/// The leaf of a row, from the definition.
fn naive(nodes: &[Node], root: Branch, row: &[f32]) -> usize {
    let mut at = root;
    loop {
        let node = match at {
            Branch::Leaf(leaf) => return leaf,
            Branch::Node(node) => &nodes[node],
        };
        let x = f64::from(row[node.feature]);
        let passes = match &node.test {
            Test::AtMost(s) => x <= *s,
            Test::Less(s) => x < *s,
            Test::AtLeast(s) => x >= *s,
            Test::Greater(s) => x > *s,
            Test::Equal(s) => x == *s,
            Test::NotEqual(s) => x != *s,
            Test::Member(all) => all.contains(&x),
        };
        at = node.branches[usize::from(!(passes || node.missing && x.is_nan()))];
    }
}

/// Complete trees of a depth whose tests take turns.
fn forest(trees: usize, depth: u32, tests: usize) -> (Vec<Node>, Vec<Branch>, usize) {
    let inner = (1usize << depth) - 1;
    let (mut nodes, mut roots) = (Vec::new(), Vec::new());
    for tree in 0..trees {
        let (base, first_leaf) = (tree * inner, tree * (inner + 1));
        roots.push(if inner == 0 { Branch::Leaf(first_leaf) } else { Branch::Node(base) });
        for k in 0..inner {
            let child =
                |c: usize| if c < inner { Branch::Node(base + c) } else { Branch::Leaf(first_leaf + c - inner) };
            let split = ((tree * 7 + k * 3) % 9) as f64 - 4.0;
            let test = match (tree + k) % tests {
                0 => Test::AtMost(split),
                1 => Test::Less(split),
                2 => Test::AtLeast(split),
                3 => Test::Greater(split),
                4 => Test::Equal(split),
                5 => Test::NotEqual(split),
                _ => Test::Member(vec![split, split + 1.0]),
            };
            let branches = [child(2 * k + 1), child(2 * k + 2)];
            nodes.push(Node { feature: (tree + k) % 5, test, missing: k % 2 == 0, branches });
        }
    }
    (nodes, roots, trees * (inner + 1))
}

fn rows() -> Vec<[f32; 5]> {
    let value = |k: usize| if k.is_multiple_of(11) { f32::NAN } else { ((k * 13) % 19) as f32 * 0.5 - 4.5 };
    (0..23).map(|r| core::array::from_fn(|c| value(r * 5 + c))).collect()
}

#[test]
fn every_test_leads_where_it_should() {
    for (trees, depth, tests) in [(1, 0, 1), (3, 1, 1), (9, 4, 4), (20, 5, 7), (8, 3, 7)] {
        let (nodes, roots, leaves) = forest(trees, depth, tests);
        let table = Forest::<f32>::new(&nodes, &roots, leaves).unwrap();
        let rows = rows();
        for (tree, root) in roots.iter().enumerate() {
            for some in rows.chunks(LANES) {
                let slices: Vec<&[f32]> = some.iter().map(|row| &row[..]).collect();
                let mut seen = 0;
                table.rows(tree, &slices, |lane, leaf| {
                    assert_eq!(leaf, naive(&nodes, *root, &some[lane]), "tree {tree} of {trees}");
                    seen += 1;
                });
                assert_eq!(seen, some.len());
            }
        }
        for row in &rows {
            for start in (0..trees).step_by(LANES) {
                let (mut tree, end) = (start, (start + LANES).min(trees));
                table.trees(start..end, &row[..], |leaf| {
                    assert_eq!(leaf, naive(&nodes, roots[tree], row));
                    tree += 1;
                });
                assert_eq!(tree, end);
            }
        }
    }
}

#[test]
fn splits_between_two_floats_round_down() {
    // 0.1 as f64 lies below the f32 nearest to it.
    let node = |test| Node { feature: 0, test, missing: false, branches: [Branch::Leaf(0), Branch::Leaf(1)] };
    for (test, want) in [(Test::AtMost(0.1), 1), (Test::Less(0.1), 1), (Test::Greater(0.1), 0), (Test::AtLeast(0.1), 0)]
    {
        let table = Forest::<f32>::new(&[node(test.clone())], &[Branch::Node(0)], 2).unwrap();
        table.rows(0, &[&[0.1f32][..]], |_, leaf| assert_eq!(leaf, want, "{test:?}"));
    }
}

#[test]
fn broken_trees_are_refused() {
    let node = |a, b| Node { feature: 0, test: Test::AtMost(0.0), missing: false, branches: [a, b] };
    let leaf = Branch::Leaf(0);
    let cases = [
        (vec![node(Branch::Node(0), leaf)], Broken::Twice(0)),
        (vec![node(Branch::Node(1), leaf), node(Branch::Node(0), leaf)], Broken::Twice(0)),
        (vec![node(Branch::Node(1), Branch::Node(1)), node(leaf, leaf)], Broken::Twice(1)),
        (vec![node(Branch::Node(7), leaf)], Broken::NoNode(7)),
        (vec![node(leaf, Branch::Leaf(3))], Broken::NoLeaf(3)),
    ];
    for (nodes, want) in cases {
        assert_eq!(Forest::<f32>::new(&nodes, &[Branch::Node(0)], 1).unwrap_err(), want);
    }
}
