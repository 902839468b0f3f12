//! Which instruction sets this machine has, and the jump into a kernel's copy
//! for one of them.
//!
//! [`isa`] is what the plugin runs on. Kernels take an [`Isa`] argument
//! instead of asking, so that one process can run and compare all of them.

use std::sync::OnceLock;

use super::{Scalar, Simd};

/// The environment variable that lowers what [`isa`] answers.
pub const ISA_VARIABLE: &str = "ORTOLAN_CPU_ISA";

/// An instruction set that this machine has: a value exists only for those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa(Level);

/// From the least to the most able.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Level {
    Scalar,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Every name that [`ISA_VARIABLE`] may hold, on any machine.
const NAMES: [&str; 4] = ["scalar", "neon", "avx2", "avx512"];

/// Why [`ISA_VARIABLE`] cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// The name means nothing.
    #[error("{ISA_VARIABLE}={name} is not an instruction set; use one of scalar, neon, avx2, avx512, or unset it")]
    Unknown {
        /// What the variable held.
        name: String,
    },
    /// The name is known and this machine lacks it.
    #[error("{ISA_VARIABLE}={name}, but this machine has only {have}; use one of these, or unset it")]
    Missing {
        /// What the variable held.
        name: String,
        /// What would work, from least to most able.
        have: String,
    },
}

/// The instruction set to run on: the most able one, unless [`ISA_VARIABLE`]
/// names a lesser one. Read once per process.
///
/// # Errors
///
/// The variable's text is not a name, or names what this machine lacks.
pub fn isa() -> Result<Isa, IsaError> {
    static CHOICE: OnceLock<Result<Isa, IsaError>> = OnceLock::new();
    CHOICE
        .get_or_init(|| match std::env::var_os(ISA_VARIABLE) {
            Some(name) if !name.is_empty() => Isa::from_name(&name.to_string_lossy()),
            _ => Ok(Isa::best()),
        })
        .clone()
}

impl Isa {
    /// The most able instruction set of this machine.
    #[must_use]
    pub fn best() -> Isa {
        Isa::available().last().unwrap_or(Isa::scalar())
    }

    /// Plain Rust, which every machine has.
    #[must_use]
    pub const fn scalar() -> Isa {
        Isa(Level::Scalar)
    }

    /// All that this machine has, from least to most able.
    pub fn available() -> impl Iterator<Item = Isa> {
        LEVELS.iter().filter(|level| level.is_here()).map(|&level| Isa(level))
    }

    /// The instruction set of that name.
    ///
    /// # Errors
    ///
    /// As for [`isa`].
    pub fn from_name(name: &str) -> Result<Isa, IsaError> {
        if let Some(found) = Isa::available().find(|isa| isa.name() == name) {
            return Ok(found);
        }
        let name = name.to_owned();
        if !NAMES.contains(&name.as_str()) {
            return Err(IsaError::Unknown { name });
        }
        let have: Vec<_> = Isa::available().map(Isa::name).collect();
        Err(IsaError::Missing { name, have: have.join(", ") })
    }

    /// As in [`ISA_VARIABLE`] and at the end of kernels' names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Level::Scalar => "scalar",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }

    /// How many f32 a vector holds.
    #[must_use]
    pub const fn lanes(self) -> usize {
        match self.0 {
            Level::Scalar => Scalar::LANES,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => super::Neon::LANES,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => super::Avx2::LANES,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => super::Avx512::LANES,
        }
    }

    /// Runs the copy of `kernel` that is compiled for this instruction set.
    #[inline]
    pub fn dispatch<K: Kernel>(self, kernel: K) -> K::Out {
        match self.0 {
            Level::Scalar => kernel.run(Scalar),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: an `Isa` of this level exists only where the CPU has it.
            Level::Neon => unsafe { super::neon::enter(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this level exists only where the CPU has it.
            Level::Avx2 => unsafe { super::avx2::enter(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this level exists only where the CPU has it.
            Level::Avx512 => unsafe { super::avx512::enter(kernel) },
        }
    }
}

/// A computation that is written once for all instruction sets, with what it
/// works on as fields.
///
/// `run`, and every generic function that it calls with the token, needs
/// `#[inline(always)]`: the instructions are enabled for the function that the
/// dispatcher enters, and for what is inlined into it. Without it the result is
/// right and slow.
pub trait Kernel {
    /// What it answers.
    type Out;

    /// The computation. Must be `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Out;
}

/// All levels of this architecture, from least to most able.
const LEVELS: &[Level] = &[
    Level::Scalar,
    #[cfg(target_arch = "aarch64")]
    Level::Neon,
    #[cfg(target_arch = "x86_64")]
    Level::Avx2,
    #[cfg(target_arch = "x86_64")]
    Level::Avx512,
];

impl Level {
    fn is_here(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_or_explained() {
        for isa in Isa::available() {
            assert_eq!(Isa::from_name(isa.name()), Ok(isa));
            assert!(NAMES.contains(&isa.name()));
        }
        let cases = [
            ("sse9", "is not an instruction set"),
            (if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" }, "has only scalar"),
        ];
        for (name, part) in cases {
            let text = Isa::from_name(name).unwrap_err().to_string();
            assert!(text.contains(part) && text.contains(name), "{text}");
        }
    }

    #[test]
    fn best_is_the_most_able() {
        assert_eq!(Isa::available().next(), Some(Isa::scalar()));
        assert!(Isa::available().all(|isa| isa <= Isa::best()));
    }

    #[test]
    fn the_token_matches_the_isa() {
        struct Lanes;
        impl Kernel for Lanes {
            type Out = usize;
            #[inline(always)]
            fn run<S: Simd>(self, _: S) -> usize {
                S::LANES
            }
        }
        for isa in Isa::available() {
            assert_eq!(isa.dispatch(Lanes), isa.lanes());
        }
    }
}
