//! EPs that fail or break rules in a session: a coded error, a fallback where there is one, and a host that goes on.

use crate::shared::{input, relu};
use crate::{EPS, assert_right, load, run, session, session_ep};
use ortolan::host::{LoadedEp, PluginHost, ProbePolicy};
use ortolan::{CancelToken, RunOptions, Session, TensorView};
use ortolan_tests::fixtures::{self, hostile};
use ortolan_tests::model::Tensor;
use ortolan_tests::place::fresh;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The hostile plugin with one fault.
pub fn faulty(fault: &str) -> Arc<LoadedEp> {
    load(&hostile(&[&format!("-DFAULT={fault}")]))
}

/// After whatever happened, the host is as it was.
fn assert_alive(what: &str) {
    let s = session(&[&EPS.tiny], &relu()).unwrap_or_else(|e| panic!("after {what}: {e}"));
    assert_right(&run(&s, &input()).expect("it runs"), &relu(), &input(), what);
}

#[test]
fn without_a_fault_it_computes() {
    let s = session(&[&faulty("NOTHING")], &relu()).expect("it has Relu");
    assert_right(&run(&s, &input()).expect("it runs"), &relu(), &input(), "no fault");
}

#[test]
fn faults_while_a_session_is_built() {
    let cases: &[(&str, &str, &str)] = &[
        ("EP_FAILS", "ep-new-failed", "no session on Sundays"),
        ("EP_NULL", "ep-fault", "made no EP"),
        ("EP_WRITES_PAST", "ep-fault", "beside the place"),
        ("CLAIM_FAILS", "unplaced", "I would rather not look"),
        ("CLAIM_UNANSWERED", "unplaced", "unanswered"),
        ("CLAIM_BOTH", "unplaced", "or is it?"),
        ("CLAIM_UNKNOWN", "unplaced", "999999"),
        ("CLAIM_TWICE", "unplaced", "claimed already"),
        ("CLAIM_NULL", "unplaced", "null"),
        ("CLAIM_CHANGES_CALL", "unplaced", "the call"),
        ("CLAIM_REJECTS_UNKNOWN", "unplaced", "999999"),
        ("CLAIM_REJECTS_STRANGELY", "unplaced", "other(4711)"),
        ("COMPILE_FAILS", "unplaced", "the compiler has a headache"),
        ("COMPILE_NULL", "unplaced", "made no part"),
        ("COMPILE_WRITES_PAST", "unplaced", "beside the place"),
    ];
    for &(fault, code, words) in cases {
        let ep = faulty(fault);
        let error = match session(&[&ep], &relu()) {
            Err(error) => error,
            Ok(_) => panic!("{fault}: the session was built"),
        };
        assert_eq!(error.code(), code, "{fault}: {error}");
        assert!(error.to_string().contains(words), "{fault}: {words:?} is not in: {error}");
        if code == "unplaced" {
            // With another EP the node goes there, and the report says why.
            let s = session(&[&ep, &EPS.tiny], &relu()).unwrap_or_else(|e| panic!("{fault}: {e}"));
            let node = &s.report().nodes[0];
            assert_eq!(node.ep.as_deref(), Some("tiny"), "{fault}");
            let answer = node.answers.iter().find(|a| a.ep == "hostile").expect("listed");
            assert!(!answer.code.is_empty() && !answer.sentence.is_empty(), "{fault}: {answer:?}");
            assert_right(&run(&s, &input()).expect("it runs"), &relu(), &input(), fault);
        }
        assert_alive(fault);
    }
}

/// Calls that change nothing, or are refused by functions that return nothing: the log has them, the run goes on.
#[test]
fn misuse_without_consequence_is_passed_over() {
    let faults =
        ["CLAIM_EMPTY", "CLAIM_NEGATIVE_COST", "COMPILE_DONE_WITH_UNKNOWN", "COMPILE_PORT_UNKNOWN", "RUN_CALLS_CLAIM"];
    for fault in faults {
        let s = session(&[&faulty(fault)], &relu()).unwrap_or_else(|e| panic!("{fault}: {e}"));
        assert_right(&run(&s, &input()).expect("it runs"), &relu(), &input(), fault);
    }
}

