//! One model over several EPs: who runs what, the reasons, and right results for any order of any of them.

use crate::{EPS, assert_right, run, session};
use ortolan::host::Origin;
use ortolan_tests::model::{Model, Random, Tensor};
use ortolan_tests::place::fresh;
use std::ffi::OsString;

/// Runs on all of them: Gemm is only in the repository's own EP, Softmax and MatMul in the C plugin, Relu and Add in the
/// Rust plugin, Mul on the device.
fn classifier() -> Model {
    Model::new(17)
        .input("x", &["N", "8"])
        .weight("w1", Tensor::random(&[8, 16], 1))
        .weight("b1", Tensor::random(&[16], 2))
        .weight("w2", Tensor::random(&[16, 5], 3))
        .weight("b2", Tensor::random(&[5], 4))
        .node("Gemm", &["x", "w1", "b1"], "h")
        .node("Relu", &["h"], "r")
        .node("MatMul", &["r", "w2"], "m")
        .node("Add", &["m", "b2"], "a")
        .node("Mul", &["a", "a"], "q")
        .node("Softmax", &["q"], "p")
        .output("p")
        .output("a")
}

/// Which EP runs each node.
fn places(session: &ortolan::Session) -> Vec<(String, String)> {
    let ep = |n: &ortolan::NodeReport| n.ep.clone().unwrap_or_else(|| n.place.to_owned());
    session.report().nodes.iter().map(|n| (n.name.clone(), ep(n))).collect()
}

#[test]
fn three_eps_share_a_model_and_say_why() {
    let model = classifier();
    let own = EPS.own.name();
    let s = session(&[&EPS.tiny, &EPS.plain, &EPS.own], &model).expect("every node has an EP");
    let expected = [("h", own), ("r", "tiny"), ("m", "plain"), ("a", "tiny"), ("q", own), ("p", "plain")]
        .map(|(n, e)| (n.to_owned(), e.to_owned()));
    assert_eq!(places(&s), expected);
    // Each of the others says why it does not run the node, with a sentence that a person understands.
    for node in &s.report().nodes {
        assert_eq!(node.answers.len(), 2, "{}", node.name);
        for answer in &node.answers {
            assert!(!answer.code.is_empty() && answer.sentence.len() > 8, "{}: {answer:?}", node.name);
        }
    }
    let answer = |node: &str, ep: &str| {
        let node = s.report().nodes.iter().find(|n| n.name == node).expect("listed");
        node.answers.iter().find(|a| a.ep == ep).expect("answered").clone()
    };
    assert_eq!(answer("h", "tiny").code, "operator");
    assert!(answer("h", "tiny").sentence.contains("Gemm"));
    assert_eq!(answer("m", own).code, "taken-by");
    for n in [1, 7, 1, 32] {
        let inputs = [("x", Tensor::random(&[n, 8], n as u64))];
        assert_right(&run(&s, &inputs).expect("it runs"), &model, &inputs, &format!("N = {n}"));
    }
}

/// The same as a person asks for it.
#[test]
fn command_line_shows_the_split_with_reasons() {
    let folder = fresh();
    let path = folder.path().join("classifier.onnx");
    std::fs::write(&path, classifier().bytes()).expect("the folder is ours");
    let mut args: Vec<OsString> = ["ortolan", "check", "--json"].map(OsString::from).to_vec();
    args.push(path.into());
    for ep in [&EPS.tiny, &EPS.plain, &EPS.own] {
        let Origin::File { path, .. } = ep.origin() else { panic!("{} is no library", ep.name()) };
        args.extend(["--ep-path".into(), path.into(), "--ep".into(), ep.name().into()]);
    }
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let status = ortolan_cli::run(args, &mut out, &mut errors);
    assert_eq!(status, 0, "{}", String::from_utf8_lossy(&errors));
    let answer: serde_json::Value = serde_json::from_slice(&out).expect("one JSON document");
    let nodes = answer["nodes"].as_array().expect("a list");
    let own = EPS.own.name();
    let eps: Vec<&str> = nodes.iter().map(|n| n["ep"].as_str().expect("placed")).collect();
    assert_eq!(eps, [own, "tiny", "plain", "tiny", own, "plain"]);
    for node in nodes {
        assert!(node["reason"].as_str().is_some_and(|r| !r.is_empty()), "{node}");
        let answers = node["answers"].as_array().expect("a list");
        assert_eq!(answers.len(), 2, "{node}");
        for answer in answers {
            assert!(answer["code"].is_string() && answer["sentence"].as_str().is_some_and(|s| s.len() > 8), "{node}");
        }
    }
}

