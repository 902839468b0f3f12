//! Sizes of this machine's data caches, which block sizes are derived from.

use std::sync::OnceLock;

/// Bytes of data cache that one core can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// First level.
    pub l1: usize,
    /// Second level.
    pub l2: usize,
    /// Third level, shared by cores; the second's size where there is none.
    pub l3: usize,
}

/// What small cores of the last decade have; used for what cannot be read.
const USUAL: Caches = Caches { l1: 32 << 10, l2: 512 << 10, l3: 4 << 20 };

/// The sizes, read once per process: from the CPU on x86-64, from the system's
/// files on other Linux machines, else usual ones.
#[must_use]
pub fn caches() -> Caches {
    static CACHES: OnceLock<Caches> = OnceLock::new();
    *CACHES.get_or_init(|| from_levels(levels()))
}

/// Fills gaps and keeps each level at least as large as the one below.
fn from_levels(levels: [usize; 3]) -> Caches {
    let or = |size: usize, usual: usize| if size == 0 { usual } else { size };
    let l1 = or(levels[0], USUAL.l1);
    let l2 = or(levels[1], USUAL.l2).max(l1);
    Caches { l1, l2, l3: or(levels[2], USUAL.l3).max(l2) }
}

/// Leaves 4 (Intel) and 0x8000_001D (AMD) list one cache a subleaf, in one form.
#[cfg(target_arch = "x86_64")]
fn levels() -> [usize; 3] {
    use core::arch::x86_64::__cpuid_count;

    let mut sizes = [0; 3];
    for leaf in [4_u32, 0x8000_001D] {
        if __cpuid_count(leaf & 0x8000_0000, 0).eax < leaf {
            continue;
        }
        for sub in 0..16 {
            let found = __cpuid_count(leaf, sub);
            let (kind, level) = (found.eax & 0x1F, (found.eax >> 5 & 7) as usize);
            if kind == 0 {
                break;
            }
            let field = |value: u32, at: u32, mask: u32| (value >> at & mask) as usize + 1;
            let size = field(found.ebx, 22, 0x3FF)
                .saturating_mul(field(found.ebx, 12, 0x3FF))
                .saturating_mul(field(found.ebx, 0, 0xFFF))
                .saturating_mul((found.ecx as usize).saturating_add(1));
            const INSTRUCTIONS: u32 = 2;
            if kind != INSTRUCTIONS && (1..=3).contains(&level) {
                sizes[level - 1] = size;
            }
        }
        if sizes[0] != 0 {
            break;
        }
    }
    sizes
}

#[cfg(not(target_arch = "x86_64"))]
fn levels() -> [usize; 3] {
    let mut sizes = [0; 3];
    for index in 0..8 {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            std::fs::read_to_string(path).unwrap_or_default()
        };
        let level: usize = read("level").trim().parse().unwrap_or(0);
        let size: usize = read("size").trim().trim_end_matches('K').parse().unwrap_or(0);
        if (1..=3).contains(&level) && read("type").trim() != "Instruction" {
            sizes[level - 1] = size.saturating_mul(1024);
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_and_levels_rise() {
        let cases = [
            ("nothing known", [0, 0, 0], USUAL),
            ("no third level", [64 << 10, 8 << 20, 0], Caches { l1: 64 << 10, l2: 8 << 20, l3: 8 << 20 }),
            ("all known", [1, 2, 3], Caches { l1: 1, l2: 2, l3: 3 }),
        ];
        for (name, levels, want) in cases {
            assert_eq!(from_levels(levels), want, "{name}");
        }
        let found = caches();
        assert!(found.l1 >= 4 << 10 && found.l1 <= found.l2 && found.l2 <= found.l3, "{found:?}");
    }
}
