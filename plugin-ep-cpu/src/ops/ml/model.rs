//! Trees as models write them down: the encoding of `TreeEnsemble`, and the older one of its two predecessors. Both become
//! nodes, roots and leaves; what is wrong with them is said by the attribute that is.

use super::tree::{Branch, Node, Test};
use ortolan_ep_abi::view;
use ortolan_ep_kit::{DType, NodeView, Reject};
use std::borrow::Cow;
use std::collections::HashMap;

/// What a leaf adds, and to which target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight {
    pub target: usize,
    pub value: f64,
}

/// Trees before they are laid out.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub nodes: Vec<Node>,
    pub roots: Vec<Branch>,
    /// Weights of each leaf.
    pub leaves: Vec<core::ops::Range<usize>>,
    pub weights: Vec<Weight>,
}

fn attribute(text: String) -> Reject {
    Reject::attribute(text)
}

/// A list that has to be there.
fn ints<'a>(node: &NodeView<'a>, name: &str) -> Result<Cow<'a, [i64]>, Reject> {
    node.long_ints(name).ok_or_else(|| attribute(format!("attribute {name} is missing")))
}

/// A list that has to have so many elements.
fn as_long<T>(name: &str, list: &[T], count: usize) -> Result<(), Reject> {
    match list.len() == count {
        true => Ok(()),
        false => Err(attribute(format!("attribute {name} has {} elements, needed are {count}", list.len()))),
    }
}

/// A number that counts from 0.
fn index(name: &str, at: usize, x: i64) -> Result<usize, Reject> {
    usize::try_from(x).map_err(|_| attribute(format!("attribute {name} has {x} at element {at}")))
}

/// A tensor of floats or bytes as numbers.
fn numbers(name: &str, value: &view::Value<'_>) -> Result<Vec<f64>, Reject> {
    let wide = |x: Vec<f32>| x.into_iter().map(f64::from).collect();
    let found = match value.dtype() {
        Some(DType::F64) => value.to_vec(),
        Some(DType::F32) => value.to_vec().map(wide),
        Some(DType::U8) => value.bytes().map(|x| x.iter().map(|&x| x.into()).collect()),
        Some(DType::F16) => value.bytes().map(|x| {
            let half = |x: &[u8; 2]| crate::ops::narrow::F16(u16::from_le_bytes(*x)).wide().into();
            x.as_chunks::<2>().0.iter().map(half).collect()
        }),
        _ => None,
    };
    found.ok_or_else(|| attribute(format!("attribute {name} is no tensor of floats")))
}

fn tensor(node: &NodeView<'_>, name: &str) -> Result<Option<Vec<f64>>, Reject> {
    node.tensor(name).map(|value| numbers(name, &value)).transpose()
}

fn needs_tensor(node: &NodeView<'_>, name: &str) -> Result<Vec<f64>, Reject> {
    tensor(node, name)?.ok_or_else(|| attribute(format!("attribute {name} is missing")))
}

/// A split that can be compared with.
fn split(name: &str, at: usize, x: f64) -> Result<f64, Reject> {
    match x.is_nan() {
        true => Err(attribute(format!("attribute {name} is NaN at element {at}, which nothing can be compared with"))),
        false => Ok(x),
    }
}

