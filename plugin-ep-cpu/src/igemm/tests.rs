//! Integer products against the definition, on every way of this machine.

use super::{Bytes, Factor, Finish, IGemm, Left, Right, Target, Zero};
use crate::simd::Isa;
use core::ops::Range;
use ortolan_ep_kit::parallel::{Parallel, Serial, Stopped};

/// Threads' worth of ranges, one after the other, each one grain long.
struct Shreds;
impl Parallel for Shreds {
    fn width(&self) -> usize {
        3
    }
    fn for_each(&self, n: usize, grain: usize, body: &(dyn Fn(usize, Range<usize>) + Sync)) -> Result<(), Stopped> {
        let grain = grain.max(1);
        (0..n).step_by(grain).enumerate().for_each(|(k, at)| body(k % 3, at..(at + grain).min(n)));
        Ok(())
    }
}

fn values(n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Extremes are frequent: they are what saturates.
        match state >> 60 {
            0..4 => 0xff,
            4..6 => 0x80,
            6..8 => 0x7f,
            _ => (state >> 40) as u8,
        }
    };
    (0..n).map(next).collect()
}

const SIZES: [[usize; 3]; 10] = [
    [1, 1, 1],
    [3, 2, 5],
    [7, 64, 4],
    [1, 130, 33],
    [13, 17, 259],
    [6, 15, 8],
    [40, 70, 100],
    [0, 3, 4],
    [3, 0, 4],
    [2, 3, 0],
];

fn sums(
    [m, n, k]: [usize; 3],
    a: Bytes<'_>,
    b: Bytes<'_>,
    a_zero: impl Fn(usize) -> i32,
    b_zero: impl Fn(usize) -> i32,
) -> Vec<i32> {
    let cell = |i: usize, j: usize| {
        (0..k).map(|p| (a.get(i * k + p) - a_zero(i)) * (b.get(p * n + j) - b_zero(j))).sum::<i32>()
    };
    (0..m * n).map(|at| cell(at / n, at % n)).collect()
}

/// All ways of this machine.
fn gemms([m, n, k]: [usize; 3]) -> impl Iterator<Item = IGemm> {
    Isa::available().flat_map(move |isa| [IGemm::new(isa, m, n, k), IGemm::lesser(isa, m, n, k)])
}

#[test]
fn sums_are_exact() {
    for size in SIZES {
        let [m, n, k] = size;
        let (a, b) = (values(m * k, 1), values(k * n, 2));
        let turned: Vec<u8> = (0..n * k).map(|at| b[at % k.max(1) * n + at / k.max(1)]).collect();
        let zeros = values(m.max(n), 3);
        for (a_signed, b_signed, each) in
            [(false, true, false), (false, false, true), (true, true, true), (true, false, false)]
        {
            let (a, b) = (Bytes { data: &a, signed: a_signed }, Bytes { data: &b, signed: b_signed });
            let (a_zeros, b_zeros) = (Bytes { data: &zeros, ..a }, Bytes { data: &zeros, ..b });
            let (a_zero, b_zero) = match each {
                true => (Zero::Each(a_zeros), Zero::Each(b_zeros)),
                false => (Zero::All(3), Zero::All(-2)),
            };
            let want = sums(size, a, b, |i| a_zero.get(i), |j| b_zero.get(j));
            for gemm in gemms(size) {
                let layout = gemm.packed_b();
                for (from, is_turned) in [(b, false), (Bytes { data: &turned, ..b }, true)] {
                    let mut packed = vec![7; layout.size()];
                    layout.pack(from, is_turned, 0, &mut packed);
                    let mut scratch = vec![9; gemm.scratch_len()];
                    let step = n + 3;
                    let mut c = vec![-1; m * step];
                    let right = Right { packed: &packed, signed: b_signed, zero: b_zero };
                    for threads in [&Serial as &dyn Parallel, &Shreds] {
                        let target = Target::I32(&mut c);
                        gemm.run(Left { a, zero: a_zero }, right, &Finish::Sums, target, step, &mut scratch, threads)
                            .unwrap();
                        let got: Vec<i32> = c.chunks(step).flat_map(|row| &row[..n]).copied().collect();
                        assert_eq!(got, want, "{size:?} {gemm:?}");
                        assert!(c.chunks(step).all(|row| row[n..] == [-1; 3]), "between the rows");
                    }
                }
            }
        }
    }
}

#[test]
fn floats_and_bytes_follow() {
    let size = [5, 70, 9];
    let [m, n, k] = size;
    let (a, b) = (values(m * k, 4), values(k * n, 5));
    let (a, b) = (Bytes { data: &a, signed: false }, Bytes { data: &b, signed: true });
    let exact = sums(size, a, b, |_| 100, |_| 0);
    let (rows, columns): (Vec<f32>, Vec<f32>) =
        ((0..m).map(|i| 0.5 + i as f32).collect(), (0..n).map(|j| 0.001 * (j + 1) as f32).collect());
    let (floats, ints): (Vec<f32>, Vec<i32>) =
        ((0..n).map(|j| j as f32).collect(), (0..m).map(|i| 50 * i as i32).collect());
    for gemm in gemms(size) {
        let layout = gemm.packed_b();
        let mut packed = vec![0; layout.size()];
        layout.pack(b, false, 0, &mut packed);
        let mut scratch = vec![0; gemm.scratch_len()];
        let (left, right) =
            (Left { a, zero: Zero::All(100) }, Right { packed: &packed, signed: true, zero: Zero::All(0) });
        for (row, column) in [(Factor::All(0.25), Factor::All(0.01)), (Factor::Each(&rows), Factor::Each(&columns))] {
            let factor = |at: usize| row.get(at / n) * column.get(at % n);
            for (bias, add) in [(None, false), (Some(&floats[..]), true)] {
                let mut c: Vec<f32> = (0..m * n).map(|k| k as f32).collect();
                let finish = Finish::Floats { row, column, bias, add };
                gemm.run(left, right, &finish, Target::F32(&mut c), n, &mut scratch, &Serial).unwrap();
                for (at, got) in c.iter().enumerate() {
                    let want = exact[at] as f32 * factor(at) + bias.map_or(0.0, |b| b[at % n]);
                    assert_eq!(*got, want + if add { at as f32 } else { 0.0 }, "{gemm:?}");
                }
            }
            for (bias, zero, signed) in [(None, 7, false), (Some(&ints[..]), -3, true)] {
                let mut c = vec![0u8; m * n];
                let finish = Finish::Bytes { row, column, bias, zero, signed };
                gemm.run(left, right, &finish, Target::U8(&mut c), n, &mut scratch, &Serial).unwrap();
                for (at, got) in c.iter().enumerate() {
                    let value = (exact[at] + bias.map_or(0, |b| b[at / n])) as f32 * factor(at);
                    let (low, high) = if signed { (-128.0, 127.0) } else { (0.0, 255.0) };
                    let want = (value.round_ties_even() + zero as f32).clamp(low, high) as i32;
                    assert_eq!(Bytes { data: &[*got], signed }.get(0), want, "{value} {gemm:?}");
                }
            }
        }
    }
}
