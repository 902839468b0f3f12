//! Codes of few bits, packed into panels of columns: the first word of each column, then the second ones. A word holds 16, 8
//! or 4 codes along K, so that shifting a vector of words gives one value of K for all columns.

use super::Weights;
use crate::simd::{Kernel, Simd};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Fault, split};

/// Columns of a panel.
pub(super) const COLUMNS: usize = 16;
/// Bytes of a word.
const WORD: usize = size_of::<u32>();
/// Rows of A that share the reading of codes.
const HIGH: usize = 4;

/// The layout.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panels {
    /// Columns in all.
    pub n: usize,
    pub bits: usize,
    /// Words of a column.
    pub words: usize,
}

impl Panels {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.n.div_ceil(COLUMNS)
    }

    /// Bytes of all, `usize::MAX` when there is no such number.
    pub fn size(&self) -> usize {
        self.count().saturating_mul(self.len()).saturating_mul(WORD)
    }

    /// Words of a panel.
    fn len(&self) -> usize {
        self.words.saturating_mul(COLUMNS)
    }

    /// Packs dense columns.
    pub fn pack(&self, codes: &[u8], to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        let column = self.words * WORD;
        split::rows(par, to, self.len() * WORD, 1, |_, first, panels| {
            for (k, panel) in panels.chunks_exact_mut(self.len() * WORD).enumerate() {
                let columns = codes[(first + k) * COLUMNS * column..].chunks_exact(column).take(COLUMNS);
                for (j, codes) in columns.enumerate() {
                    let to = panel.as_chunks_mut::<WORD>().0[j..].iter_mut().step_by(COLUMNS);
                    to.zip(codes.as_chunks::<WORD>().0).for_each(|(to, word)| *to = *word);
                }
            }
        })?;
        Ok(())
    }

    /// Values along K.
    pub fn padded(&self) -> usize {
        self.words * WORD * 8 / self.bits
    }
}

