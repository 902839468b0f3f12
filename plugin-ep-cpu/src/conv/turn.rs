//! Rows of output channels, one row a pixel, turned into planes.

use ortolan_ep_kit::parallel::Parallel;

use crate::gemm::{Activation, KernelError, activate, clip_of};
use crate::simd::{Isa, Kernel, Simd};

/// Values that the rows take, with what whole vectors run over, in whole cache lines.
pub(super) fn len(isa: Isa, pixels: usize, outs: usize) -> usize {
    let whole = pixels.saturating_mul(outs).saturating_add(isa.lanes());
    whole.checked_next_multiple_of(16).unwrap_or(usize::MAX)
}

/// Where the planes go, and what is done on the way.
pub(super) struct Turn<'a> {
    pub isa: Isa,
    pub pixels: usize,
    pub outs: usize,
    pub residual: Option<&'a [f32]>,
    pub activation: Activation,
    /// `outs` planes of `pixels` values.
    pub y: *mut f32,
}

// SAFETY: each worker writes planes of its own and only reads everything else.
unsafe impl Sync for Turn<'_> {}

impl Turn<'_> {
    /// Turns `rows`, which is [`len`] values long.
    pub fn run(&self, rows: &[f32], threads: &dyn Parallel) -> Result<(), KernelError> {
        assert!(rows.len() >= len(self.isa, self.pixels, self.outs), "rows of output channels");
        threads.for_each(self.outs, self.isa.lanes(), &|_, range| {
            for first in range.clone().step_by(self.isa.lanes()) {
                let outs = self.isa.lanes().min(range.end - first);
                self.isa.dispatch(Block { turn: self, rows, first, outs });
            }
            if clip_of(self.activation).is_none() {
                let y = self.y.wrapping_add(range.start * self.pixels);
                // SAFETY: the planes that were just written.
                unsafe { activate(self.isa, self.activation, y, self.pixels, range.len(), self.pixels) };
            }
        })?;
        Ok(())
    }
}

/// Up to a vector of output channels.
struct Block<'a> {
    turn: &'a Turn<'a>,
    rows: &'a [f32],
    first: usize,
    outs: usize,
}

impl Kernel for Block<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Turn { pixels, outs: step, residual, activation, y, .. } = *self.turn;
        let (low, high) = clip_of(activation).unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        let (low, high) = (s.splat(low), s.splat(high));
        // Room for the most lanes there are.
        let mut square = [0.0; 16 * 16];
        for pixel in (0..pixels).step_by(S::LANES) {
            let n = (pixels - pixel).min(S::LANES);
            let from = self.rows[pixel * step + self.first..].as_ptr();
            // SAFETY: n rows, of which the last ends inside the slack; the square holds LANES rows.
            unsafe { s.transpose(from, step, n, square.as_mut_ptr(), S::LANES) };
            for out in 0..self.outs {
                let at = (self.first + out) * pixels + pixel;
                let mut x = s.load_slice(&square[out * S::LANES..]);
                if let Some(residual) = residual {
                    x = s.add(x, s.load_slice(&residual[at..at + n]));
                }
                // SAFETY: n pixels of a plane that is this worker's to write.
                unsafe { s.store_head(y.add(at), s.clip(x, low, high), n) };
            }
        }
    }
}
