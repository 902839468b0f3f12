//! The micro-kernel: one tile of C for one block of K, held in registers.
//!
//! A tile is up to [`max_rows`] rows by one or two vectors. Every step along K
//! loads the vectors of B once and multiplies them by each of the tile's values
//! of A in turn, so that the loads are few against the multiply-adds. It must
//! not know blocks, packing or threads.

#![expect(clippy::needless_range_loop, reason = "iterators may not be inlined into kernels, see `simd`")]

use core::ptr;

use crate::simd::{Isa, Kernel, Simd};

/// Vectors side by side in a panel of B.
const VECTORS: usize = 2;
/// Steps along K before its end at which a tile asks for C.
const LATE_STEPS: usize = 128;
/// Rows of the highest tile of any instruction set.
const MOST_ROWS: usize = 14;

/// Rows of the highest tile: accumulators take all registers but four.
pub(crate) fn max_rows(isa: Isa) -> usize {
    struct Rows;
    impl Kernel for Rows {
        type Out = usize;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> usize {
            rows_of::<S>()
        }
    }
    isa.dispatch(Rows)
}

/// Columns of a panel of B.
pub(crate) fn panel_columns(isa: Isa) -> usize {
    VECTORS * isa.lanes()
}

const fn rows_of<S: Simd>() -> usize {
    (S::REGISTERS - 4) / VECTORS
}

/// What one call of the micro-kernel computes:
/// `C = clip(alpha * A * B + add_scale * add + row_bias + col_bias)`.
/// Steps are in values. Null pointers leave their term out.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Steps along K.
    pub k: usize,
    /// `rows` values next to each other for each step along K.
    pub a: *const f32,
    pub a_step: usize,
    /// One or two vectors for each step along K.
    pub b: *const f32,
    pub b_step: usize,
    /// Values from what is read of B to what to ask the caches for, or 0.
    pub ahead: usize,
    pub c: *mut f32,
    pub c_step: usize,
    /// Columns of C to be written.
    pub columns: usize,
    pub alpha: f32,
    /// As C: the same rows and columns of another matrix, or C itself.
    pub add: *const f32,
    pub add_step: usize,
    pub add_scale: f32,
    /// A value for each row.
    pub row_bias: *const f32,
    /// A value for each column.
    pub col_bias: *const f32,
    /// Bounds of the result.
    pub clip: Option<(f32, f32)>,
}

impl Tile {
    /// The bare product, with no output as yet.
    pub fn new(k: usize, (a, a_step): (*const f32, usize), (b, b_step): (*const f32, usize)) -> Self {
        Tile {
            k,
            a,
            a_step,
            b,
            b_step,
            ahead: 0,
            c: ptr::null_mut(),
            c_step: 0,
            columns: 0,
            alpha: 1.0,
            add: ptr::null(),
            add_step: 0,
            add_scale: 1.0,
            row_bias: ptr::null(),
            col_bias: ptr::null(),
            clip: None,
        }
    }
}

/// Computes a tile of `rows` rows.
///
/// # Safety
/// `1 <= rows <= max_rows(isa)`, `1 <= columns <= panel_columns(isa)`, and for
/// those, every pointer of the tile is good for what its field says: `b` for as
/// many whole vectors as hold the columns, all others for the columns alone.
pub(crate) unsafe fn run(isa: Isa, rows: usize, tile: &Tile) {
    let one_vector = usize::from(tile.columns <= isa.lanes());
    let call = TILES[rows - 1][one_vector];
    // SAFETY: the caller's promise, and the table is indexed by it.
    unsafe { call(isa, tile) }
}

type Call = unsafe fn(Isa, &Tile);

/// By rows - 1: the kernels of two vectors and of one. Low tiles step along K
/// by several at once, because a multiply-add waits for the one before it in
/// its accumulator and eight are in flight. Both kernels of a row take as many
/// steps, so that equal columns have equal sums wherever they stand: logits of
/// 10^9 that differ in the last bit are different classes to a softmax.
static TILES: [[Call; 2]; MOST_ROWS] = [
    [call::<1, 2, 4>, call::<1, 1, 4>],
    [call::<2, 2, 2>, call::<2, 1, 2>],
    [call::<3, 2, 2>, call::<3, 1, 2>],
    [call::<4, 2, 1>, call::<4, 1, 1>],
    [call::<5, 2, 1>, call::<5, 1, 1>],
    [call::<6, 2, 1>, call::<6, 1, 1>],
    [call::<7, 2, 1>, call::<7, 1, 1>],
    [call::<8, 2, 1>, call::<8, 1, 1>],
    [call::<9, 2, 1>, call::<9, 1, 1>],
    [call::<10, 2, 1>, call::<10, 1, 1>],
    [call::<11, 2, 1>, call::<11, 1, 1>],
    [call::<12, 2, 1>, call::<12, 1, 1>],
    [call::<13, 2, 1>, call::<13, 1, 1>],
    [call::<14, 2, 1>, call::<14, 1, 1>],
];

/// # Safety
/// As [`run`], with `R` rows and `V` vectors.
unsafe fn call<const R: usize, const V: usize, const U: usize>(isa: Isa, tile: &Tile) {
    isa.dispatch(Job::<R, V, U>(tile));
}

/// A tile that keeps the promises of [`run`].
struct Job<'a, const R: usize, const V: usize, const U: usize>(&'a Tile);

impl<const R: usize, const V: usize, const U: usize> Kernel for Job<'_, R, V, U> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Tiles that are too high for this instruction set are not compiled.
        if R <= rows_of::<S>() {
            let t = self.0;
            // SAFETY: the promises of `run`.
            let sums = unsafe { products::<S, R, V, U>(s, t) };
            // SAFETY: the promises of `run`.
            unsafe { finish::<S, R, V>(s, t, sums) }
        }
    }
}

