//! Products of matrices, by equations in `einsum`, and determinants in `det`. f32 runs on `gemm`, with constant right sides
//! packed ahead; other types on a plain loop.

mod det;
mod einsum;

use super::broadcast::Broadcast;
use super::epilogue::{Finish, Takes};
use super::lane::Number;
use super::narrow::{Bf16, F16};
use super::{Cpu, cost};
use crate::gemm::{self, Add, Batch, Bias, Epilogue, KernelError, Lhs, Mat, MatMut, Nest, PackedB, Rhs};
use crate::simd::Isa;
use det::{Det, det};
use einsum::{Einsum, einsum, einsum_plain};
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{
    Args, Cost, Fault, Kernel, Link, NodeView, Op, Pack, Reject, Seam, Shapes, Weight, WeightSource, any, bytes, size,
    split, typed, widened,
};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Det", (11, 22), "det", typed!(det: f32 f64)),
    Kernel::new("Det", (11, 22), "det", widened!(Det, det::<f32> => F16 Bf16)).fallback(),
    Kernel::new("Einsum", (12, 28), "einsum", any!(einsum: f32)),
    Kernel::new("Einsum", (12, 28), "einsum", typed!(einsum_plain: f64 i8 i16 i32 i64 u8 u16 u32 u64)).fallback(),
    Kernel::new("Einsum", (12, 28), "einsum", widened!(Einsum, einsum => F16 Bf16)).fallback(),
    Kernel::new("Gemm", (7, 13), "gemm", any!(gemm: f32)),
    Kernel::new("Gemm", (7, 13), "gemm", typed!(gemm_plain: f64 i32 i64 u32 u64)).fallback(),
    Kernel::new("Gemm", (7, 13), "gemm", widened!(Gemm, gemm => F16 Bf16)).fallback(),
    Kernel::new("MatMul", (1, 13), "matmul", any!(matmul: f32)),
    Kernel::new("MatMul", (1, 13), "matmul", typed!(matmul_plain: f64 i32 i64 u32 u64)).fallback(),
    Kernel::new("MatMul", (1, 13), "matmul", widened!(MatMul, matmul => F16 Bf16)).fallback(),
];

impl From<KernelError> for Fault {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Stopped(stopped) => stopped.into(),
            other => Fault::data(other.to_string()),
        }
    }
}

/// A constant right side in the order of `gemm`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Right {
    pub layout: PackedB,
    /// The base holds it with rows and columns exchanged.
    turned: bool,
}

impl Right {
    /// A plan for a constant of two dimensions; `turned`: its rows are the product's columns.
    pub fn plan(isa: Isa, source: &WeightSource<'_>, turned: bool) -> Option<(Right, Pack)> {
        let base = match (source.chain, source.base) {
            ([Link::Perm(perm)], Some(base)) if perm.as_slice() == [1, 0] => Some(base),
            _ => None,
        };
        let &[rows, cols] = source.dims else { return None };
        let (k, n) = if turned { (cols, rows) } else { (rows, cols) };
        let layout = PackedB::new(isa, size(k), size(n));
        let right = Right { layout, turned: turned != base.is_some() };
        let format = fnv(fnv(fnv(FNV, b"gemm b"), isa.name().as_bytes()), &[u8::from(right.turned)]);
        let bytes = layout.size().checked_mul(size_of::<f32>())?;
        Some((right, Pack { format, bytes, from_base: base.is_some() }))
    }

