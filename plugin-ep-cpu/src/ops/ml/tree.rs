//! Decision trees as flat tables: the two children of a node stand side by side, a leaf leads to itself, and eight walks run
//! at once, so that they wait for memory together. It must not know how models write trees down.

use crate::ops::narrow::F16;
use ortolan_ep_kit::Element;

/// A number that features and splits are compared in.
pub(super) trait Number: Element + Send + Sync + PartialOrd {
    /// Greater than all others.
    const MOST: Self;
    /// Rounded down: `x <= floor(s)` says the same as `x <= s`.
    fn floor(x: f64) -> Self;
    /// The nearest value.
    fn nearest(x: f64) -> Self;
    /// The next smaller value.
    fn before(self) -> Self;
    /// Without rounding.
    fn wide(self) -> f64;
    fn is_nan(self) -> bool;
}

macro_rules! numbers {
    ($($t:ty)*) => { $(
        impl Number for $t {
            const MOST: $t = <$t>::INFINITY;
            fn floor(x: f64) -> $t {
                let near = x as $t; // rounds; the next line takes back what went up
                if f64::from(near) > x { near.next_down() } else { near }
            }
            fn nearest(x: f64) -> $t { x as $t }
            fn before(self) -> $t { self.next_down() }
            fn wide(self) -> f64 { self.into() }
            #[inline(always)]
            fn is_nan(self) -> bool { self != self }
        }
    )* };
}
numbers!(f32 f64);

/// An input's element as the number that it is compared as.
pub(super) trait Feature<N>: Element + Send + Sync {
    fn number(self) -> N;
}

macro_rules! features {
    ($($t:ty => $n:ty),*) => { $(
        impl Feature<$n> for $t {
            #[inline(always)]
            fn number(self) -> $n { self as $n } // integers round to the nearest
        }
    )* };
}
features!(f32 => f32, f64 => f64, i64 => f32, i32 => f32, f32 => f64, i64 => f64, i32 => f64, f64 => f32);

impl Feature<f32> for F16 {
    #[inline(always)]
    fn number(self) -> f32 {
        self.wide()
    }
}

impl Feature<f64> for F16 {
    #[inline(always)]
    fn number(self) -> f64 {
        self.wide().into()
    }
}

/// What a node asks of its feature.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    /// At most this.
    AtMost(f64),
    Less(f64),
    AtLeast(f64),
    Greater(f64),
    Equal(f64),
    NotEqual(f64),
    /// One of these.
    Member(Vec<f64>),
}

/// Where a branch leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Branch {
    Node(usize),
    Leaf(usize),
}

/// A node as a model has it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub feature: usize,
    pub test: Test,
    /// NaN passes the test.
    pub missing: bool,
    /// If the test passes, and if not.
    pub branches: [Branch; 2],
}

/// What is wrong with trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// There is no such node.
    NoNode(usize),
    /// There is no such leaf.
    NoLeaf(usize),
    /// Two branches lead to it, or it is its own child.
    Twice(usize),
    /// More than 2^31 nodes, or a feature beyond that.
    Large,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Broken::NoNode(node) => write!(f, "a branch leads to node {node}, which does not exist"),
            Broken::NoLeaf(leaf) => write!(f, "a branch leads to leaf {leaf}, which does not exist"),
            Broken::Twice(node) => write!(f, "more than one branch leads to node {node}"),
            Broken::Large => write!(f, "there are more than 2^31 nodes or features"),
        }
    }
}

/// Walks that run at once.
pub(super) const LANES: usize = 8;
/// Bit of `Step::feature`: NaN passes.
const MISSING: u32 = 1 << 31;
/// `Forest::leaves` of an inner node.
const INNER: u32 = u32::MAX;

/// A node in the table.
#[derive(Debug, Clone, Copy)]
struct Step<N> {
    /// Passes if the feature is at most this.
    split: N,
    feature: u32,
    /// Node if it passes; the other one stands behind.
    next: u32,
}

/// Trees in a table.
#[derive(Debug)]
pub(super) struct Forest<N> {
    steps: Vec<Step<N>>,
    /// Leaf of each node.
    leaves: Vec<u32>,
    /// First node and depth of each tree.
    trees: Vec<(u32, u32)>,
    /// Tests of nodes that no comparison with one number can do, by node.
    others: Vec<(u32, Other<N>)>,
    /// Features that are looked at are below this.
    features: usize,
}

/// See [`Forest::others`].
#[derive(Debug)]
struct Other<N> {
    members: Vec<N>,
    /// Passes if it is none of them.
    negated: bool,
}

