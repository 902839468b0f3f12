//! Sessions over fake EPs: placement, values in and out, errors.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::fake::{fake, log};
use common::model::*;
use common::{floats, session, view};
use ortolan::{CancelToken, RunOptions, Session, Tensor, Value};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// y = Relu(x + w) MatMul m, over one to three EPs.
fn chain() -> Vec<u8> {
    model(graph(
        [value("x", F32, &["N", "2"])],
        [weights("w", &[2], &[1.0, -1.0]), weights("m", &[2, 2], &[1.0, 2.0, 3.0, 4.0])],
        [node("Add", &["x", "w"], &["a"]), node("Relu", &["a"], &["r"]), node("MatMul", &["r", "m"], &["y"])],
        [value("y", F32, &["N", "2"])],
    ))
}

const X: [f32; 4] = [1.0, 2.0, -3.0, 5.0];
const Y: [f32; 4] = [5.0, 8.0, 12.0, 16.0];

fn run_chain(s: &Session) -> Vec<f32> {
    floats(&s.run([("x", view(&[2, 2], &X))]).unwrap(), "y")
}

#[test]
fn one_ep_runs_the_whole_model_in_one_part() {
    let s = session([fake("one", &[("ops", "*"), ("log", "one_ep")])], chain());
    assert_eq!((run_chain(&s), s.report().parts.len()), (Y.to_vec(), 1));
    assert_eq!(s.inputs()[0].dims.as_ref().unwrap()[0].to_string(), "N");
    // One EP and one part: no exact query.
    assert!(!log("one_ep").iter().any(|l| l.contains("exact")), "{:?}", log("one_ep"));
    for _ in 0..3 {
        assert_eq!(run_chain(&s), Y);
    }
}

#[test]
fn several_eps_share_a_model_and_the_report_says_why() {
    let s = session(
        [fake("a", &[("ops", "Relu")]), fake("b", &[("ops", "Add,Relu")]), fake("c", &[("ops", "*")])],
        chain(),
    );
    assert_eq!(run_chain(&s), Y);
    let r = s.report();
    assert_eq!(r.nodes_by_ep(), [("a", 1), ("b", 1), ("c", 1)]);
    let relu = &r.nodes[1];
    let answers: Vec<_> = relu.answers.iter().map(|a| (a.ep.as_str(), a.code.as_str())).collect();
    assert_eq!((relu.ep.as_deref(), answers), (Some("a"), vec![("b", "taken-by"), ("c", "taken-by")]));
    let add: Vec<_> = r.nodes[0].answers.iter().map(|a| (a.ep.as_str(), a.code.as_str())).collect();
    assert_eq!(add, [("a", "operator"), ("c", "taken-by")]);
    assert!(r.to_string().contains("Add is not done [operator]"), "{r}");
    assert!(serde_json::to_string(r).unwrap().contains("\"taken-by\""));
}