    pub fn fill(&self, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        let &[rows, cols] = weight.dims else { return Err(Fault::data("a packed matrix has two dimensions")) };
        let elements = weight.elements::<f32>();
        let mat = Mat::new(&elements, size(rows), size(cols))?;
        let mat = if self.turned { mat.transposed() } else { mat };
        let starts: Vec<usize> = (0..=self.layout.pieces()).map(|k| self.layout.span(k..k).start).collect();
        let failed = std::sync::Mutex::new(None);
        split::parts(par, bytes::elements_mut::<f32>(to), &starts, |_, pieces, dst| {
            if let Err(error) = self.layout.pack(mat, pieces, dst) {
                *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
            }
        })?;
        let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// `Y = A B` over batches.
struct MatMul {
    isa: Isa,
    right: Option<Right>,
    finish: Finish,
    takes: Takes,
}

/// Sizes of the products, and where their operands lie.
#[derive(Default)]
struct Products {
    m: usize,
    n: usize,
    k: usize,
    /// Matrices of A and B under those of Y, in matrices.
    batch: Broadcast<2>,
    /// One product does for all: B is the same for each, and A's matrices are rows of one.
    flat: bool,
}

impl Products {
    fn bind(&mut self, shapes: &Shapes<'_>) -> Result<(), Fault> {
        let (a, b, y) = (shapes.input(0), shapes.input(1), shapes.output(0));
        let (a_batch, (m, k)) = match a {
            [] => return Err(Fault::data("input 0 is a scalar")),
            &[k] => (&a[..0], (1, size(k))),
            [batch @ .., m, k] => (batch, (size(*m), size(*k))),
        };
        let (b_batch, (rows, n)) = match b {
            [] => return Err(Fault::data("input 1 is a scalar")),
            &[k] => (&b[..0], (size(k), 1)),
            [batch @ .., k, n] => (batch, (size(*k), size(*n))),
        };
        let matrix = usize::from(a.len() > 1) + usize::from(b.len() > 1);
        let y_batch = y.len().checked_sub(matrix).map(|len| &y[..len]);
        let Some(y_batch) = y_batch.filter(|_| k == rows) else {
            return Err(Fault::data(format!("{a:?} times {b:?} is not {y:?}: columns of A are not rows of B")));
        };
        self.batch.bind(y_batch, [a_batch, b_batch])?;
        (self.m, self.n, self.k) = (m, n, k);
        let cells = self.batch.total.checked_mul(m).and_then(|rows| rows.checked_mul(n));
        if cells != Some(shapes.output_len(0)) {
            return Err(Fault::data(format!("{a:?} times {b:?} is not {y:?}")));
        }
        let step = self.batch.inner.step;
        self.flat = self.batch.outer.is_empty() && (self.batch.total <= 1 || step == [1, 0]);
        if self.flat {
            self.m *= self.batch.total;
            self.batch = Broadcast::default();
        }
        Ok(())
    }
}

impl Products {
    /// Counting 2 for a multiply-add.
    fn flops(&self) -> u64 {
        2 * (self.batch.total * self.m * self.n * self.k) as u64
    }
}

fn ranks(node: &NodeView<'_>) -> Result<(usize, usize), Reject> {
    let (a, b) = (node.needs(0)?.rank(), node.needs(1)?.rank());
    match (a, b) {
        (0, _) => Err(Reject::rank("input 0 is a scalar")),
        (_, 0) => Err(Reject::rank("input 1 is a scalar")),
        ranks => Ok(ranks),
    }
}

fn matmul_cost(node: &NodeView<'_>) -> Cost {
    let (Some(a), Some(y)) = (node.input(0), node.output(0)) else { return Cost::UNKNOWN };
    let k = a.rank().checked_sub(1).and_then(|axis| a.dim(axis)).map_or(f64::NAN, |k| k as f64);
    cost::products(node, y.elements() * k)
}

impl Op for MatMul {
    type Bound = Products;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (a, b) = ranks(node)?;
        let matrices = a > 1 && b > 1;
        let channel = matrices.then(|| a.max(b) - 1);
        // Only a product whose right side is one matrix runs as one product, which can add a tensor.
        let takes = Takes { channel, add: matrices && b == 2 };
        Ok(MatMul { isa: Cpu::of(node).isa, right: None, finish: Finish::default(), takes })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        matmul_cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Products) -> Result<(), Fault> {
        bound.bind(shapes)
    }

    fn scratch(&self, bound: &Products, width: usize) -> usize {
        let gemm = gemm::Gemm::new(self.isa, bound.m, bound.n, bound.k);
        let values = match bound.flat {
            true => gemm.scratch_len(false, self.right.is_some(), width),
            false => gemm.batch_scratch_len(width),
        };
        values.saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Products) -> u64 {
        bound.flops()
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input != 1 {
            return None;
        }
        let (right, pack) = Right::plan(self.isa, source, false)?;
        self.right = Some(right);
        Some(pack)
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.right.as_ref().map_or(Ok(()), |right| right.fill(weight, to, par))
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        self.finish.take(next, seam, self.takes)
    }
}

fn matmul(op: &MatMul, bound: &Products, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Products { m, n, k, flat, .. } = bound;
    let gemm = gemm::Gemm::new(op.isa, m, n, k);
    let epilogue = op.finish.of_columns(args, n);
    let (a, b, c) = (args.input::<f32>(0), args.input::<f32>(1), args.output::<f32>(0));
    if c.is_empty() {
        return Ok(()); // a batch of none has no matrices that could fit
    }
    let scratch = args.scratch::<f32>();
    if flat {
        let b = match &op.right {
            Some(right) => Rhs::Packed(right.layout, b),
            None => Rhs::Plain(Mat::new(b, k, n)?),
        };
        let (a, c) = (Lhs::Plain(Mat::new(a, m, k)?), MatMut::new(c, m, n)?);
        return Ok(gemm.run(a, b, &epilogue, c, scratch, args.par())?);
    }
    batches(bound, |batch, [a_at, b_at], range| {
        let (a, b) = (a.get(a_at..).unwrap_or(&[]), b.get(b_at..).unwrap_or(&[]));
        gemm.run_batch(&batch, (a, b), &epilogue, &mut c[range], scratch, args.par())
    })?;
    Ok(())
}

/// Calls `run` with batches of two dimensions, the values at which their A and B begin, and the values of their C.
fn batches(
    bound: &Products,
    mut run: impl FnMut(Batch, [usize; 2], core::ops::Range<usize>) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let &Products { m, n, k, ref batch, .. } = bound;
    let sizes = [m * k, k * n];
    let (middle, outer) = match batch.outer.split_last() {
        Some((last, outer)) => (*last, outer),
        None => (super::broadcast::Axis { len: 1, step: [0; 2] }, &[][..]),
    };
    let inner = batch.inner;
    let nest = |side: usize, cols: usize| Nest {
        batch_step: [middle.step[side] * sizes[side], inner.step[side] * sizes[side]],
        row_step: cols,
        col_step: 1,
    };
    let count = [middle.len, inner.len];
    let each = Batch { count, a: nest(0, k), b: nest(1, n), c: Nest::dense(inner.len, m, n) };
    let cells = count[0] * count[1] * m * n;
    for at in 0..outer.iter().map(|axis| axis.len).product() {
        let (mut rest, mut offsets) = (at, [0; 2]);
        for axis in outer.iter().rev() {
            (0..2).for_each(|i| offsets[i] += rest % axis.len * axis.step[i] * sizes[i]);
            rest /= axis.len;
        }
        run(each, offsets, at * cells..(at + 1) * cells)?;
    }
    Ok(())
}

/// `Y = A B` of types that have no vectors here.
struct PlainMatMul;

impl Op for PlainMatMul {
    type Bound = Products;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        ranks(node)?;
        Ok(PlainMatMul)
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(matmul_cost(node).ns * SLOWER)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Products) -> Result<(), Fault> {
        bound.bind(shapes)
    }
}

