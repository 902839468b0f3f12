//! Ensembles of decision trees: `TreeEnsemble` and its two predecessors.
//!
//! Rows are taken in groups and trees in blocks, whose sums are added in order: results do not depend on threads.

use super::labels::{Labels, NO_CLASS};
use super::model::{Model, Weight};
use super::post::Post;
use super::tree::{Broken, Feature, Forest, LANES};
use crate::ops::cost;
use crate::ops::float::{Float, FloatsMut, agree};
use core::ops::Range;
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Reject, Shapes, size, split};

/// How scores of trees become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Average,
    Min,
    Max,
}

const AGGREGATES: [(&str, Aggregate); 4] =
    [("AVERAGE", Aggregate::Average), ("SUM", Aggregate::Sum), ("MIN", Aggregate::Min), ("MAX", Aggregate::Max)];

/// Trees in the precision of the input.
#[derive(Debug)]
enum Trees {
    F32(Forest<f32>),
    F64(Forest<f64>),
}

/// Trees with what their leaves add.
#[derive(Debug)]
struct Scorer {
    trees: Trees,
    leaves: Vec<Range<usize>>,
    weights: Vec<Weight>,
    targets: usize,
    aggregate: Aggregate,
    /// What every score begins with: nothing, one for all, or one for each target.
    base: Vec<f64>,
}

/// Rows of X, and how they are cut.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Rows {
    rows: usize,
    columns: usize,
    blocks: usize,
    /// Groups of rows that are scored before scores are finished.
    groups: usize,
}

/// Trees of a block.
const BLOCK: usize = 64;
/// Scores that are held at once.
const HELD: usize = 1 << 18;
/// Walks that are worth a thread.
const WALKS: usize = 1 << 10;

impl Scorer {
    fn new(
        node: &NodeView<'_>,
        model: Model,
        targets: usize,
        aggregate: Aggregate,
        base: Vec<f64>,
    ) -> Result<Scorer, Reject> {
        let Model { nodes, roots, leaves, weights } = model;
        let broken = |broken: Broken| Reject::attribute(format!("the trees are broken: {broken}"));
        let double = node.needs(0)?.dtype() as u32 == DType::F64 as u32;
        let trees = match double {
            true => Trees::F64(Forest::new(&nodes, &roots, leaves.len()).map_err(broken)?),
            false => Trees::F32(Forest::new(&nodes, &roots, leaves.len()).map_err(broken)?),
        };
        if base.len() > 1 && base.len() != targets {
            return Err(Reject::attribute(format!("attribute base_values has {} elements, not {targets}", base.len())));
        }
        Ok(Scorer { trees, leaves, weights, targets, aggregate, base })
    }

    fn count(&self) -> usize {
        match &self.trees {
            Trees::F32(forest) => forest.len(),
            Trees::F64(forest) => forest.len(),
        }
    }

