//! `MatMulInteger` and `QLinearMatMul` on `igemm`, with constant right sides packed ahead.

use crate::igemm::{Bytes, Factor, Finish, IGemm, Left, PackedB, Right, Target, Zero};
use crate::ops::broadcast::{Axis, Broadcast};
use crate::ops::float::{Float, Floats, agree};
use crate::ops::{Cpu, cost};
use crate::simd::Isa;
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{
    Args, Cost, DType, Fault, NodeView, Op, Pack, Reject, Seam, Shapes, ValueView, Weight, WeightSource, count, size,
    split,
};

/// What both operators share: two matrices of bytes, or batches of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sides {
    pub isa: Isa,
    pub signed: [bool; 2],
    packed: bool,
}

/// Sizes of the products, and where their operands lie.
#[derive(Debug, Default)]
pub(crate) struct Products {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Matrices of A and B under those of the output.
    batch: Broadcast<2>,
    /// Bytes for a right side that is packed in each run.
    packing: usize,
    /// Values of all left sides.
    left: usize,
}

impl Products {
    /// Values of all left sides.
    pub fn left_len(&self) -> usize {
        self.left
    }
}

impl Sides {
    pub fn parse(node: &NodeView<'_>, b: usize) -> Result<Sides, Reject> {
        let signed = |i: usize| node.needs(i).map(|v| v.dtype() as u32 == DType::I8 as u32);
        for (i, name) in [(0, "A"), (b, "B")] {
            if node.needs(i)?.rank() == 0 {
                return Err(Reject::rank(format!("{name} is a scalar")));
            }
        }
        Ok(Sides { isa: Cpu::of(node).isa, signed: [signed(0)?, signed(b)?], packed: false })
    }

    pub fn bind(&self, products: &mut Products, [a, b, y]: [&[i64]; 3], rows_differ: bool) -> Result<(), Fault> {
        let misfit = || Fault::data(format!("{a:?} times {b:?} is not {y:?}"));
        let (a_batch, (mut m, k)) = match *a {
            [] => return Err(misfit()),
            [k] => (&a[..0], (1, size(k))),
            [.., m, k] => (&a[..a.len() - 2], (size(m), size(k))),
        };
        let (b_batch, (rows, n)) = match *b {
            [] => return Err(misfit()),
            [k] => (&b[..0], (size(k), 1)),
            [.., k, n] => (&b[..b.len() - 2], (size(k), size(n))),
        };
        let matrix = usize::from(a.len() > 1) + usize::from(b.len() > 1);
        let y_batch = y.len().checked_sub(matrix).map(|len| &y[..len]).filter(|_| k == rows).ok_or_else(misfit)?;
        products.batch.bind(y_batch, [a_batch, b_batch])?;
        let cells = products.batch.total.checked_mul(m).and_then(|rows| rows.checked_mul(n));
        if cells != Some(count(y)) {
            return Err(misfit());
        }
        // Matrices of A times one B are rows of one matrix, unless rows have zero points or scales of their own.
        let flat = products.batch.outer.is_empty() && products.batch.inner.step == [1, 0];
        if flat && !rows_differ {
            m *= products.batch.total;
            products.batch = Broadcast::default();
        }
        (products.m, products.n, products.k, products.left) = (m, n, k, count(a));
        products.packing = if self.packed { 0 } else { PackedB::new(self.isa, k, n).size() };
        Ok(())
    }

    pub fn gemm(&self, products: &Products) -> IGemm {
        IGemm::new(self.isa, products.m, products.n, products.k)
    }

    pub fn scratch(&self, products: &Products) -> usize {
        self.gemm(products).scratch_len().saturating_add(products.packing)
    }

    /// A plan for a constant right side that is one matrix.
    pub fn pack(&mut self, source: &WeightSource<'_>) -> Option<Pack> {
        let &[k, n] = source.dims else { return None };
        let layout = PackedB::new(self.isa, size(k), size(n));
        let format = fnv(fnv(FNV, b"igemm b"), &[layout.format(), u8::from(self.signed[1])]);
        self.packed = true;
        Some(Pack { format, bytes: layout.size(), from_base: false })
    }

