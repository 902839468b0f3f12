//! Coded answers to models, inputs and EPs that do not fit together, and what a run may still do about it.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::fake::{at_opset, fake, without_copy};
use common::model::*;
use common::{floats, session, view};
use ortolan::{Model, Session, SessionOptions};
use ortolan_graph::proto::{GraphProto, ModelProto, OperatorSetIdProto};
use prost::Message;

fn refused(g: GraphProto, eps: Vec<ortolan::SessionEp>) -> String {
    Session::builder().eps(eps).build(model(g)).unwrap_err().to_string()
}

fn all() -> Vec<ortolan::SessionEp> {
    vec![fake("ep", &[("ops", "*")])]
}

#[test]
fn values_without_rank_or_type_are_named() {
    let mut x = value("x", F32, &[]);
    if let Some(ortolan_graph::proto::type_proto::Value::Tensor(t)) = x.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        t.shape = None;
    }
    let unranked = graph([x], [], [node("Relu", &["x"], &["y"])], [value("y", F32, &["?"])]);
    let text = refused(unranked, all());
    assert!(text.contains("the rank of 'x' is not known [unknown-rank]"), "{text}");
}

#[test]
fn operators_of_unknown_domains_are_asked_about_where_the_ep_states_the_domain() {
    let mut own = node("Foo", &["x"], &["y"]);
    own.domain = "x.y".to_owned();
    let g = graph([value("x", F32, &["2"])], [], [own], [value("y", F32, &["2"])]);
    let opset = |domain: &str, version| OperatorSetIdProto { domain: domain.to_owned(), version };
    let m = ModelProto {
        ir_version: 10,
        graph: Some(g),
        opset_import: vec![opset("", 21), opset("x.y", 1)],
        ..ModelProto::default()
    };
    let bytes = m.encode_to_vec();
    let text = |ep| Session::builder().eps([ep]).build(bytes.clone()).unwrap_err().to_string();
    let stranger = text(fake("ep", &[("ops", "*")]));
    assert!(stranger.contains("[not-asked]"), "{stranger}");
    let friend = text(at_opset("ep", &[("", 21), ("x.y", 1)], &[("ops", "*")]));
    assert!(friend.contains("Foo is not done [operator]") || friend.contains("[untyped]"), "{friend}");
}

#[test]
fn an_ep_of_an_older_opset_gets_the_files_own_form() {
    // The file is of opset 21; Relu means the same since 14, but not before.
    let g = graph([value("x", F32, &["2"])], [], [node("Relu", &["x"], &["y"])], [value("y", F32, &["2"])]);
    for (opset, runs) in [(21, true), (14, true), (25, true)] {
        let built = Session::builder().eps([at_opset("ep", &[("", opset)], &[("ops", "*")])]).build(model(g.clone()));
        assert_eq!(built.is_ok(), runs, "{opset}: {built:?}");
    }
}

#[test]
fn sizes_that_contradict_each_other_in_a_run_are_an_answer() {
    let g = graph(
        [value("x", F32, &["3"]), value("y", F32, &["M"])],
        [],
        [node("Add", &["x", "y"], &["z"])],
        [value("z", F32, &["?"])],
    );
    let s = session(all(), model(g));
    let run = |y: &[f32]| s.run([("x", view(&[3], &[1.0f32, 2.0, 3.0])), ("y", view(&[y.len() as i64], y))]);
    let e = run(&[1.0, 2.0]).unwrap_err();
    assert!(e.code() == "assumption" && e.message().contains("Add"), "{e}");
    assert_eq!(floats(&run(&[1.0]).unwrap(), "z"), [2.0, 3.0, 4.0]);
    assert_eq!(floats(&run(&[1.0, 1.0, 0.0]).unwrap(), "z"), [2.0, 3.0, 3.0]);
}

