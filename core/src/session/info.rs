//! Names and types of a model's inputs and outputs.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ortolan_graph::Graph;
use ortolan_graph::ir::{DType, ExprId, Name, Type, ValueId};
use serde::Serialize;

/// An input or output.
#[derive(Clone, Debug, Serialize)]
pub struct ValueInfo {
    /// Its name.
    pub name: String,
    /// Its type as ONNX writes it: `tensor(float)`, `seq(tensor(int64))`.
    pub ty: String,
    /// Element type of a tensor.
    #[serde(skip)]
    pub dtype: Option<DType>,
    /// Dims of a tensor, if the rank is fixed.
    pub dims: Option<Vec<DimInfo>>,
    /// It may be left out.
    pub optional: bool,
}

/// A dim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum DimInfo {
    /// Always this size.
    Fixed(i64),
    /// Any size, by the model's name or an expression over names.
    Named(String),
}

impl fmt::Display for DimInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimInfo::Fixed(n) => write!(f, "{n}"),
            DimInfo::Named(name) => f.write_str(name),
        }
    }
}

/// Inputs and outputs of a session.
pub(super) struct Io {
    pub inputs: Vec<ValueInfo>,
    pub outputs: Vec<ValueInfo>,
    pub output_names: Arc<[Name]>,
    input_names: Box<[Name]>,
    /// For models with many inputs.
    by_name: HashMap<Name, usize>,
}

/// Up to so many names are compared one by one.
const FEW: usize = 8;

impl Io {
    pub fn new(graph: &Graph) -> Io {
        let main = graph.main();
        let input_names: Vec<Name> = main.inputs.iter().map(|&v| graph.value(v).name.clone()).collect();
        let outputs = main.outputs.iter().zip(&main.output_names);
        Io {
            inputs: main.inputs.iter().zip(&input_names).map(|(&v, name)| info(graph, v, name)).collect(),
            outputs: outputs.map(|(&v, name)| info(graph, v, name)).collect(),
            output_names: main.output_names.iter().cloned().collect(),
            by_name: input_names.iter().cloned().zip(0..).collect(),
            input_names: input_names.into(),
        }
    }

    /// The number of an input.
    pub fn input(&self, name: &str) -> Option<usize> {
        if self.input_names.len() <= FEW {
            return self.input_names.iter().position(|n| &**n == name);
        }
        self.by_name.get(name).copied()
    }

    /// The number of an output.
    pub fn output(&self, name: &str) -> Option<usize> {
        self.output_names.iter().position(|n| &**n == name)
    }
}

fn info(graph: &Graph, id: ValueId, name: &str) -> ValueInfo {
    let value = graph.value(id);
    let tensor = value.ty.as_ref().and_then(Type::as_tensor);
    let dim = |e: &ExprId| {
        let table = graph.exprs();
        let named = table.as_symbol(*e).and_then(|s| table.symbols().get(s.index())).and_then(|s| s.name.clone());
        match (table.as_const(*e), named) {
            (Some(n), _) => DimInfo::Fixed(n),
            (_, Some(name)) => DimInfo::Named(name.to_string()),
            _ => DimInfo::Named(table.show(*e).to_string()),
        }
    };
    ValueInfo {
        name: name.to_owned(),
        ty: value.ty.as_ref().map_or_else(|| "unknown".to_owned(), Type::kind_name),
        dtype: tensor.map(|t| t.dtype),
        dims: tensor.and_then(|t| t.dims.as_ref()).map(|dims| dims.iter().map(dim).collect()),
        optional: value.default.is_some(),
    }
}
