//! Whether a part is worth its place: what it costs there with all that goes in and out, against the next EP.

use std::collections::HashSet;

use ortolan_graph::ir::{NodeId, Use, ValueId};

use super::{Choice, Cx, PartSpec, Place, cost};
use crate::abi::Rejection;
use crate::error::codes;

/// Estimated time of a run, in ns; NaN where an EP states no cost.
pub(super) fn total(choice: &Choice<'_>, places: &[Place], parts: &[PartSpec]) -> f64 {
    let nodes: f64 = parts.iter().flat_map(|p| p.placed.iter()).map(|&n| node_cost(choice, places, n)).sum();
    let borders: f64 = parts.iter().filter(|p| !p.once).map(|p| border(choice.cx, places, p, None)).sum();
    // Each transfer was counted at both ends.
    nodes + borders / 2.0 + cost::PART_NS * parts.len() as f64
}

fn node_cost(choice: &Choice<'_>, places: &[Place], node: NodeId) -> f64 {
    match places[node.index()] {
        Place::Ep(ep) => choice.offers[ep].cost(node).unwrap_or(f64::NAN),
        _ => 0.0,
    }
}

/// The first part that would cost less elsewhere by more than the minimum gain, with the reason.
pub(super) fn loser(choice: &Choice<'_>, places: &[Place], parts: &[PartSpec]) -> Option<(usize, Rejection)> {
    let movable = |p: &PartSpec| !p.once && !p.placed.iter().any(|&n| choice.bans.is_settled(n));
    parts.iter().enumerate().filter(|(_, p)| movable(p)).find_map(|(at, part)| {
        let others = (0..choice.offers.len()).filter(|&ep| ep != part.ep);
        let mut others = others.filter(|&ep| choice.could_move(&part.placed, ep, places));
        let other = others.find_map(|ep| {
            let cost: Option<f64> = part.placed.iter().map(|&n| choice.offers[ep].cost(n)).sum();
            cost.filter(|c| !c.is_nan()).map(|c| (ep, c))
        });
        let (other, there) = other?;
        let here: f64 = part.placed.iter().map(|&n| node_cost(choice, places, n)).sum();
        let here = here + border(choice.cx, places, part, None) + cost::PART_NS;
        let there = there + border(choice.cx, places, part, Some(other));
        if here.is_nan() || here + choice.cx.min_gain_ns <= there + cost::PART_NS {
            return None;
        }
        let text = format!(
            "{:.1} µs with its transfers, against {:.1} µs on '{}'",
            here / 1000.0,
            there / 1000.0,
            choice.cx.eps[other].handle.name()
        );
        Some((at, Rejection::host(codes::DOES_NOT_PAY, text)))
    })
}

/// What goes in and out costs, with the part on its own EP or on another.
fn border(cx: &Cx<'_>, places: &[Place], part: &PartSpec, moved: Option<usize>) -> f64 {
    let ep = moved.unwrap_or(part.ep);
    let link = cx.eps[ep].link;
    let outside = |place: Place| match place {
        Place::Ep(other) => (Some(other), cx.eps[other].link),
        _ => (None, None),
    };
    let cross = |value: ValueId, place: Place| {
        let (other, other_link) = outside(place);
        if other == Some(ep) { 0.0 } else { cost::transfer(cx.sizes[value.index()], other_link, link) }
    };
    let ids = |list: &[u32]| list.iter().filter_map(|&v| ValueId::from_index(v)).collect::<Vec<_>>();
    let place = |node: NodeId| places[node.index()];
    let enter = ids(&part.inputs)
        .into_iter()
        .map(|v| cross(v, cx.graph.value(v).producer.map_or(Place::None, |(n, _)| place(n))));
    let mine: HashSet<NodeId> = part.placed.iter().copied().collect();
    let leave = ids(&part.outputs).into_iter().map(|v| {
        // Once per EP that reads it.
        let mut readers: Vec<(Option<usize>, Place)> = Vec::new();
        for reader in cx.uses.of(v) {
            let at = match reader {
                Use::Input(n, _) if mine.contains(n) => continue,
                Use::Input(n, _) => place(*n),
                Use::Output(..) => Place::None,
            };
            if !readers.iter().any(|(ep, _)| *ep == outside(at).0) {
                readers.push((outside(at).0, at));
            }
        }
        readers.into_iter().map(|(_, at)| cross(v, at)).sum::<f64>()
    });
    enter.sum::<f64>() + leave.sum::<f64>()
}
