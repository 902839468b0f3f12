//! `GatherBlockQuantized`: rows of a table of codes, with a scale and a zero point for each block along an axis.

use crate::ops::float::agree;
use crate::ops::quant::Values;
use crate::ops::value::Value;
use crate::ops::{GRAIN, cost};
use ortolan_ep_kit::{Args, Cost, DType, Fault, Ints, NodeView, Op, Reject, Shapes, count, size, split};

pub(super) struct Blocks {
    codes: DType,
    /// Bits of a code.
    bits: usize,
    /// 0: the axis is one block.
    block: usize,
    gather: usize,
    axis: usize,
    wide: bool,
}

/// Sizes of the table as codes, and how scales lie under them.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Codes: rows that are gathered from, and of one of them.
    rows: usize,
    inner: usize,
    outer: usize,
    indices: usize,
    dims: Ints,
    scales: Ints,
    /// Codes along the axis that share a scale.
    block: usize,
    /// Scales lie densely under an axis that is the last one.
    simple: bool,
}

const SCALES: usize = 2;
const ZEROS: usize = 3;

impl Op for Blocks {
    type Bound = Sizes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let data = node.needs(0)?;
        let codes = data.dtype();
        let float = !matches!(codes, DType::U8 | DType::U4 | DType::I4);
        let bits = match (codes, node.int("bits")?) {
            (DType::U8, bits @ (2 | 4 | 8)) => size(bits),
            (DType::U8, bits) => {
                return Err(Reject::attribute(format!("attribute bits = {bits}: 2, 4 and 8 are done")));
            }
            _ => codes.bits(),
        };
        let block = node.int("block_size")?;
        let block = match usize::try_from(block) {
            Ok(0) if float => 0,
            Ok(block) if block >= 16 && block.is_power_of_two() => block,
            _ => {
                return Err(Reject::attribute(format!("attribute block_size = {block} is no power of two from 16 on")));
            }
        };
        let (gather, axis) = (node.axis("gather_axis", data.rank())?, node.axis("quantize_axis", data.rank())?);
        if codes as u32 == DType::U8 as u32 && (gather != 0 || bits < 8 && gather == axis) {
            return Err(Reject::attribute("attribute gather_axis is 0 for bytes, and another axis than quantize_axis"));
        }
        if let Some(zeros) = node.input(ZEROS)
            && (float || zeros.dtype() as u32 != codes as u32)
        {
            return Err(Reject::dtype(format!(
                "input {ZEROS} is {}: only integers have zero points, of their type",
                zeros.dtype()
            )));
        }
        let wide = node.needs(1)?.dtype() as u32 == DType::I64 as u32;
        Ok(Blocks { codes, bits, block, gather, axis, wide })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::per_element(node, 0.5)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Sizes) -> Result<(), Fault> {
        let (mut dims, scales) = (Ints::from_slice(shapes.input(0)), Ints::from_slice(shapes.input(SCALES)));
        if let Some(last) = dims.last_mut().filter(|_| self.codes as u32 == DType::U8 as u32) {
            *last = last.saturating_mul(8 / self.bits as i64); // at most 4
        }
        let block = if self.block == 0 { size(dims[self.axis]).max(1) } else { self.block };
        let blocks = size(dims[self.axis]).div_ceil(block);
        let one_too = !matches!(self.codes, DType::U8 | DType::U4 | DType::I4);
        let fits = |k: usize| match k == self.axis {
            true => size(scales[k]) == blocks,
            false => scales[k] == dims[k] || scales[k] == 1 && one_too,
        };
        if scales.len() != dims.len() || !(0..dims.len()).all(fits) {
            return Err(Fault::data(format!(
                "scales of {scales:?} do not go with codes of {dims:?} in blocks of {block}"
            )));
        }
        if shapes.has(ZEROS) {
            let (outer, last) = (count(&scales[..scales.len() - 1]), size(scales[scales.len() - 1]));
            let bytes = self.codes as u32 == DType::U8 as u32;
            let need = if bytes { outer * (last * self.bits).div_ceil(8) } else { outer * last };
            agree("zero_points", shapes.input_len(ZEROS), need)?;
        }
        let simple = self.axis + 1 == dims.len() && (0..dims.len()).all(|k| k == self.axis || scales[k] == dims[k]);
        *bound = Sizes {
            rows: size(dims[self.gather]),
            inner: count(&dims[self.gather + 1..]),
            outer: count(&dims[..self.gather]),
            indices: shapes.input_len(1),
            dims,
            scales,
            block,
            simple,
        };
        agree("output 0", shapes.output_len(0), bound.outer * bound.indices * bound.inner)
    }
}

/// Codes by position, low bits first.
#[derive(Clone, Copy)]
struct Packed<'a> {
    data: &'a [u8],
    bits: usize,
}

impl Packed<'_> {
    #[inline(always)]
    fn get(&self, at: usize) -> u8 {
        let bit = at * self.bits;
        self.data[bit / 8] >> (bit % 8) & (0xff >> (8 - self.bits))
    }
}

/// What codes mean.
struct Table<'a> {
    codes: Packed<'a>,
    /// The value of each code.
    values: [f32; 256],
    zeros: Option<Packed<'a>>,
    /// Zero points of a row of scales, as they are packed.
    zero_row: usize,
    middle: f32,
}

