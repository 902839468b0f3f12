//! Table tests of steps, over a real graph with one node in it.
//!
//! `op` is `Name-since` with the number of outputs behind it if that is not 1. Inputs are
//! `dtype[dims]{elements}`, `dtype` alone for an unknown rank, `seq(dtype)`, `_` for one left out; the types of
//! outputs follow a `>`. Attributes are `name=3`, `name=0.5`, `name='text'`, lists of those in brackets, and `{}`
//! for a body; the defaults of the version are filled in.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Form, Upgrade, holds, upgrade};
use crate::error::Result;
use crate::ir::{
    Attr, AttrValue, Body, Constant, DType, Data, ExprId, Graph, GraphId, Known, Symbol, SymbolKind, Type, Value,
    ValueId,
};
use crate::schema::{self, Arity, AttrKind, Param, Schema, TypeId, View};

/// Brings each node to the newest version. The result is printed as nodes in order: `Name(inputs attributes)`, with the
/// version for the node itself, and `> outputs` where others than its own stand; or it is `!` and a part of the error.
pub(super) fn check(rows: &[(&str, &str, &str, &str)]) {
    report(rows, |op, inputs, attrs| {
        let mut cx = Fake::new(op, inputs, attrs);
        let (domain, name, since) = cx.op.clone();
        match upgrade(&mut cx, &domain, &name, since) {
            Ok(form) => {
                let now = form.op.unwrap_or(&name);
                cx.check(now, form, since).unwrap_or_else(|e| panic!("{op} {inputs} {attrs}: {e}"));
                cx.show(now, form.since)
            }
            Err(e) => format!("!{e}"),
        }
    });
}

/// The interval in which each node means the same: `from..to`, without `to` when it is open.
pub(super) fn check_holds(rows: &[(&str, &str, &str, &str)]) {
    report(rows, |op, inputs, attrs| {
        let cx = Fake::new(op, inputs, attrs);
        let (domain, name, since) = &cx.op;
        let found = holds(cx.view(), domain, name, *since);
        let to = if found.to == u32::MAX { String::new() } else { found.to.to_string() };
        format!("{}..{to}", found.from)
    });
}

