//! What the tests of one operator share.

use ortolan_tests::model::{Model, Tensor};

/// `y = Relu(x)` over vectors.
pub fn relu() -> Model {
    Model::new(17).input("x", &["N"]).node("Relu", &["x"], "y").output("y")
}

/// An input of it.
pub fn input() -> [(&'static str, Tensor); 1] {
    [("x", Tensor::new(&[4], vec![-1.0, 2.0, -3.0, 4.0]))]
}
