//! One session from many threads, with runs that are stopped at any moment.

use crate::{EPS, assert_right, session_ep};
use ortolan::Session;
use ortolan_tests::model::{Model, Tensor};
use ortolan_tests::stress;
use std::time::Duration;

fn model() -> Model {
    Model::new(17)
        .input("x", &["N", "32"])
        .weight("w", Tensor::random(&[32, 32], 1))
        .weight("s", Tensor::new(&[1], vec![0.5]))
        .node("MatMul", &["x", "w"], "m")
        .node("Mul", &["m", "s"], "h")
        .node("Relu", &["h"], "r")
        .node("Add", &["r", "x"], "a")
        .node("Softmax", &["a"], "y")
        .output("y")
}

#[test]
fn eight_threads_with_cancelled_runs_stay_right() {
    let model = model();
    let fake = session_ep(&EPS.fake).option("delay_us", "200");
    let eps = [fake, session_ep(&EPS.tiny), session_ep(&EPS.plain), session_ep(&EPS.own)];
    let s = Session::builder().eps(eps).threads(2).build(model.bytes()).expect("every node has an EP");
    let time = stress::time(Duration::from_secs(6));
    let counts = stress::eight_threads(&s, &model, 32, time).unwrap_or_else(|e| panic!("{e}"));
    assert!(counts.done > 100 && counts.stopped > 20, "{counts:?}");
    let inputs = [("x", Tensor::random(&[3, 32], 1))];
    assert_right(&crate::run(&s, &inputs).expect("it can be used again"), &model, &inputs, "afterwards");
}
