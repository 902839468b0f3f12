//! Operators that make tensors from little or nothing: filled, counted, one-hot, diagonal, triangular.

use super::lane::Number;
use super::narrow::{Bf16, F16};
use super::value::{BOOL, EIGHTS, SMALL, TENSOR, Value, Word, by_width};
use super::{GRAIN, cost, ints, strided};
use ortolan_ep_kit::element::{NUMBERS, set};
use ortolan_ep_kit::{
    Args, Cost, DType, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, Slot, any, count, resolve_axis, size, split,
    typed,
};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("ConstantOfShape", (9, 25), "constantofshape", any!(fill))
        .types(&[("T2", (TENSOR & !set(&[DType::C64, DType::C128])) | EIGHTS | SMALL)])
        .at(&[Slot::Out(0)])
        .unread(&[0]),
    Kernel::new("EyeLike", (9, 22), "eyelike", any!(eye))
        .types(&[("T1", ORDINARY), ("T2", ORDINARY)])
        .at(&[Slot::In(0), Slot::Out(0)])
        .unread(&[0]),
    Kernel::new("OneHot", (9, 28), "onehot", any!(one_hot))
        .types(&[("T1", INDICES), ("T2", INDICES), ("T3", TENSOR)])
        .late(),
    Kernel::new("Range", (11, 27), "range", typed!(range: f32 f64 F16 Bf16 i16 i32 i64)).late(),
    Kernel::new("Range", (1, 1), "range", typed!(range: f32 f64 i16 i32 i64)).domain("com.microsoft").late(),
    Kernel::new("Trilu", (14, 14), "trilu", any!(triangle)).types(&[("T", TENSOR)]).in_place(&[(0, 0)]),
    Kernel::new("Trilu", (1, 1), "trilu", any!(triangle))
        .domain("com.microsoft")
        .types(&[("T", TENSOR)])
        .in_place(&[(0, 0)]),
];

const INDICES: u64 = NUMBERS | set(&[DType::F16]);
const ORDINARY: u64 = NUMBERS | BOOL | set(&[DType::F16, DType::Bf16]);

type Run = Result<(), Fault>;

/// One element everywhere.
struct Fill {
    /// The element, or as many as share a byte.
    bytes: [u8; 16],
    bits: usize,
}

impl Op for Fill {
    /// Number of elements.
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let dtype = node.out()?.dtype();
        let mut fill = Fill { bytes: [0; 16], bits: dtype.bits() };
        let Some(value) = node.tensor("value") else { return Ok(fill) };
        let bytes = value.bytes().filter(|bytes| Some(bytes.len()) == dtype.bytes(1));
        let Some(bytes) = bytes.filter(|_| value.dtype() == Some(dtype)) else {
            return Err(Reject::attribute(format!("attribute value is not one element of {dtype}")));
        };
        fill.bytes[..bytes.len()].copy_from_slice(bytes);
        if fill.bits < 8 {
            let code = bytes[0] & (u8::MAX >> (8 - fill.bits));
            fill.bytes[0] = (0..8).step_by(fill.bits).fold(0, |byte, place| byte | code << place);
        }
        Ok(fill)
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, elements: &mut usize) -> Run {
        *elements = shapes.output_len(0);
        Ok(())
    }
}

fn fill(op: &Fill, elements: &usize, args: &mut Args<'_>) -> Run {
    if op.bits >= 8 {
        return by_width!(op.bits, fill_words(op, args));
    }
    let y = args.output::<u8>(0);
    y.fill(op.bytes[0]);
    let over = elements * op.bits % 8;
    if let (Some(last), 1..) = (y.last_mut(), over) {
        *last &= (1 << over) - 1; // bits behind the last element are 0
    }
    Ok(())
}

fn fill_words<T: Word>(op: &Fill, args: &mut Args<'_>) -> Run {
    let value = T::from_bytes(&op.bytes);
    Ok(split::rows(args.par(), args.output::<T>(0), 1, GRAIN, |_, _, y| y.fill(value))?)
}

/// Ones on a diagonal.
struct Eye {
    diagonal: i64,
    one: [u8; 16],
    bits: usize,
}

