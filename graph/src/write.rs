//! [`Graph`] → ONNX messages: for saving a model, and for EPs whose compilers read ONNX.
//!
//! Functions were expanded when the model was loaded, training graphs were left out; neither comes back.
//! Names of inputs and outputs are kept, other names are made unique over the whole model.

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use prost::Message;

use crate::error::{Code, Error, Result};
use crate::ir::{
    Attr, AttrValue, ConstId, Constant, DType, Data, ExprOp, Graph, GraphId, Node, NodeId, Opset, Type, Value, ValueId,
};
use crate::ops;
use crate::proto::{
    AttributeProto, DimValue, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, attribute_type as kind, type_proto,
};

/// Oldest IR version written: before 4 every initializer had to be an input, 8 is what common tools read and write.
const LEAST_IR: i64 = 8;

/// Messages as bytes.
pub fn encode(model: &ModelProto) -> Vec<u8> {
    model.encode_to_vec()
}

/// The model as ONNX bytes.
pub fn to_bytes(graph: &Graph) -> Result<Vec<u8>> {
    Ok(to_model(graph)?.encode_to_vec())
}

/// The model as ONNX messages. Large constants are slices of the maps that they lie in.
///
/// It imports the graph's own opsets where all nodes mean the same in them, else the newest in which they do.
/// When there is none the error (code `version`) names two nodes that need different ones.
pub fn to_model(graph: &Graph) -> Result<ModelProto> {
    let opsets = common_opsets(graph)?;
    let mut writer = Writer {
        graph,
        opsets: &opsets,
        names: HashMap::new(),
        taken: HashSet::new(),
        node_names: HashSet::new(),
        shared: 0,
    };
    writer.name_all();
    let main = writer.graph(GraphId::MAIN)?;
    let info = graph.info();
    Ok(ModelProto {
        ir_version: info.ir_version.max(LEAST_IR).max(least_ir(graph)),
        producer_name: info.producer_name.clone(),
        producer_version: info.producer_version.clone(),
        domain: info.domain.clone(),
        model_version: info.model_version,
        doc_string: info.doc.clone(),
        graph: Some(GraphProto { doc_string: String::new(), ..main }),
        opset_import: opsets.iter().map(opset).collect(),
        metadata_props: info.metadata.iter().map(|(k, v)| entry(k, v)).collect(),
        training_info: Vec::new(),
        functions: Vec::new(),
        configuration: Vec::new(),
    })
}

/// One version per domain in which every live node means the same.
fn common_opsets(graph: &Graph) -> Result<Vec<Opset>> {
    let mut ranges: Vec<(Opset, u32, NodeId, NodeId)> = Vec::new();
    for id in graph.live_nodes() {
        let node = graph.node(id);
        let (from, to) = (node.holds.from, node.holds.to);
        match ranges.iter_mut().find(|r| r.0.domain == node.domain) {
            Some((lowest, highest, low, high)) => {
                if from > lowest.version {
                    (lowest.version, *low) = (from, id);
                }
                if to < *highest {
                    (*highest, *high) = (to, id);
                }
            }
            None => ranges.push((Opset { domain: node.domain.clone(), version: from }, to, id, id)),
        }
    }
    let mut opsets = Vec::new();
    for (lowest, highest, low, high) in ranges {
        if lowest.version > highest {
            let (low, high) = (graph.node(low).place(graph), graph.node(high).place(graph));
            let message = format!("{low} needs version {} or newer, {high} version {highest} or older", lowest.version);
            return Err(Error::new(Code::Version, message));
        }
        let newest = crate::schema::newest(&lowest.domain).map_or(1, u32::from).min(highest);
        let own = graph.opset(&lowest.domain).filter(|v| (lowest.version..=highest).contains(v));
        let version = own.unwrap_or(newest.max(lowest.version));
        opsets.push(Opset { domain: lowest.domain, version });
    }
    // What is imported but not used stays, so that reading gives the same again.
    let unused =
        graph.opsets().iter().filter(|o| !graph.opsets().is_empty() && !opsets.iter().any(|p| p.domain == o.domain));
    let unused: Vec<Opset> = unused.cloned().collect();
    opsets.extend(unused);
    opsets.sort_unstable_by(|a, b| a.domain.cmp(&b.domain));
    Ok(opsets)
}

/// The IR version in which the youngest element type in use came.
fn least_ir(graph: &Graph) -> i64 {
    let of = |dtype: DType| match dtype.number() {
        17..=20 => 9,
        21 | 22 => 10,
        23 => 11,
        24 => 12,
        25 | 26 => 13,
        27.. => 14,
        _ => 1,
    };
    let values = graph.values.iter().filter_map(|v| v.ty.as_ref()?.as_tensor()).map(|t| t.dtype);
    values.chain(graph.constants.iter().map(|c| c.dtype)).map(of).max().unwrap_or(1)
}

