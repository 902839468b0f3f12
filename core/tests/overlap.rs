//! What runs beside what: late runs of independent parts, copies that go together or are made once before a loop, inputs of
//! which only the shape is read, and what transfers are stated to cost.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::fake::{TRIMS, fake, log, on_device};
use common::model::*;
use common::{floats, session, view};
use ortolan::{RunOptions, Session, SessionEp};
use std::sync::atomic::Ordering::SeqCst;

const X: [f32; 3] = [1.0, -2.0, 3.0];

fn run(s: &Session) -> Vec<f32> {
    floats(&s.run([("x", view(&[3], &X))]).unwrap(), "y")
}

fn dev(ops: &str, space: &str, name: &str) -> SessionEp {
    fake("dev", &[("ops", ops), ("space", space), ("log", name)]).device(1)
}

fn count(name: &str, start: &str) -> usize {
    log(name).iter().filter(|l| l.starts_with(start)).count()
}

/// a = Relu(x), b = Neg(x), y = Add(a, b).
fn fork() -> Vec<u8> {
    model(graph(
        [value("x", F32, &["N"])],
        [],
        [node("Relu", &["x"], &["a"]), node("Neg", &["x"], &["b"]), node("Add", &["a", "b"], &["y"])],
        [value("y", F32, &["N"])],
    ))
}

/// The only late runs of this binary: each ends only when both are under way.
#[test]
fn late_runs_of_independent_parts_overlap_and_tell_their_events() {
    let late = |name, ops| fake(name, &[("ops", ops), ("late", "1"), ("meet", "2")]);
    let s = session([late("one", "Relu"), late("two", "Neg"), fake("cpu", &[("ops", "*")])], fork());
    let options = RunOptions { profile: true, ..RunOptions::default() };
    let out = s.run_with([("x", view(&[3], &X))], &options).unwrap();
    assert_eq!(floats(&out, "y"), [0.0, 2.0, 0.0]);
    let events = &out.profile().unwrap().events;
    let told: Vec<_> = events.iter().filter(|e| e.name == "fake kernel").map(|e| (e.ep.as_str(), e.flops)).collect();
    assert!(told.contains(&("one", 10)) && told.contains(&("two", 10)), "{events:?}");
    let node = events.iter().find(|e| e.ep == "two" && e.name == "fake kernel").unwrap();
    assert_eq!((node.place.as_str(), node.bytes), ("node 'Neg_b' (Neg)", 20));
    assert!(events.is_sorted_by_key(|e| e.start_ns + e.dur_ns));
}

#[test]
fn copies_that_go_the_same_way_go_together() {
    // a and b are read in host memory, and then again on the device.
    let m = model(graph(
        [value("x", F32, &["N"]), value("w", F32, &["N"])],
        [],
        [
            node("Relu", &["x"], &["a"]),
            node("Neg", &["w"], &["b"]),
            node("Sub", &["a", "b"], &["c"]),
            node("Mul", &["a", "c"], &["d"]),
            node("Mul", &["b", "c"], &["e"]),
            node("Mul", &["d", "e"], &["y"]),
        ],
        [value("y", F32, &["N"])],
    ));
    let s = session([dev("Relu,Neg,Mul", "dev.group", "group"), fake("cpu", &[("ops", "*")])], m);
    let out = s.run([("x", view(&[3], &X)), ("w", view(&[3], &X))]).unwrap();
    assert_eq!(floats(&out, "y"), [-4.0, 0.0, -324.0]);
    let copies: Vec<String> = log("group").into_iter().filter(|l| l.starts_with("copy")).collect();
    assert_eq!(s.report().copies, 5, "{copies:?}");
    assert_eq!(copies.len(), 3, "x with w, a with b, c alone: {copies:?}");
    assert_eq!(count("group", "copy 2 to"), 2);
    drop((s, out));
    assert_eq!(on_device("dev.group"), 0);
}

#[test]
fn of_some_inputs_only_the_shape_is_read() {
    let m = model(graph(
        [value("x", F32, &["N"])],
        [],
        [node("Relu", &["x"], &["r"]), node("Neg", &["r"], &["y"])],
        [value("y", F32, &["N"])],
    ));
    let shape = fake("shape", &[("ops", "Neg"), ("shape_of", "0"), ("log", "shape_of")]);
    let s = session([dev("Relu", "dev.shape", "shape_dev"), shape], m);
    assert_eq!(run(&s), [-7.0; 3]);
    assert_eq!((s.report().copies, count("shape_dev", "copy")), (1, 1), "x goes up, and r stays where it is");
    assert!(log("shape_of").iter().any(|l| l.starts_with("shape [3] from space") && !l.ends_with(" 0")));
    // An output has no such port: it is refused, and the output stays in host memory.
    assert_eq!(run(&session([fake("dev", &[("ops", "*"), ("break", "shape_out")])], fork())), [0.0, 2.0, 0.0]);
}