#[test]
fn claims_of_what_it_cannot_compile_fall_back() {
    let model = relu().node("Softmax", &["y"], "z").output("z");
    let s = session(&[&faulty("CLAIM_EVERYTHING"), &EPS.tiny, &EPS.plain], &model).expect("others take over");
    assert_right(&run(&s, &input()).expect("it runs"), &model, &input(), "CLAIM_EVERYTHING");
}

/// It claims the node, and refuses the very part that would be compiled.
#[test]
fn a_changed_mind_falls_back() {
    let model = relu().weight("b", Tensor::new(&[], vec![0.5])).node("Add", &["y", "b"], "z").output("z");
    let s = session(&[&faulty("CLAIM_NOT_EXACT"), &EPS.tiny], &model).expect("another takes over");
    let node = s.report().nodes.iter().find(|n| n.op == "Relu").expect("listed");
    assert_eq!(node.ep.as_deref(), Some("tiny"));
    let answer = node.answers.iter().find(|a| a.ep == "hostile").expect("listed");
    assert!(answer.code == "policy" && answer.sentence.contains("not when it is meant"), "{answer:?}");
    assert_right(&run(&s, &input()).expect("it runs"), &model, &input(), "CLAIM_NOT_EXACT");
}

#[test]
fn faults_while_a_session_runs() {
    let cases: &[(&str, &str, &str)] = &[
        ("RUN_FAILS", "ep-failed", "the seventh seal is broken"),
        ("RUN_FAILS_SILENTLY", "ep-failed", ""),
        ("RUN_NO_OUTPUT", "ep-fault", "output"),
        ("RUN_OUTPUT_TWICE", "ep-fault", "output"),
        ("RUN_OTHER_DTYPE", "ep-fault", "int64"),
        ("RUN_OTHER_SHAPE", "ep-fault", "[1, 2, 3]"),
        ("RUN_UNKNOWN_OUTPUT", "ep-fault", "5"),
        ("RUN_NEGATIVE_DIM", "ep-fault", "-3"),
        ("RUN_HUGE", "ep-fault", ""),
        ("RUN_GIVES_NULL", "ep-fault", "null"),
        ("RUN_GIVES_OTHER_SPACE", "ep-fault", "4711"),
        ("RUN_GIVES_SHORT", "ep-fault", "bytes"),
        ("RUN_ALLOCATES_TOO_MUCH", "out-of-memory", ""),
        ("RUN_DEFERS_TWICE", "ep-fault", "defer"),
        ("RUN_DEFERS_AND_FAILS", "ep-failed", "too late"),
        ("RUN_SPEAKS_GARBAGE", "ep-failed", "not UTF-8"),
    ];
    for &(fault, code, words) in cases {
        let s = session(&[&faulty(fault)], &relu()).unwrap_or_else(|e| panic!("{fault}: {e}"));
        for round in 0..3 {
            let error = match run(&s, &input()) {
                Err(error) => error,
                Ok(outputs) => panic!("{fault}: it ran and gave {outputs:?}"),
            };
            assert_eq!(error.code(), code, "{fault}, round {round}: {error}");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("hostile") && text.len() < 600, "{fault}: {text}");
        }
        assert_alive(fault);
    }
}

/// Only when a lane is made, its place may be written at all.
#[test]
fn a_lane_larger_than_its_place_is_noticed() {
    let s = session(&[&faulty("RUN_WRITES_PAST_LANE")], &relu()).expect("it has Relu");
    let error = run(&s, &input()).expect_err("it wrote past the place");
    assert!(error.code() == "ep-fault" && error.to_string().contains("beside the place for the lane"), "{error}");
    assert_alive("RUN_WRITES_PAST_LANE");
}

#[test]
fn panics_are_caught_wherever_they_happen() {
    let cases = [
        ("ep_new", "ep-panic"),
        ("claim", "unplaced"),
        ("payload", "unplaced"),
        ("compile", "unplaced"),
        ("run", "ep-panic"),
        ("lane", "ep-panic"),
        ("copy", "ep-panic"),
    ];
    for (place, code) in cases {
        let folder = fresh();
        let path = folder.path().join("libortolan_ep_panics.so");
        std::fs::write(&path, fixtures::panics(place)).expect("the folder is ours");
        let ep = load(&path);
        let answer = session(&[&ep], &relu()).and_then(|s| run(&s, &input()).and_then(|o| o[0].to_host()).map(|_| ()));
        let error = answer.expect_err(place);
        assert_eq!(error.code(), code, "{place}: {error}");
        let words = if place == "payload" { "panic".to_owned() } else { format!("told to panic in {place}") };
        assert!(error.to_string().contains(&words), "{place}: {error}");
        assert_alive(place);
    }
}

