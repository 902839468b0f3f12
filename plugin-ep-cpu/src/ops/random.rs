//! Random numbers, and dropout.
//!
//! A node with a seed gives the same numbers in every run and for any number of threads; without one, each run has others.

mod dropout;
mod generator;

use super::float::{FLOATS, Float, Floats, FloatsMut, agree};
use super::{GRAIN, cost};
use dropout::dropout;
use generator::{Source, Stream};
use ortolan_ep_kit::element::{NUMBERS, set};
use ortolan_ep_kit::{Args, Cost, DType, Fault, Kernel, NodeView, Op, Reject, Shapes, Slot, any, bytes, size, split};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Bernoulli", (15, 22), "bernoulli", any!(bernoulli))
        .types(&[("T1", FLOATS), ("T2", FLOATS | NUMBERS | DType::Bool.mask())])
        .at(&[Slot::In(0), Slot::Out(0)]),
    Kernel::new("Dropout", (12, 22), "dropout", any!(dropout)).types(DROPOUT).in_place(&[(0, 0)]),
    Kernel::new("Multinomial", (7, 22), "multinomial", any!(multinomial))
        .types(&[("T1", FLOATS), ("T2", set(&[DType::I32, DType::I64]))])
        .at(&[Slot::In(0), Slot::Out(0)]),
    Kernel::new("RandomNormal", (1, 22), "randomnormal", any!(numbers)).types(MADE).at(OUT),
    Kernel::new("RandomNormalLike", (1, 22), "randomnormal", any!(numbers)).types(MADE).at(OUT).unread(&[0]),
    Kernel::new("RandomUniform", (1, 22), "randomuniform", any!(numbers)).types(MADE).at(OUT),
    Kernel::new("RandomUniformLike", (1, 22), "randomuniform", any!(numbers)).types(MADE).at(OUT).unread(&[0]),
];

const MADE: &[(&str, u64)] = &[("T", FLOATS)];
const OUT: &[Slot] = &[Slot::Out(0)];
const DROPOUT: &[(&str, u64)] = &[("T", FLOATS), ("T1", FLOATS), ("T2", DType::Bool.mask())];

/// The seed of a node as bits; it is a float.
fn source(node: &NodeView<'_>) -> Source {
    Source::new(node.float_if("seed").map(|seed| seed.to_bits().into()))
}

/// `RandomNormal`, `RandomUniform`, and those of another tensor's shape.
struct Numbers {
    source: Source,
    normal: bool,
    /// Mean and deviation, or the limits' least and distance.
    shift: f64,
    scale: f64,
    float: Float,
}

impl Op for Numbers {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let normal = node.op().starts_with("RandomNormal");
        let names = if normal { ["mean", "scale"] } else { ["low", "high"] };
        let [a, b] = [node.float(names[0])?, node.float(names[1])?].map(f64::from);
        let scale = if normal { b } else { b - a };
        if !(a.is_finite() && scale.is_finite()) {
            return Err(Reject::attribute(format!(
                "attributes {} = {a} and {} = {b} are not finite",
                names[0], names[1]
            )));
        }
        Ok(Numbers { source: source(node), normal, shift: a, scale, float: Float::output(node, 0)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, if self.normal { 15.0 } else { 2.0 })
    }
}

fn numbers(op: &Numbers, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let (stream, par) = (op.source.stream(), args.par());
    let y = FloatsMut::output(args, 0, op.float);
    // Numbers come in pairs, and a piece may begin anywhere: each element finds its own.
    y.rows(par, 1, GRAIN / 8, |first, mut y| {
        for k in 0..y.len() {
            let at = (first + k) as u64;
            let x = if op.normal { stream.normal(at) } else { stream.uniform(at) };
            y.put(k, x * op.scale + op.shift);
        }
    })?;
    Ok(())
}

/// `Bernoulli`: 1 with the probability that the input states, else 0.
struct Bernoulli {
    source: Source,
    p: Float,
    /// 1 as the output's type has it.
    one: Vec<u8>,
}

