//! What a program sees when a device goes away in the middle: an error with a code, and a process that goes on.

use crate::{Eps, Run};
use ortolan::{Session, Tensor};
use ortolan_tests::model::{self, Model};
use ortolan_tests::stress;

pub const ALL: &[(&str, Run)] =
    &[("a_lost_device_is_an_error_with_a_code", lost), ("after_a_loss_the_next_run_works_elsewhere", goes_on)];

fn lost(eps: &Eps) -> Result<(), String> {
    let say = |e: ortolan::Error| e.to_string();
    let bytes = Model::new(21)
        .input("x", &["n"])
        .weight("w", model::Tensor::new(&[1], vec![2.0]))
        .node("Mul", &["x", "w"], "y")
        .output("y")
        .bytes();
    let run = |session: &Session| session.run([("x", Tensor::new(&[2], vec![1.0f32, -3.0]).expect("two numbers"))]);
    let sick = Session::builder().eps([eps.device().option("lose_after", "2")]).build(bytes.clone()).map_err(say)?;
    for _ in 0..2 {
        run(&sick).map_err(say)?;
    }
    for _ in 0..2 {
        let error = run(&sick).err().ok_or("a run on a lost device succeeded")?;
        if !error.is(ortolan::error::codes::DEVICE_LOST) {
            return Err(format!("{error} does not say that the device is lost"));
        }
    }
    // Neither other sessions on the device nor other EPs are touched.
    for session in [
        Session::builder().eps([eps.device()]).build(bytes.clone()),
        Session::builder().eps(eps.host()).build(bytes.clone()),
    ] {
        let outputs = run(&session.map_err(say)?).map_err(say)?;
        let found = outputs.get("y").ok_or("there is no y")?.as_slice::<f32>().map_err(say)?.to_vec();
        if found != [2.0, -6.0] {
            return Err(format!("{found:?}"));
        }
    }
    Ok(())
}

/// With another EP in the session: the run that loses the device fails, the next one works without it.
fn goes_on(eps: &Eps) -> Result<(), String> {
    let say = |e: ortolan::Error| e.to_string();
    let model = Model::new(21)
        .input("x", &["n", "8"])
        .weight("w", model::Tensor::random(&[8, 8], 3))
        .node("MatMul", &["x", "w"], "m")
        .node("Relu", &["m"], "r")
        .node("LpNormalization", &["r"], "l")
        .node("Add", &["l", "x"], "y")
        .output("r")
        .output("y");
    let all = std::iter::once(eps.device().option("lose_after", "3")).chain(eps.host());
    let session = Session::builder().eps(all).build(model.bytes()).map_err(say)?;
    let device = eps.device.name();
    let placed = |session: &Session| session.report().nodes.iter().filter(|n| n.ep.as_deref() == Some(device)).count();
    if placed(&session) != 3 {
        return Err(format!("{} nodes are on the device:\n{}", placed(&session), session.report()));
    }
    let x = model::Tensor::random(&[2, 8], 5);
    let run = || session.run([("x", Tensor::new(&x.shape, x.data.clone()).expect("as many numbers"))]);
    let (mut lost, mut right) = (0, 0);
    for _ in 0..6 {
        match run() {
            Ok(outputs) => {
                stress::right(&outputs, &model, &[("x", x.clone())])?;
                right += 1;
            }
            Err(e) if e.is(ortolan::error::codes::DEVICE_LOST) => lost += 1,
            Err(e) => return Err(e.to_string()),
        }
    }
    match (lost, right, placed(&session)) {
        (1, 5, 0) => Ok(()),
        found => Err(format!("lost, right, nodes on the device: {found:?}, expected 1, 5 and 0")),
    }
}