impl Weights<'_> {
    /// Scales and zero points of a panel's columns in a block; 0 for columns that are not there.
    fn of_panel(&self, panel: usize, block: usize) -> [[f32; COLUMNS]; 2] {
        let columns = panel * COLUMNS..self.op.n.min((panel + 1) * COLUMNS);
        let (mut scales, mut zeros) = ([0.0; COLUMNS], [0.0; COLUMNS]);
        for ((scale, zero), column) in scales.iter_mut().zip(&mut zeros).zip(columns) {
            *scale = self.scales[column * self.op.blocks() + block];
            *zero = self.zero(column, block);
        }
        [scales, zeros]
    }

    /// The words of a panel, as bits of floats: vectors are loaded as these.
    fn panel(&self, panel: usize) -> &[f32] {
        let len = self.op.panels().len();
        &self.words[panel * len..][..len]
    }

    /// Rows of `a`, padded to whole blocks, times all columns: for each panel a row of its columns for each row of `a`.
    pub(super) fn dots(&self, m: usize, a: &[f32], to: &mut [f32], par: &dyn Parallel) -> Result<(), Fault> {
        let (isa, padded) = (self.op.isa, self.op.panels().padded());
        let grain = (1usize << 16).div_ceil(m * padded * COLUMNS);
        split::rows(par, to, m * COLUMNS, grain, |_, first, panels| {
            for (k, to) in panels.chunks_exact_mut(m * COLUMNS).enumerate() {
                let (panel, to) = (first + k, to.as_chunks_mut::<COLUMNS>().0);
                for (a, to) in a.chunks(HIGH * padded).zip(to.chunks_mut(HIGH)) {
                    match <&mut [_; HIGH]>::try_from(&mut *to) {
                        Ok(to) => isa.dispatch(Dots { weights: self, panel, a, to }),
                        Err(_) => {
                            for (a, to) in a.chunks_exact(padded).zip(to) {
                                isa.dispatch(Dots { weights: self, panel, a, to: core::array::from_mut(to) });
                            }
                        }
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Columns of some panels as floats, row after row along K. `to` has whole blocks of rows.
    pub(super) fn widen_panels(
        &self,
        panels: core::ops::Range<usize>,
        to: &mut [f32],
        par: &dyn Parallel,
    ) -> Result<(), Fault> {
        let (block, row) = (self.op.block, panels.len() * COLUMNS);
        split::rows(par, to, block * row, 1, |_, first, blocks| {
            for (k, to) in blocks.chunks_exact_mut(block * row).enumerate() {
                for panel in panels.clone() {
                    let column = (panel - panels.start) * COLUMNS;
                    self.op.isa.dispatch(Widen { weights: self, panel, block: first + k, row, to: &mut to[column..] });
                }
            }
        })?;
        Ok(())
    }
}

/// Some rows times a panel.
struct Dots<'a, const R: usize> {
    weights: &'a Weights<'a>,
    panel: usize,
    a: &'a [f32],
    to: &'a mut [[f32; COLUMNS]; R],
}

impl<const R: usize> Kernel for Dots<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.weights.op.bits {
            2 => self.with_bits::<S, 2>(s),
            4 => self.with_bits::<S, 4>(s),
            _ => self.with_bits::<S, 8>(s),
        }
    }
}

impl<const R: usize> Dots<'_, R> {
    #[inline(always)]
    fn with_bits<S: Simd, const BITS: usize>(self, s: S) {
        let Dots { weights, panel, a, to } = self;
        let (per, padded, block) = (32 / BITS, a.len() / R, weights.op.block);
        let (codes, mask) = (weights.panel(panel), s.splat_i32((1 << BITS) - 1));
        *to = [[0.0; COLUMNS]; R];
        for index in 0..padded / block {
            let [scales, zeros] = weights.of_panel(panel, index);
            let codes = &codes[index * block / per * COLUMNS..][..block / per * COLUMNS];
            let mut rows = [a; R];
            for r in 0..R {
                rows[r] = &a[r * padded + index * block..][..block];
            }
            for column in (0..COLUMNS).step_by(S::LANES) {
                let zero = s.load_slice(&zeros[column..]);
                let mut sums = [s.zero(); R];
                for word in 0..block / per {
                    let words = s.cast_i32(s.load_slice(&codes[word * COLUMNS + column..]));
                    for part in 0..per {
                        let code = s.and_i32(s.shr_i32(words, (BITS * part) as u32), mask); // below 32
                        let value = s.sub(s.to_f32(code), zero);
                        for r in 0..R {
                            sums[r] = s.fma(value, s.splat(rows[r][word * per + part]), sums[r]);
                        }
                    }
                }
                let scale = s.load_slice(&scales[column..]);
                for r in 0..R {
                    let to = &mut to[r][column..];
                    s.store_slice(to, s.fma(scale, sums[r], s.load_slice(to)));
                }
            }
        }
    }
}

/// A block of a panel, a row of columns for each value of K, `row` apart.
struct Widen<'a> {
    weights: &'a Weights<'a>,
    panel: usize,
    block: usize,
    row: usize,
    to: &'a mut [f32],
}

impl Kernel for Widen<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Widen { weights, panel, block: index, row, to } = self;
        let (bits, block) = (weights.op.bits, weights.op.block);
        let (per, mask) = (32 / bits, s.splat_i32((1 << bits) - 1));
        let [scales, zeros] = weights.of_panel(panel, index);
        let codes = &weights.panel(panel)[index * block / per * COLUMNS..][..block / per * COLUMNS];
        for column in (0..COLUMNS).step_by(S::LANES) {
            let (zero, scale) = (s.load_slice(&zeros[column..]), s.load_slice(&scales[column..]));
            for word in 0..block / per {
                let words = s.cast_i32(s.load_slice(&codes[word * COLUMNS + column..]));
                for part in 0..per {
                    let code = s.and_i32(s.shr_i32(words, (bits * part) as u32), mask); // below 32
                    let at = (word * per + part) * row + column;
                    s.store_slice(&mut to[at..at + S::LANES], s.mul(s.sub(s.to_f32(code), zero), scale));
                }
            }
        }
    }
}