fn report(rows: &[(&str, &str, &str, &str)], outcome: impl Fn(&str, &str, &str) -> String) {
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

pub(crate) struct Fake {
    pub(super) op: (String, String, u32),
    graph: Graph,
    symbols: BTreeMap<String, ExprId>,
    inputs: Vec<Option<ValueId>>,
    outputs: Vec<Option<ValueId>>,
    own: Vec<Option<ValueId>>,
    attrs: Vec<Attr>,
    before: Vec<(String, ValueId)>,
    after: Vec<(String, ValueId)>,
    temps: u32,
}

impl Fake {
    pub(crate) fn new(op: &str, inputs: &str, attrs: &str) -> Fake {
        let (op, count) = op.split_once(' ').unwrap_or((op, "1"));
        let (domain, op) = op.split_once("::").unwrap_or(("", op));
        let (name, since) = op.rsplit_once('-').unwrap();
        let since = since.parse().unwrap();
        let mut cx = Fake {
            op: (domain.to_owned(), name.to_owned(), since),
            graph: Graph::default(),
            symbols: BTreeMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            own: Vec::new(),
            attrs: attrs.split_whitespace().map(attr).collect(),
            before: Vec::new(),
            after: Vec::new(),
            temps: 0,
        };
        cx.graph.bodies.extend([Body::default(), Body::default()]);
        let (inputs, outputs) = inputs.split_once('>').unwrap_or((inputs, ""));
        for (i, text) in inputs.split_whitespace().enumerate() {
            let value = (text != "_").then(|| cx.typed(&format!("v{i}"), text));
            cx.inputs.push(value);
        }
        let types: Vec<&str> = outputs.split_whitespace().collect();
        for o in 0..count.parse().unwrap() {
            let value = match types.get(o) {
                Some(text) => cx.typed(&format!("y{o}"), text),
                None => cx.value(&format!("y{o}"), None, None),
            };
            cx.outputs.push(Some(value));
        }
        cx.own = cx.outputs.clone();
        schema::check::fill_defaults(cx.schema(), &mut cx.attrs);
        cx
    }

    /// A node of a schema: inputs of the first or the last type of each variable, of one rank (or of none that is known),
    /// the optional ones too if `full`; attributes that it must have.
    pub(super) fn of(schema: Schema<'_>, rank: Option<usize>, last: bool, full: bool) -> Fake {
        let dims = rank.map_or(String::new(), |rank| format!("[{}]", vec!["2"; rank].join(",")));
        let input = |param: Param<'_>| {
            let known = param.types.iter().filter_map(|t| type_text(t, &dims));
            let text = if last { known.last() } else { known.into_iter().next() };
            let count = match param.arity {
                Arity::Single => 1,
                Arity::Optional => usize::from(full),
                Arity::Variadic { min, .. } => usize::from(min) + usize::from(full),
            };
            vec![text.unwrap_or("_".to_owned()); count]
        };
        let inputs: Vec<String> = schema.inputs().flat_map(input).collect();
        let counts = schema.output_counts();
        let outputs = if full { (*counts.end()).min(counts.start() + 2) } else { (*counts.start()).max(1) };
        let attrs = schema.attributes().filter(|a| a.required).map(|a| match a.kind {
            AttrKind::Int => format!("{}=2", a.name),
            AttrKind::Float => format!("{}=2.", a.name),
            AttrKind::Floats => format!("{}=[2.,2.]", a.name),
            AttrKind::Ints => format!("{}=[0]", a.name),
            AttrKind::String => format!("{}='FLOAT'", a.name),
            AttrKind::Strings => format!("{}=['a']", a.name),
            AttrKind::Graph => format!("{}={{}}", a.name),
            _ => format!("{}=tensor", a.name),
        });
        let attrs: Vec<String> = attrs.collect();
        let op = format!("{}::{}-{} {outputs}", schema.domain(), schema.name(), schema.since());
        Fake::new(&op, &inputs.join(" "), &attrs.join(" "))
    }

    pub(crate) fn schema(&self) -> Schema<'static> {
        schema::exact(&self.op.0, &self.op.1, self.op.2).unwrap_or_else(|| panic!("no {:?}", self.op))
    }

    fn value(&mut self, name: &str, ty: Option<Type>, known: Known) -> ValueId {
        let id = ValueId::next(self.graph.values.len()).unwrap();
        self.graph.values.push(Value {
            name: name.into(),
            ty,
            graph: GraphId::MAIN,
            producer: None,
            constant: None,
            default: None,
            known,
            whole: None,
            const_expr: false,
        });
        id
    }

    fn typed(&mut self, name: &str, text: &str) -> ValueId {
        let (text, elements) = text.split_once('{').map_or((text, None), |(t, e)| (t, Some(e.trim_end_matches('}'))));
        let ty = self.ty(text);
        let id = self.value(name, Some(ty.clone()), None);
        let Some(elements) = elements else { return id };
        let dtype = ty.as_tensor().unwrap().dtype;
        let numbers: Vec<f64> = elements.split(',').map(|e| e.parse().unwrap()).collect();
        let bytes: Vec<u8> = match dtype {
            DType::F32 => numbers.iter().flat_map(|n| (*n as f32).to_le_bytes()).collect(),
            _ => numbers.iter().flat_map(|n| (*n as i64).to_le_bytes()).collect(),
        };
        self.give(id, dtype, &[i64::try_from(numbers.len()).unwrap()], &bytes);
        id
    }

    fn ty(&mut self, text: &str) -> Type {
        let inner = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(')');
        if let Some(item) = inner("seq(") {
            return Type::Sequence(Arc::new(self.ty(item)));
        }
        if let Some(item) = inner("optional(") {
            return Type::Optional(Arc::new(self.ty(item)));
        }
        let dtype = |name: &str| DType::from_name(name).unwrap_or_else(|| panic!("{name}"));
        let Some((name, dims)) = text.split_once('[') else { return Type::unranked(dtype(text)) };
        let dims = dims.trim_end_matches(']').split(',').filter(|d| !d.is_empty());
        let dims: Vec<ExprId> = dims.map(|d| self.dim(d)).collect();
        Type::tensor(dtype(name), dims)
    }

    fn dim(&mut self, text: &str) -> ExprId {
        if let Ok(number) = text.parse() {
            return self.graph.exprs.constant(number);
        }
        if let Some(found) = self.symbols.get(text) {
            return *found;
        }
        let at = u32::try_from(self.symbols.len()).unwrap();
        let value = ValueId::from_index(0).unwrap();
        let id = self.graph.exprs.symbol(Symbol { value, at, kind: SymbolKind::Dim, name: Some(text.into()) });
        self.symbols.insert(text.to_owned(), id);
        id
    }

    fn give(&mut self, value: ValueId, dtype: DType, dims: &[i64], bytes: &[u8]) {
        let id = crate::ir::ConstId::next(self.graph.constants.len()).unwrap();
        self.graph.constants.push(Constant { id, dtype, dims: dims.into(), data: Data::copied(bytes) });
        self.graph.values[value.index()].constant = Some(id);
    }

    fn temp(&mut self) -> ValueId {
        let name = format!("t{}", self.temps);
        self.temps += 1;
        self.value(&name, None, None)
    }

    fn call(&self, op: &str, inputs: &[Option<ValueId>], attrs: &[(&str, &AttrValue)]) -> String {
        let inputs: Vec<String> = inputs.iter().map(|v| self.show_value(*v)).collect();
        let mut attrs: Vec<String> = attrs.iter().map(|(name, value)| format!("{name}={}", show_attr(value))).collect();
        attrs.sort();
        let gap = if inputs.is_empty() || attrs.is_empty() { "" } else { " " };
        format!("{op}({}{gap}{})", inputs.join(", "), attrs.join(" "))
    }

    fn show_value(&self, value: Option<ValueId>) -> String {
        let Some(value) = value.map(|id| self.graph.value(id)) else { return "_".to_owned() };
        let Some(constant) = value.constant.filter(|_| value.name.is_empty()) else { return value.name.to_string() };
        let constant = self.graph.constant(constant);
        let list = match constant.dtype {
            DType::I64 => constant.ints(64).unwrap().iter().map(i64::to_string).collect::<Vec<_>>().join(","),
            DType::F16 => format!("{:x}", u16::from_le_bytes(constant.bytes().try_into().unwrap())),
            _ => constant.floats(64).unwrap().iter().map(f64::to_string).collect::<Vec<_>>().join(","),
        };
        match constant.dtype {
            _ if !constant.dims.is_empty() => format!("[{list}]"),
            DType::F32 => list,
            other => format!("{other} {list}"),
        }
    }

    /// What must be true of an upgraded node: it keeps to its schema, and it leads back to the version in which it stood
    /// unless the form of the file is said to be worth keeping.
    pub(super) fn check(&self, op: &str, form: Form, stood: u32) -> Result<(), String> {
        let domain = &self.op.0;
        let schema = schema::exact(domain, op, form.since).ok_or("no such version")?;
        let mut attrs = self.attrs.clone();
        schema::check::fill_defaults(schema, &mut attrs);
        let node = View { attrs: &attrs, ..self.view() };
        schema::check::check(schema, node).map_err(|e| e.to_string())?;
        let holds = holds(node, domain, op, form.since);
        if form.changed || holds.at(stood) { Ok(()) } else { Err(format!("{holds:?} does not lead back")) }
    }

    fn show(&self, op: &str, since: u32) -> String {
        let attrs: Vec<_> = self.attrs.iter().map(|a| (&*a.name, &a.value)).collect();
        let names: Vec<String> = self.outputs.iter().map(|o| self.show_value(*o)).collect();
        let own = if self.outputs == self.own { String::new() } else { format!(" > {}", names.join(",")) };
        let node = self.call(&format!("{op}-{since}"), &self.inputs, &attrs) + &own;
        let before = self.before.iter().map(|(text, out)| format!("{text} > {}", self.show_value(Some(*out))));
        let after = self.after.iter().map(|(text, out)| match self.own.contains(&Some(*out)) {
            true => text.clone(),
            false => format!("{text} > {}", self.show_value(Some(*out))),
        });
        before.chain([node]).chain(after).collect::<Vec<_>>().join("; ")
    }
}

