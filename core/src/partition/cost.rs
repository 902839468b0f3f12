//! Estimates: sizes of values for the hinted symbols, and what handing them from EP to EP costs.

use ortolan_ep_abi::raw;
use ortolan_graph::Graph;
use ortolan_graph::ir::{DType, Dims, SymbolKind, Type, ValueId};

/// What a dim is taken to be when nobody says.
const GUESS: i64 = 32;
/// One more part: the host's steps around it.
pub(super) const PART_NS: f64 = 60.0;
/// A transfer between the host's and a device's memory, to begin with and per byte.
const TRANSFER_NS: f64 = 10_000.0;
const TRANSFER_NS_PER_BYTE: f64 = 0.1;

/// Whether an EP on a device of this kind is taken to have memory of its own.
pub(crate) fn has_own_memory(kind: u32) -> bool {
    kind != raw::DEVICE_CPU
}

/// Estimated time to bring a value of this size from one kind of memory to another.
pub(super) fn transfer(bytes: f64, from_own: bool, to_own: bool) -> f64 {
    let crossings = f64::from(u8::from(from_own)) + f64::from(u8::from(to_own));
    crossings * (TRANSFER_NS + bytes * TRANSFER_NS_PER_BYTE)
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
