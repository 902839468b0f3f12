//! Topological order of numbered things, closest to the order that they have.

use std::collections::BTreeSet;

/// An order in which everything comes after what it needs, by index; `None` when the present order is one.
/// The error is what stands in a ring or behind one.
pub(crate) fn order(needs: &[Vec<usize>]) -> Result<Option<Vec<usize>>, Vec<usize>> {
    if needs.iter().enumerate().all(|(i, before)| before.iter().all(|b| *b < i)) {
        return Ok(None);
    }
    let mut open: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    for (i, before) in needs.iter().enumerate() {
        before.iter().for_each(|b| readers[*b].push(i));
    }
    let mut ready: BTreeSet<usize> = (0..needs.len()).filter(|i| open[*i] == 0).collect();
    let mut order = Vec::with_capacity(needs.len());
    while let Some(i) = ready.pop_first() {
        order.push(i);
        for &r in &readers[i] {
            open[r] -= 1;
            if open[r] == 0 {
                ready.insert(r);
            }
        }
    }
    if order.len() == needs.len() {
        return Ok(Some(order));
    }
    Err((0..needs.len()).filter(|i| open[*i] > 0).collect())
}
