//! Determinants: elimination by rows with the greatest pivot of each column.

use crate::ops::lane::Real;
use crate::ops::workers::Workers;
use crate::ops::{Cpu, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

pub(super) struct Det {
    isa: Isa,
    /// Bytes of a number that is computed with.
    bytes: usize,
}

impl Op for Det {
    /// Rows of a matrix.
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        if x.rank() < 2 {
            return Err(Reject::rank(format!("input 0 has rank {}, a matrix has 2", x.rank())));
        }
        Ok(Det { isa: Cpu::of(node).isa, bytes: x.dtype().bits().max(32) / 8 })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let Some(x) = node.input(0) else { return Cost::UNKNOWN };
        let n = x.dim(x.rank().saturating_sub(1)).map_or(f64::NAN, |n| n as f64);
        Cost::ns(cost::moving(node).ns + x.elements() * n * 0.3)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut usize) -> Result<(), Fault> {
        match shapes.input(0) {
            [.., rows, columns] if rows == columns => {
                *bound = size(*rows);
                crate::ops::float::agree("input 0", shapes.input_len(0), shapes.output_len(0) * *bound * *bound)
            }
            dims => Err(Fault::data(format!("matrices of {dims:?} are not square"))),
        }
    }

    fn scratch(&self, n: &usize, width: usize) -> usize {
        (n * n).saturating_mul(self.bytes).saturating_mul(width)
    }
}

pub(super) fn det<T: Real>(op: &Det, n: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    let n = *n;
    let x = args.input::<T>(0);
    let workers = Workers::new(args.scratch::<T>(), n * n);
    let grain = (1usize << 14).div_ceil((n * n * n).max(1));
    Ok(split::rows(args.par(), args.output::<T>(0), 1, grain, |worker, first, y| {
        if n == 0 {
            return y.fill(T::of(1.0));
        }
        workers.with(worker, |matrix| {
            for (k, y) in y.iter_mut().enumerate() {
                matrix.copy_from_slice(&x[(first + k) * n * n..][..n * n]);
                *y = eliminate(op.isa, n, matrix);
            }
        });
    })?)
}

/// The determinant of a matrix, which is lost.
fn eliminate<T: Real>(isa: Isa, n: usize, matrix: &mut [T]) -> T {
    let mut product = T::of(1.0);
    for k in 0..n {
        let size = |row: usize| matrix[row * n + k].magnitude();
        let pivot = (k + 1..n).fold(k, |best, row| if size(row) > size(best) { row } else { best });
        if pivot != k {
            let (upper, lower) = matrix.split_at_mut(pivot * n);
            upper[k * n..][..n].swap_with_slice(&mut lower[..n]);
            product = product.negate();
        }
        let own = matrix[k * n + k];
        product = product.times(own);
        if own == T::default() {
            return T::default();
        }
        let (upper, lower) = matrix.split_at_mut((k + 1) * n);
        let top = &upper[k * n + k..];
        for row in lower.chunks_exact_mut(n) {
            let factor = row[k].over(own);
            isa.dispatch(Minus { factor, x: top, y: &mut row[k..] });
        }
    }
    product
}

/// `y -= factor x`
struct Minus<'a, T> {
    factor: T,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel for Minus<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let n = self.x.len().min(self.y.len());
        let (x, y) = (&self.x[..n], &mut self.y[..n]);
        for i in 0..n {
            y[i] = y[i].minus(self.factor.times(x[i]));
        }
    }
}