/// w = Relu(x); y = zero; for _ in 0..4 { y = Add(y, Neg(w)) }.
fn looping() -> Vec<u8> {
    let inside = graph(
        [value("i", I64, &[]), value("cond", BOOL, &[]), value("acc", F32, &["N"])],
        [],
        [node("Neg", &["w"], &["n"]), node("Add", &["acc", "n"], &["next"]), node("Identity", &["cond"], &["go"])],
        [value("go", BOOL, &[]), value("next", F32, &["N"])],
    );
    model(graph(
        [value("x", F32, &["N"]), value("zero", F32, &["N"])],
        [longs("trips", &[], &[4])],
        [node("Relu", &["x"], &["w"]), with(node("Loop", &["trips", "", "zero"], &["y"]), [body("body", inside)])],
        [value("y", F32, &["N"])],
    ))
}

#[test]
fn copies_of_what_a_loop_does_not_change_are_made_before_it() {
    let s = session([dev("Neg", "dev.hoist", "hoist"), fake("cpu", &[("ops", "*"), ("log", "hoist_cpu")])], looping());
    for _ in 0..2 {
        let before = count("hoist", "copy");
        let out = s.run([("x", view(&[3], &X)), ("zero", view(&[3], &[0.0f32; 3]))]).unwrap();
        assert_eq!(floats(&out, "y"), [-4.0, 0.0, -12.0]);
        // w once for all iterations; results are made in host memory.
        assert_eq!(count("hoist", "copy") - before, 1, "{:?}", log("hoist"));
    }
    drop(s);
    assert_eq!(on_device("dev.hoist"), 0);
}

#[test]
fn parts_go_where_stated_transfers_let_them_pay() {
    let eps = |device| {
        [fake("dev", &[("ops", "*"), ("cost", "1")]).device(device), fake("cpu", &[("ops", "*"), ("cost", "100000")])]
    };
    // About 10 µs a transfer are guessed; the other device states a millisecond.
    assert_eq!(session(eps(1), fork()).report().nodes_by_ep(), [("dev", 3), ("cpu", 0)]);
    let s = session(eps(3), fork());
    assert_eq!(s.report().nodes_by_ep(), [("dev", 0), ("cpu", 3)]);
    let why = &s.report().nodes[0].answers[0];
    assert_eq!(why.code, "does-not-pay");
}

#[test]
fn a_factory_is_asked_to_let_go() {
    let table = common::fake::factory();
    let before = TRIMS.load(SeqCst);
    table.trim();
    assert_eq!(TRIMS.load(SeqCst), before + 1);
}

/// y = Add(Relu(Add(x, w)), w).
fn weighted(w: &[f32; 3]) -> Vec<u8> {
    model(graph(
        [value("x", F32, &["3"])],
        [weights("w", &[3], w)],
        [node("Add", &["x", "w"], &["a"]), node("Relu", &["a"], &["b"]), node("Add", &["b", "w"], &["y"])],
        [value("y", F32, &["3"])],
    ))
}

/// Ids of constants, as an EP saw them: the same weight in two parts, and in other sessions.
#[test]
fn a_number_of_a_constant_is_one_weight_in_the_whole_process() {
    let id = |name: &str, device, w: &[f32; 3]| {
        let eps = [fake("one", &[("ops", "Add"), ("log", name)]).device(device), fake("two", &[("ops", "*")])];
        let s = session(eps, weighted(w));
        assert_eq!(run(&s), [0, 1, 2].map(|k| (X[k] + w[k]).max(0.0) + w[k]));
        let ids: Vec<_> = log(name).into_iter().filter(|l| l.starts_with("constant")).collect();
        assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
        ids[0].clone()
    };
    let other = [0.5, 0.5, 0.5];
    let (host, again) = (id("ids1", 0, &X), id("ids2", 0, &X));
    assert_ne!(host, again, "host memory is not compared");
    let (device, again, different) = (id("ids3", 1, &X), id("ids4", 1, &X), id("ids5", 1, &other));
    assert_eq!(device, again, "uploaded once, if the EP likes");
    assert!(device != different && device != host);
}
