//! `Inverse`: elimination with the greatest pivot of each column, in f64 for every type. A matrix without an inverse becomes
//! infinities and NaN, as it does in ONNX Runtime.

use crate::ops::float::{Float, Floats, FloatsMut, agree};
use crate::ops::workers::Workers;
use crate::ops::{Cpu, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size};

pub(super) struct Inverse {
    isa: Isa,
    float: Float,
}

impl Op for Inverse {
    /// Rows of a matrix.
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        if x.rank() < 2 {
            return Err(Reject::rank(format!("input 0 has rank {}, a matrix has 2", x.rank())));
        }
        Ok(Inverse { isa: Cpu::of(node).isa, float: Float::input(node, 0)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let Some(x) = node.input(0) else { return Cost::UNKNOWN };
        let n = x.dim(x.rank().saturating_sub(1)).map_or(f64::NAN, |n| n as f64);
        Cost::ns(cost::moving(node).ns + x.elements() * n * 0.5)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut usize) -> Result<(), Fault> {
        match shapes.input(0) {
            [.., rows, columns] if rows == columns => *bound = size(*rows),
            dims => return Err(Fault::data(format!("matrices of {dims:?} are not square"))),
        }
        agree("output 0", shapes.output_len(0), shapes.input_len(0))
    }

    /// A matrix and what becomes of the unit matrix beside it.
    fn scratch(&self, n: &usize, width: usize) -> usize {
        (2 * n * n).saturating_mul(size_of::<f64>()).saturating_mul(width)
    }
}

pub(super) fn inverse(op: &Inverse, n: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    let n = *n;
    let x = Floats::input(args, 0, op.float);
    let workers = Workers::new(args.scratch::<f64>(), 2 * n * n);
    let y = FloatsMut::output(args, 0, op.float);
    let grain = (1usize << 13).div_ceil((n * n * n).max(1));
    Ok(y.rows_by_worker(args.par(), n * n, grain, |worker, first, mut y| {
        workers.with(worker, |both| {
            for matrix in 0..y.len() / (n * n).max(1) {
                for (i, row) in both.chunks_exact_mut(2 * n).enumerate() {
                    let (left, right) = row.split_at_mut(n);
                    left.iter_mut().zip(x.row(((first + matrix) * n + i) * n, n)).for_each(|(to, x)| *to = x);
                    right.fill(0.0);
                    right[i] = 1.0;
                }
                eliminate(op.isa, n, both);
                for at in 0..n * n {
                    y.put(matrix * n * n + at, both[at / n * 2 * n + n + at % n]);
                }
            }
        });
    })?)
}

/// Makes the left halves of rows the unit matrix, and so the right ones the inverse.
fn eliminate(isa: Isa, n: usize, both: &mut [f64]) {
    let wide = 2 * n;
    for column in 0..n {
        let size_of = |row: usize| both[row * wide + column].abs();
        let pivot = (column + 1..n).fold(column, |best, row| if size_of(row) > size_of(best) { row } else { best });
        if pivot != column {
            let (before, after) = both.split_at_mut(pivot * wide);
            before[column * wide..][..wide].swap_with_slice(&mut after[..wide]);
        }
        let (before, rest) = both.split_at_mut(column * wide);
        let (own, after) = rest.split_at_mut(wide);
        let by = own[column].recip();
        own.iter_mut().for_each(|x| *x *= by);
        for row in before.chunks_exact_mut(wide).chain(after.chunks_exact_mut(wide)) {
            let by = row[column];
            isa.dispatch(Less { from: own, by, row });
        }
    }
}

/// `row -= by * from`
struct Less<'a> {
    from: &'a [f64],
    by: f64,
    row: &'a mut [f64],
}

impl Kernel for Less<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (to, from) in self.row.iter_mut().zip(self.from) {
            *to -= self.by * from;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{Tensor, assert_close};

    #[test]
    fn times_the_matrix_is_one() {
        for (batch, n) in [(1, 1), (2, 2), (3, 7), (1, 33), (0, 3)] {
            let x = Tensor::random(&[batch, n, n], 3);
            let x = x.to_vec::<f32>();
            let n = n as usize;
            // Away from a zero pivot, and with the greatest one never on the diagonal.
            let x = Tensor::from_fn(&[batch, n as i64, n as i64], |k| {
                x[k] + if (k / n + 1) % n == k % n { 4.0 } else { 0.0 }
            });
            on_all("Inverse", 1, |case| {
                let y = case.domain("com.microsoft").input(&x).output(DType::F32, &x.dims).run();
                let one = Case::new("MatMul", 13).input(&x).input(&y[0]).output(DType::F32, &x.dims).run();
                let want = Tensor::from_fn(&x.dims, |k| if k / n % n == k % n { 1f32 } else { 0.0 });
                assert_close(&one[0], &want, 1e-5);
            });
        }
    }

    #[test]
    fn without_an_inverse_there_is_no_number() {
        let x = Tensor::new(&[2, 2], &[0f32, 0.0, 0.0, 0.0]);
        let y = Case::new("Inverse", 1).domain("com.microsoft").input(&x).output(DType::F32, &[2, 2]).run();
        assert!(y[0].to_vec::<f32>().iter().all(|x| !x.is_finite()));
    }
}