    fn features(&self) -> usize {
        match &self.trees {
            Trees::F32(forest) => forest.features(),
            Trees::F64(forest) => forest.features(),
        }
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let rows = node.input(0).and_then(|x| x.dim(0)).map_or(f64::NAN, |n| n as f64);
        Cost::ns(cost::moving(node).ns + rows * self.count() as f64 * 10.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Rows) -> Result<(), Fault> {
        let (rows, columns) = match *shapes.input(0) {
            [columns] => (1, size(columns)),
            [rows, columns] => (size(rows), size(columns)),
            ref other => return Err(Fault::data(format!("X has dimensions {other:?}, rows and columns are needed"))),
        };
        if rows > 0 && columns < self.features() {
            let last = self.features() - 1;
            return Err(Fault::data(format!("the trees ask for feature {last}, X has {columns} columns")));
        }
        let blocks = self.count().div_ceil(BLOCK).max(1);
        let each = (blocks * self.targets * LANES).max(1);
        *bound = Rows { rows, columns, blocks, groups: (HELD / each).clamp(1, rows.div_ceil(LANES).max(1)) };
        Ok(())
    }

    /// Scores of groups and blocks, and those of one row.
    fn scratch(&self, bound: &Rows) -> usize {
        let held = bound.groups.saturating_mul(bound.blocks).saturating_mul(LANES).saturating_mul(self.targets);
        held.saturating_add(self.targets).saturating_mul(size_of::<f64>())
    }

    /// Calls `finish(row, scores)` for each row in order.
    fn run<X: Feature<f32> + Feature<f64>>(
        &self,
        rows: &Rows,
        x: &[X],
        scratch: &mut [f64],
        par: &dyn Parallel,
        mut finish: impl FnMut(usize, &mut [f64]),
    ) -> Result<(), Fault> {
        let &Rows { rows: count, columns, blocks, groups } = rows;
        let (line, held) = scratch.split_at_mut(self.targets);
        let cell = LANES * self.targets;
        let row = |at: usize| &x[at * columns..(at + 1) * columns];
        for start in (0..count).step_by(groups * LANES) {
            let end = (start + groups * LANES).min(count);
            let tasks = (end - start).div_ceil(LANES) * blocks;
            let walks = (end - start).min(LANES) * self.count().min(BLOCK);
            split::rows(par, &mut held[..tasks * cell], cell, WALKS.div_ceil(walks.max(1)), |_, first, piece| {
                for (k, cell) in piece.chunks_exact_mut(cell.max(1)).enumerate() {
                    let (group, block) = ((first + k) / blocks, (first + k) % blocks);
                    let from = start + group * LANES;
                    let some: [&[X]; LANES] = core::array::from_fn(|i| row((from + i).min(end - 1)));
                    let trees = block * BLOCK..((block + 1) * BLOCK).min(self.count());
                    cell.fill(f64::NAN);
                    match &self.trees {
                        Trees::F32(forest) => self.block(forest, trees, &some[..(end - from).min(LANES)], cell),
                        Trees::F64(forest) => self.block(forest, trees, &some[..(end - from).min(LANES)], cell),
                    }
                }
            })?;
            for at in start..end {
                let (group, lane) = ((at - start) / LANES, (at - start) % LANES);
                line.fill(f64::NAN);
                for block in 0..blocks {
                    let part = &held[(group * blocks + block) * cell + lane * self.targets..][..self.targets];
                    line.iter_mut().zip(part).for_each(|(to, &x)| self.aggregate.add(to, x));
                }
                self.complete(line);
                finish(at, line);
            }
        }
        Ok(())
    }

    /// Some trees on up to eight rows.
    fn block<N: super::tree::Number, X: Feature<N>>(
        &self,
        forest: &Forest<N>,
        trees: Range<usize>,
        rows: &[&[X]],
        cell: &mut [f64],
    ) {
        let mut add = |lane: usize, leaf: usize| {
            for weight in &self.weights[self.leaves[leaf].clone()] {
                self.aggregate.add(&mut cell[lane * self.targets + weight.target], weight.value);
            }
        };
        if rows.len() >= LANES / 2 {
            return trees.into_iter().for_each(|tree| forest.rows(tree, rows, &mut add));
        }
        for (lane, row) in rows.iter().enumerate() {
            for at in trees.clone().step_by(LANES) {
                forest.trees(at..(at + LANES).min(trees.end), row, |leaf| add(lane, leaf));
            }
        }
    }

    /// Adds what every score begins with. A target that no tree spoke of has a score of 0.
    fn complete(&self, scores: &mut [f64]) {
        let trees = self.count() as f64;
        for (k, score) in scores.iter_mut().enumerate() {
            let sum = if score.is_nan() { 0.0 } else { *score };
            let sum = if self.aggregate == Aggregate::Average { sum / trees.max(1.0) } else { sum };
            let base = match self.base[..] {
                [] => 0.0,
                [one] if self.targets == 1 || k == 0 => one,
                [_] => 0.0,
                ref each => each[k],
            };
            *score = sum + base;
        }
    }
}

impl Aggregate {
    /// Adds a score to others; NaN stands for none.
    #[inline(always)]
    fn add(self, to: &mut f64, x: f64) {
        if x.is_nan() {
            return;
        }
        *to = match self {
            _ if to.is_nan() => x,
            Aggregate::Sum | Aggregate::Average => *to + x,
            Aggregate::Min => to.min(x),
            Aggregate::Max => to.max(x),
        };
    }
}

/// Scores of targets: `TreeEnsemble` and `TreeEnsembleRegressor`.
pub(super) struct Regressor {
    scorer: Scorer,
    post: Post,
    y: Float,
}

fn positive(name: &str, n: i64) -> Result<usize, Reject> {
    let n_ok = usize::try_from(n).ok().filter(|&n| n > 0);
    n_ok.ok_or_else(|| Reject::attribute(format!("attribute {name} = {n} is not positive")))
}

/// Numbers that scores begin with, in either type.
fn base(node: &NodeView<'_>) -> Result<Vec<f64>, Reject> {
    if let Some(value) = node.tensor("base_values_as_tensor") {
        let wide = || value.to_vec::<f32>().map(|x| x.into_iter().map(f64::from).collect());
        return value
            .to_vec()
            .or_else(wide)
            .ok_or_else(|| Reject::attribute("attribute base_values_as_tensor is no tensor of f32 or f64"));
    }
    Ok(node.long_floats("base_values").unwrap_or_default().iter().map(|&x| x.into()).collect())
}

impl Op for Regressor {
    type Bound = Rows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let targets = positive("n_targets", node.int_if("n_targets").unwrap_or(1))?;
        let y = Float::output(node, 0)?;
        if node.op() == "TreeEnsemble" {
            let number = node.int("aggregate_function")?;
            let aggregate = usize::try_from(number).ok().and_then(|k| AGGREGATES.get(k)).map(|(_, a)| *a);
            let aggregate = aggregate
                .ok_or_else(|| Reject::attribute(format!("attribute aggregate_function = {number} is not 0 to 3")))?;
            let scorer = Scorer::new(node, Model::of_ensemble(node, targets)?, targets, aggregate, Vec::new())?;
            return Ok(Regressor { scorer, post: Post::parse_number(node)?, y });
        }
        let name = node.text("aggregate_function").unwrap_or("SUM");
        let aggregate = AGGREGATES.iter().find(|(known, _)| *known == name).map(|(_, a)| *a);
        let aggregate = aggregate
            .ok_or_else(|| Reject::attribute(format!("attribute aggregate_function = '{name}' is not known")))?;
        let scorer = Scorer::new(node, Model::of_old(node, "target", targets)?, targets, aggregate, base(node)?)?;
        Ok(Regressor { scorer, post: Post::parse(node)?, y })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.scorer.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Rows) -> Result<(), Fault> {
        self.scorer.bind(shapes, bound)?;
        agree("output 0", shapes.output_len(0), bound.rows * self.scorer.targets)
    }

