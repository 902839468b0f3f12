//! The trace of a profiled run has what Perfetto's trace processor asks of Chrome's trace-event format: complete events
//! with times in µs, and on each track slices that lie inside one another or apart. Others it drops.

use crate::{EPS, session_ep};
use ortolan::{RunOptions, Session, TensorView};
use ortolan_tests::model::{Model, Tensor};
use std::collections::BTreeMap;

#[test]
fn slices_of_a_trace_nest_on_every_track() {
    let model = Model::new(17)
        .input("x", &["N", "64"])
        .weight("w", Tensor::random(&[64, 64], 1))
        .node("MatMul", &["x", "w"], "m")
        .node("Relu", &["m"], "r")
        .node("Softmax", &["r"], "s")
        .node("Add", &["s", "x"], "y")
        .output("y");
    let eps = [session_ep(&EPS.tiny), session_ep(&EPS.own)];
    let s = Session::builder().eps(eps).threads(2).build(model.bytes()).expect("every node has an EP");
    let x = Tensor::random(&[50, 64], 2);
    let options = RunOptions { profile: true, ..RunOptions::default() };
    let outputs = s.run_with([("x", TensorView::new(&x.shape, &x.data).expect("it fits"))], &options);
    let mut text = Vec::new();
    outputs.expect("it runs").profile().expect("it was asked for").write_trace(&mut text).expect("memory takes it");
    let trace: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let mut tracks: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().expect("a list") {
        assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()) && event["pid"].is_u64(), "{event}");
        let tid = event["tid"].as_u64().expect("a number");
        if event["ph"] == "M" {
            continue;
        }
        assert_eq!(event["ph"], "X");
        // µs with a fraction; Perfetto keeps ns.
        let ns = |what: &str| (event[what].as_f64().filter(|t| *t >= 0.0).expect("a time") * 1e3).round() as u64;
        tracks.entry(tid).or_default().push((ns("ts"), ns("ts") + ns("dur")));
    }
    let (mut all, mut deepest) = (0, 0);
    for slices in tracks.values_mut() {
        // The longer of two that begin together is around the other.
        slices.sort_by_key(|&(begin, end)| (begin, std::cmp::Reverse(end)));
        let mut open: Vec<u64> = Vec::new();
        for &(begin, end) in slices.iter() {
            open.retain(|&outer| outer > begin);
            assert!(
                open.iter().all(|&outer| end <= outer),
                "{begin}..{end} ends outside of what it begins in: {trace}"
            );
            open.push(end);
            deepest = deepest.max(open.len());
        }
        all += slices.len();
    }
    assert!(all >= 6 && deepest >= 2, "{all} slices, {deepest} deep: {trace}");
}
