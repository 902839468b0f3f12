//! What a program sees when a device goes away in the middle: an error with a code, and a process that goes on.

use crate::{Eps, Run};
use ortolan::{Session, Tensor};
use ortolan_tests::model::{self, Model};

pub const ALL: &[(&str, Run)] = &[("a_lost_device_is_an_error_with_a_code", lost)];

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