    pub fn fill(&self, weight: &Weight<'_>, to: &mut [u8]) -> Result<(), Fault> {
        let &[k, n] = weight.dims else { return Err(Fault::data("a packed matrix has two dimensions")) };
        let layout = PackedB::new(self.isa, size(k), size(n));
        let b = Bytes { data: weight.bytes(), signed: self.signed[1] };
        layout.pack(b, false, 0, to);
        Ok(())
    }

    /// Calls `run` for each product of a batch with both sides and the values of its output.
    pub fn each<'a>(
        &self,
        products: &Products,
        (a, b): (&'a [u8], &'a [u8]),
        zeros: [Zero<'a>; 2],
        scratch: &mut [u8],
        par: &dyn Parallel,
        mut run: impl FnMut(Left<'_>, Right<'_>, core::ops::Range<usize>, &mut [u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let &Products { m, n, k, ref batch, packing, .. } = products;
        let layout = PackedB::new(self.isa, k, n);
        let (packing, scratch) = scratch.split_at_mut(packing);
        let mut last = None;
        for at in 0..batch.total {
            let [i, j] = place(batch, at);
            let left = Left { a: Bytes { data: &a[i * m * k..][..m * k], signed: self.signed[0] }, zero: zeros[0] };
            if !self.packed && last != Some(j) {
                let b = Bytes { data: &b[j * k * n..][..k * n], signed: self.signed[1] };
                split::rows(par, packing, layout.stride(), 1, |_, first, piece| layout.pack(b, false, first, piece))?;
                last = Some(j);
            }
            let packed: &[u8] = if self.packed { b } else { packing };
            let right = Right { packed, signed: self.signed[1], zero: zeros[1] };
            run(left, right, at * m * n..(at + 1) * m * n, scratch)?;
        }
        Ok(())
    }
}

/// Which matrix of A and of B product `at` of a batch has.
fn place(batch: &Broadcast<2>, mut at: usize) -> [usize; 2] {
    let mut place = [0; 2];
    let inner = core::iter::once(&batch.inner);
    for &Axis { len, step } in inner.chain(batch.outer.iter().rev()) {
        let index = at % len.max(1);
        at /= len.max(1);
        (0..2).for_each(|i| place[i] += index * step[i]);
    }
    place
}

/// Zero points as bytes: none, one for all, or one for each row or column.
pub(crate) fn zero<'a>(args: &Args<'a>, input: usize, signed: bool) -> Zero<'a> {
    match args.input_if::<u8>(input) {
        None => Zero::All(0),
        Some(data) => match (Bytes { data, signed }, data.len()) {
            (one, 1) => Zero::All(one.get(0)),
            (each, _) => Zero::Each(each),
        },
    }
}

/// Checks that an input has one element, or one for each of so many.
pub(crate) fn one_or_each(shapes: &Shapes<'_>, input: usize, name: &str, count: usize) -> Result<(), Fault> {
    match shapes.has(input) && shapes.input_len(input) != 1 {
        true => agree(name, shapes.input_len(input), count),
        false => Ok(()),
    }
}

/// Sums of products in i32, and what it takes over: a change to f32, a factor, a bias.
pub(super) struct MatMulInteger {
    sides: Sides,
    /// Whether A and B have zero points: inputs 2 and 3 may be what was taken over.
    zeros: [bool; 2],
    floats: bool,
    factor: Option<usize>,
    bias: Option<usize>,
    /// Whether the last axis of the output is that of B's columns.
    columns: bool,
}

