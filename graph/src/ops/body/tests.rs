//! Every body can be written at the opset before its operator came, or says why not; the results have the operator's types.

use crate::ir::{DType, Opset, Type};
use crate::ops;
use crate::project::project;
use crate::testing::{good, graph, shown};

/// Operator, inputs, attributes, opset of the EP, and the operators of the body.
const CASES: &[(&str, &str, &str, u32, &str)] = &[
    ("CastLike", "float double", "", 14, "Cast"),
    ("Celu", "float", "alpha=2.0", 11, "Div Elu Mul"),
    ("Gelu", "float", "", 8, ""),
    ("Gelu", "float", "", 19, "Mul Erf Add Mul Mul"),
    ("Gelu", "float", "approximate='tanh'", 19, "Mul Mul Mul Add Mul Tanh Add Mul Mul"),
    ("GreaterOrEqual", "float float", "", 11, "Greater Equal Or"),
    (
        "GroupNormalization",
        "float float[6] float[6]",
        "num_groups=3",
        18,
        "Shape Reshape ReduceMean Sub Mul ReduceMean Add Sqrt Reciprocal Mul Reshape Reshape Reshape Mul Add",
    ),
    ("HardSwish", "float", "", 13, "HardSigmoid Mul"),
    ("LayerNormalization", "float float[7]", "", 16, "ReduceMean Sub Mul ReduceMean Add Sqrt Reciprocal Mul Mul"),
    (
        "LayerNormalization",
        "float16 float16[7] float16[7]",
        "axis=2",
        12,
        "Cast ReduceMean Sub Mul ReduceMean Add Sqrt Reciprocal Mul Cast Mul Add",
    ),
    ("LessOrEqual", "float float", "", 11, "Less Equal Or"),
    ("Mish", "double", "", 17, "Softplus Tanh Mul"),
    ("RMSNormalization", "float float[7]", "", 18, "Mul ReduceMean Add Sqrt Reciprocal Mul Mul"),
    ("Softmax", "float", "axis=1", 12, "ReduceMax Sub Exp ReduceSum Div"),
    ("LogSoftmax", "float", "axis=1", 11, "ReduceMax Sub Exp ReduceSum Log Sub"),
    ("SwiGLU", "float float", "", 27, "Mul Sigmoid Mul Mul"),
    ("Swish", "float16", "alpha=0.5", 23, "Cast Mul Sigmoid Mul"),
];

#[test]
fn bodies_at_the_opset_before_their_operators() {
    for &(op, inputs, attrs, opset, want) in CASES {
        let names = ["a", "b", "c"];
        let lines: Vec<String> = inputs
            .split(' ')
            .zip(names)
            .map(|(ty, name)| format!("{name} {ty}{}", if ty.contains('[') { "" } else { "[n,6,5,7]" }))
            .collect();
        let call = format!("y = {op}({}) {attrs}", names[..lines.len()].join(","));
        let g = good(28, graph(&lines.join("\n"), &call, "y"));
        let ty = g.value(g.main().outputs[0]).ty.clone();
        let p = project(&g, &[Opset { domain: "".into(), version: opset }], &Default::default()).unwrap();
        if want.is_empty() {
            assert_eq!(p.refused.len(), 1, "{op} at {opset}");
            continue;
        }
        assert!(p.refused.is_empty(), "{op} at {opset}: {:?}", p.refused);
        let found: Vec<String> =
            shown(&p.graph).iter().map(|n| n.split('-').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(found.join(" "), want, "{op} at {opset}");
        crate::verify::verify(&p.graph).unwrap();
        assert_eq!(p.graph.value(p.graph.main().outputs[0]).ty, ty, "{op}");
        let id = g.live_nodes()[0];
        assert!(p.graph.live_nodes().iter().all(|n| p.sources[n] == [id]), "{op}");
        let m = crate::write::to_model(&p.graph).unwrap();
        assert_eq!(m.opset_import[0].version, i64::from(opset), "{op}");
    }
}

/// Texts of bodies name operators and attributes that exist.
#[test]
fn every_body_can_be_written_where_its_operator_is() {
    let mut count = 0;
    for def in ops::all().filter(|d| d.body.is_some()) {
        let schema = crate::schema::lookup(def.domain, def.name, u32::MAX).unwrap();
        let float = Type::unranked(DType::F32);
        let takes_float = schema
            .inputs()
            .next()
            .is_some_and(|p| crate::schema::TypeId::of(&float).is_some_and(|f| p.types.contains(f)));
        assert!(takes_float, "{}", def.name);
        let required: Vec<&str> = schema.attributes().filter(|a| a.required).map(|a| a.name).collect();
        let attrs: Vec<String> = required.iter().map(|a| format!("{a}=3")).collect();
        let inputs = *schema.input_counts().start();
        let names: Vec<String> = (0..inputs).map(|i| format!("x{i}")).collect();
        let dims = |i: usize| if i > 0 && def.name.contains("Normalization") { "[6]" } else { "[6,6,6,6]" };
        let lines: Vec<String> = names.iter().enumerate().map(|(i, n)| format!("{n} float{}", dims(i))).collect();
        let call = format!("y = {}({}) {}", def.name, names.join(","), attrs.join(" "));
        let mut g = good(28, graph(&lines.join("\n"), &call, "y"));
        let id = g.live_nodes()[0];
        let nodes = super::expand(&mut g, id, 28).unwrap_or_else(|e| panic!("{}: {e}", def.name));
        assert!(nodes.is_some_and(|n| !n.is_empty()), "{}", def.name);
        crate::verify::verify(&g).unwrap();
        count += 1;
    }
    assert!(count >= 28, "{count} bodies");
}
