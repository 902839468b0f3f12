//! Estimates: sizes of values for the hinted symbols, and what handing them from EP to EP costs.

use ortolan_ep_abi::raw;
use ortolan_graph::Graph;
use ortolan_graph::ir::{DType, Dims, SymbolKind, Type, ValueId};

use crate::abi::DeviceInfo;

/// What a dim is taken to be when nobody says.
const GUESS: i64 = 32;
/// One more part: the host's steps around it.
pub(super) const PART_NS: f64 = 60.0;
/// What a transfer between the host's memory and a device's own costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Link {
    /// To begin with.
    ns: f64,
    ns_per_byte: f64,
}

impl Link {
    /// Of a device that does not state it.
    const GUESS: Link = Link { ns: 10_000.0, ns_per_byte: 0.1 };

    /// The way to a device's memory; none if it works in the host's.
    pub fn of(device: &DeviceInfo) -> Option<Link> {
        match (device.transfer_ns, device.transfer_bytes_per_s) {
            (0, 0) => (device.kind != raw::DEVICE_CPU).then_some(Link::GUESS),
            (_, u64::MAX) => None,
            (ns, 0) => Some(Link { ns: ns as f64, ..Link::GUESS }),
            (ns, rate) => Some(Link { ns: ns as f64, ns_per_byte: 1e9 / rate as f64 }),
        }
    }

    /// Estimated time of a value of this size.
    pub fn time(self, bytes: f64) -> f64 {
        self.ns + bytes * self.ns_per_byte
    }
}

/// Estimated time to bring a value of this size from one memory to another, each with its way to the host's.
pub(super) fn transfer(bytes: f64, from: Option<Link>, to: Option<Link>) -> f64 {
    from.into_iter().chain(to).map(|link| link.time(bytes)).sum()
}

/// Estimated bytes of every value, by id. `hints` are numbers of symbols, below 0 for unknown.
pub(super) fn sizes(graph: &Graph, hints: &[i64]) -> Vec<f64> {
    let guess = |(at, s): (usize, &ortolan_graph::ir::Symbol)| match (hints.get(at), s.kind) {
        (Some(&h), _) if h >= 0 => h,
        (_, SymbolKind::Dim) => GUESS,
        (_, SymbolKind::Element) => 1,
    };
    let symbols: Vec<i64> = graph.exprs().symbols().iter().enumerate().map(guess).collect();
    let mut numbers = Vec::new();
    graph.exprs().eval(&symbols, &mut numbers);
    let ids = (0..graph.value_count()).filter_map(|i| u32::try_from(i).ok().and_then(ValueId::from_index));
    ids.map(|id| graph.value(id).ty.as_ref().map_or(0.0, |ty| bytes(ty, &numbers))).collect()
}

fn bytes(ty: &Type, numbers: &[i64]) -> f64 {
    match ty {
        Type::Tensor(t) => t.dims.as_ref().map_or(0.0, |dims| tensor_bytes(t.dtype, dims, numbers)),
        Type::Sequence(e) => f64::from(i32::try_from(GUESS).unwrap_or(1)) * bytes(e, numbers),
        Type::Optional(e) | Type::Map(_, e) => bytes(e, numbers),
        Type::Unknown => 0.0,
    }
}

fn tensor_bytes(dtype: DType, dims: &Dims, numbers: &[i64]) -> f64 {
    let size = |d: &ortolan_graph::ir::ExprId| numbers.get(d.index()).copied().unwrap_or(1).clamp(0, 1 << 40) as f64;
    let bits = if dtype == DType::String { 256 } else { dtype.bits() };
    dims.iter().map(size).product::<f64>() * f64::from(bits) / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_states_its_transfers_or_they_are_guessed() {
        let link = |kind, transfer_ns, transfer_bytes_per_s| {
            Link::of(&DeviceInfo { kind, transfer_ns, transfer_bytes_per_s, ..DeviceInfo::default() })
        };
        let (cpu, gpu) = (raw::DEVICE_CPU, raw::DEVICE_GPU);
        assert_eq!((link(cpu, 0, 0), link(gpu, 0, 0)), (None, Some(Link::GUESS)));
        assert_eq!(link(gpu, 0, u64::MAX), None, "it works in host memory");
        let stated = link(cpu, 2_000, 4_000_000_000).expect("memory of its own, whatever the kind");
        assert_eq!((stated.time(0.0), stated.time(8_000.0)), (2_000.0, 4_000.0));
        assert_eq!(link(gpu, 500, 0).map(|l| l.time(100.0)), Some(510.0));
        assert_eq!(transfer(8_000.0, Some(stated), Some(stated)), 8_000.0);
        assert_eq!(transfer(8_000.0, None, None), 0.0);
    }
}
