//! Devices that go away and device work that fails after its run has returned.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::fake::{fake, log, on_device};
use common::model::*;
use common::{floats, session, view};
use ortolan::{Session, SessionEp};

/// y = Neg(Relu(Add(x, x))).
fn chain() -> Vec<u8> {
    model(graph(
        [value("x", F32, &["N"])],
        [],
        [node("Add", &["x", "x"], &["a"]), node("Relu", &["a"], &["r"]), node("Neg", &["r"], &["y"])],
        [value("y", F32, &["N"])],
    ))
}

fn run(s: &Session) -> ortolan::error::Result<Vec<f32>> {
    s.run([("x", view(&[3], &[1.0f32, -2.0, 3.0]))]).map(|out| floats(&out, "y"))
}

const Y: [f32; 3] = [-2.0, 0.0, -6.0];

fn on_dev(options: &[(&str, &str)]) -> SessionEp {
    let all: Vec<_> = [("ops", "Add,Relu"), ("space", "dev.lost")].iter().chain(options).copied().collect();
    fake("dev", &all).device(1)
}

#[test]
fn a_lost_device_fails_one_run_and_the_next_does_without_it() {
    let s = session([on_dev(&[("lose", "3")]), fake("cpu", &[("ops", "*"), ("log", "lost_cpu")])], chain());
    assert_eq!(s.report().nodes_by_ep(), [("dev", 2), ("cpu", 1)]);
    assert_eq!((run(&s).unwrap(), run(&s).unwrap()), (Y.to_vec(), Y.to_vec()));
    let e = run(&s).unwrap_err();
    assert_eq!((e.code(), e.ep()), ("device-lost", Some("dev")));
    let words = "node 'Add_a' (Add): EP 'dev': its device 'fake' is lost: somebody pulled the plug [device-lost]";
    assert_eq!(e.to_string(), words);
    assert_eq!(s.report().nodes_by_ep(), [("dev", 2), ("cpu", 1)], "nothing was planned yet");
    for _ in 0..3 {
        assert_eq!(run(&s).unwrap(), Y);
    }
    let report = s.report();
    assert_eq!(report.nodes_by_ep(), [("dev", 0), ("cpu", 3)]);
    let why = &report.nodes[0].answers[0];
    assert_eq!((why.ep.as_str(), why.code.as_str()), ("dev", "device-lost"));
    assert!(why.sentence.contains("somebody pulled the plug"), "{}", why.sentence);
    let compiled = log("lost_cpu").iter().filter(|l| l.starts_with("compile")).count();
    assert_eq!(compiled, 2, "one part with the device, one without");
}

#[test]
fn what_lay_on_a_lost_device_is_released() {
    let s = session([on_dev(&[("lose", "2"), ("space", "dev.gone")]), fake("cpu", &[("ops", "*")])], chain());
    assert!(run(&s).is_ok() && run(&s).is_err() && run(&s).is_ok());
    drop(s);
    assert_eq!(on_device("dev.gone"), 0);
}

#[test]
fn a_part_without_a_named_node_says_from_where_on() {
    let s = session([on_dev(&[("lose", "1"), ("break", "no_node")]), fake("cpu", &[("ops", "*")])], chain());
    let e = run(&s).unwrap_err().to_string();
    assert!(
        e.starts_with("the part of 2 nodes from node 'Add_a' (Add) on: EP 'dev': its device 'fake' is lost"),
        "{e}"
    );
}

#[test]
fn many_threads_learn_of_a_loss_at_once() {
    let s = session([on_dev(&[("lose", "20")]), fake("cpu", &[("ops", "*")])], chain());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let failed = (0..20).filter(|_| match run(&s) {
                    Ok(y) => {
                        assert_eq!(y, Y);
                        false
                    }
                    Err(e) => {
                        assert_eq!(e.code(), "device-lost");
                        true
                    }
                });
                // Runs that were under way fail; those that begin after one was told do not.
                assert!(failed.count() <= 1);
            });
        }
    });
    assert_eq!(s.report().nodes_by_ep(), [("dev", 0), ("cpu", 3)]);
}

#[test]
fn a_loss_while_a_session_is_built_is_planned_around() {
    let s = session([on_dev(&[("lose", "0")]), fake("cpu", &[("ops", "*")])], chain());
    assert_eq!((run(&s).unwrap(), s.report().nodes_by_ep()), (Y.to_vec(), vec![("dev", 0), ("cpu", 3)]));
}

