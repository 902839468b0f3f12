//! Operators that change features one by one, or pick some of them.

use super::input::{Input, Matrix};
use crate::ops::float::agree;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{self, Isa, Kernel, Operand, Simd, ops};
use ortolan_ep_kit::{Args, Cost, DType, Element, Fault, NodeView, Op, Reject, Shapes, count, size, split};

/// `Scaler`: `y = (x - offset) * scale`, with one number for all columns or one for each.
pub(super) struct Scaler {
    isa: Isa,
    offset: Vec<f32>,
    scale: Vec<f32>,
}

impl Op for Scaler {
    type Bound = Matrix;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        let list = |name, default| match node.long_floats(name) {
            Some(list) if !list.is_empty() => list.into_owned(),
            _ => vec![default],
        };
        Ok(Scaler { isa: Cpu::of(node).isa, offset: list("offset", 0.0), scale: list("scale", 1.0) })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.1)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        *bound = Matrix::of(shapes.input(0))?;
        for (name, list) in [("offset", &self.offset), ("scale", &self.scale)] {
            if list.len() != 1 {
                agree(name, list.len(), bound.columns)?;
            }
        }
        agree("Y", shapes.output_len(0), shapes.input_len(0))
    }
}

pub(super) fn scaler<X: Input>(op: &Scaler, bound: &Matrix, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y, columns) = (args.input::<X>(0), args.output::<f32>(0), bound.columns.max(1));
    split::rows(args.par(), y, columns, GRAIN.div_ceil(columns), |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(columns).enumerate() {
            let x = &x[(first + k) * columns..(first + k + 1) * columns];
            op.isa.dispatch(Scale { x, offset: &op.offset, scale: &op.scale, y });
        }
    })?;
    Ok(())
}

struct Scale<'a, X> {
    x: &'a [X],
    offset: &'a [f32],
    scale: &'a [f32],
    y: &'a mut [f32],
}

impl<X: Input> Kernel for Scale<'_, X> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Scale { x, offset, scale, y } = self;
        // f64 holds what an f32 or i32 is exactly, so that the difference is rounded once.
        let value = |x: X, offset: f32, scale: f32| ((x.wide() - f64::from(offset)) as f32) * scale;
        match (offset, scale) {
            (&[offset], &[scale]) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = value(x, offset, scale)),
            _ => {
                for (k, (y, &x)) in y.iter_mut().zip(x).enumerate() {
                    let at = |list: &[f32]| if list.len() == 1 { list[0] } else { list[k] };
                    *y = value(x, at(offset), at(scale));
                }
            }
        }
    }
}

/// `Normalizer`: rows divided by their greatest value, the sum of their sizes, or their length.
pub(super) struct Normalizer {
    isa: Isa,
    norm: Norm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Norm {
    Max,
    L1,
    L2,
}

impl Op for Normalizer {
    type Bound = Matrix;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        let norm = match node.text("norm").unwrap_or("MAX") {
            "MAX" => Norm::Max,
            "L1" => Norm::L1,
            "L2" => Norm::L2,
            other => return Err(Reject::attribute(format!("attribute norm = '{other}' is not MAX, L1 or L2"))),
        };
        Ok(Normalizer { isa: Cpu::of(node).isa, norm })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.2)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        *bound = Matrix::of(shapes.input(0))?;
        agree("Y", shapes.output_len(0), shapes.input_len(0))
    }
}

pub(super) fn normalizer<X: Input>(op: &Normalizer, bound: &Matrix, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y, columns) = (args.input::<X>(0), args.output::<f32>(0), bound.columns.max(1));
    split::rows(args.par(), y, columns, GRAIN.div_ceil(columns), |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(columns).enumerate() {
            let x = &x[(first + k) * columns..(first + k + 1) * columns];
            let each = || x.iter().map(|x| x.wide());
            let norm = match op.norm {
                Norm::Max => each().fold(f64::NEG_INFINITY, f64::max),
                Norm::L1 => each().map(f64::abs).sum(),
                Norm::L2 => each().map(|x| x * x).sum::<f64>().sqrt(),
            };
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x.wide() as f32); // rounds to the nearest
            if norm != 0.0 {
                simd::map_binary_in_place(op.isa, &ops::Div, y, Operand::Scalar(norm as f32));
            }
        }
    })?;
    Ok(())
}

