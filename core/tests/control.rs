//! If, Loop and Scan over one and two EPs: captured values, zero trips, growing values, other axes and directions.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::fake::fake;
use common::model::*;
use common::{floats, view};
use ortolan::{Outputs, Session};
use ortolan_graph::proto::GraphProto;

/// The model on one EP, and on two that take turns.
fn everywhere(model: &[u8], check: impl Fn(&Session)) {
    for eps in [
        vec![fake("one", &[("ops", "*")])],
        vec![fake("a", &[("ops", "Add,Less,Concat")]), fake("b", &[("ops", "*")])],
        vec![fake("dev", &[("ops", "Mul,Neg,Add"), ("space", "dev.ctl")]).device(1), fake("b", &[("ops", "*")])],
    ] {
        let s = Session::builder().eps(eps).threads(1).build(model.to_vec()).unwrap();
        // Twice: nothing may be left of the first run.
        check(&s);
        check(&s);
    }
}

fn longs_of(out: &Outputs, name: &str) -> Vec<i64> {
    out.get(name).unwrap().as_slice::<i64>().unwrap().to_vec()
}

fn body_graph(
    inputs: Vec<ortolan_graph::proto::ValueInfoProto>,
    nodes: Vec<ortolan_graph::proto::NodeProto>,
    outputs: Vec<ortolan_graph::proto::ValueInfoProto>,
) -> GraphProto {
    graph(inputs, [], nodes, outputs)
}

#[test]
fn a_branch_reads_what_stands_around_it() {
    let then = body_graph(vec![], vec![node("Mul", &["x", "s"], &["t"])], vec![value("t", F32, &["N"])]);
    let els = body_graph(
        vec![],
        vec![node("Neg", &["s"], &["e0"]), node("Add", &["e0", "k"], &["e"])],
        vec![value("e", F32, &["N"])],
    );
    let m = model(graph(
        [value("x", F32, &["N"]), value("c", BOOL, &[])],
        [weights("k", &[1], &[10.0])],
        [
            node("Add", &["x", "x"], &["s"]),
            with(node("If", &["c"], &["y0"]), [body("then_branch", then), body("else_branch", els)]),
            node("Relu", &["y0"], &["y"]),
        ],
        [value("y", F32, &["N"])],
    ));
    everywhere(&m, |s| {
        let run = |c: bool| floats(&s.run([("x", view(&[2], &[1.0f32, -3.0])), ("c", view(&[], &[c]))]).unwrap(), "y");
        assert_eq!((run(true), run(false), run(true)), (vec![2.0, 18.0], vec![8.0, 16.0], vec![2.0, 18.0]));
        let control = s.report().nodes.iter().find(|n| n.op == "If").unwrap();
        assert_eq!(control.place, "executor");
    });
}

#[test]
fn a_branch_may_hand_out_outer_values_constants_and_one_value_twice() {
    let then =
        body_graph(vec![], vec![node("Neg", &["x"], &["n"])], vec![value("n", F32, &["N"]), value("n", F32, &["N"])]);
    let mut els = body_graph(vec![], vec![], vec![value("x", F32, &["N"]), value("k", F32, &["2"])]);
    els.initializer.push(weights("k", &[2], &[5.0, 6.0]));
    let m = model(graph(
        [value("x", F32, &["N"]), value("c", BOOL, &[])],
        [],
        [with(node("If", &["c"], &["y", "z"]), [body("then_branch", then), body("else_branch", els)])],
        [value("y", F32, &["?"]), value("z", F32, &["?"])],
    ));
    everywhere(&m, |s| {
        let run = |c: bool| {
            let out = s.run([("x", view(&[2], &[1.0f32, -3.0])), ("c", view(&[], &[c]))]).unwrap();
            (floats(&out, "y"), floats(&out, "z"))
        };
        assert_eq!(run(true), (vec![-1.0, 3.0], vec![-1.0, 3.0]));
        assert_eq!(run(false), (vec![1.0, -3.0], vec![5.0, 6.0]));
    });
}

