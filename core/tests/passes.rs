//! What is decided and computed before a run, seen from outside: folded constants, branches that constants or sizes decide.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::fake::{fake, log};
use common::model::*;
use common::{floats, session, view};
use ortolan::Session;

/// Operators of the report, in order.
fn operators(s: &Session) -> String {
    s.report().nodes.iter().map(|n| n.op.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn small_constants_are_computed_once_and_large_ones_stay() {
    let build = |n: i64, log: &str| {
        let (k, shape) = (vec![1.5f32; n as usize], n.to_string());
        let m = model(graph(
            [value("x", F32, &[&shape])],
            [weights("k", &[n], &k)],
            [node("Neg", &["k"], &["a"]), node("Relu", &["a"], &["b"]), node("Add", &["x", "b"], &["y"])],
            [value("y", F32, &[&shape])],
        ));
        session([fake("one", &[("ops", "*"), ("log", log)])], m)
    };
    for (n, name, left) in [(4, "fold_small", "Add"), (20_000, "fold_large", "Neg Relu Add")] {
        let s = build(n, name);
        assert_eq!(operators(&s), left, "{n}");
        let x = vec![1.0f32; n as usize];
        assert_eq!(floats(&s.run([("x", view(&[n], &x))]).unwrap(), "y"), x);
        let note = s.report().notes.iter().any(|n| n == "'one' folded 2 nodes");
        assert_eq!(note, n == 4, "{:?}", s.report().notes);
    }
}

#[test]
fn folding_asks_one_ep_after_the_other_and_none_with_memory_of_its_own() {
    let m = model(graph(
        [value("x", F32, &["2"])],
        [weights("k", &[2], &[1.0, -2.0])],
        [node("Neg", &["k"], &["a"]), node("Add", &["x", "a"], &["y"])],
        [value("y", F32, &["2"])],
    ));
    let device = fake("dev", &[("ops", "*"), ("space", "dev.fold"), ("log", "fold_dev")]).device(1);
    let s = session([device, fake("no", &[("ops", "Relu")]), fake("last", &[("ops", "*")])], m.clone());
    assert_eq!(s.report().notes, ["'last' folded 1 nodes"]);
    assert_eq!(floats(&s.run([("x", view(&[2], &[1.0f32, 1.0]))]).unwrap(), "y"), [0.0, 3.0]);
    // Without one that can, the node goes along with its reader.
    let s = session([fake("dev", &[("ops", "*"), ("space", "dev.fold")]).device(1)], m);
    assert_eq!((operators(&s).as_str(), s.report().nodes[0].place), ("Neg Add", "constant"));
}

#[test]
fn an_ep_that_fails_to_fold_costs_nothing_but_the_folding() {
    let m = model(graph(
        [value("x", F32, &["2"])],
        [weights("k", &[2], &[1.0, -2.0]), weights("three", &[3], &[1.0; 3])],
        // Sizes that no run can add, in a branch that is not taken.
        [node("Neg", &["k"], &["a"]), node("Add", &["x", "a"], &["y"])],
        [value("y", F32, &["2"])],
    ));
    let s = session([fake("bad", &[("ops", "Neg"), ("break", "run")]), fake("good", &[("ops", "Add,Neg")])], m);
    assert_eq!(s.report().notes, ["'good' folded 1 nodes"]);
}

/// y = -x for one element, else relu(x): two branches that the size decides.
fn by_size() -> Vec<u8> {
    let then = graph([], [], [node("Neg", &["x"], &["t"])], [value("t", F32, &["?"])]);
    let els = graph([], [], [node("Relu", &["x"], &["e"])], [value("e", F32, &["?"])]);
    model(graph(
        [value("x", F32, &["N"])],
        [longs("one", &[], &[1])],
        [
            node("Size", &["x"], &["n"]),
            node("Equal", &["n", "one"], &["c"]),
            with(node("If", &["c"], &["z"]), [body("then_branch", then), body("else_branch", els)]),
            node("Add", &["z", "z"], &["y"]),
        ],
        [value("y", F32, &["?"])],
    ))
}

#[test]
fn sizes_decide_branches_before_the_run() {
    let s = session([fake("one", &[("ops", "*"), ("log", "by_size")])], by_size());
    let note = "1 branches are decided by the inputs of a run, and planned then";
    assert!(s.report().notes.iter().any(|n| n == note), "{:?}", s.report().notes);
    let run = |x: &[f32]| floats(&s.run([("x", view(&[x.len() as i64], x))]).unwrap(), "y");
    for _ in 0..3 {
        assert_eq!(
            (run(&[1.0]), run(&[2.0, -1.0]), run(&[-3.0, 1.0, 0.5])),
            (vec![-2.0], vec![4.0, 0.0], vec![0.0, 2.0, 1.0])
        );
    }
    // The report of the first plan: one part, no If, and no second plan for a third size.
    assert_eq!((operators(&s).as_str(), s.report().parts.len()), ("Neg Add", 1));
    assert_eq!(log("by_size").iter().filter(|l| l.starts_with("compile")).count(), 2);
    let mut binding = s.bind().unwrap();
    binding.input("x", vec![4.0f32]).unwrap();
    assert_eq!(floats(&binding.run().unwrap(), "y"), [-8.0]);
    binding.input("x", vec![4.0f32, -1.0]).unwrap();
    assert_eq!(floats(&binding.run().unwrap(), "y"), [8.0, 0.0]);
    s.trim();
}

#[test]
fn an_operator_that_only_the_other_branch_has_is_no_hindrance() {
    let s = session([fake("one", &[("ops", "Neg,Add")])], by_size());
    let run = |x: &[f32]| s.run([("x", view(&[x.len() as i64], x))]).map(|out| floats(&out, "y"));
    assert_eq!(run(&[1.0]).unwrap(), [-2.0]);
    let error = run(&[1.0, 2.0]).unwrap_err();
    assert_eq!((error.code(), error.to_string().contains("Relu")), ("unplaced", true), "{error}");
    assert_eq!(run(&[2.0]).unwrap(), [-4.0]);
    // What runs in any case is missed at once.
    let error = Session::builder().eps([fake("one", &[("ops", "Neg,Relu")])]).build(by_size()).unwrap_err();
    assert_eq!((error.code(), error.to_string().contains("Add")), ("unplaced", true), "{error}");
}

#[test]
fn elements_of_a_small_integer_input_decide_too() {
    let then = graph([], [], [node("Neg", &["x"], &["t"])], [value("t", F32, &["?"])]);
    let joined = with(node("Concat", &["x", "seven"], &["e"]), [int("axis", 0)]);
    let els = graph([], [weights("seven", &[1], &[7.0])], [joined], [value("e", F32, &["?"])]);
    let when = |number: i64| {
        let bodies = [body("then_branch", then.clone()), body("else_branch", els.clone())];
        model(graph(
            [value("x", F32, &["N"]), value("mode", I64, &[])],
            [longs("number", &[], &[number])],
            [node("Equal", &["mode", "number"], &["c"]), with(node("If", &["c"], &["y"]), bodies)],
            [value("y", F32, &["?"])],
        ))
    };
    let run = |s: &Session, mode: i64| {
        let (mode, x) = ([mode], [2.0f32]);
        s.run([("x", view(&[1], &x)), ("mode", view(&[], &mode))]).map(|out| floats(&out, "y"))
    };
    // The other branch is missed only when it is taken. A negative number is as good as any.
    for n in [16, -1] {
        let s = session([fake("one", &[("ops", "Neg")])], when(n));
        assert_eq!((run(&s, n).unwrap(), run(&s, 8).unwrap_err().code()), (vec![-2.0], "unplaced"));
        let s = session([fake("one", &[("ops", "*")])], when(n));
        for _ in 0..2 {
            assert_eq!((run(&s, n).unwrap(), run(&s, 8).unwrap()), (vec![-2.0], vec![2.0, 7.0]));
        }
    }
}

/// Branches of unlike rank behind two conditions on sizes, one inside the other.
#[test]
fn branches_of_unlike_rank_are_decided_one_inside_the_other() {
    let deep = |op: &str, out: &str| graph([], [], [node(op, &["x"], &[out])], [value(out, F32, &["?"])]);
    let then = graph(
        [],
        [longs("two", &[], &[2])],
        [
            node("Size", &["x"], &["n"]),
            node("Equal", &["n", "two"], &["c2"]),
            with(
                node("If", &["c2"], &["t"]),
                [body("then_branch", deep("Neg", "p")), body("else_branch", deep("Relu", "q"))],
            ),
        ],
        [value("t", F32, &["?"])],
    );
    let row = with(node("Concat", &["x2", "x2"], &["e"]), [int("axis", 0)]);
    let els = graph([], [], [row], [value("e", F32, &["?", "?"])]);
    let m = model(graph(
        [value("x", F32, &["N"]), value("x2", F32, &["A", "B"])],
        [longs("three", &[], &[3])],
        [
            node("Size", &["x2"], &["n2"]),
            node("Equal", &["n2", "three"], &["c"]),
            with(node("If", &["c"], &["z"]), [body("then_branch", then), body("else_branch", els)]),
            node("Add", &["z", "z"], &["y"]),
        ],
        [value("y", F32, &[])],
    ));
    let s = session([fake("one", &[("ops", "*"), ("log", "unlike")])], m);
    assert!(s.report().nodes.iter().any(|n| n.op == "Add" && n.place == "later"), "{}", s.report());
    let run = |columns: usize, x: &[f32]| {
        let (shape, x2) = ([x.len() as i64], [1.0f32, 2.0, 3.0]);
        let out = s.run([("x", view(&shape, x)), ("x2", view(&[1, columns as i64], &x2[..columns]))]).unwrap();
        (floats(&out, "y"), out[0].shape().to_vec())
    };
    for _ in 0..2 {
        assert_eq!(run(3, &[1.0, -1.0]), (vec![-2.0, 2.0], vec![2]));
        assert_eq!(run(3, &[1.0, -1.0, 3.0]), (vec![2.0, 0.0, 6.0], vec![3]));
        assert_eq!(run(2, &[1.0]), (vec![2.0, 4.0, 2.0, 4.0], vec![2, 2]));
    }
    assert_eq!(log("unlike").iter().filter(|l| l.starts_with("compile")).count(), 3);
}
