//! Random expressions against a direct evaluation, and random graphs through every form that a graph has.
#![allow(clippy::unwrap_used, reason = "tests")]

use ortolan_graph::ir::{ExprId, ExprTable, Symbol, SymbolKind, UNDEFINED, ValueId};
use ortolan_graph::proto::{
    AttributeProto, DimValue, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, attribute_type, type_proto,
};
use ortolan_graph::{Graph, LoadOptions, load_bytes, text, verify, write};
use proptest::prelude::*;
use prost::Message;

/// Failures are printed small enough to become tests of their own; none is kept in a file.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A way to build a number.
#[derive(Clone, Debug)]
enum Term {
    Number(i64),
    Symbol(usize),
    Two(&'static str, Box<Term>, Box<Term>),
    Select(Box<Term>, Box<Term>, Box<Term>),
}

const SYMBOLS: usize = 3;
const TWO: &[&str] = &["+", "-", "*", "div", "ceildiv", "mod", "min", "max", "eq", "lt", "and", "or", "truncdiv"];

fn term() -> impl Strategy<Value = Term> {
    let leaf = prop_oneof![(-4i64..9).prop_map(Term::Number), (0..SYMBOLS).prop_map(Term::Symbol)];
    leaf.prop_recursive(6, 40, 3, |inner| {
        let two = (proptest::sample::select(TWO), inner.clone(), inner.clone())
            .prop_map(|(op, a, b)| Term::Two(op, Box::new(a), Box::new(b)));
        let select = (inner.clone(), inner.clone(), inner)
            .prop_map(|(c, a, b)| Term::Select(Box::new(c), Box::new(a), Box::new(b)));
        prop_oneof![4 => two, 1 => select]
    })
}

fn build(t: &Term, table: &mut ExprTable, symbols: &[ExprId]) -> ExprId {
    match t {
        Term::Number(v) => table.constant(*v),
        Term::Symbol(s) => symbols[*s],
        Term::Select(c, a, b) => {
            let (c, a, b) = (build(c, table, symbols), build(a, table, symbols), build(b, table, symbols));
            table.select(c, a, b)
        }
        Term::Two(op, a, b) => {
            let (a, b) = (build(a, table, symbols), build(b, table, symbols));
            match *op {
                "+" => table.add(a, b),
                "-" => table.sub(a, b),
                "*" => table.mul(a, b),
                "div" => table.div(a, b),
                "ceildiv" => table.ceil_div(a, b),
                "mod" => table.modulo(a, b),
                "min" => table.min(a, b),
                "max" => table.max(a, b),
                "eq" => table.eq(a, b),
                "lt" => table.lt(a, b),
                "and" => table.and(a, b),
                "or" => table.or(a, b),
                _ => table.trunc_div(a, b),
            }
        }
    }
}

/// The number, or `None` where it has none: a division by zero somewhere.
fn direct(t: &Term, symbols: &[i64]) -> Option<i128> {
    Some(match t {
        Term::Number(v) => (*v).into(),
        Term::Symbol(s) => symbols[*s].into(),
        Term::Select(c, a, b) => {
            let (c, a, b) = (direct(c, symbols)?, direct(a, symbols)?, direct(b, symbols)?);
            if c != 0 { a } else { b }
        }
        Term::Two(op, a, b) => {
            let (a, b) = (direct(a, symbols)?, direct(b, symbols)?);
            let floor = |a: i128, b: i128| (b != 0).then(|| if b > 0 { a.div_euclid(b) } else { (-a).div_euclid(-b) });
            match *op {
                "+" => a + b,
                "-" => a - b,
                "*" => a * b,
                "div" => floor(a, b)?,
                "ceildiv" => -floor(-a, b)?,
                "mod" => a - floor(a, b)? * b,
                "min" => a.min(b),
                "max" => a.max(b),
                "eq" => i128::from(a == b),
                "lt" => i128::from(a < b),
                "and" => i128::from(a != 0 && b != 0),
                "or" => i128::from(a != 0 || b != 0),
                _ => (b != 0).then(|| a / b)?,
            }
        }
    })
}

proptest! {
    #![proptest_config(cases(4_000))]

    /// Simplifying changes no number. Where the direct way divides by zero, or leaves what an `i64` holds, anything goes:
    /// the table may have cancelled the division.
    #[test]
    fn simplified_expressions_are_the_same_numbers(t in term(), values in proptest::collection::vec(0i64..50, SYMBOLS)) {
        let mut table = ExprTable::new();
        let value = ValueId::from_index(0).unwrap();
        let symbols: Vec<ExprId> =
            (0..3).map(|at| table.symbol(Symbol { value, at, kind: SymbolKind::Dim, name: None })).collect();
        let e = build(&t, &mut table, &symbols);
        let mut numbers = Vec::new();
        table.eval(&values, &mut numbers);
        let found = numbers[e.index()];
        if let Some(want) = direct(&t, &values).and_then(|w| i64::try_from(w).ok())
            && found != UNDEFINED
        {
            prop_assert_eq!(found, want, "{}", table.show(e));
            let (lo, hi) = table.bounds(e);
            prop_assert!(lo <= found && found <= hi, "{} is {} outside {}..={}", table.show(e), found, lo, hi);
        }
    }
}

/// One step of a random model: an operator and where its inputs come from, counted back from the newest value.
type Step = (usize, usize, usize);

const OPS: &[(&str, usize)] = &[
    ("Relu", 1),
    ("Add", 2),
    ("Softmax", 1),
    ("Concat", 2),
    ("Transpose", 1),
    ("Shape", 1),
    ("Identity", 1),
    ("Max", 2),
    ("ReduceMax", 1),
    ("Flatten", 1),
    ("If", 1),
    ("Odd", 2),
];

fn value(name: &str, dims: Option<&[&str]>) -> ValueInfoProto {
    let ty = dims.map(|dims| {
        let dim = |d: &&str| Dimension {
            value: Some(d.parse().map_or_else(|_| DimValue::Name((*d).to_owned()), DimValue::Size)),
            denotation: String::new(),
        };
        let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
        let value = Some(type_proto::Value::Tensor(type_proto::Tensor { elem_type: 1, shape }));
        TypeProto { value, denotation: String::new() }
    });
    ValueInfoProto { name: name.to_owned(), r#type: ty, ..Default::default() }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: attribute_type::INT, i, ..Default::default() }
}

/// A graph of the steps. Values are `prefix0`, `prefix1`, …; `outer` may be read, too.
fn graph(steps: &[Step], prefix: &str, outer: &str, depth: usize) -> GraphProto {
    let mut g = GraphProto { name: format!("graph {prefix}"), ..Default::default() };
    let mut names = vec![outer.to_owned()];
    for (i, &(op, a, b)) in steps.iter().enumerate() {
        let (op, count) = OPS[op % OPS.len()];
        let back = |n: usize| names[names.len() - 1 - n % names.len()].clone();
        let made = format!("{prefix}{i}");
        let mut node = NodeProto { op_type: op.to_owned(), output: vec![made.clone()], ..Default::default() };
        node.input = [back(a), back(b)].into_iter().take(count).collect();
        match op {
            "Concat" => node.attribute = vec![int("axis", 0)],
            "ReduceMax" => node.attribute = vec![int("keepdims", 1)],
            "Odd" => (node.domain, node.attribute) = ("odd.ops".to_owned(), vec![int("n", b as i64)]),
            "If" if depth > 0 && i > 0 => {
                node.input = vec!["cond".to_owned()];
                let branch = |name: &str, prefix: String| AttributeProto {
                    name: name.to_owned(),
                    r#type: attribute_type::GRAPH,
                    g: Some(graph(&steps[..i.min(3)], &prefix, &back(a), depth - 1)),
                    ..Default::default()
                };
                node.attribute =
                    vec![branch("else_branch", format!("{made}e")), branch("then_branch", format!("{made}t"))];
            }
            "If" => (node.op_type, node.input) = ("Neg".to_owned(), vec![back(a)]),
            _ => {}
        }
        g.node.push(node);
        names.push(made);
    }
    let last = names.last().unwrap();
    if depth == DEPTH && last != outer {
        g.node.push(NodeProto {
            op_type: "Identity".to_owned(),
            input: vec![last.clone()],
            output: vec!["y".to_owned()],
            ..Default::default()
        });
        g.output = vec![value("y", None)];
    } else {
        g.output = vec![value(last, None)];
    }
    g
}

const DEPTH: usize = 2;

fn model(steps: &[Step]) -> ModelProto {
    let mut g = graph(steps, "v", "x", DEPTH);
    g.input = vec![value("x", Some(&["n", "4", "m"]))];
    let cond =
        TensorProto { name: "cond".to_owned(), data_type: 9, raw_data: Some(vec![1u8].into()), ..Default::default() };
    g.initializer = vec![cond];
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.to_owned(), version };
    ModelProto {
        ir_version: 8,
        graph: Some(g),
        opset_import: vec![opset("", OPSETS[steps.len() % OPSETS.len()]), opset("odd.ops", 1)],
        ..Default::default()
    }
}

const OPSETS: &[i64] = &[11, 13, 17, 18, 21];

fn read(m: &ModelProto) -> Option<Graph> {
    // Random steps may give an operator what it can't take; those models are refused, which is right.
    load_bytes(m.encode_to_vec(), None, &LoadOptions::default()).ok()
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn graphs_come_back_from_every_form(steps in proptest::collection::vec((0usize..12, 0usize..4, 0usize..4), 1..14)) {
        let read = read(&model(&steps));
        prop_assume!(read.is_some());
        let g = read.unwrap();
        verify::verify(&g).unwrap();
        let once = text::to_text(&g);
        let again = text::from_text(&once).map_err(|e| TestCaseError::fail(format!("{e}\n{once}")))?;
        prop_assert_eq!(text::to_text(&again), once);
        // Types are those that inference finds anew.
        let mut inferred = g.clone();
        inferred.infer().unwrap();
        prop_assert_eq!(text::to_text(&inferred), text::to_text(&g));
        let Ok(written) = write::to_model(&g) else { return Ok(()) };
        let back = load_bytes(written.encode_to_vec(), None, &LoadOptions::default())
            .map_err(|e| TestCaseError::fail(format!("{e}\n{}", text::to_text(&g))))?;
        prop_assert_eq!(write::to_model(&back).unwrap(), written);
        let own = ortolan_graph::project::project(&g, g.opsets(), &Default::default()).unwrap();
        verify::verify(&own.graph).unwrap();
        prop_assert!(own.refused.is_empty(), "{:?}", own.refused);
    }
}
