//! Commands that need no EP: help, inspect, ep, doctor, explain, and what every one of them says to wrong arguments.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Place, classifier, model, node, value};
use snapbox::file;

#[test]
fn help_is_the_contract() {
    let place = Place::new();
    place.ortolan(&["--help"]).assert().success().stdout_eq(file!["snapshots/help.txt"]);
    for command in ["inspect", "conformance", "doctor", "explain"] {
        let snapshot = snapbox::Data::read_from(
            &std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/snapshots/help-{command}.txt")),
            None,
        );
        place.ortolan(&[command, "--help"]).assert().success().stdout_eq(snapshot);
    }
    place.ortolan(&["ep", "--help"]).assert().success().stdout_eq(file!["snapshots/help-ep.txt"]);
}

#[test]
fn inspect_tells_what_the_file_says() {
    let place = Place::new();
    place.model("m.onnx", &classifier());
    place.ortolan(&["inspect", "m.onnx"]).assert().success().stdout_eq(file!["snapshots/inspect.txt"]);
    place.ortolan(&["inspect", "m.onnx", "--json"]).assert().success().stdout_eq(file!["snapshots/inspect.json.txt"]);
}

#[test]
fn ep_list_answers_without_a_plugin() {
    let place = Place::new();
    let (status, out, err) = place.answer(&["ep", "list"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.starts_with("No execution providers were found.\n"), "{out}");
    assert!(out.contains(&place.path("bin").display().to_string()), "{out}");
    let (status, json) = place.json(&["ep", "list", "--json"]);
    assert_eq!((status, json["found"].as_array().map(Vec::len)), (0, Some(0)));
    assert!(json["places"].as_array().unwrap().len() >= 3);
}

#[test]
fn a_plugin_is_listed_described_verified_and_diagnosed() {
    let place = Place::new();
    let eps = place.plain_ep();
    place.ortolan(&["ep", "list", "--ep-path", &eps]).assert().success().stdout_eq(file!["snapshots/ep-list.txt"]);
    let (_, list) = place.json(&["ep", "list", "--ep-path", &eps, "--json"]);
    assert_eq!(list["found"][0]["manifest"]["name"], "plain");
    place
        .ortolan(&["ep", "info", "plain", "--ep-path", &eps])
        .assert()
        .success()
        .stdout_eq(file!["snapshots/ep-info.txt"]);
    let (_, info) = place.json(&["ep", "info", "plain@>=0", "--ep-path", &eps, "--json"]);
    assert_eq!(info["manifest"]["name"], "plain");
    assert!(info["catalogue"].as_array().unwrap().iter().any(|row| row["op"] == "Softmax"));
    let library = place.path("eps/libortolan_ep_plain.so").display().to_string();
    place.ortolan(&["ep", "verify", &library]).assert().success().stdout_eq(file!["snapshots/ep-verify.txt"]);
    let (status, verified) = place.json(&["ep", "verify", &library, "--json"]);
    assert_eq!((status, &verified["ok"], verified["steps"].as_array().unwrap().len()), (0, &true.into(), 12));
    let (status, doctor) = place.json(&["doctor", "--ep-path", &eps, "--json"]);
    assert_eq!((status, &doctor["eps"][0]["usable"]), (0, &true.into()), "{doctor}");
    let (_, text, _) = place.answer(&["doctor", "--ep-path", &eps]);
    for words in ["plain@", "device 0", "Searched, in this order", "ORTOLAN_EP_PATH"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_library_that_is_none_fails_verification_at_its_check() {
    let place = Place::new();
    let text = place.file("text.so", "hello");
    place.ortolan(&["ep", "verify", &text]).assert().code(1).stdout_eq(file!["snapshots/ep-verify-text.txt"]);
    let (status, json) = place.json(&["ep", "verify", "none.so", "--json"]);
    assert_eq!((status, &json["steps"][0]["code"]), (1, &"file-not-found".into()));
    assert_eq!(json["steps"][1]["status"], "not-reached");
    let (status, out, _) = place.answer(&["ep", "list", "--ep-path", &text]);
    assert_eq!(status, 0);
    assert!(out.contains("Refused: ") && out.contains("[not-a-library]"), "{out}");
    let (status, out, _) = place.answer(&["doctor", "--ep-path", &text]);
    assert!(status == 0 && out.contains("[not-a-library]"), "{out}");
}

#[test]
fn errors_name_what_where_and_what_to_do() {
    let place = Place::new();
    place.file("text.onnx", "no model");
    place.file("empty.onnx", "");
    place.model(
        "twice.onnx",
        &model(
            vec![node("Relu", &["x"], &["y"], vec![]), node("Relu", &["x"], &["y"], vec![])],
            vec![value("x", 1, "1")],
            vec![value("y", 1, "1")],
            vec![],
        ),
    );
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&[], 2, &["Usage"]),
        (&["frob"], 2, &["unrecognized subcommand 'frob'"]),
        (&["inspct"], 2, &["similar", "inspect"]),
        (&["inspect"], 2, &["<MODEL>"]),
        (&["inspect", "a", "b"], 2, &["unexpected argument 'b'"]),
        (&["inspect", "none.onnx"], 2, &["none.onnx: there is no such file [file-not-found]", "what to do: "]),
        (&["inspect", "bin"], 2, &["bin: cannot be read: it is a folder [file-unreadable]"]),
        (&["inspect", "text.onnx"], 2, &["text.onnx: ", "[malformed]"]),
        (&["inspect", "empty.onnx"], 2, &["empty.onnx: ", "[missing-graph]"]),
        (&["inspect", "twice.onnx"], 2, &["twice.onnx: ", "'y'", "[duplicate-name]"]),
        (&["explain", "fingerprnt"], 2, &["'fingerprint'", "[code-unknown]"]),
        (&["ep", "info", "cpu"], 2, &["\"cpu\"", "[ep-not-found]", "--ep-path"]),
        (&["ep", "info", "@1"], 2, &["[ep-request]"]),
        (&["ep", "frob"], 2, &["unrecognized subcommand 'frob'"]),
    ];
    for (args, status, words) in cases {
        let (found, out, err) = place.answer(args);
        assert_eq!(found, *status, "{args:?}: {out}{err}");
        assert_eq!(out, "", "{args:?}");
        for word in *words {
            assert!(err.contains(word), "{args:?}: {word}: {err}");
        }
    }
}

#[test]
fn log_levels_come_from_the_variable() {
    let place = Place::new();
    let output = place.ortolan(&["ep", "list"]).env("ORTOLAN_LOG", "debug").output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("DEBUG") && err.contains("searched"), "{err}");
    let output = place.ortolan(&["ep", "list"]).env("ORTOLAN_LOG", "ortolan=loud").output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("warning: ORTOLAN_LOG=ortolan=loud is not used"));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = Place::new();
    let mut child = std::process::Command::new(place.path("bin/ortolan"))
        .args(["ep", "list"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