impl Model {
    /// The encoding of `TreeEnsemble`.
    pub fn of_ensemble(node: &NodeView<'_>, targets: usize) -> Result<Model, Reject> {
        let splits = needs_tensor(node, "nodes_splits")?;
        let modes = needs_tensor(node, "nodes_modes")?;
        let features = ints(node, "nodes_featureids")?;
        let count = features.len();
        let names = ["nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs"];
        let lists = names.map(|name| ints(node, name).and_then(|list| as_long(name, &list, count).map(|()| list)));
        let [true_ids, false_ids, true_leafs, false_leafs] = lists;
        let branches = [(true_ids?, true_leafs?), (false_ids?, false_leafs?)];
        let missing = node.long_ints("nodes_missing_value_tracks_true").unwrap_or_default();
        as_long("nodes_splits", &splits, count)?;
        as_long("nodes_modes", &modes, count)?;
        if !missing.is_empty() {
            as_long("nodes_missing_value_tracks_true", &missing, count)?;
        }
        // Sets in the order of the nodes that ask for them, each ended by NaN.
        let members = tensor(node, "membership_values")?.unwrap_or_default();
        let mut sets = members.split(|x| x.is_nan());
        let mut model = Model::default();
        for at in 0..count {
            let branch = |k: usize| {
                let (ids, leafs) = &branches[k];
                let id = index(names[k], at, ids[at])?;
                Ok(if leafs[at] != 0 { Branch::Leaf(id) } else { Branch::Node(id) })
            };
            let test = match modes[at] as i64 {
                6 => {
                    let set = sets
                        .next()
                        .ok_or_else(|| attribute(format!("attribute membership_values has no set for node {at}")))?;
                    Test::Member(set.to_vec())
                }
                mode => comparison(mode, split("nodes_splits", at, splits[at])?)
                    .ok_or_else(|| attribute(format!("attribute nodes_modes has {mode} at element {at}")))?,
            };
            model.nodes.push(Node {
                feature: index("nodes_featureids", at, features[at])?,
                test,
                missing: missing.get(at).is_some_and(|&m| m != 0),
                branches: [branch(0)?, branch(1)?],
            });
        }
        let roots = ints(node, "tree_roots")?;
        let root = |(at, &x): (usize, &i64)| index("tree_roots", at, x).map(Branch::Node);
        model.roots = roots.iter().enumerate().map(root).collect::<Result<_, _>>()?;
        let (ids, weights) = (ints(node, "leaf_targetids")?, needs_tensor(node, "leaf_weights")?);
        as_long("leaf_weights", &weights, ids.len())?;
        for (at, (&id, value)) in ids.iter().zip(weights).enumerate() {
            let target = target("leaf_targetids", at, id, targets)?;
            model.weights.push(Weight { target, value });
            model.leaves.push(at..at + 1);
        }
        Ok(model)
    }

    /// The encoding of `TreeEnsembleClassifier` and `TreeEnsembleRegressor`; `what` is how names of attributes that speak
    /// of targets begin.
    pub fn of_old(node: &NodeView<'_>, what: &str, targets: usize) -> Result<Model, Reject> {
        let (tree_ids, node_ids) = (ints(node, "nodes_treeids")?, ints(node, "nodes_nodeids")?);
        let count = node_ids.len();
        as_long("nodes_treeids", &tree_ids, count)?;
        let mut places = HashMap::new();
        for at in 0..count {
            if places.insert((tree_ids[at], node_ids[at]), at).is_some() {
                let (tree, id) = (tree_ids[at], node_ids[at]);
                return Err(attribute(format!("attribute nodes_nodeids has node {id} of tree {tree} twice")));
            }
        }
        let mut model = Model { leaves: vec![0..0; count], ..Model::default() };
        model.old_nodes(node, &tree_ids, &places)?;
        model.old_roots(&tree_ids)?;
        model.old_weights(node, what, targets, &places)?;
        Ok(model)
    }

    /// Every node becomes a node; leaves, which are numbered alike, are reached through branches.
    fn old_nodes(
        &mut self,
        node: &NodeView<'_>,
        tree_ids: &[i64],
        places: &HashMap<(i64, i64), usize>,
    ) -> Result<(), Reject> {
        let count = tree_ids.len();
        let modes: Vec<&str> = node.texts("nodes_modes").map(Iterator::collect).unwrap_or_default();
        let features = ints(node, "nodes_featureids")?;
        let values = match tensor(node, "nodes_values_as_tensor")? {
            Some(values) => values,
            None => node.long_floats("nodes_values").unwrap_or_default().iter().map(|&x| x.into()).collect(),
        };
        let names = ["nodes_truenodeids", "nodes_falsenodeids"];
        let children = [ints(node, names[0])?, ints(node, names[1])?];
        let missing = node.long_ints("nodes_missing_value_tracks_true").unwrap_or_default();
        as_long("nodes_modes", &modes, count)?;
        as_long("nodes_featureids", &features, count)?;
        as_long("nodes_values", &values, count)?;
        names.iter().zip(&children).try_for_each(|(name, list)| as_long(name, list, count))?;
        for at in 0..count {
            let branch = |k: usize| {
                let id = children[k][at];
                let place = places.get(&(tree_ids[at], id)).ok_or_else(|| {
                    attribute(format!("attribute {} leads to node {id}, which tree {} lacks", names[k], tree_ids[at]))
                })?;
                Ok(if modes[*place] == "LEAF" { Branch::Leaf(*place) } else { Branch::Node(*place) })
            };
            let (test, branches, feature) = match modes[at] {
                "LEAF" => (Test::AtMost(0.0), [Branch::Leaf(at); 2], 0),
                mode => {
                    let number = MODES.iter().position(|known| *known == mode).unwrap_or(MODES.len());
                    let test = comparison(number as i64, split("nodes_values", at, values[at])?);
                    let test = test.ok_or_else(|| attribute(format!("attribute nodes_modes has '{mode}'")))?;
                    (test, [branch(0)?, branch(1)?], index("nodes_featureids", at, features[at])?)
                }
            };
            let missing = missing.get(at).is_some_and(|&m| m != 0);
            self.nodes.push(Node { feature, test, missing, branches });
        }
        Ok(())
    }

