//! A part as an ONNX model of its own, for compilers that read nothing else.
//!
//! The graph crate writes the dialect's whole graph; here the part's nodes are picked from it, with the constants that they
//! read. The k-th node, depth first, is the k-th node of the part.

use std::collections::{HashMap, HashSet};

use ortolan_ep_abi::raw;
use ortolan_graph::Graph;
use ortolan_graph::ir::{GraphId, NodeId, Type, ValueId};
use ortolan_graph::proto::{
    Dimension, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use ortolan_graph::write::to_model;
use prost::Message;

use crate::error::{Error, Result, codes};
use crate::program::Program;

/// The bytes of a part.
pub(crate) fn part(program: &Program, part: &raw::PartDesc) -> Result<Vec<u8>> {
    // SAFETY: the EP hands back the part that it got, or one that it made; lists and counts belong together by the ABI.
    let (nodes, inputs, outputs) = unsafe {
        (
            raw::slice(part.nodes, part.node_count as usize),
            raw::slice(part.inputs, part.input_count as usize),
            raw::slice(part.outputs, part.output_count as usize),
        )
    };
    let graph = program.graph();
    let whole = to_model(graph)?;
    let mut pick =
        Pick { graph, nodes: HashMap::new(), names: HashMap::new(), constants: HashMap::new(), types: HashMap::new() };
    if let Some(main) = &whole.graph {
        pick.learn(GraphId::MAIN, main);
    }
    let picked = pick.graph(nodes, inputs, outputs)?;
    Ok(ModelProto { graph: Some(picked), ..whole.clone() }.encode_to_vec())
}

/// What the written model holds, by the graph's numbers and by name.
struct Pick<'a> {
    graph: &'a Graph,
    nodes: HashMap<NodeId, &'a NodeProto>,
    names: HashMap<ValueId, &'a str>,
    constants: HashMap<&'a str, &'a TensorProto>,
    types: HashMap<&'a str, &'a ValueInfoProto>,
}

impl<'a> Pick<'a> {
    /// Nodes are written in the order of their body; what follows them are copies for outputs.
    fn learn(&mut self, id: GraphId, proto: &'a GraphProto) {
        self.constants.extend(proto.initializer.iter().map(|t| (t.name.as_str(), t)));
        let infos = proto.input.iter().chain(&proto.value_info).chain(&proto.output);
        self.types.extend(infos.map(|i| (i.name.as_str(), i)));
        let body = self.graph.body(id);
        self.names.extend(body.inputs.iter().copied().zip(proto.input.iter().map(|i| i.name.as_str())));
        for (&node, written) in body.nodes.iter().zip(&proto.node) {
            self.nodes.insert(node, written);
            let n = self.graph.node(node);
            let name = |(v, name): (&Option<ValueId>, &'a String)| v.map(|v| (v, name.as_str()));
            self.names.extend(n.inputs.iter().zip(&written.input).filter_map(name));
            self.names.extend(n.outputs.iter().zip(&written.output).filter_map(name));
            for attr in &n.attrs {
                let made = written.attribute.iter().find(|a| *a.name == *attr.name);
                let bodies = made.into_iter().flat_map(|a| a.g.iter().chain(&a.graphs));
                attr.value.graphs().iter().zip(bodies).for_each(|(&g, proto)| self.learn(g, proto));
            }
        }
    }

    fn graph(&self, nodes: &[u32], inputs: &[u32], outputs: &[u32]) -> Result<GraphProto> {
        let unknown = |what: &str, id: u32| Error::new(codes::EP_FAULT, format!("onnx: the part has no {what} {id}"));
        let mut made = GraphProto { name: "part".to_owned(), ..GraphProto::default() };
        for &id in nodes {
            let node = NodeId::from_index(id).and_then(|n| self.nodes.get(&n)).ok_or_else(|| unknown("node", id))?;
            made.node.push((*node).clone());
        }
        let ends = |list: &[u32]| -> Result<Vec<ValueInfoProto>> {
            let end = |&id| ValueId::from_index(id).and_then(|v| self.end(v)).ok_or_else(|| unknown("value", id));
            list.iter().map(end).collect()
        };
        (made.input, made.output) = (ends(inputs)?, ends(outputs)?);
        let mut read = HashSet::new();
        made.node.iter().for_each(|n| reads(n, &mut read));
        let constants = self.constants.iter().filter(|(name, _)| read.contains(**name));
        made.initializer = constants.map(|(_, t)| (*t).clone()).collect();
        made.initializer.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(made)
    }

    /// An input or output: as it is written elsewhere, or with the sizes that are fixed.
    fn end(&self, value: ValueId) -> Option<ValueInfoProto> {
        let name = *self.names.get(&value)?;
        if let Some(info) = self.types.get(name) {
            return Some((*info).clone());
        }
        let tensor = self.graph.value(value).ty.as_ref().and_then(Type::as_tensor).map(|t| {
            let dim = |e| Dimension {
                value: self.graph.exprs().as_const(e).map(ortolan_graph::proto::DimValue::Size),
                ..Dimension::default()
            };
            let shape = t.dims.as_ref().map(|dims| TensorShapeProto { dim: dims.iter().map(|&e| dim(e)).collect() });
            type_proto::Value::Tensor(type_proto::Tensor { elem_type: t.dtype.number(), shape })
        });
        let ty = TypeProto { value: tensor, ..TypeProto::default() };
        Some(ValueInfoProto { name: name.to_owned(), r#type: Some(ty), ..ValueInfoProto::default() })
    }
}

/// Names that a node and its bodies read.
fn reads<'n>(node: &'n NodeProto, read: &mut HashSet<&'n str>) {
    read.extend(node.input.iter().map(String::as_str));
    for body in node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs)) {
        body.node.iter().for_each(|n| reads(n, read));
        read.extend(body.output.iter().map(|o| o.name.as_str()));
    }
}
