//! Every body can be written at the opset before its operator came, or says why not; the results have the operator's types.

use crate::ir::Opset;
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

/// Inputs and attributes of operators that do not take just floats of [6,6,6,6].
const INPUTS: &[(&str, &str, &str)] = &[
    ("AffineGrid", "float[2,3,4] int64[5]", "align_corners=1"),
    ("Attention", "float[1,2,3,8] float[1,2,6,8] float[1,2,6,8] float[3,5]", "is_causal=1 left_window_size=2"),
    ("BlackmanWindow", "int64[]", ""),
    ("CausalConvWithState", "float[1,3,5] float[3,1,4]", "activation='silu'"),
    ("CenterCropPad", "float[3,4,5] int64[2]", "axes=[0,-1]"),
    ("DepthToSpace", "float[1,9,2,2]", "blocksize=3 mode='CRD'"),
    ("FlexAttention", "float[1,4,3,8] float[1,2,6,8] float[1,2,6,8]", ""),
    ("GroupNormalization", "float[6,6,6,6] float[6] float[6]", "num_groups=3"),
    ("HammingWindow", "int64[]", "periodic=0"),
    ("HannWindow", "int64[]", ""),
    ("LayerNormalization", "float[6,6] float[6]", ""),
    (
        "LinearAttention",
        "float[1,5,16] float[1,5,8] float[1,5,8] _ float[1,5,2]",
        "q_num_heads=4 kv_num_heads=2 update_rule='gated'",
    ),
    ("NegativeLogLikelihoodLoss", "float[3,5] int64[3] float[5]", "ignore_index=2"),
    ("RMSNormalization", "float[6,6] float[6]", ""),
    ("Range", "float[] float[] float[]", ""),
    ("RotaryEmbedding", "float[1,2,3,8] float[1,3,2] float[1,3,2]", "rotary_embedding_dim=4 interleaved=1"),
    ("SoftmaxCrossEntropyLoss", "float[3,5] int64[3]", ""),
];

/// Texts of bodies name operators and attributes that exist.
#[test]
fn every_body_can_be_written_where_its_operator_is() {
    let mut count = 0;
    // The body of what maps items needs one of its own: the cases of the package have some.
    for def in ops::all().filter(|d| d.body.is_some() && d.control.is_none()) {
        let schema = crate::schema::lookup(def.domain, def.name, u32::MAX).unwrap();
        let plain = vec!["float[6,6,6,6]"; *schema.input_counts().start()].join(" ");
        let row = INPUTS.iter().find(|r| r.0 == def.name);
        let (inputs, attrs) = row.map_or((plain.as_str(), ""), |r| (r.1, r.2));
        let attrs = if def.name == "SpaceToDepth" { "blocksize=3" } else { attrs };
        let names = |i: usize, ty: &str| if ty == "_" { String::new() } else { format!("x{i}") };
        let types: Vec<&str> = inputs.split(' ').collect();
        let lines: Vec<String> =
            types.iter().enumerate().filter(|t| *t.1 != "_").map(|(i, ty)| format!("x{i} {ty}")).collect();
        let all: Vec<String> = types.iter().enumerate().map(|(i, ty)| names(i, ty)).collect();
        let domain = if def.domain.is_empty() { String::new() } else { format!("{}::", def.domain) };
        let outputs = (1..*schema.output_counts().start()).map(|o| format!(" y{o}")).collect::<String>();
        let call = format!("y{outputs} = {domain}{}({}) {attrs}", def.name, all.join(","));
        let mut m = crate::testing::model(28, graph(&lines.join("\n"), &call, "y"));
        let preview = crate::proto::OperatorSetIdProto { domain: def.domain.to_owned(), version: 1 };
        m.opset_import.extend((!def.domain.is_empty()).then_some(preview));
        let mut g = crate::testing::load(&m).unwrap_or_else(|e| panic!("{}: {e}", def.name));
        let id = g.live_nodes()[0];
        let kind = |g: &crate::ir::Graph| {
            let t = g.value(g.main().outputs[0]).ty.as_ref()?.as_tensor()?;
            Some((t.dtype, t.rank()?))
        };
        let before = kind(&g);
        let nodes = super::expand(&mut g, id, 28).unwrap_or_else(|e| panic!("{}: {e}", def.name));
        assert!(nodes.is_some_and(|n| !n.is_empty()), "{}", def.name);
        crate::verify::verify(&g).unwrap();
        assert!(before.is_some() && kind(&g) == before, "{}: {:?}", def.name, kind(&g));
        count += 1;
    }
    assert!(count >= 48, "{count} bodies");
}

/// The bar: what the package says has a function, has a body here.
#[test]
fn every_function_of_the_schemas_has_a_body() {
    let mut missing = std::collections::BTreeSet::new();
    for schema in crate::schema::all().filter(|s| s.has_function()) {
        if ops::find(schema.domain(), schema.name()).is_none_or(|d| d.body.is_none()) {
            missing.insert(schema.name());
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