impl Op for Eye {
    /// Rows and columns.
    type Bound = (usize, usize);

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, y) = (node.needs(0)?, node.out()?);
        if x.rank() != 2 {
            return Err(Reject::rank(format!("input 0 has rank {}, 2 is needed", x.rank())));
        }
        let mut one = [0; 16];
        let bytes: &[u8] = match y.dtype() {
            DType::F32 => &1f32.to_le_bytes(),
            DType::F64 => &1f64.to_le_bytes(),
            DType::F16 => &F16::round(1.0).0.to_le_bytes(),
            DType::Bf16 => &Bf16::round(1.0).0.to_le_bytes(),
            _ => &[1],
        };
        one[..bytes.len()].copy_from_slice(bytes);
        Ok(Eye { diagonal: node.int_if("k").unwrap_or(0), one, bits: y.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut (usize, usize)) -> Run {
        if let &[rows, columns] = shapes.input(0) {
            *bound = (size(rows), size(columns));
        }
        Ok(())
    }
}

fn eye(op: &Eye, bound: &(usize, usize), args: &mut Args<'_>) -> Run {
    by_width!(op.bits, eye_words(op, bound, args))
}

fn eye_words<T: Word>(op: &Eye, &(_, columns): &(usize, usize), args: &mut Args<'_>) -> Run {
    let (one, y) = (T::from_bytes(&op.one), args.output::<T>(0));
    y.fill(T::default());
    for (row, y) in y.chunks_exact_mut(columns.max(1)).enumerate() {
        let place = op.diagonal.checked_add(row as i64).and_then(|place| usize::try_from(place).ok()); // a dimension
        if let Some(y) = place.and_then(|place| y.get_mut(place)) {
            *y = one;
        }
    }
    Ok(())
}

/// `on` where an index says, `off` everywhere else.
struct OneHot {
    axis: usize,
    indices: DType,
    depth: DType,
    bits: usize,
}

#[derive(Default)]
struct Hot {
    /// Dimensions of the indices.
    dims: Ints,
    /// `None` if only the run knows.
    depth: Option<i64>,
    indices: usize,
}

impl Op for OneHot {
    type Bound = Hot;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (indices, depth, values) = (node.needs(0)?, node.needs(1)?, node.needs(2)?);
        let axis = node.int_if("axis").unwrap_or(-1);
        let rank = indices.rank() + 1;
        let found = resolve_axis(axis, rank);
        let found =
            found.ok_or_else(|| Reject::attribute(format!("attribute axis = {axis} is no axis of rank {rank}")))?;
        Ok(OneHot { axis: found, indices: indices.dtype(), depth: depth.dtype(), bits: values.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, hot: &mut Hot) -> Run {
        hot.dims = Ints::from_slice(shapes.input(0));
        hot.depth = shapes.output(0).get(self.axis).copied();
        hot.indices = shapes.input_len(0);
        match (shapes.input_len(1), shapes.input_len(2)) {
            (1, 2) => Ok(()),
            (depths, values) => Err(Fault::data(format!(
                "input 1 has {depths} elements and input 2 {values}: 1 depth and 2 values are needed"
            ))),
        }
    }

    /// Indices as i64.
    fn scratch(&self, hot: &Hot, _: usize) -> usize {
        hot.indices * size_of::<i64>()
    }
}

/// Numbers of any type as i64, cut towards zero.
fn whole_numbers(args: &Args<'_>, input: usize, dtype: DType, put: impl FnMut(i64)) {
    match dtype {
        DType::F32 => args.input::<f32>(input).iter().map(|&x| x as i64).for_each(put),
        DType::F64 => args.input::<f64>(input).iter().map(|&x| x as i64).for_each(put),
        DType::F16 => args.input::<F16>(input).iter().map(|x| x.wide() as i64).for_each(put),
        DType::I8 => args.input::<i8>(input).iter().map(|&x| x.into()).for_each(put),
        DType::I16 => args.input::<i16>(input).iter().map(|&x| x.into()).for_each(put),
        DType::I32 => args.input::<i32>(input).iter().map(|&x| x.into()).for_each(put),
        DType::U8 => args.input::<u8>(input).iter().map(|&x| x.into()).for_each(put),
        DType::U16 => args.input::<u16>(input).iter().map(|&x| x.into()).for_each(put),
        DType::U32 => args.input::<u32>(input).iter().map(|&x| x.into()).for_each(put),
        // What an i64 does not hold is outside of every depth.
        DType::U64 => args.input::<u64>(input).iter().map(|&x| i64::try_from(x).unwrap_or(i64::MAX)).for_each(put),
        _ => args.input::<i64>(input).iter().copied().for_each(put),
    }
}

fn one_hot(op: &OneHot, hot: &Hot, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, one_hot_words(op, hot, args))
}

