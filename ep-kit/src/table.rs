//! Finds the row for a node, or the reason why there is none.

use crate::element;
use crate::error::Reject;
use crate::kernel::{Kernel, Slot};
use crate::node::NodeView;
use ortolan_ep_abi::codes::DType;
use std::collections::HashMap;

/// All rows of an EP, by domain and operator.
#[derive(Debug)]
pub(crate) struct Index(HashMap<(&'static str, &'static str), Vec<&'static Kernel>>);

impl Index {
    /// Families in order: where several rows fit, the first one wins.
    pub fn new(families: &[&'static [Kernel]]) -> Self {
        let mut index: HashMap<_, Vec<_>> = HashMap::new();
        for kernel in families.iter().copied().flatten() {
            index.entry((kernel.domain, kernel.op)).or_default().push(kernel);
        }
        Index(index)
    }

    /// The row for a node, and the type by which it picks its function.
    pub fn find(&self, node: &NodeView<'_>) -> Result<(&'static Kernel, DType), Reject> {
        let raw = node.raw();
        let rows = self.0.get(&(raw.domain(), raw.op())).ok_or_else(|| no_operator(raw.domain()))?;
        let version = node.version();
        let fitting: Vec<_> =
            rows.iter().filter(|k| (u32::from(k.since.0)..=u32::from(k.since.1)).contains(&version)).collect();
        if fitting.is_empty() {
            return Err(no_version(version, rows));
        }
        let (mut refusal, mut late) = (None, false);
        let mut whole = None;
        for kernel in &fitting {
            if let Err(reject) = seen(kernel, node) {
                whole = Some(reject);
                continue;
            }
            match types(kernel, node) {
                // Another row may find sizes as it runs.
                Ok(_) if node.is_late() && !kernel.late => late = true,
                Ok(dtype) => return Ok((kernel, dtype)),
                Err((var, slot, found)) => refusal = refusal.or(Some((var, slot, found))),
            }
        }
        if late {
            let text = "the size of an output is decided by data, and the kernel needs it before it runs";
            return Err(Reject::shape(text));
        }
        match (refusal, whole) {
            (None, Some(reject)) => Err(reject),
            _ => Err(no_type(refusal, &fitting)),
        }
    }
}

/// The type of the first variable, or the first variable that does not fit.
fn types(kernel: &Kernel, node: &NodeView<'_>) -> Result<DType, (&'static str, Slot, DType)> {
    let mut first = None;
    for (k, &(var, set)) in kernel.types.iter().enumerate() {
        let slot = kernel.slot(k);
        let value = match slot {
            Slot::In(i) => node.input(i.into()),
            Slot::Out(i) => node.output(i.into()),
        };
        let Some(value) = value else { continue };
        if set & value.dtype().mask() == 0 {
            return Err((var, slot, value.dtype()));
        }
        first = first.or(Some(value.dtype()));
    }
    Ok(first.or(node.output(0).map(|v| v.dtype())).unwrap_or(DType::F32))
}

/// Whether the row sees all that the node has: kinds of values, and texts where it reads elements.
fn seen(kernel: &Kernel, node: &NodeView<'_>) -> Result<(), Reject> {
    let raw = node.raw();
    let ins = (0..raw.inputs().len()).map(|k| ("input", k, raw.input(k), kernel.unread & (1u32 << k.min(31)) == 0));
    let outs = (0..raw.outputs().len()).map(|k| ("output", k, raw.output(k), true));
    for (what, k, info, read) in ins.chain(outs) {
        let Some(info) = info else { continue };
        let known = info.kind() != ortolan_ep_abi::raw::VALUE_ABSENT
            && (info.kind() != ortolan_ep_abi::raw::VALUE_TENSOR || info.dtype().is_some());
        let text = match (kernel.items, info.dtype()) {
            _ if !known => "has no type that kernels know",
            (true, _) => continue,
            (false, None) => "is no tensor, and the kernel takes tensors only",
            (false, Some(DType::Str)) if read => "has texts, and the kernel takes none",
            _ => continue,
        };
        return Err(Reject::dtype(format!("{what} {k} {text}")));
    }
    Ok(())
}

fn no_operator(domain: &str) -> Reject {
    match domain {
        "" => Reject::operator("there is no kernel for this operator"),
        other => Reject::operator(format!("there is no kernel for this operator of domain {other}")),
    }
}

fn no_version(version: u32, rows: &[&'static Kernel]) -> Reject {
    let have: Vec<_> = rows.iter().map(|k| format!("{} to {}", k.since.0, k.since.1)).collect();
    Reject::version(format!("its form is of version {version}; kernels are there for {}", have.join(", ")))
}

fn no_type(refusal: Option<(&'static str, Slot, DType)>, rows: &[&&'static Kernel]) -> Reject {
    let Some((var, slot, found)) = refusal else { return Reject::dtype("no row fits its types") };
    let sets = rows.iter().flat_map(|k| k.types).filter(|t| t.0 == var).fold(0, |all, t| all | t.1);
    let at = match slot {
        Slot::In(i) => format!("input {i}"),
        Slot::Out(i) => format!("output {i}"),
    };
    Reject::dtype(format!("{var} = {found} ({at}) has no kernel; there are {}", element::names(sets)))
}