impl Op for MatMulInteger {
    type Bound = Products;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let sides = Sides::parse(node, 1)?;
        let columns = node.needs(1)?.rank() > 1;
        let zeros = [node.input(2).is_some(), node.input(3).is_some()];
        Ok(MatMulInteger { sides, zeros, floats: false, factor: None, bias: None, columns })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        integer_cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Products) -> Result<(), Fault> {
        let rows_differ = self.zeros[0] && shapes.input_len(2) > 1;
        self.sides.bind(bound, [shapes.input(0), shapes.input(1), shapes.output(0)], rows_differ)?;
        if self.zeros[0] {
            one_or_each(shapes, 2, "a_zero_point", bound.m)?;
        }
        if self.zeros[1] {
            one_or_each(shapes, 3, "b_zero_point", bound.n)?;
        }
        for (input, name) in [(self.factor, "the factor"), (self.bias, "the bias")] {
            input.map_or(Ok(()), |input| one_or_each(shapes, input, name, bound.n))?;
        }
        Ok(())
    }

    fn scratch(&self, bound: &Products, _: usize) -> usize {
        self.sides.scratch(bound)
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input == 1 { self.sides.pack(source) } else { None }
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], _: &dyn Parallel) -> Result<(), Fault> {
        self.sides.fill(weight, to)
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        let Some(out) = next.output(0).filter(|out| out.dtype() as u32 == DType::F32 as u32) else { return false };
        let other = next.input(1 - seam.input.min(1));
        let per_column = |one_too: bool| {
            let fits = |v: &ValueView<'_>| is_one(v) && one_too || self.columns && is_row(v, &out);
            other.is_some_and(|v| v.dtype() as u32 == DType::F32 as u32 && fits(&v))
        };
        match next.op() {
            "Cast" if !self.floats => self.floats = true,
            "Mul" if self.floats && self.factor.is_none() && self.bias.is_none() && per_column(true) => {
                self.factor = Some(seam.extra);
            }
            "Add" if self.floats && self.bias.is_none() && per_column(false) => self.bias = Some(seam.extra),
            _ => return false,
        }
        true
    }
}

/// Whether a value has one element in every run.
fn is_one(value: &ValueView<'_>) -> bool {
    (0..value.rank()).all(|k| value.fixed_dim(k) == Some(1))
}

/// Whether a value has an element for each index of the last axis of another, and nothing else.
fn is_row(value: &ValueView<'_>, out: &ValueView<'_>) -> bool {
    let Some(last) = value.rank().checked_sub(1) else { return false };
    value.rank() <= out.rank()
        && value.same_dim(last, out, out.rank() - 1)
        && (0..last).all(|k| value.fixed_dim(k) == Some(1))
}

/// Integers are multiplied about three times as fast as floats.
pub(crate) fn integer_cost(node: &NodeView<'_>) -> Cost {
    let (Some(a), Some(y)) = (node.input(0), node.output(0)) else { return Cost::UNKNOWN };
    let k = a.rank().checked_sub(1).and_then(|axis| a.dim(axis)).map_or(f64::NAN, |k| k as f64);
    cost::products(node, y.elements() * k / 3.0)
}

pub(super) fn matmul_integer(op: &MatMulInteger, products: &Products, args: &mut Args<'_>) -> Result<(), Fault> {
    let sides = &op.sides;
    let gemm = sides.gemm(products);
    let zeros = [0, 1].map(|k| if op.zeros[k] { zero(args, 2 + k, sides.signed[k]) } else { Zero::All(0) });
    let (a, b, par) = (args.input::<u8>(0), args.input::<u8>(1), args.par());
    let (scratch, n) = (args.scratch::<u8>(), products.n);
    if !op.floats {
        let y = args.output::<i32>(0);
        return sides.each(products, (a, b), zeros, scratch, par, |left, right, at, scratch| {
            Ok(gemm.run(left, right, &Finish::Sums, Target::I32(&mut y[at]), n, scratch, par)?)
        });
    }
    let factor = op.factor.map_or(Factor::All(1.0), |input| match args.input::<f32>(input) {
        &[one] => Factor::All(one),
        each => Factor::Each(each),
    });
    let bias = op.bias.map(|input| args.input::<f32>(input));
    let y = args.output::<f32>(0);
    let finish = Finish::Floats { row: Factor::All(1.0), column: factor, bias, add: false };
    sides.each(products, (a, b), zeros, scratch, par, |left, right, at, scratch| {
        Ok(gemm.run(left, right, &finish, Target::F32(&mut y[at]), n, scratch, par)?)
    })
}

