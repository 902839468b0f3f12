//! What follows the products, as the micro-kernel takes it.

use super::error::enough;
use super::mat::reach;
use super::tile::Tile;
use super::{Activation, Add, Bias, Epilogue, KernelError};
use crate::simd::{Isa, Kernel, Simd, UnaryOp, ops};

/// An epilogue whose slices fit the output, with the factor of the product.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a> {
    alpha: f32,
    epilogue: Epilogue<'a>,
}

impl<'a> Finish<'a> {
    /// Checks the slices against an output of `m` rows and `n` columns.
    pub fn new(alpha: f32, epilogue: Epilogue<'a>, m: usize, n: usize) -> Result<Self, KernelError> {
        match epilogue.bias {
            Bias::None => {}
            Bias::PerRow(bias) => enough("the bias of rows", m, bias.len())?,
            Bias::PerColumn(bias) => enough("the bias of columns", n, bias.len())?,
        }
        if let Add::Matrix { data, row_step, .. } = epilogue.add {
            enough("the added matrix", reach(&[(m, row_step), (n, 1)]), data.len())?;
        }
        Ok(Finish { alpha, epilogue })
    }

    /// The same for the transposed product.
    pub fn transposed(mut self) -> Self {
        self.epilogue.bias = match self.epilogue.bias {
            Bias::None => Bias::None,
            Bias::PerRow(bias) => Bias::PerColumn(bias),
            Bias::PerColumn(bias) => Bias::PerRow(bias),
        };
        self
    }

    /// Fills in the terms of a tile that begins at (row, column) of C, for a
    /// block of K that is the first, the last, both or neither.
    pub fn apply(&self, tile: &mut Tile, row: usize, column: usize, first: bool, last: bool) {
        tile.alpha = self.alpha;
        match self.epilogue.add {
            _ if !first => (tile.add, tile.add_step, tile.add_scale) = (tile.c, tile.c_step, 1.0),
            Add::None => {}
            Add::Output(beta) => {
                (tile.add, tile.add_step, tile.add_scale) = (tile.c, tile.c_step, beta);
            }
            Add::Matrix { data, row_step, scale } => {
                let at = data.as_ptr().wrapping_add(row * row_step + column);
                (tile.add, tile.add_step, tile.add_scale) = (at, row_step, scale);
            }
        }
        if last {
            match self.epilogue.bias {
                Bias::None => {}
                Bias::PerRow(bias) => tile.row_bias = bias.as_ptr().wrapping_add(row),
                Bias::PerColumn(bias) => tile.col_bias = bias.as_ptr().wrapping_add(column),
            }
            tile.clip = clip_of(self.epilogue.activation).filter(|_| self.epilogue.activation != Activation::None);
        }
    }

    /// One value of C, up to the activation that [`activation`](Self::activation)
    /// names, for products that are not made by tiles.
    ///
    /// # Safety
    /// `c` is where the value will be written, and readable.
    pub unsafe fn value(&self, row: usize, column: usize, product: f32, c: *const f32) -> f32 {
        let mut x = self.alpha * product;
        match self.epilogue.add {
            Add::None => {}
            // SAFETY: the caller's promise.
            Add::Output(beta) => x += beta * unsafe { c.read() },
            Add::Matrix { data, row_step, scale } => x += scale * data[row * row_step + column],
        }
        match self.epilogue.bias {
            Bias::None => {}
            Bias::PerRow(bias) => x += bias[row],
            Bias::PerColumn(bias) => x += bias[column],
        }
        let Some((low, high)) = clip_of(self.epilogue.activation) else { return x };
        // As the vectors do it: NaN stays, and the upper bound wins.
        let x = if low > x { low } else { x };
        if high < x { high } else { x }
    }

    /// The activation that the micro-kernel does not have, if there is one.
    pub fn activation(&self) -> Option<Activation> {
        let activation = self.epilogue.activation;
        clip_of(activation).is_none().then_some(activation)
    }
}

/// The bounds that an activation amounts to, infinite ones for none at all; `None` for curved ones.
pub(crate) fn clip_of(activation: Activation) -> Option<(f32, f32)> {
    match activation {
        Activation::None => Some((f32::NEG_INFINITY, f32::INFINITY)),
        Activation::Relu => Some((0.0, f32::INFINITY)),
        Activation::Clip { low, high } => Some((low, high)),
        _ => None,
    }
}

/// Applies an activation to `rows` by `columns` values.
///
/// # Safety
/// `rows` rows of `columns` values, `step` apart from `at` on, are the caller's
/// to write.
pub(crate) unsafe fn activate(
    isa: Isa,
    activation: Activation,
    at: *mut f32,
    step: usize,
    rows: usize,
    columns: usize,
) {
    isa.dispatch(Activate { activation, at, step, rows, columns });
}

/// Values that keep the promise of [`activate`].
struct Activate {
    activation: Activation,
    at: *mut f32,
    step: usize,
    rows: usize,
    columns: usize,
}

impl Kernel for Activate {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.activation {
            Activation::None => {}
            Activation::Relu => self.map(s, &ops::Relu),
            Activation::Clip { low, high } => self.map(s, &ops::Clip { low, high }),
            Activation::LeakyRelu(alpha) => self.map(s, &ops::LeakyRelu { alpha }),
            Activation::HardSigmoid { alpha, beta } => self.map(s, &ops::HardSigmoid { alpha, beta }),
            Activation::HardSwish => self.map(s, &ops::HardSwish),
            Activation::Sigmoid => self.map(s, &ops::Sigmoid),
            Activation::Silu => self.map(s, &ops::Silu),
            Activation::Tanh => self.map(s, &ops::Tanh),
            Activation::Gelu => self.map(s, &ops::Gelu),
            Activation::GeluTanh => self.map(s, &ops::GeluTanh),
        }
    }
}

impl Activate {
    #[inline(always)]
    fn map<S: Simd, O: UnaryOp>(&self, s: S, op: &O) {
        for row in 0..self.rows {
            let at = self.at.wrapping_add(row * self.step);
            for column in (0..self.columns).step_by(S::LANES) {
                let n = (self.columns - column).min(S::LANES);
                // SAFETY: n values of a row that is the caller's to write.
                unsafe {
                    let at = at.add(column);
                    s.store_head(at, op.apply(s, s.load_head(at, n)), n);
                }
            }
        }
    }
}