/// `A * B` for the tile.
///
/// # Safety
/// As [`run`] has it for `a` and `b`.
#[inline(always)]
unsafe fn products<S: Simd, const R: usize, const V: usize, const U: usize>(s: S, t: &Tile) -> [[S::F32; V]; R] {
    let mut sums = [[[s.zero(); V]; R]; U];
    let mut at = (t.a, t.b);
    // C is asked for shortly before it is needed: what is fetched earlier is
    // driven out again by A and B streaming through the first cache.
    let rounds = t.k / U;
    let late = rounds.min(LATE_STEPS / U);
    for part in 0..2 {
        let rounds = if part == 0 { rounds - late } else { late };
        if part == 1 {
            for i in 0..R {
                let c = t.c.wrapping_add(i * t.c_step);
                s.prefetch(c);
                s.prefetch(c.wrapping_add(t.columns - 1));
            }
        }
        if t.ahead == 0 {
            for _ in 0..rounds {
                for u in 0..U {
                    // SAFETY: fewer than t.k steps were taken.
                    at = unsafe { step(s, t, at, &mut sums[u]) };
                }
            }
        } else {
            for _ in 0..rounds {
                for u in 0..U {
                    for v in 0..V {
                        s.prefetch(at.1.wrapping_add(t.ahead + v * S::LANES));
                    }
                    // SAFETY: fewer than t.k steps were taken.
                    at = unsafe { step(s, t, at, &mut sums[u]) };
                }
            }
        }
    }
    for _ in 0..t.k % U {
        // SAFETY: as many steps are left.
        at = unsafe { step(s, t, at, &mut sums[0]) };
    }
    let mut total = sums[0];
    for u in 1..U {
        for i in 0..R {
            for v in 0..V {
                total[i][v] = s.add(total[i][v], sums[u][i][v]);
            }
        }
    }
    total
}

/// One step along K, from where A and B stand to where they stand next.
///
/// # Safety
/// `R` values of A and `V` vectors of B are readable.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const V: usize>(
    s: S,
    t: &Tile,
    (a, b): (*const f32, *const f32),
    sums: &mut [[S::F32; V]; R],
) -> (*const f32, *const f32) {
    let mut row = [s.zero(); V];
    for v in 0..V {
        // SAFETY: v < V.
        row[v] = unsafe { s.load(b.add(v * S::LANES)) };
    }
    for i in 0..R {
        // SAFETY: i < R.
        let a = s.splat(unsafe { *a.add(i) });
        for v in 0..V {
            sums[i][v] = s.fma(a, row[v], sums[i][v]);
        }
    }
    (a.wrapping_add(t.a_step), b.wrapping_add(t.b_step))
}

/// All that follows the products, one term after the other over the whole tile:
/// short loops that the compiler unrolls, so that the sums stay in registers.
///
/// # Safety
/// As [`run`] has it for all but `a` and `b`.
#[inline(always)]
unsafe fn finish<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile, mut sums: [[S::F32; V]; R]) {
    // Columns in the last vector.
    let last = t.columns - (V - 1) * S::LANES;
    if t.alpha != 1.0 {
        let alpha = s.splat(t.alpha);
        for i in 0..R {
            for v in 0..V {
                sums[i][v] = s.mul(sums[i][v], alpha);
            }
        }
    }
    if !t.add.is_null() {
        let scale = s.splat(t.add_scale);
        for i in 0..R {
            for v in 0..V {
                let at = t.add.wrapping_add(i * t.add_step + v * S::LANES);
                // SAFETY: row i < R and the columns of vector v are in the tile.
                let add = unsafe { load(s, at, if v + 1 == V { last } else { S::LANES }) };
                sums[i][v] = s.fma(scale, add, sums[i][v]);
            }
        }
    }
    if !t.row_bias.is_null() {
        for i in 0..R {
            // SAFETY: row i < R is in the tile.
            let bias = s.splat(unsafe { *t.row_bias.add(i) });
            for v in 0..V {
                sums[i][v] = s.add(sums[i][v], bias);
            }
        }
    }
    if !t.col_bias.is_null() {
        for v in 0..V {
            let at = t.col_bias.wrapping_add(v * S::LANES);
            // SAFETY: the columns of vector v are in the tile.
            let bias = unsafe { load(s, at, if v + 1 == V { last } else { S::LANES }) };
            for i in 0..R {
                sums[i][v] = s.add(sums[i][v], bias);
            }
        }
    }
    if let Some((low, high)) = t.clip {
        let (low, high) = (s.splat(low), s.splat(high));
        for i in 0..R {
            for v in 0..V {
                sums[i][v] = s.clip(sums[i][v], low, high);
            }
        }
    }
    for i in 0..R {
        for v in 0..V {
            let at = t.c.wrapping_add(i * t.c_step + v * S::LANES);
            if v + 1 < V || last == S::LANES {
                // SAFETY: row i < R and the columns of vector v are in the tile.
                unsafe { s.store(at, sums[i][v]) }
            } else {
                // SAFETY: row i < R and the last columns are in the tile.
                unsafe { s.store_head(at, sums[i][v], last) }
            }
        }
    }
}

/// The first `n` values of a vector, 0 for the others.
///
/// # Safety
/// `from` is readable for `1 <= n <= LANES` values.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, from: *const f32, n: usize) -> S::F32 {
    if n == S::LANES {
        // SAFETY: the caller's promise.
        unsafe { s.load(from) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { s.load_head(from, n) }
    }
}