/// y = x + n, n times while y < limit; `all` grows by each y, `each` stacks them.
fn counting() -> Vec<u8> {
    let inside = body_graph(
        vec![value("i", I64, &[]), value("go", BOOL, &[]), value("v", F32, &[]), value("all", F32, &["A"])],
        vec![
            node("Add", &["v", "step"], &["v1"]),
            node("Less", &["v1", "limit"], &["more"]),
            node("Add", &["v1", "flat"], &["row"]),
            with(node("Concat", &["all", "row"], &["all1"]), [int("axis", 0)]),
            node("Add", &["i", "i"], &["twice"]),
        ],
        vec![
            value("more", BOOL, &[]),
            value("v1", F32, &[]),
            value("all1", F32, &["?"]),
            value("row", F32, &["1"]),
            value("twice", I64, &[]),
        ],
    );
    model(graph(
        [value("m", I64, &[]), value("x", F32, &[]), value("limit", F32, &[]), value("start", F32, &["S"])],
        [weights("step", &[], &[1.5]), weights("flat", &[1], &[0.0])],
        [with(node("Loop", &["m", "", "x", "start"], &["y", "grown", "each", "ints"]), [body("body", inside)])],
        [
            value("y", F32, &[]),
            value("grown", F32, &["?"]),
            value("each", F32, &["?", "1"]),
            value("ints", I64, &["?"]),
        ],
    ))
}

#[test]
fn a_loop_carries_grows_and_stacks() {
    everywhere(&counting(), |s| {
        let run = |m: i64, limit: f32| {
            let (m, limit) = ([m], [limit]);
            let inputs = [
                ("m", view(&[], &m)),
                ("x", view(&[], &[1.0f32])),
                ("limit", view(&[], &limit)),
                ("start", view(&[1], &[9.0f32])),
            ];
            let out = s.run(inputs).unwrap();
            let shape = out.get("each").unwrap().shape().to_vec();
            (floats(&out, "y"), floats(&out, "grown"), floats(&out, "each"), shape, longs_of(&out, "ints"))
        };
        let grown = vec![9.0, 2.5, 4.0, 5.5];
        assert_eq!(run(3, 100.0), (vec![5.5], grown.clone(), grown[1..].to_vec(), vec![3, 1], vec![0, 2, 4]));
        assert_eq!(run(50, 5.0), (vec![5.5], grown.clone(), grown[1..].to_vec(), vec![3, 1], vec![0, 2, 4]));
        assert_eq!(run(0, 100.0), (vec![1.0], vec![9.0], vec![], vec![0, 1], vec![]));
        assert_eq!(run(-4, 100.0), (vec![1.0], vec![9.0], vec![], vec![0, 1], vec![]));
    });
}

/// What is stacked grows from trip to trip, which no type could have said before the run.
#[test]
fn rows_of_different_shapes_cannot_be_stacked() {
    let inside = body_graph(
        vec![value("i", I64, &[]), value("go", BOOL, &[]), value("all", F32, &["A"])],
        vec![with(node("Concat", &["all", "x"], &["all1"]), [int("axis", 0)])],
        vec![value("go", BOOL, &[]), value("all1", F32, &["?"]), value("all1", F32, &["?"])],
    );
    let m = model(graph(
        [value("m", I64, &[]), value("x", F32, &["N"])],
        [],
        [with(node("Loop", &["m", "", "x"], &["last", "each"]), [body("body", inside)])],
        [value("last", F32, &["?"]), value("each", F32, &["?", "?"])],
    ));
    everywhere(&m, |s| {
        let run = |m: i64| s.run([("m", view(&[], &[m])), ("x", view(&[1], &[2.0f32]))]);
        assert_eq!(floats(&run(1).unwrap(), "each"), [2.0, 2.0]);
        let error = run(2).unwrap_err();
        assert!(error.code() == "data" && error.to_string().contains("'all1'"), "{error}");
    });
}

