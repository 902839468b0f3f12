//! Products and convolutions with what follows them: `FusedMatMul` with operands turned and a factor, `FusedGemm` and
//! `FusedConv` with an activation.

use crate::gemm::{self, Activation, Batch, Epilogue, Lhs, Mat, MatMut, Nest, Rhs};
use crate::ops::conv::{Bound as ConvBound, Conv, conv};
use crate::ops::lane::Number;
use crate::ops::matmul::{Gemm, GemmBound, Right, SLOWER, Strided, gemm_into, product};
use crate::ops::unary::vectors::{Elu, Selu, Softplus, Softsign, Thresholded};
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa};
use ortolan_ep_kit::{
    Args, Cost, Fault, NodeView, Op, Pack, Parallel, Reject, Shapes, Weight, WeightSource, count, size, split,
};
use smallvec::SmallVec;

/// `Y = alpha op(A) op(B)` over batches.
pub(super) struct FusedMatMul {
    isa: Isa,
    alpha: f32,
    sides: [Turn; 2],
    right: Option<Right>,
}

/// How a side is turned.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// The last two axes change places.
    last: bool,
    /// The first axis moves behind the others of the batch, before that.
    batch: bool,
}

/// An axis of the batch: its length, and how far A and B move along it.
type BatchAxis = (usize, [usize; 2]);

#[derive(Debug, Default)]
pub(super) struct Products {
    m: usize,
    n: usize,
    k: usize,
    /// From row to row and column to column of either side.
    steps: [[usize; 2]; 2],
    /// Outermost first; never less than two.
    batch: SmallVec<[BatchAxis; 4]>,
}

impl Turn {
    /// Lengths and steps of the axes of a dense tensor, turned; a list is a row (on the left) or a column.
    fn axes(&self, dims: &[i64], left: bool) -> SmallVec<[(usize, usize); 6]> {
        let mut axes: SmallVec<[(usize, usize); 6]> = SmallVec::new();
        let mut step = 1;
        for &dim in dims.iter().rev() {
            axes.insert(0, (size(dim), step));
            step *= size(dim);
        }
        let rank = axes.len();
        if rank == 1 {
            axes.insert(if left { 0 } else { 1 }, (1, 0));
            return axes;
        }
        if self.batch && rank > 2 {
            axes[..rank - 1].rotate_left(1);
        }
        if self.last && rank > 1 {
            axes.swap(rank - 2, rank - 1);
        }
        axes
    }
}

impl Products {
    fn bind(&mut self, sides: &[Turn; 2], shapes: &Shapes<'_>) -> Result<(), Fault> {
        let (a, b, y) = (shapes.input(0), shapes.input(1), shapes.output(0));
        let misfit = || Fault::data(format!("{a:?} times {b:?}, turned as the attributes say, is not {y:?}"));
        let (left, right) = (sides[0].axes(a, true), sides[1].axes(b, false));
        let ([left_batch @ .., m, k], [right_batch @ .., rows, n]) = (&left[..], &right[..]) else {
            return Err(misfit());
        };
        if k.0 != rows.0 {
            return Err(misfit());
        }
        (self.m, self.n, self.k) = (m.0, n.0, k.0);
        self.steps = [[m.1, k.1], [rows.1, n.1]];
        self.batch.clear();
        let axes = left_batch.len().max(right_batch.len());
        for at in 0..axes {
            let of = |side: &[(usize, usize)]| (at + side.len()).checked_sub(axes).map_or((1, 0), |i| side[i]);
            let (l, r) = (of(left_batch), of(right_batch));
            let len = if l.0 == 1 { r.0 } else { l.0 };
            if (l.0 != len && l.0 != 1) || (r.0 != len && r.0 != 1) {
                return Err(misfit());
            }
            self.batch.push((len, [l, r].map(|(own, step)| if own == 1 { 0 } else { step })));
        }
        while self.batch.len() < 2 {
            self.batch.insert(0, (1, [0; 2]));
        }
        let total: usize = self.batch.iter().map(|axis| axis.0).product();
        if total * self.m * self.n == count(y) { Ok(()) } else { Err(misfit()) }
    }

    fn total(&self) -> usize {
        self.batch.iter().map(|axis| axis.0).product()
    }

