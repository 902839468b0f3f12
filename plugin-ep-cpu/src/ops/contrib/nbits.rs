//! `MatMulNBits`: products with weights of 2, 4 or 8 bits in blocks along K, each with a scale and a zero point.
//!
//! Constant codes are packed into panels of columns (`panels`): few rows are multiplied with these as they are. Many rows, and
//! codes that a run hands in, go by strips of weights that are made floats first.

mod panels;

use crate::gemm::{Bias, Epilogue, Gemm, Lhs, Mat, MatMut, Rhs};
use crate::ops::float::agree;
use crate::ops::{Cpu, cost};
use crate::simd::{Isa, Kernel, Simd};
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Pack, Reject, Shapes, Weight, WeightSource, size, split};
use panels::{COLUMNS, Panels};

pub(in crate::ops::contrib) struct NBits {
    isa: Isa,
    n: usize,
    k: usize,
    bits: usize,
    block: usize,
    /// Zero points are floats.
    floats: bool,
    grouped: bool,
    /// The codes are packed.
    packed: bool,
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
/// Rows of A up to which codes are multiplied as they are.
const FEW: usize = 8;
/// Columns of a strip of weights.
const STRIP: usize = 256;

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
        let grouped = node.input(GROUPS).is_some();
        Ok(NBits { isa: Cpu::of(node).isa, n, k, bits, block, floats, grouped, packed: false })
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
            false if self.is_few(m) => {
                let dots = self.panels().count() * COLUMNS;
                m.saturating_mul(self.padded()).saturating_add(m.saturating_mul(dots))
            }
            false => {
                let strip = STRIP.min(self.n);
                let gemm = Gemm::most_scratch_len(self.isa, m, strip, self.k);
                let gemm = gemm.max(Gemm::new(self.isa, m, strip, self.k).scratch_len(false, false, width));
                let last = Gemm::new(self.isa, m, self.n % STRIP, self.k).scratch_len(false, false, width);
                self.strip_len().saturating_add(gemm.max(last))
            }
        };
        values.saturating_mul(size_of::<f32>())
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        let want = self.n * self.blocks() * self.block_bytes();
        if input != B
            || self.grouped
            || source.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d)).map(size) != Some(want)
        {
            return None;
        }
        self.packed = true;
        let sizes = [self.n, self.blocks() * self.block_bytes()].map(usize::to_le_bytes);
        let format = fnv(fnv(FNV, b"nbits panels"), sizes.as_flattened());
        Some(Pack { format, bytes: self.panels().size(), from_base: false })
    }

    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.panels().pack(weight.bytes(), to, par)
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
        self.panels().padded()
    }

    /// Values of a strip of weights as floats, in whole panels and cache lines.
    fn strip_len(&self) -> usize {
        STRIP.min(self.panels().count() * COLUMNS).saturating_mul(self.padded())
    }

    /// Bytes of the zero points of a column.
    fn zero_bytes(&self) -> usize {
        (self.blocks() * self.bits).div_ceil(8)
    }

    fn is_few(&self, m: usize) -> bool {
        m <= FEW && self.packed
    }

    fn panels(&self) -> Panels {
        Panels { n: self.n, bits: self.bits, words: self.blocks() * self.block_bytes() / 4 }
    }
}

/// Weights and what they mean.
struct Weights<'a> {
    op: &'a NBits,
    /// As they lie in the model, or nothing.
    codes: &'a [u8],
    /// Packed into panels, or nothing.
    words: &'a [f32],
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
    let (codes, words) = match op.packed {
        true => (&[][..], args.input(B)),
        false => (args.input(B), &[][..]),
    };
    let weights = Weights { op, codes, words, scales: args.input(SCALES), zeros, groups };
    let (scratch, par) = (args.scratch::<f32>(), args.par());
    match op.is_few(rows.m) {
        true => few(&weights, rows.m, (a, bias), y, scratch, par),
        false => many(&weights, rows.m, (a, bias), y, scratch, par),
    }
}

/// By panels of codes.
fn few(
    weights: &Weights<'_>,
    m: usize,
    (a, bias): (&[f32], Option<&[f32]>),
    y: &mut [f32],
    scratch: &mut [f32],
    par: &dyn Parallel,
) -> Result<(), Fault> {
    let (n, k, padded) = (weights.op.n, weights.op.k, weights.op.padded());
    let (rows, dots) = scratch.split_at_mut(m * padded);
    for (row, a) in rows.chunks_exact_mut(padded).zip(a.chunks_exact(k)) {
        row[..k].copy_from_slice(a);
        row[k..].fill(0.0);
    }
    let dots = &mut dots[..weights.op.panels().count() * m * COLUMNS];
    weights.dots(m, rows, dots, par)?;
    for (row, y) in y.chunks_exact_mut(n).enumerate() {
        for (panel, y) in y.chunks_mut(COLUMNS).enumerate() {
            y.copy_from_slice(&dots[(panel * m + row) * COLUMNS..][..y.len()]);
        }
        if let Some(bias) = bias {
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
    }
    Ok(())
}

/// By strips of weights as floats.
fn many(
    weights: &Weights<'_>,
    m: usize,
    (a, bias): (&[f32], Option<&[f32]>),
    y: &mut [f32],
    scratch: &mut [f32],
    par: &dyn Parallel,
) -> Result<(), Fault> {
    let &NBits { isa, n, k, packed, .. } = weights.op;
    let (wide, scratch) = scratch.split_at_mut(weights.op.strip_len());
    for first in (0..n).step_by(STRIP) {
        let columns = STRIP.min(n - first);
        let right = if packed {
            let panels = first / COLUMNS..(first + columns).div_ceil(COLUMNS);
            let row = panels.len() * COLUMNS;
            weights.widen_panels(panels, &mut wide[..row * weights.op.padded()], par)?;
            Mat::strided(wide, k, columns, row, 1)?
        } else {
            let wide = &mut wide[..columns * k];
            split::rows(par, wide, k, 4, |_, at, pieces| {
                pieces.chunks_exact_mut(k).enumerate().for_each(|(j, to)| weights.widen(first + at + j, to));
            })?;
            Mat::new(wide, columns, k)?.transposed()
        };
        let epilogue = Epilogue {
            bias: bias.map_or(Bias::None, |bias| Bias::PerColumn(&bias[first..first + columns])),
            ..Epilogue::default()
        };
        let to = MatMut::strided(y.get_mut(first..).unwrap_or(&mut []), m, columns, n)?;
        let left = Lhs::Plain(Mat::new(a, m, k)?);
        Gemm::new(isa, m, columns, k).run(left, Rhs::Plain(right), &epilogue, to, scratch, par)?;
    }
    Ok(())
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
            for m in [0i64, 1, 3, 4, 6, 8, 9, 33] {
                let a = Tensor::random(&[m, k as i64], 7);
                let x = a.to_vec::<f32>();
                let want = Tensor::from_fn(&[m, n as i64], |at| {
                    (0..k).map(|p| f64::from(x[at / n * k + p]) * f64::from(weight(at % n, p))).sum::<f64>() as f32
                });
                for constant in [false, true] {
                    on_all("MatMulNBits", 1, |case| {
                        let case = case.domain("com.microsoft").int("K", k as i64).int("N", n as i64);
                        let case = case.int("bits", bits as i64).int("block_size", block as i64).input(&a);
                        let case = if constant { case.constant(&codes) } else { case.input(&codes) };
                        let case = case.input(&scales).input(&zeros);
                        assert_close(&case.output(DType::F32, &[m, n as i64]).run()[0], &want, 2e-5);
                    });
                }
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