#[test]
fn a_device_takes_part_with_copies() {
    let model = classifier();
    let s = session(&[&EPS.fake, &EPS.tiny, &EPS.plain, &EPS.own], &model).expect("every node has an EP");
    let on_device: Vec<String> = places(&s).into_iter().filter(|(_, ep)| ep == "fake").map(|(n, _)| n).collect();
    assert_eq!(on_device, ["r", "q"]);
    let bias = s.report().nodes.iter().find(|n| n.name == "a").expect("listed");
    let why = bias.answers.iter().find(|a| a.ep == "fake").expect("it says why not");
    assert!(why.code == "shape" && why.sentence.contains("input 1"), "{why:?}");
    // It has fixed shapes only, so each N is compiled for.
    for n in [1, 4, 1, 9, 4] {
        let inputs = [("x", Tensor::random(&[n, 8], n as u64))];
        assert_right(&run(&s, &inputs).expect("it runs"), &model, &inputs, &format!("N = {n}"));
    }
}

/// The second part on the device reads `a` and leaves `c` there, the third reads both: `c` must not take `a`'s place.
#[test]
fn values_on_a_device_are_overwritten_by_their_last_reader_only() {
    let model = Model::new(17)
        .input("x", &["N", "4"])
        .weight("s", Tensor::new(&[1], vec![3.0]))
        .weight("b", Tensor::random(&[4], 5))
        .node("Mul", &["x", "s"], "a")
        .node("Add", &["a", "b"], "p")
        .node("Mul", &["a", "p"], "c")
        .node("Mul", &["c", "s"], "d")
        .node("Add", &["d", "b"], "q")
        .node("Mul", &["c", "q"], "e")
        .node("Mul", &["a", "e"], "y")
        .output("y");
    let s = session(&[&EPS.fake, &EPS.tiny], &model).expect("every node has an EP");
    let eps: Vec<String> = places(&s).into_iter().map(|(_, ep)| ep).collect();
    assert_eq!(eps, ["fake", "tiny", "fake", "fake", "tiny", "fake", "fake"]);
    assert_eq!(s.report().parts.len(), 5);
    for n in [2, 3, 2, 2] {
        let inputs = [("x", Tensor::random(&[n, 4], n as u64))];
        assert_right(&run(&s, &inputs).expect("it runs"), &model, &inputs, &format!("N = {n}"));
    }
}

#[test]
fn an_operator_that_nobody_runs_is_named() {
    let error = session(&[&EPS.tiny, &EPS.plain], &classifier()).expect_err("nobody runs Gemm");
    assert_eq!(error.code(), "unplaced");
    let text = error.to_string();
    for word in ["Gemm", "tiny", "plain", "operator"] {
        assert!(text.contains(word), "{text}");
    }
}

