//! A session over three EPs (a device, a plugin written in C, the repository's own for processors) under eight threads.

use crate::{Eps, Run};
use ortolan::{Session, SessionEp};
use ortolan_tests::ep::load;
use ortolan_tests::fixtures;
use ortolan_tests::model::{Model, Tensor};
use ortolan_tests::stress;
use std::time::Duration;

pub const ALL: &[(&str, Run)] = &[(MEASURES, three_eps)];
/// The test that looks at the memory of its process.
pub const MEASURES: &str = "three_eps_under_eight_threads_stay_right";

/// From the C plugin to the device, back, to the processor, and to the device again; a value is read on both sides.
fn model() -> Model {
    Model::new(21)
        .input("x", &["N", "32"])
        .weight("w", Tensor::random(&[32, 32], 1))
        .weight("s", Tensor::new(&[1], vec![0.5]))
        .node("MatMul", &["x", "w"], "m")
        .node("Mul", &["m", "s"], "h")
        .node("Relu", &["h"], "r")
        .node("Add", &["r", "x"], "a")
        .node("Softmax", &["a"], "p")
        .node("LpNormalization", &["p"], "q")
        .node("Mul", &["q", "x"], "b")
        .node("Add", &["b", "a"], "y")
        .output("y")
}

fn three_eps(eps: &Eps) -> Result<(), String> {
    let (model, plain) = (model(), load(&fixtures::plain()));
    let all = [SessionEp::from(&*plain), eps.device()].into_iter().chain(eps.host());
    let session = Session::builder().eps(all).threads(2).build(model.bytes()).map_err(|e| e.to_string())?;
    let nodes = session.report().nodes_by_ep();
    if nodes.len() < 3 || nodes.iter().any(|(_, count)| *count == 0) {
        return Err(format!("not all EPs have a share: {nodes:?}"));
    }
    let counts = stress::eight_threads(&session, &model, 32, stress::time(Duration::from_secs(6)))?;
    match counts.done > 50 && counts.stopped > 20 {
        true => Ok(()),
        false => Err(format!("too little happened: {counts:?}")),
    }
}
