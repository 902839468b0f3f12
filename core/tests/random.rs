//! Random graphs over two to four EPs with random claims give what one EP gives, and the report accounts for every node.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::fake::fake;
use common::model::*;
use common::{floats, view};
use ortolan::{Report, Session, SessionEp, Value};
use ortolan_graph::proto::NodeProto;
use proptest::prelude::*;

const UNARY: &[&str] = &["Relu", "Neg", "Identity"];
const BINARY: &[&str] = &["Add", "Sub", "Mul"];

/// A node: operator, and which earlier values it reads, by fractions of what there is.
#[derive(Clone, Debug)]
struct Node {
    op: &'static str,
    reads: [f64; 2],
    /// It stands in the branches of an If.
    within: bool,
}

/// How one of the EPs behaves.
#[derive(Clone, Debug)]
struct Ep {
    takes: Vec<bool>,
    mode: Mode,
    cost: Option<u32>,
    whole: bool,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Plain,
    InPlace,
    Late,
    Device(&'static str),
}

fn node_strategy() -> impl Strategy<Value = Node> {
    let op = prop_oneof![prop::sample::select(UNARY), prop::sample::select(BINARY)];
    (op, [0.0..1.0f64, 0.0..1.0], prop::bool::weighted(0.15)).prop_map(|(op, reads, within)| Node { op, reads, within })
}

fn ep_strategy(nodes: usize) -> impl Strategy<Value = Ep> {
    let mode = prop_oneof![
        3 => Just(Mode::Plain),
        2 => Just(Mode::InPlace),
        1 => Just(Mode::Late),
        1 => Just(Mode::Device("rand.one")),
        1 => Just(Mode::Device("rand.two")),
    ];
    let takes = prop::collection::vec(prop::bool::weighted(0.6), nodes);
    let cost = prop::option::of(1..100_000u32);
    (takes, mode, cost, prop::bool::weighted(0.2)).prop_map(|(takes, mode, cost, whole)| Ep {
        takes,
        mode,
        cost,
        whole,
    })
}

#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<Node>,
    eps: Vec<Ep>,
    outputs: Vec<f64>,
}

fn case() -> impl Strategy<Value = Case> {
    (3usize..24).prop_flat_map(|n| {
        let nodes = prop::collection::vec(node_strategy(), n);
        let eps = prop::collection::vec(ep_strategy(n), 1..4);
        (nodes, eps, prop::collection::vec(0.0..1.0f64, 1..4)).prop_map(|(nodes, eps, outputs)| Case {
            nodes,
            eps,
            outputs,
        })
    })
}

/// Values that are there from the start: two inputs and two constants.
const START: [&str; 4] = ["x", "w", "y", "k"];

fn plain(node: &Node, reads: &[String], out: &str) -> NodeProto {
    let count = if UNARY.contains(&node.op) { 1 } else { 2 };
    let reads: Vec<&str> = reads[..count].iter().map(String::as_str).collect();
    common::model::node(node.op, &reads, &[out])
}

fn build(case: &Case) -> Vec<u8> {
    let mut values: Vec<String> = START.iter().map(|s| (*s).to_owned()).collect();
    let mut nodes = Vec::new();
    for (at, n) in case.nodes.iter().enumerate() {
        let pick = |f: f64| values[((f * values.len() as f64) as usize).min(values.len() - 1)].clone();
        let (reads, out) = (n.reads.map(pick), format!("v{at}"));
        if n.within {
            let branch = |tag: &str, swap: bool| {
                let inner = format!("{tag}{at}");
                let reads = if swap { [reads[1].clone(), reads[0].clone()] } else { reads.clone() };
                graph([], [], [plain(n, &reads, &inner)], [value(&inner, F32, &["?"])])
            };
            let made = common::model::node("If", &["c"], &[&out]);
            nodes.push(with(made, [body("then_branch", branch("t", false)), body("else_branch", branch("e", true))]));
        } else {
            nodes.push(plain(n, &reads, &out));
        }
        values.push(out);
    }
    let mut outputs: Vec<String> = case
        .outputs
        .iter()
        .map(|f| values[((f * values.len() as f64) as usize).min(values.len() - 1)].clone())
        .collect();
    outputs.push(values[values.len() - 1].clone());
    outputs.sort();
    outputs.dedup();
    model(graph(
        [value("x", F32, &["N"]), value("y", F32, &["N"]), value("c", BOOL, &[])],
        [weights("w", &[1], &[0.5]), weights("k", &[1], &[-2.0])],
        nodes,
        outputs.iter().map(|o| value(o, F32, &["?"])),
    ))
}