#[test]
fn a_node_that_nobody_takes_is_named_with_everybodys_reason() {
    let eps = [fake("a", &[("ops", "Relu")]), fake("b", &[("ops", "Add")])];
    let e = Session::builder().eps(eps).build(chain()).unwrap_err();
    assert_eq!(e.code(), "unplaced");
    let text = e.to_string();
    for part in ["MatMul_y", "'a': MatMul is not done [operator]", "'b': MatMul is not done [operator]"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(Session::builder().build(chain()).unwrap_err().code(), "no-eps");
}

#[test]
fn answers_that_break_the_rules_count_as_rejections() {
    let last = || fake("last", &[("ops", "*")]);
    for (mode, code) in
        [("both", "ep-fault"), ("nonsense", "ep-fault"), ("claim_fails", "ep-failed"), ("claim_panics", "ep-panic")]
    {
        let s = session([fake("bad", &[("ops", "*"), ("break", mode)]), last()], chain());
        assert_eq!(run_chain(&s), Y, "{mode}");
        let all = s.report().nodes.iter().map(|n| n.answers[0].code.as_str()).collect::<Vec<_>>();
        assert_eq!(all, [code; 3], "{mode}");
    }
    let s = session([fake("mute", &[("ops", "Relu"), ("break", "silent")]), last()], chain());
    let of_mute = |n: usize| s.report().nodes[n].answers[0].code.clone();
    assert_eq!((run_chain(&s), of_mute(0), of_mute(2)), (Y.to_vec(), "unanswered".into(), "unanswered".into()));
}

#[test]
fn what_an_ep_refuses_or_cannot_compile_goes_to_the_next() {
    for (mode, code) in [("exact", "memory"), ("compile", "compile-failed"), ("compile_panics", "compile-failed")] {
        let bad = fake("bad", &[("ops", "Add,Relu"), ("break", mode)]);
        let s = session([bad, fake("last", &[("ops", "*")])], chain());
        assert_eq!(run_chain(&s), Y, "{mode}");
        let answers: Vec<_> = s.report().nodes.iter().map(|n| n.answers[0].code.as_str()).collect();
        assert_eq!(answers, [code, code, "operator"], "{mode}");
        assert_eq!(s.report().parts.len(), 1);
        let noted = s.report().notes.iter().any(|n| n.contains("'bad'"));
        assert_eq!(noted, mode != "exact", "{:?}", s.report().notes);
    }
    let only = [fake("bad", &[("ops", "*"), ("break", "compile")])];
    let e = Session::builder().eps(only).build(chain()).unwrap_err();
    assert!(e.code() == "unplaced" && e.to_string().contains("the compiler gave up [compile-failed]"), "{e}");
}

#[test]
fn costs_decide_when_everybody_states_them() {
    let place = |a: &str, b: &str, device: u32| {
        let a = fake("a", &[("ops", "Relu"), ("cost", a)]).device(device);
        let s = session([a, fake("b", &[("ops", "*"), ("cost", b)])], chain());
        assert_eq!(run_chain(&s), Y);
        (s.report().nodes[1].ep.clone().unwrap(), s.report().nodes[1].answers[0].code.clone())
    };
    assert_eq!(place("10", "5000", 0), ("a".into(), "taken-by".into()));
    // It is not worth a transfer to a device and back.
    assert_eq!(place("10", "5000", 1), ("b".into(), "does-not-pay".into()));
    assert_eq!(place("10", "500000", 1), ("a".into(), "taken-by".into()));
    assert_eq!(place("9000", "5000", 0), ("b".into(), "does-not-pay".into()));
}

#[test]
fn a_group_around_a_foreign_node_is_not_convex() {
    let whole = fake("whole", &[("ops", "Add,MatMul"), ("break", "whole")]);
    let s = session([fake("relu", &[("ops", "Relu")]), whole, fake("last", &[("ops", "*")])], chain());
    assert_eq!(run_chain(&s), Y);
    assert_eq!(s.report().nodes[0].answers.iter().find(|a| a.ep == "whole").unwrap().code, "not-convex");
    assert_eq!(s.report().nodes_by_ep(), [("relu", 1), ("whole", 0), ("last", 2)]);
}

#[test]
fn inputs_are_checked_and_named() {
    let s = session([fake("one", &[("ops", "*")])], chain());
    let x = view(&[2, 2], &X);
    let code = |r: ortolan::Result<ortolan::Outputs>| r.map_or_else(|e| e.to_string(), |_| "fine".into());
    let none: [(&str, ortolan::Input<'_>); 0] = [];
    for (result, want) in [
        (s.run([("z", x.clone())]), "there is no input 'z'; there are: x [input-unknown]"),
        (s.run(none), "input 'x' was not given [input-missing]"),
        (s.run([("x", x.clone()), ("x", x.clone())]), "given twice"),
        (s.run([("x", view(&[2, 2], &[1i64; 4]))]), "input 'x' is int64, and the model takes float [input-type]"),
        (s.run([("x", view(&[4], &X))]), "has the shape [4], and the model takes rank 2 [input-shape]"),
        (s.run([("x", view(&[1, 4], &X))]), "the model takes 2 in dimension 1 [input-shape]"),
        (s.run([("x", ortolan::Input::Moved(Value::Optional(None)))]), "is a optional, and the model takes tensor"),
    ] {
        let text = code(result);
        assert!(text.contains(want), "{text}");
    }
    assert_eq!(run_chain(&s), Y);
}

#[test]
fn every_kind_of_input_gives_the_same() {
    let s = session([fake("one", &[("ops", "*"), ("in_place", "1")])], chain());
    let mut odd = [0u8; 17];
    odd[1..].copy_from_slice(&X.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>());
    let misaligned = ortolan::TensorView::from_bytes(ortolan_graph::ir::DType::F32, &[2, 2], &odd[1..]).unwrap();
    let shared = Value::from(Tensor::from_slice(&[2, 2], &X).unwrap());
    let inputs: [ortolan::Input<'_>; 4] =
        [view(&[2, 2], &X), misaligned.into(), (&shared).into(), Tensor::new(&[2, 2], X.to_vec()).unwrap().into()];
    for input in inputs {
        assert_eq!(floats(&s.run([("x", input)]).unwrap(), "y"), Y);
    }
    assert_eq!(shared.as_slice::<f32>().unwrap(), X);
}

#[test]
fn faults_during_a_run_are_coded_and_the_session_goes_on() {
    for (mode, code, words) in [
        ("run", "ep-failed", "node 'Add_a' (Add): EP 'bad': the kernel failed (its code 9)"),
        ("run_panics", "ep-panic", "run panics"),
        ("no_output", "ep-fault", "run made no output 0 ('y')"),
        ("bad_index", "ep-fault", "output: the part has no output 99"),
        ("bad_dtype", "ep-fault", "'y' is float of rank 2, and int8 [1] was made"),
        ("bad_rank", "ep-fault", "'y' is float of rank 2"),
        ("huge", "out-of-memory", "bytes"),
    ] {
        let s = session([fake("bad", &[("ops", "*"), ("break", mode)])], chain());
        for _ in 0..2 {
            let e = s.run([("x", view(&[2, 2], &X))]).unwrap_err();
            assert!(e.code() == code && e.to_string().contains(words), "{mode}: {e}");
            assert_eq!(e.ep(), Some("bad"));
        }
    }
}

#[test]
fn ep_options_and_devices_are_checked_by_the_ep() {
    let e = Session::builder().eps([fake("one", &[("colour", "red")])]).build(chain()).unwrap_err();
    assert_eq!(e.to_string(), "EP 'one': there is no option colour (its code 7) [ep-new-failed]");
    let e = Session::builder().eps([fake("one", &[]).device(9)]).build(chain()).unwrap_err();
    assert!(e.to_string().contains("it has no device 9 [ep-new-failed]"), "{e}");
    assert_eq!(Session::builder().threads(0).build(chain()).unwrap_err().code(), "bad-option");
}

#[test]
fn a_run_is_stopped_although_its_ep_finished_it() {
    let deaf = fake("deaf", &[("ops", "*"), ("break", "deaf"), ("sleep_us", "60000")]);
    let m = model(graph([value("x", F32, &["2"])], [], [node("Relu", &["x"], &["y"])], [value("y", F32, &["2"])]));
    let s = session([deaf], m);
    let x = [1.0f32, -1.0];
    let timeout = RunOptions { timeout: Some(Duration::from_millis(20)), ..RunOptions::default() };
    assert_eq!(s.run_with([("x", view(&[2], &x))], &timeout).unwrap_err().code(), "timeout");
    let token = CancelToken::new();
    let cancel = RunOptions { cancel: Some(token.clone()), ..RunOptions::default() };
    let run = |s: &Session| s.run_with([("x", view(&[2], &x))], &cancel).map(|out| floats(&out, "y"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            token.cancel();
        });
        assert_eq!(run(&s).unwrap_err().code(), "cancelled");
    });
    let mut binding = s.bind().unwrap();
    binding.input("x", vec![1.0f32, 2.0]).unwrap();
    assert_eq!(binding.run_with(&timeout).unwrap_err().code(), "timeout");
    token.reset();
    assert_eq!(run(&s).unwrap(), [1.0, 0.0]);
    assert_eq!(floats(&binding.run().unwrap(), "y"), [1.0, 2.0]);
}

#[test]
fn a_run_can_be_cancelled_and_has_a_time_limit() {
    let s = session([fake("slow", &[("ops", "*"), ("sleep_us", "400000")])], chain());
    let token = CancelToken::new();
    let options = RunOptions { cancel: Some(token.clone()), ..RunOptions::default() };
    let start = Instant::now();
    let e = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            token.cancel();
        });
        s.run_with([("x", view(&[2, 2], &X))], &options).unwrap_err()
    });
    assert!(e.code() == "cancelled" && start.elapsed() < Duration::from_millis(300), "{e} after {:?}", start.elapsed());
    let e = s.run_with([("x", view(&[2, 2], &X))], &options).unwrap_err();
    assert_eq!(e.code(), "cancelled");
    token.reset();
    for cancel in [None, Some(token)] {
        let options = RunOptions { timeout: Some(Duration::from_millis(30)), cancel, ..RunOptions::default() };
        let e = s.run_with([("x", view(&[2, 2], &X))], &options).unwrap_err();
        assert_eq!(e.code(), "timeout");
    }
    assert_eq!(run_chain(&s), Y);
}

