//! Small ONNX models made in a test, and what they compute, by the plainest code that can be written.
//!
//! The interpreter knows f32 and a handful of operators. It shares nothing with any kernel or with the core's inference,
//! so that agreement means something.

use ortolan_graph::proto::{
    AttributeProto, DimValue, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, attribute_type, type_proto,
};
use prost::Message;
use std::collections::BTreeMap;

const F32: i32 = 1;

/// A model of f32 values under construction.
#[derive(Debug, Clone)]
pub struct Model {
    opset: i64,
    /// Domains beside the standard one, all at version 1.
    domains: Vec<String>,
    graph: GraphProto,
    /// Weights as numbers, for the interpreter.
    weights: BTreeMap<String, Tensor>,
}

/// An f32 tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Sizes.
    pub shape: Vec<i64>,
    /// Row-major.
    pub data: Vec<f32>,
}

impl Tensor {
    /// A tensor of these numbers; there must be as many as the shape asks for.
    pub fn new(shape: &[i64], data: Vec<f32>) -> Tensor {
        assert_eq!(shape.iter().product::<i64>() as usize, data.len(), "{shape:?}");
        Tensor { shape: shape.to_vec(), data }
    }

    /// Numbers between -1 and 1 that look random and are the same each time.
    pub fn random(shape: &[i64], seed: u64) -> Tensor {
        let mut random = Random(seed);
        let count = shape.iter().product::<i64>() as usize;
        Tensor::new(shape, (0..count).map(|_| random.below(2001) as f32 / 1000.0 - 1.0).collect())
    }

    /// The element that belongs to element `index` of a shape to which this is broadcast.
    fn at(&self, shape: &[i64], mut index: usize) -> f32 {
        let (mut offset, mut stride) = (0, 1);
        for (axis, &size) in shape.iter().enumerate().rev() {
            let (position, own) = (index % size as usize, axis + self.shape.len());
            index /= size as usize;
            if let Some(&own) = own.checked_sub(shape.len()).map(|a| &self.shape[a]) {
                offset += if own == 1 { 0 } else { position * stride };
                stride *= own as usize;
            }
        }
        self.data[offset]
    }
}

/// A generator of numbers that is the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// A number from 0 to below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound
    }
}

impl Model {
    /// An empty model in this version of the standard operators.
    pub fn new(opset: i64) -> Model {
        let graph = GraphProto { name: "test".into(), ..GraphProto::default() };
        Model { opset, domains: Vec::new(), graph, weights: BTreeMap::new() }
    }

    /// An input; a dim is a number or a name, as in `["N", "4"]`.
    #[must_use]
    pub fn input(mut self, name: &str, dims: &[&str]) -> Model {
        self.graph.input.push(value_info(name, Some(dims)));
        self
    }

    /// An input of which not even the rank is stated.
    #[must_use]
    pub fn input_of_any_rank(mut self, name: &str) -> Model {
        self.graph.input.push(value_info(name, None));
        self
    }

    /// An output, of a shape that inference finds.
    #[must_use]
    pub fn output(mut self, name: &str) -> Model {
        self.graph.output.push(value_info(name, None));
        self
    }

    /// A weight.
    #[must_use]
    pub fn weight(mut self, name: &str, tensor: Tensor) -> Model {
        let bytes: Vec<u8> = tensor.data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.graph.initializer.push(TensorProto {
            name: name.into(),
            dims: tensor.shape.clone(),
            data_type: F32,
            raw_data: Some(bytes.into()),
            ..TensorProto::default()
        });
        self.weights.insert(name.into(), tensor);
        self
    }

    /// An operator call, named after its output.
    #[must_use]
    pub fn node(self, op: &str, inputs: &[&str], output: &str) -> Model {
        self.node_with(op, inputs, output, &[])
    }

    /// An operator call with integer attributes. An operator of another domain is written `domain::Op`.
    #[must_use]
    pub fn node_with(self, op: &str, inputs: &[&str], output: &str, attrs: &[(&str, i64)]) -> Model {
        let attribute = |&(name, i): &(&str, i64)| AttributeProto {
            name: name.into(),
            i,
            r#type: attribute_type::INT,
            ..AttributeProto::default()
        };
        self.add(op, inputs, output, attrs.iter().map(attribute).collect())
    }