    fn scratch(&self, bound: &Rows, _: usize) -> usize {
        self.scorer.scratch(bound)
    }
}

pub(super) fn regress<X: Feature<f32> + Feature<f64>>(
    op: &Regressor,
    rows: &Rows,
    args: &mut Args<'_>,
) -> Result<(), Fault> {
    let (x, par) = (args.input::<X>(0), args.par());
    let mut y = FloatsMut::output(args, 0, op.y);
    let scratch = args.scratch::<f64>();
    op.scorer.run(rows, x, scratch, par, |row, scores| {
        op.post.apply(scores);
        scores.iter().enumerate().for_each(|(k, &score)| y.put(row * scores.len() + k, score));
    })
}

/// Labels and scores of classes.
pub(super) struct Classifier {
    scorer: Scorer,
    post: Post,
    labels: Labels,
    /// The one class that all leaves speak of.
    only: Option<usize>,
    /// No leaf takes anything away.
    positive: bool,
}

impl Op for Classifier {
    type Bound = Rows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let labels = Labels::parse(node, "classlabels_int64s", "classlabels_strings");
        let targets = positive("classlabels", i64::try_from(labels.len()).unwrap_or(i64::MAX))?;
        let model = Model::of_old(node, "class", targets)?;
        let first = model.weights.first().map(|w| w.target);
        let only = first.filter(|&first| model.weights.iter().all(|w| w.target == first));
        let positive = model.weights.iter().all(|w| w.value >= 0.0);
        let scorer = Scorer::new(node, model, targets, Aggregate::Sum, base(node)?)?;
        Ok(Classifier { scorer, post: Post::parse(node)?, labels, only, positive })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.scorer.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Rows) -> Result<(), Fault> {
        self.scorer.bind(shapes, bound)?;
        for (j, name, need) in [(0, "Y", bound.rows), (1, "Z", bound.rows * self.labels.len())] {
            if !shapes.output(j).is_empty() {
                agree(name, shapes.output_len(j), need)?;
            }
        }
        Ok(())
    }

    /// Classes of rows come first.
    fn scratch(&self, bound: &Rows, _: usize) -> usize {
        let classes = bound.rows.div_ceil(2).saturating_mul(size_of::<f64>());
        self.scorer.scratch(bound).saturating_add(classes)
    }
}

