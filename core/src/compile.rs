//! Hands a part to its EP for compilation, and lets go of what the EP is done with.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ortolan_ep_abi::raw;
use ortolan_graph::Graph;
use ortolan_graph::ir::{AttrValue, ConstId, Data, NodeId};

use crate::abi::{Compiling, PartHandle, Ports, Setup};
use crate::error::Result;
use crate::partition::{EpCx, PartSpec};
use crate::session::onnx;
use crate::value::SpaceId;

/// Compiles a part. `release` is told of each constant, by number, when the EP is done with it.
pub(crate) fn compile(
    ep: &EpCx,
    symbols: &[i64],
    width: u32,
    spec: &PartSpec,
    release: &(dyn Fn(u32) + Sync),
) -> Result<PartHandle> {
    let setup = Setup { symbols, ..Setup::plain(ep.handle.name(), width) };
    let onnx = |part: &raw::PartDesc| onnx::part(&ep.program, part);
    let compiling = Compiling {
        ports: RefCell::new(Ports {
            inputs: vec![SpaceId::HOST; spec.inputs.len()].into(),
            outputs: vec![SpaceId::HOST; spec.outputs.len()].into(),
        }),
        done: (0..ep.program.constants()).map(|_| AtomicBool::new(false)).collect(),
        release,
        onnx: &onnx,
        bytes: RefCell::default(),
    };
    let keep = Arc::clone(&ep.program) as Arc<dyn Any + Send + Sync>;
    let mut part = ep.handle.compile(&setup, (ep.program.raw(), &spec.desc()), &compiling, keep)?;
    let done = |c: &ConstId| compiling.done.get(c.index()).is_some_and(|d| d.load(Relaxed));
    if constants(ep.program.graph(), &spec.nodes).iter().all(done) {
        part.let_go();
    }
    tracing::debug!(ep = ep.handle.name(), nodes = spec.nodes.len(), "compiled a part");
    Ok(part)
}

/// Constants that nodes of a dialect read, as inputs or attributes, in their bodies too.
pub(crate) fn constants(graph: &Graph, nodes: &[u32]) -> Vec<ConstId> {
    let mut all = Vec::new();
    let mut todo: Vec<NodeId> = nodes.iter().filter_map(|&n| NodeId::from_index(n)).collect();
    while let Some(node) = todo.pop() {
        let node = graph.node(node);
        all.extend(node.inputs.iter().flatten().filter_map(|&v| graph.value(v).constant));
        for attr in &node.attrs {
            match &attr.value {
                AttrValue::Tensor(c) | AttrValue::BigInts(c) | AttrValue::BigFloats(c) => all.push(*c),
                AttrValue::Tensors(c) => all.extend(c.iter()),
                _ => {}
            }
        }
        todo.extend(node.bodies().flat_map(|b| graph.body(b).nodes.iter()));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Gives the pages of a constant in a file back to the system; reading it again brings them back.
pub(crate) fn release(graph: &Graph, constant: u32) {
    let id = ConstId::from_index(constant).filter(|c| c.index() < graph.constants().len());
    if let Some(Data::Mapped { map, at, len }) = id.map(|c| &graph.constant(c).data) {
        map.release(*at, *len);
    }
}
