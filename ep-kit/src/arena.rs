//! Where the values of a part lie in its arena: offsets by size and lifetime, kept while every size fits.

use crate::error::Fault;
use crate::slab::{ALIGN, aligned};

/// A value (or several that share memory) that needs memory from step `def` to step `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub def: u32,
    pub last: u32,
}

/// Offsets, and the size that each value may grow to without a new plan.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ArenaPlan {
    pub offsets: Box<[usize]>,
    sizes: Box<[usize]>,
    /// Offset of the scratch memory, and its size.
    pub scratch: (usize, usize),
    pub total: usize,
}

impl ArenaPlan {
    /// Whether all sizes fit their places.
    pub fn fits(&self, sizes: impl ExactSizeIterator<Item = usize>, scratch: usize) -> bool {
        scratch <= self.scratch.1
            && self.sizes.len() == sizes.len()
            && sizes.zip(&self.sizes).all(|(need, &have)| need <= have)
    }

    /// A first plan: exact.
    pub fn new(lives: &[Life], sizes: &[usize], scratch: usize) -> Result<ArenaPlan, Fault> {
        let sizes: Box<[usize]> = sizes.into();
        let (offsets, end) = place(lives, &sizes).ok_or_else(too_large)?;
        let total = aligned(scratch).and_then(|s| s.checked_add(end)).ok_or_else(too_large)?;
        Ok(ArenaPlan { offsets, sizes, scratch: (end, scratch), total })
    }

    /// A plan for sizes that no longer fit: each with room for a quarter more, and never smaller than before, so that a
    /// growing sequence soon stops planning.
    pub fn grow(&self, lives: &[Life], sizes: &[usize], scratch: usize) -> Result<ArenaPlan, Fault> {
        let more = |need: usize, have: usize| if need <= have { have } else { need.saturating_add(need / 4) };
        let old = |k: usize| self.sizes.get(k).copied().unwrap_or(0);
        let sizes: Vec<_> = sizes.iter().enumerate().map(|(k, &need)| more(need, old(k))).collect();
        Self::new(lives, &sizes, more(scratch, self.scratch.1))
    }
}

fn too_large() -> Fault {
    Fault::Memory("the intermediate values are larger than the address space".into())
}

/// Greedy by falling size: each value at the lowest offset where nothing that lives at the same time is. The answer is
/// the offsets and the end.
fn place(lives: &[Life], sizes: &[usize]) -> Option<(Box<[usize]>, usize)> {
    let mut order: Vec<usize> = (0..sizes.len()).filter(|&k| sizes[k] > 0).collect();
    order.sort_by_key(|&k| (core::cmp::Reverse(sizes[k]), lives[k].def));
    let mut offsets = vec![0; sizes.len()].into_boxed_slice();
    // Placed values by rising offset.
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    let mut end = 0;
    for &k in &order {
        let mut at = 0usize;
        for &other in &placed {
            if lives[other].def > lives[k].last || lives[k].def > lives[other].last {
                continue;
            }
            if at.checked_add(sizes[k])? <= offsets[other] {
                break;
            }
            at = at.max(aligned(offsets[other].checked_add(sizes[other])?)?);
        }
        offsets[k] = at;
        end = end.max(at.checked_add(sizes[k])?);
        let rank = placed.partition_point(|&other| offsets[other] <= at);
        placed.insert(rank, k);
    }
    Some((offsets, end.checked_next_multiple_of(ALIGN)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(def: u32, last: u32) -> Life {
        Life { def, last }
    }

    #[test]
    fn chain_reuses_memory() {
        let lives = [life(0, 1), life(1, 2), life(2, 3), life(3, 4)];
        let plan = ArenaPlan::new(&lives, &[100, 100, 100, 100], 10).unwrap();
        assert_eq!(plan.total, 128 * 2 + 64);
        assert_eq!(plan.scratch, (256, 10));
    }

    /// Values that live at the same time never overlap, whatever the sizes and lifetimes.
    #[test]
    fn nothing_overlaps() {
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..200 {
            let n = 1 + next(30) as usize;
            let lives: Vec<_> = (0..n)
                .map(|_| {
                    let def = next(40) as u32;
                    life(def, def + next(10) as u32)
                })
                .collect();
            let sizes: Vec<_> = (0..n).map(|_| next(300) as usize).collect();
            let plan = ArenaPlan::new(&lives, &sizes, 7).unwrap();
            for a in 0..n {
                assert!(plan.offsets[a].is_multiple_of(ALIGN) && plan.offsets[a] + sizes[a] <= plan.scratch.0);
                for b in 0..a {
                    let together = lives[a].def <= lives[b].last && lives[b].def <= lives[a].last;
                    let apart =
                        plan.offsets[a] + sizes[a] <= plan.offsets[b] || plan.offsets[b] + sizes[b] <= plan.offsets[a];
                    assert!(!together || apart || sizes[a] == 0 || sizes[b] == 0, "round {round}: {a} and {b}");
                }
            }
        }
    }

    #[test]
    fn growing_keeps_old_room() {
        let lives = [life(0, 1), life(1, 2)];
        let plan = ArenaPlan::new(&lives, &[100, 50], 0).unwrap();
        let fits = |plan: &ArenaPlan, sizes: [usize; 2], scratch| plan.fits(sizes.into_iter(), scratch);
        assert!(fits(&plan, [100, 50], 0) && fits(&plan, [1, 0], 0));
        assert!(!fits(&plan, [101, 1], 0) && !fits(&plan, [1, 1], 1));
        let grown = plan.grow(&lives, &[200, 10], 0).unwrap();
        assert!(fits(&grown, [250, 50], 0) && !fits(&grown, [251, 50], 0));
    }

    #[test]
    fn overflow_is_a_fault() {
        assert!(ArenaPlan::new(&[life(0, 1), life(0, 1)], &[usize::MAX - 64, usize::MAX - 64], 0).is_err());
    }
}
