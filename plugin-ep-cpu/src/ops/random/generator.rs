//! Random numbers. [`Stream`] gives element k of a stream without the elements before it, so that threads change nothing;
//! [`Twister`] is the generator with which the standard's own code makes Dropout's masks.

use core::hash::{BuildHasher, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::RandomState;

/// Where a node's streams begin: the same in every run if the node has a seed, else another one each time.
#[derive(Debug)]
pub(super) enum Source {
    Seeded(u64),
    Fresh(AtomicU64),
}

impl Source {
    pub fn new(seed: Option<u64>) -> Source {
        match seed {
            Some(seed) => Source::Seeded(seed),
            None => Source::Fresh(AtomicU64::new(RandomState::new().build_hasher().finish())),
        }
    }

    /// The stream of a run.
    pub fn stream(&self) -> Stream {
        match self {
            Source::Seeded(seed) => Stream(mix(*seed)),
            Source::Fresh(next) => Stream(mix(next.fetch_add(STEP, Ordering::Relaxed))),
        }
    }
}

/// 2^64 over the golden ratio: multiples of it spread evenly.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64: G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number
/// generators", 2014.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Numbers by position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream(u64);

impl Stream {
    fn bits(self, at: u64) -> u64 {
        mix(self.0.wrapping_add(at.wrapping_add(1).wrapping_mul(STEP)))
    }

    /// At least 0 and below 1.
    pub fn uniform(self, at: u64) -> f64 {
        (self.bits(at) >> 11) as f64 / (1u64 << 53) as f64 // both have 53 bits
    }

    /// Of mean 0 and deviation 1, by G. E. P. Box and M. E. Muller: neighbours share two uniform numbers.
    pub fn normal(self, at: u64) -> f64 {
        let pair = at & !1;
        // Above 0, whose logarithm is infinite.
        let radius = (-2.0 * (1.0 - self.uniform(pair)).ln()).sqrt();
        let angle = core::f64::consts::TAU * self.uniform(pair + 1);
        radius * if at == pair { angle.cos() } else { angle.sin() }
    }
}

/// Words of a [`Twister`]'s state.
pub(super) const WORDS: usize = 624;

/// M. Matsumoto, T. Nishimura: "Mersenne twister", 1998. The state is the caller's memory.
#[derive(Debug)]
pub(super) struct Twister<'a> {
    words: &'a mut [u32; WORDS],
    at: usize,
}

impl<'a> Twister<'a> {
    pub fn new(seed: u32, words: &'a mut [u32; WORDS]) -> Self {
        words[0] = seed;
        for k in 1..WORDS {
            let before = words[k - 1];
            words[k] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(k as u32); // below 624
        }
        Twister { words, at: WORDS }
    }

    fn turn(&mut self) {
        for k in 0..WORDS {
            let both = self.words[k] & 0x8000_0000 | self.words[(k + 1) % WORDS] & 0x7fff_ffff;
            let odd = if both & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[k] = self.words[(k + 397) % WORDS] ^ (both >> 1) ^ odd;
        }
        self.at = 0;
    }

    fn word(&mut self) -> u32 {
        if self.at == WORDS {
            self.turn();
        }
        let mut x = self.words[self.at];
        self.at += 1;
        x ^= x >> 11;
        x ^= x << 7 & 0x9d2c_5680;
        x ^= x << 15 & 0xefc6_0000;
        x ^ x >> 18
    }

    /// At least 0 and below 1, of 53 bits.
    pub fn uniform(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twister_gives_the_known_numbers() {
        let mut words = [0; WORDS];
        let mut twister = Twister::new(5489, &mut words);
        let first: Vec<u32> = (0..3).map(|_| twister.word()).collect();
        assert_eq!(first, [3_499_211_612, 581_869_302, 3_890_346_734]);
        // The tenth-thousandth word of this seed, which the C++ standard states.
        let last = (3..10_000).map(|_| twister.word()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn streams_have_the_moments_that_they_should() {
        let stream = Source::new(Some(7)).stream();
        let n = 100_000;
        let moments = |f: &dyn Fn(u64) -> f64| {
            let mean = (0..n).map(f).sum::<f64>() / n as f64;
            (mean, (0..n).map(|k| (f(k) - mean).powi(2)).sum::<f64>() / n as f64)
        };
        let (mean, variance) = moments(&|k| stream.uniform(k));
        assert!((mean - 0.5).abs() < 5e-3 && (variance - 1.0 / 12.0).abs() < 2e-3, "{mean} {variance}");
        let (mean, variance) = moments(&|k| stream.normal(k));
        assert!(mean.abs() < 1e-2 && (variance - 1.0).abs() < 2e-2, "{mean} {variance}");
        let product = (0..n).map(|k| stream.normal(k) * stream.normal(k + 1)).sum::<f64>() / n as f64;
        assert!(product.abs() < 1e-2, "neighbours hang together: {product}");
    }

    #[test]
    fn only_seeds_repeat() {
        let first = |source: &Source| source.stream().uniform(0);
        let (seeded, fresh) = (Source::new(Some(3)), Source::new(None));
        assert_eq!(first(&seeded), first(&seeded));
        assert_ne!(first(&fresh), first(&fresh));
        assert_ne!(first(&seeded), first(&Source::new(Some(4))));
    }
}
