//! Products of 8-bit matrices: `C = (A - a_zero) (B - b_zero)` in i32, exact on every instruction set, and what may follow
//! at once: factors to floats, or back to 8 bits.
//!
//! Signed or not makes no difference to the kernels: A is brought to u8 and B to i8 by turning the first bit when they are
//! packed, and zero points are moved with them. Sums of B's columns and A's rows, made while packing, take the zero points
//! out of the product.
//!
//! This module must not know operators.
//!
//! ```
//! use ortolan_ep_cpu::igemm::{Bytes, Finish, IGemm, Left, Right, Target, Zero};
//! use ortolan_ep_cpu::simd::Isa;
//! use ortolan_ep_kit::parallel::Serial;
//!
//! let gemm = IGemm::new(Isa::best(), 2, 2, 3);
//! let mut packed = vec![0; gemm.packed_b().size()];
//! let b = Bytes { data: &[1, 0, 0, 1, 1, 1], signed: true };
//! gemm.packed_b().pack(b, false, 0, &mut packed);
//! let a = Bytes { data: &[1, 2, 3, 4, 5, 6], signed: false };
//! let mut c = [0; 4];
//! let mut scratch = vec![0; gemm.scratch_len()];
//! let (left, right) = (Left { a, zero: Zero::All(1) }, Right { packed: &packed, signed: true, zero: Zero::All(0) });
//! gemm.run(left, right, &Finish::Sums, Target::I32(&mut c), 2, &mut scratch, &Serial)?;
//! assert_eq!(c, [2, 3, 8, 9]);
//! # Ok::<(), ortolan_ep_kit::parallel::Stopped>(())
//! ```

mod driver;
mod finish;
mod pack;
#[cfg(test)]
mod tests;
mod tile;

pub use driver::{IGemm, Left, Right, Target};
pub(crate) use finish::nearest;
pub use finish::{Factor, Finish};
pub(crate) use pack::sum_columns;
pub use pack::{PackedA, PackedB};
pub(crate) use tile::{GROUP, MOST_COLUMNS, Offsets, Sums};

/// Values of 8 bits, with or without a sign.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a> {
    /// Their bits.
    pub data: &'a [u8],
    /// Whether the first bit is a sign.
    pub signed: bool,
}

impl Bytes<'_> {
    /// Value `at`.
    #[must_use]
    #[inline]
    pub fn get(&self, at: usize) -> i32 {
        let bits = self.data[at];
        if self.signed { i32::from(bits.cast_signed()) } else { i32::from(bits) }
    }
}

/// What counts as zero.
#[derive(Debug, Clone, Copy)]
pub enum Zero<'a> {
    /// The same value for all.
    All(i32),
    /// One for each row of A, or column of B.
    Each(Bytes<'a>),
}

impl Zero<'_> {
    /// The zero point of a row or column.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> i32 {
        match self {
            Zero::All(x) => *x,
            Zero::Each(all) => all.get(at),
        }
    }
}