fn one_hot_words<T: Word>(op: &OneHot, hot: &Hot, args: &mut Args<'_>) -> Run {
    let mut depth = hot.depth.unwrap_or_default();
    if hot.depth.is_none() {
        whole_numbers(args, 1, op.depth, |n| depth = n);
    }
    if depth < 0 {
        return Err(Fault::data(format!("input 1 says a depth of {depth}")));
    }
    let indices = &mut args.scratch::<i64>()[..hot.indices];
    let mut places = indices.iter_mut();
    whole_numbers(args, 0, op.indices, |n| {
        if let Some(place) = places.next() {
            *place = n;
        }
    });
    let mut dims = hot.dims.clone();
    dims.insert(op.axis, depth);
    let &[off, on] = args.input::<T>(2) else { return Err(Fault::data("input 2 has not 2 values")) };
    let y = args.emit::<T>(0, &dims)?;
    let (depth, inner, indices) = (size(depth), count(&hot.dims[op.axis..]), &*indices);
    let block = depth * inner;
    Ok(split::rows(args.par(), y, block, GRAIN.div_ceil(block.max(1)), |_, first, blocks| {
        blocks.fill(off);
        for (block, indices) in blocks.chunks_exact_mut(block).zip(indices[first * inner..].chunks_exact(inner)) {
            for (column, &index) in indices.iter().enumerate() {
                let place = ints::place(index, depth);
                if place < depth {
                    block[place * inner + column] = on;
                }
            }
        }
    })?)
}

/// `y[i] = start + i * delta`
struct Range;

impl Op for Range {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        // ONNX Runtime's own has a step of 1 when it is left out, and takes lists of one element.
        let own = node.raw().domain() == "com.microsoft";
        for k in 0..if own { 2 } else { 3 } {
            node.needs(k)?;
        }
        for (k, rank) in (0..3).filter_map(|k| Some((k, node.input(k)?.rank()))) {
            if rank > usize::from(own) {
                return Err(Reject::rank(format!("input {k} has rank {rank}, a scalar is needed")));
            }
        }
        let half = matches!(node.needs(0)?.dtype(), DType::F16 | DType::Bf16);
        match node.int_if("stash_type").filter(|&stash| half && stash != i64::from(DType::F32 as u32)) {
            Some(stash) => Err(Reject::attribute(format!("attribute stash_type = {stash} has no kernel, 1 has one"))),
            None => Ok(Range),
        }
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        strided::cost(node)
    }
}

/// Numbers of a range.
trait Counted: Value {
    const ONE: Self;
    fn step(self, delta: Self, index: usize) -> Self;
    fn count(self, limit: Self, delta: Self) -> Option<i64>;
}

macro_rules! integers {
    ($($t:ty)*) => { $(
        impl Counted for $t {
            const ONE: $t = 1;
            #[inline(always)]
            fn step(self, delta: $t, index: usize) -> $t { self.wrapping_add(delta.wrapping_mul(index as $t)) } // wraps
            fn count(self, limit: $t, delta: $t) -> Option<i64> {
                let (span, delta) = (i128::from(limit) - i128::from(self), i128::from(delta));
                if delta == 0 {
                    return None;
                }
                let whole = span / delta + i128::from(span % delta != 0 && (span < 0) == (delta < 0));
                i64::try_from(whole.max(0)).ok()
            }
        }
    )* };
}
integers!(i16 i32 i64);

macro_rules! floats {
    ($($t:ty = $one:expr;)*) => { $(
        impl Counted for $t {
            const ONE: $t = $one;
            #[inline(always)]
            fn step(self, delta: $t, index: usize) -> $t {
                <$t as Value>::of(Value::wide(self).plus(Value::wide(delta).times(index as _))) // exact below 2^24
            }
            fn count(self, limit: $t, delta: $t) -> Option<i64> {
                let [start, limit, delta] = [self, limit, delta].map(|x| f64::from(Value::wide(x)));
                let count = ((limit - start) / delta).ceil();
                (count.is_finite() && count < 1e15).then_some(count.max(0.0) as i64) // whole and small
            }
        }
    )* };
}
floats! { f32 = 1.0; f64 = 1.0; F16 = F16(0x3c00); Bf16 = Bf16(0x3f80); }

