//! `QuantizeLinear` and `DequantizeLinear`: a scale for the whole tensor, for each index of an axis, or for each block along
//! an axis.

use super::codes::{Code, Values, put};
use crate::igemm::nearest;
use crate::ops::float::{Float, FloatsMut, agree};
use crate::ops::lane::Side;
use crate::ops::{Cpu, GRAIN, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Reject, Shapes, count, resolve_axis, size, split};

/// Either operator.
pub(super) struct Linear {
    isa: Isa,
    axis: i64,
    block: usize,
    saturate: bool,
    /// Type in which x is divided by the scale.
    precision: Float,
    x: DType,
    scale: DType,
    y: DType,
}

/// How scales lie under a tensor of `outer` times `len` times `inner` elements, of which `len` is the axis.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Grid {
    len: usize,
    inner: usize,
    scales: Scales,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Scales {
    /// One for all.
    #[default]
    All,
    /// One for each index of the axis.
    Axis,
    /// One for so many indices of the axis, at each place of the other axes.
    Block(usize),
}

impl Op for Linear {
    type Bound = Grid;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, scale, y) = (node.needs(0)?, node.needs(1)?, node.out()?);
        let axis = node.int("axis")?;
        let block = node.int_if("block_size").unwrap_or(0);
        let block = usize::try_from(block)
            .map_err(|_| Reject::attribute(format!("attribute block_size = {block} is negative")))?;
        if let Some(zero) = node.input(2) {
            let code = if node.op() == "QuantizeLinear" { y.dtype() } else { x.dtype() };
            if zero.dtype() as u32 != code as u32 {
                return Err(Reject::dtype(format!("the zero point is {}, not {code} as the codes are", zero.dtype())));
            }
        }
        if scale.rank() > 0 && scale.rank() != 1 && block == 0 {
            return Err(Reject::rank(format!("the scale has rank {} without a block_size", scale.rank())));
        }
        Ok(Linear {
            isa: Cpu::of(node).isa,
            axis,
            block,
            saturate: node.int_if("saturate").unwrap_or(1) != 0,
            precision: precision(node, x.dtype(), scale.dtype())?,
            x: x.dtype(),
            scale: scale.dtype(),
            y: y.dtype(),
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.1)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Grid) -> Result<(), Fault> {
        let (x, scale) = (shapes.input(0), shapes.input(1));
        let scales = shapes.input_len(1);
        if shapes.has(2) {
            agree("the zero point", shapes.input_len(2), scales)?;
        }
        agree("output 0", shapes.output_len(0), shapes.input_len(0))?;
        *bound = Grid { len: 1, inner: shapes.input_len(0), scales: Scales::All };
        if self.block == 0 && scales == 1 {
            return Ok(());
        }
        let axis = if x.len() == 1 { Some(0) } else { resolve_axis(self.axis, x.len()) };
        let Some(axis) = axis else {
            return Err(Fault::data(format!("axis {} is no axis of x, which has dimensions {x:?}", self.axis)));
        };
        bound.len = size(x[axis]);
        bound.inner = count(&x[axis + 1..]);
        if self.block == 0 {
            bound.scales = Scales::Axis;
            return agree("the scale", scales, bound.len);
        }
        bound.scales = Scales::Block(self.block);
        let blocks = bound.len.div_ceil(self.block);
        let fits = scale.len() == x.len()
            && (0..x.len()).all(|k| size(scale[k]) == if k == axis { blocks } else { size(x[k]) });
        if !fits {
            return Err(Fault::data(format!(
                "the scale has dimensions {scale:?}, blocks of {} along axis {axis} of {x:?} need {blocks} there",
                self.block
            )));
        }
        Ok(())
    }
}

