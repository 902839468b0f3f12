//! Commands that need an EP, over the plugin in C of the fixtures: f32 MatMul and Softmax, by name `plain`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Place, classifier, model, node, value, weights};
use ortolan_graph::proto::ModelProto;
use snapbox::file;

/// An `.npy` file of f32 numbers.
fn npy(shape: &str, data: &[f32]) -> Vec<u8> {
    npy_of("<f4", shape, data)
}

/// An `.npy` file of a type that the numbers are taken for.
fn npy_of(descr: &str, shape: &str, data: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    file.extend(header.bytes());
    data.iter().for_each(|x| file.extend(x.to_le_bytes()));
    file
}

/// The numbers at the end of an `.npy` file.
fn floats(file: &std::path::Path, count: usize) -> Vec<f32> {
    let bytes = std::fs::read(file).unwrap();
    bytes[bytes.len() - 4 * count..].as_chunks().0.iter().map(|&c| f32::from_le_bytes(c)).collect()
}

/// A Relu that `plain` does not have, behind a Softmax that it has.
fn relu() -> ModelProto {
    let nodes = vec![node("Softmax", &["x"], &["s"], vec![]), node("Relu", &["s"], &["y"], vec![])];
    model(nodes, vec![value("x", 1, "2,3")], vec![value("y", 1, "2,3")], vec![])
}

/// A place with the plugin beside the program, the classifier and an input of it.
fn place() -> Place {
    let place = Place::new();
    let eps = place.plain_ep();
    let library = "libortolan_ep_plain.so";
    std::fs::rename(format!("{eps}/{library}"), place.path("bin").join(library)).unwrap();
    place.model("m.onnx", &classifier());
    place.file("x.npy", npy("1, 2", &[0.0, 1.0]));
    place
}

#[test]
fn help_is_the_contract() {
    let place = Place::new();
    place.ortolan(&["run", "--help"]).assert().success().stdout_eq(file!["snapshots/help-run.txt"]);
    place.ortolan(&["bench", "--help"]).assert().success().stdout_eq(file!["snapshots/help-bench.txt"]);
    place.ortolan(&["check", "--help"]).assert().success().stdout_eq(file!["snapshots/help-check.txt"]);
}

#[test]
fn run_shows_classes_and_placement() {
    let place = place();
    let args = ["run", "m.onnx", "--input", "x=x.npy", "--output-dir", "out", "--profile", "p.json"];
    place.ortolan(&args).assert().success().stderr_eq("").stdout_eq(file!["snapshots/run.txt"]);
    let found = floats(&place.path("out/y.npy"), 3);
    let sum = 2.0 + 4f32.exp();
    for (found, want) in found.iter().zip([1.0 / sum, 4f32.exp() / sum, 1.0 / sum]) {
        assert!((found - want).abs() < 1e-6, "{found} {want}");
    }
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("p.json")).unwrap()).unwrap();
    assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    let (status, json) = place.json(&["run", "m.onnx", "--input", "x=x.npy", "--json"]);
    assert_eq!(status, 0);
    assert_eq!((&json["outputs"][0]["top"][0][0]["label"], &json["eps"][0]["name"]), (&"dog".into(), &"plain".into()));
    assert_eq!((&json["nodes"], &json["fallback"], &json["seed"]), (&2.into(), &serde_json::json!([]), &().into()));
}

#[test]
fn random_inputs_follow_the_seed() {
    let place = place();
    let outputs = |seed: &str| {
        let args = ["run", "m.onnx", "--random-inputs", "--dim", "batch=2", "--seed", seed, "--json"];
        let (status, json) = place.json(&args);
        assert_eq!((status, json["seed"].to_string()), (0, seed.to_owned()));
        assert_eq!(json["outputs"][0]["shape"], serde_json::json!([2, 3]));
        json["outputs"][0]["data"].clone()
    };
    assert_eq!(outputs("7"), outputs("7"));
    assert_ne!(outputs("7"), outputs("8"));
}

#[test]
fn pictures_and_messages_are_inputs_too() {
    let place = place();
    let softmax = vec![node("Softmax", &["x"], &["y"], vec![])];
    place.model("s.onnx", &model(softmax, vec![value("x", 1, "1,1,1,2")], vec![value("y", 1, "1,1,1,2")], vec![]));
    place.file("p.pgm", "P2 2 1 255\n0 255\n");
    place.file("x.pb", prost::Message::encode_to_vec(&weights("x", &[1, 1, 1, 2], &[0.0, 1.0])));
    let outputs =
        |file: &str| place.json(&["run", "s.onnx", "--input", &format!("x={file}"), "--json"]).1["outputs"].clone();
    assert!((outputs("p.pgm")[0]["data"][1].as_f64().unwrap() - 0.731_058_6).abs() < 1e-6);
    assert_eq!(outputs("p.pgm"), outputs("x.pb"));
}