impl Op for Bernoulli {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (p, out) = (Float::input(node, 0)?, node.out()?.dtype());
        let one = match out {
            DType::F32 => bytes::of(&[1f32]).to_vec(),
            DType::F64 => bytes::of(&[1f64]).to_vec(),
            DType::F16 => bytes::of(&[0x3c00u16]).to_vec(),
            DType::Bf16 => bytes::of(&[0x3f80u16]).to_vec(),
            // Integers and bool have a 1 in their first byte.
            other => (0..other.bits() / 8).map(|k| u8::from(k == 0)).collect(),
        };
        Ok(Bernoulli { source: source(node), p, one })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 3.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, (): &mut ()) -> Result<(), Fault> {
        agree("output 0", shapes.output_len(0), shapes.input_len(0))
    }
}

fn bernoulli(op: &Bernoulli, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let (p, stream, par) = (Floats::input(args, 0, op.p), op.source.stream(), args.par());
    let (y, width) = (args.output::<u8>(0), op.one.len());
    split::rows(par, y, width, GRAIN / 8, |_, first, piece| {
        for (k, y) in piece.chunks_exact_mut(width).enumerate() {
            let at = first + k;
            match stream.uniform(at as u64) < p.get(at) {
                true => y.copy_from_slice(&op.one),
                false => y.fill(0),
            }
        }
    })?;
    Ok(())
}

/// `Multinomial`: classes drawn by their unnormalized logarithms of probabilities.
struct Multinomial {
    source: Source,
    float: Float,
    wide: bool,
}

/// Classes, and draws of each row.
#[derive(Debug, Default, Clone, Copy)]
struct Draws {
    classes: usize,
    samples: usize,
}

impl Op for Multinomial {
    type Bound = Draws;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        if rank != 2 {
            return Err(Reject::rank(format!("the input has rank {rank}, needed is 2")));
        }
        let wide = node.out()?.dtype() as u32 == DType::I64 as u32;
        Ok(Multinomial { source: source(node), float: Float::input(node, 0)?, wide })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let classes = node.input(0).and_then(|x| x.dim(1)).map_or(f64::NAN, |n| n as f64);
        cost::per_element(node, 2.0 * classes)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Draws) -> Result<(), Fault> {
        let (&[rows, classes], &[out, samples]) = (shapes.input(0), shapes.output(0)) else {
            return Err(Fault::data("the input and the output have rows and columns"));
        };
        *bound = Draws { classes: size(classes), samples: size(samples) };
        if classes == 0 && shapes.output_len(0) > 0 {
            return Err(Fault::data("there are no classes to draw from"));
        }
        agree("output 0", size(out), size(rows))
    }
}

fn multinomial(op: &Multinomial, draws: &Draws, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, stream, par) = (Floats::input(args, 0, op.float), op.source.stream(), args.par());
    let &Draws { classes, samples } = draws;
    let draw = |at: usize| class(&x, at / samples.max(1) * classes, classes, stream, at);
    let grain = (1usize << 13).div_ceil(classes.max(1));
    if op.wide {
        let y = args.output::<i64>(0);
        split::rows(par, y, 1, grain, |_, first, y| {
            y.iter_mut().enumerate().for_each(|(k, y)| *y = i64::from(draw(first + k)));
        })?;
    } else {
        let y = args.output::<i32>(0);
        split::rows(par, y, 1, grain, |_, first, y| y.iter_mut().enumerate().for_each(|(k, y)| *y = draw(first + k)))?;
    }
    Ok(())
}

/// Draws a class: the first one at which the sum of probabilities goes above a uniform number.
fn class(x: &Floats<'_>, start: usize, classes: usize, stream: Stream, at: usize) -> i32 {
    let most = x.row(start, classes).fold(f64::NEG_INFINITY, f64::max);
    let weight = |x: f64| if x == f64::NEG_INFINITY { 0.0 } else { (x - most).exp() };
    let total: f64 = x.row(start, classes).map(weight).sum();
    let limit = stream.uniform(at as u64) * total;
    let mut sum = 0.0;
    let mut last = 0;
    for (class, x) in (0i32..).zip(x.row(start, classes)) {
        sum += weight(x);
        if weight(x) > 0.0 {
            last = class;
        }
        if sum > limit {
            return class;
        }
    }
    last
}

#[cfg(test)]
mod tests;