fn range<T: Counted>(_: &Range, (): &(), args: &mut Args<'_>) -> Run {
    let scalar = |input: usize| args.input_if::<T>(input).map_or(T::ONE, |x| x.first().copied().unwrap_or_default());
    let (start, limit, delta) = (scalar(0), scalar(1), scalar(2));
    let count = start.count(limit, delta).ok_or_else(|| {
        Fault::data(format!("a range from {start:?} to {limit:?} by {delta:?} has no number of elements"))
    })?;
    let y = args.emit::<T>(0, &[count])?;
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, first, y| {
        for (index, y) in (first..).zip(y) {
            *y = start.step(delta, index);
        }
    })?)
}

/// The part of each matrix above or below a diagonal.
struct Trilu {
    upper: bool,
    bits: usize,
}

#[derive(Default)]
struct Matrices {
    rows: usize,
    columns: usize,
    /// `None` if only the run knows.
    diagonal: Option<i64>,
}

impl Op for Trilu {
    type Bound = Matrices;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = node.needs(0)?;
        match x.rank() {
            2.. => Ok(Trilu { upper: node.int_if("upper").unwrap_or(1) != 0, bits: x.dtype().bits() }),
            rank => Err(Reject::rank(format!("input 0 has rank {rank}, at least 2 is needed"))),
        }
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Matrices) -> Run {
        let dims = shapes.input(0);
        if let &[.., rows, columns] = dims {
            (bound.rows, bound.columns) = (size(rows), size(columns));
        }
        bound.diagonal = match shapes.elements(1) {
            Some(list) => list.first().copied(),
            None if shapes.has(1) => None,
            None => Some(0),
        };
        Ok(())
    }
}

fn triangle(op: &Trilu, matrices: &Matrices, args: &mut Args<'_>) -> Run {
    by_width!(op.bits, triangle_words(op, matrices, args))
}