#[test]
fn bench_prints_the_fields_of_the_contract() {
    let place = place();
    let args = ["bench", "m.onnx", "--random-inputs", "--runs", "3", "--threads", "1", "--output-dir", "out", "--json"];
    let (status, json) = place.json(&args);
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(status, 0);
    assert_eq!(
        keys(&json),
        ["model", "eps", "threads", "load_ms", "first_run_ms", "latency_ms", "runs", "peak_rss_bytes"]
    );
    assert_eq!(keys(&json["latency_ms"]), ["min", "median", "p90", "mean"]);
    assert_eq!((&json["eps"], &json["threads"], &json["runs"]), (&serde_json::json!(["plain"]), &1.into(), &3.into()));
    assert!(place.path("out/y.npy").exists());
    let args = ["bench", "m.onnx", "--random-inputs", "--profile", "--threads", "1"];
    place.ortolan(&args).assert().success().stdout_eq(file!["snapshots/bench.txt"]);
    let (_, _, err) = place.answer(&args);
    assert!(err.contains("GFLOP/S") && err.contains("plain") && err.contains("in parts"), "{err}");
}

#[test]
fn a_run_that_takes_too_long_is_a_no() {
    let place = place();
    // The plugin looks at the clock between nodes, so the second one never begins.
    let nodes = vec![node("MatMul", &["a", "a"], &["p"], vec![]), node("Softmax", &["p"], &["y"], vec![])];
    place.model("slow.onnx", &model(nodes, vec![value("a", 1, "500,500")], vec![value("y", 1, "500,500")], vec![]));
    let (status, out, err) = place.answer(&["run", "slow.onnx", "--random-inputs", "--timeout", "0.005"]);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("[timeout]"), "{err}");
}

#[test]
fn check_says_where_and_why() {
    let place = place();
    place.model("relu.onnx", &relu());
    place.ortolan(&["check", "m.onnx"]).assert().success().stdout_eq(file!["snapshots/check.txt"]);
    place
        .ortolan(&["check", "relu.onnx"])
        .assert()
        .code(1)
        .stderr_eq("")
        .stdout_eq(file!["snapshots/check-unplaced.txt"]);
    let (status, json) = place.json(&["check", "relu.onnx", "--json"]);
    assert_eq!((status, &json["ok"], &json["placeable"]), (1, &false.into(), &false.into()));
    let lost = json["nodes"].as_array().unwrap().iter().find(|n| json["unplaced"][0] == n["id"]).unwrap();
    assert_eq!((&lost["op"], &lost["answers"][0]["code"]), (&"Relu".into(), &"operator".into()));
}

#[test]
fn policies_are_answered_with_yes_or_no() {
    let place = place();
    let cases: &[(&[&str], i32)] = &[
        (&["--require-ep", "plain"], 0),
        (&["--max-fallback-nodes", "0", "--max-copies", "0"], 0),
        (&["--require-ep", "other"], 2),
    ];
    for (args, status) in cases {
        let all = [&["check", "m.onnx"], *args].concat();
        let (found, out, err) = place.answer(&all);
        assert_eq!(found, *status, "{args:?}: {out}{err}");
    }
    std::fs::create_dir_all(place.path("zoo/deep")).unwrap();
    place.model("zoo/a.onnx", &classifier());
    place.model("zoo/deep/b.onnx", &relu());
    place.file("zoo/broken.onnx", "x");
    place.ortolan(&["check", "zoo"]).assert().code(1).stdout_eq(file!["snapshots/check-folder.txt"]);
    let (status, json) = place.json(&["check", "zoo", "--json"]);
    assert_eq!((status, json["models"].as_array().map(Vec::len)), (1, Some(3)));
    assert_eq!(place.answer(&["check", "out-of-nowhere"]).0, 2);
}

