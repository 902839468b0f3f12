//! Element-wise operations over slices.
//!
//! Slices need no alignment. Lengths that differ are cut to the shortest; the
//! callers have checked shapes.

use super::{BinaryOp, Isa, Kernel, Simd, UnaryOp};

/// A side of a binary operation.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A value for each element.
    Slice(&'a [f32]),
    /// The same value for all.
    Scalar(f32),
}

impl Operand<'_> {
    /// The longest destination that it can fill.
    fn len(self) -> usize {
        match self {
            Operand::Slice(values) => values.len(),
            Operand::Scalar(_) => usize::MAX,
        }
    }
}

/// `dst[i] = op(src[i])`
pub fn map_unary<O: UnaryOp>(isa: Isa, op: &O, src: &[f32], dst: &mut [f32]) {
    let n = src.len().min(dst.len());
    isa.dispatch(Unary { op, src: src.as_ptr(), dst: dst.as_mut_ptr(), n });
}

/// `x[i] = op(x[i])`
pub fn map_unary_in_place<O: UnaryOp>(isa: Isa, op: &O, x: &mut [f32]) {
    let dst = x.as_mut_ptr();
    isa.dispatch(Unary { op, src: dst, dst, n: x.len() });
}

/// `dst[i] = op(a[i], b[i])`
pub fn map_binary<O: BinaryOp>(isa: Isa, op: &O, a: Operand<'_>, b: Operand<'_>, dst: &mut [f32]) {
    let n = dst.len().min(a.len()).min(b.len());
    let dst = dst.as_mut_ptr();
    // One loop per form, so that a scalar stays in its register.
    match (a, b) {
        (Operand::Slice(a), Operand::Slice(b)) => {
            isa.dispatch(Binary { op, a: At(a.as_ptr()), b: At(b.as_ptr()), dst, n });
        }
        (Operand::Slice(a), Operand::Scalar(b)) => {
            isa.dispatch(Binary { op, a: At(a.as_ptr()), b: Same(b), dst, n });
        }
        (Operand::Scalar(a), Operand::Slice(b)) => {
            isa.dispatch(Binary { op, a: Same(a), b: At(b.as_ptr()), dst, n });
        }
        (Operand::Scalar(a), Operand::Scalar(b)) => {
            isa.dispatch(Binary { op, a: Same(a), b: Same(b), dst, n });
        }
    }
}

/// `a[i] = op(a[i], b[i])`; [`Swap`](super::ops::Swap) makes it `op(b[i], a[i])`.
pub fn map_binary_in_place<O: BinaryOp>(isa: Isa, op: &O, a: &mut [f32], b: Operand<'_>) {
    let n = a.len().min(b.len());
    let dst = a.as_mut_ptr();
    match b {
        Operand::Slice(b) => isa.dispatch(Binary { op, a: At(dst), b: At(b.as_ptr()), dst, n }),
        Operand::Scalar(b) => isa.dispatch(Binary { op, a: At(dst), b: Same(b), dst, n }),
    }
}

/// `n` values at `src`, which are `dst` itself or overlap nothing.
struct Unary<'a, O> {
    op: &'a O,
    src: *const f32,
    dst: *mut f32,
    n: usize,
}

impl<O: UnaryOp> Kernel for Unary<'_, O> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Unary { op, src, dst, n } = self;
        let mut i = 0;
        while i + S::LANES <= n {
            // SAFETY: i + LANES <= n, the length of the source.
            let x = unsafe { s.load(src.add(i)) };
            // SAFETY: i + LANES <= n, the length of the destination.
            unsafe { s.store(dst.add(i), op.apply(s, x)) };
            i += S::LANES;
        }
        if i < n {
            // SAFETY: n - i < LANES values are left of the source.
            let x = unsafe { s.load_head(src.add(i), n - i) };
            // SAFETY: n - i < LANES values are left of the destination.
            unsafe { s.store_head(dst.add(i), op.apply(s, x), n - i) };
        }
    }
}

/// `n` values at `dst`; a side is `dst` itself or overlaps nothing.
struct Binary<'a, O, A, B> {
    op: &'a O,
    a: A,
    b: B,
    dst: *mut f32,
    n: usize,
}

impl<O: BinaryOp, A: Side, B: Side> Kernel for Binary<'_, O, A, B> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Binary { op, a, b, dst, n } = self;
        let mut i = 0;
        while i + S::LANES <= n {
            // SAFETY: i + LANES <= n, the least length of all three.
            let (x, y) = unsafe { (a.load(s, i), b.load(s, i)) };
            // SAFETY: i + LANES <= n, the length of the destination.
            unsafe { s.store(dst.add(i), op.apply(s, x, y)) };
            i += S::LANES;
        }
        if i < n {
            // SAFETY: n - i < LANES values are left on each side.
            let (x, y) = unsafe { (a.load_head(s, i, n - i), b.load_head(s, i, n - i)) };
            // SAFETY: n - i < LANES values are left of the destination.
            unsafe { s.store_head(dst.add(i), op.apply(s, x, y), n - i) };
        }
    }
}

/// An operand as the kernel walks it.
trait Side: Copy {
    /// # Safety
    /// A slice has LANES values from `i` on.
    unsafe fn load<S: Simd>(self, s: S, i: usize) -> S::F32;
    /// # Safety
    /// A slice has `n` values from `i` on.
    unsafe fn load_head<S: Simd>(self, s: S, i: usize, n: usize) -> S::F32;
}

#[derive(Clone, Copy)]
struct At(*const f32);

#[derive(Clone, Copy)]
struct Same(f32);

impl Side for At {
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, i: usize) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load(self.0.add(i)) }
    }
    #[inline(always)]
    unsafe fn load_head<S: Simd>(self, s: S, i: usize, n: usize) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { s.load_head(self.0.add(i), n) }
    }
}

impl Side for Same {
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, _: usize) -> S::F32 {
        s.splat(self.0)
    }
    #[inline(always)]
    unsafe fn load_head<S: Simd>(self, s: S, _: usize, _: usize) -> S::F32 {
        s.splat(self.0)
    }
}