#[test]
fn without_another_ep_the_session_says_so_from_then_on() {
    for eps in [
        vec![fake("dev", &[("ops", "*"), ("lose", "1")])],
        vec![fake("dev", &[("ops", "*"), ("lose", "1")]), fake("cpu", &[("ops", "Neg")])],
    ] {
        let others = eps.len() > 1;
        let s = session(eps, chain());
        for round in 0..3 {
            let e = run(&s).unwrap_err();
            assert_eq!((e.code(), e.ep()), ("device-lost", Some("dev")));
            assert_eq!(e.to_string().contains("no other execution provider of the session"), round > 0, "{e}");
            assert_eq!(e.to_string().contains("Add is not done"), round > 0 && others, "{e}");
        }
    }
}

#[test]
fn a_loss_that_a_fence_tells_of_counts_as_well() {
    let late = fake("late", &[("ops", "Relu"), ("late", "1"), ("break", "late_lost")]);
    let s = session([late, fake("cpu", &[("ops", "*")])], chain());
    let e = run(&s).unwrap_err().to_string();
    assert_eq!(e, "node 'Relu_r' (Relu): EP 'late': its device 'fake' is lost: the queue is gone [device-lost]");
    assert_eq!(run(&s).unwrap(), Y);
}

#[test]
fn a_binding_goes_on_but_what_it_kept_on_the_device_is_gone() {
    let growing = model(graph(
        [value("past", F32, &["N"]), value("x", F32, &["N"])],
        [],
        [node("Add", &["past", "x"], &["present"])],
        [value("present", F32, &["N"])],
    ));
    let dev = fake("dev", &[("ops", "Add"), ("space", "dev.kept"), ("lose", "3")]).device(1);
    let s = session([dev, fake("cpu", &[("ops", "*")])], growing);
    let mut b = s.bind().unwrap();
    b.keep("present", "past").unwrap().input("past", vec![0f32; 2]).unwrap().input("x", vec![1f32; 2]).unwrap();
    assert!(b.run().is_ok() && b.run().is_ok());
    assert_eq!(b.run().unwrap_err().code(), "device-lost");
    assert!(b.run().unwrap_err().message().contains("the value kept for input 'past' was lost"));
    b.input("past", vec![5f32; 2]).unwrap();
    assert_eq!(floats(&b.run().unwrap(), "present"), [6.0, 6.0]);
    assert_eq!(floats(&b.run().unwrap(), "present"), [7.0, 7.0]);
}

#[test]
fn work_that_fails_late_is_told_by_the_call_that_reads_it() {
    // A copy: the value on its way to the other EP.
    let dev = |ops| fake("dev", &[("ops", ops), ("space", "dev.trap"), ("break", "poison")]).device(1);
    let s = session([dev("Relu"), fake("cpu", &[("ops", "*")])], chain());
    // One more reader on the device keeps the value there.
    assert_eq!(run(&s).unwrap(), Y, "an output that the host wants comes with the run");
    let s = session([fake("a", &[("ops", "Add")]), dev("Relu,Sub"), fake("b", &[("ops", "*")])], two_readers());
    let e = s.run([("x", view(&[3], &[1.0f32, -2.0, 3.0]))]).unwrap_err();
    let words = "copying 'r' to 'host': node 'Relu_r' (Relu): EP 'dev': the device trapped (its code 6) [ep-failed]";
    assert_eq!(e.to_string(), words);
    // A run: that of a later part, which names the node of the earlier one.
    let s = session([dev("Add,Neg"), fake("two", &[("ops", "Relu"), ("space", "dev.trap")]).device(1)], chain());
    let e = run(&s).unwrap_err();
    assert_eq!(e.to_string(), "node 'Add_a' (Add): EP 'two': the device trapped (its code 6) [ep-failed]");
}

/// r = Relu(Add(x, x)); y = Neg(r), z = Mul(r, r).
fn two_readers() -> Vec<u8> {
    model(graph(
        [value("x", F32, &["N"])],
        [],
        [
            node("Add", &["x", "x"], &["a"]),
            node("Relu", &["a"], &["r"]),
            node("Mul", &["r", "r"], &["m"]),
            node("Sub", &["m", "r"], &["s"]),
            node("Neg", &["r"], &["n"]),
            node("Add", &["n", "s"], &["y"]),
        ],
        [value("y", F32, &["N"])],
    ))
}