    /// The node of each tree to which no branch leads, in the order in which trees come.
    fn old_roots(&mut self, tree_ids: &[i64]) -> Result<(), Reject> {
        let mut is_child = vec![false; self.nodes.len()];
        let is_leaf = |nodes: &[Node], at: usize| nodes[at].branches == [Branch::Leaf(at); 2];
        for at in (0..self.nodes.len()).filter(|&at| !is_leaf(&self.nodes, at)) {
            for branch in self.nodes[at].branches {
                let (Branch::Node(child) | Branch::Leaf(child)) = branch;
                is_child[child] = true;
            }
        }
        let mut roots: HashMap<i64, usize> = HashMap::new();
        for (at, &tree) in tree_ids.iter().enumerate() {
            if !is_child[at] && roots.insert(tree, at).is_some() {
                return Err(attribute(format!("attribute nodes_treeids: tree {tree} has two roots")));
            }
        }
        let mut seen = std::collections::HashSet::new();
        for &tree in tree_ids.iter().filter(|&&tree| seen.insert(tree)) {
            let root = roots.get(&tree);
            let &at = root.ok_or_else(|| attribute(format!("attribute nodes_treeids: tree {tree} has no root")))?;
            self.roots.push(if is_leaf(&self.nodes, at) { Branch::Leaf(at) } else { Branch::Node(at) });
        }
        Ok(())
    }

    fn old_weights(
        &mut self,
        node: &NodeView<'_>,
        what: &str,
        targets: usize,
        places: &HashMap<(i64, i64), usize>,
    ) -> Result<(), Reject> {
        let name = |end: &str| format!("{what}_{end}");
        let list = |end: &str| ints(node, &name(end));
        let (trees, nodes, ids) = (list("treeids")?, list("nodeids")?, list("ids")?);
        let weights = match tensor(node, &name("weights_as_tensor"))? {
            Some(weights) => weights,
            None => node.long_floats(&name("weights")).unwrap_or_default().iter().map(|&x| x.into()).collect(),
        };
        as_long(&name("treeids"), &trees, ids.len())?;
        as_long(&name("nodeids"), &nodes, ids.len())?;
        as_long(&name("weights"), &weights, ids.len())?;
        let mut all = Vec::with_capacity(ids.len());
        for at in 0..ids.len() {
            let (tree, id) = (trees[at], nodes[at]);
            let place = places.get(&(tree, id)).copied();
            let leaf = place.filter(|&place| self.nodes[place].branches == [Branch::Leaf(place); 2]);
            let leaf = leaf.ok_or_else(|| {
                attribute(format!("attribute {}: node {id} of tree {tree} is no leaf", name("nodeids")))
            })?;
            let target = target(&name("ids"), at, ids[at], targets)?;
            all.push((leaf, Weight { target, value: weights[at] }));
        }
        all.sort_by_key(|(leaf, _)| *leaf);
        for (at, &(leaf, weight)) in all.iter().enumerate() {
            let range = &mut self.leaves[leaf];
            if range.start == range.end {
                *range = at..at;
            }
            range.end = at + 1;
            self.weights.push(weight);
        }
        Ok(())
    }
}

/// Names of comparisons in the older encoding, in the order of the newer one's numbers.
const MODES: [&str; 6] = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"];

fn comparison(mode: i64, x: f64) -> Option<Test> {
    let tests = [Test::AtMost, Test::Less, Test::AtLeast, Test::Greater, Test::Equal, Test::NotEqual];
    usize::try_from(mode).ok().and_then(|mode| tests.get(mode)).map(|test| test(x))
}

fn target(name: &str, at: usize, id: i64, targets: usize) -> Result<usize, Reject> {
    let target = index(name, at, id)?;
    match target < targets {
        true => Ok(target),
        false => Err(attribute(format!("attribute {name} has {id} at element {at}, there are {targets} targets"))),
    }
}
