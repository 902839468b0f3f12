//! Elementary functions on vectors.
//!
//! Errors are stated in units in the last place of the result (ulp), checked
//! by the tests on every instruction set, and hold for `scalar` too, which
//! rounds twice where the others fuse. Coefficients are minimax fits of the
//! remainder that each comment names.

use super::Simd;

/// Elementary functions; every [`Simd`] token has them. NaN gives NaN.
pub trait Math: Simd {
    /// e to the `x`, within 2 ulp; subnormal results within one subnormal step;
    /// 0 below -104, infinite above 88.73.
    #[inline(always)]
    fn exp(self, x: Self::F32) -> Self::F32 {
        let x = self.clip(x, self.splat(-104.0), self.splat(89.0));
        let n = self.round_near(self.mul(x, self.splat(core::f32::consts::LOG2_E)));
        let r = self.fnma(n, self.splat(LN2_HIGH), x);
        let r = self.fnma(n, self.splat(LN2_LOW), r);
        // (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2
        let p = self.poly(r, [0.001_381_449_6, 0.008_368_78, 0.041_668_394, 0.166_665_2, 0.499_999_93]);
        let e = self.add(self.fma(self.mul(r, r), p, r), self.splat(1.0));
        // 2^n in two factors, so that results beyond the normal range round once.
        let n = self.to_i32(n);
        let half = self.shr_i32(n, 1);
        self.mul(self.mul(e, self.pow2(half)), self.pow2(self.sub_i32(n, half)))
    }

    /// Natural logarithm, within 2 ulp; -infinite for 0, NaN below.
    #[inline(always)]
    fn ln(self, x: Self::F32) -> Self::F32 {
        // Subnormal numbers are brought into the normal range first.
        let tiny = self.lt(x, self.splat(f32::MIN_POSITIVE));
        let scaled = self.select(tiny, self.mul(x, self.splat(8_388_608.0)), x);
        let shift = self.select(tiny, self.splat(-23.0), self.zero());
        // x = 2^n * m with m in [sqrt(1/2), sqrt(2))
        const ROOT_HALF: i32 = 0x3F35_04F3;
        let from_root = self.sub_i32(self.cast_i32(scaled), self.splat_i32(ROOT_HALF));
        let n = self.shr_i32(from_root, 23);
        let mantissa = self.and_i32(from_root, self.splat_i32(0x007F_FFFF));
        let m = self.cast_f32(self.add_i32(mantissa, self.splat_i32(ROOT_HALF)));
        let n = self.add(self.to_f32(n), shift);
        let f = self.sub(m, self.splat(1.0));
        // (ln(1 + f) - f + f^2 / 2) / f^3
        let p = self.poly(
            f,
            [
                0.069_155_86,
                -0.117_898_39,
                0.118_728_95,
                -0.123_843_39,
                0.142_186_68,
                -0.166_692_52,
                0.200_022_26,
                -0.249_999_87,
                0.333_333_1,
            ],
        );
        let f2 = self.mul(f, f);
        let tail = self.fma(n, self.splat(LN2_LOW), self.mul(self.mul(f2, f), p));
        let tail = self.fnma(self.splat(0.5), f2, tail);
        let y = self.fma(n, self.splat(LN2_HIGH), self.add(f, tail));
        let y = self.select(self.eq(x, self.splat(f32::INFINITY)), x, y);
        let y = self.select(self.eq(x, self.zero()), self.splat(f32::NEG_INFINITY), y);
        self.select(self.ge(x, self.zero()), y, self.splat(f32::NAN))
    }

    /// Hyperbolic tangent, within 3 ulp.
    #[inline(always)]
    fn tanh(self, x: Self::F32) -> Self::F32 {
        let size = self.abs(x);
        // Near 0 the other form cancels. (tanh x - x) / x^3 over x^2
        let x2 = self.mul(x, x);
        let p = self.poly(x2, [-0.005_704_988, 0.020_639_086, -0.053_739_715, 0.133_314_42, -0.333_332_8]);
        let near = self.fma(self.mul(x2, x), p, x);
        // Beyond 9.1 the result is 1; the limit keeps exp finite.
        let e = self.exp(self.min(self.splat(20.0), self.add(size, size)));
        let one = self.splat(1.0);
        let far = self.sub(one, self.div(self.splat(2.0), self.add(e, one)));
        let far = self.copysign(far, x);
        self.select(self.lt(size, self.splat(0.625)), near, far)
    }

    /// `1 / (1 + e^-x)`, within 4 ulp.
    #[inline(always)]
    fn sigmoid(self, x: Self::F32) -> Self::F32 {
        // e^-|x| never overflows, so both tails keep their accuracy.
        let one = self.splat(1.0);
        let e = self.exp(self.neg(self.abs(x)));
        let top = self.select(self.lt(x, self.zero()), e, one);
        self.div(top, self.add(one, e))
    }

