//! `MatMulIntegerToFloat`, and `DynamicQuantizeMatMul`, which finds the codes of its left side itself: products on `igemm`
//! that become floats at once.

use crate::igemm::{Factor, Finish, Target, Zero};
use crate::ops::GRAIN;
use crate::ops::float::agree;
use crate::ops::quant::{LIMITS_OF, Products, Sides, integer_cost, one_or_each, scale_of, zero};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{
    Args, Cost, DType, Fault, NodeView, Op, Pack, Reject, Shapes, ValueView, Weight, WeightSource, bytes, split,
};

/// `Y = a_scale (A - a_zero) b_scale (B - b_zero) + bias`
pub(in crate::ops::contrib) struct ToFloat {
    sides: Sides,
    /// Inputs of A's scale and zero point; without them A is of floats.
    a: Option<[usize; 2]>,
    /// Inputs of B's, and of the bias.
    b: [usize; 2],
    bias: usize,
}

impl Op for ToFloat {
    type Bound = Products;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let dynamic = node.op() == "DynamicQuantizeMatMul";
        let (a, b, bias) = if dynamic { (None, [2, 3], 4) } else { (Some([2, 4]), [3, 5], 6) };
        for scale in a.iter().map(|a| a[0]).chain([b[0]]) {
            is_list(&node.needs(scale)?, scale)?;
        }
        for (codes, zero) in a.iter().map(|a| (0, a[1])).chain([(1, b[1])]) {
            let (code, Some(v)) = (node.needs(codes)?.dtype(), node.input(zero)) else { continue };
            is_list(&v, zero)?;
            if v.dtype() as u32 != code as u32 {
                return Err(Reject::dtype(format!("input {zero} is {}, not {code} as its codes are", v.dtype())));
            }
        }
        if node.needs(b[0])?.dtype() as u32 != DType::F32 as u32 {
            return Err(Reject::dtype("scales are f32 here"));
        }
        Ok(ToFloat { sides: Sides::parse(node, 1)?, a, b, bias })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        integer_cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Products) -> Result<(), Fault> {
        self.sides.bind(bound, [shapes.input(0), shapes.input(1), shapes.output(0)], false)?;
        if let Some([scale, zero]) = self.a {
            agree("a_scale", shapes.input_len(scale), 1)?;
            if shapes.has(zero) {
                agree("a_zero_point", shapes.input_len(zero), 1)?;
            }
        }
        one_or_each(shapes, self.b[0], "b_scale", bound.n)?;
        one_or_each(shapes, self.b[1], "b_zero_point", bound.n)?;
        if shapes.has(self.bias) { agree("the bias", shapes.input_len(self.bias), bound.n) } else { Ok(()) }
    }

    /// Factors of columns, then the codes of A and the limits of its blocks, then what the product needs.
    fn scratch(&self, bound: &Products, _: usize) -> usize {
        let codes = if self.a.is_none() { codes_room(bound) } else { [0; 2] };
        [columns_room(bound), codes[0], codes[1]]
            .into_iter()
            .fold(self.sides.scratch(bound), |sum, room| sum.saturating_add(room))
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input == 1 { self.sides.pack(source) } else { None }
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], _: &dyn Parallel) -> Result<(), Fault> {
        self.sides.fill(weight, to)
    }
}

/// Scales and zero points are one for all or one for each column, not for each matrix of a batch.
fn is_list(value: &ValueView<'_>, input: usize) -> Result<(), Reject> {
    let outer = value.rank().saturating_sub(1);
    match (0..outer).all(|axis| value.fixed_dim(axis) == Some(1)) {
        true => Ok(()),
        false => Err(Reject::rank(format!("input {input} has rank {}, a number or a list is needed", value.rank()))),
    }
}

fn columns_room(bound: &Products) -> usize {
    bound.n.saturating_mul(size_of::<f32>()).next_multiple_of(64)
}

/// Bytes for codes and limits of A.
fn codes_room(bound: &Products) -> [usize; 2] {
    let len = bound.left_len();
    let limits = len.div_ceil(LIMITS_OF).saturating_mul(2 * size_of::<f32>());
    [len.next_multiple_of(64), limits.next_multiple_of(64)]
}

pub(in crate::ops::contrib) fn to_float(op: &ToFloat, bound: &Products, args: &mut Args<'_>) -> Result<(), Fault> {
    let (sides, par, n) = (&op.sides, args.par(), bound.n);
    let scratch = args.scratch::<u8>();
    let (columns, scratch) = scratch.split_at_mut(columns_room(bound));
    let (a, a_scale, a_zero, scratch): (&[u8], f32, _, _) = match op.a {
        Some([scale, point]) => {
            (args.input::<u8>(0), args.input::<f32>(scale)[0], zero(args, point, sides.signed[0]), scratch)
        }
        None => {
            let x = args.input::<f32>(0);
            let [codes, limits] = codes_room(bound);
            let (codes, rest) = scratch.split_at_mut(codes);
            let (limits, rest) = rest.split_at_mut(limits);
            let limits = &mut bytes::elements_mut::<f32>(limits)[..x.len().div_ceil(LIMITS_OF) * 2];
            let found = scale_of(sides.isa, x, limits, par)?;
            let codes = &mut codes[..x.len()];
            split::rows(par, codes, 1, GRAIN, |_, at, y| found.quantize(sides.isa, &x[at..at + y.len()], y))?;
            (codes, found.scale, Zero::All(found.zero.into()), rest)
        }
    };
    let columns = &mut bytes::elements_mut::<f32>(columns)[..n];
    let b_scale = args.input::<f32>(op.b[0]);
    let column = match b_scale {
        &[one] => Factor::All(a_scale * one),
        each => {
            columns.iter_mut().zip(each).for_each(|(to, b)| *to = a_scale * b);
            Factor::Each(columns)
        }
    };
    let zeros = [a_zero, zero(args, op.b[1], sides.signed[1])];
    let bias = args.input_if::<f32>(op.bias);
    let finish = Finish::Floats { row: Factor::All(1.0), column, bias, add: false };
    let (b, y, gemm) = (args.input::<u8>(1), args.output::<f32>(0), sides.gemm(bound));
    sides.each(bound, (a, b), zeros, scratch, par, |left, right, at, scratch| {
        Ok(gemm.run(left, right, &finish, Target::F32(&mut y[at]), n, scratch, par)?)
    })
}
