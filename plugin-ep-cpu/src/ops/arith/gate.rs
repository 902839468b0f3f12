//! SwiGLU: a value times a gate, which is a Swish of its own input.

use super::super::lane::{Real, Side};
use super::super::{Cpu, GRAIN, cost};
use super::Run;
use crate::simd::{BinaryOp, Isa, Math, Simd};
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, split};

/// `y = a sigmoid(alpha a) b`
pub(super) struct Gated {
    isa: Isa,
    alpha: f32,
}

impl Op for Gated {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        node.needs(1)?;
        Ok(Gated { isa: Cpu::of(node).isa, alpha: node.float("alpha")? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.3)
    }

    fn bind(&self, shapes: &Shapes<'_>, (): &mut ()) -> Run {
        let (a, b, y) = (shapes.input(0), shapes.input(1), shapes.output(0));
        match a == b && a == y {
            true => Ok(()),
            false => Err(Fault::data(format!("A, B and Y of {a:?}, {b:?} and {y:?} have not one shape"))),
        }
    }
}

struct Gate {
    alpha: f32,
}

impl BinaryOp for Gate {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, a: S::F32, b: S::F32) -> S::F32 {
        s.mul(s.mul(a, s.sigmoid(s.mul(a, s.splat(self.alpha)))), b)
    }
}

pub(super) fn swiglu<T: Real>(op: &Gated, (): &(), args: &mut Args<'_>) -> Run {
    let (isa, gate, alpha, one) = (op.isa, Gate { alpha: op.alpha }, T::of(op.alpha), T::of(1.0));
    let scalar = |a: T, b: T| a.over(one.plus(alpha.times(a).negate().exp())).times(b);
    let over = args.alias(0).is_some();
    let (b, y) = (args.input::<T>(1), args.output::<T>(0));
    let a = if over { None } else { Some(args.input::<T>(0)) };
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, at, y| {
        let b = Side::Slice(&b[at..at + y.len()]);
        match a {
            Some(a) => T::zip(isa, &gate, scalar, Side::Slice(&a[at..at + y.len()]), b, y),
            None => T::zip_in_place(isa, &gate, scalar, y, b),
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::narrow::F16;
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{Tensor, assert_close};

    #[test]
    fn gates_of_every_float() {
        for dims in [&[][..], &[0], &[3, 17], &[20_001]] {
            let (a, b) = (Tensor::random(dims, 1), Tensor::random(dims, 2));
            let exact = |k: usize| {
                let (a, b) = (f64::from(a.to_vec::<f32>()[k]), f64::from(b.to_vec::<f32>()[k]));
                a / (1.0 + (-1.5 * a).exp()) * b
            };
            let all: Vec<f64> = (0..a.to_vec::<f32>().len().min(100)).map(exact).collect();
            on_all("SwiGLU", 28, |case| {
                let y = case.float("alpha", 1.5).input(&a).input(&b).output(DType::F32, dims).run();
                let got = y[0].to_vec::<f32>();
                got.iter().zip(&all).for_each(|(&y, &want)| assert!((f64::from(y) - want).abs() < 1e-6));
            });
        }
        let (a, b) = (Tensor::random(&[5], 1), Tensor::random(&[5], 2));
        let narrow = |x: &Tensor| Tensor::from_fn(&[5], |k| F16::round(x.to_vec::<f32>()[k]));
        let y = Case::new("SwiGLU", 28).float("alpha", 1.0).input(&a).input(&b).output(DType::F32, &[5]).run();
        let case = Case::new("SwiGLU", 28).float("alpha", 1.0).input(&narrow(&a)).input(&narrow(&b));
        let got: Vec<f32> = case.output(DType::F16, &[5]).run()[0].to_vec::<F16>().iter().map(|y| y.wide()).collect();
        assert_close(&Tensor::new(&[5], &got), &y[0], 2e-3);
    }
}