/// Codes times codes, as codes.
pub(super) struct QLinearMatMul {
    sides: Sides,
    scale: Float,
    signed: bool,
}

/// The second matrix among the inputs.
const B: usize = 3;

impl Op for QLinearMatMul {
    type Bound = Products;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        (0..8).try_for_each(|i| node.needs(i).map(drop))?;
        let signed = node.out()?.dtype() as u32 == DType::I8 as u32;
        Ok(QLinearMatMul { sides: Sides::parse(node, B)?, scale: Float::input(node, 1)?, signed })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        integer_cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Products) -> Result<(), Fault> {
        let rows_differ = shapes.input_len(1) > 1 || shapes.input_len(2) > 1;
        self.sides.bind(bound, [shapes.input(0), shapes.input(B), shapes.output(0)], rows_differ)?;
        one_or_each(shapes, 1, "a_scale", bound.m)?;
        one_or_each(shapes, 2, "a_zero_point", bound.m)?;
        one_or_each(shapes, 4, "b_scale", bound.n)?;
        one_or_each(shapes, 5, "b_zero_point", bound.n)?;
        agree("y_scale", shapes.input_len(6), 1)?;
        agree("y_zero_point", shapes.input_len(7), 1)
    }

    /// Factors of rows and columns come first.
    fn scratch(&self, bound: &Products, _: usize) -> usize {
        let factors = bound.m.saturating_add(bound.n).saturating_mul(size_of::<f32>());
        self.sides.scratch(bound).saturating_add(factors)
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if input == B { self.sides.pack(source) } else { None }
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], _: &dyn Parallel) -> Result<(), Fault> {
        self.sides.fill(weight, to)
    }
}

pub(super) fn qlinear_matmul(op: &QLinearMatMul, products: &Products, args: &mut Args<'_>) -> Result<(), Fault> {
    let (sides, &Products { m, n, .. }) = (&op.sides, products);
    let gemm = sides.gemm(products);
    let zeros = [zero(args, 2, sides.signed[0]), zero(args, 5, sides.signed[1])];
    let [a_scale, b_scale, y_scale] = [1, 4, 6].map(|i| Floats::input(args, i, op.scale));
    let y_zero = Bytes { data: args.input(7), signed: op.signed }.get(0);
    let (factors, scratch) = args.scratch::<u8>().split_at_mut((m + n) * size_of::<f32>());
    let (rows, columns) = ortolan_ep_kit::bytes::elements_mut::<f32>(factors).split_at_mut(m);
    let one_row = a_scale.len() == 1;
    let pick = |scale: &Floats<'_>, at: usize| scale.get(if scale.len() == 1 { 0 } else { at }) as f32; // was f32
    let y_scale = pick(&y_scale, 0);
    rows.iter_mut().enumerate().for_each(|(i, row)| *row = if one_row { 1.0 } else { pick(&a_scale, i) });
    for (j, column) in columns.iter_mut().enumerate() {
        *column = (if one_row { pick(&a_scale, 0) } else { 1.0 }) * pick(&b_scale, j) / y_scale;
    }
    let (row, column) = (Factor::Each(rows), Factor::Each(columns));
    let finish = Finish::Bytes { row, column, bias: None, zero: y_zero, signed: op.signed };
    let (a, b, par, y) = (args.input::<u8>(0), args.input::<u8>(B), args.par(), args.output::<u8>(0));
    sides.each(products, (a, b), zeros, scratch, par, |left, right, at, scratch| {
        Ok(gemm.run(left, right, &finish, Target::U8(&mut y[at]), n, scratch, par)?)
    })
}