/// `Binarizer`: 1 above the threshold, else 0.
pub(super) struct Binarizer {
    threshold: f64,
}

impl Op for Binarizer {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(0)?;
        Ok(Binarizer { threshold: node.float("threshold")?.into() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.1)
    }
}

/// 0 and 1 of a type.
pub(super) trait Bit: Input {
    const ZERO: Self;
    const ONE: Self;
}
macro_rules! bits {
    ($($t:ty: $zero:literal $one:literal),*) => { $(
        impl Bit for $t {
            const ZERO: $t = $zero;
            const ONE: $t = $one;
        }
    )* };
}
bits!(f32: 0.0 1.0, f64: 0.0 1.0, i64: 0 1, i32: 0 1);

pub(super) fn binarizer<X: Bit>(op: &Binarizer, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y) = (args.input::<X>(0), args.output::<X>(0));
    split::rows(args.par(), y, 1, GRAIN, |_, at, y| {
        y.iter_mut().zip(&x[at..]).for_each(|(y, x)| *y = if x.wide() > op.threshold { X::ONE } else { X::ZERO });
    })?;
    Ok(())
}

/// `Imputer`: one value of a column is replaced by another.
pub(super) struct Imputer {
    /// What is put in, for all columns or for each; as integers if X holds integers.
    floats: Vec<f32>,
    ints: Vec<i64>,
    replaced: f32,
    replaced_int: i64,
}

impl Op for Imputer {
    type Bound = Matrix;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?.dtype();
        let float = matches!(x, DType::F32 | DType::F64);
        let floats = node.long_floats("imputed_value_floats").unwrap_or_default().into_owned();
        let ints = node.long_ints("imputed_value_int64s").unwrap_or_default().into_owned();
        let have = if float { floats.len() } else { ints.len() };
        if have == 0 {
            let name = if float { "imputed_value_floats" } else { "imputed_value_int64s" };
            return Err(Reject::attribute(format!("attribute {name} is empty, and X is {x}")));
        }
        let (replaced, replaced_int) = (node.float("replaced_value_float")?, node.int("replaced_value_int64")?);
        Ok(Imputer { floats, ints, replaced, replaced_int })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.2)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrix) -> Result<(), Fault> {
        *bound = Matrix::of(shapes.input(0))?;
        for (name, len) in [("imputed_value_floats", self.floats.len()), ("imputed_value_int64s", self.ints.len())] {
            if len > 1 {
                agree(name, len, bound.columns)?;
            }
        }
        agree("Y", shapes.output_len(0), shapes.input_len(0))
    }
}

/// A type whose values are replaced.
pub(super) trait Impute: Input {
    fn is(self, op: &Imputer) -> bool;
    fn instead(op: &Imputer, column: usize) -> Self;
}

macro_rules! impute {
    ($($t:ty: $list:ident, |$x:ident, $op:ident| $is:expr;)*) => { $(
        impl Impute for $t {
            fn is(self, $op: &Imputer) -> bool { let $x = self; $is }
            fn instead(op: &Imputer, column: usize) -> $t {
                op.$list[if op.$list.len() == 1 { 0 } else { column }] as $t
            }
        }
    )* };
}
impute! {
    f32: floats, |x, op| x == op.replaced || x.is_nan() && op.replaced.is_nan();
    f64: floats, |x, op| x == f64::from(op.replaced) || x.is_nan() && op.replaced.is_nan();
    i64: ints, |x, op| x == op.replaced_int;
    i32: ints, |x, op| i64::from(x) == op.replaced_int;
}

pub(super) fn imputer<X: Impute>(op: &Imputer, bound: &Matrix, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y, columns) = (args.input::<X>(0), args.output::<X>(0), bound.columns.max(1));
    for (y, x) in y.chunks_exact_mut(columns).zip(x.chunks_exact(columns)) {
        for (column, (y, &x)) in y.iter_mut().zip(x).enumerate() {
            *y = if x.is(op) { X::instead(op, column) } else { x };
        }
    }
    Ok(())
}

/// `FeatureVectorizer`: columns of all inputs side by side, cut or filled with 0 to stated widths.
pub(super) struct Vectorizer {
    widths: Vec<usize>,
}