struct Writer<'a> {
    graph: &'a Graph,
    opsets: &'a [Opset],
    names: HashMap<ValueId, String>,
    taken: HashSet<String>,
    node_names: HashSet<String>,
    shared: usize,
}

impl Writer<'_> {
    /// Inputs and outputs of the model first: their names are fixed.
    fn name_all(&mut self) {
        let main = self.graph.main();
        for &v in &main.inputs {
            let name = self.graph.value(v).name.to_string();
            self.taken.insert(name.clone());
            self.names.insert(v, name);
        }
        self.taken.extend(main.output_names.iter().map(|n| n.to_string()));
        for (v, name) in main.outputs.iter().zip(&main.output_names) {
            let inside = self.graph.value(*v).graph == GraphId::MAIN;
            if inside && !self.names.contains_key(v) {
                self.names.insert(*v, name.to_string());
            }
        }
    }

    fn name(&mut self, v: ValueId) -> String {
        if let Some(name) = self.names.get(&v) {
            return name.clone();
        }
        let own = &*self.graph.value(v).name;
        let name = if own.is_empty() { format!("v{}", v.raw()) } else { own.to_owned() };
        let name = self.unique(name);
        self.names.insert(v, name.clone());
        name
    }

    fn unique(&mut self, name: String) -> String {
        let mut tried = name.clone();
        while !self.taken.insert(tried.clone()) {
            self.shared += 1;
            tried = format!("{name}@{}", self.shared);
        }
        tried
    }

    fn graph(&mut self, id: GraphId) -> Result<GraphProto> {
        let body = self.graph.body(id);
        let mut proto = GraphProto {
            name: if body.name.is_empty() { format!("graph{}", id.raw()) } else { body.name.to_string() },
            ..GraphProto::default()
        };
        proto.input = body.inputs.iter().map(|v| self.value_info(*v)).collect();
        for &n in &body.nodes {
            let node = self.node(n)?;
            proto.node.push(node);
            for v in self.graph.node(n).outputs.iter().flatten() {
                if !body.outputs.contains(v) && is_sized(self.graph.value(*v)) {
                    proto.value_info.push(self.value_info(*v));
                }
            }
        }
        for (i, (v, name)) in body.outputs.iter().zip(&body.output_names).enumerate() {
            let repeated = body.outputs[..i].contains(v);
            let mut info = self.output(id, *v, name, repeated, &mut proto.node);
            if !is_sized(self.graph.value(*v))
                && let Some(Some(stated)) = self.graph.stated_outputs.get(i).filter(|_| id == GraphId::MAIN)
            {
                info.r#type = Some(self.ty(stated));
            }
            proto.output.push(info);
        }
        // Last: by now every value of this graph that is read has its name.
        let mut constants: Vec<(ValueId, ConstId)> = Vec::new();
        for (&v, _) in &self.names {
            let value = self.graph.value(v);
            if value.graph == id {
                constants.extend(value.constant.or(value.default).map(|c| (v, c)));
            }
        }
        constants.sort_unstable();
        for (v, c) in constants {
            let name = self.name(v);
            proto.initializer.push(tensor(self.graph.constant(c), name));
        }
        Ok(proto)
    }

    /// An output under its own name. What goes by another name already is copied.
    fn output(
        &mut self,
        id: GraphId,
        v: ValueId,
        name: &str,
        repeated: bool,
        nodes: &mut Vec<NodeProto>,
    ) -> ValueInfoProto {
        let mut info = self.value_info(v);
        let outside = self.graph.value(v).graph != id || self.graph.body(id).inputs.contains(&v);
        let bare_name = id == GraphId::MAIN && info.name != name;
        if (id != GraphId::MAIN && (outside || repeated)) || bare_name {
            let wanted = if id == GraphId::MAIN { name.to_owned() } else { self.unique(name.to_owned()) };
            nodes.push(NodeProto {
                op_type: ops::IDENTITY.to_owned(),
                input: vec![info.name],
                output: vec![wanted.clone()],
                ..NodeProto::default()
            });
            info.name = wanted;
        }
        info
    }

    fn node(&mut self, id: NodeId) -> Result<NodeProto> {
        let node = self.graph.node(id);
        let mut input: Vec<String> = node.inputs.iter().map(|v| v.map_or_else(String::new, |v| self.name(v))).collect();
        let mut attribute = Vec::with_capacity(node.attrs.len());
        for attr in self.in_force(node) {
            attribute.push(self.attr(attr)?);
        }
        while input.last().is_some_and(String::is_empty) {
            input.pop();
        }
        // All outputs stay listed: some operators go by their number.
        let output: Vec<String> = node.outputs.iter().map(|v| v.map_or_else(String::new, |v| self.name(v))).collect();
        Ok(NodeProto {
            input,
            output,
            name: self.node_name(node),
            op_type: node.op.to_string(),
            attribute,
            domain: node.domain.to_string(),
            ..NodeProto::default()
        })
    }

    /// Some readers want names of nodes to be unique.
    fn node_name(&mut self, node: &Node) -> String {
        let mut name = node.name.to_string();
        while !name.is_empty() && !self.node_names.insert(name.clone()) {
            self.shared += 1;
            name = format!("{}@{}", node.name, self.shared);
        }
        name
    }

    /// The attributes that the version written has; the others say what it means anyway.
    fn in_force<'g>(&self, node: &'g Node) -> Vec<&'g Attr> {
        let opset = self.opsets.iter().find(|o| o.domain == node.domain).map_or(1, |o| o.version);
        let schema = self.graph.schema_at(&node.domain, &node.op, opset).filter(|_| node.since != 0);
        node.attrs.iter().filter(|a| schema.is_none_or(|s| s.attribute(&a.name).is_some())).collect()
    }

    fn attr(&mut self, attr: &Attr) -> Result<AttributeProto> {
        let mut a = AttributeProto { name: attr.name.to_string(), ..AttributeProto::default() };
        a.r#type = match &attr.value {
            AttrValue::Int(v) => set(&mut a.i, *v, kind::INT),
            AttrValue::Float(v) => set(&mut a.f, *v, kind::FLOAT),
            AttrValue::String(v) => set(&mut a.s, v.clone(), kind::STRING),
            AttrValue::Ints(v) => set(&mut a.ints, v.to_vec(), kind::INTS),
            AttrValue::Floats(v) => set(&mut a.floats, v.to_vec(), kind::FLOATS),
            AttrValue::Strings(v) => set(&mut a.strings, v.to_vec(), kind::STRINGS),
            AttrValue::BigInts(c) => {
                let list = self.graph.constant(*c).ints(usize::MAX).unwrap_or_default();
                set(&mut a.ints, list, kind::INTS)
            }
            AttrValue::BigFloats(c) => {
                let (floats, _) = self.graph.constant(*c).bytes().as_chunks::<4>();
                set(&mut a.floats, floats.iter().map(|f| f32::from_le_bytes(*f)).collect(), kind::FLOATS)
            }
            AttrValue::Tensor(c) => {
                let t = tensor(self.graph.constant(*c), String::new());
                set(&mut a.t, Some(t), kind::TENSOR)
            }
            AttrValue::Tensors(all) => {
                let list = all.iter().map(|c| tensor(self.graph.constant(*c), String::new())).collect();
                set(&mut a.tensors, list, kind::TENSORS)
            }
            AttrValue::Graph(g) => {
                let graph = self.graph(*g)?;
                set(&mut a.g, Some(graph), kind::GRAPH)
            }
            AttrValue::Graphs(all) => {
                let graphs = all.iter().map(|g| self.graph(*g)).collect::<Result<_>>()?;
                set(&mut a.graphs, graphs, kind::GRAPHS)
            }
            AttrValue::Type(t) => {
                let t = self.ty(t);
                set(&mut a.tp, Some(t), kind::TYPE_PROTO)
            }
            AttrValue::Types(all) => {
                let types = all.iter().map(|t| self.ty(t)).collect();
                set(&mut a.type_protos, types, kind::TYPE_PROTOS)
            }
        };
        Ok(a)
    }

    fn value_info(&mut self, v: ValueId) -> ValueInfoProto {
        let ty = self.graph.value(v).ty.as_ref().map(|t| self.ty(t));
        ValueInfoProto { name: self.name(v), r#type: ty, ..ValueInfoProto::default() }
    }

    fn ty(&self, ty: &Type) -> TypeProto {
        let boxed = |t: &Type| match t {
            Type::Unknown => None,
            t => Some(Box::new(self.ty(t))),
        };
        let value = match ty {
            Type::Tensor(t) => {
                let shape =
                    t.dims.as_ref().map(|dims| TensorShapeProto { dim: dims.iter().map(|d| self.dim(*d)).collect() });
                Some(type_proto::Value::Tensor(type_proto::Tensor { elem_type: t.dtype.number(), shape }))
            }
            Type::Sequence(t) => {
                Some(type_proto::Value::Sequence(Box::new(type_proto::Element { elem_type: boxed(t) })))
            }
            Type::Optional(t) => {
                Some(type_proto::Value::Optional(Box::new(type_proto::Element { elem_type: boxed(t) })))
            }
            Type::Map(k, t) => {
                Some(type_proto::Value::Map(Box::new(type_proto::Map { key_type: k.number(), value_type: boxed(t) })))
            }
            Type::Unknown => None,
        };
        TypeProto { value, denotation: String::new() }
    }

    fn dim(&self, e: crate::ir::ExprId) -> Dimension {
        let exprs = self.graph.exprs();
        let value = match (exprs.get(e).op, exprs.as_symbol(e)) {
            (ExprOp::Const, _) => DimValue::Size(exprs.get(e).v),
            (_, Some(s)) => DimValue::Name(match &exprs.symbols()[s.index()].name {
                Some(name) if exprs.symbols().iter().filter(|t| t.name.as_ref() == Some(name)).count() == 1 => {
                    name.to_string()
                }
                _ => format!("s{}", s.raw()),
            }),
            _ => DimValue::Name(exprs.show(e).to_string()),
        };
        Dimension { value: Some(value), denotation: String::new() }
    }
}

