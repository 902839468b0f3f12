//! Codes that need several EPs, or none of the faults: each is produced here.

use crate::shared::{input, relu};
use crate::{EPS, faults::faulty, run, session, session_ep};
use ortolan::Session;
use ortolan_tests::model::{Model, Tensor};

/// The error of building a session over these EPs.
fn refusal(eps: &[&std::sync::Arc<ortolan::host::LoadedEp>], model: &Model) -> String {
    session(eps, model).map(|_| ()).expect_err("it is refused").to_string()
}

#[test]
fn models_that_cannot_be_placed_say_why() {
    let cases = [
        (
            "unknown-rank",
            Model::new(17).input_of_any_rank("x").node("Relu", &["x"], "y").output("y"),
            "the rank of 'x'",
        ),
        (
            "not-asked",
            Model::new(24)
                .input("past", &["1", "2", "8", "4"])
                .input("update", &["1", "2", "1", "4"])
                .node("TensorScatter", &["past", "update"], "present")
                .output("present"),
            "TensorScatter",
        ),
    ];
    for (code, model, words) in cases {
        let text = refusal(&[&EPS.tiny], &model);
        assert!(text.contains(code) && text.contains(words), "{code}: {text}");
    }
}

#[test]
fn a_value_without_a_type() {
    let model =
        Model::new(17).input("x", &["4"]).node("far.away::Foo", &["x"], "y").node("Relu", &["y"], "z").output("z");
    let survey = Session::builder().eps([session_ep(&EPS.tiny)]).survey(model.bytes()).expect("it can be looked at");
    let relu = survey.nodes.iter().find(|n| n.op == "Relu").expect("listed");
    assert_eq!(relu.answers[0].code, "untyped", "{relu:?}");
    assert!(relu.answers[0].sentence.contains("'y'"), "{relu:?}");
}

#[test]
fn sizes_that_contradict_each_other_inside_the_model() {
    let model =
        Model::new(17).input("x", &["A", "B"]).input("y", &["C", "D"]).node("MatMul", &["x", "y"], "p").output("p");
    let s = session(&[&EPS.plain], &model).expect("it may work");
    let inputs = |c| [("x", Tensor::random(&[2, 3], 1)), ("y", Tensor::random(&[c, 2], 2))];
    let error = run(&s, &inputs(4)).expect_err("3 and 4");
    assert_eq!(error.code(), "assumption", "{error}");
    run(&s, &inputs(3)).expect("3 and 3");
}

#[test]
fn space_without_a_copy() {
    let s = session(&[&faulty("COMPILE_SPACE_WITHOUT_COPY")], &relu()).expect("nobody has asked for a copy yet");
    let error = run(&s, &input()).expect_err("its input would have to be copied");
    assert!(error.code() == "no-copy" && error.to_string().contains("hostile"), "{error}");
}

#[test]
fn results_are_asked_for_as_what_they_are() {
    let s = session(&[&EPS.tiny], &relu()).expect("it has Relu");
    let outputs = run(&s, &input()).expect("it runs");
    let error = outputs[0].as_slice::<i64>().expect_err("it is f32");
    assert_eq!(error.code(), "value-kind", "{error}");
    let mut binding = s.bind().expect("it can be bound");
    let tensor = ortolan::Tensor::new(&[4], vec![0.0_f32; 4]).expect("it fits");
    let error = binding.output("nope", tensor).map(|_| ()).expect_err("there is no such output");
    assert!(error.code() == "output-unknown" && error.to_string().contains('y'), "{error}");
}

/// Codes of the graph crate reach who builds a session unchanged.
#[test]
fn models_that_cannot_be_read() {
    use ortolan_graph::proto::{GraphProto, ModelProto, TypeProto, ValueInfoProto, type_proto};
    use prost::Message;
    let code = |model: ortolan::Model| {
        let eps = [session_ep(&EPS.tiny)];
        Session::builder().eps(eps).build(model).map(|_| ()).expect_err("it cannot be read").code()
    };
    let folder = ortolan_tests::place::fresh();
    assert_eq!(code(folder.path().join("nowhere.onnx").into()), "io");
    let mut model = ModelProto::decode(&*relu().bytes()).expect("it was just encoded");
    let opaque = type_proto::Opaque { domain: "far.away".into(), name: "Thing".into() };
    let ty = TypeProto { value: Some(type_proto::Value::Opaque(opaque)), ..TypeProto::default() };
    let graph: &mut GraphProto = model.graph.as_mut().expect("it has one");
    graph.input.push(ValueInfoProto { name: "thing".into(), r#type: Some(ty), ..ValueInfoProto::default() });
    assert_eq!(code(model.encode_to_vec().into()), "unsupported");
}