/// How much slower the plain loops are than `gemm`.
pub(super) const SLOWER: f64 = 30.0;

fn matmul_plain<T: Number>(_: &PlainMatMul, bound: &Products, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Products { m, n, k, .. } = bound;
    let (a, b, c) = (args.input::<T>(0), args.input::<T>(1), args.output::<T>(0));
    batches(bound, |batch, [a_at, b_at], range| {
        for (i, c) in c[range].chunks_exact_mut((m * n).max(1)).enumerate() {
            let (outer, inner) = (i / batch.count[1], i % batch.count[1]);
            let at = |nest: &Nest| outer * nest.batch_step[0] + inner * nest.batch_step[1];
            let a = Strided { data: &a[a_at + at(&batch.a)..], row: k, col: 1 };
            let b = Strided { data: &b[b_at + at(&batch.b)..], row: n, col: 1 };
            product(args.par(), (n, k), a, b, c, |_, _, sum| sum)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// A matrix of any type, with steps.
#[derive(Clone, Copy)]
pub(super) struct Strided<'a, T> {
    pub data: &'a [T],
    pub row: usize,
    pub col: usize,
}

/// Rows of C, one after the other; `finish` gets row, column and sum.
pub(super) fn product<T: Number>(
    par: &dyn Parallel,
    (n, k): (usize, usize),
    a: Strided<'_, T>,
    b: Strided<'_, T>,
    c: &mut [T],
    finish: impl Fn(usize, usize, T) -> T + Sync,
) -> Result<(), KernelError> {
    let grain = (1usize << 16).div_ceil((n * k).max(1));
    split::rows(par, c, n, grain, |_, first, rows| {
        for (i, row) in rows.chunks_exact_mut(n.max(1)).enumerate() {
            row.fill(T::default());
            for p in 0..k {
                let x = a.data[(first + i) * a.row + p * a.col];
                for (j, y) in row.iter_mut().enumerate() {
                    *y = y.plus(x.times(b.data[p * b.row + j * b.col]));
                }
            }
            row.iter_mut().enumerate().for_each(|(j, y)| *y = finish(first + i, j, *y));
        }
    })?;
    Ok(())
}

/// `Y = alpha op(A) op(B) + beta C`
pub(super) struct Gemm {
    pub isa: Isa,
    alpha: f32,
    beta: f32,
    turn_a: bool,
    turn_b: bool,
    has_c: bool,
    right: Option<Right>,
    pub finish: Finish,
}

/// Sizes, and how C lies under Y.
#[derive(Default)]
pub(super) struct GemmBound {
    m: usize,
    n: usize,
    k: usize,
    c: Broadcast<1>,
    c_dims: [usize; 2],
}

impl Op for Gemm {
    type Bound = GemmBound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for i in 0..2 {
            let rank = node.needs(i)?.rank();
            if rank != 2 {
                return Err(Reject::rank(format!("input {i} has rank {rank}, a matrix has 2")));
            }
        }
        let flag = |name| node.int(name).map(|x| x != 0);
        Ok(Gemm {
            isa: Cpu::of(node).isa,
            alpha: node.float("alpha")?,
            beta: node.float("beta")?,
            turn_a: flag("transA")?,
            turn_b: flag("transB")?,
            has_c: node.input(2).is_some(),
            right: None,
            finish: Finish::default(),
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(a), Some(y)) = (node.input(0), node.output(0)) else { return Cost::UNKNOWN };
        let k = a.dim(usize::from(!self.turn_a)).map_or(f64::NAN, |k| k as f64);
        cost::products(node, y.elements() * k)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut GemmBound) -> Result<(), Fault> {
        let matrix = |i: usize, turn: bool| match *shapes.input(i) {
            [rows, cols] if turn => Ok((size(cols), size(rows))),
            [rows, cols] => Ok((size(rows), size(cols))),
            ref dims => Err(Fault::data(format!("input {i} is no matrix: {dims:?}"))),
        };
        let ((m, k), (rows, n)) = (matrix(0, self.turn_a)?, matrix(1, self.turn_b)?);
        let y = shapes.output(0);
        if k != rows || y.iter().map(|&d| size(d)).ne([m, n]) {
            return Err(Fault::data(format!("[{m}, {k}] times [{rows}, {n}] is not {y:?}")));
        }
        (bound.m, bound.n, bound.k) = (m, n, k);
        let c = shapes.input(2);
        if self.has_c {
            bound.c.bind(y, [c])?;
        }
        let dim = |back: usize| c.len().checked_sub(back).map_or(1, |k| size(c[k]));
        bound.c_dims = [dim(2), dim(1)];
        Ok(())
    }

    fn scratch(&self, bound: &GemmBound, width: usize) -> usize {
        let gemm = gemm::Gemm::new(self.isa, bound.m, bound.n, bound.k);
        gemm.scratch_len(false, self.right.is_some(), width).saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &GemmBound) -> u64 {
        2 * (bound.m * bound.n * bound.k) as u64
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input != 1 {
            return None;
        }
        let (right, pack) = Right::plan(self.isa, source, self.turn_b)?;
        self.right = Some(right);
        Some(pack)
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.right.as_ref().map_or(Ok(()), |right| right.fill(weight, to, par))
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        let channel = if self.has_c { None } else { Some(1) };
        self.finish.take(next, seam, Takes { channel, add: !self.has_c })
    }
}

/// The product, which is also the answer.
pub(super) fn gemm_into<'a>(op: &Gemm, bound: &GemmBound, args: &mut Args<'a>) -> Result<&'a mut [f32], Fault> {
    let &GemmBound { m, n, k, .. } = bound;
    let gemm = gemm::Gemm { alpha: op.alpha, ..gemm::Gemm::new(op.isa, m, n, k) };
    let mut epilogue = op.finish.of_columns(args, n);
    let (a, b, y) = (args.input::<f32>(0), args.input::<f32>(1), args.output::<f32>(0));
    if op.has_c && op.beta != 0.0 {
        add_c(op, bound, args, y, &mut epilogue)?;
    }
    let a = if op.turn_a { Mat::new(a, k, m)?.transposed() } else { Mat::new(a, m, k)? };
    let b = match &op.right {
        Some(right) => Rhs::Packed(right.layout, b),
        None if op.turn_b => Rhs::Plain(Mat::new(b, n, k)?.transposed()),
        None => Rhs::Plain(Mat::new(b, k, n)?),
    };
    let scratch = args.scratch::<f32>();
    gemm.run(Lhs::Plain(a), b, &epilogue, MatMut::new(&mut *y, m, n)?, scratch, args.par())?;
    Ok(y)
}

fn gemm(op: &Gemm, bound: &GemmBound, args: &mut Args<'_>) -> Result<(), Fault> {
    gemm_into(op, bound, args).map(drop)
}

/// beta C: as a bias or a matrix where `gemm` has it, else laid out in Y.
fn add_c<'a>(
    op: &Gemm,
    bound: &GemmBound,
    args: &Args<'a>,
    y: &mut [f32],
    epilogue: &mut Epilogue<'a>,
) -> Result<(), Fault> {
    let c = args.input::<f32>(2);
    match bound.c_dims {
        [1, cols] if cols == bound.n && op.beta == 1.0 => epilogue.bias = Bias::PerColumn(c),
        [rows, 1] if rows == bound.m && op.beta == 1.0 => epilogue.bias = Bias::PerRow(c),
        dims if dims == [bound.m, bound.n] => {
            epilogue.add = Add::Matrix { data: c, row_step: bound.n, scale: op.beta };
        }
        _ => {
            let step = bound.c.inner.step[0];
            bound.c.walk(args.par(), y, super::GRAIN, |[at], piece| {
                piece.iter_mut().enumerate().for_each(|(k, y)| *y = c[at + k * step]);
            })?;
            epilogue.add = Add::Output(op.beta);
        }
    }
    Ok(())
}

