//! What a run costs besides computing: in steady state no heap block, in the core or in a plugin, and no lock.
//!
//! One test for all counts, because they are of the whole process.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod decoder;
mod heap;

use heap::counted;
use ortolan::host::LoadedEp;
use ortolan::{Session, SessionEp, TensorView};
use ortolan_tests::ep::{load, own};
use ortolan_tests::model::{Model, Tensor};
use ortolan_tests::{fixtures, place};
use std::process::Command;
use std::sync::Arc;

/// Runs that are counted.
const RUNS: usize = 1000;

fn session(ep: &Arc<LoadedEp>, model: &Model, threads: u32) -> Session {
    let builder = Session::builder().eps([SessionEp::from(&**ep)]).threads(threads);
    builder.build(model.bytes()).expect("every node has an EP")
}

/// One product, a chain that fuses, and values that live across it.
fn model(length: &str) -> Model {
    Model::new(17)
        .input("x", &[length, "24"])
        .weight("w1", Tensor::random(&[24, 48], 1))
        .weight("b1", Tensor::random(&[48], 2))
        .weight("w2", Tensor::random(&[48, 24], 3))
        .node("MatMul", &["x", "w1"], "m1")
        .node("Add", &["m1", "b1"], "a1")
        .node("Relu", &["a1"], "r1")
        .node("MatMul", &["r1", "w2"], "m2")
        .node("Add", &["m2", "x"], "a2")
        .node("Softmax", &["a2"], "y")
        .output("y")
        .output("a1")
}

/// Runs over the inputs in turn.
fn rounds(session: &Session, inputs: &[Tensor], count: usize) -> f32 {
    let mut last = 0.0;
    for round in 0..count {
        let input = &inputs[round % inputs.len()];
        let view = TensorView::new(&input.shape, &input.data).expect("it fits");
        let outputs = session.run([("x", view)]).expect("it runs");
        last = outputs[0].as_slice::<f32>().expect("f32")[0];
    }
    last
}

fn lengths(all: &[i64]) -> Vec<Tensor> {
    all.iter().map(|&n| Tensor::random(&[n, 24], n as u64)).collect()
}

#[test]
fn steady_runs_take_no_heap_block_and_no_lock() {
    if std::env::var_os(STEADY).is_some() {
        return; // the traced child
    }
    count_blocks();
    decoder::a_growing_sequence_takes_blocks_for_its_outputs_only();
    decoder::a_growing_sequence_gives_what_fixed_lengths_give();
    trace_locks();
}

fn count_blocks() {
    // The counter works: in this program, and in a plugin, since the example EP allocates in every run.
    assert!(counted(|| String::from("a block").into_boxed_str()).0 >= 1);
    assert_eq!(counted(|| std::hint::black_box(1) + 1).0, 0);
    let relu = Model::new(17).input("x", &["1", "24"]).node("Relu", &["x"], "y").output("y");
    let tiny = session(&load(&fixtures::tiny()), &relu, 1);
    rounds(&tiny, &lengths(&[1]), 10);
    assert!(counted(|| rounds(&tiny, &lengths(&[1]), RUNS)).0 > RUNS as u64, "blocks of plugins are not counted");

    let ep = own();
    for threads in [1, 2] {
        let cases: [(&str, &str, &[i64]); 3] =
            [("fixed shapes", "16", &[16]), ("one length", "N", &[16]), ("three lengths in turn", "N", &[16, 5, 33])];
        for (what, length, all) in cases {
            let (s, inputs) = (session(&ep, &model(length), threads), lengths(all));
            rounds(&s, &inputs, 30);
            let (blocks, _) = counted(|| rounds(&s, &inputs, RUNS));
            assert_eq!(blocks, 0, "{what}, {threads} threads: {blocks} blocks in {RUNS} runs");
            let mut binding = s.bind().expect("it can be bound");
            let value = ortolan::Tensor::new(&inputs[0].shape, inputs[0].data.clone()).expect("it fits");
            binding.input("x", value).expect("an input");
            let run = |binding: &mut ortolan::Binding<'_>| {
                for _ in 0..RUNS {
                    binding.run().expect("it runs");
                }
            };
            run(&mut binding);
            let (blocks, ()) = counted(|| run(&mut binding));
            assert_eq!(blocks, 0, "{what}, bound, {threads} threads: {blocks} blocks in {RUNS} runs");
        }
    }
}

/// Set in a child that is traced.
const STEADY: &str = "ORTOLAN_TESTS_STEADY";

/// In the traced child: steady runs between two calls that stand out in the trace.
#[test]
fn steady_child() {
    if std::env::var_os(STEADY).is_none() {
        return;
    }
    let (s, inputs) = (session(&own(), &model("N"), 1), lengths(&[16, 5, 33]));
    rounds(&s, &inputs, 30);
    let _ = std::os::unix::process::parent_id();
    rounds(&s, &inputs, RUNS);
    let _ = std::os::unix::process::parent_id();
}

/// On one thread.
fn trace_locks() {
    let folder = place::fresh();
    let trace = folder.path().join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=futex,getppid", "-o"]).arg(&trace);
    command.arg(std::env::current_exe().expect("the system knows this program's path"));
    let output = command.args(["--exact", "steady_child", "--test-threads=1"]).env(STEADY, "1").output();
    let traced = output.as_ref().is_ok_and(|o| o.status.success());
    let text = std::fs::read_to_string(&trace).unwrap_or_default();
    if !traced || !text.contains("getppid") {
        println!("SKIPPED: system calls cannot be traced here: {output:?}");
        return;
    }
    // Lines begin with the thread's number; a helper of the pool may still be on its way to sleep.
    let lines: Vec<&str> = text.lines().collect();
    let marks: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].contains("getppid")).collect();
    let [first, last] = marks[..] else { panic!("the child was to make two marks:\n{text}") };
    let thread = lines[first].split_whitespace().next().unwrap_or_default();
    let futex: Vec<&&str> =
        lines[first..last].iter().filter(|l| l.starts_with(thread) && l.contains("futex")).collect();
    assert!(futex.is_empty(), "{} futex calls in {RUNS} runs: {:?}", futex.len(), futex.first());
}