    /// The same with attributes that are lists.
    #[must_use]
    pub fn node_with_lists(self, op: &str, inputs: &[&str], output: &str, attrs: &[(&str, &[i64])]) -> Model {
        let attribute = |&(name, ints): &(&str, &[i64])| AttributeProto {
            name: name.into(),
            ints: ints.to_vec(),
            r#type: attribute_type::INTS,
            ..AttributeProto::default()
        };
        self.add(op, inputs, output, attrs.iter().map(attribute).collect())
    }

    fn add(mut self, op: &str, inputs: &[&str], output: &str, attribute: Vec<AttributeProto>) -> Model {
        let (domain, op) = op.split_once("::").unwrap_or(("", op));
        if !domain.is_empty() && !self.domains.iter().any(|d| d == domain) {
            self.domains.push(domain.into());
        }
        self.graph.node.push(NodeProto {
            name: output.into(),
            domain: domain.into(),
            op_type: op.into(),
            input: inputs.iter().map(|&s| s.into()).collect(),
            output: vec![output.into()],
            attribute,
            ..NodeProto::default()
        });
        self
    }

    /// Names and operators of the nodes, in order.
    pub fn nodes(&self) -> Vec<(&str, &str)> {
        self.graph.node.iter().map(|n| (n.name.as_str(), n.op_type.as_str())).collect()
    }

    /// The model file.
    pub fn bytes(&self) -> Vec<u8> {
        let others = self.domains.iter().map(|d| OperatorSetIdProto { domain: d.clone(), version: 1 });
        let standard = OperatorSetIdProto { domain: String::new(), version: self.opset };
        let opset_import = std::iter::once(standard).chain(others).collect();
        ModelProto { ir_version: 9, opset_import, graph: Some(self.graph.clone()), ..ModelProto::default() }
            .encode_to_vec()
    }

    /// What the outputs are for these inputs.
    pub fn interpret(&self, inputs: &[(&str, Tensor)]) -> BTreeMap<String, Tensor> {
        let mut values = self.weights.clone();
        values.extend(inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())));
        for node in &self.graph.node {
            let read: Vec<&Tensor> = node.input.iter().map(|name| &values[name]).collect();
            let int = |name: &str, default| node.attribute.iter().find(|a| a.name == name).map_or(default, |a| a.i);
            let result = match node.op_type.as_str() {
                "Add" => elementwise(&read, |x| x[0] + x[1]),
                "Mul" => elementwise(&read, |x| x[0] * x[1]),
                "Relu" => elementwise(&read, |x| x[0].max(0.0)),
                "Identity" => read[0].clone(),
                "MatMul" => matmul(read[0], read[1], false),
                "Gemm" => {
                    let product = matmul(read[0], read[1], int("transB", 0) != 0);
                    elementwise(&[&product, read[2]], |x| x[0] + x[1])
                }
                "LpNormalization" => unit_rows(read[0]),
                "Softmax" => softmax(read[0], int("axis", -1)),
                other => panic!("the interpreter does not know {other}"),
            };
            values.insert(node.output[0].clone(), result);
        }
        let outputs = self.graph.output.iter().map(|o| o.name.clone());
        outputs.map(|name| (name.clone(), values[&name].clone())).collect()
    }
}

fn value_info(name: &str, dims: Option<&[&str]>) -> ValueInfoProto {
    let dim = |text: &&str| Dimension {
        value: Some(text.parse().map_or_else(|_| DimValue::Name((*text).to_owned()), DimValue::Size)),
        ..Dimension::default()
    };
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let value = Some(type_proto::Value::Tensor(type_proto::Tensor { elem_type: F32, shape }));
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { value, ..TypeProto::default() }),
        ..Default::default()
    }
}