impl Upgrade for Fake {
    fn view(&self) -> View<'_> {
        View { graph: &self.graph, inputs: &self.inputs, outputs: &self.outputs, attrs: &self.attrs }
    }

    fn set_input(&mut self, index: usize, value: Option<ValueId>) {
        if self.inputs.len() <= index {
            self.inputs.resize(index + 1, None);
        }
        self.inputs[index] = value;
        self.inputs.truncate(self.view().input_count());
    }

    fn set_attr(&mut self, name: &str, value: AttrValue) {
        self.remove_attr(name);
        self.attrs.push(Attr { name: name.into(), value });
    }

    fn rename_attr(&mut self, from: &str, to: &str) {
        for attr in self.attrs.iter_mut().filter(|a| &*a.name == from) {
            attr.name = to.into();
        }
    }

    fn remove_attr(&mut self, name: &str) {
        self.attrs.retain(|a| &*a.name != name);
    }

    fn constant(&mut self, dtype: DType, dims: &[i64], bytes: &[u8]) -> Result<ValueId> {
        let dims_of: Vec<ExprId> = dims.iter().map(|d| self.graph.exprs.constant(*d)).collect();
        let id = self.value("", Some(Type::tensor(dtype, dims_of)), None);
        self.give(id, dtype, dims, bytes);
        Ok(id)
    }

    fn before(
        &mut self,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<ValueId> {
        let attrs: Vec<_> = attrs.iter().map(|(name, value)| (*name, value)).collect();
        let text = self.call(op, inputs, &attrs);
        let out = self.temp();
        self.before.push((text, out));
        Ok(out)
    }

    fn after(
        &mut self,
        output: usize,
        op: &'static str,
        inputs: &[Option<ValueId>],
        attrs: &[(&'static str, AttrValue)],
    ) -> Result<()> {
        let Some(own) = self.own.get(output).copied().flatten() else { return Ok(()) };
        let made = self.temp();
        match self.after.iter_mut().find(|(_, out)| *out == own) {
            Some(last) => last.1 = made,
            None => self.outputs[output] = Some(made),
        }
        let inputs: Vec<_> = [Some(made)].into_iter().chain(inputs.iter().copied()).collect();
        let attrs: Vec<_> = attrs.iter().map(|(name, value)| (*name, value)).collect();
        let text = self.call(op, &inputs, &attrs);
        self.after.push((text, own));
        Ok(())
    }
}

fn type_text(ty: TypeId, dims: &str) -> Option<String> {
    if let Some(dtype) = ty.dtype() {
        return DType::from_number(dtype).map(|dtype| format!("{dtype}{dims}"));
    }
    let item = type_text(ty.item()?, "")?;
    let word = if ty.item()?.optional() == Some(ty) { "optional" } else { "seq" };
    Some(format!("{word}({item})"))
}

fn attr(text: &str) -> Attr {
    let (name, value) = text.split_once('=').unwrap();
    let items = |list: &str| list.split(',').filter(|i| !i.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let word = |text: &str| Bytes::copy_from_slice(text.trim_matches('\'').as_bytes());
    let value = match value.strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
        Some(list) if list.contains('\'') => AttrValue::Strings(items(list).iter().map(|i| word(i)).collect()),
        Some(list) if list.contains('.') => AttrValue::Floats(items(list).iter().map(|i| i.parse().unwrap()).collect()),
        Some(list) => AttrValue::Ints(items(list).iter().map(|i| i.parse().unwrap()).collect()),
        None if value == "tensor" => AttrValue::Tensor(crate::ir::ConstId::from_index(0).unwrap()),
        None if value == "{}" => AttrValue::Graph(GraphId::from_index(1).unwrap()),
        None if value.contains('\'') => AttrValue::String(word(value)),
        None if value.contains('.') => AttrValue::Float(value.parse().unwrap()),
        None => AttrValue::Int(value.parse().unwrap()),
    };
    Attr { name: name.into(), value }
}

fn show_attr(value: &AttrValue) -> String {
    let join = |items: Vec<String>| format!("[{}]", items.join(","));
    let word = |text: &Bytes| format!("'{}'", String::from_utf8_lossy(text));
    match value {
        AttrValue::Int(n) => n.to_string(),
        AttrValue::Float(n) => n.to_string(),
        AttrValue::String(text) => word(text),
        AttrValue::Ints(list) => join(list.iter().map(i64::to_string).collect()),
        AttrValue::Floats(list) => join(list.iter().map(f32::to_string).collect()),
        AttrValue::Strings(list) => join(list.iter().map(word).collect()),
        AttrValue::Graph(_) => "{}".to_owned(),
        other => other.kind_name().to_owned(),
    }
}
