//! Support vector machines.

use super::ensemble::most;
use super::input::{Input, Matrix};
use super::labels::Labels;
use super::post::{Post, logistic};
use crate::ops::float::agree;
use crate::ops::{Cpu, cost};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, bytes, split};

/// How rows are compared with support vectors.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Linear,
    Poly,
    Rbf,
    Sigmoid,
}

/// A kernel function with its vectors.
struct Vectors {
    isa: Isa,
    kind: Kind,
    gamma: f64,
    shift: f64,
    degree: f64,
    /// Support vectors, or coefficients of linear models, one after the other.
    vectors: Vec<f32>,
    count: usize,
}

fn list(node: &NodeView<'_>, name: &str) -> Vec<f32> {
    node.long_floats(name).unwrap_or_default().into_owned()
}

fn wide(list: &[f32]) -> Vec<f64> {
    list.iter().map(|&x| x.into()).collect()
}

/// Refuses a list that is too short.
fn at_least(name: &str, have: usize, need: usize) -> Result<(), Reject> {
    match have >= need {
        true => Ok(()),
        false => Err(Reject::attribute(format!("attribute {name} has {have} elements, needed are {need}"))),
    }
}

impl Vectors {
    /// `count` vectors in the attribute `name`; without support vectors the kernel is linear.
    fn parse(node: &NodeView<'_>, name: &str, count: usize, linear: bool) -> Result<Vectors, Reject> {
        let kind = match node.text("kernel_type").unwrap_or("LINEAR") {
            _ if linear => Kind::Linear,
            "LINEAR" => Kind::Linear,
            "POLY" => Kind::Poly,
            "RBF" => Kind::Rbf,
            "SIGMOID" => Kind::Sigmoid,
            other => return Err(Reject::attribute(format!("attribute kernel_type = '{other}' is not known"))),
        };
        let vectors = list(node, name);
        if count == 0 || !vectors.len().is_multiple_of(count) {
            let len = vectors.len();
            return Err(Reject::attribute(format!("attribute {name} has {len} elements for {count} vectors")));
        }
        let params = wide(&list(node, "kernel_params"));
        let param = |k: usize| params.get(k).copied().unwrap_or(0.0);
        let isa = Cpu::of(node).isa;
        Ok(Vectors { isa, kind, gamma: param(0), shift: param(1), degree: param(2), vectors, count })
    }

    fn columns(&self) -> usize {
        self.vectors.len() / self.count
    }

    /// The kernel of a row and vector `at`.
    fn kernel<X: Input>(&self, at: usize, row: &[X]) -> f64 {
        let vector = &self.vectors[at * row.len()..(at + 1) * row.len()];
        let dot = || X::dot(self.isa, row, vector);
        match self.kind {
            Kind::Linear => dot(),
            Kind::Poly => (self.gamma * dot() + self.shift).powf(self.degree),
            Kind::Sigmoid => (self.gamma * dot() + self.shift).tanh(),
            Kind::Rbf => {
                let square = |(&x, &v): (&X, &f32)| (x.wide() - f64::from(v)).powi(2);
                (-self.gamma * row.iter().zip(vector).map(square).sum::<f64>()).exp()
            }
        }
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        *bound = Matrix::of(shapes.input(0))?;
        match bound.columns == self.columns() {
            true => Ok(()),
            false => Err(Fault::data(format!("X has {} columns, vectors have {}", bound.columns, self.columns()))),
        }
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let x = node.input(0).map_or(f64::NAN, |x| x.elements());
        Cost::ns(cost::moving(node).ns + x * self.count as f64)
    }
}

/// `SVMRegressor`
pub(super) struct Regressor {
    vectors: Vectors,
    /// Of each support vector; empty if the model is linear.
    coefficients: Vec<f64>,
    rho: f64,
    one_class: bool,
    post: Post,
}

