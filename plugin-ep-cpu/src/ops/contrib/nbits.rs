//! `MatMulNBits`: products with weights of 2, 4 or 8 bits in blocks along K, each with a scale and a zero point.
//!
//! Few rows are multiplied with the codes as they lie, many rows by strips of weights that are made floats first.

use crate::gemm::{Bias, Epilogue, Gemm, Lhs, Mat, MatMut, Rhs};
use crate::ops::float::agree;
use crate::ops::{Cpu, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Reject, Shapes, size, split};

pub(in crate::ops::contrib) struct NBits {
    isa: Isa,
    n: usize,
    k: usize,
    bits: usize,
    block: usize,
    /// Zero points are floats.
    floats: bool,
    grouped: bool,
}

#[derive(Debug, Default)]
pub(in crate::ops::contrib) struct Rows {
    m: usize,
    /// There are no weights: the product is 0.
    none: bool,
}

const B: usize = 1;
const SCALES: usize = 2;
const ZEROS: usize = 3;
const GROUPS: usize = 4;
const BIAS: usize = 5;
/// Rows of A up to which codes are multiplied as they lie.
const FEW: usize = 6;
/// Columns of a strip of weights.
const STRIP: usize = 256;
/// Values of A that are summed side by side.
const LANES: usize = 8;

impl Op for NBits {
    type Bound = Rows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        if node.needs(0)?.rank() == 0 {
            return Err(Reject::rank("input 0 is a scalar"));
        }
        let positive = |name: &str| match node.int(name)? {
            n if n > 0 => Ok(size(n)),
            n => Err(Reject::attribute(format!("attribute {name} = {n} is not positive"))),
        };
        let (n, k, bits, block) = (positive("N")?, positive("K")?, positive("bits")?, positive("block_size")?);
        if ![2, 4, 8].contains(&bits) {
            return Err(Reject::attribute(format!("attribute bits = {bits}: 2, 4 and 8 are done")));
        }
        if !block.is_power_of_two() || block < 16 {
            return Err(Reject::attribute(format!("attribute block_size = {block} is no power of two from 16 on")));
        }
        if let Some(layout) = node.int_if("weight_prepacked").filter(|&layout| layout != 0) {
            return Err(Reject::attribute(format!(
                "attribute weight_prepacked = {layout} is a layout of another device"
            )));
        }
        let floats = node.input(ZEROS).is_some_and(|zeros| zeros.dtype() as u32 != DType::U8 as u32);
        if let Some(zeros) = node.input(ZEROS).filter(|_| floats)
            && zeros.dtype() as u32 != node.needs(0)?.dtype() as u32
        {
            return Err(Reject::dtype(format!("input {ZEROS} is {}, neither u8 nor the type of A", zeros.dtype())));
        }
        Ok(NBits { isa: Cpu::of(node).isa, n, k, bits, block, floats, grouped: node.input(GROUPS).is_some() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let rows = node.input(0).map_or(f64::NAN, |a| a.elements() / self.k as f64);
        cost::products(node, rows * (self.n * self.k) as f64)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Rows) -> Result<(), Fault> {
        let last = shapes.input(0).last().map_or(0, |&d| size(d));
        agree("a row of A", last, self.k)?;
        let m = shapes.input_len(0) / self.k;
        agree("output 0", shapes.output_len(0), m * self.n)?;
        *bound = Rows { m, none: shapes.input_len(B) == 0 };
        if shapes.has(BIAS) {
            agree("the bias", shapes.input_len(BIAS), self.n)?;
        }
        if bound.none {
            return Ok(());
        }
        agree("B", shapes.input_len(B), self.n * self.blocks() * self.block_bytes())?;
        agree("scales", shapes.input_len(SCALES), self.n * self.blocks())?;
        if shapes.has(ZEROS) {
            let each = if self.floats { self.blocks() } else { self.zero_bytes() };
            agree("zero_points", shapes.input_len(ZEROS), self.n * each)?;
        }
        let groups = shapes.input_len(GROUPS);
        match self.grouped && groups != self.blocks() * self.block {
            true => agree("g_idx", groups, self.k),
            false => Ok(()),
        }
    }

    fn scratch(&self, bound: &Rows, width: usize) -> usize {
        let &Rows { m, none } = bound;
        let values = match none {
            true => 0,
            false if self.is_few(m) => m.saturating_mul(self.padded()).saturating_add(m.saturating_mul(self.n)),
            false => {
                let strip = STRIP.min(self.n);
                let gemm = Gemm::most_scratch_len(self.isa, m, strip, self.k);
                let gemm = gemm.max(Gemm::new(self.isa, m, strip, self.k).scratch_len(false, false, width));
                let last = Gemm::new(self.isa, m, self.n % STRIP, self.k).scratch_len(false, false, width);
                strip.saturating_mul(self.k).div_ceil(16).saturating_mul(16).saturating_add(gemm.max(last))
            }
        };
        values.saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Rows) -> u64 {
        2 * (bound.m * self.n * self.k) as u64
    }
}

impl NBits {
    fn blocks(&self) -> usize {
        self.k.div_ceil(self.block)
    }

