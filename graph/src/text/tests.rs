//! Round trips, and errors that name their line.

use super::{from_text, to_text};
use crate::proto::{AttributeProto, attribute_type};
use crate::testing::{floats, good, graph, ints, load, model, node};

fn round(g: &crate::Graph) {
    let text = to_text(g);
    let again = from_text(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(to_text(&again), text);
    assert_eq!(crate::testing::shown(&again).len(), crate::testing::shown(g).len());
}

fn example() -> crate::Graph {
    let mut top = graph(
        "x float[batch,4]\ni float[3]",
        "s = Shape(x)\nm = MatMul(x,w)\nr = ReduceMean(m) axes=[1]\nf = Softmax(m) axis=0\nq = Reshape(f,s2)\ny = Add(q,i)",
        "y float[batch,3]\nr\ns",
    );
    top.initializer =
        vec![floats("w", &[4, 3], &[0.5; 12]), ints("s2", &[2], &[-1, 3]), floats("i", &[3], &[f32::NAN, -0.0, 1e-9])];
    good(11, top)
}

#[test]
fn the_text_of_a_small_graph() {
    let want = r#"ortolan graph 1
model ir=8 version=0 producer="" "" domain="" name="g" doc=""
opset "" 17
c0 = float[3] = 1.0 2.0 3.0
s0 = dim 0 of %0 "n"
graph g0 "g"
  in %0 "x" float[s0,3]
  const %1 "w" c0
  %2 "a" float[s0,3] = Add-14(%0, %1) ""
  %3 "y" float[s0,3] = Softmax-13(%2) "" axis=-1
  out %3 "y"
end
"#;
    let mut top = graph("x float[n,3]", "a = Add(x,w)\ny = Softmax(a)", "y");
    top.initializer = vec![floats("w", &[3], &[1.0, 2.0, 3.0])];
    assert_eq!(to_text(&good(17, top)), want);
}

#[test]
fn graphs_read_back_as_they_were() {
    round(&example());
}

#[test]
fn bodies_and_odd_names_read_back() {
    let branch = |text: &str| AttributeProto {
        r#type: attribute_type::GRAPH,
        g: Some(graph("", text, "o")),
        ..AttributeProto::default()
    };
    let mut top = graph("c bool[]\nx float[n,2]", "a = Relu(x)\nz = my.ops::Odd(a) mode='quote\\\"d'", "y\nz");
    let mut fork = node("y = If(c)");
    fork.name = "a \"name\"\nof two lines \u{1}é".into();
    fork.attribute = vec![
        AttributeProto { name: "then_branch".into(), ..branch("t = Abs(a)\no = Concat(t,t) axis=0") },
        AttributeProto { name: "else_branch".into(), ..branch("o = Neg(x)") },
    ];
    top.node.push(fork);
    let mut m = model(21, top);
    m.opset_import.push(crate::proto::OperatorSetIdProto { domain: "my.ops".into(), version: 1 });
    round(&load(&m).unwrap());
}

#[test]
fn raised_nodes_read_back() {
    let mut g = good(21, graph("x float[2]", "s = Sigmoid(x)\ny = Mul(x,s)", "y"));
    let nodes = g.live_nodes();
    let (x, y) = (g.main().inputs[0], g.main().outputs[0]);
    let mut e = g.edit();
    let swish = crate::edit::NewNode { domain: "", op: "Swish", name: "", inputs: &[Some(x)], attrs: Vec::new() };
    e.raise(swish, &nodes, &[Some(y)]).unwrap();
    e.finish().unwrap();
    round(&g);
}

#[test]
fn errors_name_the_line() {
    let good = to_text(&example());
    for (from, to, want) in [
        ("ortolan graph 1", "ortolan graph 2", "first line"),
        ("Softmax-13(", "Softmax-13[", "expected '('"),
        ("in %0", "in %1", "%1 is made twice"),
        ("s0 = dim 0 of %0", "s0 = dim 0 of %99", "%99"),
        ("\nend\n", "\n", "expected a value, found 'o0"),
        ("c0 = float[3]", "c0 = float[-3]", "negative"),
        ("c0 = float[3]", "c1 = float[3]", "c1 stands where c0"),
        ("opset \"\" 11", "opset \"\" x", "expected an integer"),
    ] {
        assert!(good.contains(from), "{from} in\n{good}");
        let e = from_text(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(e.contains(want), "{from} → {to}: {e}");
    }
}

#[test]
fn every_cut_gives_an_answer() {
    let text = to_text(&example());
    for len in 0..text.len() {
        if text.is_char_boundary(len) {
            let _ = from_text(&text[..len]);
        }
    }
}

#[test]
fn small_texts_cannot_take_big_memory() {
    let head = "ortolan graph 1\n";
    let e = from_text(&format!("{head}c0 = float[4000000,4000000] elided\n")).unwrap_err();
    assert_eq!(e.code(), crate::Code::Limit);
    let deep = "(".repeat(5000);
    assert!(from_text(&format!("{head}e0 = {deep}")).unwrap_err().to_string().contains("nested"));
}

#[test]
fn forms_of_the_file_read_back_after_passes_took_values_away() {
    let text = "m = ReduceMean(x) axes=[1]\ns = Softmax(m) axis=1\nz = Squeeze(s) axes=[0]";
    let mut g = good(11, graph("x float[1,3,4]", text, "z"));
    // The last node's maker is replaced, so the values that its form in the file reads are gone.
    let (x, last) = (g.main().inputs[0], *g.live_nodes().last().unwrap());
    let read = g.node(last).inputs[0].unwrap();
    let mut e = g.edit();
    let new = crate::edit::NewNode { domain: "", op: "Abs", name: "", inputs: &[Some(x)], attrs: Vec::new() };
    let id = e.insert(crate::edit::At::Before(last), new, 1).unwrap();
    let made = e.graph().node(id).outputs[0].unwrap();
    e.replace(read, made);
    e.finish().unwrap();
    round(&g);
}

/// What fuzzing found once stays found.
#[test]
fn texts_that_fuzzing_found() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/found/text");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        count += 1;
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        if let Ok(g) = from_text(text) {
            round(&g);
            let _ = crate::write::to_model(&g);
        }
    }
    assert!(count > 0);
}
