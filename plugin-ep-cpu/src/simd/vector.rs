//! The vector trait: what a kernel may ask of an instruction set.
//!
//! Operations are methods of the token, so a vector needs no operators of its
//! own. Those that round (`fma` above all) may differ in the last bit between
//! `scalar`, which has no fused multiply-add, and the others; everything else
//! gives the same bits everywhere, `min` and `max` on NaN included.

/// The token of an instruction set; having one proves that the CPU has it.
pub trait Simd: Copy + Send + Sync + 'static {
    /// `LANES` values of f32.
    type F32: Copy;
    /// `LANES` values of i32.
    type I32: Copy;
    /// `LANES` truth values.
    type Mask: Copy;

    /// Lanes of a vector: a power of two, at most 16.
    const LANES: usize;
    /// Vector registers that code can name.
    const REGISTERS: usize;

    // ---- memory

    /// Reads `LANES` values.
    ///
    /// # Safety
    /// `from` is readable for `LANES` values. Any alignment of f32.
    unsafe fn load(self, from: *const f32) -> Self::F32;
    /// Writes `LANES` values.
    ///
    /// # Safety
    /// `to` is writable for `LANES` values. Any alignment of f32.
    unsafe fn store(self, to: *mut f32, v: Self::F32);
    /// Reads the first `n <= LANES` values; the other lanes are 0.
    ///
    /// # Safety
    /// `from` is readable for `n` values; no more are touched.
    unsafe fn load_head(self, from: *const f32, n: usize) -> Self::F32;
    /// Writes the first `n <= LANES` lanes.
    ///
    /// # Safety
    /// `to` is writable for `n` values; no more are touched.
    unsafe fn store_head(self, to: *mut f32, v: Self::F32, n: usize);
    /// Reads `LANES` integers.
    ///
    /// # Safety
    /// `from` is readable for `LANES` values.
    unsafe fn load_i32(self, from: *const i32) -> Self::I32;
    /// Writes `LANES` integers.
    ///
    /// # Safety
    /// `to` is writable for `LANES` values.
    unsafe fn store_i32(self, to: *mut i32, v: Self::I32);
    /// Turns rows into columns: row `r`, column `c` of the source goes to row
    /// `c`, column `r` of the destination, for `LANES` columns. Of the `LANES`
    /// source rows the first `rows` are read; the others count as 0. Steps are
    /// in values; destination rows may overlap and are written in rising order.
    ///
    /// # Safety
    /// `from + r * from_step` is readable for r below `rows`, and
    /// `to + c * to_step` writable for c below `LANES`, for `LANES` values each.
    unsafe fn transpose(self, from: *const f32, from_step: usize, rows: usize, to: *mut f32, to_step: usize);
    /// Asks for the cache line of `at`, wherever that points.
    fn prefetch(self, at: *const f32);

    /// The even lanes of `low`, then the odd lanes of `high`.
    fn evens(self, low: Self::F32, high: Self::F32) -> Self::F32;

    // ---- arithmetic

    /// The same value in all lanes.
    fn splat(self, x: f32) -> Self::F32;
    /// `a + b`
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once where the CPU can.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `c - a * b`, rounded once where the CPU can.
    fn fnma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `if a > b { a } else { b }`: `b` when either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `if a < b { a } else { b }`: `b` when either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// Square root, correctly rounded.
    fn sqrt(self, x: Self::F32) -> Self::F32;
    /// To the nearest integer, halves to even.
    fn round(self, x: Self::F32) -> Self::F32;
    /// Down to an integer.
    fn floor(self, x: Self::F32) -> Self::F32;
    /// Without the sign.
    #[inline(always)]
    fn abs(self, x: Self::F32) -> Self::F32 {
        self.cast_f32(self.and_i32(self.cast_i32(x), self.splat_i32(i32::MAX)))
    }
    /// With the sign turned, NaN and zero included.
    #[inline(always)]
    fn neg(self, x: Self::F32) -> Self::F32 {
        self.cast_f32(self.xor_i32(self.cast_i32(x), self.splat_i32(i32::MIN)))
    }
    /// The magnitude of `x` with the sign of `sign`.
    #[inline(always)]
    fn copysign(self, x: Self::F32, sign: Self::F32) -> Self::F32 {
        let sign = self.and_i32(self.cast_i32(sign), self.splat_i32(i32::MIN));
        self.cast_f32(self.or_i32(self.cast_i32(self.abs(x)), sign))
    }

    // ---- comparison: false when either is NaN, except `ne`

    /// `a < b`
    fn lt(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `a <= b`
    fn le(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `a == b`
    fn eq(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `a != b`, true when either is NaN
    fn ne(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// Both.
    fn and(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// Either or both.
    fn or(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// `a` where the mask is true, else `b`.
    fn select(self, mask: Self::Mask, a: Self::F32, b: Self::F32) -> Self::F32;
    /// Bit `i` is the truth value of lane `i`.
    fn bits_of(self, mask: Self::Mask) -> u32;

    // ---- over the lanes, in a fixed order: halves are folded onto each other

    /// Sum of the lanes.
    fn reduce_sum(self, x: Self::F32) -> f32;
    /// Greatest lane, as [`max`](Self::max) has it.
    fn reduce_max(self, x: Self::F32) -> f32;
    /// Least lane, as [`min`](Self::min) has it.
    fn reduce_min(self, x: Self::F32) -> f32;

    // ---- integers

    /// The same integer in all lanes.
    fn splat_i32(self, x: i32) -> Self::I32;
    /// `a + b`, wrapping.
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// `a - b`, wrapping.
    fn sub_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bits in both.
    fn and_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bits in either.
    fn or_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bits in one alone.
    fn xor_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Shifted left by `n < 32`.
    fn shl_i32(self, a: Self::I32, n: u32) -> Self::I32;
    /// Shifted right by `n < 32`, the sign kept.
    fn shr_i32(self, a: Self::I32, n: u32) -> Self::I32;
    /// `a > b`
    fn gt_i32(self, a: Self::I32, b: Self::I32) -> Self::Mask;
    /// The bits of the floats.
    fn cast_i32(self, x: Self::F32) -> Self::I32;
    /// The floats of these bits.
    fn cast_f32(self, x: Self::I32) -> Self::F32;
    /// To the nearest integer, halves to even. Out of range or NaN: any value.
    fn to_i32(self, x: Self::F32) -> Self::I32;
    /// To the nearest float.
    fn to_f32(self, x: Self::I32) -> Self::F32;

    // ---- what follows from the above

    /// All lanes 0.
    #[inline(always)]
    fn zero(self) -> Self::F32 {
        self.splat(0.0)
    }
    /// `a > b`
    #[inline(always)]
    fn gt(self, a: Self::F32, b: Self::F32) -> Self::Mask {
        self.lt(b, a)
    }
    /// `a >= b`
    #[inline(always)]
    fn ge(self, a: Self::F32, b: Self::F32) -> Self::Mask {
        self.le(b, a)
    }
    /// `x` held between `low` and `high`; NaN stays NaN.
    #[inline(always)]
    fn clip(self, x: Self::F32, low: Self::F32, high: Self::F32) -> Self::F32 {
        self.min(high, self.max(low, x))
    }
    /// Reads every second of `2 * LANES - 1` values, from the first on.
    ///
    /// # Safety
    /// `from` is readable for `2 * LANES - 1` values.
    #[inline(always)]
    unsafe fn load_even(self, from: *const f32) -> Self::F32 {
        // The second vector begins at the last value of the first: its wanted lanes are the odd ones.
        // SAFETY: the caller's promise.
        unsafe { self.evens(self.load(from), self.load(from.add(Self::LANES - 1))) }
    }
    /// Reads every second of `2 * n - 1` values, for 1 <= `n` <= `LANES`; the other lanes may be anything.
    ///
    /// # Safety
    /// `from` is readable for `2 * n - 1` values; no more are touched.
    #[inline(always)]
    unsafe fn load_even_head(self, from: *const f32, n: usize) -> Self::F32 {
        let count = 2 * n - 1;
        let low = count.min(Self::LANES);
        // SAFETY: at most `count` values.
        let low = unsafe { self.load_head(from, low) };
        let high = count.saturating_sub(Self::LANES - 1);
        // SAFETY: at most what is left of `count` values.
        let high = unsafe { self.load_head(from.wrapping_add(Self::LANES - 1), high) };
        self.evens(low, high)
    }
    /// The first `LANES` values of a slice; missing ones are 0.
    #[inline(always)]
    fn load_slice(self, from: &[f32]) -> Self::F32 {
        if from.len() >= Self::LANES {
            // SAFETY: the slice holds LANES values.
            unsafe { self.load(from.as_ptr()) }
        } else {
            // SAFETY: the slice holds its length, which is below LANES.
            unsafe { self.load_head(from.as_ptr(), from.len()) }
        }
    }
    /// Writes as many of the first `LANES` values of a slice as there are.
    #[inline(always)]
    fn store_slice(self, to: &mut [f32], v: Self::F32) {
        if to.len() >= Self::LANES {
            // SAFETY: the slice holds LANES values.
            unsafe { self.store(to.as_mut_ptr(), v) }
        } else {
            // SAFETY: the slice holds its length, which is below LANES.
            unsafe { self.store_head(to.as_mut_ptr(), v, to.len()) }
        }
    }
}