fn set<T>(field: &mut T, value: T, kind: i32) -> i32 {
    *field = value;
    kind
}

fn is_sized(value: &Value) -> bool {
    matches!(&value.ty, Some(Type::Tensor(t)) if t.dims.is_some())
}

/// A constant as a message, in raw form but for strings.
pub(crate) fn tensor(c: &Constant, name: String) -> TensorProto {
    let mut t = TensorProto { dims: c.dims.to_vec(), data_type: c.dtype.number(), name, ..TensorProto::default() };
    match &c.data {
        Data::Strings(all) => t.string_data = all.iter().map(|s| Bytes::copy_from_slice(s.as_bytes())).collect(),
        data => t.raw_data = Some(data.to_bytes()),
    }
    t
}

fn opset(o: &Opset) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: o.domain.to_string(), version: o.version.into() }
}

fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: key.to_owned(), value: value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{floats, good, graph, ints, load, shown};

    fn again(g: &Graph) -> Graph {
        load(&to_model(g).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_reads_as_the_same_graph() {
        let mut top = graph(
            "x float[n,3]",
            "c = MatMul(x,w)\ns = Shape(c)\nr = Reshape(c,s)\ny = Softmax(r) axis=-1",
            "y float[n,4]\nw",
        );
        top.initializer = vec![floats("w", &[3, 4], &[1.0; 12])];
        let g = good(17, top);
        let h = again(&g);
        assert_eq!(shown(&g), shown(&h));
        assert_eq!(g.opsets(), h.opsets());
        assert_eq!(g.exprs().symbols().len(), h.exprs().symbols().len());
        assert_eq!(to_model(&g).unwrap(), to_model(&h).unwrap());
    }

    #[test]
    fn an_output_of_another_name_is_copied() {
        let mut g = good(21, graph("x float[2]", "a = Relu(x)\ny = Identity(a)\nz = Identity(x)", "y\na\nz"));
        let find = |g: &Graph, n: &str| {
            ValueId::from_index(g.values.iter().position(|v| &*v.name == n).unwrap() as u32).unwrap()
        };
        let (x, a, y, z) = (find(&g, "x"), find(&g, "a"), find(&g, "y"), find(&g, "z"));
        let mut e = g.edit();
        e.replace(y, a);
        e.replace(z, x);
        e.finish().unwrap();
        let m = to_model(&g).unwrap();
        let names: Vec<&str> = m.graph.as_ref().unwrap().output.iter().map(|o| o.name.as_str()).collect();
        assert_eq!(names, ["y", "a", "z"]);
        let h = load(&m).unwrap();
        assert_eq!(shown(&h), ["Relu-14(x) > y", "Identity-25(y) > a", "Identity-25(x) > z"]);
    }

    #[test]
    fn outputs_left_out_still_count() {
        let mut top = graph("x float[6]", "a b = Split(x)", "a float[2]\nb");
        top.node[0].output.push(String::new());
        let g = good(13, top);
        assert_eq!(to_model(&g).unwrap().graph.unwrap().node[0].output, ["a", "b", ""]);
        assert_eq!(shown(&again(&g)), shown(&g));
    }

    #[test]
    fn upgraded_nodes_raise_the_import() {
        let mut top = graph("x float[2,3]", "y = ReduceMean(x) axes=[1]\nz = Add(y,y)", "z");
        top.initializer = vec![ints("unused", &[1], &[1])];
        let m = to_model(&good(13, top)).unwrap();
        assert!(m.opset_import[0].version >= 18, "{:?}", m.opset_import);
        let top = graph("x float[2,3]", "y = Add(x,x)", "y");
        assert_eq!(to_model(&good(13, top)).unwrap().opset_import[0].version, 13);
    }
}
