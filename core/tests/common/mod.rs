//! What the tests of sessions share: models made from messages, and an interpreter as an EP.
#![allow(dead_code)] // each test file uses a part of it
#![allow(clippy::unwrap_used)] // helpers of tests

pub mod fake;
pub mod interpret;
pub mod lists;
pub mod model;

use ortolan::{Input, Outputs, Session, SessionEp, TensorView};

pub fn session(eps: impl IntoIterator<Item = SessionEp>, model: Vec<u8>) -> Session {
    Session::builder().eps(eps).threads(1).build(model).unwrap()
}

pub fn view<'a, T: ortolan::value::Element>(shape: &'a [i64], data: &'a [T]) -> Input<'a> {
    TensorView::new(shape, data).unwrap().into()
}

pub fn floats(outputs: &Outputs, name: &str) -> Vec<f32> {
    outputs.get(name).unwrap().as_slice::<f32>().unwrap().to_vec()
}