#[test]
fn eight_threads_run_one_session_at_once() {
    let s = session([fake("a", &[("ops", "Relu")]), fake("b", &[("ops", "*")])], chain());
    std::thread::scope(|scope| {
        for t in 0..8 {
            let s = &s;
            scope.spawn(move || {
                for n in 0..100 {
                    let (rows, k) = (1 + (t + n) % 3, n as f32);
                    let x: Vec<f32> = (0..rows * 2).map(|i| i as f32 + k).collect();
                    let got = floats(&s.run([("x", view(&[rows as i64, 2], &x))]).unwrap(), "y");
                    let want: Vec<f32> = x
                        .chunks(2)
                        .flat_map(|r| {
                            let (a, b) = (r[0] + 1.0, (r[1] - 1.0).max(0.0));
                            [a + 3.0 * b, 2.0 * a + 4.0 * b]
                        })
                        .collect();
                    assert_eq!(got, want);
                }
            });
        }
    });
}

#[test]
fn memory_limits_stop_a_run_and_not_the_session() {
    let s = session([fake("one", &[("ops", "*")])], chain());
    let big = vec![1.0f32; 200_000];
    let options = RunOptions { memory_limit: Some(100_000), ..RunOptions::default() };
    let e = s.run_with([("x", view(&[100_000, 2], &big))], &options).unwrap_err();
    assert_eq!(e.code(), "memory-limit");
    assert!(s.run([("x", view(&[100_000, 2], &big))]).is_ok());
    assert!(s.memory() > 0);
    s.trim();
    assert_eq!(s.memory(), 0);
    let o = ortolan::SessionOptions { memory_limit: Some(100_000), ..Default::default() };
    let s = Session::builder().eps([fake("one", &[("ops", "*")])]).options(o).build(chain()).unwrap();
    assert_eq!(s.run([("x", view(&[100_000, 2], &big))]).unwrap_err().code(), "memory-limit");
    assert_eq!(run_chain(&s), Y);
}

