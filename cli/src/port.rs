//! What a model takes and gives, in a form that can be printed and compared without the model's tables.

use std::fmt;

use ortolan::session::{DimInfo, ValueInfo};
use ortolan_graph::ir::{DType, ExprId, ExprOp, ExprTable, Graph, Type, ValueId};

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What it carries.
    pub ty: PortType,
    /// An input that has a value of its own when none is given.
    pub optional: bool,
}

/// Type of a port.
#[derive(Clone, Debug, PartialEq)]
pub enum PortType {
    /// A tensor; no dims when its rank is unknown.
    Tensor {
        /// Element type.
        dtype: DType,
        /// Sizes.
        dims: Option<Vec<Dim>>,
    },
    /// Any number of values of a type.
    Sequence(Box<PortType>),
    /// A value or nothing.
    Optional(Box<PortType>),
    /// Keys and values.
    Map(DType, Box<PortType>),
    /// Nothing says.
    Unknown,
}

/// Size of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A number.
    Fixed(i64),
    /// Free, under the name that the model gives it.
    Named(String),
    /// Computed from named ones, or not known before a run.
    Shown(String),
}

impl Dim {
    /// A number, the name or expression of a free size, or null.
    pub fn json(&self) -> serde_json::Value {
        match self {
            Dim::Fixed(n) => (*n).into(),
            Dim::Named(text) => text.as_str().into(),
            Dim::Shown(text) if text == "?" => serde_json::Value::Null,
            Dim::Shown(text) => text.as_str().into(),
        }
    }

    /// The number, if it is one.
    pub fn fixed(&self) -> Option<i64> {
        match self {
            Dim::Fixed(n) => Some(*n),
            _ => None,
        }
    }
}

impl Port {
    /// The port that stands for a value of the graph.
    pub fn of(graph: &Graph, id: ValueId) -> Port {
        let value = graph.value(id);
        let ty = value.ty.as_ref().map_or(PortType::Unknown, |ty| PortType::of(ty, graph.exprs()));
        Port { name: value.name.to_string(), ty, optional: value.default.is_some() }
    }

    /// The model's inputs.
    pub fn inputs(graph: &Graph) -> Vec<Port> {
        graph.main().inputs.iter().map(|&id| Port::of(graph, id)).collect()
    }

    /// The model's outputs.
    pub fn outputs(graph: &Graph) -> Vec<Port> {
        graph.main().outputs.iter().map(|&id| Port::of(graph, id)).collect()
    }
}

impl From<&ValueInfo> for Port {
    /// The port of a session, which tells types as ONNX writes them.
    fn from(info: &ValueInfo) -> Port {
        let ty = match (info.dtype, PortType::parse(&info.ty)) {
            (Some(dtype), _) => {
                PortType::Tensor { dtype, dims: info.dims.as_ref().map(|d| d.iter().map(Dim::from).collect()) }
            }
            (None, ty) => ty.unwrap_or(PortType::Unknown),
        };
        Port { name: info.name.clone(), ty, optional: info.optional }
    }
}

impl From<&DimInfo> for Dim {
    fn from(dim: &DimInfo) -> Dim {
        match dim {
            DimInfo::Fixed(n) => Dim::Fixed(*n),
            DimInfo::Named(name) => Dim::Named(name.clone()),
        }
    }
}

impl PortType {
    /// Reads a type as ONNX writes it, without shapes: `seq(tensor(float))`, `map(int64,tensor(float))`.
    pub fn parse(text: &str) -> Option<PortType> {
        let (kind, inner) = text.strip_suffix(')')?.split_once('(')?;
        Some(match kind {
            "tensor" => PortType::Tensor { dtype: DType::from_name(inner)?, dims: None },
            "seq" => PortType::Sequence(Box::new(PortType::parse(inner)?)),
            "optional" => PortType::Optional(Box::new(PortType::parse(inner)?)),
            "map" => {
                let (key, value) = inner.split_once(',')?;
                PortType::Map(DType::from_name(key)?, Box::new(PortType::parse(value.trim())?))
            }
            _ => return None,
        })
    }