    fn block_bytes(&self) -> usize {
        self.block * self.bits / 8
    }

    /// Values of a row of whole blocks.
    fn padded(&self) -> usize {
        self.blocks() * self.block
    }

    /// Bytes of the zero points of a column.
    fn zero_bytes(&self) -> usize {
        (self.blocks() * self.bits).div_ceil(8)
    }

    fn is_few(&self, m: usize) -> bool {
        m <= FEW && !self.grouped
    }
}

/// Weights and what they mean.
struct Weights<'a> {
    op: &'a NBits,
    codes: &'a [u8],
    scales: &'a [f32],
    zeros: Zeros<'a>,
    groups: Option<&'a [i32]>,
}

/// Zero points by column and block.
enum Zeros<'a> {
    Middle,
    Codes(&'a [u8]),
    Floats(&'a [f32]),
}

impl Weights<'_> {
    fn zero(&self, column: usize, block: usize) -> f32 {
        let (op, bits) = (self.op, self.op.bits);
        match self.zeros {
            Zeros::Middle => (1u32 << (bits - 1)) as f32, // at most 128
            Zeros::Floats(all) => all[column * op.blocks() + block],
            Zeros::Codes(all) => {
                let at = block * bits;
                let byte = all[column * op.zero_bytes() + at / 8];
                f32::from(byte >> (at % 8) & (0xff >> (8 - bits)))
            }
        }
    }

    /// Codes of a block.
    fn block(&self, column: usize, block: usize) -> &[u8] {
        let bytes = self.op.block_bytes();
        &self.codes[(column * self.op.blocks() + block) * bytes..][..bytes]
    }

    /// A column as floats.
    fn widen(&self, column: usize, to: &mut [f32]) {
        let (op, blocks) = (self.op, self.op.blocks());
        for (block, to) in to.chunks_mut(op.block).enumerate() {
            op.isa.dispatch(Widen { codes: self.block(column, block), bits: op.bits, to });
            match self.groups {
                None => {
                    let (scale, zero) = (self.scales[column * blocks + block], self.zero(column, block));
                    to.iter_mut().for_each(|x| *x = (*x - zero) * scale);
                }
                Some(groups) => {
                    for (x, &group) in to.iter_mut().zip(&groups[block * op.block..]) {
                        let group = usize::try_from(group).unwrap_or(0); // checked before
                        *x = (*x - self.zero(column, group)) * self.scales[column * blocks + group];
                    }
                }
            }
        }
    }
}

/// Codes as floats.
struct Widen<'a> {
    codes: &'a [u8],
    bits: usize,
    to: &'a mut [f32],
}

impl Kernel for Widen<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Widen { codes, bits, to } = self;
        match bits {
            8 => to.iter_mut().zip(codes).for_each(|(to, &code)| *to = code.into()),
            4 => {
                for (to, &code) in to.chunks_mut(2).zip(codes) {
                    for (part, to) in to.iter_mut().enumerate() {
                        *to = f32::from(code >> (4 * part) & 15);
                    }
                }
            }
            _ => {
                for (to, &code) in to.chunks_mut(4).zip(codes) {
                    for (part, to) in to.iter_mut().enumerate() {
                        *to = f32::from(code >> (2 * part) & 3);
                    }
                }
            }
        }
    }
}

