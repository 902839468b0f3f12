//! Products of f32 matrices: `C = activation(alpha * A * B + add + bias)`.
//!
//! [`Gemm`] is one shape on one instruction set: plain data, made once per
//! binding. Operands are slices with steps, so a transpose costs no copy, or
//! packed ahead ([`PackedB`], [`PackedA`]) as weights should be. Scratch memory
//! comes from the caller; nothing here allocates or keeps state.
//!
//! The same inputs give the same bits for any number of threads.
//!
//! ```
//! use ortolan_ep_cpu::gemm::{Epilogue, Gemm, Lhs, Mat, MatMut, Rhs};
//! use ortolan_ep_cpu::simd::Isa;
//! use ortolan_ep_kit::parallel::Serial;
//!
//! let gemm = Gemm::new(Isa::best(), 2, 2, 3);
//! let a = Mat::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3)?;
//! let b = Mat::new(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 3, 2)?;
//! let mut c = [0.0; 4];
//! let mut scratch = vec![0.0; gemm.scratch_len(false, false, 1)];
//! let out = MatMut::new(&mut c, 2, 2)?;
//! gemm.run(Lhs::Plain(a), Rhs::Plain(b), &Epilogue::default(), out, &mut scratch, &Serial)?;
//! assert_eq!(c, [4.0, 5.0, 10.0, 11.0]);
//! # Ok::<(), ortolan_ep_cpu::gemm::KernelError>(())
//! ```

mod batch;
mod dots;
mod driver;
mod epilogue;
mod error;
mod mat;
mod pack;
mod plan;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod tile;

use ortolan_ep_kit::parallel::{Parallel, Serial};

pub use batch::{Batch, Nest};
use dots::Dots;
use driver::{Left, Product, Right, Scratch};
use epilogue::Finish;
pub(crate) use epilogue::{activate, clip_of};
pub use error::KernelError;
pub(crate) use error::enough;
pub use mat::{Activation, Add, Bias, Epilogue, Lhs, Mat, MatMut, Rhs, Source};
pub use pack::{PackedA, PackedB};
use plan::{Split, block_k};
use tile::{max_rows, panel_columns};

use crate::simd::Isa;

/// A product of an `m` by `k` and a `k` by `n` matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// What it runs on.
    pub isa: Isa,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Factor of the product.
    pub alpha: f32,
}

/// Multiply-adds below which waking another thread costs more than it brings.
const WORTH_SHARING: usize = 1 << 17;
/// Tiles of rows up to which a B that is not packed is read where it lies.
const DIRECT_TILES: usize = 2;
/// Panels of B up to which an A with contiguous columns is read where it lies.
const DIRECT_PANELS: usize = 4;

impl Gemm {
    /// A product with alpha 1.
    #[must_use]
    pub fn new(isa: Isa, m: usize, n: usize, k: usize) -> Self {
        Gemm { isa, m, n, k, alpha: 1.0 }
    }

    /// Values of scratch that [`run`](Self::run) needs with operands packed
    /// ahead or not, and up to `width` threads; `usize::MAX` when there is no
    /// such number.
    #[must_use]
    pub fn scratch_len(&self, packed_a: bool, packed_b: bool, width: usize) -> usize {
        let as_is = self.cut(!packed_a, !packed_b).len(width);
        // A product of one column runs transposed.
        let turned = Gemm { m: self.n, n: self.m, ..*self };
        if self.n == 1 { as_is.max(turned.cut(!packed_b, !packed_a).len(width)) } else { as_is }
    }

    /// Values of scratch that are enough for one thread, operands as they stand, and every product of at most `m` by `n` by `k`.
    #[must_use]
    pub fn most_scratch_len(isa: Isa, m: usize, n: usize, k: usize) -> usize {
        // A product of one column runs transposed.
        Scratch::most(isa, m, n, k).len(1).max(Scratch::most(isa, 1, m, k).len(1))
    }

    /// Computes `C = activation(alpha * A * B + add + bias)`.
    ///
    /// `scratch` holds [`scratch_len`](Self::scratch_len) values, best 64-byte
    /// aligned; what is in it before and after means nothing.
    ///
    /// # Errors
    /// Operands, epilogue or scratch do not fit the shape, or were packed for
    /// another instruction set; or the run was cancelled.
    pub fn run(
        &self,
        a: Lhs<'_>,
        b: Rhs<'_>,
        epilogue: &Epilogue<'_>,
        c: MatMut<'_>,
        scratch: &mut [f32],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        if (c.rows, c.cols) != (self.m, self.n) {
            return Err(KernelError::Shape("C does not fit the product"));
        }
        self.run_to(a, b, epilogue, Target { c: c.data.as_mut_ptr(), step: c.row_step }, scratch, threads)
    }

    /// The same with an output that the caller shares out: `out` has this product's size and nobody else touches it.
    pub(crate) fn run_to(
        &self,
        a: Lhs<'_>,
        b: Rhs<'_>,
        epilogue: &Epilogue<'_>,
        out: Target,
        scratch: &mut [f32],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        self.check(&a, &b)?;
        let finish = Finish::new(self.alpha, *epilogue, self.m, self.n)?;
        self.run_checked(a, b, finish, out, scratch, threads)
    }

