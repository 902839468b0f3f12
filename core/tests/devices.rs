//! Memory spaces, late completion, fixed shapes, donated inputs, bound and kept outputs.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::fake::{fake, log, on_device};
use common::model::*;
use common::{floats, session, view};
use ortolan::{RunOptions, Session, SessionOptions, Tensor, Value};
use std::time::Duration;

/// y = Neg(Relu(Add(x, x))), z = Mul(a, a).
fn diamond() -> Vec<u8> {
    model(graph(
        [value("x", F32, &["N"])],
        [],
        [
            node("Add", &["x", "x"], &["a"]),
            node("Relu", &["a"], &["r"]),
            node("Neg", &["r"], &["y"]),
            node("Mul", &["a", "a"], &["z"]),
        ],
        [value("y", F32, &["N"]), value("z", F32, &["N"])],
    ))
}

const X: [f32; 3] = [1.0, -2.0, 3.0];

fn check(s: &Session) {
    let out = s.run([("x", view(&[3], &X))]).unwrap();
    assert_eq!((floats(&out, "y"), floats(&out, "z")), (vec![-2.0, 0.0, -6.0], vec![4.0, 16.0, 36.0]));
}

#[test]
fn values_move_between_devices_through_the_host() {
    let eps = || {
        [
            fake("d1", &[("ops", "Add,Neg"), ("space", "dev.one"), ("log", "moves1")]).device(1),
            fake("d2", &[("ops", "Relu"), ("space", "dev.two"), ("log", "moves2")]).device(1),
            fake("cpu", &[("ops", "*")]),
        ]
    };
    let s = session(eps(), diamond());
    check(&s);
    assert_eq!(s.report().nodes_by_ep(), [("d1", 2), ("d2", 1), ("cpu", 1)]);
    // x to one, a to the host and on to two, r to the host and on to one; z's reader has a already.
    assert_eq!(s.report().copies, 5);
    let copies = |name| log(name).iter().filter(|l| l.starts_with("copy")).count();
    assert_eq!((copies("moves1"), copies("moves2")), (3, 2));
    for _ in 0..5 {
        check(&s);
    }
    drop(s);
    assert_eq!((on_device("dev.one"), on_device("dev.two")), (0, 0), "handles were not released");
}

#[test]
fn one_space_is_shared_without_copies() {
    let one = |name, ops, log| fake(name, &[("ops", ops), ("space", "dev.shared"), ("log", log)]).device(1);
    let s = session([one("p", "Add,Neg", "shared1"), one("q", "*", "shared2")], diamond());
    check(&s);
    // Only x goes up; what the user asked for is made in host memory at once.
    assert_eq!(s.report().copies, 1);
}

#[test]
fn a_run_may_finish_later() {
    let late = |ops| fake("late", &[("ops", ops), ("late", "1")]);
    for ops in ["*", "Add", "Relu,Mul", "Neg"] {
        let s = session([late(ops), fake("cpu", &[("ops", "*")])], diamond());
        for _ in 0..3 {
            check(&s);
        }
    }
    let broken = fake("late", &[("ops", "Relu"), ("late", "1"), ("break", "late")]);
    let s = session([broken, fake("cpu", &[("ops", "*")])], diamond());
    let e = s.run([("x", view(&[3], &X))]).unwrap_err();
    assert_eq!(e.to_string(), "node 'Relu_r' (Relu): EP 'late': the queue broke (its code 4) [ep-failed]");
}

#[test]
fn a_run_that_never_finishes_is_given_up_when_it_is_stopped() {
    let s = session([fake("lost", &[("ops", "*"), ("break", "lost")])], diamond());
    let options = RunOptions { timeout: Some(Duration::from_millis(20)), ..RunOptions::default() };
    let x = Value::from(X.to_vec());
    let e = s.run_with([("x", &x)], &options).unwrap_err();
    assert_eq!((e.code(), e.ep()), ("fence-lost", Some("lost")));
}

#[test]
fn fixed_shapes_get_a_plan_each_and_old_ones_go() {
    let npu = fake("npu", &[("ops", "Relu,Mul"), ("log", "static")]).device(2);
    let options = SessionOptions { max_plans: 2, threads: Some(1), ..SessionOptions::default() };
    let s = Session::builder().eps([npu, fake("cpu", &[("ops", "*"), ("log", "static_cpu")])]).options(options);
    let s = s.build(diamond()).unwrap();
    assert!(s.report().notes[0].contains("fixed shapes"));
    let run = |n: usize| {
        let x: Vec<f32> = (0..n).map(|i| i as f32 - 1.0).collect();
        let out = s.run([("x", view(&[n as i64], &x))]).unwrap();
        let want: Vec<f32> = x.iter().map(|v| -(2.0 * v).max(0.0)).collect();
        assert_eq!(floats(&out, "y"), want);
    };
    let compiled = |name| log(name).iter().filter(|l| l.starts_with("compile")).count();
    run(3);
    let parts = compiled("static");
    assert!(log("static").iter().any(|l| l.contains("symbols [3]")), "{:?}", log("static"));
    run(3);
    assert_eq!(compiled("static"), parts);
    run(4);
    run(5);
    assert_eq!(compiled("static"), 3 * parts);
    // Parts for any shape are compiled once.
    assert_eq!(compiled("static_cpu"), log("static_cpu").iter().filter(|l| l.starts_with("compile")).count());
    std::thread::scope(|scope| {
        for t in 0..4 {
            scope.spawn(move || (0..10).for_each(|n| run(3 + (n + t) % 4)));
        }
    });
}

