//! Functions of one code, by a table of all 256, and sums and products of two.

use super::Quantity;
use crate::igemm::nearest;
use crate::ops::broadcast::Broadcast;
use crate::ops::float::agree;
use crate::ops::lane::Side;
use crate::ops::quant::{Code, code};
use crate::ops::{Cpu, GRAIN, cost, loops};
use crate::simd::Isa;
use ortolan_ep_kit::{Args, Cost, Fault, NodeView, Op, Reject, Shapes, split};

/// `C = A + B` or `C = A * B`
pub(in crate::ops::contrib) struct Pair {
    isa: Isa,
    product: bool,
}

const A: Quantity = Quantity::at(1);
const B: Quantity = Quantity::at(4);
const C: Quantity = Quantity::at(6);

impl Op for Pair {
    type Bound = Broadcast<2>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        A.check(node, 0)?;
        B.check(node, 3)?;
        C.check(node, 0)?;
        if node.needs(0)?.dtype() as u32 != node.needs(3)?.dtype() as u32 {
            return Err(Reject::dtype("A and B differ in type"));
        }
        Ok(Pair { isa: Cpu::of(node).isa, product: node.op() == "QLinearMul" })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.1)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Broadcast<2>) -> Result<(), Fault> {
        [A, B, C].iter().try_for_each(|q| q.bind(shapes))?;
        bound.bind(shapes.output(0), [shapes.input(0), shapes.input(3)])
    }
}

pub(in crate::ops::contrib) fn pair<T: Code>(op: &Pair, walk: &Broadcast<2>, args: &mut Args<'_>) -> Result<(), Fault> {
    let [(a_scale, a_zero), (b_scale, b_zero), (c_scale, c_zero)] = [A, B, C].map(|q| q.read::<T>(args));
    let (x, y) = (args.input::<T>(0), args.input::<T>(3));
    let step = walk.inner.step;
    let (par, isa, out) = (args.par(), op.isa, args.output::<T>(0));
    // The zero point is added before the value is rounded, as ONNX Runtime does.
    let whole = |value: f32| -> T {
        let (low, high) = (T::LOW as f32, T::HIGH as f32); // 8 bits
        let value = if value > low { value } else { low }; // NaN becomes the lower limit
        T::of(nearest(if value < high { value } else { high }))
    };
    let zero = c_zero as f32; // 8 bits
    if op.product {
        let factor = a_scale * b_scale / c_scale;
        let f = |a: T, b: T| {
            let product = (a.wide() - a_zero) * (b.wide() - b_zero);
            whole(product as f32 * factor + zero) // 16 bits
        };
        return Ok(walk.walk(par, out, GRAIN, |[i, j], piece| {
            let sides = (Side::new(x, i, step[0], piece.len()), Side::new(y, j, step[1], piece.len()));
            loops::zip(isa, f, sides.0, sides.1, piece);
        })?);
    }
    let (a_factor, b_factor) = (a_scale / c_scale, b_scale / c_scale);
    let rest = zero - (a_factor * a_zero as f32 + b_factor * b_zero as f32); // 8 bits
    let f = |a: T, b: T| whole(a.wide() as f32 * a_factor + (b.wide() as f32 * b_factor + rest));
    Ok(walk.walk(par, out, GRAIN, |[i, j], piece| {
        let sides = (Side::new(x, i, step[0], piece.len()), Side::new(y, j, step[1], piece.len()));
        loops::zip(isa, f, sides.0, sides.1, piece);
    })?)
}

/// What each code becomes, by its bits.
pub(super) struct Table([u8; 256]);

impl Table {
    /// Codes of `f` of what codes stand for.
    pub fn new<T: Code>((scale, zero): (f32, i32), (to, to_zero): (f32, i32), f: impl Fn(f32) -> f32) -> Table {
        let mut table = [0; 256];
        for value in T::LOW..=T::HIGH {
            let x = (value - zero) as f32 * scale; // 9 bits
            let y: T = code(f(x) / to, to_zero);
            table[usize::from(value as u8)] = y.wide() as u8; // the bits of 8-bit codes
        }
        Table(table)
    }