#[test]
fn dim_names_that_lie_get_a_plan_that_does_not_believe_them() {
    let g = || {
        graph(
            [value("x", F32, &["N"]), value("y", F32, &["N"])],
            [],
            [node("Neg", &["x"], &["a"]), node("Relu", &["y"], &["b"])],
            [value("a", F32, &["N"]), value("b", F32, &["N"])],
        )
    };
    let npu = vec![fake("npu", &[("ops", "*")]).device(2)];
    for eps in [all(), npu] {
        let s = session(eps, model(g()));
        for _ in 0..2 {
            let out = s.run([("x", view(&[1], &[5.0f32])), ("y", view(&[2], &[-1.0f32, 1.0]))]);
            let out = out.unwrap();
            assert_eq!((floats(&out, "a"), floats(&out, "b")), (vec![-5.0], vec![0.0, 1.0]));
            let out = s.run([("x", view(&[1], &[5.0f32])), ("y", view(&[1], &[2.0f32]))]).unwrap();
            assert_eq!(floats(&out, "b"), [2.0]);
        }
    }
    let loaded = ortolan_graph::load_bytes(model(g()), None, &Default::default()).unwrap();
    let s = Session::builder().eps(all()).build(Model::from(loaded)).unwrap();
    let e = s.run([("x", view(&[1], &[5.0f32])), ("y", view(&[2], &[-1.0f32, 1.0]))]).unwrap_err();
    assert!(e.code() == "input-shape" && e.message().contains("has the name of one that is 1 in this run"), "{e}");
    let options = SessionOptions { dims: vec![("N".to_owned(), 2)], ..SessionOptions::default() };
    let s = Session::builder().eps(all()).options(options).build(model(g())).unwrap();
    let e = s.run([("x", view(&[1], &[5.0f32])), ("y", view(&[2], &[-1.0f32, 1.0]))]).unwrap_err();
    assert!(e.message().contains("the model takes 2 in dimension 0"), "{e}");
}

#[test]
fn a_space_whose_ep_does_not_copy_cannot_be_reached() {
    let g = graph(
        [value("x", F32, &["2"])],
        [],
        [node("Neg", &["x"], &["a"]), node("Relu", &["a"], &["y"])],
        [value("y", F32, &["2"])],
    );
    let s = session(
        [without_copy("dev", &[("ops", "Relu"), ("space", "dev.deaf")]), fake("cpu", &[("ops", "*")])],
        model(g),
    );
    let e = s.run([("x", view(&[2], &[1.0f32, -1.0]))]).unwrap_err();
    assert!(e.code() == "no-copy" && e.message().contains("'dev.deaf'"), "{e}");
}

#[test]
fn numbers_that_a_body_cannot_work_with_are_an_answer() {
    let inside = graph(
        [value("p", F32, &[]), value("q", F32, &[])],
        [],
        [node("Add", &["p", "q"], &["r"])],
        [value("r", F32, &[])],
    );
    let g = graph(
        [value("x", F32, &["A"]), value("y", F32, &["B"])],
        [],
        [with(node("Scan", &["x", "y"], &["z"]), [int("num_scan_inputs", 2), body("body", inside)])],
        [value("z", F32, &["?"])],
    );
    let s = session(all(), model(g));
    let run = |y: &[f32]| s.run([("x", view(&[2], &[1.0f32, 2.0])), ("y", view(&[y.len() as i64], y))]);
    assert_eq!(floats(&run(&[3.0, 4.0]).unwrap(), "z"), [4.0, 6.0]);
    let e = run(&[3.0]).unwrap_err();
    assert!(e.code() == "data" && e.to_string().contains("Scan"), "{e}");
    assert_eq!(
        s.bind().unwrap().output("w", ortolan::Tensor::new(&[0], vec![0f32; 0]).unwrap()).unwrap_err().code(),
        "output-unknown"
    );
}