impl Op for Regressor {
    type Bound = Matrix;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let supports = node.int("n_supports")?;
        let supports = usize::try_from(supports)
            .map_err(|_| Reject::attribute(format!("attribute n_supports = {supports} is negative")))?;
        let (vectors, coefficients) = match supports {
            0 => (Vectors::parse(node, "coefficients", 1, true)?, Vec::new()),
            _ => {
                let coefficients = wide(&list(node, "coefficients"));
                at_least("coefficients", coefficients.len(), supports)?;
                (Vectors::parse(node, "support_vectors", supports, false)?, coefficients)
            }
        };
        let rho = list(node, "rho");
        at_least("rho", rho.len(), 1)?;
        let one_class = node.int("one_class")? != 0;
        Ok(Regressor { vectors, coefficients, rho: rho[0].into(), one_class, post: Post::parse(node)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.vectors.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        self.vectors.bind(shapes, bound)?;
        agree("Y", shapes.output_len(0), bound.rows)
    }
}

/// Elements of vectors that are worth a thread.
const ELEMENTS: usize = 1 << 14;

pub(super) fn regress<X: Input>(op: &Regressor, bound: &Matrix, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y, columns) = (args.input::<X>(0), args.output::<f32>(0), bound.columns);
    let grain = ELEMENTS.div_ceil(op.vectors.vectors.len().max(1));
    split::rows(args.par(), y, 1, grain, |_, first, piece| {
        for (k, to) in piece.iter_mut().enumerate() {
            let row = &x[(first + k) * columns..(first + k + 1) * columns];
            let sum = match op.coefficients[..] {
                [] => op.vectors.kernel(0, row),
                ref all => {
                    all.iter().take(op.vectors.count).enumerate().map(|(j, c)| c * op.vectors.kernel(j, row)).sum()
                }
            };
            let mut score = [sum + op.rho];
            if op.one_class {
                score[0] = if score[0] > 0.0 { 1.0 } else { -1.0 };
            } else {
                op.post.apply(&mut score);
            }
            *to = score[0] as f32; // rounds to the nearest
        }
    })?;
    Ok(())
}

/// `SVMClassifier`
pub(super) struct Classifier {
    vectors: Vectors,
    /// Rows of as many as there are support vectors; empty if the model is linear.
    coefficients: Vec<f64>,
    rho: Vec<f64>,
    /// First support vector of each class, and the end of all.
    starts: Vec<usize>,
    /// Parameters that make probabilities of the scores of pairs.
    sigmoids: Vec<(f64, f64)>,
    labels: Labels,
    post: Post,
}

impl Op for Classifier {
    type Bound = Matrix;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let labels = Labels::parse(node, "classlabels_ints", "classlabels_strings");
        let classes = labels.len().max(1);
        let pairs = classes * (classes - 1) / 2;
        let mut starts = vec![0usize];
        for &count in node.long_ints("vectors_per_class").unwrap_or_default().iter() {
            let count = usize::try_from(count)
                .map_err(|_| Reject::attribute(format!("attribute vectors_per_class has {count}")))?;
            starts.push(starts[starts.len() - 1].saturating_add(count));
        }
        let (rho, supports) = (wide(&list(node, "rho")), starts[starts.len() - 1]);
        let linear = supports == 0;
        if !linear && classes < 2 {
            return Err(Reject::attribute(format!("there are {classes} class labels, pairs of classes need two")));
        }
        let (vectors, coefficients) = match linear {
            true => (Vectors::parse(node, "coefficients", classes, true)?, Vec::new()),
            false => {
                let coefficients = wide(&list(node, "coefficients"));
                at_least("coefficients", coefficients.len(), supports.saturating_mul(classes - 1))?;
                at_least("vectors_per_class", starts.len() - 1, classes)?;
                (Vectors::parse(node, "support_vectors", supports, false)?, coefficients)
            }
        };
        at_least("rho", rho.len(), if linear { 1 } else { pairs })?;
        let [a, b] = ["prob_a", "prob_b"].map(|name| wide(&list(node, name)));
        if !a.is_empty() && !linear {
            at_least("prob_a", a.len(), pairs)?;
            at_least("prob_b", b.len(), pairs)?;
        }
        let sigmoids = if linear { Vec::new() } else { a.into_iter().zip(b).collect() };
        Ok(Classifier { vectors, coefficients, rho, starts, sigmoids, labels, post: Post::parse(node)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.vectors.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        self.vectors.bind(shapes, bound)?;
        for (j, name, need) in [(0, "Y", bound.rows), (1, "Z", bound.rows * self.columns())] {
            if !shapes.output(j).is_empty() {
                agree(name, shapes.output_len(j), need)?;
            }
        }
        Ok(())
    }

    /// Classes of all rows, then kernels, scores, votes, and matrices of pairs of one.
    fn scratch(&self, bound: &Matrix, _: usize) -> usize {
        let classes = self.classes();
        let values = bound.rows.div_ceil(2)
            + self.vectors.count
            + self.scores().max(2)
            + classes
            + 2 * classes * classes
            + 2 * classes;
        values.saturating_mul(size_of::<f64>())
    }
}

impl Classifier {
    fn classes(&self) -> usize {
        self.labels.len().max(1)
    }

    fn is_linear(&self) -> bool {
        self.coefficients.is_empty()
    }

    /// Scores before the last function.
    fn scores(&self) -> usize {
        let classes = self.classes();
        if self.is_linear() { classes } else { (classes * (classes - 1) / 2).max(1) }
    }

    /// Columns of Z.
    fn columns(&self) -> usize {
        match self.scores() {
            _ if !self.sigmoids.is_empty() => self.classes(),
            1 if self.classes() == 2 => 2,
            n => n,
        }
    }