impl Sizes {
    /// The scale of a code.
    fn scale_of(&self, axis: usize, at: usize) -> usize {
        let (mut rest, mut place, mut step) = (at, 0, 1);
        for k in (0..self.dims.len()).rev() {
            let (len, have) = (size(self.dims[k]).max(1), size(self.scales[k]));
            let index = if k == axis { rest % len / self.block } else { rest % len };
            rest /= len;
            place += if have == 1 { 0 } else { index * step };
            step *= have;
        }
        place
    }
}

impl Table<'_> {
    fn zero(&self, scale: usize, last: usize) -> f32 {
        match self.zeros {
            None => self.middle,
            Some(zeros) => {
                let at = scale / last.max(1) * self.zero_row + scale % last.max(1);
                self.values[usize::from(zeros.get(at))]
            }
        }
    }
}

pub(super) fn blocks<T: Value<Wide = f32>>(op: &Blocks, sizes: &Sizes, args: &mut Args<'_>) -> Result<(), Fault> {
    let scales = args.input::<T>(SCALES);
    let last = sizes.scales.last().map_or(1, |&d| size(d));
    let bytes = op.codes as u32 == DType::U8 as u32;
    let packed = |data| Packed { data, bits: op.bits };
    let table = Table {
        codes: packed(args.input::<u8>(0)),
        values: core::array::from_fn(|code| {
            // Codes below a byte stand in the low bits.
            let code = u8::try_from(code).unwrap_or(0);
            if bytes { code.into() } else { Values { dtype: op.codes, data: &[code] }.get(0) as f32 } // of 8 bits or fewer
        }),
        zeros: args.input_if::<u8>(ZEROS).map(packed),
        zero_row: if bytes { (last * op.bits).div_ceil(8) * 8 / op.bits } else { last },
        middle: if bytes { (1u32 << (op.bits - 1)) as f32 } else { 0.0 }, // at most 128
    };
    let (long, short) = if op.wide { (args.input::<i64>(1), &[][..]) } else { (&[][..], args.input::<i32>(1)) };
    let index = |at: usize| {
        let index = if op.wide { long[at] } else { short[at].into() };
        let index = if index < 0 { index.saturating_add(sizes.rows as i64) } else { index }; // a dimension
        usize::try_from(index).ok().filter(|&index| index < sizes.rows)
    };
    let inner = sizes.inner;
    Ok(split::rows(args.par(), args.output::<T>(0), inner, GRAIN.div_ceil(inner.max(1)), |_, first, rows| {
        for (k, y) in rows.chunks_exact_mut(inner.max(1)).enumerate() {
            let (outer, at) = ((first + k) / sizes.indices, (first + k) % sizes.indices);
            let Some(index) = index(at) else {
                y.fill(T::of(0.0)); // an index out of range has a row of zeros
                continue;
            };
            let start = (outer * sizes.rows + index) * inner;
            if sizes.simple && op.gather != op.axis {
                let line = size(sizes.dims[op.axis]).max(1);
                for (block, y) in y
                    .chunks_mut(line)
                    .enumerate()
                    .flat_map(|(row, y)| y.chunks_mut(sizes.block).enumerate().map(move |(block, y)| ((row, block), y)))
                {
                    let from = start + block.0 * line + block.1 * sizes.block;
                    let scale = from / line * last + block.1;
                    let (factor, zero) = (scales[scale].wide(), table.zero(scale, last));
                    for (j, y) in y.iter_mut().enumerate() {
                        *y = T::of((table.values[usize::from(table.codes.get(from + j))] - zero) * factor);
                    }
                }
                continue;
            }
            for (j, y) in y.iter_mut().enumerate() {
                let scale = sizes.scale_of(op.axis, start + j);
                let value = table.values[usize::from(table.codes.get(start + j))];
                *y = T::of((value - table.zero(scale, last)) * scales[scale].wide());
            }
        }
    })?)
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::on_all;
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::Tensor;

    #[test]
    fn rows_of_packed_codes() {
        // 3 rows of 40 codes of 4 bits in blocks of 16, 3 to a row.
        let data = Tensor::from_fn(&[3, 20], |k| (k * 29 % 256) as u8);
        let scales = Tensor::from_fn(&[3, 3], |k| k as f32 + 0.5);
        let zeros = Tensor::from_fn(&[3, 2], |k| (k * 37 % 256) as u8);
        let (codes, z) = (data.to_vec::<u8>(), zeros.to_vec::<u8>());
        let code = |bytes: &[u8], at: usize| f32::from(bytes[at / 2] >> (4 * (at % 2)) & 15);
        let indices = Tensor::new(&[4], &[2i64, -3, 1, 3]);
        let want: Vec<f32> = [Some(2), Some(0), Some(1), None]
            .into_iter()
            .flat_map(|row: Option<usize>| (0..40).map(move |at| (row, at)))
            .map(|(row, at)| {
                let Some(row) = row else { return 0.0 };
                let zero = code(&z[row * 2..], at / 16);
                (code(&codes[row * 20..], at) - zero) * ((row * 3 + at / 16) as f32 + 0.5)
            })
            .collect();
        on_all("GatherBlockQuantized", 1, |case| {
            let case = case.domain("com.microsoft").int("bits", 4).int("block_size", 16);
            let case = case.int("gather_axis", 0).int("quantize_axis", 1);
            let case = case.input(&data).input(&indices).input(&scales).input(&zeros);
            assert_eq!(case.output(DType::F32, &[4, 40]).run()[0].to_vec::<f32>(), want);
        });
    }
}
