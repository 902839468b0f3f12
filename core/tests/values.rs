//! Sequences, optionals and maps: into a run, from EP to EP, through branches and loops, and out again.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use common::lists::lists;
use common::model::*;
use common::view;
use ortolan::{Input, Session, Tensor, Value};
use ortolan_graph::proto::{TypeProto, ValueInfoProto, type_proto};

fn typed(name: &str, value: type_proto::Value) -> ValueInfoProto {
    let ty = TypeProto { value: Some(value), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(ty), ..ValueInfoProto::default() }
}

/// Items of one size: of others not even the rank would be known.
fn floats_type() -> Option<Box<TypeProto>> {
    value("", F32, &["2"]).r#type.map(Box::new)
}

fn sequence(name: &str) -> ValueInfoProto {
    typed(name, type_proto::Value::Sequence(Box::new(type_proto::Element { elem_type: floats_type() })))
}

fn optional(name: &str) -> ValueInfoProto {
    typed(name, type_proto::Value::Optional(Box::new(type_proto::Element { elem_type: floats_type() })))
}

fn map(name: &str) -> ValueInfoProto {
    let value_type = value("", F32, &[]).r#type.map(Box::new);
    typed(name, type_proto::Value::Map(Box::new(type_proto::Map { key_type: I64, value_type })))
}

fn list(items: &[&[f32]]) -> Value {
    Value::sequence(items.iter().map(|i| Value::from(i.to_vec())))
}

fn lists_of(value: &Value) -> Vec<Vec<f32>> {
    let Value::Sequence(items) = value else { panic!("not a sequence: {value:?}") };
    items.iter().map(|v| v.as_slice::<f32>().unwrap().to_vec()).collect()
}

/// On one EP, and on two that take turns.
fn everywhere(model: &[u8], first: &[&str], check: impl Fn(&Session)) {
    for eps in [vec![lists("one", &[])], vec![lists("a", first), lists("b", &[])]] {
        let s = common::session(eps, model.to_vec());
        check(&s);
        check(&s);
    }
}

#[test]
fn sequences_cross_from_ep_to_ep_and_out() {
    let m = model(graph(
        [sequence("s"), value("x", F32, &["2"]), value("i", I64, &[])],
        [],
        [
            node("SequenceInsert", &["s", "x"], &["s1"]),
            node("Neg", &["x"], &["n"]),
            node("SequenceInsert", &["s1", "n"], &["s2"]),
            // Of items of an input not even the rank is known.
            node("SequenceConstruct", &["x", "n"], &["q"]),
            node("SequenceAt", &["q", "i"], &["at"]),
            node("SequenceLength", &["s2"], &["count"]),
        ],
        [sequence("s2"), value("at", F32, &["?"]), value("count", I64, &[])],
    ));
    everywhere(&m, &["SequenceInsert_s1", "SequenceAt_at", "SequenceLength_count"], |s| {
        let (given, x) = (list(&[&[1.0, 2.0], &[3.0, 4.0]]), [5.0f32, -6.0]);
        let out = s.run([("s", Input::Shared(&given)), ("x", view(&[2], &x)), ("i", view(&[], &[1i64]))]).unwrap();
        let want: [&[f32]; 4] = [&[1.0, 2.0], &[3.0, 4.0], &[5.0, -6.0], &[-5.0, 6.0]];
        assert_eq!(lists_of(out.get("s2").unwrap()), want);
        assert_eq!(
            (out[1].as_slice::<f32>().unwrap(), out[2].as_slice::<i64>().unwrap()),
            (&[-5.0f32, 6.0][..], &[4i64][..])
        );
        // An empty one; and what was given is as it was.
        let out = s
            .run([
                ("s", Input::Moved(Value::sequence([]))),
                ("x", view(&[2], &[7.0f32, 0.5])),
                ("i", view(&[], &[0i64])),
            ])
            .unwrap();
        assert_eq!(lists_of(&out[0]), [[7.0, 0.5], [-7.0, -0.5]]);
        assert_eq!(lists_of(&given), [[1.0, 2.0], [3.0, 4.0]]);
        let error =
            s.run([("s", list(&[])), ("x", Value::from(vec![1i64, 2])), ("i", Value::from(vec![0i64]))]).unwrap_err();
        assert_eq!(error.code(), "input-type");
        let wrong = Value::sequence([Value::from(vec![1i64])]);
        assert_eq!(
            s.run([("s", wrong), ("x", Value::from(vec![1.0f32, 2.0])), ("i", Value::from(vec![0i64]))])
                .unwrap_err()
                .code(),
            "input-type"
        );
    });
}

