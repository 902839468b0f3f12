//! `CDist`: the distance of each row of one matrix from each row of another. Differences are squared one by one, so that
//! rows that are alike are 0 apart.

use crate::ops::float::agree;
use crate::ops::lane::Real;
use crate::ops::{Cpu, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, size, split};

pub(super) struct Distance {
    isa: Isa,
    root: bool,
}

/// Rows of B, and elements of a row.
#[derive(Debug, Default)]
pub(super) struct Rows {
    count: usize,
    len: usize,
}

impl Op for Distance {
    type Bound = Rows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for i in 0..2 {
            let rank = node.needs(i)?.rank();
            if rank != 2 {
                return Err(Reject::rank(format!("input {i} has rank {rank}, a matrix has 2")));
            }
        }
        let root = match node.text("metric").unwrap_or("sqeuclidean") {
            "euclidean" => true,
            "sqeuclidean" => false,
            other => {
                let known = "euclidean and sqeuclidean are done";
                return Err(Reject::attribute(format!("attribute metric = {other} has no kernel, {known}")));
            }
        };
        Ok(Distance { isa: Cpu::of(node).isa, root })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(a), Some(y)) = (node.input(0), node.output(0)) else { return Cost::UNKNOWN };
        cost::products(node, y.elements() * a.dim(1).map_or(f64::NAN, |n| n as f64) * 2.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Rows) -> Result<(), Fault> {
        let (&[rows, len], &[count, other]) = (shapes.input(0), shapes.input(1)) else {
            return Err(Fault::data("two matrices are needed"));
        };
        agree("a row of B", size(other), size(len))?;
        *bound = Rows { count: size(count), len: size(len) };
        agree("output 0", shapes.output_len(0), size(rows) * size(count))
    }
}

pub(super) fn distance<T: Real>(op: &Distance, rows: &Rows, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Rows { count, len } = rows;
    let (a, b) = (args.input::<T>(0), args.input::<T>(1));
    let grain = (1usize << 14).div_ceil((count * len).max(1));
    Ok(split::rows(args.par(), args.output::<T>(0), count, grain, |_, first, lines| {
        for (k, y) in lines.chunks_exact_mut(count.max(1)).enumerate() {
            op.isa.dispatch(Line { a: &a[(first + k) * len..][..len], b, root: op.root, y });
        }
    })?)
}

/// One row of A against all of B.
struct Line<'a, T> {
    a: &'a [T],
    b: &'a [T],
    root: bool,
    y: &'a mut [T],
}

/// Sums that are carried side by side.
const LANES: usize = 16;

impl<T: Real> Kernel for Line<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Line { a, b, root, y } = self;
        for j in 0..y.len() {
            let row = &b[j * a.len()..][..a.len()];
            let mut sums = [T::default(); LANES];
            let (heads, tail) = a.as_chunks::<LANES>();
            let (others, rest) = row.as_chunks::<LANES>();
            for i in 0..heads.len().min(others.len()) {
                for lane in 0..LANES {
                    let apart = heads[i][lane].minus(others[i][lane]);
                    sums[lane] = sums[lane].plus(apart.times(apart));
                }
            }
            let mut sum = T::default();
            for i in 0..tail.len().min(rest.len()) {
                let apart = tail[i].minus(rest[i]);
                sum = sum.plus(apart.times(apart));
            }
            for part in sums {
                sum = sum.plus(part);
            }
            y[j] = if root { sum.sqrt() } else { sum };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::{Tensor, assert_close};
    use ortolan_ep_kit::{DType, RejectCode};

    #[test]
    fn like_the_definition() {
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (9, 4, 100), (2, 3, 0), (0, 3, 4)] {
            let (a, b) = (Tensor::random(&[m, k], 1), Tensor::random(&[n, k], 2));
            let (x, y) = (a.to_vec::<f32>(), b.to_vec::<f32>());
            let (n, k) = (n as usize, k as usize);
            for (metric, root) in [("euclidean", true), ("sqeuclidean", false)] {
                let want = Tensor::from_fn(&[m, n as i64], |at| {
                    let (i, j) = (at / n, at % n);
                    let sum: f32 = (0..k).map(|p| (x[i * k + p] - y[j * k + p]).powi(2)).sum();
                    if root { sum.sqrt() } else { sum }
                });
                on_all("CDist", 1, |case| {
                    let case = case.domain("com.microsoft").text("metric", metric).input(&a).input(&b);
                    assert_close(&case.output(DType::F32, &[m, n as i64]).run()[0], &want, 1e-5);
                });
            }
        }
    }

    #[test]
    fn other_metrics_are_refused() {
        let a = Tensor::random(&[2, 2], 1);
        let case = Case::new("CDist", 1).domain("com.microsoft").text("metric", "cosine").input(&a).input(&a);
        let (code, text) = case.output(DType::F32, &[2, 2]).rejection();
        assert_eq!(code, RejectCode::Attribute);
        assert!(text.contains("metric = cosine has no kernel"), "{text}");
    }
}