#[test]
fn a_loop_may_swap_its_values_and_hand_on_outer_ones() {
    let inside = body_graph(
        vec![
            value("i", I64, &[]),
            value("go", BOOL, &[]),
            value("a", F32, &["N"]),
            value("b", F32, &["N"]),
            value("c", F32, &["N"]),
        ],
        vec![],
        vec![value("go", BOOL, &[]), value("b", F32, &["N"]), value("a", F32, &["N"]), value("x", F32, &["N"])],
    );
    let m = model(graph(
        [value("m", I64, &[]), value("x", F32, &["N"]), value("w", F32, &["N"])],
        [],
        [with(node("Loop", &["m", "", "x", "w", "w"], &["p", "q", "r"]), [body("body", inside)])],
        [value("p", F32, &["N"]), value("q", F32, &["N"]), value("r", F32, &["N"])],
    ));
    everywhere(&m, |s| {
        let run = |m: i64| {
            let out =
                s.run([("m", view(&[], &[m])), ("x", view(&[1], &[1.0f32])), ("w", view(&[1], &[2.0f32]))]).unwrap();
            ["p", "q", "r"].map(|n| floats(&out, n)[0])
        };
        assert_eq!(
            [run(0), run(1), run(2), run(3)],
            [[1.0, 2.0, 2.0], [2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [2.0, 1.0, 1.0]]
        );
    });
}

#[test]
fn loops_nest_and_read_through_two_graphs() {
    let inner = body_graph(
        vec![value("j", I64, &[]), value("g2", BOOL, &[]), value("u", F32, &["N"])],
        vec![node("Add", &["u", "x"], &["u1"])],
        vec![value("g2", BOOL, &[]), value("u1", F32, &["N"])],
    );
    let outer = body_graph(
        vec![value("i", I64, &[]), value("g", BOOL, &[]), value("v", F32, &["N"])],
        vec![with(node("Loop", &["i", "", "v"], &["v1"]), [body("body", inner)]), node("Neg", &["v1"], &["v2"])],
        vec![value("g", BOOL, &[]), value("v2", F32, &["N"])],
    );
    let m = model(graph(
        [value("m", I64, &[]), value("x", F32, &["N"])],
        [],
        [with(node("Loop", &["m", "", "x"], &["y"]), [body("body", outer)])],
        [value("y", F32, &["N"])],
    ));
    everywhere(&m, |s| {
        let run = |m: i64| floats(&s.run([("m", view(&[], &[m])), ("x", view(&[1], &[1.0f32]))]).unwrap(), "y")[0];
        // -(v + i) from i = 0.
        assert_eq!([run(0), run(1), run(2), run(3), run(4)], [1.0, -1.0, 0.0, -2.0, -1.0]);
    });
}

fn scan(attrs: Vec<ortolan_graph::proto::AttributeProto>, ys: &[&str]) -> Vec<u8> {
    let inside = body_graph(
        vec![value("s", F32, &["2"]), value("r", F32, &["2"])],
        vec![node("Add", &["s", "r"], &["s1"]), node("Neg", &["s1"], &["o"])],
        vec![value("s1", F32, &["2"]), value("o", F32, &["2"])],
    );
    let attrs = [int("num_scan_inputs", 1), body("body", inside)].into_iter().chain(attrs);
    model(graph(
        [value("init", F32, &["2"]), value("x", F32, &["R", "C"])],
        [],
        [with(node("Scan", &["init", "x"], &["last", "ys"]), attrs)],
        [value("last", F32, &["2"]), value("ys", F32, ys)],
    ))
}

#[test]
fn a_scan_walks_rows_on_any_axis_in_both_directions() {
    let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let run = |s: &Session, shape: &[i64]| {
        let out = s.run([("init", view(&[2], &[0.0f32, 10.0])), ("x", view(shape, &x))]).unwrap();
        (floats(&out, "last"), floats(&out, "ys"), out.get("ys").unwrap().shape().to_vec())
    };
    everywhere(&scan(vec![], &["?", "2"]), |s| {
        let (last, ys) = (vec![9.0, 22.0], vec![-1.0, -12.0, -4.0, -16.0, -9.0, -22.0]);
        assert_eq!(run(s, &[3, 2]), (last, ys, vec![3, 2]));
    });
    let back = vec![ints("scan_input_directions", &[1]), ints("scan_output_directions", &[1])];
    everywhere(&scan(back, &["?", "2"]), |s| {
        let (last, ys) = (vec![9.0, 22.0], vec![-9.0, -22.0, -8.0, -20.0, -5.0, -16.0]);
        assert_eq!(run(s, &[3, 2]), (last, ys, vec![3, 2]));
    });
    let columns = vec![ints("scan_input_axes", &[1]), ints("scan_output_axes", &[-1])];
    everywhere(&scan(columns, &["2", "?"]), |s| {
        let (last, ys) = (vec![6.0, 25.0], vec![-1.0, -3.0, -6.0, -14.0, -19.0, -25.0]);
        assert_eq!(run(s, &[2, 3]), (last, ys, vec![2, 3]));
    });
}

#[test]
fn a_value_whose_size_only_a_run_knows_crosses_to_another_ep() {
    // n = NonZero(x): [1, k]; its reader is compiled for any k.
    let m = model(graph(
        [value("x", F32, &["N"])],
        [],
        [node("Add", &["x", "x"], &["a"]), node("NonZero", &["a"], &["n"]), node("Neg", &["n"], &["y"])],
        [value("y", I64, &["1", "?"])],
    ));
    for eps in [
        vec![fake("one", &[("ops", "*")])],
        vec![
            fake("nz", &[("ops", "NonZero"), ("log", "late_symbols")]),
            fake("rest", &[("ops", "*"), ("log", "late_rest")]),
        ],
    ] {
        let s = Session::builder().eps(eps).threads(1).build(m.clone()).unwrap();
        for x in [[0.0f32, 1.0, 2.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0]] {
            let want: Vec<i64> = x.iter().zip(0..).filter(|(v, _)| **v != 0.0).map(|(_, i)| -i).collect();
            assert_eq!(longs_of(&s.run([("x", view(&[3], &x))]).unwrap(), "y"), want);
        }
    }
    let bindings: Vec<String> = common::fake::log("late_rest")
        .iter()
        .filter(|l| l.starts_with("run"))
        .skip(1)
        .step_by(2)
        .map(|l| l.split(' ').nth(2).unwrap().to_owned())
        .collect();
    // The same number of hits again is the same binding again.
    assert_eq!(
        (bindings.len(), bindings[0] == bindings[3], bindings[0] != bindings[1]),
        (4, true, true),
        "{bindings:?}"
    );
}

#[test]
fn bodies_may_make_constants() {
    // Neg(k) runs once, when the session is built, in both branches and in the loop's body.
    let branch =
        |op: &str, out: &str| body_graph(vec![], vec![node(op, &["k"], &[out])], vec![value(out, F32, &["2"])]);
    let inside = body_graph(
        vec![value("i", I64, &[]), value("go", BOOL, &[]), value("v", F32, &["2"])],
        vec![node("Neg", &["k"], &["n"])],
        vec![value("go", BOOL, &[]), value("n", F32, &["2"]), value("n", F32, &["2"])],
    );
    let m = model(graph(
        [value("c", BOOL, &[]), value("m", I64, &[]), value("x", F32, &["2"])],
        [weights("k", &[2], &[1.0, -2.0])],
        [
            with(
                node("If", &["c"], &["y"]),
                [body("then_branch", branch("Neg", "t")), body("else_branch", branch("Relu", "e"))],
            ),
            with(node("Loop", &["m", "", "x"], &["z", "rows"]), [body("body", inside)]),
        ],
        [value("y", F32, &["2"]), value("z", F32, &["2"]), value("rows", F32, &["?", "2"])],
    ));
    everywhere(&m, |s| {
        let run = |c: bool, m: i64| {
            let (c, m) = ([c], [m]);
            let inputs = [("c", view(&[], &c)), ("m", view(&[], &m)), ("x", view(&[2], &[7.0f32, 8.0]))];
            let out = s.run(inputs).unwrap();
            (floats(&out, "y"), floats(&out, "z"), out.get("rows").unwrap().shape().to_vec())
        };
        let (neg, relu) = (vec![-1.0, 2.0], vec![1.0, 0.0]);
        assert_eq!(run(true, 3), (neg.clone(), neg.clone(), vec![3, 2]));
        assert_eq!(run(false, 0), (relu, vec![7.0, 8.0], vec![0, 2]));
    });
}