fn elementwise(inputs: &[&Tensor], f: impl Fn(&[f32]) -> f32) -> Tensor {
    let rank = inputs.iter().map(|t| t.shape.len()).max().unwrap_or(0);
    let size = |t: &Tensor, axis: usize| (axis + t.shape.len()).checked_sub(rank).map_or(1, |a| t.shape[a]);
    let broadcast = |axis| inputs.iter().map(|t| size(t, axis)).find(|&s| s != 1).unwrap_or(1);
    let shape: Vec<i64> = (0..rank).map(broadcast).collect();
    let count = shape.iter().product::<i64>() as usize;
    let data = (0..count).map(|i| f(&inputs.iter().map(|t| t.at(&shape, i)).collect::<Vec<_>>())).collect();
    Tensor { shape, data }
}

/// The product of two matrices, in double precision.
fn matmul(a: &Tensor, b: &Tensor, transposed: bool) -> Tensor {
    let (rows, depth) = (a.shape[0] as usize, a.shape[1] as usize);
    let columns = b.shape[usize::from(!transposed)] as usize;
    let at = |k: usize, c: usize| if transposed { b.data[c * depth + k] } else { b.data[k * columns + c] };
    let sum =
        |r: usize, c: usize| (0..depth).map(|k| f64::from(a.data[r * depth + k]) * f64::from(at(k, c))).sum::<f64>();
    let data = (0..rows * columns).map(|i| sum(i / columns, i % columns) as f32).collect();
    Tensor { shape: vec![rows as i64, columns as i64], data }
}

/// Rows of the last axis divided by their Euclidean length, in double precision.
fn unit_rows(x: &Tensor) -> Tensor {
    let n = x.shape.last().map_or(1, |&n| n as usize);
    let length = |row: &[f32]| row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    let unit = |row: &[f32]| row.iter().map(|&v| (f64::from(v) / length(row)) as f32).collect::<Vec<_>>();
    Tensor { shape: x.shape.clone(), data: x.data.chunks(n).flat_map(unit).collect() }
}

/// Along one axis, in double precision.
fn softmax(x: &Tensor, axis: i64) -> Tensor {
    let axis = axis.rem_euclid(x.shape.len() as i64) as usize;
    let inner: usize = x.shape[axis + 1..].iter().product::<i64>() as usize;
    let n = x.shape[axis] as usize;
    let line = |i: usize| {
        let first = i / (n * inner) * n * inner + i % inner;
        (0..n).map(move |k| f64::from(x.data[first + k * inner]).exp())
    };
    let data = x.data.iter().enumerate().map(|(i, &v)| (f64::from(v).exp() / line(i).sum::<f64>()) as f32).collect();
    Tensor { shape: x.shape.clone(), data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_computes_what_hands_compute() {
        let model = Model::new(17)
            .input("x", &["N", "2"])
            .weight("w", Tensor::new(&[2, 2], vec![1.0, 2.0, 3.0, 4.0]))
            .weight("b", Tensor::new(&[2], vec![10.0, -100.0]))
            .node("MatMul", &["x", "w"], "h")
            .node("Add", &["h", "b"], "s")
            .node("Relu", &["s"], "y")
            .output("y");
        let y = &model.interpret(&[("x", Tensor::new(&[1, 2], vec![1.0, 1.0]))])["y"];
        assert_eq!(*y, Tensor::new(&[1, 2], vec![14.0, 0.0]));
        let s = softmax(&Tensor::new(&[2, 2], vec![0.0, 3.0, 0.0, 3.0]), 0);
        assert_eq!(s.data, [0.5, 0.5, 0.5, 0.5]);
        let column = Tensor::new(&[2, 1], vec![1.0, 2.0]);
        let row = Tensor::new(&[3], vec![10.0, 20.0, 30.0]);
        let sum = elementwise(&[&column, &row], |x| x[0] + x[1]);
        assert_eq!(sum, Tensor::new(&[2, 3], vec![11.0, 21.0, 31.0, 12.0, 22.0, 32.0]));
    }

    #[test]
    fn models_load() {
        let model = Model::new(17).input("x", &["N", "2"]).node("Relu", &["x"], "y").output("y");
        ortolan_graph::load_bytes(model.bytes(), None, &ortolan_graph::LoadOptions::default()).expect("a model");
    }
}