impl<N: Number> Forest<N> {
    /// Lays out the trees that begin at `roots`. Leaves are numbers below `leaves`.
    pub fn new(nodes: &[Node], roots: &[Branch], leaves: usize) -> Result<Self, Broken> {
        let mut forest =
            Forest { steps: Vec::new(), leaves: Vec::new(), trees: Vec::new(), others: Vec::new(), features: 0 };
        let mut seen = vec![false; nodes.len()];
        for &root in roots {
            let first = forest.push(1)?;
            let mut open = vec![(root, first, 0u32)];
            let mut deepest = 0;
            while let Some((branch, at, depth)) = open.pop() {
                let node = match branch {
                    Branch::Leaf(leaf) if leaf < leaves => {
                        forest.leaves[at as usize] = u32::try_from(leaf).map_err(|_| Broken::Large)?;
                        continue;
                    }
                    Branch::Leaf(leaf) => return Err(Broken::NoLeaf(leaf)),
                    Branch::Node(node) => node,
                };
                let Some(visited) = seen.get_mut(node) else { return Err(Broken::NoNode(node)) };
                if core::mem::replace(visited, true) {
                    return Err(Broken::Twice(node));
                }
                let next = forest.push(2)?;
                let [pass, fail] = forest.fill(at, next, &nodes[node])?;
                open.push((fail, next + 1, depth + 1));
                open.push((pass, next, depth + 1));
                deepest = deepest.max(depth + 1);
            }
            forest.trees.push((first, deepest));
        }
        forest.others.sort_by_key(|other| other.0);
        Ok(forest)
    }

    /// Room for some nodes, which are leaves until they are filled.
    fn push(&mut self, count: usize) -> Result<u32, Broken> {
        let at = u32::try_from(self.steps.len()).ok().filter(|at| at & MISSING == 0).ok_or(Broken::Large)?;
        for next in (at..).take(count) {
            self.steps.push(Step { split: N::MOST, feature: MISSING, next });
            self.leaves.push(INNER);
        }
        Ok(at)
    }

    /// Writes a node. The answer is the branches in the order in which the table has them.
    fn fill(&mut self, at: u32, next: u32, node: &Node) -> Result<[Branch; 2], Broken> {
        let feature = u32::try_from(node.feature).ok().filter(|f| f & MISSING == 0).ok_or(Broken::Large)?;
        self.features = self.features.max(node.feature + 1);
        let below = |x: f64| if N::floor(x).wide() == x { N::floor(x).before() } else { N::floor(x) };
        // `x > s` is `x <= s` with the branches exchanged, but for NaN.
        let (split, turned) = match &node.test {
            Test::AtMost(x) => (N::floor(*x), false),
            Test::Less(x) => (below(*x), false),
            Test::AtLeast(x) => (below(*x), true),
            Test::Greater(x) => (N::floor(*x), true),
            Test::Equal(x) => (self.other(at, &[*x], false), false),
            Test::NotEqual(x) => (self.other(at, &[*x], true), false),
            Test::Member(all) => (self.other(at, all, false), false),
        };
        let missing = if node.missing != turned { MISSING } else { 0 };
        self.steps[at as usize] = Step { split, feature: feature | missing, next };
        let [pass, fail] = node.branches;
        Ok(if turned { [fail, pass] } else { [pass, fail] })
    }

    fn other(&mut self, at: u32, members: &[f64], negated: bool) -> N {
        let members = members.iter().map(|&x| N::nearest(x)).collect();
        self.others.push((at, Other { members, negated }));
        N::MOST
    }

    /// Count of trees.
    pub fn len(&self) -> usize {
        self.trees.len()
    }

    /// How many features a row needs.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Calls `found(lane, leaf)` for a tree on up to [`LANES`] rows.
    pub fn rows<X: Feature<N>>(&self, tree: usize, rows: &[&[X]], mut found: impl FnMut(usize, usize)) {
        let (first, depth) = self.trees[tree];
        let lane = |k: usize| rows[k.min(rows.len() - 1)];
        let rows_of: [&[X]; LANES] = core::array::from_fn(lane);
        let at = self.walk([first; LANES], rows_of, depth);
        (0..rows.len()).for_each(|k| found(k, self.leaves[at[k] as usize] as usize));
    }

    /// Calls `found(leaf)` for up to [`LANES`] trees on a row.
    pub fn trees<X: Feature<N>>(&self, trees: core::ops::Range<usize>, row: &[X], mut found: impl FnMut(usize)) {
        let all = &self.trees[trees];
        let roots: [u32; LANES] = core::array::from_fn(|k| all[k.min(all.len() - 1)].0);
        let depth = all.iter().map(|tree| tree.1).max().unwrap_or(0);
        let at = self.walk(roots, [row; LANES], depth);
        (0..all.len()).for_each(|k| found(self.leaves[at[k] as usize] as usize));
    }

    /// The leaves' nodes of eight walks.
    fn walk<X: Feature<N>>(&self, mut at: [u32; LANES], rows: [&[X]; LANES], depth: u32) -> [u32; LANES] {
        let plain = self.others.is_empty();
        for _ in 0..depth {
            for (at, row) in at.iter_mut().zip(rows) {
                let step = &self.steps[*at as usize];
                // A leaf looks at feature 0, if there is one, and passes whatever it is.
                let x = row[(step.feature & !MISSING) as usize].number();
                let missing = x.is_nan() & (step.feature & MISSING != 0);
                let mut passes = (x <= step.split) | missing;
                if !plain && let Some(other) = self.other_at(*at) {
                    let member = other.members.contains(&x);
                    passes = (member != other.negated) | missing;
                }
                *at = step.next + u32::from(!passes);
            }
        }
        at
    }

    fn other_at(&self, node: u32) -> Option<&Other<N>> {
        let at = self.others.binary_search_by_key(&node, |other| other.0).ok()?;
        Some(&self.others[at].1)
    }
}

#[cfg(test)]
mod tests;
