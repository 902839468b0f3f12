//! Elements of less than 8 bits: several share a byte, the first in its low bits.

/// Code of element `at`, with other elements in the bits above it.
#[inline]
pub(crate) fn read(bits: usize, x: &[u8], at: usize) -> u8 {
    let per = 8 / bits;
    x[at / per] >> (at % per * bits)
}

/// Fills bytes from byte `first` on with the low bits of codes of `count` elements in all; what is behind them is 0.
#[inline]
pub(crate) fn write(bits: usize, count: usize, first: usize, y: &mut [u8], code: impl Fn(usize) -> u8) {
    let (per, mask) = (8 / bits, u8::MAX >> (8 - bits));
    for (k, y) in y.iter_mut().enumerate() {
        let start = (first + k) * per;
        let codes = (start..count.min(start + per)).enumerate();
        *y = codes.fold(0, |byte, (place, at)| byte | (code(at) & mask) << (place * bits));
    }
}
