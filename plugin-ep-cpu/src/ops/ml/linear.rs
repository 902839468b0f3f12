//! Linear models: a score is a product of a row with coefficients, and an intercept.

use super::ensemble::most;
use super::input::{Input, Matrix};
use super::labels::{Labels, NO_CLASS};
use super::post::Post;
use crate::ops::float::agree;
use crate::ops::{Cpu, cost};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, bytes, split};

/// Coefficients of each target, one after the other.
struct Linear {
    isa: Isa,
    coefficients: Vec<f32>,
    intercepts: Vec<f32>,
    targets: usize,
    post: Post,
}

impl Linear {
    fn parse(node: &NodeView<'_>, targets: usize) -> Result<Linear, Reject> {
        let list = |name| node.long_floats(name).unwrap_or_default().into_owned();
        let (coefficients, intercepts) = (list("coefficients"), list("intercepts"));
        if targets == 0 || !coefficients.len().is_multiple_of(targets) {
            let count = coefficients.len();
            return Err(Reject::attribute(format!(
                "attribute coefficients has {count} elements for {targets} targets"
            )));
        }
        if !intercepts.is_empty() && intercepts.len() != targets {
            let count = intercepts.len();
            return Err(Reject::attribute(format!("attribute intercepts has {count} elements for {targets} targets")));
        }
        Ok(Linear { isa: Cpu::of(node).isa, coefficients, intercepts, targets, post: Post::parse(node)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::products(node, node.input(0).map_or(f64::NAN, |x| x.elements()) * self.targets as f64)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        *bound = Matrix::of(shapes.input(0))?;
        let need = self.coefficients.len() / self.targets;
        // There are models with more than they use; ONNX Runtime reads as many as rows have columns, and so is it done here.
        match bound.columns <= need {
            true => Ok(()),
            false => Err(Fault::data(format!("X has {} columns, there are coefficients for {need}", bound.columns))),
        }
    }

    fn score<X: Input>(&self, target: usize, row: &[X]) -> f64 {
        let coefficients = &self.coefficients[target * row.len()..(target + 1) * row.len()];
        X::dot(self.isa, row, coefficients) + self.intercepts.get(target).map_or(0.0, |&x| x.into())
    }
}

/// `LinearRegressor`.
pub(super) struct Regressor(Linear);

impl Op for Regressor {
    type Bound = Matrix;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let targets = node.int("targets")?;
        let positive = usize::try_from(targets).ok().filter(|&n| n > 0);
        let positive =
            positive.ok_or_else(|| Reject::attribute(format!("attribute targets = {targets} is not positive")))?;
        Ok(Regressor(Linear::parse(node, positive)?))
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.0.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        self.0.bind(shapes, bound)?;
        agree("Y", shapes.output_len(0), bound.rows * self.0.targets)
    }

    /// Scores of a row for each worker.
    fn scratch(&self, _: &Matrix, width: usize) -> usize {
        self.0.targets.saturating_mul(width).saturating_mul(size_of::<f64>())
    }
}

/// Multiply-adds that are worth a thread.
const PRODUCTS: usize = 1 << 15;

pub(super) fn regress<X: Input>(op: &Regressor, bound: &Matrix, args: &mut Args<'_>) -> Result<(), Fault> {
    let (Linear { targets, post, .. }, linear) = (&op.0, &op.0);
    let (x, y, columns) = (args.input::<X>(0), args.output::<f32>(0), bound.columns);
    let grain = PRODUCTS.div_ceil((columns * targets).max(1));
    split::rows(args.par(), y, *targets, grain, |_, first, piece| {
        for (k, to) in piece.chunks_exact_mut(*targets).enumerate() {
            let row = &x[(first + k) * columns..(first + k + 1) * columns];
            for (target, to) in to.iter_mut().enumerate() {
                *to = linear.score(target, row) as f32; // rounds to the nearest
            }
            finish(*post, to);
        }
    })?;
    Ok(())
}

/// Applies the last function to a row, on the stack while it is short.
fn finish(post: Post, to: &mut [f32]) {
    if post == Post::None {
        return;
    }
    let mut wide: smallvec::SmallVec<[f64; 32]> = to.iter().map(|&x| x.into()).collect();
    post.apply(&mut wide);
    to.iter_mut().zip(&wide).for_each(|(to, &x)| *to = x as f32); // rounds to the nearest
}

/// `LinearClassifier`.
pub(super) struct Classifier {
    linear: Linear,
    labels: Labels,
}

impl Op for Classifier {
    type Bound = Matrix;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let labels = Labels::parse(node, "classlabels_ints", "classlabels_strings");
        // Two classes can be told apart by one score.
        let scores = node.long_floats("intercepts").map_or(labels.len(), |x| x.len());
        let targets = if scores == 1 && labels.len() <= 2 { 1 } else { labels.len() };
        Ok(Classifier { linear: Linear::parse(node, targets)?, labels })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.linear.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        self.linear.bind(shapes, bound)?;
        for (j, name, need) in [(0, "Y", bound.rows), (1, "Z", bound.rows * self.labels.len())] {
            if !shapes.output(j).is_empty() {
                agree(name, shapes.output_len(j), need)?;
            }
        }
        Ok(())
    }

    /// Scores of a row, and classes of all.
    fn scratch(&self, bound: &Matrix, _: usize) -> usize {
        let classes = bound.rows.div_ceil(2);
        self.labels.len().saturating_add(classes).saturating_mul(size_of::<f64>())
    }
}

impl Classifier {
    /// The class of a row; its scores are finished.
    fn decide(&self, scores: &mut [f64]) -> u32 {
        let post = self.linear.post;
        if self.linear.targets > 1 {
            let class = most(scores);
            post.apply(scores);
            return class;
        }
        let score = scores[0];
        let [first, second] = scores else {
            post.apply(scores);
            return if score > 0.0 { 0 } else { NO_CLASS };
        };
        match post {
            Post::Logistic => {
                (*first, *second) = (-score, score);
                post.apply(scores);
            }
            _ => (*first, *second) = (1.0 - score, score),
        }
        u32::from(score > 0.0)
    }
}

pub(super) fn classify<X: Input>(op: &Classifier, bound: &Matrix, args: &mut Args<'_>) -> Result<(), Fault> {
    let x = args.input::<X>(0);
    let mut z = args.wants(1).then(|| args.output::<f32>(1));
    let (scores, classes) = args.scratch::<f64>().split_at_mut(op.labels.len());
    let classes = &mut bytes::elements_mut::<u32>(bytes::of_mut(classes))[..bound.rows];
    for (at, class) in classes.iter_mut().enumerate() {
        let row = &x[at * bound.columns..(at + 1) * bound.columns];
        for (target, score) in scores.iter_mut().enumerate().take(op.linear.targets) {
            *score = op.linear.score(target, row);
        }
        *class = op.decide(scores);
        if let Some(z) = &mut z {
            let to = &mut z[at * scores.len()..(at + 1) * scores.len()];
            to.iter_mut().zip(scores.iter()).for_each(|(to, &x)| *to = x as f32); // rounds to the nearest
        }
    }
    if args.wants(0) { op.labels.write(args, 0, classes) } else { Ok(()) }
}