/// `Y = alpha op(A) op(B) + beta C` of types that have no vectors here.
struct PlainGemm(Gemm);

impl Op for PlainGemm {
    type Bound = GemmBound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let gemm = Gemm::parse(node)?;
        let whole = |x: f32| x.fract() == 0.0;
        let float = node.needs(0)?.dtype() as u32 == ortolan_ep_kit::DType::F64 as u32;
        if !(float || whole(gemm.alpha) && whole(gemm.beta)) {
            let Gemm { alpha, beta, .. } = gemm;
            return Err(Reject::attribute(format!(
                "attributes alpha = {alpha}, beta = {beta} are no integers, as T is"
            )));
        }
        Ok(PlainGemm(gemm))
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(self.0.cost(node).ns * SLOWER)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut GemmBound) -> Result<(), Fault> {
        self.0.bind(shapes, bound)
    }
}

/// A factor in another type.
trait Factor: Number {
    fn factor(x: f32) -> Self;
}
macro_rules! factors {
    ($($t:ty)*) => { $(impl Factor for $t { fn factor(x: f32) -> Self { x as $t } })* };
}
factors!(f64 i32 i64 u32 u64);

fn gemm_plain<T: Factor>(op: &PlainGemm, bound: &GemmBound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (op, &GemmBound { m, n, k, .. }) = (&op.0, bound);
    let (a, b, y) = (args.input::<T>(0), args.input::<T>(1), args.output::<T>(0));
    let c = if op.has_c { Some(args.input::<T>(2)) } else { None };
    let (alpha, beta) = (T::factor(op.alpha), T::factor(op.beta));
    let a = if op.turn_a { Strided { data: a, row: 1, col: m } } else { Strided { data: a, row: k, col: 1 } };
    let b = if op.turn_b { Strided { data: b, row: 1, col: k } } else { Strided { data: b, row: n, col: 1 } };
    let [rows, cols] = bound.c_dims;
    let at = |i: usize, j: usize| if rows == 1 { 0 } else { i * cols } + if cols == 1 { 0 } else { j };
    product(args.par(), (n, k), a, b, y, |i, j, sum| {
        let scaled = sum.times(alpha);
        c.map_or(scaled, |c| scaled.plus(c[at(i, j)].times(beta)))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