#[test]
fn two_eps_share_a_model_and_the_reasons_are_shown() {
    let place = place();
    place.model("relu.onnx", &relu());
    let eps = place.hostile_ep("NOTHING");
    let run = ["run", "relu.onnx", "--random-inputs", "--ep-path", &eps];
    place.ortolan(&run).assert().success().stderr_eq("").stdout_eq(file!["snapshots/run-two.txt"]);
    let check = ["check", "relu.onnx", "--ep", "plain", "--ep", "hostile", "--ep-path", &eps];
    place.ortolan(&check).assert().success().stdout_eq(file!["snapshots/check-two.txt"]);
    let cases: &[(&[&str], i32)] = &[
        (&["--require-ep", "plain"], 1),
        (&["--require-ep", "hostile"], 1),
        (&["--require-ep", "plain", "--max-fallback-nodes", "1"], 0),
        (&["--max-fallback-nodes", "0"], 1),
        (&["--max-fallback-nodes", "1", "--max-copies", "0"], 0),
    ];
    for (args, status) in cases {
        let (found, out, err) = place.answer(&[&check[..], args].concat());
        assert_eq!(found, *status, "{args:?}: {out}{err}");
    }
}

#[test]
fn an_ep_that_does_not_start_is_left_out_unless_it_was_asked_for() {
    let place = place();
    let eps = place.hostile_ep("EP_FAILS");
    let args = ["run", "m.onnx", "--input", "x=x.npy", "--ep-path", &eps];
    let (status, out, err) = place.answer(&args);
    assert!(status == 0 && out.contains("dog (96.5 %)") && err.contains("no session on Sundays"), "{out}{err}");
    let (status, out, err) = place.answer(&[&args[..], &["--ep", "hostile"]].concat());
    assert_eq!((status, out.as_str()), (3, ""), "{err}");
    assert!(err.contains("no session on Sundays [ep-new-failed]"), "{err}");
    let (status, _, err) = place.answer(&[&args[..], &["--ep-option", "plain.x=1"]].concat());
    assert!(status == 2 && err.contains("plain has no options [ep-new-failed]"), "{err}");
}

#[test]
fn a_plugin_that_fails_is_a_3_with_its_words() {
    let place = Place::new();
    place.model(
        "relu.onnx",
        &model(vec![node("Relu", &["x"], &["y"], vec![])], vec![value("x", 1, "2")], vec![value("y", 1, "2")], vec![]),
    );
    let cases: &[(&str, &[&str], i32, &[&str])] = &[
        ("NOTHING", &["run", "relu.onnx", "--random-inputs"], 0, &[]),
        ("RUN_FAILS", &["run", "relu.onnx", "--random-inputs"], 3, &["the seventh seal is broken", "[ep-failed]"]),
        ("RUN_FAILS", &["bench", "relu.onnx", "--random-inputs"], 3, &["[ep-failed]"]),
        ("COMPILE_FAILS", &["run", "relu.onnx", "--random-inputs"], 1, &["the compiler has a headache", "[unplaced]"]),
        (
            "DEVICES_CAUSE",
            &["run", "relu.onnx", "--random-inputs"],
            3,
            &["driver 3 is installed", "[no-device]", "[no-eps]"],
        ),
        ("DEVICES_CAUSE", &["check", "relu.onnx", "--ep", "hostile"], 3, &["driver 3 is installed", "[no-device]"]),
        ("CONSTRUCTOR_CRASHES", &["run", "relu.onnx", "--random-inputs"], 3, &["[probe-crashed]", "[no-eps]"]),
    ];
    for (fault, args, status, words) in cases {
        let eps = place.hostile_ep(fault);
        let (found, out, err) = place.answer(&[*args, &["--ep-path", &eps]].concat());
        assert_eq!(found, *status, "{fault}: {out}{err}");
        for word in *words {
            assert!(err.contains(word), "{fault}: {word}: {err}");
        }
    }
    let (status, json) = place.json(&["ep", "verify", "eps/libortolan_ep_hostile.so", "--json"]);
    assert_eq!((status, &json["steps"][5]["code"]), (1, &"probe-crashed".into()));
    let eps = place.hostile_ep("DEVICES_CAUSE");
    let (status, out, _) = place.answer(&["doctor", "--ep-path", &eps]);
    assert!(status == 0 && out.contains("no device: driver 3 is installed, 5 is needed [driver-too-old]"), "{out}");
}

