//! What follows the sums of a tile: zero points are taken out, then values are written as they are asked for. It must not
//! know who asks.

use super::tile::MOST_COLUMNS;

/// A factor, or one for each row or column.
#[derive(Debug, Clone, Copy)]
pub enum Factor<'a> {
    /// The same for all.
    All(f32),
    /// One for each.
    Each(&'a [f32]),
}

impl Factor<'_> {
    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> f32 {
        match self {
            Factor::All(x) => *x,
            Factor::Each(all) => all[at],
        }
    }
}

/// What becomes of a product.
#[derive(Debug, Clone, Copy)]
pub enum Finish<'a> {
    /// `c = sum`, in i32.
    Sums,
    /// `c = sum * row * column + bias`, in f32.
    Floats {
        /// Factors of rows.
        row: Factor<'a>,
        /// Factors of columns.
        column: Factor<'a>,
        /// A summand for each column.
        bias: Option<&'a [f32]>,
        /// What the output holds is added.
        add: bool,
    },
    /// `c = round((sum + bias) * row * column) + zero`, in 8 bits, held at its limits.
    Bytes {
        /// Factors of rows.
        row: Factor<'a>,
        /// Factors of columns.
        column: Factor<'a>,
        /// A summand for each row.
        bias: Option<&'a [i32]>,
        /// Zero point of the output.
        zero: i32,
        /// Whether the output has a sign.
        signed: bool,
    },
}

/// What a row of a tile needs to become whole.
pub(super) struct Correction<'a> {
    /// Zero point of A's row.
    pub a_zero: i32,
    /// Sums of B's columns.
    pub b_sums: &'a [[u8; 4]],
    /// Zero points of B's columns, `None` for 0.
    pub b_zeros: Option<&'a [i32; MOST_COLUMNS]>,
    /// Sum of A's row without its zero points.
    pub a_rest: i32,
}

/// Takes zero points out of a row of sums.
#[inline(always)]
pub(super) fn correct(sums: &mut [i32; MOST_COLUMNS], by: &Correction<'_>) {
    if by.a_zero != 0 {
        for (sum, column) in sums.iter_mut().zip(by.b_sums) {
            *sum = sum.wrapping_sub(by.a_zero.wrapping_mul(i32::from_ne_bytes(*column)));
        }
    }
    if let Some(zeros) = by.b_zeros {
        for (sum, zero) in sums.iter_mut().zip(zeros) {
            *sum = sum.wrapping_sub(zero.wrapping_mul(by.a_rest));
        }
    }
}

/// Writes a row of sums as floats from column `at` on.
#[inline(always)]
pub(super) fn floats(
    sums: &[i32],
    (row, column, at): (f32, Factor<'_>, usize),
    bias: Option<&[f32]>,
    add: bool,
    to: &mut [f32],
) {
    let n = to.len();
    let value = |sum: i32, factor: f32| sum as f32 * factor; // i32 rounds to the nearest f32
    let mut line = [0.0; MOST_COLUMNS];
    let line = &mut line[..n];
    match column {
        Factor::All(column) => line.iter_mut().zip(sums).for_each(|(y, &sum)| *y = value(sum, row * column)),
        Factor::Each(columns) => {
            for (y, (&sum, column)) in line.iter_mut().zip(sums.iter().zip(&columns[at..at + n])) {
                *y = value(sum, row * column);
            }
        }
    }
    if let Some(bias) = bias {
        line.iter_mut().zip(&bias[at..at + n]).for_each(|(y, bias)| *y += bias);
    }
    match add {
        true => to.iter_mut().zip(line).for_each(|(to, y)| *to += *y),
        false => to.copy_from_slice(line),
    }
}

/// Writes a row of sums as bytes from column `at` on.
#[inline(always)]
pub(super) fn bytes(
    sums: &[i32],
    (row, column, at): (f32, Factor<'_>, usize),
    bias: i32,
    (zero, signed): (i32, bool),
    to: &mut [u8],
) {
    let (low, high) = if signed { (-128, 127) } else { (0, 255) };
    // Limits of the value before the zero point is added, which is an integer.
    let (least, most) = ((low - zero) as f32, (high - zero) as f32); // small integers
    for (j, (to, &sum)) in to.iter_mut().zip(sums).enumerate() {
        let factor = row * column.get(at + j);
        let value = sum.wrapping_add(bias) as f32 * factor; // i32 rounds to the nearest f32
        *to = nearest(value.max(least).min(most)).wrapping_add(zero) as u8; // within its limits
    }
}

/// The nearest integer, ties to even, of a value below 2^22 in size; NaN was replaced by a limit.
#[inline(always)]
pub(crate) fn nearest(x: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23: what is added to it is rounded to an integer
    (x + SHIFT).to_bits().cast_signed().wrapping_sub(SHIFT.to_bits().cast_signed())
}
