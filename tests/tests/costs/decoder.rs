//! A growing sequence: a decoder that is bound once and runs 200 steps.

use crate::heap::counted;
use crate::own;
use ortolan::{Binding, Outputs, Session, Tensor};
use ortolan_tests::decoder::{WIDTH, kept, model, past_shape};
use ortolan_tests::model;

const STEPS: i64 = 200;

fn row(step: i64) -> Tensor {
    Tensor::new(&[1, WIDTH], model::Tensor::random(&[1, WIDTH], step as u64).data).expect("it fits")
}

fn bound(session: &Session, length: i64) -> Binding<'_> {
    let mut binding = session.bind().expect("it can be bound");
    for (present, past) in kept().1 {
        let zeros = Tensor::zeros(ortolan_graph::ir::DType::F32, &past_shape(&past, length)).expect("it fits");
        binding.input(&past, zeros).expect("an input").keep(&present, &past).expect("names of the model");
    }
    binding
}

fn step(binding: &mut Binding<'_>, x: Tensor) -> Outputs {
    binding.input("x", x).expect("an input").run().expect("it runs")
}

/// Blocks that a growing sequence takes beyond those of its outputs: once, while memory grows, and none per step.
pub fn a_growing_sequence_takes_blocks_for_its_outputs_only() {
    let session = crate::session(&own(), &model("P"), 1);
    let mut binding = bound(&session, 1);
    let rows: Vec<Tensor> = (0..STEPS).map(row).collect();
    rows[..4].iter().for_each(|x| drop(step(&mut binding, x.clone())));
    let steps: Vec<u64> = rows[4..].iter().map(|x| counted(|| drop(step(&mut binding, x.clone()))).0).collect();
    // The list of a run's outputs is one block.
    let (total, quiet) = (steps.iter().sum::<u64>(), steps.iter().filter(|&&n| n <= 1).count());
    println!("{total} blocks in {} steps, {quiet} of them with nothing but the list of outputs", steps.len());
    // What grows takes a quarter more room each time that it has to: two buffers of each of 8 outputs, and the arena.
    assert!(quiet * 10 >= steps.len() * 7 && total <= 900, "{total} blocks, {quiet} quiet of {steps:?}");
}

fn floats(value: &ortolan::Value) -> &[f32] {
    value.as_slice().expect("f32")
}

/// What a growing sequence computes is what a session for exactly this length computes.
pub fn a_growing_sequence_gives_what_fixed_lengths_give() {
    let session = crate::session(&own(), &model("P"), 1);
    let (mut binding, (y, pairs)) = (bound(&session, 1), kept());
    let mut before: Option<Outputs> = None;
    for n in 0..STEPS {
        let found = step(&mut binding, row(n));
        if let Some(before) = before.take_if(|_| n % 67 == 66) {
            let fixed = crate::session(&own(), &model(&(n + 1).to_string()), 1);
            let mut once = fixed.bind().expect("it can be bound");
            for (present, past) in &pairs {
                once.input(past, before.get(present).expect("an output").clone()).expect("an input");
            }
            let want = step(&mut once, row(n));
            for name in pairs.iter().map(|p| &p.0).chain([&y]) {
                let [want, got] = [&want, &found].map(|o| o.get(name).expect("an output"));
                assert_eq!((got.shape(), floats(got)), (want.shape(), floats(want)), "{name}, {n}");
            }
        }
        before = Some(found);
    }
}