/// Nobody has FlexAttention; the operators of its body somebody has.
#[test]
fn a_composite_operator_that_nobody_runs_runs_by_its_body() {
    let model = Model::new(28)
        .input("q", &["1", "4", "3", "8"])
        .input("k", &["1", "2", "1", "8"])
        .input("v", &["1", "2", "1", "5"])
        .node("ai.onnx.preview::FlexAttention", &["q", "k", "v"], "y")
        .output("y");
    let s = session(&[&EPS.own], &model).expect("its body is placed");
    assert!(s.report().nodes.len() > 1 && s.report().nodes.iter().all(|n| !n.op.contains("FlexAttention")));
    let v = Tensor::random(&[1, 2, 1, 5], 3);
    let inputs = [("q", Tensor::random(&[1, 4, 3, 8], 1)), ("k", Tensor::random(&[1, 2, 1, 8], 2)), ("v", v.clone())];
    let outputs = run(&s, &inputs).expect("it runs");
    let y = outputs.get("y").expect("there").to_host().expect("at home");
    // All weight is on the only key; two heads of queries share one of keys.
    for (at, y) in y.as_slice::<f32>().expect("f32").iter().enumerate() {
        assert!((y - v.data[at / 30 * 5 + at % 5]).abs() < 1e-5, "{at}");
    }
    let error = session(&[&EPS.tiny, &EPS.plain], &model).expect_err("nobody runs its body");
    assert!(error.code() == "unplaced" && error.to_string().contains("FlexAttention"), "{error}");
}

/// A model of up to 16 operators over values of one shape.
fn random_model(random: &mut Random) -> Model {
    let mut model = Model::new([13, 17, 21][random.below(3)]).input("x", &["N", "4"]).input("y", &["N", "4"]);
    for (i, shape) in [&[4, 4][..], &[4], &[1]].iter().enumerate() {
        model = model.weight(&format!("w{i}"), Tensor::random(shape, random.0 + i as u64));
    }
    let mut values = vec!["x".to_owned(), "y".to_owned()];
    for at in 0..1 + random.below(16) {
        let (a, b) = (values[random.below(values.len())].clone(), values[random.below(values.len())].clone());
        let name = format!("v{at}");
        model = match random.below(7) {
            0 => model.node("Add", &[&a, &b], &name),
            1 => model.node("Add", &[&a, "w1"], &name),
            2 => model.node("Mul", &[&a, "w2"], &name),
            3 => model.node("Relu", &[&a], &name),
            4 => model.node("MatMul", &[&a, "w0"], &name),
            5 => model.node_with("Softmax", &[&a], &name, &[("axis", 1)]),
            _ => model.node("Mul", &[&a, &b], &name),
        };
        values.push(name);
    }
    let last = values.last().expect("there is one").clone();
    let other = values[2..][random.below(values.len() - 2)].clone();
    let model = model.output(&last);
    if other == last { model } else { model.output(&other) }
}

#[test]
fn any_order_of_eps_computes_what_the_interpreter_does() {
    const SEED: u64 = 20240607;
    println!("seed {SEED}");
    let mut random = Random(SEED);
    for case in 0..120 {
        let model = random_model(&mut random);
        let mut eps = vec![&EPS.own];
        for ep in [&EPS.tiny, &EPS.plain, &EPS.fake] {
            if random.below(3) > 0 {
                eps.insert(random.below(eps.len() + 1), ep);
            }
        }
        if random.below(3) == 0 {
            eps.retain(|ep| ep.name() != "fake");
            eps.insert(0, &EPS.fake); // more of what is hard
        }
        let names: Vec<&str> = eps.iter().map(|ep| ep.name()).collect();
        let what = format!("case {case}, {names:?}, {:?}", model.nodes());
        let s = session(&eps, &model).unwrap_or_else(|e| panic!("{what}: {e}"));
        for n in [3, 1, 5, 3] {
            let inputs = [("x", Tensor::random(&[n, 4], random.0)), ("y", Tensor::random(&[n, 4], random.0 + 1))];
            if model.interpret(&inputs).values().all(|t| t.data.iter().all(|v| v.abs() < 1e4)) {
                let outputs = run(&s, &inputs).unwrap_or_else(|e| panic!("{what}, N = {n}: {e}"));
                assert_right(&outputs, &model, &inputs, &format!("{what}, N = {n}"));
            }
        }
    }
}
