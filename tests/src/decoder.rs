//! A small decoder: each step reads one row and what the steps before left, and leaves one column and row more.

use crate::model::{Model, Tensor};

/// Width of a row.
pub const WIDTH: i64 = 256;
/// Layers, each with a `past_k.N` [width, length] and a `past_v.N` [length, width] that grow to `present_…`.
pub const LAYERS: usize = 4;

/// The decoder for a past of this length; a name is any length.
pub fn model(past: &str) -> Model {
    let (width, square) = (WIDTH.to_string(), [WIDTH, WIDTH]);
    let mut m = Model::new(17).input("x", &["1", &width]).weight("scale", Tensor::new(&[1], vec![0.01]));
    let mut x = "x".to_owned();
    for layer in 0..LAYERS {
        let name = |what: &str| format!("{what}.{layer}");
        let (past_k, past_v) = (name("past_k"), name("past_v"));
        m = m.input(&past_k, &[&width, past]).input(&past_v, &[past, &width]);
        for (at, weight) in ["wq", "wk", "wv", "wo"].iter().enumerate() {
            m = m.weight(&name(weight), Tensor::random(&square, (layer * 4 + at) as u64));
        }
        let y = name("y");
        m = m
            .node("MatMul", &[&x, &name("wq")], &name("q0"))
            .node("Mul", &[&name("q0"), "scale"], &name("q"))
            .node("MatMul", &[&x, &name("wk")], &name("k"))
            .node("MatMul", &[&x, &name("wv")], &name("v"))
            .node("Transpose", &[&name("k")], &name("kt"))
            .node_with("Concat", &[&past_k, &name("kt")], &name("present_k"), &[("axis", 1)])
            .node_with("Concat", &[&past_v, &name("v")], &name("present_v"), &[("axis", 0)])
            .node("MatMul", &[&name("q"), &name("present_k")], &name("s"))
            .node("Softmax", &[&name("s")], &name("p"))
            .node("MatMul", &[&name("p"), &name("present_v")], &name("c"))
            .node("MatMul", &[&name("c"), &name("wo")], &name("o0"))
            .node("Mul", &[&name("o0"), "scale"], &name("o"))
            .node("Add", &[&name("o"), &x], &y)
            .output(&name("present_k"))
            .output(&name("present_v"));
        x = y;
    }
    m.output(&x)
}

/// Names of the last layer's output, and of what is kept from step to step: outputs and the inputs that they become.
pub fn kept() -> (String, Vec<(String, String)>) {
    let pairs = (0..LAYERS).flat_map(|n| ["k", "v"].map(|w| (format!("present_{w}.{n}"), format!("past_{w}.{n}"))));
    (format!("y.{}", LAYERS - 1), pairs.collect())
}

/// Shape of a past of this length.
pub fn past_shape(name: &str, length: i64) -> [i64; 2] {
    if name.starts_with("past_k") { [WIDTH, length] } else { [length, WIDTH] }
}