/// The attribute, else the wider one of the two types.
fn precision(node: &NodeView<'_>, x: DType, scale: DType) -> Result<Float, Reject> {
    let asked = node.int_if("precision").unwrap_or(0);
    if asked == 0 {
        let half = |dtype| Float::of(dtype).filter(|f| matches!(f, Float::F16 | Float::Bf16));
        return Ok(half(x).filter(|_| half(x) == half(scale)).unwrap_or(Float::F32));
    }
    let dtype = u32::try_from(asked).ok().and_then(DType::from_u32);
    dtype
        .and_then(Float::of)
        .filter(|f| *f != Float::F64)
        .ok_or_else(|| Reject::attribute(format!("attribute precision = {asked} is neither f32, f16 nor bf16")))
}

impl Grid {
    /// Which scale an element has.
    fn scale_of(&self, at: usize) -> usize {
        let (index, j) = (at / self.inner.max(1), at % self.inner.max(1));
        let (outer, a) = (index / self.len.max(1), index % self.len.max(1));
        match self.scales {
            Scales::All => 0,
            Scales::Axis => a,
            Scales::Block(block) => (outer * self.len.div_ceil(block) + a / block) * self.inner + j,
        }
    }

    /// Calls `body(first element, elements, first scale, whether each element has the next one)` over pieces of `y`.
    fn walk<T: Send>(
        &self,
        par: &dyn Parallel,
        y: &mut [T],
        body: impl Fn(usize, &mut [T], usize, bool) + Sync,
    ) -> Result<(), Fault> {
        // Elements that share a scale, or have scales that lie as they do.
        let (row, each) = match self.scales {
            Scales::All => {
                return Ok(split::rows(par, y, 1, GRAIN, |_, at, piece| body(at, piece, 0, false))?);
            }
            Scales::Axis if self.inner == 1 => (self.len, true),
            Scales::Axis => (self.inner, false),
            Scales::Block(_) if self.inner == 1 => (self.len, false),
            Scales::Block(_) => (self.inner, true),
        };
        let part = match self.scales {
            Scales::Block(block) if self.inner == 1 => block,
            _ => row.max(1),
        };
        split::rows(par, y, row, GRAIN.div_ceil(row.max(1)), |_, first, piece| {
            for (k, line) in piece.chunks_exact_mut(row.max(1)).enumerate() {
                for (i, part_of) in line.chunks_mut(part).enumerate() {
                    let at = (first + k) * row + i * part;
                    body(at, part_of, self.scale_of(at), each);
                }
            }
        })?;
        Ok(())
    }
}

/// Elements of a list from a position on, or one for all.
fn side<T: Copy>(all: &[T], at: usize, each: bool, len: usize) -> Side<'_, T> {
    Side::new(all, at, usize::from(each), len)
}

pub(super) fn quantize<Q: Code>(op: &Linear, grid: &Grid, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, scales, zeros) = (args.input::<f32>(0), args.input::<f32>(1), args.input_if::<Q>(2));
    let y = args.output::<Q>(0);
    grid.walk(args.par(), y, |at, y, scale, each| {
        let zero = zeros.map_or(Side::Scalar(Q::of(0)), |z| side(z, scale, each, y.len()));
        let (x, scale) = (&x[at..at + y.len()], side(scales, scale, each, y.len()));
        op.isa.dispatch(Quantize { x, scale, zero, y });
    })
}

struct Quantize<'a, Q> {
    x: &'a [f32],
    scale: Side<'a, f32>,
    zero: Side<'a, Q>,
    y: &'a mut [Q],
}

impl<Q: Code> Kernel for Quantize<'_, Q> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Quantize { x, scale, zero, y } = self;
        match (scale, zero) {
            (Side::Scalar(scale), Side::Scalar(zero)) => {
                let zero = zero.wide();
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = code(x / scale, zero));
            }
            _ => {
                for (k, (y, &x)) in y.iter_mut().zip(x).enumerate() {
                    *y = code(x / at(scale, k), at(zero, k).wide());
                }
            }
        }
    }
}

#[inline(always)]
fn at<T: Copy>(side: Side<'_, T>, k: usize) -> T {
    match side {
        Side::Slice(x) => x[k],
        Side::Scalar(x) => x,
    }
}