    /// The rest of [`run_to`](Self::run_to): all operands fit.
    fn run_checked(
        &self,
        a: Lhs<'_>,
        b: Rhs<'_>,
        finish: Finish<'_>,
        out: Target,
        scratch: &mut [f32],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        if self.m == 0 || self.n == 0 {
            return Ok(());
        }
        let work = self.m.saturating_mul(self.n).saturating_mul(self.k);
        let threads: &dyn Parallel = if work < WORTH_SHARING { &Serial } else { threads };
        if let (Lhs::Plain(a), Rhs::Plain(b)) = (a, b) {
            if self.n == 1 && self.m > 1 && out.step == 1 {
                let turned = Gemm { m: 1, n: self.m, ..*self };
                return turned.plain(b.transposed(), a.transposed(), finish.transposed(), out, scratch, threads);
            }
            return self.plain(a, b, finish, out, scratch, threads);
        }
        self.product(a, b, finish, out, scratch, threads)
    }

    /// Neither side is packed.
    fn plain(
        &self,
        a: Mat<'_>,
        b: Mat<'_>,
        finish: Finish<'_>,
        out: Target,
        scratch: &mut [f32],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        if self.m <= dots::MOST_ROWS && a.col_step == 1 && b.row_step == 1 && b.col_step != 1 {
            let dots = Dots { isa: self.isa, a, b, c: out.c, c_step: out.step, finish };
            return dots.run(threads);
        }
        self.product(Lhs::Plain(a), Rhs::Plain(b), finish, out, scratch, threads)
    }

    /// By tiles and panels.
    fn product(
        &self,
        a: Lhs<'_>,
        b: Rhs<'_>,
        finish: Finish<'_>,
        out: Target,
        scratch: &mut [f32],
        threads: &dyn Parallel,
    ) -> Result<(), KernelError> {
        let (tiles, blocks) = self.splits();
        let panels = self.n.div_ceil(panel_columns(self.isa));
        let a = match a {
            Lhs::Packed(layout, data) => Left::Packed(layout, data),
            Lhs::Plain(a) if self.m == 1 => Left::Direct(a),
            Lhs::Plain(a) if a.row_step == 1 && panels <= DIRECT_PANELS => Left::Direct(a),
            Lhs::Plain(a) => Left::Pack(a),
            Lhs::Gather(a) => Left::Gather(a),
        };
        let cut = self.cut(matches!(a, Left::Pack(_) | Left::Gather(_)), !matches!(b, Rhs::Packed(..)));
        let b = match b {
            Rhs::Packed(layout, data) => Right::Packed(layout, data),
            Rhs::Plain(b) if cut.has_block() => Right::PackBlocks(b),
            Rhs::Plain(b) if b.col_step == 1 && tiles.parts() <= DIRECT_TILES => Right::Direct(b),
            Rhs::Plain(b) => Right::PackPanels(b),
            Rhs::Gather(b) => Right::Gather(b),
        };
        enough("the scratch memory", cut.len(threads.width()), scratch.len())?;
        let product = Product { isa: self.isa, tiles, blocks, n: self.n, a, b, c: out.c, c_step: out.step, finish };
        product.run(cut, scratch, threads)
    }

    fn splits(&self) -> (Split, Split) {
        (Split::at_most(self.m, max_rows(self.isa)), block_k(self.isa, self.k))
    }

    fn cut(&self, packs_a: bool, packs_b: bool) -> Scratch {
        let (tiles, blocks) = self.splits();
        Scratch::new(self.isa, tiles, blocks, self.n, packs_a, packs_b)
    }

    /// Whether operands are of this product's size and instruction set.
    fn check(&self, a: &Lhs<'_>, b: &Rhs<'_>) -> Result<(), KernelError> {
        let a_fits = match *a {
            Lhs::Plain(a) => (a.rows, a.cols) == (self.m, self.k),
            Lhs::Gather(a) => (a.columns(), a.k()) == (self.m, self.k),
            Lhs::Packed(layout, data) => {
                enough("packed A", layout.size(), data.len())?;
                layout == PackedA::new(self.isa, self.m, self.k)
            }
        };
        let b_fits = match *b {
            Rhs::Plain(b) => (b.rows, b.cols) == (self.k, self.n),
            Rhs::Gather(b) => (b.k(), b.columns()) == (self.k, self.n),
            Rhs::Packed(layout, data) => {
                enough("packed B", layout.size(), data.len())?;
                layout == PackedB::new(self.isa, self.k, self.n)
            }
        };
        match (a_fits, b_fits) {
            (false, _) => Err(KernelError::Shape("A does not fit the product")),
            (_, false) => Err(KernelError::Shape("B does not fit the product")),
            _ => Ok(()),
        }
    }
}

/// Where a product goes: M rows of N values, `step` apart.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub c: *mut f32,
    pub step: usize,
}