fn triangle_words<T: Word>(op: &Trilu, matrices: &Matrices, args: &mut Args<'_>) -> Run {
    let diagonal = match matrices.diagonal {
        Some(diagonal) => diagonal,
        None => args.input::<i64>(1).first().copied().unwrap_or(0),
    };
    let alias = args.alias(0);
    let y = args.output::<T>(0);
    let x = alias.is_none().then(|| args.input::<T>(0));
    let &Matrices { rows, columns, .. } = matrices;
    Ok(split::rows(args.par(), y, columns, GRAIN.div_ceil(columns.max(1)), |_, first, lines| {
        for (number, y) in (first..).zip(lines.chunks_exact_mut(columns)) {
            let row = (number % rows) as i64; // a dimension
            if let Some(x) = x {
                y.copy_from_slice(&x[number * columns..][..columns]);
            }
            // The diagonal's place belongs to both parts.
            let place = row.saturating_add(diagonal).clamp(-1, columns as i64); // a dimension
            match op.upper {
                true => y[..size(place)].fill(T::default()),
                false => y[size(place.saturating_add(1)).min(columns)..].fill(T::default()),
            }
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::{Dims, count, index, position, ramp};
    use crate::ops::narrow::{Bf16, F16};
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::testing::Tensor;
    use ortolan_ep_kit::{Bool, DType, Element, RejectCode};

    const TYPES: [DType; 5] = [DType::U8, DType::Bf16, DType::F32, DType::I64, DType::C128];

    #[test]
    fn filled() {
        let shape = Tensor::new(&[2], &[3i64, 5]);
        for dtype in [DType::Bool, DType::F16, DType::F32, DType::I64, DType::F8E5M2] {
            let value = ramp(dtype, &[1], 100);
            let want = Tensor { dtype, dims: vec![3, 5], bytes: value.bytes.repeat(15) };
            let case = Case::new("ConstantOfShape", 25).tensor("value", &value).input(&shape);
            assert_eq!(case.output(dtype, &[3, 5]).run(), [want], "{dtype}");
        }
        let y = Case::new("ConstantOfShape", 25).input(&shape).output(DType::F32, &[3, 5]).run();
        assert_eq!(y, [Tensor::new(&[3, 5], &[0f32; 15])]);
        let value = Tensor { dtype: DType::U4, dims: vec![1], bytes: vec![7] };
        let case = Case::new("ConstantOfShape", 25).tensor("value", &value).input(&shape);
        assert_eq!(case.output(DType::U4, &[3, 5]).run()[0].bytes, [0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x77, 0x07]);
        let value = Tensor::new(&[2], &[1f32, 2.0]);
        let case = Case::new("ConstantOfShape", 25).tensor("value", &value).input(&shape);
        let (code, text) = case.output(DType::F32, &[3, 5]).rejection();
        let want = "ConstantOfShape: attribute value is not one element of f32";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
    }

    fn eyes<T: Element>(one: T, zero: T) {
        for (dims, k) in [([3, 4], 0i64), ([4, 3], 1), ([3, 3], -2), ([2, 2], 9), ([0, 3], 0), ([3, 3], i64::MAX)] {
            let want = Tensor::from_fn(&dims, |n| {
                let i = index(&dims, n);
                if i64::try_from(i[0]).unwrap().checked_add(k) == Some(i[1] as i64) { one } else { zero }
            });
            let case = Case::new("EyeLike", 22).int("k", k).input(&ramp(DType::F32, &dims, 0));
            assert_eq!(case.output(T::DTYPE, &dims).run(), [want], "{dims:?} {k}");
        }
    }

    #[test]
    fn diagonals() {
        eyes(1.0f32, 0.0);
        eyes(1.0f64, 0.0);
        eyes(F16::round(1.0), F16(0));
        eyes(Bf16::round(1.0), Bf16(0));
        eyes(1i64, 0);
        eyes(1u8, 0);
        eyes(Bool(1), Bool(0));
    }

    #[test]
    fn one_hot_along_every_axis() {
        // Indices, axis, depth.
        let cases: &[(Dims, i64, i64)] =
            &[(&[], -1, 4), (&[5], 0, 3), (&[5], -1, 3), (&[2, 3], 1, 7), (&[2, 3], -3, 2), (&[0], 0, 2), (&[3], 0, 0)];
        for dtype in TYPES {
            for &(dims, axis, depth) in cases {
                let at = axis.rem_euclid(dims.len() as i64 + 1) as usize;
                let list: Vec<i64> = (0..count(dims) as i64).map(|k| k * 3 - 4).collect();
                let values = ramp(dtype, &[2], 50);
                let mut out = dims.to_vec();
                out.insert(at, depth);
                let size = dtype.bits() / 8;
                let bytes = (0..count(&out)).flat_map(|k| {
                    let mut i = index(&out, k);
                    let place = i.remove(at) as i64;
                    let want = list[position(dims, &i)];
                    let on = usize::from(want == place || want + depth == place);
                    values.bytes[on * size..(on + 1) * size].to_vec()
                });
                let want = Tensor { dtype, dims: out.clone(), bytes: bytes.collect() };
                let floats: Vec<f32> = list.iter().map(|&i| i as f32 * 1.001).collect();
                for indices in [Tensor::new(dims, &list), Tensor::new(dims, &floats)] {
                    for late in [false, true] {
                        on_all("OneHot", 28, |case| {
                            let case = case.int("axis", axis).input(&indices);
                            let case = case.input(&Tensor::new(&[1], &[depth as f32 + 0.5])).input(&values);
                            let case = match late {
                                true => case.late_output(dtype, out.len()),
                                false => case.output(dtype, &out),
                            };
                            assert_eq!(case.run(), from_ref(&want), "{dtype} {dims:?} {axis} {depth}");
                        });
                    }
                }
            }
        }
    }

    fn ranges<T: Element>(cases: &[(T, T, T, &[T])]) {
        for &(start, limit, delta, want) in cases {
            let want = Tensor::new(&[want.len() as i64], want);
            for late in [false, true] {
                let case = Case::new("Range", 27).int("stash_type", 1);
                let case = [start, limit, delta].iter().fold(case, |case, &x| case.input(&Tensor::new(&[], &[x])));
                let case = match late {
                    true => case.late_output(T::DTYPE, 1),
                    false => case.output(T::DTYPE, &want.dims),
                };
                assert_eq!(case.run(), from_ref(&want));
            }
        }
    }

    #[test]
    fn counted() {
        ranges::<i64>(&[
            (0, 5, 1, &[0, 1, 2, 3, 4]),
            (3, 9, 3, &[3, 6]),
            (10, 4, -2, &[10, 8, 6]),
            (0, 5, -1, &[]),
            (5, 0, 2, &[]),
            (i64::MAX - 1, i64::MAX, 5, &[i64::MAX - 1]),
            (i64::MIN, i64::MAX, i64::MAX, &[i64::MIN, -1, i64::MAX - 1]),
        ]);
        ranges::<i16>(&[(-3, 4, 3, &[-3, 0, 3])]);
        ranges::<f32>(&[(1.0, 2.0, 0.25, &[1.0, 1.25, 1.5, 1.75]), (0.0, 1.0, 0.3, &[0.0, 0.3, 0.6, 0.90000004])]);
        ranges::<f64>(&[(1.0, -1.0, -0.75, &[1.0, 0.25, -0.5]), (1.0, 1.0, 1.0, &[])]);
        let halves = [0.0, 0.5, 1.0].map(F16::round);
        ranges::<F16>(&[(halves[0], F16::round(1.2), halves[1], &halves)]);
        let scalar = |x: i32| Tensor::new(&[], &[x]);
        let case = Case::new("Range", 27).input(&scalar(1)).input(&scalar(5)).input(&scalar(0));
        let error = case.late_output(DType::I32, 1).try_run().unwrap_err();
        assert!(error.contains("a range from 1 to 5 by 0 has no number of elements"), "{error}");
        let scalar = |x: f32| Tensor::new(&[], &[x]);
        let case = Case::new("Range", 27).input(&scalar(1.0)).input(&scalar(f32::INFINITY)).input(&scalar(1.0));
        assert!(case.late_output(DType::F32, 1).try_run().is_err());
    }

    #[test]
    fn triangles() {
        for dtype in TYPES {
            for dims in [&[3i64, 4][..], &[4, 3], &[2, 5, 5], &[3, 0], &[0, 3], &[2, 60, 301]] {
                for k in [0i64, 1, -1, 3, -9, i64::MAX, i64::MIN] {
                    for upper in [true, false] {
                        let x = ramp(dtype, dims, 9);
                        let (size, mut want) = (dtype.bits() / 8, x.clone());
                        for n in 0..count(dims) {
                            let i = index(dims, n);
                            let (row, column) = (i[i.len() - 2] as i128, i[i.len() - 1] as i128);
                            let line = row + i128::from(k);
                            if if upper { column < line } else { column > line } {
                                want.bytes[n * size..(n + 1) * size].fill(0);
                            }
                        }
                        let diagonal = Tensor::new(&[], &[k]);
                        let case = Case::new("Trilu", 14).int("upper", upper.into()).input(&x);
                        let case = match k {
                            0 => case,
                            1 => case.constant(&diagonal),
                            _ => case.input(&diagonal),
                        };
                        assert_eq!(case.output(dtype, dims).run(), from_ref(&want), "{dtype} {dims:?} {k} {upper}");
                    }
                }
            }
        }
    }

    #[test]
    fn refusals() {
        let x = ramp(DType::F32, &[3], 0);
        let (code, text) = Case::new("Trilu", 14).input(&x).output(DType::F32, &[3]).rejection();
        assert_eq!((code, &*text), (RejectCode::Rank, "Trilu: input 0 has rank 1, at least 2 is needed"));
        let (code, text) = Case::new("EyeLike", 22).input(&x).output(DType::F32, &[3]).rejection();
        assert_eq!((code, &*text), (RejectCode::Rank, "EyeLike: input 0 has rank 1, 2 is needed"));
        let case = Case::new("OneHot", 28).int("axis", 2).input(&x).input(&x).input(&x).output(DType::F32, &[3, 3]);
        let (code, text) = case.rejection();
        assert_eq!((code, &*text), (RejectCode::Attribute, "OneHot: attribute axis = 2 is no axis of rank 2"));
        let half = Tensor::new(&[], &[F16(0)]);
        let case = Case::new("Range", 27).int("stash_type", 10).input(&half).input(&half).input(&half);
        let (code, text) = case.output(DType::F16, &[0]).rejection();
        let want = "Range: attribute stash_type = 10 has no kernel, 1 has one";
        assert_eq!((code, &*text), (RejectCode::Attribute, want));
    }
}