#[test]
fn a_profile_has_every_part() {
    let s = session([fake("a", &[("ops", "Relu")]), fake("b", &[("ops", "*")])], chain());
    let options = RunOptions { profile: true, ..RunOptions::default() };
    let out = s.run_with([("x", view(&[2, 2], &X))], &options).unwrap();
    let profile = out.profile().unwrap();
    let eps: Vec<_> = profile.events.iter().map(|e| e.ep.as_str()).collect();
    assert_eq!(eps, ["b", "a", "b"]);
    let mut text = Vec::new();
    profile.write_trace(&mut text).unwrap();
    serde_json::from_slice::<serde_json::Value>(&text).unwrap();
    assert!(s.run([("x", view(&[2, 2], &X))]).unwrap().profile().is_none());
}

#[test]
fn weights_are_let_go_once_every_part_is_done_with_them() {
    for (mode, held) in [("", false), ("holds", true)] {
        let s = session([fake("a", &[("ops", "*"), ("break", mode)])], chain());
        let noted = s.report().notes.iter().any(|n| n.contains("stays mapped"));
        assert_eq!((noted, run_chain(&s)), (held, Y.to_vec()), "{mode}");
    }
}

#[test]
fn runs_that_are_cancelled_at_random_leave_the_others_right() {
    let slow = fake("slow", &[("ops", "Relu"), ("sleep_us", "300")]);
    let s = session([slow, fake("rest", &[("ops", "*")])], chain());
    let end = Instant::now() + Duration::from_millis(1500);
    let (done, stopped) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for t in 0..8u64 {
            let (s, done, stopped) = (&s, &done, &stopped);
            scope.spawn(move || {
                // A small generator, so that each thread stops at other moments.
                let mut random = t + 1;
                while Instant::now() < end {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let limit = Duration::from_micros(random >> 33 & 1023);
                    let options = RunOptions { timeout: (t % 2 == 0).then_some(limit), ..RunOptions::default() };
                    match s.run_with([("x", view(&[2, 2], &X))], &options) {
                        Ok(out) => {
                            assert_eq!(floats(&out, "y"), Y);
                            done.fetch_add(1, SeqCst);
                        }
                        Err(e) => {
                            assert_eq!(e.code(), "timeout", "{e}");
                            stopped.fetch_add(1, SeqCst);
                        }
                    }
                }
            });
        }
    });
    assert!(done.into_inner() > 0 && stopped.into_inner() > 0);
    assert_eq!(run_chain(&s), Y);
}
