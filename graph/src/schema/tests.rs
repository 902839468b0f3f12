//! Tests of the schema table: counts, hand-checked look-ups, digests, the text form.

use bytes::Bytes;

use super::*;
use crate::ir::AttrValue;

#[test]
fn counts_per_domain() {
    let count = |table: &'static Table, domain: &str| {
        let schemas: Vec<_> = table.all().filter(|s| s.domain() == domain).collect();
        let names: std::collections::BTreeSet<_> = schemas.iter().map(|s| s.name()).collect();
        (names.len(), schemas.len(), newest(domain))
    };
    assert_eq!(count(&STANDARD, ""), (203, 629, Some(28)));
    assert_eq!(count(&STANDARD, "ai.onnx.ml"), (19, 25, Some(5)));
    assert_eq!(count(&STANDARD, "ai.onnx.preview"), (1, 1, Some(1)));
    assert_eq!(count(&STANDARD, "ai.onnx.preview.training"), (4, 4, Some(1)));
    assert_eq!(count(&CONTRIB, "com.microsoft"), (34, 34, Some(1)));
    assert_eq!(count(&CONTRIB, ""), (1, 1, Some(28)));
    assert_eq!(all().count(), 659 + 35);
    assert_eq!(newest("ai.onnx"), Some(28));
    assert_eq!(newest("com.example"), None);
    assert_eq!(domains(), ["", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft"]);
    assert_eq!(package_version(), "1.23.2");
}

#[test]
fn every_schema_reads_back_from_its_text() {
    for schema in all() {
        let line = text::line(schema);
        let table = read::read(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let read: Vec<_> = table.all().collect();
        assert_eq!(read.len(), 1);
        assert_eq!(text::line(read[0]), line);
        assert_eq!(text::digest(read[0]), text::digest(schema));
    }
}

#[test]
fn every_schema_is_found_by_its_versions() {
    for schema in all() {
        let (domain, op) = (schema.domain(), schema.name());
        let found = versions(domain, op);
        assert!(found.is_sorted_by(|a, b| a < b) && found.iter().any(|v| u32::from(*v) == schema.since()));
        assert_eq!(text::line(exact(domain, op, schema.since()).unwrap()), text::line(schema));
        assert!(lookup(domain, op, u32::from(found[0]) - 1).is_none());
        assert_eq!(lookup(domain, op, u32::MAX).map(|s| s.since()), found.last().map(|v| u32::from(*v)));
    }
}

#[test]
fn names_need_no_escape_and_lists_are_sorted() {
    let plain = |t: &str| !t.contains([' ', ';', ':', '=', '(', ')', '!', '?', '*', '+', '~']);
    for schema in all() {
        assert!(plain(schema.domain()) && plain(schema.name()));
        assert!(schema.inputs().chain(schema.outputs()).all(|p| plain(p.name)));
        assert!(schema.attributes().map(|a| a.name).is_sorted_by(|a, b| a < b));
        assert!(schema.attributes().all(|a| plain(a.name)));
        assert!(schema.constraints().map(|c| c.0).is_sorted_by(|a, b| a < b));
        for (variable, _) in schema.constraints() {
            assert!(plain(variable) && TypeSet::parse(variable).is_none(), "{schema:?}");
        }
    }
}

const NUMBERS: &str = "f32,u8,i8,u16,i16,i32,i64,f16,f64,u32,u64";
const FLOATS: &str = "f32,f16,f64,bf16";
const OLD: &str = "f32,u8,i8,u16,i16,i32,i64,bool,f16,f64,u32,u64";
const TENSORS: &str = "f32,u8,i8,u16,i16,i32,i64,str,bool,f16,f64,u32,u64,c64,c128";

/// Written down from the pages of the operators, with the digests of the reference in another language.
#[test]
fn operators_as_the_pages_have_them() {
    for (domain, op, opset, since, rest) in [
        ("", "Abs", 28, 13, "- (X:T) (Y:T) {} [T=NUMBERS,bf16]"),
        ("", "Abs", 12, 6, "- (X:T) (Y:T) {} [T=NUMBERS]"),
        ("", "Abs", 1, 1, "- (X:T) (Y:T) {consumed_inputs:ints} [T=f32,f16,f64]"),
        (
            "",
            "BatchNormalization",
            28,
            15,
            "- (X:T;scale:T1;B:T1;input_mean:T2;input_var:T2) (Y:T;running_mean:T2?;running_var:T2?) \
             {epsilon:float=0x3727c5ac;momentum:float=0x3f666666;training_mode:int=0} [T=FLOATS;T1=FLOATS;T2=FLOATS]",
        ),
        ("", "Cast", 5, 1, "- (input:T1) (output:T2) {to:string!} [T1=OLD;T2=OLD]"),
        ("", "Clip", 28, 13, "function (input:T;min:T?;max:T?) (output:T) {} [T=NUMBERS,bf16]"),
        ("", "Clip", 10, 6, "- (input:T) (output:T) {max:float=0x7f7fffff;min:float=0xff7fffff} [T=f32,f16,f64]"),
        ("", "Concat", 21, 13, "- (inputs:T+) (concat_result:T) {axis:int!} [T=TENSORS,bf16]"),
        (
            "",
            "Conv",
            22,
            22,
            "- (X:T;W:T;B:T?) (Y:T) {auto_pad:string=NOTSET;dilations:ints;group:int=1;kernel_shape:ints;pads:ints;\
             strides:ints} [T=FLOATS]",
        ),
        (
            "",
            "Gemm",
            28,
            13,
            "- (A:T;B:T;C:T?) (Y:T) {alpha:float=0x3f800000;beta:float=0x3f800000;transA:int=0;transB:int=0} \
             [T=f32,i32,i64,f16,f64,u32,u64,bf16]",
        ),
        (
            "",
            "LSTM",
            28,
            22,
            "- (X:T;W:T;R:T;B:T?;sequence_lens:T1?;initial_h:T?;initial_c:T?;P:T?) (Y:T?;Y_h:T?;Y_c:T?) \
             {activation_alpha:floats;activation_beta:floats;activations:strings;clip:float;direction:string=forward;\
             hidden_size:int;input_forget:int=0;layout:int=0} [T=FLOATS;T1=i32]",
        ),
        (
            "",
            "Loop",
            10,
            1,
            "- (M:I?;cond:B?;v_initial:V+~) (v_final_and_scan_outputs:V+~) {body:graph!} [B=bool;I=i64;V=TENSORS]",
        ),
        (
            "",
            "Loop",
            11,
            11,
            "- (M:I?;cond:B?;v_initial:V*~) (v_final_and_scan_outputs:V+~) {body:graph!} [B=bool;I=i64;V=TENSORS]",
        ),
        (
            "",
            "MaxPool",
            28,
            22,
            "- (X:T) (Y:T;Indices:I?) {auto_pad:string=NOTSET;ceil_mode:int=0;dilations:ints;kernel_shape:ints!;pads:ints;\
             storage_order:int=0;strides:ints} [I=i64;T=f32,u8,i8,f16,f64,bf16]",
        ),
        (
            "",
            "Resize",
            28,
            19,
            "- (X:T1;roi:T2?;scales:f32?;sizes:i64?) (Y:T1) {antialias:int=0;axes:ints;\
             coordinate_transformation_mode:string=half_pixel;cubic_coeff_a:float=0xbf400000;exclude_outside:int=0;\
             extrapolation_value:float=0x00000000;keep_aspect_ratio_policy:string=stretch;mode:string=nearest;\
             nearest_mode:string=round_prefer_floor} [T1=TENSORS,bf16;T2=f32,f16,f64]",
        ),
        (
            "",
            "SequenceInsert",
            28,
            11,
            "- (input_sequence:S;tensor:T;position:I?) (output_sequence:S) {} [I=i32,i64;S=SEQUENCES;T=TENSORS]",
        ),
        (
            "",
            "Slice",
            28,
            13,
            "- (data:T;starts:Tind;ends:Tind;axes:Tind?;steps:Tind?) (output:T) {} [T=TENSORS,bf16;Tind=i32,i64]",
        ),
        (
            "",
            "TopK",
            23,
            11,
            "- (X:T;K:i64) (Values:T;Indices:I) {axis:int=-1;largest:int=1;sorted:int=1} [I=i64;T=NUMBERS]",
        ),
        ("", "Upsample", 28, 10, "deprecated (X:T;scales:f32) (Y:T) {mode:string=nearest} [T=TENSORS]"),
        ("", "StringSplit", 20, 20, "- (X:T1) (Y:T2;Z:T3) {delimiter:string;maxsplit:int} [T1=str;T2=str;T3=i64]"),
        (
            "ai.onnx.ml",
            "ZipMap",
            5,
            1,
            "- (X:f32) (Z:T) {classlabels_int64s:ints;classlabels_strings:strings} [T=seq(map(str,f32)),seq(map(i64,f32))]",
        ),
        (
            "ai.onnx.preview.training",
            "Adam",
            1,
            1,
            "- (R:T1;T:T2;inputs:T3+~) (outputs:T3+~) {alpha:float=0x3f666666;beta:float=0x3f7fbe77;\
             epsilon:float=0x358637bd;norm_coefficient:float=0x00000000;norm_coefficient_post:float=0x00000000} \
             [T1=f32,f64;T2=i64;T3=f32,f64]",
        ),
        (
            "ai.onnx.preview",
            "FlexAttention",
            1,
            1,
            "experimental,function (Q:T1;K:T1;V:T1) (Y:T1) {prob_mod:graph;scale:float;score_mod:graph;softmax_precision:int} \
             [T1=FLOATS]",
        ),
        (
            "com.microsoft",
            "MatMulNBits",
            1,
            1,
            "- (A:T1;B:T2;scales:T1;zero_points:T3?;g_idx:T4?;bias:T1?) (Y:T1) {K:int!;N:int!;accuracy_level:int=0;\
             bits:int=4;block_size:int!;weight_prepacked:int=0} [T1=f32,f16,bf16;T2=u8;T3=f32,u8,f16,bf16;T4=i32]",
        ),
    ] {
        let sequences: Vec<String> = TENSORS.split(',').map(|t| format!("seq({t})")).collect();
        let rest =
            rest.replace("NUMBERS", NUMBERS).replace("FLOATS", FLOATS).replace("TENSORS", TENSORS).replace("OLD", OLD);
        let rest = rest.replace("SEQUENCES", &sequences.join(","));
        let prefix = if domain.is_empty() { "ai.onnx" } else { domain };
        let schema = lookup(domain, op, opset).unwrap_or_else(|| panic!("{op}"));
        assert_eq!(text::line(schema), format!("{prefix} {op} {since} {rest}"));
    }
}

#[test]
fn unknown_operators_and_opsets() {
    assert!(lookup("", "Relu6", 28).is_none());
    assert!(lookup("com.example", "Relu", 28).is_none());
    assert!(lookup("", "Gelu", 19).is_none() && lookup("", "Gelu", 20).is_some());
    assert!(lookup("", "Abs", 0).is_none());
    assert_eq!(versions("ai.onnx", "Abs"), [1, 6, 13]);
    assert!(versions("", "Nothing").is_empty());
    assert!(exact("", "Abs", 7).is_none() && exact("", "Abs", 6).is_some());
}

#[test]
fn counts_of_inputs_and_outputs() {
    for (op, inputs, outputs) in [
        ("Abs", 1..=1, 1..=1),
        ("Clip", 1..=3, 1..=1),
        ("Concat", 1..=usize::MAX, 1..=1),
        ("LSTM", 3..=8, 0..=3),
        // ONNX wants two, which may be left out: those at the end are not counted here.
        ("Loop", 0..=usize::MAX, 1..=usize::MAX),
        ("TopK", 2..=2, 2..=2),
        ("Split", 1..=2, 1..=usize::MAX),
        ("SequenceConstruct", 1..=usize::MAX, 1..=1),
        ("RandomNormal", 0..=0, 1..=1),
    ] {
        let schema = lookup("", op, 28).unwrap();
        assert_eq!((schema.input_counts(), schema.output_counts()), (inputs, outputs), "{op}");
    }
    let concat = lookup("", "Concat", 28).unwrap();
    assert_eq!(concat.input(7).map(|p| p.name), Some("inputs"));
    assert_eq!(concat.output(1), None);
}

#[test]
fn defaults_of_every_kind() {
    let default = |op: &str, opset, name: &str| lookup("", op, opset).unwrap().attribute(name).unwrap().default;
    assert_eq!(default("Conv", 22, "group"), Some(AttrValue::Int(1)));
    assert_eq!(default("Selu", 22, "gamma"), Some(AttrValue::Float(1.050_701)));
    assert_eq!(default("GRU", 1, "direction"), Some(AttrValue::text("foward")));
    assert_eq!(default("MeanVarianceNormalization", 13, "axes"), Some(AttrValue::ints(&[0, 2, 3])));
    let words: Vec<Bytes> = vec!["Tanh".into(), "Tanh".into()];
    assert_eq!(default("RNN", 22, "activations"), Some(AttrValue::Strings(words.into())));
    assert_eq!(default("Conv", 22, "pads"), None);
    assert_eq!(default("Concat", 13, "axis"), None);
}

/// A change here changes what every plugin's catalogue is compared with. Computed once by hand with another FNV-1a from
/// the form that the text module describes.
#[test]
fn digests_are_frozen() {
    for (domain, op, opset, digest) in [
        ("", "Abs", 13, 0xcec4_24e8_1281_25e3_u64),
        ("", "Clip", 13, 0xcf61_3ac6_a65d_a821),
        ("", "Concat", 13, 0xda41_30ac_41a8_ae5d),
        ("", "If", 25, 0x87be_4c50_e9f8_b0dd),
        ("", "QuantizeLinear", 28, 0xf41e_2f91_882c_cae8),
        ("", "Resize", 19, 0xf3e5_acab_db23_349c),
        ("ai.onnx.ml", "TreeEnsemble", 5, 0x2c93_a18a_7ba6_4a0f),
        ("com.microsoft", "BiasGelu", 1, 0xdddc_585a_e975_e141),
    ] {
        assert_eq!(text::digest(lookup(domain, op, opset).unwrap()), digest, "{op}");
    }
    let digests: std::collections::BTreeSet<u64> = all().map(text::digest).collect();
    assert_eq!(digests.len(), all().count(), "two schemas have one digest");
}

#[test]
fn digests_leave_out_names_and_see_meaning() {
    let digest = |line: &str| text::digest(read::read(line).unwrap().all().next().unwrap());
    let base = "x Op 1 - (A:T) (B:T) {a:int=1} [T=f32]";
    assert_eq!(digest(base), digest("x Op 1 function (X:T) (Y:T) {a:int=1} [T=f32]"));
    for other in [
        "x Op 2 - (A:T) (B:T) {a:int=1} [T=f32]",
        "x Op 1 deprecated (A:T) (B:T) {a:int=1} [T=f32]",
        "x Op 1 - (A:T?) (B:T) {a:int=1} [T=f32]",
        "x Op 1 - (A:f32) (B:T) {a:int=1} [T=f32]",
        "x Op 1 - (A:T) (B:T) {a:int=2} [T=f32]",
        "x Op 1 - (A:T) (B:T) {a:int} [T=f32]",
        "x Op 1 - (A:T) (B:T) {a:int!} [T=f32]",
        "x Op 1 - (A:T) (B:T) {a:int=1} [T=f32,f64]",
    ] {
        assert_ne!(digest(base), digest(other), "{other}");
    }
}

#[test]
fn text_in_any_order_is_one_schema() {
    let line = |text: &str| text::line(read::read(text).unwrap().all().next().unwrap());
    let canonical = "x Op 1 deprecated,function (A:U;B:f32,i8+3~) (C:T*) {a:floats=0x3f000000,0x3f800000;b:string=%20%25;c:strings=p,%C3%A9} [T=f32,f64;U=seq(map(str,f32))]";
    let loose = "x Op 1 function,deprecated (A:U;B:i8,f32+3~) (C:T*) {c:strings=p,%C3%A9;b:string=%20%25;a:floats=0.5,1} [U=seq(map(str,f32));T=f64,f32]";
    assert_eq!(line(loose), canonical);
    assert_eq!(line(canonical), canonical);
    let table = read::read(&format!("# a comment\n\n{loose}\nx Op 3 - () (C:f32) {{}} []\n")).unwrap();
    assert_eq!(table.all().map(|s| s.since()).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn malformed_text_is_refused_with_its_line() {
    for (text, part) in [
        ("x Op 1 - (A:T) (B:T) {}", "line 1: schema text: expected 8 fields"),
        ("\nx Op one - () () {} []", "line 2: schema text: 'one' is no since-version"),
        ("x Op 70000 - () () {} []", "no since-version"),
        ("x Op 0 - () () {} []", "no since-version"),
        ("x Op 1 - (A:f32*;B:f32) () {} []", "parameter 'A' takes any number and is not the last"),
        ("x Op 1 - () () {a:int;a:float} []", "'a' stands twice"),
        ("x Op 1 - () () {} [T=f32;T=f64]", "'T' stands twice"),
        ("x Op 1 fast () () {} []", "'fast' is no flag"),
        ("x Op 1 - A:f32 () {} []", "expected a list in ()"),
        ("x Op 1 - (A) () {} []", "'A' is no parameter"),
        ("x Op 1 - (A:Q) () {} []", "'A:Q' is no parameter"),
        ("x Op 1 - (A:f32+9999) () {} []", "is no parameter"),
        ("x Op 1 - (A:) () {} []", "is no parameter"),
        ("x Op 1 - () () {} [T=]", "'T=' is no constraint"),
        ("x Op 1 - () () {} [T=f33]", "is no constraint"),
        ("x Op 1 - () () {a} []", "'a' is no attribute"),
        ("x Op 1 - () () {a:integer} []", "is no attribute"),
        ("x Op 1 - () () {a:int!=3} []", "is no attribute"),
        ("x Op 1 - () () {a:int=x} []", "is no attribute"),
        ("x Op 1 - () () {a:tensor=1} []", "is no attribute"),
        ("x Op 1 - () () {a:string=%4} []", "is no attribute"),
        ("x Op 1 - () () {a:string=%FF} []", "not UTF-8"),
        ("x Op 1 - () () {} []\nx Op 1 - () () {} []", "two schemas of Op in version 1"),
        (" Op 1 - () () {} []", "expected 8 fields"),
    ] {
        let error = read::read(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_table_has_limits() {
    let many: String = (0..40_000).map(|i| format!("x Op{i} 1 - () () {{}} []\n")).collect();
    assert!(read::read(&many).unwrap_err().to_string().contains("too large for one table"));
}

#[test]
fn exported_schemas_join_but_replace_nothing() {
    let mut set = SchemaSet::default();
    set.extend("com.example Mix 2 - (A:T;B:T) (C:T) {} [T=f32]\ncom.example Mix 4 - (A:T) (C:T) {} [T=f32]").unwrap();
    assert_eq!(set.lookup("com.example", "Mix", 3).map(|s| s.since()), Some(2));
    assert_eq!(set.versions("com.example", "Mix"), [2, 4]);
    assert_eq!(set.lookup("ai.onnx", "Abs", 28).map(|s| s.since()), Some(13));
    assert!(set.lookup("com.example", "Mix", 1).is_none());
    for text in
        ["ai.onnx Abs 99 - () () {} []", "com.microsoft BiasGelu 2 - () () {} []", "com.example Mix 9 - () () {} []"]
    {
        let error = set.extend(text).unwrap_err().to_string();
        assert!(error.contains("has a schema already"), "{error}");
    }
}

#[test]
fn every_operator_of_the_list_is_there() {
    let names: Vec<&str> = CONTRIB.all().filter(|s| s.domain() == "com.microsoft").map(|s| s.name()).collect();
    assert_eq!(
        names.join(" "),
        "Attention BiasGelu CDist DynamicQuantizeLSTM DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv \
         FusedGemm FusedMatMul GatherBlockQuantized Gelu GroupQueryAttention Inverse MatMulIntegerToFloat MatMulNBits \
         MultiHeadAttention NhwcMaxPool QAttention QGemm QLinearAdd QLinearAveragePool QLinearConcat \
         QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearSoftmax QuickGelu Range \
         RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization Trilu"
    );
}

#[test]
fn relu_14_as_data() {
    let relu = lookup("ai.onnx", "Relu", 17).unwrap();
    assert_eq!((relu.domain(), relu.name(), relu.since()), ("", "Relu", 14));
    assert!(relu.has_function() && !relu.deprecated() && !relu.experimental());
    let types = TypeSet::parse("f32,i8,i16,i32,i64,f16,f64,bf16").unwrap();
    let x = Param { name: "X", variable: Some("T"), types, arity: Arity::Single };
    assert_eq!(relu.inputs().collect::<Vec<_>>(), [x]);
    assert_eq!(relu.constraints().collect::<Vec<_>>(), [("T", types)]);
}