pub(in crate::ops::contrib) fn nbits(op: &NBits, rows: &Rows, args: &mut Args<'_>) -> Result<(), Fault> {
    let (a, bias, y) = (args.input::<f32>(0), args.input_if::<f32>(BIAS), args.output::<f32>(0));
    if rows.none || rows.m == 0 {
        for row in y.chunks_exact_mut(op.n) {
            match bias {
                Some(bias) => row.copy_from_slice(bias),
                None => row.fill(0.0),
            }
        }
        return Ok(());
    }
    let zeros = match (args.has(ZEROS), op.floats) {
        (false, _) => Zeros::Middle,
        (true, false) => Zeros::Codes(args.input(ZEROS)),
        (true, true) => Zeros::Floats(args.input(ZEROS)),
    };
    let groups = args.input_if::<i32>(GROUPS);
    let outside = |group: &i32| usize::try_from(*group).map_or(true, |group| group >= op.blocks());
    if let Some((at, group)) = groups.unwrap_or(&[]).iter().enumerate().find(|(_, group)| outside(group)) {
        let blocks = op.blocks();
        return Err(Fault::data(format!("input {GROUPS} (g_idx) holds {group} at {at}, there are {blocks} blocks")));
    }
    let weights = Weights { op, codes: args.input(B), scales: args.input(SCALES), zeros, groups };
    let (scratch, par) = (args.scratch::<f32>(), args.par());
    if op.is_few(rows.m) {
        few(&weights, rows.m, a, bias, y, scratch, par)
    } else {
        many(&weights, rows.m, a, bias, y, scratch, par)
    }
}

/// By strips of weights as floats.
fn many(
    weights: &Weights<'_>,
    m: usize,
    a: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    scratch: &mut [f32],
    par: &dyn Parallel,
) -> Result<(), Fault> {
    let &NBits { isa, n, k, .. } = weights.op;
    let strip = STRIP.min(n);
    let (wide, scratch) = scratch.split_at_mut((strip * k).div_ceil(16) * 16);
    for first in (0..n).step_by(strip) {
        let columns = strip.min(n - first);
        let wide = &mut wide[..columns * k];
        split::rows(par, wide, k, 4, |_, at, pieces| {
            pieces.chunks_exact_mut(k).enumerate().for_each(|(j, to)| weights.widen(first + at + j, to));
        })?;
        let epilogue = Epilogue {
            bias: bias.map_or(Bias::None, |bias| Bias::PerColumn(&bias[first..first + columns])),
            ..Epilogue::default()
        };
        let right = Rhs::Plain(Mat::new(wide, columns, k)?.transposed());
        let to = MatMut::strided(y.get_mut(first..).unwrap_or(&mut []), m, columns, n)?;
        let left = Lhs::Plain(Mat::new(a, m, k)?);
        Gemm::new(isa, m, columns, k).run(left, right, &epilogue, to, scratch, par)?;
    }
    Ok(())
}

/// By dots of codes with rows whose values lie as the codes do.
fn few(
    weights: &Weights<'_>,
    m: usize,
    a: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    scratch: &mut [f32],
    par: &dyn Parallel,
) -> Result<(), Fault> {
    let op = weights.op;
    let (n, k, blocks, padded, parts) = (op.n, op.k, op.blocks(), op.padded(), 8 / op.bits);
    let (turned, dots) = scratch.split_at_mut(m * padded);
    turned.fill(0.0);
    for row in 0..m {
        for (at, &x) in a[row * k..(row + 1) * k].iter().enumerate() {
            // The first values of all bytes of a block, then the second ones.
            let (block, within) = (at / op.block, at % op.block);
            let place = within % parts * (op.block / parts) + within / parts;
            turned[row * padded + block * op.block + place] = x;
        }
    }
    let (turned, dots) = (&*turned, &mut dots[..n * m]);
    split::rows(par, dots, m, (1usize << 15).div_ceil(m * padded), |_, first, pieces| {
        for (j, to) in pieces.chunks_exact_mut(m).enumerate() {
            to.fill(0.0);
            for block in 0..blocks {
                let codes = weights.block(first + j, block);
                let (scale, zero) = (weights.scales[(first + j) * blocks + block], weights.zero(first + j, block));
                for (row, to) in to.iter_mut().enumerate() {
                    let a = &turned[row * padded + block * op.block..][..op.block];
                    *to += scale * op.isa.dispatch(Dot { codes, bits: op.bits, zero, a });
                }
            }
        }
    })?;
    for (at, y) in y.iter_mut().enumerate() {
        let (row, column) = (at / n, at % n);
        *y = dots[column * m + row] + bias.map_or(0.0, |bias| bias[column]);
    }
    Ok(())
}

/// Codes of a block, less their zero point, times values that lie in their order.
struct Dot<'a> {
    codes: &'a [u8],
    bits: usize,
    zero: f32,
    a: &'a [f32],
}