#[test]
fn only_a_last_reader_gets_a_value_to_overwrite() {
    let s = session([fake("p", &[("ops", "*"), ("in_place", "1"), ("log", "donated")]), fake("q", &[])], diamond());
    check(&s);
    assert!(!log("donated").contains(&"in place".to_owned()), "the only input is the user's");
    let count = |name| log(name).iter().filter(|l| *l == "in place").count();
    let given = || Tensor::new(&[3], X.to_vec()).unwrap();
    let moved = |s: &Session, x: Tensor| s.run([("x", ortolan::Input::from(x))]).unwrap();
    let split = session(
        [
            fake("p", &[("ops", "Add,Neg"), ("in_place", "1"), ("log", "donated_p")]),
            fake("q", &[("ops", "*"), ("in_place", "1"), ("log", "donated_q")]),
        ],
        diamond(),
    );
    for _ in 0..3 {
        let out = moved(&split, given());
        assert_eq!(floats(&out, "z"), [4.0, 16.0, 36.0]);
        assert_eq!(floats(&out, "y"), [-2.0, 0.0, -6.0]);
    }
    // `a` has its last reader in q's part, `r` in p's second one.
    assert!(count("donated_q") >= 3 && count("donated_p") >= 3, "{:?}", log("donated_p"));
    let kept = Value::from(given());
    let shared = kept.clone();
    check_shared(&split, &kept, &shared);
}

#[test]
fn memory_that_an_ep_keeps_is_never_given_away() {
    let gives = fake("gives", &[("ops", "Add"), ("break", "const")]);
    let s = session([gives, fake("q", &[("ops", "*"), ("in_place", "1"), ("log", "const_q")])], diamond());
    for _ in 0..3 {
        check(&s);
    }
    let out = s.run([("x", view(&[3], &X))]).unwrap();
    drop(s);
    assert_eq!(floats(&out, "z"), [4.0, 16.0, 36.0]);
}

fn check_shared(s: &Session, kept: &Value, shared: &Value) {
    let out = s.run([("x", ortolan::Input::Moved(kept.clone()))]).unwrap();
    assert_eq!(floats(&out, "z"), [4.0, 16.0, 36.0]);
    assert_eq!(shared.as_slice::<f32>().unwrap(), X);
}

#[test]
fn outputs_are_made_in_bound_buffers() {
    for eps in [
        vec![fake("cpu", &[("ops", "*")])],
        vec![fake("dev", &[("ops", "*"), ("space", "dev.bound")]).device(1)],
        vec![fake("late", &[("ops", "*"), ("late", "1")])],
    ] {
        let s = session(eps, diamond());
        let y = Tensor::zeros(ortolan_graph::ir::DType::F32, &[8]).unwrap();
        let at = y.bytes().unwrap().as_ptr();
        let mut b = s.bind().unwrap();
        b.input("x", X.to_vec()).unwrap().output("y", y).unwrap();
        for _ in 0..3 {
            let out = b.run().unwrap();
            let y = out.get("y").unwrap().as_tensor().unwrap();
            assert_eq!((y.bytes().unwrap().as_ptr(), y.as_slice::<f32>().unwrap()), (at, &[-2.0, 0.0, -6.0][..]));
        }
        let held = b.run().unwrap();
        assert!(b.run().unwrap_err().message().contains("still shared"));
        drop(held);
        b.input("x", vec![0f32; 9]).unwrap();
        let e = b.run().unwrap_err();
        assert!(e.code() == "bound-shape" && e.message().contains("output 'y' is float [9] (36 bytes)"), "{e}");
        b.input("x", X.to_vec()).unwrap();
        assert!(b.run().is_ok());
    }
    let s = session([fake("cpu", &[("ops", "*")])], diamond());
    let mut b = s.bind().unwrap();
    let vector = Tensor::new(&[3], vec![0f32; 3]).unwrap();
    assert_eq!(b.output("y", vector.clone()).unwrap_err().code(), "bad-value");
    assert!(b.output("y", vector).is_ok());
    assert_eq!(b.input("q", X.to_vec()).unwrap_err().code(), "input-unknown");
    assert_eq!(b.run().unwrap_err().code(), "input-missing");
}

/// present = Concat(past, x); y = Neg(present).
fn growing() -> Vec<u8> {
    model(graph(
        [value("past", F32, &["P"]), value("x", F32, &["1"])],
        [],
        [with(node("Concat", &["past", "x"], &["present"]), [int("axis", 0)]), node("Neg", &["present"], &["y"])],
        [value("present", F32, &["?"]), value("y", F32, &["?"])],
    ))
}

#[test]
fn kept_outputs_are_the_next_runs_inputs() {
    for (space, device) in [(None, 0), (Some("dev.kv"), 1)] {
        let options: Vec<_> = [("ops", "*"), ("log", "kept")].into_iter().chain(space.map(|s| ("space", s))).collect();
        let s = session([fake("ep", &options).device(device)], growing());
        let mut b = s.bind().unwrap();
        b.keep("present", "past").unwrap();
        b.input("past", Vec::<f32>::new()).unwrap();
        for n in 0..5 {
            b.input("x", vec![n as f32]).unwrap();
            let out = b.run().unwrap();
            let want: Vec<f32> = (0..=n).map(|i| -(i as f32)).collect();
            assert_eq!(floats(&out, "y"), want);
            let present = out.get("present").unwrap();
            assert_eq!(present.as_tensor().unwrap().is_host(), space.is_none());
            let present = present.to_host().unwrap();
            assert_eq!(present.as_slice::<f32>().unwrap().len(), n + 1);
        }
        drop(b);
        let copies = log("kept").iter().filter(|l| l.starts_with("copy")).count();
        // Each x goes up, once with the first past, and the test reads every present; the cache itself never moves.
        assert_eq!(copies, if space.is_some() { 5 + 5 } else { 0 });
    }
    assert_eq!(on_device("dev.kv"), 0);
}
