//! Table tests of rules: one row is operator, inputs, attributes, and outputs or `!` and a part of the error.
//!
//! An input is `dtype[dims]{elements}`, `dtype` alone for an unknown rank, `_` for one left out; dims and
//! elements are numbers or names of symbols. Attributes are `name=3`, `name=0.5`, `name='text'`,
//! `name=[1,2]`. Outputs are printed the same way, with symbols by name and others as `?`.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::{find, infer};
use crate::ir::{
    Attr, AttrValue, Body, Constant, DType, Data, ExprId, Graph, GraphId, Holds, Node, NodeId, Symbol, SymbolKind,
    Type, Value, ValueId,
};

/// Checks every row and reports all that fail.
pub(crate) fn check(rows: &[(&str, &str, &str, &str)]) {
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|&(op, inputs, attrs, want)| {
            let found = outcome(op, inputs, attrs);
            let good = match want.strip_prefix('!') {
                Some(part) => found.starts_with('!') && found.contains(part),
                None => found == want,
            };
            (!good).then(|| format!("{op} {inputs} {attrs}\n    want  {want}\n    found {found}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// The outputs as text, or `!` and the error.
pub(crate) fn outcome(op: &str, inputs: &str, attrs: &str) -> String {
    let mut t = Test::default();
    let (domain, name) = op.split_once("::").unwrap_or(("", op));
    t.graph.bodies.push(Body::default());
    let inputs: SmallVec<[Option<ValueId>; 4]> = words(inputs).iter().map(|i| t.input(i)).collect();
    let def = find(domain, name).unwrap_or_else(|| panic!("no rule for {op}"));
    let outputs = (0..8).map(|_| Some(t.value(None))).collect();
    let attrs = words(attrs).iter().map(|a| t.attr(a)).collect();
    t.graph.nodes.push(Node {
        op: name.into(),
        domain: domain.into(),
        name: "".into(),
        since: 1,
        holds: Holds::ALWAYS,
        def: Some(def),
        graph: GraphId::MAIN,
        inputs,
        outputs,
        attrs,
        origin: None,
        stands_for: None,
    });
    match infer::run(&mut t.graph, NodeId::from_index(0).unwrap()) {
        Err(e) => format!("!{e}"),
        Ok(outs) => {
            let shown: Vec<String> = outs.iter().map(|o| t.show(o)).collect();
            let last = shown.iter().rposition(|s| s != "?").map_or(0, |p| p + 1);
            shown[..last].join(" ")
        }
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[derive(Default)]
struct Test {
    graph: Graph,
    symbols: BTreeMap<String, ExprId>,
}

impl Test {
    fn value(&mut self, ty: Option<Type>) -> ValueId {
        let id = ValueId::next(self.graph.values.len()).unwrap();
        self.graph.values.push(Value {
            name: format!("v{}", id.raw()).into(),
            ty,
            graph: GraphId::MAIN,
            producer: None,
            constant: None,
            default: None,
            known: None,
            whole: None,
            const_expr: false,
        });
        id
    }

    fn input(&mut self, text: &str) -> Option<ValueId> {
        if text == "_" {
            return None;
        }
        let (ty, known) = match text.split_once('{') {
            Some((ty, known)) => (ty, Some(known.trim_end_matches('}'))),
            None => (text, None),
        };
        let id = self.value(None);
        let ty = match ty.split_once('[') {
            None => Type::unranked(DType::from_name(ty).unwrap_or_else(|| panic!("{ty}"))),
            Some((dtype, dims)) => {
                let dtype = DType::from_name(dtype).unwrap_or_else(|| panic!("{dtype}"));
                let dims = self.exprs(dims.trim_end_matches(']'), SymbolKind::Dim);
                Type::tensor(dtype, dims)
            }
        };
        let known = known.map(|k| self.exprs(k, SymbolKind::Element));
        if let (Some(known), Type::Tensor(t)) = (&known, &ty) {
            self.constant(id, t.dtype, known, t.dims.clone().unwrap_or_default().to_vec());
        }
        let value = &mut self.graph.values[id.index()];
        (value.ty, value.known) = (Some(ty), known.map(Into::into));
        Some(id)
    }

    /// Elements that are all numbers make the input a constant, as in a model.
    fn constant(&mut self, value: ValueId, dtype: DType, known: &[ExprId], dims: Vec<ExprId>) {
        let numbers = |t: &Graph, es: &[ExprId]| es.iter().map(|&e| t.exprs.as_const(e)).collect::<Option<Vec<i64>>>();
        let (Some(ints), Some(dims)) = (numbers(&self.graph, known), numbers(&self.graph, &dims)) else { return };
        let bytes: Vec<u8> = match dtype {
            DType::I64 => ints.iter().flat_map(|v| v.to_le_bytes()).collect(),
            DType::I32 => ints.iter().flat_map(|&v| i32::try_from(v).unwrap().to_le_bytes()).collect(),
            _ => return,
        };
        let id = crate::ir::ConstId::next(self.graph.constants.len()).unwrap();
        self.graph.constants.push(Constant { id, dtype, dims: dims.into(), data: Data::copied(&bytes) });
        self.graph.values[value.index()].constant = Some(id);
    }

    fn exprs(&mut self, list: &str, kind: SymbolKind) -> Vec<ExprId> {
        list.split(',').filter(|d| !d.is_empty()).map(|d| self.expr(d, kind)).collect()
    }

    fn expr(&mut self, text: &str, kind: SymbolKind) -> ExprId {
        if let Ok(v) = text.parse() {
            return self.graph.exprs.constant(v);
        }
        if let Some(&e) = self.symbols.get(text) {
            return e;
        }
        let value = ValueId::from_index(0).unwrap();
        let symbol = Symbol { value, at: 0, kind, name: Some(text.into()) };
        let e = self.graph.exprs.symbol(symbol);
        self.symbols.insert(text.to_owned(), e);
        e
    }

    fn attr(&mut self, text: &str) -> Attr {
        let (name, v) = text.split_once('=').unwrap_or_else(|| panic!("{text}"));
        let list = v.strip_prefix('[').and_then(|v| v.strip_suffix(']'));
        let value = if let Some(t) = v.strip_prefix('\'') {
            AttrValue::text(t.trim_end_matches('\''))
        } else if let Some(list) = list {
            let parts: Vec<&str> = list.split(',').filter(|p| !p.is_empty()).collect();
            match parts.iter().map(|p| p.parse()).collect::<Result<Vec<i64>, _>>() {
                Ok(ints) => AttrValue::ints(&ints),
                Err(_) => AttrValue::Floats(parts.iter().map(|p| p.parse().unwrap()).collect()),
            }
        } else if let Ok(i) = v.parse() {
            AttrValue::Int(i)
        } else {
            AttrValue::Float(v.parse().unwrap_or_else(|_| panic!("{v}")))
        };
        Attr { name: name.into(), value }
    }

    fn show(&self, out: &infer::Inferred) -> String {
        let exprs = |es: &[ExprId]| es.iter().map(|&e| self.show_expr(e)).collect::<Vec<_>>().join(",");
        let ty = match &out.ty {
            None => return "?".to_owned(),
            Some(Type::Tensor(t)) => match &t.dims {
                Some(d) => format!("{}[{}]", t.dtype, exprs(d)),
                None => t.dtype.to_string(),
            },
            Some(other) => other.kind_name(),
        };
        match &out.known {
            Some(k) => format!("{ty}{{{}}}", exprs(k)),
            None => ty,
        }
    }

    fn show_expr(&self, e: ExprId) -> String {
        let mut text = self.graph.exprs.show(e).to_string();
        for (i, s) in self.graph.exprs.symbols().iter().enumerate().rev() {
            text = text.replace(&format!("s{i}"), s.name.as_deref().unwrap_or("?"));
        }
        text
    }
}