    fn of(ty: &Type, exprs: &ExprTable) -> PortType {
        match ty {
            Type::Tensor(t) => {
                let dims = t.dims.as_ref().map(|dims| dims.iter().map(|&d| Dim::of(d, exprs)).collect());
                PortType::Tensor { dtype: t.dtype, dims }
            }
            Type::Sequence(item) => PortType::Sequence(Box::new(PortType::of(item, exprs))),
            Type::Optional(item) => PortType::Optional(Box::new(PortType::of(item, exprs))),
            Type::Map(key, value) => PortType::Map(*key, Box::new(PortType::of(value, exprs))),
            Type::Unknown => PortType::Unknown,
        }
    }

    /// What an optional holds, else the type itself.
    pub fn held(&self) -> &PortType {
        match self {
            PortType::Optional(held) => held,
            other => other,
        }
    }

    /// Element type, of a tensor.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            PortType::Tensor { dtype, .. } => Some(*dtype),
            _ => None,
        }
    }

    /// Sizes, of a tensor of known rank.
    pub fn dims(&self) -> Option<&[Dim]> {
        match self {
            PortType::Tensor { dims, .. } => dims.as_deref(),
            _ => None,
        }
    }
}

impl Dim {
    fn of(id: ExprId, exprs: &ExprTable) -> Dim {
        if let Some(n) = exprs.as_const(id) {
            return Dim::Fixed(n);
        }
        match exprs.as_symbol(id) {
            Some(symbol) => match exprs.symbols().get(symbol.index()).and_then(|s| s.name.as_ref()) {
                Some(name) => Dim::Named(name.to_string()),
                None => Dim::Shown("?".into()),
            },
            None => Dim::Shown(formula(id, exprs, 4).unwrap_or_else(|| "?".into())),
        }
    }
}

/// The expression with the model's names, if all its symbols have one and it is short.
fn formula(id: ExprId, exprs: &ExprTable, depth: u32) -> Option<String> {
    let expr = exprs.get(id);
    if let Some(n) = exprs.as_const(id) {
        return Some(n.to_string());
    }
    if let Some(symbol) = exprs.as_symbol(id) {
        return exprs.symbols().get(symbol.index())?.name.as_ref().map(|name| name.to_string());
    }
    let depth = depth.checked_sub(1)?;
    let (a, b) = (formula(expr.a?, exprs, depth)?, formula(expr.b?, exprs, depth)?);
    let inner = |text: String| if text.contains(' ') { format!("({text})") } else { text };
    match expr.op {
        ExprOp::Add | ExprOp::Sub | ExprOp::Mul => Some(format!("{} {} {}", inner(a), expr.op.name(), inner(b))),
        ExprOp::Select | ExprOp::Not => None,
        other => Some(format!("{}({a}, {b})", other.name())),
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Named(text) | Dim::Shown(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for PortType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortType::Tensor { dtype, dims: None } => write!(f, "{dtype} of unknown rank"),
            PortType::Tensor { dtype, dims: Some(dims) } => {
                let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
                write!(f, "{dtype} [{}]", dims.join(","))
            }
            PortType::Sequence(item) => write!(f, "sequence of {item}"),
            PortType::Optional(item) => write!(f, "optional {item}"),
            PortType::Map(key, value) => write!(f, "map of {key} to {value}"),
            PortType::Unknown => f.write_str("value of unknown type"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_onnx_writes_them() {
        for (text, shown) in [
            ("tensor(float16)", Some("float16 of unknown rank")),
            ("seq(tensor(int64))", Some("sequence of int64 of unknown rank")),
            ("optional(seq(tensor(string)))", Some("optional sequence of string of unknown rank")),
            ("seq(map(int64,tensor(float)))", Some("sequence of map of int64 to float of unknown rank")),
            ("sparse(float)", None),
            ("tensor(", None),
            ("unknown", None),
        ] {
            assert_eq!(PortType::parse(text).map(|t| t.to_string()).as_deref(), shown, "{text}");
        }
    }
}