    /// Votes of each pair of classes, and the pairs' scores.
    fn vote(&self, kernels: &[f64], scores: &mut [f64], votes: &mut [f64]) {
        let (supports, mut pair) = (self.vectors.count, 0);
        votes.fill(0.0);
        let part = |row: usize, of: usize| {
            let range = self.starts[of]..self.starts[of + 1];
            let weights = &self.coefficients[row * supports..][..supports];
            range.map(|k| weights[k] * kernels[k]).sum::<f64>()
        };
        for i in 0..votes.len() {
            for j in i + 1..votes.len() {
                scores[pair] = self.rho[pair] + part(j - 1, i) + part(i, j);
                votes[if scores[pair] > 0.0 { i } else { j }] += 1.0;
                pair += 1;
            }
        }
    }

    /// Probabilities of classes from those of pairs.
    fn probabilities(&self, scores: &[f64], room: &mut [f64], to: &mut [f64]) {
        let n = to.len();
        let (pairs, rest) = room.split_at_mut(n * n);
        let mut pair = 0;
        for i in 0..n {
            for j in i + 1..n {
                let (a, b) = self.sigmoids[pair];
                let p = (1.0 - logistic(scores[pair] * a + b)).clamp(1e-7, 1.0 - 1e-7);
                (pairs[i * n + j], pairs[j * n + i]) = (p, 1.0 - p);
                pair += 1;
            }
        }
        couple(pairs, rest, to);
    }
}

/// Class probabilities that fit those of pairs best: T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability estimates for multi-class
/// classification by pairwise coupling", 2004, their second method.
fn couple(pairs: &[f64], room: &mut [f64], p: &mut [f64]) {
    let n = p.len();
    let (q, qp) = room.split_at_mut(n * n);
    for t in 0..n {
        let others = || (0..n).filter(|&j| j != t);
        q[t * n + t] = others().map(|j| pairs[j * n + t].powi(2)).sum();
        others().for_each(|j| q[t * n + j] = -pairs[j * n + t] * pairs[t * n + j]);
    }
    p.fill(1.0 / n as f64);
    for _ in 0..n.max(100) {
        (0..n).for_each(|t| qp[t] = (0..n).map(|j| q[t * n + j] * p[j]).sum());
        let mut total: f64 = (0..n).map(|t| p[t] * qp[t]).sum();
        let error = (0..n).map(|t| (qp[t] - total).abs()).fold(0.0, f64::max);
        if error < 0.005 / n as f64 {
            break;
        }
        for t in 0..n {
            let step = (total - qp[t]) / q[t * n + t];
            p[t] += step;
            total = (total + step * (step * q[t * n + t] + 2.0 * qp[t])) / (1.0 + step).powi(2);
            for j in 0..n {
                qp[j] = (qp[j] + step * q[t * n + j]) / (1.0 + step);
                p[j] /= 1.0 + step;
            }
        }
    }
}

pub(super) fn classify<X: Input>(op: &Classifier, bound: &Matrix, args: &mut Args<'_>) -> Result<(), Fault> {
    let x = args.input::<X>(0);
    let mut z = args.wants(1).then(|| args.output::<f32>(1));
    let (found, room) = args.scratch::<f64>().split_at_mut(bound.rows.div_ceil(2));
    let found = &mut bytes::elements_mut::<u32>(bytes::of_mut(found))[..bound.rows];
    let (kernels, room) = room.split_at_mut(op.vectors.count);
    let (scores, room) = room.split_at_mut(op.scores().max(2));
    let (votes, room) = room.split_at_mut(op.classes());
    let (last, room) = room.split_at_mut(op.classes());
    for (at, class) in found.iter_mut().enumerate() {
        let row = &x[at * bound.columns..(at + 1) * bound.columns];
        kernels.iter_mut().enumerate().for_each(|(k, to)| *to = op.vectors.kernel(k, row));
        let out: &mut [f64] = if op.is_linear() {
            scores.iter_mut().zip(&*kernels).for_each(|(to, k)| *to = k + op.rho[0]);
            let scores = &mut scores[..op.scores()];
            *class = most(scores);
            scores
        } else {
            op.vote(kernels, scores, votes);
            *class = most(votes);
            if op.sigmoids.is_empty() {
                if op.columns() == 2 && op.scores() == 1 {
                    (scores[0], scores[1]) = (-scores[0], scores[0]);
                }
                &mut scores[..op.columns()]
            } else {
                op.probabilities(scores, room, last);
                &mut *last
            }
        };
        op.post.apply(out);
        if let Some(z) = &mut z {
            let to = &mut z[at * out.len()..(at + 1) * out.len()];
            to.iter_mut().zip(out.iter()).for_each(|(to, &x)| *to = x as f32); // rounds to the nearest
        }
    }
    if args.wants(0) { op.labels.write(args, 0, found) } else { Ok(()) }
}