#[test]
fn panics_while_freeing_are_survived() {
    for place in ["ep_free", "part_free", "lane_free", "release", "helper"] {
        let folder = fresh();
        let path = folder.path().join("libortolan_ep_panics.so");
        std::fs::write(&path, fixtures::panics(place)).expect("the folder is ours");
        let ep = load(&path);
        let s = session(&[&ep], &relu()).expect("it has Relu");
        // On a helper thread the panic comes only if there was one; then it is an error, else a result.
        match run(&s, &input()) {
            Ok(outputs) => assert_right(&outputs, &relu(), &input(), place),
            Err(error) => assert!(place == "helper" && error.code() == "ep-panic", "{place}: {error}"),
        }
        drop(s);
        assert_alive(place);
    }
}

#[test]
fn unregistering_waits_until_nothing_runs() {
    let host = PluginHost::builder().only_given_paths().probe(ProbePolicy::Never).build();
    let path = hostile(&["-DFAULT=RUN_BLOCKS"]);
    let ep = host.load_file(&path).expect("it is a good one");
    let s = session(&[&ep], &relu()).expect("it has Relu");
    drop(ep);
    let token = CancelToken::new();
    let options = RunOptions { cancel: Some(token.clone()), ..RunOptions::default() };
    std::thread::scope(|scope| {
        let inputs = input();
        let running = scope.spawn(move || {
            let view = TensorView::new(&inputs[0].1.shape, &inputs[0].1.data).expect("it fits");
            let answer = s.run_with([("x", view)], &options).map(|_| ());
            drop(s);
            answer
        });
        std::thread::sleep(Duration::from_millis(50));
        let error = host.unregister("hostile").expect_err("it runs");
        assert_eq!(error.code.name(), "in-use");
        let start = Instant::now();
        token.cancel();
        assert_eq!(running.join().expect("no panic").expect_err("it was stopped").code(), "cancelled");
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    });
    host.unregister("hostile").expect("nothing holds it any more");
    host.load_file(&path).expect("and back again");
}

#[test]
fn a_run_that_blocks_ends_at_its_time() {
    let s = session(&[&faulty("RUN_BLOCKS")], &relu()).expect("it has Relu");
    let (start, inputs) = (Instant::now(), input());
    let options = RunOptions { timeout: Some(Duration::from_millis(60)), ..RunOptions::default() };
    let view = TensorView::new(&inputs[0].1.shape, &inputs[0].1.data).expect("it fits");
    let error = s.run_with([("x", view)], &options).expect_err("it blocks");
    assert_eq!(error.code(), "timeout");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// The device's second job fails, or is lost: an error each, and the session goes on.
#[test]
fn late_failures_reach_the_run_that_they_belong_to() {
    for (option, code, words) in
        [("fail_job", "ep-failed", "the device was unplugged"), ("lose_job", "ep-failed", "without finishing")]
    {
        let ep = session_ep(&EPS.fake).option("delay_us", "500").option(option, "2");
        let s = Session::builder().eps([ep]).build(relu().bytes()).expect("it has Relu");
        for round in 1..=4 {
            match run(&s, &input()) {
                Ok(outputs) => {
                    assert!(round != 2, "{option}: the second run was to fail");
                    assert_right(&outputs, &relu(), &input(), option);
                }
                Err(error) => {
                    assert!(round == 2 && error.code() == code, "{option}, round {round}: {error}");
                    assert!(error.to_string().contains(words), "{error}");
                }
            }
        }
    }
    let ep = session_ep(&EPS.fake).option("colour", "blue");
    let error = Session::builder().eps([ep]).build(relu().bytes()).expect_err("an unknown option");
    assert!(error.code() == "ep-new-failed" && error.to_string().contains("colour"), "{error}");
}
