//! How the symbols of a graph follow from the shapes of a run's inputs.

use ortolan_graph::Graph;
use ortolan_graph::ir::{DType, ExprId, ExprTable, Name, SymbolKind, Type, ValueId};

use crate::value::Value;

/// What a run's input must be.
#[derive(Debug)]
pub(crate) struct InputRule {
    pub name: Name,
    /// Its type; a value of an unknown one is not checked.
    pub ty: Option<Type>,
    /// Element type of a tensor; `None` for other kinds.
    pub dtype: Option<DType>,
    /// Its dims; `None` if not even the rank is fixed.
    pub dims: Option<Box<[DimRule]>>,
    /// Symbols that are elements of it, by element.
    pub elements: Box<[(u32, u32)]>,
    /// It may be left out because it has a default.
    pub has_default: bool,
}

/// What a dim must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DimRule {
    Fixed(i64),
    /// It is the number of this symbol; all that are must be equal.
    Symbol(u32),
    Any,
}

/// The rules of all inputs.
#[derive(Debug)]
pub(crate) struct Binder {
    pub inputs: Box<[InputRule]>,
    /// Number of symbols.
    pub symbols: usize,
    /// Some symbols are known only after a step has run.
    pub late: bool,
    /// Numbers that are compared from run to run.
    pub compared: usize,
    /// What must not be 0 once the inputs are bound, and the node and words for the error.
    pub assumptions: Box<[(ExprId, String)]>,
    /// The graph's expressions; empty when nothing is assumed.
    pub exprs: ExprTable,
}

impl Binder {
    pub fn new(graph: &Graph, symbols: usize) -> Binder {
        let inputs: Box<[InputRule]> = graph.main().inputs.iter().map(|&v| rule(graph, v)).collect();
        let late = graph.exprs().symbols().iter().any(|s| !graph.main().inputs.contains(&s.value));
        let compared = inputs.iter().map(|i| i.dims.as_ref().map_or(0, |d| d.len()) + i.elements.len()).sum();
        let assumption =
            |a: &ortolan_graph::ir::Assumption| (a.holds, format!("{}: {}", graph.node(a.node).place(graph), a.what));
        Binder {
            inputs,
            symbols: symbols.max(graph.exprs().symbols().len()),
            late,
            compared,
            assumptions: graph.assumptions().iter().map(assumption).collect(),
            exprs: if graph.assumptions().is_empty() { ExprTable::new() } else { graph.exprs().clone() },
        }
    }
}

fn rule(graph: &Graph, value: ValueId) -> InputRule {
    let v = graph.value(value);
    let tensor = v.ty.as_ref().and_then(Type::as_tensor);
    let dim = |e: &ExprId| match (graph.exprs().as_const(*e), graph.exprs().as_symbol(*e)) {
        (Some(n), _) => DimRule::Fixed(n),
        (_, Some(s)) => DimRule::Symbol(s.raw()),
        _ => DimRule::Any,
    };
    let symbols = graph.exprs().symbols().iter().zip(0u32..);
    let elements = symbols
        .filter(|(s, _)| s.value == value && s.kind == SymbolKind::Element)
        .map(|(s, number)| (number, s.at))
        .collect();
    InputRule {
        name: v.name.clone(),
        dtype: tensor.map(|t| t.dtype),
        dims: tensor.and_then(|t| t.dims.as_ref()).map(|dims| dims.iter().map(dim).collect()),
        elements,
        has_default: v.default.is_some(),
        ty: v.ty.clone(),
    }
}

/// Whether a value is of a type, as far as the type says.
pub(crate) fn fits(value: &Value, ty: &Type) -> bool {
    match (value, ty) {
        (_, Type::Unknown) => true,
        (Value::Tensor(v), Type::Tensor(t)) => v.dtype() == t.dtype && t.rank().is_none_or(|r| r == v.shape().len()),
        (Value::Sequence(v), Type::Sequence(t)) => v.iter().all(|v| fits(v, t)),
        (Value::Optional(v), Type::Optional(t)) => v.as_ref().is_none_or(|v| fits(v, t)),
        (Value::Map(v), Type::Map(key, t)) => {
            let values = match (&v.values, &**t) {
                (Value::Sequence(all), _) => all.iter().all(|v| fits(v, t)),
                (Value::Tensor(v), Type::Tensor(t)) => v.dtype() == t.dtype,
                _ => false,
            };
            v.keys.dtype() == *key && values
        }
        _ => false,
    }
}