fn eps(case: &Case) -> Vec<SessionEp> {
    let mut all = Vec::new();
    for (ep, name) in case.eps.iter().zip(["a", "b", "c"]) {
        let mine = ep.takes.iter().enumerate().filter(|(_, t)| **t);
        let names: Vec<String> = mine
            .flat_map(|(at, _)| {
                let op = case.nodes[at].op;
                [format!("{op}_v{at}"), format!("{op}_t{at}"), format!("{op}_e{at}")]
            })
            .chain(["none".to_owned()])
            .collect();
        let (names, cost) = (names.join(","), ep.cost.map(|c| c.to_string()));
        let mut options = vec![("nodes", names.as_str())];
        options.extend(cost.as_deref().map(|c| ("cost", c)));
        let mut device = 0;
        match ep.mode {
            Mode::Plain => {}
            Mode::InPlace => options.push(("in_place", "1")),
            Mode::Late => options.push(("late", "1")),
            Mode::Device(space) => {
                options.push(("space", space));
                device = 1;
            }
        }
        if ep.whole {
            options.push(("break", "whole"));
        }
        all.push(fake(name, &options).device(device));
    }
    all.push(fake("last", &[("ops", "*"), ("cost", "1000")]));
    all
}

fn account(report: &Report) {
    for n in &report.nodes {
        let placed = n.ep.is_some() || matches!(n.place, "executor" | "constant" | "inside");
        assert!(placed, "{n:?}");
        assert_eq!(n.part.is_some(), n.ep.is_some(), "{n:?}");
        let others = report.eps.iter().filter(|e| Some(e.as_str()) != n.ep.as_deref());
        if n.ep.is_some() {
            let answered: Vec<&str> = n.answers.iter().map(|a| a.ep.as_str()).collect();
            assert_eq!(answered, others.map(String::as_str).collect::<Vec<_>>(), "{n:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn several_eps_give_what_one_gives(case in case()) {
        let model = build(&case);
        let one = Session::builder().eps([fake("one", &[("ops", "*")])]).threads(1).build(model.clone()).unwrap();
        let many = Session::builder().eps(eps(&case)).threads(1).build(model).unwrap();
        account(many.report());
        for (n, c) in [(1i64, true), (5, false), (5, true), (3, false)] {
            let x: Vec<f32> = (0..n).map(|i| i as f32 - 1.5).collect();
            let y = Value::from(x.iter().map(|v| v * 0.25).collect::<Vec<_>>());
            let run = |s: &Session| {
                let out = s.run([("x", view(&[n], &x)), ("y", (&y).into()), ("c", view(&[], &[c]))]).unwrap();
                s.outputs().iter().map(|o| (o.name.clone(), floats(&out, &o.name))).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(&many), run(&one));
        }
        prop_assert_eq!(y_is_kept(&many, &one), true);
    }
}

/// A value that the caller shares is never written.
fn y_is_kept(many: &Session, one: &Session) -> bool {
    let (x, y) = ([1.0f32, 2.0], Value::from(vec![3.0f32, 4.0]));
    for s in [many, one] {
        s.run([("x", view(&[2], &x)), ("y", (&y).into()), ("c", view(&[], &[true]))]).unwrap();
    }
    y.as_slice::<f32>().unwrap() == [3.0, 4.0]
}
