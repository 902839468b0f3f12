//! Matrices as the product takes them: slices with steps, or packed.

use core::ops::Range;

use super::error::enough;
use super::{KernelError, PackedA, PackedB};

/// A matrix to be read: value (i, j) lies at `i * row_step + j * col_step`.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_step: usize,
    pub(crate) col_step: usize,
}

impl<'a> Mat<'a> {
    /// A dense matrix, row after row.
    ///
    /// # Errors
    /// The slice is too short.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Result<Self, KernelError> {
        Mat::strided(data, rows, cols, cols, 1)
    }

    /// A matrix with steps of its own, 0 for a value that repeats.
    ///
    /// # Errors
    /// The slice is too short.
    pub fn strided(
        data: &'a [f32],
        rows: usize,
        cols: usize,
        row_step: usize,
        col_step: usize,
    ) -> Result<Self, KernelError> {
        enough("a matrix", reach(&[(rows, row_step), (cols, col_step)]), data.len())?;
        Ok(Mat { data, rows, cols, row_step, col_step })
    }

    /// The same values with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        let Mat { data, rows, cols, row_step, col_step } = self;
        Mat { data, rows: cols, cols: rows, row_step: col_step, col_step: row_step }
    }
}

impl Mat<'_> {
    /// Where value (row, col) lies.
    pub(crate) fn at(&self, row: usize, col: usize) -> *const f32 {
        self.data.as_ptr().wrapping_add(row * self.row_step + col * self.col_step)
    }
}

/// How many values a nest of (count, step) reaches over; `usize::MAX` when that
/// does not fit.
pub(crate) fn reach(nest: &[(usize, usize)]) -> usize {
    if nest.iter().any(|&(count, _)| count == 0) {
        return 0;
    }
    let last = nest.iter().fold(0_usize, |sum, &(count, step)| sum.saturating_add((count - 1).saturating_mul(step)));
    last.saturating_add(1)
}

/// A matrix to be written, row after row, `row_step` apart.
#[derive(Debug)]
pub struct MatMut<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_step: usize,
}

impl<'a> MatMut<'a> {
    /// A dense matrix.
    ///
    /// # Errors
    /// The slice is too short.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Result<Self, KernelError> {
        MatMut::strided(data, rows, cols, cols)
    }

    /// A matrix whose rows lie apart.
    ///
    /// # Errors
    /// The slice is too short, or rows overlap.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_step: usize) -> Result<Self, KernelError> {
        enough("the output", reach(&[(rows, row_step), (cols, 1)]), data.len())?;
        if rows > 1 && row_step < cols {
            return Err(KernelError::Shape("rows of the output overlap"));
        }
        Ok(MatMut { data, rows, cols, row_step })
    }
}

/// The left side of a product, M by K.
#[derive(Clone, Copy, Debug)]
pub enum Lhs<'a> {
    /// As it stands in memory.
    Plain(Mat<'a>),
    /// Packed by [`PackedA::pack`].
    Packed(PackedA, &'a [f32]),
    /// Copied together when needed; its columns are the rows of A.
    Gather(&'a dyn Source),
}

/// The right side of a product, K by N.
#[derive(Clone, Copy, Debug)]
pub enum Rhs<'a> {
    /// As it stands in memory.
    Plain(Mat<'a>),
    /// Packed by [`PackedB::pack`].
    Packed(PackedB, &'a [f32]),
    /// Copied together when needed.
    Gather(&'a dyn Source),
}

/// A matrix of K rows that exists only piece by piece, such as the patches of an
/// image under a convolution's window.
pub trait Source: Sync {
    /// Its columns.
    fn columns(&self) -> usize;

    /// Its rows.
    fn k(&self) -> usize;

    /// Writes the values of rows `k` and some columns, at most 32: row by row, `width` values apart. `dst` holds
    /// `k.len() * width` values and one vector more; what is written behind a row's columns may be anything.
    fn pack(&self, k: Range<usize>, columns: Range<usize>, width: usize, dst: &mut [f32]);
}

impl core::fmt::Debug for dyn Source + '_ {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Source({} x {})", self.k(), self.columns())
    }
}

/// What happens to a product before it is written:
/// `C = activation(alpha * A * B + add + bias)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// A value for each row or column.
    pub bias: Bias<'a>,
    /// A matrix of the output's size.
    pub add: Add<'a>,
    /// Applied last.
    pub activation: Activation,
}

/// A value for each row or each column of the output.
#[derive(Clone, Copy, Debug, Default)]
pub enum Bias<'a> {
    /// None.
    #[default]
    None,
    /// M values.
    PerRow(&'a [f32]),
    /// N values.
    PerColumn(&'a [f32]),
}

/// A matrix that is added to the product.
#[derive(Clone, Copy, Debug, Default)]
pub enum Add<'a> {
    /// None: what the output held is not read.
    #[default]
    None,
    /// What the output holds, times this: the beta of BLAS.
    Output(f32),
    /// Another matrix, times `scale`.
    Matrix {
        /// Its values.
        data: &'a [f32],
        /// From row to row.
        row_step: usize,
        /// Its factor.
        scale: f32,
    },
}

/// The last function before a value is written. NaN stays NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// The value itself.
    #[default]
    None,
    /// `max(x, 0)`
    Relu,
    /// Between two bounds.
    Clip {
        /// Nothing below it.
        low: f32,
        /// Nothing above it.
        high: f32,
    },
    /// `x`, times this where negative.
    LeakyRelu(f32),
    /// `clip(alpha * x + beta, 0, 1)`
    HardSigmoid {
        /// Slope.
        alpha: f32,
        /// Offset.
        beta: f32,
    },
    /// `x * clip(x / 6 + 1 / 2, 0, 1)`
    HardSwish,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `x * sigmoid(x)`
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// Gelu by the error function.
    Gelu,
    /// Gelu by its tanh approximation.
    GeluTanh,
}