    /// A's matrices are rows of one, and B is the same for all.
    fn is_flat(&self) -> bool {
        let mut step = self.m * self.steps[0][0];
        let rows = self.batch.iter().rev().all(|&(len, [a, b])| {
            let fits = len == 1 || (a == step && b == 0);
            step *= len;
            fits
        });
        rows && (self.steps[0][0] == self.k || self.m * self.total() <= 1) && self.steps[0][1] == 1
    }

    /// Calls `run` with where the operands of the inner two axes of the batch begin, and with the number of the first
    /// product.
    fn each(&self, mut run: impl FnMut([usize; 2], usize) -> Result<(), Fault>) -> Result<(), Fault> {
        let outer = &self.batch[..self.batch.len() - 2];
        let inner: usize = self.batch[outer.len()..].iter().map(|axis| axis.0).product();
        for at in 0..outer.iter().map(|axis| axis.0).product() {
            let (mut rest, mut from) = (at, [0; 2]);
            for &(len, step) in outer.iter().rev() {
                (0..2).for_each(|side| from[side] += rest % len * step[side]);
                rest /= len;
            }
            run(from, at * inner)?;
        }
        Ok(())
    }

    /// The inner two axes of the batch.
    fn inner(&self) -> Batch {
        let [outer, inner] = [2, 1].map(|back| self.batch[self.batch.len() - back]);
        let nest = |side: usize| Nest {
            batch_step: [outer.1[side], inner.1[side]],
            row_step: self.steps[side][0],
            col_step: self.steps[side][1],
        };
        let count = [outer.0, inner.0];
        Batch { count, a: nest(0), b: nest(1), c: Nest::dense(inner.0, self.m, self.n) }
    }
}

impl Op for FusedMatMul {
    type Bound = Products;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for i in 0..2 {
            if node.needs(i)?.rank() == 0 {
                return Err(Reject::rank(format!("input {i} is a scalar")));
            }
        }
        let flag = |name: &str| node.int(name).map(|x| x != 0);
        let turn = |last: &str, batch: &str| Ok(Turn { last: flag(last)?, batch: flag(batch)? });
        let sides = [turn("transA", "transBatchA")?, turn("transB", "transBatchB")?];
        Ok(FusedMatMul { isa: Cpu::of(node).isa, alpha: node.float("alpha")?, sides, right: None })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(a), Some(y)) = (node.input(0), node.output(0)) else { return Cost::UNKNOWN };
        let rows = (0..y.rank().saturating_sub(1)).map(|k| y.dim(k).map_or(f64::NAN, |n| n as f64)).product::<f64>();
        cost::products(node, y.elements() * a.elements() / rows.max(1.0))
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Products) -> Result<(), Fault> {
        bound.bind(&self.sides, shapes)
    }

    fn scratch(&self, bound: &Products, width: usize) -> usize {
        let &Products { m, n, k, .. } = bound;
        let values = match bound.is_flat() {
            true => gemm::Gemm::new(self.isa, m * bound.total(), n, k).scratch_len(false, self.right.is_some(), width),
            false if self.right.is_some() => gemm::Gemm::new(self.isa, m, n, k).scratch_len(false, true, width),
            false => gemm::Gemm::new(self.isa, m, n, k).batch_scratch_len(width),
        };
        values.saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Products) -> u64 {
        2 * (bound.total() * bound.m * bound.n * bound.k) as u64
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input != 1 {
            return None;
        }
        let (right, pack) = Right::plan(self.isa, source, self.sides[1].last)?;
        self.right = Some(right);
        Some(pack)
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.right.as_ref().map_or(Ok(()), |right| right.fill(weight, to, par))
    }
}