impl Kernel for Dot<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f32 {
        let Dot { codes, bits, zero, a } = self;
        match bits {
            8 => dot::<1>(codes, zero, a),
            4 => dot::<2>(codes, zero, a),
            _ => dot::<4>(codes, zero, a),
        }
    }
}

/// With so many codes in a byte.
#[inline(always)]
fn dot<const PARTS: usize>(codes: &[u8], zero: f32, a: &[f32]) -> f32 {
    let (bits, mask) = (8 / PARTS, 0xffu8 >> (8 - 8 / PARTS));
    let value = |code: u8, part: usize| f32::from(code >> (bits * part) & mask) - zero;
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = codes.as_chunks::<LANES>();
    for (at, chunk) in chunks.iter().enumerate() {
        for part in 0..PARTS {
            let a = &a[part * codes.len() + at * LANES..][..LANES];
            for lane in 0..LANES {
                lanes[lane] += value(chunk[lane], part) * a[lane];
            }
        }
    }
    // A block of 16 codes of 2 bits has 4 bytes.
    let mut sum: f32 = lanes.iter().sum();
    for part in 0..PARTS {
        let a = &a[part * codes.len() + chunks.len() * LANES..];
        sum += rest.iter().zip(a).map(|(&code, a)| value(code, part) * a).sum::<f32>();
    }
    sum
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::{Tensor, assert_close};

    #[test]
    fn few_and_many_rows_like_the_definition() {
        for (bits, block, k, n) in
            [(4usize, 16usize, 40usize, 5usize), (2, 16, 20, 3), (8, 32, 64, 300), (4, 128, 300, 17)]
        {
            let blocks = k.div_ceil(block);
            let bytes = block * bits / 8;
            let codes = Tensor::from_fn(&[n as i64, blocks as i64, bytes as i64], |k| (k * 131 % 253) as u8);
            // Weights of about 1, whatever their bits.
            let random = Tensor::random(&[n as i64, blocks as i64], 5).to_vec::<f32>();
            let scales = Tensor::from_fn(&[n as i64, blocks as i64], |k| random[k] / (1u32 << bits) as f32);
            let each = (blocks * bits).div_ceil(8);
            let zeros = Tensor::from_fn(&[n as i64, each as i64], |k| (k * 77 % 251) as u8);
            let (c, s, z) = (codes.to_vec::<u8>(), scales.to_vec::<f32>(), zeros.to_vec::<u8>());
            let code =
                |bytes: &[u8], at: usize| i32::from(bytes[at * bits / 8] >> (at * bits % 8) & (0xff >> (8 - bits)));
            let weight = |column: usize, p: usize| {
                let b = p / block;
                let own = code(&c[(column * blocks + b) * bytes..], p % block);
                (own - code(&z[column * each..], b)) as f32 * s[column * blocks + b]
            };
            for m in [0i64, 1, 3, 6, 7, 33] {
                let a = Tensor::random(&[m, k as i64], 7);
                let x = a.to_vec::<f32>();
                let want = Tensor::from_fn(&[m, n as i64], |at| {
                    (0..k).map(|p| f64::from(x[at / n * k + p]) * f64::from(weight(at % n, p))).sum::<f64>() as f32
                });
                on_all("MatMulNBits", 1, |case| {
                    let case = case.domain("com.microsoft").int("K", k as i64).int("N", n as i64);
                    let case = case.int("bits", bits as i64).int("block_size", block as i64);
                    let case = case.input(&a).input(&codes).input(&scales).input(&zeros);
                    assert_close(&case.output(DType::F32, &[m, n as i64]).run()[0], &want, 2e-5);
                });
            }
        }
    }

    #[test]
    fn groups_beyond_the_blocks_are_an_error() {
        let a = Tensor::random(&[1, 16], 1);
        let codes = Tensor::from_fn(&[2, 1, 8], |k| k as u8);
        let case = Case::new("MatMulNBits", 1).domain("com.microsoft").int("K", 16).int("N", 2).int("bits", 4);
        let case = case.int("block_size", 16).input(&a).input(&codes).input(&Tensor::random(&[2, 1], 2)).skip();
        let groups = Tensor::from_fn(&[16], |k| i32::from(k == 9));
        let error = case.input(&groups).output(DType::F32, &[1, 2]).try_run().unwrap_err();
        assert!(error.contains("holds 1 at 9, there are 1 blocks"), "{error}");
    }
}