/// Rows, and the columns of each input.
#[derive(Debug, Default)]
pub(super) struct Parts {
    rows: usize,
    columns: Vec<usize>,
}

impl Op for Vectorizer {
    type Bound = Parts;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let widths = node.long_ints("inputdimensions").unwrap_or_default();
        if widths.len() != node.input_count() {
            let (have, need) = (widths.len(), node.input_count());
            return Err(Reject::attribute(format!("attribute inputdimensions has {have} elements for {need} inputs")));
        }
        let first = node.needs(0)?.dtype();
        for i in 1..node.input_count() {
            let other = node.needs(i)?.dtype();
            if other as u32 != first as u32 {
                return Err(Reject::dtype(format!("input {i} is {other}, input 0 {first}")));
            }
        }
        let width =
            |&w: &i64| usize::try_from(w).map_err(|_| Reject::attribute(format!("attribute inputdimensions has {w}")));
        Ok(Vectorizer { widths: widths.iter().map(width).collect::<Result<_, _>>()? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Parts) -> Result<(), Fault> {
        bound.columns.clear();
        for i in 0..self.widths.len() {
            // A vector is a column here.
            let (rows, columns) = match *shapes.input(i) {
                [rows] => (size(rows), 1),
                [rows, columns] => (size(rows), size(columns)),
                ref other => {
                    return Err(Fault::data(format!("input {i} has dimensions {other:?}, not rows and columns")));
                }
            };
            if i > 0 && rows != bound.rows {
                return Err(Fault::data(format!("input {i} has {rows} rows, input 0 {}", bound.rows)));
            }
            bound.rows = rows;
            bound.columns.push(columns);
        }
        let total = self.widths.iter().fold(0, |sum: usize, &w| sum.saturating_add(w));
        agree("Y", shapes.output_len(0), bound.rows.saturating_mul(total))
    }
}

pub(super) fn vectorizer<X: Input>(op: &Vectorizer, bound: &Parts, args: &mut Args<'_>) -> Result<(), Fault> {
    let y = args.output::<f32>(0);
    let total: usize = op.widths.iter().sum();
    let mut before = 0;
    for (i, (&width, &columns)) in op.widths.iter().zip(&bound.columns).enumerate() {
        let x = args.input::<X>(i);
        for (r, row) in y.chunks_exact_mut(total.max(1)).enumerate() {
            let x = &x[r * columns..(r + 1) * columns];
            for (k, to) in row[before..before + width].iter_mut().enumerate() {
                *to = x.get(k).map_or(0.0, |x| x.wide() as f32); // rounds to the nearest
            }
        }
        before += width;
    }
    Ok(())
}

/// `ArrayFeatureExtractor`: columns by number.
pub(super) struct Extractor;

/// Rows, columns, and how many are picked.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Picked {
    columns: usize,
    picked: usize,
}

impl Op for Extractor {
    type Bound = Picked;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        if node.needs(0)?.rank() == 0 {
            return Err(Reject::rank("X is a scalar"));
        }
        node.needs(1)?;
        Ok(Extractor)
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Picked) -> Result<(), Fault> {
        let x = shapes.input(0);
        let Some((&columns, rows)) = x.split_last() else { return Err(Fault::data("X is a scalar")) };
        *bound = Picked { columns: size(columns), picked: shapes.input_len(1) };
        agree("Z", shapes.output_len(0), count(rows).saturating_mul(bound.picked))
    }
}

pub(super) fn extract<X: Element>(_: &Extractor, bound: &Picked, args: &mut Args<'_>) -> Result<(), Fault> {
    let &Picked { columns, picked } = bound;
    let (x, which, z) = (args.input::<X>(0), args.input::<i64>(1), args.output::<X>(0));
    let bad = |&k: &i64| usize::try_from(k).map_or(true, |k| k >= columns);
    if let Some(at) = which.iter().position(bad) {
        return Err(Fault::data(format!("Y is {} at element {at}, X has {columns} columns", which[at])));
    }
    for (to, from) in z.chunks_exact_mut(picked.max(1)).zip(x.chunks_exact(columns.max(1))) {
        to.iter_mut().zip(which).for_each(|(to, &k)| *to = from[size(k)]);
    }
    Ok(())
}