    /// Error function, within 3 ulp.
    #[inline(always)]
    fn erf(self, x: Self::F32) -> Self::F32 {
        let size = self.abs(x);
        // erf(x) / x - 1 over x^2 on |x| <= 1
        let near = self.poly(
            self.mul(x, x),
            [
                7.853_866e-5,
                -0.000_801_019_4,
                0.005_188_327_6,
                -0.026_853_812,
                0.112_835_85,
                -0.376_126_26,
                0.128_379_17,
            ],
        );
        let near = self.fma(x, near, x);
        // -ln(1 - erf x) on 1 <= x <= 4; beyond, the result is 1.
        let a = self.min(self.splat(4.0), size);
        let far = self.poly(a, ERF_FAR);
        let far = self.sub(self.splat(1.0), self.exp(self.neg(far)));
        let far = self.copysign(far, x);
        // NaN compares false with everything and has to take the near form.
        self.select(self.gt(size, self.splat(1.0)), far, near)
    }

    /// The polynomial whose coefficients are given from the highest power down.
    #[inline(always)]
    fn poly<const N: usize>(self, x: Self::F32, coefficients: [f32; N]) -> Self::F32 {
        let mut sum = self.splat(coefficients[0]);
        for &c in &coefficients[1..] {
            sum = self.fma(sum, x, self.splat(c));
        }
        sum
    }

    /// To the nearest integer for `|x| < 2^22`, by additions alone.
    #[inline(always)]
    fn round_near(self, x: Self::F32) -> Self::F32 {
        let magic = self.splat(12_582_912.0);
        self.sub(self.add(x, magic), magic)
    }

    /// 2 to the `n` for -126 <= n <= 127.
    #[inline(always)]
    fn pow2(self, n: Self::I32) -> Self::F32 {
        self.cast_f32(self.shl_i32(self.add_i32(n, self.splat_i32(127)), 23))
    }
}

impl<S: Simd> Math for S {}

/// ln 2 in two parts; the first has so few bits that its products are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

const ERF_FAR: [f32; 7] =
    [-0.000_186_374_34, 0.002_947_609_8, -0.021_837_866, 0.103_106_335, 0.638_145_3, 1.127_088_9, 0.000_341_598_32];

#[cfg(test)]
mod tests {
    use super::super::ops::{Erf, Exp, Ln, Sigmoid, Tanh};
    use super::super::{Isa, UnaryOp, map_unary};
    /// The distance in steps of f32 between the result and the exact value.
    fn ulps(got: f32, want: f64) -> f64 {
        let near = want as f32;
        if got == near || (got.is_nan() && want.is_nan()) {
            return 0.0;
        }
        let step = f64::from(near.abs().next_up()) - f64::from(near.abs());
        (f64::from(got) - want).abs() / step
    }

    /// All magnitudes, both signs, and the special values.
    fn inputs() -> Vec<f32> {
        let mut x: Vec<f32> = (0..0x7F80_0000_u32)
            .step_by(9_973)
            .flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)])
            .collect();
        x.extend((-12_000..12_000).map(|i| i as f32 * 0.01));
        x.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0, 1.0, -1.0]);
        x
    }

    fn worst<O: UnaryOp>(isa: Isa, op: &O, exact: fn(f64) -> f64) -> (f64, f32) {
        let x = inputs();
        let mut y = vec![0.0; x.len()];
        map_unary(isa, op, &x, &mut y);
        let errors = x.iter().zip(&y).map(|(&x, &y)| (ulps(y, exact(f64::from(x))), x));
        errors.fold((0.0, 0.0), |worst, next| if next.0 > worst.0 { next } else { worst })
    }

    #[test]
    fn errors_stay_within_what_the_docs_say() {
        for isa in Isa::available() {
            let cases = [
                ("exp", worst(isa, &Exp, f64::exp), 2.0),
                ("ln", worst(isa, &Ln, f64::ln), 2.0),
                ("tanh", worst(isa, &Tanh, f64::tanh), 3.0),
                ("sigmoid", worst(isa, &Sigmoid, |x| 1.0 / (1.0 + (-x).exp())), 4.0),
                ("erf", worst(isa, &Erf, erf), 3.0),
            ];
            for (name, (error, at), bound) in cases {
                assert!(error <= bound, "{name}_{}: {error} ulp at {at}", isa.name());
            }
        }
    }

    /// By its series where that converges fast, else by the continued fraction.
    fn erf(x: f64) -> f64 {
        if x.is_nan() || x.abs() > 6.0 {
            return if x.is_nan() { x } else { x.signum() };
        }
        let two_over_root_pi = 2.0 / std::f64::consts::PI.sqrt();
        if x.abs() < 2.5 {
            let mut term = x;
            let mut sum = x;
            for n in 1..80 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return two_over_root_pi * sum;
        }
        let fraction = (1..60).rev().fold(0.0, |f, n| f64::from(n) / 2.0 / (x.abs() + f));
        let upper = (-x * x).exp() / (x.abs() + fraction) / std::f64::consts::PI.sqrt();
        (1.0 - upper).copysign(x)
    }
}