#[test]
fn sequences_go_through_branches_and_grow_in_loops() {
    let then = graph([], [], [node("SequenceInsert", &["s", "x"], &["t"])], [sequence("t")]);
    let els = graph([], [], [], [sequence("s")]);
    let inside = graph(
        [value("i", I64, &[]), value("go", BOOL, &[]), sequence("q")],
        [],
        [node("Neg", &["x"], &["n"]), node("SequenceInsert", &["q", "n"], &["q1"])],
        [value("go", BOOL, &[]), sequence("q1")],
    );
    let m = model(graph(
        [sequence("s"), value("x", F32, &["N"]), value("c", BOOL, &[]), value("m", I64, &[])],
        [],
        [
            with(node("If", &["c"], &["z"]), [body("then_branch", then), body("else_branch", els)]),
            with(node("Loop", &["m", "", "z"], &["y"]), [body("body", inside)]),
        ],
        [sequence("y")],
    ));
    everywhere(&m, &["SequenceInsert_t", "Neg_n"], |s| {
        let run = |c: bool, m: i64| {
            let (c, m, x) = ([c], [m], [1.0f32]);
            let given = Input::Moved(list(&[&[9.0]]));
            let inputs = [("s", given), ("x", view(&[1], &x)), ("c", view(&[], &c)), ("m", view(&[], &m))];
            lists_of(&s.run(inputs).unwrap()[0])
        };
        assert_eq!(run(true, 2), [[9.0], [1.0], [-1.0], [-1.0]]);
        assert_eq!(run(false, 1), [[9.0], [-1.0]]);
        assert_eq!(run(true, 0), [[9.0], [1.0]]);
        assert_eq!(run(false, 0), [[9.0]]);
    });
}

#[test]
fn optionals_may_be_empty() {
    let m = model(graph(
        [optional("o"), value("x", F32, &["2"])],
        [],
        [
            node("OptionalHasElement", &["o"], &["has"]),
            node("Optional", &["x"], &["p"]),
            node("OptionalGetElement", &["p"], &["e"]),
            node("Neg", &["e"], &["y"]),
        ],
        [value("has", BOOL, &[]), optional("p"), value("y", F32, &["?"])],
    ));
    everywhere(&m, &["Optional_p", "Neg_y"], |s| {
        let run = |o: Option<f32>| {
            let o = Value::Optional(o.map(|v| Value::from(vec![v]).into()));
            s.run([("o", Input::Moved(o)), ("x", view(&[2], &[1.0f32, 2.0]))]).unwrap()
        };
        let out = run(Some(4.0));
        let Value::Optional(Some(p)) = &out[1] else { panic!("{:?}", out[1]) };
        assert_eq!(
            (out[0].as_slice::<bool>().unwrap(), p.as_slice::<f32>().unwrap()),
            (&[true][..], &[1.0f32, 2.0][..])
        );
        assert_eq!(out[2].as_slice::<f32>().unwrap(), [-1.0, -2.0]);
        assert_eq!(run(None)[0].as_slice::<bool>().unwrap(), [false]);
    });
}

#[test]
fn maps_pass_and_others_are_refused() {
    let m = model(graph(
        [map("m"), value("x", F32, &["N"])],
        [],
        [node("Neg", &["x"], &["z"])],
        [map("m"), value("z", F32, &["N"])],
    ));
    let s = common::session([lists("one", &[])], m);
    let keys = Tensor::new(&[2], vec![3i64, -4]).unwrap();
    let given = Value::map(keys.clone(), Value::from(vec![0.5f32, 1.5])).unwrap();
    let out = s.run([("m", Input::Shared(&given)), ("x", view(&[1], &[1.0f32]))]).unwrap();
    let Value::Map(y) = &out[0] else { panic!("{:?}", out[0]) };
    assert_eq!(
        (y.keys.as_slice::<i64>().unwrap(), y.values.as_slice::<f32>().unwrap()),
        (&[3, -4][..], &[0.5, 1.5][..])
    );
    let other = Value::map(keys, Value::from(vec![1i64, 2])).unwrap();
    let error = s.run([("m", Input::Moved(other)), ("x", view(&[1], &[1.0f32]))]).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        ("input-type", "input 'm' is a map, and the model takes map(int64,tensor(float))")
    );
}

#[test]
fn a_binding_keeps_sequences_from_run_to_run() {
    let m = model(graph(
        [sequence("past"), value("x", F32, &["N"])],
        [],
        [node("SequenceInsert", &["past", "x"], &["present"]), node("SequenceLength", &["present"], &["count"])],
        [sequence("present"), value("count", I64, &[])],
    ));
    everywhere(&m, &["SequenceLength_count"], |s| {
        let mut binding = s.bind().unwrap();
        binding.input("past", Value::sequence([])).unwrap().keep("present", "past").unwrap();
        for n in 1..5i64 {
            let out = binding.input("x", vec![n as f32]).unwrap().run().unwrap();
            let want: Vec<Vec<f32>> = (1..=n).map(|v| vec![v as f32]).collect();
            assert_eq!((lists_of(&out[0]), out[1].as_slice::<i64>().unwrap()), (want, &[n][..]));
        }
    });
}