#[test]
fn a_default_stands_in_for_an_input_that_is_left_out() {
    let g = graph(
        [value("x", F32, &["2"]), value("w", F32, &["2"])],
        [weights("w", &[2], &[10.0, 20.0])],
        [node("Add", &["x", "w"], &["y"])],
        [value("y", F32, &["2"])],
    );
    let s = session(all(), model(g));
    let x = || ("x", view(&[2], &[1.0f32, 2.0]));
    for _ in 0..2 {
        assert_eq!(floats(&s.run([x()]).unwrap(), "y"), [11.0, 22.0]);
        assert_eq!(floats(&s.run([x(), ("w", view(&[2], &[0.5f32, 0.5]))]).unwrap(), "y"), [1.5, 2.5]);
    }
    let twice = [x(), ("w", view(&[2], &[0.5f32; 2])), ("w", view(&[2], &[0.5f32; 2]))];
    assert!(s.run(twice).unwrap_err().message().contains("given twice"));
}

#[test]
fn constants_go_out_and_empty_models_run_without_any_ep() {
    let g = graph(
        [value("x", F32, &["2"])],
        [weights("k", &[1], &[3.0])],
        [],
        [value("x", F32, &["2"]), value("k", F32, &["1"])],
    );
    let s = session([], model(g));
    let out = s.run([("x", view(&[2], &[1.0f32, 2.0]))]).unwrap();
    assert_eq!((floats(&out, "x"), floats(&out, "k")), (vec![1.0, 2.0], vec![3.0]));
}

#[test]
fn outputs_keep_their_names_when_identities_go() {
    let g = graph(
        [value("x", F32, &["2"])],
        [],
        [
            node("Identity", &["x"], &["same"]),
            node("Neg", &["x"], &["n"]),
            node("Identity", &["n"], &["p"]),
            node("Identity", &["n"], &["q"]),
        ],
        [value("same", F32, &["2"]), value("p", F32, &["2"]), value("q", F32, &["2"])],
    );
    let s = session(all(), model(g));
    assert_eq!(s.report().nodes.len(), 1);
    let x = [1.0f32, -2.0];
    for _ in 0..2 {
        let out = s.run([("x", view(&[2], &x))]).unwrap();
        let names: Vec<&str> = out.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["same", "p", "q"]);
        assert_eq!(
            (floats(&out, "same"), floats(&out, "p"), floats(&out, "q")),
            (x.to_vec(), vec![-1.0, 2.0], vec![-1.0, 2.0])
        );
    }
}

#[test]
fn a_part_comes_as_a_model_of_its_own() {
    let inner = graph([], [], [node("Mul", &["a", "w"], &["t"])], [value("t", F32, &["?"])]);
    let other = graph([], [], [node("Neg", &["a"], &["e"])], [value("e", F32, &["?"])]);
    let g = graph(
        [value("x", F32, &["N"]), value("c", BOOL, &[])],
        [weights("w", &[1], &[3.0])],
        [
            node("Add", &["x", "w"], &["a"]),
            with(node("If", &["c"], &["b"]), [body("then_branch", inner), body("else_branch", other)]),
            node("Add", &["b", "w"], &["y"]),
        ],
        [value("y", F32, &["?"])],
    );
    let s = session([fake("ep", &[("ops", "*"), ("break", "onnx"), ("log", "as_onnx")])], model(g));
    let parts = common::fake::models("as_onnx");
    assert_eq!(parts.len(), s.report().parts.len());
    let x = [1.0f32, -2.0];
    let mut sums = Vec::new();
    for part in parts {
        // Each is a whole model: it loads, and computes what its nodes compute.
        let alone = session(all(), part);
        let name = alone.inputs()[0].name.clone();
        let op = alone.report().nodes[0].op.clone();
        sums.push((op, floats(&alone.run([(name.as_str(), view(&[2], &x))]).unwrap(), &alone.outputs()[0].name)));
    }
    sums.sort_by(|a, b| a.0.cmp(&b.0));
    let want = [("Add", vec![4.0, 1.0]), ("Add", vec![4.0, 1.0]), ("Mul", vec![3.0, -6.0]), ("Neg", vec![-1.0, 2.0])];
    assert_eq!(sums, want.map(|(op, y)| (op.to_owned(), y)));
}