#[test]
fn without_a_plugin_the_answer_says_where_it_looked() {
    let place = Place::new();
    place.model("m.onnx", &classifier());
    for command in ["run", "bench", "check"] {
        let mut args = vec![command, "m.onnx"];
        if command != "check" {
            args.push("--random-inputs");
        }
        let (status, out, err) = place.answer(&args);
        assert_eq!((status, out.as_str()), (1, ""), "{command}: {err}");
        for words in ["[no-eps]", "--ep-path", &place.path("bin").display().to_string()] {
            assert!(err.contains(words), "{command}: {words}: {err}");
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let place = place();
    place.model("relu.onnx", &relu());
    place.file("wide.npy", npy("1, 3", &[0.0; 3]));
    place.file("ints.npy", npy_of("<i8", "0,", &[]));
    place.file("x.txt", "1 2");
    place.file("cut.npy", &npy("1, 2", &[0.0])[..40]);
    place.file("text.so", "hello");
    let x = ["run", "m.onnx", "--input", "x=x.npy"];
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["run"], 2, &["<MODEL>"]),
        (&["run", "m.onnx"], 2, &["'x' (float [batch,2])", "[input-missing]", "--random-inputs"]),
        (&["run", "none.onnx", "--random-inputs"], 2, &["none.onnx", "[file-not-found]"]),
        (&["run", "bin", "--random-inputs"], 2, &["it is a folder"]),
        (&["run", "x.npy", "--random-inputs"], 2, &["x.npy", "[malformed]"]),
        (&["run", "m.onnx", "--input", "X=x.npy"], 2, &["no input 'X'", "did you mean 'x'?", "[input-unknown]"]),
        (&["run", "m.onnx", "--input", "x"], 2, &["NAME=FILE"]),
        (&["run", "m.onnx", "--input", "x=none.npy"], 2, &["input 'x': none.npy: there is no such file"]),
        (&["run", "m.onnx", "--input", "x=bin"], 2, &["'x'", "files that end in '.'", "[input-form]"]),
        (&["run", "m.onnx", "--input", "x=x.txt"], 2, &["'.txt' are not read", ".npy"]),
        (&["run", "m.onnx", "--input", "x=cut.npy"], 2, &["cut.npy", "[input-file]"]),
        (
            &["run", "m.onnx", "--input", "x=wide.npy"],
            2,
            &["wide.npy holds float [1, 3]", "float [batch,2]", "[input-shape]"],
        ),
        (&["run", "m.onnx", "--input", "x=ints.npy"], 2, &["holds int64 [0]", "[input-type]"]),
        (&[&x[..], &["--input", "x=x.npy"]].concat(), 2, &["'x' twice", "[argument]"]),
        (&[&x[..], &["--dim", "btch=3"]].concat(), 2, &["'btch'", "named dims of inputs: batch", "[dim]"]),
        (&[&x[..], &["--dim", "batch=3"]].concat(), 2, &["float [3,2]", "[input-shape]"]),
        (&[&x[..], &["--dim", "batch"]].concat(), 2, &["NAME=N"]),
        (&[&x[..], &["--ep", "none"]].concat(), 2, &["\"none\"", "[ep-not-found]"]),
        (&[&x[..], &["--ep", "plain@>=9"]].concat(), 2, &["[no-matching-version]"]),
        (&[&x[..], &["--ep", "plain", "--ep", "plain"]].concat(), 2, &["plain", "[argument]"]),
        (&[&x[..], &["--ep-option", "plane.x=1"]].concat(), 2, &["'plane'", "'plain'", "[ep-left-out]"]),
        (&[&x[..], &["--ep-option", "plain"]].concat(), 2, &["NAME.KEY=VALUE"]),
        (&[&x[..], &["--ep-path", "nowhere", "--ep", "plain"]].concat(), 0, &[]),
        (&[&x[..], &["--threads", "0"]].concat(), 2, &["--threads"]),
        (&[&x[..], &["--timeout", "-1"]].concat(), 2, &["--timeout"]),
        (&[&x[..], &["--output-dir", "x.npy"]].concat(), 2, &["x.npy", "[output-file]"]),
        (&[&x[..], &["--profile", "none/p.json"]].concat(), 2, &["none/p.json", "[output-file]"]),
        (&["run", "relu.onnx", "--random-inputs"], 1, &["relu_y", "[unplaced]"]),
        (&["bench", "m.onnx", "--random-inputs", "--runs", "0"], 2, &["--runs"]),
    ];
    for (args, status, words) in cases {
        let (found, out, err) = place.answer(args);
        assert_eq!(found, *status, "{args:?}: {out}{err}");
        assert!(*status == 0 || out.is_empty(), "{args:?}: {out}");
        assert!(!err.contains("panicked"), "{args:?}: {err}");
        for word in *words {
            assert!(err.contains(word), "{args:?}: {word}: {err}");
        }
    }
}
