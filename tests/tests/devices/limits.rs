//! What is larger than a shader of the adapter can bind is refused with a code, before anything runs if its size is known.

use crate::{Eps, Run};
use ortolan::error::codes;
use ortolan::{Session, Tensor};
use ortolan_tests::model::Model;

pub const ALL: &[(&str, Run)] =
    &[("tensors_beyond_a_binding_are_refused_ahead", ahead), ("tensors_that_turn_out_too_large_are_refused", in_a_run)];

fn largest(eps: &Eps) -> Result<i64, String> {
    let text = eps.info("limit.max_storage_buffer_binding_size")?;
    text.parse().map_err(|_| format!("{text} is no size"))
}

fn relu(n: &str) -> Model {
    Model::new(17).input("x", &[n]).node("Relu", &["x"], "y").output("y")
}

/// By the claims alone: nothing so large is made.
fn ahead(eps: &Eps) -> Result<(), String> {
    let most = largest(eps)? / 1024 * 1024 / 4;
    for (n, taken) in [(most, true), (most + 1, false)] {
        let survey = Session::builder().eps([eps.device()]).survey(relu(&n.to_string()).bytes());
        let report = survey.map_err(|e| e.to_string())?;
        let node = &report.nodes[0];
        let refused =
            node.answers.iter().any(|a| a.code == "memory" && a.sentence.contains("a shader of this adapter"));
        if (node.place == "ep") != taken || refused == taken {
            return Err(format!("of {n} floats the EP says {node:?}"));
        }
    }
    Ok(())
}

/// The error comes from the call that would need the memory, and the session goes on.
fn in_a_run(eps: &Eps) -> Result<(), String> {
    let most = largest(eps)?;
    if most > 256 << 20 {
        println!("not tried: {most} bytes are too many for a test");
        return Ok(());
    }
    let say = |e: ortolan::Error| e.to_string();
    let session = Session::builder().eps([eps.device()]).build(relu("n").bytes()).map_err(say)?;
    let run = |n: i64| session.run([("x", Tensor::new(&[n], vec![-1.0f32; n as usize]).expect("as many numbers"))]);
    let error = run(most / 4 + 1024).err().ok_or("a tensor beyond the limit was taken")?;
    if !error.is(codes::OUT_OF_MEMORY) || !error.to_string().contains("that a shader can bind") {
        return Err(format!("{error} [{}]", error.code()));
    }
    let outputs = run(3).map_err(say)?;
    let found = outputs.get("y").ok_or("there is no y")?.as_slice::<f32>().map_err(say)?;
    if found == [0.0; 3] { Ok(()) } else { Err(format!("afterwards it is {found:?}")) }
}