pub(super) fn fused_matmul(op: &FusedMatMul, bound: &Products, args: &mut Args<'_>) -> Result<(), Fault> {
    let (a, b, c) = (args.input::<f32>(0), args.input::<f32>(1), args.output::<f32>(0));
    if c.is_empty() {
        return Ok(());
    }
    let (scratch, par, plain) = (args.scratch::<f32>(), args.par(), Epilogue::default());
    let [[a_row, a_col], [b_row, b_col]] = bound.steps;
    let flat = bound.is_flat();
    let m = if flat { bound.m * bound.total() } else { bound.m };
    let (n, k) = (bound.n, bound.k);
    let gemm = gemm::Gemm { alpha: op.alpha, ..gemm::Gemm::new(op.isa, m, n, k) };
    if flat || op.right.is_some() {
        let one = |a_at: usize, c: &mut [f32], scratch: &mut [f32]| -> Result<(), Fault> {
            let left = Mat::strided(a.get(a_at..).unwrap_or(&[]), m, k, if flat { k } else { a_row }, a_col)?;
            let right = match &op.right {
                Some(right) => Rhs::Packed(right.layout, b),
                None => Rhs::Plain(Mat::strided(b, k, n, b_row, b_col)?),
            };
            Ok(gemm.run(Lhs::Plain(left), right, &plain, MatMut::new(c, m, n)?, scratch, par)?)
        };
        if flat {
            return one(0, c, scratch);
        }
        let inner = bound.inner();
        return bound.each(|[a_at, _], first| {
            for at in 0..inner.count[0] * inner.count[1] {
                let (i, j) = (at / inner.count[1], at % inner.count[1]);
                let a_at = a_at + i * inner.a.batch_step[0] + j * inner.a.batch_step[1];
                one(a_at, &mut c[(first + at) * m * n..][..m * n], scratch)?;
            }
            Ok(())
        });
    }
    let inner = bound.inner();
    let cells = inner.count[0] * inner.count[1] * m * n;
    bound.each(|[a_at, b_at], first| {
        let (a, b) = (a.get(a_at..).unwrap_or(&[]), b.get(b_at..).unwrap_or(&[]));
        Ok(gemm.run_batch(&inner, (a, b), &plain, &mut c[first * m * n..][..cells], scratch, par)?)
    })
}

/// The same of f64.
pub(super) struct Plain(FusedMatMul);

impl Op for Plain {
    type Bound = Products;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        FusedMatMul::parse(node).map(Plain)
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(self.0.cost(node).ns * SLOWER)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Products) -> Result<(), Fault> {
        self.0.bind(shapes, bound)
    }
}

pub(super) fn fused_matmul_plain(op: &Plain, bound: &Products, args: &mut Args<'_>) -> Result<(), Fault> {
    let (a, b, c) = (args.input::<f64>(0), args.input::<f64>(1), args.output::<f64>(0));
    let (alpha, inner, cells, par) = (f64::from(op.0.alpha), bound.inner(), bound.m * bound.n, args.par());
    let [[a_row, a_col], [b_row, b_col]] = bound.steps;
    bound.each(|[a_at, b_at], first| {
        for at in 0..inner.count[0] * inner.count[1] {
            let (i, j) = (at / inner.count[1], at % inner.count[1]);
            let place = |nest: &Nest| i * nest.batch_step[0] + j * nest.batch_step[1];
            let a = Strided { data: a.get(a_at + place(&inner.a)..).unwrap_or(&[]), row: a_row, col: a_col };
            let b = Strided { data: b.get(b_at + place(&inner.b)..).unwrap_or(&[]), row: b_row, col: b_col };
            let c = &mut c[(first + at) * cells..][..cells];
            product(par, (bound.n, bound.k), a, b, c, |_, _, sum| sum.times(alpha))?;
        }
        Ok(())
    })
}

/// An activation that products have no place for: it goes over the result.
#[derive(Debug, Clone, Copy)]
enum After {
    Elu(f32),
    Selu { alpha: f32, gamma: f32 },
    Softplus,
    Softsign,
    Thresholded(f32),
}

/// What an attribute `activation` names, by the parameters beside it.
fn activation(name: &str, given: [Option<f32>; 3]) -> Result<(Activation, Option<After>), Reject> {
    let [alpha, beta, gamma] = given;
    let of = |given: Option<f32>, what: &str| {
        given.ok_or_else(|| Reject::attribute(format!("attribute activation = {name} needs its {what}")))
    };
    let within = match name {
        "" => Activation::None,
        "Relu" => Activation::Relu,
        "Tanh" => Activation::Tanh,
        "Sigmoid" => Activation::Sigmoid,
        "LeakyRelu" => Activation::LeakyRelu(of(alpha, "alpha")?),
        "HardSigmoid" => Activation::HardSigmoid { alpha: of(alpha, "alpha")?, beta: of(beta, "beta")? },
        "Clip" => Activation::Clip { low: of(alpha, "lower bound")?, high: of(beta, "upper bound")? },
        other => {
            let after = match other {
                "Elu" => After::Elu(of(alpha, "alpha")?),
                "Selu" => After::Selu { alpha: of(alpha, "alpha")?, gamma: of(gamma, "gamma")? },
                "Softplus" => After::Softplus,
                "Softsign" => After::Softsign,
                "ThresholdedRelu" => After::Thresholded(of(alpha, "alpha")?),
                _ => return Err(Reject::attribute(format!("attribute activation = {other} is not known"))),
            };
            return Ok((Activation::None, Some(after)));
        }
    };
    Ok((within, None))
}

