//! An EP that is linked in gives the same answers as the same EP in a library.

use crate::{EPS, load, run, session, tiny};
use ortolan::host::PluginHost;
use ortolan_tests::model::{Model, Tensor};

#[test]
fn linked_in_and_loaded_eps_agree_to_the_bit() {
    let host = PluginHost::builder().only_given_paths().build();
    let linked = host.register_static(&tiny::ENTRY).expect("it is a good one");
    let model = Model::new(17)
        .input("x", &["N", "1", "3"])
        .weight("b", Tensor::random(&[3], 7))
        .node("Add", &["x", "b"], "s")
        .node("Relu", &["s"], "y")
        .output("y");
    let inputs = [("x", Tensor::random(&[5, 1, 3], 9))];
    let sessions =
        [session(&[&linked], &model), session(&[&EPS.tiny], &model)].map(|s| s.expect("it has the operators"));
    let reports = sessions.each_ref().map(|s| format!("{}", s.report()));
    assert_eq!(reports[0], reports[1]);
    let bits = |s: &ortolan::Session| {
        let y = run(s, &inputs).expect("it runs");
        y[0].as_slice::<f32>().expect("f32").iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(bits(&sessions[0]), bits(&sessions[1]));
    // The same refusal as well.
    let unknown = Model::new(17).input("x", &["2", "2"]).node("Softmax", &["x"], "y").output("y");
    let errors = [&linked, &EPS.tiny].map(|ep| session(&[ep], &unknown).expect_err("it has no Softmax").to_string());
    assert_eq!(errors[0], errors[1]);
}

#[test]
fn plugin_without_a_layout_proof_runs_as_well() {
    let unproven = load(&ortolan_tests::fixtures::unproven());
    assert!(!unproven.is_proven());
    let model = Model::new(17).input("x", &["2"]).node("Relu", &["x"], "y").output("y");
    let inputs = [("x", Tensor::new(&[2], vec![-1.0, 2.0]))];
    let outputs = run(&session(&[&unproven], &model).expect("it has Relu"), &inputs).expect("it runs");
    assert_eq!(outputs[0].as_slice::<f32>().expect("f32"), [0.0, 2.0]);
}