impl Classifier {
    /// The class of a row; its scores are finished.
    fn decide(&self, scores: &mut [f64]) -> u32 {
        let limit = if self.positive { 0.5 } else { 0.0 };
        let class = match (self.only, scores.len()) {
            // Two classes of which the leaves speak of one: its score decides.
            (Some(only), 2) => {
                let score = scores[only];
                if only == 0 {
                    let other = if self.positive { 1.0 - score } else { -score };
                    scores.copy_from_slice(&[other, score]);
                }
                if only == 0 && !matches!(self.post, Post::Logistic | Post::Probit) {
                    return u32::from(score > limit);
                }
                if only == 0 && self.post == Post::Logistic {
                    scores.copy_from_slice(&[-score, score]);
                }
                u32::from(score > limit)
            }
            (_, 1) => {
                if scores[0] > limit {
                    0
                } else {
                    NO_CLASS
                }
            }
            _ => most(scores),
        };
        self.post.apply(scores);
        class
    }
}

/// The first of the greatest scores.
pub(super) fn most(scores: &[f64]) -> u32 {
    let better = |best: (u32, f64), (k, &x): (u32, &f64)| if x > best.1 { (k, x) } else { best };
    (0..).zip(scores).fold((0, f64::NEG_INFINITY), better).0
}

pub(super) fn classify<X: Feature<f32> + Feature<f64>>(
    op: &Classifier,
    rows: &Rows,
    args: &mut Args<'_>,
) -> Result<(), Fault> {
    let (x, par) = (args.input::<X>(0), args.par());
    let mut z = args.wants(1).then(|| args.output::<f32>(1));
    let (classes, scratch) = args.scratch::<f64>().split_at_mut(rows.rows.div_ceil(2));
    let classes: &mut [u32] = ortolan_ep_kit::bytes::elements_mut(ortolan_ep_kit::bytes::of_mut(classes));
    op.scorer.run(rows, x, scratch, par, |row, scores| {
        classes[row] = op.decide(scores);
        if let Some(z) = &mut z {
            for (to, &score) in z[row * scores.len()..].iter_mut().zip(scores.iter()) {
                *to = score as f32; // rounds to the nearest
            }
        }
    })?;
    if args.wants(0) { op.labels.write(args, 0, &classes[..rows.rows]) } else { Ok(()) }
}