/// Gemm, then an activation.
pub(super) struct FusedGemm {
    gemm: Gemm,
    after: Option<After>,
}

impl Op for FusedGemm {
    type Bound = GemmBound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let mut gemm = Gemm::parse(node)?;
        let given = ["activation_alpha", "activation_beta", "activation_gamma"].map(|name| node.float_if(name));
        let after;
        (gemm.finish.activation, after) = activation(node.text("activation").unwrap_or(""), given)?;
        Ok(FusedGemm { gemm, after })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.gemm.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut GemmBound) -> Result<(), Fault> {
        self.gemm.bind(shapes, bound)
    }

    fn scratch(&self, bound: &GemmBound, width: usize) -> usize {
        self.gemm.scratch(bound, width)
    }

    fn flops(&self, bound: &GemmBound) -> u64 {
        self.gemm.flops(bound)
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        self.gemm.pack(input, source)
    }

    fn fill(&self, input: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.gemm.fill(input, weight, to, par)
    }
}

pub(super) fn fused_gemm(op: &FusedGemm, bound: &GemmBound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (par, isa) = (args.par(), op.gemm.isa);
    let Some(after) = op.after else { return gemm_into(&op.gemm, bound, args).map(drop) };
    let y = gemm_into(&op.gemm, bound, args)?;
    Ok(split::rows(par, y, 1, GRAIN, |_, _, y| match after {
        After::Elu(alpha) => simd::map_unary_in_place(isa, &Elu { alpha }, y),
        After::Selu { alpha, gamma } => simd::map_unary_in_place(isa, &Selu { alpha, gamma }, y),
        After::Softplus => simd::map_unary_in_place(isa, &Softplus, y),
        After::Softsign => simd::map_unary_in_place(isa, &Softsign, y),
        After::Thresholded(alpha) => simd::map_unary_in_place(isa, &Thresholded { alpha }, y),
    })?)
}

/// Conv with a tensor added and an activation.
pub(super) struct FusedConv(Conv);

impl Op for FusedConv {
    type Bound = ConvBound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let mut conv = Conv::parse(node)?;
        let given = node.floats("activation_params").unwrap_or(&[]);
        let given = [0, 1, 2].map(|k| given.get(k).copied());
        let (within, after) = activation(node.text("activation").unwrap_or(""), given)?;
        if after.is_some() {
            return Err(Reject::attribute("attribute activation names one that convolutions do not have"));
        }
        if let (Some(z), Some(y)) = (node.input(3), node.output(0)) {
            if z.rank() != y.rank() {
                return Err(Reject::rank(format!("input 3 (Z) has rank {}, the output {}", z.rank(), y.rank())));
            }
            conv.finish.add = Some(3);
        }
        conv.finish.activation = within;
        Ok(FusedConv(conv))
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.0.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut ConvBound) -> Result<(), Fault> {
        if shapes.has(3) && shapes.input(3) != shapes.output(0) {
            return Err(Fault::data(format!(
                "Z has dimensions {:?}, the output {:?}",
                shapes.input(3),
                shapes.output(0)
            )));
        }
        self.0.bind(shapes, bound)
    }

    fn scratch(&self, bound: &ConvBound, width: usize) -> usize {
        self.0.scratch(bound, width)
    }

    fn flops(&self, bound: &ConvBound) -> u64 {
        self.0.flops(bound)
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        self.0.pack(input, source)
    }

    fn fill(&self, input: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.0.fill(input, weight, to, par)
    }
}

pub(super) fn fused_conv(op: &FusedConv, bound: &ConvBound, args: &mut Args<'_>) -> Result<(), Fault> {
    conv(&op.0, bound, args)
}
