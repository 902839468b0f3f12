//! Losses: the negative logarithm of what belongs to each label, weighted, and their sum or mean.
//!
//! Labels that are ignored weigh nothing. Sums run over rows of fixed length, one after the other, so that they lose little
//! and are the same for any number of threads.

use super::{Along, Rows, spread};
use crate::ops::float::agree;
use crate::ops::lane::{Number, Real, Signed};
use crate::ops::value::Value;
use crate::ops::{Cpu, cost, ints};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Reject, Shapes, size};

/// Labels that are summed at a time.
const ROW: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    None,
    Sum,
    Mean,
}

/// What both losses share.
pub(super) struct Loss {
    reduction: Reduction,
    ignored: Option<i64>,
    labels: DType,
}

/// Scores are `batch` blocks of `classes` rows of `inner` elements; labels are `batch` rows.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Bound {
    classes: usize,
    inner: usize,
    labels: usize,
}

impl Op for Loss {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (scores, labels) = (node.needs(0)?, node.needs(1)?);
        if scores.rank() < 2 || labels.rank() + 1 != scores.rank() {
            let ranks = [scores.rank(), labels.rank()];
            return Err(Reject::rank(format!(
                "scores and labels have ranks {ranks:?}: labels lack the axis of classes"
            )));
        }
        let reduction = match node.text("reduction").unwrap_or("mean") {
            "none" => Reduction::None,
            "sum" => Reduction::Sum,
            "mean" => Reduction::Mean,
            other => return Err(Reject::attribute(format!("attribute reduction = {other} is not none, sum or mean"))),
        };
        Ok(Loss { reduction, ignored: node.int_if("ignore_index"), labels: labels.dtype() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let &[batch, classes, ref inner @ ..] = shapes.input(0) else {
            return Err(Fault::data("input 0 has no axis of classes"));
        };
        let inner = inner.iter().map(|&d| size(d)).product();
        *bound = Bound { classes: size(classes), inner, labels: size(batch) * inner };
        agree("input 1 (the labels)", shapes.input_len(1), bound.labels)?;
        if shapes.has(2) {
            agree("input 2 (the weights)", shapes.input_len(2), bound.classes)?;
        }
        let wanted = if self.reduction == Reduction::None { bound.labels } else { 1 };
        agree("output 0", shapes.output_len(0), wanted)
    }
}

pub(super) fn likelihood<T>(op: &Loss, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault>
where
    T: Value<Wide: Real>,
{
    let scores = args.input::<T>(0);
    op.reduce(bound, scores, args)
}

impl Loss {
    fn reduce<T>(&self, bound: &Bound, scores: &[T], args: &mut Args<'_>) -> Result<(), Fault>
    where
        T: Value<Wide: Real>,
    {
        let labels = ints::list(args, 1, self.labels);
        let weights = args.input_if::<T>(2);
        let y = args.output::<T>(0);
        // Loss and weight of a label.
        let one = |at: usize| -> Result<[T::Wide; 2], Fault> {
            let label = labels.at(at);
            if self.ignored == Some(label) {
                return Ok([T::Wide::default(); 2]);
            }
            let class = usize::try_from(label).ok().filter(|&class| class < bound.classes).ok_or_else(|| {
                Fault::data(format!("input 1 (the labels) holds {label} at {at}, there are {} classes", bound.classes))
            })?;
            let (block, place) = (at / bound.inner, at % bound.inner);
            let score = scores[(block * bound.classes + class) * bound.inner + place].wide();
            let weight = weights.map_or(T::Wide::of(1.0), |w| w[class].wide());
            Ok([score.negate().times(weight), weight])
        };
        if self.reduction == Reduction::None {
            for (at, y) in y.iter_mut().enumerate() {
                *y = T::of(one(at)?[0]);
            }
            return Ok(());
        }
        let plus = |a: [T::Wide; 2], b: [T::Wide; 2]| [a[0].plus(b[0]), a[1].plus(b[1])];
        let mut all = [T::Wide::default(); 2];
        for first in (0..bound.labels).step_by(ROW) {
            let mut row = [T::Wide::default(); 2];
            for at in first..bound.labels.min(first + ROW) {
                row = plus(row, one(at)?);
            }
            all = plus(all, row);
        }
        y[0] = T::of(if self.reduction == Reduction::Mean { all[0].over(all[1]) } else { all[0] });
        Ok(())
    }
}

/// The loss of logarithms of a softmax over the classes, which are output 1 if somebody wants them.
pub(super) struct CrossEntropy {
    isa: Isa,
    loss: Loss,
    shown: bool,
    /// Bytes of an element that is computed with.
    bytes: usize,
}

impl Op for CrossEntropy {
    type Bound = (Bound, Along);

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let bytes = node.needs(0)?.dtype().bits().max(32) / 8;
        Ok(CrossEntropy { isa: Cpu::of(node).isa, loss: Loss::parse(node)?, shown: node.output(1).is_some(), bytes })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let scores = node.input(0).map_or(f64::NAN, |x| x.elements());
        Cost::ns(cost::moving(node).ns + scores * 0.3)
    }

    fn bind(&self, shapes: &Shapes<'_>, (bound, along): &mut (Bound, Along)) -> Result<(), Fault> {
        self.loss.bind(shapes, bound)?;
        *along = Along { len: bound.classes, inner: bound.inner };
        if self.shown { agree("output 1", shapes.output_len(1), shapes.input_len(0)) } else { Ok(()) }
    }

    fn scratch(&self, (bound, _): &(Bound, Along), _: usize) -> usize {
        let scores = bound.labels.saturating_mul(bound.classes).saturating_mul(self.bytes);
        if self.shown { 0 } else { scores }
    }
}

pub(super) fn cross_entropy<T>(
    op: &CrossEntropy,
    (bound, along): &(Bound, Along),
    args: &mut Args<'_>,
) -> Result<(), Fault>
where
    T: Rows + Value<Wide: Real>,
{
    let count = bound.labels * bound.classes;
    let logs = if op.shown { args.output::<T>(1) } else { &mut args.scratch::<T>()[..count] };
    spread(op.isa, true, along, Some(args.input::<T>(0)), logs, args.par())?;
    op.loss.reduce(bound, logs, args)
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{OpTest, Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    const DIMS: &[&[i64]] = &[&[1, 1], &[3, 5], &[7, 4, 3], &[2, 5, 3, 70], &[600, 2], &[0, 3]];

    fn labels(dims: &[i64]) -> Tensor {
        let rest: Vec<i64> = dims.iter().enumerate().filter(|&(axis, _)| axis != 1).map(|(_, &d)| d).collect();
        Tensor::from_fn(&rest, |k| (k as i64 * 7 + 1) % dims[1])
    }

    /// Losses and weights of all labels, from logarithms.
    fn naive(logs: &[f64], dims: &[i64], ignored: Option<i64>, weights: Option<&[f32]>) -> (Vec<f64>, f64) {
        let (classes, inner) = (dims[1] as usize, dims[2..].iter().product::<i64>() as usize);
        let (mut all, mut sum) = (Vec::new(), 0.0);
        for (at, label) in labels(dims).to_vec::<i64>().into_iter().enumerate() {
            let weight = weights.map_or(1.0, |w| f64::from(w[label as usize]));
            let weight = if ignored == Some(label) { 0.0 } else { weight };
            all.push(-logs[(at / inner * classes + label as usize) * inner + at % inner] * weight);
            sum += weight;
        }
        (all, sum)
    }

    fn check(op: &str, version: u32, dims: &[i64], x: &Tensor, logs: &[f64]) {
        let weights = Tensor::from_fn(&dims[1..2], |k| k as f32 * 0.5 + 0.25);
        for (reduction, ignored, weighted) in
            [("none", None, true), ("sum", Some(1), false), ("mean", None, false), ("mean", Some(1), true)]
        {
            let own = weights.to_vec::<f32>();
            let (all, sum) = naive(logs, dims, ignored, weighted.then_some(&*own));
            let total: f64 = all.iter().sum();
            let want = match reduction {
                "none" => Tensor::new(&labels(dims).dims, &all.iter().map(|&x| x as f32).collect::<Vec<_>>()),
                "sum" => Tensor::new(&[], &[total as f32]),
                _ => Tensor::new(&[], &[(total / sum) as f32]),
            };
            on_all(op, version, |case: OpTest| {
                let case = case.text("reduction", reduction).input(x).input(&labels(dims));
                let case = if let Some(n) = ignored { case.int("ignore_index", n) } else { case };
                let case = if weighted { case.input(&weights) } else { case };
                assert_close(&case.output(DType::F32, &want.dims).run()[0], &want, 1e-5);
            });
        }
    }

    fn log_softmax(x: &[f64], dims: &[i64]) -> Vec<f64> {
        let (classes, inner) = (dims[1] as usize, dims[2..].iter().product::<i64>() as usize);
        let lane = |at: usize| (at / (classes * inner), at % inner);
        (0..x.len())
            .map(|at| {
                let (block, place) = lane(at);
                let sum: f64 = (0..classes).map(|c| x[(block * classes + c) * inner + place].exp()).sum();
                x[at] - sum.ln()
            })
            .collect()
    }

    #[test]
    fn like_the_definition() {
        for &dims in DIMS {
            let x = Tensor::random(dims, 3);
            let exact: Vec<f64> = x.to_vec::<f32>().into_iter().map(f64::from).collect();
            check("NegativeLogLikelihoodLoss", 22, dims, &x, &exact);
            let logs = log_softmax(&exact, dims);
            check("SoftmaxCrossEntropyLoss", 13, dims, &x, &logs);
            let narrow: Vec<f32> = logs.iter().map(|&y| y as f32).collect();
            on_all("SoftmaxCrossEntropyLoss", 13, |case| {
                let case = case.text("reduction", "sum").input(&x).input(&labels(dims)).output(DType::F32, &[]);
                assert_close(&case.output(DType::F32, dims).run()[1], &Tensor::new(dims, &narrow), 1e-5);
            });
        }
    }

    #[test]
    fn other_floats_and_labels() {
        let x: Vec<f32> = Tensor::random(&[4, 3], 5).to_vec();
        let places = Tensor::new(&[4], &[2i32, 0, 1, 1]);
        let halves = Tensor::new(&[4, 3], &x.iter().map(|&x| F16::round(x)).collect::<Vec<_>>());
        let doubles = Tensor::new(&[4, 3], &x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
        for (op, version) in [("NegativeLogLikelihoodLoss", 22), ("SoftmaxCrossEntropyLoss", 13)] {
            let case = |x: &Tensor| Case::new(op, version).text("reduction", "mean").input(x).input(&places);
            let want = case(&doubles).output(DType::F64, &[]).run()[0].to_vec::<f64>()[0];
            let got = case(&halves).output(DType::F16, &[]).run()[0].to_vec::<F16>()[0].wide();
            assert!((f64::from(got) - want).abs() < 2e-3, "{op}: {got} {want}");
        }
    }

    #[test]
    fn labels_outside_of_the_classes_are_faults() {
        let (x, bad) = (Tensor::random(&[2, 3], 1), Tensor::new(&[2], &[0i64, 3]));
        let node = |bad: &Tensor| Case::new("NegativeLogLikelihoodLoss", 22).input(&x).input(bad);
        let error = node(&bad).text("reduction", "sum").output(DType::F32, &[]).try_run().unwrap_err();
        assert!(error.contains("input 1 (the labels) holds 3 at 1, there are 3 classes"), "{error}");
        let (code, text) = node(&bad).text("reduction", "max").output(DType::F32, &[]).rejection();
        assert_eq!((code, text.contains("reduction = max")), (RejectCode::Attribute, true), "{text}");
    }
}