/// The code of a quotient. Limits come first: an integer zero point does not change how they round.
#[inline(always)]
pub(crate) fn code<Q: Code>(x: f32, zero: i32) -> Q {
    let (low, high) = ((Q::LOW - zero) as f32, (Q::HIGH - zero) as f32); // at most 17 bits
    let x = if x > low { x } else { low }; // NaN becomes the lower limit
    let x = if x < high { x } else { high };
    Q::of(nearest(x) + zero)
}

pub(super) fn quantize_plain(op: &Linear, grid: &Grid, args: &mut Args<'_>) -> Result<(), Fault> {
    let x = Values { dtype: op.x, data: args.input(0) };
    let scales = Values { dtype: op.scale, data: args.input(1) };
    let zeros = args.input_if(2).map(|data| Values { dtype: op.y, data });
    let y = args.output::<u8>(0);
    let total = x.data.len() * 8 / op.x.bits();
    y.fill(0); // bits behind the last element
    for k in 0..total {
        let at = grid.scale_of(k);
        let round = |x: f64| round_to(op.precision, x);
        let quotient = round(round(x.get(k)) / round(scales.get(at)));
        // The zero point is added to the rounded code; floats have none but 0.
        let zero = zeros.map_or(0.0, |z| z.get(at));
        put(op.y, y, k, if zero == 0.0 { quotient } else { quotient.round_ties_even() + zero }, op.saturate);
    }
    Ok(())
}

fn round_to(float: Float, x: f64) -> f64 {
    use crate::ops::narrow::{Bf16, F16, sticky};
    match float {
        Float::F64 => x,
        Float::F32 => f64::from(x as f32), // rounds to nearest
        Float::F16 => F16::round(sticky(x)).wide().into(),
        Float::Bf16 => Bf16::round(sticky(x)).wide().into(),
    }
}

pub(super) fn dequantize<Q: Code>(op: &Linear, grid: &Grid, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, scales, zeros) = (args.input::<Q>(0), args.input::<f32>(1), args.input_if::<Q>(2));
    let y = args.output::<f32>(0);
    grid.walk(args.par(), y, |at, y, scale, each| {
        let zero = zeros.map_or(Side::Scalar(Q::of(0)), |z| side(z, scale, each, y.len()));
        let (x, scale) = (&x[at..at + y.len()], side(scales, scale, each, y.len()));
        op.isa.dispatch(Dequantize { x, scale, zero, y });
    })
}

struct Dequantize<'a, Q> {
    x: &'a [Q],
    scale: Side<'a, f32>,
    zero: Side<'a, Q>,
    y: &'a mut [f32],
}

impl<Q: Code> Kernel for Dequantize<'_, Q> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Dequantize { x, scale, zero, y } = self;
        let value = |x: Q, zero: i32, scale: f32| x.wide().wrapping_sub(zero) as f32 * scale; // rounds to nearest
        match (scale, zero) {
            (Side::Scalar(scale), Side::Scalar(zero)) => {
                let zero = zero.wide();
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = value(x, zero, scale));
            }
            _ => {
                for (k, (y, &x)) in y.iter_mut().zip(x).enumerate() {
                    *y = value(x, at(zero, k).wide(), at(scale, k));
                }
            }
        }
    }
}

pub(super) fn dequantize_plain(op: &Linear, grid: &Grid, args: &mut Args<'_>) -> Result<(), Fault> {
    let x = Values { dtype: op.x, data: args.input(0) };
    let scales = Values { dtype: op.scale, data: args.input(1) };
    let zeros = args.input_if(2).map(|data| Values { dtype: op.x, data });
    let float = Float::of(op.y).ok_or_else(|| Fault::data(format!("the output is {}", op.y)))?;
    let mut y = FloatsMut::output(args, 0, float);
    for k in 0..y.len() {
        let at = grid.scale_of(k);
        y.put(k, (x.get(k) - zeros.map_or(0.0, |z| z.get(at))) * scales.get(at));
    }
    Ok(())
}