    pub fn map(&self, x: &[u8], y: &mut [u8]) {
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = self.0[usize::from(x)]);
    }
}

/// `QLinearSigmoid` and `QLinearLeakyRelu`.
pub(in crate::ops::contrib) struct One {
    /// The slope of LeakyRelu.
    alpha: Option<f32>,
}

const X: Quantity = Quantity::at(1);
const Y: Quantity = Quantity::at(3);

impl Op for One {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        X.check(node, 0)?;
        Y.check(node, 0)?;
        let alpha = if node.op() == "QLinearLeakyRelu" { Some(node.float("alpha")?) } else { None };
        Ok(One { alpha })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.2)
    }

    fn bind(&self, shapes: &Shapes<'_>, (): &mut ()) -> Result<(), Fault> {
        X.bind(shapes)?;
        Y.bind(shapes)?;
        agree("output 0", shapes.output_len(0), shapes.input_len(0))
    }
}

pub(in crate::ops::contrib) fn one<T: Code>(op: &One, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let (from, to) = (X.read::<T>(args), Y.read::<T>(args));
    let table = match op.alpha {
        Some(alpha) => Table::new::<T>(from, to, |x| if x < 0.0 { alpha * x } else { x }),
        None => Table::new::<T>(from, to, |x| 1.0 / (1.0 + (-x).exp())),
    };
    let (x, par) = (args.input::<u8>(0), args.par());
    Ok(split::rows(par, args.output::<u8>(0), 1, GRAIN, |_, at, y| table.map(&x[at..], y))?)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{DType, RejectCode};

    fn one(x: f32) -> Tensor {
        Tensor::new(&[], &[x])
    }

    #[test]
    fn sums_and_products_like_the_definition() {
        for (a, b, out) in
            [(&[3i64, 17][..], &[17i64][..], &[3i64, 17][..]), (&[1, 5], &[4, 1], &[4, 5]), (&[0, 3], &[3], &[0, 3])]
        {
            let x = Tensor::from_fn(a, |k| (k * 37 % 251) as u8);
            let y = Tensor::from_fn(b, |k| (k * 91 + 5) as u8);
            let values = |scale: f64, zero: f64, t: &Tensor| -> Vec<f64> {
                t.to_vec::<u8>().iter().map(|&v| (f64::from(v) - zero) * scale).collect()
            };
            let (p, q) = (values(0.37, 12.0, &x), values(0.19, 130.0, &y));
            for (op, f) in [("QLinearAdd", (|a, b| a + b) as fn(f64, f64) -> f64), ("QLinearMul", |a, b| a * b)] {
                on_all(op, 1, |case| {
                    let zero = |z: u8| Tensor::new(&[], &[z]);
                    let case = case.domain("com.microsoft").input(&x).input(&one(0.37)).input(&zero(12));
                    let case = case.input(&y).input(&one(0.19)).input(&zero(130)).input(&one(0.71)).input(&zero(7));
                    let got = case.output(DType::U8, out).run()[0].to_vec::<u8>();
                    for (at, got) in got.into_iter().enumerate() {
                        let place = |dims| crate::ops::testing::offset(out, dims, at);
                        let want = (f(p[place(a)], q[place(b)]) / 0.71 + 7.0).clamp(0.0, 255.0);
                        assert!((f64::from(got) - want).abs() < 0.5001, "{op} {at}: {got} for {want}");
                    }
                });
            }
        }
    }

    #[test]
    fn a_zero_point_of_another_type_is_refused() {
        let x = Tensor::new(&[1], &[1u8]);
        let case = Case::new("QLinearSigmoid", 1).domain("com.microsoft").input(&x).input(&one(1.0));
        let case = case.input(&Tensor::new(&[], &[1i8])).input(&one(1.0)).output(DType::U8, &[1]);
        let (code, text) = case.rejection();
        assert_eq!(code, RejectCode::Dtype);
        assert!(text.contains("input 2 is i8, not u8 as its codes are"), "{text}");
    }
}
